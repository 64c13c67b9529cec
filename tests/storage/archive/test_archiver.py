"""A store that archives itself: all that is durable, once, in its order, behind whatever came between."""

from __future__ import annotations

import contextlib
import errno
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.errors import ArchiveInUse, ArchiveNotOfStore, ArchiveUnreachable
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import DiskFull
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.pipeline.archives import log_of, payloads
from tests.storage.archive.memory_objects import Killed, MemoryObjects
from tests.storage.groups import Group, append_all, group, marker
from tests.storage.sizes import small

pytestmark = pytest.mark.usefixtures("form")

URL = MemoryObjects.where
PART = 20_000


def ibb() -> BinlogEngine:
    return IbbEngine(MemoryDisk(), small(64, slave_connections_needed_for_purge=0))


def traditional() -> BinlogEngine:
    return ClassicEngine(MemoryDisk())


ENGINES = [ibb, traditional]


@pytest.fixture(params=ENGINES, ids=lambda make: make.__name__)
def engine(request: pytest.FixtureRequest) -> Iterator[BinlogEngine]:
    made = request.param()
    yield made
    made.close()


def add(engine: BinlogEngine, groups: list[Group]) -> list[bytes]:
    append_all(engine, groups)
    engine.sync()
    return payloads(groups)


def numbered(first: int, last: int, size: int = 3000) -> list[Group]:
    return [group(Gtid(0, 1, n), size) for n in range(first, last + 1)]


def archived(engine: BinlogEngine) -> int:
    """By one that knows nothing of those before."""
    archiver = StoreArchiver(engine, URL, part_bytes=PART)
    try:
        return archiver.step()
    finally:
        archiver.close()


def found() -> list[bytes]:
    """All that a reader finds, each part checked."""
    archive = Archive.open(URL)
    for placed in archive.parts():
        PartReader(archive.place, placed.part).check()
    return log_of(ArchiveSource(URL))


def test_what_is_durable_is_archived(engine: BinlogEngine, objects: MemoryObjects) -> None:
    """Step by step, by one and by another; what is not durable is not, and nothing twice."""
    archiver = StoreArchiver(engine, URL, part_bytes=PART)
    assert archiver.step() == 0
    truth = add(engine, [marker(1), *numbered(1, 10)])
    engine.flush()
    truth += add(engine, numbered(11, 30))
    assert archiver.step() == 30
    assert archiver.step() == 0
    assert found() == truth
    assert len(list(Archive.open(URL).parts())) > 1
    truth += add(engine, [marker(2), marker(3), *numbered(31, 33)])
    engine.append(*numbered(34, 34)[0])
    assert archiver.step() == 3
    assert archiver.step() == 0
    truth += payloads(numbered(34, 34))
    engine.sync()
    archiver.close()
    assert archived(engine) == 1
    truth += add(engine, [marker(4)])
    assert archived(engine) == 0
    assert archived(engine) == 0
    truth += add(engine, numbered(35, 36))
    assert archived(engine) == 2
    assert found() == truth


