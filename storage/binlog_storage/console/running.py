"""One command, run: its exit code, and the same words for the same error in both programs.

    0  done
    1  it failed, or has found what it looks for: damage, differences
    2  wrong usage: arguments, options, configuration; nothing was done

A command whose output nobody reads to its end, as behind `| head`, says nothing and ends with 1. An
error is one line on standard error, with --json too. One that Ctrl-C or SIGTERM breaks off gives up what it had begun,
as behind an error, says that it was interrupted, and ends by that signal: so a loop of a shell around it ends, too. One
that is in a call which lets no signal through ends by it as well (`deaf_calls.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from binlog_protocol.errors import (
    AccessDenied,
    HostNotAllowed,
    ProtocolError,
    RemoteError,
    ServerError,
)

from binlog_storage.console.deaf_calls import ENDING, ended_if_deaf, let_wait, name_of
from binlog_storage.console.output import shortened, shown, size_text
from binlog_storage.errors import REPAIR, CorruptBinlog, StorageError, without_advice

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_SIGNAL: Final = 128
"""And the number of the signal, as shells have it."""

_FAILURES: Final = (StorageError, ProtocolError, RemoteError, ServerError)
_REMEDIES: Final = {
    errno.EACCES: "run this as the user whose files they are",
    errno.EPERM: "run this as the user whose files they are",
    errno.ENOSPC: "make room, and give the command again",
    errno.EDQUOT: "make room, and give the command again",
    errno.EROFS: "give a directory that can be written",
    errno.EMFILE: "raise the limit by ulimit -n",
}
NO_THREAD: Final = "can't start new thread"
MORE_THREADS: Final = (
    "raise the limit of processes (ulimit -u, LimitNPROC) or tasks (TasksMax, pids.max)"
)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_ASKED_OF_LOGINS: Final = {
    AccessDenied.errno: "is the user right, and the password?",
    HostNotAllowed.errno: "is there an account for this machine?",
}
_EXTRAS: Final = {
    "pyspark": "spark",
    "py4j": "spark",
    "grpc": "connect",
    "obstore": "archive",
    "confluent_kafka": "kafka",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "matplotlib": "plot",
}
"""The extra of this package that brings a module; the others are of `jobs`."""


def run_program(program: str, main: Callable[[], int]) -> int:
    """Do all that a program does, with its arguments and their errors. Returns its exit code.

    One that Ctrl-C or SIGTERM breaks off says so, whatever it was at.
    """
    _stand_in()
    interruption = _Interruption()
    try:
        with interruption.heard(program):
            try:
                return main()
            except Exception as error:
                if interruption.is_told or interruption.is_behind(error):
                    raise KeyboardInterrupt from error
                raise
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        return complain(program, f"{error}: {MORE_THREADS}", EXIT_FAILED)
    except KeyboardInterrupt:
        _leave_output(None)
        complain(program, f"interrupted by {interruption.name}", EXIT_FAILED)
        return EXIT_SIGNAL + interruption.number


def run_command(
    program: str,
    work: Callable[[], int],
    errors: Mapping[type[Exception], int],
    target: object = None,
    room: Callable[[object], int | None] = lambda target: None,
) -> int:
    """Do the work of a command. Returns its exit code.

    Args:
        errors: exit codes of a program's own errors. Those of files and stores are known here.
        target: what it makes or changes.
        room: bytes that are free there; None where nobody knows. Raises `OSError`.
    """
    known = {**errors, **dict.fromkeys(_FAILURES, EXIT_FAILED)}
    caught: tuple[type[Exception], ...] = tuple(known)
    if logging.lastResort is not None:
        # What a store says meanwhile, as that it waits for room, where nobody has set up a log.
        logging.lastResort.setFormatter(logging.Formatter(f"{program}: %(message)s"))
    try:
        try:
            code = work()
        except Exception as error:
            # What does not let go of things in the middle of its work would be told instead.
            if _Interruption.is_behind(error):
                raise KeyboardInterrupt from error
            raise
        _flush()
        return code
    except OSError as error:
        if not _leave_output(error):
            return complain(program, with_target(error, target, room), EXIT_FAILED)
        if isinstance(error, BrokenPipeError):
            return EXIT_FAILED  # the reader of our output has gone, such as `head`
        return complain(program, f"standard output: {told(error)}", EXIT_FAILED)
    except caught as error:
        code = next(code for kind, code in known.items() if isinstance(error, kind))
        return complain(program, with_target(error, target, room), code)
    except UnicodeEncodeError as error:
        # Bytes of a name that are no text: systems take them, and libraries of files do not.
        told_name = (
            f"{error.object!r} is no UTF-8 text, which the library that opens it wants of a name"
        )
        return complain(program, told_name, EXIT_FAILED)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(name, "jobs")
        name = "pyspark" if name == "py4j" else name  # which brings it
        return complain(
            program, f"{name} is needed for that: pip install '.[{extra}]'", EXIT_FAILED
        )


@contextlib.contextmanager
def not_interrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM come behind the block, as while modules are loaded: an import that is broken off is told as
    something else. Processes that are begun in it have to call `interrupted_again`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def interrupted_again() -> None:
    """Hear Ctrl-C and SIGTERM, in a process that was begun within `not_interrupted`."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


