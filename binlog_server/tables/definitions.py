"""CREATE DATABASE and CREATE TABLE: text to definitions, and a definition to the text that is shown and logged.

What MariaDB takes and this server does not is 1235 with the reason; nothing that is taken is left out. The text that
replicas get is made of the definition (`create_text`), so that theirs says what ours does: character sets, collations
and defaults stand in it, whatever the server's own are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final, NamedTuple, TypeVar

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    CollationMismatch,
    DuplicateConstraintName,
    FunctionNotAllowed,
    GeneratedPrimaryKey,
    InvalidDefault,
    MultiplePrimaryKeys,
    NoColumns,
    NoSuchKeyColumn,
    NotSupportedYet,
    PrimaryKeyRequired,
    ServerError,
    SqlSyntaxError,
    TooLongKey,
    TooManyColumns,
    UninitializedColumn,
    UnknownCharacterSet,
    UnknownCollation,
    UnknownStorageEngine,
    WrongDatabaseName,
    WrongUsage,
)
from binlog_protocol.events.charsets import BINARY_COLLATION, charset_of
from binlog_protocol.events.collation_names import (
    NUMBERS,
    charset_named,
    collation_name,
    collation_numbered,
    default_collation,
)
from binlog_protocol.events.table_map import COLUMNS_MAX, KeyPart
from binlog_protocol.sql.token_reader import NotUnderstood, TableName, TokenReader
from binlog_protocol.sql.tokens import Token, TokenKind, tokens
from binlog_protocol.tables.ddl_types import parse_type, unquoted, with_signs
from binlog_protocol.tables.definition import (
    KEY_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    PRIMARY,
    Generation,
    KeyKind,
    StoredColumn,
    StoredKey,
    StoredTable,
    json_check,
    key_bytes,
    require_characters,
)
from binlog_protocol.tables.sql_type import SqlType

COLLATIONS: Final = frozenset(
    NUMBERS[name]
    for charset in ("utf8mb4", "utf8mb3")
    for name in (f"{charset}_general_ci", f"{charset}_bin", f"{charset}_uca1400_ai_ci")
)
"""Those of texts: here they are compared exactly as by MariaDB."""
DEFAULT_COLLATION: Final = NUMBERS["utf8mb4_general_ci"]
ENGINE: Final = "InnoDB"
SQLITE: Final = "SQLITE"
"""The engine of tables whose rows lie in a SQLite file."""
DIRECT_ENGINES: Final = ("MyISAM", "Aria")
"""Engines without transactions: what a statement changes in such a table stays, and is logged when it ends."""
MEMORY: Final = "MEMORY"
"""An engine of temporary tables alone: elsewhere its rows go with a restart of a replica."""
_DIRECT_KEY_BYTES: Final = 1000  # of MyISAM; Aria takes longer ones
_KEY_PART_BYTES: Final = 3  # of length and NULL
_TYPES: Final = frozenset((
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double", "date", "time", "datetime", "timestamp",
    "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "binary", "varbinary", "tinyblob", "blob",
    "mediumblob", "longblob", "float", "year", "bit", "enum", "set", "uuid", "inet4", "inet6",
))  # fmt: skip
_OTHER_ENGINES: Final = frozenset((
    "csv", "archive", "mrg_myisam", "merge", "blackhole", "sequence", "federated",
    "rocksdb", "columnstore", "spider", "connect", "mroonga", "s3", "oqgraph",
))  # fmt: skip
_NUMBERS: Final = (
    "tinyint",
    "smallint",
    "mediumint",
    "int",
    "bigint",
    "decimal",
    "float",
    "double",
)
_JSON_COLLATION: Final = NUMBERS["utf8mb4_bin"]
_LENGTHS: Final = ("char", "varchar", "binary", "varbinary")
_NOW: Final = frozenset(("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP"))
_CALLED_BARE: Final = (
    "CURRENT_DATE",
    "CURRENT_TIME",
    "CURRENT_USER",
    "LOCALTIME",
    "UTC_DATE",
    "UTC_TIME",
    "UTC_TIMESTAMP",
)
_KEYS: Final = frozenset((
    "CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PERIOD",
))  # fmt: skip
_LONG: Final = ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob")  # fmt: skip
_QUOTED: Final = str.maketrans(
    {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
)
_KEY_WORDS: Final = {
    KeyKind.PRIMARY: "PRIMARY KEY", KeyKind.UNIQUE: "UNIQUE KEY", KeyKind.PLAIN: "KEY",
}  # fmt: skip
_NO_KEYS: Final = {
    "FOREIGN": "FOREIGN KEY, as no row is looked up in another table: declare a KEY over the columns instead",
    "FULLTEXT": "FULLTEXT KEY, as MATCH is not here: declare a KEY over the beginning of the column, or none",
    "SPATIAL": "SPATIAL KEY, as there is no geometry here",
}
_OF_TEXT: Final = ("CHARACTER", "CHAR", "CHARSET", "COLLATE")
_QUERY: Final = ("SELECT", "WITH")
_NO_ATTRIBUTES: Final = {
    "REFERENCES": "REFERENCES: FOREIGN KEY, as no row is looked up in another table",
}
_NEAR_CHARS: Final = 80
_LITERAL_NUMBER: Final = compiled_later(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_T = TypeVar("_T")

Normal = Callable[[StoredColumn, str], str]
"""The default of a column as information_schema prints it, from a literal. Raises `InvalidDefault`."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database: its name, and the collation of its tables."""

    name: str
    collation: int


