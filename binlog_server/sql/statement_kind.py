"""Which statement it is, by its first key words: the one dispatch. The rest of a statement is not parsed here.

    DML       becomes a part of a transaction
    DDL       ends the open transaction, and is a group by itself
    others    transaction control, XA, USE, LOCK TABLES; and statements that this server answers (OTHER), by one of the
              grammars

Comments are skipped, also in front; the text inside /*! */ counts. Statements that replicas could not repeat are
refused.

A statement may be as long as a packet. Its first `HEAD_BYTES_MAX` bytes tell its kind; only `scan_steps` reads all of
it, in steps.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from functools import cache, lru_cache
from itertools import islice
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    NotSupportedYet,
    ServerError,
    SqlSyntaxError,
    TooManyPlaceholders,
)
from binlog_protocol.limits import PARAMETERS_MAX
from binlog_protocol.sql.token_reader import NotUnderstood, TokenReader
from binlog_protocol.sql.tokens import (
    BEGIN,
    COMMENT,
    DOUBLE,
    END,
    NAME,
    NOT_EXECUTED,
    SKIPPED,
    STRING,
    UNENDED_COMMENT,
    Token,
    TokenKind,
    first_words,
    tokens,
)

from binlog_server.accounts.privileges import BINLOG_REPLAY
from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.expressions import USER_VARIABLES_MAX
from binlog_server.sql.grammars import Grammar
from binlog_server.sql.parser import MAIN
from binlog_server.sql.replication_sql import REPLICATION
from binlog_server.sql.statement import ANYBODY


class Kind(Enum):
    """Kinds of statements, by how a session that commits treats them."""

    DML = auto()
    DDL = auto()
    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    SAVEPOINT = auto()
    ROLLBACK_TO = auto()
    RELEASE_SAVEPOINT = auto()
    USE = auto()
    LOCK_TABLES = auto()
    UNLOCK_TABLES = auto()
    XA = auto()
    NOTHING = auto()  # comments alone
    LOCKING_READ = auto()  # SELECT ... FOR UPDATE of a table here: `SessionTransaction.classified`
    OTHER = auto()

    @property
    def needs(self) -> tuple[str, ...]:
        """The privileges of which any one will do. A statement of kind OTHER says it itself."""
        return _NEEDS[self]


_NEEDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    **dict.fromkeys((Kind.DML, Kind.DDL, Kind.LOCK_TABLES), (BINLOG_REPLAY,)),
    **dict.fromkeys((Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK), ANYBODY),
    **dict.fromkeys((Kind.SAVEPOINT, Kind.ROLLBACK_TO, Kind.RELEASE_SAVEPOINT), ANYBODY),
    **dict.fromkeys((Kind.USE, Kind.UNLOCK_TABLES, Kind.XA, Kind.NOTHING, Kind.OTHER), ANYBODY),
    Kind.LOCKING_READ: ANYBODY,
}


class Classified(NamedTuple):
    """A statement by its first words. `text` is as MariaDB logs it: without the blanks and semicolons around it.

    `name` is that of the savepoint or database; for XA it is the text behind the two words. `words` are the first ones
    of DDL, and for XA what is to be done. `grammar` reads the statement, if it is not committed. `setting` is SET
    STATEMENT ... FOR in front of a statement that is committed: `text` has it, too, as replicas need it.

    `chain` and `release` are those of COMMIT and ROLLBACK; None: `completion_type` says it.
    """

    kind: Kind
    text: bytes
    name: bytes = b""
    read_only: bool = False  # START TRANSACTION READ ONLY
    read_write: bool = False  # START TRANSACTION READ WRITE
    snapshot: bool = False  # START TRANSACTION WITH CONSISTENT SNAPSHOT
    chain: bool | None = None  # COMMIT AND [NO] CHAIN
    release: bool | None = None  # COMMIT [NO] RELEASE
    words: Sequence[str] = ()
    setting: bytes = b""
    grammar: Grammar = MAIN

    @property
    def inner_head(self) -> bytes:
        """The first `HEAD_BYTES_MAX` bytes behind the setting: to copy all of it would hold the loop."""
        start = len(self.setting)
        return bytes(self.text[start : start + HEAD_BYTES_MAX])

    @property
    def counted_as(self) -> str:
        """The name of its counter in SHOW STATUS behind `Com_`; that of kind OTHER says it itself.

        Only the first words count: INSERT ... SELECT is an INSERT, and what changes several tables like what changes
        one.
        """
        if self.kind is Kind.DML:
            return self.words[0].lower()
        if self.kind is Kind.DDL:
            return _ddl_counted(self.text, self.words)
        if self.kind is Kind.XA:
            return f"xa_{self.words[0].lower()}"
        return _COUNTED.get(self.kind, "")


@dataclass(frozen=True, slots=True)
class Scan:
    """Findings of `scan_steps` outside of strings and comments.

    The user variables' names as written, the offset where a second statement begins, and the offsets of the places of
    parameters; whether it has RETURNING, where that was looked for. `edits` are bytes to change
    before the statement is logged, by offset: MariaDB turns an executable comment that its version skips into a plain
    one, so that no replica executes it.
    """

    variables: tuple[bytes, ...]
    second: int | None
    edits: Mapping[int, int] = field(default_factory=dict)
    parameters: array[int] = field(default_factory=lambda: array("I"))
    returns: bool = False  # RETURNING stands in it


_COUNTED: Final = {
    Kind.BEGIN: "begin",
    Kind.COMMIT: "commit",
    Kind.ROLLBACK: "rollback",
    Kind.SAVEPOINT: "savepoint",
    Kind.ROLLBACK_TO: "rollback_to_savepoint",
    Kind.RELEASE_SAVEPOINT: "release_savepoint",
    Kind.USE: "change_db",
    Kind.LOCK_TABLES: "lock_tables",
    Kind.UNLOCK_TABLES: "unlock_tables",
    Kind.NOTHING: "empty_query",
    Kind.LOCKING_READ: "select",
}
_VERBS_COUNTED: Final = {
    **{verb: verb.lower() for verb in ("TRUNCATE", "ANALYZE", "OPTIMIZE", "REPAIR", "GRANT")},
    "REVOKE": "revoke",
    "SET": "set_option",  # PASSWORD
}
_OBJECTS_COUNTED: Final = {
    **{
        what: what.lower()
        for what in (
            *("TABLE", "INDEX", "VIEW", "SEQUENCE", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT"),
            *("PACKAGE", "ROLE", "SERVER", "USER"),
        )
    },
    "DATABASE": "db",
    "SCHEMA": "db",
    "TABLES": "table",
}


def _ddl_counted(text: bytes, words: Sequence[str]) -> str:
    """The counter of DDL: of the verb and what it is about. Between them may be OR REPLACE, DEFINER=..., UNIQUE."""
    verb = words[0]
    if verb in _VERBS_COUNTED:
        return _VERBS_COUNTED[verb]
    if "TEMPORARY" in words[1:4:2]:  # CREATE TEMPORARY, CREATE OR REPLACE TEMPORARY
        return f"{verb.lower()}_temporary_table"
    found = islice(_tokens_of(text), _PROGRAM_TOKENS_MAX)
    spelled = (token.text.upper() for token in found if token.kind is TokenKind.WORD)
    about = next((_OBJECTS_COUNTED[word] for word in spelled if word in _OBJECTS_COUNTED), "")
    if (verb, about) == ("ALTER", "view"):
        return "create_view"
    return f"{verb.lower()}_{about}" if about else ""


_BLANKS: Final = b" \t\n\v\f\r"
_CHARACTERISTICS: Final = ("READ ONLY", "READ WRITE", "WITH CONSISTENT SNAPSHOT")
_VERSION_DIGITS: Final = 6  # digits behind /*!, at most
_NEAR_BYTES: Final = 80
# The first bytes of a statement, which tell its kind, and as many at its end. Blanks and comments between them count as
# text.
HEAD_BYTES_MAX: Final = 16 * 1024
_CONTROL_TOKENS: Final = 64  # more than any of those that begin and end transactions has
_SHORT_BYTES: Final = 24  # BEGIN and COMMIT are repeated as they are: their reading is kept
_STEP_BYTES: Final = 4 * 1024  # a step of `scan_steps`: 0.5 ms if each 3 bytes are a name
_STRING_STEP_BYTES: Final = 64 * 1024  # a step within a long string


@cache
def _bodies(escapes: bool) -> dict[int, re.Pattern[bytes]]:
    """Patterns for the inside of a quoted text, by the quote's byte; they match up to the quote or the text's end."""
    escaped = rb"\\.|" if escapes else b""
    plain = rb"[^Q\\]" if escapes else b"[^Q]"
    body = plain + b"*+(?:(?:" + escaped + b"QQ)" + plain + b"*+)*+"
    name = b"[^Q]*+(?:QQ[^Q]*+)*+"
    return {
        quote[0]: re.compile(pattern.replace(b"Q", quote), re.DOTALL)
        for quote, pattern in ((b"'", body), (b'"', body), (b"`", name))
    }


@cache  # nobody needs all four
def _tokens(escapes: bool, seeks_returning: bool) -> re.Pattern[bytes]:
    """The pattern of a token. A string or comment without an end takes the rest of the text: nothing is read twice."""
    quoted = rf"{STRING[escapes]}|{DOUBLE[escapes]}|{NAME}"
    unended = r"['\"`].*"
    word = _RETURNING if seeks_returning else ""
    source = (
        rf"(?P<skipped>{SKIPPED})|{COMMENT}|(?P<unended>{UNENDED_COMMENT})|(?P<begin>{BEGIN})|(?P<close>{END})"
        rf"|{quoted}|(?P<unended_string>{unended})|@@|(?P<name>@(?:[0-9A-Za-z_.$\x80-\xff]+|{quoted}))"
        rf"|(?P<unended_name>@['\"`].*)|(?P<end>;)|(?P<parameter>\?){word}"
    )
    return re.compile(source.encode("latin-1"), re.DOTALL)


_RETURNING: Final = (
    r"|(?P<returning>(?<![0-9A-Za-z_$.@\x80-\xff])(?i:RETURNING)(?![0-9A-Za-z_$\x80-\xff]))"
)
_OVERLAP_BYTES: Final = {False: 1, True: len(b"RETURNING") + 1}  # of two steps, by seeks_returning
_BEGIN: Final = compiled_later(BEGIN.encode())
_NOT_EXECUTED: Final = compiled_later(NOT_EXECUTED.encode())
_COMMENT_MARKS: Final = {
    True: re.compile(rb"/\*|\*/"),
    False: re.compile(rb"\*/"),
}  # by whether a comment may begin inside the comment

_STORED_PROGRAM: Final = frozenset({"PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"})
_PROGRAM_TOKENS_MAX: Final = 40
_DML: Final = ("INSERT", "REPLACE", "UPDATE", "DELETE")


def classify(text: bytes) -> Classified:
    """The statement with its kind. Raises `NotSupportedYet` (1235) if it is refused, `SqlSyntaxError` (1064)."""
    text = _trimmed(text)
    head = _head(text)
    words = first_words(head, 1)
    if not words:
        is_nothing = len(text) <= HEAD_BYTES_MAX and next(_tokens_of(text), None) is None
        return Classified(Kind.NOTHING if is_nothing and text else Kind.OTHER, text)
    rows = _ROWS.get(words[0], ())
    if rows and words[0] not in _DML:  # of these the first word tells all
        words = first_words(head)
    for beginning, read in rows:
        if tuple(words[: len(beginning)]) == beginning:
            return read(text, words)
    return Classified(Kind.OTHER, text)


def _head(text: bytes) -> str:
    """The first bytes as characters of Latin-1: key words are ASCII."""
    return text[:HEAD_BYTES_MAX].decode("latin-1")


def _tokens_of(text: bytes) -> Iterator[Token]:
    """Those of its first bytes, read as they are asked for: all of them may take milliseconds."""
    return tokens(_head(text), ansi_quotes=False, is_logged=False)


def scan_steps(
    text: bytes,
    start: int = 0,
    *,
    backslash_escapes: bool = True,
    is_program: bool = False,
    seeks_returning: bool = False,
) -> Generator[None, None, Scan]:
    """Read a whole statement; it yields between steps of less than a millisecond.

    Args:
        text: the statement in a character set whose ASCII bytes are ASCII characters.
        start: where it begins in the text.
        backslash_escapes: False under sql_mode NO_BACKSLASH_ESCAPES.
        is_program: it has a body with statements: none is a second one, and variables are not looked for.
        seeks_returning: look for the word RETURNING.

    Raises `SqlSyntaxError` (1064), `NotSupportedYet` (1235) for more than `USER_VARIABLES_MAX` variables,
    `TooManyPlaceholders` (1390).
    """
    patterns, bodies = _tokens(backslash_escapes, seeks_returning), _bodies(backslash_escapes)
    names: dict[bytes, None] = {}  # in the order of the statement
    edits: dict[int, int] = {}
    parameters = array("I")
    is_within = returns = False  # is_within: inside of an executed comment
    at, size = start, len(text)
    while at < size:
        begin, end = at, min(at + _STEP_BYTES, size)
        for match in patterns.finditer(text, begin, end):
            kind = match.lastgroup
            at = match.start()
            behind = match.end() + (_VERSION_DIGITS if kind == "begin" else 0)
            if behind >= end < size and (at > begin or kind != "begin"):  # it may be cut here
                if at == begin:
                    at = yield from _long_token(text, at, bodies, edits)
                break
            at = match.end()
            if is_program and kind in ("name", "end"):
                continue
            returns |= kind == "returning"
            if kind == "parameter":
                parameters.append(match.start())
                if len(parameters) > PARAMETERS_MAX:
                    raise TooManyPlaceholders()
            if kind == "name":
                names[match[0][1:]] = None
                if len(names) > USER_VARIABLES_MAX:
                    raise NotSupportedYet(f"more than {USER_VARIABLES_MAX} user variables")
            elif kind == "skipped":
                for _ in _long_comment(text, match.start(), edits):
                    pass
            elif kind == "begin":
                is_within = True
                if match.end() + _VERSION_DIGITS >= end:  # the step may cut the version number
                    at = _BEGIN.match(text, match.start()).end()  # type: ignore[union-attr]
                    break
            elif kind == "unended" or (kind == "close" and not is_within):
                raise _syntax(text[match.start() :])
            elif kind == "close":
                is_within = False
            elif kind == "end":
                second = at if is_within or not _is_end(text, at) else None
                return Scan(tuple(names), second, edits, parameters, returns)
        else:
            # The last bytes of a step may be those of a token, or of a word.
            at = size if end == size else max(at, end - _OVERLAP_BYTES[seeks_returning])
        yield
    if is_within:
        raise _syntax(text)
    return Scan(tuple(names), None, edits, parameters, returns)


def _long_token(
    text: bytes, start: int, bodies: Mapping[int, re.Pattern[bytes]], edits: dict[int, int]
) -> Generator[None, None, int]:
    """The end of a string or comment that is longer than a step. Raises `SqlSyntaxError` for a name of that length."""
    first, size = text[start], len(text)
    if first in b"/":
        return (yield from _long_comment(text, start, edits))
    if first in b"-#":
        at = start
        while (found := text.find(b"\n", at, at + _STRING_STEP_BYTES)) < 0 and at < size:
            at += _STRING_STEP_BYTES
            yield
        return size if found < 0 else found + 1
    if first not in bodies:
        raise _syntax(text[start : start + _NEAR_BYTES])
    at = start + 1
    while at < size:
        end = min(at + _STRING_STEP_BYTES, size)
        match = bodies[first].match(text, at, end)
        assert match is not None
        at = match.end()
        if at < end:  # at a quote, or at the backslash of an escape that the step cuts
            if text[at] == first and text[at + 1 : at + 2] != text[at : at + 1]:
                return at + 1
            at += 2
        yield
    return size


def _long_comment(text: bytes, start: int, edits: dict[int, int]) -> Generator[None, None, int]:
    """The end of a comment; one that is skipped for its version may contain another.

    Raises `SqlSyntaxError` if it has no end.
    """
    may_nest = _NOT_EXECUTED.match(text, start) is not None
    if may_nest:
        edits[text.index(b"!", start)] = ord(" ")
    at, is_nested = start + 2, False
    while at < len(text):
        end = at + _STRING_STEP_BYTES
        while mark := _COMMENT_MARKS[may_nest and not is_nested].search(text, at, end):
            at = mark.end()
            if mark[0] == b"*/" and not is_nested:
                return at
            is_nested = mark[0] == b"/*"
            edits[at - 1 - is_nested] = ord("(" if is_nested else ")")  # as MariaDB logs it
        at = max(at, end - 1)
        yield
    raise _syntax(text[start:])


def _is_end(text: bytes, at: int) -> bool:
    """Whether only blanks, semicolons and comments come, `HEAD_BYTES_MAX` bytes of them at most."""
    if len(text) - at > HEAD_BYTES_MAX:
        return False
    return all(token.is_semicolon for token in tokens(_head(text[at:]), is_logged=False))


def _trimmed(text: bytes) -> bytes:
    """The statement without the blanks and semicolons around it, of which it drops `HEAD_BYTES_MAX` at each end."""
    if len(text) <= HEAD_BYTES_MAX:
        return text.lstrip(_BLANKS).rstrip(b";" + _BLANKS)
    begin = HEAD_BYTES_MAX - len(text[:HEAD_BYTES_MAX].lstrip(_BLANKS))
    tail = text[-HEAD_BYTES_MAX:].rstrip(b";" + _BLANKS)
    end = len(text) - HEAD_BYTES_MAX + len(tail)
    if isinstance(text, bytearray):  # owned by us, and large: it is cut in place, not copied
        del text[end:], text[:begin]
        return text
    return text[begin:end] if end - begin < len(text) else text


def is_stored_program(text: bytes) -> bool:
    """Whether DDL has a body, so that semicolons are part of the statement.

    The kind of the program stands behind CREATE or ALTER; between them may be who defines it, as in SHOW CREATE.
    """
    found = tokens(_head(text), ansi_quotes=False, is_logged=False)
    reader = TokenReader(list(islice(found, _PROGRAM_TOKENS_MAX)), "")
    if not (reader.accept("CREATE") or reader.accept("ALTER")):
        return False
    reader.accept("OR", "REPLACE")
    if reader.accept("DEFINER"):
        reader.sign("=")
        reader.at += 1  # the user, or the role, or CURRENT_USER
        if reader.sign("("):
            reader.sign(")")
        elif reader.sign("@"):
            reader.at += 1
            while reader.sign("."):  # 127.0.0.1
                reader.at += 1
    reader.accept("AGGREGATE")
    return reader.word() in _STORED_PROGRAM


def unquoted_name(name: bytes) -> bytes:
    """A user variable's name without its quotes."""
    if name[:1] in (b"`", b"'", b'"'):
        return name[1:-1].replace(name[:1] * 2, name[:1])
    return name


