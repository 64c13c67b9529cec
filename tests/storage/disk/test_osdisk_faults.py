"""What the operating system may do to a call of `OsFile`: do a part of it, or refuse."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog_storage.disk.disk import OsDisk, OsFile
from binlog_storage.errors import DiskError, DiskFull

DATA = bytes(range(256)) * 40


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OsFile]:
    made = OsDisk(tmp_path).open("a", create=True)
    yield made
    made.close()


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, new: Callable[..., object]) -> list[int]:
    """`os.name` is `new`. Returns a list that grows by one with each call."""
    calls: list[int] = []

    def call(*args: object) -> object:
        calls.append(1)
        return new(*args)

    monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize("most", [1000, 4096, 9999, 1 << 20])
def test_short_writes_are_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, file: OsFile, most: int
) -> None:
    pwrite = os.pwrite
    calls = replaced(monkeypatch, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:most], at))
    file.pwrite(DATA, 77)
    assert len(calls) == -(-len(DATA) // most)
    assert file.pread(20_000, 0) == bytes(77) + DATA


@pytest.mark.parametrize("most", [1000, 4096, 9999, 1 << 20])
def test_short_reads_are_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, file: OsFile, most: int
) -> None:
    file.pwrite(DATA, 0)
    pread = os.pread
    replaced(monkeypatch, "pread", lambda fd, size, at: pread(fd, min(size, most), at))
    assert file.pread(len(DATA), 0) == DATA
    assert file.pread(5000, 9000) == DATA[9000:14000]
    assert file.pread(5000, len(DATA) - 10) == DATA[-10:]
    assert file.pread(5000, len(DATA)) == b""


def test_a_short_write_before_a_full_disk(monkeypatch: pytest.MonkeyPatch, file: OsFile) -> None:
    """As Linux tells it: first a part, then the reason. The part is there, and the length with it."""
    pwrite = os.pwrite

    def fills_up(fd: int, data: memoryview, at: int) -> int:
        if at >= 3000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, bytes(data)[: 3000 - at], at)

    replaced(monkeypatch, "pwrite", fills_up)
    with pytest.raises(DiskFull, match=r"cannot write .*a: No space left on device"):
        file.pwrite(DATA, 0)
    assert file.size() == 3000


def test_a_short_write_keeps_no_hold_of_the_bytes(
    monkeypatch: pytest.MonkeyPatch, file: OsFile
) -> None:
    """Who gets the error takes back what was not written: an open transaction, as it was before its statement."""
    pwrite, data, calls = os.pwrite, bytearray(DATA), 0

    def fills_up(fd: int, part: bytes, at: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, bytes(part)[:100], at)

    monkeypatch.setattr(os, "pwrite", fills_up)
    with pytest.raises(DiskFull) as caught:
        file.pwrite(data, 7)
    assert caught.tb is not None, "the frames are kept"
    del data[:]
    assert file.pread(1000, 7) == DATA[:200]


def failing(number: int) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize(
    ("name", "words", "use"),
    [
        ("pread", "cannot read", lambda file: file.pread(1, 0)),
        ("pwrite", "cannot write", lambda file: file.pwrite(b"x", 0)),
        ("fdatasync", "cannot sync", lambda file: file.fdatasync()),
        ("ftruncate", "cannot truncate", lambda file: file.truncate(1)),
        ("posix_fallocate", "cannot allocate", lambda file: file.allocate(1)),
    ],
)
def test_an_error_is_told_with_what_was_done_and_where(
    monkeypatch: pytest.MonkeyPatch,
    file: OsFile,
    name: str,
    words: str,
    use: Callable[[OsFile], object],
) -> None:
    calls = replaced(monkeypatch, name, failing(errno.EIO))
    with pytest.raises(DiskError, match=f"{words} .*a: Input/output error") as caught:
        use(file)
    assert not isinstance(caught.value, DiskFull)
    assert isinstance(caught.value.__cause__, OSError)
    assert len(calls) == 1, "an error is not tried again"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("name", ["pwrite", "posix_fallocate", "fdatasync"])
def test_no_room_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, file: OsFile, name: str, number: int
) -> None:
    replaced(monkeypatch, name, failing(number))
    use = {
        "pwrite": lambda: file.pwrite(b"x", 0),
        "posix_fallocate": lambda: file.allocate(1),
        "fdatasync": file.fdatasync,
    }
    with pytest.raises(DiskFull):
        use[name]()


def test_syncs_beside_one_are_at_the_same_time(tmp_path: Path) -> None:
    met = threading.Barrier(3, timeout=20)

    def sync() -> None:
        met.wait()

    with OsDisk(tmp_path).beside(sync, sync):
        met.wait()


def test_without_threads_syncs_come_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[str] = []
    with OsDisk(tmp_path).beside(lambda: done.append("file"), lambda: done.append("folder")):
        done.append("block")
    assert done == ["block", "file", "folder"]


def test_a_directory_that_cannot_be_synced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    replaced(monkeypatch, "fsync", failing(errno.EIO))
    closed = replaced(monkeypatch, "close", os.close)
    with pytest.raises(DiskError, match="cannot sync directory"):
        disk.fsync_dir()
    assert closed, "the descriptor was left open"
