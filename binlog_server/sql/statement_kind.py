"""What a statement is, by its first key words: nothing here knows SQL any further, and no table is looked at.

    DML       becomes a part of a transaction
    DDL       ends the open transaction, and is a group by itself
    others    transaction control, USE, LOCK TABLES, the end of a prepared XA transaction; and what the grammar of
              `admin` answers (OTHER)

Comments are skipped, also in front; what stands inside /*! */ counts. A statement of which replicas could not do the
same is refused.

A statement may have as many bytes as a packet. What it is is told by its first `HEAD_BYTES_MAX`; all of it is looked at
only by `scan_steps`, in steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from binlog_protocol.errors import (
    ServerError,
    SqlSyntaxError,
)
from binlog_protocol.errors.sql_errors import NotSupportedYet


class Kind(Enum):
    """What to do with a statement."""

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
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Statement:
    """`text` as MariaDB logs it: without the blanks and semicolons around it.

    `name`: of the savepoint or database; or what stands behind XA COMMIT, XA ROLLBACK.
    """

    kind: Kind
    text: bytes
    name: bytes = b""
    read_only: bool = False  # START TRANSACTION READ ONLY
    read_write: bool = False  # START TRANSACTION READ WRITE
    snapshot: bool = False  # START TRANSACTION WITH CONSISTENT SNAPSHOT
    chain: bool = False  # COMMIT AND CHAIN
    release: bool = False  # COMMIT RELEASE


@dataclass(frozen=True, slots=True)
class Scan:
    """What stands outside strings and comments: names after @ as written, and where a second statement begins."""

    variables: tuple[bytes, ...]
    second: int | None


_GAP: Final = rb"(?:\s|/\*M?!\d{0,6}|\*/|/\*(?!M?!).*?\*/|--(?=\s|\Z)[^\n]*|#[^\n]*)*+"
_WORD: Final = re.compile(_GAP + rb"([A-Za-z_]++)(?![0-9$\x80-\xff])", re.DOTALL)
_NAME: Final = re.compile(_GAP + rb"(?:`((?:[^`]|``)+)`|([0-9A-Za-z_$\x80-\xff]+))", re.DOTALL)
_END: Final = re.compile(_GAP + rb";*\Z", re.DOTALL)
_BLANKS: Final = b" \t\n\v\f\r"
_WORDS_MAX: Final = 8
_COMMA_OR_END: Final = re.compile(_GAP + rb"(?:(?P<comma>,)|;*\Z)", re.DOTALL)
_CHARACTERISTICS: Final = frozenset({"READ ONLY", "READ WRITE", "WITH CONSISTENT SNAPSHOT"})
_NEAR_BYTES: Final = 80
# Of a statement: where it says what it is, and as much at its end. Blanks and comments beyond it count as text.
HEAD_BYTES_MAX: Final = 16 * 1024
USER_VARIABLES_MAX: Final = 256  # of a session, and so in a statement; a replica sets about ten
_STEP_BYTES: Final = 4 * 1024  # of `scan_steps`: with a name each three of them half a millisecond
_STRING_STEP_BYTES: Final = 64 * 1024  # within a long string

# What is not ended goes on to the end of the text, so that no place is looked at twice.
_IDENTIFIER: Final = rb"`[^`]*+(?:``[^`]*+)*+(?:`|\Z)"
_COMMENTS: Final = rb"/\*(?!M?!).*?(?:\*/|\Z)|--(?=\s|\Z)[^\n]*|#[^\n]*"


def _in_quotes(string: bytes, quote: bytes) -> bytes:
    return string.replace(b"Q", quote)


def _bodies(body: bytes) -> dict[int, re.Pattern[bytes]]:
    """What stands between quotes, by the quote."""
    return {
        quote[0]: re.compile(_in_quotes(pattern, quote), re.DOTALL)
        for quote, pattern in ((b"'", body), (b'"', body), (b"`", _BODY_WITHOUT_ESCAPES))
    }


def _tokens(string: bytes) -> re.Pattern[bytes]:
    """`string`: what stands for a string in quotes Q."""
    quoted = b"|".join((_in_quotes(string, b"'"), _in_quotes(string, b'"'), _IDENTIFIER))
    name = rb"@(?:[0-9A-Za-z_.$\x80-\xff]+|" + quoted + rb")"
    return re.compile(
        b"|".join((quoted, _COMMENTS, rb"@@", b"(?P<name>" + name + b")", b"(?P<end>;)")), re.DOTALL
    )


_BODY: Final = rb"[^Q\\]*+(?:(?:\\.|QQ)[^Q\\]*+)*+"
_BODY_WITHOUT_ESCAPES: Final = rb"[^Q]*+(?:QQ[^Q]*+)*+"
_BODIES: Final = _bodies(_BODY)
_BODIES_WITHOUT_ESCAPES: Final = _bodies(_BODY_WITHOUT_ESCAPES)
_TOKENS: Final = _tokens(b"Q" + _BODY + rb"(?:Q|\\?\Z)")
_TOKENS_WITHOUT_ESCAPES: Final = _tokens(b"Q" + _BODY_WITHOUT_ESCAPES + rb"(?:Q|\Z)")

_DML: Final = frozenset({"INSERT", "REPLACE", "UPDATE", "DELETE"})
_DDL: Final = frozenset({"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "GRANT", "REVOKE"})
_ADMIN: Final = frozenset({"ANALYZE", "OPTIMIZE", "REPAIR"})
_TABLE: Final = frozenset({"TABLE", "TABLES", "VIEW"})
_STORED_PROGRAM: Final = frozenset({"PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"})
# First words of statements that would do something else on replicas, or nothing; and what to do instead.
_REFUSED: Final[Mapping[str, str]] = {
    "CALL": "CALL: this server has no procedures; send the statements of it",
    "DO": "DO: nothing of it could be seen on replicas",
    "EXECUTE": "EXECUTE: send the statement itself",
    "HANDLER": "HANDLER: this server holds no tables",
    "LOAD": "LOAD DATA: replicas do not have the file; send INSERT statements",
    "PREPARE": "PREPARE: send the statement itself",
    "WITH": "WITH: this server holds no tables",
    "XA": "XA of one's own: use BEGIN and COMMIT",
}
# Transactions that a crash, or another server, has left prepared in the binlog: all that there is of XA.
_XA: Final = {"RECOVER": Kind.OTHER, "COMMIT": Kind.XA_COMMIT, "ROLLBACK": Kind.XA_ROLLBACK}
_TEMPORARY: Final = "TEMPORARY: temporary tables end with a session that replicas do not know of"


def classify(text: bytes) -> Statement:
    """What `text` is. Raises `NotSupportedYet` (1235) for what is refused, `SqlSyntaxError` (1064)."""
    text = _trimmed(text)
    first, *others = first_words(text)
    second = others[0] if others else ""
    if first in _DML:
        return Statement(Kind.DML, text)
    if first in _DDL:
        return _ddl(text, first, others)
    if first in _ADMIN:
        if second in ("LOCAL", "NO_WRITE_TO_BINLOG"):
            raise NotSupportedYet(f"{first} {second}: it is not for replicas")
        return Statement(Kind.DDL if second in _TABLE else Kind.OTHER, text)
    if first == "XA" and second in _XA:
        return _xa(text, second)
    if first in _REFUSED:
        raise NotSupportedYet(_REFUSED[first])
    read = _CONTROL.get((first, second)) or _CONTROL.get((first, ""))
    if read is None:
        return Statement(Kind.OTHER, text)
    if len(text) > HEAD_BYTES_MAX:
        raise _syntax(text)
    return read(text, others)


def scan_steps(text: bytes, *, backslash_escapes: bool = True) -> Generator[None, None, Scan]:
    """Look at all of a statement, as its sql_mode reads strings; the text in an ASCII-like character set.

    Yields between steps of less than a millisecond. Raises `SqlSyntaxError` (1064), `NotSupportedYet` (1235).
    """
    tokens = _TOKENS if backslash_escapes else _TOKENS_WITHOUT_ESCAPES
    bodies = _BODIES if backslash_escapes else _BODIES_WITHOUT_ESCAPES
    names: dict[bytes, None] = {}  # in their order
    at, size = 0, len(text)
    while at < size:
        begin, end = at, min(at + _STEP_BYTES, size)
        for match in tokens.finditer(text, begin, end):
            if match.end() == end < size:  # it may go on
                at = match.start()
                if at == begin:
                    at = yield from _long_token(text, at, bodies)
                break
            at = match.end()
            if match["name"]:
                names[match["name"][1:]] = None
                if len(names) > USER_VARIABLES_MAX:
                    raise NotSupportedYet(f"more than {USER_VARIABLES_MAX} user variables")
            elif match["end"]:
                return Scan(tuple(names), None if _is_end(text, at) else at)
        else:
            # The last byte of a step may be the first one of a token.
            at = size if end == size else max(at, end - 1)
        yield
    return Scan(tuple(names), None)


def _long_token(
    text: bytes, start: int, bodies: Mapping[int, re.Pattern[bytes]]
) -> Generator[None, None, int]:
    """Where a string or comment ends that is longer than a step. Raises `SqlSyntaxError` for a name."""
    first, size = text[start], len(text)
    if first in b"-#/":
        mark, at = (b"*/", start + 2) if first in b"/" else (b"\n", start)
        while (found := text.find(mark, at, at + _STRING_STEP_BYTES)) < 0 and at < size:
            at += _STRING_STEP_BYTES - 1
            yield
        return size if found < 0 else found + len(mark)
    if first not in bodies:
        raise _syntax(text[start : start + _NEAR_BYTES])
    at = start + 1
    while at < size:
        end = min(at + _STRING_STEP_BYTES, size)
        match = bodies[first].match(text, at, end)
        assert match is not None
        at = match.end()
        if at < end:  # at a quote, or at the first half of an escape that goes on in the next step
            if text[at] == first and text[at + 1 : at + 2] != text[at : at + 1]:
                return at + 1
            at += 2
        yield
    return size


def _is_end(text: bytes, at: int) -> bool:
    """Nothing but blanks and comments comes, and few of them."""
    return len(text) - at <= HEAD_BYTES_MAX and _END.match(text, at) is not None


def _trimmed(text: bytes) -> bytes:
    """Without the blanks and semicolons around it, as far as these are not very long."""
    if len(text) <= HEAD_BYTES_MAX:
        return text.lstrip(_BLANKS).rstrip(b";" + _BLANKS)
    begin = HEAD_BYTES_MAX - len(text[:HEAD_BYTES_MAX].lstrip(_BLANKS))
    tail = text[-HEAD_BYTES_MAX:].rstrip(b";" + _BLANKS)
    end = len(text) - HEAD_BYTES_MAX + len(tail)
    if isinstance(text, bytearray):  # ours, and large: nothing is copied
        del text[end:], text[:begin]
        return text
    return text[begin:end] if end - begin < len(text) else text


def is_stored_program(words: list[str]) -> bool:
    """Whether DDL that begins so has a body, in which semicolons belong to it."""
    return any(word in _STORED_PROGRAM for word in words)


def unquoted_name(name: bytes) -> bytes:
    """A user variable's name as the server knows it."""
    if name[:1] in (b"`", b"'", b'"'):
        return name[1:-1].replace(name[:1] * 2, name[:1])
    return name


