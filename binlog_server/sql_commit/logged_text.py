"""Statements as they are logged: without what no replica may execute, and with values for the places of parameters.

A prepared statement is logged as MariaDB logs it, in text with a literal in each place, by which a replica gets the
value that the client has sent:

=====================  ===========================================================================================
parameter              literal
=====================  ===========================================================================================
integers               the digits
FLOAT, DOUBLE          with an exponent, so that it is no DECIMAL
DECIMAL                the digits
strings                'text' in the client's character set
blobs                  _binary'bytes', so that they are no text whatever stands in them
dates and times        TIMESTAMP'2024-02-29 01:02:03.5', DATE'..', TIME'..'
NULL; of a bulk        NULL; DEFAULT, IGNORE
counts of a LIMIT      the digits of any value's number
=====================  ===========================================================================================

In a character set in which a backslash may be the second byte of a character, strings are _sjis X'..', as the bytes
are. So is a string of another character set than the client's, as a user variable may have one.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Final, TypeVar

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    NotSupportedYet,
    SqlSyntaxError,
    UnknownServerError,
    WrongArguments,
)
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.wire.binary_rows import BLOBS, DECIMALS, TIMES, Indicator, Parameter
from binlog_protocol.wire.plain_changes import may_return
from binlog_protocol.wire.plain_parameters import ESCAPES

from binlog_server.sql.session_settings import Settings
from binlog_server.sql.statement_kind import (
    HEAD_BYTES_MAX,
    is_stored_program,
    scan_steps,
    unquoted_name,
)

_DECODED_BYTES: Final = 16 * 1024  # in one step: half a millisecond
_BYTE_STEPS: Final = 1024  # the same, byte by byte
_VALUE_STEP_BYTES: Final = 64 * 1024  # of a value in one step
_VALUE_STEPS: Final = 256  # values in one step
_NEAR_BYTES: Final = 80
# Character sets in which an ASCII byte may be the second byte of a character: such texts are scanned as UTF-8.
_AMBIGUOUS: Final = {"big5": "big5", "gbk": "gbk", "sjis": "shift_jis", "cp932": "cp932"}
_TIME_WORDS: Final[Mapping[int, bytes]] = {ColumnType.DATE: b"DATE", ColumnType.TIME: b"TIME"}
# Bytes that would become one word with a literal beside them.
_WORD: Final = frozenset(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$.@'\"`"
) | frozenset(range(0x80, 0x100))

# What stands in front of the count of a LIMIT.
_COUNT: Final = compiled_later(rb"\b(?:LIMIT|OFFSET|LIMIT\s+(?:\?|[0-9]+)\s*,)\s*\Z", re.IGNORECASE)
_COUNT_BYTES: Final = 64  # in which it is sought
_INTEGER: Final = compiled_later(r"\s*([-+]?[0-9]{1,18})")

T = TypeVar("T")
Text = bytes | bytearray
Reading = Generator[None, None, tuple[Text, list[bytes]]]
"""Steps that only take time; in the end the text to be logged, and the names of its user variables."""


@dataclass(frozen=True, slots=True)
class Template:
    """A statement as it is logged, but for the parameters: the places of their question marks.

    `variables` are the names of its user variables. The settings say how it was read.
    """

    text: Text
    places: Sequence[int]
    variables: list[bytes]
    charset: str
    backslash_escapes: bool

    def fits(self, settings: Settings) -> bool:
        """Whether the statement reads the same in these settings."""
        return (self.charset, self.backslash_escapes) == (
            settings.charset,
            settings.backslash_escapes,
        )

    def filled(self, parameters: Iterable[Parameter], bytes_max: int) -> Reading:
        """The text with values in the places.

        Raises `WrongArguments` (1210), 1105 for more than `bytes_max`, and what `parameters` raises.
        """
        if not self.places:
            return self.text, self.variables
        filled = bytearray()
        with memoryview(self.text) as view:
            at = 0
            for number, (place, given) in enumerate(zip(self.places, parameters, strict=True)):
                parameter = _count(given) if self._is_count(place) else given
                filled += view[at:place]
                at = place + 1
                begin = len(filled)
                for piece in self._literal(parameter):
                    filled += piece
                    if len(filled) > bytes_max:
                        raise UnknownServerError(
                            "The statement is longer than 'max_allowed_packet' bytes with its parameters"
                        )
                    if len(filled) - begin > _VALUE_STEP_BYTES:
                        yield
                if begin and (filled[begin - 1] in _WORD or filled[begin - 1 : begin + 1] == b"--"):
                    filled.insert(begin, 32)
                if at < len(view) and view[at] in _WORD:
                    filled += b" "
                if not (number + 1) % _VALUE_STEPS:
                    yield
            filled += view[at:]
        return filled, self.variables

    def plain_pieces(self) -> list[bytes] | None:
        """The text around the places, for `take_plain_parameters`; None where a value could become one word with its
        neighbours."""
        if self.charset not in ("utf8mb4", "utf8mb3") or not self.backslash_escapes:
            return None
        pieces, at = [], 0
        for place in self.places:
            if self._is_count(place):
                return None
            pieces.append(bytes(self.text[at:place]))
            at = place + 1
        pieces.append(bytes(self.text[at:]))
        beside = [piece[-1:] for piece in pieces[:-1]] + [piece[:1] for piece in pieces[1:]]
        is_plain = not any(byte and (byte[0] in _WORD or byte == b"-") for byte in beside)
        return pieces if is_plain else None

    def _is_count(self, place: int) -> bool:
        """Whether a question mark is the count of a LIMIT: no text may stand there."""
        return _COUNT.search(bytes(self.text[max(0, place - _COUNT_BYTES) : place])) is not None

    def _literal(self, parameter: Parameter) -> Iterator[bytes]:
        kind, value = parameter.type, parameter.value
        if value is None:
            return iter((b"NULL",))
        if isinstance(value, Indicator):
            return iter((value.name.encode(),))
        if isinstance(value, int):
            return iter((b"%d" % value,))
        if isinstance(value, float):
            return iter((_double(value),))
        if isinstance(value, str) and kind in TIMES:
            return iter((_TIME_WORDS.get(kind, b"TIMESTAMP"), b"'", value.encode(), b"'"))
        if isinstance(value, str) and kind in DECIMALS:
            return iter((value.encode(),))
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return self._string(data, parameter.charset or ("binary" if kind in BLOBS else ""))

    def _string(self, data: bytes | bytearray | memoryview, charset: str) -> Iterator[bytes]:
        charset = "" if charset == self.charset else charset
        in_hex = self.charset in _AMBIGUOUS or charset not in ("", "binary")
        if charset or in_hex:
            yield f"_{charset or self.charset} ".encode() if in_hex else f"_{charset}".encode()
        yield b"X'" if in_hex else b"'"
        for start in range(0, len(data), _VALUE_STEP_BYTES):
            piece = bytes(data[start : start + _VALUE_STEP_BYTES])
            if in_hex:
                piece = piece.hex().encode()
            elif self.backslash_escapes:
                for plain, escaped in ESCAPES:
                    piece = piece.replace(plain, escaped)
            else:
                piece = piece.replace(b"'", b"''")
            yield piece
        yield b"'"


def _count(parameter: Parameter) -> Parameter:
    """A parameter as the count of a LIMIT: the number of any value, as MariaDB takes it; 0 of NULL.

    Raises `WrongArguments` (1210) for a negative one.
    """
    value = parameter.value
    if isinstance(value, Indicator):
        return parameter
    if isinstance(value, float):
        number = round(value) if math.isfinite(value) else 0
    elif isinstance(value, bytes | bytearray | memoryview):
        found = _INTEGER.match(bytes(value[:_COUNT_BYTES]).decode("latin-1"))
        number = int(found[1]) if found else 0
    elif isinstance(value, str) and parameter.type in DECIMALS:
        number = int(Decimal(value).to_integral_value(ROUND_HALF_UP))
    elif isinstance(value, str):
        number = int(re.sub("[^0-9]", "", value.partition(".")[0]) or 0)
    else:
        number = value or 0
    if number < 0:
        raise WrongArguments("mysqld_stmt_execute")
    return Parameter(ColumnType.LONGLONG, number)


def result_of(steps: Generator[None, None, T]) -> T:
    """Run all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def _double(value: float) -> bytes:
    if not math.isfinite(value):
        raise WrongArguments("mysqld_stmt_execute")
    text = repr(value)
    return (text if "e" in text else text + "e0").encode()


