"""What a statement in the log does to tables: which of them it makes, changes, empties, or writes rows to.

Only names are looked for. What is not understood is said to be uncertain, so that its reader can be careful.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from pipeline.schemas.sql_tokens import Token, TokenKind, tokens

ALL: Final = "*"
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
    "AGGREGATE", "SQL", "SECURITY", "INVOKER", "UNDEFINED", "MERGE", "TEMPTABLE",
))  # fmt: skip


class TableName(NamedTuple):
    """`table` is `*` for all tables of a database."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Statement:
    """What is known of a statement.

    kind: create, alter, drop, rename, truncate; dml for what writes rows that are not logged as such; rollback for what
        takes back rows that were logged; other.
    affected: tables that it makes, changes or removes; temporary tables do not count.
    emptied: those of them that have no rows behind it, whatever they had.
    is_certain: whether those are all.
    writes_rows: whether rows come from it that are not logged as rows.
    """

    kind: str
    affected: tuple[TableName, ...] = ()
    emptied: tuple[TableName, ...] = ()
    is_certain: bool = True
    writes_rows: bool = False


def parse_statement(sql: str, database: str, *, backslash_escapes: bool = True) -> Statement:
    """`database` is the one in use. Never raises."""
    rest = tokens(sql, backslash_escapes=backslash_escapes)
    found = [*islice(rest, _BEGINNING)]
    first = found[0].text.upper() if found else ""
    if first in _DDL or first == "SET":
        found += rest  # of what writes rows the beginning will do, and it may be long
    try:
        return _Parser(found, database).statement()
    except _Unknown:
        return Statement(_DDL.get(first, "other"), is_certain=False)


class _Unknown(Exception):
    """Something else stands where a name should."""


