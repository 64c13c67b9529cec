"""Stores of any size, from the groups of a small one: the same rows again and again, under new GTIDs.

The GTID event of a stored group has its number at offset 19, 8 bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import TYPE_OFFSET, split_events
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.partitions import partition_batches, plan

_SEQ_NO: Final = slice(19, 27)
_ROWS: Final = frozenset({EventType.TABLE_MAP, EventType.WRITE_ROWS_V1})


def groups_of(directory: Path) -> list[bytes]:
    """All groups of a store, in memory."""
    found: list[bytes] = []
    with LogPages(ReadOnlyDisk(directory)) as pages:
        for partition in plan(pages, pages.files()):
            for batch in partition_batches(pages, partition):
                if batch.large is not None:
                    found.append(b"".join(batch.large.pieces()))
                else:
                    found += [group for group in batch.groups if group_gtid(group) is not None]
    return found


def repeated(directory: Path, groups: Sequence[bytes], size: int) -> int:
    """A store with about `size` bytes of these groups. Returns how many groups it has."""
    with _engine(directory) as engine:
        count = written = 0
        while written < size:
            for group in groups:
                gtid = group_gtid(group)
                assert gtid is not None
                count += 1
                number = gtid._replace(seq_no=count)
                payload = bytearray(group)
                payload[_SEQ_NO] = count.to_bytes(8, "little")
                engine.append(bytes(payload), number)
                engine.step()
                written += len(group)
                if written >= size:
                    break
        return count


def one_transaction(directory: Path, group: bytes, size: int) -> int:
    """A store with one transaction of about `size` bytes: the row events of `group` again and again.

    Returns how many bytes it has.
    """
    events = list(split_events(group))
    gtid = group_gtid(group)
    assert gtid is not None
    middle = b"".join(event for event in events if event[TYPE_OFFSET] in _ROWS)
    with _engine(directory) as engine:
        writer = engine.begin()
        written = 0
        while written < size:
            writer.spill(middle)
            engine.step()
            written += len(middle)
        writer.spill(events[-1])
        writer.commit(events[0], Gtid(*gtid))
        return written


@contextlib.contextmanager
def _engine(directory: Path) -> Iterator[IbbEngine]:
    directory.mkdir()
    engine = IbbEngine(OsDisk(directory), StoreOptions())
    try:
        yield engine
        engine.sync()
        while engine.step():
            pass
    finally:
        engine.close()
