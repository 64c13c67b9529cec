"""The files before and behind the current one: the next is made ahead, old ones are purged."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from binlog_protocol.dataclass import dataclass

from binlog_storage.binlog.full_disk import ROOM_RETRY_S, FullDisk
from binlog_storage.binlog.late_writes import LateWrites
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.page_store import PageStore
from binlog_storage.binlog.worker import Worker
from binlog_storage.engine import purge
from binlog_storage.engine.purge import FileFacts, FileFate, PurgeHeld, PurgePlan, Wanted
from binlog_storage.engine.references import Reason, References
from binlog_storage.errors import CorruptBinlog, DiskError, TooManyOpenFiles, UnknownBinlog
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.first_file import FirstFile

log = logging.getLogger(__name__)


def _utc(seconds: float) -> str:
    return time.strftime("'%Y-%m-%d %H:%M:%S'", time.gmtime(seconds))


@dataclass(eq=False)
class FileKeeper:
    """Makes files of one store ahead and purges old ones; from any thread.

    Args:
        late: writes of opening, which come before a file is made.
        first_file: the store's beginning, which a purge moves.
        full: learns that files were deleted.
        clock: gives seconds since 1970.
    """

    _pages: PageStore
    _writer: LogWriter
    _references: References
    options: StoreOptions  # may be replaced at any time
    _late: LateWrites
    _first_file: FirstFile
    _full: FullDisk
    _clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._files = self._pages.files
        self.files_purged = 0
        self.bytes_purged = 0
        self.working = threading.Lock()  # held while files are made or deleted
        self._told: tuple[int, str] | None = None
        self.held: PurgeHeld | None = None  # the last finding of the purge by limits
        self.caretaker = Worker("binlog-caretaker", self._take_care, retry_s=ROOM_RETRY_S)

    def purge_to(self, file_no: int) -> PurgePlan:
        """See `BinlogEngine`."""
        wanted = purge.before_file(self.known(file_no))
        return self._purge_by_hand(wanted, f"PURGE BINARY LOGS TO '{file_name(file_no)}'")

    def known(self, file_no: int) -> int:
        """The number, if it is that of an existing or purged file. Raises `UnknownBinlog`."""
        # The file in SHOW MASTER STATUS may exist in memory only.
        if file_no > max([self._writer.file_no, *self._files.numbers()]):
            raise UnknownBinlog(f"Target log not found in binlog index: {file_name(file_no)!r}")
        return file_no

    def purge_before(self, seconds: float) -> PurgePlan:
        """PURGE BINARY LOGS BEFORE: delete the files last written before a time, in seconds since 1970."""
        return self._purge_by_hand(
            purge.before_time(seconds), f"PURGE BINARY LOGS BEFORE {_utc(seconds)}"
        )

    def _purge_by_hand(self, wanted: Wanted, who: str) -> PurgePlan:
        """Purge for a statement, which may also be run where earlier files are missing."""
        plan = self.purge(wanted, who)
        with self.working:
            self._first_file.moves_to(self._pages.first_number())
        return plan

    def explain(self, to: int | None = None, before: float | None = None) -> list[FileFate]:
        """See `BinlogEngine.explain_purge`."""
        if to is not None:
            wanted = purge.before_file(self.known(to))
        elif before is not None:
            wanted = purge.before_time(before)
        else:
            wanted = purge.any_of([one for one, _ in self._limits()])
        return self._fates(wanted)

    def _fates(self, wanted: Wanted) -> list[FileFate]:
        """The fates of all files that a purge may reach, now."""
        first_open = self._late.first_open()
        needed = self.options.slave_connections_needed_for_purge
        return purge.fates(
            [self._facts(n) for n in self._files.numbers() if n <= first_open],
            wanted,
            first_open=first_open,
            holds=self._references.holds(),
            replicas_missing=needed - self._references.count(Reason.DUMP),
        )

    def purge(self, wanted: Wanted, asked: str) -> PurgePlan:
        """Delete the wanted files, from the oldest on, up to the first that must stay.

        The redo log is not synced, so that a purge works on a full disk. A transaction whose completion is not durable
        yet needs its data after a crash; but it was open or prepared when the durable file was begun, and the header of
        that file says so.

        Args:
            asked: the account or option that asks, for the log.
        """
        deleted: list[int] = []
        with self.working:
            fates = self._fates(wanted)
            plan = purge.plan(fates)
            if plan.delete:
                self._first_file.moves_to(plan.delete[-1] + 1)
            refers_to = {fate.file_no: fate.refers_to for fate in fates}
            try:
                for fate in fates[: len(plan.delete)]:
                    file_no = fate.file_no
                    going = functools.partial(self._files.going, file_no)
                    if not self._references.let_go(file_no, refers_to, going):
                        plan = purge.plan(self._fates(wanted))  # a hold that came meanwhile
                        self._first_file.moves_to(file_no)
                        break
                    try:
                        self._files.remove(file_no)
                    except BaseException:  # also an error before `remove` has begun
                        self._files.stays(file_no)
                        raise
                    deleted.append(file_no)
                    self.bytes_purged += fate.size
                    self.files_purged += 1
                    self._pages.forget(file_no)
            finally:  # behind an error, too: some files may be deleted
                if deleted:
                    self._full.freed()
                    if self._late.full is not None:
                        self.caretaker.poke()
                    self._first_file.note_again()  # the disk may have room for it now
        plan = replace(plan, delete=deleted)
        if deleted:
            last = file_name(plan.delete[-1])
            log.info("purged %d binlog files, up to %s: %s", len(plan.delete), last, asked)
        return plan

    def _facts(self, file_no: int) -> FileFacts:
        refers_to = file_no
        try:
            header = self._pages.header(file_no)
        except TooManyOpenFiles:
            raise  # temporary: nothing is known of the file now, but later
        except (CorruptBinlog, DiskError):  # a file that cannot be read can be purged
            header, refers_to = None, 0
        if header is not None:
            refers_to = header.refers_to
        try:
            modified = self._files.modified(file_no)
        except DiskError:
            modified = 0.0
        return FileFacts(file_no, self._size_of(file_no), modified, refers_to)

    def _size_of(self, file_no: int) -> int:
        try:
            return self._files.size(file_no) or 0
        except DiskError:  # a link without a target has no size
            return 0

    def _take_care(self) -> None:
        """One round: make the next file, then purge by age and size; the purge also when the disk is full."""
        with self.working:
            self._first_file.note_again()
        try:
            if self._late.catch_up():
                with self.working:
                    following = self._late.first_open() + 1
                    self._files.make_ahead(following, self.options.file_pages * PAGE_SIZE)
        finally:
            self._purge_by_limits()

    def _purge_by_limits(self) -> None:
        self.held = None
        for wanted, name in self._limits():
            plan = self.purge(wanted, name)
            if plan.kept is None:
                continue
            stay = [f for f in self._fates(wanted) if f.wanted and not f.goes]
            size, oldest = sum(f.size for f in stay), min((f.modified for f in stay), default=0.0)
            if self.held is None or size > self.held.size:
                self.held = PurgeHeld(size, oldest, stay[0].held_by[0])
            if (plan.kept, plan.why) != self._told:
                self._told = plan.kept, plan.why  # logged once, not every round
                log.warning(
                    "InnoDB: Binlog file %s could not be purged because %s",
                    file_name(plan.kept),
                    plan.why,
                )

    def _limits(self) -> list[tuple[Wanted, str]]:
        """The limits of age and size that are set, each with its option for the log."""
        options = self.options
        return purge.limits(
            options.binlog_expire_logs_seconds, options.max_binlog_total_size, self._clock()
        )