class _Parser:
    """Goes through the tokens of a statement."""

    def __init__(self, found: Sequence[Token], database: str) -> None:
        self._tokens: Final = found
        self._database: Final = database
        self._at = 0

    def statement(self) -> Statement:
        if self._accept("SET", "STATEMENT"):
            self._skip_to("FOR")
        while self._sign("("):
            pass
        word = self._word()
        self._at += 1
        if word in _DML or (word == "BEGIN" and self._word() == "NOT"):
            return Statement("dml", writes_rows=True)
        if word == "ANALYZE" and self._word() not in _OF_ANALYZE:  # ANALYZE FORMAT=JSON DELETE ...
            return Statement("dml", writes_rows=True)
        if word in _TRANSACTION or word == "BEGIN":
            takes_back = word == "ROLLBACK" or (word == "XA" and self._word() == "ROLLBACK")
            return Statement("rollback" if takes_back else "other")
        if word in _HARMLESS:
            return Statement("other")
        readers = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "DROP": self._drop,
            "RENAME": self._rename,
            "TRUNCATE": self._truncate,
        }
        if word not in readers:
            raise _Unknown
        return readers[word]()

    def _create(self) -> Statement:
        replaces = self._accept("OR", "REPLACE")
        kind, temporary = self._object()
        self._accept("IF", "NOT", "EXISTS")
        match kind:
            case "TABLE":
                name = self._name()
                writes = self._selects()
                if temporary:
                    return Statement("create")
                return Statement("create", (name,), (name,) if replaces else (), writes_rows=writes)
            case "SEQUENCE":
                name = self._name()
                return Statement("create", (name,), (name,) if replaces else ())
            case "INDEX":
                self._skip_to("ON")
                return Statement("create", (self._name(),))
            case "DATABASE" | "SCHEMA":
                name = TableName(self._identifier(), ALL)
                return Statement("create", (name,), (name,) if replaces else ())
        return Statement("create")

    def _alter(self) -> Statement:
        kind, _ = self._object()
        self._accept("IF", "EXISTS")
        match kind:
            case "TABLE":
                return Statement("alter", (self._name(), *self._other_tables()))
            case "SEQUENCE":
                return Statement("alter", (self._name(),))
            case "DATABASE" | "SCHEMA":
                return Statement("alter")  # what new tables get, not those that there are
        return Statement("alter")

    def _drop(self) -> Statement:
        kind, temporary = self._object()
        if kind == "INDEX":
            self._skip_to("ON")
            return Statement("drop", (self._name(),))
        self._accept("IF", "EXISTS")
        if temporary:
            return Statement("drop")
        if kind in ("TABLE", "TABLES", "SEQUENCE"):
            names = [self._name()]
            while self._sign(","):
                names.append(self._name())
            return Statement("drop", tuple(names), tuple(names))
        if kind in ("DATABASE", "SCHEMA"):
            name = TableName(self._identifier(), ALL)
            return Statement("drop", (name,), (name,))
        return Statement("drop")

    def _rename(self) -> Statement:
        kind, _ = self._object()
        if kind not in ("TABLE", "TABLES"):
            return Statement("rename")
        self._accept("IF", "EXISTS")
        names: list[TableName] = []
        while True:
            names.append(self._name())
            self._skip_to("TO")
            names.append(self._name())
            if not self._sign(","):
                return Statement("rename", tuple(names))

    def _truncate(self) -> Statement:
        self._accept("TABLE")
        name = self._name()
        return Statement("truncate", (name,), (name,))

    def _object(self) -> tuple[str, bool]:
        """What kind of thing the statement is about, and whether it is temporary."""
        temporary = False
        while True:
            word = self._word()
            self._at += 1
            if word in ("ALGORITHM", "DEFINER"):
                self._skip_value()
            elif word in _MODIFIERS:
                temporary = temporary or word == "TEMPORARY"
            elif word in _WITHOUT_TABLES or word in _WITH_TABLES:
                return word, temporary
            else:
                raise _Unknown

    def _skip_value(self) -> None:
        """= value, = user@host, = CURRENT_USER()"""
        self._sign("=")
        self._at += 1
        if self._sign("@"):
            self._at += 1
        if self._sign("("):
            self._sign(")")

    def _other_tables(self) -> list[TableName]:
        """That an ALTER TABLE names: its new name, partitions that become tables, or come from them."""
        names = []
        while self._at < len(self._tokens):
            if self._accept("RENAME"):
                if self._word() in ("COLUMN", "INDEX", "KEY", "CONSTRAINT"):
                    continue
                if not (self._accept("TO") or self._accept("AS")):
                    self._sign("=")
                names.append(self._name())
            elif (
                self._accept("WITH", "TABLE")
                or self._accept("CONVERT", "TABLE")
                or self._accept("TO", "TABLE")
            ):
                names.append(self._name())
            else:
                self._at += 1
        return names

    def _selects(self) -> bool:
        """Whether rows of a query go into a table that is made. A server that logs rows leaves the query out."""
        while self._at < len(self._tokens):
            if self._word() == "SELECT":
                return True
            if self._accept("AS"):
                while self._sign("("):
                    pass
                if self._word() in _DML:
                    return True
            self._at += 1
        return False

    def _name(self) -> TableName:
        first = self._identifier()
        if self._sign("."):
            return TableName(first, self._identifier())
        return TableName(self._database, first)

    def _identifier(self) -> str:
        token = self._token()
        if token is None or token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            raise _Unknown
        self._at += 1
        return token.text

    def _skip_to(self, word: str) -> None:
        """Behind the next such word."""
        while self._word() != word:
            if self._at >= len(self._tokens):
                raise _Unknown
            self._at += 1
        self._at += 1

    def _accept(self, *words: str) -> bool:
        """Goes over these words, if they are all there."""
        at = self._at
        for word in words:
            if self._word() != word:
                self._at = at
                return False
            self._at += 1
        return True

    def _sign(self, sign: str) -> bool:
        token = self._token()
        if token is None or token.kind is not TokenKind.SIGN or token.text != sign:
            return False
        self._at += 1
        return True

    def _word(self) -> str:
        """The word that is next, in capitals; empty if it is none."""
        token = self._token()
        return token.text.upper() if token is not None and token.kind is TokenKind.WORD else ""

    def _token(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None