def first_words(text: bytes) -> list[str]:
    """The first words, in upper case, up to what is none; at least one."""
    found: list[str] = []
    at = 0
    while len(found) < _WORDS_MAX and (match := _WORD.match(text, at, HEAD_BYTES_MAX)):
        found.append(match[1].decode("ascii").upper())
        at = match.end()
    return found or [""]


def _ddl(text: bytes, first: str, others: list[str]) -> Statement:
    words = others[2:] if others[:2] == ["OR", "REPLACE"] else others
    if words[:1] == ["BINLOG"]:  # a lease of this server
        return Statement(Kind.OTHER, text)
    if words[:1] == ["TEMPORARY"] and first in ("CREATE", "DROP"):
        raise NotSupportedYet(_TEMPORARY)
    if first == "DROP" and words[:1] == ["PREPARE"]:
        raise NotSupportedYet(_REFUSED["PREPARE"])
    return Statement(Kind.DDL, text)


def _xa(text: bytes, word: str) -> Statement:
    kind = _XA[word]
    found = _WORD.match(text, _end_of_word(text))
    assert found is not None
    return Statement(kind, text, b"" if kind is Kind.OTHER else text[found.end() :])


def _end_of_word(text: bytes) -> int:
    found = _WORD.match(text)
    assert found is not None
    return found.end()


