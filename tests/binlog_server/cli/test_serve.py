"""`binlog-server serve`: its beginning and its end, in this process. test_signals.py has real ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from binlog_server.app.app import Server
from binlog_server.cli import main, serve
from binlog_server.metrics.health import what_is_missing
from binlog_server.process.service_manager import ServiceManager
from binlog_server.settings.config import Config
from binlog_server.store.marks import StoreMark
from binlog_server.store.replacement import MARKS
from binlog_server.store.store_directory import StoreDirectory
from tests.binlog_server.lab import until, within


class HeardSignals:
    """As `Signals`; the test tells it to end."""

    doing = ""
    status = 0

    takes_along: Callable[[], object] = staticmethod(lambda: None)

    def hear(
        self,
        stop: Callable[[], object],
        reload: Callable[[], object],
        hand_over: Callable[[], object],
    ) -> None:
        self.stop, self.reload, self.hand_over = stop, reload, hand_over

    def ending(self) -> None: ...

    def in_time(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

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


@pytest.mark.parametrize("part", ["load_ahead", "spare_what_stays"])
async def test_it_ends_where_a_part_of_it_cannot_be_loaded(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """That is done behind the start, and must not wait for the first client who needs it."""

    def broken() -> None:
        raise ImportError("no such part")

    signals = HeardSignals()
    monkeypatch.setattr(serve, "SETTLE_S", 0)
    monkeypatch.setattr(serve, part, broken)
    assert await within(serve._serve(config, signals, None, None)) == 1  # type: ignore[arg-type]
    assert "a part of it cannot be loaded" in caplog.text


def started_servers(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """Those that have started, from now on."""
    start = Server.start
    servers: list[Server] = []

    async def started(server: Server, *rest: Any) -> None:
        await start(server, *rest)
        servers.append(server)

    monkeypatch.setattr(Server, "start", started)
    return servers


@pytest.mark.long
async def test_a_fault_lets_it_begin_anew_with_the_store_of_before(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the same port, and with the faults that are left."""
    signals, servers = HeardSignals(), started_servers(monkeypatch)
    config = dataclasses.replace(config, local_tables=True)
    serving = asyncio.create_task(serve._serve(config, signals, None, None))  # type: ignore[arg-type]
    await until(lambda: len(servers) == 1)
    first = servers[0]
    await asyncio.to_thread(first.master.create_database, "kept")
    assert first.faults.make_mark is not None
    mark = await asyncio.to_thread(first.faults.make_mark)
    first.faults.add([{"do": "lose_tail", "statement": "SELECT"}], mark=mark)
    await asyncio.to_thread(first.master.create_database, "lost")
    (one,) = first.faults.ordered()
    first.faults.restart(one.fault)
    await until(lambda: len(servers) == 2)
    second = servers[1]
    assert second.port == first.port
    assert str(second.engine.binlog_state()) == "0-1-1"
    assert second.faults.ordered() == [one]
    assert second.faults.make_mark is not None
    signals.stop()
    assert await within(serving) == 0
    assert isinstance(mark, StoreMark)
    assert not mark.folder.exists()


