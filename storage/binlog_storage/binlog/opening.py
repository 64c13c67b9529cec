"""Opening a store: recovery from the redo log and the files.

    a redo log                 it is applied, then the end is read from the files
    no log, but files          a store of MariaDB, or one from before there was a redo log: the files show the end
    neither                    a new store
    innodb_force_recovery=6    as without a redo log

All of this is planned before anything is changed: a start that is refused leaves every byte as it found it.

Afterwards there is a redo log with a checkpoint at the end of the files, in a new epoch. Its UUID is also kept as a
fact of the store, so that a missing log, or that of another store, is noticed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import uuid
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from binlog_protocol.gtid import BinlogState

from binlog_storage.binlog.options import NO_LOG_REDO, StoreOptions
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.binlog.planned_pages import PlannedPages
from binlog_storage.binlog.prepared import PreparedTransactions
from binlog_storage.binlog.recovery import Recovered, Recovery
from binlog_storage.binlog.replay import plan_replay
from binlog_storage.disk.disk import Disk, make_durable
from binlog_storage.disk.state import KNOWS_BREAKS_KEY, REDO_KEY, STORE_KEY, StateStore
from binlog_storage.errors import CorruptRedo, CorruptTables, without_advice
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.publication import Published, read_published
from binlog_storage.redo import log as redo_log
from binlog_storage.redo.format import BLOCK, REDO_NAME, RedoFormatError, TablesFrom
from binlog_storage.redo.log import AppendLock, RedoLog
from binlog_storage.redo.reader import RedoReader
from binlog_storage.tables import snapshot
from binlog_storage.tables.rebuild import Rebuild
from binlog_storage.tables.snapshot import Begin, OpenTrx

log = logging.getLogger(__name__)

_CHANGED_FILES = 3  # the last ones: those that recovery may change, and one made ahead
_FREEZE_FROM = 100_000  # objects made by a start


class LogOptions(Protocol):
    """What options say of the redo log: see `StoreOptions`."""

    @property
    def innodb_log_file_size(self) -> int: ...

    @property
    def innodb_log_buffer_size(self) -> int: ...


class Opened(NamedTuple):
    """The redo log, ready for `append`, the writer's place in the files, and the tables.

    The place is None if there is no data yet.
    """

    redo: RedoLog
    found: Recovered | None
    tables: Rebuild


def open_log(
    disk: Disk,
    pages: PageStore,
    prepared: PreparedTransactions,
    facts: StateStore | None,
    options: StoreOptions,
    lock: threading.Lock,
) -> Opened:
    """Recover the store in a directory, or begin a new one.

    Raises `CorruptRedo`, `CorruptBinlog`, `CorruptTables`, before anything is changed; `DiskError`.
    """
    ignored = options.innodb_force_recovery >= NO_LOG_REDO
    there = REDO_NAME in disk.names()
    known = None if facts is None else facts.get(REDO_KEY)
    told = read_published(disk)
    if there and not ignored:
        return _open_existing(disk, pages, prepared, facts, options, lock, told)
    if known is not None and not ignored:
        raise CorruptRedo(
            f"{REDO_NAME} is missing. The store was not opened and nothing was changed: put it back; or start once "
            "with innodb_force_recovery=6 to go on with what the .ibb files hold, without the last commits"
        )
    tables = tables_without_pages(disk)
    recovery = Recovery(disk, pages)
    recovery.plan(prepared, ours=ignored)
    found = recovery.found
    lsn = _lsn_behind(recovery.planned, found)
    if ignored:
        log.warning(
            "innodb_force_recovery=%d: the redo log is not applied; what was only there is lost",
            options.innodb_force_recovery,
        )
        _tell_lost(told, found)
    # From here on the store is changed.
    _claim(facts)
    recovery.carry_out()
    stand = _made_durable(disk, found)
    redo = make_log(disk, tables, facts, options, lock, lsn, stand)
    return Opened(redo, found, tables)


def make_log(
    disk: Disk,
    tables: Rebuild,
    facts: StateStore | None,
    options: LogOptions,
    lock: AppendLock,
    lsn: int,
    stand: Position | None,
) -> RedoLog:
    """A new redo log that goes on from this LSN, with these tables; ready for `append`.

    `stand`: the write position in the binlog, if that is in the log, too.
    """
    made = uuid.uuid4().bytes
    if facts is not None:
        # A crash from here on may leave a log or none: both are right. State breaks were in the one that is lost.
        facts.update({REDO_KEY: None, KNOWS_BREAKS_KEY: None})
    begin = _snapshot_at(disk, tables, made, lsn, 0)
    redo_log.make(
        disk,
        uuid=made,
        size=options.innodb_log_file_size,
        epoch=0,
        lsn=lsn,
        end=stand,
        tables=begin,
    )
    if facts is not None:
        facts.set(REDO_KEY, made.hex())
    redo = RedoLog(disk, lock, options.innodb_log_buffer_size)
    try:
        redo.begin(stand)
    except BaseException:
        redo.close()
        raise
    return redo


def tables_without_pages(disk: Disk) -> Rebuild:
    """The tables where the redo log is not applied to the binlog, or lost: all of them that can be read."""
    if REDO_NAME not in disk.names():
        return _without_log(disk)
    disk.open(REDO_NAME).close()  # it can be replaced then
    return _without_pages(disk)


def _without_log(disk: Disk) -> Rebuild:
    tables = Rebuild()
    tables.load_alone(disk)
    return tables


def _without_pages(disk: Disk) -> Rebuild:
    """The tables of a store whose files are taken as they are (innodb_force_recovery): rows are nowhere but here.

    As much of the log as can be read is applied to them.
    """
    tables = Rebuild()
    with contextlib.closing(disk.open(REDO_NAME)) as file:
        try:
            log_file = RedoReader(file)
            tables.load(disk, log_file.uuid, log_file.checkpoint.tables)
        except (CorruptRedo, CorruptTables) as error:
            log.warning("%s; the tables are taken without it", without_advice(error))
            return _without_log(disk)
        try:
            tables.read_log(log_file)
        except (CorruptRedo, CorruptTables, RedoFormatError) as error:
            log.warning("%s; the tables are taken as they were up to there", without_advice(error))
            tables.memory.redone()
    return tables


def _open_existing(
    disk: Disk,
    pages: PageStore,
    prepared: PreparedTransactions,
    facts: StateStore | None,
    options: StoreOptions,
    lock: threading.Lock,
    told: Published | None,
) -> Opened:
    for number in file_numbers(disk.names())[-_CHANGED_FILES:]:
        disk.reread(file_name(number))  # what is durable and not there is in the log
    tables = Rebuild()
    redo = RedoLog(disk, lock, options.innodb_log_buffer_size)
    try:
        require_known(redo, facts)
        with no_collections():
            tables.load(disk, redo.uuid, redo.checkpoint.tables)
            replay = plan_replay(disk, redo, tables)
        end = replay.end
        with contextlib.closing(replay):
            _require_published(told, redo, end)
            recovery = Recovery(disk, pages, replay)
            recovery.plan(prepared)
            # From here on the store is changed.
            redo.write_again()
            _claim(facts)
            recovery.carry_out()
        redo = go_on_with(disk, redo, tables, facts, options, lock, end)
    except BaseException:
        redo.close()
        raise
    return Opened(redo, recovery.found, tables)


def require_known(redo: RedoLog, facts: StateStore | None) -> None:
    """Raises `CorruptRedo` unless a redo log is that of the store."""
    known = None if facts is None else facts.get(REDO_KEY)
    if known not in (None, redo.uuid.hex()):
        raise CorruptRedo(
            f"{REDO_NAME} is that of another store: it has uuid {redo.uuid.hex()}, the store says {known}. The "
            "store was not opened and nothing was changed: put the right one back; or start once with "
            "innodb_force_recovery=6"
        )


def go_on_with(
    disk: Disk,
    redo: RedoLog,
    tables: Rebuild,
    facts: StateStore | None,
    options: LogOptions,
    lock: AppendLock,
    end: Position | None,
) -> RedoLog:
    """A redo log that was read and written again, ready for `append`; another one if its size is to change.

    `end`: that of the binlog, if that is in the log, too.
    """
    redo.tables, redo.tables_logged = tables.begin, tables.logged
    resize = options.innodb_log_file_size != redo.size
    if tables.begin is not None and (resize or redo.room() < BLOCK):
        redo.tables = _snapshot_at(disk, tables, redo.uuid, redo.lsn, redo.epoch)
    if resize:
        redo.close()
        redo = _resized(disk, redo, options, lock, end)
    try:
        redo.begin(end)
        if facts is not None and facts.get(REDO_KEY) is None:
            facts.set(REDO_KEY, redo.uuid.hex())
    except BaseException:
        redo.close()  # who gave the old one closes that
        raise
    return redo


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Rows are made by the million, and none of it is garbage: to look for some would take as long again.

    Many are frozen: the next collection, and each later one of everything, would walk over all of them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] >= _FREEZE_FROM:
                gc.freeze()
            gc.enable()


def _claim(facts: StateStore | None) -> None:
    """Note among the facts that the directory belongs to this server."""
    if facts is not None and facts.get(STORE_KEY) is None:
        facts.set(STORE_KEY, "binlog-server")


def _require_published(told: Published | None, redo: RedoLog, end: Position | None) -> None:
    """Refuse the start if the data end before the published durable end."""
    if told is None or not told.is_of(redo.uuid, redo.checkpoint.epoch):
        return
    if end is None or told.end > end.next_record:
        found = "nothing" if end is None else f"{file_name(end.file_no)}:{end.offset}"
        raise CorruptRedo(
            f"{REDO_NAME} leads to {found}, but {file_name(told.end.file_no)}:{told.end.offset} was durable: the log "
            "is an older copy, or the disk lost what it had confirmed. The store was not opened and nothing was "
            "changed: restore it from a copy; or start once with innodb_force_recovery=6 to go on with what the .ibb "
            "files hold"
        )


def _resized(
    disk: Disk, redo: RedoLog, options: LogOptions, lock: AppendLock, end: Position | None
) -> RedoLog:
    """Replace the log by one of another size: all of its content is in the files."""
    log.info(
        "InnoDB: Resizing redo log from %d to %d bytes; LSN=%d",
        redo.size,
        options.innodb_log_file_size,
        redo.lsn,
    )
    size = options.innodb_log_file_size
    redo_log.make(
        disk,
        uuid=redo.uuid,
        size=size,
        epoch=redo.epoch,
        lsn=redo.lsn,
        end=end,
        tables=redo.tables,
    )
    return RedoLog(disk, lock, options.innodb_log_buffer_size)


def _snapshot_at(
    disk: Disk, tables: Rebuild, uuid: bytes, lsn: int, epoch: int
) -> TablesFrom | None:
    """Write the tables as they are: from then on they need no log in front of that LSN. None without tables."""
    if tables.begin is None:
        return None
    begin = TablesFrom(lsn, epoch, tables.begin.snapshot + 1)
    unfinished = [OpenTrx.of(trx) for trx in tables.open.values()]
    snapshot.write(
        disk,
        Begin(uuid, begin, unfinished),
        tables.memory,
        threading.Lock(),
        lambda: (lsn, tables.next_trx),
    )
    return begin


def _lsn_behind(planned: PlannedPages, found: Recovered | None) -> int:
    """An LSN above those in the headers of the last two files."""
    lsn = redo_log.FIRST_LSN
    if found is None:
        return lsn
    current = found.header.file_no
    for file_no in (current - 1, current):
        header = planned.header(file_no) if file_no >= 0 else None
        if header is not None:
            lsn = max(lsn, header.start_lsn + redo_log.FIRST_LSN)
    return lsn


def _made_durable(disk: Disk, found: Recovered | None) -> Position | None:
    """The end of the files, after those that the old redo log was about were made durable."""
    if found is None:
        return None
    current = found.header.file_no
    for file_no in sorted({current - 1, current} & set(file_numbers(disk.names()))):
        name = file_name(file_no)
        with contextlib.closing(disk.open(name)) as file:
            used = file.size() if file_no < current else (found.page_no + 1) * PAGE_SIZE
            make_durable(disk, name, file, min(used, file.size()))
    return Position(current, found.page_no * PAGE_SIZE + found.at)


def _tell_lost(told: Published | None, found: Recovered | None) -> None:
    """Log the groups that were published to other processes, and are in no file; used with innodb_force_recovery."""
    if told is None:
        return
    have = BinlogState() if found is None else found.state
    lost = [gtid for gtid in BinlogState.parse(told.state).entries() if not have.has(gtid)]
    if lost:
        log.warning(
            "the files hold less than was durable: groups up to %s are lost",
            ",".join(map(str, lost)),
        )
