"""What `verify` says of a store whose redo log holds more than its files."""

from __future__ import annotations

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.pages import OfflinePages
from binlog_storage.redo.format import REDO_NAME, RING_AT
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.verify.verify import Finding, Severity, Verifier

from tests.storage.groups import append_all, settle, simple

OPTIONS = StoreOptions(8 * PAGE_SIZE, 2 * PAGE_SIZE, innodb_log_file_size=256 << 10)
NAME = "binlog-000000.ibb"


def findings(disk: MemoryDisk) -> list[Finding]:
    found: list[Finding] = []
    Verifier(disk, found.append).run()
    return [f for f in found if " event" not in f.reason and "has no end" not in f.reason]


def damage(disk: MemoryDisk, name: str, offset: int) -> None:
    file = disk.open(name)
    byte = file.pread(1, offset)[0]
    file.pwrite(bytes([byte ^ 0x55]), offset)
    file.fdatasync()
    file.close()


@pytest.fixture
def killed() -> MemoryDisk:
    """A store with a checkpoint in page 2, and more behind it, page 3 and 4 in the file."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    append_all(engine, simple(20, size=1000))
    engine.checkpoint()
    assert engine.written_end.offset // PAGE_SIZE == 2
    append_all(engine, simple(40, first=21, size=1000))
    settle(engine)
    disk.kill()
    return disk


def test_what_waits_in_the_redo_log_is_told(killed: MemoryDisk) -> None:
    (found,) = findings(killed)
    assert found.severity is Severity.WARNING
    assert f"{REDO_NAME} holds 40 records" in found.reason


def test_a_torn_page_behind_the_checkpoint_is_no_damage(killed: MemoryDisk) -> None:
    damage(killed, NAME, 3 * PAGE_SIZE + 700)
    assert {f.severity for f in findings(killed)} == {Severity.WARNING}
    engine = IbbEngine(killed, OPTIONS)
    assert engine.binlog_state().last(0) == Gtid(0, 1, 60)
    engine.close()
    assert not findings(killed)


def name_only(disk: MemoryDisk, number: int) -> None:
    if file_name(number) in disk.names():
        disk.unlink(file_name(number))
    disk.open(file_name(number), create=True).close()
    disk.fsync_dir()


def test_a_file_that_got_its_name_and_no_length_yet_is_no_damage(killed: MemoryDisk) -> None:
    newest = file_numbers(killed.names())[-1]
    name_only(killed, newest + 1)
    (found,) = findings(killed)
    assert f"{REDO_NAME} holds 40 records" in found.reason
    with OfflinePages(killed) as pages:
        assert pages.is_empty(newest + 1)
        assert pages.header(newest + 1) is None
    engine = IbbEngine(killed, OPTIONS)
    assert engine.binlog_state().last(0) == Gtid(0, 1, 60)
    engine.close()
    assert not findings(killed)


@pytest.mark.parametrize("has_redo", [True, False])
def test_a_newest_file_that_lost_its_content(has_redo: bool) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, OPTIONS)
    append_all(engine, simple(100, size=2000))
    number = engine.written_end.file_no
    assert number
    engine.close()
    for later in range(number + 1, file_numbers(disk.names())[-1] + 1):
        disk.unlink(file_name(later))
    name_only(disk, number)
    if not has_redo:
        disk.unlink(REDO_NAME)
    told = {(f.severity, f.reason) for f in findings(disk) if f.file_no == number}
    if has_redo:
        assert (Severity.ERROR, "the file has 0 pages, less than two") in told
    else:
        assert any(s is Severity.WARNING and "has no length" in reason for s, reason in told)


def test_a_page_before_the_checkpoint_is(killed: MemoryDisk) -> None:
    damage(killed, NAME, PAGE_SIZE + 700)
    assert Severity.ERROR in {f.severity for f in findings(killed)}


def test_a_damaged_redo_log_is(killed: MemoryDisk) -> None:
    damage(killed, REDO_NAME, 3)
    (found, *_) = findings(killed)
    assert found.severity is Severity.ERROR
    assert "damaged or not ours" in found.reason


def test_a_store_that_was_closed_has_nothing_waiting(killed: MemoryDisk) -> None:
    IbbEngine(killed, OPTIONS).close()
    assert not findings(killed)
    damage(killed, REDO_NAME, RING_AT + 100)
    assert not findings(killed), "what was used up does not matter"
