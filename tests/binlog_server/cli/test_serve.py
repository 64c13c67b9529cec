"""`binlog-server serve`: its beginning and its end, in this process. test_signals.py has real ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from binlog_server.app.app import Server
from binlog_server.cli import serve
from binlog_server.settings.config import Config
from binlog_server.store.store_directory import StoreDirectory
from tests.binlog_server.lab import within


class HeardSignals:
    """As `Signals`; the test tells it to end."""

    doing = ""
    status = 0

    def hear(self, stop: Callable[[], object], reload: Callable[[], object]) -> None:
        self.stop = stop

    def ending(self) -> None: ...

    def threads_left(self) -> list[str]:
        return []


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(tmp_path / "store", listen_host="127.0.0.1", listen_port=0, server_id=1)


async def test_it_is_told_to_end_while_it_starts(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients may be there already: they are taken leave of, and the store is closed behind everybody."""
    start, signals = Server.start, HeardSignals()

    async def told_to_end(server: Server, *rest: Any) -> None:
        signals.stop()
        await start(server, *rest)

    monkeypatch.setattr(Server, "start", told_to_end)
    with caplog.at_level(logging.INFO):
        assert await within(serve._serve(config, signals, None, None)) == 0  # type: ignore[arg-type]
    assert "shutdown complete" in caplog.text


class FailingIntake:
    """The rest of an archive, of which nobody has foreseen what happens to it."""

    is_whole = False
    missing = "archive /nowhere is not all in the store yet"

    def take_rest(self) -> None:
        raise OSError("no thread for it (injected)")

    def stop(self) -> None: ...


async def test_what_is_taken_of_an_archive_has_failed(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    directory = StoreDirectory(config.binlog_directory, config.store_options())
    server = Server(config, directory)
    await server.start(FailingIntake())  # type: ignore[arg-type]
    await within(asyncio.wait([server._rest]))
    assert "restart the server" in caplog.text
    with caplog.at_level(logging.INFO):
        await within(server.stop())
    assert "shutdown complete" in caplog.text
