"""N connections that commit as fast as a server lets them: closed loop, one statement in flight on each.

All are in one process with one poll loop, so run it as a process of its own (`run`):

    python -m benchmarks.committers --port P [--user U] [--password PW] --connections N --seconds S LOAD

LOAD is `--sql TEXT`, or `--rows TABLE`: prepared statements that INSERT a row and UPDATE it, by turns. It prints one
JSON object, a `Committed`. Per statement it costs a poll (shared by all that are ready), a read and a write, and next
to nothing of Python: an answer equal to a good one of its connection is not looked at further.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from struct import Struct
from typing import Final

from benchmarks.child import run_json
from benchmarks.registry import BenchmarkError
from benchmarks.sql_client import (
    Answers,
    StatementFailed,
    execute_packet,
    log_in,
    prepare,
    query_packet,
)
from binlog_server.testing.sql_server import Credentials, Followed

TIMEOUT_S: Final = 30.0  # without an answer on any connection
_ANSWER_BYTES: Final = (
    512  # an OK packet has 11; small, so that reading takes no large buffer each time
)
ROW_TEXT_CHARS: Final = 200
ROW_TABLE: Final = (
    f"(id BIGINT NOT NULL PRIMARY KEY, n INT NOT NULL, t VARCHAR({ROW_TEXT_CHARS}) NOT NULL)"
)
"""The columns of a table for `--rows`."""
_LONGLONG, _LONG, _STRING = b"\x08\0", b"\x03\0", b"\xfd\0"
_INSERTED: Final = Struct(f"<qiB{ROW_TEXT_CHARS}s")  # with the length of the text
_UPDATED: Final = Struct("<iq")


@dataclass(frozen=True, slots=True)
class Committed:
    """`commits` of `seconds`, behind the warm-up; `total` with it. `cpu_s`: of this client in those seconds."""

    connections: int
    commits: int
    seconds: float
    total: int
    cpu_s: float

    @property
    def commits_s(self) -> float:
        return self.commits / self.seconds


@dataclass(frozen=True, slots=True)
class Load:
    """What is committed: a statement as text, or rows of a table, with `ROW_TABLE`."""

    sql: str = ""
    table: str = ""

    def packets(self, sockets: Sequence[socket.socket]) -> list[Iterator[bytes]]:
        """For each connection its packets, without end. Raises `StatementFailed`, `OSError`."""
        if not self.table:
            return [itertools.repeat(query_packet(self.sql.encode())) for _ in sockets]
        # Larger with each run, and in order, which InnoDB likes best.
        first = time.time_ns() // 1_000_000 << 22
        return [
            self._rows(sock, itertools.count(first + i, len(sockets)))
            for i, sock in enumerate(sockets)
        ]

    def _rows(self, sock: socket.socket, numbers: Iterator[int]) -> Iterator[bytes]:
        insert = prepare(sock, f"INSERT INTO {self.table} (id, n, t) VALUES (?, ?, ?)".encode())
        update = prepare(sock, f"UPDATE {self.table} SET n = ? WHERE id = ?".encode())
        return _rows(insert, update, numbers)


def _rows(insert: int, update: int, numbers: Iterator[int]) -> Iterator[bytes]:
    text, types = b"x" * ROW_TEXT_CHARS, _LONGLONG + _LONG + _STRING
    for number in numbers:
        yield execute_packet(insert, _INSERTED, types, number, 1, len(text), text)
        yield execute_packet(update, _UPDATED, _LONG + _LONGLONG, 2, number)


def run(
    source: Followed,
    account: Credentials,
    load: Load,
    connections: int,
    seconds: float,
    warm_up: float,
) -> Committed:
    """Commit to `source` from another process. Raises `BenchmarkError` if any statement fails."""
    what = ("--rows", load.table) if load.table else ("--sql", load.sql)
    answer = run_json(
        "benchmarks.committers",
        *("--host", source.host, "--port", str(source.port)),
        *("--user", account.user, "--password", account.password),
        *("--connections", str(connections), *what),
        *("--seconds", str(seconds), "--warm-up", str(warm_up)),
    )
    return Committed(**answer)


# -- the other process -----------------------------------------------------------------------------


class ClosedLoop:
    """Statements in flight on sockets, one on each."""

    def __init__(
        self, sockets: Sequence[socket.socket], packets: Sequence[Iterator[bytes]]
    ) -> None:
        self._sockets = list(sockets)  # kept open
        self._next: dict[int, Callable[[], bytes]] = {
            sock.fileno(): each.__next__ for sock, each in zip(sockets, packets, strict=True)
        }
        self._answers = {sock.fileno(): Answers() for sock in sockets}
        # What answers that were looked at looked like.
        self._usual: dict[int, set[bytes]] = {sock.fileno(): set() for sock in sockets}
        self._epoll = select.epoll()
        for sock in sockets:
            sock.setblocking(False)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def start(self) -> None:
        """Send the first statement on each connection."""
        for sock in self._sockets:
            self._send(sock.fileno())

    def commit_until(self, end: float) -> int:
        """Go on until `time.perf_counter()` is at `end`. Returns how many were answered.

        Raises `StatementFailed`.
        """
        poll, clock, read, write = self._epoll.poll, time.perf_counter, os.read, os.write
        usual, following = self._usual, self._next
        done = 0
        while clock() < end:
            ready = poll(TIMEOUT_S)
            if not ready:
                raise StatementFailed(f"no answer for {TIMEOUT_S:.0f} s")
            for fd, _ in ready:
                data = read(fd, _ANSWER_BYTES)
                if data in usual[fd] or self._look(fd, data):
                    done += 1
                    packet = following[fd]()
                    if write(fd, packet) != len(packet):
                        raise StatementFailed("the server does not take a statement whole")
        return done

    def finish(self) -> int:
        """Wait for what is in flight, and send nothing more. Returns how many were answered."""
        left = set(self._answers)
        while left:
            ready = self._epoll.poll(TIMEOUT_S)
            if not ready:
                raise StatementFailed(f"no answer for {TIMEOUT_S:.0f} s")
            for fd, _ in ready:
                if self._look(fd, os.read(fd, _ANSWER_BYTES)):
                    left.discard(fd)
        self._epoll.close()
        return len(self._answers)

    def _send(self, fd: int) -> None:
        packet = self._next[fd]()
        if os.write(fd, packet) != len(packet):
            raise StatementFailed("the server does not take a statement whole")

    def _look(self, fd: int, data: bytes) -> bool:
        """Whether the statement in flight is answered."""
        answers = self._answers[fd]
        was_between = answers.is_between
        done = answers.feed(data)
        if done > 1 or (done and not answers.is_between):
            raise StatementFailed("more than one answer to one statement")
        if was_between and done:
            self._usual[fd].add(data)
        elif not done:
            self._usual[fd].clear()  # what comes next is the rest of this one
        return bool(done)


def commit(
    sockets: Sequence[socket.socket], load: Load, seconds: float, warm_up: float
) -> Committed:
    """See `run`; in this process, over sockets that are logged in."""
    loop = ClosedLoop(sockets, load.packets(sockets))
    loop.start()
    warm = loop.commit_until(time.perf_counter() + warm_up)
    cpu = time.process_time()
    start = time.perf_counter()
    commits = loop.commit_until(start + seconds)
    took = time.perf_counter() - start
    cpu = time.process_time() - cpu
    return Committed(len(sockets), commits, took, warm + commits + loop.finish(), cpu)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.committers")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--connections", type=int, default=1)
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--sql", default="")
    either.add_argument("--rows", default="", metavar="TABLE", help=f"a table {ROW_TABLE}")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds that do not count")
    given = parser.parse_args()
    try:
        sockets = [
            log_in(given.host, given.port, given.user, given.password)
            for _ in range(given.connections)
        ]
        load = Load(given.sql, given.rows)
        committed = commit(sockets, load, given.seconds, given.warm_up)
    except (BenchmarkError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(asdict(committed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
