"""Servers without what each start repeats: a process that has imported them forks, again and again.

A start takes a fifth of its processor time then. What runs is the same, from `python -m MODULE` on: with the arguments,
environment, directory and limits of a new process, its output in a log, in a session of its own. A start for which
Python itself, or an import, has to read another environment is none of this (`fork` returns None).

The process that forks is a program that has imported what its children need, and calls `fork_for_others`. It reads
requests from the socket that is its standard input: four bytes with the length of what comes, with them a descriptor
that the child is to have, if any; then JSON. Each has an answer, in the same form.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from binlog_server.testing import process, rundir

_READ_AT_START: Final = ("PYTHON", "BINLOG_SERVER_", "LD_", "LC_", "LANG", "TZ", "MALLOC_")
_PR_SET_PDEATHSIG: Final = 1
_LENGTH: Final = 4  # bytes of the length of a message


class Forked:
    """As much of a Popen as a server needs."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid
        self.returncode: int | None = None
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its exit code, minus the signal that ended it; None while it runs."""
        return self._code(0)

    def _code(self, timeout: float | None) -> int | None:
        """By the descriptor: to ask the nursery wakes that process, and a start asks some twenty times."""
        if self.returncode is None:
            # Not select(): a test process may have had a thousand files open.
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1000):
                self.returncode = self._nursery.code_of(self.pid)
            if self.returncode is not None:
                os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises TimeoutExpired."""
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks. Its children die with it, and it dies with the thread that has made it."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """`argv`: the program that calls `fork_for_others`."""
        self.read_at_start = _read_at_start(environment)
        self._lock = threading.Lock()
        self._socket, its = socket.socketpair()
        log = rundir.new_dir("forks") / "log"
        with its:
            self.process = process.spawn(argv, log, environment, stdin=its.fileno())

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        """Raises `RuntimeError` if it has ended."""
        message = json.dumps(request).encode()
        with self._lock:
            try:
                length = len(message).to_bytes(_LENGTH)
                socket.send_fds(self._socket, [length], descriptors)
                self._socket.sendall(message)
                if (answer := _received(self._socket)) is not None:
                    return json.loads(answer[0])
            except OSError:
                pass
        raise RuntimeError(f"nobody forks any more: {self.process.poll()}")

    def code_of(self, pid: int) -> int | None:
        """The exit code of a child. If the nursery has ended first, the child was killed with it."""
        try:
            code: int | None = self.ask({"poll": pid})
        except RuntimeError:
            return -signal.SIGKILL
        return code


_NURSERIES: Final[dict[tuple[int, tuple[str, ...]], Nursery]] = {}


def fork(
    argv: Sequence[str],
    module: str,
    arguments: Sequence[str],
    streams: Sequence[Path],
    environment: Mapping[str, str],
    descriptor: int | None = None,
) -> Forked | None:
    """`python -m MODULE ARGUMENTS`; None where it cannot be had so.

    Args:
        argv: the program that forks; it is started with the first of its children.
        streams: what it reads from, writes to, and its errors.
        descriptor: the child has it as well; its number there is the last argument.
    """
    # The nursery dies with the thread that has started it, and all servers with it.
    if threading.current_thread() is not threading.main_thread() or not _can_watch():
        return None
    nursery = _nursery(argv)
    if nursery.read_at_start != _read_at_start(environment):
        return None
    request = {
        "module": module,
        "arguments": list(arguments),
        "streams": [str(path) for path in streams],
        "environment": dict(environment),
        "directory": str(Path.cwd()),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    return Forked(nursery, nursery.ask(request, [] if descriptor is None else [descriptor]))


def _nursery(argv: Sequence[str]) -> Nursery:
    # A process that was forked from this one has a nursery of its own.
    key = os.getpid(), tuple(argv)
    nursery = _NURSERIES.get(key)
    if nursery is None or nursery.process.poll() is not None:
        nursery = _NURSERIES[key] = Nursery(argv, {**os.environ, "PYTHONUNBUFFERED": "1"})
    return nursery


@functools.cache
def _can_watch() -> bool:
    """Whether this system has descriptors of processes."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: environment[key] for key in environment if key.startswith(_READ_AT_START)}


def _received(stream: socket.socket) -> tuple[bytes, list[int]] | None:
    """The next message, and the descriptors that came with it; None at the end."""
    head, descriptors, _, _ = socket.recv_fds(stream, _LENGTH, 1)
    message = b""
    if head:
        head += _exactly(stream, _LENGTH - len(head))
        message = _exactly(stream, int.from_bytes(head))
    return (message, descriptors) if message else None


def _exactly(stream: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer at the end."""
    found = b""
    while len(found) < size and (some := stream.recv(size - len(found))):
        found += some
    return found


# -- in the process that forks ---------------------------------------------------------------------


def fork_for_others(ahead: Callable[[], object] = lambda: None) -> None:
    """Until the socket is closed; in each child, to its end. What is imported before is there in all of them.

    ahead: what all but the first of them have, for which nobody who waits for the first one has to wait.
    """
    gc.freeze()
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl
    with socket.socket(fileno=os.dup(0)) as control:
        child = _serve(control, ahead)
    if child is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:  # else it is gone already
            _become(*child)


def _serve(
    control: socket.socket, ahead: Callable[[], object]
) -> tuple[dict[str, Any], list[int]] | None:
    """Returns in each child, with what it is to be and its descriptors; and at the end."""
    is_first = True
    while (received := _received(control)) is not None:
        message, descriptors = received
        request: dict[str, Any] = json.loads(message)
        answer: int | None
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            return request, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        said = json.dumps(answer).encode()
        with contextlib.suppress(OSError):  # nobody waits for it any more
            control.sendall(len(said).to_bytes(_LENGTH) + said)
        if is_first:
            is_first = False
            ahead()
            gc.freeze()
    return None


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    os.setsid()
    os.chdir(request["directory"])
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(request["open_files"]))
    for number, path in enumerate(request["streams"]):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT if number else os.O_RDONLY
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["module"], *request["arguments"], *map(str, descriptors)]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
