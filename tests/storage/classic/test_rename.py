"""Commit by rename: the cache file of a large group becomes a binlog file; and when it is copied instead."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import CHECKSUM_SIZE, ChecksumAlgorithm
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import EventHeader, split_events
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.classic.event_reader import EventReader
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.classic.write_behind import LEFT_BYTES_MAX, WriteBehind
from binlog_storage.classic.xa_files import PreparedFile, PreparedFiles
from binlog_storage.disk.disk import OsDisk, OsFile
from binlog_storage.engine import Xid
from binlog_storage.errors import DiskError, DiskFull, WaitGivenUp, XaStateError
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.classic.test_crash import without_padding
from tests.storage.crash.recorder import RecordingDisk, Rename, Write
from tests.storage.groups import (
    COMMIT_EVENT,
    append_all,
    begin_event,
    events,
    gtid_event,
    payloads,
    read_all,
    read_from,
    simple,
)

RENAMING = ClassicOptions(binlog_large_commit_threshold=60_000)
ONE = Gtid(0, 1, 11)
ROWS = b"".join(events(700, f"{number}") for number in range(100))
WHOLE = begin_event(ONE) + ROWS + COMMIT_EVENT
SECOND = "binlog.000002"


def commit(engine: ClassicEngine, *pieces: bytes, gtid: Gtid = ONE, statement: bytes = b"") -> None:
    writer = engine.begin()
    for piece in pieces:
        writer.spill(piece)
    if statement:
        writer.spill(statement, statement=True)
    writer.commit(begin_event(gtid), gtid)


def headers(data: bytes) -> list[tuple[int, EventHeader]]:
    """The events of a file, and where each begins."""
    at, found = 4, []
    while at < len(data):
        header = EventHeader.parse(data[at : at + 19])
        found.append((at, header))
        at += header.length
    return found


def test_the_file_is_as_11_8_writes_it(tmp_path: Path) -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, RENAMING)
    append_all(engine, simple(10))
    commit(engine, ROWS, COMMIT_EVENT)
    assert engine.durable_end == engine.written_end, "it is durable without a sync"
    assert [file.number for file in engine.files()] == [1, 2]
    assert not disk.names(CACHE_FOLDER)
    data = disk.contents()[SECOND]
    found = headers(data)
    kinds = [header.type for _, header in found]
    assert kinds == [15, 163, 161, 162, *[250] * 100, 16]
    begin, gtid = found[3]
    assert (begin + gtid.length) % 4096 == 0, "the GTID event fills what was reserved"
    assert gtid.end_position == begin + gtid.length
    assert {header.end_position for _, header in found[4:-1]} == {0}
    assert found[-1][1].end_position == len(data)
    (tmp_path / SECOND).write_bytes(data)
    with EventReader(tmp_path / SECOND) as reader:  # and all checksums are right
        assert len(list(reader)) == len(found)
    append_all(engine, simple(1, first=12))
    engine.sync()
    engine.close()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        first, *_, large, last = read_all(engine)
        assert (first, last) == (simple(1)[0].payload, simple(1, first=12)[0].payload)
        event = next(split_events(large))
        assert GtidEvent.parse(event).gtid == ONE
        assert without_padding(large) == WHOLE
        assert engine.binlog_state() == BinlogState([Gtid(0, 1, 12)])
        start = engine.find_start(engine.binlog_state().position())
        assert read_from(engine, start.position) == []
        behind = engine.find_start(BinlogState([ONE]).position())
        assert (behind.position.file_no, behind.position.offset) == (2, found[-1][1].end_position)
        before = engine.find_start(BinlogState([Gtid(0, 1, 10)]).position())
        assert len(read_from(engine, before.position)) == 2


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("cut", [1, 7, 19, 100, 4096, 66_000])
@pytest.mark.parametrize("algorithm", ChecksumAlgorithm)
def test_events_cut_anywhere(cut: int, algorithm: ChecksumAlgorithm) -> None:
    """Long events are laid out as they come; the last one may be one."""
    options = replace(RENAMING, binlog_checksum=algorithm)
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, options)) as engine:
        data = events(90_000, "a") + events(30, "b") + events(70_000, "c") + COMMIT_EVENT
        commit(engine, *(data[at : at + cut] for at in range(0, len(data), cut)))
        more = events(30, "d") + events(70_000, "e") + COMMIT_EVENT
        commit(engine, events(25, "s"), more, gtid=Gtid(0, 1, 12), statement=events(66_000, "f"))
        alone = [
            (Gtid(0, 1, number), events(size, "g")) for number, size in ((13, 70_000), (14, 65_600))
        ]
        for gtid, event in alone:
            writer = engine.begin()
            for at in range(0, len(event), cut):
                writer.spill(event[at : at + cut])
            writer.commit(gtid_event(gtid), gtid)
            if gtid.seq_no == 13:
                engine.set_option("binlog_large_commit_threshold", 1 << 30)
        engine.sync()
        found = [without_padding(payload) for payload in read_all(engine)]
        assert found == [
            begin_event(ONE) + data,
            begin_event(Gtid(0, 1, 12)) + events(66_000, "f") + events(25, "s") + more,
            *(gtid_event(gtid) + event for gtid, event in alone),
        ]
        assert [file.number for file in engine.files()] == [1, 2, 3]
        name = engine.file_name(3)
        last = headers(disk.contents()[name])[-3:]
        assert [header.type for _, header in last] == [250, 162, 250]
        assert all(header.end_position == at + header.length for at, header in last)


def test_what_a_savepoint_takes_back_is_no_obstacle() -> None:
    with closing(ClassicEngine(MemoryDisk(), RENAMING)) as engine:
        writer = engine.begin()
        writer.spill(ROWS)
        mark = writer.mark()
        writer.spill(events(40_000, "lost"))
        writer.rewind(mark)
        del mark
        writer.spill(COMMIT_EVENT)
        writer.commit(begin_event(ONE), ONE)
        assert [without_padding(payload) for payload in read_all(engine)] == [WHOLE]
        assert len(engine.files()) == 2


def _both_lists(engine: ClassicEngine) -> None:
    commit(engine, ROWS, COMMIT_EVENT, statement=events(40, "direct"))


def _garbage(engine: ClassicEngine) -> None:
    writer = engine.begin()
    writer.spill(ROWS)
    mark = writer.mark()
    writer.spill(events(40_000, "lost"))
    later = writer.mark()
    writer.rewind(mark)
    writer.spill(COMMIT_EVENT)
    assert later  # somebody may go there still
    writer.commit(begin_event(ONE), ONE)


def _checksum(engine: ClassicEngine) -> None:
    writer = engine.begin()
    writer.spill(ROWS + COMMIT_EVENT)
    engine.set_option("binlog_checksum", ChecksumAlgorithm.NONE)
    engine.flush()
    writer.commit(begin_event(ONE), ONE)


def _long_list(engine: ClassicEngine) -> None:
    """The list of GTIDs has grown beyond what was reserved."""
    writer = engine.begin()
    writer.spill(ROWS + COMMIT_EVENT)
    for domain in range(1, 400):
        append_all(engine, simple(1, domain=domain))
    writer.commit(begin_event(ONE), ONE)


@pytest.mark.parametrize("how", [_both_lists, _garbage, _checksum, _long_list])
def test_copied_instead(how: object) -> None:
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        assert callable(how)
        how(engine)
        engine.sync()
        groups = read_all(engine)
        assert groups[-1].startswith(begin_event(ONE)), "not padded"
        assert groups[-1].endswith(ROWS + COMMIT_EVENT)
        assert not disk.names(CACHE_FOLDER)
        algorithm = engine._log.current.checksum_algorithm
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        assert read_all(engine) == groups
        assert algorithm == (how is not _checksum)


@pytest.mark.parametrize("encrypts_now", [True, False])
def test_copied_where_the_log_is_encrypted(encrypts_now: bool, tmp_path: Path) -> None:
    """A file with keys alone, from which older binlogs are read, changes nothing."""
    (tmp_path / "keys").write_bytes(b"1;" + bytes(16).hex().encode())
    keys = replace(RENAMING, file_key_management_filename=str(tmp_path / "keys"))
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, replace(keys, encrypt_binlog=encrypts_now))) as engine:
        commit(engine, ROWS, COMMIT_EVENT)
        engine.sync()
        assert read_all(engine)[0].endswith(ROWS + COMMIT_EVENT)
        assert (len(engine.files()) == 1) == encrypts_now
        assert (ROWS[100:600] in b"".join(disk.contents().values())) != encrypts_now


def test_the_threshold_may_change_while_a_group_is_open() -> None:
    """What holds at its commit counts, from the very size on: bytes of events as they lie in the file."""
    with closing(ClassicEngine(MemoryDisk(), RENAMING)) as engine:
        writer = engine.begin()
        writer.spill(ROWS)
        engine.set_option("binlog_large_commit_threshold", 1 << 30)
        writer.spill(COMMIT_EVENT)
        writer.commit(begin_event(ONE), ONE)
        assert len(engine.files()) == 1
        body = len(ROWS) + 100 * CHECKSUM_SIZE
        for seq_no, size, files in ((12, body + 1, 1), (13, body, 2)):
            gtid = Gtid(0, 1, seq_no)
            writer = engine.begin()
            writer.spill(ROWS + COMMIT_EVENT)
            engine.set_option("binlog_large_commit_threshold", size)
            writer.commit(begin_event(gtid), gtid)
            assert len(engine.files()) == files, size
        assert engine.binlog_state() == BinlogState([Gtid(0, 1, 13)])


def test_under_the_lock_a_rename_writes_heads_and_names() -> None:
    """The group itself was written and synced in front of that: what others wait for has no byte of it."""
    disk = RecordingDisk(MemoryDisk())
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        append_all(engine, simple(10))
        writer = engine.begin()
        writer.spill(ROWS)
        writer.settle()
        ahead = len(disk.trace)
        writer.spill(COMMIT_EVENT)
        writer.commit(begin_event(ONE), ONE)
        done = disk.trace[ahead:]
        assert any(isinstance(one, Rename) and one.new == SECOND for one in done)
        written = [one.data for one in done if isinstance(one, Write)]
        appended = sum(len(one.payload) + 3 * CHECKSUM_SIZE for one in simple(10))
        assert (
            sum(map(len, written)) < appended + 3 * 4096
        )  # the head with its GTID event, ROTATE, `~rec~`
        assert not any(ROWS[100:600] in data for data in written)


def test_all_is_synced_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others wait for: three files and the folder once, then the index takes its name."""
    engine = ClassicEngine(OsDisk(tmp_path), replace(RENAMING, max_binlog_size=65_536))
    with closing(engine):
        append_all(engine, simple(3))
        writer = engine.begin()
        writer.spill(ROWS + COMMIT_EVENT)
        writer.settle()
        met, sync = threading.Barrier(4, timeout=20), OsFile.fdatasync
        is_folder = [True, False]

        def synced(file: OsFile) -> None:
            met.wait()
            sync(file)

        def folder_synced(disk: OsDisk) -> None:
            if is_folder.pop(0):
                met.wait()
                assert not any(b"000002" in path.read_bytes() for path in tmp_path.glob("*.index"))

        with monkeypatch.context() as patch:
            patch.setattr(OsFile, "fdatasync", synced)
            patch.setattr(OsDisk, "fsync_dir", folder_synced)
            writer.commit(begin_event(ONE), ONE)
        assert is_folder == []
        assert [file.number for file in engine.files()] == [1, 2, 3]


