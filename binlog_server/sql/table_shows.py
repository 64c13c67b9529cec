"""SHOW over the tables of `little_tables`: each is a SELECT of one, as in MariaDB. LIKE and WHERE are its HAVING.

Of what only the upstream has: 1146 for a table that is named; a list of all is empty, with a note that says why, and
1235 for programs that would make a dump of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    NoDatabaseSelected,
    NoSuchTable,
    NotSupportedYet,
    ServerError,
    SqlSyntaxError,
    UnknownColumn,
    UnknownDatabase,
    UnknownRoutine,
    UnknownStorageEngine,
    WrongObject,
    XaWrongState,
)
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.sql.token_reader import NotUnderstood, TokenReader
from binlog_protocol.sql.tokens import Token, TokenKind, tokens
from binlog_protocol.wire.results import Column, Value

from binlog_server.queries.catalog import MYSQL, SCHEMAS
from binlog_server.queries.types import Type, of_column
from binlog_server.sql import little_tables
from binlog_server.sql.inquiries import NO_TABLES, Inquiry
from binlog_server.sql.little_tables import Rows
from binlog_server.sql.shows import Filterable
from binlog_server.sql.statement import ANYBODY, LOOK_AT_OTHERS, Statement
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import Computed, Result, ResultSet, Row, Unfinished, Work
from binlog_server.tables.changes import checksum, is_intact
from binlog_server.tables.definitions import create_database_text, create_text
from binlog_server.tables.held import HeldTable, HeldTables
from binlog_server.tables.rows import Reading

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_TRANSACTIONS_SHOWN: Final = 100
Items = Sequence[tuple[str, str]]
"""A select list: columns of a table, and how SHOW calls them."""


def _items(text: str) -> Items:
    named = (item.partition(" ") for item in text.split(", "))
    return tuple((column, label.strip("`")) for column, _, label in named)


_ROUTINES: Final = _items(
    "ROUTINE_SCHEMA Db, ROUTINE_NAME Name, ROUTINE_TYPE Type, DEFINER Definer, LAST_ALTERED Modified, CREATED Created, "
    "SECURITY_TYPE Security_type, ROUTINE_COMMENT Comment, CHARACTER_SET_CLIENT character_set_client, "
    "COLLATION_CONNECTION collation_connection, DATABASE_COLLATION `Database Collation`"
)
_COLUMNS: Final = _items(
    "COLUMN_NAME Field, COLUMN_TYPE Type, IS_NULLABLE `Null`, COLUMN_KEY `Key`, "
    "COLUMN_DEFAULT `Default`, EXTRA Extra"
)
_FULL_COLUMNS: Final = _items(
    "COLUMN_NAME Field, COLUMN_TYPE Type, COLLATION_NAME Collation, IS_NULLABLE `Null`, COLUMN_KEY `Key`, "
    "COLUMN_DEFAULT `Default`, EXTRA Extra, PRIVILEGES Privileges, COLUMN_COMMENT Comment"
)
_INDEX: Final = _items(
    "TABLE_NAME `Table`, NON_UNIQUE Non_unique, INDEX_NAME Key_name, SEQ_IN_INDEX Seq_in_index, "
    "COLUMN_NAME Column_name, COLLATION Collation, CARDINALITY Cardinality, SUB_PART Sub_part, PACKED Packed, "
    "NULLABLE `Null`, INDEX_TYPE Index_type, COMMENT Comment, INDEX_COMMENT Index_comment, IGNORED Ignored"
)
_STATUS: Final = _items(
    "TABLE_NAME Name, ENGINE Engine, VERSION Version, ROW_FORMAT Row_format, TABLE_ROWS `Rows`, "
    "AVG_ROW_LENGTH Avg_row_length, DATA_LENGTH Data_length, MAX_DATA_LENGTH Max_data_length, "
    "INDEX_LENGTH Index_length, DATA_FREE Data_free, AUTO_INCREMENT Auto_increment, CREATE_TIME Create_time, "
    "UPDATE_TIME Update_time, CHECK_TIME Check_time, TABLE_COLLATION Collation, CHECKSUM Checksum, "
    "CREATE_OPTIONS Create_options, TABLE_COMMENT Comment, MAX_INDEX_LENGTH Max_index_length, TEMPORARY Temporary"
)
_TRIGGERS: Final = _items(
    "TRIGGER_NAME `Trigger`, EVENT_MANIPULATION Event, EVENT_OBJECT_TABLE `Table`, ACTION_STATEMENT Statement, "
    "ACTION_TIMING Timing, CREATED Created, SQL_MODE sql_mode, DEFINER Definer, "
    "CHARACTER_SET_CLIENT character_set_client, COLLATION_CONNECTION collation_connection, "
    "DATABASE_COLLATION `Database Collation`"
)
_EVENTS: Final = _items(
    "EVENT_SCHEMA Db, EVENT_NAME Name, DEFINER Definer, TIME_ZONE `Time zone`, EVENT_TYPE Type, "
    "EXECUTE_AT `Execute at`, INTERVAL_VALUE `Interval value`, INTERVAL_FIELD `Interval field`, STARTS Starts, "
    "ENDS Ends, STATUS Status, ORIGINATOR Originator, CHARACTER_SET_CLIENT character_set_client, "
    "COLLATION_CONNECTION collation_connection, DATABASE_COLLATION `Database Collation`"
)
_PLUGINS: Final = _items(
    "PLUGIN_NAME Name, PLUGIN_STATUS Status, PLUGIN_TYPE Type, PLUGIN_LIBRARY Library, "
    "PLUGIN_LICENSE License"
)


class _Shown(NamedTuple):
    """A SHOW: the select list, the table, and the column with the schema, where it is of one database."""

    items: Items
    table: str
    schema: str = ""
    condition: str = ""


_OF_THE_SERVER: Final[Mapping[tuple[str, ...], _Shown]] = {
    ("CHARACTER", "SET"): _Shown(
        _items(
            "CHARACTER_SET_NAME Charset, DESCRIPTION Description, DEFAULT_COLLATE_NAME `Default collation`, "
            "MAXLEN Maxlen"
        ),
        "CHARACTER_SETS",
    ),
    ("COLLATION",): _Shown(
        _items(
            "COLLATION_NAME Collation, CHARACTER_SET_NAME Charset, ID Id, IS_DEFAULT `Default`, "
            "IS_COMPILED Compiled, SORTLEN Sortlen"
        ),
        "COLLATIONS",
    ),
    ("PLUGINS",): _Shown(_PLUGINS, "PLUGINS"),
    ("PROCEDURE", "STATUS"): _Shown(_ROUTINES, "ROUTINES", condition="ROUTINE_TYPE='PROCEDURE'"),
    ("FUNCTION", "STATUS"): _Shown(_ROUTINES, "ROUTINES", condition="ROUTINE_TYPE='FUNCTION'"),
    ("PACKAGE", "STATUS"): _Shown(_ROUTINES, "ROUTINES", condition="ROUTINE_TYPE='PACKAGE'"),
    ("PACKAGE", "BODY", "STATUS"): _Shown(
        _ROUTINES, "ROUTINES", condition="ROUTINE_TYPE='PACKAGE BODY'"
    ),
    ("INDEX_STATISTICS",): _Shown(
        _items(
            "TABLE_SCHEMA Table_schema, TABLE_NAME Table_name, INDEX_NAME Index_name, ROWS_READ Rows_read, "
            "QUERIES Queries"
        ),
        "INDEX_STATISTICS",
    ),
}
_OF_A_DATABASE: Final[Mapping[tuple[str, ...], _Shown]] = {
    ("TABLE", "STATUS"): _Shown(_STATUS, "TABLES", "TABLE_SCHEMA"),
    ("TRIGGERS",): _Shown(_TRIGGERS, "TRIGGERS", "EVENT_OBJECT_SCHEMA"),
    ("EVENTS",): _Shown(_EVENTS, "EVENTS", "EVENT_SCHEMA"),
}
# The counters of SHOW STATUS, behind `Com_`.
_COUNTED: Final = {
    "SHOW CHARACTER SET": "show_charsets",
    "SHOW COLLATION": "show_collations",
    "SHOW COLUMNS": "show_fields",
    "SHOW EVENTS": "show_events",
    "SHOW FUNCTION STATUS": "show_function_status",
    "SHOW INDEX": "show_keys",
    "SHOW INDEX_STATISTICS": "show_generic",
    "SHOW PACKAGE BODY STATUS": "show_package_body_status",
    "SHOW PACKAGE STATUS": "show_package_status",
    "SHOW PLUGINS": "show_plugins",
    "SHOW PROCEDURE STATUS": "show_procedure_status",
    "SHOW TABLE STATUS": "show_table_status",
    "SHOW TABLES": "show_tables",
    "SHOW TRIGGERS": "show_triggers",
}
_CREATE_COUNTED: Final = {
    "DATABASE": "show_create_db",
    "FUNCTION": "show_create_func",
    "PROCEDURE": "show_create_proc",
    "TABLE": "show_create_table",
    "VIEW": "show_create_table",
}
_OTHER_WORDS: Final = {
    "CHARSET": ("CHARACTER", "SET"),
    "SCHEMA": ("DATABASE",),
    "FIELDS": ("COLUMNS",),
    "INDEXES": ("INDEX",),
    "KEYS": ("INDEX",),
    "DESC": ("DESCRIBE",),
    "EXPLAIN": ("DESCRIBE",),
}


_DUMPERS: Final = frozenset({"mysqldump", "mydumper", "mysqlpump"})
"""Programs, as they call themselves at their login, for which a list without tables is a backup without data."""
_LABEL: Final = "Tables_in_"
_NAMES: Final = "TABLE_NAMES"  # as MariaDB calls the table of a list of tables
_COLUMNS_OF: Final = "SHOW COLUMNS"
_TABLES_OF: Final = "SHOW TABLES"


@dataclass(frozen=True, slots=True)
class ShowOfTables(Inquiry):
    """SHOW over a little table. `schema` (None: the current database) and `base` are what it is about.

    label: of SHOW TABLES, what its WHERE calls the first column; `_LABEL` if it does not. pattern: of its LIKE.
    """

    what: str = ""
    schema: str | None = None
    base: str | None = None
    is_of_database: bool = False
    label: str | None = None
    pattern: str | None = None

    @property
    def counted_as(self) -> str:
        return _COUNTED[self.what]

    def answer(self, session: SqlSession) -> Computed | Unfinished:
        return self._unread() or self._about(session, is_run=True)

    def described(self, session: SqlSession) -> Result:
        """See `Inquiry`."""
        return self._unread() or self._about(session, is_run=False)

    def _about(self, session: SqlSession, *, is_run: bool) -> Computed:
        """Raises 1046, 1049, 1054, 1109, 1146, 1235 unless what it is about is here."""
        database = self.schema or session.database.decode("utf-8", "replace")
        given = NO_TABLES
        if self.is_of_database:
            self._look_at_database(session, database)
            if self.what == _TABLES_OF:
                given = little_tables.shown_tables(session)
        elif self.base is not None:
            if not database:
                raise NoDatabaseSelected()
            is_here = database in session.server.tables.databases
            if database.lower() not in SCHEMAS and not is_here:
                raise NoSuchTable(database, self.base)
            if is_here:
                session.reading(False)  # refused where an XA transaction is idle or prepared
            little_tables.definition(session, database, self.base, self.what)
            if is_here:
                held = little_tables.held_table(session, database, self.base, is_read=True)
                given = little_tables.about(held)
        found = self._look(session, given, is_run=is_run)
        if self.label is not None:
            return self._labelled(found, database)
        return _with_defaults(found) if self.what == _COLUMNS_OF else found

    def _look_at_database(self, session: SqlSession, database: str) -> None:
        if not database:
            raise NoDatabaseSelected()
        label = self.label or _LABEL
        if label.lower() not in (_LABEL.lower(), (_LABEL + database).lower()):
            raise UnknownColumn(label, "WHERE")
        if database in session.server.tables.databases:
            return
        nothing = little_tables.no_tables(self.what)
        if session.program in _DUMPERS:
            raise nothing
        if database.lower() not in SCHEMAS:
            if session.makes_databases:
                raise UnknownDatabase(database)
            session.diagnostics.note(nothing)

    def _labelled(self, found: Computed, database: str) -> Computed:
        """With the name that the first column has: the statement is read before its database is known."""
        label = _LABEL + database + (f" ({self.pattern})" if self.pattern is not None else "")

        def run() -> ResultSet:
            result = found.run()
            first, *others = (c.of_table(_NAMES, c.original_name) for c in result.columns)
            first = replace(first, name=label, length=Column.text("", 73).length)
            return ResultSet([first, *others], result.rows)

        return replace(found, run=run)


def _with_defaults(found: Computed) -> Computed:
    """With defaults as values: information_schema has them as they stand in CREATE TABLE."""

    def run() -> ResultSet:
        result = found.run()
        (place,) = (at for at, c in enumerate(result.columns) if c.name == "Default")
        rows: list[Row] = [
            (*row[:place], _default(row[place], str(row[1])), *row[place + 1 :])
            for row in result.rows
        ]
        return ResultSet(result.columns, rows)

    return replace(found, run=run)


def _default(text: Value, column_type: str) -> Value:
    if text == "NULL":
        return None
    # A text's or blob's is an expression, and shown as it is.
    if isinstance(text, str) and text[:1] == "'" and not column_type.endswith(("text", "blob")):
        return unquote(text)
    return text


@dataclass(frozen=True, slots=True)
class ShowWhere(Inquiry):
    """SHOW VARIABLES, STATUS or DATABASES with WHERE: a question to the table that it shows without."""

    show: Filterable = field(kw_only=True)

    @property
    def counted_as(self) -> str:
        return self.show.counted_as

    def answer(self, session: SqlSession) -> Computed | Unfinished:
        left = self._unread()
        if left is not None:
            return left
        shown = self.show.shown(session)
        found = self._look(session, {(None, _SHOWN): ShownTable(shown)}, is_run=True)
        return replace(found, run=lambda: ResultSet(shown.columns, found.run().rows))

    def described(self, session: SqlSession) -> Result:
        """See `Inquiry`."""
        return self._unread() or self.show.shown(session)


_SHOWN: Final = "shown"


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A result set as a table; its columns have the names that are shown."""

    shown: ResultSet
    name: str = _SHOWN
    is_view: bool = False

    @property
    def columns(self) -> Sequence[Type]:
        """The types of its columns."""
        return [of_column(replace(c, original_name=c.name)) for c in self.shown.columns]

    def rows(self) -> Rows:
        """Its rows."""
        return self.shown.rows


