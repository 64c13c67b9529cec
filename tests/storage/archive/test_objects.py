"""Archives in object stores: what one is after a kill at any step, a lost answer, and beside another writer."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline.errors import BadOption
from binlog_pipeline.jobs.lag import position_of
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.gtid import BinlogState
from binlog_storage.archive import objects as objects_module
from binlog_storage.archive import places, publisher
from binlog_storage.archive.archive import Archive, read_manifest
from binlog_storage.archive.errors import (
    ArchiveDamaged,
    ArchiveInUse,
    ArchiveUnreachable,
    NotAnArchive,
    ObjectChanged,
    StoreLibraryMissing,
)
from binlog_storage.archive.hdfs_objects import is_of_hdfs, told_by_hdfs
from binlog_storage.archive.manifest import MANIFEST_NAME, object_name, part_name
from binlog_storage.archive.objects import Objects, ObstoreObjects
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.places import ObjectPlace, open_objects
from binlog_storage.archive.publisher import ArchivePublisher, ObjectShelf, StagedPart

from binlog_server.cli import main
from tests.pipeline.archives import grow, log_of, replayed, rows, run, stored
from tests.storage.archive.memory_objects import Killed, MemoryObjects
from tests.storage.archive.test_publisher import SOURCE, part
from tests.storage.groups import simple

URL = MemoryObjects.where


@pytest.mark.parametrize(
    ("library", "extra", "url"),
    [("obstore", "archive", URL), ("hdfs_native", "hdfs", "hdfs://namenode:8020/archive")],
)
def test_without_its_library_it_is_told_what_to_install(
    library: str, extra: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(StoreLibraryMissing, match=rf"^{url}: .*pip install '\.\[{extra}\]'"):
        open_objects(url)


def content(number: int, writer: str) -> bytes:
    return f"part {number} of {writer}".encode()


def opened(objects: Objects) -> ArchivePublisher:
    made = ArchivePublisher(ObjectShelf(objects), chunk_parts=2)
    if made.manifest is None:
        made.begin(BinlogState(), SOURCE)
    return made


def add_one(adding: ArchivePublisher, number: int, writer: str = "one") -> None:
    data = content(number, writer)
    (adding.staging / f".staged-{number}").write_bytes(data)
    made = replace(part(number), size=len(data), sha256=hashlib.sha256(data).hexdigest())
    adding.publish([StagedPart(f".staged-{number}", made)])


def add_all(objects: Objects, last: int) -> None:
    """Up to that number, from where it stands."""
    adding = opened(objects)
    try:
        assert adding.manifest is not None
        for number in range(adding.manifest.count + 1, last + 1):
            add_one(adding, number)
    finally:
        adding.close()


def grow_by_turns(url: str, last: int) -> None:
    """Parts that come one after the other, each by a publisher of its own. All of them are there in the end."""
    for number in range(1, last + 1):
        add_all(open_objects(url), number)
    archive = Archive.open(url)
    for placed in archive.parts():
        archive.place.open(placed.part.name, placed.part.size).close()
    assert archive.manifest.count == last


def sound(objects: MemoryObjects, writer: str = "one") -> int:
    """How many parts a reader finds, in their order, each whole."""
    manifest = read_manifest(ObjectPlace(objects))
    if manifest is None:
        return 0
    for placed in Archive(ObjectPlace(objects), manifest).parts():
        assert placed.part.last == f"0-1-{placed.number}"
        assert objects.objects[placed.part.name][0] == content(placed.number, writer)
    return manifest.count


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", [Killed, ArchiveUnreachable])
def test_a_stop_at_any_step(how: type[BaseException], when: str) -> None:
    """Killed, or without an answer; done or not. There is a beginning, and the next one goes on to the same end."""
    whole = MemoryObjects()
    add_all(whole, 5)
    for step in range(1, whole.calls + 1):
        objects = MemoryObjects()

        def fault(number: int, at: str, step: int = step) -> None:
            if (number, at) == (step, when):
                raise how("injected")

        objects.fault = fault
        try:
            add_all(objects, 5)
        except how:
            pass
        else:  # the manifest was read again, and was ours
            assert how is ArchiveUnreachable
            assert when == "after"
        sound(objects)
        add_all(objects, 5)
        assert sound(objects) == 5
        assert {name: data for name, (data, _) in objects.objects.items()} == {
            name: data for name, (data, _) in whole.objects.items()
        }, f"something was left by step {step}"


def test_of_two_writers_one_loses() -> None:
    """It has changed nothing, is told so, and goes on behind the other when it tries again."""
    objects = MemoryObjects()
    add_all(objects, 2)
    first, second = opened(objects), opened(objects)
    add_one(first, 3)
    with pytest.raises(ArchiveInUse, match=r"another process has added to the archive s3://bucket"):
        add_one(second, 3, "two")
    assert sound(objects) == 3
    with pytest.raises(ArchiveInUse):
        add_one(second, 3, "two")
    add_one(first, 4)
    first.close()
    second.close()
    lost = object_name(part_name(3), hashlib.sha256(content(3, "two")).hexdigest())
    assert lost in objects.objects
    add_all(objects, 6)
    assert sound(objects) == 6
    assert lost not in objects.objects, "nobody can publish it any more"


def test_what_another_is_about_to_publish_stays() -> None:
    objects = MemoryObjects()
    add_all(objects, 1)
    first = opened(objects)
    uploaded = object_name(part_name(2), hashlib.sha256(content(2, "one")).hexdigest())
    objects.put(uploaded, content(2, "one"), None)
    opened(objects).close()
    assert uploaded in objects.objects
    add_one(first, 2)
    first.close()
    assert sound(objects) == 2


def test_two_that_begin_an_archive() -> None:
    objects = MemoryObjects()
    first = ArchivePublisher(ObjectShelf(objects))
    second = ArchivePublisher(ObjectShelf(objects))
    first.begin(BinlogState(), SOURCE)
    with pytest.raises(ArchiveInUse):
        second.begin(BinlogState.parse("0-1-7"), SOURCE)
    first.close()
    second.close()


def test_the_staging_folder_goes() -> None:
    objects = MemoryObjects()
    adding = opened(objects)
    (adding.staging / ".staged-run-1").write_bytes(b"half")
    adding.discard_staged(".staged-run")
    assert not list(adding.staging.iterdir())
    adding.close()
    assert not adding.staging.exists()


# --- readers ---


@pytest.fixture
def store(tmp_path: Path) -> Path:
    grow(tmp_path / "store", simple(60, size=4000))
    return tmp_path / "store"


@pytest.mark.long
def test_there_and_back(objects: MemoryObjects, store: Path, tmp_path: Path) -> None:
    """All readers go through one door, and find what was in the store."""
    source = DirectorySource(str(store))
    done = run(source, URL, partition_bytes=64 << 10)
    assert done.parts > 2
    assert run(source, URL).parts == 0
    assert rows(ArchiveSource(URL)) == rows(source)
    assert position_of(URL) == source.latest()
    replayed(URL, tmp_path / "back")
    assert stored(tmp_path / "back") == log_of(source)
    assert main(["import", "--directory", str(tmp_path / "imported"), URL]) == 0
    assert stored(tmp_path / "imported") == log_of(source)
    again = tmp_path / "again"
    run(ArchiveSource(URL), again)
    assert rows(ArchiveSource(str(again))) == rows(source)
    for placed in Archive.open(URL).parts():
        assert placed.part.sha256[:16] in placed.part.name


def test_spark_does_not_write_there(objects: MemoryObjects, store: Path) -> None:
    with pytest.raises(BadOption, match="by processes of this machine"):
        run(DirectorySource(str(store)), URL, engine=Engine("spark", 1))


def harmed(objects: MemoryObjects, name: str, data: bytes | None) -> None:
    if data is None:
        del objects.objects[name]
    else:
        objects.objects[name] = data, '"x"'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: None, "it is missing"),
        (lambda data: data[:-1], "bytes, not"),
        (lambda data: data + b"?" * 99, "bytes, not"),
        (lambda data: data[:-1] + b"?", "sha256"),
    ],
    ids=["missing", "short", "long", "changed"],
)
def test_damage_is_named(change: Any, said: str, objects: MemoryObjects, store: Path) -> None:
    run(DirectorySource(str(store)), URL)
    placed = next(Archive.open(URL).parts())
    name = placed.part.name
    harmed(objects, name, change(objects.objects[name][0]))
    with pytest.raises(ArchiveDamaged, match=f"{URL}/{name}.*{said}"):
        PartReader(ObjectPlace(objects), placed.part)


def test_a_size_that_a_manifest_makes_up_takes_no_room(objects: MemoryObjects, store: Path) -> None:
    """No disk has so much: room is taken for what the object has."""
    run(DirectorySource(str(store)), URL)
    placed = next(Archive.open(URL).parts())
    with pytest.raises(ArchiveDamaged, match="bytes, not"):
        PartReader(ObjectPlace(objects), replace(placed.part, size=1 << 60))


def test_what_does_not_answer(objects: MemoryObjects, store: Path) -> None:
    """An error of its own, never an archive that is empty, short or another one."""
    run(DirectorySource(str(store)), URL)
    placed = next(Archive.open(URL).parts())
    objects.cut = 100
    with pytest.raises(ArchiveUnreachable, match="closed"):
        Archive.open(URL)
    with pytest.raises(ArchiveUnreachable, match="closed"):
        PartReader(ObjectPlace(objects), placed.part)
    objects.cut, objects.down = None, True
    with pytest.raises(ArchiveUnreachable, match="503"):
        Archive.open(URL)
    with pytest.raises(ArchiveUnreachable, match="503"):
        run(DirectorySource(str(store)), URL)


def test_a_defect_of_ours_is_none_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the library says, and the network, is an archive that cannot be reached."""
    objects = open_objects("s3://bucket/x")
    library = objects._obstore  # type: ignore[attr-defined]

    def fail(error: Exception) -> None:
        def call(*_: object, **__: object) -> None:
            raise error

        for name in ("get", "put", "list", "delete"):
            monkeypatch.setattr(library, name, call)

    calls: list[Callable[[], object]] = [
        lambda: objects.get("a"), lambda: objects.put("a", b"x", None), lambda: objects.names("a", ""),
        lambda: objects.delete("a"),
    ]  # fmt: skip
    for call in calls:
        fail(TypeError("ours"))
        with pytest.raises(TypeError, match="ours"):
            call()
        for error in (library.exceptions.GenericError("503"), ConnectionResetError("reset")):
            fail(error)
            with pytest.raises(ArchiveUnreachable, match=r"503|reset"):
                call()