def _xa(text: bytes, words: Sequence[str]) -> Classified:
    verb = "START" if words[1] == "BEGIN" else words[1]
    _, second = islice(_tokens_of(text), 2)
    return Classified(Kind.XA, text, text[second.end :], words=(verb,))


def _ended(statement: Classified, reader: TokenReader) -> Classified:
    """The statement. Raises `SqlSyntaxError` if another word follows."""
    while reader.sign(";"):
        pass
    if not reader.is_at_end():
        raise _syntax(statement.text)
    return statement


def _begin(text: bytes, reader: TokenReader) -> Classified:
    reader.accept("BEGIN")
    reader.accept("WORK")
    return _ended(Classified(Kind.BEGIN, text), reader)


def _start(text: bytes, reader: TokenReader) -> Classified:
    reader.accept("START", "TRANSACTION")
    said: set[str] = set()
    while (found := next((c for c in _CHARACTERISTICS if reader.accept(*c.split())), None)) or said:
        if found is None:
            raise _syntax(text)
        said.add(found)
        if not reader.sign(","):
            break
    if {"READ ONLY", "READ WRITE"} <= said:
        raise _syntax(text)
    statement = Classified(
        Kind.BEGIN,
        text,
        read_only="READ ONLY" in said,
        read_write="READ WRITE" in said,
        snapshot="WITH CONSISTENT SNAPSHOT" in said,
    )
    return _ended(statement, reader)


