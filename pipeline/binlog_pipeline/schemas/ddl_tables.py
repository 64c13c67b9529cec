"""A table as statements make it: CREATE TABLE gives a layout, ALTER TABLE makes another one of it.

As servers do it (10.11 and 11.8 were asked): an ALTER TABLE first takes columns away and puts changed ones where the
old ones were, then it adds new ones and moves those with FIRST or AFTER, in the order of the statement, by their new
names. A table that is versioned by WITH SYSTEM VERSIONING alone has row_start and row_end at the end, in the log, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.sql.token_reader import NotUnderstood, TableName
from binlog_protocol.tables.ddl_types import BINARY, DdlType

from binlog_pipeline.schemas.ddl_columns import DdlColumn, Definition, Elements, Key, lower
from binlog_pipeline.schemas.ddl_options import Options

_SYSTEM_TIME: Final = DdlType("timestamp", (6,))
IMPLICIT: Final = ("row_start", "row_end")
FIRST: Final = ""
"""Place of a column; None is none, anything else the column it stands after."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns of a table.

    charset: what new columns get; None if it is not known.
    is_versioned: whether there are the columns row_start and row_end that nobody defined.
    row_end: of a table that is versioned with columns of its own the second of them.
    unique: keys that are not the primary one. One that was dropped stays: it has a name that is not known here.
    engine: in small letters; empty if no statement has named one, which is taken for InnoDB.
    """

    columns: tuple[DdlColumn, ...]
    key: tuple[str, ...] = ()
    charset: str | None = None
    is_versioned: bool = False
    row_end: str = ""
    unique: tuple[Key, ...] = ()
    engine: str = ""

    @classmethod
    def made(cls, elements: Elements, options: Options, default: str | None) -> TableLayout:
        """The layout by a CREATE TABLE; `default` is its database's character set. Raises `NotUnderstood`."""
        charset = options.of(default)
        columns = tuple(one.column(charset) for one in elements.columns)
        is_versioned = options.is_versioned or any(one.is_versioned for one in elements.columns)
        ends = [one.name for one in elements.columns if one.system == "END"]
        keys = [*elements.keys, *_inline(elements.columns)]
        made = cls(
            columns,
            (),
            charset,
            is_versioned and not ends,
            ends[0] if ends else "",
            _unique(keys),
            options.engine or "",
        )
        made.check()
        return replace(made, key=_primary(keys, columns, elements.periods))

    def with_index(self, key: Key) -> TableLayout:
        """The layout behind a CREATE UNIQUE INDEX. Raises `NotUnderstood`."""
        made = replace(self, unique=(*self.unique, key))
        made.check()
        return made

    def check(self) -> None:
        """Raises `NotUnderstood` for what no table can be: then something before was misread.

        And for one that has a column more than it says.
        """
        for key in self.unique:
            key.check(self.columns, self.engine)
        names = [lower(column.name) for column in self.columns]
        if not names:
            raise NotUnderstood("a table without columns")
        if len({*names}) < len(names):
            raise NotUnderstood("two columns of one name")

    def entry(self, name: TableName, since: str) -> dict[str, Any]:
        """The layout's entry in a file for `schemaSeed`: with all columns that the log has."""
        columns: list[dict[str, str]] = []
        for column in self.logged_columns:
            said = {"name": column.name, "type": str(column.type)}
            columns.append({**said, "charset": column.charset} if column.charset else said)
        return {
            "database": name.database,
            "table": name.table,
            "since": since,
            "columns": columns,
            "key": self.logged_key,
        }

    @property
    def logged_columns(self) -> tuple[DdlColumn, ...]:
        """The columns in the log: with those of system versioning that nobody defined."""
        system = tuple(DdlColumn(name, _SYSTEM_TIME) for name in IMPLICIT)
        return self.columns + system if self.is_versioned else self.columns

    @property
    def logged_key(self) -> list[str]:
        """The key in the log: with the end of versions, which belongs to each key of a versioned table."""
        end = IMPLICIT[1] if self.is_versioned else self.row_end
        return [*self.key, end] if self.key and end and end not in self.key else [*self.key]

    @property
    def unknown_charsets(self) -> list[str]:
        """Names of the columns of text whose character set is not known."""
        return [c.name for c in self.columns if c.type.is_character and c.charset is None]

    def same_columns(self, other: TableLayout) -> bool:
        """Whether the two say the same of the log."""
        return (self.logged_columns, self.logged_key) == (other.logged_columns, other.logged_key)

    def may_be_taken_for(self, other: TableLayout) -> bool:
        """Whether a log without names does not tell the two apart, though their columns are others."""
        mine, its = self.logged_columns, other.logged_columns
        types = [[column.type.logged_as for column in columns] for columns in (mine, its)]
        return mine != its and types[0] == types[1]


