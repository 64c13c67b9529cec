"""Writes to an upstream, with known results: a running load, and waiting for what it leads to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pymysql

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import POLL, until


def insert(upstream: MariaDB, rows: int = 10, table: str = "d.t", size: int = 20) -> str:
    """One transaction a row, on one connection; returns the position behind them."""
    with upstream.connect() as connection, connection.cursor() as cursor:
        for i in range(rows):
            cursor.execute(f"INSERT INTO {table} (a) VALUES (%s)", (f"{i:05} ".ljust(size, "x"),))
        cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos AS p")
        return str(cursor.fetchone()["p"])


class Load:
    """A thread that commits row after row; connects again when the upstream went away."""

    def __init__(self, upstream: MariaDB, table: str) -> None:
        self.committed = 0
        self._upstream = upstream
        self._table = table
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def wait_more(self, rows: int = 20) -> None:
        """Until so many more are committed."""
        wanted = self.committed + rows
        until(lambda: self.committed >= wanted, f"{rows} more rows")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._upstream.connect() as connection, connection.cursor() as cursor:
                    while not self._stop.is_set():
                        text = f"{self.committed:08}" * 20
                        cursor.execute(f"INSERT INTO {self._table} (a) VALUES (%s)", (text,))
                        self.committed += 1
                        self._stop.wait(0.001)  # leaves room for the servers under test
            except (pymysql.Error, OSError):
                self._stop.wait(POLL)


@contextlib.contextmanager
def load(upstream: MariaDB, table: str = "d.t") -> Iterator[Load]:
    running = Load(upstream, table)
    running.start()
    try:
        running.wait_more(1)
        yield running
    finally:
        running.stop()


def assert_equal(upstream: MariaDB, *replicas: MariaDB, timeout: float = 20.0) -> None:
    """The replicas come to the upstream's position, with the same rows in the same tables."""
    position = upstream.gtid_binlog_pos
    for replica in replicas:
        replica.wait_gtid(position, timeout)
    wanted = upstream.checksum()
    for replica in replicas:
        assert replica.checksum() == wanted
        assert set(replica.gtid_slave_pos.split(",")) == set(position.split(","))