class _Interruption:
    """SIGTERM as Ctrl-C: `KeyboardInterrupt` in the main thread, or what an event loop does in its place."""

    def __init__(self) -> None:
        self.number = signal.SIGINT
        self.is_told = False
        """Whether SIGTERM has come. A library that was being loaded may have taken it for a lack of its own."""

    @staticmethod
    def is_behind(error: BaseException) -> bool:
        """Whether an error came while that was being handled."""
        while error.__context__ is not None:
            error = error.__context__
            if isinstance(error, KeyboardInterrupt):
                return True
        return False

    @property
    def name(self) -> str:
        """The signal, for people."""
        return name_of(self.number)

    @contextlib.contextmanager
    def heard(self, program: str) -> Iterator[None]:
        """Within the block, unless somebody else hears SIGTERM, or this is no main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGTERM)
        if before is not signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTERM, self._told)
        try:
            with ended_if_deaf(f"{program}: interrupted by {{}}\n"):
                yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _told(self, number: int, _: FrameType | None) -> None:
        self.number = signal.Signals(number)
        self.is_told = True
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)
        else:  # as of a command that a shell has put behind: it does not hear Ctrl-C
            raise KeyboardInterrupt


def told_to_stop() -> Callable[[], bool]:
    """Whether this process was told to end by SIGTERM or Ctrl-C: from now on nothing is broken off by them."""
    told: list[int] = []
    let_wait()
    for number in ENDING:
        signal.signal(number, lambda at, _: told.append(at))
    return lambda: bool(told)


def end_by(code: int) -> int:
    """The exit code of the process. If a signal has broken its command off, it ends by that signal instead."""
    if code > EXIT_SIGNAL:
        # Registered last, it would be called first, before what other modules have to do at the end.
        _last.append(signal.Signals(code - EXIT_SIGNAL))
    return code


_last: Final[list[signal.Signals]] = []


@atexit.register
def _end() -> None:
    if _last:
        signal.signal(_last[0], signal.SIG_DFL)
        signal.raise_signal(_last[0])


class _Output(io.BufferedWriter):
    """Standard output, which remembers the error of its last write.

    A raw file would be the place, but Ctrl-C behind its `write` would let the buffer write the same again.
    """

    failed: OSError | None = None

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failed = error
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.failed = error
            raise


def _stand_in() -> None:
    """Streams that are closed are /dev/null: no file gets their numbers. What cannot be encoded is escaped."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            opened = open(os.devnull, mode, errors="backslashreplace")  # noqa: PTH123, SIM115
            setattr(sys, name, opened)
    out = sys.stdout
    if out is not sys.__stdout__ or not isinstance(out, io.TextIOWrapper):
        return  # somebody else's
    out.flush()
    # Buffered, with PYTHONUNBUFFERED too: what is not buffered may be written in part, and nobody is told.
    buffer = _Output(io.FileIO(out.fileno(), "w", closefd=False))
    sys.stdout = io.TextIOWrapper(
        buffer,
        out.encoding,
        "backslashreplace",
        line_buffering=out.line_buffering or out.write_through,
    )