@dataclass(frozen=True, slots=True)
class ShowCreate(Statement):
    """SHOW CREATE DATABASE, TABLE, VIEW, PROCEDURE, FUNCTION: 1049, 1146, 1305 and 1347 for what is not here."""

    syntax = ""
    needs = ANYBODY

    kind: str
    schema: str | None
    name: str
    is_unless: bool = False
    """IF NOT EXISTS: of a database, which programs that make dumps want in its text."""

    @property
    def counted_as(self) -> str:
        return _CREATE_COUNTED[self.kind]

    @property
    def forgets_warnings(self) -> bool:
        return self.kind != "DATABASE"

    def answer(self, session: SqlSession) -> ResultSet:
        tables = session.server.tables
        if self.kind == "DATABASE":
            columns = [Column.text("Database", 64), Column.text("Create Database", 1024)]
            little_tables.require_database(session, self.name)
            unless = "/*!32312 IF NOT EXISTS*/ " if self.is_unless else ""
            if self.name in tables.databases:
                held = tables.databases[self.name].database
                text = create_database_text(held, shown=True, unless=unless)
                return ResultSet(columns, [(self.name, text)])
            if self.name.lower() not in SCHEMAS:
                raise UnknownDatabase(self.name)
            charset = "/*!40100 DEFAULT CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci */"
            name = self.name.lower()
            return ResultSet(columns, [(name, f"CREATE DATABASE {unless}`{name}` {charset}")])
        if self.kind in ("PROCEDURE", "FUNCTION"):
            raise UnknownRoutine(self.kind, self.name)
        database = self.schema or session.database.decode("utf-8", "replace")
        if not database:
            raise NoDatabaseSelected()
        if database in tables.databases:
            session.reading(False)  # as above
            table = little_tables.held_table(session, database, self.name, is_read=True)
            if self.kind == "VIEW":
                raise WrongObject(database, table.name, "VIEW")
            text = create_text(
                table.definition,
                next_number=tables.peek_number(table),
                is_temporary=table.is_temporary,
            )
            columns = [Column.text("Table", 64), Column.text("Create Table", 1024)]
            return ResultSet(columns, [(table.name, text)])
        if database.lower() not in SCHEMAS:
            raise NoSuchTable(database, self.name)
        found = little_tables.definition(session, database, self.name, "SHOW CREATE")
        if self.kind == "VIEW" or found.schema == MYSQL:
            raise NotSupportedYet(f"SHOW CREATE {self.kind} of {found.name}: use DESCRIBE")
        columns = [Column.text("Table", 64), Column.text("Create Table", 1024)]
        return ResultSet(columns, [(found.name, found.created)])


