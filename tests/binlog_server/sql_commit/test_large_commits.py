"""A commit that takes long, in traditional files: copied or renamed in a thread, while the loop serves all others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import split_events
from binlog_protocol.wire.results import parse_ok
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.testing.memory_disk import MemoryDisk

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

    def open(self) -> None:
        self._disk.fault = None
        self._open.set()


@asynccontextmanager
async def lab_with(threshold: int) -> AsyncIterator[tuple[Lab, Gate]]:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, ClassicOptions(binlog_large_commit_threshold=threshold))
    gate = Gate(disk)
    async with Lab(engine, users=GRANTED) as lab:
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
