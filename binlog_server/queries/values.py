"""Values of expressions: as numbers, texts and times; compared and printed as MariaDB does.

`Type.form` says what a value is in Python. NULL is None, and comes to none of these functions.
"""

from __future__ import annotations

import calendar
import ipaddress
import re
import sys
import unicodedata
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Final, Self

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import (
    IllegalMix,
    IllegalMixOfMany,
    IllegalMixOfThree,
    NotSupportedYet,
)
from binlog_protocol.events.charsets import decode_text, encode_text, result_encoder
from binlog_protocol.events.collation_names import NUMBERS as COLLATION_NUMBERS
from binlog_protocol.events.collation_names import collation_name, default_collation
from binlog_protocol.events.rows.strings import Inet6
from binlog_protocol.tables.collation import collation_key, is_comparable
from binlog_protocol.tables.row_format import uuid_order

from binlog_server.queries.types import (
    DECIMAL_DIGITS_MAX,
    HEX,
    HYBRID,
    INET4,
    LABEL,
    MIXED,
    NATIVE,
    UUID,
    YEAR,
    Type,
    ValueForm,
    collated_as,
    is_bits,
    one_collation,
)
from binlog_server.queries.types import text as text_of

Value = int | Decimal | float | str | bytes | None


class Single(float):
    """A value of a FLOAT column: it is printed with six digits."""

    def __str__(self) -> str:
        return double_text(float(f"{self:.6g}"))


class Year(int):
    """A value of a YEAR column: it is printed with four digits."""

    def __str__(self) -> str:
        return f"{int(self):04d}"


class Label(str):
    """A value of an ENUM or SET column: a text, which is a number where one is wanted.

    number: of the label, from 1; of a SET a bit for each label.
    """

    __slots__ = ("number",)
    number: int

    def __new__(cls, text: str, number: int) -> Self:
        made = super().__new__(cls, text)
        made.number = number
        return made


class Native(str):
    """A value of a UUID, INET4 or INET6 column: a text, which is compared by its bytes."""

    __slots__ = ("order",)
    order: bytes

    def __new__(cls, text: str, order: bytes) -> Self:
        made = super().__new__(cls, text)
        made.order = order
        return made


# Exact: no DECIMAL of MariaDB has more digits, and none of ours becomes longer on the way.
EXACT: Final = Context(prec=200)
_INTEGER: Final = compiled_later(r"[-+]?[0-9]{1,40}")
_NUMBER: Final = compiled_later(r"([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?)")
_NUMBER_ALONE: Final = compiled_later(_NUMBER.pattern + r"\s*")
_INTEGER_ALONE: Final = compiled_later(r"[-+]?[0-9]+\s*")
_NUMBER_CHARS_MAX: Final = 400
_MOMENT_CHARS_MAX: Final = 256
_DOUBLE_MAX: Final = sys.float_info.max  # no value of MariaDB is infinite
_FIXED_DIGITS_MAX: Final = 15  # a DOUBLE with its point further off is printed with an exponent
_PUNCTUATION: Final = r"[!-/:-@\[-`{-~]"
_DATETIME: Final = compiled_later(
    r"(\d{1,4})PP(\d{1,2})PP(\d{1,2})"
    r"(?:(?:T|\s+|PP)(\d{1,2})(?:PP(\d{1,2})(?:PP(\d{1,2})(?:\.(\d*))?)?)?)?".replace(
        "PP", _PUNCTUATION
    ),
    re.ASCII,
)
_DIGITS: Final = compiled_later(
    r"(\d{14}|\d{12}|\d{8}(?:T\d{6})?|\d{6}(?:T\d{6})?)(?:\.(\d*))?(?!\d)",
    re.ASCII,
)
_TIME: Final = compiled_later(
    r"(-)?(?:(\d{1,9})\s+(?=\d)(\d{1,9})(?!\d)|(\d{1,9})(?=:\d))(?::(\d{1,9})(?!\d))?(?::(\d{1,9})(?!\d))?(?:\.(\d*))?",
    re.ASCII,
)
_TIME_DIGITS: Final = compiled_later(r"(-)?(\d{1,11})(?!\d)(?:\.(\d*))?", re.ASCII)
_EXPONENT: Final = compiled_later(r"[eE][-+]?[0-9]")
_DATED: Final = compiled_later(
    r"(?:\d{1,4}PP\d{1,2}PP\d{1,2}(?:T|\s+)|\d{8}T|\d{6}T)\d|(?:\d{12}|\d{14})(?:\.|$)".replace(
        "PP", _PUNCTUATION
    ),
    re.ASCII,
)
_TIME_MAX: Final = timedelta(hours=838, minutes=59, seconds=59, microseconds=999_999)
TIME_END: Final = timedelta(hours=839)
"""What no TIME has any longer."""
I64_MIN, I64_MAX, U64_MAX = -(2**63), 2**63 - 1, 2**64 - 1


