"""What is in a store, looked at from outside: through its reader, or as files with a hash."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk

from binlog_server.testing import rundir
from binlog_server.testing.waiting import until
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


def settled(directory: Path, position: str) -> dict[str, str]:
    """As `hashes`, once the server has brought to the files what it does in the background: up to the position it is
    published, which comes last."""
    published, wanted = DirectorySource(str(directory)), SlavePosition.parse(position)
    until(lambda: published.latest() == wanted, f"{position} is published")
    before = hashes(directory)
    while True:
        time.sleep(0.3)
        now = hashes(directory)
        if now == before:
            return now
        before = now
