"""A server in the middle that does the least: what comes from the upstream is made durable and sent to all replicas.

    python -m benchmarks.durable_tail --directory DIR --replicas N HOST:PORT

prints its port. The replicas log in at the upstream by way of it. The dump of the first is the stream for all of them:
once every replica has asked for its own, the process becomes a program in C (`durable_tail.c`) that reads, syncs and
sends, the limit that a server in any language can come near. It ends when the upstream or a replica goes.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import sys
from pathlib import Path
from typing import Final

from binlog_protocol.connection.commands import CommandCode

from benchmarks.compiled import compiled
from benchmarks.registry import BenchmarkError

SOURCE: Final = Path(__file__).with_suffix(".c")
_READ_BYTES: Final = 1 << 16
_SEQUENCE: Final = 3  # where a packet has its number
_DUMP: Final = bytes((0, CommandCode.BINLOG_DUMP))  # the first packet of an exchange


def carry_login(client: socket.socket, server: socket.socket) -> bytes:
    """Carry bytes between them until the client asks for a dump; that packet, which the server has not got.

    Raises:
        BenchmarkError: either has closed the connection before that.
    """
    peers = {client: server, server: client}
    with selectors.DefaultSelector() as selector:
        for sock in peers:
            selector.register(sock, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(_READ_BYTES)
                if not data:
                    raise BenchmarkError("a connection was closed during its login")
                if key.fileobj is client and data[_SEQUENCE:].startswith(_DUMP):
                    return data
                peers[key.fileobj].sendall(data)


def collect(
    listener: socket.socket, replicas: int, upstream: tuple[str, int]
) -> list[socket.socket]:
    """The upstream's socket, on which a dump has begun, and those of the replicas that wait for it.

    Raises:
        BenchmarkError: as `carry_login`.
    """
    sockets: list[socket.socket] = []
    for _ in range(replicas):
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.create_connection(upstream)
        dump = carry_login(client, server)
        if sockets:
            server.close()
        else:
            server.sendall(dump)
            sockets.append(server)
        sockets.append(client)
    return sockets


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable_tail")
    parser.add_argument("--directory", type=Path, required=True, help="for its file, on a disk")
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("upstream", metavar="HOST:PORT")
    given = parser.parse_args()
    host, _, port = given.upstream.rpartition(":")
    try:
        program = compiled(SOURCE, given.directory)
        listener = socket.create_server(("127.0.0.1", 0), backlog=given.replicas)
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        sockets = collect(listener, given.replicas, (host, int(port)))
        for sock in sockets:
            sock.set_inheritable(True)
        file = given.directory / "durable-tail"
        file.unlink(missing_ok=True)
        os.execv(program, [str(program), str(file), *(str(sock.fileno()) for sock in sockets)])
    except (BenchmarkError, OSError) as error:
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
