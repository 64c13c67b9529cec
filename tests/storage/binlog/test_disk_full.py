"""The next file does not fit on the disk: said aloud, tried again, nothing lost, nothing out of order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog import file_table
from binlog_storage.binlog.file_table import ROOM_FIRST, FileTable
from binlog_storage.binlog.full_disk import ROOM_RETRY_S, FullDisk
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.worker import Worker
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import (
    CorruptBinlog,
    DiskError,
    DiskFull,
    NoRoom,
    StorageError,
    StoreFailed,
    TooManyOpenFiles,
    WaitGivenUp,
)
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.xa import Xid
from binlog_storage.log.first_file import lost_files_of
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    append_all,
    append_run,
    group,
    opens_with,
    payloads,
    read_all,
    read_from,
    run_dry,
    simple,
    state_after,
)
from tests.storage.sizes import small
from tests.storage.vectors import walk

FILE = 4 * 16384
SMALL = small(slave_connections_needed_for_purge=0)
GROUPS = simple(30, size=5000)  # some three files
WORDS = (
    'InnoDB: Unable to allocate file binlog-00000{}.ibb: "cannot allocate: No space left on device '
    '(injected)". Waiting 60 seconds before trying again...'
)


def ibb_names(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in disk.names() if name.endswith(".ibb"))


def test_the_writer_waits_for_room(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    waited: list[float] = []
    seen: list[list[str]] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        seen.append(ibb_names(disk))
        if len(waited) == 3:
            disk.file_bytes_max = FILE

    engine = IbbEngine(disk, SMALL, wait_for_room=wait)
    disk.file_bytes_max = FILE - 1
    with caplog.at_level(logging.ERROR):
        append_all(engine, GROUPS)
        engine.sync()
    assert waited == [60.0] * 3
    assert [r.message for r in caplog.records] == [WORDS.format(1)] * 3
    assert seen == [["binlog-000000.ibb"]] * 3, "half a file was left"
    assert read_all(engine) == payloads(GROUPS)
    disk.crash()
    opens_with(disk, SMALL, GROUPS)


def test_others_go_on_while_the_flusher_waits() -> None:
    """Groups are appended, made durable and read while there is no file to put their pages into."""
    disk = MemoryDisk()
    groups = simple(80, size=5000)
    options = small(8)
    engine = IbbEngine(disk, options)
    append_all(engine, groups[:2])
    engine.sync()
    before: list[list[bytes]] = []

    def wait(_: float) -> None:
        append_all(engine, groups[25:28])
        before.append(read_all(engine))
        engine.sync()
        before.append(read_all(engine))
        disk.file_bytes_max = options.max_binlog_size

    engine._full._instead = wait
    append_all(engine, groups[2:25])
    assert engine.written_end.file_no == 1
    disk.file_bytes_max = 0
    engine.checkpoint()
    assert before == [payloads(groups[:25]), payloads(groups[:28])]
    append_all(engine, groups[28:])
    engine.sync()
    assert read_all(engine) == payloads(groups)
    disk.crash()
    opens_with(disk, options, groups)


def refusals(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the full disk refuses from now on."""
    refused: list[str] = []
    met = disk.take_room

    def take_room(action: str, more: int) -> None:
        try:
            met(action, more)
        except DiskFull:
            refused.append(action)
            raise

    monkeypatch.setattr(disk, "take_room", take_room)
    return refused