def test_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount in the place of the folder: the group is copied, and nothing is left."""
    rename = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if path.parent.name == CACHE_FOLDER:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with closing(ClassicEngine(OsDisk(tmp_path), RENAMING)) as engine:
        append_all(engine, simple(10))
        commit(engine, ROWS, COMMIT_EVENT)
        engine.sync()
        assert read_all(engine) == [*payloads(simple(10)), WHOLE]
        assert [file.number for file in engine.files()] == [1]
        assert list((tmp_path / CACHE_FOLDER).iterdir()) == []
        assert (tmp_path / CACHE_FOLDER).stat().st_mode & 0o777 == 0o700


def test_a_link_to_another_folder_is_refused(tmp_path: Path) -> None:
    """What has the names of cache files there is not removed."""
    other, store = tmp_path / "other", tmp_path / "store"
    for folder in (other, store):
        folder.mkdir()
    (other / "ML_1").write_bytes(b"x")
    (store / CACHE_FOLDER).symlink_to(other)
    with pytest.raises(DiskError, match="it is a symbolic link"):
        ClassicEngine(OsDisk(store), RENAMING)
    assert (other / "ML_1").exists()


def test_the_folder_at_a_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / CACHE_FOLDER
    folder.mkdir()
    for name in ("ML_1", "ML_140000000000", "other"):
        (folder / name).write_bytes(b"x")
    engine = ClassicEngine(OsDisk(tmp_path), RENAMING)
    assert [path.name for path in folder.iterdir()] == ["other"]
    assert f"other is in {CACHE_FOLDER}/, but it is not a binlog cache file" in caplog.text
    (folder / "other").unlink()
    folder.rmdir()
    commit(engine, ROWS, COMMIT_EVENT)  # it is made again
    assert len(engine.files()) == 2
    engine.close()


@pytest.mark.parametrize("fault", ["write", "sync", "rename", "sync directory", "create"])
def test_a_full_disk_is_waited_for(fault: str, rng: random.Random) -> None:
    """At any step of the rename, which leaves nothing then, and is done again."""
    disk, waits = MemoryDisk(), 0

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        disk.fault = None

    engine = ClassicEngine(disk, RENAMING, wait_for_room=wait)
    append_all(engine, simple(10))
    writer = engine.begin()
    writer.spill(ROWS + COMMIT_EVENT)
    step = met = 0

    def full(kind: str, name: str) -> None:
        nonlocal met
        if kind == fault:
            met += 1
            if met == step + 1:
                raise DiskFull("cannot write: No space left on device (injected)")

    numbers = []
    while disk.fault is None and step < 12:
        met, disk.fault, before = 0, full, waits
        gtid = Gtid(0, 1, 11 + step)
        writer.commit(begin_event(gtid), gtid)
        numbers.append(gtid)
        if waits == before:
            break
        step += 1
        writer = engine.begin()
        disk.fault = None
        writer.spill(ROWS + COMMIT_EVENT)
    disk.fault = None
    assert step > 1
    engine.sync()
    groups = [without_padding(payload) for payload in read_all(engine)]
    assert groups[10:] == [begin_event(gtid) + ROWS + COMMIT_EVENT for gtid in numbers]
    engine.close()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        assert [without_padding(payload) for payload in read_all(engine)] == groups


def test_what_was_given_up_is_nowhere() -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, RENAMING, wait_for_room=lambda seconds: None)
    writer = engine.begin()
    writer.spill(ROWS + COMMIT_EVENT)
    disk.capacity = disk.used()
    writer.give_up()
    with pytest.raises(WaitGivenUp):
        writer.commit(begin_event(ONE), ONE)
    writer.rollback()
    disk.capacity = 1 << 62
    append_all(engine, simple(1))
    engine.sync()
    assert read_all(engine) == payloads(simple(1))
    assert not disk.names(CACHE_FOLDER)
    engine.close()


def test_a_failing_disk_ends_the_store() -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, RENAMING)
    append_all(engine, simple(3))
    engine.sync()
    writer = engine.begin()
    writer.spill(ROWS + COMMIT_EVENT)
    writer.settle()

    def fault(kind: str, name: str) -> None:
        if kind == "rename":
            raise DiskError("cannot rename: Input/output error (injected)")

    disk.fault = fault
    with pytest.raises(DiskError):
        writer.commit(begin_event(ONE), ONE)
    assert read_all(engine) == payloads(simple(3))
    disk.fault = None
    disk.kill()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        assert read_all(engine) == payloads(simple(3))


def test_settled_ahead_it_is_synced_once() -> None:
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        writer = engine.begin()
        writer.spill(ROWS)
        synced: list[str] = []
        disk.fault = lambda kind, name: synced.append(name) if "sync" in kind else None
        writer.settle()
        ahead = ["binlog.~rec~.new", "", "binlog.index.new"]
        assert synced == [f"{CACHE_FOLDER}/ML_1", *ahead]
        writer.settle()
        writer.spill(COMMIT_EVENT)  # its number is known in the turn of the commit
        writer.commit(begin_event(ONE), ONE)
        assert synced[4:] == ["binlog.000001", f"{CACHE_FOLDER}/ML_1", "", ""], "what is left"
        assert len(engine.files()) == 2
        kept = read_all(engine)
        assert without_padding(kept[-1]) == WHOLE
        disk.crash()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        assert read_all(engine) == kept


@pytest.mark.parametrize("meanwhile", ["flush", "purge", "reset", "another"])
def test_what_was_settled_ahead_is_done_again_if_something_comes_first(meanwhile: str) -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, replace(RENAMING, slave_connections_needed_for_purge=0))
    engine.flush()
    writer = engine.begin()
    writer.spill(ROWS + COMMIT_EVENT)
    writer.settle()
    other = Gtid(5, 1, 1)
    match meanwhile:
        case "flush":
            engine.flush()
        case "purge":
            engine.purge_to(engine.files()[-1].number)
        case "reset":
            writer.rollback()
            engine.reset()
            writer = engine.begin()
            writer.spill(ROWS + COMMIT_EVENT)
        case _:
            commit(engine, ROWS, COMMIT_EVENT, gtid=other)
    writer.commit(begin_event(ONE), ONE)
    assert [without_padding(payload) for payload in read_all(engine)][-1] == WHOLE
    kept = engine.files()
    disk.crash()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        assert engine.files() == kept
        assert engine.binlog_state().last(0) == ONE


def test_a_file_beyond_max_binlog_size_is_closed_in_the_same_step() -> None:
    """As behind each commit by rename in 11.8: the next file is there, and nothing was written twice for it."""
    disk = MemoryDisk()
    options = replace(RENAMING, max_binlog_size=65_536)
    engine = ClassicEngine(disk, options)
    append_all(engine, simple(3))
    engine.sync()
    writer = engine.begin()
    writer.spill(ROWS + COMMIT_EVENT)
    writer.settle()
    synced: list[str] = []
    disk.fault = lambda kind, name: synced.append(name) if "sync" in kind else None
    writer.commit(begin_event(ONE), ONE)
    assert synced == ["binlog.000001", f"{CACHE_FOLDER}/ML_1", "binlog.000003", "", ""]
    disk.fault = None
    numbers = [file.number for file in engine.files()]
    assert numbers == [1, 2, 3]
    found = headers(disk.contents()[SECOND])
    assert [header.type for _, header in found][-2:] == [16, 4], "XID, ROTATE"
    assert found[-1][1].end_position == len(disk.contents()[SECOND])
    assert not disk.contents()[SECOND][21] & 1, "not in use"
    append_all(engine, simple(1, first=12))
    engine.sync()
    groups = read_all(engine)
    assert [without_padding(payload) for payload in groups][3:] == [
        WHOLE,
        simple(1, first=12)[0].payload,
    ]
    assert engine.find_start(BinlogState([ONE]).position()).position.file_no == 3
    disk.crash()
    with closing(ClassicEngine(disk, options)) as engine:
        assert read_all(engine) == groups
        assert [file.number for file in engine.files()] == numbers


def test_nobody_who_looks_waits_for_a_rename() -> None:
    """Its syncs are done without the append lock; who appends comes behind it."""
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        append_all(engine, simple(10))
        writer = engine.begin()
        writer.spill(ROWS + COMMIT_EVENT)
        writer.settle()
        others: list[threading.Thread] = []

        def meanwhile(kind: str, name: str) -> None:
            if "sync" in kind:
                assert not engine.has_room
                looking = in_thread(engine.binlog_state)
                looking.join(20)
                assert not looking.is_alive()
                if not others:
                    others.append(in_thread(lambda: append_all(engine, simple(1, first=12))))

        disk.fault = meanwhile
        writer.commit(begin_event(ONE), ONE)
        disk.fault = None
        others[0].join(20)
        engine.sync()
        assert engine.has_room
        assert [without_padding(payload) for payload in read_all(engine)][10:] == [
            WHOLE,
            simple(1, first=12)[0].payload,
        ]


def test_xa_is_prepared_from_a_cache_file_and_committed_by_rename() -> None:
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        writer = engine.begin()
        body = ROWS + events(70_000, "long") + COMMIT_EVENT
        writer.spill(body)
        name = Xid(1, b"x")
        writer.prepare(name)
        engine.commit_prepared(name, begin_event(ONE), ONE)
        assert engine.durable_end == engine.written_end
        assert [file.number for file in engine.files()] == [1, 2]
        assert engine.prepared() == []
        assert [without_padding(payload) for payload in read_all(engine)] == [
            begin_event(ONE) + body
        ]
        engine.sync()
        assert not any(".xa." in name for name in disk.names())
        assert not disk.names(CACHE_FOLDER)


def test_a_purge_goes_on_beside_a_rename_that_ends_a_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are hidden under the lock of holds: who ends one has no lock that hiding takes."""
    commits = PreparedFiles.commits
    ended: list[bool] = []

    def meanwhile(self: PreparedFiles, prepared: PreparedFile) -> None:
        purge = in_thread(lambda: engine.purge_to(2))
        purge.join(20)
        ended.append(not purge.is_alive())
        commits(self, prepared)

    monkeypatch.setattr(PreparedFiles, "commits", meanwhile)
    options = replace(RENAMING, slave_connections_needed_for_purge=0)
    with closing(ClassicEngine(MemoryDisk(), options)) as engine:
        engine.flush()
        writer = engine.begin()
        writer.spill(ROWS + COMMIT_EVENT)
        name = Xid(1, b"x")
        writer.prepare(name)
        engine.commit_prepared(name, begin_event(ONE), ONE)
        assert ended == [True]
        assert [file.number for file in engine.files()] == [2, 3]


