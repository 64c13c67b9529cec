"""XA transactions in files: what headers and state records tell of them, and what a restart makes of it."""

from __future__ import annotations

from itertools import count as numbers_from

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import Xid
from binlog_storage.errors import CorruptBinlog, DiskError
from binlog_storage.ibb import xa
from binlog_storage.ibb.chunk import Position, RecordType
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.ibb.xa import XaComplete
from binlog_storage.log.log_file import read_state_record
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_all, events, group, gtid_event, read_all, simple
from tests.storage.sizes import small
from tests.storage.vectors import walk

OPTIONS = small(8, slave_connections_needed_for_purge=0)
ONE, TWO, THREE = Xid(1, b"one"), Xid(1, b"two", b"b"), Xid(2, b"one")
GTIDS = (Gtid(9, 1, n) for n in numbers_from(1))


def prepare(engine: IbbEngine, xid: Xid, size: int) -> None:
    writer = engine.begin()
    writer.spill(events(size, str(xid)))
    writer.prepare(xid)


def commit(engine: IbbEngine, xid: Xid) -> None:
    gtid = next(GTIDS)
    engine.commit_prepared(xid, gtid_event(gtid), gtid)


def header_refs(engine: IbbEngine) -> list[tuple[int, int | None]]:
    """Fields 48 and 56 of all files."""
    engine.sync()
    headers = [engine._pages.header(n) for n in range(len(engine.files()))]
    return [(h.oob_ref, h.xa_ref) for h in headers if h is not None]


