"""`process/hand_over`, and what `serve` makes of it: one side in this process, the other one played.

tests/integration/test_hand_over.py has both as processes, under load and killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from binlog_server.cli import serve
from binlog_server.process import hand_over
from binlog_server.process.hand_over import READY, SERVING, YOURS, Predecessor, given_sockets
from binlog_server.process.service_manager import ServiceManager
from binlog_server.settings.config import Config
from tests.binlog_server.cli.test_serve import HeardSignals
from tests.binlog_server.lab import until, within

PLAYED: Final = f"""
import os, socket
channel = socket.socket(fileno=int(os.environ[{hand_over.VARIABLE!r}]))
"""
SAYS_READY: Final = f"channel.send({READY!r}); assert channel.recv(1)[:0] == b''\n"
WAITS_FOR_YOURS: Final = f"""
channel.send({READY!r})
first, sockets, _, _ = socket.recv_fds(channel, 1024, 9)
assert channel.recv(1) == {YOURS!r}
"""


class Old:
    """The process that serves: this one. A program of Python is run in the place of its command."""

    def __init__(self, config: Config, told: str) -> None:
        self.lines: list[str] = []
        self.signals = HeardSignals()
        self.manager = ServiceManager({"NOTIFY_SOCKET": told})
        self.running = asyncio.ensure_future(
            serve._serve(config, self.signals, None, None, lambda: config, self.manager)  # type: ignore[arg-type]
        )

    def log(self, line: logging.LogRecord) -> bool:
        self.lines.append(line.getMessage())
        return True

    async def says(self, text: str, times: int = 1) -> str:
        """The last line with it, when it has said it so often."""
        await until(lambda: sum(text in line for line in self.lines) == times)
        return next(line for line in reversed(self.lines) if text in line)

    async def greeting(self) -> bytes:
        ready = next(line for line in self.lines if "ready for connections" in line)
        port = int(ready.partition("' port: ")[2].split()[0])
        reader, writer = await within(asyncio.open_connection("127.0.0.1", port))
        try:
            return await within(reader.read(5))
        finally:
            writer.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.setblocking(False)
        yield found


def last_of(told: socket.socket) -> bytes:
    """The last datagram that has come."""
    said = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            said = told.recv(4096)
    return said


@pytest.fixture
async def old(
    tmp_path: Path, told: socket.socket, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Old]:
    config = Config(
        tmp_path / "store",
        listen_host="127.0.0.1",
        listen_port=0,
        server_id=1,
        max_binlog_size=1 << 20,
        innodb_log_file_size=4 << 20,
    )
    caplog.set_level(logging.INFO)
    made = Old(config, str(tmp_path / "notify"))
    caplog.handler.addFilter(made.log)
    await made.says("ready for connections")
    yield made
    if not made.running.done():
        made.signals.stop()
        await within(made.running)


def hand_over_to(monkeypatch: pytest.MonkeyPatch, old: Old, program: str) -> None:
    command = [sys.executable, "-I", "-S", "-c", PLAYED + program]
    monkeypatch.setattr(serve, "own_command", lambda: command)
    old.signals.hand_over()


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "open('/nowhere')"])
async def test_one_that_cannot_start_changes_nothing(
    old: Old, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over_to(monkeypatch, old, program)
    assert "has ended before it was ready" in await old.says("this one goes on")
    assert "shutdown complete" not in old.lines
    assert await old.greeting()


async def test_a_command_that_is_not_there(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "own_command", lambda: ["/nowhere/binlog-server"])
    old.signals.hand_over()
    said = await old.says("no new process could be started")
    assert "No such file or directory: '/nowhere/binlog-server'" in said
    assert await old.greeting()


@pytest.mark.parametrize("program", [SAYS_READY, WAITS_FOR_YOURS], ids=["ready", "yours"])
async def test_one_that_ends_before_it_serves(
    old: Old, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one opens the store again, at the same sockets: twice, as it has kept all that it needs for it."""
    for times in (1, 2):
        hand_over_to(monkeypatch, old, program)
        await old.says("does not serve: this one goes on", times)
        await old.says("shutdown complete", times)
        await old.says("ready for connections", times + 1)
        assert await old.greeting()


