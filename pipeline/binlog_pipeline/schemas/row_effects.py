"""Effects of statements on rows, and on the knowledge of columns, without rows in the log that say so.

A state of a table is made of its rows in the log. That is right only while every other change of its rows is known. So
this is the one place that knows the statements behind which rows stay what they were, under the names that they had:
a small set. Any other statement that names the table, or may mean it, is `x`: what the rows are behind it the log does
not say. Nothing is guessed, and what is not understood is never taken for harmless.

    t    the table is empty behind it: TRUNCATE, DROP, CREATE
    a    its rows stay, and have no columns but those that they had, or new ones that are null
    x    what its rows are behind it is not known

Left out are CREATE and DROP INDEX, COMMENT and the like, as nothing follows of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import field, replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.sql.statements import ALL, TableName
from binlog_protocol.sql.token_reader import NotUnderstood
from binlog_protocol.sql.tokens import TokenKind

from binlog_pipeline.schemas.ddl_columns import INDEX, OF_ALL_PARTITIONS, ColumnReader
from binlog_pipeline.schemas.default_charsets import DefaultCharsets
from binlog_pipeline.schemas.logged_statements import LoggedStatement

SAME, TOLD, UNKNOWN = "same", "told", "unknown"
"""Knowledge of the columns' definitions behind a statement: as before it, all told by the statement, none."""
NO_NAMES: Final = (
    "columns change, and the log has no names of them (binlog_row_metadata is not FULL)"
)
_NO_CHARACTER: Final = "\ufffd"
_KEEPING_PARTITIONS: Final = frozenset(
    ("ANALYZE", "CHECK", "COALESCE", "OPTIMIZE", "REBUILD", "REORGANIZE")
)
"""Clauses in front of PARTITION that keep all rows: servers refuse to lose one (1526), but by ALTER IGNORE."""
_ENGINES: Final = frozenset(("INNODB", "ARIA", "MYISAM", "MEMORY", "HEAP", "ROCKSDB"))
"""Engines that keep all rows that they are given."""
_OPTIONS: Final = frozenset((
    "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMMENT", "DELAY_KEY_WRITE", "KEY_BLOCK_SIZE",
    "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED",
    "ENCRYPTION_KEY_ID", "ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TRANSACTIONAL",
    "COLLATE", "ALGORITHM", "LOCK",
))  # fmt: skip
_PLAIN: Final = frozenset((
    "NULL", "UNSIGNED", "SIGNED", "ZEROFILL", "PRECISION", "VARYING", "BINARY", "INVISIBLE", "COMPRESSED", "ASCII",
    "UNICODE", "CHAR", "VARCHAR", "CHARACTER",
))  # fmt: skip
"""Words of a column behind the first of its type that leave it nullable and without a default."""
_ELSEWHERE: Final = frozenset(
    ("ENGINE", "EXCHANGE", "IMPORT", "DISCARD", "UNION", "SEQUENCE", "CONNECTION", "DIRECTORY")
)
OF_SEQUENCE: Final = "the row of a sequence, which is no table"
_OF_CHARSET: Final = frozenset(("CHARACTER", "CHAR", "CHARSET", "COLLATE"))
_COMPUTING: Final = frozenset(("AS", "GENERATED", "AUTO_INCREMENT", "SERIAL"))
_OF_NUMBER: Final = (
    "computed of an AUTO_INCREMENT: servers log it as it was before the row got its number"
)
_ACTIONS: Final = (("CASCADE",), ("SET", "NULL"), ("SET", "DEFAULT"))


@dataclass(frozen=True, slots=True)
class RowEffect:
    """See the module.

    sql: the statement.
    doubt: of x why; of others what may be wrong behind it though the rows stay, empty for nothing.
    definition: `SAME`, `TOLD` or `UNKNOWN`.
    computed: columns that the server computes when they are read; it logs them in full images alone. Of x `*`, if it
        may have brought one, or the AUTO_INCREMENT of which one is computed.
    defaulted: columns that have a value other than null where an INSERT gives none; STORED ones are among them.
    sources: each column that is computed, VIRTUAL or STORED, with the columns behind it that it is computed of. Servers
        may not log it where they change (11.8.9: in no UPDATE, whatever binlog_row_image is).
    is_own: it can only have changed rows that were there, so an empty table is empty behind it.
    charset: what columns get behind it that name none, empty for an unknown one. taken: columns that have it. None of
        what stays.
    prepares, ends: the XID, in front of what is only prepared, and where it is committed or rolled back: see
        `views/prepared.py`.
    """

    op: str
    sql: str
    doubt: str = ""
    definition: str = SAME
    computed: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    is_own: bool = False
    prepares: str = ""
    ends: str = ""
    charset: str | None = None
    taken: tuple[str, ...] | None = None
    sources: tuple[tuple[str, ...], ...] = ()