@pytest.mark.parametrize("url", ["s3://b:99999/x", "s3://[::1/x", "az:///x", "s3:///x"])
def test_what_is_no_url_of_a_store(url: str) -> None:
    with pytest.raises(ArchiveUnreachable, match=re.escape(url)):
        open_objects(url)


def test_an_error_is_the_same_text_each_time() -> None:
    """Else each of them is logged: an error is logged once, until it changes."""
    told = set()
    for took in ("618.038795ms", "1.2s", "97.3µs"):
        with (
            pytest.raises(ArchiveUnreachable) as error,
            objects_module._said_of("s3://b/a", (OSError,)),
        ):
            raise OSError(f"GET http://h/a in {took}, after 4 retries, retry_timeout: 30s  - 500")
        told.add(str(error.value))
    assert told == {"s3://b/a: GET http://h/a, after 4 retries, retry_timeout: 30s  - 500"}


def test_no_archive_there(objects: MemoryObjects) -> None:
    with pytest.raises(NotAnArchive, match=rf"{URL} is no archive"):
        Archive.open(URL)


# --- the library ---


@pytest.fixture(params=["ours", "obstore"])
def some(request: pytest.FixtureRequest) -> Objects:
    if request.param == "ours":
        return MemoryObjects()
    if not os.environ.get("CI"):  # the gate has it
        pytest.importorskip("obstore")
    import obstore
    from obstore.store import MemoryStore

    return ObstoreObjects(obstore, MemoryStore(), "memory://x")