def logged_text(
    text: bytes, settings: Settings, *, is_program: bool = False, may_return_rows: bool = False
) -> Reading:
    """The statement as it is logged, and the names of its user variables; in steps that only take time.

    An executable comment that was skipped for its version is logged as a plain comment: a newer replica would
    execute it. Raises `NotSupportedYet` (1235) for RETURNING, unless it `may_return_rows`, as it is about tables here;
    `SqlSyntaxError` (1064) for two statements in one text, unless it `is_program`: a procedure, function, trigger or
    event, with statements in its body.
    """
    # A search for one byte runs at memory's speed; for two ("/*") it holds the loop for 10 ms in 16 MB.
    seeks_returning = not may_return_rows and may_return(text)
    if b";" not in text and b"@" not in text and b"*" not in text and not seeks_returning:
        return text, []
    template = yield from template_of(
        text, settings, is_program=is_program, may_return_rows=may_return_rows
    )
    return template.text, template.variables


def first_statement(
    text: bytes, start: int, settings: Settings
) -> Generator[None, None, int | None]:
    """Where the second statement begins in a text that may have several; None if there is only one.

    Of what begins a stored program all is one statement. Raises as `logged_text`.
    """
    codec = _AMBIGUOUS.get(settings.charset)
    if text.find(b";", start) < 0 or is_stored_program(text[start : start + HEAD_BYTES_MAX]):
        return None
    looked_at = text
    if codec:
        if len(text) > _DECODED_BYTES:  # it would be decoded anew for each of its statements
            return None
        looked_at = yield from _as_utf8(text[start:], codec)
    found = yield from scan_steps(
        looked_at, 0 if codec else start, backslash_escapes=settings.backslash_escapes
    )
    if found.second is None or not codec:
        return found.second
    moved = yield from _in_charset({found.second - 1: ord(";")}, text[start:], codec)
    return start + next(iter(moved)) + 1


