"""Binlog files into a store: each group once, in order, exactly behind what is there; or an error, and nothing."""

from __future__ import annotations

import contextlib
import random
import re
from pathlib import Path
from typing import Any, cast

import pytest
from binlog_protocol.events.header import split_events
from binlog_protocol.groups import group_runs
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.binlog import ClassicBinlog
from binlog_storage.classic.errors import DamagedBinlog
from binlog_storage.disk.state import STATE_NAME, StateStore
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import CorruptBinlog, PositionPurged
from binlog_storage.ibb.file_names import file_name
from binlog_storage.intake.ibb_files import IbbFiles
from binlog_storage.intake.intake import (
    DoesNotContinue,
    FilesMissing,
    Intake,
    Taken,
    progress_text,
)
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.binlog_server.cli.command import copy_to
from tests.storage import vectors
from tests.storage.classic import binlog_files
from tests.storage.classic.test_files import mixed
from tests.storage.groups import Group
from tests.storage.sizes import small

PARTS = [
    binlog_files.simple(8),
    binlog_files.simple(3, first=9) + binlog_files.simple(4, domain=3, server=5),
    [],
    [*binlog_files.simple(5, first=12), *binlog_files.simple(2, first=17, server=2)],
]
ALL = [group for part in PARTS for group in part]


@pytest.fixture
def engine() -> BinlogEngine:
    return IbbEngine(MemoryDisk(), small(8))


def take(engine: BinlogEngine, *paths: Path) -> Taken:
    return Intake(engine, ClassicBinlog(paths)).run()


def everything(engine: BinlogEngine) -> list[bytes]:
    """Groups and markers."""
    found: list[bytes] = []
    for file in engine.files():
        with contextlib.suppress(PositionPurged):  # made ahead
            found += [b"".join(pieces) for pieces in engine.groups_of_file(file.number)]
    return found


def stored(engine: BinlogEngine) -> list[Gtid]:
    """The groups."""
    return [gtid for payload in everything(engine) if (gtid := group_gtid(payload)) is not None]


def gtids(groups: list[Group]) -> list[Gtid]:
    return [group.gtid for group in groups if group.gtid is not None]


