"""ALTER TABLE: text and a definition to another definition, and the rows of the one as rows of the other.

All actions of a statement name columns as they were before it; AFTER, and new keys, as they are behind it. What
replicas get is made of what was understood (`AlteredTable.text`): collations and defaults stand in it.

Values are converted as MariaDB copies columns: what does not fit is an error, or without a strict sql_mode a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    CannotDropAllColumns,
    CannotDropColumn,
    CannotDropConstraint,
    CannotDropKey,
    ColumnTruncated,
    DuplicateColumn,
    DuplicateKeyName,
    NoSuchKey,
    NoSuchKeyColumn,
    NotSupportedYet,
    ServerError,
    UnknownColumn,
    UnsupportedOnGenerated,
)
from binlog_protocol.events.charsets import character_bytes_max, charset_of
from binlog_protocol.events.collation_names import collation_name
from binlog_protocol.events.rows.strings import EnumIndex
from binlog_protocol.sql.token_reader import NotUnderstood, TableName
from binlog_protocol.tables.definition import (
    PRIMARY,
    Generation,
    KeyKind,
    StoredColumn,
    StoredKey,
    StoredTable,
)
from binlog_protocol.tables.sql_type import SqlType

from binlog_server.queries.terms import Asker
from binlog_server.tables.cells import Cells, implicit_default
from binlog_server.tables.definitions import (
    DefinitionReader,
    Normal,
    Parts,
    SaidOptions,
    charset_text,
    check_text,
    column_text,
    key_text,
    known_collation,
    made_table,
    normal_said,
    quoted_name,
    quoted_text,
    reading,
)
from binlog_server.tables.generated import CHANGING, Defaults, Generated, functions_in
from binlog_server.tables.held import HeldTable
from binlog_server.tables.rows import Shown

_TEXTS: Final = ("tinytext", "text", "mediumtext", "longtext")
_WORDS_OF_KEYS: Final = frozenset(("KEY", "INDEX", "PRIMARY", "UNIQUE", "CONSTRAINT", "FULLTEXT", "SPATIAL", "FOREIGN",
                                   "CHECK", "PERIOD", "PARTITION", "SYSTEM"))  # fmt: skip
_OPTIONS: Final = frozenset(("ENGINE", "COMMENT", "AUTO_INCREMENT", "ROW_FORMAT", "DEFAULT", "CHARACTER", "CHARSET",
                             "CHAR", "COLLATE"))  # fmt: skip
_COPIED: Final = frozenset(("varchar", "varbinary"))  # longer ones need no copy, as far as is told


@dataclass(slots=True, eq=False)
class _Column:
    """A column of the table that is made. `source`: the number of the one that it was; None for a new one."""

    column: StoredColumn
    source: int | None = None


@dataclass(slots=True)
class AlteredTable:
    """What an ALTER TABLE makes.

    Attributes:
        table: the definition; under its new name, if it gets one.
        sources: for each column the number of the one that it was.
        first_number: AUTO_INCREMENT=n.
        clauses: the text of what it does.
        notes: of IF EXISTS.
        is_about_keys: it says DISABLE or ENABLE KEYS.
    """

    table: StoredTable
    sources: Sequence[int | None]
    first_number: int | None
    clauses: Sequence[str]
    notes: Sequence[ServerError]
    old: StoredTable
    is_about_keys: bool = False

    @property
    def text(self) -> str:
        """The statement for replicas; nothing if there is nothing to do."""
        if not self.clauses:
            return ""
        name = f"{quoted_name(self.old.database)}.{quoted_name(self.old.name)}"
        return f"ALTER TABLE {name} {', '.join(self.clauses)}"

    @property
    def is_rename(self) -> bool:
        """Whether it does nothing else than RENAME TO."""
        return all(clause.startswith("RENAME TO ") for clause in self.clauses)

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows, and their keys, are the same bytes."""
        old, new = self.old, self.table
        return (
            list(self.sources) == list(range(len(old.columns)))
            and all(
                _same_bytes(one, other)
                and one.nullable == other.nullable
                and (one.generation, one.expression) == (other.generation, other.expression)
                for one, other in zip(old.columns, new.columns, strict=True)
            )
            and [key.parts for key in old.keys if key.is_unique]
            == [key.parts for key in new.keys if key.is_unique]
        )

    @property
    def has_new_checks(self) -> bool:
        """Whether a row may not be as a CHECK wants it."""
        return not set(self.table.own_checks) <= set(self.old.own_checks)

    @property
    def copies(self) -> bool:
        """Whether MariaDB would say that it has copied the rows: values become others."""
        old, new = self.old.columns, self.table.columns
        in_keys = {part.column for key in self.table.keys for part in key.parts}
        for at, (source, column) in enumerate(zip(self.sources, new, strict=True)):
            is_virtual = column.generation is Generation.VIRTUAL
            is_stored = column.generation is Generation.STORED
            if source is None and (is_stored or (is_virtual and at in in_keys)):
                return True
            if source is None and column.is_default_computed:
                return True
            if source is not None and is_stored and column.expression != old[source].expression:
                return True
            if source is not None and not _same_bytes(old[source], column):
                was = old[source]
                is_longer = (
                    was.type.name == column.type.name in _COPIED
                    and was.collation == column.collation
                    and was.type.numbers <= column.type.numbers
                )
                if not is_longer:
                    return True
        return False


