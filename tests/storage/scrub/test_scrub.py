"""The looks at files and parts: planted damage is found, told once, and nothing else is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from binlog_protocol.events.header import HEADER_SIZE, EventHeader
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.errors import ArchiveUnreachable
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.errors import DiskError
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, seal
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.pending_redo import published
from binlog_storage.scrub.scrub import (
    Damage,
    Look,
    LookedAt,
    Meter,
    MeteredDisk,
    Round,
    archive_look,
    classic_look,
    ibb_look,
    ibb_mark,
)
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.protocol.statement_groups import transaction_group
from tests.storage.archive.conftest import objects
from tests.storage.archive.memory_objects import MemoryObjects
from tests.storage.groups import Group, append_all, append_step_by_step, settle
from tests.storage.sizes import small

__all__ = ["objects"]

STEP = PAGE_SIZE


def groups(first: int, last: int, size: int = 1800) -> list[Group]:
    return [
        Group(
            transaction_group(
                Gtid(0, 1, n),
                [f"INSERT INTO t VALUES ('{'x' * size}')"],
                xid=n,
                timestamp=1_780_000_000,
            ),
            Gtid(0, 1, n),
        )
        for n in range(first, last + 1)
    ]


class Store:
    """Files of 8 pages, of which some are closed; and a round over them."""

    def __init__(self, count: int = 200, size: int = 1800) -> None:
        self.disk = MemoryDisk()
        self.engine = IbbEngine(self.disk, small(8, slave_connections_needed_for_purge=0))
        append_step_by_step(self.engine, groups(1, count, size))
        settle(self.engine)
        self.meter = Meter()
        self.told: list[Damage] = []

    def change(self, file_no: int, offset: int, data: bytes) -> None:
        change(self.disk, file_name(file_no), offset, data)

    def round(self) -> Round:
        told = published(self.disk)
        assert told is not None
        age = self.engine.age
        look = partial(ibb_look, MeteredDisk(self.disk, self.meter), told.end)
        return Round([look], self.meter, lambda: self.engine.age != age)

    def found(self, between: Callable[[], object] = lambda: None) -> list[Damage]:
        round_ = self.round()
        while not round_.step(STEP, self.told.append, lambda: False):
            between()
        assert self.told == list(round_.damages)
        return self.told


def change(disk: MemoryDisk, name: str, offset: int, data: bytes) -> None:
    file = disk.open(name)
    file.pwrite(data, offset)
    file.fdatasync()
    file.close()


def bytes_of(disk: MemoryDisk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.engine.close()


def test_a_sound_store_is_read_twice_and_nothing_is_found(store: Store) -> None:
    assert store.engine.durable_end.file_no >= 3
    assert store.found() == []
    size = sum(file.size for file in store.engine.files() if file.number < 3)
    assert store.meter.bytes_read >= 2 * size


def test_a_page_that_has_changed_is_told_once_with_its_place(store: Store) -> None:
    store.change(1, 3 * PAGE_SIZE + 700, b"rot")
    (damage,) = store.found()
    assert (damage.kind, damage.name, damage.offset) == ("page", file_name(1), 3 * PAGE_SIZE)
    assert str(damage).startswith(f"{file_name(1)} page 3 offset {3 * PAGE_SIZE}: Page corruption")


def test_damages_in_several_files_are_all_told(store: Store) -> None:
    for file_no, page_no in ((0, 0), (0, 5), (2, 1)):
        store.change(file_no, page_no * PAGE_SIZE + 100, b"rot")
    found = [(d.name, d.offset // PAGE_SIZE) for d in store.found()]
    assert found == [(file_name(0), 0), (file_name(0), 5), (file_name(2), 1)]


def test_a_page_with_a_right_checksum_and_wrong_records(store: Store) -> None:
    page = bytearray(bytes_of(store.disk, file_name(1))[4 * PAGE_SIZE : 5 * PAGE_SIZE])
    at = page.index(b"INSERT INTO t")
    page[at - 200 : at] = b"\xee" * 200
    store.change(1, 4 * PAGE_SIZE, seal(page))
    found = store.found()
    assert found
    assert {d.kind for d in found} == {"record"}
    assert {d.name for d in found} == {file_name(1)}


def test_an_empty_page_in_front_of_data(store: Store) -> None:
    store.change(1, 3 * PAGE_SIZE, bytes(PAGE_SIZE))
    damage = store.found()[0]
    assert (damage.kind, damage.offset) == ("page", 3 * PAGE_SIZE)
    assert "later pages hold data" in damage.reason


def test_a_missing_file(store: Store) -> None:
    store.disk.unlink(file_name(1))
    found = store.found()
    assert (
        Damage("file", file_name(1), 0, f"the file is missing, but there is {file_name(2)}")
        in found
    )


def test_a_purge_in_the_middle_is_no_damage(store: Store) -> None:
    steps = iter(range(1000))

    def purge() -> None:
        if next(steps) in (2, 12):
            store.engine.purge_to(store.engine.files()[1].number)

    assert store.found(purge) == []
    assert store.engine.files()[0].number == 2


def test_a_reset_in_the_middle_ends_the_round(store: Store) -> None:
    round_ = store.round()
    assert not round_.step(STEP, store.told.append, lambda: False)
    store.engine.reset()
    assert round_.step(STEP, store.told.append, lambda: False)
    assert round_.given_up
    assert store.told == []


def test_groups_that_are_written_meanwhile_are_no_damage(store: Store) -> None:
    numbers = iter(range(201, 1000))

    def write() -> None:
        number = next(numbers)
        append_step_by_step(store.engine, groups(number, number))
        settle(store.engine)

    assert store.found(write) == []


def test_halves_that_a_purge_has_left_are_no_damage() -> None:
    store = Store(8, 200_000)  # out of band, over several files
    files = store.engine.files()
    store.engine.purge_to(files[len(files) // 2].number)
    assert store.found() == []
    store.engine.close()


def test_a_step_reads_what_it_may_and_stops_when_told(store: Store) -> None:
    round_ = store.round()
    round_.step(STEP, store.told.append, lambda: False)
    assert 0 < store.meter.bytes_read <= STEP + 20 * PAGE_SIZE
    before = store.meter.bytes_read
    assert not round_.step(1 << 30, store.told.append, lambda: True)
    assert store.meter.bytes_read == before
    round_.close()


def test_a_disk_that_does_not_give_a_file_is_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = store.disk.open

    def fails(name: str, **more: bool) -> object:
        if name == file_name(1):
            raise DiskError(f"read {name}: Input/output error")
        return opened(name, **more)

    monkeypatch.setattr(store.disk, "open", fails)
    (damage,) = store.found()
    assert damage == Damage("read", file_name(1), 0, f"read {file_name(1)}: Input/output error")


# --- traditional files ---


def classic() -> tuple[MemoryDisk, ClassicEngine]:
    disk = MemoryDisk()
    engine = ClassicEngine(disk)
    append_all(engine, groups(1, 20))
    engine.flush()
    append_all(engine, groups(21, 40))
    engine.sync()
    return disk, engine


def _given(look: Look) -> Look:
    return look


def looked(*looks: Look) -> list[Damage]:
    told: list[Damage] = []
    round_ = Round([partial(_given, look) for look in looks], Meter(), lambda: False)
    while not round_.step(1, told.append, lambda: False):
        pass
    return told


def test_traditional_files() -> None:
    disk, engine = classic()
    first, last = engine.files()[0], engine.files()[-1]
    name, newest = str(engine.file_name(first.number)), str(engine.file_name(last.number))
    end = engine.durable_end.offset
    assert (
        looked(
            classic_look(disk, name, lambda: True),
            classic_look(disk, newest, lambda: True, size=end),
        )
        == []
    )
    at = bytes_of(disk, name).index(b"INSERT INTO t") + 20
    change(disk, name, at, b"rot")
    (damage,) = looked(classic_look(disk, name, lambda: True))
    assert (damage.kind, damage.name) == ("event", name)
    assert 0 < damage.offset < at
    assert "CRC-32" in damage.reason
    assert looked(classic_look(disk, name, lambda: False)) == [], "purged meanwhile"
    assert looked(classic_look(disk, "nothing.000009", lambda: False)) == []
    (gone,) = looked(classic_look(disk, "nothing.000009", lambda: True))
    assert gone.kind == "file"
    engine.close()


def traditional_look(
    disk: MemoryDisk, engine: ClassicEngine, number: int = 1, *, gap: bool = False
) -> list[Damage]:
    """Of a file that the next one follows."""
    names = [str(engine.file_name(n)) for n in (number, number + 1)]
    return looked(classic_look(disk, names[0], lambda: True, following=names[1], gap=gap))


def cut(disk: MemoryDisk, name: str, size: int) -> None:
    file = disk.open(name)
    file.truncate(size)
    file.fdatasync()
    file.close()


def begins(data: bytes) -> list[int]:
    """Where the events of a traditional file begin."""
    found, at = [], 4
    while at < len(data):
        found.append(at)
        at += EventHeader.parse(data[at : at + HEADER_SIZE]).length
    return found


@pytest.mark.parametrize("back", [1, 2, 3, 4])
def test_a_traditional_file_that_was_cut_short_at_or_inside_its_last_events(back: int) -> None:
    """From its end: ROTATE, the XID of the last group, its INSERT, and its GTID event."""
    disk, engine = classic()
    name = str(engine.file_name(1))
    size = len(bytes_of(disk, name))
    at = begins(bytes_of(disk, name))[-back]
    for end in (at + 25, at):
        cut(disk, name, end)
        found = traditional_look(disk, engine)
        if back == 1:
            assert found == [], "no group is missing: a MariaDB that was killed leaves such a file"
        else:
            (damage,) = found
            assert (damage.kind, damage.name) == ("event", name)
            assert "behind 0-1-19, but" in damage.reason
            assert damage.reason.endswith("begins behind 0-1-20; what follows it was not looked at")
            assert damage.offset <= end < size
    engine.close()


@pytest.mark.parametrize("size", [0, 4, 300])
def test_a_traditional_file_of_which_only_the_head_is_left_or_less(size: int) -> None:
    disk, engine = classic()
    cut(disk, str(engine.file_name(1)), size)
    (damage,) = traditional_look(disk, engine)
    assert damage.kind == "event"
    engine.close()


def test_a_traditional_file_that_was_cut_inside_a_large_group() -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk)
    append_all(engine, groups(1, 2, 300_000))
    engine.flush()
    engine.sync()
    assert traditional_look(disk, engine) == []
    name = str(engine.file_name(1))
    cut(disk, name, len(bytes_of(disk, name)) - 150_000)
    (damage,) = traditional_look(disk, engine)
    assert "behind 0-1-1, but" in damage.reason
    engine.close()


def test_the_last_traditional_file_is_shorter_than_its_durable_end() -> None:
    disk, engine = classic()
    name, end = str(engine.file_name(2)), engine.durable_end.offset
    for size in (end, end - 1, begins(bytes_of(disk, name))[-1], begins(bytes_of(disk, name))[-3]):
        cut(disk, name, size)
        found = looked(classic_look(disk, name, lambda: True, size=end))
        assert [d.kind for d in found] == (["event"] if size < end else [])
    assert f"in front of its durable end at offset {end}" in found[0].reason
    engine.close()


def test_a_traditional_file_that_is_missing_between_two() -> None:
    disk, engine = classic()
    append_all(engine, groups(41, 50))
    engine.flush()
    engine.sync()
    first, third = (str(engine.file_name(number)) for number in (1, 3))
    look = partial(classic_look, disk, first, lambda: True, following=third)
    assert looked(look()) == [], "the first one was closed"
    (damage,) = looked(look(gap=True))
    assert f"the file ends behind 0-1-20, but {third} begins behind 0-1-50" in damage.reason
    engine.close()


def test_an_ibb_file_that_was_cut_short_between_two_groups() -> None:
    store = Store(150, 2040)  # the end of a group is that of a page
    name, pages = file_name(1), LogPages(store.disk, store.engine.durable_end)
    ends = [record.end for record in RecordReader(pages, Position(1, PAGE_SIZE), skip_partial=True)]
    pages.close()
    at = min(end.offset for end in ends if end.file_no == 1 and not end.offset % PAGE_SIZE)
    cut(store.disk, name, at)
    (damage,) = store.found()
    assert (damage.kind, damage.name, damage.offset) == ("record", name, at)
    assert "has lost groups up to 0-1-" in damage.reason
    store.engine.close()


def test_a_round_begins_behind_what_another_has_passed(store: Store) -> None:
    round_ = store.round()
    while round_.passed is None or round_.passed.name != file_name(1):
        assert not round_.step(STEP, store.told.append, lambda: False)
    round_.close()
    passed, before = round_.passed, store.meter.bytes_read
    told = published(store.disk)
    assert told is not None
    assert ibb_mark(store.disk, told.end, file_name(1)) == passed
    assert ibb_mark(store.disk, told.end, "no.such") is None
    store.change(0, 3 * PAGE_SIZE + 700, b"rot")
    store.change(2, 3 * PAGE_SIZE + 700, b"rot")
    look = partial(ibb_look, MeteredDisk(store.disk, store.meter), told.end, passed.name)
    again = Round([look], store.meter, lambda: False)
    while not again.step(STEP, store.told.append, lambda: False):
        pass
    assert [damage.name for damage in store.told] == [file_name(2)]
    assert store.meter.bytes_read > before


# --- archives ---


@pytest.fixture
def archive(objects: MemoryObjects) -> MemoryObjects:
    engine = IbbEngine(MemoryDisk(), small(64, slave_connections_needed_for_purge=0))
    archiver = StoreArchiver(engine, MemoryObjects.where, part_bytes=20_000)
    for first in (1, 4, 7):
        append_all(engine, groups(first, first + 2, 25_000))
        engine.sync()
        archiver.step()
    archiver.close()
    engine.close()
    gc.collect()
    return objects


def parts(objects: MemoryObjects) -> list[str]:
    return [placed.part.name for placed in Archive.open(MemoryObjects.where).parts()]


def archive_round() -> tuple[Round, list[Damage]]:
    meter = Meter()
    look = partial(archive_look, lambda: Archive.open(MemoryObjects.where), meter, lambda: False)
    return Round([look], meter, lambda: False), []


def all_of(round_: Round, told: list[Damage]) -> list[Damage]:
    while not round_.step(1000, told.append, lambda: False):
        pass
    return told


def test_a_sound_archive(archive: MemoryObjects) -> None:
    assert len(parts(archive)) > 1
    assert all_of(*archive_round()) == []


def test_a_part_that_has_changed_and_one_that_is_missing(archive: MemoryObjects) -> None:
    changed, missing, *_ = parts(archive)
    data, tag = archive.objects[changed]
    archive.objects[changed] = data[:-20] + b"rot" + data[-17:], tag
    del archive.objects[missing]
    found = all_of(*archive_round())
    assert [(d.kind, d.name) for d in found] == [
        ("part", f"{MemoryObjects.where}/{changed}"),
        ("part", f"{MemoryObjects.where}/{missing}"),
    ]
    assert "sha256" in found[0].reason


def test_a_round_goes_on_behind_a_part(archive: MemoryObjects) -> None:
    names = parts(archive)
    round_, told = archive_round()
    while round_.passed is None:
        round_.step(1, told.append, lambda: False)
    assert round_.passed.name == names[0]
    round_.close()
    opened = partial(Archive.open, MemoryObjects.where)
    for behind, wanted in (
        (round_.passed, names[1:]),
        (LookedAt("part-99999999.parquet", ""), names),
        (round_.passed._replace(mark=""), names),
    ):
        look = archive_look(opened, Meter(), lambda: False, behind)
        assert [found.name for found in look if isinstance(found, LookedAt)] == wanted


def test_a_store_of_objects_that_is_away_is_no_damage_and_is_tried_again(
    archive: MemoryObjects,
) -> None:
    round_, told = archive_round()
    round_.step(1, told.append, lambda: False)
    archive.down = True
    with pytest.raises(ArchiveUnreachable):
        all_of(round_, told)
    archive.down = False
    assert all_of(round_, told) == []
