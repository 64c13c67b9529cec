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
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Self

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.programs import ended
from tests.kit.server import BinlogServer

pytestmark = [pytest.mark.slow, pytest.mark.any_version]

ROUNDS = 5
STEPS = ["started", "ready", "yours", "open"]
PLANTED = f"""#!{sys.executable}
import os, signal, socket, struct, sys
from binlog_server.process.hand_over import VARIABLE, Predecessor
from binlog_server.cli import main

step, victim = os.environ.get("STEP", " ").split(" ")

def here(name):
    if name == step:
        os.kill(os.getpid() if victim == "new" else old, signal.SIGKILL)

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
    with socket.socket(fileno=os.dup(int(os.environ[VARIABLE]))) as there:  # whose child this is not
        old, = struct.unpack("i4x4x", there.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
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
            until(partial(ended, pid))  # its port is the next test's


RUN: Final = """CREATE PROCEDURE d.run()
BEGIN
  DECLARE i INT DEFAULT 0;
  WHILE NOT EXISTS (SELECT 1 FROM d.over) DO
    INSERT INTO d.t (a) VALUES (i);
    SET i = i + 1;
    DO SLEEP(0.0007);
  END WHILE;
END"""


def seq_no(upstream: MariaDB) -> int:
    return int(upstream.gtid_binlog_pos.rpartition("-")[2])


@contextlib.contextmanager
def small_commits(upstream: MariaDB) -> Iterator[None]:
    """Some 1,000 transactions a second of one row each: by a procedure, so that no client of Python limits them."""
    upstream.q("CREATE TABLE d.over (a INT)")
    upstream.q(RUN)
    running = threading.Thread(target=lambda: upstream.q("CALL d.run()"), daemon=True)
    running.start()
    try:
        yield
    finally:
        upstream.q("INSERT INTO d.over VALUES (1)")
        running.join(30)


class Watcher(ABC):
    """Looks, in a thread, until the block is over."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    @abstractmethod
    def _run(self) -> None: ...


class Standing(Watcher):
    """The longest time for which a replica has applied nothing, since it was set to 0: told, and not judged."""

    def __init__(self, replica: MariaDB) -> None:
        super().__init__()
        self.longest_s = 0.0
        self._replica = replica

    def _run(self) -> None:
        with self._replica.connect() as connection, connection.cursor() as cursor:
            last, since = "", time.monotonic()
            while not self._over.wait(0.002):
                cursor.execute("SELECT @@GLOBAL.gtid_slave_pos AS p")
                if (now := cursor.fetchone()["p"]) != last:
                    self.longest_s = max(self.longest_s, time.monotonic() - since) if last else 0
                    last, since = now, time.monotonic()


class Callers(Watcher):
    """Somebody who calls again and again: nobody may be refused."""

    def __init__(self, server: BinlogServer) -> None:
        super().__init__()
        self.refused = self.answered = 0
        self._where = server.host, server.port

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


@pytest.mark.timeout(240)  # five hand-overs, each of them waited for by three replicas that apply
def test_replicas_reconnect_once(
    backend: object,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    nobody_left: Callable[[BinlogServer], None],
) -> None:
    """Under load, again and again: each time each replica comes back once, at once, and no caller is refused.

    Prints for how long the replicas stood still: docs/running.md has it.
    """
    upstream, server = make_relay(max_binlog_size=1 << 20)
    nobody_left(server)
    server.stop()
    server.forked = False  # by its own command, which is run again
    server.start()
    replicas = [make_replica().follow(server) for _ in range(3)]
    insert(upstream)
    assert_equal(upstream, *replicas)
    dumps = server.log().count("dump starts")
    found: list[float] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(small_commits(upstream))
        callers = stack.enter_context(Callers(server))
        standing = [stack.enter_context(Standing(replica)) for replica in replicas]
        began, first = time.monotonic(), seq_no(upstream)
        until(lambda: seq_no(upstream) > first + 1000)
        before = [one.longest_s for one in standing]
        pid = server.pid
        for times in range(1, ROUNDS + 1):
            os.kill(pid, signal.SIGUSR2)
            until(lambda times=times: server.log().count(" serves\n") == times)  # type: ignore[misc]
            pid = new_ones(server)[-1]
            wanted = dumps + times * len(replicas)
            until(lambda wanted=wanted: server.log().count("dump starts") >= wanted)  # type: ignore[misc]
            there = seq_no(upstream)
            until(lambda there=there: seq_no(upstream) > there + 500)  # type: ignore[misc]
            for one, replica in zip(standing, replicas, strict=True):
                replica.wait_gtid(f"0-{upstream.server_id}-{there}")
                found.append(one.longest_s)
                one.longest_s = 0.0
        rate = (seq_no(upstream) - first) / (time.monotonic() - began)
    print(
        f"{rate:.0f} transactions/s; replicas stood still for at most {before} s before, then for {sorted(found)} s"
    )
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
    assert ended(new) == (victim == "new")
