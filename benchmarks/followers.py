"""Clients that follow the binlogs of several servers and note when each transaction came.

    python -m benchmarks.followers --position GTIDS --groups N USER:PASSWORD@HOST:PORT ...

prints {"ready": true} once the beginning of every stream has come, and, when N transactions have come from each
server, a list for each server: times of the monotonic clock, in seconds. One process and one poll loop, so that the
servers are seen by the same eyes.
"""

from __future__ import annotations

import argparse
import json
import selectors
import sys
import time
from typing import Final

from binlog_protocol.events.event_type import EventType

from benchmarks.event_scanner import EventScanner
from benchmarks.raw_replica import FOLLOW, READ_BYTES, DrainError, RawReplica, received

SERVER_ID: Final = 91_000
TIMEOUT_S: Final = 60.0  # without a byte from anybody


class Follower:
    """One stream. `came`: when each transaction was there: an event of type `ends`, as a rule its last."""

    def __init__(
        self,
        login: str,
        position: str,
        server_id: int,
        ends: EventType = EventType.XID,
        *,
        tls: bool = False,
    ) -> None:
        self._ends = ends
        account, _, address = login.rpartition("@")
        user, _, password = account.partition(":")
        host, _, port = address.rpartition(":")
        replica = RawReplica((host, int(port)), user, password, position=position, tls=tls)
        self.socket = replica.start_dump(server_id, FOLLOW)
        self.came: list[float] = []
        self.begun = False
        self._buffer = bytearray(READ_BYTES)
        self._scanner = EventScanner()

    def read(self) -> None:
        """Read the events that have come. Raises `DrainError` at the end of the stream."""
        for data in received(self.socket, self._buffer):
            now = time.monotonic()
            for type_ in self._scanner.types(bytes(data)):
                self.begun = self.begun or type_ == EventType.FORMAT_DESCRIPTION
                if type_ == self._ends:
                    self.came.append(now)


def follow(followers: list[Follower], groups: int) -> None:
    """Follow until all have that many transactions; print when all have begun. Raises `DrainError`."""
    ready = False
    with selectors.DefaultSelector() as selector:
        for follower in followers:
            selector.register(follower.socket, selectors.EVENT_READ, follower.read)
        while any(len(follower.came) < groups for follower in followers):
            found = selector.select(TIMEOUT_S)
            if not found:
                counts = [len(follower.came) for follower in followers]
                raise DrainError(
                    f"nothing came for {TIMEOUT_S:.0f} s; transactions so far: {counts}"
                )
            for key, _ in found:
                key.data()
            if not ready and all(follower.begun for follower in followers):
                ready = True
                print(json.dumps({"ready": True}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.followers")
    parser.add_argument("--position", default="")
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("logins", nargs="+", metavar="USER:PASSWORD@HOST:PORT")
    given = parser.parse_args()
    try:
        followers = [
            Follower(login, given.position, SERVER_ID + i) for i, login in enumerate(given.logins)
        ]
        follow(followers, given.groups)
    except (DrainError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps([follower.came for follower in followers]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
