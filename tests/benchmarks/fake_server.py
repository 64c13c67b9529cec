"""The other end of a client's socket: takes statements, answers as it is told, in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

OK = b"\x07\x00\x00\x01\x00\x01\x00\x02\x00\x00\x00"
PAYLOAD_HEADER = 4


def error(number: int, text: str) -> bytes:
    payload = b"\xff" + number.to_bytes(2, "little") + b"#42000" + text.encode()
    return len(payload).to_bytes(3, "little") + b"\x01" + payload


Answer = Callable[[socket.socket, int], None]
"""Answers the statement of that number, from 0."""


def plain(sock: socket.socket, number: int) -> None:
    sock.sendall(OK)


class FakeServer:
    """Of one connection. `statements`: what came, without headers; `early`: how many came before an answer."""

    def __init__(self, sock: socket.socket, answer: Answer) -> None:
        self._sock = sock
        self._answer = answer
        self.statements: list[bytes] = []
        self.early = 0
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._sock, contextlib.suppress(OSError):
            while (statement := self._next()) is not None:
                self.statements.append(statement)
                self.early += self._has_more()
                self._answer(self._sock, len(self.statements) - 1)

    def _next(self) -> bytes | None:
        head = self._sock.recv(PAYLOAD_HEADER, socket.MSG_WAITALL)
        if len(head) < PAYLOAD_HEADER:
            return None
        return self._sock.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL)

    def _has_more(self) -> bool:
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False


@contextlib.contextmanager
def fake_servers(*answers: Answer) -> Iterator[tuple[list[socket.socket], list[FakeServer]]]:
    """The clients' sockets, and one server for each. The servers have ended when the block has."""
    pairs = [socket.socketpair() for _ in answers]
    servers = [FakeServer(there, answer) for (_, there), answer in zip(pairs, answers, strict=True)]
    for server in servers:
        server.thread.start()
    try:
        yield [here for here, _ in pairs], servers
    finally:
        for here, _ in pairs:
            here.close()
        for server in servers:
            server.thread.join()
