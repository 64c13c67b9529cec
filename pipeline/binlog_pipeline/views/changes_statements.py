"""Statements among row changes: those that change rows without logging them, and those that leave tables empty."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import replace
from typing import Final

import numpy as np
from binlog_protocol.row_columns import column_names
from binlog_protocol.sql.statements import ALL, TableName
from binlog_storage.ibb.chunk import Position

from binlog_pipeline.errors import IncompatibleSchema, NonRowChange
from binlog_pipeline.schemas.columns import table_name
from binlog_pipeline.schemas.ddl_alter import (
    COLUMN_COMES,
    COLUMN_GOES,
    may_shift,
    moves,
    names_anew,
)
from binlog_pipeline.schemas.default_charsets import DefaultCharsets
from binlog_pipeline.schemas.evolution import PARTS
from binlog_pipeline.schemas.row_effects import NO_NAMES, RowEffect, note_numbered, row_effect
from binlog_pipeline.schemas.search import FoundTable
from binlog_pipeline.schemas.subscription import Subscription
from binlog_pipeline.telling import LOG_ROWS, shown, tell
from binlog_pipeline.views.changes_gathering import GatheredRows, PlacedStatement
from binlog_pipeline.views.changes_order import Places
from binlog_pipeline.views.changes_rows import Rows
from binlog_pipeline.views.prepared import COMMITTED, PREPARED, ROLLED_BACK, XaStep, is_xa

_ONLY_PREPARED: Final = "only prepared: its rows may be taken back"
_MOVING: Final = frozenset(("create", "alter", "drop"))
_ON: Final = "nonRow=skip goes on without"
_AS_TEXT: Final = (
    "it is logged as text, not as rows, and may write to the table, if not itself, then by a trigger, a view or a "
    f"routine; {LOG_ROWS}"
)


def refuse_non_row(some: GatheredRows, subscription: Subscription) -> None:
    """Raises `NonRowChange` for a statement that makes the rows given an untrue picture of the tables.

    XA ROLLBACK is for `refuse_rollbacks`, or for who asks about each step.
    """
    for placed in some.statements:
        meaning = placed.statement.meaning
        if meaning.writes_rows and subscription.may_write(placed.statement):
            raise NonRowChange(
                f"{_named(some, placed)} is logged as text, so the rows that it changes are not known; "
                f"{LOG_ROWS}. {_ON} them"
            )
        if meaning.kind == "rollback" and _takes_back(some, placed):
            raise NonRowChange(
                f"{_named(some, placed)} takes back rows that are in the log before it, all or some of them; which "
                f"ones the log does not say. {_ON} taking them back"
            )


def tell_elsewhere(some: GatheredRows, subscription: Subscription) -> bool:
    """Warn of the first statement that writes rows, is logged as text, and which `refuse_non_row` lets pass.

    Returns whether there was one. With x in ops it is a row.
    """
    for placed in some.statements:
        if placed.statement.meaning.writes_rows and not subscription.may_write(placed.statement):
            tell(
                f"{_named(some, placed)} is logged as text, in another database: what a trigger, a view or a routine "
                f"there writes to the tables that are read is not among their changes; {LOG_ROWS}. ops=c,u,d,t,x has "
                "such statements as rows"
            )
            return True
    return False


class ReusedNames:
    """Looks for an ALTER TABLE behind which one of the columns is not what it was before.

    At the beginning of what is read there is nothing before it: there a stream that is started again goes on.

    Args:
        columns: those that are given, in small letters.
        known_at: where the rows are of which they are known. A name that is lost in front of it was given to another
            column in between, which another task may read.
        begins: whether nothing was read in front of group 0.
    """

    def __init__(
        self, name: TableName, columns: Set[str], known_at: Position, *, begins: bool
    ) -> None:
        self._name: Final = name
        self._columns: Final = columns
        self._known_at: Final = known_at
        self._begins: Final = begins
        self._seen: set[str] = set()  # of rows that were given, in small letters
        self._gone: set[str] = set()  # that columns have lost since, or may have

    def refuse(self, some: GatheredRows) -> None:
        """Go through the next groups. Raises `IncompatibleSchema`."""
        for placed in some.statements:
            meaning = placed.statement.meaning
            if meaning.kind != "alter" or self._name not in meaning.affected:
                continue
            if self._begins and not placed.group:
                continue
            anew = names_anew(placed.statement)
            before = self._seen | _seen(some, placed.group)
            place = some.place(placed)
            if not self._begins and place > self._known_at:
                before |= (
                    self._columns
                )  # what is given anew was lost since, where another task may read
            given = anew.given | anew.unless_there & self._gone
            wrong = self._columns & (anew.reused | before & given)
            if place < self._known_at:
                wrong |= self._columns & anew.lost
            self._gone |= anew.gone
            if wrong:
                raise IncompatibleSchema(
                    f"{_named(some, placed)}: column {min(wrong)} of {self._name} may not be what had "
                    f"that name before. {PARTS}, leave the column out with the option columns, or say "
                    "schemaEvolution=ignore to have both under the one name"
                )
        self._seen |= _seen(some, None)


class MovedNumbers:
    """The same of a table of which the log has no names of columns: looks for one under the number of another.

    Args:
        found: the layout that is given; rows of other types are told apart by these. A statement in front of its place
            by which alone columns move is refused, too, if another task may have read the rows before it.
        begins: whether nothing was read in front of group 0.
    """

    def __init__(self, found: FoundTable, *, begins: bool) -> None:
        self._name: Final = table_name(found.table)
        self._types: Final = [column.layout for column in found.table.columns]
        self._known_at: Final = found.place
        self._begins: Final = begins
        self._moved: set[str] = set()  # since the first rows of that layout
        self._first: int | None = None  # the group of the first of them
        self._begun: int | None = (
            None  # that of the first rows with any layout, or of the CREATE TABLE
        )

    def refuse(self, some: GatheredRows) -> None:
        """Go through the next groups. Raises `IncompatibleSchema`."""
        rows = [
            (int(one.group.min()), [column.layout for column in one.table.columns] == self._types)
            for one in some.changes
            if len(one)
        ]
        if self._first is None:
            self._first = min((group for group, is_found in rows if is_found), default=None)
        if self._begun is None:
            groups = [*(group for group, _ in rows), *_made(some, self._name)]
            self._begun = min(groups, default=None)
        for placed, table, more in column_moves(
            some, Subscription.one(*self._name), also_told=True
        ):
            if table == self._name and self._is_wrong(some, placed, more):
                raise IncompatibleSchema(
                    f"{_named(some, placed)}: {NO_NAMES}, so a column of {self._name} may be another "
                    f"than had its number before. {PARTS}, or say schemaEvolution=ignore to have both under the one "
                    "number"
                )

    def _is_wrong(self, some: GatheredRows, placed: PlacedStatement, more: Set[str]) -> bool:
        if self._first is not None and self._first < placed.group:
            self._moved |= more
            return may_shift(self._moved)
        is_first = self._begun is None or self._begun >= placed.group
        in_front = some.place(placed) < self._known_at
        may_be_behind = not self._begins or (bool(placed.group) and in_front)
        return is_first and may_be_behind and may_shift(more)


def _made(some: GatheredRows, name: TableName) -> list[int]:
    """The groups that make the table."""
    return [
        placed.group
        for placed in some.statements
        if placed.statement.meaning.kind == "create"
        and (effect := row_effect(placed.statement, name)) is not None
        and effect.op == "t"
    ]


def _seen(some: GatheredRows, before: int | None) -> set[str]:
    """Names of columns of rows, in small letters; of groups in front of that one."""
    return {
        column.casefold()
        for changes in some.changes
        if before is None or bool((changes.group < before).any())
        for column in column_names(changes.table)
    }


def refuse_rollbacks(steps: Iterable[XaStep], touched: dict[str, bool]) -> None:
    """Raises `NonRowChange` for an XA ROLLBACK of rows that are wanted, or that may be.

    Args:
        touched: XIDs that were prepared before in what is read, and whether such rows are in them; kept from call to
            call.
    """
    for step in steps:
        if step.kind == PREPARED:
            touched[step.xid] = bool(step.tables)
            continue
        had = touched.pop(step.xid, None)
        if step.kind == ROLLED_BACK and had is not False:
            why = (
                "takes back rows that were given where it was prepared"
                if had
                else "takes back rows of tables that are not known, as it was prepared in front of what is read here"
            )
            raise NonRowChange(
                f"{step.gtid}: {shown(step.placed.statement.sql)} {why}. {_ON} taking them back"
            )


def told_steps(
    some: GatheredRows, steps: Iterable[XaStep], name: TableName, left_out: set[str], *, skips: bool
) -> Iterator[Rows]:
    """A row for each step of an XA transaction; none for one without rows of the table that begins and ends here.

    Args:
        left_out: XIDs of which nothing was said; kept from call to call.
        skips: as of `told_statements`.
    """
    all_steps = [*steps]
    for number, step in enumerate(all_steps):
        sql = step.placed.statement.sql
        if step.kind == PREPARED:
            has_rows = name in step.tables
            if not has_rows and any(one.xid == step.xid for one in all_steps[number + 1 :]):
                left_out.add(step.xid)
                continue
            doubt = _ONLY_PREPARED if has_rows else ""
            effect = RowEffect("a", f"XA PREPARE {step.xid}", doubt, prepares=step.xid)
        elif step.xid in left_out:
            left_out.remove(step.xid)
            continue
        elif step.kind == COMMITTED:
            effect = RowEffect("a", sql, ends=step.xid)
        else:
            op = "a" if skips else "x"
            effect = RowEffect(op, sql, "rows that were prepared are taken back", ends=step.xid)
        yield Rows(effect.op, _places(some, step.placed), effect=effect)


def emptied_tables(
    some: GatheredRows, subscription: Subscription
) -> Iterator[tuple[TableName, Rows]]:
    """A row of `t` for each table that is wanted and that a statement leaves empty."""
    for placed in some.statements:
        said = placed.statement
        if said.meaning.kind == "truncate" and said.may_be_temporary:
            continue  # a temporary table: one that is not says nothing of its session
        for name in subscription.empties(said.meaning):
            yield name, Rows("t", _places(some, placed))


def told_statements(
    some: GatheredRows,
    name: TableName,
    columns: Collection[str],
    numbered: set[TableName],
    charsets: DefaultCharsets,
    *,
    by_name: bool,
    skips: bool,
) -> Iterator[Rows]:
    """A row for each statement that says something of the rows of a table: see `schemas/row_effects.py`.

    One that writes rows and is logged as text leaves a doubt, whatever it names; of several on end the first is told.

    Args:
        numbered: tables with a column that is computed of an AUTO_INCREMENT, as far as the log says; kept from call to
            call. Others are made like them.
        charsets: of columns that name none; kept from call to call, too.
        skips: what is not known is gone on without: its row is `a`, with the doubt.
    """
    is_doubted = False
    for placed in some.statements:
        said = placed.statement
        effect = row_effect(
            said, name, columns, by_name=by_name, numbered=numbered, charsets=charsets
        )
        note_numbered(said, numbered)
        charsets.note(said)
        if said.meaning.writes_rows and not (effect is None and is_doubted):
            effect = effect or RowEffect("a", shown(said.sql))
            effect = replace(effect, doubt=effect.doubt or _AS_TEXT)
        if effect is None:
            continue
        is_doubted = bool(effect.doubt)
        if skips and effect.op == "x":
            effect = replace(effect, op="a")
        yield Rows(effect.op, _places(some, placed), effect=effect)


def told_of_tables(
    some: GatheredRows,
    subscription: Subscription,
    unnamed: Set[TableName] | None,
    *,
    skips: bool,
) -> Iterator[tuple[TableName, Rows]]:
    """A row for each of `row_statements`. `skips`: as of `told_statements`.

    `unnamed`: the tables of which the log has no names of columns; None for all.
    """
    found = [*row_statements(some, subscription)]
    if unnamed is None or unnamed:
        found += [
            (placed, name, RowEffect("x", placed.statement.sql, NO_NAMES))
            for placed, name, moved in column_moves(some, subscription)
            if {COLUMN_COMES, COLUMN_GOES} & moved and (unnamed is None or name in unnamed)
        ]
    for placed, name, effect in found:
        told = replace(effect, op="a") if skips and effect.op == "x" else effect
        yield name, Rows(told.op, _places(some, placed), effect=told)


def told_steps_of_tables(
    some: GatheredRows, steps: Iterable[XaStep], prepared: dict[str, list[TableName]]
) -> Iterator[tuple[TableName, Rows]]:
    """A row for each table that is wanted and has rows in an XA transaction, where it is prepared and where it ends.

    The end of one that was prepared in front of what is read is told of `*` of the database in use. A rollback of rows
    that were given is for `refuse_rollbacks`.

    Args:
        prepared: the tables of XIDs, kept from call to call.
    """
    for step in steps:
        sql, database = step.placed.statement.sql, step.placed.statement.database
        if step.kind == PREPARED:
            names = prepared[step.xid] = sorted(step.tables)
            effect = RowEffect("a", f"XA PREPARE {step.xid}", _ONLY_PREPARED, prepares=step.xid)
        else:
            names = prepared.pop(step.xid, [TableName(database, ALL)])
            effect = RowEffect("a", sql, ends=step.xid)
        places = _places(some, step.placed)
        for name in names:
            yield name, Rows("a", places, effect=effect)


def row_statements(
    some: GatheredRows, subscription: Subscription
) -> Iterator[tuple[PlacedStatement, TableName, RowEffect]]:
    """Statements that change rows of wanted tables without rows in the log: effects `t` and `x`.

    If the tables of a statement are not known, it is about `*` of the database in use. The same is said of the first
    statement that writes rows and is logged as text; not of those behind it.
    """
    is_doubted = False
    for placed in some.statements:
        said = placed.statement
        if said.meaning.writes_rows and not is_doubted:
            yield placed, TableName(said.database, ALL), RowEffect("x", said.sql, _AS_TEXT)
            is_doubted = True
        if not subscription.may_concern(said.meaning):
            continue
        if not said.meaning.is_certain:
            why = "a statement that is not understood"
            yield placed, TableName(said.database, ALL), RowEffect("x", said.sql, why)
        for name in said.meaning.affected:
            if subscription.has_any(name):
                effect = row_effect(said, name)
                if effect is not None and effect.op != "a":
                    yield placed, name, effect


def column_moves(
    some: GatheredRows, subscription: Subscription, *, also_told: bool = False
) -> Iterator[tuple[PlacedStatement, TableName, frozenset[str]]]:
    """Statements about the columns of tables that stay, and `moves` of them, if there are any.

    also_told: those that `row_statements` gives, too.
    """
    for placed in some.statements:
        said = placed.statement
        if said.meaning.kind not in _MOVING or not subscription.may_concern(said.meaning):
            continue
        for name in said.meaning.affected:
            if not subscription.has(*name):
                continue
            effect = row_effect(said, name)
            op = "a" if effect is None else effect.op
            found = moves(said)
            if found and (op == "a" or (op == "x" and also_told)):
                yield placed, name, found


def _places(some: GatheredRows, placed: PlacedStatement) -> Places:
    return Places(
        some.heads,
        np.array([placed.group - some.heads.first]),
        np.array([placed.event], np.int32),
        np.zeros(1, np.int32),
    )


def _takes_back(some: GatheredRows, placed: PlacedStatement) -> bool:
    """Whether there are such rows among those that are wanted."""
    if is_xa(placed):
        return False  # they are in another group
    if placed.is_split:
        return True
    return any(bool((changes.group == placed.group).any()) for changes in some.changes)


def _named(some: GatheredRows, placed: PlacedStatement) -> str:
    return f"{some.gtid(placed)}: {shown(placed.statement.sql)}"
