"""The place of a server is handed over to a new process: an upgrade by which no connection is refused.

    step        the process that serves                         the new process
    1 SIGUSR2   runs its own command again, and sends it the    reads the configuration, loads what it needs
                sockets that it listens at
    2 READY     serves on until then                            says it, and waits
    3 YOURS     ends as at SIGTERM, but the sockets stay        waits
                open: who comes now waits in their queue; says
                it when the store is closed
    4 SERVING   waits                                           opens the store, takes clients, says it
    5           names it to the service manager, and ends

Both are joined by a pair of sockets, whose end tells that the other one is gone, also by kill -9. One word is one byte.
The lock of the store, which ends with its process, is what keeps one out while the other has it. So of each step:

    the new process is gone before YOURS      the old one has never ceased to serve
    the new process is gone before SERVING    the old one opens the store again, with the sockets it has kept
    the old process is gone                   the new one opens the store: it has the sockets
    the old process is told to end            it takes the new one along

The new process is no child of the old one, but of whoever adopts orphans: systemd, where that has started the old one.
systemd kills a service without a word at its stop whose process was another's child when it was named, also when it is
an orphan later.

Two listeners with SO_REUSEPORT would not do: each has a queue of its own, and who waits in that of the old one is
refused when it closes.

Words, their order and the first message stay as they are, from version to version.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final, Self

VARIABLE: Final = "BINLOG_SERVER_HAND_OVER"
"""Of the environment: the descriptor of the new process's end."""
LOADED: Final = "_BINLOG_SERVER_LOADED"
"""Of the environment: the modules that the old process has loaded. It is named as no option is: a version that does not
know it would refuse that."""
_LOADED_CHARS_MAX: Final = 100_000  # of a variable, Linux takes 128 KiB
_OF_THE_OLD_ONE: Final = (
    VARIABLE,
    LOADED,
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
)
"""Of the environment: what the new process must not take for its own."""
READY, YOURS, SERVING = b"R", b"Y", b"S"
FIRST_GIVEN: Final = 3  # descriptor of systemd
_FIRST_BYTES: Final = 1024  # the longest first message: the option `listen`
_SOCKETS_MAX: Final = 64
_END_S: Final = 5.0  # that a process which ends may take
_BETWEEN: Final = """
import os, sys
told = int(sys.argv[1])
os.set_inheritable(told, False)
try:
    said = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
except OSError as error:
    said = -error.errno
os.write(told, str(said).encode())
"""
"""A process between the old and the new one: starts that, tells its number or an error, and ends within some 20 ms."""


class Successor:
    """The new process, as the one sees it whose place it takes. For one event loop.

    sockets: that it was given; open here, too.
    """

    def __init__(
        self,
        pid: int,
        channel: socket.socket,
        sockets: Sequence[socket.socket],
    ) -> None:
        """Raises `OSError`: that process is gone already."""
        self._process = os.pidfd_open(pid)
        self._channel = channel
        self.pid = pid
        self.sockets = sockets

    @classmethod
    def begin(cls, command: Sequence[str], sockets: Sequence[socket.socket], listen: str) -> Self:
        """Step 1. Raises `OSError`: nothing was begun; the sockets are closed here.

        listen: what they were made of.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                environment = {
                    name: value for name, value in os.environ.items() if name not in _OF_THE_OLD_ONE
                }
                environment[VARIABLE] = str(theirs.fileno())
                named = ",".join(name for name in list(sys.modules) if not name.startswith("_"))
                environment[LOADED] = named[:_LOADED_CHARS_MAX]
                socket.send_fds(ours, [listen.encode()], [one.fileno() for one in sockets])
                pid = _spawn_orphan(command, environment, theirs.fileno())
            ours.setblocking(False)
            return cls(pid, ours, sockets)
        except BaseException:
            _close(ours, *sockets)
            raise

    async def says(self, word: bytes) -> bool:
        """Wait for a word. False: it is gone."""
        return await _next_word(self._channel) == word

    def yours(self) -> None:
        """Step 3: the store is closed."""
        _say(self._channel, YOURS)

    def end(self) -> None:
        """It is to end in order."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """It ends now."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    async def ended(self) -> None:
        """Wait for the end of one that says nothing more; a while, then it is ended."""
        if not await asyncio.to_thread(_has_ended, self._process):
            self.kill()
            await asyncio.to_thread(_has_ended, self._process)

    def close(self, *, keep_sockets: bool = False) -> None:
        """Nothing more is said, and nothing heard."""
        _close(self._channel, *(() if keep_sockets else self.sockets))
        process, self._process = self._process, -1
        os.close(process)


