"""Our server with faults: its calls of the operating system fail when a test says so, while it runs.

    faults = Faults()
    server = binlog_server(faults=faults)
    faults.inject("fdatasync", file="redo", error=errno.EIO)

A sync that fails by this is not made, and the next one works: as on a real system, where the kernel tells of lost data
once and forgets.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from binlog_server.metrics.health import ROOM_WAIT_S
from binlog_server.process import signals
from binlog_server.testing import rundir
from tests.kit import os_calls

VARIABLE = "BINLOG_TEST_FAULTS"
ROOM_RETRY = "BINLOG_TEST_ROOM_RETRY_S"
ROOM_WAIT = "BINLOG_TEST_ROOM_WAIT_S"
END = "BINLOG_TEST_END_S"
TWICE = "BINLOG_TEST_TWICE_S"


class Faults:
    """What one server is to suffer. It looks at the file before each call.

    room_retry_s: how long it waits for room on a full disk, which is a minute otherwise.
    room_wait_s: how long commits wait for room before it says that it is not ready.
    end_s: after so long it ends although something hangs.
    twice_s: signals within that time are one.
    """

    module = "tests.kit.faults"
    """In the place of `binlog_server`."""

    def __init__(
        self,
        *,
        room_retry_s: float = 0.1,
        room_wait_s: float = ROOM_WAIT_S,
        end_s: float = signals.END_S,
        twice_s: float = signals.TWICE_S,
    ) -> None:
        self._environment = {
            ROOM_RETRY: str(room_retry_s),
            ROOM_WAIT: str(room_wait_s),
            END: str(end_s),
            TWICE: str(twice_s),
        }
        self.dir = rundir.new_dir("faults")
        self._file = self.dir / "faults.json"
        self.clear()

    @property
    def environment(self) -> dict[str, str]:
        return {VARIABLE: str(self._file), **self._environment}

    def inject(
        self,
        call: str,
        *,
        file: str = "",
        error: int = 0,
        after: int = 0,
        times: int = 1 << 60,
        hangs: bool = False,
        written: bool = False,
    ) -> None:
        """From now on `call` fails for files with `file` in their name, once `after` of them went well, so many times.

        `call` is one of `os_calls.CALLS`, or "getaddrinfo", of which `file` is the name that is asked for.

        `error` is an errno; with 0 it says that all is well, and does nothing. With `hangs` it does not return: as on a
        disk that has stopped. With `written` only files with data count: one that is made ahead of its use is synced,
        too, and an error of that sync is nothing to the data.
        """
        fault = {"call": call, "file": file, "error": error, "after": after, "times": times}
        self._faults.append({**fault, "hangs": hangs, "written": written})
        self._write()

    @property
    def hanging(self) -> bool:
        """Whether a call is under way that will not return."""
        return self._file.with_suffix(".hanging").exists()

    def clear(self) -> None:
        """Everything works again."""
        self._faults: list[dict[str, Any]] = []
        self._file.with_suffix(".hanging").unlink(missing_ok=True)
        self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._faults))
        new.replace(self._file)


class Injector:
    """In the server's process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        self._faults: list[dict[str, Any]] = []
        self._written: set[str] = set()  # paths; a file that is made anew is told from the old one
        self._lock = threading.Lock()  # threads call at the same time, and count

    def __call__(self, call: os_calls.Call) -> Any:
        with self._lock:
            fault = self._fault(call)
        if fault is None:
            return call.make()
        if fault["hangs"]:
            self._path.with_suffix(".hanging").touch()
            threading.Event().wait()
        if fault["error"]:
            raise OSError(fault["error"], os.strerror(fault["error"]))
        return None

    def _fault(self, call: os_calls.Call) -> dict[str, Any] | None:
        """The fault that this call suffers."""
        if call.name in ("pwrite", "pwritev"):
            self._written.add(call.path)
        elif call.name in ("posix_fallocate", "unlink"):
            self._written.discard(call.path)
        inode = os.stat(self._path).st_ino
        if inode != self._seen:
            self._seen = inode
            self._faults = json.loads(self._path.read_text())
        for fault in self._faults:
            if fault["call"] != call.name or fault["file"] not in Path(call.path).name:
                continue
            if fault["written"] and call.path not in self._written:
                continue
            fault["after"] -= 1
            if -fault["times"] <= fault["after"] < 0:
                return fault
        return None


def watch_names(around: Callable[[os_calls.Call], Any]) -> None:
    """From now on `around` is called in the place of each question for the addresses of a name."""
    original = socket.getaddrinfo

    def call(host: Any, *arguments: Any, **named: Any) -> Any:
        def make() -> Any:
            return original(host, *arguments, **named)

        if named.get("flags", 0) & socket.AI_NUMERICHOST:
            return make()  # it asks nobody
        return around(os_calls.Call("getaddrinfo", arguments, str(host), make))

    socket.getaddrinfo = call


def main() -> int:
    """`binlog-server`, with the faults of the file that the environment names."""
    injector = Injector(Path(os.environ[VARIABLE]))
    os_calls.watch(injector)
    watch_names(injector)
    from binlog_storage.binlog import file_keeper, full_disk

    from binlog_server.cli import main as cli
    from binlog_server.metrics import health

    vars(signals)["END_S"] = float(os.environ[END])
    vars(signals)["TWICE_S"] = float(os.environ[TWICE])
    for module in (full_disk, file_keeper):  # which has taken the constant when it was imported
        vars(module)["ROOM_RETRY_S"] = float(os.environ[ROOM_RETRY])
    vars(health)["ROOM_WAIT_S"] = float(os.environ[ROOM_WAIT])
    return cli()


EIO = errno.EIO
ENOSPC = errno.ENOSPC

if __name__ == "__main__":
    sys.exit(main())
