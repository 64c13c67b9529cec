"""Stores to read: made from groups, or from a binlog file of a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.disk.disk import OsDisk
from binlog_storage.ibb.page import PAGE_SIZE

from binlog_server.testing.mariadb import MariaDB
from tests.integration.rows.upstream_rows import groups_after
from tests.pipeline import logs
from tests.storage.groups import (
    Group,
    append_all,
    append_step_by_step,
    group,
    gtid_event,
    settle,
    simple,
)

FULL = "--binlog-row-metadata=FULL"
"""Of an upstream: names and kinds of columns are in its log."""
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
        append_step_by_step(engine, groups)
        settle(engine)
    finally:
        engine.close()
    return directory


def store_of_binlog(
    directory: Path, files: list[Path], options: StoreOptions | None = None
) -> Path:
    """The groups of traditional binlog files as a store."""
    found = ((b"".join(group.pieces()), group.gtid) for group in classic_groups(files))
    return make_store(directory, found, options)


class MakeLoggedStore(Protocol):
    def __call__(self, *statements: str, flags: Sequence[str] = (FULL,), **options: Any) -> Path:
        """A store of what a fresh upstream with these flags and options logs of the statements of one session."""


def store_of_upstream(
    directory: Path, upstream: MariaDB, position: str = "", options: StoreOptions | None = None
) -> Path:
    """What a running server has logged behind a GTID position as a store."""
    found = ((group.payload, group.gtid) for group in groups_after(upstream, position))
    return make_store(directory, found, options)


def failed_over(folder: Path, make_upstream: Callable[..., MariaDB]) -> list[Path]:
    """Stores of a server that was lost, and of the one behind it, which never got row 2 of d.t and has others.

    Row 2 is of 0-1-4, and row 3 of 0-2-4. One server plays both.
    """
    upstream = make_upstream(FULL, server_id=1)
    both = [
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY)",
        "INSERT INTO d.t VALUES (1)",
    ]
    upstream.script(*both, "INSERT INTO d.t VALUES (2)")
    old = store_of_upstream(folder / "old", upstream)
    more = ["SET SESSION server_id = 2", "INSERT INTO d.t VALUES (3)", "INSERT INTO d.t VALUES (4)"]
    upstream.script("DROP DATABASE d", "RESET MASTER", *both, *more)
    return [old, store_of_upstream(folder / "new", upstream)]


def leave_half(
    directory: Path, *, before_commit: bool, look: Callable[[str], None] = lambda _: None
) -> list[Group]:
    """A store of which a purge has left the commit of group 1-1-1 and not its first pieces; all others, of domain 0.

    Args:
        before_commit: the file that ends with the commit holds groups in front of it, which cannot be had any more.
        look: is called when 20 groups are there and the large one is `open`, then when it is `committed`, then when
            its beginning is `purged`.
    """
    made = simple(40)
    gtid = Gtid(1, 1, 1)
    pieces = memoryview(group(gtid, 60 * PAGE_SIZE).payload)[len(gtid_event(gtid)) :]
    options = replace(logs.SMALL_FILES, slave_connections_needed_for_purge=0)
    with closing(IbbEngine(OsDisk(directory), options)) as engine:
        append_all(engine, made[:10])
        writer = engine.begin()
        writer.spill(pieces[: 20 * PAGE_SIZE])
        engine.flush()
        append_all(engine, made[10:20])
        settle(engine)
        look("open")
        first = len(engine.files())
        if before_commit:
            engine.flush()
        writer.spill(pieces[20 * PAGE_SIZE :])
        writer.commit(gtid_event(gtid), gtid)
        settle(engine)
        look("committed")
        append_all(engine, made[20:30])
        engine.flush()
        append_all(engine, made[30:])
        engine.flush()
        engine.purge_to(engine.files()[first - (not before_commit)].number)
        settle(engine)
        assert engine.first_start().state == BinlogState([Gtid(0, 1, 20), gtid])  # so does a dump
    look("purged")
    return made
