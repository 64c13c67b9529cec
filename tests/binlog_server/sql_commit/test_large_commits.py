"""What takes long in traditional files is done in a thread, while the loop serves all others.

A commit that is copied or renamed, and a statement whose events go to a cache file.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import split_events
from binlog_protocol.wire.results import parse_ok
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.errors import DiskError, DiskFull, StorageError
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import Client, Lab, until, within
from tests.binlog_server.sql_commit.test_sql_commit import GRANTED, ok, queries
from tests.storage.groups import read_all

TEXT = "x" * (2 << 20)
LARGE = f"INSERT INTO t VALUES ('{TEXT}')"
SMALL = "INSERT INTO t VALUES (1)"
COPIED, RENAMED = 1 << 40, 1 << 20
PLAIN = ("BEGIN", LARGE, "COMMIT")
XA = ("XA START 'x'", LARGE, "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
WAYS = [(COPIED, PLAIN), (RENAMED, PLAIN), (COPIED, XA), (RENAMED, XA)]
IDS = ["copied", "renamed", "XA copied", "XA renamed"]


class Gate:
    """Holds the thread that copies or renames a group, until it is opened."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._open = threading.Event()
        self.reached = False

    def shut(self) -> None:
        loop = threading.get_ident()

        def fault(kind: str, name: str) -> None:
            copies = kind == "write" and name == "binlog.000001"
            if copies or (kind == "rename" and name.startswith(CACHE_FOLDER)):
                assert threading.get_ident() != loop, "not on the loop"
                self.reached = True
                assert self._open.wait(20)

        self._disk.fault = fault

    def shut_spills(self, error: StorageError | None = None) -> None:
        """Hold who writes to a cache file, or fail with an error."""
        loop = threading.get_ident()

        def fault(kind: str, name: str) -> None:
            if kind == "write" and name.startswith(CACHE_FOLDER):
                assert threading.get_ident() != loop, "not on the loop"
                self.reached = True
                if error is not None:
                    raise error
                assert self._open.wait(20)

        self._disk.fault = fault

    def open(self) -> None:
        self._disk.fault = None
        self._open.set()


@asynccontextmanager
async def lab_with(threshold: int) -> AsyncIterator[tuple[Lab, Gate]]:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, ClassicOptions(binlog_large_commit_threshold=threshold))
    gate = Gate(disk)
    users = {**GRANTED, "admin": Account("secret", frozenset({"SUPER"}))}
    async with Lab(engine, users=users) as lab:
        try:
            await ok(await lab.client("sql"), SMALL)
            yield lab, gate
        finally:
            gate.open()


async def begun(client: Client, texts: tuple[str, ...], gate: Gate) -> None:
    """All statements; the last one is on its way."""
    for text in texts[:-1]:
        await ok(client, text)
    gate.shut()
    client.command(Query(texts[-1]).build())
    await until(lambda: gate.reached)


def logged(lab: Lab) -> list[tuple[int, int]]:
    """The number of each group, and its bytes."""
    lab.engine.sync()
    found = []
    for payload in read_all(lab.engine):
        group = list(split_events(payload))
        if texts := queries(group):
            number = GtidEvent.parse(group[0]).gtid.seq_no
            found.append((number, max(len(query.text) for query in texts)))
    return found


async def test_the_threshold_changes_by_sql() -> None:
    """From the next commit on, also of a transaction that is open; never below 10 MiB."""
    async with lab_with(RENAMED) as (lab, _):
        sql, admin = await lab.client("sql"), await lab.client("admin")
        await ok(sql, "BEGIN")
        await ok(sql, LARGE)
        await ok(admin, "SET GLOBAL binlog_large_commit_threshold = 1")
        least = 10 << 20
        assert await admin.query("SHOW WARNINGS") == [
            ["Warning", "1292", "Truncated incorrect binlog_large_commit_threshold value: '1'"]
        ]
        assert await admin.query("SELECT @@binlog_large_commit_threshold") == [[str(least)]]
        assert len(LARGE) < least
        await ok(sql, "COMMIT")
        assert len(lab.engine.files()) == 1, "copied"


@pytest.mark.parametrize(("threshold", "texts"), WAYS, ids=IDS)
async def test_others_are_served_meanwhile(threshold: int, texts: tuple[str, ...]) -> None:
    async with lab_with(threshold) as (lab, gate):
        large, small, other = [await lab.client("sql") for _ in range(3)]
        await begun(large, texts, gate)
        small.command(Query(SMALL).build())
        if threshold == COPIED:  # the lock of appends is not held
            assert await other.query("SELECT @@gtid_binlog_state") == [["0-1-1"]]
        assert await other.query("SELECT 1") == [["1"]]
        answers = [asyncio.ensure_future(client.answer()) for client in (large, small)]
        await asyncio.sleep(0)
        assert not any(answer.done() for answer in answers)
        gate.open()
        for answer in answers:
            parse_ok(await within(answer))
        assert logged(lab) == [(1, len(SMALL)), (2, len(LARGE)), (3, len(SMALL))]
        assert len(lab.engine.files()) == (2 if threshold == RENAMED else 1)


