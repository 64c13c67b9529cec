"""The character set of columns that name none: that of their table, which took that of its database when it was made.

Rows of a log do not say it before one comes that has the column. Its statements do, as far as they are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.table_map import TableColumn
from binlog_protocol.sql.token_reader import ALL, NotUnderstood, TableName

from binlog_pipeline.schemas.ddl_alter import AlterReader, alteration_of
from binlog_pipeline.schemas.ddl_columns import Elements, lower
from binlog_pipeline.schemas.ddl_options import Options
from binlog_pipeline.schemas.ddl_tables import Alteration
from binlog_pipeline.schemas.logged_statements import LoggedStatement

_OF_DATABASES: Final = frozenset(("DEFAULT", "CHARACTER", "CHAR", "CHARSET", "COLLATE", "COMMENT"))
_DATABASES: Final = ("DATABASE", "SCHEMA")


@dataclass(frozen=True, slots=True)
class TableCharset:
    """What one table gives.

    charset: to new columns that name none; empty if it is not known.
    taken: columns that have it.
    """

    charset: str = ""
    taken: tuple[str, ...] = ()

    def behind(self, alteration: Alteration, of_database: str | None) -> TableCharset:
        """Behind an ALTER TABLE, and for the columns that it brings. `of_database`: what new tables get there."""
        options = alteration.options
        charset, taken = self.charset, self.taken
        if options.says_charset:
            charset = options.of(of_database) or ""
            taken = taken if alteration.converts else ()
        gone = {lower(name) for name in alteration.dropped}
        gone |= {lower(one.old) for one in alteration.changes if one.old is not None}
        renamed = {lower(old): new for old, new, _ in alteration.renamed}
        still = [renamed.get(lower(name), name) for name in taken if lower(name) not in gone]
        new = [
            one.definition.name
            for one in alteration.changes
            if not one.if_exists and one.definition.takes_charset
        ]
        return TableCharset(charset, tuple(dict.fromkeys((*still, *new))))

    def seen(self, columns: Mapping[str, TableColumn]) -> TableCharset:
        """As columns of a table map tell it, whatever statements did: one may not be in the log."""
        by_name = {lower(name): column for name, column in columns.items()}
        there = [by_name[lower(name)] for name in self.taken if lower(name) in by_name]
        told = [charset_of(one.collation) for one in there if one.collation is not None]
        return replace(self, charset=next(filter(None, told), self.charset))


_UNKNOWN: Final = TableCharset()


class DefaultCharsets:
    """Of all tables and databases, as the statements of a log tell it one after another.

    databases: what new tables get there; None or none if it is not known.
    """

    def __init__(self) -> None:
        self.databases: Final[dict[str, str | None]] = {}
        self._tables: Final[dict[TableName, TableCharset]] = {}

    def note(self, said: LoggedStatement) -> None:
        """The next statement of the log. Never raises."""
        meaning = said.meaning
        if not meaning.is_certain:
            self._tables.clear()
            self.databases.clear()
            return
        if meaning.kind not in ("create", "alter", "drop", "rename"):
            return
        made = self._behind(said, meaning.affected[0]) if meaning.affected else None
        if made is not None or meaning.kind in ("drop", "rename") or meaning.emptied:
            self._forget(meaning.affected)
        if made is not None:
            self._tables[meaning.affected[-1]] = made  # behind RENAME that has its new name
        note_database(said, self.databases)

    def told(self, said: LoggedStatement, name: TableName) -> TableCharset | None:
        """Of a table that a statement makes, or gives another one; None if it does neither. Never raises."""
        try:
            if said.meaning.kind == "alter" and not alteration_of(said).options.says_charset:
                return None
        except NotUnderstood:
            return _UNKNOWN
        return self._behind(said, name)

    def _behind(self, said: LoggedStatement, name: TableName) -> TableCharset | None:
        """Of a table behind a statement; None if that neither makes nor alters it."""
        if said.has_failed or name.table == ALL:
            return None
        try:
            match said.meaning.kind:
                case "create":
                    return self._made(said, name)
                case "alter":
                    found = alteration_of(said)
                    then = self._tables.get(name, _UNKNOWN)
                    return then.behind(found, self.databases.get(name.database))
        except NotUnderstood:
            return _UNKNOWN
        return None

    def _made(self, said: LoggedStatement, name: TableName) -> TableCharset | None:
        """Raises `NotUnderstood`."""
        reader = _reader(said)
        reader.accept("OR", "REPLACE")
        if not reader.accept("TABLE"):
            return None
        reader.accept("IF", "NOT", "EXISTS")
        reader.name()
        in_brackets = reader.sign("(")
        if reader.accept("LIKE"):
            return self._tables.get(reader.name(), _UNKNOWN)
        elements, options = Elements(), Options()
        if in_brackets:
            reader.elements(elements)
        reader.options(options)
        taken = tuple(one.name for one in elements.columns if one.takes_charset)
        return TableCharset(options.of(self.databases.get(name.database)) or "", taken)

    def _forget(self, names: Iterable[TableName]) -> None:
        for name in names:
            for one in [one for one in self._tables if name in (one, TableName(one.database, ALL))]:
                del self._tables[one]


def note_database(said: LoggedStatement, databases: dict[str, str | None]) -> None:
    """Bring what new tables get in each database behind the next statement of the log. Never raises."""
    kind = said.meaning.kind
    if kind not in ("create", "alter", "drop"):
        return
    reader = _reader(said)
    reader.accept("OR", "REPLACE")
    if reader.word() not in _DATABASES:
        return
    reader.at += 1
    is_checked = reader.accept("IF", "NOT", "EXISTS") or reader.accept("IF", "EXISTS")
    try:
        is_named = kind != "alter" or reader.word() not in _OF_DATABASES
        name = reader.identifier() if is_named else said.database
    except NotUnderstood:
        databases.clear()
        return
    if kind == "drop":
        databases.pop(name, None)
        return
    if kind == "create":
        if is_checked and name in databases:
            return
        databases[name] = None
    options = Options()
    try:
        reader.options(options)
    except NotUnderstood:  # tables of it may say themselves which character set they have
        databases[name] = None
        return
    if kind == "create":
        # IF NOT EXISTS is logged of databases that are there, too: such a one has what it had.
        databases[name] = None if is_checked else options.of(said.server_charset)
    elif options.says_charset:
        databases[name] = options.of(said.server_charset)


def _reader(said: LoggedStatement) -> AlterReader:
    """A reader behind the first word of a statement."""
    reader = AlterReader(said.tokens(), said.database, said.sql_mode, said.literal_charset)
    if reader.accept("SET", "STATEMENT"):
        reader.skip_to("FOR")
    reader.at += 1
    return reader