def _commit(text: bytes, reader: TokenReader) -> Classified:
    reader.accept("COMMIT")
    reader.accept("WORK")
    return _ending(Kind.COMMIT, text, reader)


def _rollback(text: bytes, reader: TokenReader) -> Classified:
    reader.accept("ROLLBACK")
    reader.accept("WORK")
    if reader.accept("TO"):
        reader.accept("SAVEPOINT")
        return _named(Kind.ROLLBACK_TO, text, reader)
    return _ending(Kind.ROLLBACK, text, reader)


def _ending(kind: Kind, text: bytes, reader: TokenReader) -> Classified:
    """[AND [NO] CHAIN] [[NO] RELEASE], but not CHAIN and RELEASE together."""
    chain = _said(reader, "AND", "CHAIN")
    if chain is None:
        chain = _said(reader, "AND", "NO", "CHAIN", means=False)
    release = _said(reader, "NO", "RELEASE", means=False)
    if release is None and not chain:
        release = _said(reader, "RELEASE")
    return _ended(Classified(kind, text, chain=chain, release=release), reader)


def _said(reader: TokenReader, *words: str, means: bool = True) -> bool | None:
    """What these words mean; None where they are not there."""
    return means if reader.accept(*words) else None


def _set_statement(text: bytes, words: Sequence[str]) -> Classified:
    """SET STATEMENT ... FOR: of the kind of the statement behind it."""
    found = next(
        (t for t in _tokens_of(text) if t.kind is TokenKind.WORD and t.text.upper() == "FOR"), None
    )
    inner = Classified(Kind.OTHER, text) if found is None else classify(text[found.end :])
    if inner.kind not in (Kind.DML, Kind.DDL) or inner.setting or found is None:
        return Classified(Kind.OTHER, text)
    return inner._replace(text=text, setting=bytes(text[: found.end]))


