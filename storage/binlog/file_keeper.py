"""The life of files around the one being written: the next is made ahead, old ones are purged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from storage.binlog import purge
from storage.binlog.caretaker import Caretaker
from storage.binlog.file_names import file_name, file_number
from storage.binlog.file_table import FileTable
from storage.binlog.options import StoreOptions
from storage.binlog.page_store import PageStore
from storage.binlog.purge import FileFacts, PurgePlan, Wanted
from storage.binlog.references import Reason, References
from storage.errors import UnknownBinlog
from storage.ibb.chunk import Position
from storage.ibb.page import PAGE_SIZE

log = logging.getLogger(__name__)


class FileKeeper:
    """Of one store. May be used from several threads.

    Args:
        written_end: the store's.
        first_open: the first file that recovery may need: that of the last checkpoint.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        files: FileTable,
        pages: PageStore,
        references: References,
        options: StoreOptions,
        *,
        written_end: Callable[[], Position],
        first_open: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._files = files
        self._pages = pages
        self._references = references
        self._options = options
        self._written_end = written_end
        self._first_open = first_open
        self._clock = clock
        self.working = threading.Lock()  # held while files are made or deleted
        self._told: tuple[int, str] | None = None
        self.caretaker = Caretaker(self._take_care)

    def purge_to(self, name: str) -> PurgePlan:
        """PURGE BINARY LOGS TO: delete files before the named one, as far as they may go.

        Returns what was deleted, and what kept the next one. Raises `UnknownBinlog` for a name that is none, or lies
        beyond the last file; a file that is merely gone already is fine.
        """
        number = file_number(name)
        # The file that SHOW MASTER STATUS tells may exist in memory only.
        last = max(self._written_end().file_no, *self._files.numbers())
        if number is None or number > last:
            raise UnknownBinlog(f"Target log not found in binlog index: {name!r}")
        return self.purge(purge.before_file(number))

    def purge_before(self, seconds: float) -> PurgePlan:
        """PURGE BINARY LOGS BEFORE: files last written before that time, in seconds since 1970."""
        return self.purge(purge.before_time(seconds))

    def explain(self, wanted: Wanted) -> PurgePlan:
        """What `purge` would do now."""
        first_open = self._first_open()
        needed = self._options.slave_connections_needed_for_purge
        return purge.plan(
            [self._facts(n) for n in self._files.numbers() if n <= first_open],
            wanted,
            first_open=first_open,
            holds=self._references.holds(),
            replicas_missing=needed - self._references.count(Reason.DUMP),
        )

    def purge(self, wanted: Wanted) -> PurgePlan:
        """Delete what is wanted, from the oldest file on, up to the first that must stay.

        Nothing is synced: on a full disk this is what makes room. A transaction whose completion is not durable yet
        needs its data after a crash; but it was open or prepared when the durable file was begun, and the header of
        that file says so.
        """
        with self.working:
            plan = self.explain(wanted)
            for file_no in plan.delete:
                self._files.remove(file_no)
                self._pages.forget(file_no)
        if plan.delete:
            log.info(
                "purged %d binlog files, up to %s", len(plan.delete), file_name(plan.delete[-1])
            )
        return plan

    def _facts(self, file_no: int) -> FileFacts:
        header = self._pages.header(file_no)
        refers_to = file_no
        if header is not None:
            xa_ref = file_no if header.xa_ref is None else header.xa_ref
            refers_to = min(file_no, header.oob_ref, xa_ref)
        size = self._files.size(file_no) or 0
        return FileFacts(file_no, size, self._files.modified(file_no), refers_to)

    def _take_care(self) -> None:
        """One round: the next file, then the limits of age and size; these also when the disk is full."""
        try:
            with self.working:
                following = self._first_open() + 1
                self._files.make_ahead(following, self._options.file_pages * PAGE_SIZE)
        finally:
            self._purge_by_limits()

    def _purge_by_limits(self) -> None:
        options = self._options
        if options.binlog_expire_logs_seconds:
            limit = self._clock() - options.binlog_expire_logs_seconds
            self._purge_unasked(purge.before_time(limit))
        if options.max_binlog_total_size:
            self._purge_unasked(purge.above_size(options.max_binlog_total_size))

    def _purge_unasked(self, wanted: Wanted) -> None:
        plan = self.purge(wanted)
        if plan.kept is not None and (plan.kept, plan.why) != self._told:
            self._told = plan.kept, plan.why  # once, not every round
            log.warning(
                "InnoDB: Binlog file %s could not be purged because %s",
                file_name(plan.kept),
                plan.why,
            )
