"""Small commits that arrive at a fixed rate, whatever the server does: open loop.

Each has a due time. It is sent then, if a connection is free, and else as soon as one is; its latency counts from the
due time. (A client that waits for an answer before it asks again would leave out just the commits that a stall holds
up.) Run it as a process of its own, by `benchmarks.child.Child`:

    python -m benchmarks.arrivals --port P [--user U] [--password PW] --connections N --rate R --sql TEXT

prints `"running"` once the first commit is due, goes on until its standard input is closed, waits for what is due
by then, and prints a list of [due, done] pairs, seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import argparse
import json
import math
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.registry import BenchmarkError
from benchmarks.sql_client import READ_BYTES, Answers, StatementFailed, log_in, query_packet

TIMEOUT_S: Final = 60.0  # for what is due when the input ends

Timed = tuple[float, float]  # when it was due, when it was done


class Ledger:
    """Which commits are due, which are under way, and when they were done. Knows no sockets; times are given to it."""

    def __init__(self, start: float, rate: float) -> None:
        """The first is due at `start`, then `rate` each second."""
        self._start = start
        self._rate = rate
        self._arrived = 0
        self._waiting: deque[float] = deque()
        self._under_way: dict[int, float] = {}
        self.done: list[Timed] = []

    @property
    def next_due(self) -> float:
        """The time at which the next statement is due."""
        return self._start + self._arrived / self._rate

    def arrive(self, now: float) -> None:
        """Let all statements that are due by `now` wait to be sent."""
        while (due := self.next_due) <= now:
            self._waiting.append(due)
            self._arrived += 1

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_settled(self) -> bool:
        """Whether no statement waits or is under way."""
        return not self._waiting and not self._under_way

    def send(self, connection: int) -> None:
        """The one that waits longest goes out by that connection."""
        self._under_way[connection] = self._waiting.popleft()

    def answered(self, connection: int, now: float) -> None:
        """Note the answer to a connection's statement. Raises `StatementFailed` if none was under way."""
        due = self._under_way.pop(connection, None)
        if due is None:
            raise StatementFailed("an answer without a statement")
        self.done.append((due, now))


class OpenLoop:
    """A ledger, and the sockets that it is sent by.

    clock: seconds of CLOCK_MONOTONIC.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        packet: bytes,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._packet = packet
        self._clock = clock
        self._sockets = {sock.fileno(): sock for sock in sockets}
        self._answers = {fd: Answers() for fd in self._sockets}
        self._free = deque(self._sockets)
        self.ledger = Ledger(clock(), rate)

    def run_until_readable(self, stop: int) -> None:
        """Run until the descriptor `stop` can be read; at its end as well."""
        while not self._turn(arriving=True, stop=stop):
            pass

    def settle(self) -> None:
        """No more arrive; wait for those that have. Raises `StatementFailed` if that takes for ever."""
        deadline = self._clock() + TIMEOUT_S
        while not self.ledger.is_settled:
            if self._clock() > deadline:
                raise StatementFailed(f"commits are not answered within {TIMEOUT_S:.0f} s")
            self._turn(arriving=False, stop=None)

    def _turn(self, *, arriving: bool, stop: int | None) -> bool:
        """Send what is due, then wait for answers or the next one. Returns whether to stop."""
        ledger = self.ledger
        timeout = TIMEOUT_S
        if arriving:
            now = self._clock()
            ledger.arrive(now)
            timeout = ledger.next_due - now
        while ledger.has_waiting and self._free:
            fd = self._free.popleft()
            ledger.send(fd)
            self._sockets[fd].sendall(self._packet)
        watched = [*self._sockets, *([] if stop is None else [stop])]
        # Not epoll: its timeout is in whole milliseconds, which would be most of what is measured.
        readable, _, _ = select.select(watched, [], [], timeout)
        for fd in readable:
            if fd == stop:
                return True
            for _ in range(self._answers[fd].feed(self._sockets[fd].recv(READ_BYTES))):
                ledger.answered(fd, self._clock())
                self._free.append(fd)
        return False


def window(times: Sequence[Timed], begin: float, seconds: float) -> list[float]:
    """Latencies, in seconds, of those due in the window."""
    return [done - due for due, done in times if begin <= due < begin + seconds]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` of them. Raises `BenchmarkError` without values."""
    if not values:
        raise BenchmarkError("nothing was due in a window")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arrivals")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rate", type=float, default=200.0, help="a second")
    parser.add_argument("--sql", required=True)
    given = parser.parse_args()
    try:
        sockets = [
            log_in(given.host, given.port, given.user, given.password)
            for _ in range(given.connections)
        ]
        loop = OpenLoop(sockets, query_packet(given.sql.encode()), given.rate)
        print(json.dumps("running"), flush=True)
        loop.run_until_readable(sys.stdin.fileno())
        loop.settle()
    except (BenchmarkError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(loop.ledger.done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
