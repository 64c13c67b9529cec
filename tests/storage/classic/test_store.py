"""A store of traditional files: what it leaves in its directory, and what it opens. The promises: test_engines.py."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_protocol.events.checksum import (
    ChecksumAlgorithm,
    append_checksum,
    laid_out_events,
    normal_form,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_IN_USE, build_event, split_events
from binlog_protocol.groups import group_runs
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.classic import opening, small_commits
from binlog_storage.classic.binlog import read_head
from binlog_storage.classic.errors import DamagedBinlog
from binlog_storage.classic.event_reader import EventReader
from binlog_storage.classic.groups import FileGroups
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.classic.writing import FILE_START, FLAG_AT
from binlog_storage.classic.written_log import CACHE_BYTES
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Position, Xid
from binlog_storage.errors import (
    DiskError,
    DiskFull,
    FileMissing,
    NotAStore,
    PositionPurged,
    StoreInUse,
    WaitGivenUp,
)
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import (
    COMMIT_EVENT,
    append_all,
    append_run,
    begin_event,
    events,
    group,
    gtid_event,
    marker,
    payloads,
    read_all,
    read_from,
    simple,
    state_after,
)

SAMPLES = Path(__file__).parent.parent / "data" / "classic"
SMALL = ClassicOptions(max_binlog_size=4096)
INDEX = "binlog.index"


def opened(disk: MemoryDisk, options: ClassicOptions = SMALL) -> ClassicEngine:
    return ClassicEngine(disk, options)


def names(disk: MemoryDisk) -> list[str]:
    """But for GTID indexes, which test_file_indexes.py has."""
    found = (name for name in disk.names() if not name.startswith("binlog-server"))
    return sorted(name for name in found if not name.endswith(".idx"))


def types(data: bytes, tmp_path: Path) -> list[int]:
    """The types of the events of a file."""
    path = tmp_path / "file"
    path.write_bytes(data)
    with EventReader(path) as reader:
        return [event[4] for event in reader]


def with_groups(count: int = 30, options: ClassicOptions = SMALL) -> MemoryDisk:
    """A store that was closed."""
    disk = MemoryDisk()
    with closing(opened(disk, options)) as engine:
        append_all(engine, simple(count, size=400))
        engine.sync()
    return disk


# --- what it leaves ---


def test_the_files_of_a_store(tmp_path: Path) -> None:
    disk = MemoryDisk()
    engine = opened(disk, ClassicOptions(max_binlog_size=4096, server_id=9))
    for one in simple(20, size=400):
        engine.append(*one)
        engine.sync()
    assert [file.size for file in engine.files()] == [disk.size(n) for n in names(disk)[:-1]]
    assert names(disk) == ["binlog.000001", "binlog.000002", "binlog.000003", INDEX]
    assert disk.contents()[INDEX] == b"./binlog.000001\n./binlog.000002\n./binlog.000003\n"
    engine.close()
    contents = disk.contents()
    head = [EventType.FORMAT_DESCRIPTION, EventType.GTID_LIST, EventType.BINLOG_CHECKPOINT]
    for number, last in ((1, EventType.ROTATE), (2, EventType.ROTATE), (3, EventType.STOP)):
        data = contents[f"binlog.00000{number}"]
        assert not data[FLAG_AT] & FLAG_IN_USE
        found = types(data, tmp_path)
        assert found[:3] == head
        assert found[-1] == last
        assert found[3:-1:2] == [EventType.GTID] * (len(found[3:-1]) // 2)
        path = tmp_path / f"binlog.00000{number}"
        path.write_bytes(data)
        assert read_head(path).description.server_id == 9
    assert read_head(tmp_path / "binlog.000002").state == BinlogState([Gtid(0, 1, 10)])


def test_a_file_is_in_use_until_it_is_closed() -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    assert disk.contents()["binlog.000001"][FLAG_AT] & FLAG_IN_USE
    engine.flush()
    assert not disk.contents()["binlog.000001"][FLAG_AT] & FLAG_IN_USE
    assert disk.contents()["binlog.000002"][FLAG_AT] & FLAG_IN_USE
    engine.close()
    assert not disk.contents()["binlog.000002"][FLAG_AT] & FLAG_IN_USE


def test_a_start_of_the_server_is_the_description_of_its_file(tmp_path: Path) -> None:
    """As with MariaDB: a file begins at each start, and its time of creation says so. The first file has it, too."""
    disk = MemoryDisk()
    for number in (1, 2):
        with closing(opened(disk)) as engine:
            engine.append(*marker(number))
            assert len(engine.files()) == number
            append_all(engine, simple(2, first=2 * number - 1))
            engine.sync()
            assert len(engine.files()) == number
    for number in (1, 2):
        path = tmp_path / f"binlog.00000{number}"
        path.write_bytes(disk.contents()[path.name])
        description = read_head(path).description
        assert (description.created, description.checksum_algorithm) == (1 + number, 1)
    with closing(opened(disk)) as engine:
        wanted = [marker(1), *simple(2), marker(2), *simple(2, first=3)]
        assert read_from(engine, engine.first_start().position) == payloads(wanted)


def test_a_reader_at_the_end_of_an_empty_file_sees_the_start() -> None:
    engine = opened(MemoryDisk())
    end = engine.durable_end
    engine.append(*marker(1))
    assert engine.read(end).groups == []
    engine.sync()
    assert engine.read(end).groups == payloads([marker(1)])
    engine.close()


def test_checksums_are_those_of_the_file(tmp_path: Path) -> None:
    disk = MemoryDisk()
    with closing(opened(disk, ClassicOptions(binlog_checksum=0))) as engine:
        append_all(engine, simple(3))
        engine.sync()
    with closing(opened(disk, ClassicOptions(binlog_checksum=1))) as engine:
        append_all(engine, simple(3, first=4))
        engine.flush()
        append_all(engine, simple(3, first=7))
        engine.sync()
        assert read_all(engine) == payloads(simple(9))
    for number, algorithm in ((1, 0), (2, 1)):
        path = tmp_path / f"binlog.00000{number}"
        path.write_bytes(disk.contents()[path.name])
        assert read_head(path).description.checksum_algorithm == algorithm


@pytest.mark.parametrize("checksum", ChecksumAlgorithm)
@pytest.mark.parametrize("span", [1, 700, 65_536])
def test_a_run_lies_as_its_groups_one_by_one(
    checksum: ChecksumAlgorithm, span: int, rng: random.Random
) -> None:
    """Files begin behind the same groups; whatever is too large for a file, or for one piece, is alone."""
    sizes = [rng.choice((60, 90, 700, 3000, 5000)) for _ in range(200)] + [CACHE_BYTES - 500, 60]
    groups = [group(Gtid(0, 1, n), size) for n, size in enumerate(rng.sample(sizes, len(sizes)), 1)]
    options = replace(SMALL, binlog_checksum=checksum, binlog_gtid_index_span_min=span)
    contents, commits = [], []
    for add in (append_all, append_run):
        disk = MemoryDisk()
        with closing(ClassicEngine(disk, options, clock=lambda: 1e9)) as engine:
            add(engine, groups)
            engine.sync()
            commits.append(engine.counters()["Binlog_commits"])
            assert read_all(engine) == payloads(groups)
            for at in range(0, len(groups), 40):
                start = engine.find_start(state_after(groups[:at]).position())
                assert read_from(engine, start.position)[-1] == groups[-1].payload
                assert engine.state_at(start.position) == start.state
        contents.append({name: disk.contents()[name] for name in names(disk)})
    assert contents[0] == contents[1]
    assert commits == [len(groups)] * 2


def test_a_run_is_laid_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay's 2,000 groups: in a few pieces, each up to a record of the GTID index."""
    pieces: list[int] = []

    def laid_out(payload: bytes, begin: int, algorithm: int) -> bytes:
        pieces.append(len(payload))
        return laid_out_events(payload, begin, algorithm)

    monkeypatch.setattr(small_commits, "laid_out_events", laid_out)
    monkeypatch.setattr(small_commits, "_RUN_S", 60)
    groups = simple(2000, size=200)
    with closing(opened(MemoryDisk(), ClassicOptions())) as engine:
        append_run(engine, groups)
        assert sum(pieces) == sum(map(len, payloads(groups)))
        assert len(pieces) < 10
        engine.sync()
        assert read_all(engine) == payloads(groups)


