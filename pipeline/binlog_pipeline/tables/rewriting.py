"""Rows that are kept of a table, behind an ALTER TABLE: renamed, dropped, converted, and with new columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.table_map import TableColumn
from binlog_protocol.row_columns import ColumnOptions
from binlog_protocol.sql.token_reader import NotUnderstood

from binlog_pipeline.schemas.ddl_columns import lower
from binlog_pipeline.schemas.ddl_tables import Alteration, Change
from binlog_pipeline.schemas.lineage import PlacedDdl
from binlog_pipeline.schemas.logged_statements import PAD_CHAR_TO_FULL_LENGTH
from binlog_pipeline.tables.values import (
    NO_CHARSET,
    NewColumn,
    converted,
    family,
    first_value,
    has_charset,
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What becomes of the columns that are kept. Made by `of`.

    columns: those behind it, as table maps have them, as far as that is known.
    names: what is left of the columns that there were, by their old names.
    defaulted: columns that have a value where an INSERT gives none, besides those that had one.
    converts_values: whether values become others, of which the server may have computed other columns.
    """

    names: Mapping[str, str]
    columns: Mapping[str, TableColumn]
    defaulted: tuple[str, ...]
    converts_values: bool
    _before: Mapping[str, TableColumn]
    _changed: Mapping[str, NewColumn]
    _added: Sequence[tuple[NewColumn, Any]]
    _open: frozenset[str] = frozenset()
    """Columns of text that get a character set which is not known."""
    _recodes: bool = False
    key: tuple[str, ...] = ()
    """The new primary key; empty if it stays, or is gone."""
    drops_key: bool = False

    @classmethod
    def of(
        cls,
        alteration: Alteration,
        placed: PlacedDdl,
        there: Sequence[str],
        before: Mapping[str, TableColumn],
        options: ColumnOptions,
        charset: str | None,
        *,
        is_empty: bool,
    ) -> Self:
        """Raises `NotUnderstood`.

        Args:
            there: the columns that are kept.
            before: those of them that are known, as table maps have them.
            charset: of columns behind it that name none; None if it is not known.
            is_empty: there are no rows, so no value matters.
        """
        if alteration.changes:
            placed.said.require_own_types(with_real=True)
        by_name = {lower(name): name for name in there}
        names = _names(alteration, by_name)
        changed: dict[str, NewColumn] = {}
        added: list[tuple[NewColumn, Any]] = []
        defaulted: list[str] = []
        for change in alteration.changes:
            if _is_left_out(change, by_name):
                continue
            new = NewColumn.of(change.definition, options, charset)
            if change.definition.default or change.definition.nullable is False:
                defaulted.append(change.definition.name)
            if change.old is None:
                added.append((new, None if is_empty else first_value(new, placed)))
            else:
                changed[by_name[lower(change.old)]] = new
        texts = [
            was for was in names
            if alteration.converts and was not in changed and was in before and has_charset(before[was])
        ]  # fmt: skip
        if charset is not None:
            changed |= {
                was: NewColumn.recharset(was, before[was], options, charset) for was in texts
            }
        _require_no_padding(placed, changed, before)
        columns = {
            now: changed[was].logged if was in changed else before[was]
            for was, now in names.items()
            if was in changed or (was in before and was not in texts)
        }
        columns |= {new.definition.name: new.logged for new, _ in added}
        key = [one for one in alteration.elements.keys if one.is_primary]
        parts = [name for one in key for name, _ in one.parts]
        parts += [one.definition.name for one in alteration.changes if one.definition.is_primary]
        by_new = {lower(name): name for name in (*names.values(), *columns)}
        if any(lower(part) not in by_new for part in parts):
            raise NotUnderstood("a column of the primary key is not there")
        return cls(
            names,
            columns,
            tuple(defaulted),
            bool(changed) or alteration.converts,
            before,
            changed,
            added,
            frozenset(texts) - {*changed},
            alteration.converts,
            tuple(by_new[lower(part)] for part in parts),
            alteration.drops_key,
        )

    def new_type(self, name: str) -> pa.DataType | None:
        """The type that a column has got, by its name behind it; None if it stays."""
        was = next((was for was, now in self.names.items() if now == name), name)
        new = self._changed.get(was)
        return None if new is None else new.field.type

    def rows(self, rows: pa.Table) -> pa.Table:
        """The rows behind it. Raises `NotUnderstood`."""
        made: dict[str, Any] = {}
        for was, now in self.names.items():
            values = rows.column(was)
            new = self._changed.get(was)
            if new is not None:
                values = converted(values, self._before.get(was), new)
            elif self._recodes:
                self._require_known(values, was)
            made[now] = values
        for new, value in self._added:
            type_ = new.field.type
            one = pa.scalar(value, type_)
            made[new.definition.name] = pa.repeat(one, len(rows))
        for name in self.key:
            if made[name].null_count:
                raise NotUnderstood(f"column {name} of the primary key has no NULL any more")
            _require_telling(name, made[name].type)
        return pa.table(made)

    def _require_known(self, values: pa.ChunkedArray, name: str) -> None:
        """Whether CONVERT TO CHARACTER SET leaves the values of a column alone. Raises `NotUnderstood`."""
        if name not in self._before:
            raise NotUnderstood(f"column {name}: what type it had the log does not say")
        if name in self._open and values.null_count < len(values):
            raise NotUnderstood(f"column {name}: {NO_CHARSET}")