# --- numbers ---


def number_in(value: str) -> float:
    """The number that a text begins with, else 0."""
    found = _NUMBER.match(value.lstrip()[:_NUMBER_CHARS_MAX])
    return max(-_DOUBLE_MAX, min(float(found[1]), _DOUBLE_MAX)) if found else 0.0


def is_number(value: str) -> bool:
    """Whether a text is a number and nothing else, but for blanks."""
    return _NUMBER_ALONE.fullmatch(value.strip()[:_NUMBER_CHARS_MAX]) is not None


def is_integer(value: str) -> bool:
    """Whether a text is an integer and nothing else, but for blanks."""
    return _INTEGER_ALONE.fullmatch(value.strip()[:_NUMBER_CHARS_MAX]) is not None


def as_number(value: Any, kind: Type) -> int | Decimal | float:
    """A value where a number is wanted; its type is then `types.numeric`."""
    match kind.form:
        case ValueForm.INT | ValueForm.DECIMAL | ValueForm.DOUBLE:
            return value  # type: ignore[no-any-return]
        case ValueForm.TEXT:
            return value.number if kind.code == LABEL else number_in(value)
        case ValueForm.BYTES if kind.code == HYBRID:
            return int.from_bytes(value[-8:], "big")
        case ValueForm.BYTES if kind.code == HEX:
            return as_integer(value, kind)
        case ValueForm.BYTES:
            return number_in(value.decode("latin-1"))
        case ValueForm.NULL:
            return 0
    digits = re.sub(r"[^0-9.]", "", value)
    sign = -1 if value[:1] == "-" else 1
    return sign * (Decimal(digits) if "." in digits else int(digits))


def as_double(value: Any, kind: Type) -> float:
    """A value as a DOUBLE."""
    return float(as_number(value, kind))


def as_decimal(value: Any, kind: Type) -> Decimal:
    """A value as a DECIMAL, the largest one for what is larger. 0 for what is no number."""
    if kind.form in (ValueForm.TEXT, ValueForm.BYTES) and kind.code not in (HYBRID, LABEL):
        found = _NUMBER.match(as_text(value, kind).lstrip()[:_NUMBER_CHARS_MAX])
        exact = EXACT.create_decimal(found[1]) if found else Decimal(0)
    else:
        number = as_number(value, kind)
        exact = EXACT.create_decimal(repr(number) if isinstance(number, float) else number)
    exact = max(-DECIMAL_MAX, min(exact, DECIMAL_MAX))
    return exact if exact.adjusted() > -_SMALLEST else Decimal(0)


DECIMAL_MAX: Final = Decimal(10) ** DECIMAL_DIGITS_MAX - 1
"""The largest DECIMAL."""
_SMALLEST: Final = 90  # places behind the point that a DECIMAL cannot have


def _quantized(value: Decimal, scale: int, way: str) -> Decimal:
    return value.quantize(Decimal((0, (1,), -scale)), way, EXACT)


def no_minus_zero(value: Decimal) -> Decimal:
    """A DECIMAL, 0 for -0: only the remainder of a division has that."""
    return value or value.copy_abs()


def rounded(value: Decimal, scale: int) -> Decimal:
    """To so many digits behind the point; halves away from 0."""
    return no_minus_zero(_quantized(value, scale, ROUND_HALF_UP))


def cut(value: Decimal, scale: int) -> Decimal:
    """To so many digits behind the point, towards 0."""
    return no_minus_zero(_quantized(value, scale, ROUND_DOWN))


def negated(number: Any) -> Any:
    """A number with the other sign, with all its digits: Python's own minus would round a DECIMAL."""
    return EXACT.minus(number) if isinstance(number, Decimal) else -number


