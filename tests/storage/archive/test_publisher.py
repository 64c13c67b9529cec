"""What an archive is after a crash at any step of adding to it: as it was, or with what was published."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState
from binlog_storage.archive.archive import Archive, read_manifest
from binlog_storage.archive.errors import ArchiveDamaged, ArchiveInUse, NotAnArchive
from binlog_storage.archive.manifest import (
    MANIFEST_NAME,
    ArchiveManifest,
    ArchivePart,
    chunk_name,
    part_name,
)
from binlog_storage.archive.places import DiskPlace
from binlog_storage.archive.publisher import LOCK_NAME, ArchivePublisher, FolderShelf, StagedPart
from binlog_storage.disk.disk import Disk, OsDisk
from binlog_storage.errors import DiskError, DiskFull
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.recorder import RecordingDisk
from tests.storage.crash.states import crash_states
from tests.storage.crash.variants import Limits

SOURCE = {"kind": "directory", "name": "/store"}


def part(number: int) -> ArchivePart:
    """One group of one domain and server, with that number."""
    gtid = f"0-1-{number}"
    return ArchivePart(
        10, "ab", 1, 100, 7, gtid, gtid, gtid, "cd", 1000 + number, 1000 + number, (0, number)
    )


def staged(disk: Disk, number: int) -> StagedPart:
    """Written and synced as a worker does it."""
    name = f".staged-run-{number}"
    file = disk.open(name, create=True)
    file.pwrite(b"part %d" % number, 0)
    file.fdatasync()
    file.close()
    return StagedPart(name, part(number))


def add(disk: Disk, numbers: range, chunk_parts: int = 1000) -> None:
    publisher = ArchivePublisher(FolderShelf(disk, "here"), chunk_parts=chunk_parts)
    try:
        if publisher.manifest is None:
            publisher.begin(BinlogState.parse("5-1-9"), SOURCE)
        for number in numbers:
            publisher.publish([staged(disk, number)])
    finally:
        publisher.close()


def content(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def test_parts_in_their_order_with_the_state_in_front_of_each(tmp_path: Path) -> None:
    add(OsDisk(tmp_path), range(1, 4))
    add(OsDisk(tmp_path), range(4, 6))
    archive = Archive.open(tmp_path)
    assert [placed.part.name for placed in archive.parts()] == [part_name(n) for n in range(1, 6)]
    assert [str(placed.before) for placed in archive.parts()][:2] == ["5-1-9", "5-1-9,0-1-1"]
    assert str(archive.manifest.state) == "5-1-9,0-1-5"
    assert (archive.manifest.groups, archive.manifest.payload_bytes) == (5, 500)
    assert archive.manifest.source == SOURCE


def test_many_parts_are_listed_in_chunks(tmp_path: Path) -> None:
    add(OsDisk(tmp_path), range(1, 24), chunk_parts=5)
    archive = Archive.open(tmp_path)
    assert [chunk.name for chunk in archive.manifest.chunks] == [chunk_name(n) for n in range(1, 5)]
    assert len(archive.manifest.parts) == 3
    found = list(archive.parts())
    assert [placed.part.last for placed in found] == [f"0-1-{n}" for n in range(1, 24)]
    assert [placed.number for placed in found] == list(range(1, 24))
    assert archive.manifest.count == archive.manifest.groups == 23
    assert str(archive.manifest.state) == "5-1-9,0-1-23"
    # What no part of is wanted is not read.
    (tmp_path / chunk_name(1)).unlink()
    wanted = list(archive.parts(lambda chunk, before: before.get(0, 1) is not None))
    assert wanted[0].part.last == "0-1-6"
    assert str(wanted[0].before) == "5-1-9,0-1-5"
    with pytest.raises(ArchiveDamaged, match=r"_archive-000001\.json is missing"):
        list(archive.parts())


def test_a_crash_at_any_step() -> None:
    steps = _steps_of(range(3, 6))
    for step in range(steps):
        disk = MemoryDisk()
        add(disk, range(1, 3), chunk_parts=2)
        disk.fail_at = disk.operations + 1 + step
        with pytest.raises(DiskError):
            add(disk, range(3, 6), chunk_parts=2)
        disk.crash(random.Random(step))
        before = _sound(disk)
        assert 2 <= before <= 5
        add(disk, range(before + 1, 6), chunk_parts=2)
        assert _sound(disk) == 5
        left = {name for name in disk.names() if not name.startswith("part-")}
        assert left - {LOCK_NAME} == {MANIFEST_NAME, chunk_name(1), chunk_name(2)}


def test_names_that_reach_the_disk_in_any_order() -> None:
    """A manifest may not be there before a part of which it tells."""
    disk = RecordingDisk(MemoryDisk())
    add(disk, range(1, 4), chunk_parts=2)
    states = 0
    for state in crash_states(disk, Limits(any_names=True), random.Random(1)):
        found = MemoryDisk(state.files)
        if MANIFEST_NAME in found.names():
            _sound(found)
            states += 1
    assert states > 20


def _steps_of(numbers: range) -> int:
    disk = MemoryDisk()
    add(disk, range(1, 3), chunk_parts=2)
    before = disk.operations
    add(disk, numbers, chunk_parts=2)
    return disk.operations - before


def _sound(disk: Disk) -> int:
    """How many parts the manifest has; each is there, and whole."""
    manifest = read_manifest(DiskPlace(disk, "here"))
    assert manifest is not None
    for placed in Archive(DiskPlace(disk, "here"), manifest).parts():
        assert content(disk, placed.part.name) == b"part %d" % placed.number
        assert placed.part.last == f"0-1-{placed.number}"
    return manifest.count


def test_a_full_disk_has_nothing_that_was_not_published() -> None:
    """Whatever found no room: the part, a list of parts, the manifest. With room it is done."""
    disk = MemoryDisk()
    add(disk, range(1, 3), chunk_parts=2)
    failed = 0
    for room in range(0, 3000, 40):
        full = MemoryDisk(disk.contents())
        full.capacity = full.used() + room
        publisher = ArchivePublisher(FolderShelf(full, "here"), chunk_parts=2)
        try:
            publisher.publish([staged(full, 3)])
        except DiskFull:
            publisher.discard_staged(".staged-")
            failed += 1
            assert {*full.names()} == {*disk.names()}
            full.capacity = 1 << 62
            publisher.publish([staged(full, 3)])
        publisher.close()
        manifest = read_manifest(DiskPlace(full, "here"))
        assert manifest is not None
        archive = Archive(DiskPlace(full, "here"), manifest)
        assert [placed.part.name for placed in archive.parts()] == [part_name(n) for n in (1, 2, 3)]
    assert 10 < failed < 75


def test_one_process_at_a_time(tmp_path: Path) -> None:
    publisher = ArchivePublisher(FolderShelf(OsDisk(tmp_path), str(tmp_path)))
    with pytest.raises(ArchiveInUse, match="another process is adding to the archive"):
        ArchivePublisher(FolderShelf(OsDisk(tmp_path), str(tmp_path)))
    publisher.close()
    ArchivePublisher(FolderShelf(OsDisk(tmp_path), str(tmp_path))).close()


def test_what_is_not_an_archive_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").write_bytes(b"somebody's")
    with pytest.raises(NotAnArchive, match=r"holds 'part-00000\.parquet' and no _archive\.json"):
        ArchivePublisher(FolderShelf(OsDisk(tmp_path), str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000.parquet"]
    with pytest.raises(NotAnArchive, match=r"it has no _archive\.json"):
        Archive.open(tmp_path)
    with pytest.raises(NotAnArchive, match=r"there is no .*nowhere"):
        Archive.open(tmp_path / "nowhere")


def test_files_of_others_stay(tmp_path: Path) -> None:
    add(OsDisk(tmp_path), range(1, 3))
    kept = ["notes.txt", "part-x.parquet", "_SUCCESS"]
    for name in [*kept, part_name(3), ".staged-x", f"{MANIFEST_NAME}.new"]:
        (tmp_path / name).write_bytes(b"x")
    ArchivePublisher(FolderShelf(OsDisk(tmp_path), str(tmp_path))).close()
    ours = {part_name(1), part_name(2), MANIFEST_NAME, LOCK_NAME}
    assert {path.name for path in tmp_path.iterdir()} == ours | set(kept)


def test_each_byte_of_a_manifest_counts() -> None:
    data = ArchiveManifest("0-1-7", SOURCE, (), (part(8),)).build()
    assert ArchiveManifest.parse(data, "here").parts == (part(8),)
    for at in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[at] ^= 0x01
        with contextlib.suppress(ArchiveDamaged, NotAnArchive):
            # A byte between two members may be another one without any harm.
            assert ArchiveManifest.parse(bytes(damaged), "here") == ArchiveManifest.parse(
                data, "here"
            )
    for size in range(0, len(data) - 2, 7):
        with pytest.raises((ArchiveDamaged, NotAnArchive)):
            ArchiveManifest.parse(data[:size], "here")


def test_a_manifest_of_a_later_version_is_not_guessed_at() -> None:
    data = ArchiveManifest("", SOURCE).build().replace(b'"version": 1', b'"version": 4')
    with pytest.raises(NotAnArchive, match="version 4; this program reads those up to 3"):
        ArchiveManifest.parse(data, "here")


def test_a_chunk_of_another_archive_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        add(OsDisk(tmp_path / name), range(1, 5 if name == "a" else 6), chunk_parts=3)
    other = bytearray((tmp_path / "b" / chunk_name(1)).read_bytes())
    assert bytes(other) == (tmp_path / "a" / chunk_name(1)).read_bytes()
    (tmp_path / "a" / chunk_name(1)).write_bytes(bytes(other[:-2]))
    with pytest.raises(ArchiveDamaged, match=r"_archive-000001\.json is not the one"):
        list(Archive.open(tmp_path / "a").parts())