@pytest.mark.long
async def test_a_way_back_that_fails_leaves_no_marks(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is as large as the store, and it may have failed because the disk is full."""
    signals, servers = HeardSignals(), started_servers(monkeypatch)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(StoreMark, "restore", full)
    serving = asyncio.create_task(serve._serve(config, signals, None, None))  # type: ignore[arg-type]
    await until(lambda: len(servers) == 1)
    faults = servers[0].faults
    assert faults.make_mark is not None
    for statement in ("SELECT", "SHOW"):
        mark = await asyncio.to_thread(faults.make_mark)
        faults.add([{"do": "lose_tail", "statement": statement}], mark=mark)
    faults.restart(faults.ordered()[0].fault)
    with pytest.raises(OSError, match="No space"):
        await within(serving)
    assert not (config.binlog_directory / MARKS).exists()


async def test_the_service_manager_hears_of_it(config: Config, tmp_path: Path) -> None:
    signals, address = HeardSignals(), str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(address)
        told.setblocking(False)

        async def next_line() -> str:
            text = await within(asyncio.get_running_loop().sock_recv(told, 4096))
            return text.decode().partition("\n")[0]

        manager = ServiceManager({"NOTIFY_SOCKET": address})
        serving = asyncio.ensure_future(
            serve._serve(config, signals, None, None, lambda: config, manager)  # type: ignore[arg-type]
        )
        begin = [await next_line() for _ in range(4)]
        assert begin == [
            "STATUS=finding the addresses to listen at",
            "STATUS=opening the store",
            "STATUS=serving",
            "READY=1",
        ]
        signals.reload()
        assert [await next_line() for _ in range(2)] == ["RELOADING=1", "READY=1"]
        signals.stop()
        assert await next_line() == "STOPPING=1"
        assert await within(serving) == 0


def test_a_configuration_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a store, and beside a server that runs."""
    path = tmp_path / "server.toml"
    path.write_text('max_binlog_total_size = "1K"\n[users]\nrepl = "x"\n')
    command = ["serve", "--directory", str(tmp_path / "store"), "--config", str(path)]
    assert main([*command, "--check-config"]) == 0
    out, err = capsys.readouterr()
    assert out == "the configuration is right\n"
    assert err.startswith("binlog-server: warning: max_binlog_total_size = 1024 cannot be kept")
    path.write_text(f'ssl_cert = "{path}"\nssl_key = "{path}"\n')
    assert main([*command, "--check-config"]) == 2
    assert "binlog-server: ssl_cert, ssl_key, ssl_ca: " in capsys.readouterr().err
    path.write_text(f'file_key_management_filename = "{tmp_path / "keys"}"\n')
    assert main([*command, "--check-config"]) == 2
    assert "binlog-server: file_key_management_filename: File '" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


class FailingIntake:
    """The rest of an archive, of which nobody has foreseen what happens to it."""

    is_whole = False
    waits = ""
    failures = 3
    tries = 0

    def __init__(self) -> None:
        self.may_begin = threading.Event()
        self.may_begin.set()

    @property
    def missing(self) -> str:
        return f"archive /nowhere is not all in the store yet ({self.waits})"

    def take_rest(self) -> None:
        assert self.may_begin.wait(30)
        self.tries += 1
        if self.tries <= self.failures:
            raise OSError("no thread for it (injected)")
        self.is_whole = True

    def stop(self) -> None: ...


async def test_what_is_taken_of_an_archive_is_tried_again(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever has failed, in what is taken or in what follows it. It is said once."""
    monkeypatch.setattr("binlog_server.app.app.REST_RETRY_S", 0.001)
    server = Server(config, StoreDirectory(config.binlog_directory, config.store_options()))
    begin, begun, intake = server.relay.start_late, 0, FailingIntake()

    async def start_late(*, skip: bool) -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise MemoryError("no room for it (injected)")
        await begin(skip=skip)

    monkeypatch.setattr(server.relay, "start_late", start_late)
    intake.may_begin.clear()
    await server.start(intake)  # type: ignore[arg-type]
    assert what_is_missing(server) == [intake.missing]
    intake.may_begin.set()
    await within(asyncio.wait([server._rest]))
    assert (intake.tries, begun) == (6, 3)
    assert what_is_missing(server) == []
    assert [bool(one.exc_info) for one in caplog.records if "Trying again" in one.message] == [
        True,
        True,
    ]
    await within(server.stop())


async def test_what_is_taken_of_an_archive_has_failed_at_the_end(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for the next try."""
    server = Server(config, StoreDirectory(config.binlog_directory, config.store_options()))
    intake = FailingIntake()
    await server.start(intake)  # type: ignore[arg-type]
    await until(lambda: bool(intake.waits))
    assert "no thread for it (injected)" in what_is_missing(server)[0]
    with caplog.at_level(logging.INFO):
        await within(server.stop())
    assert "shutdown complete" in caplog.text


async def test_shutdown_waits_for_replicas(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they have everything; a signal ends the wait."""
    left, ends, servers = 2, [], []

    class Heard(HeardSignals):
        is_ending = False

        def ending(self) -> None:
            ends.append(left)
            self.is_ending = True

    def behind(server: Server) -> int:
        nonlocal left
        left -= 1
        return left

    start = Server.start

    async def begin(server: Server, *rest: Any) -> None:
        await start(server, *rest)
        servers.append(server)

    monkeypatch.setattr(Server, "start", begin)
    monkeypatch.setattr(Server, "replicas_behind", behind)
    monkeypatch.setattr(serve, "SEE_OFF_S", 0)
    for signals, told, expected in ((Heard(), 2, 0), (Heard(), 1 << 60, (1 << 60) - 1)):
        left = told
        if told > 2:
            signals.ending = lambda: None  # type: ignore[method-assign]
            signals.is_ending = True  # SIGTERM has come meanwhile
        serving = asyncio.ensure_future(serve._serve(config, signals, None, None))  # type: ignore[arg-type]
        await until(lambda: bool(servers))
        server = servers.pop()
        assert server.end_process is not None
        server.end_process(True)
        assert await within(serving) == 0
        assert left == expected
    assert ends == [0]