def complain(program: str, error: object, code: int) -> int:
    """Print an error in one line, whatever its text. Returns `code`."""
    text = shortened(shown(error)) or type(error).__name__
    sys.stderr.write(f"{program}: {text}\n")
    return code


def unreachable(error: OSError) -> str:
    """Why a server was not reached, and what to ask: the name of the machine, or whether the server is there."""
    if isinstance(error, TimeoutError):
        return "it does not answer; is the server up, and reachable?"
    if error.errno is None:  # of ours, and not of the system
        return str(error)
    if error.errno < 0:  # the resolver's own numbers
        return f"{error.strerror or error}; is the name of the host right?"
    return f"{os.strerror(error.errno)}; is the server up, and reachable?"


def refused(error: RemoteError) -> str:
    """What a server has said to a login, and what to ask where its text does not say it."""
    asked = _ASKED_OF_LOGINS.get(error.errno)
    return f"{error}" + (f"; {asked}" if asked else "")


def words_of(error: Exception) -> str:
    """What an error says to a person, and what to do where its text does not say it."""
    if isinstance(error, OSError):
        return told(error)
    cause = error.__cause__
    if isinstance(cause, (NotADirectoryError, FileExistsError)) and f"{error}".endswith(
        cause.strerror or "\0"
    ):
        return told(cause)
    return f"{error}{_remedy_behind(error)}"


def with_target(error: Exception, target: object, room: Callable[[object], int | None]) -> str:
    """What an error says; on a full disk also which target is meant, and how much room is left there."""
    text = words_of(error)
    full = next((os.strerror(one) for one in _FULL if os.strerror(one) in text), None)
    if full is None:
        return text
    if _REMEDIES[errno.ENOSPC] not in text:
        text += f": {_REMEDIES[errno.ENOSPC]}"
    if target is None:
        return text
    with contextlib.suppress(OSError):
        if (free := room(target)) is not None:
            text += f"; free there: {size_text(free)}"
    return text if str(target) in text else f"{target}: {text}"


def told(error: OSError) -> str:
    """An error of the operating system for a person: the file first, without the number, and what to do."""
    if error.strerror is None:
        return str(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        path = Path(os.fsdecode(error.filename))
        # Of a file that was to be made it is a folder above that is missing.
        missing = next((one for one in reversed(path.parents) if not one.exists()), path)
        return f"there is no {missing}"
    if isinstance(error, (NotADirectoryError, FileExistsError)) and error.filename is not None:
        path = Path(os.fsdecode(error.filename))
        # Where a folder is wanted, or was to be made, there is something else.
        taken = [
            one for one in (*reversed(path.parents), path) if one.exists() and not one.is_dir()
        ]
        if taken:
            return f"{taken[0]} is no directory"
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    remedy = _REMEDIES.get(error.errno or 0)
    what = error.strerror
    if error.errno and f"[errno {error.errno}] " in what:  # as pyarrow has it, with words around
        what = os.strerror(error.errno)
    return f"{where}{what}" + (f": {remedy}" if remedy else "")


def _remedy_behind(error: Exception) -> str:
    """The remedy for an error of a store that says no more than what was found, or the operating system has said."""
    if isinstance(error, CorruptBinlog) and without_advice(error) == str(error):
        return f"; {REPAIR}"
    cause = error.__cause__
    if not isinstance(cause, OSError) or not str(error).endswith(cause.strerror or "\0"):
        return ""
    remedy = _REMEDIES.get(cause.errno or 0)
    return f": {remedy}" if remedy else ""


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _leave_output(error: OSError | None) -> bool:
    """Whether it was output that could not be written, and an error tells of it.

    Output that cannot be written is given up, or the interpreter would try once more at its end.
    """
    buffer = getattr(sys.stdout, "buffer", None)
    was_it = isinstance(buffer, _Output) and buffer.failed is error is not None
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return was_it or not isinstance(buffer, _Output)
    return was_it
