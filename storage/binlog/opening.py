"""Opening a store: the redo log and the files, brought together.

    redo log there         it is applied, then the end is read from the files
    none, files there      a store of MariaDB, or one made before there was a redo log: the end is what the files show
    none, no files         a new store
    innodb_force_recovery=6    as if there were no redo log

In the end there is a redo log with a checkpoint where the files end, in a new epoch. Its uuid is also a fact of the
store, so that a log that is missing, or is another store's, is found out.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import NamedTuple

from storage.binlog.file_names import file_name
from storage.binlog.options import NO_LOG_REDO, StoreOptions
from storage.binlog.page_store import PageStore
from storage.binlog.prepared import PreparedTransactions
from storage.binlog.publication import read_published
from storage.binlog.recovery import Recovered, recover
from storage.binlog.replay import replay
from storage.disk import Disk
from storage.errors import CorruptRedo
from storage.ibb.chunk import LAST_CHUNK_START, Position
from storage.ibb.page import PAGE_SIZE
from storage.redo import log as redo_log
from storage.redo.format import REDO_NAME
from storage.redo.log import RedoLog
from storage.state import StateStore

log = logging.getLogger(__name__)

REDO_KEY = "redo/uuid"


class Opened(NamedTuple):
    """The log, ready for `append`, and where the writer goes on; None if there is no data yet."""

    redo: RedoLog
    found: Recovered | None


def open_log(
    disk: Disk,
    pages: PageStore,
    prepared: PreparedTransactions,
    facts: StateStore | None,
    options: StoreOptions,
    lock: threading.Lock,
    new_uuid: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
) -> Opened:
    """Recover what there is. Raises `CorruptRedo`, `CorruptBinlog`, `DiskError`."""
    ignored = options.innodb_force_recovery >= NO_LOG_REDO
    there = REDO_NAME in disk.names()
    known = None if facts is None else facts.get(REDO_KEY)
    if there and not ignored:
        return _open_existing(disk, pages, prepared, facts, options, lock)
    if known is not None and not ignored:
        raise CorruptRedo(
            f"{REDO_NAME} is missing. The store was not opened: put it back; or start once with "
            "innodb_force_recovery=6 to go on with what the .ibb files hold, without the last commits"
        )
    if ignored:
        log.warning(
            "innodb_force_recovery=%d: the redo log is not applied; what was only there is lost",
            options.innodb_force_recovery,
        )
    found = recover(disk, pages, prepared, ours=ignored)
    stand, lsn = _adopt(disk, pages, found)
    made = new_uuid()
    if facts is not None:
        facts.set(REDO_KEY, None)  # a crash from here on finds a log, or none, and both are right
    redo_log.make(disk, uuid=made, size=options.innodb_log_file_size, epoch=0, lsn=lsn, end=stand)
    if facts is not None:
        facts.set(REDO_KEY, made.hex())
    redo = RedoLog(disk, lock, options.innodb_log_buffer_size)
    redo.begin(stand)
    return Opened(redo, found)


def _open_existing(
    disk: Disk,
    pages: PageStore,
    prepared: PreparedTransactions,
    facts: StateStore | None,
    options: StoreOptions,
    lock: threading.Lock,
) -> Opened:
    redo = RedoLog(disk, lock, options.innodb_log_buffer_size)
    try:
        known = None if facts is None else facts.get(REDO_KEY)
        if known not in (None, redo.uuid.hex()):
            raise CorruptRedo(
                f"{REDO_NAME} is that of another store: it has uuid {redo.uuid.hex()}, the store says {known}. The "
                "store was not opened: put the right one back; or start once with innodb_force_recovery=6"
            )
        end = replay(disk, redo)
        _require_published(disk, redo, end)
        found = None if end is None else recover(disk, pages, prepared, end)
        if options.innodb_log_file_size != redo.size:
            redo.close()
            redo = _resized(disk, redo, options, lock, end)
        redo.begin(end)
        if facts is not None and known is None:
            facts.set(REDO_KEY, redo.uuid.hex())
    except BaseException:
        redo.close()
        raise
    return Opened(redo, found)


def _require_published(disk: Disk, redo: RedoLog, end: Position | None) -> None:
    """What other processes were told is durable must be there."""
    told = read_published(disk)
    if told is None or (told.uuid, told.epoch) != (redo.uuid, redo.checkpoint.epoch):
        return
    if end is None or told.end > _normal(end):
        found = "nothing" if end is None else f"{file_name(end.file_no)}:{end.offset}"
        raise CorruptRedo(
            f"{REDO_NAME} leads to {found}, but {file_name(told.end.file_no)}:{told.end.offset} was durable: the log "
            "is an older copy, or the disk lost what it had confirmed. The store was not opened: restore it from a "
            "copy; or start once with innodb_force_recovery=6 to go on without what is lost"
        )


def _normal(stand: Position) -> Position:
    """The place of the next record: behind a full page it is the next page."""
    if stand.in_page > LAST_CHUNK_START:
        return Position(stand.file_no, (stand.page_no + 1) * PAGE_SIZE)
    return stand


def _resized(
    disk: Disk, redo: RedoLog, options: StoreOptions, lock: threading.Lock, end: Position | None
) -> RedoLog:
    """The same log with another size; everything in it is in the files."""
    log.info(
        "InnoDB: Resizing redo log from %d to %d bytes; LSN=%d",
        redo.size,
        options.innodb_log_file_size,
        redo.lsn,
    )
    size = options.innodb_log_file_size
    redo_log.make(disk, uuid=redo.uuid, size=size, epoch=redo.epoch, lsn=redo.lsn, end=end)
    return RedoLog(disk, lock, options.innodb_log_buffer_size)


def _adopt(disk: Disk, pages: PageStore, found: Recovered | None) -> tuple[Position | None, int]:
    """Where the files end, now durable, and an LSN behind all that their headers tell."""
    if found is None:
        return None, redo_log.FIRST_LSN
    lsn = redo_log.FIRST_LSN
    current = found.header.file_no
    for file_no in (current - 1, current):
        header = pages.header(file_no) if file_no >= 0 else None
        if header is not None:
            lsn = max(lsn, header.start_lsn + redo_log.FIRST_LSN)
            file = disk.open(file_name(file_no))
            try:
                file.fdatasync()
            finally:
                file.close()
    return Position(current, found.page_no * PAGE_SIZE + found.at), lsn