def read_alteration(text: str, database: str, old: StoredTable, normal: Normal) -> AlteredTable:
    """What ALTER TABLE makes of a table. Raises `ServerError`."""
    return reading(lambda: _AlterReader(text, database, old, normal).altered())


class _AlterReader(DefinitionReader):
    def __init__(self, text: str, database: str, old: StoredTable, normal: Normal) -> None:
        super().__init__(text, database)
        self._old: Final = old
        self._normal: Final = normal
        self._columns = [_Column(column, at) for at, column in enumerate(old.columns)]
        self._by_name: Final = {
            one.column.name.lower(): one for one in self._columns
        }  # as they were, those that are left
        self._keys = list(old.keys)
        self._new_keys: list[tuple[KeyKind, str, list[tuple[str, int]]]] = []
        self._checks = list(old.checks)
        self._said_checks: list[tuple[str, str]] = []
        self._constraints: set[str] = set()
        self._options = SaidOptions(comment=old.comment, first_number=0, engine=old.engine)
        self._is_converted = self._is_about_keys = False
        self._name = TableName(old.database, old.name)
        self._clauses: list[str] = []
        self._notes: list[ServerError] = []
        self._after: list[tuple[_Column, str, int]] = []  # what stands behind which, and its clause
        self._defined: list[tuple[_Column, int]] = []  # columns whose clause is to have their text
        self._defaults: list[tuple[_Column, int]] = []  # the same of their default

    def altered(self) -> AlteredTable:
        if self.word() in ("CREATE", "DROP"):
            return self._of_index()
        self.accept("ALTER")
        self.accept("ONLINE")
        if self.accept("IGNORE"):
            raise NotSupportedYet("ALTER IGNORE TABLE")
        self.accept("TABLE")
        self.accept("IF", "EXISTS")
        self.name()
        while not self.is_at_end():
            self._action()
            is_more = self.sign(",")
            if is_more == self.is_at_end() and self.word() not in _OPTIONS:
                if self.word() == "PARTITION":
                    raise NotSupportedYet("partitions")
                raise NotUnderstood(self.shown())
        return self._result()

    def _result(self) -> AlteredTable:
        self._place()
        if not self._columns:
            raise CannotDropAllColumns()
        return AlteredTable(
            self._made(),
            [one.source for one in self._columns],
            self._options.first_number or None,
            self._clauses,
            self._notes,
            self._old,
            self._is_about_keys,
        )

    def _of_index(self) -> AlteredTable:
        """CREATE INDEX, DROP INDEX: as the clause of ALTER TABLE that says the same."""
        verb = self.word()
        self.at += 1
        is_again = self.accept("OR", "REPLACE")
        kind = KeyKind.UNIQUE if self.accept("UNIQUE") else KeyKind.PLAIN
        self.accept("INDEX")
        optional = self.accept("IF", "NOT", "EXISTS") or self.accept("IF", "EXISTS")
        name = self.identifier()
        if self.word() != "ON":
            raise NotSupportedYet(f"{self.shown()} of an index")
        self.at += 1
        self.name()
        found = self._key_named(name)
        if verb == "DROP":
            self._drop_key(name, CannotDropKey(name), optional=optional)
        elif found is not None and not is_again:
            if not optional:
                raise DuplicateKeyName(name)
            self._notes.append(DuplicateKeyName(name))
            return self._result()
        else:
            if found is not None:
                self._drop_key(name, CannotDropKey(name), optional=False)
            self._new_keys.append((kind, name, self.key_columns()))
        while self.accept("ALGORITHM") or self.accept("LOCK"):
            self.sign("=")
            self.identifier()
        if not self.is_at_end():
            raise NotUnderstood(self.shown())
        return self._result()

    def _action(self) -> None:
        word = self.word()
        if word in _OPTIONS:
            self._option()
            return
        self.at += 1
        if word == "ADD":
            self._add()
        elif word == "DROP":
            self._drop()
        elif word in ("MODIFY", "CHANGE"):
            self._change(word)
        elif word == "RENAME":
            self._rename()
        elif word == "ALTER":
            self._set_default()
        elif word == "CONVERT" and self.accept("TO"):
            self._convert()
        elif word in ("ALGORITHM", "LOCK"):
            self.sign("=")
            self.identifier()
        elif word in ("DISABLE", "ENABLE"):  # of a dump: no key here is made later than its rows
            if not self.accept("KEYS"):
                raise NotUnderstood(self.shown())
            self._is_about_keys = True
        elif word != "FORCE":
            if not word:
                self.at -= 1
                raise NotUnderstood(self.shown())
            raise NotSupportedYet(f"ALTER TABLE ... {word}")

    # --- columns ---

    def _add(self) -> None:
        is_column = self.accept("COLUMN")
        if not is_column and self.word() in _WORDS_OF_KEYS:
            self._add_key()
            return
        optional = self.accept("IF", "NOT", "EXISTS")
        if self.sign("("):
            while True:
                self._add_column(optional=optional)
                if not self.sign(","):
                    self.expect(")")
                    return
        self._add_column(optional=optional)

    def _add_column(self, *, optional: bool) -> None:
        made = self._definition()
        place = self._position()
        name = made.column.name
        if name.lower() in self._by_name:
            if not optional:
                raise DuplicateColumn(name)
            self._notes.append(DuplicateColumn(name))
            return
        self._columns.append(made)
        self._clauses.append("ADD COLUMN")
        self._put(made, place)

    def _definition(self) -> _Column:
        """A column's definition; keys that it brings are added."""
        parts = Parts()
        self.column(parts, self._options.of(self._old.collation), self._normal)
        self._checks += parts.checks
        self._said_checks += parts.said_checks
        for kind, name, named in parts.keys:
            self._new_keys.append((kind, name, named))
        (column,) = parts.columns
        return _Column(column)

    def _position(self) -> str | None:
        """What stands behind a definition: nothing, "" for FIRST, or a name."""
        if self.accept("FIRST"):
            return ""
        return self.identifier() if self.accept("AFTER") else None

    def _put(self, made: _Column, place: str | None) -> None:
        """The clause that is last is of this column; it goes to its place when all are known."""
        if place is not None:
            self._after.append((made, place, len(self._clauses) - 1))
        self._defined.append((made, len(self._clauses) - 1))

    def _change(self, verb: str) -> None:
        self.accept("COLUMN")
        optional = self.accept("IF", "EXISTS")
        name = self.identifier() if verb == "CHANGE" else ""
        made = self._definition()
        place = self._position()
        name = name or made.column.name
        was = self._by_name.get(name.lower())
        if was is None:
            self._unknown(name, optional=optional)
            return
        if (was.column.generation is Generation.VIRTUAL) is not (
            made.column.generation is Generation.VIRTUAL
        ):
            raise UnsupportedOnGenerated()
        was_name = was.column.name
        self._forget_check(was_name)
        was.column = made.column
        self._rename_in_expressions(was_name, made.column.name)
        self._clauses.append(f"CHANGE COLUMN {quoted_name(was_name)}")
        self._put(was, place)

    def _unknown(self, name: str, *, optional: bool) -> None:
        error = UnknownColumn(name, self._old.name)
        if not optional:
            raise error
        self._notes.append(error)

    def _forget_check(self, name: str) -> None:
        """A column's own CHECK goes with its definition; that of the new one is there already."""
        for check in self._old.checks:
            if check[0] == name and check in self._checks:
                self._checks.remove(check)

    def _place(self) -> None:
        """Move columns to the places that are said."""
        for made, place, clause in self._after:
            self._columns.remove(made)
            at = 0
            if place:
                names = [one.column.name.lower() for one in self._columns]
                if place.lower() not in names:
                    raise UnknownColumn(place, self._old.name)
                at = names.index(place.lower()) + 1
            self._columns.insert(at, made)
            self._clauses[clause] += "\0" + (f" AFTER {quoted_name(place)}" if place else " FIRST")

    def _drop(self) -> None:
        if self.accept("PRIMARY", "KEY"):
            self._drop_key(PRIMARY, CannotDropKey(PRIMARY), optional=False)
            return
        if self.word() in ("KEY", "INDEX", "CONSTRAINT"):
            is_constraint = self.word() == "CONSTRAINT"
            self.at += 1
            optional = self.accept("IF", "EXISTS")
            name = self.identifier()
            if not (is_constraint and self._drop_check(name)):
                missing = (CannotDropConstraint if is_constraint else CannotDropKey)(name)
                self._drop_key(name, missing, optional=optional)
            return
        is_column = self.accept("COLUMN")
        if not is_column and self.word() in ("FOREIGN", "PARTITION", "PERIOD", "SYSTEM"):
            raise NotSupportedYet(f"DROP {self.word()}")
        optional = self.accept("IF", "EXISTS")
        name = self.identifier()
        if not self.accept("RESTRICT"):
            self.accept("CASCADE")
        found = self._by_name.pop(name.lower(), None)
        if found is None:
            missing = CannotDropColumn(name)
            if not optional:
                raise missing
            self._notes.append(missing)
            return
        self._forget_check(found.column.name)
        self._columns.remove(found)
        self._clauses.append(f"DROP COLUMN {quoted_name(found.column.name)}")

    def _drop_check(self, name: str) -> bool:
        """Drop the CHECK of that name that is of no column; False if there is none."""
        own = {column.name for column in self._old.columns}
        for check in self._checks:
            if check[0].lower() == name.lower() and check[0] not in own:
                self._checks.remove(check)
                self._clauses.append(f"DROP CONSTRAINT {quoted_name(check[0])}")
                return True
        return False

    def _kept_checks(self) -> list[tuple[str, str]]:
        """The CHECKs of the old table that are left: one goes with the only column that it names. Raises
        `UnknownColumn` (1054) for one that names others, too."""
        names = {one.column.name for one in self._columns}
        kept = []
        for check in self._checks:
            named = _names_in(check[1])
            missing = sorted(named - names)
            if missing and len(named) > 1:
                raise UnknownColumn(missing[0], "CHECK")
            if not missing:
                kept.append(check)
        return kept

    def _rename_in_expressions(self, column: str, new: str) -> None:
        """CHECKs and generated columns name a column as it is called now."""
        self._checks = [
            (new if name == column else name, _renamed(text, column, new))
            for name, text in self._checks
        ]
        for one in self._columns:
            if one.source is not None and one.column.generation is not Generation.NONE:
                text = _renamed(one.column.expression, column, new)
                one.column = replace(one.column, expression=text)
            if one.source is not None and one.column.is_default_computed:
                text = _renamed(one.column.default or "", column, new)
                one.column = replace(one.column, default=text)

    def _rename(self) -> None:
        if self.accept("COLUMN"):
            optional = self.accept("IF", "EXISTS")
            name = self.identifier()
            self._expect_to()
            new = self.identifier()
            found = self._by_name.get(name.lower())
            if found is None:
                self._unknown(name, optional=optional)
                return
            self._clauses.append(
                f"RENAME COLUMN {quoted_name(found.column.name)} TO {quoted_name(new)}"
            )
            was_name = found.column.name
            found.column = replace(found.column, name=new)
            self._rename_in_expressions(was_name, new)
        elif self.word() in ("KEY", "INDEX"):
            self.at += 1
            optional = self.accept("IF", "EXISTS")
            name = self.identifier()
            self._expect_to()
            new = self.identifier()
            key = self._key_named(name)
            if key is None:
                missing = NoSuchKey(name, self._old.name)
                if not optional:
                    raise missing
                self._notes.append(missing)
                return
            self._keys[self._keys.index(key)] = replace(key, name=new)
            self._clauses.append(f"RENAME KEY {quoted_name(key.name)} TO {quoted_name(new)}")
        else:
            if not (self.accept("TO") or self.accept("AS")):
                self.sign("=")
            self._name = self.name()
            self._clauses.append(
                f"RENAME TO {quoted_name(self._name.database)}.{quoted_name(self._name.table)}"
            )

    def _expect_to(self) -> None:
        if not self.accept("TO"):
            raise NotUnderstood(self.shown())

    def _set_default(self) -> None:
        if self.word() in ("INDEX", "KEY"):
            raise NotSupportedYet("ALTER INDEX")
        self.accept("COLUMN")
        optional = self.accept("IF", "EXISTS")
        name = self.identifier()
        default: str | None = None
        if self.accept("SET", "DEFAULT"):
            default = self.default()
        elif not self.accept("DROP", "DEFAULT"):
            raise NotUnderstood(self.shown())
        found = self._by_name.get(name.lower())
        if found is None:
            self._unknown(name, optional=optional)
            return
        column = replace(found.column, default="NULL" if found.column.nullable else None)
        if default is not None:
            column = replace(column, default=normal_said(column, default, self._normal))
        found.column = column
        said = "DROP DEFAULT" if default is None else "SET DEFAULT "
        self._clauses.append(f"ALTER COLUMN {quoted_name(column.name)} {said}")
        if default is not None:
            self._defaults.append((found, len(self._clauses) - 1))

    # --- keys ---

    def _key_named(self, name: str) -> StoredKey | None:
        return next((key for key in self._keys if key.name.lower() == name.lower()), None)

    def _add_key(self) -> None:
        optional, parts = False, Parts()
        at = self.at
        while self.word() in ("UNIQUE", "KEY", "INDEX"):
            self.at += 1
        if self.word() == "IF":
            optional = self.accept("IF", "NOT", "EXISTS")
            kind = KeyKind.UNIQUE if self.tokens[at].text.upper() == "UNIQUE" else KeyKind.PLAIN
            name = self.identifier()
            parts.keys.append((kind, name, self.key_columns()))
        else:
            self.at = at
            self.key(parts)
        if parts.said_checks:
            self._said_checks += parts.said_checks
            self._constraints |= parts.constraints
            return
        ((kind, name, named),) = parts.keys
        if name and self._key_named(name) is not None and kind is not KeyKind.PRIMARY:
            if not optional:
                raise DuplicateKeyName(name)
            self._notes.append(DuplicateKeyName(name))
            return
        self._new_keys.append((kind, name, named))

    def _drop_key(self, name: str, missing: ServerError, *, optional: bool) -> None:
        found = self._key_named(name)
        if found is None:
            if not optional:
                raise missing
            self._notes.append(missing)
            return
        self._keys.remove(found)
        is_primary = found.kind is KeyKind.PRIMARY
        self._clauses.append(
            "DROP PRIMARY KEY" if is_primary else f"DROP KEY {quoted_name(found.name)}"
        )

    # --- options ---

    def _option(self) -> None:
        before, word = replace(self._options), self.word()
        self.table_option(self._options)
        while self.text_option(self._options):
            pass
        after = self._options
        if after.engine != self._old.engine:
            raise NotSupportedYet(f"ALTER TABLE to ENGINE={after.engine}")
        if after.first_number != before.first_number or word == "AUTO_INCREMENT":
            self._clauses.append(f"AUTO_INCREMENT={after.first_number}")
        if word == "COMMENT":
            self._clauses.append(f"COMMENT={quoted_text(after.comment)}")
        if (after.charset, after.collation) != (before.charset, before.collation):
            self._clauses.append(charset_text(after.of(self._old.collation)))

    def _convert(self) -> None:
        options = SaidOptions()
        while self.text_option(options):
            pass
        collation = options.of(self._old.collation)
        self._options.charset, self._options.collation = None, collation
        for one in self._columns:
            if one.source is not None and one.column.type.is_text:
                one.column = _converted(one.column, known_collation(collation))
        self._clauses.append(
            f"CONVERT TO CHARACTER SET {charset_of(collation)} COLLATE {collation_name(collation)}"
        )

    # --- the table ---

    def _made(self) -> StoredTable:
        old = self._old
        parts = Parts(
            [one.column for one in self._columns],
            self._kept_checks(),
            self._said_checks,
            self._constraints,
        )
        names = {one.source: one.column.name for one in self._columns if one.source is not None}
        new = {one.column.name.lower() for one in self._columns if one.source is None}
        for key in self._keys:
            for part in key.parts:
                name = old.columns[part.column].name
                if part.column not in names and name.lower() in new:
                    raise NotSupportedYet(f"DROP and ADD of the column {name}, which is in a key")
            named = [
                (names[part.column], part.prefix) for part in key.parts if part.column in names
            ]
            if named and len(named) < len(key.parts) and key.is_unique:
                gone = next(part for part in key.parts if part.column not in names)
                raise NoSuchKeyColumn(old.columns[gone.column].name)
            if named:
                parts.keys.append((key.kind, key.name, named))
        count = len(parts.keys)
        parts.keys += self._new_keys
        table = made_table(
            self._name,
            parts,
            self._options.of(old.collation),
            self._options.comment,
            old.engine,
        )
        said = [key[1] for key in parts.keys[:count]]
        for key in table.keys:
            if key.name not in said:
                self._clauses.append(f"ADD {key_text(key, table)}")
        before = {name for name, _ in old.checks}
        own = {column.name for column in table.columns}
        for check in table.checks:
            if check[0] not in before and check[0] not in own:
                self._clauses.append(f"ADD {check_text(check)}")
        for made, clause in self._defined:
            head, _, tail = self._clauses[clause].partition("\0")
            column = table.columns[self._columns.index(made)]
            self._clauses[clause] = f"{head} {column_text(column, table, whole=True)}{tail}"
        for made, clause in self._defaults:
            self._clauses[clause] += table.columns[self._columns.index(made)].default or ""
        return table