def state_refs(engine: IbbEngine, file_no: int) -> list[int | None]:
    """The XA field of the state records of a file."""
    engine.sync()
    size = engine._pages.files.size(file_no) or 0
    records = (read_state_record(engine._pages, file_no, p) for p in range(1, size // PAGE_SIZE))
    return [record.xa_ref for record in records if record is not None]


@pytest.mark.parametrize("reopen", [False, True])
def test_headers_and_states_tell_of_what_is_prepared(reopen: bool) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)

    def next_file() -> None:
        nonlocal engine
        if reopen:
            engine.close()
            engine = IbbEngine(disk, OPTIONS)
        engine.flush()

    next_file()
    prepare(engine, ONE, 100)  # in file 1
    next_file()
    prepare(engine, TWO, 0)  # in file 2, with no data at all
    append_all(engine, simple(3, size=30_000))
    next_file()
    commit(engine, ONE)
    append_all(engine, simple(3, first=4, size=30_000))
    next_file()
    engine.rollback_prepared(TWO)
    next_file()
    assert header_refs(engine) == [(0, None), (1, None), (1, 1), (1, 1), (2, 2), (5, None)]
    assert state_refs(engine, 1) == [None]
    assert state_refs(engine, 2)[:1] == [1]
    assert set(state_refs(engine, 2)) == {1}
    assert state_refs(engine, 3)[0] == 1
    assert set(state_refs(engine, 3)[1:]) == {2}
    assert state_refs(engine, 4) == [2]
    assert state_refs(engine, 5) == [None]
    engine.close()


@pytest.mark.parametrize("size", [0, 50, 200_000])
@pytest.mark.parametrize("files", [0, 1, 4])
def test_found_again_from_files_back(size: int, files: int) -> None:
    """Recovery reads from the file that the last state record names, not only from that record on."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    prepare(engine, ONE, size)
    prepare(engine, TWO, 30)
    engine.rollback_prepared(TWO)
    for _ in range(files):
        append_all(engine, simple(2, size=20_000))
        engine.flush()
    prepare(engine, THREE, 40)
    engine.close()
    engine = IbbEngine(disk, OPTIONS)
    assert engine.prepared() == [ONE, THREE]
    commit(engine, ONE)
    engine.sync()
    assert read_all(engine)[-1].endswith(events(size, str(ONE)))
    engine.close()


def test_a_name_that_is_used_again_and_again() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    for turn in range(6):
        prepare(engine, ONE, 100 + turn)
        engine.close()
        engine = IbbEngine(disk, OPTIONS)
        assert engine.prepared() == [ONE]
        if turn % 2:
            engine.rollback_prepared(ONE)
        else:
            commit(engine, ONE)
    engine.sync()
    sizes = [len(p) - len(gtid_event(Gtid(9, 1, 1))) for p in read_all(engine)]
    assert sizes == [100, 102, 104]
    engine.close()


@pytest.mark.parametrize("left", [17, 10, 5, 0])
@pytest.mark.parametrize("way", ["kill", "cut"])
def test_crash_between_the_completion_and_its_commit(left: int, way: str) -> None:
    """The two records lie on two pages, or in two files; at each operation of the sync the power goes."""
    stop = 0
    outcomes = set()
    while True:
        stop += 1
        disk = MemoryDisk()
        engine = IbbEngine(disk, OPTIONS)
        prepare(engine, ONE, 100)
        engine.sync()
        writer = engine._writer
        complete = len(xa.encode_complete(XaComplete(ONE, rolled_back=False))) + 3
        free = (
            7 * PAGE_SIZE + PAGE_SIZE - 4
        )  # to the end of the file: the commit record goes to the next
        while writer.end.offset + 16_000 < free - 200:
            engine.append(*group(Gtid(0, 1, stop), 15_000))
        rest = free - writer.end.offset - complete - left
        writer.write(RecordType.OOB_DATA, b"g" * (rest - 3))
        engine.sync()
        commit(engine, ONE)
        disk.fail_at = disk.operations + stop
        try:
            engine.sync()
        except DiskError:
            disk.kill() if way == "kill" else disk.crash()
        else:
            break
        engine = IbbEngine(disk, OPTIONS)
        committed = any(p.endswith(events(100, str(ONE))) for p in read_all(engine))
        outcomes.add(committed)
        assert engine.prepared() == ([] if committed else [ONE])
        if not committed:
            commit(engine, ONE)
        engine.append(*group(Gtid(3, 1, 1)))
        engine.close()
        outcome = walk(disk)
        assert outcome.error is None
        assert sum(g.payload.endswith(events(100, str(ONE))) for g in outcome.groups) == 1
    assert False in outcomes


def test_a_completion_alone_is_cut_off() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    prepare(engine, ONE, 100)
    place = engine._writer.write(
        RecordType.XA_COMPLETE, xa.encode_complete(XaComplete(ONE, rolled_back=False))
    )
    engine._appender.ended()
    engine.close()
    with pytest.raises(CorruptBinlog, match="a record that does not end"):
        IbbEngine(disk, OPTIONS)  # by the redo log both are there, or neither
    disk.kill()
    disk.unlink(REDO_NAME)
    engine = IbbEngine(disk, OPTIONS)
    assert engine.prepared() == [ONE]
    assert engine.written_end == place
    assert "binlog-000000.ibb.broken" in disk.names()
    engine.close()


def test_a_rollback_alone_is_whole() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    prepare(engine, ONE, 100)
    end = engine.rollback_prepared(ONE)
    engine.close()
    engine = IbbEngine(disk, OPTIONS)
    assert engine.prepared() == []
    assert engine.written_end == end
    engine.close()


def test_the_records_of_a_commit_stand_together() -> None:
    engine = IbbEngine(MemoryDisk(), OPTIONS)
    prepare(engine, ONE, 100)
    commit(engine, ONE)
    reader = RecordReader(engine._pages, Position(0, PAGE_SIZE), engine.written_end)
    kinds = [record.type for record in iter(reader.next, None)]
    assert kinds == [
        RecordType.GTID_STATE,
        RecordType.OOB_DATA,
        RecordType.XA_PREPARE,
        RecordType.XA_COMPLETE,
        RecordType.COMMIT,
    ]
    engine.close()


@pytest.mark.parametrize("kind", [RecordType.XA_PREPARE, RecordType.XA_COMPLETE])
def test_a_damaged_xa_record_refuses_the_store(kind: RecordType) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    engine._writer.write(kind, b"\x01\x01\x00")
    engine.append(*group(Gtid(0, 1, 1)))
    engine.close()
    with pytest.raises(CorruptBinlog, match=r"Short chunk"):
        IbbEngine(disk, OPTIONS)


def test_purge_is_held_back_until_the_completion_is_behind() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    prepare(engine, ONE, 100)
    engine.flush()
    engine.close()
    engine = IbbEngine(disk, OPTIONS)
    plan = engine.purge_to(1)
    assert (plan.delete, plan.kept, plan.why) == (
        [],
        0,
        "it holds data of a prepared XA transaction ('one'; XA COMMIT or XA ROLLBACK ends it)",
    )
    commit(engine, ONE)
    plan = engine.purge_to(1)
    assert plan.kept == 0
    assert plan.why.startswith("binlog file number 1 refers to data in it")
    engine.flush()
    assert engine.purge_to(2).delete == [0, 1]
    engine.close()
    engine = IbbEngine(disk, OPTIONS)
    assert engine.prepared() == []
    engine.close()
