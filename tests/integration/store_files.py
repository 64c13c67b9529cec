"""What is in a store, looked at from outside: through its reader, or as files with a hash."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk

from binlog_server.testing import rundir
from binlog_server.testing.waiting import until
from tests.kit.server import BinlogServer
from tests.storage.disks import copy_of_running


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[IbbEngine]:
    """A copy of the store: opening one recovers it, and the test's own is to stay as it is."""
    copy = copy_of_running(directory, rundir.new_dir("store") / "copy")
    engine = IbbEngine(OsDisk(copy))
    try:
        yield engine
    finally:
        engine.close()
        shutil.rmtree(copy.parent)


def payloads(directory: Path) -> list[bytes]:
    """Groups and start markers, in order."""
    found: list[bytes] = []
    with opened(directory) as engine:
        at = engine.find_start(SlavePosition()).position
        while at < engine.durable_end:
            batch = engine.read(at)
            found += batch.groups
            if batch.large is not None:
                found.append(b"".join(batch.large.pieces()))
            at = batch.end
    return found


def binlog_state(directory: Path) -> BinlogState:
    with opened(directory) as engine:
        return engine.binlog_state()


def hashes(directory: Path) -> dict[str, str]:
    """SHA-256 of each file."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@contextlib.contextmanager
def unchanged(server: BinlogServer) -> Iterator[None]:
    """No file of the store becomes another in the block. The server stands still meanwhile, and what it does to its
    files in the background.
    """
    server.pause()
    try:
        until(partial(_stands_still, server.pid), "it stands still")
        before = hashes(server.directory)
        yield
        assert hashes(server.directory) == before
    finally:
        server.resume()


def _stands_still(pid: int) -> bool:
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that has ended since
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}
