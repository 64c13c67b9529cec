"""What a failing store does to the whole server: binlog_error_action, and the follower."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query
from binlog_storage.errors import DiskError

from binlog_server.accounts.users import Account
from binlog_server.cli import serve
from binlog_server.process.signals import Signals
from binlog_server.settings.config import Config
from binlog_server.store.store_directory import StoreDirectory
from binlog_server.testing import ports
from tests.binlog_server.engines import SlowEngine
from tests.binlog_server.lab import PASSWORD, USER, Client, MemoryDirectory, within


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine()


async def serving(
    monkeypatch: pytest.MonkeyPatch, engine: SlowEngine, port: int, **options: Any
) -> asyncio.Task[int]:
    monkeypatch.setattr(StoreDirectory, "of", lambda *_, **__: MemoryDirectory(engine))
    users = {USER: Account(PASSWORD, frozenset({"BINLOG REPLAY", "SHUTDOWN"}))}
    config = Config(Path("/nowhere"), listen_port=port, users=users, **options)

    async def run() -> int:
        with Signals() as signals:
            return await serve._serve(config, signals, None, None)

    return asyncio.ensure_future(run())


async def connect(port: int) -> Client:
    while True:
        try:
            client = await Client.connect(port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)
            continue
        await client.log_in()
        return client


async def test_abort_server(monkeypatch: pytest.MonkeyPatch, engine: SlowEngine) -> None:
    """The client hears of the error, then the process ends with status 1."""
    port = ports.lease()
    running = await serving(monkeypatch, engine, port, binlog_error_action="ABORT_SERVER")
    client = await within(connect(port))
    engine.sync_error = DiskError("cannot sync: Input/output error")
    client.command(Query("INSERT INTO t VALUES (1)").build())
    assert (await client.error())[0] == 1026
    assert await within(running) == 1
    assert await client.closed()
    ports.release(port)


async def test_read_only(
    monkeypatch: pytest.MonkeyPatch, engine: SlowEngine, caplog: pytest.LogCaptureFixture
) -> None:
    port = ports.lease()
    running = await serving(monkeypatch, engine, port)
    client = await within(connect(port))
    engine.sync_error = DiskError("cannot sync: Input/output error")
    client.command(Query("INSERT INTO t VALUES (1)").build())
    assert (await client.error())[0] == 1026
    assert await client.query("SELECT 1") == [["1"]]
    assert not running.done()
    assert "nothing is committed" in caplog.text
    client.command(Query("SHUTDOWN").build())
    assert await within(running) == 1, "something is left to the next start"
    ports.release(port)
