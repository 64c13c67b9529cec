"""Small parts become one: the same rows, fewer parts, nothing lost by a kill, to another writer, or for a reader."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.encryption import KEY_FILE_VARIABLE
from binlog_storage.archive.errors import ArchiveDamaged, ArchiveInUse, ArchiveUnreachable
from binlog_storage.archive.manifest import MANIFEST_NAME, ArchiveManifest, ArchivePart
from binlog_storage.archive.merging import Merger
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.places import DiskPlace, Where
from binlog_storage.archive.publisher import (
    GRACE_S,
    ArchivePublisher,
    FolderShelf,
    ObjectShelf,
    StagedPart,
    open_shelf,
)
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import DiskError
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.pipeline.archives import log_of, rows
from tests.storage.archive.memory_objects import Killed, MemoryObjects
from tests.storage.archive.test_publisher import SOURCE, part, staged
from tests.storage.groups import append_all, group, marker
from tests.storage.sizes import small

URL = MemoryObjects.where
PART = 400_000
FAN = 4


def store() -> BinlogEngine:
    return IbbEngine(MemoryDisk(), small(64))


def fill(
    engine: BinlogEngine, where: Where, rng: random.Random, parts: int, large: int = 100
) -> None:
    """Archive small parts, without merging them: groups of some domains, start markers, now and then a large group."""
    archiver = StoreArchiver(engine, where, part_bytes=PART)
    archiver._merger = Merger(0)  # type: ignore[misc]  # none is small
    seq = dict.fromkeys((0, 1, 7), 0)
    try:
        for number in range(parts):
            count = rng.randrange(3)
            for _ in range(count):
                domain = rng.choice(list(seq))
                seq[domain] += 1
                size = large if number == parts // 2 else rng.randrange(100, 4000)
                append_all(engine, [group(Gtid(domain, 1, seq[domain]), size)])
            if not count or not rng.randrange(3):
                append_all(engine, [marker(number)])
            engine.sync()
            archiver.step()
    finally:
        archiver.close()


def merge(where: Where, fan: int = FAN, now: float = 0.0, steps: int = 1000) -> int:
    """Merge until there is nothing left to do. Returns how often something was merged."""
    publisher = ArchivePublisher(open_shelf(where), clock=lambda: now)
    try:
        done = 0
        while done < steps and Merger(PART, fan).step(publisher):
            done += 1
        return done
    finally:
        publisher.close()


def read_again(archive: Archive) -> None:
    for placed in archive.parts():
        PartReader(archive.place, placed.part).check()


@pytest.mark.by_turns(3)
@pytest.mark.usefixtures("form")
@pytest.mark.long
@pytest.mark.parametrize("target", ["objects", "folder", "encrypted"])
def test_the_same_rows(
    target: str,
    objects: MemoryObjects,
    rng: random.Random,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the places that they had, in the same order, markers among them; and what comes later goes on behind it."""
    where = str(tmp_path / "archive") if target == "folder" else URL
    if target == "encrypted":
        (tmp_path / "keys").write_text(f"1;{'11' * 32}\n")
        monkeypatch.setenv(KEY_FILE_VARIABLE, str(tmp_path / "keys"))
        ArchivePublisher(open_shelf(URL), key_id=1).begin(BinlogState(), SOURCE)
    engine = store()
    try:
        fill(engine, where, rng, 60, 5_000_000)
        before, log = rows(ArchiveSource(where)), log_of(ArchiveSource(where))
        was = Archive.open(where)
        assert merge(where) > 5
        now = Archive.open(where)
        assert now.manifest.count < was.manifest.count / 2
        assert (rows(ArchiveSource(where)), log_of(ArchiveSource(where))) == (before, log)
        assert (now.manifest.state, now.manifest.groups) == (
            was.manifest.state,
            was.manifest.groups,
        )
        assert now.manifest.payload_bytes == was.manifest.payload_bytes
        assert now.manifest.known_markers == was.manifest.known_markers
        assert {one.part.key_id for one in now.parts()} == {int(target == "encrypted")}
        read_again(now)
        read_again(was)  # who has the manifest of before
        append_all(engine, [group(Gtid(0, 1, 1000), 100)])
        engine.sync()
        later = StoreArchiver(engine, where, part_bytes=PART)
        assert later.step() == 1
        later.close()
        assert log_of(ArchiveSource(where))[:-1] == log
    finally:
        engine.close()