def new_keys(made: Rewriting, keys: Sequence[str], *, has_rows: bool) -> list[str]:
    """The columns that tell rows apart behind it; none without a primary key, as rows that come may have the same.

    Raises `NotUnderstood` if a column of them is gone.
    """
    if made.key or made.drops_key:
        return [*made.key]
    by_name = {lower(was): now for was, now in made.names.items()}
    found = [by_name.get(lower(key), "") for key in keys]
    if has_rows and not all(found):
        raise NotUnderstood("a column that tells its rows apart is gone")
    for name in filter(None, found):
        if (type_ := made.new_type(name)) is not None:
            _require_telling(name, type_)
    return [*filter(None, found)]


def _require_telling(name: str, type_: pa.DataType) -> None:
    """Raises `NotUnderstood` for a column that cannot tell rows apart here, as one with places of a map."""
    if pa.types.is_nested(type_):
        raise NotUnderstood(f"column {name} cannot be a key here: it is {type_}")


def _names(alteration: Alteration, by_name: Mapping[str, str]) -> dict[str, str]:
    """What is left of the columns, and what it is called. Raises `NotUnderstood`."""
    names = {name: name for name in by_name.values()}
    for dropped, is_checked in alteration.dropped.items():
        was = _there(dropped, by_name, is_checked=is_checked)
        if was is not None:
            del names[was]
    renamed = [*alteration.renamed]
    renamed += [
        (one.old, one.definition.name, one.if_exists)
        for one in alteration.changes
        if one.old is not None
    ]
    for old, new, is_checked in renamed:
        was = _there(old, by_name, is_checked=is_checked)
        if was is not None:
            if was not in names:
                raise NotUnderstood(f"column {old} is changed twice")
            names[was] = new
    new_names = [lower(name) for name in names.values()]
    new_names += [
        lower(one.definition.name) for one in alteration.changes
        if one.old is None and not _is_left_out(one, by_name)
    ]  # fmt: skip
    if len({*new_names}) < len(new_names):
        raise NotUnderstood("two columns of one name")
    return names


def _require_no_padding(
    placed: PlacedDdl, changed: Mapping[str, NewColumn], before: Mapping[str, TableColumn]
) -> None:
    """Raises `NotUnderstood` for a CHAR whose values get the spaces behind them that the sql_mode shows."""
    if not placed.said.sql_mode & PAD_CHAR_TO_FULL_LENGTH:
        return
    for was, new in changed.items():
        old = before.get(was)
        is_char = old is not None and old.type == ColumnType.STRING and family(old) == "text"
        if is_char and new.family in ("text", "bytes") and new.sql_name != "char":
            raise new.refuse("sql_mode PAD_CHAR_TO_FULL_LENGTH")


def _there(name: str, by_name: Mapping[str, str], *, is_checked: bool) -> str | None:
    found = by_name.get(lower(name))
    if found is None and not is_checked:
        raise NotUnderstood(f"column {name} is not there")
    return found


def _is_left_out(change: Change, by_name: Mapping[str, str]) -> bool:
    """Whether IF EXISTS or IF NOT EXISTS makes the server leave it out."""
    if change.old is None:
        return change.if_exists and lower(change.definition.name) in by_name
    return lower(change.old) not in by_name
