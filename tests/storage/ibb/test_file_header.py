"""Page 0: the worked examples of spec 2.2, and everything that is refused."""

from __future__ import annotations

import pytest
from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.ibb.test_page import crc32c

FIRST = FileHeader(0, 16, 0x11DD6, 8, 0)
FOURTH = FileHeader(3, 65536, 123456789, 128, 2)
PAGE_CRC = bytes.fromhex(
    "dd 35 53 6a"
)  # of any good header page, because the first CRC is inside it

EXAMPLES = [
    (
        FIRST,
        """
        fe fe 0d 01 0e 00 00 00 01 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00
        d6 1d 01 00 00 00 00 00 08 00 00 00 00 00 00 00
        00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff
        """,
        "19 7b 47 b3",
    ),
    (
        FOURTH,
        """
        fe fe 0d 01 0e 00 00 00 01 00 00 00 00 00 00 00
        03 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00
        15 cd 5b 07 00 00 00 00 80 00 00 00 00 00 00 00
        02 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff
        """,
        "d2 db 71 5d",
    ),
]


@pytest.mark.parametrize(("header", "fields", "crc"), EXAMPLES)
def test_worked_examples(header: FileHeader, fields: str, crc: str) -> None:
    page = header.build()
    assert len(page) == PAGE_SIZE
    assert page[:64] == bytes.fromhex(fields)
    assert not any(page[64:508])
    assert page[508:512] == bytes.fromhex(crc)
    assert not any(page[512:PAGE_END])
    assert page[PAGE_END:] == PAGE_CRC
    assert FileHeader.parse(page, header.file_no) == header


u64 = st.integers(0, 2**64 - 1)


@given(u64, u64, u64, u64, u64, st.none() | st.integers(0, 2**64 - 2))
def test_round_trip(
    file_no: int, pages: int, lsn: int, interval: int, oob: int, xa: int | None
) -> None:
    header = FileHeader(file_no, pages, lsn, interval, oob, xa)
    page = header.build()
    assert page[PAGE_END:] == PAGE_CRC
    assert FileHeader.parse(page, file_no) == header


def changed(offset: int, text: str, *, header: FileHeader = FIRST) -> bytes:
    """The page with other bytes at `offset` and right checksums."""
    page = bytearray(header.build())
    data = bytes.fromhex(text)
    page[offset : offset + len(data)] = data
    page[508:512] = crc32c(bytes(page[:508])).to_bytes(4, "little")
    return bytes(page)


REFUSED = [
    ("magic", changed(0, "ff"), 0, "wrong magic number"),
    ("classic binlog", changed(0, "fe 62 69 6e"), 0, "wrong magic number"),
    ("page size", changed(4, "0c"), 4, r"page size in InnoDB binlog file \(2\^12\)"),
    ("page size of nonsense", changed(4, "00 00 00 80"), 4, "page size"),
    ("major version", changed(8, "02"), 8, r"Unsupported version .* \(2\)"),
    ("number", changed(16, "05"), 16, "the header says file number 5, the name says 0"),
    ("checksum", FIRST.build()[:508] + bytes(4) + bytes(PAGE_SIZE - 512), 508, "Invalid checksum"),
    ("one bit", b"\xff" + FIRST.build()[1:], 508, "Invalid checksum"),
    ("zeroed", bytes(512) + FIRST.build()[512:], 0, "the header is empty, but its page is not"),
    ("short", FIRST.build()[:300], 0, "the file ends inside its header page"),
    ("empty", b"", 0, "the file ends inside its header page"),
]


@pytest.mark.parametrize(
    ("page", "offset", "reason"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED]
)
def test_refused(page: bytes, offset: int, reason: str) -> None:
    with pytest.raises(CorruptBinlog, match=reason) as info:
        FileHeader.parse(page, 0)
    assert (info.value.file_no, info.value.offset) == (0, offset)


def test_a_larger_minor_version_is_readable() -> None:
    assert FileHeader.parse(changed(12, "09"), 0) == FIRST


def test_a_page_that_was_never_written_is_no_header() -> None:
    assert FileHeader.parse(bytes(PAGE_SIZE), 0) is None
