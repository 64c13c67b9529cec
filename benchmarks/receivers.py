"""Replicas that receive and nothing else, in one process; one of them notes when each transaction came.

    python -m benchmarks.receivers --position GTIDS --replicas N [--tls] USER:PASSWORD@HOST:PORT

prints "ready" once all are in their dumps, and receives. A line on standard input says how many transactions there were
in all: when they have come to every replica it prints when they came to the first, in seconds of the monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
from typing import Final, TextIO

from binlog_protocol.events.event_type import EventType

from benchmarks.followers import TIMEOUT_S, Follower
from benchmarks.raw_replica import FOLLOW, READ_BYTES, DrainError, RawReplica, received

SERVER_ID: Final = 92_000


class Receivers:
    """The first is a `Follower`, of GTIDs: some servers end by XID what others end by COMMIT. The others count."""

    def __init__(self, login: str, position: str, replicas: int, *, tls: bool) -> None:
        self.probe = Follower(login, position, SERVER_ID, EventType.GTID, tls=tls)
        self._bytes: dict[socket.socket, int] = {}
        self._buffer = bytearray(READ_BYTES)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.probe.socket, selectors.EVENT_READ)
        account, _, address = login.rpartition("@")
        user, _, password = account.partition(":")
        host, _, port = address.rpartition(":")
        for number in range(1, replicas):
            replica = RawReplica((host, int(port)), user, password, position=position, tls=tls)
            sock = replica.start_dump(SERVER_ID + number, FOLLOW)
            self._bytes[sock] = 0
            self._selector.register(sock, selectors.EVENT_READ)

    def receive(self, told: TextIO) -> None:
        """Until as many have come as `told` says. Raises `DrainError`."""
        wanted: int | None = None
        self._selector.register(told, selectors.EVENT_READ)
        while wanted is None or len(self.probe.came) < wanted or len(set(self._bytes.values())) > 1:
            found = self._selector.select(TIMEOUT_S)
            if not found:
                raise DrainError(f"{len(self.probe.came)} transactions came, not {wanted}")
            for key, _ in found:
                if key.fileobj is self.probe.socket:
                    self.probe.read()
                elif key.fileobj is told:
                    wanted = int(told.readline())
                    self._selector.unregister(told)
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._take(key.fileobj)

    def _take(self, sock: socket.socket) -> None:
        for piece in received(sock, self._buffer):
            self._bytes[sock] += len(piece)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.receivers")
    parser.add_argument("--position", default="")
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("login", metavar="USER:PASSWORD@HOST:PORT")
    given = parser.parse_args()
    try:
        receivers = Receivers(given.login, given.position, given.replicas, tls=given.tls)
        print(json.dumps("ready"), flush=True)
        receivers.receive(sys.stdin)
    except (DrainError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(receivers.probe.came))
    return 0


if __name__ == "__main__":
    sys.exit(main())
