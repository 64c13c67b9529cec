"""TCP options by which the kernel notices peers that have vanished without a FIN or RST.

Keepalive finds them on an idle connection, TCP_USER_TIMEOUT on one with unacknowledged bytes, which the kernel would
otherwise send again for a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final, Protocol

from binlog_server.settings.config import Config

_OPTION_MAX: Final = 2**31 - 1  # setsockopt takes a C int; TCP_USER_TIMEOUT then is 24 days


class Socket(Protocol):
    """uvloop's sockets are not subclasses of Python's; they only behave alike."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def getsockopt(self, level: int, option: int, length: int, /) -> bytes: ...


def keep_alive(sock: Socket, config: Config) -> None:
    """Set keepalive on a new connection; options that are 0 leave the operating system's values."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", config.tcp_keepalive_time),
        ("TCP_KEEPINTVL", config.tcp_keepalive_interval),
        ("TCP_KEEPCNT", config.tcp_keepalive_probes),
    ):
        if value:
            _set(sock, name, value)
    give_up_after(sock, config.net_write_timeout)


def give_up_after(sock: Socket, seconds: float) -> None:
    """Break the connection when bytes stay unacknowledged for this many seconds, 24 days at most (TCP_USER_TIMEOUT)."""
    _set(sock, "TCP_USER_TIMEOUT", min(int(seconds * 1000), _OPTION_MAX))


def _set(sock: Socket, name: str, value: int) -> None:
    option = getattr(socket, name, None)  # not every system has each
    if option is not None:
        with contextlib.suppress(
            OSError
        ):  # the peer may have gone already; a Unix socket has none of them
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
