"""Clients that receive a binlog as fast as a server sends it, and do nothing with it.

Each logs in as a replica does, asks for everything by GTID, with annotations (replicas do by default)
and with NON_BLOCK, so that the stream ends at the end of the binlog, and throws the bytes away until
the server closes. All connections are in one process with one poll loop: on a small machine the
server is what is to be measured, so run it as a process of its own (`run`):

    python -m benchmarks.drain --port P [--user U] [--password PW] [--clients N] [--tls] [--count | --bare]

prints one JSON object, a `Drained`. The clock runs from the dump commands, which go out together, to
the last byte of the slowest client.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from binlog_protocol.events.event_type import EventType
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE

from benchmarks.event_scanner import EventScanner
from benchmarks.raw_replica import DrainError, RawReplica, StreamEnded, received
from binlog_server.testing.sql_server import Followed

READ_BYTES: Final = 1 << 20
SERVER_ID: Final = 90_000  # of the first client; the others count on
TIMEOUT_S: Final = 600.0  # without a byte on any connection

# The packet that ends a dump: payload of 5 bytes, any sequence number, EOF.
_EOF_PACKET_BYTES: Final = 9
_EOF_PAYLOAD: Final = 0xFE
END_PACKET: Final = b"\5\0\0\0" + bytes([_EOF_PAYLOAD, 0, 0, 0, 0])
assert len(END_PACKET) == _EOF_PACKET_BYTES


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain. `bytes` are those of all clients, packet headers included, inside of TLS; counts are per
    client."""

    clients: int
    bytes: int
    seconds: float
    first_byte_s: float
    cpu_s: float
    events: int = 0
    groups: int = 0


def run(source: Followed, clients: int, *, count: bool = False, tls: bool = False) -> Drained:
    """Drain `source` from another process. With `count`, one client looks at the packets as well.

    Raises `DrainError` unless every client got the same number of bytes and the end of the stream.
    """
    account = source.account
    return _drain_elsewhere(
        str(source),
        *("--host", source.host, "--port", str(source.port)),
        *("--user", account.user, "--password", account.password),
        *("--clients", str(clients)),
        *(["--count"] if count else []),
        *(["--tls"] if tls else []),
    )


def run_bare(port: int, clients: int) -> Drained:
    """Drain a `benchmarks.loopback`, as `run` does a server."""
    return _drain_elsewhere("loopback", "--bare", f"--port={port}", f"--clients={clients}")


def _drain_elsewhere(name: str, *arguments: str) -> Drained:
    argv = [sys.executable, "-m", "benchmarks.drain", *arguments]
    root = Path(__file__).parent.parent
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode:
        raise DrainError(f"{name}: {done.stderr.strip()[-2000:]}")
    return Drained(**json.loads(done.stdout))


# -- the other process -----------------------------------------------------------------------------


class _Bare:
    """A socket to a `benchmarks.loopback`: its login is to connect."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=30)

    def start_dump(self, _: int) -> socket.socket:
        """Start the stream, with the interface of `RawReplica.start_dump`."""
        self._socket.sendall(b"!")
        self._socket.setblocking(False)
        return self._socket


class _Stream:
    """The stream of one client: only its length, and the last bytes, which must be the end packet."""

    def __init__(self) -> None:
        self.bytes = 0
        self._last = b""

    def take(self, data: memoryview) -> None:
        self.bytes += len(data)
        if len(data) >= _EOF_PACKET_BYTES:
            self._last = bytes(data[-_EOF_PACKET_BYTES:])
        else:
            self._last = (self._last + bytes(data))[-_EOF_PACKET_BYTES:]

    def check_ended(self) -> None:
        """Raises `DrainError` unless the stream was whole."""
        last = self._last
        if last[:3] != b"\5\0\0" or last[PACKET_HEADER_SIZE] != _EOF_PAYLOAD:
            raise DrainError(f"closed after {self.bytes} bytes without EOF: ...{last!r}")


class _CountedStream(_Stream):
    """Looks at the packets, too: how many events, how many of them begin a group."""

    def __init__(self) -> None:
        super().__init__()
        self.events = 0
        self.groups = 0
        self._scanner = EventScanner()

    def take(self, data: memoryview) -> None:
        super().take(data)
        for type_ in self._scanner.types(bytes(data)):
            self.events += 1
            self.groups += type_ == EventType.GTID


def drain(logins: Sequence[RawReplica | _Bare], *, count: bool) -> Drained:
    """See `run`; in this process."""
    clients = len(logins)
    streams = [_CountedStream() if count else _Stream() for _ in logins]
    cpu = time.process_time()
    start = time.perf_counter()
    sockets = [login.start_dump(SERVER_ID + i) for i, login in enumerate(logins)]
    first_byte = _receive(sockets, streams)
    seconds = time.perf_counter() - start
    for stream in streams:
        stream.check_ended()
        if stream.bytes != streams[0].bytes:
            raise DrainError(f"streams differ: {[s.bytes for s in streams]} bytes")
    counted = streams[0]
    return Drained(
        clients=clients,
        bytes=sum(stream.bytes for stream in streams),
        seconds=seconds,
        first_byte_s=first_byte - start,
        cpu_s=time.process_time() - cpu,
        **(
            {"events": counted.events, "groups": counted.groups}
            if isinstance(counted, _CountedStream)
            else {}
        ),
    )


def _receive(sockets: Sequence[socket.socket], streams: Sequence[_Stream]) -> float:
    """Receive until all sockets are closed. Returns the time when the last client had its first byte."""
    buffer = bytearray(READ_BYTES)
    waiting_for_first = len(sockets)
    first_byte = 0.0
    with selectors.DefaultSelector() as selector:
        for sock, stream in zip(sockets, streams, strict=True):
            selector.register(sock, selectors.EVENT_READ, stream)
        while selector.get_map():
            ready = selector.select(TIMEOUT_S)
            if not ready:
                raise DrainError(f"nothing came for {TIMEOUT_S:.0f} s")
            for key, _ in ready:
                sock, stream = _parts(key)
                try:
                    for piece in received(sock, buffer):
                        if waiting_for_first and not stream.bytes:
                            waiting_for_first -= 1
                            first_byte = time.perf_counter()
                        stream.take(piece)
                except StreamEnded:
                    selector.unregister(sock)
                    sock.close()
    return first_byte


def _parts(key: selectors.SelectorKey) -> tuple[socket.socket, _Stream]:
    sock: Any = key.fileobj
    stream: Any = key.data
    return sock, stream


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drain")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default="repl")
    parser.add_argument("--password", default="")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--count", action="store_true", help="count events and groups (slower)")
    parser.add_argument("--tls", action="store_true", help="by TLS")
    parser.add_argument("--bare", action="store_true", help="of a benchmarks.loopback")
    given = parser.parse_args()
    address = (given.host, given.port)
    try:
        logins = [
            _Bare(address)
            if given.bare
            else RawReplica(address, given.user, given.password, tls=given.tls)
            for _ in range(given.clients)
        ]
        drained = drain(logins, count=given.count)
    except (DrainError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(asdict(drained)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