def test_xa_that_is_being_committed_is_nobody_elses() -> None:
    """Its events are copied without locks: another session finds it gone."""
    disk = MemoryDisk()
    with closing(
        ClassicEngine(disk, replace(RENAMING, binlog_large_commit_threshold=1 << 40))
    ) as engine:
        writer = engine.begin()
        writer.spill(events(3 << 20, "long") + COMMIT_EVENT)
        name = Xid(1, b"x")
        writer.prepare(name)
        refused: list[str] = []

        def meanwhile(kind: str, file: str) -> None:
            if kind == "write" and file == "binlog.000001" and not refused:
                refused.append(file)
                with pytest.raises(XaStateError):
                    engine.rollback_prepared(name)
                with pytest.raises(XaStateError):
                    engine.commit_prepared(name, begin_event(ONE), ONE)

        disk.fault = meanwhile
        engine.commit_prepared(name, begin_event(ONE), ONE)
        assert refused
        disk.fault = None
        engine.sync()
        assert len(read_all(engine)) == 1


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_copy_lets_others_work() -> None:
    """Its bytes are written without locks: who looks, and who syncs what is in front of it, does not wait. Who appends
    comes behind it."""
    disk = MemoryDisk()
    with closing(ClassicEngine(disk)) as engine:
        append_all(engine, simple(10))
        before = engine.written_end
        others: list[threading.Thread] = []

        def meanwhile(kind: str, file: str) -> None:
            if kind == "write" and disk.contents()[file] and len(others) < 3:
                at = len(disk.contents()[file])
                if file != "binlog.000001" or at < before.offset + (1 << 20) or others:
                    return
                others.append(in_thread(lambda: append_all(engine, simple(1, first=12))))
                for call in (engine.sync, engine.binlog_state, engine.prepared):
                    others.append(in_thread(call))
                    others[-1].join(20)
                    assert not others[-1].is_alive()
                assert engine.durable_end == before
                assert not engine.has_room
                assert not engine.wait_for_room(0.0)
                assert engine.written_end == before

        disk.fault = meanwhile
        body = events(3 << 20, "a") + events(3 << 20, "b") + COMMIT_EVENT
        commit(engine, body)
        disk.fault = None
        assert len(others) == 4
        others[0].join(20)
        assert engine.has_room
        engine.sync()
        assert read_all(engine)[10:] == [begin_event(ONE) + body, simple(1, first=12)[0].payload]


