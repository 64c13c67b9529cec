"""A disk that keeps changes in memory does what a disk does, and the directory below stays as it is."""

from __future__ import annotations

import random
from contextlib import closing, suppress
from pathlib import Path

import pytest
from binlog_storage.disk.disk import Disk, OsDisk
from binlog_storage.disk.overlay_disk import OverlayDisk
from binlog_storage.errors import DiskError, FileMissing, StoreInUse


def content(disk: Disk, name: str) -> bytes:
    with closing(disk.open(name)) as file:
        return file.pread(file.size(), 0)


def all_of(disk: Disk, folder: str = "") -> dict[str, bytes]:
    prefix = f"{folder}/" if folder else ""
    names = [prefix + name for name in disk.names(folder) if name != "folder"]
    assert all(disk.size(name) == len(content(disk, name)) for name in names)
    return {name: content(disk, name) for name in names}


def change(disk: Disk, rng: random.Random) -> None:
    """A step of any kind, the same on each disk with the same names."""
    name, other = (rng.choice(["a", "b", "c", "folder/d"]) for _ in range(2))
    data, at = rng.randbytes(rng.randrange(1, 40)), rng.randrange(60)
    match rng.randrange(6):
        case 0:
            with suppress(DiskError):
                disk.open(name, create=True).close()
        case 1:
            with suppress(FileMissing):
                disk.rename(name, other)
        case 2:
            with suppress(FileMissing):
                disk.unlink(name)
        case 3 | 4 as kind:
            with suppress(FileMissing), closing(disk.open(name)) as file:
                if kind == 3:
                    file.pwrite(data, at)
                else:
                    file.pwritev([data, data], at)
        case 5:
            with suppress(FileMissing), closing(disk.open(name)) as file:
                file.truncate(at)


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("seed", range(20))
def test_it_does_what_a_disk_does(tmp_path: Path, seed: int) -> None:
    (tmp_path / "below" / "folder").mkdir(parents=True)
    for name in ("a", "b", "folder/d"):
        (tmp_path / "below" / name).write_bytes(name.encode() * 20)
    real = OsDisk(tmp_path / "real")
    real.make_folder("folder")
    for name in ("a", "b", "folder/d"):
        (tmp_path / "real" / name).write_bytes(name.encode() * 20)
    before = {path: path.lstat().st_mtime_ns for path in (tmp_path / "below").rglob("*")}
    with closing(OverlayDisk(tmp_path / "below")) as disk:
        for step in range(60):
            for one in (real, disk):
                change(one, random.Random(f"{seed} {step}"))
            assert all_of(disk) == all_of(real)
            assert all_of(disk, "folder") == all_of(real, "folder")
    assert before == {path: path.lstat().st_mtime_ns for path in (tmp_path / "below").rglob("*")}
    with closing(OverlayDisk(tmp_path / "below")) as again:
        assert content(again, "a") == b"a" * 20


def test_who_has_a_file_open_sees_what_others_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"before")
    with closing(OverlayDisk(tmp_path, clock=lambda: 7.0)) as disk:
        with closing(disk.open("a")) as reader, closing(disk.open("a")) as writer:
            assert disk.modified("a") == (tmp_path / "a").stat().st_mtime
            writer.pwrite(b"AFTER", 0)
            assert reader.pread(9, 0) == b"AFTERe"
            assert disk.modified("a") == 7.0
            disk.unlink("a")
            assert reader.pread(9, 0) == b"AFTERe"
        with pytest.raises(FileMissing):
            disk.open("a")
        disk.make_folder("f")
        assert disk.names() == ["f"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_the_lock_of_a_directory(tmp_path: Path) -> None:
    with closing(OverlayDisk(tmp_path)) as disk:
        disk.lock("lock")
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "lock").touch()
    with closing(OverlayDisk(tmp_path)) as disk, closing(OsDisk(tmp_path)) as other:
        disk.lock("lock")
        with pytest.raises(StoreInUse):
            other.lock("lock")
    with closing(OsDisk(tmp_path)) as other, closing(OverlayDisk(tmp_path)) as disk:
        other.lock("lock")
        with pytest.raises(StoreInUse):
            disk.lock("lock")
