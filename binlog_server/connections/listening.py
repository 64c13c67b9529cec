"""Sockets to listen at, bound by ourselves and before the store is opened.

An address that is taken, or that this machine does not have, is then told before a directory or a file is made. And a
loop that is given a name asks threads of its own library for it, which ends the process (abort) where the system lets
it have none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

from binlog_server.settings.config import Config, parse_listen

_REMEDIES: Final = {
    errno.EADDRINUSE: "end the program that listens there, or give another address",
    errno.EADDRNOTAVAIL: "give an address that this machine has, or none in front of the port for all of them",
    errno.EACCES: "ports below 1024 are root's: give another one, or the process CAP_NET_BIND_SERVICE",
}


class Bound(NamedTuple):
    """Sockets of a server, where nobody can connect yet: `listen` and `metrics_listen`."""

    clients: Sequence[socket.socket]
    metrics: Sequence[socket.socket]

    @classmethod
    def of(cls, config: Config, given: Sequence[socket.socket] = ()) -> Self:
        """Those of a configuration; `given` for clients, if there are some. Raises `OSError`, `socket.gaierror`."""
        clients = given or bound("listen", config.listen_host, config.listen_port)
        if not config.metrics_listen:
            return cls(clients, ())
        host, port = parse_listen(config.metrics_listen, "metrics_listen")
        try:
            return cls(clients, bound("metrics_listen", host, port))
        except BaseException:
            cls(clients, ()).close()
            raise

    def close(self) -> None:
        """Let them go, where no server has taken them."""
        for one in (*self.clients, *self.metrics):
            one.close()


def bound(option: str, host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a host, of all of this machine for an empty one. It may wait for a resolver.

    Raises `OSError`, `socket.gaierror`: with the name of the option, and what to do.
    """
    found: list[socket.socket] = []
    with contextlib.ExitStack() as undo, named(option, host, port):
        missing: OSError | None = None
        for family, kind, protocol, _, address in _addresses(host, port):
            try:
                one = socket.socket(family, kind, protocol)
            except OSError as error:  # a kernel without IPv6
                missing = error
                continue
            undo.callback(one.close)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            found.append(one)
        if missing is not None and not found:
            raise missing
        undo.pop_all()
    return found


def _addresses(host: str, port: int) -> Iterable[tuple[int, int, int, str, tuple[Any, ...]]]:
    try:
        return dict.fromkeys(
            socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        )
    except UnicodeError:  # an empty part, or one of more than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "no name of a host") from None


@contextlib.contextmanager
def named(option: str, host: str, port: int) -> Iterator[None]:
    """An address at which nobody can listen is told with the option that names it, and with what to do."""
    try:
        yield
    except socket.gaierror as error:
        raise socket.gaierror(error.errno, f"{option}: {host!r}: {error.strerror}") from None
    except OSError as error:
        words = [option, f"{host}:{port}", os.strerror(error.errno or 0)]
        if remedy := _REMEDIES.get(error.errno or 0):
            words.append(remedy)
        # One word for the text, and the number beside it: with both, commands add what they know of files.
        told = OSError(": ".join(words))
        told.errno = error.errno
        raise told from None
