"""Files that are not archived stay, and it is told why; those that are go."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.manifest import MANIFEST_NAME, ArchiveManifest, ArchivePart
from binlog_storage.archive.publisher import ArchivePublisher, FolderShelf, StagedPart
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import BinlogInUse, StorageError
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.metrics.standstill import standstills
from binlog_server.metrics.status import Glance
from binlog_server.process.logs import RecentLines
from binlog_server.settings.config import Config, ConfigError
from binlog_server.sql.sql_session import SqlSession
from binlog_server.store import archive_hold
from binlog_server.store.archive_hold import ArchiveHold
from tests.binlog_server.lab import DEADLINE_S, Lab, transaction, until

OPTIONS = StoreOptions(max_binlog_size=1 << 16, slave_connections_needed_for_purge=0)


def fill(engine: BinlogEngine, *seq_nos: int) -> None:
    """A group, and a new file."""
    for seq_no in seq_nos:
        gtid = Gtid(0, 1, seq_no)
        engine.append(transaction(gtid), gtid)
        engine.flush()


@pytest.fixture
def engine() -> Iterator[IbbEngine]:
    """0-1-1 to 0-1-3, each in a file."""
    engine = IbbEngine(MemoryDisk(), OPTIONS)
    fill(engine, 1, 2, 3)
    yield engine
    engine.close()


def archive(directory: Path, seq_no: int, *, begin: str = "", digest: str | None = None) -> None:
    """Up to that number, as the manifest says."""
    publisher = ArchivePublisher(FolderShelf(OsDisk(directory), str(directory)))
    if publisher.manifest is None:
        publisher.begin(BinlogState.parse(begin), {})
    gtid = Gtid(0, 1, seq_no)
    if digest is None:
        digest = hashlib.sha256(transaction(gtid)).hexdigest()
    (directory / ".staged-1").write_bytes(b"")
    part = ArchivePart(0, "", 1, 1, 0, str(gtid), str(gtid), str(gtid), digest, 0, 0, (0, seq_no))
    publisher.publish([StagedPart(".staged-1", part)])
    publisher.close()


def first_left(engine: BinlogEngine) -> int:
    """After a purge of all that may go."""
    engine.purge_to(engine.written_end.file_no)
    return engine.files()[0].number


def told(engine: BinlogEngine) -> str:
    """Why the first file stays."""
    return "; ".join(engine.explain_purge(engine.written_end.file_no)[0].held_by)


def test_only_what_is_archived_goes(engine: IbbEngine, tmp_path: Path) -> None:
    hold = ArchiveHold(engine, tmp_path / "archive")
    assert first_left(engine) == 0
    assert f"it is held by the archive {tmp_path / 'archive'}, which does not let any go" in told(
        engine
    )
    assert "there is no " in told(engine)

    archive(tmp_path / "archive", 1)
    hold.refresh()
    assert first_left(engine) == 1
    assert told(engine) == f"it is held by the archive {tmp_path / 'archive'}, which is at '0-1-1'"

    archive(tmp_path / "archive", 3)
    assert first_left(engine) == 1  # not looked at yet
    hold.refresh()
    assert first_left(engine) == 3
    # Numbered by the archive's beginning, a new hold knows the same.
    fill(engine, 4)
    ArchiveHold(engine, tmp_path / "archive")
    assert first_left(engine) == 3


def test_a_damaged_manifest_holds_all(engine: IbbEngine, tmp_path: Path) -> None:
    archive(tmp_path, 1)
    manifest = tmp_path / MANIFEST_NAME
    sound = manifest.read_bytes()
    manifest.write_bytes(sound[:-20])
    hold = ArchiveHold(engine, tmp_path)
    assert first_left(engine) == 0
    assert "is damaged" in told(engine)
    manifest.write_bytes(sound)
    hold.refresh()
    assert first_left(engine) == 1
    # And if it is damaged again later, nothing more goes.
    manifest.unlink()
    hold.refresh()
    assert first_left(engine) == 1
    assert "has no _archive.json" in told(engine)


def test_an_archive_of_another_history_holds_all(engine: IbbEngine, tmp_path: Path) -> None:
    archive(tmp_path / "beyond", 4)
    ArchiveHold(engine, tmp_path / "beyond")
    assert "it is of another history" in told(engine)
    assert first_left(engine) == 0

    archive(tmp_path / "other", 2, digest="00")
    other = IbbEngine(MemoryDisk(), OPTIONS)
    fill(other, 1, 2, 3)
    hold = ArchiveHold(other, tmp_path / "other")
    assert "its last group 0-1-2 is another one" in told(other)
    hold.refresh()
    assert first_left(other) == 0
    other.close()


def test_an_archive_that_begins_behind_the_oldest_file(engine: IbbEngine, tmp_path: Path) -> None:
    archive(tmp_path, 3, begin="0-1-2")
    ArchiveHold(engine, tmp_path)
    assert first_left(engine) == 0


def test_what_was_archived_and_purged_is_believed(engine: IbbEngine, tmp_path: Path) -> None:
    engine.purge_to(2)
    archive(tmp_path, 1)
    hold = ArchiveHold(engine, tmp_path)
    assert first_left(engine) == 2
    archive(tmp_path, 3)
    hold.refresh()
    assert first_left(engine) == 3


def test_an_archive_that_does_not_answer_holds_up_no_start(
    engine: IbbEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files stay until it was seen."""
    archive(tmp_path, 2)
    answers, opened = threading.Event(), Archive.open

    def late(where: Path, keys: ArchiveKeys | None) -> Archive:
        assert answers.wait(DEADLINE_S)
        return opened(where, keys)

    monkeypatch.setattr(archive_hold, "FIRST_LOOK_S", 0.0)
    monkeypatch.setattr(Archive, "open", late)
    hold = ArchiveHold(engine, tmp_path)
    with pytest.raises(StorageError, match="was not looked at yet"):
        _ = hold.archive
    assert first_left(engine) == 0
    answers.set()
    hold.refresh()
    assert hold.archive.manifest.groups == 1
    assert first_left(engine) == 2