@dataclass(frozen=True, slots=True)
class ChecksumTable(Statement):
    """CHECKSUM TABLE of tables that are here: as MariaDB computes it. NULL for one that there is not."""

    syntax = ""
    com = "checksum"
    needs = ANYBODY
    uses_tables = True

    names: tuple[tuple[str | None, str], ...]

    def answer(self, session: SqlSession) -> Work:
        found = _looked_up(session, self.names, "CHECKSUM TABLE")
        for _, table in found:
            if isinstance(table, ServerError):
                session.warn(table)
        reading: Reading | None
        try:
            reading = session.reading(True)
        except ServerError as error:
            if error.kind is not XaWrongState:
                raise
            session.warn(error)
            found, reading = [(name, error) for name, _ in found], None

        def run() -> ResultSet:
            columns = [
                Column.text("Table", 129),
                Column.binary("Checksum", ColumnType.LONGLONG, 21),
            ]
            rows: list[Row] = []
            try:
                for shown, table in found:
                    if isinstance(table, ServerError) or reading is None:
                        rows.append((shown, None))
                        continue
                    rows.append((shown, checksum(table, (row for _, row in reading.scan(table)))))
            finally:
                if reading is not None:
                    reading.close()
            return ResultSet(columns, rows)

        return Work(run)


