"""Notices peers that have vanished: that neither answer nor say that they are gone.

Keepalive finds them on a connection where nothing is on its way; TCP_USER_TIMEOUT where something is, which would
otherwise be sent again for a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Protocol

from binlog_server.settings.config import Config


class Socket(Protocol):
    """uvloop's sockets are not subclasses of Python's; they only behave alike."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def keep_alive(sock: Socket, config: Config) -> None:
    """Of a new connection. 0 leaves what the operating system has."""
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
    """Break the connection when the peer's side acknowledges nothing for that long although there is something."""
    _set(sock, "TCP_USER_TIMEOUT", int(seconds * 1000))


def _set(sock: Socket, name: str, value: int) -> None:
    option = getattr(socket, name, None)  # not every system has each
    if option is not None:
        with contextlib.suppress(
            OSError
        ):  # the peer may have gone already; a Unix socket has none of them
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