def as_integer(value: Any, kind: Type) -> int:
    """A value as an integer; a text up to its first other character, times without their fraction, other numbers
    rounded."""
    if kind.form in (ValueForm.TEXT, ValueForm.BYTES) and kind.code not in (HYBRID, LABEL):
        found = _INTEGER.match(as_text(value, kind).lstrip()[:_NUMBER_CHARS_MAX])
        return int(found[0]) if found else 0
    number = as_number(value, kind)
    if isinstance(number, int) or kind.is_time:
        return int(number)
    if isinstance(number, float):
        return round(max(min(number, U64_MAX), I64_MIN))
    return int(rounded(number, 0))


def is_true(value: Any, kind: Type) -> bool:
    """Whether a condition holds."""
    return as_number(value, kind) != 0


# --- texts ---


def double_within(number: float, width: int) -> tuple[str, bool]:
    """A DOUBLE in so many characters, rounded, with an exponent where that keeps more digits; and whether it is whole:
    there was room for what is in front of its point, or for one digit and the exponent."""
    sign = "-" * (number < 0)
    room = width - len(sign)
    number = abs(number)
    digits, point = _shortest(number, max(room, 1))
    count = len(digits)
    exponent_digits = 1 + (point >= 101 or point <= -99) + (point >= 11 or point <= -9)
    has_room = (count - point + 2 if point <= 0 else max(point, count + (count > point))) <= room
    needs_exponent = point < 0 and 3 + exponent_digits <= room <= 2 - point
    if has_room:
        is_plain = point > -_FIXED_DIGITS_MAX and (point <= _FIXED_DIGITS_MAX or count > point)
    else:
        is_plain = point <= room and not needs_exponent and (point >= -1 or point == -2)
    if is_plain:
        places = room - (point < count) - (1 - point if point <= 0 else 0) - point
        if places + point >= count:
            return sign + _plain(digits, point), True
        text = f"{number:.{max(places, 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return sign + text if text != "0" else text, places >= 0
    room -= 1 + exponent_digits + (point < 1) + (count > 1)
    if room < count:
        digits, point = _shortest(number, max(room, 1))
    behind = "." * (len(digits) > 1) + digits[1:]
    return f"{sign}{digits[0]}{behind}e{point - 1}", room > 0


def _shortest(number: float, most: int) -> tuple[str, int]:
    """The fewest digits that say a number, at most so many, and where its point is: behind so many of them."""
    digits = Decimal(repr(number)).normalize()
    if len(digits.as_tuple().digits) > most:
        digits = Decimal(f"{number:.{most - 1}e}").normalize()
    text = "".join(map(str, digits.as_tuple().digits))
    return text, digits.adjusted() + 1


def _plain(digits: str, point: int) -> str:
    if point <= 0:
        return "0." + "0" * -point + digits
    return digits.ljust(point, "0")[:point] + "." * (len(digits) > point) + digits[point:]


def double_text(value: float) -> str:
    """A DOUBLE as MariaDB prints it: its shortest digits, with an exponent where the point is far off."""
    if value == 0:
        return "0"  # no -0
    if value != value or value in (float("inf"), float("-inf")):
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    shown = "".join(map(str, digits))
    if -_FIXED_DIGITS_MAX < point <= _FIXED_DIGITS_MAX:
        shown = f"{Decimal((0, digits, exponent)):f}"
    else:
        shown = shown[0] + ("." + shown[1:] if len(shown) > 1 else "") + f"e{point - 1}"
    return "-" + shown if sign else shown


def as_text(value: Any, kind: Type) -> str:
    """A value as MariaDB prints it."""
    match value:
        case str():
            return value
        case bytes():
            return value.decode("utf-8", "surrogateescape")
    padded = kind.padded_to
    return _number_text(value, kind).rjust(padded, "0") if padded else _number_text(value, kind)


def _number_text(value: Any, kind: Type) -> str:
    match value:
        case Decimal() if kind.form is ValueForm.DECIMAL:
            return f"{_quantized(value, kind.decimals, ROUND_HALF_UP):f}"  # of % there is a -0
        case Decimal():
            return f"{value:f}"
        case float() if kind.form is ValueForm.DOUBLE and kind.decimals < _FIXED_DOUBLE:
            if kind.decimals <= _EXACT_PLACES:
                return f"{value:.{kind.decimals}f}"
            shortest = Decimal(repr(value))
            return f"{_quantized(shortest, kind.decimals, ROUND_HALF_UP):f}"
        case float() if type(value) is float:
            return double_text(value)
    return str(value)


_EXACT_PLACES: Final = 15  # beyond it MariaDB shows no digits of the binary number, but zeros
_FIXED_DOUBLE: Final = 31  # decimals of a DOUBLE below this are printed as so many digits