def test_the_writer_waits_for_room_within_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file of a new store gets room as it is filled; no page is begun for which there is none."""
    monkeypatch.setattr(file_table, "ROOM_FIRST", 4 * PAGE_SIZE)
    disk = MemoryDisk()
    options = small(64)
    engine = IbbEngine(disk, options)
    assert disk.used() - disk.size(REDO_NAME) < 10 * PAGE_SIZE
    disk.capacity = disk.used() + 5 * PAGE_SIZE
    waited: list[int] = []

    def wait(_: float) -> None:
        waited.append(disk.used())
        disk.capacity += 6 * PAGE_SIZE

    refused = refusals(disk, monkeypatch)
    monkeypatch.setattr(engine._full, "_instead", wait)
    groups = simple(100, size=5000)  # half a file
    for part in range(0, 100, 10):
        append_all(engine, groups[part : part + 10])
        engine.checkpoint()
    assert len(waited) >= 2
    assert set(refused) == {"allocate"}
    assert read_all(engine) == payloads(groups)
    disk.crash()
    disk.capacity = 1 << 40
    opens_with(disk, options, groups)


def test_a_new_store_takes_little_room_and_later_files_have_all(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    files = FileTable(disk, FullDisk())
    size = 1 << 30
    files.make(0, size)
    files.make_ahead(1, size)
    files.make(1, size)

    def room(file_no: int) -> int:
        return (tmp_path / file_name(file_no)).stat().st_blocks * 512

    assert [files.size(n) for n in (0, 1)] == [size, size]
    assert [room(n) // ROOM_FIRST for n in (0, 1)] == [1, 1]
    files.reserve(1, ROOM_FIRST - PAGE_SIZE, ROOM_FIRST)
    assert room(1) // ROOM_FIRST == 1
    files.reserve(1, ROOM_FIRST, ROOM_FIRST + PAGE_SIZE)
    assert room(1) // ROOM_FIRST == 2
    files.close()
    disk.close()
    memory = MemoryDisk()
    files = FileTable(memory, FullDisk())
    files.make(2, 2 * ROOM_FIRST)
    assert memory.used() == 2 * ROOM_FIRST


def test_a_file_that_was_there_has_room_again_before_it_is_written(tmp_path: Path) -> None:
    """Also one that a copy has left without any."""
    size = 4 * ROOM_FIRST
    with (tmp_path / file_name(7)).open("wb") as file:
        file.truncate(size)
    disk = OsDisk(tmp_path)
    files = FileTable(disk, FullDisk())
    files.reserve(7, 16 * PAGE_SIZE, 17 * PAGE_SIZE)
    blocks = (tmp_path / file_name(7)).stat().st_blocks
    assert blocks * 512 // PAGE_SIZE == ROOM_FIRST // PAGE_SIZE
    files.close()
    disk.close()


def test_a_small_file_that_a_copy_has_left_with_holes_has_room_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last file of a backup that was copied sparsely: a write into its holes could meet a full disk half way."""
    disk = MemoryDisk()
    options = small(16)
    engine = IbbEngine(disk, options)
    groups = simple(60, size=5000)
    append_all(engine, groups[:10])
    engine.sync()
    engine.close()
    copied = MemoryDisk()
    for name, data in disk.contents().items():
        file = copied.open(name, create=True)
        written = data.rstrip(b"\0") if name != REDO_NAME else data
        file.pwrite(written, 0)
        file.truncate(len(data))
        file.fdatasync()
        file.close()
    copied.fsync_dir()
    assert copied.used() < disk.used()
    refused = refusals(copied, monkeypatch)
    copied.capacity = copied.used() + PAGE_SIZE
    engine = IbbEngine(copied, options)

    def wait(_: float) -> None:
        copied.capacity = 1 << 40

    engine._full._instead = wait
    for part in range(10, 60, 5):
        append_all(engine, groups[part : part + 5])
        engine.checkpoint()
    assert set(refused) == {"allocate"}
    assert read_all(engine) == payloads(groups)
    engine.close()


def test_closing_ends_the_waiting() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS[:3])
    engine.sync()
    append_all(engine, GROUPS[3:10])
    disk.file_bytes_max = 0
    failures: list[StorageError] = []

    def checkpoint() -> None:
        try:
            engine.checkpoint()
        except StorageError as error:
            failures.append(error)

    thread = threading.Thread(target=checkpoint)
    thread.start()
    engine.close()  # the thread may not even have come to wait yet
    thread.join(20)
    assert not thread.is_alive()
    disk.kill()
    disk.file_bytes_max = FILE
    engine = IbbEngine(disk, SMALL)
    found = read_all(engine)
    assert len(found) >= 3
    assert found == payloads(GROUPS[: len(found)])
    engine.close()


