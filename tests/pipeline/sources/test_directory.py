"""A directory of .ibb files as a source: each group once however it is cut and followed, and what is wrong with it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from binlog_pipeline.errors import DataLost, SourceError
from binlog_pipeline.groups import Groups, after
from binlog_pipeline.sources.directory import DirectorySlice, DirectorySource
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine.backup import WHOLE, BackupPlace, Manifest, write_manifest
from binlog_storage.errors import TruncatedRecord
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.log.ranges import GtidRange
from binlog_storage.redo.format import REDO_NAME
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.logs import SMALL_FILES
from tests.pipeline.stores import leave_half, make_store
from tests.storage.groups import (
    Group,
    append_all,
    group,
    gtid_event,
    history,
    payloads,
    run_dry,
    settle,
    simple,
    state_after,
)
from tests.storage.sizes import small

STOPPED_MARIADB = (PUBLICATION_NAME, REDO_NAME)
"""Files of ours that MariaDB's own directory has not."""


def whole(groups: Groups) -> list[bytes]:
    if groups.large is None:
        return list(groups.payloads)
    return [b"".join(groups.pieces(0))]


def read(source: DirectorySource, wanted: Wanted, size: int = 1 << 30) -> list[bytes]:
    return read_slices(source.slices(wanted, size))


def read_slices(parts: Sequence[DirectorySlice]) -> list[bytes]:
    return [p for part in parts for groups in part.read() for p in whole(groups)]


def followed(source: DirectorySource, position: SlavePosition, rng: random.Random) -> list[bytes]:
    """By a feed that is asked again and again, and closed now and then."""
    found = []
    feed = source.feed()
    while True:
        before = position
        for groups in feed.after(position, 0):
            taken = groups
            if groups.large is None and rng.random() < 0.3:
                kept = rng.randrange(len(groups)) + 1
                taken = Groups(groups.payloads[:kept], groups.file[:kept], groups.offset[:kept])
            found += whole(taken)
            position = after(position, taken)
            if taken is not groups:
                break
        if position == before:
            break
        if rng.random() < 0.1:
            feed.close()
            feed = source.feed()
    feed.close()
    return found


def in_range(made: list[Group], range_: GtidRange) -> list[bytes]:
    return [g.payload for g in made if g.gtid is not None and range_.has(g.gtid)]