def template_of(
    text: bytes, settings: Settings, *, is_program: bool = False, may_return_rows: bool = False
) -> Generator[None, None, Template]:
    """A statement to be prepared, as it is logged; as `logged_text`."""
    codec = _AMBIGUOUS.get(settings.charset)
    looked_at = (yield from _as_utf8(text, codec)) if codec else text
    found = yield from scan_steps(
        looked_at,
        backslash_escapes=settings.backslash_escapes,
        is_program=is_program,
        seeks_returning=not (is_program or may_return_rows) and may_return(text),
    )
    if found.returns:
        raise NotSupportedYet("RETURNING, but in a text about tables that are here")
    if found.second is not None:
        near = looked_at[found.second : found.second + _NEAR_BYTES].decode("utf-8", "replace")
        raise SqlSyntaxError(near.strip())
    logged: Text = text
    edits: Mapping[int, int] = found.edits
    places: Sequence[int] = found.parameters
    if codec and (edits or places):
        edits = dict.fromkeys(places, ord("?")) | dict(edits)
        moved = yield from _in_charset(edits, text, codec)
        places = [at for at, byte in moved.items() if byte == ord("?")]
        edits = {at: byte for at, byte in moved.items() if byte != ord("?")}
    if edits:
        logged = text if isinstance(text, bytearray) else bytearray(text)
        for at, byte in edits.items():
            logged[at] = byte
    names = sorted({unquoted_name(name) for name in found.variables})
    return Template(logged, places, names, settings.charset, settings.backslash_escapes)


def _as_utf8(text: bytes, codec: str) -> Generator[None, None, bytes]:
    decoded = bytearray()
    for utf8 in _decoded(text, codec, _DECODED_BYTES):
        decoded += utf8
        yield
    return bytes(decoded)


def _in_charset(
    edits: Mapping[int, int], text: bytes, codec: str
) -> Generator[None, None, dict[int, int]]:
    """The edits of `_as_utf8(text, codec)`, whose offsets are those in `text`. All are of ASCII characters."""
    wanted = iter(sorted(edits))
    sought = next(wanted, None)
    found: dict[int, int] = {}
    end = 0  # in UTF-8, behind the byte at `at`
    for at, utf8 in enumerate(_decoded(text, codec, 1)):
        end += len(utf8)
        if end - 1 == sought:  # an ASCII character comes out when its byte goes in
            found[at] = edits[sought]
            sought = next(wanted, None)
            if sought is None:
                break
        if not at % _BYTE_STEPS:
            yield
    return found


def _decoded(text: bytes, codec: str, size: int) -> Iterator[bytes]:
    """Decode the text in pieces of `size` bytes to UTF-8; what is no character becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        yield decoder.decode(piece, start + size >= len(text)).encode("utf-8", "replace")