@pytest.mark.parametrize(("threshold", "texts"), WAYS, ids=IDS)
async def test_it_goes_on_when_the_client_has_gone(threshold: int, texts: tuple[str, ...]) -> None:
    async with lab_with(threshold) as (lab, gate):
        large, small = [await lab.client("sql") for _ in range(2)]
        await begun(large, texts, gate)
        large.close()
        connections = lab.server.connections
        gate.open()
        await ok(small, SMALL)
        await until(lambda: len(connections) == 2)
        assert logged(lab) == [(1, len(SMALL)), (2, len(LARGE)), (3, len(SMALL))]
        assert lab.engine.has_room


def cache_files(lab: Lab) -> list[str]:
    """Those of open groups."""
    assert isinstance(lab.engine, ClassicEngine)
    return [name for name in lab.engine._files.disk.names(CACHE_FOLDER) if name.startswith("ML")]


async def test_others_are_served_while_events_go_to_a_cache_file() -> None:
    async with lab_with(COPIED) as (lab, gate):
        large, small = await lab.client("sql"), await lab.client("sql")
        await ok(large, "BEGIN")
        gate.shut_spills()
        large.command(Query(LARGE).build())
        await until(lambda: gate.reached)
        await ok(small, SMALL)
        gate.open()
        parse_ok(await within(large.answer()))
        await ok(large, "COMMIT")
        assert logged(lab) == [(1, len(SMALL)), (2, len(SMALL)), (3, len(LARGE))]


@pytest.mark.parametrize("cache_size", [32 << 10, 1 << 20])
async def test_a_thread_is_asked_only_for_what_may_wait(
    cache_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages take what is spilled in memory, as far as `has_room` says: handing it to a thread costs as much again."""
    async with Lab(users={**GRANTED}, store=StoreOptions(), binlog_cache_size=cache_size) as lab:
        calls = []
        runner = lab.server.runner
        in_row_thread = runner.in_row_thread

        def counted(call: Callable[[], Any], who: str = "") -> asyncio.Future[Any]:
            calls.append(who)
            return in_row_thread(call, who)

        monkeypatch.setattr(runner, "in_row_thread", counted)
        client = await lab.client("sql")
        for text in PLAIN:
            await ok(client, text)
        assert len(calls) == 1, "the sync in front of the commit"
        assert logged(lab) == [(1, len(LARGE))]


async def test_a_cache_file_that_cannot_be_written_is_the_statements_error() -> None:
    async with lab_with(COPIED) as (lab, gate):
        client = await lab.client("sql")
        await ok(client, "BEGIN")
        gate.shut_spills(DiskError("cannot write: Input/output error (injected)"))
        client.command(Query(LARGE).build())
        errno, text = await within(client.error())
        assert (errno, "Input/output error" in text) == (1026, True)
        assert cache_files(lab) == []


@pytest.mark.parametrize("end", ["KILL QUERY", "KILL", "close", ""])
async def test_of_a_wait_for_room_in_a_cache_file(end: str) -> None:
    """KILL ends it. Who has gone is noticed behind it, as by MariaDB, and is rolled back."""
    async with lab_with(COPIED) as (lab, gate):
        client, other = await lab.client("sql"), await lab.client("sql")
        engine, number = lab.engine, max(found.id for found in lab.server.connections) - 1
        assert isinstance(engine, ClassicEngine)
        await ok(client, "BEGIN")
        gate.shut_spills(DiskFull("cannot write: No space left on device (injected)"))
        client.command(Query(LARGE).build())
        await until(lambda: not engine.has_room_to_spill)
        if end.startswith("KILL"):
            await ok(other, f"{end} {number}")
            assert (await within(client.error()))[0] == (1026 if end == "KILL QUERY" else 1927)
            await until(lambda: not cache_files(lab))
        elif end == "close":
            client.close()
        gate.open()
        engine._patience.full.freed()
        if end == "close":
            await until(lambda: len(lab.server.connections) == 2 and not cache_files(lab))
        elif not end:
            parse_ok(await within(client.answer()))
            await ok(client, "COMMIT")
        await within(ok(other, SMALL))
        large = [] if end else [len(LARGE)]
        sizes = [size for _, size in logged(lab)]
        assert sizes == [len(SMALL), *large, len(SMALL)]
