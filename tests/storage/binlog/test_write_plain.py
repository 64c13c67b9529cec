"""The quick way of `LogWriter` for plain groups is the same as the long one, byte by byte."""

from __future__ import annotations

from binlog_protocol.gtid import Gtid
from binlog_storage.ibb import commit
from binlog_storage.ibb.chunk import RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.redo.format import CRC, MTR_HEAD, build_mtr
from hypothesis import given
from hypothesis import strategies as st

from tests.storage import vectors
from tests.storage.writing import Writing


class KeptRedo:
    """Keeps the bodies of mini-transactions; LSNs count their bytes."""

    epoch = 0xFEDC_BA98

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.lsn = 0

    def append(self, *records: bytes) -> int:
        body = b"".join(records)
        self.bodies.append(body)
        self.lsn += len(body)
        return self.lsn

    def append_made(self, mtr: bytes) -> int:
        body = mtr[MTR_HEAD.size : -CRC.size]
        assert mtr == build_mtr(self.epoch, self.lsn, body)
        return self.append(body)


def writing() -> tuple[Writing, KeptRedo]:
    made = Writing()
    redo = made.writer._redo = KeptRedo()
    made.writer.start_new(0)
    made.writer.end_mtr()
    return made, redo


def write_long(made: Writing, payload: bytes, gtid: Gtid) -> int:
    made.writer.write(RecordType.COMMIT, commit.encode(payload), gtid)
    return made.writer.end_mtr()


gtids = st.builds(Gtid, st.integers(0, 2), st.integers(1, 3), st.integers(1, 50))
sizes = st.one_of(st.integers(1, 900), st.integers(1, 3 * PAGE_SIZE))


@given(st.lists(st.tuples(sizes, gtids, st.booleans()), min_size=1, max_size=40))
def test_both_ways_write_the_same(groups: list[tuple[int, Gtid, bool]]) -> None:
    (quick, quick_redo), (plain, plain_redo) = writing(), writing()
    taken = 0
    for number, (size, gtid, checkpoint) in enumerate(groups):
        payload = bytes([number + 1]) * size
        lsn = quick.writer.write_plain(payload, gtid)
        taken += lsn is not None
        if lsn is None:
            lsn = write_long(quick, payload, gtid)
        assert lsn == write_long(plain, payload, gtid)
        assert quick.writer.end == plain.writer.end
        if checkpoint:
            quick.writer.tail_taken()
            plain.writer.tail_taken()
    assert quick_redo.bodies == plain_redo.bodies
    assert quick.writer.state.entries() == plain.writer.state.entries()
    quick.flush()
    plain.flush()
    for name in plain.disk.names():
        assert vectors.file_bytes(quick.disk, name) == vectors.file_bytes(plain.disk, name)


def test_the_quick_way_is_taken() -> None:
    made, _ = writing()
    assert made.writer.write_plain(b"x" * 300, Gtid(0, 1, 1)) is None, "a new server in the state"
    write_long(made, b"x" * 300, Gtid(0, 1, 1))
    assert made.writer.write_plain(b"x" * 300, Gtid(0, 1, 2)) is not None
    assert made.writer.write_plain(b"x" * 300, Gtid(0, 1, 2)) is None, "a number that goes back"
    assert made.writer.write_plain(b"x" * PAGE_SIZE, Gtid(0, 1, 3)) is None, "no room on the page"
    made.writer.tail_taken()
    assert made.writer.write_plain(b"x", Gtid(0, 1, 3)) is None, "the whole page is to be logged"