def test_a_full_disk_at_close_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The redo log has it all; the next start puts it into files, when there is room for them."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS[:10])
    disk.file_bytes_max = 0
    engine.close()
    assert "Unable to allocate file binlog-000001.ibb" in caplog.text
    assert "the last pages are in the redo log only" in caplog.text
    disk.crash()
    for _ in range(2):
        with pytest.raises(DiskFull):
            IbbEngine(disk, SMALL)
        disk.crash()
    disk.file_bytes_max = FILE
    opens_with(disk, SMALL, GROUPS[:10])


def until_it_waits(engine: IbbEngine) -> None:
    deadline = time.monotonic() + 20
    while engine._full.error is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_closing_on_a_full_disk_keeps_what_was_not_synced_yet() -> None:
    """With innodb_flush_log_at_trx_commit=0 that may be much; the thread that waits for room has not failed."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, small(8))
    engine.checkpoint()
    disk.file_bytes_max = 0
    engine.start()
    append_all(engine, GROUPS[:26])
    engine.sync()
    until_it_waits(engine)
    append_all(engine, GROUPS[26:27])
    engine.close()
    disk.crash()
    disk.file_bytes_max = 1 << 40
    opens_with(disk, small(8), GROUPS[:27])


@pytest.mark.parametrize("ends", ["given up", "closed"])
@pytest.mark.parametrize(
    ("pieces", "told"), [(10, NoRoom), (1000, WaitGivenUp)], ids=["settling", "spilling"]
)
def test_a_large_group_that_waits_for_room_can_be_given_up(
    ends: str, pieces: int, told: type[StorageError]
) -> None:
    """Wherever it waits: to be written, or to be in its files; and nothing has failed by that."""
    disk = MemoryDisk()
    options = small(256, 64, innodb_log_file_size=8 << 20)
    engine = IbbEngine(disk, options, background=True)
    engine.keeper.caretaker.stop()
    disk.unlink("binlog-000001.ibb")
    engine._pages.files._made_ahead.clear()
    disk.file_bytes_max = 0
    append_all(engine, GROUPS[:3])
    engine.sync()
    errors: list[BaseException] = []
    writer = engine.begin(bulk=True)

    def spill() -> None:
        try:
            for _ in range(pieces):
                writer.spill(bytes(500_000))
            writer.settle()
        except StorageError as error:
            errors.append(error)

    thread = threading.Thread(target=spill)
    thread.start()
    until_it_waits(engine)
    thread.join(0.05)
    assert thread.is_alive(), errors
    if ends == "given up":
        writer.give_up()
    else:
        engine.stop_waiting()
    thread.join(20)
    assert not thread.is_alive()
    writer.rollback()
    assert [type(error) for error in errors] == [told]
    assert not engine._durability.failed
    if ends == "given up":
        disk.file_bytes_max = 1 << 40
        engine._full.freed()
        assert engine.wait_for_room(20)
        append_all(engine, GROUPS[3:])
        engine.sync()
        assert read_all(engine) == payloads(GROUPS)
    engine.close()
    disk.file_bytes_max = 1 << 40
    disk.crash()
    opens_with(disk, options, GROUPS if ends == "given up" else GROUPS[:3])


def test_what_stands_still_is_told() -> None:
    """And no more when it moves again."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS[:3])
    engine.sync()

    def fault(kind: str, name: str) -> None:
        if kind != "read" and name.startswith("binlog-server.durable"):
            raise DiskFull(f"cannot {kind} {name}")

    disk.fault = fault
    disk.file_bytes_max = FILE - 1
    engine.step()
    unpublished, no_file = engine.stalled()
    assert (unpublished.what, no_file.what) == ("publication", "caretaker")
    assert unpublished.why == "cannot create binlog-server.durable.new"
    assert no_file.why.startswith("Unable to allocate file binlog-000001.ibb")
    assert not engine._durability.failed
    engine._full._instead = lambda _: None
    append_all(engine, GROUPS[3:10])
    engine.sync()
    engine._flusher._guarded(engine._flusher._checkpoint_done)
    assert [one.what for one in engine.stalled()] == ["room", "publication", "caretaker"]
    assert all(one.seconds >= 0 for one in engine.stalled())
    disk.fault, disk.file_bytes_max = None, 1 << 40
    engine._full.freed()
    run_dry(engine)
    assert engine.stalled() == []
    engine.close()


