"""Whether a peer reads, told by its window: of made-up looks, and of real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from binlog_server.connections.peer_reads import MIN_BYTES, PeerReads, PeerWindow, window_of
from binlog_server.testing.waiting import until

KIB = 1024
Look = tuple[float, int, int, bool, float]
"""Time; KiB acknowledged; KiB of window; whether bytes wait; what is to be said."""
READS: list[Look] = [(2.0 * n, 100 * n, 64, False, 0.0) for n in range(9)]
STANDS: list[Look] = [
    (0, 0, 640, False, 0),
    (2, 100, 540, False, 0),  # perhaps it will read them
    (4, 200, 440, False, 2),
    (6, 201, 439, False, 4),
    (8, 201, 439, False, 4),  # no word of its system since then
    (9, 202, 438, False, 7),
    (9.5, 640, 0, True, 7),  # too soon for a look
    (11, 640, 0, True, 9),
    (21, 640, 0, True, 19),  # its system is asked by probes
    (23, 700, 640, False, 0),
    (25, 800, 640, False, 0),
]


@pytest.mark.parametrize(
    "looks",
    [
        READS,
        STANDS,
        # Nothing but heartbeats: nobody knows.
        [(10.0 * n, n, 64 - n, False, 0.0) for n in range(30)],
        # Bursts, of which the last word is that they are unread.
        [(0, 0, 640, False, 0), *((10.0 * n, 300 * n, 340, False, 0.0) for n in range(1, 9))],
        [(0, 0, 640, False, 0), (2, 300, 340, False, 0), *((n, 300, 340, False, 0) for n in range(3, 99))],
        # A small room that is full at once.
        [(0, 0, 2, False, 0), (2, 2, 0, True, 0), (4, 2, 0, True, 2), (9, 2, 0, True, 7), (11, 4, 0, True, 0)],
        # Its system takes room away, and it reads: not said when as much was sent again.
        [(0, 0, 640, False, 0), (2, 600, 40, False, 0), (4, 640, 64, False, 2), (6, 1300, 64, False, 0)],
    ],
)  # fmt: skip
def test_looks(looks: list[Look]) -> None:
    reads = PeerReads()
    for now, acknowledged, size, waits, said in looks:
        window = PeerWindow(acknowledged * KIB, size * KIB, waits)
        assert reads.look(now, window) == said, now


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with ours, theirs:
            ours.setblocking(False)
            yield ours, theirs


@pytest.mark.parametrize("earlier", [0, 4 << 20])
@pytest.mark.parametrize("stands", [True, False])
def test_real_sockets(
    pair: tuple[socket.socket, socket.socket], earlier: int, stands: bool
) -> None:
    ours, theirs = pair
    reads, now = PeerReads(), 0.0

    def send(piece: int, read: bool) -> None:
        sent = 0
        for _ in range(MIN_BYTES // piece):
            try:
                sent += ours.send(bytes(piece))
            except BlockingIOError:
                break
        while read and sent:
            sent -= len(theirs.recv(sent))

    for _ in range(earlier // MIN_BYTES):
        send(MIN_BYTES, read=True)

    def look() -> float:
        nonlocal now
        send(512, read=not stands)
        now += 2.0
        window = window_of(ours)
        assert window is not None
        return reads.look(now, window)

    if stands:
        until(lambda: look() > 30, "the word that it stands")  # the kernel's own time to fill
    else:
        assert {look() for _ in range(300)} == {0}


def test_an_ended_socket_and_none_of_tcp_tell_nothing() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert window_of(one) is None
    assert window_of(one) is None
