"""One command, run: its exit code, and the same words for the same error in both programs.

    0  done
    1  it failed, or has found what it looks for: damage, differences
    2  wrong usage: arguments, options, configuration; nothing was done

A command whose output nobody reads to its end, as behind `| head`, says nothing and ends with 1. An
error is one line on standard error, with --json too.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from binlog_protocol.errors import (
    AccessDenied,
    HostNotAllowed,
    ProtocolError,
    RemoteError,
    ServerError,
)

from binlog_storage.console.output import shown
from binlog_storage.errors import REPAIR, CorruptBinlog, StorageError, without_advice

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

_FAILURES: Final = (StorageError, ProtocolError, RemoteError, ServerError)
_REMEDIES: Final = {
    errno.EACCES: "run this as the user whose files they are",
    errno.EPERM: "run this as the user whose files they are",
    errno.ENOSPC: "make room, and give the command again",
    errno.EDQUOT: "make room, and give the command again",
    errno.EROFS: "give a directory that can be written",
    errno.EMFILE: "raise the limit by ulimit -n",
}
_ASKED_OF_LOGINS: Final = {
    AccessDenied.errno: "is the user right, and the password?",
    HostNotAllowed.errno: "is there an account for this machine?",
}
_EXTRAS: Final = {
    "pyspark": "spark",
    "py4j": "spark",
    "grpc": "connect",
    "obstore": "archive",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "matplotlib": "plot",
}
"""The extra of this package that brings a module; the others are of `jobs`."""


def run_command(
    program: str, work: Callable[[], int], errors: Mapping[type[Exception], int]
) -> int:
    """Do the work of a command. Returns its exit code.

    Args:
        errors: exit codes of a program's own errors. Those of files and stores are known here.
    """
    known = {**errors, **dict.fromkeys(_FAILURES, EXIT_FAILED)}
    caught: tuple[type[Exception], ...] = tuple(known)
    try:
        code = work()
        _flush()
        return code
    except OSError as error:
        if _leave_output() and isinstance(error, BrokenPipeError):
            return EXIT_FAILED  # the reader of our output has gone, such as `head`
        return complain(program, told(error), EXIT_FAILED)
    except caught as error:
        code = next(code for kind, code in known.items() if isinstance(error, kind))
        return complain(program, words_of(error), code)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(name, "jobs")
        name = "pyspark" if name == "py4j" else name  # which brings it
        return complain(
            program, f"{name} is needed for that: pip install '.[{extra}]'", EXIT_FAILED
        )
    except KeyboardInterrupt:
        return EXIT_FAILED


def complain(program: str, error: object, code: int) -> int:
    """Print an error in one line, whatever its text. Returns `code`."""
    text = shown(error) or type(error).__name__
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
    return told(error) if isinstance(error, OSError) else f"{error}{_remedy_behind(error)}"


def told(error: OSError) -> str:
    """An error of the operating system for a person: the file first, without the number, and what to do."""
    if error.strerror is None:
        return str(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        path = Path(os.fsdecode(error.filename))
        # Of a file that was to be made it is a folder above that is missing.
        missing = next((one for one in reversed(path.parents) if not one.exists()), path)
        return f"there is no {missing}"
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{where}{error.strerror}" + (f": {remedy}" if remedy else "")


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


def _leave_output() -> bool:
    """Whether output cannot be written. It is given up then, or the interpreter would try once more at its end."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False