@dataclass(frozen=True, slots=True)
class CheckTable(Statement):
    """CHECK TABLE of tables that are here: each row is read, stands under its own key, and has its entries in unique
    keys, which have no others."""

    syntax = ""
    com = "check"
    needs = ANYBODY
    commits = True
    uses_tables = True

    names: tuple[tuple[str | None, str], ...]

    def answer(self, session: SqlSession) -> Work:
        found = _looked_up(session, self.names, "CHECK TABLE")
        reading = session.reading(False)

        def run() -> ResultSet:
            rows: list[Row] = []
            try:
                for shown, table in found:
                    if isinstance(table, ServerError):
                        rows += failed_rows(shown, "check", table)
                    elif is_intact(table, reading):
                        rows.append((shown, "check", "status", "OK"))
                    else:
                        rows.append((shown, "check", "error", "Corrupt"))
            finally:
                reading.close()
            return done_rows(rows)

        return Work(run)


def failed_rows(shown: str, verb: str, error: ServerError) -> list[Row]:
    """The rows of CHECK TABLE and its kin for a table that it did nothing to."""
    return [(shown, verb, "Error", error.message), (shown, verb, "status", "Operation failed")]


def done_rows(rows: list[Row]) -> ResultSet:
    """The result of CHECK TABLE, ANALYZE TABLE, OPTIMIZE TABLE, REPAIR TABLE."""
    columns = [
        Column.text("Table", 128, null=True),
        Column.text("Op", 10, null=True),
        Column.text("Msg_type", 10, null=True),
        Column.text("Msg_text", 393216, kind=ColumnType.MEDIUM_BLOB, null=True),
    ]
    return ResultSet(columns, rows)


