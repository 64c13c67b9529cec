"""One table through the DDL of a log: the names that it had, and the statements that gave it other columns.

A table keeps its identity through RENAME TABLE and ALTER TABLE; a name does not. Going back from the end of what is
read, the table of a name is followed to its CREATE TABLE, or to the beginning. What stands between two statements that
changed its name or columns is a stretch: there the table has one name and one layout.

The log has RENAME TABLE of a temporary table as if it were of another one (10.11, 11.8). It is taken for the other
one's unless what came before says that it cannot be: a table may not take a name that is there, nor one that is gone
another. A statement that is not understood, or may be of a temporary table, ends no stretch: its readers are told of
it among the rows (`row_effects.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.sql.token_reader import ALL, NotUnderstood, TableName, TokenReader

from binlog_pipeline.groups import Groups, after
from binlog_pipeline.schemas.ddl_alter import alteration_of
from binlog_pipeline.schemas.ddl_tables import Alteration
from binlog_pipeline.schemas.default_charsets import DefaultCharsets
from binlog_pipeline.schemas.logged_statements import LoggedStatement, ddl_in
from binlog_pipeline.schemas.row_effects import RowEffect, note_numbered, row_effect

_NOT_FOLLOWED: Final = frozenset(("AS", "GENERATED", "AUTO_INCREMENT", "SERIAL", "IGNORE"))
"""Words of an ALTER TABLE whose rows are not what the clauses say alone: computed, numbered, left out."""
_FOREIGN: Final = "REFERENCES"
_ENGINES: Final = frozenset(("", "innodb", "aria", "myisam", "memory", "heap", "rocksdb"))


@dataclass(frozen=True, slots=True)
class PlacedDdl:
    """A DDL statement of the log.

    before, behind: the positions around its group. time: when it began, in seconds since 1970.
    """

    said: LoggedStatement
    gtid: Gtid
    before: SlavePosition
    behind: SlavePosition
    time: int


@dataclass(frozen=True, slots=True)
class TableTurn:
    """A statement that gave a table another name, or other columns.

    alteration: the clauses; None for RENAME TABLE.
    of_database: the character set of new tables of its database, where the clauses ask for that.
    effect: on the rows, as `row_effect` has it without this module.
    """

    placed: PlacedDdl
    alteration: Alteration | None
    effect: RowEffect | None
    of_database: str | None = None


@dataclass(frozen=True, slots=True)
class TableStretch:
    """A part of the log in which a table has one name and one layout.

    turn: what stands in front of it; None where it begins with the CREATE TABLE, or with what is read.
    is_begun: whether its first statement makes the table.
    """

    name: TableName
    start: SlavePosition
    stop: SlavePosition
    turn: TableTurn | None = None
    is_begun: bool = False


def placed_ddl(stream: Iterable[Groups], start: SlavePosition) -> Iterator[PlacedDdl]:
    """The DDL statements of groups behind `start`. Raises `SourceError`."""
    position = start
    for groups in stream:
        done = 0
        for i, said in ddl_in(groups):
            before = _behind(groups, done, i, position)
            position = before.with_gtid(groups.gtid(i))
            done = i + 1
            yield PlacedDdl(said, groups.gtid(i), before, position, int(groups.timestamp[i]))
        position = _behind(groups, done, len(groups), position)


def _behind(groups: Groups, begin: int, end: int, position: SlavePosition) -> SlavePosition:
    if begin == end:
        return position
    numbers = np.arange(len(groups))
    return after(position, groups.some((numbers >= begin) & (numbers < end)))


def lineage(
    name: TableName, start: SlavePosition, stop: SlavePosition, ddl: Sequence[PlacedDdl]
) -> list[TableStretch] | None:
    """The stretches of the table that has the name at the end; None if its table was renamed, and no other has it.

    Args:
        ddl: all of the range, in its order.
    """
    moves = _believed(ddl)
    found: list[TableStretch] = []
    for number in range(len(ddl) - 1, -1, -1):
        placed = ddl[number]
        if _makes(placed.said, name):
            found.append(TableStretch(name, placed.before, stop, None, is_begun=True))
            return found[::-1]
        if number in moves:
            old = _before(name, moves[number])
            if old is None:
                return None
            turn = None if old == name else TableTurn(placed, None, None)
        else:
            old, turn = name, _altered(placed, name)
            if turn is not None and turn.alteration is not None and turn.alteration.new_name:
                if turn.alteration.new_name != name:
                    return None
                old = placed.said.meaning.affected[0]
            if (
                turn is not None
                and turn.alteration is not None
                and turn.alteration.options.is_reset
            ):
                databases = charsets_before(ddl, placed.before).databases
                turn = replace(turn, of_database=databases.get(old.database))
        if turn is not None:
            found.append(TableStretch(name, placed.behind, stop, turn))
            name, stop = old, placed.before
    found.append(TableStretch(name, start, stop))
    return found[::-1]


def numbered_before(ddl: Iterable[PlacedDdl], position: SlavePosition) -> set[TableName]:
    """Tables that have a column which is computed of an AUTO_INCREMENT, at a position; others are made like them."""
    found: set[TableName] = set()
    for placed in ddl:
        if placed.before == position:
            break
        note_numbered(placed.said, found)
    return found


def charsets_before(ddl: Iterable[PlacedDdl], position: SlavePosition) -> DefaultCharsets:
    """The character sets of columns that name none, as far as the statements in front of a position tell them."""
    found = DefaultCharsets()
    for placed in ddl:
        if placed.before == position:
            break
        found.note(placed.said)
    return found


def _makes(said: LoggedStatement, name: TableName) -> bool:
    meaning = said.meaning
    if meaning.kind != "create" or not meaning.is_certain or said.has_failed:
        return False
    if name not in meaning.affected:
        return False
    effect = row_effect(said, name)
    return effect is not None and effect.op == "t"


def _altered(placed: PlacedDdl, name: TableName) -> TableTurn | None:
    """An ALTER TABLE by which columns or the name of the table become others; None for any other statement."""
    said = placed.said
    meaning = said.meaning
    if meaning.kind != "alter" or not meaning.is_certain or name not in meaning.affected:
        return None
    if said.may_be_temporary or said.has_failed:
        return None
    words = {token.text.upper() for token in said.tokens()}
    if words & _NOT_FOLLOWED:
        return None
    try:
        found = alteration_of(said)
    except NotUnderstood:
        return None
    is_plain = not (
        found.of_storage or found.versioning is not None or found.elements.periods
        or any(one.definition.system or one.definition.is_versioned for one in found.changes)
    )  # fmt: skip
    if not is_plain or (found.options.engine or "") not in _ENGINES:
        return None
    if len(meaning.affected) != 1 + (found.new_name is not None):
        return None
    effect = row_effect(said, meaning.affected[0]) if found.new_name is None else None
    if _FOREIGN in words and (effect is None or effect.op != "a"):
        return None
    has_key = any(key.is_primary for key in found.elements.keys) or found.drops_key
    says = found.changes or found.dropped or found.renamed or found.converts or found.new_name
    return TableTurn(placed, found, effect) if says or has_key else None


def _before(name: TableName, moves: Sequence[tuple[TableName, TableName]]) -> TableName | None:
    """The name in front of a RENAME TABLE of what has this one behind it; None if nothing has it."""
    for old, new in reversed(moves):
        if new == name:
            name = old
        elif old == name:
            return None
    return name


def _believed(ddl: Sequence[PlacedDdl]) -> dict[int, list[tuple[TableName, TableName]]]:
    """The renames of tables that are no temporary ones, by the number of the RENAME TABLE."""
    is_there: dict[TableName, bool] = {}
    temporary: set[TableName] = set()
    found: dict[int, list[tuple[TableName, TableName]]] = {}
    for number, placed in enumerate(ddl):
        said = placed.said
        meaning = said.meaning
        if not meaning.is_certain:
            is_there.clear()
            continue
        match meaning.kind:
            case "create" if not meaning.affected:
                temporary |= _temporary(said)
            case "create" | "drop":
                gone = meaning.emptied  # none of a temporary table, which only its own word drops
                for one in [*is_there]:
                    if {one, TableName(one.database, ALL)} & {*gone}:
                        is_there[one] = False
                is_there.update(dict.fromkeys(gone, False))
                if meaning.kind == "create" and not said.has_failed:
                    is_there.update(dict.fromkeys(meaning.affected, True))
            case "rename" if meaning.affected:
                moves = _moves(said)
                if moves is not None and _are_possible(moves, is_there, temporary):
                    found[number] = moves
            case "alter" if len(meaning.affected) > 1 and not said.may_be_temporary:
                is_there[meaning.affected[0]] = False
                is_there[meaning.affected[1]] = True
    return found


def _are_possible(
    moves: Sequence[tuple[TableName, TableName]],
    is_there: dict[TableName, bool],
    temporary: set[TableName],
) -> bool:
    """Whether no move needs a temporary table; then `is_there` is what it is behind them."""
    behind = dict(is_there)
    for old, new in moves:
        if old in temporary or behind.get(old) is False or behind.get(new):
            return False
        behind[old], behind[new] = False, True
    is_there.update(behind)
    return True


def _moves(said: LoggedStatement) -> list[tuple[TableName, TableName]] | None:
    names = said.meaning.affected
    if said.has_failed or len(names) % 2:
        return None
    if any(token.text.upper() == "IF" for token in said.tokens()):
        return None  # which of them were there is not logged
    return [*zip(names[::2], names[1::2], strict=True)]


def _temporary(said: LoggedStatement) -> set[TableName]:
    reader = TokenReader(said.tokens(), said.database)
    try:
        reader.skip_to("TEMPORARY")
        if not reader.accept("TABLE"):
            return set()
        reader.accept("IF", "NOT", "EXISTS")
        return {reader.name()}
    except NotUnderstood:
        return set()
