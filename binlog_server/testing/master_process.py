"""A master in a process of its own: `python -m binlog_server.testing.master_process FD`, with a pipe to its test.

Without a number it is the process that has imported the server, and forks these (`forks.py`).

    (directory, options)             the first message: where it serves, and how
    (method, arguments)              a call of `Served`
    (True, value) (False, error)     the answer to each; the first one has no value

The end of the pipe ends the process.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from binlog_server.testing import process, without_collecting
from binlog_server.testing.forks import Forked, fork, fork_for_others
from binlog_server.testing.master import BinlogMaster

if TYPE_CHECKING:
    from binlog_server.testing.served import Served

_MODULE: Final = "binlog_server.testing.master_process"
# Python does not look into the folder of the test for what it imports.
_ARGV: Final = (sys.executable, "-P", "-m", _MODULE)
_START_S: Final = 60
_STOP_S: Final = 60


class MasterEnded(Exception):
    """The process of a master has ended; the text has the end of its log."""


class MasterProcess(BinlogMaster):
    """See `BinlogMaster`. It can be killed and paused, and dies with its test."""

    _process: subprocess.Popen[bytes] | Forked | None = None
    _pipe: Connection[Any, Any]
    _is_paused = False

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._one_call = threading.Lock()

    def start(self) -> Self:
        assert not self.alive(), f"{self} runs already"
        self._pipe, theirs = Pipe()
        self._is_paused = False
        with theirs:
            log, end = self.dir / "server.log", theirs.fileno()
            streams = Path(os.devnull), log, log
            self._process = fork(_ARGV, _MODULE, (), streams, os.environ, end) or process.spawn(
                [*_ARGV, str(end)], log, pass_fds=(end,)
            )
        self._ask((self.directory, self._all_options()), _START_S)
        return self

    @property
    def pid(self) -> int:
        """Its number in the system."""
        if self._process is None:
            raise self._stopped()
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if self._process is not None:
            if self.alive():
                self.resume()
            self._pipe.close()
            code = self._process.wait(_STOP_S)
            self._process = None
            if code > 0:  # less: a signal, which was the test's
                raise MasterEnded(f"{self} ended with {code}:\n{self.log()[-3000:]}")

    def kill(self) -> None:
        """kill -9; the data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def pause(self) -> None:
        """The process stands still, its connections stay open."""
        self._signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """It goes on."""
        self._signal(signal.SIGCONT)
        self._is_paused = False

    def log(self) -> str:
        return process.read_log(self.dir / "server.log")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise self._stopped()
        self._process.send_signal(number)

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._process is None:
            raise self._stopped()
        if self._is_paused and self.alive():
            raise RuntimeError(f"{self} is paused, and answers nothing: resume() lets it go on")
        return self._ask((name, arguments), None)

    def _ask(self, message: object, timeout: float | None) -> Any:
        with self._one_call, self._while_alive():
            self._pipe.send(message)
            if not self._pipe.poll(timeout):
                raise TimeoutError(
                    f"{self} did not answer within {timeout} s:\n{self.log()[-3000:]}"
                )
            done, value = self._pipe.recv()
        if not done:
            raise value
        return value

    @contextmanager
    def _while_alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise MasterEnded(f"{self} has ended:\n{self.log()[-3000:]}") from None


def main() -> None:
    """Serve until the pipe ends, or fork."""
    # Of this process alone: the test's has no use for a server, and need not wait until it has loaded one, too.
    with without_collecting():
        from binlog_server.app.app import load_later
        from binlog_server.testing.served import Served

    if len(sys.argv) > 1:
        _serve(int(sys.argv[1]), Served, load_later)
    else:
        fork_for_others(load_later)


def _serve(descriptor: int, served_by: type[Served], ahead: Callable[[], None]) -> None:
    """`ahead`: for the first statement, while the test does not ask for one yet."""
    from binlog_server.process.logs import set_up_logging
    from binlog_server.process.signals import kill_process

    set_up_logging("INFO")
    with Connection(descriptor) as pipe:
        directory, options = pipe.recv()
        try:
            served = served_by(directory, options)
        except Exception as error:  # noqa: BLE001 - raised by the test's thread
            pipe.send((False, _sendable(error)))
            return
        served.server.faults.die = kill_process
        try:
            pipe.send((True, None))
            threading.Thread(target=ahead, daemon=True).start()
            while True:
                name, arguments = pipe.recv()
                try:
                    answer = (True, getattr(served, name)(*arguments))
                except Exception as error:  # noqa: BLE001 - raised by the test's thread
                    answer = (False, _sendable(error))
                pipe.send(answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # the test has ended, or has stopped us
        finally:
            served.close()


def _sendable(error: Exception) -> Exception:
    """Itself, or its words if it cannot be sent."""
    try:
        same = pickle.loads(pickle.dumps(error))
        if isinstance(same, type(error)) and str(same) == str(error):
            return error
    except Exception:  # noqa: BLE001 - whatever its constructor says
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