@pytest.fixture(scope="module", params=["ours", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_each_group_once(tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int) -> None:
    """Whatever the size of slices and the range; a feed gives the same sequence."""
    rng = random.Random(seed)
    made = history(rng, 80, size_max=120_000)
    path = make_store(tmp_path_factory.mktemp("cuts") / "store", made, SMALL_FILES)
    if kind == "mariadb":
        for name in STOPPED_MARIADB:
            (path / name).unlink()
    source = DirectorySource(str(path))
    assert source.latest() == state_after(made).position()
    assert source.earliest() == SlavePosition()
    gtids = [g.gtid for g in made if g.gtid is not None]
    for _ in range(4):
        start, stop = (
            BinlogState(gtids[: rng.randrange(len(gtids) + 1)]).position() for _ in range(2)
        )
        range_ = GtidRange(rng.choice((None, start)), rng.choice((None, stop)))
        size = rng.choice((1, 1, 5, 40)) * PAGE_SIZE
        assert read(source, Wanted(range_), size) == in_range(made, range_)
    everything = GtidRange(start=start)
    assert followed(source, start, rng) == in_range(made, everything)
    shutil.rmtree(path)


LOG = simple(1200, size=900)
LAST = SlavePosition.parse("0-1-1200")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Some five files of 16 pages."""
    return make_store(tmp_path / "store", LOG, SMALL_FILES)


def purge(store: Path, count: int) -> Gtid:
    """The oldest files go; the last group in them is returned."""
    for number in file_numbers([p.name for p in store.iterdir()])[:count]:
        (store / file_name(number)).unlink()
    (last,) = DirectorySource(str(store)).beginning().entries()
    return last


def behind(last: Gtid) -> list[bytes]:
    return payloads(LOG[last.seq_no :])


def position(seq_no: int) -> SlavePosition:
    return SlavePosition([Gtid(0, 1, seq_no)])


def test_a_purged_range(store: Path) -> None:
    last = purge(store, 2)
    source = DirectorySource(str(store))
    assert read(source, Wanted()) == behind(last)  # nothing that is older was asked for
    wanted = Wanted(GtidRange(start=position(5)))
    says = (
        rf"{store}: 0-1-{last.seq_no} is wanted, but the store begins behind it; .*failOnDataLoss"
    )
    with pytest.raises(DataLost, match=says):
        source.slices(wanted, 1 << 20)
    with closing(source.feed()) as feed, pytest.raises(DataLost, match=says):
        list(feed.after(position(5), 0))
    assert source.slices(Wanted(GtidRange(start=position(last.seq_no))), 1 << 20)


def test_a_position_far_behind_the_last_known_state(tmp_path: Path) -> None:
    """Whole batches before it are passed over."""
    store = make_store(tmp_path / "store", LOG, small(128, 64))
    source = DirectorySource(str(store))
    for seq_no in (1, 700, 900, 1199):
        feed = source.feed()
        found = [p for groups in feed.after(position(seq_no), 0) for p in groups.payloads]
        assert found == payloads(LOG[seq_no:])
        feed.close()
        assert read(source, Wanted(GtidRange(start=position(seq_no)))) == found


def test_going_on_behind_a_gap(store: Path) -> None:
    last = purge(store, 2)
    source = DirectorySource(str(store), fail_on_data_loss=False)
    gap = rf"{store}: .*purged: behind 0-1-5 up to {last}; .*failOnDataLoss=false"
    with pytest.warns(UserWarning, match=gap):
        assert read(source, Wanted(GtidRange(start=position(5)))) == behind(last)
    with pytest.warns(UserWarning, match=gap):
        assert followed(source, position(5), random.Random(1)) == behind(last)
    with pytest.warns(UserWarning, match="behind the beginning up to"):
        assert read(source, Wanted(GtidRange(start=SlavePosition()))) == behind(last)


def test_a_file_that_goes_while_it_is_read(store: Path) -> None:
    """A purge between planning and reading."""
    parts = DirectorySource(str(store)).slices(Wanted(), 8 * PAGE_SIZE)
    lenient = DirectorySource(str(store), fail_on_data_loss=False).slices(Wanted(), 8 * PAGE_SIZE)
    last = purge(store, 1)
    with pytest.raises(DataLost, match=r"binlog-000000\.ibb was purged meanwhile; restore"):
        list(parts[0].read())
    gone = [part for part in lenient if part.partition.file_no == 0]
    with pytest.warns(UserWarning, match=r"binlog-000000\.ibb was purged .*left out"):
        assert not any(list(part.read()) for part in gone)
    found = [p for part in parts[len(gone) :] for groups in part.read() for p in groups.payloads]
    assert found == behind(last)


@pytest.mark.filterwarnings("ignore:.*were purged")
def test_a_feed_whose_files_go(store: Path) -> None:
    for fails in (True, False):
        feed = DirectorySource(str(store), fails).feed()
        groups: Iterator[Groups] = feed.after(SlavePosition(), 0)
        first = next(groups)
        at = after(SlavePosition(), first)
        del groups
        last = purge(store, 2)
        if fails:
            feed.close()
            with pytest.raises(DataLost, match=r"purged|begins behind"):
                list(feed.after(at, 0))
        else:
            feed.close()
            with pytest.warns(UserWarning, match="were purged: behind 0-1-"):
                found = [p for groups in feed.after(at, 0) for p in groups.payloads]
            assert found == behind(last)
        feed.close()


def damage(store: Path, file_no: int, page_no: int) -> None:
    with (store / file_name(file_no)).open("r+b") as file:
        file.seek(page_no * PAGE_SIZE + 100)
        file.write(b"broken")


@pytest.mark.parametrize("fails", [True, False])
def test_a_corrupt_page(store: Path, fails: bool) -> None:
    """An error, whatever is said of data that was lost: it was not purged. What is before it was read."""
    damage(store, 2, 7)
    source = DirectorySource(str(store), fails)
    says = rf"{store}: .*page 7 .*binlog-000002\.ibb.*checksum.*binlog-server verify"
    parts = source.slices(Wanted(), 1 << 30)
    found = [p for part in parts[:2] for groups in part.read() for p in groups.payloads]
    assert found == payloads(LOG[: len(found)])
    with pytest.raises(SourceError, match=says):
        list(parts[2].read())
    with closing(source.feed()) as feed, pytest.raises(SourceError, match=says):
        list(feed.after(SlavePosition(), 0))


def test_a_corrupt_piece_of_a_large_group(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", simple(1, size=6 << 20), SMALL_FILES)
    part = DirectorySource(str(store)).slices(Wanted(), 1 << 30)[-1]
    assert next(iter(part.read())).large is not None
    damage(store, 10, 7)
    with pytest.raises(SourceError, match=rf"{store}: .*page 7 .*binlog-000010\.ibb.*verify"):
        list(next(iter(part.read())).pieces(0))


@pytest.mark.parametrize("fails", [True, False])
def test_a_missing_file(store: Path, fails: bool) -> None:
    (store / file_name(2)).unlink()
    source = DirectorySource(str(store), fails)
    with pytest.raises(SourceError, match=rf"{store}: .*binlog-000002\.ibb.* missing"):
        source.slices(Wanted(), 1 << 30)
    with (
        closing(source.feed()) as feed,
        pytest.raises(SourceError, match=rf"{store}: .*binlog-000002\.ibb.* missing"),
    ):
        list(feed.after(SlavePosition(), 0))


def test_the_last_file_is_missing(store: Path) -> None:
    """What is published is there, or it is an error."""
    last = file_numbers([p.name for p in store.iterdir()])[-1]
    parts = DirectorySource(str(store)).slices(Wanted(), 1 << 30)
    for number in (last, last - 1):
        (store / file_name(number)).unlink()
    with pytest.raises(SourceError, match=r"binlog-00000\d\.ibb"):
        read(DirectorySource(str(store)), Wanted())
    with pytest.raises(SourceError, match=r"binlog-00000\d\.ibb"):
        list(parts[-1].read())


def test_nothing_is_left(store: Path) -> None:
    parts = DirectorySource(str(store)).slices(Wanted(), 1 << 30)
    for path in store.iterdir():
        path.unlink()
    with pytest.raises(SourceError, match=r"has neither \.ibb files nor"):
        DirectorySource(str(store)).slices(Wanted(), 1)
    with pytest.raises(SourceError, match=r"binlog-000000\.ibb"):
        list(parts[0].read())
    store.rmdir()
    with pytest.raises(SourceError, match="there is no "):
        DirectorySource(str(store)).latest()


def torn(store: Path) -> int:
    """The last page that was written is lost, as after a power cut of a MariaDB; its number is returned."""
    for name in STOPPED_MARIADB:
        (store / name).unlink(missing_ok=True)
    names = sorted(p.name for p in store.iterdir())
    used = [n for n in names if (store / n).read_bytes()[PAGE_SIZE : 2 * PAGE_SIZE].strip(b"\0")]
    for name in names:
        if name not in used:
            (store / name).unlink()
    path = store / used[-1]
    data = path.read_bytes()
    pages = [data[at : at + PAGE_SIZE] for at in range(0, len(data), PAGE_SIZE)]
    last = max(i for i, page in enumerate(pages) if page.strip(b"\0"))
    path.write_bytes(b"".join(pages[:last]))
    return last


def test_a_torn_tail(store: Path) -> None:
    """Of a directory that nobody has recovered the last record may be cut short: nothing before it is lost."""
    assert torn(store) > 0
    source = DirectorySource(str(store))
    found = read(source, Wanted(), 3 * PAGE_SIZE)
    assert len(LOG) - 20 < len(found) < len(LOG)
    assert found == payloads(LOG[: len(found)])
    assert followed(source, SlavePosition(), random.Random(2)) == found
    assert source.latest() == state_after(LOG[: len(found)]).position()


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("interval", [2, 64])
def test_torn_anywhere(tmp_path: Path, rng: random.Random, interval: int) -> None:
    """However many pages at the end are lost: what is whole is read, in slices of any size, and nothing is an error.

    Records may begin in the file before the last one, and in a slice in which no other begins.
    """
    log = [
        made for n in range(1, 60) for made in simple(1, first=n, size=rng.choice((900, 60_000)))
    ]
    store = make_store(tmp_path / "store", log, small(8, interval))
    counts = set()
    for _ in range(25):
        torn(store)
        last = sorted(store.iterdir())[-1]
        if last.stat().st_size <= 2 * PAGE_SIZE:
            last.unlink()  # a file is there with its first page, or not at all
        with closing(OfflineBinlog.of_paths([store])) as binlog, suppress(TruncatedRecord):
            whole_ones = []
            for made in binlog.groups():
                whole_ones.append(b"".join(made.pieces()))
        source = DirectorySource(str(store))
        assert whole_ones == payloads(log[: len(whole_ones)])
        for pages in (1, 3, 40):
            assert read(source, Wanted(), pages * PAGE_SIZE) == whole_ones
        assert followed(source, SlavePosition(), rng) == whole_ones
        assert source.latest() == state_after(log[: len(whole_ones)]).position()
        for seq_no in range(max(1, len(whole_ones) - 2), len(whole_ones) + 1):
            wanted = Wanted(GtidRange(start=position(seq_no)))
            assert read(source, wanted, PAGE_SIZE) == whole_ones[seq_no:]
        counts.add(len(whole_ones))
    assert len(counts) > 5


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_published_within_a_group_that_is_open(tmp_path: Path, ends: str) -> None:
    """The durable end lies behind pieces of a large group that is not committed: nothing of it is there yet."""
    made = simple(20)
    large = group(Gtid(1, 1, 1), 40 * PAGE_SIZE)
    pieces = memoryview(large.payload)[len(gtid_event(Gtid(1, 1, 1))) :]
    tmp_path.joinpath("store").mkdir()
    engine = IbbEngine(OsDisk(tmp_path / "store"), SMALL_FILES)
    source = DirectorySource(str(tmp_path / "store"))

    def publish() -> None:
        settle(engine)

    with closing(engine), closing(source.feed()) as feed:
        append_all(engine, made[:10])
        writer = engine.begin()
        writer.spill(pieces[: 20 * PAGE_SIZE])
        append_all(engine, made[10:15])
        writer.spill(pieces[20 * PAGE_SIZE :])
        publish()
        published = source.published()
        assert published is not None
        assert published.end > Position(2, 0)  # behind pieces, else this test holds nothing
        for size in (1, 7, 1 << 30):
            assert read(source, Wanted(), size) == payloads(made[:15])
        assert sum(map(len, feed.after(SlavePosition(), 0))) == 15
        if ends == "commit":
            writer.commit(gtid_event(Gtid(1, 1, 1)), Gtid(1, 1, 1))
        else:
            writer.rollback()
        append_all(engine, made[15:])
        publish()
        expected = payloads(made[:15]) + [large.payload] * (ends == "commit") + payloads(made[15:])
        for size in (1, 7, 1 << 30):
            assert read(source, Wanted(), size) == expected
        found = [
            p for groups in feed.after(SlavePosition.parse("0-1-15"), 0) for p in whole(groups)
        ]
        assert found == expected[15:]


def test_what_is_published_has_gone(store: Path) -> None:
    (store / PUBLICATION_NAME).unlink()
    with pytest.raises(SourceError, match=r"not published there.* start it once"):
        DirectorySource(str(store)).slices(Wanted(), 1)


@pytest.mark.parametrize("since", [None, BackupPlace("a", 0, 0, 0)])
def test_a_backup_that_is_not_prepared(store: Path, since: BackupPlace | None) -> None:
    (store / PUBLICATION_NAME).unlink()
    manifest = Manifest(
        "innodb", "a", "b", "", 1, BackupPlace("a", 0, 1, 0), since=since, stage=WHOLE
    )
    write_manifest(OsDisk(store), manifest)
    told = "is an incremental backup" if since else "is a backup that is not prepared"
    with pytest.raises(SourceError, match=f"^{store} {told}: .*binlog-server prepare"):
        DirectorySource(str(store)).slices(Wanted(), 1)


def test_a_store_of_traditional_files(tmp_path: Path) -> None:
    """It publishes what is durable, as an .ibb store does, and is no empty one."""
    with closing(ClassicEngine(OsDisk(tmp_path), ClassicOptions())) as engine:
        append_all(engine, simple(3))
        engine.sync()
    source = DirectorySource(str(tmp_path))
    for asked in (source.latest, source.earliest, lambda: source.slices(Wanted(), 1)):
        with pytest.raises(
            SourceError, match=r"traditional binlog files, which binlog\.index names"
        ):
            asked()


def test_another_history(store: Path) -> None:
    source = DirectorySource(str(store))
    ahead = SlavePosition.parse("0-1-5000")
    for wanted in (ahead, SlavePosition.parse("9-1-1")):
        with pytest.raises(DataLost, match="another one, is behind, or has begun anew"):
            source.slices(Wanted(GtidRange(start=wanted)), 1)
        with pytest.raises(DataLost, match="another one, is behind, or has begun anew"):
            list(source.feed().after(wanted, 0))
    assert source.slices(Wanted(GtidRange(start=LAST.with_gtid(Gtid(9, 1, 1)))), 1) is not None


def test_a_store_that_begins_anew(store: Path) -> None:
    """RESET MASTER between planning and reading, and while a feed follows."""
    source = DirectorySource(str(store))
    parts = source.slices(Wanted(), 1 << 30)
    feed = source.feed()
    assert sum(map(len, feed.after(SlavePosition(), 0))) == len(LOG)
    shutil.rmtree(store)
    make_store(store, simple(1300, first=2, size=500), SMALL_FILES)
    with pytest.raises(SourceError, match="begun anew"):
        list(parts[0].read())
    feed.close()


@pytest.mark.parametrize("before_commit", [True, False])
def test_a_group_of_which_purge_has_left_a_half(tmp_path: Path, before_commit: bool) -> None:
    """Its commit is there, and its first pieces are not: what can be had begins behind it, as for a replica."""
    made = leave_half(tmp_path, before_commit=before_commit)
    whole_ones = payloads(made[20:])
    for mode in (True, False):
        source = DirectorySource(str(tmp_path), mode)
        assert source.earliest() == SlavePosition.parse("0-1-20,1-1-1")
        for size in (1, 9 * PAGE_SIZE, 1 << 30):
            assert read(source, Wanted(), size) == whole_ones
        assert source.parts(Wanted())
        behind = Wanted(GtidRange(SlavePosition.parse("0-1-25,1-1-1")))
        assert read(source, behind) == payloads(made[25:])
        with closing(source.feed()) as feed:
            found = [p for groups in feed.after(source.earliest(), 0) for p in whole(groups)]
            assert found == whole_ones
    before = SlavePosition.parse("0-1-15")
    with pytest.raises(DataLost):
        read(DirectorySource(str(tmp_path)), Wanted(GtidRange(before)))
    with pytest.raises(DataLost), closing(DirectorySource(str(tmp_path)).feed()) as feed:
        list(feed.after(before, 0))
    lost = DirectorySource(str(tmp_path), fail_on_data_loss=False)
    with pytest.warns(UserWarning, match="were purged"):
        found = read(lost, Wanted(GtidRange(before)))
    assert found == whole_ones
    offline = OfflineBinlog.of_directory(tmp_path)
    with closing(offline):
        assert payloads(made[20:]) == [b"".join(g.pieces()) for g in offline.groups()][-20:]
        assert len(offline.halves) == 1


class _Watched(OsDisk):
    """Calls `look` behind each change of a name, and each sync of those."""

    look: Callable[[], None] = staticmethod(lambda: None)

    def unlink(self, name: str) -> None:
        super().unlink(name)
        self.look()

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.look()

    def fsync_dir(self) -> None:
        super().fsync_dir()
        self.look()


def test_a_reset_at_any_step(tmp_path: Path) -> None:
    """RESET MASTER while a query is planned and while it reads: all of it, or it has begun anew. Never damage."""
    disk = _Watched(tmp_path)
    engine = IbbEngine(disk, SMALL_FILES)
    made = simple(1200, size=500)
    source = DirectorySource(str(tmp_path))
    refusals: list[str] = []
    whole: list[int] = []

    def look() -> None:
        for parts in (None, planned):
            try:
                found = read_slices(source.slices(Wanted(), 1 << 30) if parts is None else parts)
            except SourceError as error:
                refusals.append(str(error))
            else:
                assert found in (payloads(made), [])
                whole.append(len(found))

    with closing(engine):
        append_all(engine, made[:700])
        engine.flush()
        append_all(engine, made[700:])
        engine.flush()
        run_dry(engine)
        planned = source.slices(Wanted(), 4 * PAGE_SIZE)
        disk.look = look
        engine.reset()
        look()
        run_dry(engine)
        disk.look = lambda: None
        assert len(refusals) > 6
        assert all("begun anew (RESET MASTER)" in told for told in refusals), refusals
        assert whole
        assert read(source, Wanted()) == []


def test_a_flush_is_met_at_any_step(tmp_path: Path) -> None:
    """FLUSH has ended a file and begun the next, and its checkpoint is still to come: the flusher publishes first."""
    made = simple(15)
    engine = IbbEngine(OsDisk(tmp_path), SMALL_FILES)
    source = DirectorySource(str(tmp_path))
    with closing(engine), closing(source.feed()) as feed:
        append_all(engine, made[:10])
        engine.checkpoint()
        with engine._append_lock:
            assert engine._appender.next_file(set())
        append_all(engine, made[10:])
        engine.sync()
        assert engine._flusher.publish()
        assert [p for groups in feed.after(SlavePosition(), 0) for p in whole(groups)] == payloads(
            made
        )
        assert read(source, Wanted()) == payloads(made)
        offline = OfflineBinlog.of_directory(tmp_path)
        assert [b"".join(g.pieces()) for g in offline.groups()] == payloads(made)
        offline.close()


def test_a_truncated_file_is_told(store: Path) -> None:
    """Pages were lost in the middle of the log; the file is whole otherwise."""
    path = store / file_name(1)
    path.write_bytes(path.read_bytes()[: 9 * PAGE_SIZE])
    source = DirectorySource(str(store))
    with pytest.raises(SourceError, match=r"binlog-000001\.ibb"):
        read(source, Wanted())
