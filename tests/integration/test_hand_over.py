"""A new process takes the place of a server under load, and kill -9 of either at each step.

What docs/running.md and docs/upgrades.md say of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert, load
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

pytestmark = [pytest.mark.slow, pytest.mark.any_version]

ROUNDS = 5
STEPS = ["started", "ready", "yours", "open"]
PLANTED = f"""#!{sys.executable}
import os, signal, sys
from binlog_server.process.hand_over import VARIABLE, Predecessor
from binlog_server.cli import main

step, victim = os.environ.get("STEP", " ").split(" ")

def here(name):
    if name == step:
        os.kill(os.getpid() if victim == "new" else os.getppid(), signal.SIGKILL)

def planted(way, before, behind):
    found = getattr(Predecessor, way)
    async def lets_go(self):
        here(before)
        try:
            return await found(self)
        finally:
            here(behind)
    def serving(self):
        here(before)
        found(self)
    setattr(Predecessor, way, lets_go if way == "lets_go" else serving)

if VARIABLE in os.environ:
    here("started")
    planted("lets_go", "ready", "yours")
    planted("serving", "open", "")
sys.exit(main())
"""
_PID = re.compile(r"process (\d+) is to take the place")


def new_ones(server: BinlogServer) -> list[int]:
    """The processes that were to take the place of it, the last one behind."""
    return [int(pid) for pid in _PID.findall(server.log())]


@pytest.fixture
def nobody_left() -> Iterator[Callable[[BinlogServer], None]]:
    """New processes are no children of the test: they are ended by their numbers."""
    servers: list[BinlogServer] = []
    yield servers.append
    for server in servers:
        for pid in new_ones(server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Callers:
    """Somebody who calls again and again: nobody may be refused."""

    def __init__(self, server: BinlogServer) -> None:
        self.refused = self.answered = 0
        self._where = server.host, server.port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Callers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._over.wait(0.002):
            try:
                with socket.create_connection(self._where, timeout=30) as caller:
                    caller.recv(5)
                self.answered += 1
            except ConnectionRefusedError:
                self.refused += 1
            except ConnectionResetError:
                pass  # it was let in, and its server has been killed


def test_replicas_reconnect_once(
    backend: object,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    nobody_left: Callable[[BinlogServer], None],
) -> None:
    """Under load, again and again: each time each replica comes back once, at once, and no caller is refused."""
    upstream, server = make_relay(max_binlog_size=1 << 20)
    nobody_left(server)
    server.stop()
    server.forked = False  # by its own command, which is run again
    server.start()
    replicas = [make_replica().follow(server) for _ in range(3)]
    insert(upstream)
    assert_equal(upstream, *replicas)
    dumps = server.log().count("dump starts")
    with load(upstream) as running, Callers(server) as callers:
        running.wait_more()
        pid = server.pid
        for times in range(1, ROUNDS + 1):
            os.kill(pid, signal.SIGUSR2)
            until(lambda times=times: server.log().count(" serves\n") == times)  # type: ignore[misc]
            pid = new_ones(server)[-1]
            wanted = dumps + times * len(replicas)
            until(lambda wanted=wanted: server.log().count("dump starts") >= wanted)  # type: ignore[misc]
            running.wait_more(200)
    assert_equal(upstream, *replicas)
    assert server.log().count("dump starts") == dumps + ROUNDS * len(replicas)
    assert (callers.refused, callers.answered > ROUNDS) == (0, True)
    for replica in replicas:
        assert replica.replica_status()["Last_IO_Errno"] == 0
        assert "error connecting to master" not in replica.log()
    os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("victim", ["old", "new"])
@pytest.mark.parametrize("step", STEPS)
def test_either_is_killed(
    step: str,
    victim: str,
    tmp_path: Path,
    binlog_server: MakeBinlogServer,
    nobody_left: Callable[[BinlogServer], None],
) -> None:
    """The other one serves on, with all that was acknowledged; nobody is refused."""
    script = tmp_path / "binlog-server"
    script.write_text(PLANTED)
    script.chmod(0o755)
    server = binlog_server(
        start=False,
        environment={"STEP": f"{step} {victim}"},
        users={"writer": {"password": "x", "grants": ["ALL PRIVILEGES"]}},
    )
    server.command, server.forked = (str(script),), False
    server.start()
    nobody_left(server)
    server.q("CREATE DATABASE before")
    with Callers(server) as callers:
        os.kill(server.pid, signal.SIGUSR2)
        until(lambda: new_ones(server))
        (new,) = new_ones(server)
        if victim == "new":
            until(lambda: "this one goes on" in server.log())
            assert server.alive()
        else:
            assert server.wait_exit() == -signal.SIGKILL
        answered = callers.answered
        until(lambda: callers.answered > answered + 10)
        server.q("CREATE DATABASE behind")
        found = {row["Info"] for row in server.q("SHOW BINLOG EVENTS") if row["Info"]}
    for name in ("before", "behind"):
        assert any(f"CREATE DATABASE {name}" in info for info in found), found
    assert callers.refused == 0
    assert os.path.exists(f"/proc/{new}") == (victim == "old")
