"""Whether the program at the other end of a TCP connection reads, by the window that its system offers.

The system of a peer acknowledges bytes that its program has never seen, so acknowledgements tell nothing of a program
that is paused. Its window does: behind the last acknowledged byte it has room for so many more. Where the program
reads, the end of that room moves on as fast as bytes are acknowledged; where it does not, the end stands. Tried with
Linux 6.18: the end stands some 30 KiB behind the pause on a new connection, and some 200 KiB behind it where the buffer
has grown, while the sockets of both sides take 4 MB and more.

    TCP_INFO of Linux, offsets     what
    120, 8 bytes                   bytes that were acknowledged
    144, 4 bytes                   bytes that are not sent yet, for lack of window
    228, 4 bytes                   window of the peer in bytes, since Linux 5.4

What cannot be known: a program that is paused while less than that is written for it. A system that is short of memory
makes its windows smaller; its peer seems to stand still until as much was sent as it took away.
"""

from __future__ import annotations

import socket
import sys
from typing import Final, NamedTuple

from binlog_server.connections.tcp_options import Socket

MIN_BYTES: Final = 32 * 1024  # half of the smallest usual window
EVERY_S: Final = 1.0  # a program gets so long to read before the next look counts
_INFO_BYTES: Final = 232


class PeerWindow(NamedTuple):
    """A connection at one moment; all in bytes."""

    acknowledged: int
    size: int
    waits: bool
    """Whether there are bytes to send that the peer's system does not take."""

    @property
    def end(self) -> int:
        """Of the room that the peer's system has."""
        return self.acknowledged + self.size


def window_of(sock: Socket) -> PeerWindow | None:
    """None where the system does not tell."""
    if sys.platform != "linux":
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return None  # it has ended, or is no TCP
    if len(info) < _INFO_BYTES:
        return None

    def number(offset: int, size: int) -> int:
        return int.from_bytes(info[offset : offset + size], sys.byteorder)

    return PeerWindow(number(120, 8), number(228, 4), bool(number(144, 4)))


class PeerReads:
    """How long the peer's program has read nothing. Pure: `look` is told the time and the window."""

    def __init__(self) -> None:
        self._from: PeerWindow | None = None  # where the end of the room was seen to move
        self._last: PeerWindow | None = None
        self._looked = 0.0
        self._since: float | None = None  # when bytes that are unread had come
        self.unread_s = 0.0
        """Seconds between the first bytes that the program has not read, and the last word of its system."""

    def look(self, now: float, window: PeerWindow) -> float:
        """`unread_s` behind this look.

        Args:
            now: seconds of a clock that is never set.
        """
        begin, last = self._from, self._last
        if begin is None or last is None:
            self._from = self._last = window
            self._looked = now
            return self.unread_s
        if now - self._looked < EVERY_S:
            return self.unread_s
        # What came until the last look could have been read; what came since then perhaps not.
        came = last.acknowledged - begin.acknowledged
        waits = window.waits and last.waits and window.end == last.end
        if waits or (came >= MIN_BYTES and 2 * (window.end - begin.end) < came):
            self._since = self._looked if self._since is None else self._since
            if waits or window.acknowledged > last.acknowledged:
                self.unread_s = now - self._since
        elif came >= MIN_BYTES or self._since is not None:
            self._from, self._since, self.unread_s = window, None, 0.0
        self._last, self._looked = window, now
        return self.unread_s