def as_bytes(value: Any, kind: Type) -> bytes:
    """A value as the bytes of its text."""
    if isinstance(value, bytes):
        return value
    if kind.said_in:
        return encoded(as_text(value, kind), kind.said_in)
    return as_text(value, kind).encode("utf-8", "surrogateescape")


_OF_ONE_PLANE: Final = ("utf8mb3", "ucs2")


def encoded(text: str, charset: str) -> bytes:
    """A text in a character set: `?` for what that does not have; surrogate escapes are bytes of it."""
    if charset in _OF_ONE_PLANE and text and max(text) > "\uffff":
        text = "".join(one if one <= "\uffff" else "?" for one in text)
    encode = result_encoder(charset)
    if encode is not None:
        return encode(text)
    return encode_text(text, default_collation(charset))  # those in which ASCII has other bytes


def as_said_in(text: str, charset: str) -> str:
    """What is left of a text in a character set."""
    if text.isascii() or charset == "utf8mb4":
        return text
    found = decode_text(encoded(text, charset), default_collation(charset))
    return found if isinstance(found, str) else text


@lru_cache(maxsize=4096)
def _folded_before(value: str) -> str:
    return _folded(value)


def _folded(value: str) -> str:
    plain = unicodedata.normalize("NFD", value.replace("\u00df", "s"))
    kept = "".join(c for c in plain if not unicodedata.combining(c))
    return kept.upper().rstrip(" ")


def collated(value: str) -> str:
    """What texts are compared by: no case, no accents, no blanks at the end."""
    if value.isascii() or len(value) > _FOLDED_CHARS_MAX:
        return upper(value).rstrip(" ")
    return _folded_before(value) if len(value) <= _KEPT_CHARS_MAX else _folded(value)


_FOLDED_CHARS_MAX: Final = 4096
_KEPT_CHARS_MAX: Final = 64  # of a text that is folded once for many rows: what is kept is small


def converted(value: Any, kind: Type, target: Type) -> Any:
    """A value of one type as one of another: where CASE, COALESCE or UNION have several."""
    if value is not None and target.code in NATIVE and kind.code != target.code:
        return native_in(target.code, value)
    if value is None or kind.form is target.form:
        if target.form is ValueForm.DECIMAL and value is not None:
            return rounded(value, target.decimals)
        if target.is_time and value is not None and kind.decimals < target.decimals:
            point = "" if kind.decimals else "."
            return value + point + "0" * (target.decimals - kind.decimals)
        return value
    match target.form:
        case ValueForm.TEXT:
            return as_text(value, kind)
        case ValueForm.BYTES:
            return as_bytes(value, kind)
        case ValueForm.DOUBLE:
            return as_double(value, kind)
        case ValueForm.DECIMAL:
            return rounded(as_decimal(value, kind), target.decimals)
        case ValueForm.INT:
            return as_integer(value, kind)
        case ValueForm.DATETIME:
            at = datetime_in(as_text(value, kind))
            return None if at is None else datetime_text(at, target.decimals)
    return value


def upper(value: str) -> str:
    """UPPER: a character for each character, so that what would become two, as \u00df, stays. In parts: for a long text
    that is not ASCII it takes 25 ms, in which no other thread runs."""
    return "".join([_each(part, str.upper) for part in _parts(value)])


def lower(value: str) -> str:
    """LOWER, as `upper`."""
    if len(value) <= _PART_CHARS and value.isascii():  # as names, of which SHOW looks at a thousand
        return value.lower()
    return "".join([_each(part, str.lower) for part in _parts(value)])


def _each(part: str, change: Callable[[str], str]) -> str:
    changed = change(part)
    if part.isascii() or (len(changed) == len(part) and _FINAL_SIGMA not in changed):
        return changed
    return "".join([_alone(one, change) for one in part])


def _alone(one: str, change: Callable[[str], str]) -> str:
    changed = change(one)
    if len(changed) == 1:
        return changed
    # Greek letters with an iota below have one form in front of a word, too; I with a dot loses it.
    single = one.title() if change is str.upper else changed[:1]
    return single if len(single) == 1 else one


_FINAL_SIGMA: Final = "\u03c2"
"""What Python makes of the last letter of a word: it looks at those in front."""


def _parts(value: str) -> list[str]:
    return [value[at : at + _PART_CHARS] for at in range(0, len(value), _PART_CHARS)]


