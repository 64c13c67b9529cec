"""A start on a full disk, whatever it is that has no room: what there is is served, and it goes on by itself."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

import pytest
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskError, DiskFull, StoreFailed
from binlog_storage.ibb.file_names import file_name
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    append_all,
    payloads,
    read_all,
    read_from,
    simple,
    state_after,
)
from tests.storage.sizes import small

GROUPS = simple(50, size=3000)
CHANGES = ("create", "write", "allocate", "truncate", "rename")
MORE = simple(10, first=51, size=3000)


def options(**more: int) -> StoreOptions:
    return small(8, slave_connections_needed_for_purge=0, **more)


def opened(disk: MemoryDisk, **more: int) -> IbbEngine:
    patient = PatientDisk(disk)
    return IbbEngine(patient, options(**more), facts=StateStore(patient))


def left_by_a_crash(rng: random.Random, *, made_ahead: bool) -> MemoryDisk:
    """Its redo log goes beyond the files, into one that is not there; or that was made ahead."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, options(), facts=StateStore(disk))
    append_all(engine, GROUPS[:30])
    engine.checkpoint()
    if made_ahead:
        engine.keeper.caretaker.step()
    append_all(engine, GROUPS[30:])
    engine.sync()
    last = engine.written_end.file_no
    disk.crash(rng)
    assert (file_name(last) in disk.names()) == made_ahead, "it is to be made by the redo log"
    return disk


def full_from(number: int, disk: MemoryDisk) -> Callable[[str, str], None]:
    """The n-th change, and all that come after it, find no room."""
    count = 0

    def fault(kind: str, name: str) -> None:
        nonlocal count
        count += kind in CHANGES
        if kind in CHANGES and count >= number:
            raise DiskFull(f"cannot {kind} {name}: No space left on device (injected)")

    return fault


def changes_of_an_opening(disk: MemoryDisk, **more: int) -> int:
    kinds: list[str] = []
    disk.fault = lambda kind, name: kinds.append(kind)
    opened(disk, **more).close()
    return sum(kind in CHANGES for kind in kinds)


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"innodb_log_file_size": 1 << 20}], ids=["", "resized"])
@pytest.mark.parametrize("made_ahead", [False, True])
def test_at_every_step(made_ahead: bool, more: dict[str, int]) -> None:
    """Served as far as it was durable; written in the end, or by the next start after a crash at any step."""
    rng = random.Random(7)
    base = left_by_a_crash(rng, made_ahead=made_ahead).contents()
    steps = changes_of_an_opening(MemoryDisk(base), **more)
    assert steps > 3
    waited = 0
    for number in range(1, steps + 1):
        disk = MemoryDisk(base)
        disk.fault = full_from(number, disk)
        engine = opened(disk, **more)
        assert read_all(engine) == payloads(GROUPS)
        assert engine.binlog_state() == state_after(GROUPS)
        late = engine._late
        if late.full is None:  # only what is written when it is closed had no room
            continue
        waited += 1
        assert not engine.has_room
        assert not engine.has_room_to_spill
        for refused in (engine.checkpoint, engine.flush, engine.reset):
            with pytest.raises(DiskFull):
                refused()
        assert not engine._durability.failed
        engine.step()  # tries again, in vain
        assert not engine.has_room
        after = disk.after_crash(rng)
        assert read_all(opened(after)) == payloads(GROUPS), "killed meanwhile"
        if rng.random() < 0.3:
            engine.close()
            assert read_all(opened(MemoryDisk(disk.contents()))) == payloads(GROUPS)
            continue
        disk.fault = full_from(rng.randrange(1, 4), disk)  # some room, and then none again
        engine.step()
        assert read_all(engine) == payloads(GROUPS)
        disk.fault = None
        engine.step()
        assert late.full is None
        assert engine.has_room
        append_all(engine, MORE)
        engine.sync()
        assert read_all(engine) == payloads([*GROUPS, *MORE])
        disk.crash(rng)
        engine = opened(disk)
        assert read_all(engine) == payloads([*GROUPS, *MORE])
        engine.close()
    assert waited > 3


def test_purge_makes_the_room(caplog: pytest.LogCaptureFixture) -> None:
    """Said as a DBA would, while nothing else can be done."""
    disk = left_by_a_crash(random.Random(1), made_ahead=False)
    disk.capacity = disk.used()
    with caplog.at_level(logging.INFO):
        engine = opened(disk)
        assert "PURGE BINARY LOGS makes some" in caplog.text
        first, *_, last = [file.number for file in engine.files()]
        plan = engine.purge_to(last)
        assert plan.delete
        assert plan.delete[0] == first
        engine.step()
        assert "commits go on" in caplog.text
    append_all(engine, MORE)
    engine.sync()
    position = SlavePosition([Gtid(0, 1, len(GROUPS))])
    start = engine.find_start(position).position
    assert read_from(engine, start)[-len(MORE) :] == payloads(MORE)
    engine.close()