def _named(kind: Kind, text: bytes, reader: TokenReader) -> Classified:
    try:
        is_bare = bool(reader.word())
        name = reader.identifier()
    except NotUnderstood:
        raise _syntax(text) from None
    if is_bare and name.isdigit():  # only a quoted name may be all digits
        raise _syntax(text)
    return _ended(Classified(kind, text, name.encode("latin-1")), reader)


def _with_name(kind: Kind, *words: str) -> _Control:
    """A reader of statements of this kind: these words, then a name."""

    def read(text: bytes, reader: TokenReader) -> Classified:
        reader.accept(*words)
        return _named(kind, text, reader)

    return read


def _syntax(text: bytes) -> ServerError:
    return SqlSyntaxError(text[:_NEAR_BYTES].decode("utf-8", "replace"))


def _of(kind: Kind, grammar: Grammar = MAIN) -> _Reader:
    return lambda text, words: Classified(kind, text, words=words, grammar=grammar)


def _refused(advice: str) -> _Reader:
    def refuse(text: bytes, words: Sequence[str]) -> Classified:
        raise NotSupportedYet(advice)

    return refuse


def _controlled(read: _Control) -> _Reader:
    def read_now(text: bytes) -> Classified:
        return read(text, TokenReader(list(islice(_tokens_of(text), _CONTROL_TOKENS)), ""))

    read_before = lru_cache(maxsize=32)(read_now)

    def read_all(text: bytes, words: Sequence[str]) -> Classified:
        if len(text) > HEAD_BYTES_MAX:
            raise _syntax(text)
        return read_before(bytes(text)) if len(text) <= _SHORT_BYTES else read_now(text)

    return read_all


