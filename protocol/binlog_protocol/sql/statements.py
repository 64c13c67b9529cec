"""The tables of a statement in the log: those that it makes, changes, empties, or writes rows to.

Only names are looked for. What is not understood is said to be uncertain, so that its reader can be careful.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.sql.token_reader import ALL, NotUnderstood, TableName, TokenReader
from binlog_protocol.sql.tokens import tokens

__all__ = ["ALL", "StatementMeaning", "TableName", "parse_statement", "written_tables"]

_DDL: Final = {
    "CREATE": "create",
    "ALTER": "alter",
    "DROP": "drop",
    "RENAME": "rename",
    "TRUNCATE": "truncate",
}
_BEGINNING: Final = 16  # tokens
_DML: Final = frozenset((
    "INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "SELECT", "DO", "CALL", "WITH", "VALUES",
))  # fmt: skip
_TRANSACTION: Final = frozenset((
    "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "START",
))  # fmt: skip
_HARMLESS: Final = frozenset((
    "GRANT", "REVOKE", "FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "CACHE",
    "SET", "INSTALL", "UNINSTALL", "RESET", "PURGE", "KILL", "CHANGE", "BINLOG", "USE",
))  # fmt: skip
_OF_ANALYZE: Final = ("TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG")
_WITHOUT_TABLES: Final = frozenset((
    "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "SERVER", "USER", "ROLE",
    "TABLESPACE", "LOGFILE",
))  # fmt: skip
_WITH_TABLES: Final = frozenset((
    "TABLE", "TABLES", "SEQUENCE", "INDEX", "DATABASE", "SCHEMA",
))  # fmt: skip
_MODIFIERS: Final = frozenset((
    "TEMPORARY", "ONLINE", "OFFLINE", "IGNORE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR",
    "AGGREGATE", "SQL", "UNDEFINED", "MERGE", "TEMPTABLE",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class StatementMeaning:
    """The kind of a statement, and the tables that it concerns.

    kind: create, alter, drop, rename, truncate; dml for what writes rows that are not logged as such; rollback for what
        takes back rows that were logged; other.
    affected: tables that it makes, changes or removes; temporary tables do not count.
    emptied: those of them that have no rows behind it, whatever they had.
    views: views that it makes, changes or removes: no tables, and without rows.
    is_certain: whether those are all.
    writes_rows: whether rows come from it that are not logged as rows.
    """

    kind: str
    affected: tuple[TableName, ...] = ()
    emptied: tuple[TableName, ...] = ()
    views: tuple[TableName, ...] = ()
    is_certain: bool = True
    writes_rows: bool = False


def parse_statement(
    sql: str, database: str, *, backslash_escapes: bool = True, ansi_quotes: bool | None = None
) -> StatementMeaning:
    """`database` is the one in use; the others as of `tokens`. Never raises."""
    rest = tokens(sql, backslash_escapes=backslash_escapes, ansi_quotes=ansi_quotes)
    found = [*islice(rest, _BEGINNING)]
    first = found[0].text.upper() if found else ""
    if first in _DDL or first == "SET":
        found += rest  # of what writes rows the beginning will do, and it may be long
    try:
        statement = _Parser(found, database).statement()
    except NotUnderstood:
        return StatementMeaning(_DDL.get(first, "other"), is_certain=False)
    if found[-1].is_unended:  # in another mode it may end, and names be behind it
        return replace(statement, is_certain=False)
    return statement


_OPERATIONS: Final = {
    "INSERT": "insert", "REPLACE": "insert", "LOAD": "insert", "UPDATE": "update", "DELETE": "delete",
}  # fmt: skip
_BEFORE_NAMES: Final = {
    "insert": frozenset(("INSERT", "REPLACE", "INTO", "TABLE")),
    "update": frozenset(("UPDATE", "JOIN")),
    "delete": frozenset(("DELETE", "FROM", "JOIN", "USING")),
}
_BEHIND_NAMES: Final = {"insert": "(", "update": "SET", "delete": "WHERE"}
_PRIORITY: Final = frozenset((
    "LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "IGNORE", "QUICK", "HISTORY", "INTO", "FROM", "TABLE", "STRAIGHT_JOIN",
))  # fmt: skip
_NAMED_TOKENS: Final = 64


def written_tables(sql: str, database: str) -> tuple[str, tuple[TableName, ...] | None]:
    """The operation of a statement that writes rows (insert, update, delete, other), and the tables that it may write;
    None: any. Never raises.
    """
    reader = _Written([*islice(tokens(sql), _NAMED_TOKENS)], database)
    try:
        if reader.accept("SET", "STATEMENT"):
            reader.skip_to("FOR")
        operation = _OPERATIONS.get(reader.word(), "other")
        return operation, reader.names(operation) if operation in _BEFORE_NAMES else None
    except NotUnderstood:
        return "other", None


class _Written(TokenReader):
    """The names in front of which a statement says that they are those of tables that it writes."""

    def names(self, operation: str) -> tuple[TableName, ...] | None:
        found: list[TableName] = []
        before, behind = _BEFORE_NAMES[operation], _BEHIND_NAMES[operation]
        while not (self.is_at_end() or self.word() == behind or self.is_sign(behind)):
            word = self.word()
            is_list = bool(found) and self.is_sign(",")
            self.at += 1
            if word not in before and not is_list:
                continue
            while self.word() in _PRIORITY:
                self.at += 1
            if self.is_sign("("):
                return None
            found.append(self.name())
            if operation == "insert":
                break
        if self.at >= _NAMED_TOKENS:
            return None  # there is more
        return tuple(found) or None


class _Parser(TokenReader):
    """Goes through the tokens of a statement."""

    def statement(self) -> StatementMeaning:
        if self.accept("SET", "STATEMENT"):
            self.skip_to("FOR")
        while self.sign("("):
            pass
        word = self.word()
        self.at += 1
        if word in _DML or (word == "BEGIN" and self.word() == "NOT"):
            return StatementMeaning("dml", writes_rows=True)
        if word == "ANALYZE" and self.word() not in _OF_ANALYZE:  # ANALYZE FORMAT=JSON DELETE ...
            return StatementMeaning("dml", writes_rows=True)
        if word in _TRANSACTION or word == "BEGIN":
            takes_back = word == "ROLLBACK" or (word == "XA" and self.word() == "ROLLBACK")
            return StatementMeaning("rollback" if takes_back else "other")
        if word in _HARMLESS:
            return StatementMeaning("other")
        readers = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "DROP": self._drop,
            "RENAME": self._rename,
            "TRUNCATE": self._truncate,
        }
        if word not in readers:
            raise NotUnderstood
        return readers[word]()

    def _create(self) -> StatementMeaning:
        replaces = self.accept("OR", "REPLACE")
        kind, temporary = self._object()
        self.accept("IF", "NOT", "EXISTS")
        match kind:
            case "TABLE":
                name = self.name()
                writes = self._selects()
                if temporary:
                    return StatementMeaning("create")
                return StatementMeaning(
                    "create", (name,), (name,) if replaces else (), writes_rows=writes
                )
            case "SEQUENCE":
                name = self.name()
                return StatementMeaning("create", (name,), (name,) if replaces else ())
            case "INDEX":
                self.skip_to("ON")
                return StatementMeaning("create", (self.name(),))
            case "DATABASE" | "SCHEMA":
                name = TableName(self.identifier(), ALL)
                return StatementMeaning("create", (name,), (name,) if replaces else ())
            case "VIEW":
                return StatementMeaning("create", views=(self.name(),))
        return StatementMeaning("create")

    def _alter(self) -> StatementMeaning:
        kind, _ = self._object()
        self.accept("IF", "EXISTS")
        match kind:
            case "TABLE":
                return StatementMeaning("alter", (self.name(), *self._other_tables()))
            case "SEQUENCE":
                return StatementMeaning("alter", (self.name(),))
            case "VIEW":
                return StatementMeaning("alter", views=(self.name(),))
        return StatementMeaning(
            "alter"
        )  # of a database: what new tables get, not those that there are

    def _drop(self) -> StatementMeaning:
        kind, temporary = self._object()
        if kind == "INDEX":
            self.skip_to("ON")
            return StatementMeaning("drop", (self.name(),))
        self.accept("IF", "EXISTS")
        if temporary:
            return StatementMeaning("drop")
        if kind in ("TABLE", "TABLES", "SEQUENCE", "VIEW"):
            names = [self.name()]
            while self.sign(","):
                names.append(self.name())
            if kind == "VIEW":
                return StatementMeaning("drop", views=tuple(names))
            return StatementMeaning("drop", tuple(names), tuple(names))
        if kind in ("DATABASE", "SCHEMA"):
            name = TableName(self.identifier(), ALL)
            return StatementMeaning("drop", (name,), (name,))
        return StatementMeaning("drop")

    def _rename(self) -> StatementMeaning:
        kind, _ = self._object()
        if kind not in ("TABLE", "TABLES"):
            return StatementMeaning("rename")
        self.accept("IF", "EXISTS")
        names: list[TableName] = []
        while True:
            names.append(self.name())
            self.skip_to("TO")
            names.append(self.name())
            if not self.sign(","):
                return StatementMeaning("rename", tuple(names))

    def _truncate(self) -> StatementMeaning:
        self.accept("TABLE")
        name = self.name()
        return StatementMeaning("truncate", (name,), (name,))

    def _object(self) -> tuple[str, bool]:
        """The kind of object that the statement is about, and whether it is temporary. Raises `NotUnderstood`."""
        temporary = False
        while True:
            word = self.word()
            self.at += 1
            if word in ("ALGORITHM", "DEFINER"):
                self._skip_value()
            elif word == "SECURITY":
                self.at += 1  # DEFINER, INVOKER
            elif word in _MODIFIERS:
                temporary = temporary or word == "TEMPORARY"
            elif word in _WITHOUT_TABLES or word in _WITH_TABLES:
                return word, temporary
            else:
                raise NotUnderstood

    def _skip_value(self) -> None:
        """= value, = user@host, = CURRENT_USER()"""
        self.sign("=")
        self.at += 1
        if self.sign("@"):
            self.at += 1
        if self.sign("("):
            self.sign(")")

    def _other_tables(self) -> list[TableName]:
        """Other tables of an ALTER TABLE: its new name, partitions that become tables, or come from them."""
        names = []
        while self.at < len(self.tokens):
            if self.accept("RENAME"):
                if self.word() in ("COLUMN", "INDEX", "KEY", "CONSTRAINT"):
                    continue
                if not (self.accept("TO") or self.accept("AS")):
                    self.sign("=")
                names.append(self.name())
            elif (
                self.accept("WITH", "TABLE")
                or self.accept("CONVERT", "TABLE")
                or self.accept("TO", "TABLE")
            ):
                names.append(self.name())
            else:
                self.at += 1
        return names

    def _selects(self) -> bool:
        """Whether rows of a query go into a table that is made. A server that logs rows leaves the query out."""
        depth = 0
        while self.at < len(self.tokens):
            depth += self.is_sign("(") - self.is_sign(")")
            if self.word() == "SELECT" or (depth == 0 and self.word() == "VALUES"):
                return True
            if depth == 0 and self.accept("AS"):  # deeper it is that of a computed column
                while self.sign("("):
                    depth += 1
                if self.word() in _DML:
                    return True
            else:
                self.at += 1
        return False