def test_what_the_limits_want_and_cannot_have() -> None:
    disk = MemoryDisk()
    options = small(max_binlog_total_size=2 * FILE, slave_connections_needed_for_purge=0)
    engine = IbbEngine(disk, options)
    hold = engine.hold("the lease 'x'")
    append_all(engine, simple(100, size=3000))
    engine.checkpoint()
    engine.step()
    held = engine.purge_held()
    assert held is not None
    assert held.holder == "it is held by the lease 'x'"
    assert (held.holder.kind, held.holder.name) == ("reader", "the lease 'x'")
    assert held.size == (len(engine.files()) - 1 - 2) * FILE  # one is made ahead
    hold.release()
    engine.step()
    assert engine.purge_held() is None
    engine.close()


def test_another_error_is_none_to_wait_for() -> None:
    failed = []
    for stop in range(1, 12):
        disk = MemoryDisk()
        engine = IbbEngine(disk, SMALL, wait_for_room=lambda _: pytest.fail("waited"))
        append_all(engine, GROUPS[:10])
        disk.fault = lambda kind, name: failed.append((kind, name))
        disk.fail_at = disk.operations + stop  # before, in and behind making file 1
        with pytest.raises(DiskError):
            engine.checkpoint()
        with pytest.raises(StoreFailed):
            engine.append(*group(Gtid(0, 1, 99)))
    assert {("create", "binlog-000001.ibb"), ("allocate", "binlog-000001.ibb")} <= set(failed)


# --- files made ahead ---


def test_a_full_disk_is_said_once_by_all_who_meet_it(caplog: pytest.LogCaptureFixture) -> None:
    """The file that the caretaker could not make ahead is the one that the writer needs next."""
    disk = MemoryDisk()
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        disk.file_bytes_max = FILE

    engine = IbbEngine(disk, SMALL, wait_for_room=wait)
    disk.file_bytes_max = FILE - 1
    with caplog.at_level(logging.ERROR):
        assert engine.keeper.caretaker.step() == ROOM_RETRY_S
        append_all(engine, GROUPS)
        engine.sync()
    assert waited == [ROOM_RETRY_S]
    assert [r.message for r in caplog.records] == [WORDS.format(1)]
    assert read_all(engine) == payloads(GROUPS)
    engine.close()


def test_the_caretaker_tries_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    disk.file_bytes_max = FILE - 1
    step = engine.keeper.caretaker.step
    with caplog.at_level(logging.ERROR):
        assert step() == ROOM_RETRY_S == 60.0
        assert step() == ROOM_RETRY_S
        assert [r.message for r in caplog.records] == [WORDS.format(1)]
        now = time.monotonic()
        with monkeypatch.context() as later:
            later.setattr(time, "monotonic", lambda: now + ROOM_RETRY_S)
            assert step() == ROOM_RETRY_S
    assert [r.message for r in caplog.records] == [WORDS.format(1)] * 2
    assert ibb_names(disk) == ["binlog-000000.ibb"]
    disk.file_bytes_max = FILE
    assert step() is None
    assert ibb_names(disk) == ["binlog-000000.ibb", "binlog-000001.ibb"]
    engine.close()


