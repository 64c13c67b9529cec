"""GTID indexes of a store: when they are made, and that none leads a search astray. Their bytes: test_gtid_index.py."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.classic.binlog import read_head
from binlog_storage.classic.file_indexes import GrowingIndex
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.classic.stored_files import StoredFiles
from binlog_storage.classic.writing import FILE_START
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine import Position
from binlog_storage.errors import DiskFull
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.classic.index_files import groups_of, index_of, state_behind
from tests.storage.groups import Group, append_all, group, marker, payloads, read_from, simple

OPTIONS = ClassicOptions(
    max_binlog_size=16384,
    slave_connections_needed_for_purge=0,
    binlog_gtid_index_page_size=128,
    binlog_gtid_index_span_min=600,
)


def mixed(count: int, rng: random.Random) -> list[Group]:
    return [
        group(Gtid(rng.randrange(3), rng.randrange(1, 3), number), rng.randrange(60, 660))
        for number in range(1, count + 1)
    ]


def history(rng: random.Random, count: int = 120) -> tuple[MemoryDisk, list[Group]]:
    """A store that was closed, of three files or more."""
    disk = MemoryDisk()
    groups = mixed(count, rng)
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        for one in groups:
            append_all(engine, [one])
            engine.sync()
        assert len(engine.files()) > 2
    return disk, groups


def indexes(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in disk.names() if ".idx" in name)


def counts(engine: ClassicEngine) -> tuple[int, int]:
    told = engine.counters()
    return told["Binlog_gtid_index_hit"], told["Binlog_gtid_index_miss"]


def positions(groups: list[Group]) -> list[SlavePosition]:
    state = BinlogState()
    found = []
    for one in groups:
        assert one.gtid is not None
        state.update(one.gtid)
        found.append(state.position())
    return found


def starts(engine: ClassicEngine, groups: list[Group], step: int = 1) -> list[Position]:
    return [engine.find_start(position).position for position in positions(groups)[2::step]]


def without(disk: MemoryDisk, *names: str) -> MemoryDisk:
    return MemoryDisk({name: data for name, data in disk.contents().items() if name not in names})


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what searches have read of binlog files."""
    found: list[int] = []
    runs = StoredFiles._runs

    def counted(self: StoredFiles, number: int, *args: object) -> object:
        for one in runs(self, number, *args):  # type: ignore[arg-type]
            found.append(one.end - one.begin)
            yield one

    monkeypatch.setattr(StoredFiles, "_runs", counted)
    return found


def test_each_file_has_one_and_searches_use_it(
    rng: random.Random, read_bytes: list[int], tmp_path: Path
) -> None:
    disk, groups = history(rng)
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        files = engine.files()
        assert indexes(disk) == [engine.file_name(f.number) + ".idx" for f in files[:-1]]
        hit, miss = counts(engine)
        found = starts(engine, groups)
        assert counts(engine) == (hit + len(found), miss)
        near = sum(read_bytes)
    plain = dataclasses.replace(OPTIONS, binlog_gtid_index=False)
    with closing(ClassicEngine(disk, plain)) as engine:
        read_bytes.clear()
        assert starts(engine, groups) == found
        assert near < sum(read_bytes) * 0.7  # of short files, half of one on average
        assert counts(engine) == (0, 0)
    for name, data in disk.contents().items():
        (tmp_path / name).write_bytes(data)
    for index in indexes(disk):
        path = tmp_path / index.removesuffix(".idx")
        assert disk.contents()[index] == index_of(path, 128, 600)


def test_states_and_places(rng: random.Random, tmp_path: Path) -> None:
    disk, _ = history(rng)
    for name, data in disk.contents().items():
        (tmp_path / name).write_bytes(data)
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        for file in engine.files():
            path = tmp_path / engine.file_name(file.number)
            for offset in rng.sample(range(FILE_START, file.size), 8):
                place = Position(file.number, offset)
                assert engine.state_at(place) == state_behind(path, offset)
                assert engine.locate(place).begin.offset <= max(offset, file.size)
        assert counts(engine)[1] == 0


def test_the_file_that_is_written(rng: random.Random, read_bytes: list[int]) -> None:
    """Its places are in memory: of what this run wrote, and of what it found."""
    disk = MemoryDisk()
    options = ClassicOptions()
    groups = [group(Gtid(0, 1, number), 40_000) for number in range(1, 41)]
    with closing(ClassicEngine(disk, options)) as engine:
        append_all(engine, groups)
        engine.sync()
        found = starts(engine, groups)
        assert sum(read_bytes) < len(found) * (2 * 256 + 128) * 1024 / 2 + 1
        assert read_from(engine, found[20]) == payloads(groups[23:])
        assert counts(engine) == (len(found), 0)
    assert indexes(disk) == ["binlog.000001.idx"]
    with closing(ClassicEngine(disk, options)) as engine:
        assert indexes(disk) == []  # until it is closed again
        assert starts(engine, groups) == found
        append_all(engine, simple(5, first=41))
        engine.sync()
        assert counts(engine) == (len(found), 0)
    assert indexes(disk) == ["binlog.000001.idx"]