def _names_in(text: str) -> set[str]:
    """The columns in a printed expression."""
    found = (name[1] for name in _NAME.finditer(text))
    return {name.replace("``", "`") for name in found if name}


def _renamed(text: str, column: str, new: str) -> str:
    """A printed expression with another name for a column."""
    if column == new:
        return text
    return _NAME.sub(lambda f: quoted_name(new) if f[0] == quoted_name(column) else f[0], text)


_NAME: Final = compiled_later(r"'(?:[^'\\]|\\.)*+'|`((?:[^`]|``)+)`", re.DOTALL)


def _converted(column: StoredColumn, collation: int) -> StoredColumn:
    """A column of text in another collation; a TEXT becomes a larger one where its characters take more bytes."""
    kind = column.type
    was = character_bytes_max(charset_of(column.collation) or "")
    now = character_bytes_max(charset_of(collation) or "")
    if kind.name in _TEXTS and now > was:
        kind = SqlType.of(_TEXTS[min(_TEXTS.index(kind.name) + 1, len(_TEXTS) - 1)])
    return replace(column, type=kind, collation=collation)


def _same_bytes(one: StoredColumn, other: StoredColumn) -> bool:
    """Whether a value of one column is the same bytes in the other, and is compared as there."""
    left, right = (
        replace(one.logged(), name="", nullable=True),
        replace(other.logged(), name="", nullable=True),
    )
    return left == right and one.type == other.type and one.collation == other.collation