def _looked_up(
    session: SqlSession, names: Sequence[tuple[str | None, str]], what: str
) -> list[tuple[str, HeldTable | ServerError]]:
    """Each of these tables with its shown name; 1146 in the place of one that there is not."""
    found: list[tuple[str, HeldTable | ServerError]] = []
    for schema, name in names:
        database = schema or session.database.decode("utf-8", "replace")
        if not database:
            raise NoDatabaseSelected()
        if database not in session.server.tables.databases:
            raise little_tables.no_tables(what)
        table: HeldTable | ServerError
        try:
            table = little_tables.held_table(session, database, name, is_read=True)
        except ServerError as error:
            if error.kind is not NoSuchTable:
                raise
            table = error
        found.append((f"{database}.{name}", table))
    return found


@dataclass(frozen=True, slots=True)
class ShowOpenTables(Statement):
    """SHOW OPEN TABLES: none is open."""

    syntax = ""
    needs = ANYBODY
    com = "show_open_tables"
    uses_tables = True

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [
            Column.text("Database", 64),
            Column.text("Table", 64),
            Column.binary("In_use", ColumnType.LONGLONG, 1),
            Column.binary("Name_locked", ColumnType.LONGLONG, 4),
        ]
        columns = [column.of_table("OPEN_TABLES") for column in columns]
        return ResultSet(columns, [])


