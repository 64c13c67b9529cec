"""How fast this machine can take a transaction from a server and have it durable in pages with checksums.

A program in C (`durable_pages.c`), compiled when it is needed, that does nothing else: the limit that a relay in any
language can come near.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.raw_replica import RawReplica
from benchmarks.registry import BenchmarkError
from binlog_server.testing.sql_server import Followed

SOURCE: Final = Path(__file__).with_suffix(".c")
_SERVER_ID: Final = 80_000
_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Received:
    """One run. `seconds` from the dump command to the end of `fdatasync`; `bytes` are those of the pages."""

    seconds: float
    cpu_s: float
    bytes: int


def receive(program: Path, source: Followed, directory: Path, size: int) -> Received:
    """All that the server has goes into a file of pages in `directory`, and is removed again.

    Args:
        size: bytes that are reserved for it, at least those of the pages.

    Raises:
        BenchmarkError: the server refuses, or the program fails.
    """
    path = directory / "durable-pages"
    replica = RawReplica((source.host, source.port), source.account.user, source.account.password)
    os.sync()  # what was written before is nobody's load
    begin = time.monotonic()
    sock = replica.start_dump(_SERVER_ID)
    try:
        sock.setblocking(True)
        command = [str(each) for each in (program, sock.fileno(), path, size)]
        done = subprocess.run(
            command,
            pass_fds=[sock.fileno()],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        seconds = time.monotonic() - begin
    finally:
        sock.close()
        path.unlink(missing_ok=True)
    if done.returncode:
        raise BenchmarkError(f"{program.name}: {done.stderr.strip()}")
    size, cpu_us = map(int, done.stdout.split())
    return Received(seconds, cpu_us / 1e6, size)
