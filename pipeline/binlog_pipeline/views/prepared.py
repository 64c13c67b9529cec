"""XA transactions among row changes: where they are prepared, and where they end.

Rows are logged where the transaction is prepared. Whether they stay is known where it ends, in a group of its own that
has nothing but XA COMMIT or XA ROLLBACK and its XID; that may be in another slice, or another run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid
from binlog_protocol.sql.statements import TableName

from binlog_pipeline.schemas.columns import table_name
from binlog_pipeline.views.changes_gathering import GatheredRows, PlacedStatement

PREPARED, COMMITTED, ROLLED_BACK = "END", "COMMIT", "ROLLBACK"
"""The step by the second word of the statement. A prepared group ends with XA END; XA START is not in the log."""
_KINDS: Final = (PREPARED, COMMITTED, ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class XaStep:
    """A step of an XA transaction. `tables`: of XA PREPARE, the tables of its rows that were decoded."""

    placed: PlacedStatement
    gtid: Gtid
    kind: str
    xid: str
    tables: frozenset[TableName]


class XaSteps:
    """The steps of XA transactions in consecutive `GatheredRows`."""

    def __init__(self) -> None:
        self._last_group = -1
        self._last_tables: set[TableName] = set()

    def of(self, some: GatheredRows) -> Iterator[XaStep]:
        """The steps in the order of the log. Each `GatheredRows` is to be given once."""
        found = [*_statements(some)]
        last = some.heads.first + len(some.heads.seq) - 1
        wanted = {placed.group for placed, kind, _ in found if kind == PREPARED} | {last}
        tables = _tables(some, wanted)
        if self._last_group in tables:  # the beginning of a large group was in the one before
            tables[self._last_group] |= self._last_tables
        self._last_group, self._last_tables = last, tables[last]
        for placed, kind, xid in found:
            touched = tables[placed.group] if kind == PREPARED else ()
            yield XaStep(placed, some.gtid(placed), kind, xid, frozenset(touched))


def is_xa(placed: PlacedStatement) -> bool:
    """Whether a statement is one of an XA transaction."""
    return placed.statement.sql[:3].upper() == "XA "


def _statements(some: GatheredRows) -> Iterator[tuple[PlacedStatement, str, str]]:
    """Statements with kind and XID. The server has written them, so all XIDs are in one form."""
    for placed in some.statements:
        if is_xa(placed):
            words = placed.statement.sql.split(None, 2)
            kind = words[1].upper() if len(words) > 1 else ""
            if kind in _KINDS:
                yield placed, kind, words[2].strip() if len(words) > 2 else ""


def _tables(some: GatheredRows, groups: set[int]) -> dict[int, set[TableName]]:
    """The tables with rows in each of these groups."""
    found: dict[int, set[TableName]] = {group: set() for group in groups}
    which = np.array(sorted(groups))
    for changes in some.changes:
        for group in np.intersect1d(changes.group, which).tolist():
            found[group].add(table_name(changes.table))
    return found