@dataclass(frozen=True, slots=True)
class ShowEngine(Statement):
    """SHOW ENGINE INNODB STATUS, MUTEX: of the binlog's engine; 1286 for any other."""

    syntax = ""
    needs = LOOK_AT_OTHERS

    engine: str
    what: str

    @property
    def counted_as(self) -> str:
        return f"show_engine_{self.what.lower()}"

    def answer(self, session: SqlSession) -> ResultSet:
        if self.engine.upper() != "INNODB":
            raise UnknownStorageEngine(self.engine)
        columns = [Column.text("Type", 10), Column.text("Name", 512), Column.text("Status", 10)]
        counters = session.server.engine.counters()
        lines = [f"{name}: {value}" for name, value in counters.items()]
        text = "\n".join([*lines, *_transactions(session.server.tables)])
        return ResultSet(columns, [("InnoDB", "", text)] if self.what == "STATUS" else [])


def _transactions(tables: HeldTables) -> Iterator[str]:
    """A line or two for each transaction on tables."""
    found = tables.transactions()
    yield from ("------------", "TRANSACTIONS", "------------")
    for trx in found[:_TRANSACTIONS_SHOWN]:
        prepared = " (PREPARED)" if trx.xid is not None else ""
        yield f"---TRANSACTION {trx.id}, ACTIVE{prepared}{' recovered trx' * trx.is_recovered}"
        yield f"{'ROLLING BACK, ' * trx.is_undoing}undo log entries {trx.changes}"
    if len(found) > _TRANSACTIONS_SHOWN:
        yield f"and {len(found) - _TRANSACTIONS_SHOWN} more"


def shown(
    text: str, refusal: SqlSyntaxError, parsed: Callable[[str], Statement]
) -> Statement | None:
    """The SHOW or DESCRIBE that a text is; None if it is none of these.

    Args:
        refusal: the error of the grammar for it.
        parsed: gives what the grammar makes of a text.
    """
    where = _WHERE.match(text)
    if where is not None:
        condition = text[where.end() :].rstrip("; \n")
        question = f"SELECT * FROM {_SHOWN} WHERE ({condition})"
        show = parsed(where[1])
        assert isinstance(show, Filterable)
        return ShowWhere(question, refusal, show=show)
    found = tokens(text, ansi_quotes=False, is_logged=False)
    reader = TokenReader([t for t in found if not t.is_semicolon], "")
    try:
        if reader.accept("SHOW"):
            return _show(reader, text)
        if reader.accept("CHECKSUM"):
            return _checksum(reader)
        if reader.accept("CHECK", "TABLE") or reader.accept("CHECK", "TABLES"):
            return _check(reader, _WAYS_TO_CHECK)
        if reader.accept("CHECK", "VIEW"):  # MariaDB takes tables there, too
            return _check(reader, ())
        if reader.accept("DESCRIBE") or reader.accept("DESC") or reader.accept("EXPLAIN"):
            return _describe(reader)
    except NotUnderstood:
        return None
    return None


_WHERE: Final = compiled_later(
    r"(\s*SHOW\s+(?:(?:GLOBAL|SESSION|LOCAL)\s+)?(?:VARIABLES|STATUS|DATABASES|SCHEMAS)\s+)WHERE\b",
    re.IGNORECASE,
)


