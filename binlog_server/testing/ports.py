"""Ports for servers that must know theirs before they start.

Each is leased by a lock file, so that test processes (xdist workers, and whole runs side by side)
never give out the same one; every worker begins at its own stretch of the range, which only saves
it trying. The range lies below the kernel's ephemeral ports.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import IO

from binlog_server.testing import rundir

FIRST = int(os.environ.get("BINLOG_TEST_FIRST_PORT", "21000"))
PER_WORKER = 200
WORKERS = 16
COUNT = PER_WORKER * WORKERS

_leases: dict[int, IO[str]] = {}


def lease(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on and that stays ours until `release` or the process's end."""
    locks = rundir.base() / "ports"
    locks.mkdir(exist_ok=True)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for i in range(COUNT):
        port = FIRST + (worker * PER_WORKER + i) % COUNT
        if port in _leases:
            continue
        lock = (locks / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        if _is_free(host, port):
            _leases[port] = lock
            return port
        lock.close()
    raise RuntimeError(f"no free port from {FIRST} to {FIRST + COUNT - 1}")


def release(port: int) -> None:
    lock = _leases.pop(port, None)
    if lock is not None:
        lock.close()


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # Ports in TIME_WAIT are free to a server; without this a few runs would use up the range.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