def _begin(text: bytes, words: list[str]) -> Statement:
    if words[:2] == ["NOT", "ATOMIC"]:
        raise NotSupportedYet("BEGIN NOT ATOMIC: send the statements of it")
    if words not in ([], ["WORK"]):
        raise _syntax(text)
    return Statement(Kind.BEGIN, text)


def _start(text: bytes, _: list[str]) -> Statement:
    said = set(_characteristics(text))
    if {"READ ONLY", "READ WRITE"} <= said:
        raise _syntax(text)
    return Statement(
        Kind.BEGIN,
        text,
        read_only="READ ONLY" in said,
        read_write="READ WRITE" in said,
        snapshot="WITH CONSISTENT SNAPSHOT" in said,
    )


def _characteristics(text: bytes) -> Iterator[str]:
    """Of START TRANSACTION, with commas between them. Raises `SqlSyntaxError` for what is none."""
    at = 0
    words: list[str] = []
    is_first = True
    while at < HEAD_BYTES_MAX:
        found = _WORD.match(text, at) or _COMMA_OR_END.match(text, at)
        if found is None:
            break
        at = found.end()
        if found.re is _WORD:
            words.append(found[1].decode("ascii").upper())
            continue
        name = " ".join(words[2:] if is_first else words)  # START TRANSACTION
        if not name and is_first and not found["comma"]:
            return
        if name not in _CHARACTERISTICS:
            break
        yield name
        if not found["comma"]:
            return
        words, is_first = [], False
    raise _syntax(text)