def test_a_thread_that_must_not_wait_is_told_of_a_copy() -> None:
    disk = MemoryDisk()
    with closing(ClassicEngine(disk)) as engine:
        told: list[type[BaseException] | None] = []

        def append() -> None:
            engine.never_wait_in(threading.get_ident())
            with pytest.raises(WaitGivenUp):
                append_all(engine, simple(1, first=12))
            told.append(WaitGivenUp)

        def meanwhile(kind: str, file: str) -> None:
            if kind == "write" and file == "binlog.000001" and not told:
                in_thread(append).join(20)

        disk.fault = meanwhile
        commit(engine, events(3 << 20, "a") + COMMIT_EVENT)
        assert told


def test_a_turn_is_waited_for() -> None:
    with closing(ClassicEngine(MemoryDisk())) as engine:
        writer = engine.begin()
        writer.spill(events(100, "a") + COMMIT_EVENT)
        assert writer.turn() is None, "it is appended in one piece"
        writer.spill(events(3 << 20, "a") + COMMIT_EVENT)
        turn = writer.turn()
        assert turn is not None
        assert engine.has_room
        with turn:
            assert not engine.has_room
            assert not engine.wait_for_room(0.0)
            waiting = in_thread(engine.wait_for_room)
        waiting.join(20)
        assert not waiting.is_alive()
        assert engine.has_room
        writer.rollback()