def row_effect(
    said: LoggedStatement,
    name: TableName,
    columns: Collection[str] | None = None,
    *,
    by_name: bool = True,
    numbered: Collection[TableName] = (),
    charsets: DefaultCharsets | None = None,
) -> RowEffect | None:
    """The effect of a statement on the rows of a table; None without one. Never raises.

    Args:
        columns: those that rows of the table are given with, whenever they were logged; None if each row keeps its own.
        by_name: the log has names of columns, so columns may come and go.
        numbered: tables that `is_numbered` is true of: others may be made like them.
        charsets: what was told of other tables and databases before.
    """
    effect = _row_effect(said, name, columns, by_name=by_name, numbered=numbered)
    if effect is None or not said.meaning.is_certain or name not in said.meaning.affected:
        return effect
    made = (charsets or DefaultCharsets()).told(said, name)
    return effect if made is None else replace(effect, charset=made.charset, taken=made.taken)


def _row_effect(
    said: LoggedStatement,
    name: TableName,
    columns: Collection[str] | None,
    *,
    by_name: bool,
    numbered: Collection[TableName],
) -> RowEffect | None:
    meaning = said.meaning
    if meaning.is_certain and meaning.kind not in _READERS:
        is_repaired = said.sql.lstrip()[:6].upper() == "REPAIR"
        if is_repaired and name.table.casefold() in {t.text.casefold() for t in said.tokens()}:
            return RowEffect("x", said.sql, "rows that were damaged are gone behind it")
        return None
    try:
        if not meaning.is_certain or _NO_CHARACTER in said.sql:
            return _of_any_kind(said, name)
        if not _is_named(name, meaning.affected):
            return _beside(said, name)
        if name not in meaning.affected and TableName(name.database, ALL) not in meaning.affected:
            raise NotUnderstood(
                "the names differ in case alone: some servers take them for one table"
            )
        if said.has_failed and meaning.kind not in ("create", "drop"):
            raise NotUnderstood("it has failed, and may be done in part")
        return _Reader(said, name, columns, by_name=by_name, numbered=numbered).effect()
    except NotUnderstood as error:
        words = {token.text.upper() for token in said.tokens() if token.kind is TokenKind.WORD}
        computed = () if _COMPUTING.isdisjoint(words) else (ALL,)
        return RowEffect("x", said.sql, str(error), UNKNOWN, computed, is_own=_is_own(said, name))


def is_numbered(
    said: LoggedStatement, name: TableName, numbered: Collection[TableName] = ()
) -> bool:
    """Whether it makes that table with a VIRTUAL column that is computed of an AUTO_INCREMENT, or may. Never raises.

    Args:
        numbered: as of `row_effect`.
    """
    reader = _Reader(said, name, None, by_name=True, numbered=numbered)
    with contextlib.suppress(NotUnderstood):
        reader.effect()
    return reader.is_numbered


def note_numbered(said: LoggedStatement, numbered: set[TableName]) -> None:
    """Bring the tables of which `is_numbered` is true behind the next statement of the log."""
    meaning = said.meaning
    if meaning.kind not in ("create", "drop", "rename"):
        return
    gone = meaning.affected if meaning.kind == "rename" else meaning.emptied
    numbered -= {
        one for one in numbered if not {one, TableName(one.database, ALL)}.isdisjoint(gone)
    }
    if meaning.kind == "create" and not said.has_failed:
        numbered |= {name for name in meaning.affected if is_numbered(said, name, numbered)}