_PART_CHARS: Final = 32 * 1024

# --- comparing ---

Key = Callable[[Any], Any]


def comparable(left: Type, right: Type) -> tuple[Key, Key]:
    """What makes values of two types comparable with each other, by Python's operators."""
    forms = {left.form, right.form}
    if ValueForm.NULL in forms:
        return _same, _same
    native = left.code if left.code in NATIVE else right.code
    if native in NATIVE:
        return _native_of(left, native), _native_of(right, native)
    if YEAR in (left.code, right.code) and not (left.is_time or right.is_time):
        return _year_of(left), _year_of(right)
    if forms <= {ValueForm.TEXT, ValueForm.BYTES}:
        if forms == {ValueForm.TEXT}:
            return (text_key((left, right)),) * 2
        if is_bits(left) or is_bits(right):
            return _number_of(left), _number_of(right)
        return _bytes_of(left), _bytes_of(right)
    if left.is_time or right.is_time:
        if left.form == right.form or not (left.is_number or right.is_number):
            form = (
                ValueForm.TIME
                if ValueForm.TIME in forms and ValueForm.DATETIME not in forms
                else ValueForm.DATETIME
            )
            form = left.form if left.form == right.form else form
            return _time_of(left, form), _time_of(right, form)
        return _number_of(left), _number_of(right)
    if ValueForm.DOUBLE in forms or not (left.is_number and right.is_number):
        return _double_of(left), _double_of(right)
    return _same, _same


def text_key(kinds: Sequence[Type]) -> Key:
    """What makes texts of these types comparable: half a character stays as it is.

    Raises `NotSupportedYet` for texts of several collations, and for one that is not compared here.
    """
    is_exact = any(kind.is_exact for kind in kinds)
    together = collated_as(text_of(0), kinds)
    number = together.collation
    if number == MIXED:
        if any(kind != kinds[0] for kind in kinds):
            raise NotSupportedYet("texts of two collations, compared with each other")
        number = _OF_MIXED  # alone, such a text is compared by its bytes
    if any(kind.form is ValueForm.BYTES for kind in kinds):
        return _all_octets
    if not number:
        return _octets if is_exact else collated
    if not is_comparable(number):
        raise NotSupportedYet(f"comparing with the collation {collation_name(number)}")
    return lambda value: collation_key(value.encode("utf-8", "replace"), number)


def are_texts(kinds: Sequence[Type]) -> bool:
    """Whether values of these types are compared as texts or bytes."""
    texts = (ValueForm.TEXT, ValueForm.BYTES, ValueForm.NULL)
    return all(kind.form in texts and kind.code not in NATIVE for kind in kinds)


def require_one_collation(kinds: Sequence[Type], operation: str, collation: str) -> None:
    """Raises 1267, 1270, 1271 for texts that are of several collations, whatever stands between them; bytes in front
    of the second settle it. `collation`: of texts that have none."""
    if any(kind.is_collated for kind in kinds):
        number = collated_as(text_of(0), kinds).collation
    else:
        bytes_too = (_OF_BYTES if _is_binary(kind) else kind.collation for kind in kinds)
        number = one_collation(number for number in bytes_too if number)
    if number != MIXED:
        return
    said = [_coercibility(kind, collation) for kind in kinds]
    if len(said) == 2:
        raise IllegalMix(said[0], said[1], operation)
    if len(said) == 3:
        raise IllegalMixOfThree(said[0], said[1], said[2], operation)
    raise IllegalMixOfMany(operation)


def _coercibility(kind: Type, collation: str) -> str:
    """A collation, and how much it counts, as errors show it."""
    if kind.form is ValueForm.NULL:
        return "(binary,IGNORABLE)"
    if kind.form is ValueForm.BYTES:
        return f"(binary,{'IMPLICIT' if _is_binary(kind) else 'COERCIBLE'})"
    if kind.form is not ValueForm.TEXT or kind.code in NATIVE:
        return "(latin1_swedish_ci,NUMERIC)"
    if kind.collation == MIXED:
        return f"({collation_name(_OF_MIXED)},NONE)"
    if not kind.collation:
        return f"({collation},COERCIBLE)"
    return f"({collation_name(kind.collation)},{'EXPLICIT' if kind.is_collated else 'IMPLICIT'})"


def _is_binary(kind: Type) -> bool:
    """Whether values are bytes that win over texts: those that x'31' says do not."""
    return kind.form is ValueForm.BYTES and kind.code != HEX