def _checksum(reader: TokenReader) -> Statement:
    if not reader.accept("TABLE"):
        reader.accept("TABLES")
    names = _table_names(reader)
    reader.accept("EXTENDED")
    if not reader.is_at_end():
        raise NotUnderstood(reader.shown())
    return ChecksumTable(names)


def _check(reader: TokenReader, ways: Sequence[str]) -> Statement:
    names = _table_names(reader)
    while not reader.is_at_end():
        if not reader.accept("FOR", "UPGRADE") and reader.word() not in ways:
            raise NotUnderstood(reader.shown())
        reader.at += reader.word() in ways
    return CheckTable(names)


_WAYS_TO_CHECK: Final = ("QUICK", "FAST", "MEDIUM", "EXTENDED", "CHANGED")  # all rows are read


def _table_names(reader: TokenReader) -> tuple[tuple[str | None, str], ...]:
    names: list[tuple[str | None, str]] = []
    while True:
        first = reader.identifier()
        names.append((first, reader.identifier()) if reader.sign(".") else (None, first))
        if not reader.sign(","):
            return tuple(names)


def _show(reader: TokenReader, text: str) -> Statement | None:
    if reader.accept("CREATE"):
        return _show_create(reader)
    if reader.accept("ENGINE"):
        return _show_engine(reader)
    is_full = reader.accept("FULL")
    if reader.accept("OPEN", "TABLES"):
        _database(reader)
        _filter(reader, text, (("Table", "Table"),))
        return ShowOpenTables()
    if _accepted(reader, "COLUMNS"):
        return _show_columns(reader, text, is_full=is_full)
    if _accepted(reader, "TABLES"):
        return _show_tables(reader, text, is_full=is_full)
    if is_full:
        return None
    if _accepted(reader, "INDEX"):
        schema, base = _table(reader)
        condition = f"TABLE_SCHEMA={_schema(schema)} AND TABLE_NAME={_quoted(base)}"
        return _of(
            _INDEX, "STATISTICS", condition, _filter(reader, text, ()), "SHOW INDEX", schema, base
        )
    for words, one in _OF_THE_SERVER.items():
        if _accepted(reader, *words):
            what = "SHOW " + " ".join(words)
            if reader.accept("SONAME"):
                reader.at += 1
                return _of(one.items, "ALL_PLUGINS", "1=0", "", what)
            having = _filter(reader, text, one.items)
            return _of(one.items, one.table, one.condition, having, what)
    for words, one in _OF_A_DATABASE.items():
        if _accepted(reader, *words):
            schema = _database(reader)
            condition = f"{one.schema}={_schema(schema)}"
            what = "SHOW " + " ".join(words)
            made = _of(
                one.items, one.table, condition, _filter(reader, text, one.items), what, schema
            )
            return _about_database(made)
    return None


def _about_database(made: ShowOfTables) -> ShowOfTables:
    return ShowOfTables(
        made.text, what=made.what, schema=made.schema, base=made.base, is_of_database=True
    )


def _show_columns(reader: TokenReader, text: str, *, is_full: bool) -> ShowOfTables:
    schema, base = _table(reader)
    items = _FULL_COLUMNS if is_full else _COLUMNS
    return _columns_of(items, schema, base, _filter(reader, text, items))


def _columns_of(items: Items, schema: str | None, base: str, having: str) -> ShowOfTables:
    condition = f"TABLE_SCHEMA={_schema(schema)} AND TABLE_NAME={_quoted(base)}"
    return _of(items, "COLUMNS", condition, having, _COLUMNS_OF, schema, base)


def _show_tables(reader: TokenReader, text: str, *, is_full: bool) -> ShowOfTables:
    schema = _database(reader)
    # WHERE calls the column by a name that has the database in it, which may not be known yet.
    label = next((t.text for t in reader.tokens[reader.at :] if _is_label(t)), _LABEL)
    items = (("TABLE_NAME", label), *([("TABLE_TYPE", "Table_type")] if is_full else []))
    at = reader.at
    pattern = _text_of(reader) if reader.accept("LIKE") else None
    reader.at = at
    having = _filter(reader, text, items)
    condition = f"TABLE_SCHEMA={_schema(schema)}"
    made = _of(items, "TABLES", condition, having, _TABLES_OF, schema)
    return replace(_about_database(made), label=label, pattern=pattern)