def test_a_full_disk_does_not_keep_old_files_from_being_purged() -> None:
    """Deleting them is what makes room."""
    disk = MemoryDisk()
    options = small(max_binlog_total_size=2 * FILE, slave_connections_needed_for_purge=0)
    engine = IbbEngine(disk, options)
    append_all(engine, simple(100, size=3000))
    engine.checkpoint()
    last = engine.files()[-1].number
    disk.file_bytes_max = 0
    assert engine.keeper.caretaker.step() == ROOM_RETRY_S
    assert [file.number for file in engine.files()][-1:] == [last]
    assert len(engine.files()) == 2
    engine.close()


def test_purge_makes_room_for_a_writer_that_waits() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS)
    engine.checkpoint()
    deleted: list[list[int]] = []

    def wait(_: float) -> None:
        deleted.append(engine.purge_to(engine.written_end.file_no).delete)
        disk.file_bytes_max = FILE

    engine._full._instead = wait
    more = simple(20, first=31, size=5000)
    disk.file_bytes_max = 0
    append_all(engine, more)
    engine.sync()
    assert deleted[0][:2] == [0, 1]
    start = engine.find_start(SlavePosition([Gtid(0, 1, 30)])).position
    assert read_from(engine, start)[-20:] == payloads(more)
    engine.close()


def test_the_thread_goes_on_when_there_is_room() -> None:
    tries: list[int] = []
    done = threading.Event()

    def work() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise DiskFull("Unable to allocate")
        done.set()

    caretaker = Worker("caretaker", work, retry_s=0.01)
    caretaker.start()
    assert done.wait(20)
    caretaker.stop()
    assert len(tries) == 4


class Meeting:
    """A disk on which something happens in the middle of `allocate`."""

    def __init__(self, directory: Path) -> None:
        self.disk = OsDisk(directory)
        self.meanwhile: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self.disk, name)

    def open(self, name: str, *, create: bool = False) -> object:
        file = self.disk.open(name, create=create)
        allocate, meanwhile = file.allocate, self.meanwhile

        def slowly(size: int, start: int = 0) -> None:
            meanwhile()
            allocate(size, start)

        file.allocate = slowly  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("fails", [False, True], ids=["room", "full"])
def test_caretaker_and_writer_make_the_same_file(tmp_path: Path, fails: bool) -> None:
    """The one that comes later takes what is there; neither removes what the other has made."""
    disk = Meeting(tmp_path)
    engine = IbbEngine(disk, SMALL)  # type: ignore[arg-type]
    append_all(engine, GROUPS[:10])
    writer = threading.Thread(target=engine.checkpoint)

    def meanwhile() -> None:
        disk.meanwhile = lambda: None
        writer.start()
        writer.join(0.2)  # it waits for us, or makes the file itself
        if fails:
            raise DiskFull("no space for the caretaker")

    disk.meanwhile = meanwhile
    engine.keeper.caretaker.step()
    writer.join(20)
    assert not writer.is_alive()
    engine.keeper.caretaker.step()
    assert read_all(engine) == payloads(GROUPS[:10])
    engine.close()
    assert len(walk(OsDisk(tmp_path)).groups) == 10
    opens_with(OsDisk(tmp_path), SMALL, GROUPS[:10])


def test_a_file_that_was_left_half_made_is_made_anew() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    file = disk.open("binlog-000001.ibb", create=True)
    file.truncate(16384)
    file.close()
    append_all(engine, GROUPS)
    engine.checkpoint()
    assert {f.size for f in engine.files()} == {FILE}
    assert read_all(engine) == payloads(GROUPS)
    engine.close()


