"""An older manifest that is put back is not believed by who remembers the newer one; nor is none at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archive import Archive, read_manifest
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.errors import ArchiveTurnedBack
from binlog_storage.archive.manifest import MANIFEST_NAME
from binlog_storage.archive.publisher import open_shelf
from binlog_storage.archive.remembered_manifests import ManifestMemory, SeenManifest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.archive.memory_objects import MemoryObjects
from tests.storage.groups import append_all, group
from tests.storage.sizes import small

URL = MemoryObjects.where


class History:
    """A store, and its archiver with a memory."""

    def __init__(self, path: Path) -> None:
        key_file = path / "keys.txt"
        key_file.write_text("1;" + "ab" * 16 + "\n")
        self.memory = path / "archives"
        self.without = ArchiveKeys(str(key_file))
        self._engine = IbbEngine(MemoryDisk(), small(64))
        self._last = 0

    @property
    def keys(self) -> ArchiveKeys:
        """As those of a process that has just begun."""
        return ArchiveKeys(self.without.filename, memory=ManifestMemory(self.memory))

    def step(self, keys: ArchiveKeys | None = None, *, grow: bool = True) -> int:
        """A group more, archived by a server that has just begun."""
        if grow:
            self._last += 1
            append_all(self._engine, [group(Gtid(0, 1, self._last), 100)])
            self._engine.sync()
        archiver = StoreArchiver(self._engine, URL, keys=keys or self.keys, key_id=1)
        try:
            return archiver.step()
        finally:
            archiver.close()


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def put(objects: MemoryObjects, data: bytes) -> None:
    objects.objects[MANIFEST_NAME] = data, f'"back {len(data)}"'


def manifest(objects: MemoryObjects) -> bytes:
    return objects.objects[MANIFEST_NAME][0]


def refused(history: History, told: str) -> None:
    """By who adds and who reads; nothing of the archive is changed."""
    with pytest.raises(ArchiveTurnedBack, match=told):
        history.step(grow=False)
    with pytest.raises(ArchiveTurnedBack, match=told):
        Archive.open(URL, history.keys)


def test_one_that_was_put_back(history: History, objects: MemoryObjects) -> None:
    history.step()
    older = manifest(objects)
    history.step()
    newer = manifest(objects)
    put(objects, older)
    refused(history, "older one: 1 parts were numbered by then, and 2 were")
    assert manifest(objects) == older
    assert Archive.open(URL, history.without).manifest.count == 1  # and by who has no memory
    del objects.objects[MANIFEST_NAME]
    refused(history, "there is no manifest any more")
    put(objects, newer)
    assert history.step() == 1
    # Somebody without a memory has gone on from it.
    newest = manifest(objects)
    put(objects, newer)
    history.step(history.without)
    assert Archive.open(URL, history.without).manifest.given == 3
    refused(history, "another manifest is in its place")
    put(objects, newest)
    history.step(grow=False)
    # And it may be meant so.
    put(objects, older)
    history.memory.unlink()
    assert history.step(grow=False) == 3


def test_what_is_written_while_somebody_reads(
    history: History, objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is older than what was published meanwhile is no older manifest."""
    history.step()
    keys, real = history.keys, objects.get

    def late(name: str) -> object:
        found = real(name)
        monkeypatch.undo()
        monkeypatch.setattr("binlog_storage.archive.publisher.open_objects", lambda url: objects)
        history.step(keys)
        return found

    place = open_shelf(URL, keys).place
    monkeypatch.setattr(objects, "get", late)
    found = read_manifest(place)
    assert found is not None
    assert found.count == 1
    seen = ManifestMemory(history.memory).seen(URL)
    assert seen == SeenManifest.of(2, manifest(objects))


DAMAGED = [
    b"",
    b"{",
    b"[]",
    b'{"format": 2, "archives": {}}',
    b'{"format": 1, "archives": {"x": [1]}}',
    b'{"format": 1, "archives": {"x": ["a", "b"]}}',
    b"[" * 5000,
]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_file_knows_nothing(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "archives"
    path.write_bytes(data)
    memory = ManifestMemory(path)
    assert memory.seen("x") is None
    memory.remember("x", SeenManifest(3, "a"))
    memory.remember("x", SeenManifest(2, "b"))
    assert ManifestMemory(path).seen("x") == (3, "a")


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_storage.archive.remembered_manifests._ARCHIVES_MAX", 2)
    memory = ManifestMemory(tmp_path / "archives")
    for where in "abac":
        memory.remember(where, SeenManifest(1, ""))
    again = ManifestMemory(tmp_path / "archives")
    assert [where for where in "abc" if again.seen(where)] == ["a", "c"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    ManifestMemory(tmp_path / "none" / "x").remember("x", SeenManifest(1, ""))