_OF_BYTES: Final = COLLATION_NUMBERS["binary"]
_OF_MIXED: Final = COLLATION_NUMBERS["utf8mb4_bin"]


def sort_key(kind: Type) -> Key:
    """What values of one type are ordered by."""
    return _number_of(kind) if kind.code == LABEL else comparable(kind, kind)[0]


def _native_of(kind: Type, native: int) -> Key:
    """The bytes of a value as those of a UUID or address."""

    def key(value: Any) -> bytes | _NoNative:
        if isinstance(value, Native):
            return value.order
        read = native_in(native, value) if kind.form in (ValueForm.TEXT, ValueForm.BYTES) else None
        return _NO_NATIVE if read is None else read.order

    return key


class _NoNative:
    """What is no UUID or address: no comparison with it is true."""

    def _false(self, other: object) -> bool:
        return False

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _false
    __hash__ = object.__hash__


_NO_NATIVE: Final = _NoNative()


def native_in(kind: int, given: str | bytes) -> Native | None:
    """The UUID or address of a type of `NATIVE` that a text says; None if it says none."""
    text = given.decode("utf-8", "surrogateescape") if isinstance(given, bytes) else given
    if kind == UUID:
        if not _UUID_TEXT.fullmatch(text):
            return None
        raw = bytes.fromhex(text.replace("-", ""))
        if raw[6] >= _HIGH_BIT > raw[8] > 0:  # MariaDB could not tell its order in the row
            return None
        return native_of(kind, raw)
    dotted = _DOTTED.fullmatch(text)
    four = bytes(int(part) for part in dotted.groups()) if dotted and _is_dotted(dotted) else None
    if kind == INET4:
        return None if four is None else native_of(kind, four)
    if four is not None:
        return native_of(kind, _MAPPED + four)
    try:
        return None if "%" in text else native_of(kind, ipaddress.IPv6Address(text).packed)
    except ValueError:
        return None


def _is_dotted(found: re.Match[str]) -> bool:
    return all(int(part) < 256 for part in found.groups())


def native_of(kind: int, raw: bytes) -> Native:
    """The value of these bytes, in the order of the text."""
    if kind == UUID:
        return Native(str(uuid.UUID(bytes=raw)), uuid_order(raw))
    if kind == INET4:
        return Native(".".join(map(str, raw)), raw)
    return Native(str(Inet6(raw)), raw)


def native_hex(value: Native) -> str:
    """The bytes of a UUID or address in the order of its text, as HEX() gives them."""
    return value.replace("-", "").upper() if "-" in value else value.order.hex().upper()


_UUID_TEXT: Final = compiled_later(r"[0-9a-f](?:-*[0-9a-f]){31}", re.ASCII | re.IGNORECASE)
_DOTTED: Final = compiled_later(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})", re.ASCII)
_MAPPED: Final = bytes(10) + b"\xff\xff"
_HIGH_BIT: Final = 0x80


def _year_of(kind: Type) -> Key:
    """A year, as which a number of two digits that is written in the statement counts, too."""
    is_written = kind.code != YEAR and kind.column is None

    def key(value: Any) -> float:
        number = as_double(value, kind)
        if is_written and 0 < number < 100:
            return number + (2000 if number < 70 else 1900)
        return number

    return key


def _same(value: Any) -> Any:
    return value


def _bytes_of(kind: Type) -> Key:
    """All of them: blanks at the end count beside bytes."""
    if kind.form is not ValueForm.TEXT:
        return _same
    return (lambda value: encoded(value, kind.said_in)) if kind.said_in else _all_octets