@pytest.mark.parametrize(
    ("error", "told", "traceback"),
    [
        (DiskFull("no room"), "InnoDB: no room. Waiting 7 seconds before trying again...", False),
        (DiskError("cannot list"), "some-worker: cannot list. Trying again in 7 seconds", False),
        (CorruptBinlog(1, 2, "damaged"), "Corrupt binlog found on page 0", False),
        (KeyError("a defect"), "internal error KeyError('a defect')", True),
        (MemoryError(), "internal error MemoryError()", True),
    ],
)
def test_no_error_ends_a_worker(
    error: Exception, told: str, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fails = True

    def work() -> float | None:
        if fails:
            raise error
        return 3.0

    worker = Worker("some-worker", work, retry_s=7)
    assert worker.step() == 7
    assert worker.step() == 7
    assert [told in record.message for record in caplog.records] == [True, True]
    tracebacks = [bool(record.exc_info) for record in caplog.records]
    assert tracebacks == [traceback, False], "a traceback is told once"
    assert worker.failure
    fails = False
    assert worker.step() == 3
    assert not worker.failure


def test_room_that_is_found_while_somebody_gives_up() -> None:
    full = FullDisk()
    full.met(DiskFull("cannot create a"), full.tries)

    def given_up() -> bool:
        full.passed()  # by another thread, just now
        return True

    with pytest.raises(NoRoom, match="cannot create a"):
        full.wait(given_up)
    assert full.error is None


def test_room_that_is_made_while_a_file_is_being_made() -> None:
    """It is tried again at once, not a minute later."""
    disk = MemoryDisk()
    full = FullDisk()
    table = FileTable(disk, full)
    tries = 0

    def fault(kind: str, name: str) -> None:
        nonlocal tries
        if kind == "allocate":
            tries += 1
            if tries == 1:
                full.freed()  # PURGE, in another thread
            no_files(kind, name) if tries < 3 else None

    disk.fault = fault
    with pytest.raises(NoRoom):
        table.make(0, FILE)
    assert full.retry_s == 0
    with pytest.raises(NoRoom):
        table.make(0, FILE)
    assert full.retry_s > ROOM_RETRY_S / 2, "there was none this time"
    full.freed()
    table.make(0, FILE)
    assert full.error is None


@pytest.mark.parametrize("does", ["flush", "reset"])
def test_a_wait_for_room_that_is_given_up(does: str) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS[:3])
    engine.flush()
    disk.file_bytes_max = 0
    looks = 0

    def given_up() -> bool:
        nonlocal looks
        looks += 1
        return looks > 1

    engine._full._instead = lambda _: None
    with pytest.raises(NoRoom):
        engine.flush(given_up=given_up) if does == "flush" else engine.reset(given_up=given_up)
    assert looks == 2
    disk.file_bytes_max = 1 << 40
    engine._full.freed()
    append_all(engine, GROUPS[3:])
    engine.sync()
    assert read_all(engine) == payloads(GROUPS if does == "flush" else GROUPS[3:])
    engine.close()


