"""A disk that is full stops nobody but those who write: groups of several records, in files of which none follows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.groups.stored_group import is_start_marker
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog import room
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.errors import WaitGivenUp
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.relay.status import UpstreamStatus
from tests.binlog_server.relay.test_follower import Delays, delays, following
from tests.binlog_server.relay.test_ingest import large, sent
from tests.binlog_server.sql_commit.test_sql_commit import GRANTED
from tests.storage.groups import append_all, payloads, read_all, simple
from tests.storage.sizes import small

from .lab import Lab, until, within
from .upstream import OPENING, FakeUpstream, Visit

__all__ = ["delays"]

# One record, and several: on both sides of the end of a file.
SIZES = {"records": [9_000] * 14, "one large event": [150_000], "small": [700] * 20}


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def full(disk: MemoryDisk) -> IbbEngine:
    """With a file of 10 pages and perhaps one more, records of up to 5."""
    made = IbbEngine(disk, small(10), background=True)
    disk.file_bytes_max = 0
    return made


@pytest.fixture
def engine(disk: MemoryDisk) -> Iterator[IbbEngine]:
    made = full(disk)
    yield made
    give_room(disk, made)
    made.stop_waiting()
    made.close()


def written_at(seconds: int, event: bytes) -> bytes:
    return seconds.to_bytes(4, "little") + event[4:]


def give_room(disk: MemoryDisk, engine: IbbEngine) -> None:
    """As PURGE does."""
    disk.file_bytes_max = 1 << 62
    engine._full.freed()


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("piece", [1 << 20, 4000])
@pytest.mark.parametrize("duplicates", [False, True])
async def test_an_upstream_waits_and_the_loop_does_not(
    name: str,
    piece: int,
    duplicates: bool,
    disk: MemoryDisk,
    engine: IbbEngine,
    delays: Delays,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("binlog_server.relay.ingest.PIECE_BYTES", piece)
    monkeypatch.setattr("binlog_server.relay.status.IDLE_S", 0)
    engine.never_wait_in(threading.get_ident())
    events = [
        [written_at(1000, event) for event in large(Gtid(0, 1, number), SIZES[name])]
        for number in range(1, 31)
    ]
    stream = [event for group in events for event in sent(group)]
    status = UpstreamStatus("")
    async with (
        FakeUpstream([Visit(OPENING + stream)]) as upstream,
        following(upstream, engine, status=status, duplicates=duplicates),
    ):
        await until(lambda: engine._full.error is not None and not engine.has_room)
        await until(lambda: status.io_state.text == "Queueing master event to the relay log")
        assert status.io_state.running == "Yes"
        assert status.behind_s is not None
        assert status.behind_s > 1000, "the groups are old"
        for _ in range(50):  # nothing but the loop's own turns
            await asyncio.sleep(0)
        give_room(disk, engine)
        await until(lambda: str(engine.binlog_state()) == "0-1-30")
        assert len(upstream.positions) == 1, "the connection was kept"
    engine.sync()
    found = [payload for payload in read_all(engine) if not is_start_marker(payload)]
    assert found == [b"".join(e) for e in events]


@pytest.mark.parametrize("size", [100, 60_000, 400_000])
async def test_who_commits_waits_and_others_do_not(size: int, disk: MemoryDisk) -> None:
    engine = full(disk)  # the lab closes it
    async with Lab(engine, users=GRANTED) as lab:
        client, other = await lab.client("sql"), await lab.client("sql")
        insert = Query(f"INSERT INTO t VALUES ('{'x' * size}')").build()
        count = 2_000_000 // size if size > 1000 else 3000

        async def commit_all() -> None:
            for _ in range(count):
                client.command(insert)
                assert (await client.answer())[:1] == b"\0"

        committing = asyncio.ensure_future(commit_all())
        await until(lambda: committing.done() or lab.server.room.waiting_s > 0.2)
        assert not committing.done()
        assert await other.query("SELECT 1") == [["1"]]
        give_room(disk, engine)
        await within(committing)


async def test_xa_prepare_is_the_first_to_meet_a_full_disk_of_traditional_files() -> None:
    """It waits: 1026 would have undone the transaction."""
    disk = MemoryDisk()
    async with Lab(ClassicEngine(disk, background=True), users=GRANTED) as lab:
        client, other = await lab.client("sql"), await lab.client("sql")
        for text in ("XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'"):
            await client.query(text)
        disk.capacity = disk.used()
        preparing = asyncio.ensure_future(client.query("XA PREPARE 'x'"))
        await until(lambda: preparing.done() or lab.server.room.waiting_s > 0.2)
        assert not preparing.done()
        assert await other.query("SELECT 1") == [["1"]]
        disk.capacity = 1 << 62
        lab.engine._full.freed()  # type: ignore[attr-defined]
        await within(preparing)
        await client.query("XA COMMIT 'x'")


def test_the_thread_of_the_loop_never_waits_for_long(
    disk: MemoryDisk, engine: IbbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOMENT_S", 0.01)
    engine.never_wait_in(threading.get_ident())
    groups = simple(1000, size=20_000)
    with pytest.raises(WaitGivenUp, match="all others would have to wait"):
        append_all(engine, groups)
    assert not engine.has_room
    last = engine.binlog_state().last(0)
    assert last is not None
    give_room(disk, engine)
    assert engine.wait_for_room(10)
    append_all(engine, groups[last.seq_no : last.seq_no + 1])
    engine.sync()
    assert read_all(engine) == payloads(groups[: last.seq_no + 1]), "nothing of it was appended"