def test_a_full_disk_for_what_is_to_be_uploaded(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its folder is named, the store keeps what is not archived, and the next step goes on."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = ibb()
    truth = add(engine, numbered(1, 5))
    archiver = StoreArchiver(engine, URL, part_bytes=PART)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("binlog_storage.archive.archiver.part_writer", lambda: full)
        text = f"cannot write a part of the archive in {tmp_path}: No space left on device"
        with pytest.raises(DiskFull, match=re.escape(text)):
            archiver.step()
    assert archiver.step() == 5
    assert found() == truth
    archiver.close()


def test_a_large_group(objects: MemoryObjects) -> None:
    engine = ibb()
    engine.large_group_bytes = 64 << 10
    groups = [*numbered(1, 2), group(Gtid(0, 1, 3), 300_000), *numbered(4, 5)]
    truth = add(engine, groups[:3])
    assert archived(engine) == 3
    truth += add(engine, groups[3:])
    assert archived(engine) == 2
    assert found() == truth


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", [Killed, ArchiveUnreachable])
def test_a_stop_at_any_step(how: type[BaseException], when: str, objects: MemoryObjects) -> None:
    """Behind a kill, or an answer that was lost, the next one goes on: nothing is missing, and nothing there twice."""
    engine = ibb()
    truth = list[bytes]()
    for first in (1, 9, 17):
        truth += add(engine, numbered(first, first + 7))
        engine.flush()
    truth += add(engine, [marker(1)])
    step = 0
    while True:
        step += 1
        objects.objects.clear()
        objects.calls = 0

        def fault(number: int, at: str, step: int = step) -> None:
            if (number, at) == (step, when):
                raise how("injected")

        objects.fault = fault
        archiver = StoreArchiver(engine, URL, part_bytes=PART)
        with contextlib.suppress(how):
            archiver.step()
        if objects.calls < step:
            break
        archiver.step()
        assert found() == truth, step
        archiver.close()
    assert step > 6


def test_two_servers_on_one_archive(objects: MemoryObjects) -> None:
    """With one history: the second is told, and goes on behind the first in its next step. With another: never."""
    one, two, other = ibb(), ibb(), ibb()
    truth = add(one, numbered(1, 3))
    add(two, numbered(1, 3))
    first, second = (StoreArchiver(engine, URL, part_bytes=PART) for engine in (one, two))
    first.step()
    second.step()
    add(one, numbered(4, 5))
    add(two, numbered(4, 6))
    first.step()
    with pytest.raises(ArchiveInUse, match="no other server or job archives there"):
        second.step()
    truth += payloads(numbered(4, 5))
    assert found() == truth
    assert second.step() == 1
    with pytest.raises(ArchiveNotOfStore, match="is not in the store"):
        archived(one)
    add(other, numbered(1, 9, size=100))
    with pytest.raises(ArchiveNotOfStore, match="another one than the store's"):
        archived(other)
    assert found() == truth + payloads(numbered(6, 6))


def test_behind_a_purge(objects: MemoryObjects) -> None:
    """Of what is archived: it goes on. Of more: an error, and nothing is added behind a gap."""
    engine = ibb()
    add(engine, numbered(1, 2))
    archived(engine)
    engine.flush()
    engine.purge_to(1)
    truth = payloads(numbered(1, 2)) + add(engine, numbered(3, 4))
    assert archived(engine) == 2
    assert found() == truth
    add(engine, numbered(5, 6))
    engine.flush()
    engine.purge_to(2)
    add(engine, numbered(7, 7))
    with pytest.raises(ArchiveNotOfStore, match="and the store begins at '0-1-6'"):
        archived(engine)
    assert found() == truth


def test_a_purge_between_two_steps(objects: MemoryObjects) -> None:
    """Of the file at whose end the archiver stands."""
    engine = ibb()
    truth = add(engine, numbered(1, 2))
    archiver = StoreArchiver(engine, URL, part_bytes=PART)
    try:
        assert archiver.step() == 2
        engine.flush()
        engine.purge_to(1)
        assert archiver.step() == 0
        truth += add(engine, numbered(3, 4))
        assert archiver.step() == 2
    finally:
        archiver.close()
    assert found() == truth


def test_in_a_folder(tmp_path: Path) -> None:
    engine = ibb()
    truth = add(engine, numbered(1, 9))
    archiver = StoreArchiver(engine, tmp_path / "archive", part_bytes=PART)
    assert archiver.step() == 9
    assert log_of(ArchiveSource(str(tmp_path / "archive"))) == truth
    with pytest.raises(ArchiveInUse):
        StoreArchiver(engine, tmp_path / "archive").step()
    archiver.close()


def test_histories_by_chance(objects: MemoryObjects, rng: random.Random) -> None:
    """Appends, markers, syncs, restarts of the archiver, kills at any call."""
    engine, truth, number = ibb(), list[bytes](), 0
    archiver = StoreArchiver(engine, URL, part_bytes=PART)

    def append() -> None:
        nonlocal number
        more = numbered(number + 1, number + rng.randrange(1, 6), rng.randrange(60, 9000))
        number += len(more)
        truth.extend(add(engine, more))

    def start() -> None:
        truth.extend(add(engine, [marker(number)]))

    def step() -> None:
        nonlocal archiver
        at = objects.calls + rng.randrange(1, 12)
        when = rng.choice(["before", "after", "never"])

        def fault(call: int, moment: str) -> None:
            if (call, moment) == (at, when):
                raise rng.choice([Killed, ArchiveUnreachable])("injected")

        objects.fault = fault
        try:
            archiver.step()
        except (Killed, ArchiveUnreachable):
            if rng.random() < 0.5:
                archiver.close()
                archiver = StoreArchiver(engine, URL, part_bytes=PART)

    does: list[Callable[[], None]] = [append, append, start, step, step]
    for _ in range(60):
        rng.choice(does)()
    objects.fault = lambda call, moment: None
    archiver.step()
    archiver.close()
    assert found() == truth
