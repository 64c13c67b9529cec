"""The bytes that docs/ibb-format.md shows are those that our encoders make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.ibb import commit, compressed_int, oob, xa
from binlog_storage.ibb.chunk import RecordType
from binlog_storage.ibb.commit import OobList
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.xa import XaComplete, XaPrepare, Xid

from tests.storage.writing import Writing

PAGE = (Path(__file__).parents[3] / "docs" / "ibb-format.md").read_text()
BLOCKS = dict(re.findall(r"```hex (\S+)\n(.*?)```", PAGE, re.DOTALL))
LINE = re.compile(r"([0-9a-f]{4}): ((?:[0-9a-f]{2} ?)+)(?:  .*)?")
TABLE = re.compile(r"^\| `(\d+)` \| `([0-9a-f ]+)` \|", re.MULTILINE)


def shown(name: str) -> dict[int, bytes]:
    """Offset in the page: bytes, of one block."""
    found = {}
    for line in BLOCKS[name].splitlines():
        matched = LINE.fullmatch(line)
        assert matched, line
        found[int(matched[1], 16)] = bytes.fromhex(matched[2])
    return found


def example() -> Writing:
    """File 0 of 4 pages: a small group, then one of three pieces out of band."""
    writing = Writing()
    writer = writing.writer
    writer.start_new(0)
    writer.write(RecordType.COMMIT, commit.encode(b"<group one>"), Gtid(0, 1, 1))
    forest = oob.Forest()
    for piece in (b"ABC", b"DEF", b"GHI"):
        node = oob.encode(forest.next_node(piece))
        forest.placed(writer.write(RecordType.OOB_DATA, node))
    record = commit.encode(b"<GTID>", forest.reference())
    writer.write(RecordType.COMMIT, record, Gtid(0, 1, 2))
    xid = Xid(1, b"a")
    reference: OobList = forest.reference()
    writer.write(RecordType.XA_PREPARE, xa.encode_prepare(XaPrepare(1, xid, reference)))
    complete = XaComplete(xid, rolled_back=True)
    writer.write(RecordType.XA_COMPLETE, xa.encode_complete(complete))
    return writing


def flushed() -> Writing:
    writing = example()
    writing.writer.flush()
    return writing


@pytest.mark.parametrize(
    ("name", "file_no", "page_no"),
    [("header", 0, 0), ("page-1", 0, 1), ("flush", 0, 1), ("next-file", 1, 1)],
)
def test_pages(name: str, file_no: int, page_no: int) -> None:
    writing = flushed() if name in ("flush", "next-file") else example()
    page = writing.page(file_no, page_no)
    lines = shown(name)
    assert lines
    for offset, data in lines.items():
        assert page[offset : offset + len(data)] == data, f"{name} at {offset:04x}"
    if name == "page-1":
        at = 0
        for offset, data in sorted(lines.items()):
            assert offset in (at, PAGE_SIZE - 4), "a byte is left out"
            at = offset + len(data)


def test_every_block_is_looked_at() -> None:
    assert set(BLOCKS) == {"header", "page-1", "flush", "next-file"}


def test_numbers() -> None:
    rows = TABLE.findall(PAGE)
    assert len(rows) >= 6
    for number, text in rows:
        assert compressed_int.encode(int(number)) == bytes.fromhex(text)
