"""Clients that commit over the wire, each keeping account of what was acknowledged to it."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Self

import pymysql

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.kit.server import BinlogServer, replica_and_watcher

WRITER = "writer"
USERS = {
    **replica_and_watcher(),
    WRITER: {"password": "writer-password", "grants": ["BINLOG REPLAY"]},
}
"""For a server that replicas and clients log in to."""

TABLE = "d.t"
CLIENTS = 3
_INSERT = re.compile(rb"INSERT INTO d\.t VALUES \((\d+),")
_TEXT = (
    "".join(chr(33 + n) for n in range(90) if chr(33 + n) not in "'\\%") * 12500
)  # 1 MB and more
KB = 1 << 10
MB = 1 << 20

Server = MariaDB | BinlogServer


def connect(server: Server, **options: object) -> Any:
    """As the one who may write."""
    if isinstance(server, BinlogServer):
        options = {
            "user": WRITER,
            "password": USERS[WRITER]["password"],
            **options,
        }
    return server.connect(**options)


def make_table(server: Server) -> None:
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute(f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, a LONGTEXT)")


def ids_in(groups: Iterable[bytes]) -> set[int]:
    """Of the rows that groups of statements insert."""
    return {int(number) for group in groups for number in _INSERT.findall(group)}


class Committer:
    """A thread with one connection. Ends with the connection, or when told to."""

    def __init__(self, server: Server, number: int, rng: random.Random, first: int) -> None:
        self.acknowledged: list[int] = []
        """Ids of rows whose commit came back with OK."""
        self.unknown: list[int] = []
        """Of the transaction under way when the connection ended."""
        self.error: Exception | None = None
        self._server = server
        self._number = number
        self._rng = rng
        self._next = first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "a client got no answer"

    def _run(self) -> None:
        try:
            with connect(self._server) as connection, connection.cursor() as cursor:
                while not self._stop.is_set():
                    statements = list(self._transaction())
                    for sql in statements:
                        cursor.execute(sql)
                    self.acknowledged += self.unknown
                    self.unknown = []
        except (pymysql.Error, OSError) as error:
            self.error = error

    def _transaction(self) -> Iterator[str]:
        kind = self._rng.random()
        if kind < 0.8:
            yield self._insert(self._rng.randrange(20, 600))
        elif kind < 0.92:
            yield self._insert(self._rng.randrange(30 * KB, 150 * KB))  # spilled, most of them
        elif kind < 0.98:
            yield "BEGIN"
            for _ in range(self._rng.randrange(2, 20)):
                yield self._insert(self._rng.randrange(20, 4 * KB))
            yield "COMMIT"
        else:
            yield "BEGIN"
            for _ in range(self._rng.randrange(1, 5)):
                yield self._insert(MB)
            yield "COMMIT"

    def _insert(self, size: int) -> str:
        number = self._next
        self._next += 1
        self.unknown.append(number)
        return f"INSERT INTO {TABLE} VALUES ({number}, '{_TEXT[:size]}')"


class Committers:
    """Several, and what they were acknowledged over all their lives."""

    def __init__(
        self, server: Server, rng: random.Random, clients: int = CLIENTS, first: int = 0
    ) -> None:
        self.acknowledged: set[int] = set()
        self.unknown: set[int] = set()
        self._server = server
        self._rng = rng
        self._clients = clients
        self._first = first
        self._running: list[Committer] = []

    @classmethod
    def at_work(cls, server: Server, rng: random.Random, *, first: int = 0) -> Self:
        """Started, and some rows are committed."""
        committers = cls(server, rng, first=first)
        committers.start()
        committers.wait_more(20)
        return committers

    def start(self) -> None:
        self._running = []
        for number in range(self._clients):
            self._first += 1_000_000
            rng = random.Random(self._rng.getrandbits(32))
            self._running.append(Committer(self._server, number, rng, self._first))

    @property
    def committed(self) -> int:
        """Rows acknowledged since `start`."""
        return sum(len(client.acknowledged) for client in self._running)

    def wait_more(self, rows: int) -> None:
        wanted = self.committed + rows

        def done() -> bool:
            for client in self._running:
                if client.error is not None:
                    raise client.error
            return self.committed >= wanted

        until(done, f"{rows} more rows")

    def end(self) -> None:
        """Stop them; nobody may have met an error."""
        for client in self._running:
            client.stop()
        assert not self.errors()

    def errors(self) -> list[Exception]:
        """Wait until all have ended, by errors if nobody stops them; returns these."""
        for client in self._running:
            client.join()
            self.acknowledged.update(client.acknowledged)
            self.unknown.update(client.unknown)
        return [client.error for client in self._running if client.error is not None]


def sleep_some(rng: random.Random, most: float) -> None:
    """A moment that no condition marks: what is to come is to hit anything."""
    time.sleep(rng.random() * most)
