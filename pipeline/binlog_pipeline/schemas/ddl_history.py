"""The layouts that tables had, from the statements of a log in their order.

A table is known from its CREATE TABLE on. What is not understood of a statement makes the tables that it is about
unknown, until they are created again; then nothing is said of what was before either, as rows of that time cannot be
told from others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from binlog_protocol.sql.token_reader import NotUnderstood, TableName

from binlog_pipeline.schemas.ddl_alter import AlterReader
from binlog_pipeline.schemas.ddl_catalog import DdlCatalog
from binlog_pipeline.schemas.ddl_columns import Elements
from binlog_pipeline.schemas.ddl_options import Options
from binlog_pipeline.schemas.ddl_tables import TableLayout
from binlog_pipeline.schemas.default_charsets import note_database
from binlog_pipeline.schemas.logged_statements import LoggedStatement

_NO_CHARACTER: Final = "\ufffd"
_INDEXES: Final = frozenset(("INDEX", "FULLTEXT", "SPATIAL", "VECTOR"))
_KINDS: Final = frozenset(("create", "alter", "drop", "rename"))


def apply(catalog: DdlCatalog, statement: LoggedStatement, gtid: str) -> None:
    """Apply the next statement of the log to the catalog. Never raises."""
    meaning = statement.meaning
    if meaning.kind not in _KINDS and meaning.is_certain:
        return
    try:
        if not meaning.is_certain:
            raise NotUnderstood("a statement that may concern any table")
        _Statement(catalog, statement, gtid).apply()
    except NotUnderstood as error:
        why = f"{gtid}: {error}"
        if not meaning.is_certain:
            catalog.forget_all(why)
        for name in meaning.affected:
            catalog.forget(name, why)


class _Statement:
    """One statement, and what it is applied to."""

    def __init__(self, catalog: DdlCatalog, statement: LoggedStatement, gtid: str) -> None:
        self._catalog: Final = catalog
        self._said: Final = statement
        self._gtid: Final = gtid
        self._reader: Final = AlterReader(
            statement.tokens(), statement.database, statement.sql_mode, statement.literal_charset
        )

    def apply(self) -> None:
        """Raises `NotUnderstood`."""
        if _NO_CHARACTER in self._said.sql:
            raise NotUnderstood("text that is not valid in its character set")
        if self._said.has_failed:
            self._apply_failed()
            return
        reader = self._reader
        if reader.accept("SET", "STATEMENT"):
            reader.skip_to("FOR")
        reader.at += 1  # CREATE, ALTER, DROP, RENAME
        match self._said.meaning.kind:
            case "create":
                self._create()
            case "alter":
                self._alter()
            case "drop":
                self._drop()
            case _:
                self._rename()

    def _apply_failed(self) -> None:
        """Apply a CREATE OR REPLACE or DROP that failed: each of its tables was dropped, or was not there."""
        if self._said.meaning.kind not in ("create", "drop"):
            raise NotUnderstood("a statement that failed")
        for name in self._said.meaning.emptied:
            self._catalog.is_gone(name)

    def _create(self) -> None:
        reader = self._reader
        reader.accept("OR", "REPLACE")
        if reader.accept("DATABASE") or reader.accept("SCHEMA"):
            self._create_database()
        elif reader.accept("TABLE"):
            self._create_table()
        elif reader.accept("TEMPORARY", "TABLE"):
            reader.accept("IF", "NOT", "EXISTS")
            self._catalog.temporary.add(reader.name())
        elif reader.word() == "UNIQUE":
            self._create_index()
        elif self._said.meaning.affected and reader.word() not in _INDEXES:
            raise NotUnderstood(f"CREATE {reader.word()}")

    def _create_database(self) -> None:
        for one in self._said.meaning.emptied:
            self._catalog.is_gone(one)
        note_database(self._said, self._catalog.charsets)

    def _create_table(self) -> None:
        reader, catalog = self._reader, self._catalog
        if_exists = reader.accept("IF", "NOT", "EXISTS")
        name = reader.name()
        in_brackets = reader.sign("(")
        if reader.accept("LIKE"):
            self._refuse_temporary()
            layout = catalog.layout(reader.name())
            if in_brackets:
                reader.expect(")")
            if not reader.is_at_end():
                raise NotUnderstood(f"{reader.shown()} behind LIKE")
        elif in_brackets:
            self._said.require_own_types()
            elements, options = Elements(), Options()
            reader.elements(elements)
            reader.options(options)
            layout = TableLayout.made(elements, options, catalog.charsets.get(name.database))
        else:
            raise NotUnderstood("columns that come from a query")
        # Servers log IF NOT EXISTS only where there was no such table.
        if if_exists and catalog.has(name) and not catalog.layout(name).same_columns(layout):
            raise NotUnderstood("CREATE TABLE IF NOT EXISTS of a table with other columns")
        catalog.is_now(name, layout, self._gtid)

    def _create_index(self) -> None:
        """Apply CREATE INDEX: a unique key may bring a hidden column."""
        reader = self._reader
        begin = reader.at
        reader.skip_to("ON")
        end = reader.at - 1
        name = reader.name()
        layout = self._catalog.layout(name)
        self._refuse_temporary()
        found = [*reader.tokens[begin:end], *reader.tokens[reader.at :]]
        key = AlterReader(found, "", 0).key()
        if key is not None:
            self._catalog.is_now(name, layout.with_index(key), self._gtid)

    def _alter(self) -> None:
        reader = self._reader
        reader.accept("ONLINE")
        reader.accept("IGNORE")
        if reader.accept("DATABASE") or reader.accept("SCHEMA"):
            note_database(self._said, self._catalog.charsets)
        elif reader.accept("TABLE"):
            self._alter_table()
        elif self._said.meaning.affected:
            raise NotUnderstood(f"ALTER {reader.word()}")

    def _alter_table(self) -> None:
        reader, catalog = self._reader, self._catalog
        reader.accept("IF", "EXISTS")
        name = reader.name()
        layout = catalog.layout(name)
        self._refuse_temporary()
        self._said.require_own_types()
        wanted = reader.alteration()
        behind = wanted.applied(layout, catalog.charsets.get(name.database))
        catalog.is_gone(name)
        catalog.is_now(wanted.new_name or name, behind, self._gtid)

    def _drop(self) -> None:
        reader, catalog = self._reader, self._catalog
        if reader.accept("INDEX"):
            reader.accept("IF", "EXISTS")
            index = reader.identifier()
            reader.skip_to("ON")
            name = reader.name()
            layout = catalog.layout(name)
            self._refuse_temporary()
            if index.upper() == "PRIMARY":
                catalog.is_now(name, replace(layout, key=()), self._gtid)
            return
        for name in self._said.meaning.emptied:
            catalog.is_gone(name)

    def _rename(self) -> None:
        reader = self._reader
        if not (reader.accept("TABLE") or reader.accept("TABLES")):
            return
        reader.accept("IF", "EXISTS")
        self._refuse_temporary()
        moves: list[tuple[TableName, TableName]] = []
        while True:
            old = reader.name()
            reader.skip_to("TO")
            moves.append((old, reader.name()))
            if not reader.sign(","):
                break
        for old, new in moves:
            # It does not say whether the table is temporary; where rows are logged nothing else does either.
            if not self._catalog.has(new):
                self._catalog.moved(old, new, self._gtid)

    def _refuse_temporary(self) -> None:
        if self._said.may_be_temporary:
            raise NotUnderstood("a session that has temporary tables")
