"""State breaks: files whose first state is not a grown one of the file before, after DELETE_DOMAIN_ID or a number that
went back.

A binary search among the files is right only between two breaks. The breaks are kept beside the files, as a fact of the
store; a store that was made elsewhere does not know its breaks, and a search reads the state of every file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskError

log = logging.getLogger(__name__)

BREAKS_KEY = "binlog/state_breaks"


class StateBreaks:
    """The state breaks of one store, as a durable fact.

    Args:
        first_file: gives the number of the first existing file.
    """

    def __init__(self, facts: StateStore | None, first_file: Callable[[], int]) -> None:
        self._facts = facts
        self._first_file = first_file

    def known(self) -> list[int] | None:
        """Numbers of the files that begin with a break; None if they are not known."""
        return None if self._facts is None else self._facts.get(BREAKS_KEY)

    def add(self, files: set[int]) -> None:
        """Add files that begin with a break. Durable on return: before the files are, or a search would go wrong.

        Raises `DiskError`.
        """
        known = self.known()
        if self._facts is not None and known is not None and not files <= set(known):
            first = self._first_file()
            self._facts.set(BREAKS_KEY, sorted(n for n in files | set(known) if n > first))

    def restart(self) -> None:
        """RESET MASTER: forget all breaks. If that cannot be written they stay; breaks too many do no harm."""
        if self._facts is not None:
            try:
                self._facts.set(BREAKS_KEY, [])
            except DiskError as error:
                log.warning("it could not be noted that the store begins anew: %s", error)
