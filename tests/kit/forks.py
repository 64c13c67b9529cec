"""Our server without what each start repeats: a process that has imported it forks, again and again.

A start takes a fifth of its processor time then: the grammars of statements are there, too. What runs is the same, from
`python -m binlog_server` on: with the arguments, environment, directory and limits of a new process, its output in a
log, in a session of its own. A start for which Python itself, or an import, has to read another environment is none of
this (`start` returns None).

    python -m tests.kit.forks    forks for each request that comes by its standard input, a socket
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from binlog_server.testing import process, rundir

MODULE: Final = "binlog_server"
"""What a child becomes, if it is not another module that runs it in its own way."""
_READ_AT_START: Final = ("PYTHON", "BINLOG_SERVER_", "LD_", "LC_", "LANG", "TZ", "MALLOC_")
_PR_SET_PDEATHSIG: Final = 1


class Forked:
    """As much of a Popen as a server needs."""

    def __init__(self, nursery: _Nursery, pid: int) -> None:
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
                self.returncode = self._nursery.ask({"poll": self.pid})
            if self.returncode is not None:
                os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises TimeoutExpired."""
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(MODULE, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Nursery:
    """The process that forks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.read_at_start = _read_at_start(environment)
        self._lock = threading.Lock()
        ours, its = socket.socketpair()
        argv = [sys.executable, "-m", "tests.kit.forks"]
        log = rundir.new_dir("forks") / "log"
        with its:
            self.process = process.spawn(argv, log, environment, stdin=its.fileno())
        self._stream = ours.makefile("rwb")

    def ask(self, request: Mapping[str, Any]) -> Any:
        answer = b""
        with self._lock, contextlib.suppress(ConnectionError):
            self._stream.write(json.dumps(request).encode() + b"\n")
            self._stream.flush()
            answer = self._stream.readline()
        if not answer:
            raise RuntimeError(f"{MODULE}: nobody forks any more: {self.process.poll()}")
        return json.loads(answer)


def run(
    *arguments: str | Path, said: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """`binlog-server ARGUMENTS`, with `said` to its standard input; to its end."""
    argv = [str(argument) for argument in arguments]
    folder = rundir.new_dir("run")
    said_to, out, error = (folder / name for name in ("in", "out", "error"))
    said_to.write_text(said)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    forked = _start(argv, (said_to, out, error), environment, MODULE)
    if forked is None:
        whole = [sys.executable, "-m", MODULE, *argv]
        return subprocess.run(
            whole, input=said, capture_output=True, text=True, timeout=timeout, check=False
        )
    try:
        code = forked.wait(timeout)
    finally:
        forked.kill()
    return subprocess.CompletedProcess(argv, code, out.read_text(), error.read_text())


def start(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str], module: str = MODULE
) -> Forked | None:
    """`python -m MODULE`, its output appended to `log`; None where it cannot be had so."""
    return _start(arguments, (Path(os.devnull), log, log), environment, module)


def _start(
    arguments: Sequence[str], streams: Sequence[Path], environment: Mapping[str, str], module: str
) -> Forked | None:
    # It dies with the thread that has started it, and all servers with it.
    if threading.current_thread() is not threading.main_thread():
        return None
    nursery = _nursery()
    if nursery.read_at_start != _read_at_start(environment):
        return None
    pid = nursery.ask(
        {
            "module": module,
            "arguments": list(arguments),
            "streams": [str(path) for path in streams],
            "environment": dict(environment),
            "directory": os.getcwd(),
            "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
    )
    return Forked(nursery, pid)


@functools.cache
def _nursery() -> _Nursery:
    return _Nursery({**os.environ, "PYTHONUNBUFFERED": "1"})


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: environment[key] for key in environment if key.startswith(_READ_AT_START)}


# -- in the process that forks ---------------------------------------------------------------------


def main() -> None:
    """Until the socket is closed."""
    import binlog_server.cli.serve
    import binlog_server.connections.certificate  # noqa: F401 - which loads a large library
    from binlog_server.settings.config import load
    from binlog_server.sql.parser import build_grammars

    # What all do at their start, and most of its processor time.
    build_grammars()
    load(None, {"binlog_directory": os.curdir})
    gc.freeze()
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl
    with socket.socket(fileno=os.dup(0)) as control, control.makefile("rwb") as stream:
        request = _serve(stream)
    if request is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:  # else it is gone already
            _become(request)


def _serve(stream: Any) -> dict[str, Any] | None:
    """Returns in each child, with what it is to be; and at the end."""
    for line in stream:
        request: dict[str, Any] = json.loads(line)
        answer: int | None
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            return request
        stream.write(json.dumps(answer).encode() + b"\n")
        stream.flush()
    return None


def _become(request: Mapping[str, Any]) -> None:
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
    sys.argv = [request["module"], *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