@pytest.mark.parametrize("way", ["missing", "empty", "cut", "newer", "no_root"])
def test_one_that_cannot_be_used_is_made_again(way: str, rng: random.Random) -> None:
    disk, groups = history(rng)
    name = "binlog.000001.idx"
    data = disk.contents()[name]
    changed = {
        "missing": None,
        "empty": b"",
        "cut": data[:-50],
        "newer": data[:4] + b"\2" + data[5:],
        "no_root": data[:-128],
    }[way]
    contents = dict(disk.contents())
    if changed is None:
        del contents[name]
    else:
        contents[name] = changed
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        right = starts(engine, groups, 5)
    disk = MemoryDisk(contents)
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        assert starts(engine, groups, 5) == right
        hits, misses = counts(engine)
        assert misses > 3
        engine.step()
        assert disk.contents()[name] == data
        assert starts(engine, groups, 5) == right
        assert counts(engine) == (hits + len(right), misses)


def stale_of_the_next(contents: dict[str, bytes], name: str) -> bytes:
    return contents["binlog.000002.idx"]


def stale_since_the_middle(contents: dict[str, bytes], name: str) -> bytes:
    """Of the file as it was before it was cut, and went on with others."""
    path = Path(contents["path"].decode())
    index = GrowingIndex.of(read_head(path), OPTIONS)
    known = groups_of(path)
    for at, (end, gtid) in enumerate(known):
        index.add(end, gtid if at < len(known) // 2 else gtid._replace(seq_no=gtid.seq_no + 99))
    return index.finish()


def stale_of_other_groups(contents: dict[str, bytes], name: str) -> bytes:
    """Of as many groups with other numbers behind the same beginning."""
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        append_all(engine, mixed(25, random.Random(1)))
        engine.sync()
    return disk.contents()[name]


@pytest.mark.parametrize(
    "stale", [stale_of_the_next, stale_since_the_middle, stale_of_other_groups]
)
def test_one_of_other_groups_is_not_believed(
    stale: Callable[[dict[str, bytes], str], bytes], rng: random.Random, tmp_path: Path
) -> None:
    disk, groups = history(rng)
    name = "binlog.000001.idx"
    right = disk.contents()[name]
    (tmp_path / "binlog.000001").write_bytes(disk.contents()["binlog.000001"])
    told = {**disk.contents(), "path": str(tmp_path / "binlog.000001").encode()}
    disk = MemoryDisk({**disk.contents(), name: stale(told, name)})
    assert disk.contents()[name] != right
    with closing(ClassicEngine(without(disk, name), OPTIONS)) as engine:
        expected = starts(engine, groups, 3)
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        assert starts(engine, groups, 3) == expected
        assert counts(engine)[1]
        engine.step()
        assert disk.contents()[name] == right


def test_purge_and_reset_take_them_along(rng: random.Random) -> None:
    disk, _ = history(rng)
    engine = ClassicEngine(disk, OPTIONS)
    engine.purge_to(engine.files()[-1].number)
    assert indexes(disk) == []
    append_all(engine, [group(Gtid(0, 1, number), 700) for number in range(500, 560)])
    engine.flush()
    engine.step()
    assert len(indexes(disk)) > 1
    engine.reset()
    assert indexes(disk) == []
    append_all(engine, simple(60))
    engine.sync()
    engine.close()
    assert len(indexes(disk)) == len([n for n in disk.names() if n.startswith("binlog.0")]) / 2


def test_an_old_one_with_the_name_of_a_new_file_goes(rng: random.Random) -> None:
    disk, _ = history(rng)
    old = disk.contents()["binlog.000001.idx"]
    engine = ClassicEngine(disk, OPTIONS)
    following = f"binlog.{engine.files()[-1].number + 1:06}.idx"
    with closing(disk.open(following, create=True)) as file:
        file.pwrite(old, 0)
    engine.flush()
    assert following not in disk.names()
    engine.close()
    assert disk.contents()[following] != old


def test_no_room_for_them_is_no_harm(rng: random.Random) -> None:
    disk = MemoryDisk()

    def fault(kind: str, name: str) -> None:
        if name.endswith((".idx", ".idx.new")) and kind in ("write", "create"):
            raise DiskFull("no room (injected)")

    disk.fault = fault
    groups = mixed(60, rng)
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        append_all(engine, groups)
        engine.flush()
        append_all(engine, [marker(1)])
        engine.sync()
        engine.step()
        found = starts(engine, groups, 7)
        assert counts(engine) == (0, len(found))
        engine.step()  # cannot be made, still
        assert starts(engine, groups, 7) == found
        disk.fault = None
        for _ in engine.files():
            engine.step()
        assert starts(engine, groups, 7) == found
        assert counts(engine)[0] == len(found)


def test_made_again_on_a_real_disk_in_the_background(tmp_path: Path, rng: random.Random) -> None:
    disk, groups = history(rng)
    folder = tmp_path / "store"
    folder.mkdir()
    for name, data in disk.contents().items():
        if ".idx" not in name:
            (folder / name).write_bytes(data)
    (folder / "binlog.000001.idx.new").write_bytes(b"half")
    engine = ClassicEngine(OsDisk(folder), OPTIONS, background=True)
    assert not (folder / "binlog.000001.idx.new").exists()
    starts(engine, groups)
    engine.close()
    engine = ClassicEngine(OsDisk(folder), OPTIONS)
    starts(engine, groups)
    engine.step()
    engine.close()
    assert not list(folder.glob("*.new"))
    shutil.rmtree(folder)