@dataclass(frozen=True, slots=True)
class Change:
    """ADD, MODIFY or CHANGE: `old` is None for ADD; see `FIRST` for the place."""

    old: str | None
    definition: Definition
    place: str | None
    if_exists: bool = False


@dataclass(slots=True)
class Alteration:
    """The changes of an ALTER TABLE to columns and primary key.

    dropped, renamed: names, and whether IF EXISTS stands there. drops_index: or a key, or what may be one.
    converts: to `options`' character set. versioning: ADD, DROP SYSTEM VERSIONING.
    of_storage: the clause by which rows may come or go with a partition or a file; empty without one.
    """

    changes: list[Change] = field(default_factory=list)
    dropped: dict[str, bool] = field(default_factory=dict)
    renamed: list[tuple[str, str, bool]] = field(default_factory=list)
    elements: Elements = field(default_factory=Elements)
    drops_key: bool = False
    drops_index: bool = False
    options: Options = field(default_factory=Options)
    converts: bool = False
    versioning: bool | None = None
    new_name: TableName | None = None
    of_storage: str = ""

    def applied(self, layout: TableLayout, default: str | None) -> TableLayout:
        """The table behind it; `default` is the character set of its database. Raises `NotUnderstood`."""
        charset = self.options.of(default) if self.options.says_charset else layout.charset
        made = _Columns(self, layout, charset)
        columns = tuple(made.columns())
        key = layout.key
        if self.drops_key:
            key = ()
        else:
            kept = [made.names.get(lower(name)) for name in key]
            # MariaDB takes whichever column of that name, or that had it, comes first.
            added = {lower(change.definition.name) for change in self.changes if change.old is None}
            if any(lower(old) in added and old != now for old, now in zip(key, kept, strict=True)):
                raise NotUnderstood("the name of a column of the primary key goes to a new one")
            if len(key) > 1 and None in kept:
                raise NotUnderstood("a column of the primary key is dropped")
            key = tuple(name for name in kept if name is not None)
        keys = [*self.elements.keys, *_inline([change.definition for change in self.changes])]
        new_key = _primary(keys, columns, self.elements.periods)
        if new_key and key:
            raise NotUnderstood("a second primary key")
        end = made.names.get(lower(layout.row_end), "")
        if any(change.definition.system for change in self.changes) or end != layout.row_end:
            raise NotUnderstood("columns of system versioning are changed")
        is_versioned = layout.is_versioned if self.versioning is None else self.versioning
        if self.versioning is False and end:
            raise NotUnderstood("DROP SYSTEM VERSIONING with columns of its own")
        if (
            any(change.definition.is_versioned for change in self.changes)
            and not is_versioned
            and not end
        ):
            raise NotUnderstood("WITH SYSTEM VERSIONING of a column")
        kept_unique = (one.behind(made.names) for one in layout.unique)
        behind = TableLayout(
            columns,
            new_key or key,
            charset,
            is_versioned,
            end,
            (*filter(None, kept_unique), *_unique(keys)),
            self.options.engine or layout.engine,
        )
        behind.check()
        return behind