@dataclass(frozen=True, slots=True)
class Creation:
    """What a CREATE TABLE says. `first_number`: AUTO_INCREMENT=n; `replaces`: OR REPLACE."""

    table: StoredTable
    if_not_exists: bool
    first_number: int = 1
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class CreationOfQuery:
    """What a CREATE TABLE ... SELECT says.

    query: the text of the SELECT; `modifiers`: IGNORE, REPLACE in front of it.
    """

    name: TableName
    said: Parts
    collation: int
    options: SaidOptions
    if_not_exists: bool
    replaces: bool
    modifiers: frozenset[str]
    query: str
    needs_key: bool = True

    def table(self, selected: Sequence[StoredColumn]) -> tuple[StoredTable, list[str]]:
        """The table with the columns of the query, and the names of these in their order: said ones are as they are
        said; those that the query does not have come first. Raises `ServerError` as `read_table`."""
        said = {column.name.lower(): column for column in self.said.columns}
        own = [said.get(column.name.lower(), column) for column in selected]
        names = {column.name.lower() for column in own}
        first = [column for key, column in said.items() if key not in names]
        parts = replace(self.said, columns=[*first, *own], checks=list(self.said.checks))
        options = self.options
        made = made_table(
            self.name,
            parts,
            self.collation,
            options.comment,
            options.engine,
            needs_key=self.needs_key,
        )
        return made, [column.name for column in own]


class TableLike(NamedTuple):
    """What a CREATE TABLE ... LIKE says. `replaces`: OR REPLACE."""

    name: TableName
    source: TableName
    if_not_exists: bool
    replaces: bool


