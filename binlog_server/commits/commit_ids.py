"""Commit ids: which groups a replica may apply in parallel (slave_parallel_mode=conservative).

Groups share an id if they share a sync of the log, follow each other in their domain, and no two of them change the
same row. Locks are free when a group is appended, so a later group of the same sync may have changed a row of an
earlier one: that one begins a new id. Only groups of which all rows are known have one; text and DDL stand alone.

The first of a sync has none, as a group that is alone has none in MariaDB; a replica finishes it before it begins those
behind it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final, NamedTuple

ROWS_MAX: Final = 64
"""Rows of a group that may share an id; one with more stands alone."""
_ROWS_OF_AN_ID_MAX: Final = 4096


class Writes(NamedTuple):
    """What a group changes: rows by table and key, and the sync of the log that it is to go with."""

    rows: Set[tuple[int, bytes]]
    sync: int


class CommitIds:
    """The ids of one domain. Ask for each of its groups, in the order in which they are appended."""

    def __init__(self) -> None:
        self.sync: int | None = None
        """The sync of the groups that may share an id. None for a group that stands alone is as `next(None, 0)`,
        without a call."""
        self._id: int | None = None
        self._rows: set[tuple[int, bytes]] = set()

    def next(self, writes: Writes | None, seq_no: int) -> int | None:
        """The id of a group that gets this number; None for none. `writes`: None if it is not known, or DDL."""
        if writes is None or writes.sync != self.sync:
            self.sync = None if writes is None else writes.sync
            self._id = None
            return None
        if (
            self._id is None
            or len(self._rows) > _ROWS_OF_AN_ID_MAX
            or not self._rows.isdisjoint(writes.rows)
        ):
            self._id, self._rows = seq_no, set()
        self._rows |= writes.rows
        return self._id
