"""Clients that come and go while others commit and replicas follow.

    python -m benchmarks.churners --port P --user U --password PW --replicas N --commits-s N --logins-s N --lives-s N

prints {"ready": N} once all replicas have their format description; goes on until standard input closes; then prints a
`Churned`. Everything is by the clock, not as fast as it goes: commits and logins are spread over each second, and a
replica is replaced by a new one, behind the newest group, as often as `--lives-s` says (seconds of a replica's life).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks.raw_replica import FOLLOW, DrainError, RawReplica
from benchmarks.registry import BenchmarkError
from benchmarks.sql_client import execute, log_in, query_packet

SERVER_ID: Final = 200_000
_READ_BYTES: Final = 1 << 18
_POLL_S: Final = 0.2
_CONNECTIONS: Final = 16  # that commit
_LOCK: Final = threading.Lock()
_SQL: Final = "INSERT INTO t VALUES (1, '" + "x" * 200 + "')"


@dataclass(slots=True)
class Churned:
    """Counts of a run. `bytes`: to all replicas; `late_s`: commits behind the clock at the end."""

    commits: int = 0
    logins: int = 0
    replaced: int = 0
    bytes: int = 0
    late_s: float = 0.0


class Replicas:
    """The sockets that follow, in one poll loop."""

    def __init__(self, given: argparse.Namespace, churned: Churned) -> None:
        self._given = given
        self._churned = churned
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._next_id = SERVER_ID
        for _ in range(given.replicas):
            self._add()

    def follow(self, ended: threading.Event) -> None:
        """Read and replace until `ended`. Raises `DrainError`."""
        life = self._given.lives_s / max(1, self._given.replicas)
        due = time.monotonic() + life
        while not ended.is_set():
            for key, _ in self._selector.select(_POLL_S):
                self._read(key.data)
            if self._given.lives_s and time.monotonic() >= due:
                due += life
                self._replace()

    def _add(self) -> None:
        given = self._given
        address = (given.host, given.port)
        replica = RawReplica(address, given.user, given.password, position=_position(given))
        sock = replica.start_dump(self._next_id, FOLLOW)
        self._next_id += 1
        self._sockets.append(sock)
        self._selector.register(sock, selectors.EVENT_READ, sock)

    def _replace(self) -> None:
        sock = self._sockets.pop(0)
        self._selector.unregister(sock)
        sock.close()
        self._add()
        self._churned.replaced += 1

    def _read(self, sock: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            data = sock.recv(_READ_BYTES)
            if not data:
                raise DrainError("the server has closed a stream")
            self._churned.bytes += len(data)


def _position(given: argparse.Namespace) -> str:
    """The newest group, so that only what comes is sent."""
    import pymysql

    connection: Any = pymysql.connect(
        host=given.host, port=given.port, user=given.user, password=given.password,
        autocommit=None, ssl_disabled=True,
    )  # fmt: skip
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos")
            return str(cursor.fetchone()[0])
    finally:
        connection.close()


def _commit(given: argparse.Namespace, churned: Churned, ended: threading.Event) -> None:
    """One of the connections that commit: its share of what is due."""
    sock = log_in(given.host, given.port, given.user, given.password)
    packet = query_packet(_SQL.encode())
    began, done = time.monotonic(), 0
    while not ended.is_set():
        late = time.monotonic() - (began + done * _CONNECTIONS / given.commits_s)
        if late < 0:
            time.sleep(min(_POLL_S, -late))
            continue
        execute(sock, packet)
        done += 1
        with _LOCK:
            churned.commits += 1
            churned.late_s = max(0.0, late)


def _log_in(given: argparse.Namespace, churned: Churned, ended: threading.Event) -> None:
    began = time.monotonic()
    while not ended.is_set():
        wait = began + churned.logins / given.logins_s - time.monotonic()
        if wait > 0:
            time.sleep(min(_POLL_S, wait))
            continue
        _position(given)
        churned.logins += 1


def churn(given: argparse.Namespace) -> Churned:
    """See the module. Raises `BenchmarkError`."""
    churned = Churned()
    ended = threading.Event()
    failed: list[BaseException] = []
    replicas = Replicas(given, churned)

    def guarded(work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except (BenchmarkError, OSError) as error:
            failed.append(error)
            ended.set()

    print(json.dumps({"ready": given.replicas}), flush=True)
    threads = [
        threading.Thread(target=guarded, args=(replicas.follow, ended)),
        threading.Thread(target=guarded, args=(_log_in, given, churned, ended)),
        *(
            threading.Thread(target=guarded, args=(_commit, given, churned, ended))
            for _ in range(_CONNECTIONS)
        ),
    ]
    for thread in threads:
        thread.start()
    closed = threading.Thread(target=sys.stdin.read, daemon=True)
    closed.start()
    while closed.is_alive() and not ended.is_set():
        closed.join(_POLL_S)
    ended.set()
    for thread in threads:
        thread.join()
    if failed:
        raise BenchmarkError(str(failed[0]))
    return churned


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churners")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", default="")
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--commits-s", type=float, required=True)
    parser.add_argument("--logins-s", type=float, required=True)
    parser.add_argument("--lives-s", type=float, required=True)
    try:
        print(json.dumps(asdict(churn(parser.parse_args()))))
    except (BenchmarkError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
