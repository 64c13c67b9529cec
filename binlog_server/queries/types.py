"""Types of expressions: what a value is, and how MariaDB declares a result column of it.

The lengths and decimals are those of 11.8, found by what it sends: tests hold them to its recorded answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NotSupportedYet
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.collation_names import collation_name
from binlog_protocol.events.column_type import INTEGER_SIZES, ColumnType
from binlog_protocol.wire.binary_rows import DECIMALS
from binlog_protocol.wire.results import (
    CHARSET_BINARY,
    CHARSET_UTF8,
    DECIMALS_OF_TEXT,
    FLAG_BINARY,
    FLAG_NOT_NULL,
    FLAG_UNSIGNED,
    FLAG_ZEROFILL,
    Column,
)

_NOT_FIXED: Final = 31  # decimals of a DOUBLE whose digits vary
_DOUBLE_CHARS: Final = 23
_DOUBLE_DIGITS: Final = 17  # with a sign and a point
_INT_CHARS: Final = 9  # an integer expression that may be longer is a BIGINT
_BIGINT_CHARS: Final = 21
DECIMAL_DIGITS_MAX: Final = 65
DECIMAL_SCALE_MAX: Final = 38
QUOTIENT_DIGITS: Final = 4  # div_precision_increment
_SUM_DIGITS: Final = 22
_SPREAD_CHARS: Final = 6  # of a variance, beside those of the square
_UTF8_BYTES: Final = 3
_UTF8MB4_BYTES: Final = 4
_VARCHAR_CHARS_MAX: Final = 65_535 // 4
_TEXT_CHARS_MAX: Final = (1 << 24) - 1  # of a text that is computed
MIXED: Final = -1
_WIDEST: Final = "utf8mb4"
"""In the place of a collation: of texts of several, which are not compared."""


class ValueForm(Enum):
    """The form of a value in Python: NULL is None in each of them; times are texts as MariaDB prints them."""

    NULL = auto()
    INT = auto()
    DECIMAL = auto()
    DOUBLE = auto()  # float
    TEXT = auto()
    BYTES = auto()
    DATE = auto()
    TIME = auto()
    DATETIME = auto()


NUMBERS: Final = frozenset({ValueForm.INT, ValueForm.DECIMAL, ValueForm.DOUBLE})
TIMES: Final = frozenset({ValueForm.DATE, ValueForm.TIME, ValueForm.DATETIME})
_TIME_CHARS: Final = {ValueForm.DATE: 10, ValueForm.TIME: 10, ValueForm.DATETIME: 19}
_TIME_CODES: Final = {
    ValueForm.DATE: ColumnType.DATE,
    ValueForm.TIME: ColumnType.TIME,
    ValueForm.DATETIME: ColumnType.DATETIME,
}
_FORMS: Final[Mapping[int, ValueForm]] = {
    **dict.fromkeys((*INTEGER_SIZES, ColumnType.YEAR), ValueForm.INT),
    **dict.fromkeys((ColumnType.FLOAT, ColumnType.DOUBLE), ValueForm.DOUBLE),
    **dict.fromkeys(DECIMALS, ValueForm.DECIMAL),
    ColumnType.NULL: ValueForm.NULL,
    ColumnType.DATE: ValueForm.DATE,
    ColumnType.TIME: ValueForm.TIME,
    **dict.fromkeys((ColumnType.TIMESTAMP, ColumnType.DATETIME), ValueForm.DATETIME),
}


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an expression.

    Attributes:
        length: characters of a text, bytes of BYTES, else the characters that a number or time takes at most.
        decimals: digits behind the point; of a text what MariaDB sends there.
        may_be_null: whether the expression may give NULL.
        code: the wire's type, where it does not follow from the rest; 0 elsewhere.
        is_exact: a text that is compared with its case (a binary collation).
        collation: of a column of a table that is held here, of what is made of it, and of COLLATE, the number of the
            collation; 0 for any other text, `MIXED` where several meet.
        is_collated: COLLATE says so, which wins over others.
        column: the table's column that the expression is, with its flags; None for what is computed.
        is_json: a text that a JSON function has made, or a JSON column has, and that stands in others as it is.
        said_in: the character set whose bytes are those of a text that no column is in, where it is no UTF-8.
    """

    form: ValueForm
    length: int = 0
    decimals: int = 0
    unsigned: bool = False
    may_be_null: bool = True
    code: int = 0
    is_exact: bool = False
    column: Column | None = None
    is_json: bool = False
    collation: int = 0
    is_collated: bool = False
    said_in: str = ""

    @property
    def is_number(self) -> bool:
        return self.form in NUMBERS

    @property
    def is_time(self) -> bool:
        return self.form in TIMES

    @property
    def characters(self) -> int:
        """Characters of the value as a text, at most."""
        return self.length

    @property
    def digits(self) -> int:
        """Digits of a number, those behind the point too."""
        if self.form is ValueForm.INT:
            is_of_column = self.column is not None and not self.unsigned
            return max(1, self.length - (self.code == _SIGNED or is_of_column))
        return max(1, self.length - bool(self.decimals) - (not self.unsigned))

    @property
    def padded_to(self) -> int:
        """The characters to which zeros fill a number up: of a column with ZEROFILL; else 0."""
        column = self.column
        is_padded = column is not None and column.flags & FLAG_ZEROFILL and self.code != YEAR
        return column.length if column is not None and is_padded else 0

    @property
    def scale(self) -> int:
        """Digits behind the point of an exact number."""
        return (
            self.decimals
            if self.form in (ValueForm.DECIMAL, ValueForm.TIME, ValueForm.DATETIME)
            else 0
        )

    def nullable(self, may_be_null: bool = True) -> Type:
        """The type of an expression that may be NULL where this one is not, too."""
        return replace(self, may_be_null=self.may_be_null or may_be_null, column=None)

    def computed(self) -> Type:
        """The type without the column that it came from."""
        return replace(self, column=None) if self.column is not None else self

    def wire(self, name: str) -> Column:
        """The result column of that name."""
        if self.column is not None:
            return replace(self.column, name=name)
        null = 0 if self.may_be_null else FLAG_NOT_NULL
        if self.form is ValueForm.TEXT:
            code, flags = self.code if self.code > 0 else _text_code(self.length), null
            flags |= FLAG_UNSIGNED if code == ColumnType.STRING and self.unsigned else 0
            flags |= FLAG_BINARY if self.is_by_bytes else 0
            length = self.length * _UTF8_BYTES
            found = Column(name, code, CHARSET_UTF8, length, flags, self.decimals)
            return self.told(found) if self.is_json or self.code in NATIVE else found
        flags = null | FLAG_BINARY | (FLAG_UNSIGNED if self.unsigned else 0)
        code = self.code if self.code > 0 else self._code()
        decimals = self.decimals if self.form is not ValueForm.INT else 0
        return Column(name, code, CHARSET_BINARY, self.length, flags, decimals)

    def told(self, column: Column) -> Column:
        """A column with what clients that ask for it are told of its text."""
        return replace(
            column, format="json" if self.is_json else "", native=NATIVE.get(self.code, "")
        )

    @property
    def is_by_bytes(self) -> bool:
        """Whether its collation is one that compares bytes."""
        number = self.collation
        return number == MIXED or (bool(number) and collation_name(number).endswith("_bin"))

    def _code(self) -> int:
        match self.form:
            case ValueForm.NULL:
                return ColumnType.NULL
            case ValueForm.INT:
                return ColumnType.LONG if self.length <= _INT_CHARS else ColumnType.LONGLONG
            case ValueForm.DECIMAL:
                return ColumnType.NEWDECIMAL
            case ValueForm.DOUBLE:
                return ColumnType.DOUBLE
            case ValueForm.BYTES:
                return _text_code(self.length // 4)
        return _TIME_CODES[self.form]


HYBRID: Final = -2  # as `code`: BYTES that are a number where one is wanted
HEX: Final = -3  # as `code`: x'3132', an integer by its digits where a number is wanted
LABEL: Final = -4  # as `code`: a TEXT of an ENUM or SET, ordered by its number
UUID, INET4, INET6 = -5, -6, -7  # as `code`: a TEXT that is compared by its bytes
NATIVE: Final = {UUID: "uuid", INET4: "inet4", INET6: "inet6"}
YEAR: Final = int(ColumnType.YEAR)
_SIGNED: Final = -1  # as `code`: the length of an integer counts a sign


def _text_code(characters: int) -> int:
    if characters <= _VARCHAR_CHARS_MAX:
        return ColumnType.VAR_STRING
    return ColumnType.MEDIUM_BLOB if characters <= _TEXT_CHARS_MAX else ColumnType.LONG_BLOB


NULL: Final = Type(ValueForm.NULL)
BOOLEAN: Final = Type(ValueForm.INT, 1, may_be_null=False, code=ColumnType.LONG)
TRUTH: Final = Type(ValueForm.INT, 5, may_be_null=False)  # TRUE and FALSE, not a comparison
DOUBLE: Final = Type(ValueForm.DOUBLE, _DOUBLE_CHARS, _NOT_FIXED, may_be_null=False)
BIGINT: Final = Type(ValueForm.INT, _BIGINT_CHARS, may_be_null=False, code=ColumnType.LONGLONG)
UNSIGNED_BIGINT: Final = replace(BIGINT, unsigned=True)


def integer(length: int, *, unsigned: bool = False, signed: bool = False) -> Type:
    """An integer expression. `signed`: the length counts a sign."""
    return Type(
        ValueForm.INT, length, unsigned=unsigned, may_be_null=False, code=_SIGNED if signed else 0
    )


def small(length: int) -> Type:
    """An INT of a function, whatever its length."""
    return Type(ValueForm.INT, length, may_be_null=False, code=ColumnType.LONG)


def text(characters: int, *, decimals: int = DECIMALS_OF_TEXT) -> Type:
    """VARCHAR, or a TEXT where it may be longer."""
    return Type(ValueForm.TEXT, min(characters, _TEXT_CHARS_MAX), decimals, may_be_null=False)


def octets(length: int) -> Type:
    """VARBINARY."""
    return Type(ValueForm.BYTES, length, may_be_null=False)


def decimal(digits: int, scale: int, *, unsigned: bool = False) -> Type:
    """DECIMAL with so many digits, those behind the point too."""
    scale = min(scale, DECIMAL_SCALE_MAX)
    digits = min(digits, DECIMAL_DIGITS_MAX)
    length = digits + bool(scale) + (not unsigned)
    return Type(ValueForm.DECIMAL, length, scale, unsigned, may_be_null=False)


def fixed_double(decimals: int) -> Type:
    """DOUBLE that is printed with so many digits behind the point; those of any DOUBLE beyond 30."""
    if decimals >= _NOT_FIXED:
        return DOUBLE
    return replace(DOUBLE, length=_DOUBLE_DIGITS + decimals, decimals=decimals)


def moment(form: ValueForm, decimals: int = 0) -> Type:
    """DATE, TIME or DATETIME with so many digits of a second."""
    length = _TIME_CHARS[form] + (1 + decimals if decimals else 0)
    return Type(form, length, decimals, may_be_null=False)


def of_column(column: Column, *, is_exact: bool = False) -> Type:
    """The type of a value that comes with a column definition: a table's, or a variable's."""
    if column.type == ColumnType.BIT:
        return replace(
            octets((column.length + 7) // 8),
            unsigned=True,
            may_be_null=not column.flags & FLAG_NOT_NULL,
            code=HYBRID,
            column=column,
        )
    form = _FORMS.get(column.type)
    if form is None:
        form = ValueForm.TEXT if column.charset != CHARSET_BINARY else ValueForm.BYTES
    length = column.length // _UTF8_BYTES if form is ValueForm.TEXT else column.length
    if form is ValueForm.TEXT and column.type == ColumnType.BLOB:
        length = _TEXT_CHARS_MAX
    return Type(
        form,
        length,
        column.decimals,
        bool(column.flags & FLAG_UNSIGNED),
        not column.flags & FLAG_NOT_NULL,
        column.type if form in (ValueForm.INT, ValueForm.DATETIME) else 0,
        is_exact,
        column,
    )


def settled(kind: Type) -> Type:
    """The type of an expression that gives a value of this one: BIT is a number there, ENUM and SET are texts, where a
    column's value may be either.
    """
    if kind.code == LABEL:
        return replace(kind, code=0, column=None)
    if is_bits(kind):
        assert kind.column is not None
        null, bits = kind.may_be_null, kind.column.length
        return Type(ValueForm.INT, bits, unsigned=True, may_be_null=null, code=int(ColumnType.BIT))
    return kind


def is_bits(kind: Type) -> bool:
    """Whether it is a BIT column."""
    return kind.code == HYBRID and kind.column is not None


def any_null(types: Iterable[Type]) -> bool:
    """Whether one of them may be NULL."""
    return any(kind.may_be_null for kind in types)


# --- arithmetic ---


def numeric(kind: Type) -> Type:
    """The type of a value where a number is wanted."""
    if kind.is_number:
        return kind
    if kind.code in (HYBRID, HEX):
        return replace(BIGINT, unsigned=kind.code == HYBRID, may_be_null=kind.may_be_null)
    if kind.code in NATIVE:
        raise NotSupportedYet(f"{NATIVE[kind.code]} where a number is wanted")
    if kind.code == LABEL:
        return integer(len(str(kind.length))).nullable(kind.may_be_null)
    if kind.is_time:
        digits = {ValueForm.DATE: 8, ValueForm.TIME: 7, ValueForm.DATETIME: 14}[kind.form]
        if kind.decimals:
            return decimal(digits + kind.decimals, kind.decimals).nullable(kind.may_be_null)
        return integer(digits).nullable(kind.may_be_null)
    if kind.form is ValueForm.NULL:
        return replace(integer(0), may_be_null=True)
    return DOUBLE.nullable(kind.may_be_null)


def sum_of(left: Type, right: Type) -> Type:
    """The type of `+`, `-`."""
    left, right = numeric(left), numeric(right)
    form = _wider(left, right)
    if form is ValueForm.DOUBLE:
        return DOUBLE
    scale = max(left.scale, right.scale)
    digits = max(left.digits - left.scale, right.digits - right.scale) + 1 + scale
    if form is ValueForm.DECIMAL:
        return decimal(digits, scale, unsigned=left.unsigned and right.unsigned)
    unsigned = left.unsigned or right.unsigned
    return integer(digits + (not unsigned), unsigned=unsigned, signed=not unsigned)


def product_of(left: Type, right: Type) -> Type:
    """The type of `*`."""
    left, right = numeric(left), numeric(right)
    form = _wider(left, right)
    if form is ValueForm.DOUBLE:
        return DOUBLE
    digits = left.digits + right.digits
    if form is ValueForm.DECIMAL:
        unsigned = left.unsigned and right.unsigned
        return decimal(digits, left.scale + right.scale, unsigned=unsigned)
    unsigned = left.unsigned or right.unsigned
    return integer(digits + (not unsigned), unsigned=unsigned, signed=not unsigned)


def quotient_of(left: Type, right: Type) -> Type:
    """The type of `/`: NULL behind a division by 0."""
    left, right = numeric(left), numeric(right)
    if _wider(left, right) is ValueForm.DOUBLE:
        return DOUBLE.nullable()
    scale = left.scale + QUOTIENT_DIGITS
    digits = left.digits + right.scale + QUOTIENT_DIGITS
    return decimal(digits, scale, unsigned=left.unsigned and right.unsigned).nullable()


def remainder_of(left: Type, right: Type) -> Type:
    """The type of `%`."""
    left, right = numeric(left), numeric(right)
    form = _wider(left, right)
    if form is ValueForm.DOUBLE:
        return DOUBLE.nullable()
    scale = max(left.scale, right.scale)
    digits = max(left.digits, right.digits)
    if form is ValueForm.DECIMAL:
        return decimal(digits, scale, unsigned=left.unsigned).nullable()
    length = max(left.length, right.length)
    return integer(length, unsigned=left.unsigned, signed=not left.unsigned).nullable()


def total_of(kind: Type) -> Type:
    """The type of SUM."""
    kind = numeric(kind)
    if kind.form is ValueForm.DOUBLE:
        return DOUBLE.nullable()
    return decimal(kind.digits + _SUM_DIGITS, kind.scale).nullable()


def mean_of(kind: Type) -> Type:
    """The type of AVG."""
    kind = numeric(kind)
    if kind.form is ValueForm.DOUBLE:
        return DOUBLE.nullable()
    return decimal(kind.digits + QUOTIENT_DIGITS, kind.scale + QUOTIENT_DIGITS).nullable()


def unbound(kind: Type) -> Type:
    """The type of a number that may be larger than those of a column: -x, ABS(x)."""
    kind = numeric(kind)
    is_of_column = kind.form is ValueForm.INT and kind.column is not None
    return replace(kind, code=0, column=None) if is_of_column else kind


def spread_of(kind: Type) -> Type:
    """The type of VARIANCE and STD."""
    kind = numeric(kind)
    if kind.form is ValueForm.DOUBLE:
        return DOUBLE.nullable()
    chars = 2 * kind.digits + _SPREAD_CHARS
    return replace(DOUBLE, length=chars, decimals=kind.scale + QUOTIENT_DIGITS).nullable()


def _wider(left: Type, right: Type) -> ValueForm:
    forms = {left.form, right.form}
    for form in (ValueForm.DOUBLE, ValueForm.DECIMAL):
        if form in forms:
            return form
    return ValueForm.INT


# --- one type for several ---


def collated_as(found: Type, kinds: Sequence[Type]) -> Type:
    """A text that is made of texts of these types: with the collation that they have together."""
    texts = [kind for kind in kinds if kind.form is ValueForm.TEXT and kind.collation]
    if found.form is not ValueForm.TEXT:
        return found
    if not texts:
        said_in = next((kind.said_in for kind in kinds if kind.said_in), "")
        return replace(found, said_in=said_in) if said_in else found
    wins = [kind for kind in texts if kind.is_collated]
    if wins:
        numbers = {kind.collation for kind in wins}
        number = numbers.pop() if len(numbers) == 1 else MIXED
    else:
        number = one_collation(kind.collation for kind in texts)
    is_exact = wins[0].is_exact if wins else found.is_exact
    return replace(found, collation=number, is_collated=bool(wins), is_exact=is_exact)


def one_collation(numbers: Iterable[int]) -> int:
    """The collation of values of these ones, in their order; `MIXED` if one meets another that is as good.

    Other character sets become utf8mb4; of one set, the collation that compares bytes wins; bytes win over texts.
    """
    found = 0
    for number in numbers:
        if found in (0, number):
            found = number
        elif MIXED in (found, number):
            return MIXED
        elif CHARSET_BINARY in (found, number):
            found = CHARSET_BINARY
        elif charset_of(found) != charset_of(number):
            found = found if charset_of(found) == _WIDEST else number
        elif collation_name(number).endswith("_bin"):
            found = number
        elif not collation_name(found).endswith("_bin"):
            return MIXED
    return found


def common(
    types: Sequence[Type], *, may_be_null: bool | None = None, keeps_bits: bool = False
) -> Type:
    """The type of CASE, IF, COALESCE and UNION: of a value that is one of these.

    keeps_bits: BIT columns stay bytes, as in UNION.
    """
    null = any_null(types) if may_be_null is None else may_be_null
    given = [kind for kind in types if kind.form is not ValueForm.NULL]
    if not given:
        return NULL
    if all(map(is_bits, given)):
        widest = max(given, key=lambda kind: kind.length)
        return replace(widest if keeps_bits else settled(widest), may_be_null=null)
    if any(kind.is_number for kind in given):
        given = [numeric(k) if is_bits(k) else k for k in given]
    forms = {kind.form for kind in given}
    if forms <= NUMBERS:
        found = _common_number(given, forms)
    elif len(forms) == 1 and given[0].is_time:
        decimals = max(kind.decimals for kind in given)
        found = replace(moment(given[0].form, decimals), code=_same_code(given))
    elif forms <= TIMES:
        found = moment(ValueForm.DATETIME, max(kind.decimals for kind in given))
    elif are_octets(given):
        found = octets(max(kind.length * _bytes_of_one(kind) for kind in given))
    else:
        found = replace(
            text(0),
            length=max(kind.characters for kind in given),
            is_exact=any(kind.is_exact for kind in given),
            is_json=all(kind.is_json for kind in given),
        )
        found = collated_as(found, given)
        natives = {kind.code for kind in given if kind.code in NATIVE}
        if natives:  # of an INET4 and an INET6 an INET6
            is_whole = all(kind.code in NATIVE for kind in given)
            found = replace(found, code=min(natives), collation=0, is_collated=False)
            null = null or not is_whole  # what is none of these is NULL
    return replace(found, may_be_null=null)


def are_octets(kinds: Iterable[Type]) -> bool:
    """Whether what is made of values of these types is bytes: one of them is, and if the statement says it as x'41',
    no other is a text of a column."""
    given = list(kinds)
    octets = [kind for kind in given if kind.form is ValueForm.BYTES]
    texts = [kind for kind in given if kind.form is ValueForm.TEXT]
    if not all(map(is_said, octets)):
        return True
    return bool(octets) and not any(kind.column is not None or kind.collation for kind in texts)


def is_said(kind: Type) -> bool:
    """Whether it is of x'41', 0x41 or b'1'."""
    return kind.code in (HEX, HYBRID) and kind.column is None


def _bytes_of_one(kind: Type) -> int:
    return _UTF8MB4_BYTES if kind.form is ValueForm.TEXT else 1


def _common_number(given: Sequence[Type], forms: set[ValueForm]) -> Type:
    unsigned = all(kind.unsigned for kind in given)
    if ValueForm.DOUBLE in forms:
        return DOUBLE
    if ValueForm.DECIMAL in forms:
        scale = max(kind.scale for kind in given)
        whole = max(kind.digits - kind.scale for kind in given)
        return decimal(whole + scale, scale, unsigned=unsigned)
    longest = max(given, key=lambda kind: kind.length)
    if not unsigned and any(k.unsigned and k.wire("").type == ColumnType.LONGLONG for k in given):
        return decimal(max(kind.digits for kind in given), 0)
    code = (
        ColumnType.LONGLONG
        if any(k.wire("").type == ColumnType.LONGLONG for k in given)
        else ColumnType.LONG
    )
    return Type(ValueForm.INT, longest.length, unsigned=unsigned, may_be_null=False, code=code)


def _same_code(given: Sequence[Type]) -> int:
    codes = {kind.code for kind in given}
    return codes.pop() if len(codes) == 1 else 0