@pytest.mark.usefixtures("form")
def test_a_server_merges(objects: MemoryObjects) -> None:
    """Each step adds a part; there are never more than so many of each size."""
    engine = store()
    archiver = StoreArchiver(engine, URL, part_bytes=PART)
    archiver._merger = Merger(PART, FAN)  # type: ignore[misc]
    try:
        for number in range(1, 40):
            append_all(engine, [group(Gtid(0, 1, number), 100)])
            engine.sync()
            assert archiver.step() == 1
            assert Archive.open(URL).manifest.count <= 2 * FAN
    finally:
        archiver.close()
        engine.close()
    assert [placed.part.last for placed in Archive.open(URL).parts()][-1] == "0-1-39"
    assert len(log_of(ArchiveSource(URL))) == 39
    assert Merger(PART)._fan >= 16, "a part is not written again for a handful"


@pytest.mark.by_turns(4)
@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", [Killed, ArchiveUnreachable])
def test_a_stop_at_any_step(
    how: type[BaseException], when: str, objects: MemoryObjects, rng: random.Random
) -> None:
    engine = store()
    try:
        fill(engine, URL, rng, 12)
    finally:
        engine.close()
    begin, log = dict(objects.objects), log_of(ArchiveSource(URL))
    objects.calls = 0
    merge(URL, 3)
    steps = objects.calls
    assert steps >= 4
    whole = Archive.open(URL).manifest
    for step in range(1, steps + 1):
        objects.objects, objects.calls = dict(begin), 0

        def fault(number: int, at: str, step: int = step) -> None:
            if (number, at) == (step, when):
                raise how("injected")

        objects.fault = fault
        with contextlib.suppress(how):
            merge(URL, 3)
        objects.fault = lambda number, at: None
        assert log_of(ArchiveSource(URL)) == log
        merge(URL, 3)
        assert Archive.open(URL).manifest == whole
        assert log_of(ArchiveSource(URL)) == log
        merge(URL, 3)  # whoever opens it removes what was left
        left = {name for name in objects.objects if name.startswith("part-")}
        retired = {name for one in whole.retired for name in one.names}
        assert left == retired | {one.name for one in whole.parts}, f"left by step {step}"


@pytest.mark.usefixtures("form")
def test_an_archive_that_begins_with_a_start_marker(objects: MemoryObjects) -> None:
    """As that of a server which had nothing yet when it archived: a part without a group comes first."""
    engine = store()
    archiver = StoreArchiver(engine, URL, part_bytes=PART)
    try:
        append_all(engine, [marker(1)])
        engine.sync()
        archiver.step()
        assert not log_of(ArchiveSource(URL))[1:]
        append_all(engine, [group(Gtid(0, 1, 1), 100)])
        engine.sync()
        archiver.step()
        assert Archive.open(URL).manifest.count == 2
        assert len(rows(ArchiveSource(URL))) == 1
    finally:
        archiver.close()
        engine.close()


def add(disk: Disk, publisher: ArchivePublisher, numbers: Sequence[int]) -> None:
    for number in numbers:
        publisher.publish([staged(disk, number)])


def merged(disk: Disk, publisher: ArchivePublisher, begin: int, end: int) -> None:
    """Parts `begin` to `end` of those that are in no list, in one."""
    assert publisher.manifest is not None
    run = publisher.manifest.parts[begin:end]
    name = ".staged-merged"
    file = disk.open(name, create=True)
    file.pwrite(b"merged", 0)
    file.fdatasync()
    file.close()
    made = replace(
        run[-1], first=run[0].first, groups=len(run), payload_bytes=100 * len(run), name=""
    )
    publisher.replace(run, StagedPart(name, made))


def of_folder(disk: Disk, now: float = 0.0) -> ArchivePublisher:
    made = ArchivePublisher(FolderShelf(disk, "here"), chunk_parts=4, clock=lambda: now)
    if made.manifest is None:
        made.begin(BinlogState(), SOURCE)
    return made


def told(disk: Disk) -> list[tuple[str, str]]:
    """First and last group of each part; each is there."""
    archive = Archive(DiskPlace(disk, "here"), _manifest(disk))
    found = list(archive.parts())
    assert {one.part.name for one in found} <= set(disk.names())
    return [(one.part.first, one.part.last) for one in found]


