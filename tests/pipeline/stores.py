"""Stores to read: made from groups, or from a binlog file of a real server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.disk.disk import OsDisk

from tests.integration.rows.upstream_rows import groups_after
from tests.kit.mariadb import MariaDB

SMALL_FILES = StoreOptions(max_binlog_size=16 << 20)  # two are made for any store, in full


def make_store(
    directory: Path,
    groups: Iterable[tuple[bytes, Gtid | None]],
    options: StoreOptions | None = None,
) -> Path:
    """A store of ours that was closed, with these groups."""
    directory.mkdir(parents=True, exist_ok=True)
    engine = IbbEngine(OsDisk(directory), options or SMALL_FILES)
    try:
        for payload, gtid in groups:
            while not engine.has_room:
                engine.step()
            engine.append(payload, gtid)
            engine.step()
        engine.sync()
        while engine.step():
            pass
    finally:
        engine.close()
    return directory


def store_of_binlog(
    directory: Path, files: list[Path], options: StoreOptions | None = None
) -> Path:
    """The groups of traditional binlog files as a store."""
    found = ((b"".join(group.pieces()), group.gtid) for group in classic_groups(files))
    return make_store(directory, found, options)


def store_of_upstream(
    directory: Path, upstream: MariaDB, position: str = "", options: StoreOptions | None = None
) -> Path:
    """What a running server has logged behind a GTID position as a store."""
    found = ((group.payload, group.gtid) for group in groups_after(upstream, position))
    return make_store(directory, found, options)