def test_what_objects_promise(some: Objects, tmp_path: Path) -> None:
    assert some.get("a") is None
    tag = some.put("a", b"1", None)
    with pytest.raises(ObjectChanged):
        some.put("a", b"2", None)
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with (tmp_path / "file").open("rb") as file:
        other = some.put("a", file, tag)
    with pytest.raises(ObjectChanged):
        some.put("a", b"3", tag)
    found = some.get("a")
    assert found is not None
    assert (found.size, found.tag) == (100_000, other)
    assert b"".join(found.pieces) == b"x" * 100_000
    some.put("part-2", b"", None)
    some.put("part-1", b"", None)
    assert some.names("part-", "part-0") == ["part-1", "part-2"]
    assert some.names("part-", "part-1") == ["part-2"]
    some.delete("part-1")
    some.delete("part-1")
    assert some.get("part-1") is None
    with pytest.raises(ObjectChanged):
        some.put("part-1", b"", tag)


def test_an_archive_by_the_library(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("obstore")
    import obstore
    from obstore.store import MemoryStore

    made = ObstoreObjects(obstore, MemoryStore(), URL)
    for module in (places, publisher):
        monkeypatch.setattr(module, "open_objects", lambda url: made)
    source = DirectorySource(str(store))
    run(source, URL, partition_bytes=64 << 10)
    assert rows(ArchiveSource(URL)) == rows(source)
    assert made.get(MANIFEST_NAME) is not None


@pytest.mark.parametrize(
    ("said", "is_ours", "told"),
    [
        (
            'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot create file/a/_new/'
            '0123456789abcdef0123456789abcdef. Name node is in safe mode.\\n\\tat org.apache.Some(Some.java:1)")',
            True,
            "SafeModeException: Cannot create file/a/_new/.... Name node is in safe mode.",
        ),
        (
            'DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { '
            'ip_addr: \\"10.0.0.1\\", host_name: \\"a\\", xfer_port: 9866 }, dfs_used: Some(7) }]")',
            True,
            'DataTransferError("All DataNodes failed: 10.0.0.1:9866',
        ),
        ("dictionary changed size during iteration", False, "dictionary changed size during iteration"),
    ],
)  # fmt: skip
def test_what_hdfs_says(said: str, is_ours: bool, told: str) -> None:
    """Without what differs each time; and errors of the library are told from others, which are defects of ours."""
    error = RuntimeError(said)
    assert told_by_hdfs(error) == told
    assert is_of_hdfs(error) is is_ours
