"""The next file does not fit on the disk: said aloud, tried again, nothing lost, nothing out of order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.gtid import Gtid
from storage.binlog.caretaker import Caretaker
from storage.binlog.file_table import ROOM_RETRY_S
from storage.binlog.options import StoreOptions
from storage.binlog.store import IbbEngine
from storage.disk import OsDisk
from storage.errors import CorruptBinlog, DiskError, DiskFull, StoreFailed
from storage.memory_disk import MemoryDisk
from tests.storage.groups import append_all, group, payloads, read_all, simple

FILE = 4 * 16384
SMALL = StoreOptions(FILE, 2 * 16384, slave_connections_needed_for_purge=0)
GROUPS = simple(30, size=5000)  # some three files
WORDS = (
    'InnoDB: Unable to allocate file binlog-00000{}.ibb: "cannot allocate: No space left on device '
    '(injected)". Waiting 60 seconds before trying again...'
)


def test_the_writer_waits_for_room(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    waited: list[float] = []
    seen: list[list[str]] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        seen.append(sorted(disk.names()))
        if len(waited) == 3:
            disk.file_bytes_max = FILE

    engine = IbbEngine(disk, SMALL, wait_for_room=wait)
    append_all(engine, GROUPS)
    disk.file_bytes_max = FILE - 1
    with caplog.at_level(logging.ERROR):
        engine.sync()
    assert waited == [60.0] * 3
    assert [r.message for r in caplog.records] == [WORDS.format(1)] * 3
    assert seen == [["binlog-000000.ibb"]] * 3, "half a file was left"
    assert read_all(engine) == payloads(GROUPS)
    disk.crash()
    engine = IbbEngine(disk, SMALL)
    assert read_all(engine) == payloads(GROUPS)
    engine.close()


def test_others_go_on_while_the_writer_waits() -> None:
    """Groups are appended, what is durable is read; all of it is durable in the end, in order."""
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS[:2])
    engine.sync()
    before: list[list[bytes]] = []

    def wait(_: float) -> None:
        append_all(engine, GROUPS[20 : 20 + 5])
        before.append(read_all(engine))
        disk.file_bytes_max = FILE

    engine._pages.files._wait = wait
    append_all(engine, GROUPS[2:20])
    disk.file_bytes_max = 0
    engine.sync()
    assert before == [payloads(GROUPS[:2])]
    assert read_all(engine) == payloads(GROUPS[:20])
    engine.sync()
    assert read_all(engine) == payloads(GROUPS[:25])
    engine.close()


def test_closing_ends_the_waiting() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS[:3])
    engine.sync()
    append_all(engine, GROUPS[3:])
    disk.file_bytes_max = 0
    failures: list[Exception] = []

    def sync() -> None:
        try:
            engine.sync()
        except DiskError as error:
            failures.append(error)

    thread = threading.Thread(target=sync)
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


def test_a_full_disk_at_close_is_an_error() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS)
    disk.file_bytes_max = 0
    with pytest.raises(DiskFull, match=r"Unable to allocate file binlog-000001.ibb"):
        engine.close()


def test_another_error_is_none_to_wait_for() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL, wait_for_room=lambda _: pytest.fail("waited"))
    append_all(engine, GROUPS)
    disk.fail_at = disk.operations + 3  # in the middle of making file 1
    with pytest.raises(DiskError):
        engine.sync()
    with pytest.raises(StoreFailed):
        engine.append(*group(Gtid(0, 1, 99)))


# --- files made ahead ---


def test_the_caretaker_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    disk.file_bytes_max = FILE - 1
    step = engine.keeper.caretaker.step
    with caplog.at_level(logging.ERROR):
        assert step() == ROOM_RETRY_S == 60.0
        assert step() == ROOM_RETRY_S
    assert [r.message for r in caplog.records] == [WORDS.format(1)] * 2
    assert disk.names() == ["binlog-000000.ibb"]
    disk.file_bytes_max = FILE
    assert step() is None
    assert sorted(disk.names()) == ["binlog-000000.ibb", "binlog-000001.ibb"]
    engine.close()


def test_a_full_disk_does_not_keep_old_files_from_being_purged() -> None:
    """Deleting them is what makes room."""
    disk = MemoryDisk()
    options = StoreOptions(
        FILE, 2 * 16384, max_binlog_total_size=2 * FILE, slave_connections_needed_for_purge=0
    )
    engine = IbbEngine(disk, options)
    append_all(engine, simple(100, size=3000))
    engine.sync()
    last = engine.files()[-1].name
    disk.file_bytes_max = 0
    assert engine.keeper.caretaker.step() == ROOM_RETRY_S
    assert [file.name for file in engine.files()][-1:] == [last]
    assert len(engine.files()) == 2
    engine.close()


def test_purge_makes_room_for_a_writer_that_waits() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    append_all(engine, GROUPS)
    engine.sync()
    deleted: list[list[int]] = []

    def wait(_: float) -> None:
        deleted.append(engine.purge_to(engine.status()[0]).delete)
        disk.file_bytes_max = FILE

    engine._pages.files._wait = wait
    more = simple(20, first=31, size=5000)
    append_all(engine, more)
    disk.file_bytes_max = 0
    engine.sync()
    assert deleted[0][:2] == [0, 1]
    engine.close()


def test_the_thread_goes_on_when_there_is_room() -> None:
    tries: list[int] = []
    done = threading.Event()

    def work() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise DiskFull("Unable to allocate")
        done.set()

    caretaker = Caretaker(work, retry_s=0.01)
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

        def slowly(size: int) -> None:
            meanwhile()
            allocate(size)

        file.allocate = slowly  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("fails", [False, True], ids=["room", "full"])
def test_caretaker_and_writer_make_the_same_file(tmp_path: Path, fails: bool) -> None:
    """The one that comes later takes what is there; neither removes what the other has made."""
    disk = Meeting(tmp_path)
    engine = IbbEngine(disk, SMALL)  # type: ignore[arg-type]
    append_all(engine, GROUPS)
    writer = threading.Thread(target=engine.sync)

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
    assert read_all(engine) == payloads(GROUPS)
    engine.close()
    engine = IbbEngine(OsDisk(tmp_path), SMALL)
    assert read_all(engine) == payloads(GROUPS)
    engine.close()


def test_a_file_that_was_left_half_made_is_made_anew() -> None:
    disk = MemoryDisk()
    engine = IbbEngine(disk, SMALL)
    file = disk.open("binlog-000001.ibb", create=True)
    file.truncate(16384)
    file.close()
    append_all(engine, GROUPS)
    engine.sync()
    assert {f.size for f in engine.files()} == {FILE}
    assert read_all(engine) == payloads(GROUPS)
    engine.close()


def test_nothing_else_is_forgiven() -> None:
    """What is no disk error passes through a step as its own."""

    def work() -> None:
        raise CorruptBinlog(1, 2, "damaged")

    assert Caretaker(work).step() is None