def test_where_the_store_begins_is_noted_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A purge by itself on a disk that has no room for the note: it was none by hand, and stays none."""
    disk = MemoryDisk()
    facts = StateStore(disk)
    engine = IbbEngine(disk, SMALL, facts=facts)
    append_all(engine, simple(60, size=5000))
    engine.checkpoint()
    first = engine.files()[0].number
    states: list[DiskFull] = []

    def no_state(kind: str, name: str) -> None:
        if name.startswith("binlog-server.state") and kind == "create":
            states.append(DiskFull(f"cannot {kind} {name}: No space left on device (injected)"))
            raise states[-1]

    disk.fault = no_state
    engine.set_option("max_binlog_total_size", 2 * FILE)
    engine.step()
    assert states
    left = [file.number for file in engine.files()]
    assert left[0] != first
    assert lost_files_of(disk, left)
    disk.fault = None
    engine.step()
    assert not lost_files_of(disk, left)
    told = len(caplog.records)
    disk.crash()
    IbbEngine(disk, SMALL, facts=StateStore(disk)).close()
    assert not [r.message for r in caplog.records[told:] if "missing" in r.message]


def test_each_error_is_one_of_its_own() -> None:
    """One that is raised again and again keeps the frames of all who met it."""
    full = FullDisk()
    raised: list[NoRoom] = [full.met(DiskFull("cannot create a"), full.tries)]
    for ask in (full.require_time, full.require_time, lambda: full.wait(lambda: True)):
        with pytest.raises(NoRoom, match="cannot create a") as caught:
            ask()
        raised.append(caught.value)
    assert len({id(error) for error in [full.error, *raised]}) == 5
    assert full.error is not None
    assert full.error.__traceback__ is None


# --- RESET MASTER ---


def no_files(kind: str, name: str) -> None:
    if kind in ("create", "allocate") and name.endswith(".ibb"):
        raise DiskFull(f"cannot {kind} {name}: No space left on device (injected)")


@pytest.mark.parametrize("to", [None, BinlogState([Gtid(5, 1, 50)])], ids=["", "to a state"])
def test_nobody_waits_for_a_reset_that_waits_for_room(to: BinlogState | None) -> None:
    disk = MemoryDisk()
    rounds: list[list[str]] = []

    def beginning(engine: IbbEngine) -> Position:
        return engine.find_start((to or BinlogState()).position()).position

    def wait(_: float) -> None:
        """What others do meanwhile; in this thread, so that a lock that is held would be met."""
        assert not engine.has_room
        engine.hold("somebody").release()
        assert engine.purge_before(1e12).delete == []
        assert engine.purge_to(0).delete == []
        assert engine.explain_purge() == []
        assert [file.number for file in engine.files()] == [0]
        assert list(engine.groups_of_file()) == []
        assert beginning(engine).file_no == 0
        assert engine.first_start().position.file_no == 0
        assert str(engine.binlog_state()) == str(to or "")
        engine.keeper.caretaker.step()
        after = disk.after_crash()
        assert str(IbbEngine(after, SMALL).binlog_state()) == str(to or ""), "killed meanwhile"
        rounds.append(ibb_names(disk))
        if len(rounds) == 3:
            disk.fault = None

    engine = IbbEngine(disk, SMALL, wait_for_room=wait)
    append_all(engine, GROUPS)
    engine.sync()
    disk.fault = no_files
    engine.reset(to)
    assert rounds == [[]] * 3
    assert engine.has_room
    engine.step()
    assert engine.stalled() == []
    append_all(engine, simple(10))
    engine.sync()
    assert read_from(engine, beginning(engine)) == payloads(simple(10))
    engine.close()
    engine = IbbEngine(disk, SMALL)
    assert read_from(engine, beginning(engine)) == payloads(simple(10))
    engine.close()


def test_a_reset_that_waits_for_room_while_the_store_is_closed() -> None:
    """Nothing has failed by that: it is anew, in the redo log."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL, wait_for_room=lambda _: engine.stop_waiting())
    append_all(engine, GROUPS)
    engine.sync()
    disk.fault = no_files
    with pytest.raises(NoRoom):
        engine.reset(BinlogState([Gtid(5, 1, 50)]))
    assert not engine._durability.failed
    engine.close()
    disk.fault = None
    engine = IbbEngine(disk, SMALL)
    assert str(engine.binlog_state()) == "5-1-50"
    append_all(engine, GROUPS)
    engine.close()


def test_a_reset_on_a_disk_without_room_for_facts() -> None:
    disk = MemoryDisk()
    facts = StateStore(disk)
    engine = IbbEngine(disk, SMALL, facts=facts)
    for _ in range(2):
        append_all(engine, GROUPS[:3])
        engine.flush()

    def full(kind: str, name: str) -> None:
        if kind == "create" and name.startswith("binlog-server.state"):
            raise DiskFull(f"cannot create {name}: No space left on device (injected)")

    disk.fault = full
    engine.reset()
    append_all(engine, GROUPS)
    engine.sync()
    assert read_all(engine) == payloads(GROUPS)
    engine.close()


