"""Replicas that are up to date and get nothing but heartbeats.

    python -m benchmarks.idlers --port P [--user U] [--password PW] --clients N --heartbeat SECONDS

prints {"ready": N} once all have their format description; reads until standard input closes; then prints how many
heartbeats came since: {"heartbeats": all, "least": of one client}.
"""

from __future__ import annotations

import argparse
import json
import selectors
import sys
import threading
from typing import Any, Final

from binlog_protocol.events.event_type import EventType

from benchmarks.event_scanner import EventScanner
from benchmarks.raw_replica import FOLLOW, READ_BYTES, DrainError, RawReplica

SERVER_ID: Final = 100_000
POLL_S: Final = 0.5


class Idler:
    """One replica. `heartbeats` that came."""

    def __init__(self, replica: RawReplica, server_id: int) -> None:
        self.socket = replica.start_dump(server_id, FOLLOW)
        self.heartbeats = 0
        self.begun = False
        self._scanner = EventScanner()

    def read(self) -> None:
        """Read the events that have come. Raises `DrainError` at the end of the stream."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise DrainError("the server has closed a connection")
        for type_ in self._scanner.types(data):
            self.begun = self.begun or type_ == EventType.FORMAT_DESCRIPTION
            self.heartbeats += type_ == EventType.HEARTBEAT


def idle(given: argparse.Namespace) -> dict[str, Any]:
    """See above. Raises `DrainError`."""
    with selectors.DefaultSelector() as selector:
        idlers = []
        for i in range(given.clients):
            replica = RawReplica(
                (given.host, given.port), given.user, given.password, heartbeat_s=given.heartbeat
            )
            idler = Idler(replica, SERVER_ID + i)
            idlers.append(idler)
            selector.register(idler.socket, selectors.EVENT_READ, idler.read)

        def turn() -> None:
            for key, _ in selector.select(POLL_S):
                key.data()

        while not all(idler.begun for idler in idlers):
            turn()
        for idler in idlers:
            idler.heartbeats = 0
        print(json.dumps({"ready": len(idlers)}), flush=True)
        ended = threading.Thread(target=sys.stdin.read, daemon=True)
        ended.start()
        while ended.is_alive():
            turn()
        counts = [idler.heartbeats for idler in idlers]
        return {"heartbeats": sum(counts), "least": min(counts)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idlers")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default="repl")
    parser.add_argument("--password", default="")
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--heartbeat", type=float, required=True, help="seconds")
    try:
        print(json.dumps(idle(parser.parse_args())))
    except (DrainError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