def _is_label(token: Token) -> bool:
    is_name = token.kind in (TokenKind.WORD, TokenKind.QUOTED)
    return is_name and token.text.lower().startswith(_LABEL.lower())


def _show_create(reader: TokenReader) -> Statement | None:
    kind = reader.word()
    reader.at += 1
    kind = "DATABASE" if kind == "SCHEMA" else kind
    if kind not in ("DATABASE", "TABLE", "VIEW", "PROCEDURE", "FUNCTION"):
        return None
    is_unless = reader.accept("IF", "NOT", "EXISTS")
    name = reader.identifier()
    if kind != "DATABASE" and reader.sign("."):
        return ShowCreate(kind, name, reader.identifier())
    return ShowCreate(kind, None, name, is_unless)


def _show_engine(reader: TokenReader) -> Statement | None:
    name = reader.identifier()
    what = reader.word()
    return ShowEngine(name, what) if what in ("STATUS", "MUTEX", "LOGS") else None


def _describe(reader: TokenReader) -> ShowOfTables | None:
    token = reader.token()
    if token is None or (token.kind is TokenKind.WORD and reader.word() in _EXPLAINED):
        return None
    first = reader.identifier()
    schema, base = (first, reader.identifier()) if reader.sign(".") else (None, first)
    having = ""
    token = reader.token()
    if token is not None:
        pattern = _text_of(reader)
        having = f" HAVING Field LIKE {_quoted(pattern)}"
    if not reader.is_at_end():
        return None
    return _columns_of(_COLUMNS, schema, base, having)


_EXPLAINED: Final = frozenset(
    {
        *("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "FORMAT", "EXTENDED", "PARTITIONS"),
        *("FOR", "WITH", "PURGE", "GTID"),
    }
)


def _of(
    items: Items,
    table: str,
    condition: str,
    having: str,
    what: str,
    schema: str | None = None,
    base: str | None = None,
) -> ShowOfTables:
    where = f" WHERE {condition}" if condition else ""
    chosen = ", ".join(f"{column} AS {_name(label)}" for column, label in items)
    text = f"SELECT {chosen} FROM information_schema.{table}{where}{having}"
    return ShowOfTables(text, what=what, schema=schema, base=base)


def _filter(reader: TokenReader, text: str, items: Items) -> str:
    """LIKE or WHERE as a HAVING. Raises `NotUnderstood` for anything else."""
    if reader.is_at_end():
        return ""
    if items and reader.accept("LIKE"):
        pattern = _text_of(reader)
        if not reader.is_at_end():
            raise NotUnderstood("more behind LIKE")
        _, first = items[0]
        return f" HAVING {_name(first)} LIKE {_quoted(pattern)}"
    begin = reader.tokens[reader.at].end
    if reader.accept("WHERE"):
        return f" HAVING {text[begin:].rstrip().rstrip(';')}"
    raise NotUnderstood(reader.shown())


def _text_of(reader: TokenReader) -> str:
    token = reader.token()
    if token is None or token.kind is TokenKind.SIGN:
        raise NotUnderstood(reader.shown())
    reader.at += 1
    return unquote(token.text) if token.kind is TokenKind.STRING else token.text


def _table(reader: TokenReader) -> tuple[str | None, str]:
    """FROM t [FROM d], FROM d.t"""
    if not (reader.accept("FROM") or reader.accept("IN")):
        raise NotUnderstood(reader.shown())
    first = reader.identifier()
    if reader.sign("."):
        return first, reader.identifier()
    return _database(reader), first


def _database(reader: TokenReader) -> str | None:
    """[FROM d]"""
    return reader.identifier() if reader.accept("FROM") or reader.accept("IN") else None


def _accepted(reader: TokenReader, *words: str) -> bool:
    if reader.accept(*words):
        return True
    return any(others == words and reader.accept(word) for word, others in _OTHER_WORDS.items())


def _schema(schema: str | None) -> str:
    return "DATABASE()" if schema is None else _quoted(schema)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _name(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"