def _is_own(said: LoggedStatement, name: TableName) -> bool:
    """Whether it is an ALTER TABLE of that table, and of no other one or another place of rows."""
    meaning = said.meaning
    if (
        meaning.kind != "alter"
        or not meaning.is_certain
        or said.has_failed
        or name not in meaning.affected
    ):
        return False
    words = [token.text.upper() for token in said.tokens() if token.kind is not TokenKind.STRING]
    return (
        len(meaning.affected) == 1
        and words.count("TABLE") == 1
        and not _ELSEWHERE.intersection(words)
        and _NO_CHARACTER not in said.sql
        and ";" not in words
    )


def _is_named(name: TableName, affected: Collection[TableName]) -> bool:
    """Whether the tables that a statement affects include `name`, in any case of letters."""
    database, table = name.database.casefold(), name.table.casefold()
    return any(
        one.database.casefold() == database and one.table.casefold() in (table, ALL)
        for one in affected
    )


def _of_any_kind(said: LoggedStatement, name: TableName) -> RowEffect | None:
    """A statement of which it is not known what it is about."""
    texts = {token.text.casefold() for token in said.tokens()}
    is_meant = (
        name.table.casefold() in texts
        or name.database.casefold() in texts
        or said.database.casefold() == name.database.casefold()
        or _NO_CHARACTER in said.sql
    )
    if not is_meant:
        return None
    raise NotUnderstood("a statement that is not understood, and may be about the table")


def _beside(said: LoggedStatement, name: TableName) -> RowEffect | None:
    """About other tables."""
    words = {token.text.casefold() for token in said.tokens()}
    kind = said.meaning.kind
    is_merge = "engine" in words and not words.isdisjoint(("merge", "mrg_myisam"))
    databases = {
        said.database.casefold(),
        *(one.database.casefold() for one in said.meaning.affected),
    }
    is_meant = name.table.casefold() in words and name.database.casefold() in words | databases
    if is_meant and (is_merge or (kind == "alter" and "union" in words)):
        raise NotUnderstood("rows that are written to a table of ENGINE=MERGE are of this one")
    return None


@dataclass(slots=True)
class _Definitions:
    """Columns that a statement defines as computed, with a default, or as AUTO_INCREMENT."""

    computed: list[str] = field(default_factory=list)
    defaulted: list[str] = field(default_factory=list)
    sources: dict[str, set[str]] = field(default_factory=dict)
    """The texts of the definitions of computed columns, STORED ones too, by column; in small letters."""
    names: list[str] = field(default_factory=list)
    """All columns."""
    numbered: set[str] = field(default_factory=set)
    """The AUTO_INCREMENT columns."""

    def computed_of(self) -> tuple[tuple[str, ...], ...]:
        """`RowEffect.sources`: of a column that is computed of such a one, what that is computed of, too."""
        found = {name: {*self.sources[name]} for name in self.sources}
        for _ in found:
            for words in found.values():
                words.update(*(found[one] for one in found if one.casefold() in words))
        return tuple(
            (name, *(one for one in self.names if one != name and one.casefold() in words))
            for name, words in found.items()
        )


