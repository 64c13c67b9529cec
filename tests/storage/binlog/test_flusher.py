"""Pages to their files: never before their redo, each once; checkpoints step by step; failures for good."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import CorruptBinlog, DiskError, StoreFailed
from binlog_storage.ibb.file_names import file_name
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.redo.format import (
    KIND_WRITE,
    MTR_HEAD,
    MTR_MAGIC,
    REDO_NAME,
    Write,
    parse_records,
)
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.disks import fails_to_sync
from tests.storage.groups import append_all, group, opens_with, payloads, read_all, simple
from tests.storage.redo.recording import Done, Recording
from tests.storage.sizes import small

SMALL = small(8)
FIRST, SECOND = file_name(0), file_name(1)


def started(groups: int = 0, size: int = 2000) -> tuple[Recording, IbbEngine]:
    disk = Recording()
    engine = IbbEngine(disk, SMALL)  # type: ignore[arg-type]
    append_all(engine, simple(groups, size=size))
    disk.done.clear()
    disk.tried.clear()
    return disk, engine


def ibb_writes(done: list[Done]) -> list[tuple[str, int]]:
    return [
        (d.name, n) for d in done if d.what == "write" and d.name.endswith(".ibb") for n in d.pages
    ]


def steps(engine: IbbEngine) -> int:
    count = 0
    while engine._flusher.step():
        count += 1
        assert count < 1000, "there is always something to do"
    return count


# --- the write-ahead rule ---


def test_no_page_before_its_redo_is_durable() -> None:
    disk, engine = started(40)
    assert engine._pages.waiting == 4
    steps(engine)
    assert ibb_writes(disk.done) == []
    engine.write_log()
    steps(engine)
    assert ibb_writes(disk.done) == [], "with the operating system is not durable"
    engine.sync()
    assert ibb_writes(disk.done) == [], "that is not for the one who commits"
    steps(engine)
    full = [(FIRST, n) for n in range(1, 5)]
    assert ibb_writes(disk.done)[:4] == full
    assert not engine._pages.fifo
    engine.close()


def test_a_page_of_which_only_the_start_is_durable() -> None:
    disk, engine = started()
    append_all(engine, simple(7, size=2000))
    engine.sync()
    append_all(engine, simple(3, first=8, size=2000))  # over the end of page 1
    assert engine._pages.waiting == 1
    disk.done.clear()
    engine._flusher._write_some()
    assert ibb_writes(disk.done) == []
    engine.sync()
    engine._flusher._write_some()
    assert ibb_writes(disk.done) == [(FIRST, 1)]
    engine.close()


@pytest.mark.long
@pytest.mark.parametrize("often", [1, 3, 10, 1000])
def test_at_every_write_the_redo_of_the_page_is_on_disk(often: int) -> None:
    """Looked at from outside: what a power cut leaves of the redo log has every record of the page."""
    disk, engine = started()
    checked = 0

    def check(operation: Done) -> bool:
        nonlocal checked
        if operation.what == "write" and operation.name.endswith(".ibb"):
            assert engine._redo.durable_lsn >= engine._redo.checkpoint_lsn
            after = IbbEngine(disk.disk.after_crash(), SMALL)
            pages = after._pages
            file_no = int(operation.name[7:-4])
            for page_no in operation.pages:
                at = (page_no - operation.pages[0]) * 16384
                written = operation.data[at : at + 16384][:16380].rstrip(b"\0")
                held = pages.page(file_no, page_no)
                assert held is not None
                assert held[: len(written)] == written
                checked += 1
            after._disk.close()
        return False

    disk.fails = check
    for number, (payload, gtid) in enumerate(simple(150, size=1900)):
        engine.append(payload, gtid)
        if number % often == 0:
            engine.sync()
            engine._flusher.step()
    engine.checkpoint()
    assert checked > 15
    engine.close()


def test_a_full_page_is_written_once() -> None:
    disk, engine = started()
    for number, (payload, gtid) in enumerate(simple(300, size=2000)):
        engine.append(payload, gtid)
        if number % 5 == 0:
            engine.sync()
            engine._flusher._write_some()
    engine.sync()
    steps(engine)
    engine.close()
    count: Counter[tuple[str, int]] = Counter()
    for each in disk.done:
        if each.what == "write" and each.name.endswith(".ibb"):
            for at, page_no in enumerate(each.pages):
                data = each.data[at * 16384 :][:16384]
                count[each.name, page_no] += any(data[16370:16380])  # it is full
    assert max(count.values()) == 1
    assert len(count) > 30


# --- checkpoints ---


def test_a_checkpoint_step_by_step() -> None:
    disk, engine = started(30)
    steps_of = [
        ("write", REDO_NAME),  # what was not durable yet
        ("sync", REDO_NAME),
        ("write", FIRST),  # full pages
        ("write", FIRST),  # the partial one
        ("sync", FIRST),
        ("write", REDO_NAME),  # the checkpoint
        ("sync", REDO_NAME),
    ]
    engine.checkpoint()
    assert disk.told() == steps_of
    assert engine._redo.checkpoint.end == engine._writer.stand
    assert engine._redo.checkpoint.lsn <= engine._redo.durable_lsn
    disk.done.clear()
    engine.append(*simple(1, first=31)[0])
    engine.checkpoint()
    assert disk.told() == [*steps_of[:2], *steps_of[3:]]
    engine.close()


def test_a_checkpoint_over_two_files() -> None:
    disk, engine = started()
    groups = simple(70, size=2000)
    while engine.written_end.file_no == 0:
        engine.append(*groups.pop(0))
    disk.done.clear()
    engine.checkpoint()
    told = [step for step in disk.told() if step[1] != PUBLICATION_NAME]
    syncs = [name for what, name in told if what == "sync"]
    assert syncs == [REDO_NAME, SECOND, FIRST, SECOND, REDO_NAME]  # made, then both written
    last_write = max(at for at, step in enumerate(told) if step[0] == "write" and ".ibb" in step[1])
    assert told.index(("sync", FIRST)) > last_write
    assert told[-2:] == [("write", REDO_NAME), ("sync", REDO_NAME)]
    engine.close()


def test_the_page_of_a_checkpoint_is_logged_whole_again() -> None:
    disk, engine = started(3, size=500)
    engine.checkpoint()
    at = engine._writer.stand.in_page
    disk.done.clear()
    engine.append(*simple(1, first=4, size=500)[0])
    engine.append(*simple(1, first=5, size=500)[0])
    engine.sync()
    logged = disk.done[0].data
    found = []
    while logged[:4] == MTR_MAGIC:
        size = MTR_HEAD.unpack_from(logged)[3]
        body = logged[MTR_HEAD.size : size - 4]
        if body[0] & 0xF0 == KIND_WRITE:
            found += [r for r in parse_records(body) if isinstance(r, Write)]
        logged = logged[size:]
    assert [(r.page_no, r.offset) for r in found] == [(1, 0), (1, at + 504)]
    assert len(found[0].data) == at + 504
    engine.close()


def test_a_checkpoint_is_due_when_half_of_the_log_is_used() -> None:
    _, engine = started()
    lsn = engine._redo.checkpoint_lsn
    half = engine._redo.capacity // 2
    for payload, gtid in simple(60, size=2000):
        engine.append(payload, gtid)
        engine.sync()
        used = engine._redo.lsn - lsn
        steps(engine)
        if engine._redo.checkpoint_lsn != lsn:
            break
        assert used <= half or engine.written_end.file_no == 0
    else:
        raise AssertionError("no checkpoint")
    engine.close()


def test_a_file_is_entered_with_a_checkpoint_in_the_one_before() -> None:
    """So that recovery has two files to look at, and not more."""
    _, engine = started()
    for payload, gtid in simple(400, size=2000):
        engine.append(payload, gtid)
        end = engine._redo.checkpoint.end
        assert end is not None
        assert engine._writer.file_no <= end.file_no + 1
    engine.close()


def test_a_file_is_cut_off_behind_its_last_record_and_in_front_of_its_successor() -> None:
    """FLUSH: the DUMMY record first, then the length."""
    disk, engine = started(3)
    engine.flush()
    told = disk.told()
    cut = told.index(("truncate", FIRST))
    assert ("write", FIRST) in told[:cut]
    assert told[cut - 1] == ("sync", FIRST)
    assert told[cut + 1] == ("sync", FIRST)
    assert ("write", SECOND) not in told[
        :cut
    ]  # whoever reads meanwhile sees no zeros in front of a successor
    engine.close()


def test_no_file_is_cut_before_all_of_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_storage.binlog.flusher.BATCH_PAGES", 1)
    disk, engine = started(20)
    with engine._append_lock:
        engine._writer.flush()
        engine._appender.ended()
    engine.sync()
    while engine._pages.fifo[0].key[0] == 0:
        assert ("truncate", FIRST) not in disk.told()
        engine._flusher._write_some()
        engine._flusher._sync_files()
    assert ("truncate", FIRST) in disk.told()
    pages = [n for name, n in ibb_writes(disk.done) if name == FIRST]
    assert pages == [1, 2, 3]
    assert engine.files()[0].size == 4 * 16384
    engine.close()


# --- failures ---


FAULTS = {
    "sync of the redo": ("sync", REDO_NAME),
    "write of the redo": ("write", REDO_NAME),
    "sync of a file": ("sync", FIRST),
    "write of a page": ("write", FIRST),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("how", ["checkpoint", "step", "flush"])
def test_an_error_is_for_good(name: str, how: str) -> None:
    """It is not tried again: the kernel has forgotten what it could not write. What is durable is served."""
    fault = FAULTS[name]
    disk, engine = started(20)
    engine.sync()
    append_all(engine, simple(100, first=21, size=2000)[:5])
    disk.done.clear()
    disk.tried.clear()
    disk.fails = lambda operation: (operation.what, operation.name) == fault
    if how == "step":
        append_all(engine, simple(20, first=26, size=2000))
        if "sync of a file" in name:
            engine._flusher._unsynced = 1000
            engine._flusher._dirty.add(0)
        if "redo" in name:
            with pytest.raises(DiskError):
                engine.sync()
        steps(engine)
    else:
        with pytest.raises(DiskError):
            (engine.checkpoint if how == "checkpoint" else engine.flush)()
    tried = [(each.what, each.name) for each in disk.tried].count(fault)
    assert tried == 1
    disk.fails = lambda _: False
    disk.tried.clear()
    for use in (engine.sync, engine.checkpoint, engine.write_log, engine.flush, engine.reset):
        with pytest.raises(StoreFailed):
            use()
    with pytest.raises(StoreFailed):
        engine.append(*simple(1, first=99)[0])
    assert engine._flusher.step() is False
    assert engine.has_room, "nobody is to wait"
    assert engine.wait_for_room(0)
    found = read_all(engine)
    assert found[:20] == payloads(simple(20, size=2000))
    engine.close()
    assert [each for each in disk.tried if each.what != "truncate"] == []
    disk.disk.crash()
    engine = IbbEngine(disk.disk, SMALL)
    assert read_all(engine)[: len(found)] == found, "something was seen that is gone"
    engine.close()


def test_a_file_that_has_gone_while_it_was_written() -> None:
    disk, engine = started(20)
    engine.sync()
    disk.disk.unlink(FIRST)
    engine._pages.files.forget(0)
    with pytest.raises(DiskError, match="has gone from the directory"):
        engine.checkpoint()
    with pytest.raises(StoreFailed):
        engine.append(*simple(1, first=99)[0])
    engine.close()


# --- the thread ---


def test_in_the_background() -> None:
    """A thread brings the pages to the files; who commits only writes redo."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL, facts=StateStore(disk), background=True)
    groups = simple(300, size=2000)
    for payload, gtid in groups:
        engine.append(payload, gtid)
        engine.sync()
    counters = engine.counters()
    assert counters["Binlog_checkpoints"] > 3
    assert counters["Binlog_pages_written"] > 20
    assert counters["Binlog_commits"] == 300
    assert read_all(engine) == payloads(groups)
    engine.close()
    disk.crash()
    opens_with(disk, SMALL, groups, facts=StateStore(disk))