async def test_one_that_serves(
    old: Old,
    told: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has come in between is in the queue of the sockets that it was given."""
    last_of(told)  # such a socket keeps ten datagrams, and drops what comes then
    program = f"""
assert os.getppid() != {os.getpid()}  # systemd kills at once, at a stop, what was another's child
assert "binlog_server.cli.serve" in os.environ[{hand_over.LOADED!r}].split(",")
listener = socket.socket(fileno=sockets[0])
listener.setblocking(True)
come, _ = listener.accept()
come.send(b"served")
channel.send({SERVING!r})
"""
    hand_over_to(monkeypatch, old, WAITS_FOR_YOURS + program)
    await old.says("shutdown complete")
    assert await old.greeting() == b"serve"
    assert await within(old.running) == 0
    said = last_of(told)
    pid = (await old.says("is to take the place")).split()[1]
    assert said.decode().split("\n") == [f"MAINPID={pid}", "STATUS=serving", "READY=1"]


@pytest.mark.parametrize(
    ("program", "seen"),
    [
        ("channel.recv(2000); channel.recv(1)", "is to take"),
        (WAITS_FOR_YOURS + "channel.recv(1)", "shutdown complete"),
    ],
    ids=["before it is ready", "before it serves"],
)
async def test_an_old_one_that_is_told_to_end_takes_it_along(
    old: Old,
    program: str,
    seen: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand_over_to(monkeypatch, old, program)
    await old.says(seen)
    pid = int((await old.says("is to take the place")).split()[1])
    old.signals.stop()
    assert await within(old.running) == 0
    with contextlib.suppress(ProcessLookupError):  # or it is gone altogether
        process = os.pidfd_open(pid)
        assert hand_over._has_ended(process)
        os.close(process)


# --- the new process ---


async def test_a_new_one_waits_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, socket.create_server(("127.0.0.1", 0)) as listener:
        socket.send_fds(ours, [b"a:1"], [listener.fileno()])
        environment = {
            hand_over.VARIABLE: str(theirs.detach()),
            hand_over.LOADED: "no_such.module,binlog_server.another_version,this",
        }
        new = Predecessor.of(environment)
        assert new is not None
        assert not environment
        monkeypatch.delitem(sys.modules, "this", raising=False)
        with contextlib.redirect_stdout(io.StringIO()) as poem:
            new.load_as_it()  # what this version has of what the old one had
        assert "Zen" in poem.getvalue()
        waiting = asyncio.ensure_future(new.lets_go())
        assert await asyncio.to_thread(ours.recv, 1) == READY
        assert not waiting.done()
        ours.send(YOURS)
        assert await within(waiting)
        (given,) = new.take_sockets("a:1")
        with given:
            assert given.getsockname() == listener.getsockname()
        new.serving()
        assert ours.recv(2) == SERVING
        assert ours.recv(1) == b""


async def test_a_new_one_goes_on_without_the_old_one() -> None:
    ours, theirs = socket.socketpair()
    with ours, socket.create_server(("127.0.0.1", 0)) as listener:
        socket.send_fds(ours, [b"a:1"], [listener.fileno()])
    new = Predecessor(theirs)
    assert not await within(new.lets_go())
    assert new.take_sockets("elsewhere:1") == ()
    assert [one.fileno() for one in new.sockets] == [-1]
    new.serving()


def test_only_a_server_hands_over() -> None:
    assert Predecessor.of({}) is None
    for text in ("x", "", str(1 << 20)):
        with pytest.raises(OSError):
            Predecessor.of({hand_over.VARIABLE: text})


def test_sockets_of_a_socket_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(hand_over, "FIRST_GIVEN", listener.fileno())
        environment = {"LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "OTHER": "1"}
        assert given_sockets(dict(environment), pid=8) == []
        (given,) = given_sockets(environment, pid=7)
        assert given.getsockname() == listener.getsockname()
        given.detach()
        assert environment == {"OTHER": "1"}


def test_the_same_command_is_run_again(tmp_path: Path) -> None:
    script = tmp_path / "binlog-server"
    script.touch(0o755)
    again = hand_over.own_command
    assert again([str(script), "serve"], ["python", str(script), "serve"]) == [str(script), "serve"]
    module = str(tmp_path / "__main__.py")
    whole = ["python", "-X", "dev", "-m", "binlog_server", "serve"]
    assert again([module, "serve"], whole) == [sys.executable, *whole[1:]]