def _manifest(disk: Disk) -> ArchiveManifest:
    file = disk.open(MANIFEST_NAME)
    try:
        return ArchiveManifest.parse(file.pread(file.size(), 0), "here")
    finally:
        file.close()


def work(disk: Disk) -> None:
    """With lists that get full, among them of parts that were merged."""
    publisher = of_folder(disk)
    try:
        add(disk, publisher, [1, 2, 3])
        merged(disk, publisher, 0, 2)
        add(disk, publisher, [4, 5, 6])
        merged(disk, publisher, 0, 1)
        add(disk, publisher, [7, 8, 9])
    finally:
        publisher.close()


def test_a_crash_at_any_step_in_a_folder() -> None:
    whole = MemoryDisk()
    work(whole)
    expected = told(whole)
    assert expected[:2] == [("0-1-1", "0-1-2"), ("0-1-3", "0-1-3")]
    for step in range(whole.operations):
        disk = MemoryDisk()
        disk.fail_at = step + 1
        with pytest.raises(DiskError):
            work(disk)
        disk.crash(random.Random(step))
        if MANIFEST_NAME not in disk.names():
            continue
        found = told(disk)
        groups = [last for _, last in found]
        assert groups == sorted(groups), "nothing twice, in its order"
        assert [first for first, _ in found[:1]] in ([], ["0-1-1"])
        publisher = of_folder(disk)
        publisher.close()
        kept = {one.part.name for one in Archive(DiskPlace(disk, "here"), _manifest(disk)).parts()}
        retired = {name for one in _manifest(disk).retired for name in one.names}
        parts = {name for name in disk.names() if name.startswith(("part-", ".staged"))}
        assert parts <= kept | retired
        assert kept <= parts


def test_lists_of_merged_parts() -> None:
    """Numbers are given once; whoever opens it removes no part of a list, whatever its number."""
    disk = MemoryDisk()
    work(disk)
    manifest = _manifest(disk)
    assert (manifest.count, manifest.given) == (8, 11)
    assert [(chunk.parts, chunk.highest) for chunk in manifest.chunks] == [(4, 6)]
    again = of_folder(disk)
    add(disk, again, range(10, 20))
    again.close()
    of_folder(disk).close()
    assert [last for _, last in told(disk)] == [f"0-1-{n}" for n in range(2, 20)]
    names = [one.part.name for one in Archive(DiskPlace(disk, "here"), _manifest(disk)).parts()]
    assert len(set(names)) == len(names)


def test_the_old_parts_stay_for_a_while() -> None:
    disk = MemoryDisk()
    publisher = of_folder(disk, now=1000.0)
    add(disk, publisher, [1, 2, 3])
    old = {one.name for one in _manifest(disk).parts[:2]}
    merged(disk, publisher, 0, 2)
    publisher.close()
    for now, is_there in ((1000.0 + GRACE_S - 1, True), (1000.0 + GRACE_S, False)):
        later = of_folder(disk, now)
        assert old <= set(disk.names())
        add(disk, later, [4] if is_there else [5])
        later.close()
        assert bool(old & set(disk.names())) is is_there
        assert bool(_manifest(disk).retired) is is_there
    assert [last for _, last in told(disk)] == ["0-1-2", "0-1-3", "0-1-4", "0-1-5"]