def test_an_open_group_leaves_nothing() -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    writer = engine.begin()
    writer.spill(events(100_000, "a"))
    assert disk.names(CACHE_FOLDER) == ["ML_1"]
    disk.kill()
    engine = opened(disk)
    assert not disk.names(CACHE_FOLDER)
    writer = engine.begin()
    writer.spill(events(2_000_000, "a") + COMMIT_EVENT)
    writer.commit(begin_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    assert not disk.names(CACHE_FOLDER)
    engine.sync()
    assert [len(p) for p in read_all(engine)] == [38 + 2_000_000 + 27]
    engine.close()


def test_a_cache_file_that_cannot_be_removed_ends_no_transaction() -> None:
    """Committed is committed: the file goes with the next start."""

    def fails(kind: str, name: str) -> None:
        if kind == "unlink" and name.startswith(CACHE_FOLDER):
            raise DiskError(f"cannot remove {name}: Read-only file system (injected)")

    disk = MemoryDisk()
    engine = opened(disk)
    disk.fault = fails
    for n in range(1, 3):
        writer = engine.begin()
        writer.spill(events(2_000_000, "a") + COMMIT_EVENT)
        writer.commit(begin_event(Gtid(0, 1, n)), Gtid(0, 1, n))
    engine.sync()
    assert len(read_all(engine)) == 2
    assert len(disk.names(CACHE_FOLDER)) == 2
    engine.close()
    disk.fault = None
    engine = opened(disk)
    assert not disk.names(CACHE_FOLDER)
    engine.close()


# --- what it opens ---


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
def test_it_goes_on_behind_mariadb(tmp_path: Path, sample: str) -> None:
    shutil.copytree(SAMPLES / sample, tmp_path, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    paths = sorted(tmp_path.glob("m-bin.0*"))
    known = [b"".join(one.pieces()) for one in classic_groups(paths)]
    gtids = [one.gtid for one in classic_groups(paths) if one.gtid is not None]
    for turn in range(3):
        with closing(ClassicEngine(OsDisk(tmp_path), ClassicOptions("m-bin"))) as engine:
            state = BinlogState(gtids)
            assert engine.binlog_state() == state
            found = read_from(engine, engine.first_start().position)
            assert found == known
            # A MariaDB that was stopped has closed its last file.
            killed = sample.endswith("crashed-in-use")
            assert len(engine.files()) == len(paths) + (not killed)
            gtid = Gtid(5, 5, turn + 1)
            payload = group(gtid, 500).payload
            engine.append(payload, gtid)
            engine.sync()
            known.append(payload)
            gtids.append(gtid)
    for path in paths:
        now = path.read_bytes()
        if killed and path == paths[-1]:
            now = now[: len(before[path.name])]
            now = now[:FLAG_AT] + before[path.name][FLAG_AT : FLAG_AT + 1] + now[FLAG_AT + 1 :]
        assert now == before[path.name]
    assert not (tmp_path / "m-bin.state").exists()


def test_a_torn_tail_is_cut_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    ends = [engine.append(*one).offset for one in simple(5, size=200)]
    engine.sync()
    data = disk.contents()["binlog.000001"]
    disk.kill()
    assert len(data) == ends[-1]
    for size in [*range(ends[2], len(data), 13), ends[3], ends[3] + 1, ends[4] - 1, ends[4]]:
        whole = sum(end <= size for end in ends)
        torn = MemoryDisk({"binlog.000001": data[:size], INDEX: b"./binlog.000001\n"})
        with closing(opened(torn)) as engine:
            assert engine.binlog_state() == state_after(simple(whole))
            assert read_all(engine) == payloads(simple(whole, size=200))
            assert engine.written_end.offset == ends[whole - 1]
            append_all(engine, simple(1, first=whole + 1))
            engine.sync()
        kept = torn.contents().get("binlog.000001.broken", b"")
        assert kept == data[ends[whole - 1] : size]
        with closing(opened(torn)) as engine:
            assert engine.binlog_state() == state_after(simple(whole + 1))
    assert "cut a torn tail" in caplog.text


def test_the_beginning_of_a_large_group_is_cut_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A kill within its copy leaves gigabytes; what is damaged is kept, whatever its size."""
    monkeypatch.setattr(opening, "KEPT_BYTES_MAX", 300)
    disk = MemoryDisk()
    engine = opened(disk)
    ends = [engine.append(*one).offset for one in simple(2, size=1000)]
    engine.sync()
    data = disk.contents()["binlog.000001"]
    disk.kill()
    damaged = bytearray(data)
    damaged[ends[0] + 30] ^= 1
    cases = ((data[: ends[0] + 200], True), (data[:-9], False), (bytes(damaged), True))
    for torn, is_kept in cases:
        left = MemoryDisk({"binlog.000001": torn, INDEX: b"./binlog.000001\n"})
        with closing(opened(left)) as engine:
            assert read_all(engine) == payloads(simple(1, size=1000))
        assert ("binlog.000001.broken" in left.contents()) is is_kept
    assert "the beginning of group 0-1-2, which was being written" in caplog.text


@pytest.mark.parametrize("garbage", [bytes(3000), b"\xff" * 700, bytes(512) + b"x" * 512])
def test_what_a_power_cut_leaves_behind_the_end(garbage: bytes) -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    append_all(engine, simple(5, size=200))
    engine.sync()
    data = disk.contents()["binlog.000001"]
    torn = MemoryDisk({"binlog.000001": data + garbage, INDEX: b"./binlog.000001\n"})
    with closing(opened(torn)) as engine:
        assert read_all(engine) == payloads(simple(5, size=200))
    assert torn.contents()["binlog.000001.broken"] == garbage


def test_damage_in_a_closed_file_is_refused() -> None:
    disk = with_groups(5)
    contents = disk.contents()
    data = bytearray(contents["binlog.000001"])
    data[600] ^= 1
    damaged = MemoryDisk(contents | {"binlog.000001": bytes(data)})
    with pytest.raises(DamagedBinlog, match=r"binlog\.000001 is damaged at offset"):
        opened(damaged)
    assert damaged.contents()["binlog.000001"] == data
    opened(disk).close()  # the lock was given up


def test_readers_find_damage_in_older_files() -> None:
    contents = with_groups().contents()
    data = bytearray(contents["binlog.000001"])
    data[600] ^= 1
    with closing(opened(MemoryDisk(contents | {"binlog.000001": bytes(data)}))) as engine:
        with pytest.raises(DamagedBinlog):
            engine.read(engine.first_start().position)
        at = engine.find_start(SlavePosition([Gtid(0, 1, 20)])).position
        assert read_from(engine, at) == payloads(simple(10, first=21, size=400))


def test_a_file_that_ends_too_soon_is_told() -> None:
    disk = MemoryDisk()
    with closing(opened(disk)) as engine:
        ends = []
        for one in simple(12, size=400):
            ends.append(engine.append(*one))
            engine.sync()
    contents = disk.contents()
    cut = next(end.offset for end in reversed(ends) if end.file_no == 1 and end.offset < 3000)
    short = contents | {"binlog.000001": contents["binlog.000001"][:cut]}
    words = r"ends behind 0-1-\d+, but binlog\.000002 begins"
    with (
        closing(opened(MemoryDisk(short))) as engine,
        pytest.raises(DamagedBinlog, match=words),
    ):
        engine.read(engine.first_start().position)


@pytest.mark.parametrize(
    "index",
    [
        b"binlog.000001\n/var/lib/mysql/binlog.000002\n./binlog.000003\n./binlog.000004\n",
        b"./binlog.000001\n./binlog.000002\n./binlog.000003\n./binlog.000004",
        b"./binlog.000001\n./binlog.000002\n./binlog.000003\n./binlog.000004\n\n./binlog.000007\n",
    ],
)
def test_lines_of_the_index(index: bytes) -> None:
    disk = with_groups()
    assert len(names(disk)) == 5
    with closing(opened(MemoryDisk(disk.contents() | {INDEX: index}))) as engine:
        assert read_all(engine) == payloads(simple(30, size=400))
        engine.flush()
        assert [file.number for file in engine.files()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (b"./binlog.000001\r\n", r"has './binlog.000001\\r'"),
        (b"./binlog.000002\n./binlog.000001\n", "behind the one before"),
        (b"./other.000001\n", "no binlog file of 'binlog'"),
        (b"./binlog.000001./binlog.000002\n", "no binlog file of 'binlog'"),
        (b"./binlog.000001\n./binlog.000009\n", "as its last file, which is not there"),
    ],
)
def test_an_index_that_cannot_be_right(index: bytes, words: str) -> None:
    contents = with_groups().contents() | {INDEX: index}
    disk = MemoryDisk(contents)
    with pytest.raises(NotAStore, match=words):
        opened(disk)
    assert disk.contents() == contents


def test_files_without_an_index_are_left_as_they_are() -> None:
    contents = with_groups().contents()
    del contents[INDEX]
    with pytest.raises(NotAStore, match=r"there are binlog files \(binlog.000001 \.\.\.\)"):
        opened(MemoryDisk(contents))


def test_a_line_that_is_missing_is_told() -> None:
    index = b"./binlog.000001\n./binlog.000002\n./binlog.000004\n"
    disk = MemoryDisk(with_groups().contents() | {INDEX: index})
    words = r"binlog\.000002 is damaged .* ends behind 0-1-\d+, but binlog\.000004 begins"
    with closing(opened(disk)) as engine, pytest.raises(DamagedBinlog, match=words):
        read_all(engine)


def test_a_missing_file_ends_what_is_served(caplog: pytest.LogCaptureFixture) -> None:
    contents = with_groups().contents()
    del contents["binlog.000002"]
    with closing(opened(MemoryDisk(contents))) as engine:
        assert [file.number for file in engine.files()] == [3, 4]
        with pytest.raises(PositionPurged):
            engine.find_start(SlavePosition([Gtid(0, 1, 1)]))
        with pytest.raises(PositionPurged):
            engine.read(Position(2, FILE_START))
        assert engine.binlog_state() == state_after(simple(30))
    assert "binlog.000002 is missing" in caplog.text


def test_files_that_were_being_made_or_deleted_go() -> None:
    contents = with_groups().contents()
    contents |= {
        "binlog.000009": b"half",
        "binlog.000009.idx": b"half",
        "binlog.~rec~": b"./binlog.000009\n./binlog.000001\n",
    }
    disk = MemoryDisk(contents)
    with closing(opened(disk)) as engine:
        assert len(engine.files()) == 4
        engine.flush()
        assert engine.written_end.file_no == 5
    assert "binlog.~rec~" not in disk.names()


def test_numbers_skip_what_lies_there() -> None:
    contents = with_groups(2).contents() | {"binlog.1000009": b"stray"}
    disk = MemoryDisk(contents)
    with closing(opened(disk)) as engine:
        engine.flush()
        assert engine.written_end.file_no == 1000010
        assert "binlog.1000010" in disk.names()
        append_all(engine, simple(1, first=3))
        engine.reset()
        assert engine.files()[0].number == 1000010


def test_the_last_number() -> None:
    contents = with_groups(2).contents() | {"binlog.2147483647": b"stray"}
    engine = opened(MemoryDisk(contents))
    with pytest.raises(DiskError, match="Can't generate a unique log-filename"):
        engine.flush()
    append_all(engine, simple(1, first=3))
    engine.sync()
    assert len(read_all(engine)) == 3
    engine.close()


def test_a_store_is_open_once(tmp_path: Path) -> None:
    with (
        closing(ClassicEngine(OsDisk(tmp_path))),
        pytest.raises(StoreInUse),
    ):
        ClassicEngine(OsDisk(tmp_path))


def test_a_wrong_state_file_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    for text, words in ((b"0-1-99\n", "that counts"), (b"nonsense", "cannot be read")):
        contents = with_groups(3).contents() | {"binlog.state": text}
        with closing(opened(MemoryDisk(contents))) as engine:
            assert engine.binlog_state() == state_after(simple(3))
        assert words in caplog.text


# --- purge, limits, a full disk ---


def test_purge_takes_files_and_their_lines() -> None:
    disk = with_groups()
    with closing(
        opened(disk, ClassicOptions(max_binlog_size=4096, slave_connections_needed_for_purge=0))
    ) as engine:
        hold = engine.hold("5", Position(3, FILE_START), dump=True)
        plan = engine.purge_to(4)
        assert (plan.delete, plan.kept) == ([1, 2], 3)
        assert [file.number for file in engine.files()] == [3, 4]
        assert disk.contents()[INDEX] == b"./binlog.000003\n./binlog.000004\n"
        assert "binlog.000001" not in disk.names()
        hold.release()
        assert engine.purge_to(4).delete == [3]
        assert engine.purge_to(1).delete == []
    with closing(opened(disk)) as engine:
        assert [file.number for file in engine.files()] == [4]


@pytest.mark.parametrize(
    "limit", [{"max_binlog_total_size": 9000}, {"binlog_expire_logs_seconds": 100}]
)
def test_limits_of_age_and_size(limit: dict[str, int]) -> None:
    disk = with_groups()
    disk.times = {"binlog.000001": 50.0, "binlog.000002": 60.0, "binlog.000003": 900.0}
    options = ClassicOptions(max_binlog_size=4096, slave_connections_needed_for_purge=0, **limit)  # type: ignore[arg-type]
    with closing(ClassicEngine(disk, options, clock=lambda: 950.0)) as engine:
        hold = engine.hold("archive")
        engine.step()
        held = engine.purge_held()
        assert held is not None
        assert held.holder.name == "archive"
        hold.release()
        engine.step()
        assert engine.purge_held() is None
        assert [file.number for file in engine.files()] == [3, 4]


def test_only_limits_ask_for_replicas() -> None:
    """As in MariaDB 10.11 and 11.8: PURGE does not. (That of 12.3, of `.ibb` files, does.)"""
    options = ClassicOptions(max_binlog_size=4096, max_binlog_total_size=1)
    with closing(opened(with_groups(), options)) as engine:
        engine.step()
        held = engine.purge_held()
        assert held is not None
        assert held.holder.kind == "replicas_missing"
        assert [fate.goes for fate in engine.explain_purge()] == [False] * 4
        assert [fate.goes for fate in engine.explain_purge(to=3)] == [True, True, False, False]
        assert engine.purge_to(3).delete == [1, 2]
        hold = engine.hold("5", Position(4, FILE_START), dump=True)
        engine.step()
        assert [file.number for file in engine.files()] == [4]
        hold.release()


def test_options_are_checked_and_changed() -> None:
    wrong: list[dict[str, object]] = [
        {"max_binlog_size": 4095},
        {"log_bin": "a/b"},
        {"server_version": "binsrv"},
    ]
    for options in wrong:
        with pytest.raises(ValueError, match="must"):
            ClassicOptions(**options)  # type: ignore[arg-type]
    with closing(opened(MemoryDisk(), ClassicOptions())) as engine:
        with pytest.raises(ValueError, match="max_binlog_size"):
            engine.set_option("max_binlog_size", 1)
        engine.set_option("max_binlog_size", engine.max_binlog_size_min)
        append_all(engine, simple(20, size=400))
        assert len(engine.files()) == 2


def test_a_full_disk_is_waited_for() -> None:
    disk = MemoryDisk()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 3:
            disk.capacity = 1 << 40

    engine = ClassicEngine(disk, SMALL, wait_for_room=wait)
    append_all(engine, simple(3, size=400))
    disk.capacity = disk.used() + 100
    engine.sync()
    assert len(waits) == 4
    assert engine.has_room
    assert read_all(engine) == payloads(simple(3, size=400))
    engine.close()


@pytest.mark.parametrize("why", ["full disk", "a new file begins", "rows"])
def test_a_thread_that_must_not_wait_does_not_write_the_log(why: str) -> None:
    """It is told so at once; another one does it."""
    disk = MemoryDisk()

    def waits(seconds: float) -> None:
        assert threading.get_ident() != here, "it has waited"
        disk.capacity = 1 << 40

    here = threading.get_ident()
    facts = StateStore(disk) if why == "rows" else None
    with closing(ClassicEngine(disk, SMALL, wait_for_room=waits, facts=facts)) as engine:
        engine.never_wait_in(here)
        append_all(engine, simple(3, size=400))
        engine.write_log()
        written = disk.contents()["binlog.000001"]
        append_all(engine, simple(3, first=4, size=400))
        with contextlib.ExitStack() as stack:
            if why == "full disk":
                disk.capacity = disk.used() + 100
            elif why == "rows":
                trx = engine.tables.begin()
                trx.create_table(1, b"")
                (seventh,) = simple(1, first=7)
                assert seventh.gtid is not None
                engine.append_with(seventh.payload, seventh.gtid, trx)
            else:
                held, ends = threading.Event(), threading.Event()

                def hold() -> None:
                    with engine._log.writing:
                        held.set()
                        ends.wait(20)

                holding = threading.Thread(target=hold)
                holding.start()
                stack.callback(holding.join)
                stack.callback(ends.set)
                held.wait(20)
            with pytest.raises(WaitGivenUp):
                engine.write_log()
        assert disk.contents()["binlog.000001"] == written
        writing = threading.Thread(target=engine.write_log)
        writing.start()
        writing.join(20)
        assert disk.contents()["binlog.000001"] > written


@pytest.mark.parametrize("what", ["flush", "reset", "marker"])
def test_nothing_is_half_done_on_a_full_disk(what: str) -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, SMALL, wait_for_room=lambda _: engine.stop_waiting())
    append_all(engine, simple(3, size=400))
    engine.sync()
    do: dict[str, Callable[[], object]] = {
        "flush": engine.flush,
        "reset": engine.reset,
        "marker": lambda: engine.append(*marker(1)),
    }
    before = disk.contents()
    disk.capacity = disk.used() + 30
    with pytest.raises((WaitGivenUp, DiskFull)):
        do[what]()
    assert {n: d for n, d in disk.contents().items() if n != INDEX + ".new"} == before
    assert read_all(engine) == payloads(simple(3, size=400))
    engine.close()
    disk.capacity = 1 << 40
    with closing(opened(disk)) as engine:
        assert read_all(engine) == payloads(simple(3, size=400))


def test_the_binlog_goes_on_beyond_its_size_without_room_for_a_file() -> None:
    disk = MemoryDisk()

    def full(kind: str, name: str) -> None:
        if kind == "create":
            raise DiskFull("no room for a file (injected)")

    engine = ClassicEngine(disk, SMALL, wait_for_room=lambda _: None)
    disk.fault = full
    append_all(engine, simple(20, size=400))
    engine.sync()
    assert len(engine.files()) == 1
    disk.fault = None
    engine.sync()
    assert len(engine.files()) == 2
    assert read_all(engine) == payloads(simple(20, size=400))
    engine.close()


def test_purge_works_on_a_full_disk() -> None:
    disk = with_groups()
    options = ClassicOptions(max_binlog_size=4096, slave_connections_needed_for_purge=0)
    engine = opened(disk, options)
    disk.capacity = disk.used()
    assert engine.purge_to(4).delete == [1, 2, 3]
    assert disk.contents()[INDEX] == b"./binlog.000004\n"
    engine.close()


def test_purge_of_a_disk_that_stays_full() -> None:
    """As where another program takes the room at once: the files are gone, and that is no error."""
    disk = with_groups()
    options = ClassicOptions(max_binlog_size=4096, slave_connections_needed_for_purge=0)
    engine = opened(disk, options)
    last = disk.contents()[INDEX].split(b"\n")[-2]
    disk.capacity = 0
    assert engine.purge_to(4).delete == [1, 2, 3]
    assert engine.files()[0].number == 4
    assert b"binlog.000003" in disk.contents()[INDEX]
    with closing(opened(MemoryDisk(disk.contents()), options)) as another:
        assert another.files()[0].number == 4
    engine._purging.worker.step()
    assert b"binlog.000003" in disk.contents()[INDEX]
    disk.capacity = 1 << 40
    engine._purging.worker.step()
    assert disk.contents()[INDEX].split(b"\n")[0] == b"./binlog.000004"
    assert disk.contents()[INDEX].split(b"\n")[-2] == last
    engine.close()


def checkpoint_of(disk: MemoryDisk, name: str, tmp_path: Path) -> str:
    """The file that a recovery of a MariaDB would begin with."""
    path = tmp_path / name
    path.write_bytes(disk.contents()[name])
    groups = FileGroups(path)
    with closing(groups):
        for _ in groups.items():
            pass
        return groups.checkpoint


def test_files_behind_a_crash_name_the_one_where_a_recovery_begins(tmp_path: Path) -> None:
    """A MariaDB may have been killed there, with transactions that it had only prepared."""
    disk = with_groups(5)
    options = ClassicOptions(max_binlog_size=4096, slave_connections_needed_for_purge=0)
    opened(disk, options)
    disk.kill()
    engine = opened(disk, options)
    engine.flush()
    assert checkpoint_of(disk, "binlog.000002", tmp_path) == "binlog.000001"
    engine.close()
    engine = opened(disk, options)
    engine.flush()
    assert checkpoint_of(disk, "binlog.000003", tmp_path) == "binlog.000001"
    assert engine.purge_to(3).delete == [1, 2]
    # A MariaDB would not start if the last file named one that is gone.
    assert [file.number for file in engine.files()] == [3, 4]
    assert checkpoint_of(disk, "binlog.000004", tmp_path) == "binlog.000004"
    engine.close()


# --- XA ---


def test_a_prepared_transaction_lies_beside_the_binlog() -> None:
    disk = MemoryDisk()
    name = Xid(1, b"g", b"b")
    with closing(opened(disk)) as engine:
        writer = engine.begin()
        writer.spill(events(300_000, "xa") + COMMIT_EVENT)
        writer.prepare(name)
        assert len([n for n in disk.names() if "xa" in n]) == 1
    with closing(opened(disk)) as engine:
        assert engine.prepared() == [name]
        engine.commit_prepared(name, begin_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
        engine.sync()
        assert not [n for n in disk.names() if "xa" in n]


def test_a_damaged_prepared_transaction_refuses_the_start() -> None:
    disk = MemoryDisk()
    with closing(opened(disk)) as engine:
        writer = engine.begin()
        writer.spill(events(300, "xa"))
        writer.prepare(Xid(1, b"g"))
    contents = disk.contents()
    (file,) = [name for name in contents if "server.xa" in name]
    for data in (contents[file][:200], b"x" + contents[file][1:], contents[file][:-1]):
        with pytest.raises(NotAStore, match=r"binlog-server\.xa"):
            opened(MemoryDisk(contents | {file: data}))


def test_a_prepared_transaction_that_is_damaged_is_not_committed() -> None:
    disk = MemoryDisk()
    name = Xid(1, b"g")
    with closing(opened(disk)) as engine:
        writer = engine.begin()
        writer.spill(events(300, "xa"))
        writer.prepare(name)
    contents = disk.contents()
    (file,) = [name for name in contents if "server.xa" in name]
    data = bytearray(contents[file])
    data[-9] ^= 1
    with closing(opened(MemoryDisk(contents | {file: bytes(data)}))) as engine:
        with pytest.raises(DamagedBinlog, match="CRC-32 of the prepared transaction"):
            engine.commit_prepared(name, gtid_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
        assert engine.prepared() == [name]
        append_all(engine, simple(1))
        engine.sync()
        assert read_all(engine) == payloads(simple(1))
        engine.rollback_prepared(name)
        assert engine.prepared() == []


def test_an_incident_between_groups_is_passed(tmp_path: Path) -> None:
    """MariaDB writes it where it has lost changes; the groups around it stay what they are."""
    disk = with_groups(3, ClassicOptions())
    data = disk.contents()["binlog.000001"]
    body = (1).to_bytes(2, "little") + bytes([31]) + b"error writing to the binary log"
    incident = append_checksum(build_event(EventType.INCIDENT, body, server_id=1))
    contents = disk.contents() | {"binlog.000001": data[:-23] + incident}
    with closing(opened(MemoryDisk(contents))) as engine:
        append_all(engine, simple(1, first=4))
        engine.sync()
        assert read_all(engine) == [*payloads(simple(3, size=400)), *payloads(simple(1, first=4))]
        assert gtid_event(Gtid(0, 1, 4)) in read_all(engine)[-1]


def test_a_disk_that_is_not_there(tmp_path: Path) -> None:
    engine = ClassicEngine(OsDisk(tmp_path))
    append_all(engine, simple(3))
    engine.flush()
    (tmp_path / "binlog.000001").unlink()
    with pytest.raises((PositionPurged, FileMissing)):
        engine.read(Position(1, FILE_START))
    engine.close()


# --- events as they lie in the files ---


def test_batches_are_the_same_without_the_loop_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of plain groups, of others between them, and up to damage."""
    disk = MemoryDisk()
    groups = [group(Gtid(i % 3 // 2, 1 + i % 5 // 4, i), 700 + i % 7) for i in range(1, 4000)]
    with closing(opened(disk, ClassicOptions(max_binlog_size=1 << 24))) as engine:
        append_all(engine, groups[:3000])
        engine.sync()
        engine.append(marker(5).payload, None)
        append_all(engine, groups[3000:])
        engine.sync()

        def batches() -> list[object]:
            found: list[object] = []
            at = engine.first_start().position
            try:
                while at < engine.durable_end:
                    batch = engine.read_stored(at, with_cuts=False)
                    found.append(batch)
                    at = batch.end
            except DamagedBinlog as error:
                found.append(str(error))
            return found

        for damaged in (False, True):
            if damaged:
                with closing(disk.open(engine.file_name(1))) as file:
                    file.pwrite(b"?", engine.files()[0].size * 3 // 4)
            in_c = batches()
            with monkeypatch.context() as patch:
                patch.setattr(group_runs, "HAS_C", False)
                assert batches() == in_c
            assert len(in_c) > 1
            assert isinstance(in_c[-1], str) == damaged


def test_events_as_they_lie_there() -> None:
    """The batches of both kinds end where those of groups do, and together they are the files but for the heads."""
    disk = MemoryDisk()
    options = ClassicOptions(max_binlog_size=1 << 20)
    with closing(opened(disk, options)) as engine:
        append_all(engine, simple(3000, size=300))
        engine.flush()
        engine.append(marker(5).payload, None)
        append_all(engine, [group(Gtid(0, 1, 3001), 400), group(Gtid(0, 1, 3002), 70_000)])
        engine.large_group_bytes = 1 << 16
        engine.sync()
        found: dict[int, bytes] = {}
        at = engine.first_start().position
        while at < engine.durable_end:
            placed, batch = engine.read_placed(at), engine.read_stored(at)
            if batch.large is not None:
                assert placed.large is not None
                whole = b"".join(batch.large.pieces())
                assert [normal_form(e, 0) for e in split_events(whole)] == list(
                    split_events(b"".join(placed.large.pieces()))
                )
            assert engine.read_stored(at, with_cuts=False)[:3] == batch[:3]
            assert batch.cuts == sorted(set(batch.cuts))
            assert (batch.cuts[-1] if batch.cuts else 0) == len(batch.data)
            begin = disk.contents()[engine.file_name(at.file_no)][batch.begin :]
            if batch.begin != FILE_START:
                assert begin.startswith(batch.data)
            found[at.file_no] = found.get(at.file_no, b"") + batch.data
            at = batch.end
        assert len(found) > 1
        for number in list(found)[:-1]:
            whole = disk.contents()[engine.file_name(number)]
            assert whole[engine.head(number).end :] == found[number]


@pytest.mark.parametrize("how", ["flush", "marker", "reset", "rename"])
def test_a_file_has_the_checksums_of_its_head_though_the_option_changes_meanwhile(how: str) -> None:
    """SET GLOBAL binlog_checksum beside another thread that begins a file."""
    disk = MemoryDisk()
    options = ClassicOptions(binlog_large_commit_threshold=20_000)
    with closing(ClassicEngine(disk, options)) as engine:
        append_all(engine, simple(1))
        engine.sync()
        changed: list[str] = []

        def change(what: str, name: str) -> None:
            is_made = what == "create" and name in ("binlog.000002", "binlog.reset")
            if is_made or (what == "rename" and name.startswith(CACHE_FOLDER)):
                changed.append(name)
                engine.set_option("binlog_checksum", ChecksumAlgorithm.NONE)

        wanted = payloads(simple(1))
        if how == "rename":
            writer = engine.begin()
            writer.spill(events(50_000, "rows") + COMMIT_EVENT)
        disk.fault = change
        if how == "flush":
            engine.flush()
        elif how == "marker":
            engine.append(*marker(2))
            wanted += payloads([marker(2)])
        elif how == "reset":
            engine.reset(BinlogState())
            wanted = []
        else:
            writer.commit(begin_event(Gtid(0, 1, 2)), Gtid(0, 1, 2))
        assert changed
        disk.fault = None
        append_all(engine, simple(2, first=3))
        engine.sync()
        engine.flush()
        append_all(engine, simple(1, first=5))
        engine.sync()
        found = read_all(engine)
        assert found[: len(wanted)] == wanted
        assert found[-3:] == payloads(simple(3, first=3))
    with closing(ClassicEngine(disk, options)) as engine:
        assert read_all(engine) == found