def test_what_keeps_files_meanwhile_can_be_asked_for() -> None:
    """EXPLAIN PURGE and the metrics tell times of them all, also of what is not written yet."""
    disk = left_by_a_crash(random.Random(7), made_ahead=True)
    disk.fault = full_from(1, disk)
    before = time.time()
    engine = opened(disk, max_binlog_total_size=1)
    engine.step()
    told = [fate.modified for fate in engine.explain_purge()]
    assert told == sorted(told)
    assert before <= told[-1] <= time.time()
    held = engine.purge_held()
    assert held is not None
    assert held.oldest in told
    engine.close()


def test_threads_go_on_by_themselves_when_files_are_purged() -> None:
    disk = left_by_a_crash(random.Random(2), made_ahead=False)
    disk.capacity = disk.used()
    engine = opened(disk)
    engine.start()
    assert not engine.wait_for_room(0.1)
    engine.purge_to(engine.files()[-1].number)
    assert engine.wait_for_room(20)
    append_all(engine, MORE)
    engine.sync()
    engine.close()


def test_who_appends_waits() -> None:
    disk = left_by_a_crash(random.Random(3), made_ahead=False)
    disk.capacity = disk.used()
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        assert read_all(engine) == payloads(GROUPS)
        if len(waited) == 3:
            disk.capacity = 1 << 40

    patient = PatientDisk(disk)
    engine = IbbEngine(patient, options(), facts=StateStore(patient), wait_for_room=wait)
    append_all(engine, MORE)
    assert waited == [60.0] * 3
    engine.close()
    assert read_all(opened(disk)) == payloads([*GROUPS, *MORE])


def test_facts_are_not_changed_as_if_they_were_durable() -> None:
    disk = left_by_a_crash(random.Random(4), made_ahead=False)
    patient = PatientDisk(disk)
    facts = StateStore(patient)
    disk.capacity = disk.used()
    engine = IbbEngine(patient, options(), facts=facts)
    with pytest.raises(DiskFull):
        facts.set("user/x", 1)
    assert facts.get("user/x") is None
    disk.capacity = 1 << 40
    engine.step()
    facts.set("user/x", 1)
    engine.close()
    assert StateStore(disk).get("user/x") == 1


def test_a_disk_that_fails_while_what_waits_is_written() -> None:
    """That is the end of writing, as ever; what there is is served on."""
    disk = left_by_a_crash(random.Random(5), made_ahead=False)
    disk.capacity = disk.used()
    engine = opened(disk)
    disk.capacity = 1 << 40

    def fails(kind: str, name: str) -> None:
        if kind == "sync":
            raise DiskError("cannot sync: Input/output error (injected)")

    disk.fault = fails
    engine.step()
    assert engine._durability.failed
    assert read_all(engine) == payloads(GROUPS)
    engine.close()
    disk.fault = None
    disk.crash()
    assert read_all(opened(disk)) == payloads(GROUPS)


@pytest.mark.parametrize("made_ahead", [False, True])
@pytest.mark.parametrize("nth", range(1, 4))
def test_a_sync_that_failed_is_not_done_again(nth: int, made_ahead: bool) -> None:
    """The kernel forgets what it could not write: the next sync succeeds, and a new epoch would make that final."""
    rng = random.Random(7)
    disk = left_by_a_crash(rng, made_ahead=made_ahead)
    disk.fault = full_from(1, disk)
    engine = opened(disk)
    disk.failed_sync_forgets = True
    syncs = 0

    def fails(kind: str, name: str) -> None:
        nonlocal syncs
        syncs += kind == "sync"
        if kind == "sync" and syncs == nth:
            raise DiskError(f"cannot sync {name}: Input/output error (injected)")

    disk.fault = fails
    engine.step()
    assert engine._durability.failed
    disk.fault = None
    for _ in range(2):
        engine.step()
        assert engine.keeper.caretaker.failure == ""
    for refused in (engine.checkpoint, engine.flush, engine.reset):
        with pytest.raises(StoreFailed):
            refused()
    with pytest.raises(StoreFailed):
        append_all(engine, MORE)
    assert read_all(engine) == payloads(GROUPS)
    assert read_all(opened(disk.after_crash(rng))) == payloads(GROUPS)
    engine.close()