_Beginning = tuple[str, ...]
_Control = Callable[[bytes, TokenReader], Classified]
_Reader = Callable[[bytes, Sequence[str]], Classified]

_ADMIN: Final = ("ANALYZE", "OPTIMIZE", "REPAIR")
_ADMIN_WORDS: Final = ("TABLE", "TABLES", "VIEW")
_UNLOGGED: Final = ("LOCAL", "NO_WRITE_TO_BINLOG")
_CHANGES: Final[Mapping[_Beginning, _Reader]] = {
    **{(verb,): _of(Kind.DML) for verb in _DML},
    **{(verb,): _of(Kind.DDL) for verb in ("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME")},
    **{(verb, what): _of(Kind.DDL) for verb in _ADMIN for what in (*_ADMIN_WORDS, *_UNLOGGED)},
}
_TRANSACTIONS: Final[Mapping[_Beginning, _Reader]] = {
    ("BEGIN",): _controlled(_begin),
    ("START", "TRANSACTION"): _controlled(_start),
    ("COMMIT",): _controlled(_commit),
    ("ROLLBACK",): _controlled(_rollback),
    ("SAVEPOINT",): _controlled(_with_name(Kind.SAVEPOINT, "SAVEPOINT")),
    ("RELEASE", "SAVEPOINT"): _controlled(
        _with_name(Kind.RELEASE_SAVEPOINT, "RELEASE", "SAVEPOINT")
    ),
    ("SET", "STATEMENT"): _set_statement,
    ("USE",): _controlled(_with_name(Kind.USE, "USE")),
    **{("LOCK", what): _of(Kind.LOCK_TABLES) for what in ("TABLE", "TABLES")},
    **{("UNLOCK", what): _of(Kind.UNLOCK_TABLES) for what in ("TABLE", "TABLES")},
    **{("XA", verb): _xa for verb in ("START", "BEGIN", "END", "PREPARE", "COMMIT", "ROLLBACK")},
}
_NOT_KEPT: Final = (
    *("PROFILE", "PROFILES", "AUTHORS", "CONTRIBUTORS", "CLIENT_STATISTICS", "INDEX_STATISTICS"),
    *("TABLE_STATISTICS", "USER_STATISTICS"),
)
# Statements of MariaDB that replicas could not repeat, or that have no meaning here, with advice for the client.
_REFUSED: Final[Mapping[_Beginning, str]] = {
    ("BEGIN", "NOT", "ATOMIC"): "BEGIN NOT ATOMIC: send the statements of it",
    ("CALL",): "CALL: this server has no procedures; send the statements of it",
    **{
        (verb, what): f"{verb} {what}: no plan is made here that could be shown"
        for verb in ("EXPLAIN", "DESCRIBE", "DESC")
        for what in (*_DML, "FORMAT", "EXTENDED", "PARTITIONS")
    },
    **{
        ("ANALYZE", what): f"ANALYZE {what}: what a statement takes is not measured here"
        for what in (*_DML, "SELECT", "WITH", "FORMAT")
    },
    ("HANDLER",): "HANDLER: use SELECT",
    ("LOAD",): "LOAD DATA: replicas do not have the file; send INSERT statements",
    **{("SHOW", what): f"SHOW {what}: nothing of it is kept here" for what in _NOT_KEPT},
    ("SHOW", "EXPLAIN"): "SHOW EXPLAIN: nothing is planned here",
    ("SHOW", "ANALYZE"): "SHOW ANALYZE: nothing is planned here",
    ("SHOW", "RELAYLOG"): "SHOW RELAYLOG EVENTS: there is no relay log, see SHOW BINLOG EVENTS",
    **{
        ("SHOW", "CREATE", what): f"SHOW CREATE {what}: there are none here"
        for what in ("TRIGGER", "EVENT")
    },
    ("BINLOG",): "BINLOG: groups come from upstreams, and from statements",
    ("CACHE",): "CACHE INDEX: there are no key caches here",
    ("GET",): "GET DIAGNOSTICS: use SHOW WARNINGS",
    **{(verb,): f"{verb}: plugins are MariaDB's" for verb in ("INSTALL", "UNINSTALL")},
    **{(verb,): f"{verb}: this server has no procedures" for verb in ("SIGNAL", "RESIGNAL")},
    ("VALUES",): "VALUES: use SELECT",
}
_BEGINNINGS: Final[Mapping[_Beginning, _Reader]] = {
    **_CHANGES,
    **_TRANSACTIONS,
    **{beginning: _refused(advice) for beginning, advice in _REFUSED.items()},
    **{
        beginning: _of(Kind.OTHER, grammar)
        for grammar in (MAIN, REPLICATION)
        for beginning in grammar.beginnings
    },
    # Where a statement about accounts is not for this server, it is committed; but for questions.
    **{
        beginning: _of(Kind.OTHER if beginning[0] in ("SHOW", "FLUSH") else Kind.DDL, ACCOUNTS)
        for beginning in ACCOUNTS.beginnings
    },
}
# By the first word; the longest beginnings first. What is in no row is answered by the grammar `MAIN`, or an error.
_ROWS: Final = {
    word: sorted(
        (row for row in _BEGINNINGS.items() if row[0][0] == word), key=lambda row: -len(row[0])
    )
    for word in {beginning[0] for beginning in _BEGINNINGS}
}