def quoted_name(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """A string literal."""
    return "'" + text.translate(_QUOTED) + "'"


def reader_of(text: str, database: str) -> TokenReader:
    """A reader of a statement in the default sql_mode, without comments."""
    return TokenReader(list(tokens(text, ansi_quotes=False, is_logged=False)), database)


def read_database(text: str) -> tuple[Database, bool]:
    """CREATE DATABASE; the second value is IF NOT EXISTS. Raises `ServerError`."""
    return reading(lambda: DefinitionReader(text, "").database_created())


def read_table(
    text: str, database: str, collation_of: Callable[[str], int], normal: Normal
) -> Creation | CreationOfQuery:
    """CREATE TABLE.

    Args:
        database: the one in use.
        collation_of: that of a database. Raises `ServerError` for one that there is not.
        normal: see `Normal`.

    Raises `ServerError`: 1064, 1235, and what MariaDB refuses.
    """
    return reading(lambda: DefinitionReader(text, database).table_created(collation_of, normal))


class TableHead(NamedTuple):
    """What stands in front of a CREATE TABLE's columns."""

    name: TableName
    if_not_exists: bool
    replaces: bool


def read_head(text: str, database: str) -> TableHead:
    """The name and the like of a CREATE TABLE, whatever comes behind. Raises `ServerError` as `read_table`."""
    return reading(lambda: DefinitionReader(text, database).table_head())


def read_like(text: str, database: str) -> TableLike | None:
    """CREATE TABLE ... LIKE; None for any other CREATE TABLE. Raises `ServerError` as `read_table`."""
    return reading(lambda: DefinitionReader(text, database).like())


def reading(read: Callable[[], _T]) -> _T:
    """The result of a reader. Raises `SqlSyntaxError` (1064) for what it does not know."""
    try:
        return read()
    except NotUnderstood as error:
        raise SqlSyntaxError(str(error)[:_NEAR_CHARS]) from None


@dataclass(slots=True)
class SaidOptions:
    """SaidOptions of a table or database."""

    charset: str | None = None
    collation: int | str | None = None
    """The name of one of any character set, such as uca1400_ai_ci, or bin."""
    comment: str = ""
    first_number: int = 1
    engine: str = ENGINE

    def of(self, default: int) -> int:
        """The collation that they say. Raises `CollationMismatch` (1253)."""
        if isinstance(self.collation, str):
            return _collation(f"{self.charset or charset_of(default)}_{self.collation}")
        if self.collation is not None:
            if self.charset not in (None, charset_of(self.collation)):
                raise CollationMismatch(collation_name(self.collation), self.charset)
            return self.collation
        return default if self.charset is None else default_collation(self.charset)


@dataclass(slots=True)
class Parts:
    """Columns, keys and checks of a table, as they are read."""

    columns: list[StoredColumn] = field(default_factory=list)
    checks: list[tuple[str, str]] = field(default_factory=list)
    said_checks: list[tuple[str, str]] = field(default_factory=list)
    """Those that are not printed yet: the name of the column or constraint, or none; and what was said."""
    constraints: set[str] = field(default_factory=set)
    keys: list[tuple[KeyKind, str, list[tuple[str, int]]]] = field(default_factory=list)


class DefinitionReader(TokenReader):
    """Reads definitions. Its methods raise `ServerError`, and `NotUnderstood` for 1064."""

    def __init__(self, text: str, database: str) -> None:
        found = list(tokens(text, ansi_quotes=False, is_logged=False))
        while found and found[-1].text == ";" and found[-1].kind is TokenKind.SIGN:
            found.pop()
        super().__init__(found, database)
        self._text: Final = text
        self._is_temporary = False

    # --- CREATE DATABASE ---

    def database_created(self) -> tuple[Database, bool]:
        self.accept("CREATE")
        if self.accept("OR", "REPLACE"):
            raise NotSupportedYet("CREATE OR REPLACE DATABASE: DROP it first")
        self.at += 1  # DATABASE, SCHEMA
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        name = self.identifier()
        require_characters(name)
        if not 0 < len(name) <= NAME_CHARACTERS_MAX or name.endswith(" ") or "\0" in name:
            raise WrongDatabaseName(name[:NAME_CHARACTERS_MAX])
        options = SaidOptions()
        while not self.is_at_end():
            self.accept("DEFAULT")
            if not self.text_option(options):
                raise NotSupportedYet(f"CREATE DATABASE with {self.shown()}")
        return Database(name, options.of(DEFAULT_COLLATION)), if_not_exists

    def text_option(self, options: SaidOptions) -> bool:
        """CHARACTER SET or COLLATE, if it is next."""
        if self._accept_charset():
            self.sign("=")
            options.charset = _charset(self._name_or_text())
        elif self.accept("COLLATE"):
            self.sign("=")
            options.collation = _collation_of_any(self._name_or_text())
        else:
            return False
        return True

    def _accept_charset(self) -> bool:
        return (
            self.accept("CHARACTER", "SET") or self.accept("CHAR", "SET") or self.accept("CHARSET")
        )

    def _name_or_text(self) -> str:
        token = self.token()
        if token is None or token.kind is TokenKind.SIGN:
            raise NotUnderstood(self.shown())
        self.at += 1
        return unquoted(token.text, escapes=True) if token.kind is TokenKind.STRING else token.text

    def _string(self) -> str:
        token = self.token()
        if token is None or token.kind is not TokenKind.STRING:
            raise NotUnderstood(self.shown())
        self.at += 1
        return unquoted(token.text, escapes=True)

    def _number(self) -> int:
        word = self.word()
        if not (word.isascii() and word.isdecimal() and len(word) <= 20):
            raise NotUnderstood(self.shown())
        self.at += 1
        return int(word)

    # --- CREATE TABLE ---

    def table_head(self) -> TableHead:
        """The beginning of CREATE TABLE: the name, IF NOT EXISTS, OR REPLACE."""
        self.accept("CREATE")
        replaces = self.accept("OR", "REPLACE")
        self._is_temporary = self.accept("TEMPORARY")
        if not self.accept("TABLE"):
            raise NotSupportedYet(f"CREATE {self.shown()}")
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        if if_not_exists and replaces:
            raise WrongUsage("OR REPLACE", "IF NOT EXISTS")
        return TableHead(self.name(), if_not_exists, replaces)

    def like(self) -> TableLike | None:
        name, if_not_exists, replaces = self.table_head()
        is_bracketed = self.is_sign("(") and self._word_behind() == "LIKE" and self.sign("(")
        if not self.accept("LIKE"):
            return None
        source = self.name()
        if is_bracketed:
            self.expect(")")
        if not self.is_at_end():
            raise NotUnderstood(self.shown())
        return TableLike(name, source, if_not_exists, replaces)

    def table_created(
        self, collation_of: Callable[[str], int], normal: Normal
    ) -> Creation | CreationOfQuery:
        name, if_not_exists, replaces = self.table_head()
        of_database = collation_of(name.database)
        begin, is_listed = self.at, self.is_sign("(") and self._word_behind() not in _QUERY
        if is_listed:
            self.skip_one()
        options = self._table_options()
        modifiers, query = self._query()
        collation = options.of(of_database)
        parts = Parts()
        if is_listed:
            self.at = begin
            self.expect("(")
            self._elements(parts, collation, normal)
        if query is not None:
            return CreationOfQuery(
                name,
                parts,
                collation,
                options,
                if_not_exists,
                replaces,
                modifiers,
                query,
                needs_key=not self._is_temporary,
            )
        if not parts.columns:
            raise NoColumns()
        made = made_table(
            name,
            parts,
            collation,
            options.comment,
            options.engine,
            needs_key=not self._is_temporary,
        )
        return Creation(made, if_not_exists, options.first_number, replaces)

    def _elements(self, parts: Parts, collation: int, normal: Normal) -> None:
        while True:
            self._element(parts, collation, normal)
            if len(parts.columns) > COLUMNS_MAX:
                raise TooManyColumns()
            if not self.sign(","):
                self.expect(")")
                return

    def _is_at_query(self) -> bool:
        word = self.word()
        if word == "WITH":
            return self._word_behind() != "SYSTEM"
        return word in (*_QUERY, "AS", "IGNORE", "REPLACE") or self.is_sign("(")

    def _query(self) -> tuple[frozenset[str], str | None]:
        """The words in front of a SELECT behind a table's options, and its text, without brackets around it; None
        without one."""
        if self.is_at_end():
            return frozenset(), None
        modifiers = frozenset(word for word in ("IGNORE", "REPLACE") if self.accept(word))
        self.accept("AS")
        end = len(self.tokens)
        while self.is_sign("(") and self._is_closed_by(end - 1):
            self.at += 1
            end -= 1
        if self.word() not in _QUERY and not self.is_sign("("):
            raise NotUnderstood(self.shown())
        begin = self.tokens[self.at - 1].end
        return modifiers, self._text[begin : self.tokens[end - 1].end]

    def _is_closed_by(self, last: int) -> bool:
        """Whether the bracket that is next is closed by that token."""
        at = self.at
        try:
            self.skip_one()
            return self.at == last + 1
        finally:
            self.at = at

    def _word_behind(self) -> str:
        behind = self.tokens[self.at + 1 : self.at + 2]
        return behind[0].text.upper() if behind and behind[0].kind is TokenKind.WORD else ""

    def _skip_brackets(self) -> None:
        self.at -= 1
        self.skip_one()

    def _table_options(self) -> SaidOptions:
        options = SaidOptions()
        while not (self.is_at_end() or self._is_at_query()):
            if not self.sign(","):
                self.table_option(options)
        return options

    def table_option(self, options: SaidOptions) -> None:
        """The option that is next."""
        self.accept("DEFAULT")
        if self.text_option(options):
            return
        word = self.word()
        self.at += 1
        self.sign("=")
        match word:
            case "ENGINE":
                options.engine = _engine(self._name_or_text())
                if options.engine == MEMORY and not self._is_temporary:
                    raise NotSupportedYet(
                        f"ENGINE={MEMORY}, but of a temporary table: its rows go with a restart of a replica"
                    )
            case "COMMENT":
                options.comment = self._string()
            case "AUTO_INCREMENT":
                options.first_number = max(1, self._number())
            case "ROW_FORMAT" if self.word() in ("DEFAULT", "DYNAMIC"):
                self.at += 1
            case "":
                self.at -= 1
                raise NotUnderstood(self.shown())
            case _:
                raise NotSupportedYet(f"a table with the option {word}")

    def _element(self, parts: Parts, collation: int, normal: Normal) -> None:
        if self.word() in _KEYS:
            self.key(parts)
        else:
            self.column(parts, collation, normal)

    def key(self, parts: Parts) -> None:
        """A key, with its constraint's name."""
        constraint = ""
        if self.accept("CONSTRAINT") and self.word() not in _KEYS:
            constraint = self.identifier()
        kind, name = KeyKind.PLAIN, ""
        if self.accept("CHECK"):
            parts.said_checks.append((constraint, self._bracketed()))
            parts.constraints.add(constraint)
            return
        if self.accept("PRIMARY", "KEY"):
            kind, name = KeyKind.PRIMARY, PRIMARY
        elif self.accept("UNIQUE"):
            kind = KeyKind.UNIQUE
            _ = self.accept("KEY") or self.accept("INDEX")
        elif not (self.accept("KEY") or self.accept("INDEX")):
            raise NotSupportedYet(_NO_KEYS.get(self.word(), f"{self.word()} in CREATE TABLE"))
        if kind is not KeyKind.PRIMARY and self.accept("IF", "NOT", "EXISTS"):
            raise NotSupportedYet("IF NOT EXISTS of a key")
        if not self.is_sign("(") and self.word() != "USING":
            given = self.identifier()
            name = name or given
        if kind is KeyKind.UNIQUE:
            name = name or constraint
        named = self.key_columns()
        if kind is KeyKind.PRIMARY and any(prefix for _, prefix in named):
            raise NotSupportedYet("PRIMARY KEY over the beginning of a column")
        parts.keys.append((kind, name, named))

    def key_columns(self) -> list[tuple[str, int]]:
        """The columns of a key, and its options."""
        self._using()
        self.expect("(")
        named: list[tuple[str, int]] = []
        while True:
            column, prefix = self.identifier(), 0
            if self.sign("("):
                prefix = self._number()
                self.expect(")")
            self.accept("ASC")
            if self.accept("DESC"):
                raise NotSupportedYet("DESC in a key")
            named.append((column, prefix))
            if not self.sign(","):
                self.expect(")")
                break
        self._using()
        if not (self.is_sign(",") or self.is_sign(")") or self.is_at_end()):
            raise NotSupportedYet(f"{self.shown()} of a key")
        return named

    def _using(self) -> None:
        if self.accept("USING") and not self.accept("BTREE"):
            raise NotSupportedYet(f"a key USING {self.shown()}")

    def column(self, parts: Parts, collation: int, normal: Normal) -> None:
        """A column, up to what stands behind its definition. `collation`: that of the table."""
        name = self.identifier()
        shown = self.word()
        made, charset = parse_type(self, 0, escapes=True, wide=False)
        if shown == "SERIAL":
            raise NotSupportedYet(f"a column of type {shown}")
        column = _Column(name)
        if charset is not None:
            column.charset = charset
        if shown == "JSON":
            column.collation = _JSON_COLLATION
            parts.checks.append(json_check(name))
        if made.is_character and self.accept("BINARY"):
            column.collation = "bin"  # of whatever character set it has
        signs: set[str] = set()
        while self.word() in ("UNSIGNED", "SIGNED", "ZEROFILL", *_OF_TEXT):
            if self.word() in _OF_TEXT:
                self._attribute(column, parts)
            else:
                signs.add(self.word())
                self.at += 1
        if self.accept("GENERATED", "ALWAYS", "AS") or self.accept("AS"):
            self._generation(column, parts)
        while not (self._is_end_of_element() or self.word() in ("FIRST", "AFTER")):
            if self.word() in ("UNSIGNED", "SIGNED", "ZEROFILL"):
                signs.add(self.word())
                self.at += 1
            else:
                self._attribute(column, parts)
        if signs and made.name not in _NUMBERS:
            raise NotUnderstood(min(signs))
        made = with_signs(made, unsigned="UNSIGNED" in signs, zerofill="ZEROFILL" in signs)
        if made.name == "year" and made.numbers != (4,):
            raise NotSupportedYet("YEAR(2)")
        if made.is_character:
            of_column = SaidOptions(column.charset, column.collation).of(collation)
            if made.name in _TYPES:
                known_collation(of_column, allow_binary=made.labels is None)
        else:
            of_column = BINARY_COLLATION
        if made.name in _LENGTHS and (of_column != BINARY_COLLATION or not made.is_character):
            # Too long a one is an error here, as in strict mode: elsewhere it is a TEXT.
            StoredColumn(name, SqlType.parse(str(made)), collation=of_column)
        made = made.of_charset(charset_of(of_column))
        if made.name not in _TYPES:
            raise NotSupportedYet(f"a column of type {made.name.upper()}")
        kind = (
            SqlType.parse(str(made))
            if made.labels is None
            else SqlType.of(made.name, labels=made.labels)
        )
        stored = StoredColumn(
            name,
            kind,
            nullable=column.nullable is not False and not column.is_primary,
            collation=of_column,
            on_update=column.on_update,
            generation=column.generation,
            expression=column.expression,
            is_auto_increment=column.is_auto_increment,
            comment=column.comment,
        )
        if column.default is not None:
            stored = replace(stored, default=normal_said(stored, column.default, normal))
        elif stored.nullable:
            stored = replace(stored, default="NULL")
        parts.columns.append(stored)

    def _generation(self, column: _Column, parts: Parts) -> None:
        """The expression of a generated column, and what may stand behind it; else 1064."""
        column.expression = self._bracketed()
        column.generation = Generation.VIRTUAL
        if self.accept("PERSISTENT") or self.accept("STORED"):
            column.generation = Generation.STORED
        else:
            self.accept("VIRTUAL")
        while not (self._is_end_of_element() or self.word() in ("FIRST", "AFTER")):
            if self.word() not in ("UNIQUE", "COMMENT", "CHECK"):
                raise NotUnderstood(self.shown())
            self._attribute(column, parts)

    def _is_end_of_element(self) -> bool:
        return self.is_at_end() or self.is_sign(",") or self.is_sign(")")

    def _attribute(self, column: _Column, parts: Parts) -> None:
        if self.accept("NOT", "NULL"):
            column.nullable = False
        elif self.accept("NULL"):
            column.nullable = True
        elif self.accept("DEFAULT"):
            column.default = self.default()
        elif self.accept("ON", "UPDATE"):
            column.on_update = self._now()
        elif self.accept("AUTO_INCREMENT"):
            column.is_auto_increment, column.nullable = True, False
        elif self.accept("PRIMARY", "KEY") or self.accept("PRIMARY") or self.accept("KEY"):
            column.is_primary = True
            parts.keys.append((KeyKind.PRIMARY, PRIMARY, [(column.name, 0)]))
        elif self.accept("UNIQUE"):
            self.accept("KEY")
            parts.keys.append((KeyKind.UNIQUE, "", [(column.name, 0)]))
        elif self.accept("COMMENT"):
            column.comment = self._string()
        elif self._accept_charset():
            column.charset = _charset(self._name_or_text())
        elif self.accept("COLLATE"):
            column.collation = _collation_of_any(self._name_or_text())
        elif self.word() == "CHECK":
            self._check(column, parts)
        elif self.word() in ("AS", "GENERATED"):
            raise NotUnderstood(self.shown())
        else:
            word = self.word()
            raise NotSupportedYet(_NO_ATTRIBUTES.get(word, f"{self.shown()} of a column"))

    def _check(self, column: _Column, parts: Parts) -> None:
        """CHECK of a column, which is the last of what it has."""
        self.at += 1
        said = self._bracketed()
        if not self._is_end_of_element() and self.word() not in ("FIRST", "AFTER"):
            raise NotUnderstood(self.shown())
        json = json_check(column.name)
        if json in parts.checks:  # of the type
            parts.checks.remove(json)
        if said.replace(" ", "").lower() == json[1].replace(" ", "").lower():
            parts.checks.append(json)
        else:
            parts.said_checks.append((column.name, said))

    def _bracketed(self) -> str:
        """The text in the brackets that are next, without comments."""
        begin = self.at
        self.expect("(")
        self._skip_brackets()
        return self._said(begin + 1, self.at - 1)

    def _said(self, begin: int, end: int) -> str:
        """The text of some tokens, without comments."""
        said, at = "", self.tokens[begin - 1].end
        for token in self.tokens[begin:end]:
            raw = quoted_name(token.text) if token.kind is TokenKind.QUOTED else token.text
            said += " " * (token.end - len(raw) > at) + raw
            at = token.end
        return said.strip(" ")

    def default(self) -> str:
        """A literal, as it is written but for signs and TRUE; `current_timestamp(n)`. Also in brackets. Or an
        expression, in brackets, as it is written."""
        begin = self.at
        brackets = 0
        while self.sign("("):
            brackets += 1
        try:
            found = self._constant()
            while brackets and self.sign(")"):
                brackets -= 1
            if not brackets:
                return found
        except NotUnderstood:
            pass
        self.at = begin
        return f"({self._expression()})"

    def _expression(self) -> str:
        """An expression in brackets, or a call of a function, without the brackets around it."""
        if self.is_sign("("):
            return self._bracketed()
        begin = self.at
        if self.word() in _CALLED_BARE and not self._is_called():
            self.at += 1
        elif self.word() and self._is_called():
            self.at += 1
            self.skip_one()
        elif self._is_name():
            self.at += 1
        else:
            raise NotSupportedYet(
                f"DEFAULT {self.shown()}, but of a constant, a function, or an expression in brackets"
            )
        return self._said(begin, self.at)

    def _is_name(self) -> bool:
        token = self.token()
        if token is None or token.kind is TokenKind.QUOTED:
            return token is not None
        return token.kind is TokenKind.WORD and token.text[:1].isalpha() and self.word() != "CASE"

    def _is_called(self) -> bool:
        behind = self.tokens[self.at + 1 : self.at + 2]
        return bool(behind) and behind[0].kind is TokenKind.SIGN and behind[0].text == "("

    def _constant(self) -> str:
        if self.word() in _NOW:
            return self._now()
        if self.accept("NULL"):
            return "NULL"
        for word, number in (("TRUE", "1"), ("FALSE", "0")):
            if self.accept(word):
                return number
        token = self.token()
        if token is not None and token.kind is TokenKind.STRING:
            return quoted_text(self._string())
        if token is not None and (literal := self._bits(token)) is not None:
            return literal
        sign = "-" if self.sign("-") else ""
        self.sign("+")
        digits = ""
        while (token := self.token()) is not None and (
            token.text == "." or (token.kind is TokenKind.WORD and token.text[:1].isdigit())
        ):
            digits += token.text
            self.at += 1
            if digits[-1] in "eE" and (self.is_sign("-") or self.is_sign("+")):
                digits += "-" if self.is_sign("-") else "+"
                self.at += 1
        if not _LITERAL_NUMBER.fullmatch(digits):
            raise NotUnderstood(digits or self.shown())
        return sign + digits

    def _bits(self, token: Token) -> str | None:
        """b'101', x'41' or 0x41, if it is next, as the first two."""
        word = token.text.lower()
        behind = self.tokens[self.at + 1 : self.at + 2]
        if token.kind is TokenKind.WORD and word in ("b", "x") and behind:
            quoted = behind[0]
            if quoted.kind is TokenKind.STRING:
                self.at += 2
                return word + quoted_text(unquoted(quoted.text, escapes=True))
        if token.kind is TokenKind.WORD and word[:2] in ("0b", "0x"):
            self.at += 1
            return word[1] + quoted_text(word[2:])
        return None

    def _now(self) -> str:
        if self.word() not in _NOW:
            raise NotUnderstood(self.shown())
        self.at += 1
        digits = 0
        if self.sign("("):
            digits = 0 if self.is_sign(")") else self._number()
            self.expect(")")
        return now_text(digits)


@dataclass(slots=True)
class _Column:
    name: str
    charset: str | None = None
    collation: int | str | None = None
    nullable: bool | None = None
    default: str | None = None
    on_update: str | None = None
    is_auto_increment: bool = False
    is_primary: bool = False
    comment: str = ""
    generation: Generation = Generation.NONE
    expression: str = ""


def normal_said(column: StoredColumn, default: str, normal: Normal) -> str:
    """The default of a column; an expression is printed when all columns are known."""
    if not replace(column, default=default).is_default_computed:
        return normal(column, default)
    if column.is_auto_increment:
        raise InvalidDefault(column.name)
    return default


def now_text(digits: int) -> str:
    """CURRENT_TIMESTAMP as information_schema prints it."""
    return f"current_timestamp({digits or ''})"


def _engine(name: str) -> str:
    if name.lower() == "heap":
        return MEMORY
    for known in (ENGINE, SQLITE, MEMORY, *DIRECT_ENGINES):
        if name.lower() == known.lower():
            return known
    if name.lower() in _OTHER_ENGINES:
        raise NotSupportedYet(f"ENGINE={name}: tables here are of InnoDB's kind")
    raise UnknownStorageEngine(name)


def _require_engine_takes(table: StoredTable) -> None:
    """Raises 1071, 1235 for a table that MyISAM or Aria of a replica would not take, or show otherwise."""
    if any(column.type.name == "bit" for column in table.columns):
        raise NotSupportedYet(
            f"BIT with ENGINE={table.engine}, whose CHECKSUM TABLE is another one"
        )
    for key in table.keys:
        if key_bytes(key, table.columns) + _KEY_PART_BYTES * len(key.parts) > _DIRECT_KEY_BYTES:
            raise TooLongKey(_DIRECT_KEY_BYTES)


def _charset(name: str) -> str:
    found = None if name.isdecimal() else charset_named(name)
    if found is None:
        raise UnknownCharacterSet(name)
    return found


def _collation(name: str) -> int:
    found = None if name.isdecimal() else collation_numbered(name)
    if found is None:
        if "uca1400" in name.lower():
            raise _not_comparable(name)
        raise UnknownCollation(name)
    return found


def _collation_of_any(name: str) -> int | str:
    return name.lower() if name.lower().startswith("uca1400_") else _collation(name)


def known_collation(number: int, *, allow_binary: bool = False) -> int:
    """The collation. Raises `NotSupportedYet` (1235) for one that is not compared here."""
    if number in COLLATIONS or (allow_binary and number == BINARY_COLLATION):
        return number
    raise _not_comparable(collation_name(number))


def _not_comparable(name: str) -> ServerError:
    known = ", ".join(sorted(map(collation_name, COLLATIONS)))
    return NotSupportedYet(f"text with the collation {name}; tables here have {known}")


def made_table(
    name: TableName,
    parts: Parts,
    collation: int,
    comment: str,
    engine: str = ENGINE,
    *,
    needs_key: bool = True,
) -> StoredTable:
    """The table of these parts. Raises `ServerError` for what MariaDB refuses, and 1173 without a primary key if it
    `needs_key`."""
    places = {column.name.lower(): i for i, column in enumerate(parts.columns)}
    primary = [named for kind, _, named in parts.keys if kind is KeyKind.PRIMARY]
    if len(primary) > 1:
        raise MultiplePrimaryKeys()
    if needs_key and not primary:
        raise PrimaryKeyRequired()
    for column, _ in primary[0] if primary else ():
        at = places.get(column.lower())
        if at is not None and parts.columns[at].generation is not Generation.NONE:
            raise GeneratedPrimaryKey()
        if at is not None and parts.columns[at].nullable:
            made = replace(parts.columns[at], nullable=False)
            parts.columns[at] = replace(made, default=None) if made.default == "NULL" else made
    keys: list[StoredKey] = []
    taken: set[str] = set()
    for kind, given, named in parts.keys:
        found = []
        for column, prefix in named:
            if column.lower() not in places:
                raise NoSuchKeyColumn(column)
            found.append(
                KeyPart(
                    places[column.lower()], _prefix(parts.columns[places[column.lower()]], prefix)
                )
            )
        key_name = given or _key_name(named[0][0], taken)
        taken.add(key_name.lower())
        keys.append(StoredKey(key_name, kind, tuple(found)))
    columns = _with_expressions(parts.columns)
    ordered = in_order(keys, columns)
    checks = _all_checks(parts)
    table = StoredTable(
        name.database, name.table, columns, ordered, collation, engine, comment, checks
    )
    if engine in DIRECT_ENGINES:
        _require_engine_takes(table)
    return table


def _with_expressions(columns: Sequence[StoredColumn]) -> tuple[StoredColumn, ...]:
    """The columns of a table, with the expressions of generated ones and of DEFAULT as they are printed. Raises
    `ServerError`."""
    computed = [column.name for column in columns if _is_computed(column)]
    if not computed:
        return tuple(columns)
    from binlog_server.queries.printing import DEFAULT, GENERATED, VIRTUAL, printed  # with sqlglot

    names = [column.name for column in columns]
    generated = {column.name for column in columns if column.generation is not Generation.NONE}
    later = set(computed)
    auto = next((column.name for column in columns if column.is_auto_increment), None)
    found: list[StoredColumn] = []
    for column in columns:
        if _is_computed(column):
            place = DEFAULT
            if column.name in generated:
                place = GENERATED if column.generation is Generation.STORED else VIRTUAL
            text = printed(
                column.expression if column.name in generated else column.default or "",
                names,
                column.name,
                place,
            )
            # Columns get their defaults in their order, then the generated ones their values.
            not_yet = later & generated if column.name in generated else later | generated
            read = [
                (text.index(quoted_name(one)), one) for one in not_yet if quoted_name(one) in text
            ]
            if read:
                raise UninitializedColumn(column.name, min(read)[1])
            if auto is not None and place != VIRTUAL and quoted_name(auto) in text:
                raise FunctionNotAllowed("AUTO_INCREMENT", place, auto)
            later.remove(column.name)
            if column.name in generated:
                column = replace(column, expression=text)
            else:
                column = replace(column, default=text)
        found.append(column)
    return tuple(found)


def _is_computed(column: StoredColumn) -> bool:
    return column.generation is not Generation.NONE or column.is_default_computed


def _all_checks(parts: Parts) -> tuple[tuple[str, str], ...]:
    """The CHECKs of a table: those of columns in their order, then the others. Raises `ServerError`."""
    found = list(dict.fromkeys(parts.checks))
    if not parts.said_checks and not found:
        return ()
    names = [column.name for column in parts.columns]
    places = {name: at for at, name in enumerate(names)}
    taken = {name.lower() for name, _ in (*found, *parts.said_checks)}
    number = 0
    for given, said in parts.said_checks:
        from binlog_server.queries.printing import printed  # with sqlglot

        name = given
        while not name or (not given and name.lower() in taken):
            number += 1
            name = f"CONSTRAINT_{number}"
        taken.add(name.lower())
        found.append((name, printed(said, names, name)))
    _check_distinct_names(found)
    for name in parts.constraints.intersection(places):
        raise NotSupportedYet(f"a CHECK that is called {name}, as a column is")
    auto = next((column.name for column in parts.columns if column.is_auto_increment), None)
    if auto is not None:
        for _, text in found:
            if quoted_name(auto) in text:
                raise FunctionNotAllowed("AUTO_INCREMENT", "CHECK", auto)
    return tuple(sorted(found, key=lambda check: places.get(check[0], len(places))))


def _check_distinct_names(checks: Sequence[tuple[str, str]]) -> None:
    seen: set[str] = set()
    for name, _ in checks:
        if name.lower() in seen:
            raise DuplicateConstraintName(name)
        seen.add(name.lower())


def in_order(keys: Sequence[StoredKey], columns: Sequence[StoredColumn]) -> tuple[StoredKey, ...]:
    """The keys of a table as MariaDB puts them: the primary one, unique ones (those without NULL first, those over
    beginnings of columns last), then the others. In this order a row is looked at for duplicates.

    Raises `NotSupportedYet` for a unique key that MariaDB keeps as a hash.
    """

    def place(key: StoredKey) -> tuple[int, bool, bool]:
        is_unique = key.kind is KeyKind.UNIQUE
        return (
            key.kind,
            is_unique and any(columns[part.column].nullable for part in key.parts),
            is_unique and any(part.prefix for part in key.parts),
        )

    for key in keys:
        if key.kind is KeyKind.UNIQUE and (
            any(columns[part.column].type.is_long and not part.prefix for part in key.parts)
            or key_bytes(key, columns) > KEY_BYTES_MAX
        ):
            raise NotSupportedYet(
                f"the key {key.name} over so long columns: say how many characters of each, or make it a KEY"
            )
    return tuple(sorted(keys, key=place))


def _prefix(column: StoredColumn, prefix: int) -> int:
    """The length of a part of a key; 0 where it is all of the column."""
    whole = column.type.numbers[0] if column.type.numbers and column.type.name not in _LONG else 0
    return 0 if prefix == whole else prefix


def _key_name(column: str, taken: set[str]) -> str:
    """A name for a key without one: that of its first column, as MariaDB makes it. `taken`: by keys in front of it."""
    name, number = column, 1
    while name.lower() in taken or name.upper() == PRIMARY:
        number += 1
        name = f"{column}_{number}"
    return name


# --- to text ---


def create_text(
    table: StoredTable,
    *,
    database: bool = False,
    next_number: int = 1,
    replaces: bool = False,
    is_temporary: bool = False,
) -> str:
    """CREATE TABLE, as SHOW CREATE TABLE prints it. `database`: as it is logged, with that name in front; `replaces`:
    OR REPLACE."""
    lines = [f"  {column_text(column, table)}" for column in table.columns]
    lines += [f"  {key_text(key, table)}" for key in table.keys]
    names = {column.name for column in table.columns}
    lines += [f"  {check_text(check)}" for check in table.checks if check[0] not in names]
    number = f" AUTO_INCREMENT={next_number}" if next_number > 1 else ""
    comment = f" COMMENT={quoted_text(table.comment)}" if table.comment else ""
    name = f"{quoted_name(table.database)}." * database + quoted_name(table.name)
    body = ",\n".join(lines)
    engine = ENGINE if database and table.engine == SQLITE else table.engine  # replicas have none
    verb = create_verb(replaces=replaces, is_temporary=is_temporary)
    return f"{verb} {name} (\n{body}\n) ENGINE={engine}{number} {charset_text(table.collation)}{comment}"


def create_verb(*, replaces: bool, is_temporary: bool = False) -> str:
    """The first words of CREATE TABLE."""
    return f"CREATE {'OR REPLACE ' * replaces}{'TEMPORARY ' * is_temporary}TABLE"


def key_text(key: StoredKey, table: StoredTable) -> str:
    """A key, as in CREATE TABLE."""
    named = ",".join(
        quoted_name(table.columns[part.column].name) + (f"({part.prefix})" if part.prefix else "")
        for part in key.parts
    )
    name = "" if key.kind is KeyKind.PRIMARY else f" {quoted_name(key.name)}"
    return f"{_KEY_WORDS[key.kind]}{name} ({named})"


def check_text(check: tuple[str, str]) -> str:
    """A CHECK that is of no column."""
    return f"CONSTRAINT {quoted_name(check[0])} CHECK ({check[1]})"


def charset_text(collation: int) -> str:
    """The option of a table."""
    return f"DEFAULT CHARSET={charset_of(collation)} COLLATE={collation_name(collation)}"


def column_text(column: StoredColumn, table: StoredTable, *, whole: bool = False) -> str:
    """A column, as in CREATE TABLE. `whole`: with its collation, whatever that of the table is."""
    text = f"{quoted_name(column.name)} {column.type}"
    is_own = whole or column.collation != table.collation or table.is_json(column)
    if column.type.is_text and is_own:
        text += f" CHARACTER SET {charset_of(column.collation)} COLLATE {collation_name(column.collation)}"
    if column.generation is not Generation.NONE:
        text += f" GENERATED ALWAYS AS ({column.expression}) {column.generation.name}"
    elif not column.nullable:
        text += " NOT NULL"
    elif column.type.name == "timestamp":
        text += " NULL"
    if column.default is not None and column.generation is Generation.NONE:
        text += f" DEFAULT {column.default}"
    if column.on_update is not None:
        text += f" ON UPDATE {column.on_update}"
    if column.is_auto_increment:
        text += " AUTO_INCREMENT"
    if column.comment:
        text += f" COMMENT {quoted_text(column.comment)}"
    check = table.check_of(column)
    if check is not None:
        text += f" CHECK ({check})"
    return text


def create_database_text(database: Database, *, shown: bool = False, unless: str = "") -> str:
    """CREATE DATABASE, as replicas get it; or as SHOW CREATE DATABASE prints it. `unless`: in front of the name."""
    charset, name = charset_of(database.collation), collation_name(database.collation)
    options = f"CHARACTER SET {charset} COLLATE {name}"
    return f"CREATE DATABASE {unless}{quoted_name(database.name)} " + (
        f"/*!40100 DEFAULT {options} */" if shown else options
    )