def _commit(text: bytes, words: list[str]) -> Statement:
    return _ending(Kind.COMMIT, text, words)


def _rollback(text: bytes, words: list[str]) -> Statement:
    rest = words[1:] if words[:1] == ["WORK"] else words
    if rest[:1] == ["TO"]:
        skipped = len(words) - len(rest) + 2 + (rest[1:2] == ["SAVEPOINT"])
        return _named(Kind.ROLLBACK_TO, text, skipped)
    return _ending(Kind.ROLLBACK, text, words)


def _ending(kind: Kind, text: bytes, words: list[str]) -> Statement:
    rest = " ".join(words[1:] if words[:1] == ["WORK"] else words)
    if rest not in _ENDINGS:
        raise _syntax(text)
    return Statement(kind, text, chain=rest.startswith("AND CHAIN"), release=rest in _RELEASES)


_RELEASES: Final = frozenset({"RELEASE", "AND NO CHAIN RELEASE"})
_ENDINGS: Final = _RELEASES | {
    "",
    "AND CHAIN",
    "AND NO CHAIN",
    "AND CHAIN NO RELEASE",
    "AND NO CHAIN NO RELEASE",
    "NO RELEASE",
}


def _named(kind: Kind, text: bytes, skipped: int) -> Statement:
    """With a name behind so many words."""
    at = 0
    for _ in range(skipped):
        word = _WORD.match(text, at)
        if word is None:
            raise _syntax(text)
        at = word.end()
    match = _NAME.match(text, at)
    if match is None or not _END.match(text, match.end()):
        raise _syntax(text)
    if match[1] is None and match[2].isdigit():  # no name without quotes
        raise _syntax(text)
    name: bytes = match[2] if match[1] is None else match[1].replace(b"``", b"`")
    return Statement(kind, text, name)


def _syntax(text: bytes) -> ServerError:
    return SqlSyntaxError(text[:_NEAR_BYTES].decode("utf-8", "replace"))


# First and second word, or the first alone.
_CONTROL: Final[dict[tuple[str, str], Callable[[bytes, list[str]], Statement]]] = {
    ("BEGIN", ""): _begin,
    ("START", "TRANSACTION"): _start,
    ("COMMIT", ""): _commit,
    ("ROLLBACK", ""): _rollback,
    ("SAVEPOINT", ""): lambda text, _: _named(Kind.SAVEPOINT, text, 1),
    ("RELEASE", "SAVEPOINT"): lambda text, _: _named(Kind.RELEASE_SAVEPOINT, text, 2),
    ("USE", ""): lambda text, _: _named(Kind.USE, text, 1),
    ("LOCK", "TABLES"): lambda text, _: Statement(Kind.LOCK_TABLES, text),
    ("LOCK", "TABLE"): lambda text, _: Statement(Kind.LOCK_TABLES, text),
    ("UNLOCK", "TABLES"): lambda text, _: Statement(Kind.UNLOCK_TABLES, text),
    ("UNLOCK", "TABLE"): lambda text, _: Statement(Kind.UNLOCK_TABLES, text),
    ("SET", "PASSWORD"): lambda text, _: Statement(Kind.DDL, text),
}