def test_cache_files_are_synced_while_they_are_written() -> None:
    disk, synced = MemoryDisk(), threading.Event()

    def fault(kind: str, name: str) -> None:
        if kind == "sync" and name.startswith(CACHE_FOLDER):
            synced.set()

    disk.fault = fault
    with closing(ClassicEngine(disk, background=True)) as engine:
        writer = engine.begin()
        writer.spill(events(5 << 20, "a"))
        assert synced.wait(20)
        writer.rollback()


def test_who_spills_waits_for_the_disk() -> None:
    disk = MemoryDisk()
    behind = WriteBehind(disk)
    begun, goes_on = threading.Event(), threading.Event()

    def fault(kind: str, name: str) -> None:
        if kind == "sync":
            begun.set()
            goes_on.wait(20)

    with closing(disk.open("a", create=True)):
        pass
    behind.wrote("a", LEFT_BYTES_MAX + 1)
    assert behind.has_room, "without a thread nobody would sync"
    disk.fault = fault
    behind.worker.start()
    assert begun.wait(20)
    assert not behind.has_room
    behind.wrote("b", LEFT_BYTES_MAX // 2)  # it is gone already
    goes_on.set()
    behind.wait(20, lambda: False)
    assert behind.has_room
    behind.wrote("a", LEFT_BYTES_MAX)
    behind.forget("a")
    behind.wait(20, lambda: False)
    assert behind.has_room
    behind.worker.stop()


def test_what_are_no_events_is_refused() -> None:
    with closing(ClassicEngine(MemoryDisk(), RENAMING)) as engine:
        for piece in (b"lost" * 30_000, ROWS[:-1], events(90_000, "a")[:-1]):
            writer = engine.begin()
            writer.spill(piece)
            with pytest.raises(ProtocolError):
                writer.commit(begin_event(ONE), ONE)
            writer.rollback()
        assert read_all(engine) == []


def test_rolled_back_while_it_is_settled() -> None:
    """The client goes while a thread writes the cache file: nobody closes it under the thread's hands."""
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, RENAMING)) as engine:
        transaction = Transaction(engine)
        transaction.write(ROWS)
        there: list[list[str]] = []

        def meanwhile(kind: str, name: str) -> None:
            if kind == "sync" and name.startswith(CACHE_FOLDER):
                transaction.rollback()
                there.append(disk.names(CACHE_FOLDER))

        disk.fault = meanwhile
        transaction.settle()
        disk.fault = None
        assert there == [["ML_1"]]
        assert not disk.names(CACHE_FOLDER)
        assert read_all(engine) == []