def test_into_an_empty_store(engine: BinlogEngine, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    taken = take(engine, *paths)
    assert (taken.groups, taken.passed_over, taken.notes) == (len(ALL), 0, [])
    assert taken.size == sum(len(group.payload) for group in ALL)
    marker, *found = everything(engine)
    assert group_gtid(marker) is None
    assert found == [group.payload for group in ALL]
    assert engine.binlog_state() == binlog_files.state_after(ALL)
    # And again: nothing, not even another marker.
    for _ in range(2):
        taken = take(engine, *paths)
        assert (taken.groups, taken.size) == (0, 0)
        assert everything(engine) == [marker, *found]


def test_the_store_begins_where_the_files_do(engine: BinlogEngine, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    taken = take(engine, *paths[1:])
    assert taken.began_at == binlog_files.state_after(PARTS[0])
    assert stored(engine) == gtids(ALL)[8:]
    with pytest.raises(PositionPurged):
        engine.find_start(SlavePosition([Gtid(0, 1, 7)]))
    assert engine.find_start(SlavePosition([Gtid(0, 1, 8)])).state == taken.began_at


@pytest.mark.parametrize("count", range(len(ALL) + 1))
def test_goes_on_where_it_ended(engine: BinlogEngine, tmp_path: Path, count: int) -> None:
    """Whatever there was when it was killed; with the C part and without."""
    for group in ALL[:count]:
        engine.append(*group)
    engine.sync()
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    assert take(engine, *paths).groups == len(ALL) - count
    assert stored(engine) == gtids(ALL)
    assert take(engine, *paths).groups == 0


def test_later_files(engine: BinlogEngine, tmp_path: Path) -> None:
    """As they come, each with the one before, or only the new one."""
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    take(engine, paths[0])
    take(engine, paths[0], paths[1])
    take(engine, paths[2])
    take(engine, *paths[2:])
    assert stored(engine) == gtids(ALL)
    # Files that end before the store does have nothing for it.
    taken = take(engine, *paths[:2])
    assert taken.is_beyond
    assert stored(engine) == gtids(ALL)


def test_in_pure_python(
    engine: BinlogEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_runs, "HAS_C", False)
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    take(engine, *paths[:2])
    take(engine, *paths)
    assert stored(engine) == gtids(ALL)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("checksums", [True, False])
def test_large_groups(
    engine: BinlogEngine, tmp_path: Path, rng: random.Random, checksums: bool
) -> None:
    groups = mixed(rng, 40)
    (path,) = binlog_files.write_chain(tmp_path, groups, checksums=checksums)
    take(engine, path)
    assert everything(engine)[1:] == [group.payload for group in groups]
    assert take(engine, path).groups == 0


def test_a_missing_file(engine: BinlogEngine, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    with pytest.raises(FilesMissing, match="between them are missing") as caught:
        take(engine, paths[0], paths[3])
    assert str(paths[0]) in str(caught.value)
    assert str(paths[3]) in str(caught.value)
    assert stored(engine) == gtids(PARTS[0])
    # One without groups is not missed.
    take(engine, paths[0], paths[1], paths[3])
    assert stored(engine) == gtids(ALL)
    with pytest.raises(FilesMissing):
        take(IbbEngine(MemoryDisk(), small(8)), paths[1], paths[0])


def test_a_gap_behind_the_store(engine: BinlogEngine, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    take(engine, paths[0])
    before = everything(engine)
    with pytest.raises(DoesNotContinue, match="do not reach back to the store's end") as caught:
        take(engine, paths[3])
    assert str(paths[3]) in str(caught.value)
    assert everything(engine) == before


def test_another_history(engine: BinlogEngine, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path / "a", *PARTS)
    other = [binlog_files.group(Gtid(0, 9, n), 50) for n in range(1, 30)]
    others = binlog_files.write_chain(tmp_path / "b", other)
    take(engine, *paths)
    before = everything(engine)
    with pytest.raises(DoesNotContinue, match="not one history"):
        take(engine, *others)
    # The same GTIDs, but not the same group.
    changed = [*PARTS[0][:-1], binlog_files.group(Gtid(0, 1, 8), 12)]
    one = IbbEngine(MemoryDisk(), small(8))
    take(one, paths[0])
    more = binlog_files.write_chain(tmp_path / "c", changed + PARTS[1])
    with pytest.raises(DoesNotContinue, match="is another one than the store's last group"):
        take(one, *more)
    assert everything(engine) == before
    assert stored(one) == gtids(PARTS[0])


@pytest.mark.parametrize("count", range(10))
def test_numbers_that_go_backwards(engine: BinlogEngine, tmp_path: Path, count: int) -> None:
    """Without gtid_strict_mode: also the same GTID twice, as long as the groups are not the same."""
    again = [binlog_files.group(Gtid(0, 1, n), 400 + n) for n in (4, 5, 3)]
    groups = [*binlog_files.simple(5), *again, *binlog_files.simple(2, first=6)]
    for group in groups[:count]:
        engine.append(*group)
    engine.sync()
    paths = binlog_files.write_chain(tmp_path, groups[:7], groups[7:])
    take(engine, *paths)
    assert stored(engine) == gtids(groups)


def test_a_seeded_store(engine: BinlogEngine, tmp_path: Path) -> None:
    engine.reset(BinlogState([Gtid(0, 1, 10), Gtid(3, 5, 1)]))
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    with pytest.raises(DoesNotContinue, match="no place in them"):
        take(engine, *paths)  # domain 3 is logged behind 0-1-11
    engine.reset(BinlogState([Gtid(0, 1, 11), Gtid(3, 5, 1)]))
    assert take(engine, *paths).passed_over == 4  # of the second file
    assert stored(engine) == gtids(ALL)[12:]


def test_domains_that_the_server_has_forgotten(engine: BinlogEngine, tmp_path: Path) -> None:
    """FLUSH BINARY LOGS DELETE_DOMAIN_ID, of one that no file has groups of."""
    before = BinlogState([Gtid(9, 1, 3), Gtid(0, 1, 4)])
    first, second = tmp_path / "m-bin.000001", tmp_path / "m-bin.000002"
    groups = binlog_files.simple(6, first=5)
    binlog_files.write(first, groups[:3], before=before)
    binlog_files.write(second, groups[3:], before=BinlogState([Gtid(0, 1, 7)]))
    take(engine, first, second)
    assert stored(engine) == gtids(groups)
    # Of one that they do have groups of it is a file that is missing, or another history.
    binlog_files.write(second, groups[3:], before=BinlogState([Gtid(9, 1, 3)]))
    with pytest.raises(FilesMissing):
        take(IbbEngine(MemoryDisk(), small(8)), first, second)


def test_the_last_file_is_not_whole(engine: BinlogEngine, tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000001"
    groups = [*binlog_files.simple(4), binlog_files.group(Gtid(0, 1, 5), 5 << 20)]
    *_, last, end = binlog_files.write(path, groups, closed=False)
    data = path.read_bytes()
    for cut in (last + 20, last + 200, last + (3 << 20), end - 2):
        path.write_bytes(data[:cut])
        (note,) = take(engine, path).notes
        assert f"{path} ends inside" in note
        assert f"its last {cut - last} bytes, from offset {last} on, were left out" in note
        assert stored(engine) == gtids(groups[:4])
    path.write_bytes(data)
    assert take(engine, path).notes == [f"{path} was not closed: its server may have written more"]
    assert everything(engine) == [group.payload for group in groups]


def test_a_server_that_was_killed(engine: BinlogEngine, tmp_path: Path) -> None:
    """The file ends inside a group that never was; it goes on in the next, which knows nothing of it."""
    first, second = tmp_path / "m-bin.000001", tmp_path / "m-bin.000002"
    groups = binlog_files.simple(9)
    *_, last, end = binlog_files.write(first, groups[:5], closed=False)
    first.write_bytes(first.read_bytes()[: end - 1])
    before = binlog_files.state_after(groups[:4])
    again = [binlog_files.group(Gtid(0, 1, 5), 77), *groups[5:]]
    binlog_files.write(second, again, before=before, created=binlog_files.CREATED + 9)
    taken = take(engine, first, second)
    assert f"from offset {last} on" in taken.notes[0]
    found = everything(engine)
    assert [group_gtid(payload) for payload in found].index(None) == 4
    del found[4]
    assert found == [group.payload for group in [*groups[:4], *again]]


def test_damage(engine: BinlogEngine, tmp_path: Path) -> None:
    """What came before it is kept; with the file repaired it goes on there."""
    groups = [*binlog_files.simple(4), binlog_files.group(Gtid(0, 1, 5), 5 << 20)]
    paths = binlog_files.write_chain(tmp_path, groups, binlog_files.simple(3, first=6))
    data = paths[0].read_bytes()
    broken = bytearray(data)
    broken[4 << 20] ^= 1
    paths[0].write_bytes(broken)
    with pytest.raises(DamagedBinlog, match=f"{paths[0]} is damaged at offset"):
        take(engine, *paths)
    assert stored(engine) == gtids(groups[:4])
    paths[0].write_bytes(data)
    assert take(engine, *paths).groups == 4


def test_progress(engine: BinlogEngine, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path, *PARTS)
    source = ClassicBinlog(paths)
    seen: list[int] = []
    Intake(engine, source, lambda taken: seen.append(source.bytes_read)).run()
    assert seen == sorted(seen)
    assert source.bytes_read == source.size == sum(path.stat().st_size for path in paths)


# --- .ibb files ---


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("name", [v["name"] for v in vectors.sets()])
def test_ibb_files_of_mariadb(tmp_path: Path, name: str) -> None:
    """Each set that MariaDB's own readers have read: the same groups; a second time nothing; nothing changed."""
    engine = IbbEngine(MemoryDisk(), small(64, innodb_log_file_size=8 << 20))
    vector = vectors.sound_set(name)
    directory = copy_to(vectors.unpack(vector), tmp_path)
    before = {path: path.read_bytes() for path in directory.iterdir()}
    ends = []
    for _ in range(2):
        source = IbbFiles(directory)
        Intake(engine, source).run()
        source.close()
        ends.append(engine.written_end)
    found = [vectors.sha(payload)[:32] for payload in everything(engine)]
    assert found == [group.sha for group in vectors.groups_of(vector)]
    assert ends[0] == ends[1]
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_another_store(tmp_path: Path, rng: random.Random) -> None:
    """Groups, markers, large groups and the state where it begins; it goes on when the other one has more."""
    groups = mixed(rng, 60)
    (path,) = binlog_files.write_chain(tmp_path / "c", groups)
    disk = MemoryDisk()
    other = IbbEngine(disk, small(64))
    other.reset(BinlogState([Gtid(7, 7, 7)]))
    engine = IbbEngine(MemoryDisk(), small(128))
    for count in (20, 60):
        for group in groups[count - 20 if count == 20 else 20 : count]:
            other.append(*group)
        other.sync()
        other.checkpoint()
        directory = copy_to(disk, tmp_path / str(count))
        source = IbbFiles(directory)
        Intake(engine, source).run()
        source.close()
        assert everything(engine) == [group.payload for group in groups[:count]]
        assert engine.binlog_state() == other.binlog_state()
    assert path.exists()


def test_the_tail_of_another_store(engine: BinlogEngine, tmp_path: Path) -> None:
    """What is in its redo log only is told of, not guessed."""
    disk = MemoryDisk()
    other = IbbEngine(disk, small(8))
    groups = binlog_files.simple(30)
    for group in groups[:10]:
        other.append(*group)
    other.sync()
    other.checkpoint()
    for group in groups[10:]:
        other.append(*group)
    other.sync()
    with contextlib.closing(IbbFiles(copy_to(disk, tmp_path))) as source:
        taken = Intake(engine, source).run()
    assert stored(engine) == gtids(groups[:10])
    assert any("start and stop the server that it belongs to" in note for note in taken.notes)


def test_the_first_file_was_deleted_by_hand(engine: BinlogEngine, tmp_path: Path) -> None:
    """What was in it is not there, and nobody has purged it: an empty store does not begin behind it unasked."""
    disk = MemoryDisk()
    other = IbbEngine(disk, small(8), facts=StateStore(disk))
    groups = binlog_files.simple(9)
    for number, group in enumerate(groups):
        other.append(*group)
        if number % 3 == 2:
            other.flush()
    other.close()
    directory = copy_to(disk, tmp_path)
    (directory / file_name(0)).unlink()
    with contextlib.closing(IbbFiles(directory)) as source:
        with pytest.raises(
            FilesMissing, match=r"binlog-000000\.ibb is missing, and was not purged"
        ):
            Intake(engine, source).run()
        assert engine.last_marker is None
        assert not len(engine.binlog_state())
    # A store that has those groups goes on behind them.
    for group in groups[:3]:
        engine.append(*group)
    with contextlib.closing(IbbFiles(directory)) as source:
        Intake(engine, source).run()
    assert stored(engine) == gtids(groups)
    # And who says that they may be missing, by a copy without the note, gets what is left.
    (directory / STATE_NAME).unlink()
    empty = IbbEngine(MemoryDisk(), small(8))
    with contextlib.closing(IbbFiles(directory)) as source:
        assert Intake(empty, source).run().groups == 6


def halved(directory: Path) -> Path:
    """Groups 1 to 5, of which PURGE has deleted 1 and the first pieces of 3."""
    disk = MemoryDisk()
    other = IbbEngine(disk, small(8, slave_connections_needed_for_purge=0))
    groups = binlog_files.simple(5)
    other.append(*groups[0])
    writer = other.begin()
    gtid_event, *rest = split_events(groups[2].payload)
    writer.spill(b"".join(rest))
    other.flush()
    other.append(*groups[1])
    writer.commit(bytes(gtid_event), Gtid(0, 1, 3))
    other.append(*groups[3])
    other.flush()
    other.append(*groups[4])
    other.flush()
    other.purge_to(other.files()[1].number)
    other.close()
    return copy_to(disk, directory)


@pytest.mark.parametrize("count", range(6))
def test_a_group_of_which_purge_has_left_a_half(
    engine: BinlogEngine, tmp_path: Path, count: int
) -> None:
    """Nothing goes on in front of it: the store would have a hole there, and nobody would see it."""
    for one in binlog_files.simple(count):
        engine.append(*one)
    engine.sync()
    with contextlib.closing(IbbFiles(halved(tmp_path))) as source:
        if count in (1, 2):
            with pytest.raises(DoesNotContinue, match="begins at '0-1-3'"):
                Intake(engine, source).run()
            return
        taken = Intake(engine, source).run()
    assert any("up to '0-1-3' cannot be had" in note for note in taken.notes) == (count < 5)
    assert stored(engine) == [Gtid(0, 1, number) for number in range(1 if count else 4, 6)]
    assert engine.first_start().state == BinlogState([] if count else [Gtid(0, 1, 3)])


def test_damaged_ibb_files(engine: BinlogEngine, tmp_path: Path) -> None:
    entry = next(v for v in vectors.corrupt_sets() if v["name"] == "corrupt_flip_data")
    with (
        contextlib.closing(IbbFiles(copy_to(vectors.unpack(entry), tmp_path))) as source,
        pytest.raises(CorruptBinlog, match=r"binlog-000000.ibb, offset 32768"),
    ):
        Intake(engine, source).run()


class FullEngine:
    """On a full disk: there is no room, and whoever syncs waits for ever."""

    def __init__(self, engine: BinlogEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def wait_for_room(self, timeout: float | None = None) -> bool:
        return False

    def append_run(self, run: GroupRun, index: int) -> int:
        return index

    def sync(self) -> None:
        pytest.fail("it waits")


def test_an_intake_that_is_broken_off_on_a_full_disk_waits_for_nothing(
    engine: BinlogEngine, tmp_path: Path
) -> None:
    """And it says how much is still to come, and what room there is."""
    source = ClassicBinlog(binlog_files.write_chain(tmp_path, binlog_files.simple(5)))
    seen: list[str] = []

    def progress(taken: Taken) -> None:
        seen.append(progress_text(taken, source, tmp_path))
        if taken.waits:
            raise KeyboardInterrupt

    full = cast(BinlogEngine, FullEngine(engine))
    with pytest.raises(KeyboardInterrupt):
        Intake(full, source, progress).run()
    assert re.fullmatch(
        r"of 0 MiB, \d groups; waits for room for some 0 MiB more, and \d+ MiB are free there",
        seen[-1],
    )
