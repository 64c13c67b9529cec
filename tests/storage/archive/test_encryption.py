"""Encrypted parts: read from any place with the key, and by nobody who has not, or has changed a byte."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.encryption import (
    FRAME_BYTES,
    KEY_FILE_VARIABLE,
    PASSWORD_VARIABLE,
    ArchiveKey,
    ArchiveKeys,
    DecryptedBytes,
    EncryptingFile,
)
from binlog_storage.archive.errors import ArchiveDamaged
from binlog_storage.archive.manifest import MANIFEST_NAME
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.publisher import ArchivePublisher, open_shelf
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import NoBinlogKey
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.cli import main
from binlog_server.settings.config import Config, ConfigError
from tests.pipeline.archives import grow, log_of, replayed, rows, run, stored
from tests.storage.archive.memory_objects import MemoryObjects
from tests.storage.groups import append_all, group
from tests.storage.sizes import small

URL = MemoryObjects.where
SECRET = b"the secret of a customer"
_HEADER = 44
_FRAME = FRAME_BYTES + 16


@pytest.fixture
def keys(tmp_path: Path) -> ArchiveKeys:
    path = tmp_path / "keys.txt"
    path.write_text(f"1;{'11' * 32}\n2;{'22' * 32}\n3;{'33' * 16}\n")
    return ArchiveKeys(str(path))


# --- the file ---


def encrypted(path: Path, data: bytes, key: ArchiveKey, step: int = 30_000) -> Path:
    with EncryptingFile(path.open("wb"), key) as file:
        for begin in range(0, len(data), step):
            assert file.tell() == begin
            file.write(data[begin : begin + step])
    return path


def opened(path: Path, keys: ArchiveKeys, number: int = 2) -> tuple[int, DecryptedBytes]:
    fd = os.open(path, os.O_RDONLY)
    return fd, DecryptedBytes(fd, number, keys, str(path))


def content(path: Path, keys: ArchiveKeys, number: int = 2) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        file = DecryptedBytes(fd, number, keys, str(path))
        return file.pread(file.size, 0)
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 200_000])
def test_any_range_of_it(size: int, keys: ArchiveKeys, tmp_path: Path, rng: random.Random) -> None:
    data = rng.randbytes(size)
    path = encrypted(tmp_path / "x", data, keys.get(2, "x"))
    fd, file = opened(path, keys)
    try:
        assert file.size == size
        for _ in range(20):
            at, count = rng.randrange(size + 2), rng.randrange(size + 2)
            assert file.pread(count, at) == data[at : at + count]
    finally:
        os.close(fd)
    # A byte or two stand in any noise.
    assert size < 64 or data[:64] not in path.read_bytes()


def swapped(data: bytes) -> bytes:
    first, second = data[_HEADER : _HEADER + _FRAME], data[_HEADER + _FRAME : _HEADER + 2 * _FRAME]
    return data[:_HEADER] + second + first + data[_HEADER + 2 * _FRAME :]


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "salt": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "a byte": lambda data: data[:70_000] + bytes([data[70_000] ^ 1]) + data[70_001:],
    "the tag": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "cut at a frame": lambda data: data[: _HEADER + _FRAME],
    "cut": lambda data: data[:-1],
    "a frame left out": lambda data: data[:_HEADER] + data[_HEADER + _FRAME :],
    "frames swapped": swapped,
    "no frame": lambda data: data[:_HEADER],
    "a piece of a tag": lambda data: data[: _HEADER + _FRAME + 7],
    "nothing": lambda data: b"",
    "not encrypted": lambda data: b"PAR1" + data[4:],
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed(name: str, keys: ArchiveKeys, tmp_path: Path) -> None:
    path = encrypted(tmp_path / "x", b"x" * 150_000, keys.get(2, "x"))
    path.write_bytes(CHANGES[name](path.read_bytes()))
    with pytest.raises((ArchiveDamaged, NoBinlogKey), match="restore"):
        content(path, keys)


def test_a_frame_of_another_part(keys: ArchiveKeys, tmp_path: Path) -> None:
    """With the same key, and at the same place."""
    one = encrypted(tmp_path / "one", b"1" * 150_000, keys.get(2, "x")).read_bytes()
    path = encrypted(tmp_path / "two", b"2" * 150_000, keys.get(2, "x"))
    two = path.read_bytes()
    path.write_bytes(two[:_HEADER] + one[_HEADER : _HEADER + _FRAME] + two[_HEADER + _FRAME :])
    with pytest.raises(NoBinlogKey, match="was not made with key 2"):
        content(path, keys)


# --- an archive ---


@pytest.fixture
def engine() -> Iterator[BinlogEngine]:
    made = IbbEngine(MemoryDisk(), small(64))
    yield made
    made.close()


def add(engine: BinlogEngine, first: int, last: int) -> None:
    append_all(engine, [group(Gtid(0, 1, n), 3000) for n in range(first, last + 1)])
    engine.sync()


def archived(engine: BinlogEngine, keys: ArchiveKeys, key_id: int = 0) -> int:
    archiver = StoreArchiver(engine, URL, part_bytes=200_000, keys=keys, key_id=key_id)
    try:
        return archiver.step()
    finally:
        archiver.close()


def found(keys: ArchiveKeys) -> list[int]:
    """The key of each part, all checked."""
    archive = Archive.open(URL, keys)
    placed = list(archive.parts())
    for one in placed:
        PartReader(archive.place, one.part).check()
    return [one.part.key_id for one in placed]


def test_on_and_another_key(
    engine: BinlogEngine, keys: ArchiveKeys, objects: MemoryObjects
) -> None:
    """From an archive in clear to an encrypted one, to one with another key; those to come are as the last was."""
    add(engine, 1, 3)
    archived(engine, keys)
    assert b'"version": 1' in objects.objects[MANIFEST_NAME][0], "programs of that version read it"
    for number, key_id in enumerate((2, 0, 3, 0), 4):
        add(engine, number, number)
        assert archived(engine, keys, key_id) == 1
    assert found(keys) == [0, 2, 2, 3, 3]
    assert json.loads(objects.objects[MANIFEST_NAME][0])["key_id"] == 3


def test_the_manifest_proves_no_guess(
    engine: BinlogEngine, keys: ArchiveKeys, objects: MemoryObjects
) -> None:
    """It says nothing of the bytes of a group; with the key it does, as ever."""
    add(engine, 1, 1)
    archived(engine, keys, 2)
    (placed,) = Archive.open(URL, keys).parts()
    assert placed.part.last_sha256
    assert placed.part.crc32c
    text = objects.objects[MANIFEST_NAME][0].decode()
    assert placed.part.last_sha256 not in text
    assert str(placed.part.crc32c) not in text


def test_who_has_no_key_or_another(
    engine: BinlogEngine, keys: ArchiveKeys, objects: MemoryObjects, tmp_path: Path
) -> None:
    add(engine, 1, 3)
    archived(engine, keys, 2)
    other, less = tmp_path / "other", tmp_path / "less"
    other.write_text(f"1;{'11' * 32}\n2;{'99' * 32}\n")
    less.write_text(f"1;{'11' * 32}\n")
    cases = [
        (ArchiveKeys(), rf"encrypted with key 2: give the key file .*{KEY_FILE_VARIABLE}=FILE"),
        (ArchiveKeys(str(other)), rf"was not made with key 2 of {other}: that is another key"),
        (ArchiveKeys(str(less)), rf"{less} does not have: add the line of that key"),
        (ArchiveKeys(str(tmp_path / "none")), "not found"),
    ]
    before = dict(objects.objects)
    for wrong, said in cases:
        with pytest.raises(NoBinlogKey, match=said):
            Archive.open(URL, wrong)
        with pytest.raises(NoBinlogKey, match=said):
            archived(engine, wrong)
        with pytest.raises(NoBinlogKey):
            archived(engine, wrong, 2)
    assert objects.objects == before
    with pytest.raises(NoBinlogKey, match=re.escape(URL)):
        ArchivePublisher(open_shelf(URL, keys), key_id=77)


def test_a_manifest_of_somebody_without_the_key(
    engine: BinlogEngine, keys: ArchiveKeys, objects: MemoryObjects
) -> None:
    """Each part is named by it: one that leaves some out is not believed."""
    for number in (1, 2):
        add(engine, number, number)
        archived(engine, keys, 2)
    whole = Archive.open(URL, keys).manifest
    assert len(whole.parts) > 1
    text = json.loads(objects.objects[MANIFEST_NAME][0])
    text["parts"].pop()
    from binlog_storage.archive import manifest

    mac = text.pop("mac")
    text.pop("sha256")
    text["sha256"] = manifest._digest(text)
    text["mac"] = mac
    objects.objects[MANIFEST_NAME] = json.dumps(text).encode(), '"forged"'
    with pytest.raises(NoBinlogKey, match="was not made with key 2"):
        Archive.open(URL, keys)


def test_a_manifest_in_clear_in_the_place_of_an_encrypted_one(
    engine: BinlogEngine, keys: ArchiveKeys, objects: MemoryObjects
) -> None:
    """Who has no key makes no archive that is believed where there is to be an encrypted one; nor is it added to."""
    add(engine, 1, 2)
    archived(engine, keys)
    in_clear = dict(objects.objects)
    wary = replace(keys, is_required=True)
    with pytest.raises(NoBinlogKey, match=f"{URL}/{MANIFEST_NAME} is in clear, and binlog_archive"):
        Archive.open(URL, wary)
    with pytest.raises(NoBinlogKey, match="is in clear"):
        archived(engine, wary, 2)
    assert objects.objects == in_clear
    add(engine, 3, 3)
    archived(engine, keys, 2)  # somebody says that it was in clear
    assert Archive.open(URL, wary).manifest.groups == 3
    assert found(wary) == [0, 2]


@pytest.mark.by_turns(2)
@pytest.mark.long
@pytest.mark.parametrize("target", ["folder", "objects"])
def test_all_readers(
    target: str,
    keys: ArchiveKeys,
    objects: MemoryObjects,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By one door, with the key file that the environment names; nothing in clear lies in the archive."""
    store = tmp_path / "store"
    grow(
        store, [group(Gtid(0, 1, n), 4000) for n in range(1, 60)] + [group(Gtid(0, 1, 60), 5 << 20)]
    )
    where = URL if target == "objects" else str(tmp_path / "archive")
    source = DirectorySource(str(store))
    with pytest.raises(NoBinlogKey, match=KEY_FILE_VARIABLE):
        run(source, where, key_id=2)
    monkeypatch.setenv(KEY_FILE_VARIABLE, keys.filename)
    done = run(source, where, partition_bytes=64 << 10, is_checked=True, key_id=2)
    assert done.parts > 1
    grow(store, [group(Gtid(0, 1, 61), 4000)])
    assert run(source, where).groups == 1  # it goes on encrypted
    assert rows(ArchiveSource(where)) == rows(source)
    replayed(where, tmp_path / "back")
    assert stored(tmp_path / "back") == log_of(source)
    assert main(["import", "--directory", str(tmp_path / "imported"), where]) == 0
    assert stored(tmp_path / "imported") == log_of(source)
    assert main(["find", where, "--gtid", "0-1-60"]) == 0
    files = (
        [data for data, _ in objects.objects.values()]
        if target == "objects"
        else [path.read_bytes() for path in Path(where).iterdir()]
    )
    assert sum(data.startswith(b"\x89BLARCH\x01") for data in files) == done.parts + 1
    assert not any(b"PAR1" in data for data in files)
    monkeypatch.delenv(KEY_FILE_VARIABLE)
    config = tmp_path / "server.toml"
    config.write_text(f'file_key_management_filename = "{keys.filename}"\n')
    again = ["import", "--directory", str(tmp_path / "again"), where]
    assert main(again) == 1
    assert KEY_FILE_VARIABLE in capsys.readouterr().err
    assert main([*again, "--config", str(config)]) == 0
    assert stored(tmp_path / "again") == log_of(source)
    assert main(["find", where, "--gtid", "0-1-60", "--config", str(config)]) == 0
    assert main(["compare", where, str(store), "--config", str(config)]) == 0


def test_what_a_server_is_told(keys: ArchiveKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="names no key file"):
        Config(Path("x"), binlog_archive_url="/a", binlog_archive_encryption_key_id=2)
    config = Config(Path("x"), file_key_management_filename="f", file_key_management_filekey="p")
    assert config.archive_keys() == ArchiveKeys("f", "p")
    monkeypatch.setenv(KEY_FILE_VARIABLE, keys.filename)
    monkeypatch.setenv(PASSWORD_VARIABLE, "FILE:/p")
    assert Config(Path("x")).archive_keys() == ArchiveKeys(keys.filename, "FILE:/p")
    assert "FILE:" not in repr(Config(Path("x")).archive_keys())
    config = Config(
        Path("x"),
        binlog_archive_url="/a",
        binlog_archive_encryption_key_id=2,
        file_key_management_filename="f",
    )
    assert config.archive_keys("/a").is_required
    assert not config.archive_keys("/b").is_required, "the key is not of that archive"
    assert not Config(Path("x"), binlog_archive_url="/a").archive_keys("/a").is_required