class _Columns:
    """Columns of a table behind an ALTER TABLE."""

    def __init__(self, wanted: Alteration, layout: TableLayout, charset: str | None) -> None:
        self._wanted: Final = wanted
        self._layout: Final = layout
        self._charset: Final = charset
        self.names: Final[dict[str, str]] = {}
        """The present names of the columns that there were, by their old names in small letters."""

    def columns(self) -> list[DdlColumn]:
        """Raises `NotUnderstood`."""
        wanted = self._wanted
        there = {lower(column.name) for column in self._layout.columns}
        dropped = self._existing(wanted.dropped, there)
        renames = self._existing({old: maybe for old, _, maybe in wanted.renamed}, there)
        renamed = {lower(old): new for old, new, _ in wanted.renamed if lower(old) in renames}
        changes = [c for c in wanted.changes if not self._is_left_out(c, there)]
        changed = {lower(c.old): c for c in changes if c.old is not None}
        if len(changed) < sum(c.old is not None for c in changes) or changed.keys() & (
            dropped | renamed.keys()
        ):
            raise NotUnderstood("a column is changed twice")
        # CONVERT TO reaches them, too: what then becomes of their own character set is for servers to know.
        charsets = {c.definition.charset for c in changes if c.definition.type.is_character}
        if wanted.converts and not charsets <= {None, self._charset}:
            raise NotUnderstood("CONVERT TO CHARACTER SET beside a column of another one")
        new: dict[int, DdlColumn] = {id(c): c.definition.column(self._charset) for c in changes}
        found: list[DdlColumn] = []
        for column in self._layout.columns:
            name = lower(column.name)
            if name in dropped:
                continue
            change = changed.get(name)
            if change is None:
                kept = replace(self._converted(column), name=renamed.get(name, column.name))
            else:
                kept = new[id(change)]
            self.names[name] = kept.name
            found.append(kept)
        for change in changes:
            column = new[id(change)]
            if change.old is not None:
                if change.place is None:
                    continue
                found = [one for one in found if one is not column]
            found.insert(self._index(found, change.place), column)
        return found

    @staticmethod
    def _existing(names: Mapping[str, bool], there: set[str]) -> set[str]:
        missing = [name for name, maybe in names.items() if lower(name) not in there and not maybe]
        if missing:
            raise NotUnderstood(f"there is no column {missing[0]}")
        return {lower(name) for name in names} & there

    @staticmethod
    def _is_left_out(change: Change, there: set[str]) -> bool:
        """Whether IF EXISTS or IF NOT EXISTS makes the server leave a change out. Raises `NotUnderstood`."""
        if change.old is None:
            return change.if_exists and lower(change.definition.name) in there
        if lower(change.old) in there:
            return False
        if not change.if_exists:
            raise NotUnderstood(f"there is no column {change.old}")
        return True

    @staticmethod
    def _index(found: Sequence[DdlColumn], place: str | None) -> int:
        if place is None:
            return len(found)
        if place == FIRST:
            return 0
        for i, column in enumerate(found):
            if lower(column.name) == lower(place):
                return i + 1
        raise NotUnderstood(f"there is no column {place} to stand after")

    def _converted(self, column: DdlColumn) -> DdlColumn:
        """A column behind CONVERT TO CHARACTER SET; unchanged without that clause. Raises `NotUnderstood`."""
        is_text = column.type.is_character and column.charset != BINARY
        if not (self._wanted.converts and is_text):
            return column
        if column.charset is None or self._charset is None:
            raise NotUnderstood("CONVERT TO CHARACTER SET from or to an unknown one")
        type_ = column.type.converted(column.charset, self._charset)
        return replace(column, type=type_, charset=self._charset if type_.is_character else None)


def _inline(columns: Sequence[Definition]) -> list[Key]:
    found = [Key(((one.name, None),), is_primary=True) for one in columns if one.is_primary]
    found += [Key(((one.name, None),), is_primary=False) for one in columns if one.is_unique]
    return found


def _unique(keys: Sequence[Key]) -> tuple[Key, ...]:
    return tuple(key for key in keys if not key.is_primary)


def _primary(
    keys: Sequence[Key], columns: Sequence[DdlColumn], periods: Mapping[str, tuple[str, str]]
) -> tuple[str, ...]:
    """Names of the primary key as the columns are called."""
    found = [key for key in keys if key.is_primary]
    if not found:
        return ()
    if len(found) > 1:
        raise NotUnderstood("two primary keys")
    wanted = [name for name, _ in found[0].parts]
    if found[0].overlaps:
        if found[0].overlaps not in periods:
            raise NotUnderstood("WITHOUT OVERLAPS of a period that was defined before")
        begin, end = periods[found[0].overlaps]
        wanted += [end, begin]
    by_name = {lower(column.name): column.name for column in columns}
    missing = [name for name in wanted if lower(name) not in by_name]
    if missing:
        raise NotUnderstood(f"column {missing[0]} of the primary key is not there")
    return tuple(by_name[lower(name)] for name in wanted)