class Predecessor:
    """The old process, as the new one sees it. For one event loop.

    sockets: at which it listens. listen: what they were made of.
    """

    def __init__(self, channel: socket.socket, loaded: Sequence[str] = ()) -> None:
        """Raises `OSError`. loaded: names of modules."""
        self._channel = channel
        self._loaded = loaded
        first, found, _, _ = socket.recv_fds(channel, _FIRST_BYTES, _SOCKETS_MAX)
        self.sockets: Final = [socket.socket(fileno=fd) for fd in found]
        self.listen: Final = first.decode()
        channel.setblocking(False)
        pid = int.from_bytes(
            channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder
        )
        self._process: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self._process = os.pidfd_open(pid)

    @classmethod
    def of(cls, environment: MutableMapping[str, str] = os.environ) -> Self | None:
        """The process that has started this one to take its place; None if nobody has. Raises `OSError`."""
        text, loaded = environment.pop(VARIABLE, None), environment.pop(LOADED, "")
        if text is None:
            return None
        if not text.isdecimal():
            raise OSError(
                f"{VARIABLE}={text!r} is set by a server that hands over, and by nobody else"
            )
        channel = socket.socket(fileno=int(text))
        channel.set_inheritable(False)
        return cls(channel, loaded.split(",") if loaded else ())

    def load_as_it(self) -> None:
        """Load the modules that the old process has: many are loaded with their first use, and nobody waits for it now.

        In a thread. Those that another version does not have are left out.
        """
        for name in self._loaded:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    async def lets_go(self) -> bool:
        """Steps 2 and 3. False: it is gone, and the store is as it was left."""
        _say(self._channel, READY)
        return await _next_word(self._channel) == YOURS

    def is_gone(self) -> None:
        """Wait until it really is: what it has locked is free then. In a thread."""
        if self._process is not None:
            _has_ended(self._process)

    def take_sockets(self, listen: str) -> Sequence[socket.socket]:
        """Its sockets, if the option is still the same; they are closed otherwise, and the new ones are to be made."""
        if self.listen == listen:
            return self.sockets
        _close(*self.sockets)
        return ()

    def serving(self) -> None:
        """Step 4."""
        _say(self._channel, SERVING)
        _close(self._channel)
        if self._process is not None:
            os.close(self._process)


def own_command(
    arguments: Sequence[str] = sys.argv, whole: Sequence[str] = sys.orig_argv
) -> list[str]:
    """The command line of this process, to be run again.

    A script is run by its path, so that another version stands there if that path now leads to it.
    """
    if os.access(arguments[0], os.X_OK):
        return list(arguments)
    return [sys.executable, *whole[1:]]


def given_sockets(
    environment: MutableMapping[str, str] = os.environ, pid: int | None = None
) -> list[socket.socket]:
    """The sockets of a socket unit of systemd: sd_listen_fds(3). None of them where there is no such unit."""
    given: Mapping[str, str] = {
        name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    }
    count = given["LISTEN_FDS"]
    if given["LISTEN_PID"] != str(os.getpid() if pid is None else pid) or not count.isdecimal():
        return []
    found = [socket.socket(fileno=fd) for fd in range(FIRST_GIVEN, FIRST_GIVEN + int(count))]
    for one in found:
        one.set_inheritable(False)
    return found


def _spawn_orphan(command: Sequence[str], environment: Mapping[str, str], given: int) -> int:
    """Start a process that is no child of this one. Returns its number. Raises `OSError`.

    given: a descriptor that it gets, by the same number.
    """
    told, tells = os.pipe()
    with os.fdopen(told, "rb") as listening:
        try:
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", _BETWEEN, str(tells), *command],
                env=environment,
                pass_fds=[given, tells],
                stdin=subprocess.DEVNULL,
                check=False,
            )
        finally:
            os.close(tells)
        said = int(listening.read() or -errno.ECHILD)
    if said < 0:
        raise OSError(-said, os.strerror(-said), command[0])
    return said


def _has_ended(process: int) -> bool:
    """Wait a while for the end of a process, named by a descriptor. In a thread."""
    ended = select.poll()
    ended.register(process, select.POLLIN)
    return bool(ended.poll(_END_S * 1000))


async def _next_word(channel: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(channel, 1)
    except OSError:  # gone, with words unread
        return b""


def _say(channel: socket.socket, word: bytes) -> None:
    with contextlib.suppress(OSError):  # it is gone: who waits for its next word will see that
        channel.send(word)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()