def test_who_may_not_delete_archives_all_the_same(
    objects: MemoryObjects, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, once."""
    now = 1000.0
    publisher = ArchivePublisher(ObjectShelf(objects), clock=lambda: now)
    publisher.begin(BinlogState(), SOURCE)

    def put(number: int) -> StagedPart:
        name = f".staged-{number}"
        (publisher.staging / name).write_bytes(b"%d" % number)
        return StagedPart(name, part(number))

    publisher.publish([put(1)])
    publisher.publish([put(2)])
    assert publisher.manifest is not None
    publisher.replace(publisher.manifest.parts, put(3))
    now += GRACE_S
    count = objects.calls

    def fault(number: int, when: str) -> None:
        if number == count + 2 and when == "before":  # behind the upload
            raise ArchiveUnreachable("403 (injected)")

    objects.fault = fault
    for number in (4, 5):
        count = objects.calls
        publisher.publish([put(number)])
        assert len(publisher.manifest.retired) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "403 (injected)" in caplog.text
    objects.fault = lambda number, when: None
    publisher.publish([put(6)])
    assert not publisher.manifest.retired
    publisher.close()


def test_of_two_writers_one_loses(objects: MemoryObjects, rng: random.Random) -> None:
    """Both merge the same, and the first of both also adds: nothing of either is lost, or removed under a reader."""
    engine = store()
    try:
        fill(engine, URL, rng, 12)
        log = log_of(ArchiveSource(URL))
        # At one moment they would write the same bytes, and both be right.
        first = ArchivePublisher(open_shelf(URL), clock=lambda: 1.0)
        second = ArchivePublisher(open_shelf(URL), clock=lambda: 2.0)
        assert Merger(PART, 3).step(first)
        with pytest.raises(ArchiveInUse):
            Merger(PART, 3).step(second)
        assert log_of(ArchiveSource(URL)) == log
        second.close()
        second = ArchivePublisher(open_shelf(URL))
        append_all(engine, [group(Gtid(9, 9, 9), 100)])
        engine.sync()
        adding = StoreArchiver(engine, URL, part_bytes=PART)
        assert adding.step() == 1
        with pytest.raises(ArchiveInUse):
            Merger(PART, 3).step(second)
        for one in (first, second, adding):
            one.close()
    finally:
        engine.close()
    merge(URL, 3)
    merge(URL, 3)
    assert log_of(ArchiveSource(URL))[:-1] == log
    read_again(Archive.open(URL))


# --- what is chosen ---


def sized(number: int, size: int, base: int = 0) -> ArchivePart:
    return replace(part(number), payload_bytes=size, file_base=base)


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([], []),
        ([1] * 3, []),
        ([1] * 4, [0, 1, 2, 3]),
        ([1] * 9, [0, 1, 2, 3]),
        ([64, 1, 1, 1, 64, 1, 1, 1], []),
        ([64, 1, 1, 64, 1, 1, 1, 1], [4, 5, 6, 7]),
        ([5, 5, 1, 1, 1, 1], [2, 3, 4, 5]),  # small ones first
        ([16, 16, 16, 15], [0, 1, 2, 3]),
        ([30, 30, 30], [0, 1]),  # they fill one
        ([33, 33, 33, 33, 33], []),
    ],
)
def test_what_is_chosen(sizes: list[int], chosen: list[int]) -> None:
    parts = [sized(number, size) for number, size in enumerate(sizes)]
    found = Merger(64, 4).choose(parts)
    assert [parts.index(one) for one in found] == chosen


def test_parts_of_different_sources_stay_apart() -> None:
    parts = [sized(number, 1, number // 3) for number in range(6)]
    assert not Merger(64, 4).choose(parts)


def test_how_often_a_byte_is_written_again(rng: random.Random) -> None:
    merger = Merger(64 << 20, 16)
    parts: list[ArchivePart] = []
    added = written = most = 0
    for number in range(5000):
        size = rng.choice((200, 5_000, 100_000, 3_000_000))
        parts.append(sized(number, size))
        added += size
        while run := merger.choose(parts):
            begin = parts.index(run[0])
            size = sum(one.payload_bytes for one in run)
            assert len(run) > 1
            assert size <= 64 << 20
            written += size
            parts[begin : begin + len(run)] = [sized(100_000 + begin, size)]
        most = max(most, sum(one.payload_bytes <= 32 << 20 for one in parts))
    assert most <= 3 * 16 + 100
    assert written <= 4 * added


def test_a_part_is_not_replaced_by_one_that_lacks_something(
    objects: MemoryObjects, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = store()
    try:
        fill(engine, URL, rng, 12)
    finally:
        engine.close()
    from binlog_storage.archive import merging

    real = merging._placed
    cut = iter([True])

    def lacking(found: object, base: int) -> object:
        made = real(found, base)  # type: ignore[arg-type]
        if made.payloads and not made.markers and next(cut, False):
            del made.payloads[-1]
            del made._ends[-1]
        return made

    monkeypatch.setattr(merging, "_placed", lacking)
    log = log_of(ArchiveSource(URL))
    with pytest.raises(ArchiveDamaged, match="do not have what the manifest says"):
        merge(URL, 3)
    assert log_of(ArchiveSource(URL)) == log
