"""A load with every kind of group: small ones and large, DDL, XA, engines without transactions, several domains."""

from __future__ import annotations

import contextlib
import math
import random
import threading
from collections.abc import Iterator

import pymysql

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import POLL, until

KB = 1 << 10
MB = 1 << 20
DOMAINS = (0, 5, 7)
FORMATS = ("ROW", "ROW", "MIXED", "STATEMENT")

_SCHEMA = (
    "CREATE DATABASE d",
    *(f"CREATE TABLE d.t{n} (id INT AUTO_INCREMENT KEY, a LONGTEXT)" for n in DOMAINS),
    "CREATE TABLE d.log (id INT AUTO_INCREMENT KEY, a TEXT) ENGINE=MyISAM",
    "CREATE TABLE d.xa (id INT AUTO_INCREMENT KEY, a TEXT)",
    "CREATE TABLE d.shape (id INT AUTO_INCREMENT KEY, a TEXT)",
)


def random_size(rng: random.Random, low: int, high: int) -> int:
    """Of any order of magnitude."""
    return int(math.exp(rng.uniform(math.log(low), math.log(high))))


class MixedLoad:
    """Two threads that commit, and connect again when the upstream went away.

    One writes InnoDB rows, whatever happens. The other one does what a kill of the upstream could leave half done there
    (DDL, XA, MyISAM): it stands still during `quiet`.

    Args:
        pause_s: between two groups.
        large_every: one group in so many has 100 KB to 20 MB.
    """

    def __init__(
        self, upstream: MariaDB, rng: random.Random, *, pause_s: float, large_every: int
    ) -> None:
        self.groups = 0
        """Committed so far; roughly, after a kill of the upstream."""
        self._upstream = upstream
        self._pause_s = pause_s
        self._large_every = large_every
        self._stop = threading.Event()
        self._quiet = threading.Lock()
        self._prepared: list[str] = []
        self._columns = 0
        self._threads = [
            threading.Thread(target=run, args=(random.Random(rng.getrandbits(32)),), daemon=True)
            for run in (self._write_rows, self._write_the_rest)
        ]

    def wait_more(self, groups: int) -> None:
        """Until so many more are committed."""
        wanted = self.groups + groups
        until(lambda: self.groups >= wanted, f"{groups} more groups", timeout=60)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """The upstream may be killed: only InnoDB rows are written."""
        with self._quiet:
            yield

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """At its end nothing is open or prepared."""
        self._upstream.script(*_SCHEMA)
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(60)
        until(self._all_finished, "the last XA transactions")

    def _all_finished(self) -> bool:
        for name in list(self._prepared):
            self._finish(name, "COMMIT")
        return not self._prepared

    # --- rows ---

    def _write_rows(self, rng: random.Random) -> None:
        while not self._stop.is_set():
            with (
                contextlib.suppress(pymysql.Error, OSError),
                self._upstream.connect() as connection,
            ):
                cursor = connection.cursor()
                while not self._stop.is_set():
                    for sql in self._transaction(rng):
                        cursor.execute(sql)
                    self.groups += 1
                    self._stop.wait(self._pause_s)
            self._stop.wait(POLL)

    def _transaction(self, rng: random.Random) -> Iterator[str]:
        domain = rng.choice(DOMAINS)
        yield f"SET SESSION gtid_domain_id={domain}"
        yield f"SET SESSION binlog_format={rng.choice(FORMATS)}"
        if rng.randrange(self._large_every):
            yield _insert(domain, random_size(rng, 20, 30 * KB))
            return
        yield "SET SESSION binlog_format=ROW"  # a statement is short, whatever it writes
        size = random_size(rng, 100 * KB, 20 * MB)
        rows = rng.choice((1, 2, 10, 100))
        yield "BEGIN"
        for _ in range(rows):
            yield _insert(domain, size // rows)
        yield "COMMIT"

    # --- DDL, XA, MyISAM ---

    def _write_the_rest(self, rng: random.Random) -> None:
        while not self._stop.is_set():
            with self._quiet, contextlib.suppress(pymysql.Error, OSError):
                rng.choice((self._alter, self._log, self._prepare, self._end_one))(rng)
                self.groups += 1
            self._stop.wait(10 * self._pause_s)

    def _alter(self, rng: random.Random) -> None:
        self._columns += 1
        self._upstream.script(
            f"ALTER TABLE d.shape ADD COLUMN c{self._columns} INT DEFAULT {rng.randrange(100)}",
            "INSERT INTO d.shape (a) VALUES ('row')",
            f"ALTER TABLE d.shape DROP COLUMN c{self._columns}",
            f"CREATE OR REPLACE TABLE d.copy AS SELECT * FROM d.t{rng.choice(DOMAINS)} LIMIT 2",
        )

    def _log(self, rng: random.Random) -> None:
        self._upstream.script(
            f"INSERT INTO d.log (a) VALUES (REPEAT('m', {rng.randrange(20 * KB)})), ('second')",
            "BEGIN",
            "INSERT INTO d.log (a) VALUES ('stays')",
            "INSERT INTO d.t0 (a) VALUES ('undone')",
            "ROLLBACK",
        )

    def _prepare(self, rng: random.Random) -> None:
        name = f"x{rng.getrandbits(60)}"
        self._upstream.script(
            f"XA START '{name}'",
            f"INSERT INTO d.xa (a) VALUES (REPEAT('x', {rng.randrange(20 * KB)}))",
            f"XA END '{name}'",
            f"XA PREPARE '{name}'",
        )
        self._prepared.append(name)

    def _end_one(self, rng: random.Random) -> None:
        if self._prepared:
            self._finish(rng.choice(self._prepared), rng.choice(("COMMIT", "ROLLBACK")))

    def _finish(self, name: str, how: str) -> None:
        # The connection that has prepared it may not be gone yet: then later.
        with contextlib.suppress(pymysql.Error):
            self._upstream.q(f"XA {how} '{name}'")
            self._prepared.remove(name)


def _insert(domain: int, size: int) -> str:
    return f"INSERT INTO d.t{domain} (a) VALUES (REPEAT('{'0123456789abcdef' * 4}', {size // 64}))"