@pytest.mark.parametrize("name", ["sync of a file", "write of a page"])
def test_an_error_met_by_who_makes_room_is_for_good(name: str) -> None:
    """Without a thread an append writes pages itself, when there is no room else."""
    disk, engine = started()
    disk.fails = lambda operation: (operation.what, operation.name) == FAULTS[name]
    with pytest.raises((DiskError, StoreFailed)):
        append_all(engine, simple(400, size=2000))
    disk.fails = lambda _: False
    with pytest.raises(StoreFailed):
        engine.append(*simple(1, first=999)[0])
    with pytest.raises(StoreFailed):
        engine.checkpoint()
    engine.close()


def test_pages_that_the_kernel_has_dropped_behind_a_failed_sync() -> None:
    """What is durable in the redo log alone is served, or is an error: never the end of the data."""
    told = Counter[str]()
    for seed in range(40):
        rng = random.Random(seed)
        disk = MemoryDisk()
        disk.failed_sync_forgets = True
        engine = IbbEngine(disk, small(16))
        made = [group(Gtid(0, 1, n), rng.choice((200, 3000, 9000, 30_000))) for n in range(1, 41)]
        at = sorted(rng.sample(range(1, 40), 3))
        for first, last in zip([0, *at], [*at, 40], strict=True):
            append_all(engine, made[first:last])
            engine.sync()
            if last < 40:
                engine.checkpoint()
        disk.fault = lambda kind, name: fails_to_sync(kind, name) if ".ibb" in name else None
        with pytest.raises(DiskError):
            engine.checkpoint()
        engine._pages._cache.clear()
        for name in disk.names():
            if rng.random() < 0.8:
                disk.reread(name)
        try:
            assert read_all(engine) == payloads(made)
            told["whole"] += 1
        except CorruptBinlog:
            told["an error"] += 1
    assert len(told) == 2, told
