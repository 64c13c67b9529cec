"""Stores that grow between two runs of an archiver, and what is in stores, sources and archives."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from binlog_pipeline.jobs.archive import Archived, ArchiveSettings, archive
from binlog_pipeline.jobs.replay import Replayed, replay
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.sources.source import LogSource, MarkedSlice
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.archive.places import Where
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.groups import OfflineBinlog

from tests.storage.groups import Group, append_step_by_step, run_dry, settle

SMALL = StoreOptions(
    max_binlog_size=1 << 20, innodb_binlog_state_interval=64 << 10, innodb_log_file_size=4 << 20
)
HERE = Engine("local", 1)

Row = tuple[Gtid, Position, int, bytes]


def grow(
    directory: Path,
    groups: Iterable[Group],
    *,
    purge: int = 0,
    flush: bool = False,
    state: BinlogState | None = None,
) -> None:
    """Add groups to a store, which begins with `state`; purge that many files first, begin another file at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    engine = IbbEngine(OsDisk(directory), SMALL)
    try:
        if state is not None:
            engine.reset(state)
        if purge:
            engine.set_option("slave_connections_needed_for_purge", 0)
            engine.purge_to(engine.files()[purge].number)
        append_step_by_step(engine, groups)
        settle(engine)
        if flush:
            engine.flush()
            run_dry(engine)
    finally:
        engine.close()


def run(source: LogSource, target: Where, **settings: Any) -> Archived:
    """In this process, with what is in the file that is being written."""
    chosen = {"tail": True, "engine": HERE, "partition_bytes": 256 << 10, **settings}
    return archive(source, target, ArchiveSettings(**chosen))


def replayed(archive: Where, target: Path, start: SlavePosition | None = None) -> Replayed:
    """With small files."""
    return replay(archive, target, start=start, max_binlog_size=1 << 20)


def rows(
    source: LogSource, wanted: Wanted | None = None, partition_bytes: int = 1 << 20
) -> list[Row]:
    """What a source gives: GTID, place, time, bytes of each group."""
    found: list[Row] = []
    for part in source.slices(wanted or Wanted(), partition_bytes):
        for groups in part.read():
            for i in range(len(groups)):
                payload = b"".join(groups.pieces(i))
                found.append((groups.gtid(i), groups.place(i), int(groups.timestamp[i]), payload))
    return found


def log_of(source: LogSource) -> list[bytes]:
    """All groups and start markers of a source, in their order."""
    found: list[bytes] = []
    for part in source.slices(Wanted(), 1 << 20):
        assert isinstance(part, MarkedSlice)
        for groups in part.read_marked():
            for i in range(len(groups) + 1):
                found += [marker for at, marker in groups.markers if at == i]
                if i < len(groups):
                    found.append(b"".join(groups.pieces(i)))
    return found


def stored(directory: Path) -> list[bytes]:
    """All groups and start markers of a store."""
    binlog = OfflineBinlog.of_paths([directory])
    try:
        return [b"".join(group.pieces()) for group in binlog.groups()]
    finally:
        binlog.close()


def payloads(groups: Iterable[Group]) -> list[bytes]:
    return [group.payload for group in groups]
