"""Reading an archive: what the manifest leaves out is not wanted, what is damaged is named, what comes is seen."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from binlog_pipeline.errors import BadOption, DataLost
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.admission import BatchLimits, next_end
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.views.files import FilesView
from binlog_pipeline.views.raw import RawView
from binlog_pipeline.views.reading import rows_of, slices_of
from binlog_pipeline.wanted import Numbers, Wanted
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.archive.errors import ArchiveDamaged
from binlog_storage.log.ranges import GtidRange, TimeRange

from tests.pipeline.archives import Row, grow, rows, run
from tests.storage.groups import Group, group, history, simple


def timed(groups: list[Group], rng: random.Random) -> list[Group]:
    """The same with times, which do not quite ascend."""
    found = []
    for number, (payload, gtid) in enumerate(groups):
        seconds = 1_700_000_000 + number * 10 + rng.randrange(-300, 300)
        found.append(Group(seconds.to_bytes(4, "little") + payload[4:], gtid))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[DirectorySource, ArchiveSource]:
    """A store, and its archive of some forty parts. Nobody writes into them."""
    folder = tmp_path_factory.mktemp("archive")
    rng = random.Random(21)
    groups = [g for g in history(rng, 1500, size_max=30_000) if g.gtid is not None]
    grow(folder / "store", timed(groups, rng))
    source = DirectorySource(str(folder / "store"))
    assert run(source, folder / "archive", partition_bytes=64 << 10).parts > 30
    return source, ArchiveSource(str(folder / "archive"))


@pytest.mark.parametrize("count", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_any_part_of_it_is_the_same_as_of_the_directory(
    made: tuple[DirectorySource, ArchiveSource], count: int
) -> None:
    source, archived = made
    everything = rows(source)
    rng = random.Random(1)
    for _ in range(count):
        first, last = sorted(rng.sample(range(len(everything)), 2))
        start = SlavePosition(_position(everything[: first + 1]))
        stop = SlavePosition(_position(everything[: last + 1]))
        times = TimeRange(everything[first][2], everything[last][2] + 1)
        for wanted in (
            Wanted(GtidRange(start, stop)),
            Wanted(GtidRange(start=start), domains=frozenset({rng.randrange(3)})),
            Wanted(GtidRange(stop=stop)),
            Wanted(times=times),
            Wanted(GtidRange(start=start), hints=times, servers=frozenset({1})),
            Wanted(numbers=Numbers(rng.randrange(100), rng.randrange(100, 400))),
        ):
            found = rows(archived, wanted, rng.choice([1, 1 << 18, 1 << 30]))
            # Hints say what need not be read, not what must not.
            is_hinted = wanted.hints.is_bounded
            assert _timely(found, times, is_hinted) == _timely(
                rows(source, wanted), times, is_hinted
            )


def _timely(some: list[Row], times: TimeRange, is_wanted: bool) -> list[Row]:
    return [row for row in some if not is_wanted or times.has(row[2])]


def _position(some: list[Row]) -> list[Gtid]:
    return list({gtid.domain_id: gtid for gtid, *_ in some}.values())


def test_only_parts_that_may_hold_it_are_read(
    made: tuple[DirectorySource, ArchiveSource],
) -> None:
    _, archived = made
    position = archived.latest()
    gtid = max(position, key=lambda g: g.seq_no)
    before = position.with_gtid(gtid._replace(seq_no=gtid.seq_no - 1))
    parts = archived.slices(Wanted(GtidRange(before, position)), 1)
    assert len(parts) <= 3
    assert archived.slices(Wanted(GtidRange(start=position)), 1) == []
    assert archived.slices(Wanted(times=TimeRange(first=1_900_000_000)), 1) == []


def test_the_view_is_the_same(made: tuple[DirectorySource, ArchiveSource]) -> None:
    tables = []
    for source in made:
        parts = source.slices(Wanted(), 1 << 20)
        tables.append([b for p in parts for b in RawView().batches(p.read())])
    first, second = ([row for b in batches for row in b.to_pylist()] for batches in tables)
    assert first == second


def test_its_parts_without_reading_them(made: tuple[DirectorySource, ArchiveSource]) -> None:
    source, archived = made
    (part,) = slices_of(FilesView(), archived, Wanted(), 1 << 20)
    (batch,) = rows_of(FilesView(), part, begins=True)
    found = batch.to_pylist()
    assert [row["file"] for row in found] == list(range(1, len(found) + 1))
    everything = rows(source)
    assert sum(row["groups"] for row in found) == len(everything)
    assert sum(row["bytes"] for row in found) == sum(len(row[3]) for row in everything)
    assert found[0]["state_before"] == ""
    assert all(a["state_behind"] == b["state_before"] for a, b in pairwise(found))
    assert min(row["min_ts"].timestamp() for row in found) == min(row[2] for row in everything)
    assert max(row["max_ts"].timestamp() for row in found) == max(row[2] for row in everything)
    late = archived.parts(Wanted(GtidRange(start=SlavePosition(_position(everything[:-1])))))
    assert [part.file for part in late] == [len(found)]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def _exchange(path: Path) -> None:
    data = path.with_name("part-00000003.parquet").read_bytes()
    path.write_bytes(data[: path.stat().st_size].ljust(path.stat().st_size, b"\0"))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (Path.unlink, "it is missing"),
        (_cut, r"it has \d+ bytes, not \d+"),
        (_flip, "its bytes are not those that were written"),
        (_exchange, "its bytes are not those that were written"),
    ],
)
def test_a_damaged_part_is_named(
    made: tuple[DirectorySource, ArchiveSource],
    tmp_path: Path,
    damage: Callable[[Path], None],
    told: str,
) -> None:
    source, archived = made
    shutil.copytree(archived.path, tmp_path / "archive")
    damage(tmp_path / "archive" / "part-00000005.parquet")
    damaged = ArchiveSource(str(tmp_path / "archive"))
    with pytest.raises(
        ArchiveDamaged, match=rf"part-00000005\.parquet \(groups .* to .*\): {told}"
    ):
        rows(damaged)
    # What does not need it is there.
    first = rows(source)[:20]
    wanted = Wanted(GtidRange(stop=SlavePosition(_position(first))))
    assert rows(damaged, wanted) == rows(source, wanted)


def test_what_the_archive_does_not_have_is_an_error(tmp_path: Path) -> None:
    grow(tmp_path / "store", simple(20, first=11, size=200_000))
    grow(tmp_path / "store", [], purge=2)
    source = DirectorySource(str(tmp_path / "store"))
    run(source, tmp_path / "archive")
    archived = ArchiveSource(str(tmp_path / "archive"))
    with pytest.raises(DataLost, match="the archive begins behind it"):
        archived.slices(Wanted(GtidRange(start=SlavePosition.parse("0-1-12"))), 1)
    forgiving = ArchiveSource(archived.path, fail_on_data_loss=False)
    with pytest.warns(UserWarning, match=r"behind 0-1-12 up to 0-1-\d+"):
        found = rows(forgiving, Wanted(GtidRange(start=SlavePosition.parse("0-1-12"))))
    assert found == rows(source)
    with pytest.raises(DataLost, match="not in the archive, which has come to '0-1-30'"):
        archived.slices(Wanted(GtidRange(start=SlavePosition.parse("0-1-31"))), 1)


def test_a_directory_with_a_manifest_is_an_archive(
    made: tuple[DirectorySource, ArchiveSource],
) -> None:
    source, archived = made
    opened = open_source(SourceOptions.parse({"path": archived.path}))
    assert isinstance(opened, ArchiveSource)
    assert isinstance(open_source(SourceOptions.parse({"path": source.path})), DirectorySource)
    said = open_source(SourceOptions.parse({"path": source.path, "source": "archive"}))
    assert isinstance(said, ArchiveSource)
    with pytest.raises(BadOption):
        open_source(SourceOptions.parse({"paths": f"{source.path},{archived.path}"}))


def test_batches_of_a_stream_end_where_those_of_the_directory_do(
    made: tuple[DirectorySource, ArchiveSource],
) -> None:
    ends = []
    for source in made:
        feed = source.feed()
        at, found = source.earliest(), []
        while (end := next_end(feed, at, BatchLimits(bytes=900_000, transactions=170), 0.0)) != at:
            found.append(end)
            at = end
        feed.close()
        ends.append(found)
    assert ends[0] == ends[1]
    assert len(ends[0]) > 8


def test_a_stream_sees_what_is_added(tmp_path: Path) -> None:
    first = simple(5)
    grow(tmp_path / "store", first)
    source = DirectorySource(str(tmp_path / "store"))
    run(source, tmp_path / "archive")
    archived = ArchiveSource(str(tmp_path / "archive"))
    feed = archived.feed()
    at = archived.latest()
    assert next_end(feed, at, BatchLimits(), 0.0) == at

    def add() -> None:
        time.sleep(0.2)
        grow(tmp_path / "store", [group(Gtid(0, 1, 6)), group(Gtid(4, 1, 1))])
        run(source, tmp_path / "archive")

    adding = threading.Thread(target=add)
    adding.start()
    end = next_end(feed, at, BatchLimits(), 100.0)
    adding.join()
    assert end == SlavePosition.parse("0-1-6,4-1-1")
    assert archived.is_growing