def test_no_reset_master(engine: IbbEngine, tmp_path: Path) -> None:
    ArchiveHold(engine, tmp_path)
    with pytest.raises(BinlogInUse):
        engine.reset()


def test_an_empty_store_may_begin_with_a_state(tmp_path: Path) -> None:
    """As one that is filled from the archive."""
    engine = IbbEngine(MemoryDisk(), OPTIONS)
    hold = ArchiveHold(engine, tmp_path)
    engine.reset(BinlogState.parse("0-1-4"))
    fill(engine, 5, 6)
    assert first_left(engine) == 0
    archive(tmp_path, 5, begin="0-1-4")
    hold.refresh()
    assert first_left(engine) == 1
    engine.close()


async def test_the_option_of_a_server(tmp_path: Path) -> None:
    async with Lab(store=OPTIONS, binlog_archive_directory=str(tmp_path)) as lab:
        fill(lab.engine, 1, 2)
        lab.server.refresh_holds()
        assert first_left(lab.engine) == 0
        archive(tmp_path, 1)
        lab.server.refresh_holds()
        assert first_left(lab.engine) == 1
        assert SqlSession(lab.server, 1, "").global_value("binlog_archive_directory") == str(
            tmp_path
        )


def test_what_nobody_has_thought_of_holds_all(
    engine: IbbEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And is looked at again: its traceback is in the log once."""
    archive(tmp_path, 2)
    hold = ArchiveHold(engine, tmp_path)

    def broken(*_: object) -> None:
        raise KeyError("oops")

    with monkeypatch.context() as patch:
        patch.setattr("binlog_server.store.archive_hold.Archive.open", broken)
        hold.refresh()
        hold.refresh()
        assert "does not let any go: KeyError('oops')" in told(engine)
        assert first_left(engine) == 0
    assert [bool(record.exc_info) for record in caplog.records] == [True, False]
    hold.refresh()
    assert first_left(engine) == 2


async def test_the_look_at_holds_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [RuntimeError("oops"), StorageError("disk"), RuntimeError("oops"), MemoryError("oops")]
    rounds = 0

    def expire() -> None:
        nonlocal rounds
        rounds += 1
        if errors:
            raise errors.pop(0)

    monkeypatch.setattr("binlog_server.app.app.LEASE_ROUND_S", 0)
    async with Lab() as lab:
        monkeypatch.setattr(lab.server.leases, "expire", expire)
        await until(lambda: rounds > 6)
    traced = [bool(record.exc_info) for record in caplog.records if "let go" in record.getMessage()]
    assert traced == [True, False, False, False]


async def test_an_archive_that_does_not_answer_holds_no_lease_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is told: leases end at their time, as the archive may lie on any disk."""
    monkeypatch.setattr("binlog_server.app.app.LEASE_ROUND_S", 0)
    asked, answers = threading.Event(), threading.Event()
    rounds = 0
    real = Archive.open

    def hanging(directory: Path, keys: ArchiveKeys | None = None) -> Archive:
        asked.set()
        answers.wait(DEADLINE_S)
        return real(directory, keys)

    def expire() -> None:
        nonlocal rounds
        rounds += 1

    async with Lab(store=OPTIONS, binlog_archive_directory=str(tmp_path)) as lab:
        archive(tmp_path, 1)
        try:
            monkeypatch.setattr("binlog_server.store.archive_hold.Archive.open", hanging)
            monkeypatch.setattr(lab.server.leases, "expire", expire)
            await until(asked.is_set)
            before = rounds
            await until(lambda: rounds > before + 3)
            (stalled,) = (one for one in standstills(lab.server) if one.what == "archive")
            assert stalled.why == (
                f"{tmp_path} does not answer: what is archived meanwhile is not purged"
            )
        finally:
            answers.set()
        monkeypatch.setattr("binlog_server.store.archive_hold.Archive.open", real)
        await until(lambda: "archive" not in {one.what for one in standstills(lab.server)})


async def test_a_server_that_archives_by_itself(tmp_path: Path) -> None:
    """What is durable gets there; only then files go, and EXPLAIN PURGE says why they stay."""
    where = str(tmp_path / "archive")
    async with Lab(store=OPTIONS, binlog_archive_url=where, binlog_archive_interval=1) as lab:
        hold = lab.server.archive_hold
        assert hold is not None
        lab.publish("0-1-1")
        lab.publish("0-1-2")
        lab.engine.flush()
        assert "there is no " in told(lab.engine)
        assert first_left(lab.engine) == 0
        (row,) = Glance(lab.server, RecentLines()).read()["archives"]
        assert (row["health"], row["position"]) == ("bad", None)
        assert "there is no " in row["problem"]
        await asyncio.to_thread(hold.round)
        assert first_left(lab.engine) == 1
        (row,) = Glance(lab.server, RecentLines()).read()["archives"]
        size = Archive.open(where).manifest.size
        assert row == {
            "health": "good",
            "where": where,
            "position": "0-1-2",
            "parts": 1,
            "groups": 2,
            "bytes": size,
            "replicas": 0,
            "problem": "",
        }
        assert size > 0
        assert str(Archive.open(where).manifest.state) == "0-1-2"
        assert SqlSession(lab.server, 1, "").global_value("binlog_archive_url") == where
        # Who puts an older state of it back, or takes it away, is found out.
        manifest = tmp_path / "archive" / MANIFEST_NAME
        newest = manifest.read_bytes()
        for older in (ArchiveManifest("").build(), None):
            manifest.unlink()
            if older is not None:
                manifest.write_bytes(older)
            await asyncio.to_thread(hold.refresh)
            assert (
                "cannot be read: the archive"
                in Glance(lab.server, RecentLines()).read()["archives"][0]["problem"]
            )
        manifest.write_bytes(newest)
        await asyncio.to_thread(hold.round)
        assert Glance(lab.server, RecentLines()).read()["archives"][0]["health"] == "good"
    # It is let go of: another may add.
    ArchivePublisher(FolderShelf(OsDisk(tmp_path / "archive"), where)).close()


def test_one_archives() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        Config(Path("x"), binlog_archive_directory="/a", binlog_archive_url="/a")
