"""State breaks: files whose first state is not a grown one of the file before, after DELETE_DOMAIN_ID or a number that
went back.

A binary search among the files is right only between two breaks. They are rows of a table, by the numbers of the files.
A break is logged in front of the group that makes it, so it is durable before its file: a crash leaves both, neither,
or a break too many, which does no harm. RESET MASTER removes them with the first mini-transaction of the new binlog.

A store that was made elsewhere does not know its breaks, and a search reads the state of every file; so it is where the
redo log is lost, and with it perhaps some of them. Whether they are known stands in the file of `disk.state`. There an
older version has kept the breaks, too. A start makes rows of these, and a crash behind each step leaves

    1  they are logged, and the log is synced    the file has them all, rows some of them: both count
    2  the file is written without them          rows alone
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from binlog_storage.disk.state import BREAKS_KEY, KNOWS_BREAKS_KEY, StateStore
from binlog_storage.errors import DiskError, WaitGivenUp
from binlog_storage.tables.facts import breaks_of, note_breaks
from binlog_storage.tables.records import SMALL_BYTES
from binlog_storage.tables.store import TableStore

log = logging.getLogger(__name__)

_TAKEN_AT_ONCE = 256
_FORGOTTEN_AT_ONCE = 16
_ROW_BYTES = 64  # more than the record of one
BREAKS_BYTES: Final = SMALL_BYTES + (2 + _FORGOTTEN_AT_ONCE) * _ROW_BYTES
"""The most that is logged in front of a group."""


class StateBreaks:
    """The state breaks of one store, as durable facts.

    Args:
        first_file: gives the number of the first existing file.
    """

    tables: TableStore

    def __init__(self, facts: StateStore | None, first_file: Callable[[], int]) -> None:
        self._facts = facts
        self._first_file = first_file

    def known(self) -> list[int] | None:
        """Numbers of the files that begin with a break; None if they are not known."""
        if self._facts is None:
            return None
        of_file = self._facts.get(BREAKS_KEY)
        if of_file is None and not self._facts.get(KNOWS_BREAKS_KEY):
            return None
        return sorted({*breaks_of(self.tables), *(of_file or ())})

    def add(self, files: set[int]) -> None:
        """Add files that begin with a break: logged on return, in front of what makes them. Under the append lock.

        There is room for it in the log with the record that comes behind it: see `LogWriter.redo_bytes`.
        """
        known = self.known()
        if known is None or files <= set(known):
            return
        first = self._first_file()
        gone = [number for number in breaks_of(self.tables) if number <= first]
        note_breaks(self.tables, files.difference(known), gone[:_FORGOTTEN_AT_ONCE])

    def restart(self) -> None:
        """The binlog is about to begin anew, and its breaks will be known. If that cannot be written, they are not."""
        if self._facts is None:
            return
        if self._facts.get(KNOWS_BREAKS_KEY) and self._facts.get(BREAKS_KEY) is None:
            return
        try:
            self._facts.update({KNOWS_BREAKS_KEY: True, BREAKS_KEY: None})
        except DiskError as error:
            log.warning("it could not be noted that the store begins anew: %s", error)

    def take_over(self, is_full: Callable[[], bool]) -> None:
        """Make rows of the breaks that an older version has kept in the file. On a full disk a later start does it.

        is_full: says that there is no room: then this does not wait for some.
        """
        told = None if self._facts is None else self._facts.get(BREAKS_KEY)
        if self._facts is None or told is None:
            return
        store_log = self.tables.log
        try:
            for at in range(0, len(told), _TAKEN_AT_ONCE):
                with store_log.lock:
                    store_log.admit(SMALL_BYTES + _TAKEN_AT_ONCE * _ROW_BYTES, is_full)
                    note_breaks(self.tables, told[at : at + _TAKEN_AT_ONCE])
            store_log.sync_log()
            self._facts.update({KNOWS_BREAKS_KEY: True, BREAKS_KEY: None})
        except (DiskError, WaitGivenUp) as error:
            log.warning("breaks of the state are not taken into tables yet: %s", error)
