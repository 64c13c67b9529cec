"""Statements among row changes: those that change rows without logging them, and those that leave tables empty."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from pipeline.errors import NonRowChange
from pipeline.schemas.row_effects import RowEffect, row_effect
from pipeline.schemas.statements import ALL, TableName
from pipeline.schemas.subscription import Subscription
from pipeline.telling import shown
from pipeline.views.changes_gathering import Gathered, PlacedStatement
from pipeline.views.changes_order import Places
from pipeline.views.changes_rows import Rows
from protocol.gtid import Gtid

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
        said = placed.statement
        if said.meaning.kind == "truncate" and said.may_be_temporary:
            continue  # a temporary table: one that is not says nothing of its session
        for name in subscription.empties(said.meaning):
            yield name, Rows("t", _places(some, placed), None, None, None, None, None)


def told_statements(
    some: Gathered, name: TableName, columns: Collection[str], *, by_name: bool, skips: bool
) -> Iterator[Rows]:
    """A row for each statement that says something of the rows of a table: see `schemas/row_effects.py`.

    Args:
        skips: what is not known is gone on without: its row is `a`, with the doubt.
    """
    for placed in some.statements:
        effect = row_effect(placed.statement, name, columns, by_name=by_name)
        if effect is None:
            continue
        if skips and effect.op == "x":
            effect = replace(effect, op="a")
        places = _places(some, placed)
        yield Rows(effect.op, places, None, None, None, None, None, effect=effect)


def row_statements(
    some: Gathered, subscription: Subscription
) -> Iterator[tuple[Gtid, TableName, RowEffect]]:
    """Those that change rows of tables that are wanted without rows in the log: `t` and `x`.

    Of one of which it is not known which tables it is about `*` of the database in use.
    """
    for placed in some.statements:
        said = placed.statement
        if not subscription.may_concern(said.meaning):
            continue
        gtid = some.heads.gtid(placed.group - some.heads.first)
        if not said.meaning.is_certain:
            why = "a statement that is not understood"
            yield gtid, TableName(said.database, ALL), RowEffect("x", said.sql, why)
        for name in said.meaning.affected:
            if subscription.has(*name) or (
                name.table == ALL and subscription.has_database(name.database)
            ):
                effect = row_effect(said, name)
                if effect is not None and effect.op != "a":
                    yield gtid, name, effect


def _places(some: Gathered, placed: PlacedStatement) -> Places:
    return Places(
        some.heads,
        np.array([placed.group - some.heads.first]),
        np.array([placed.event], np.int32),
        np.zeros(1, np.int32),
    )


def _takes_back(some: Gathered, placed: PlacedStatement) -> bool:
    """Whether there are such rows among those that are wanted. Those of a prepared XA transaction are in another
    group."""
    if placed.is_split or placed.statement.sql.lstrip()[:2].upper() == "XA":
        return True
    return any(bool((changes.group == placed.group).any()) for changes in some.changes)


def _named(some: Gathered, placed: PlacedStatement) -> str:
    sql = placed.statement.sql
    return f"{some.heads.gtid(placed.group - some.heads.first)}: {shown(sql)}"
