"""Which redo log goes with which store, and what there is without one."""

from __future__ import annotations

import itertools
import logging
import random
from dataclasses import replace
from typing import Any

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import NO_LOG_REDO, StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import REDO_KEY, StateStore
from binlog_storage.errors import CorruptBinlog, CorruptRedo, DiskError
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.log.survey import UNSYNCED_PAGES_MAX
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.redo.log import FIRST_LSN
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage import vectors
from tests.storage.disks import fails_to_sync
from tests.storage.groups import (
    Group,
    append_all,
    group,
    payloads,
    read_all,
    read_from,
    run_dry,
    settle,
    simple,
    state_after,
)
from tests.storage.sizes import small

SMALL = small(8)
SIZE = SMALL.innodb_log_file_size
LARGE_FILES = small(1024, 64, innodb_log_file_size=32 << 20)
FORCED = small(8, innodb_force_recovery=NO_LOG_REDO)
GROUPS = simple(40, size=2000)


def store(disk: MemoryDisk, **more: int) -> IbbEngine:
    return IbbEngine(disk, small(8, **more), facts=StateStore(disk))


def closed(groups: list[Group] = GROUPS) -> MemoryDisk:
    disk = MemoryDisk()
    engine = store(disk)
    append_all(engine, groups)
    engine.close()
    return disk