# --- rows ---


@dataclass(slots=True)
class CopiedRows:
    """Rows of one table as rows of another.

    asker: the session, whose time must be that of the logged statement.
    """

    old: HeldTable
    new: HeldTable
    sources: Sequence[int | None]
    asker: Asker
    _made: list[Callable[[Sequence[bytes | None], Sequence[Any], int], bytes | None]] = field(
        init=False
    )
    _generated: Generated = field(init=False)
    _defaults: Defaults = field(init=False)
    _new_defaults: list[int] = field(init=False)
    _shown: Shown = field(init=False)

    def __post_init__(self) -> None:
        cells = Cells(self.new.definition, self.asker, self.asker.is_strict, copies=True)
        self._shown = shown = Shown(self.new, self.asker.local)
        self._generated = Generated(self.new, self.asker, cells, shown)
        self._defaults = Defaults(self.new, self.asker, cells, shown)
        self._new_defaults = [at for at in self._defaults.numbers if self.sources[at] is None]
        self._made = [self._maker(cells, at, source) for at, source in enumerate(self.sources)]

    def _maker(
        self, cells: Cells, at: int, source: int | None
    ) -> Callable[[Sequence[bytes | None], Sequence[Any], int], bytes | None]:
        column, row_format = self.new.definition.columns[at], self.new.format
        if column.generation is not Generation.NONE:
            return lambda raw, shown, row: None
        if source is None:
            if column.is_auto_increment:
                return lambda raw, shown, row: row_format.value(at, row)
            if column.is_default_computed:
                return lambda raw, shown, row: None
            if column.default is None:
                value = implicit_default(column)
            else:
                value = cells.default(at, 0)
            raw_value = row_format.value(at, value)
            return lambda raw, shown, row: raw_value
        was = self.old.definition.columns[source]
        is_checked = self.new.definition.is_json(column) and not self.old.definition.is_json(was)
        if _same_bytes(was, column) and not is_checked:
            if column.nullable:
                return lambda raw, shown, row: raw[source]
            is_enum = column.type.name == "enum"
            empty = EnumIndex(0) if is_enum else implicit_default(column)
            instead = row_format.value(at, empty)

            def same(raw: Sequence[bytes | None], shown: Sequence[Any], row: int) -> bytes | None:
                if raw[source] is None:
                    cells.unfit(ColumnTruncated(column.name, row))
                    return instead
                return raw[source]

            return same
        is_cut = was.type.name == column.type.name and was.collation == column.collation
        kind = self.old.declared.columns[source]
        cells.check(at, kind)
        cells = replace(cells, cuts=is_cut, is_checked=True)

        def converted(raw: Sequence[bytes | None], shown: Sequence[Any], row: int) -> bytes | None:
            return row_format.value(at, cells.value(at, shown[source], kind, row))

        return converted

    def rows(self, those: Iterator[tuple[bytes, bytes]]) -> Iterator[bytes]:
        """The rows, in their order. Raises `ServerError`: 1264, 1265, 1292, 1366, 1406, 4025."""
        show = Shown(self.old, self.asker.local)
        for number, (_, raw) in enumerate(those, 1):
            self.asker.budget.tick()
            split, shown = self.old.format.split(raw), show.row(raw)
            made = [make(split, shown, number) for make in self._made]
            if self._new_defaults:
                self._require_same_elsewhere()
                self._fill(made, number)
            yield self.new.format.joined(self._generated.filled(made, number))

    def _fill(self, made: list[bytes | None], row: int) -> None:
        """Compute the defaults of new columns."""
        row_format, show = self.new.format, self._shown.columns
        shown = [
            None if part is None else show[at](row_format.decoded(at, part))
            for at, part in enumerate(made)
        ]
        for at, value in self._defaults.values(self._new_defaults, shown, row):
            made[at] = row_format.value(at, value)

    def _require_same_elsewhere(self) -> None:
        """Raises `NotSupportedYet` (1235) for a default that replicas compute otherwise: they get the statement."""
        for at in self._new_defaults:
            column = self.new.definition.columns[at]
            if changing := functions_in(column.default or "") & CHANGING:
                raise NotSupportedYet(
                    f"ADD COLUMN {column.name} DEFAULT {min(changing).lower()}() to rows, of which replicas would have "
                    "others: ADD it without, SET DEFAULT, then UPDATE"
                )
