"""Statements among row changes: those that change rows without logging them, and those that leave tables empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pipeline.errors import NonRowChange
from pipeline.schemas.statements import TableName
from pipeline.schemas.subscription import Subscription
from pipeline.views.changes_gathering import Gathered, PlacedStatement
from pipeline.views.changes_order import Places
from pipeline.views.changes_rows import Rows

_SHOWN: Final = 200  # letters of a statement
_ON: Final = "nonRow=skip goes on without"


def refuse_non_row(some: Gathered, subscription: Subscription) -> None:
    """Raises `NonRowChange` for a statement that makes the rows given an untrue picture of the tables."""
    for placed in some.statements:
        meaning = placed.statement.meaning
        if meaning.writes_rows and subscription.may_write(placed.statement):
            raise NonRowChange(
                f"{_named(some, placed)} is logged as text, so the rows that it changes are not known; set "
                f"binlog_format=ROW on the server. {_ON} them"
            )
        if meaning.kind == "rollback" and _takes_back(some, placed):
            raise NonRowChange(
                f"{_named(some, placed)} takes back rows that are in the log before it, all or some of them; which "
                f"ones the log does not say. {_ON} taking them back"
            )


def emptied_tables(some: Gathered, subscription: Subscription) -> Iterator[tuple[TableName, Rows]]:
    """A row of `t` for each table that is wanted and that a statement leaves empty."""
    for placed in some.statements:
        for name in subscription.empties(placed.statement.meaning):
            places = Places(
                some.heads,
                np.array([placed.group - some.heads.first]),
                np.array([placed.event], np.int32),
                np.zeros(1, np.int32),
            )
            yield name, Rows("t", places, None, None, None, None, None)


def _takes_back(some: Gathered, placed: PlacedStatement) -> bool:
    """Whether there are such rows among those that are wanted. Those of a prepared XA transaction are in another
    group."""
    if placed.is_split or placed.statement.sql.lstrip()[:2].upper() == "XA":
        return True
    return any(bool((changes.group == placed.group).any()) for changes in some.changes)


def _named(some: Gathered, placed: PlacedStatement) -> str:
    sql = placed.statement.sql
    shown = sql if len(sql) <= _SHOWN else sql[:_SHOWN] + "..."
    return f"{some.heads.gtid(placed.group - some.heads.first)}: {shown}"
