"""Thousands of connections that send nothing, half a packet, or garbage: a replica goes on, and an admin gets in."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import pytest
from binlog_protocol.connection.handshake import LoginRequest, TlsRequest
from binlog_protocol.wire.packets import frame_packet

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, load
from tests.kit.fixtures import MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

FILES_LEFT = 500  # of the limit, for everything else that a test has open
BACKLOG = 200  # connections that are being made at the same time
SOURCES = 20  # 127.0.1.x: no address has ports enough for all
RSS_GROWTH_MAX = 400 << 20
SLOW = [pytest.mark.slow, pytest.mark.timeout(300)]

_LOGIN = frame_packet(LoginRequest("repl", b"x" * 20).build(), 1)[0]
_HELLO = bytes.fromhex("16030100c8010000c40303")


def what_they_send(chance: random.Random) -> bytes:
    """One of all kinds; nothing of it is a login, and after most of it the server waits for more."""
    kinds = (
        b"",
        _LOGIN[: chance.randrange(1, len(_LOGIN))],
        chance.randbytes(chance.randrange(1, 300)),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff\xff\xff\x01" + chance.randbytes(50),
        frame_packet(TlsRequest().build(), 1)[0] + _HELLO,
        frame_packet(TlsRequest().build(), 1)[0] + chance.randbytes(50),
    )
    return chance.choice(kinds)


class Flood:
    """Keeps `count` connections: who is closed by the server comes again, for as long as it runs."""

    def __init__(self, server: BinlogServer, count: int, chance: random.Random) -> None:
        self.opened = 0
        self.failed: Counter[str] = Counter()
        self._to = (server.host, server.port)
        self._count = count
        self._chance = chance
        self._sockets: dict[socket.socket, bytes] = {}
        self._selector = DefaultSelector()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        for one in self._sockets:
            one.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(min(BACKLOG, self._count - len(self._sockets))):
                self._open()
            for key, _ in self._selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                self._heard(key.fileobj)

    def _open(self) -> None:
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no TIME_WAIT
        try:
            one.bind((f"127.0.1.{1 + self.opened % SOURCES}", 0))
            with contextlib.suppress(BlockingIOError):
                one.connect(self._to)
        except OSError as error:
            self.failed[str(error)] += 1
            one.close()
            return
        self.opened += 1
        self._sockets[one] = what_they_send(self._chance)
        self._selector.register(one, EVENT_READ)

    def _heard(self, one: socket.socket) -> None:
        """The greeting, then we send; or the end, and another one comes in its place."""
        try:
            data = one.recv(4096)
            if data:
                with contextlib.suppress(BlockingIOError):
                    one.send(self._sockets[one])
                self._sockets[one] = b""
                return
        except OSError as error:
            self.failed[type(error).__name__] += 1
        self._selector.unregister(one)
        del self._sockets[one]
        one.close()


@contextlib.contextmanager
def flood(server: BinlogServer, count: int, chance: random.Random) -> Iterator[Flood]:
    running = Flood(server, count, chance)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def memory_bytes(server: BinlogServer) -> int:
    """Resident."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def accepted(server: BinlogServer) -> int:
    """Connections since its start."""
    (row,) = server.q("SHOW STATUS LIKE 'Connections'")
    return int(row["Value"])


def raise_open_files(wanted: int) -> int:
    """As far as the hard limit allows; returns for how many connections that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = len(os.listdir("/proc/self/fd")) + FILES_LEFT
    allowed = max(soft, wanted + others)
    if hard != resource.RLIM_INFINITY:
        allowed = min(allowed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return min(wanted, allowed - others)


def wait_for_rows(replica: MariaDB, more: int) -> None:
    wanted = int(str(replica.value("SELECT COUNT(*) FROM d.t"))) + more
    replica.wait("SELECT COUNT(*) AS n FROM d.t", lambda rows: rows[0]["n"] >= wanted, timeout=60)


@pytest.mark.replica
@pytest.mark.parametrize(
    ("count", "max_connections", "groups"),
    [
        pytest.param(800, 400, 100, marks=pytest.mark.timeout(180)),
        pytest.param(10_000, 1000, 3000, marks=SLOW),
        pytest.param(10_000, 10_000, 1000, marks=SLOW),  # all at the same time
    ],
)
def test_flood(
    count: int,
    max_connections: int,
    groups: int,
    make_relay: MakeRelay,
    make_replica: MakeMariaDB,
    rng: random.Random,
) -> None:
    """The replica gets group after group while the flood lasts; logins and statements work; memory is bounded."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = raise_open_files(count)
    if possible < count:
        print(f"{possible} connections instead of {count}: the limit of open files")
    upstream, server = make_relay(max_connections=max_connections, log_level="WARNING")
    replica = make_replica().follow(server)
    quiet = memory_bytes(server)
    try:
        with load(upstream) as work, flood(server, possible, rng) as running:
            until(lambda: running.opened >= possible, "all have connected", 120)
            for _ in range(5):
                wait_for_rows(replica, groups // 5)
                assert server.q("SELECT 1 AS one") == [{"one": 1}]
                assert memory_bytes(server) - quiet < RSS_GROWTH_MAX
            until(lambda: accepted(server) >= possible, "all have been accepted", 120)
            opened = running.opened
            work.wait_more(1)
        print(f"{opened} connections, {running.failed}, {memory_bytes(server) - quiet >> 20} MB")
        assert_equal(upstream, replica, timeout=60)
        assert "Traceback" not in server.log()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