def _all_octets(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _octets(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape").rstrip(b" ")


def _double_of(kind: Type) -> Key:
    return lambda value: as_double(value, kind)


def _number_of(kind: Type) -> Key:
    return lambda value: as_number(value, kind)


def _time_of(kind: Type, form: ValueForm) -> Key:
    def key(value: Any) -> Any:
        if form is ValueForm.TIME:
            return time_in(as_text(value, kind)) or timedelta(0)
        return as_parts(value, kind)

    return key


# --- times ---


def time_on(value: str, day: datetime) -> datetime | None:
    """A TIME as date and time, counted from the beginning of a day; None for what is none."""
    span = time_in(value)
    try:
        return (
            None if span is None else day.replace(hour=0, minute=0, second=0, microsecond=0) + span
        )
    except OverflowError:
        return None


def as_moment(value: Any, kind: Type) -> datetime | None:
    """A value as date and time; None for what is none, and for a TIME: see `terms.dated`."""
    return None if kind.form is ValueForm.TIME else datetime_in(_digits_or_text(value, kind))


def number_as_moment(value: Any, kind: Type) -> str | None:
    """A number as the digits of a date, empty for one that is none; None for what is no number."""
    if not kind.is_number:
        return None
    whole, _, fraction = as_text(value, kind).partition(".")
    if not whole.isdecimal() or len(whole) > _MOMENT_DIGITS:
        return ""
    if not int(whole):
        return f"{_NO_DATE} 00:00:00.{fraction}" if fraction else _NO_DATE
    if any(low < int(whole) < high for low, high in _NO_DAYS):
        return ""
    size = next(size for size in (6, 8, 12, _MOMENT_DIGITS) if len(whole) <= size)
    has_clock = size > _DATE_DIGITS
    return whole.rjust(size, "0") + f".{fraction}" * bool(fraction and has_clock)


# Numbers that are no date: between those of two digits for the year, of four, and of a time, too.
_NO_DAYS: Final = (
    (0, 101),
    (691_231, 700_101),
    (991_231, 10_000_101),
    (99_991_231, 101_000_000),
    (691_231_235_959, 700_101_000_000),
)
_NO_DATE: Final = "0000-00-00"
_DATE_DIGITS: Final = 8
_MOMENT_DIGITS: Final = 14


def _digits_or_text(value: Any, kind: Type) -> str:
    """What is read as a date and time."""
    number = number_as_moment(value, kind)
    return as_text(value, kind) if number is None else number


def as_parts(value: Any, kind: Type) -> Moment:
    """The numbers of a value as date and time, which need not be one of the calendar; zeros for what is none."""
    parts = moment_parts(_digits_or_text(value, kind))
    return _NO_MOMENT if parts is None or not _is_on_clock(parts) else parts


def as_span(value: Any, kind: Type) -> timedelta | None:
    """A value as a TIME, of a date its time of day; None for what is none."""
    text = as_text(value, kind)
    if kind.form in (ValueForm.DATE, ValueForm.DATETIME):
        at = datetime_in(text)
        if at is None:
            return None
        return at - at.replace(hour=0, minute=0, second=0, microsecond=0)
    return time_in(text)


Moment = tuple[int, int, int, int, int, int, int]
"""Year, month, day, hour, minute, second, microsecond."""
_NO_MOMENT: Final[Moment] = (0, 0, 0, 0, 0, 0, 0)
_MOST: Final[Moment] = (9999, 12, 31, 23, 59, 59, 999_999)


def _is_on_clock(parts: Moment) -> bool:
    return all(part <= most for part, most in zip(parts, _MOST, strict=True))


_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def odd_moment(value: Any, kind: Type, target: Type, modes: frozenset[str]) -> str | None:
    """A value that is no day of Python's calendar as a DATE or DATETIME, if sql_mode lets it be one: 0000-00-00, days
    or months of 0, a 31st in each month, which a column may have from other times; the year 0. None for any other."""
    said = _digits_or_text(value, kind)
    parts = moment_parts(said)
    if parts is None or not _is_on_clock(parts):
        return None
    year, month, day, hour, minute, second, micro = parts
    if (year, month, day) == (2000, 0, 0) and not said.lstrip().startswith("2000"):
        year = 0  # of two digits
    if not any((year, month, day, hour, minute, second, micro)):
        forbidden = "NO_ZERO_DATE" in modes
    elif not month or not day:
        forbidden = "NO_ZERO_IN_DATE" in modes
    else:
        is_day = day <= _DAYS[month - 1] + (month == 2 and year != 0 and calendar.isleap(year))
        forbidden = not is_day and not kind.is_time and "ALLOW_INVALID_DATES" not in modes
    if forbidden:
        return None
    text = f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}.{micro:06d}"
    return text[: target.length]


def is_moment(value: str) -> bool:
    """Whether a text is a date, or a date and time, and nothing else, but for blanks."""
    text = value.strip()[:_MOMENT_CHARS_MAX]
    parts = moment_parts(text)
    is_whole = _DATETIME.fullmatch(text) or _DIGITS.fullmatch(text)
    return parts is not None and is_whole is not None and _is_on_clock(parts)


def is_time(value: str) -> bool:
    """Whether a text begins with a TIME, or is a date and time."""
    return time_in(value) is not None or is_moment(value)


def datetime_in(value: str) -> datetime | None:
    """The date and time that a text says; None if it says none."""
    parts = moment_parts(value)
    try:
        return None if parts is None else datetime(*parts)
    except ValueError:
        return None


def moment_parts(value: str) -> Moment | None:
    """The numbers of a date and time in a text, which need not be one of the calendar; None for another text."""
    value = value.lstrip()[:_MOMENT_CHARS_MAX]
    found = _DATETIME.match(value)
    if found:
        year, month, day, *rest = found.groups()
        hour, minute, second, fraction = (part or "0" for part in rest)
        parts = [_year(year), int(month), int(day), int(hour), int(minute), int(second)]
    else:
        digits = _DIGITS.match(value)
        if digits is None:
            return None
        date, _, clock = digits[1].partition("T")
        text, fraction = date + clock, digits[2] or "0"
        size = 4 if len(date) in (8, 14) else 2
        parts = [_year(text[:size])]
        parts += [int(text[at : at + 2]) for at in range(size, len(text), 2)]
        parts += [0] * (6 - len(parts))
    year_, month_, day_, hour_, minute_, second_ = parts
    micro = int(fraction[:6].ljust(6, "0"))
    return year_, month_, day_, hour_, minute_, second_, micro


def _year(text: str) -> int:
    year = int(text)
    if len(text) != 2:
        return year
    return year + (2000 if year < 70 else 1900)


def time_in(value: str) -> timedelta | None:
    """The TIME that a text says, of a date and time its time of day; None if it says none."""
    span = span_in(value)[0]
    return None if span is None else max(-_TIME_MAX, min(span, _TIME_MAX))


def span_in(value: str) -> tuple[timedelta | None, bool]:
    """The span of time that a text begins with, which may be longer than a TIME, and whether it says nothing else."""
    value = value.strip()[:_MOMENT_CHARS_MAX]
    if is_dated(value):
        parts = moment_parts(value)
        if parts is None or not _is_on_clock(parts):
            return None, False
        at = timedelta(hours=parts[3], minutes=parts[4], seconds=parts[5], microseconds=parts[6])
        return at, is_moment(value)
    found = _TIME.match(value)
    if found:
        sign, days, hours, alone, minutes, seconds, fraction = found.groups()
        clock = [int(days or 0) * 24 + int(hours or alone), int(minutes or 0), int(seconds or 0)]
    else:
        found = _TIME_DIGITS.match(value)
        if found is None:
            return None, False
        sign, number, fraction = found[1], int(found[2]), found[3]
        clock = [number // 10_000, number // 100 % 100, number % 100]
    if clock[1] > 59 or clock[2] > 59 or _EXPONENT.match(value, found.end()):
        return None, False
    micro = int((fraction or "0")[:6].ljust(6, "0"))
    span = timedelta(hours=clock[0], minutes=clock[1], seconds=clock[2], microseconds=micro)
    return -span if sign else span, found.end() == len(value)


def is_dated(value: str) -> bool:
    """Whether a text is a date and a time, where it may be a TIME alone."""
    return _DATED.match(value) is not None


def moment_text(parts: Moment, form: ValueForm, decimals: int = 0) -> str:
    """As MariaDB prints a DATE or DATETIME, which need not be one of the calendar."""
    year, month, day, hour, minute, second, micro = parts
    date = f"{year:04d}-{month:02d}-{day:02d}"
    if form is ValueForm.DATE:
        return date
    return f"{date} {hour:02d}:{minute:02d}:{second:02d}{_fraction(micro, decimals)}"


def datetime_text(value: datetime, decimals: int = 0) -> str:
    """As MariaDB prints a DATETIME."""
    return value.strftime(f"{value.year:04d}-%m-%d %H:%M:%S") + _fraction(
        value.microsecond, decimals
    )


def date_text(value: datetime) -> str:
    """As MariaDB prints a DATE."""
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"


def time_text(value: timedelta, decimals: int = 0) -> str:
    """As MariaDB prints a TIME."""
    sign = "-" if value < timedelta(0) else ""
    value = min(abs(value), _TIME_MAX)
    seconds = value.days * 86400 + value.seconds
    hours, rest = divmod(seconds, 3600)
    return f"{sign}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}" + _fraction(
        value.microseconds, decimals
    )


def _fraction(microseconds: int, decimals: int) -> str:
    return f".{microseconds:06d}"[: 1 + decimals] if decimals else ""
