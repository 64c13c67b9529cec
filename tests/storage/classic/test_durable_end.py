"""Readers of another process stop where a store of traditional files is durable."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.convert.stores import store_source
from binlog_storage.disk.disk import OsDisk
from binlog_storage.errors import DiskFull
from binlog_storage.intake.source import SourceGroup
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import group, marker

OPTIONS = ClassicOptions(binlog_gtid_index=False, slave_connections_needed_for_purge=0)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ClassicEngine]:
    with contextlib.closing(ClassicEngine(OsDisk(tmp_path / "store"), OPTIONS)) as engine:
        yield engine


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


def add(engine: ClassicEngine, seq_no: int) -> None:
    one = group(Gtid(0, 1, seq_no))
    engine.append(one.payload, one.gtid)


def seen(path: Path, *, running: bool = True) -> list[int]:
    """Sequence numbers of the groups that another process reads."""
    found: list[int] = []
    with contextlib.closing(store_source(path, running=running)) as source:
        for item in source.items(0):
            if isinstance(item, GroupRun):
                found += item.seq_nos
            elif isinstance(item, SourceGroup) and item.gtid is not None:
                found.append(item.gtid.seq_no)
    return found


def seen_by_events(path: Path) -> list[int]:
    files = sorted(path.glob("binlog.0?????"))
    return [one.gtid.seq_no for one in classic_groups(files) if one.gtid is not None]


def test_what_is_written_and_not_durable_is_not_read(engine: ClassicEngine, store: Path) -> None:
    add(engine, 1)
    engine.sync()
    engine.step()
    add(engine, 2)
    engine.write_log()
    engine.step()
    assert seen(store) == seen_by_events(store) == [1]
    assert seen(store, running=False) == [1, 2], "it is there"
    engine.sync()
    assert seen(store) == [1], "it is published in the background"
    engine.step()
    assert seen(store) == seen_by_events(store) == [1, 2]


def test_a_file_that_is_newer_than_what_is_published(engine: ClassicEngine, store: Path) -> None:
    add(engine, 1)
    engine.sync()
    engine.step()
    engine.flush()
    add(engine, 2)
    engine.write_log()
    assert seen(store) == [1]
    engine.step()
    assert seen(store) == seen_by_events(store) == [1], "the end is at the beginning of a file"
    engine.sync()
    engine.step()
    engine.append(marker(1).payload, None)
    engine.step()
    assert seen(store) == seen_by_events(store) == [1, 2]


def test_a_binlog_that_begins_anew(engine: ClassicEngine, store: Path) -> None:
    add(engine, 1)
    engine.sync()
    engine.step()
    engine.reset()
    engine.step()
    add(engine, 7)
    engine.write_log()
    assert seen(store) == []
    engine.sync()
    engine.step()
    assert seen(store) == [7]


def test_the_end_of_another_binlog_is_none(engine: ClassicEngine, store: Path) -> None:
    """A MariaDB that went on here has begun its binlog anew, and does not know of that file."""
    engine.step()
    older = (store / "binlog-server.durable").read_bytes()
    add(engine, 1)
    engine.sync()
    engine.flush()
    engine.purge_to(2)
    add(engine, 2)
    engine.sync()
    engine.step()
    there = Path(shutil.copytree(store, store.parent / "there"))
    assert seen(there) == [2]
    (there / "binlog-server.durable").write_bytes(older)
    (there / "binlog.000002").rename(there / "binlog.000001")
    (there / "binlog.index").write_text("binlog.000001\n")
    assert seen(there) == seen_by_events(there) == [2]


def test_files_that_were_copied_are_whole(engine: ClassicEngine, store: Path) -> None:
    engine.step()
    add(engine, 1)
    engine.write_log()
    (copy := store.parent / "copy").mkdir()
    for path in store.glob("binlog.*"):
        shutil.copy(path, copy)
    assert seen(store) == []
    assert seen(copy) == seen_by_events(copy) == [1]


def test_a_disk_without_room_for_it_is_told() -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, OPTIONS)

    def full(kind: str, name: str) -> None:
        if name.startswith("binlog-server.durable"):
            raise DiskFull("no room")

    disk.fault = full
    add(engine, 1)
    engine.sync()
    engine.step()
    assert [one.what for one in engine.stalled()] == ["publication"]
    disk.fault = None
    engine.step()
    assert engine.stalled() == []
    engine.close()
