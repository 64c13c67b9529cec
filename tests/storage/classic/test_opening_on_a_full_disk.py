"""A store of traditional files that is opened on a full disk: it is served, and nothing is told durable that is not."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

import pytest
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskError, DiskFull, StoreFailed, WaitGivenUp
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import append_all, payloads, read_all, read_from, simple

CHANGES = ("create", "write", "allocate", "truncate", "rename")
GROUPS = simple(30, size=400)
MORE = simple(5, first=31, size=400)
LATER = simple(5, first=36, size=400)
OPTIONS = ClassicOptions(
    max_binlog_size=4096, slave_connections_needed_for_purge=0, innodb_log_file_size=1 << 20
)


class _GivenUp(Exception):
    pass


def opened(disk: MemoryDisk, *, facts: bool = True) -> ClassicEngine:
    def wait(seconds: float) -> None:
        raise _GivenUp

    patient = PatientDisk(disk)
    kept = StateStore(patient) if facts else None
    return ClassicEngine(patient, OPTIONS, wait_for_room=wait, facts=kept)


def left_by_a_crash(rng: random.Random) -> MemoryDisk:
    """With a torn tail, and a cache file of a transaction that was open."""
    disk = MemoryDisk()
    engine = opened(disk)
    append_all(engine, GROUPS)
    engine.sync()
    append_all(engine, MORE)
    engine.write_log()
    last = engine.file_name(engine.written_end.file_no)
    disk.open(f"{CACHE_FOLDER}/ML_7", create=True).close()
    disk.fsync_dir()
    disk.crash(rng)
    torn = disk.open(last)
    torn.pwrite(b"torn" * 10, torn.size())
    torn.fdatasync()
    torn.close()
    return disk


def full_from(number: int) -> Callable[[str, str], None]:
    """The n-th change, and all that come after it, find no room."""
    count = 0

    def fault(kind: str, name: str) -> None:
        nonlocal count
        count += kind in CHANGES
        if kind in CHANGES and count >= number:
            raise DiskFull(f"cannot {kind} {name}: No space left on device (injected)")

    return fault


def changes_of_an_opening(disk: MemoryDisk) -> int:
    kinds: list[str] = []
    disk.fault = lambda kind, name: kinds.append(kind)
    opened(disk)
    return sum(kind in CHANGES for kind in kinds)


def require_kept(disk: MemoryDisk, least: int) -> None:
    """What a crash leaves now begins with so many groups, and is a beginning of all."""
    found = read_all(opened(disk.after_crash()))
    assert found == payloads([*GROUPS, *MORE])[: len(found)]
    assert len(found) >= least


def test_a_disk_that_becomes_full_later_takes_nothing_for_done() -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    append_all(engine, GROUPS)
    engine.sync()
    disk.fault = full_from(1)
    append_all(engine, MORE)
    with pytest.raises(_GivenUp):
        engine.sync()
    assert read_all(engine) == payloads(GROUPS), "what is not durable was shown"
    require_kept(disk, len(GROUPS))
    disk.fault = None
    engine._full.freed()
    engine.sync()
    require_kept(disk, len(GROUPS) + len(MORE))
    engine.close()


@pytest.mark.long
def test_at_every_step() -> None:
    rng = random.Random(7)
    base = left_by_a_crash(rng).contents()
    steps = changes_of_an_opening(MemoryDisk(base))
    assert steps > 3
    waited = 0
    for number in range(1, steps + 1):
        disk = MemoryDisk(base)
        disk.fault = full_from(number)
        engine = opened(disk)
        there = read_all(engine)
        assert there[: len(GROUPS)] == payloads(GROUPS)
        if not engine._patience.is_late:
            continue
        waited += 1
        assert not engine.has_room
        with pytest.raises(DiskFull):
            engine.facts.set("user/x", 1)
        append_all(engine, LATER)
        with pytest.raises(_GivenUp):
            engine.sync()
        assert read_all(engine) == there
        engine.step()  # tries again, in vain
        require_kept(disk, len(there))
        if rng.random() < 0.3:
            engine.close()
            require_kept(disk, len(there))
            continue
        disk.fault = full_from(rng.randrange(1, 4))  # some room, and then none again
        engine.step()
        assert read_all(engine) == there
        disk.fault = None
        engine._full.freed()
        engine.step()
        assert not engine._patience.is_late
        assert engine.has_room
        engine.sync()
        assert read_all(engine) == [*there, *payloads(LATER)]
        assert read_all(opened(disk.after_crash(rng))) == [*there, *payloads(LATER)]
        engine.close()
    assert waited > 3


def test_purge_makes_the_room(caplog: pytest.LogCaptureFixture) -> None:
    disk = left_by_a_crash(random.Random(1))
    disk.capacity = disk.used()
    with caplog.at_level(logging.INFO):
        engine = opened(disk)
        assert "PURGE BINARY LOGS makes some" in caplog.text
        last = engine.files()[-1].number
        assert engine.purge_to(last).delete
        engine.step()
        assert "commits go on" in caplog.text
    append_all(engine, LATER)
    engine.sync()
    assert engine.files()[0].number == last
    engine.close()
    disk.capacity = 1 << 40
    engine = opened(disk)
    assert engine.files()[0].number == last
    found = read_from(engine, engine.first_start().position)
    assert found[-len(LATER) :] == payloads(LATER)
    engine.close()


def test_a_disk_that_fails_while_what_waits_is_written() -> None:
    disk = left_by_a_crash(random.Random(5))
    disk.fault = full_from(1)
    engine = opened(disk)

    def fails(kind: str, name: str) -> None:
        if kind == "sync":
            raise DiskError("cannot sync: Input/output error (injected)")

    disk.fault = fails
    engine._full.freed()
    engine.step()
    assert engine._soundness.failed
    disk.fault = None
    with pytest.raises(StoreFailed):
        engine.sync()
    require_kept(disk, len(GROUPS))
    engine.close()


def test_a_thread_that_must_not_wait_does_not_write_it() -> None:
    disk = left_by_a_crash(random.Random(5))
    disk.fault = full_from(1)
    engine = opened(disk)
    disk.fault = None
    engine._full.freed()
    engine.never_wait_in(threading.get_ident())
    with pytest.raises(WaitGivenUp, match="is written first"):
        engine.write_log()
    engine.never_wait_in(0)
    engine.close()