# --- groups that go back: breaks of the state are rows, and need no room on the disk ---


def one_group(engine: IbbEngine) -> None:
    engine.append(*group(Gtid(0, 1, 1)))


def a_large_group(engine: IbbEngine) -> None:
    engine.append(*group(Gtid(0, 1, 1), size=engine.cache_bytes + 1))


def one_of_a_run(engine: IbbEngine) -> None:
    append_run(engine, [group(Gtid(0, 1, 1))])


def one_prepared(engine: IbbEngine) -> None:
    event = group(Gtid(0, 1, 1))[0]
    engine.commit_prepared(XID, event, Gtid(0, 1, 1))


XID = Xid(1, b"x")


@pytest.mark.parametrize("error", [DiskFull, TooManyOpenFiles, DiskError])
@pytest.mark.parametrize("commit", [one_group, one_of_a_run, a_large_group, one_prepared])
def test_a_break_is_noted_where_no_file_can_be_made(
    commit: Callable[[IbbEngine], None], error: type[DiskError]
) -> None:
    """The file of facts is not written for it, and it is durable with the group."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
    append_all(engine, simple(5, first=100))
    engine.begin().prepare(XID)
    engine.sync()
    last = engine.written_end.file_no

    def fails(kind: str, name: str) -> None:
        if kind == "create" and name.startswith("binlog-server.state"):
            raise error("cannot write facts")

    disk.fault = fails
    commit(engine)
    append_all(engine, simple(2, first=200))
    engine.sync()
    breaks = engine._breaks.known()
    assert breaks is not None
    assert last + 1 in breaks
    disk.fault = None
    found = read_all(engine)
    assert len(found) == 8
    disk.crash()
    engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
    assert read_all(engine) == found
    assert engine._breaks.known() == breaks
    engine.close()


@pytest.mark.parametrize("error", [DiskFull, TooManyOpenFiles, DiskError])
def test_a_domain_is_deleted_where_no_file_can_be_made(error: type[DiskError]) -> None:
    """DELETE_DOMAIN_ID makes a state smaller: the file of facts is not written for it."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
    append_all(engine, simple(3, domain=7))
    engine.flush()
    append_all(engine, GROUPS[:3])
    engine.flush()
    engine.purge_to(engine.files()[-1].number)
    end = engine.written_end
    kept = read_from(engine, engine.first_start().position)

    def fails(kind: str, name: str) -> None:
        if kind == "create" and name.startswith("binlog-server.state"):
            raise error("cannot write facts")

    disk.fault = fails
    engine.flush([7])
    assert engine.written_end.file_no > end[0]
    assert engine.binlog_state() == state_after(GROUPS[:3])
    append_all(engine, GROUPS[3:8])
    engine.sync()
    disk.fault = None
    disk.crash()
    engine = IbbEngine(disk, SMALL, facts=StateStore(disk))
    assert engine.binlog_state() == state_after(GROUPS[:8])
    assert engine._breaks.known() == [end[0] + 1]
    found = read_from(engine, engine.first_start().position)
    assert found == [*kept, *payloads(GROUPS[3:8])]
    engine.close()


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_failure_for_lack_of_room_is_none_to_be_tried_again(kind: str) -> None:
    """Of the redo log, which has its room: whether the group is there shows at the next start, so "nothing was done"
    would be a lie."""

    def full(what: str, name: str) -> None:
        if (what, name) == (kind, REDO_NAME):
            raise DiskFull(f"cannot {what} {name}: No space left on device (injected)")

    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS[:2])
    heard: list[StorageError] = []
    engine.when_failed(heard.append)
    disk.fault = full
    with pytest.raises(DiskError, match="No space left") as caught:
        engine.sync()
    assert not isinstance(caught.value, DiskFull)
    assert [isinstance(error, DiskFull) for error in heard] == [False], (
        "who commits hears of it here"
    )
    with pytest.raises(StoreFailed):
        engine.sync()
    engine.close()
