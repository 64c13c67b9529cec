"""The redo log and the tables beside a binlog of either format: what is wrong with them, in words."""

from __future__ import annotations

import contextlib
from collections import deque

from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.disk.state import REDO_KEY, read_facts
from binlog_storage.errors import CorruptRedo, CorruptTables, StorageError, without_advice
from binlog_storage.log.pending_redo import PendingRedo
from binlog_storage.redo.format import REDO_NAME, RedoFormatError, Tables
from binlog_storage.redo.reader import RedoReader
from binlog_storage.tables import snapshot
from binlog_storage.tables.records import parse


def facts_fault(disk: ReadableDisk, redo: PendingRedo) -> str:
    """Whether the facts that the store keeps about itself are of this redo log. Empty: nothing is wrong."""
    try:
        known = read_facts(disk).get(REDO_KEY)
    except StorageError as error:
        return str(error)
    if known is not None and redo.uuid is None and not redo.damage:
        return f"{REDO_NAME} is missing: the server does not open the store without it"
    if known is not None and redo.uuid not in (None, known):
        return f"{REDO_NAME} is that of another store"
    return ""


def tables_fault(disk: ReadableDisk, redo: PendingRedo) -> str:
    """The rows: their records in the redo log, and the snapshot. Empty: nothing is wrong."""
    try:
        if redo.uuid is None:  # that is told
            if snapshot.is_there(disk):
                snapshot.look(disk)
            return ""
        with contextlib.closing(disk.open(REDO_NAME)) as file:
            reader = RedoReader(file)
            for mtr in reader.replay():
                for record in mtr.records():
                    if isinstance(record, Tables):
                        deque(parse(record.data), maxlen=0)
            if snapshot.is_there(disk, reader.checkpoint.tables):
                found = snapshot.look(disk)
                found.require_fits(reader.uuid, reader.checkpoint.tables)
                found.require_whole(reader.end)
    except (CorruptTables, CorruptRedo, RedoFormatError) as error:
        return without_advice(error)
    return ""