def crashed(groups: list[Group] = GROUPS) -> MemoryDisk:
    """Half of it is in the redo log only."""
    disk = MemoryDisk()
    engine = store(disk)
    append_all(engine, groups[: len(groups) // 2])
    engine.checkpoint()
    append_all(engine, groups[len(groups) // 2 :])
    engine.sync()
    disk.crash()
    return disk


def holds(disk: MemoryDisk, groups: list[Group], **more: int) -> None:
    """The store has these, takes more, and opens again."""
    engine = store(disk, **more)
    assert read_all(engine) == payloads(groups)
    assert engine.binlog_state() == state_after(groups)
    extra = group(Gtid(9, 1, 1), 5000)
    engine.append(*extra)
    engine.sync()
    disk.crash()
    engine = store(disk, **more)
    assert read_all(engine) == payloads([*groups, extra])
    engine.close()


def redo_uuid(disk: MemoryDisk) -> str:
    return vectors.file_bytes(disk, REDO_NAME)[16:32].hex()


def refused(disk: MemoryDisk, words: str) -> None:
    before = disk.contents()
    with pytest.raises(CorruptRedo, match=words):
        store(disk)
    disk.kill()
    assert disk.contents() == before


# --- which log ---


def test_a_new_store() -> None:
    disk = MemoryDisk()
    engine = store(disk)
    assert StateStore(disk).get(REDO_KEY) == redo_uuid(disk)
    assert len(vectors.file_bytes(disk, REDO_NAME)) == SIZE
    header = engine._pages.header(0)
    assert header is not None
    assert header.start_lsn >= FIRST_LSN
    engine.close()
    assert redo_uuid(closed()) != redo_uuid(disk), "each store has its own"


def test_start_lsns_of_files_rise() -> None:
    disk = MemoryDisk()
    engine = store(disk)
    lsns = []
    for number in range(1, 6):
        append_all(engine, simple(3, first=number * 10))
        engine.flush()
        header = engine._pages.header(number)
        assert header is not None
        lsns.append(header.start_lsn)
        assert header.start_lsn < engine._redo.lsn
    assert lsns == sorted(set(lsns))
    engine.close()


@pytest.mark.parametrize("make", [closed, crashed])
def test_a_missing_log_of_a_known_store(make: Any) -> None:
    disk = make()
    disk.unlink(REDO_NAME)
    disk.fsync_dir()
    refused(disk, "binlog-server.redo is missing.*innodb_force_recovery=6")


def test_the_log_of_another_store() -> None:
    disk, other = closed(), closed()
    disk.unlink(REDO_NAME)
    vectors.write_file(disk, REDO_NAME, vectors.file_bytes(other, REDO_NAME))
    refused(disk, "is that of another store")


def test_an_older_copy_of_the_log() -> None:
    disk = MemoryDisk()
    engine = store(disk)
    append_all(engine, GROUPS[:5])
    settle(engine)
    older = vectors.file_bytes(disk, REDO_NAME)
    append_all(engine, GROUPS[5:10])
    settle(engine)
    disk.kill()
    disk.unlink(REDO_NAME)
    vectors.write_file(disk, REDO_NAME, older)
    with pytest.raises(CorruptRedo, match="was durable: the log is an older copy"):
        store(disk)


def test_a_log_whose_uuid_was_never_noted_is_taken() -> None:
    """A crash between making the log and noting it."""
    disk = crashed()
    StateStore(disk).set(REDO_KEY, None)
    holds(disk, GROUPS)
    assert StateStore(disk).get(REDO_KEY) == redo_uuid(disk)


def test_the_state_store_is_lost() -> None:
    """The log says itself what it belongs to: the files."""
    disk = crashed()
    for name in disk.names():
        if not name.endswith(".ibb") and name != REDO_NAME:
            disk.unlink(name)
    holds(disk, GROUPS)


@pytest.mark.by_turns(5)
@pytest.mark.parametrize("way", ["kill", "cut", "torn"])
@pytest.mark.parametrize("what", ["new", "adopted", "forced", "recovered", "resized"])
def test_crash_at_every_operation_of_opening(what: str, way: str) -> None:
    kept = GROUPS[:20] if what == "forced" else GROUPS
    for stop in itertools.count(1):
        disk = MemoryDisk() if what == "new" else crashed()
        if what == "adopted":
            disk = MemoryDisk({n: d for n, d in closed().contents().items() if n.endswith(".ibb")})
        options = FORCED if what == "forced" else SMALL
        if what == "resized":
            options = small(8, innodb_log_file_size=2 * SIZE)
        disk.fail_at = disk.operations + stop
        try:
            IbbEngine(disk, options, facts=StateStore(disk))
        except DiskError:
            if way == "kill":
                disk.kill()
            else:
                disk.crash(random.Random(stop) if way == "torn" else None)
        else:
            break
        engine = store(disk)
        found = read_all(engine)
        if what == "new":
            assert found == []
        else:
            # Forced, but not done: the log was still there, or was not any more.
            assert found in (payloads(kept), payloads(GROUPS))
        engine.close()
        holds(disk, GROUPS[: len(found)])
    assert stop > 5


# --- other sizes ---


@pytest.mark.parametrize("make", [closed, crashed])
@pytest.mark.parametrize("sizes", [[2], [2, 1], [4, 3, 1, 2]])
def test_resized(make: Any, sizes: list[int], caplog: pytest.LogCaptureFixture) -> None:
    disk = make()
    known, lsn = redo_uuid(disk), 0
    for factor in sizes:
        with caplog.at_level(logging.INFO):
            engine = store(disk, innodb_log_file_size=factor * SIZE)
        assert "InnoDB: Resizing redo log" in caplog.text
        assert len(vectors.file_bytes(disk, REDO_NAME)) == factor * SIZE
        assert engine.counters()["Innodb_checkpoint_max_age"] == factor * SIZE - 3 * 4096
        assert redo_uuid(disk) == known
        assert engine._redo.lsn >= lsn
        lsn = engine._redo.lsn
        assert read_all(engine) == payloads(GROUPS)
        disk.crash()
    holds(disk, GROUPS, innodb_log_file_size=sizes[-1] * SIZE)


# --- without its log ---


@pytest.mark.parametrize("how", ["there", "missing", "damaged", "of another store"])
def test_forced(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """innodb_force_recovery=6: what is in the files, and from then on with a new log."""
    disk = crashed()
    known = redo_uuid(disk)
    if how != "there":
        disk.unlink(REDO_NAME)
    if how == "damaged":
        vectors.write_file(disk, REDO_NAME, b"garbage")
    if how == "of another store":
        vectors.write_file(disk, REDO_NAME, vectors.file_bytes(closed(), REDO_NAME))
    with caplog.at_level(logging.WARNING):
        engine = IbbEngine(disk, FORCED, facts=StateStore(disk))
    assert "what was only there is lost" in caplog.text
    assert read_all(engine) == payloads(GROUPS[:20])
    engine.close()
    assert redo_uuid(disk) not in (known, "00" * 16)
    assert StateStore(disk).get(REDO_KEY) == redo_uuid(disk)
    holds(disk, GROUPS[:20])


def test_forced_behind_a_sync_that_failed() -> None:
    """What the files hold is what is taken: there is no log from which a power cut could make it anew."""
    disk = MemoryDisk()
    disk.failed_sync_forgets = True
    engine = store(disk)
    append_all(engine, GROUPS)
    engine.sync()
    disk.fault = lambda kind, name: fails_to_sync(kind, name) if name.endswith(".ibb") else None
    with pytest.raises(DiskError):
        engine.checkpoint()
    disk.fault = None
    disk.kill()
    engine = IbbEngine(disk, FORCED, facts=StateStore(disk))
    assert read_all(engine) == payloads(GROUPS)
    disk.crash()
    holds(disk, GROUPS)


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("missing", [1, 100, UNSYNCED_PAGES_MAX - 1])
def test_forced_after_a_crash_in_a_large_group(missing: int) -> None:
    """As many pages as the flusher leaves unsynced may be missing in front of one that is there: that is seen."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, LARGE_FILES)
    append_all(engine, GROUPS[:20])
    writer = engine.begin(bulk=True)
    writer.spill(bytes(1000 * PAGE_SIZE))
    writer.settle()
    disk.kill()
    file = disk.open(file_name(0))
    behind = 100 + missing + 1
    file.pwrite(bytes(missing * PAGE_SIZE), 100 * PAGE_SIZE)
    file.pwrite(bytes((1024 - behind) * PAGE_SIZE), behind * PAGE_SIZE)
    file.close()
    with pytest.raises(CorruptBinlog, match="an empty page, but later pages hold data"):
        IbbEngine(disk, replace(LARGE_FILES, innodb_force_recovery=NO_LOG_REDO))


@pytest.mark.parametrize("interval", [2, 64])
def test_forced_with_a_page_as_it_was_at_the_checkpoint(interval: int) -> None:
    """The page was written again, and so were later ones; of that a power cut has taken the page alone."""
    disk, place, page = _page_at_checkpoint(small(64, interval))
    _put(disk, place.file_no, place.page_no, page)
    before = disk.contents()
    with pytest.raises(CorruptBinlog, match="the data end inside of this page, but later pages"):
        IbbEngine(disk, small(64, interval, innodb_force_recovery=NO_LOG_REDO))
    disk.kill()
    assert disk.contents() == before


@pytest.mark.parametrize("what", ["as it was", "empty", "torn"])
def test_forced_with_a_page_missing_in_the_file_before(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The flusher may have unsynced pages of two files. That of the older one is told, and no reader passes over it."""
    disk, place, page = _page_at_checkpoint(SMALL, file_pages=4)
    damaged = {"as it was": page, "empty": bytes(PAGE_SIZE), "torn": b"x" * 100}[what]
    _put(disk, place.file_no, place.page_no, damaged)
    with caplog.at_level(logging.WARNING):
        engine = IbbEngine(disk, small(4, innodb_force_recovery=NO_LOG_REDO))
    assert engine.written_end.file_no == place.file_no + 1
    told = [line for line in caplog.messages if "replicas that need what was in it" in line]
    assert len(told) == 1
    assert f"page {place.page_no} in binlog number {place.file_no}" in told[0]
    with pytest.raises(CorruptBinlog):
        read_all(engine)
    with pytest.raises(CorruptBinlog):
        read_from(engine, engine.first_start().position)
    engine.close()


@pytest.mark.parametrize("empty", [False, True])
def test_a_start_warns_of_a_file_whose_last_page_is_not_full(
    empty: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk, place, page = _page_at_checkpoint(SMALL, file_pages=4)
    _put(disk, place.file_no, 3, bytes(PAGE_SIZE) if empty else page)
    engine = store(disk)
    with caplog.at_level(logging.WARNING):
        engine.tell_damage()
    assert "page 3 in binlog number 0" in caplog.text
    assert "the data of the file ends here, but it has a successor" in caplog.text
    engine.close()


def _page_at_checkpoint(
    options: StoreOptions, file_pages: int = 0
) -> tuple[MemoryDisk, Position, bytes]:
    """A store, where it had a checkpoint long before, and the page there as it was then."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(file_pages) if file_pages else options)
    append_all(engine, GROUPS[:3])
    engine.sync()
    engine.checkpoint()
    place = engine.written_end
    page = vectors.file_bytes(disk, file_name(place.file_no))[place.page_start.offset :][:PAGE_SIZE]
    append_all(engine, GROUPS[3:])
    engine.sync()
    engine.checkpoint()
    disk.kill()
    return disk, place, page


def _put(disk: MemoryDisk, file_no: int, page_no: int, data: bytes) -> None:
    file = disk.open(file_name(file_no))
    file.pwrite(data, page_no * PAGE_SIZE)
    file.fdatasync()
    file.close()


def test_a_lower_level_of_force_uses_the_log() -> None:
    disk = crashed()
    holds(disk, GROUPS, innodb_force_recovery=NO_LOG_REDO - 1)


# --- directories of MariaDB ---

ADOPTED = [
    v
    for v in vectors.sets()
    if not v["read_tolerance_only"] and v["interval"] > 1 and v["name"] not in ("only_state",)
]


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in ADOPTED])
def test_adopted(vector: dict[str, Any]) -> None:
    """Every byte of it stays; LSNs go on behind those of its files; a crash at once loses nothing."""
    disk = vectors.unpack(vector)
    before = disk.contents()
    groups = [g.payload for g in vectors.walk(disk).groups]
    options = small(max(4, vector["pages"]), 2)
    engine = IbbEngine(disk, options, facts=StateStore(disk))
    current = engine.written_end.file_no
    for name, data in before.items():
        if name <= file_name(current) and any(data):
            assert disk.contents()[name] == data
    lsns = [
        header.start_lsn
        for n in file_numbers(disk.names())
        if n <= current and (header := engine._pages.header(n)) is not None
    ]
    assert engine._redo.lsn > max(lsns[-2:])
    extra = group(Gtid(99, 1, 1), 400)
    engine.append(*extra)
    engine.sync()
    disk.crash()
    engine = IbbEngine(disk, options, facts=StateStore(disk))
    engine.close()
    found = [g.payload for g in vectors.walk(disk).groups]
    assert found == [*groups, extra.payload]


def test_what_is_published_of_another_start_is_no_promise() -> None:
    """After a new log the number of the start begins anew; what an earlier log told is of no account."""
    disk = crashed()
    engine = store(disk)
    run_dry(engine)
    disk.kill()
    assert PUBLICATION_NAME in disk.names()
    disk.unlink(file_name(max(file_numbers(disk.names()))))
    if file_name(0) not in disk.names():
        pytest.fail("the store has one file only")
    engine = IbbEngine(disk, FORCED, facts=StateStore(disk))
    engine.close()
    store(disk).close()


def test_forced_with_less_than_was_published(caplog: pytest.LogCaptureFixture) -> None:
    disk = crashed(simple(100, size=2000))
    engine = store(disk)
    run_dry(engine)
    last = engine.durable_end.file_no
    disk.kill()
    for number in file_numbers(disk.names()):
        if number >= last:
            disk.unlink(file_name(number))
    with caplog.at_level(logging.WARNING):
        engine = IbbEngine(disk, FORCED, facts=StateStore(disk))
    assert "the files hold less than was durable: groups up to 0-1-100 are lost" in caplog.text
    engine.close()