class _Reader(ColumnReader):
    """Goes through a statement that names the table."""

    def __init__(
        self,
        said: LoggedStatement,
        name: TableName,
        columns: Collection[str] | None,
        *,
        by_name: bool,
        numbered: Collection[TableName],
    ) -> None:
        super().__init__(said.tokens(), said.database, said.sql_mode)
        self.is_numbered = False
        """See the function of that name."""
        self._numbered: Final = numbered
        self._is_like_numbered = False
        self._said: Final = said
        self._name: Final = name
        self._columns: Final = None if columns is None else {one.casefold() for one in columns}
        self._by_name: Final = by_name
        self._found: Final = _Definitions()
        self._defaults: Final[list[str]] = []
        self._changes_columns = False
        self._says_charset = False

    def effect(self) -> RowEffect | None:
        """Raises `NotUnderstood`."""
        if self.accept("SET", "STATEMENT"):
            self.skip_to("FOR")
        self.at += 1  # CREATE, ALTER, ...
        return _READERS[self._said.meaning.kind](self)

    def create(self) -> RowEffect | None:
        """CREATE."""
        said = self._said
        replaces = self.accept("OR", "REPLACE")
        if self.word() in ("DATABASE", "SCHEMA"):
            return RowEffect("t", said.sql, definition=UNKNOWN) if replaces else None
        if self.accept("TABLE"):
            return self._create_table()
        if self.word() == "SEQUENCE":
            raise NotUnderstood("a sequence in its place" if replaces else OF_SEQUENCE)
        if self.accept("UNIQUE"):
            self._changes_columns = True  # it may bring a hidden one
            return self._altered()
        if self.word() in ("INDEX", "FULLTEXT", "SPATIAL", "VECTOR"):
            return None
        raise NotUnderstood(f"CREATE {self.shown()}")

    def _create_table(self) -> RowEffect:
        """The effect of CREATE TABLE. No table had the name: servers log IF NOT EXISTS only where they made one."""
        said = self._said
        made = RowEffect("t", said.sql, definition=UNKNOWN)
        if said.has_failed:
            return made
        begin = self.at
        self._refuse_engines()
        self.at = begin
        try:
            self.accept("IF", "NOT", "EXISTS")
            self.name()
            is_list = self.sign("(")
            if self.accept("LIKE"):
                self._is_like_numbered = self.name() in self._numbered
                raise NotUnderstood("columns of another table")
            if not is_list:
                raise NotUnderstood("columns of a query")
            self._elements()
            if said.meaning.writes_rows:
                raise NotUnderstood("columns of a query")
        except NotUnderstood:
            of_numbers = self._computed_of_numbers() or self._may_compute_of_numbers()
            self.is_numbered = bool(of_numbers)
            return RowEffect("t", said.sql, self._cascades() or of_numbers, UNKNOWN)
        found = self._found
        of_numbers = self._computed_of_numbers()
        self.is_numbered = bool(of_numbers)
        doubt = self._cascades() or of_numbers
        names = (tuple(found.computed), tuple(found.defaulted))
        return RowEffect("t", said.sql, doubt, TOLD, *names, sources=found.computed_of())

    def _computed_of_numbers(self) -> str:
        """Servers compute VIRTUAL columns for the log before they give the row its number (10.11, 11.8)."""
        known = {name.casefold() for name in self._found.numbered}
        for _ in self._found.computed:  # one may be computed of another
            for name in self._found.computed:
                if known & self._found.sources[name]:
                    known.add(name.casefold())
        wrong = [name for name in self._found.computed if name.casefold() in known]
        if not wrong:
            return ""
        return f"column {wrong[0]} is {_OF_NUMBER}"

    def _may_compute_of_numbers(self) -> str:
        """The same of what is not understood."""
        words = {token.text.upper() for token in self.tokens if token.kind is TokenKind.WORD}
        is_told = words & {"AS", "GENERATED"} and words & {"AUTO_INCREMENT", "SERIAL"}
        if is_told or self._is_like_numbered:
            return f"a column may be {_OF_NUMBER}"
        return ""

    def alter(self) -> RowEffect | None:
        """ALTER TABLE, the only ALTER that affects tables besides ALTER SEQUENCE."""
        self.accept("ONLINE")
        if self.word() == "SEQUENCE":
            raise NotUnderstood(OF_SEQUENCE)
        if not self.accept("TABLE"):
            raise NotUnderstood(f"ALTER {self.shown()}")
        self.accept("IF", "EXISTS")
        if self.name() != self._name:
            raise NotUnderstood("the table gets another name, or rows of another one")
        if self.accept("WAIT"):
            self.at += 1
        self.accept("NOWAIT")
        while not self.is_at_end():
            if not self._part():
                self._option()
                if not self.is_sign(","):
                    continue
            if self.is_at_end() or self.word() in OF_ALL_PARTITIONS:
                continue
            if not self.sign(","):
                raise NotUnderstood(f"{self.shown()} in ALTER TABLE")
        says_more = (
            self._changes_columns or self._defaults or self._says_charset or self._cascades()
        )
        return self._altered() if says_more else None

    def drop(self) -> RowEffect | None:
        """DROP TABLE, DROP DATABASE; DROP INDEX."""
        if self.accept("INDEX"):
            self.accept("IF", "EXISTS")
            self._index()
            return None
        return RowEffect("t", self._said.sql, definition=UNKNOWN)

    def rename(self) -> RowEffect | None:
        """Refuse a rename: the rows are another table's, and renames of temporary tables are logged in the same way."""
        raise NotUnderstood("the table gets another name, or rows of another one")

    def truncate(self) -> RowEffect | None:
        """A temporary table says that it is one."""
        if self._said.may_be_temporary:
            return None
        return RowEffect("t", self._said.sql)

    def _altered(self) -> RowEffect:
        if self._changes_columns and not self._by_name:
            raise NotUnderstood(NO_NAMES)
        made = RowEffect("a", self._said.sql, self._cascades(), SAME, (), tuple(self._defaults))
        return replace(made, taken=()) if self._changes_columns else made

    def _part(self) -> bool:
        """One of an ALTER TABLE; False for options of the table."""
        word = self.word()
        if self.accept("ADD"):
            self._add()
        elif self.accept("DROP"):
            self._drop_part()
        elif self.accept("ALTER"):
            self._alter_part()
        elif self.accept("RENAME"):
            if self.word() not in INDEX:
                raise NotUnderstood(f"RENAME {self.word()}")
            self.skip_element()
        elif word in ("ENABLE", "DISABLE"):
            self.at += 1
            if not self.accept("KEYS"):
                raise NotUnderstood(f"{word} {self.shown()}")
        elif word in _KEEPING_PARTITIONS:
            self.at += 1
            if not self.accept("PARTITION"):
                raise NotUnderstood(f"{word} {self.shown()}")
            self.at = len(self.tokens)
        elif self.accept("PARTITION", "BY"):
            self.at = len(self.tokens)
        elif not (self.accept("FORCE") or self.accept("REMOVE", "PARTITIONING")):
            return False
        return True

    def _add(self) -> None:
        if self.accept("PARTITION"):
            self.at = len(self.tokens)
        elif self.is_key():
            self._key()
        elif self.word() in ("PERIOD", "SYSTEM"):
            raise NotUnderstood(f"ADD {self.word()}")
        else:
            self.accept("COLUMN")
            self.accept("IF", "NOT", "EXISTS")
            if self.sign("("):
                self._elements()
            else:
                self._column(self.identifier())
                if self.accept("AFTER"):
                    self.identifier()
                else:
                    self.accept("FIRST")
            if self._found.computed or self._found.defaulted:
                raise NotUnderstood("the rows that are there get a value in a new column")
            self._changes_columns = True

    def _drop_part(self) -> None:
        if self.word() in INDEX:
            self.at += 1
            self.accept("IF", "EXISTS")
            self._index()
        elif self.accept("FOREIGN", "KEY") or self.accept("CONSTRAINT") or self.accept("CHECK"):
            self.accept("IF", "EXISTS")
            self._index()
        elif self.word() in ("PRIMARY", "PARTITION", "SYSTEM", "PERIOD"):
            raise NotUnderstood(f"DROP {self.word()}")
        else:
            self.accept("COLUMN")
            self.accept("IF", "EXISTS")
            name = self.identifier()
            self.accept("RESTRICT")
            self.accept("CASCADE")
            if self._columns is not None and name.casefold() in self._columns:
                raise NotUnderstood(
                    f"{name} is dropped, and the rows that came last have it: it was made anew, or none has come since"
                )
            self._changes_columns = True

    def _index(self) -> None:
        if self.identifier().upper() == "PRIMARY":
            raise NotUnderstood("DROP PRIMARY KEY")

    def _alter_part(self) -> None:
        """The default of a column, or whether an index is used."""
        if self.word() in (*INDEX, "CONSTRAINT", "CHECK"):
            self.skip_element()
            return
        self.accept("COLUMN")
        self.accept("IF", "EXISTS")
        name = self.identifier()
        if self.accept("DROP", "DEFAULT"):
            return
        if not self.accept("SET", "DEFAULT"):
            raise NotUnderstood(f"ALTER COLUMN {self.shown()}")
        self._defaults.append(name)
        self.skip_element()

    def _option(self) -> None:
        """Step over an option of the table that leaves its rows alone. Raises `NotUnderstood` for another one."""
        self.accept("DEFAULT")
        if self.accept("ENGINE"):
            self.sign("=")
            self._engine()
            return
        self._says_charset = self._says_charset or self.word() in _OF_CHARSET
        if not self.accept_charset():
            if self.word() not in _OPTIONS:
                raise NotUnderstood(f"{self.shown()} in ALTER TABLE")
            self.at += 1
        self.sign("=")
        self._value()

    def _value(self) -> None:
        self.sign("-")
        token = self.token()
        if token is None or token.kind is TokenKind.SIGN:
            raise NotUnderstood(f"no value, but {self.shown()}")
        self.at += 1

    def _engine(self) -> None:
        token = self.token()
        if token is None or token.text.strip("'\"").upper() not in _ENGINES:
            raise NotUnderstood(f"ENGINE {self.shown()} may keep other rows than it is given")
        self.at += 1

    def _refuse_engines(self) -> None:
        """Raise `NotUnderstood` for a CREATE TABLE with an engine that may not keep all rows."""
        while not self.is_at_end():
            if self.is_sign("("):
                self.skip_one()
            elif self.accept("ENGINE"):
                self.sign("=")
                self._engine()
            elif self.accept("UNION"):
                raise NotUnderstood("ENGINE=MERGE has rows of other tables")
            else:
                self.at += 1

    def _elements(self) -> None:
        """Read the elements of a CREATE TABLE, behind the opening bracket, up to the closing one."""
        while True:
            if self.is_key():
                self._key()
            elif self.is_period():
                self.skip_element()
            else:
                self._column(self.identifier())
                if not (self.is_sign(",") or self.is_sign(")")):
                    raise NotUnderstood(f"{self.shown()} behind a column")
            if not self.sign(","):
                self.expect(")")
                return

    def _key(self) -> None:
        """A key or a constraint."""
        begin = self.at
        self.skip_element()
        words = [
            token.text.upper()
            for token in self.tokens[begin : self.at]
            if token.kind is TokenKind.WORD
        ]
        is_alter = self._said.meaning.kind == "alter"
        if is_alter and "PRIMARY" in words:
            raise NotUnderstood("ADD PRIMARY KEY")
        if "UNIQUE" in words:
            self._changes_columns = True  # it may bring a hidden one

    def _column(self, name: str) -> None:
        """Read a column's definition, behind its name: up to a comma, a closing bracket, FIRST or AFTER."""
        type_ = self.word()
        if not type_:
            raise NotUnderstood(f"type {self.shown()}")
        begin = self.at
        self.at += 1
        is_plain, is_nullable = type_ != "SERIAL", type_ != "TIMESTAMP"
        words = {type_}
        while not (self.is_at_end() or self.is_sign(",") or self.is_sign(")")):
            word = self.word()
            if word in ("FIRST", "AFTER"):
                break
            if self.accept_charset() or self.accept("COLLATE") or self.accept("COMMENT"):
                self.sign("=")
                self._value()
            elif word == "CHECK":
                self.at += 1
                self.skip_one()
            elif self.accept("DEFAULT", "NULL"):
                pass
            else:
                is_nullable = is_nullable or word == "NULL"
                is_plain = is_plain and (word in _PLAIN or self.is_sign("("))
                words.add(word)
                self.skip_one()
        self._found.names.append(name)
        if {"AS", "GENERATED"} & words and "ROW" not in words:
            self._found.sources[name] = {t.text.casefold() for t in self.tokens[begin : self.at]}
        if name in self._found.sources and not {"STORED", "PERSISTENT"} & words:
            self._found.computed.append(name)
        elif not (is_plain and is_nullable):
            self._found.defaulted.append(name)
            if {"AUTO_INCREMENT", "SERIAL"} & words:
                self._found.numbered.add(name)

    def _cascades(self) -> str:
        """The foreign key's action by which engines change rows of the table without logging it; empty without one."""
        words = [t.text.upper() if t.kind is TokenKind.WORD else "" for t in self.tokens]
        for i, word in enumerate(words[:-2]):
            if word == "ON" and words[i + 1] in ("DELETE", "UPDATE"):
                for action in _ACTIONS:
                    if tuple(words[i + 2 : i + 2 + len(action)]) == action:
                        said = f"FOREIGN KEY ... ON {words[i + 1]} {' '.join(action)}"
                        return f"{said} changes rows that are not logged"
        return ""


_READERS: Final = {
    "create": _Reader.create,
    "alter": _Reader.alter,
    "drop": _Reader.drop,
    "rename": _Reader.rename,
    "truncate": _Reader.truncate,
}
