"""GTID state records against the groups before them.

A state record at a page start holds exactly the groups whose commit record begins before that page: in full at page 1,
as the difference to page 1 behind it. Two departures are no damage: a domain may have been deleted between files
(FLUSH BINARY LOGS DELETE_DOMAIN_ID), and MariaDB continues a file after a restart with an empty difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.log_file import grown, read_state
from binlog_storage.log.pages import OfflinePages

Tell = Callable[[int, int, str], None]


class StateCheck:
    """Told of every group in order, and asked to check before each."""

    def __init__(self, pages: OfflinePages, error: Tell, warning: Tell) -> None:
        self._pages = pages
        self._error = error
        self._warning = warning
        self._places = self._all_places()
        self._next = next(self._places, None)
        self._seen = BinlogState()
        # The first file begins with what purged files held, or with what RESET MASTER was told; after damage groups
        # may be missing.
        self._known = False
        self._base: BinlogState | None = None

    def forget(self) -> None:
        """Groups may be missing from here on: wait for the next full state."""
        self._known = False

    def logged(self, gtid: Gtid, place: Position) -> None:
        """A group was met."""
        before = self._seen.get(gtid.domain_id, gtid.server_id)
        if before is not None and gtid.seq_no <= before:
            self._warning(
                *place,
                f"GTID {gtid} comes after {gtid.domain_id}-{gtid.server_id}-{before}: not ascending",
            )
        self._seen.update(gtid)

    def check_before(self, place: Position) -> None:
        """All state records before `place` that were not checked yet."""
        while self._next is not None and self._next < place:
            self._check(self._next)
            self._next = next(self._places, None)

    def finish(self) -> None:
        """Check the state records behind the last group."""
        while self._next is not None:
            self._check(self._next)
            self._next = next(self._places, None)

    def _all_places(self) -> Iterator[Position]:
        for number in self._pages.numbers:
            interval = 0
            try:
                header = self._pages.header(number)
                if header is None:
                    continue
                interval = header.state_interval_pages
            except CorruptBinlog:
                pass  # told by the first pass
            pages = self._pages.size(number) // PAGE_SIZE
            yield Position(number, PAGE_SIZE)
            for page_no in range(interval, pages, interval) if interval else ():
                if page_no > 1:
                    yield Position(number, page_no * PAGE_SIZE)

    def _check(self, place: Position) -> None:
        try:
            entries = read_state(self._pages, place.file_no, place.page_no)
        except CorruptBinlog as error:
            # Bad pages and chunks are told by the walk; only what it passes over is new.
            if not self._is_bad_page(place):
                self._error(error.file_no, error.offset, error.reason)
            entries = None
        if place.offset == PAGE_SIZE:
            self._base = None if entries is None else BinlogState(entries)
            if entries is not None:
                self._full(place, BinlogState(entries))
        elif entries is not None and self._known:
            self._difference(place, entries)

    def _is_bad_page(self, place: Position) -> bool:
        try:
            self._pages.page(place.file_no, place.page_no)
        except CorruptBinlog:
            return True
        return False

    def _full(self, place: Position, state: BinlogState) -> None:
        if self._known:
            deleted = [d for d in self._seen.domains() if state.last(d) is None]
            kept = BinlogState(g for g in self._seen.entries() if g.domain_id not in deleted)
            # What MariaDB writes at the very start instead of the one GTID that comes: nothing.
            if kept != state:
                self._error(
                    *place,
                    f"the state is {_shown(state)}, the groups before it give {_shown(kept)}",
                )
        self._seen = state.copy()
        self._known = True

    def _difference(self, place: Position, entries: list[Gtid]) -> None:
        for gtid in entries:
            if self._seen.get(gtid.domain_id, gtid.server_id) != gtid.seq_no:
                there = self._seen.get(gtid.domain_id, gtid.server_id)
                self._error(
                    *place, f"the state has {gtid}, but the groups before it end at {there}"
                )
                return
        whole = grown(self._base or BinlogState(), entries)
        missing = [
            g for g in self._seen.entries() if whole.get(g.domain_id, g.server_id) != g.seq_no
        ]
        if missing and self._base is not None:
            self._warning(
                *place, f"the state lacks {missing[0]}, which was logged before it in this file"
            )


def _shown(state: BinlogState) -> str:
    text = str(state) or "empty"
    return text if len(text) <= 200 else text[:200] + ".."
