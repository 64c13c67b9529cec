"""Values of columns, as expressions have them and as rows hold them.

A value that a column cannot hold is an error, with MariaDB's number and text; without a strict sql_mode it is a
warning, and the column gets the nearest value that it holds. What is cut without harm is a note (1265).

===================  =====================  ======================================================
column               in expressions         in `RowFormat`
===================  =====================  ======================================================
integers             int                    int
DECIMAL, DOUBLE      Decimal, float         the same
FLOAT                `values.Single`        float, of four bytes
YEAR                 `values.Year`          int
BIT                  bytes                  int
text                 str                    the same
bytes                bytes                  the same
ENUM, SET            `values.Label`         `EnumIndex`, `SetBits`
DATE, DATETIME       text                   `datetime.date`, `datetime.datetime`, or a `ZeroDate`
TIMESTAMP            text, session's zone   `datetime.datetime` in UTC, or a `ZeroDate`
TIME                 text                   `datetime.timedelta`
UUID, INET4, INET6   `values.Native`        `uuid.UUID`, `ipaddress` objects
===================  =====================  ======================================================
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
import re
import uuid
from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    CannotCastInAssignment,
    CheckFailed,
    ColumnNotNull,
    ColumnOutOfRange,
    ColumnTooSmall,
    ColumnTruncated,
    ColumnWithoutDefault,
    DataOverflow,
    ErrorKind,
    InvalidDefault,
    InvalidOnUpdate,
    NotSupportedYet,
    ServerError,
    TruncatedValue,
    WrongColumnValue,
    WrongTime,
)
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.rows import Value
from binlog_protocol.events.rows.strings import EnumIndex, SetBits
from binlog_protocol.events.rows.temporal import ZERO_TIMESTAMP, ZeroDate
from binlog_protocol.tables.collation import collation_key
from binlog_protocol.tables.ddl_types import unquoted
from binlog_protocol.tables.definition import StoredColumn, StoredTable

from binlog_server.queries import documents, operands, types, values
from binlog_server.queries.catalog import ColumnDefinition
from binlog_server.queries.terms import Asker
from binlog_server.queries.types import Type, ValueForm
from binlog_server.tables.definitions import now_text, quoted_text

_INTEGER_BYTES: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_LONGEST: Final = {
    "tinytext": 0xFF, "text": 0xFFFF, "mediumtext": 0xFFFFFF, "longtext": 0xFFFFFFFF,
    "tinyblob": 0xFF, "blob": 0xFFFF, "mediumblob": 0xFFFFFF, "longblob": 0xFFFFFFFF,
}  # fmt: skip
_TIMES: Final = ("date", "time", "datetime", "timestamp")
NATIVE: Final = {name: code for code, name in types.NATIVE.items()}
"""Types whose values are compared by their bytes, with their codes in `types`."""
_NATIVE_OF: Final[dict[str, Callable[[str], Any]]] = {
    "uuid": uuid.UUID,
    "inet4": ipaddress.IPv4Address,
    "inet6": ipaddress.IPv6Address,
}
_NO_NATIVE: Final = {"uuid": str(uuid.UUID(int=0)), "inet4": "0.0.0.0", "inet6": "::"}
_NUMBER: Final = compiled_later(
    r"\s*([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?)\s*", re.ASCII
)
_INTEGER: Final = compiled_later(r"\s*([-+]?[0-9]+)\s*", re.ASCII)
_TWO_POINTS: Final = compiled_later(
    r"\s*(?=\.?[0-9]|[-+])([-+]?)(?=\.?[0-9])([0-9]{0,18})\.([0-9]{0,18})\.", re.ASCII
)
_TEXT: Final = types.text(0)
_NOW: Final = compiled_later(r"current_timestamp\((\d?)\)")
_DEFAULT_BYTES: Final = compiled_later(r"([bx])'([0-9a-fA-F]*)'")
_SHOWN_CHARS: Final = 64
_ENTRY_BYTES_MAX: Final = 64
_SHOWN_BYTES: Final = 6
_BAD: Final = compiled_later("[\udc80-\udcff]")
_BAD_IN_UTF8MB3: Final = compiled_later("[\udc80-\udcff\U00010000-\U0010ffff]")
_MORE: Final = "..."
_UNSHOWN: Final = compiled_later(r"[^ -~]")
_EPOCH_END: Final = 1 << 32  # of a TIMESTAMP
_UTC: Final = datetime.UTC
_NO_SPAN: Final = datetime.timedelta(0)
_CLOCK_MAX: Final = values.TIME_END - datetime.timedelta(microseconds=1)
_CLOCK_DIGITS: Final = 7
_MICROS: Final = 6
_LAST_MOMENT: Final = 99991231235959
_MOMENT: Final = types.moment(ValueForm.DATETIME, 6)
_FLOAT_MAX: Final = float.fromhex("0x1.fffffep+127")
_DOUBLE_MAX: Final = float.fromhex("0x1.fffffffffffffp+1023")
_YEARS: Final = range(1901, 2156)


# --- from rows ---


def shown(
    column: StoredColumn, local: Callable[[float], datetime.datetime]
) -> Callable[[Any], Any]:
    """What makes a column's value one of an expression. `local`: the session's time, from seconds since 1970."""
    name, digits = column.type.name, _digits(column)
    if name == "time":
        return lambda value: values.time_text(value, digits)
    if name in ("date", "datetime"):
        return lambda value: _moment_text(value, name, digits)
    if name == "timestamp":

        def text(value: Any) -> str:
            if isinstance(value, ZeroDate):
                return _moment_text(value, name, digits)
            moment = local(int(value.replace(microsecond=0).timestamp()))
            return values.datetime_text(moment.replace(microsecond=value.microsecond), digits)

        return text
    if name == "binary":
        width = column.type.numbers[0]
        return lambda value: value.ljust(width, b"\0")
    if name in ("enum", "set"):
        return _labels(column)
    if name == "bit":
        size = (column.type.numbers[0] + 7) // 8
        return lambda value: value.to_bytes(size, "big")
    if name in NATIVE:
        code = NATIVE[name]
        return lambda value: values.native_of(
            code, value.bytes if isinstance(value, uuid.UUID) else value.packed
        )
    return _SHOWN.get(name, _same)


_SHOWN: Final[dict[str, Callable[[Any], Any]]] = {"float": values.Single, "year": values.Year}


def _same(value: Any) -> Any:
    return value


def _labels(column: StoredColumn) -> Callable[[Any], values.Label]:
    labels = column.type.labels or ()
    is_set = column.type.name == "set"
    numbers = {label: 1 << i if is_set else i + 1 for i, label in enumerate(labels)}
    if not is_set:
        by_number = [
            values.Label("", 0),
            *(values.Label(label, numbers[label]) for label in labels),
        ]

        def one(value: Any) -> values.Label:
            number = value.index if isinstance(value, EnumIndex) else numbers.get(value, 0)
            return by_number[number]

        return one

    def some(value: Any) -> values.Label:
        if isinstance(value, SetBits):
            value = ",".join(label for i, label in enumerate(labels) if value.bits >> i & 1)
        return values.Label(value, sum(numbers[label] for label in value.split(",") if value))

    return some


def _moment_text(value: Any, name: str, digits: int) -> str:
    if name == "date":
        return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    if isinstance(value, ZeroDate):
        fraction = f".{value.microsecond:06d}"[: 1 + digits] if digits else ""
        return (
            f"{value.year:04d}-{value.month:02d}-{value.day:02d} "
            f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}{fraction}"
        )
    return values.datetime_text(value, digits)


def _digits(column: StoredColumn) -> int:
    return column.type.numbers[0] if column.type.name in _TIMES and column.type.numbers else 0


# --- into rows ---


@dataclass(frozen=True, slots=True)
class Cells:
    """The columns of a table, for one statement.

    is_strict: a value that a column cannot hold is an error; else a warning of the session.
    copies: the values are those of another table's columns, which ALTER TABLE copies: other errors are told of them.
    cuts: of a copy from a column of the same type and collation, whose texts are cut: 1265 in the place of 1406.
    is_checked: `check` was asked for each column, once for all rows.
    """

    table: StoredTable
    session: Asker
    is_strict: bool = True
    copies: bool = False
    cuts: bool = False
    is_checked: bool = False

    def value(self, number: int, given: Any, kind: Type, row: int) -> Value:
        """The value that a column takes for one of an expression. `row`: its number in the statement, from 1.

        Raises `ServerError`: 1048, 1264, 1265, 1292, 1366, 1406, 4025, 4078.
        """
        column = self.table.columns[number]
        is_assignable = _is_assignable(column, kind)
        if not (is_assignable or self.is_checked):
            self.unfit(self._not_assignable(column, kind))
        if given is None:
            if not column.nullable and column.type.name == "timestamp" and not self.copies:
                return self._of_text(number, now_text(_digits(column)), row)
            if not column.nullable:
                instead = implicit_default(column)
                if self.copies and column.type.name == "enum":
                    instead = EnumIndex(0)
                error = (
                    ColumnTruncated(column.name, row) if self.copies else ColumnNotNull(column.name)
                )
                return self.unfit(error, instead)
            return None
        name = column.type.name
        is_native = kind.code in types.NATIVE
        given, kind = self._copied(given, kind, column)
        if self.copies and is_native and not is_assignable and name not in NATIVE:
            plain = replace(self, copies=False, is_checked=True)  # it is copied as a text
            return plain.value(number, str(given), _TEXT, row)
        if not is_assignable:
            given, kind = values.as_text(given, kind), _TEXT
            if name in NATIVE:
                if column.nullable and (self.copies or is_native):
                    return None  # INSERT of a number takes the type's first one
                self.session.warn(WrongTime(name, given[:_SHOWN_CHARS], self._where(column), row))
                return implicit_default(column)
        if name in _INTEGER_BYTES:
            return self._integer(column, given, kind, row)
        if name in _TIMES:
            return self._time(column, given, kind, row)
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, column, given, kind, row)
        found = self._string(column, given, kind, row)
        if self.table.checks and self.table.is_json(column) and not _is_json(found):
            raise CheckFailed(
                f"{self.table.name}.{column.name}", self.table.database, self.table.name
            )
        return found

    def check(self, number: int, kind: Type) -> None:
        """4078 for a type that the column never takes, whatever the values are, and if there are none."""
        column = self.table.columns[number]
        if not _is_assignable(column, kind):
            self.unfit(self._not_assignable(column, kind))

    def require_assignable(self, number: int, kind: Type) -> None:
        """Raises `CannotCastInAssignment` (4078) for a type that the column never takes."""
        column = self.table.columns[number]
        if not _is_assignable(column, kind):
            raise self._not_assignable(column, kind)

    def _copied(self, given: Any, kind: Type, column: StoredColumn) -> tuple[Any, Type]:
        """A value as a column takes it over, where that is not the value that expressions have.

        A long column takes what is shown, another one the number of a BIT, and but for ALTER of a YEAR, of one with
        ZEROFILL, and all digits of a FLOAT. BIT takes the number of an ENUM or SET, a column of bytes those of a UUID
        or address.
        """
        name, of_bytes = column.type.name, column.type.is_binary and column.type.name not in NATIVE
        if kind.code in types.NATIVE and kind.column is not None and of_bytes:
            raw = bytes.fromhex(values.native_hex(given))
            return raw, types.octets(len(raw))
        if kind.code == types.LABEL and name == "bit":
            return given.number, types.BIGINT
        if column.type.is_long and kind.column is not None:
            return given, kind
        if types.is_bits(kind):
            return int.from_bytes(given, "big"), types.BIGINT
        if isinstance(given, values.Year) and (column.type.is_text or of_bytes) and not self.copies:
            return int(given), types.BIGINT
        if isinstance(given, values.Single) and not self.copies:
            return float(given), types.DOUBLE
        return given, kind.computed() if kind.padded_to and not self.copies else kind

    def _not_assignable(self, column: StoredColumn, kind: Type) -> ServerError:
        name = column.type.name
        target = f"{name} unsigned" if column.type.unsigned and name in _INTEGER_BYTES else name
        return CannotCastInAssignment(operands.type_name(kind), target, self._where(column))

    def default(self, number: int, row: int, *, is_needed: bool = True) -> Value:
        """The default of a column. Raises `ColumnWithoutDefault` (1364) if one is needed, and there is none."""
        column = self.table.columns[number]
        if column.default is None:
            if column.type.name == "enum":
                return EnumIndex(1)
            if not is_needed:
                return implicit_default(column)
            return self.unfit(ColumnWithoutDefault(column.name), implicit_default(column))
        return self._of_text(number, column.default, row)

    def on_update(self, number: int) -> Value:
        """The value of ON UPDATE CURRENT_TIMESTAMP."""
        text = self.table.columns[number].on_update
        assert text is not None
        return self._of_text(number, text, 1)

    def _of_text(self, number: int, text: str, row: int) -> Value:
        now = _NOW.fullmatch(text)
        if now is not None:
            digits = int(now[1] or 0)
            at = values.datetime_text(self.session.local_now(), digits)
            return self.value(number, at, types.moment(ValueForm.DATETIME, digits), row)
        return self.value(number, *literal_value(text), row)

    def unfit(self, error: ServerError, instead: Value = None) -> Value:
        """The value in the place of one that the column does not hold. Raises it in a strict sql_mode."""
        if self.is_strict:
            raise error
        self.session.warn(error)
        return instead

    def _note(self, column: StoredColumn, row: int) -> None:
        """Something was cut that nobody misses."""
        self.session.note(ColumnTruncated(column.name, row))

    def _where(self, column: StoredColumn) -> str:
        return f"`{self.table.database}`.`{self.table.name}`.`{column.name}`"

    def _wrong(
        self, column: StoredColumn, kind: str, given: Any, source: Type, row: int
    ) -> ServerError:
        return WrongColumnValue(kind, _printed(given, source), self._where(column), row)

    def _number(
        self,
        column: StoredColumn,
        given: Any,
        kind: Type,
        row: int,
        name: str,
        fits: Callable[[Any], bool] = lambda number: True,
    ) -> int | Decimal | float:
        """A number, as exact as it is given. `fits`: whether it is in the column's range; of one that is not, only that
        is told.
        """
        copies = self.copies and column.type.name != "year"
        is_whole = copies and name == "integer"  # an integer of 64 bits on its way
        is_text = kind.form in (ValueForm.TEXT, ValueForm.BYTES)
        if is_text and kind.code not in (types.LABEL, types.HYBRID):
            text = values.as_text(given, kind)
            found = (_INTEGER if is_whole else _NUMBER).match(text)
            if (
                name == "integer"
                and not is_whole
                and (points := _TWO_POINTS.match(text)) is not None
            ):
                return self._number_of_two_points(column, points, row)
            if copies and (found is None or found.end() != len(text)):
                self.unfit(TruncatedValue(name.upper(), text[:_SHOWN_CHARS]))
            elif found is None:
                self.unfit(self._wrong(column, name, given, kind, row))
            elif found.end() != len(text) and fits(values.EXACT.create_decimal(found[1])):
                self.unfit(ColumnTruncated(column.name, row))
            if found is None:
                return 0
            number = values.EXACT.create_decimal(found[1])
            if found.end() == len(text) and text[-1].isspace() and fits(number):
                self._note(column, row)
            return float(found[1]) if name == "double" else number
        given = values.as_number(given, kind)
        return self._whole_of_copy(given) if is_whole else given

    def _whole_of_copy(self, number: int | Decimal | float) -> int:
        """An integer of 64 bits, which ALTER makes of a number on its way to a column of integers."""
        if isinstance(number, Decimal):
            number = int(values.rounded(number, 0))
        low, high = values.I64_MIN, values.I64_MAX if isinstance(number, float) else values.U64_MAX
        if not low <= number <= high:
            self.unfit(DataOverflow(values.as_text(number, types.DOUBLE), "INT"))
        return round(max(low, min(number, high)))

    def _number_of_two_points(self, column: StoredColumn, found: re.Match[str], row: int) -> int:
        """An integer as MariaDB reads it where a second point ends it: by all digits in front of that."""
        self.unfit(ColumnTruncated(column.name, row))
        return int("".join(found.groups()))

    def _integer(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        bits = 8 * _INTEGER_BYTES[column.type.name]
        low, high = (
            (0, 2**bits - 1) if column.type.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )

        if kind.is_time:  # without its fraction
            given, kind = int(values.as_number(given, kind)), types.BIGINT

        def fits(number: Any) -> bool:
            return bool(low <= self._whole(number, low, high) <= high)

        exact = self._number(column, given, kind, row, "integer", fits)
        number = self._whole(exact, low, high)
        is_below = kind.form is ValueForm.DECIMAL and column.type.unsigned and given < 0
        if low <= number <= high and not is_below:
            return number
        return self.unfit(ColumnOutOfRange(column.name, row), low if number <= low else high)

    @staticmethod
    def _whole(number: int | Decimal | float, low: int, high: int) -> int:
        """A number as an integer, rounded; one that is far outside of the bounds is one next to them."""
        if isinstance(number, int):
            return number
        if not low - 1 < number < high + 1:
            return low - 1 if number < low else high + 1
        return round(number) if isinstance(number, float) else int(values.rounded(number, 0))

    def _decimal(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        digits, scale = (*column.type.numbers, 0)[:2]
        number = self._number(column, given, kind, row, "decimal")
        exact = values.EXACT.create_decimal(
            repr(float(number)) if isinstance(number, float) else number
        )
        most = Decimal((0, (9,) * digits, -scale))
        if not exact.is_finite() or exact.adjusted() > digits - scale:
            return self._outside(column, row, most, is_below=exact < 0)
        is_tiny = exact.adjusted() < -scale - 1
        found = Decimal(0).scaleb(-scale) if is_tiny else values.rounded(exact, scale)
        if (column.type.unsigned and exact < 0) or (found and found.adjusted() >= digits - scale):
            return self._outside(column, row, most, is_below=exact < 0)
        if found != exact:
            self._note(column, row)
        return found

    def _outside(self, column: StoredColumn, row: int, most: Any, *, is_below: bool) -> Value:
        """The end of a range, 1264."""
        # Not by a minus, which would round a Decimal to 28 digits.
        below = most.copy_negate() if isinstance(most, Decimal) else -most
        least = most * 0 if column.type.unsigned else below
        return self.unfit(ColumnOutOfRange(column.name, row), least if is_below else most)

    def _floating(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        number = float(self._number(column, given, kind, row, "double"))
        is_single = column.type.name == "float"
        most = _FLOAT_MAX if is_single else _DOUBLE_MAX
        if column.type.numbers:
            width, scale = column.type.numbers
            unit = 10.0**scale
            most = min(most, 10.0 ** (width - scale) - 1 / unit)
            if abs(number) < _DOUBLE_MAX / unit:
                whole = float(int(number // 1)) if abs(number) < 1e300 else number
                number = round((number - whole) * unit) / unit + whole
        if not -most <= number <= most or (column.type.unsigned and number < 0):
            return self._outside(column, row, most, is_below=number < 0)
        return array("f", [number])[0] if is_single else number

    def _year(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        if kind.form in (ValueForm.DATE, ValueForm.DATETIME, ValueForm.TIME):
            year = 0 if kind.form is ValueForm.TIME else int(given[:4])
            if not year or year in _YEARS:
                if self.is_strict:
                    shown_kind = kind.form.name.lower()
                    raise WrongTime(shown_kind, given[:_SHOWN_CHARS], self._where(column), row)
                if not self.copies:
                    self.session.warn(ColumnTruncated(column.name, row))
            if not self.copies or kind.form is not ValueForm.TIME:
                given, kind = year, types.BIGINT

        if kind.is_number and given < 0:
            return self.unfit(ColumnOutOfRange(column.name, row), 0)
        if kind.form is ValueForm.DOUBLE:
            given, kind = (
                int(given) if given <= _YEARS[-1] else 9999,
                types.BIGINT,
            )  # not rounded, as a DECIMAL is

        def fits(number: Any) -> bool:
            whole = self._whole(number, 0, 9999)
            return 0 <= whole < 100 or whole in _YEARS

        number = self._whole(self._number(column, given, kind, row, "integer", fits), 0, 9999)
        if number == 0:
            is_text = kind.form in (ValueForm.TEXT, ValueForm.BYTES)
            text = values.as_text(given, kind) if is_text else ""
            # Of texts that begin with a zero '0000' alone is none; '0000-00-00' is not.
            return 2000 if text.lstrip(" +-.")[:1].isdigit() and len(text) != 4 else 0
        if 0 < number < 100:
            number += 2000 if number < 70 else 1900
        if number in _YEARS:
            return number
        return self.unfit(ColumnOutOfRange(column.name, row), 0)

    def _bits(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        bits = column.type.numbers[0]
        if kind.form is ValueForm.DECIMAL and given < 0:
            return self.unfit(ColumnOutOfRange(column.name, row), 0)
        if self.copies:
            number = self._whole(
                self._number(column, given, kind, row, "integer"), -(1 << 63), (1 << 64) - 1
            )
        elif kind.form in (ValueForm.TEXT, ValueForm.BYTES):
            number = int.from_bytes(values.as_bytes(given, kind), "big")
        else:
            number = _eight_bytes(values.as_number(given, kind))
        if 0 <= number < 1 << bits:
            return number
        error = ColumnTooSmall if self.is_strict else ColumnOutOfRange
        return self.unfit(error(column.name, row), (1 << bits) - 1)

    def _enum(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        labels = column.type.labels or ()
        if not kind.is_number:
            text = self._text_of(column, given, kind, row).rstrip(" ")
            number = _label_numbers(column).get(_label_key(text, column), 0)
            if (
                not number
                and text.isascii()
                and text.isdecimal()
                and len(text) <= len(str(len(labels)))
            ):
                number = int(text)
        else:
            number = self._label_number(given, kind)
        if 0 < number <= len(labels):
            return EnumIndex(number)
        return self.unfit(ColumnTruncated(column.name, row), EnumIndex(0))

    def _label_number(self, given: Any, kind: Type) -> int:
        number = values.as_number(given, kind)
        return self._whole_of_copy(number) if self.copies else int(number)

    def _set(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        labels = column.type.labels or ()
        every = (1 << len(labels)) - 1
        is_right = True
        if not kind.is_number:
            text = self._text_of(column, given, kind, row).rstrip(" ")
            known, bits = _label_numbers(column), 0
            for part in text.split(",") if text else ():
                number = known.get(_label_key(part, column), 0)
                is_right = is_right and bool(number)
                bits |= 1 << number - 1 if number else 0
            if not bits and text.isascii() and text.isdecimal() and int(text[:30]) <= every:
                bits, is_right = int(text), True
        else:
            number = self._label_number(given, kind)
            bits, is_right = number & every, 0 <= number <= every
        return (
            SetBits(bits)
            if is_right
            else self.unfit(ColumnTruncated(column.name, row), SetBits(bits))
        )

    def _native(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        name = column.type.name
        code = NATIVE[name]
        instead = None if column.nullable else implicit_default(column)
        found = None
        if kind.form is ValueForm.BYTES and len(given) == column.layout.size:
            found = values.native_in(code, values.native_of(code, given))
        elif kind.form in (ValueForm.TEXT, ValueForm.BYTES):
            found = values.native_in(code, given)
        if found is None:
            error = WrongTime(name, _printed(given, kind), self._where(column), row)
            return self.unfit(error, instead)
        return _NATIVE_OF[name](found)  # type: ignore[no-any-return]

    def _text_of(self, column: StoredColumn, given: Any, kind: Type, row: int) -> str:
        """A text of the column's character set."""
        try:
            text = given.decode() if isinstance(given, bytes) else values.as_text(given, kind)
            text.encode()
        except UnicodeError:
            raw = given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
        else:
            if charset_of(column.collation) != "utf8mb3" or not text or max(text) <= "\uffff":
                return text
            raw = text.encode()
        text, bad = _some_text(raw, column)
        self.unfit(WrongColumnValue("string", bad, self._where(column), row), None)
        return text[: column.characters]  # one warning is enough

    def _string(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        error = ColumnTooSmall if self.is_strict and not self.cuts else ColumnTruncated
        if isinstance(given, Decimal) and not self.copies and not kind.padded_to:
            # With all digits that it was computed with.
            given, kind = f"{given:f}", _TEXT
        if isinstance(given, float) and not self.copies:
            given, is_whole = _printed_within(given, kind, column)
            kind = _TEXT
            if not is_whole:
                self.unfit(error(column.name, row))
        if not column.type.is_text:
            raw = values.as_bytes(given, kind)
            most = _LONGEST.get(column.type.name) or column.type.numbers[0]
            return raw if len(raw) <= most else self.unfit(error(column.name, row), raw[:most])
        text = self._text_of(column, given, kind, row)
        if column.type.is_long:
            most = _LONGEST[column.type.name]
            if len(text) * 4 <= most or len(raw := text.encode()) <= most:
                return text
            return self.unfit(error(column.name, row), raw[:most].decode("utf-8", "ignore"))
        most = column.type.numbers[0]
        if len(text) > most:
            if text[most:].strip(" "):
                self.unfit(error(column.name, row), None)
            elif column.type.name == "varchar":
                self._note(column, row)
            text = text[:most]
        return text.rstrip(" ") if column.type.name == "char" else text

    def _time(self, column: StoredColumn, given: Any, kind: Type, row: int) -> Value:
        name, digits = column.type.name, _digits(column)
        text = values.as_text(given, kind)
        if self.copies and kind.form is ValueForm.DOUBLE:
            given, kind = text, _TEXT
        if name != "time" and kind.form is ValueForm.TIME:
            text = self._today_at(text)
        found: Value = None
        error: ErrorKind = ColumnTruncated
        if name == "time":
            found, error, is_right = _clock(given, text, kind, digits)
            if "TIME_ROUND_FRACTIONAL" in self.session.modes:
                exact, _, _ = _clock(given, text, kind, _MICROS)
                self._require_cutting(exact != found)
            if found is not None and is_right:
                if _is_cut(text, kind):
                    self._note(column, row)
                return found
        else:
            number = values.number_as_moment(given, kind)
            moment = text if number is None else number
            parts = values.moment_parts(moment)
            if parts is not None:
                found, is_right = self._moment(name, parts, digits)
                is_no_year = self.copies and isinstance(given, values.Year) and not given
                if is_right and values.is_moment(moment) and not is_no_year:
                    if name == "date" and any(parts[3:]):
                        self._note(column, row)
                    return found
                if found is None:
                    error = ColumnOutOfRange
        if self.is_strict:
            shown_kind = "datetime" if name == "timestamp" else name
            raise WrongTime(shown_kind, text[:_SHOWN_CHARS], self._where(column), row)
        self.session.warn(error(column.name, row))
        return implicit_default(column) if found is None else found

    def _require_cutting(self, rest: int | bool) -> None:
        """Raises `NotSupportedYet` (1235) where digits that are cut would have to be rounded."""
        if rest and "TIME_ROUND_FRACTIONAL" in self.session.modes:
            raise NotSupportedYet("a time with more digits and the sql_mode TIME_ROUND_FRACTIONAL")

    def _today_at(self, text: str) -> str:
        """A TIME as the moment that a DATE or DATETIME gets for it."""
        at = values.time_on(text, self.session.local_now())
        return text if at is None else values.datetime_text(at, 6)

    def _moment(self, name: str, parts: values.Moment, digits: int) -> tuple[Value, bool]:
        """The value of a column for these numbers, and whether it may be one in the session's sql_mode.

        Without a value: it is out of the column's range, or the zero date where that is not wanted.
        """
        modes = self.session.modes
        year, month, day, hour, minute, second, micro = parts
        unit = 10 ** (6 - digits)
        self._require_cutting(micro % unit)
        has_clock = bool(hour or minute or second or micro)
        micro = micro // unit * unit
        zero = ZERO_TIMESTAMP if name != "date" else ZeroDate(0, 0, 0)
        if month > 12 or day > 31 or hour > 23 or minute > 59 or second > 59:
            return zero, False
        if (year, month, day) == (0, 0, 0):
            if "NO_ZERO_DATE" in modes:
                return None, False
            if name == "timestamp" and has_clock:
                return zero, False
            return (
                ZeroDate(0, 0, 0, hour, minute, second, micro) if name == "datetime" else zero
            ), True
        if not (month and day) and ("NO_ZERO_IN_DATE" in modes or name == "timestamp"):
            return zero, False
        if name == "timestamp" and not year:
            return None, False
        try:
            at = datetime.datetime(year, month, day, hour, minute, second, micro)
        except ValueError:
            is_right = not (month and day and year) or "ALLOW_INVALID_DATES" in modes
            if name == "timestamp" or (not is_right and day > 28):
                return zero, False
            if name == "date":
                return ZeroDate(year, month, day), True
            return ZeroDate(year, month, day, hour, minute, second, micro), True
        if name == "date":
            return at.date(), True
        if name == "datetime":
            return at, True
        seconds = int(self.session.seconds(at.replace(microsecond=0)))
        if not 0 < seconds < _EPOCH_END:
            return None, False
        return datetime.datetime.fromtimestamp(seconds, _UTC).replace(microsecond=micro), True


_SPECIAL: Final[dict[str, Callable[[Cells, StoredColumn, Any, Type, int], Value]]] = {
    "decimal": Cells._decimal,
    "double": Cells._floating,
    "float": Cells._floating,
    "year": Cells._year,
    "bit": Cells._bits,
    "enum": Cells._enum,
    "set": Cells._set,
    **dict.fromkeys(NATIVE, Cells._native),
}


def implicit_default(column: StoredColumn) -> Value:
    """What stands in a column that is NOT NULL for a value that is missing, where that is no error."""
    name = column.type.name
    if name in _INTEGER_BYTES or name in ("year", "bit"):
        return 0
    match name:
        case "decimal":
            return Decimal(0).scaleb(-(*column.type.numbers, 0)[1])
        case "float" | "double":
            return 0.0
        case "date" | "datetime" | "timestamp":
            return ZERO_TIMESTAMP
        case "time":
            return datetime.timedelta(0)
        case "enum":
            return EnumIndex(1)
        case "set":
            return SetBits(0)
    if name in NATIVE:
        return _NATIVE_OF[name](_NO_NATIVE[name])  # type: ignore[no-any-return]
    return "" if column.type.is_text else b""


def literal_value(text: str) -> tuple[Any, Type]:
    """A default as it is written: its value, and the type of that."""
    if text == "NULL":
        return None, types.NULL
    if text[:1] == "'":
        return unquoted(text, escapes=True), _TEXT
    found = _DEFAULT_BYTES.fullmatch(text)
    if found is None:
        number = Decimal(text)
        if "." not in text and "e" not in text.lower():
            return int(number), types.BIGINT
        if "e" in text.lower():
            return float(text), types.DOUBLE
        return number, types.decimal(65, len(text.partition(".")[2]))
    if found[1] == "x":
        raw = bytes.fromhex("0" * (len(found[2]) % 2) + found[2])
    else:
        raw = int(found[2] or "0", 2).to_bytes(max(1, (len(found[2]) + 7) // 8), "big")
    return raw, replace(types.octets(len(raw)), code=types.HYBRID)


def _is_assignable(column: StoredColumn, kind: Type) -> bool:
    """Whether a column takes values of a type: a UUID or address only its own kind, texts and bytes."""
    if column.type.name in NATIVE:
        code = NATIVE[column.type.name]
        return operands.are_alike(kind, replace(types.text(0), code=code))
    return kind.code not in types.NATIVE or not _is_number_or_time(column)


def _is_number_or_time(column: StoredColumn) -> bool:
    given = column.type
    return not (given.is_text or given.is_binary or given.labels is not None)


def _printed(given: Any, kind: Type) -> str:
    """A value as errors show it: bytes that are no text as \\xNN."""
    text = values.as_text(given, kind)[:_SHOWN_CHARS]
    raw = text.encode("utf-8", "surrogateescape")
    if isinstance(given, bytes):
        return "".join(chr(b) if 32 <= b < 127 else f"\\x{b:02X}" for b in raw)
    return "".join(f"\\x{ord(c) - 0xDC00:02X}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def _some_text(raw: bytes, column: StoredColumn) -> tuple[str, str]:
    """What a text column gets for what is no text in its character set, a ? for each that is none; and the bytes from
    the first of them on, as a warning shows them."""
    is_bad = _BAD_IN_UTF8MB3 if charset_of(column.collation) == "utf8mb3" else _BAD
    text = raw.decode(errors="surrogateescape")
    first = is_bad.search(text)
    at = 0 if first is None else len(text[: first.start()].encode(errors="surrogateescape"))
    shown_bytes = _UNSHOWN.sub(_hex, raw[at : at + _SHOWN_BYTES].decode("latin-1"))
    return is_bad.sub("?", text), shown_bytes + "..." * (len(raw) > at + _SHOWN_BYTES)


def _hex(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02X}"


def _is_json(value: Value) -> bool:
    return documents.bounds(str(value)) is not None


def _printed_within(number: float, kind: Type, column: StoredColumn) -> tuple[str, bool]:
    """A DOUBLE for a column of characters or bytes, with as many digits as it has room for; and whether it is whole."""
    text = values.as_text(number, kind)
    width = _LONGEST.get(column.type.name) or column.type.numbers[0]
    if len(text) <= width:
        return text, True
    text, is_whole = values.double_within(float(number), width)
    return text[:width], is_whole


def _eight_bytes(number: int | Decimal | float) -> int:
    """A number as BIT takes it: what is beyond 64 bits is an end of them, of a DOUBLE always that one."""
    if isinstance(number, float):
        is_within = -(2.0**63) <= number < 2.0**63
        return int(number) & values.U64_MAX if is_within else 1 << 63
    whole = int(values.rounded(Decimal(number), 0)) if isinstance(number, Decimal) else number
    if whole > values.U64_MAX:
        return 1 << 64
    return max(whole, values.I64_MIN) & values.U64_MAX


def _label_key(text: str, column: StoredColumn) -> bytes:
    return collation_key(text.encode("utf-8", "replace"), column.collation)


@functools.lru_cache(maxsize=256)
def _label_numbers(column: StoredColumn) -> dict[bytes, int]:
    """The numbers of labels, by what they are compared by."""
    labels = column.type.labels or ()
    return {_label_key(label, column): number for number, label in enumerate(labels, 1)}


# --- definitions ---


def normal_default(column: StoredColumn, literal: str, session: Asker) -> str:
    """A literal as information_schema prints the default of a column. Raises `InvalidDefault` (1067)."""
    now = _NOW.fullmatch(literal)
    if now is not None and not column.is_auto_increment:
        most = _digits(column)
        return now_text(min(int(now[1] or most), most))
    if column.is_auto_increment or (literal == "NULL" and not column.nullable):
        raise InvalidDefault(column.name)
    if literal == "NULL":
        return literal
    given, kind = literal_value(literal)
    if column.type.labels is not None and kind.form is not ValueForm.TEXT:
        raise InvalidDefault(column.name)
    alone = StoredTable("", "default", (replace(column, is_auto_increment=False),))
    try:
        value = Cells(alone, session).value(0, given, kind, 1)
    except ServerError:
        raise InvalidDefault(column.name) from None
    if column.type.name == "bit":
        assert isinstance(value, int)
        return f"b'{value:b}'"
    if column.type.zerofill:
        return values.as_text(shown(column, session.local)(value), _padded(column))
    if column.type.name in _INTEGER_BYTES:
        return str(value)
    if column.type.name == "year":
        return str(values.Year(str(value)))
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        scale = column.type.numbers[1] if column.type.numbers else None
        if scale is not None:
            return f"{value:.{scale}f}"
        return (
            str(values.Single(value)) if column.type.name == "float" else values.double_text(value)
        )
    if isinstance(value, bytes):
        if column.type.name in ("binary", "varbinary") and value:  # as 11.8; 10.11 has a text
            size = (column.type.numbers or (1,))[0] if column.type.name == "binary" else 0
            return "x'" + value.ljust(size, b"\0").hex() + "'"
        if kind.code == types.HYBRID and value:
            return "x'" + value.hex() + "'"
        return quoted_text(value.decode("utf-8", "surrogateescape"))
    return quoted_text(str(shown(column, session.local)(value)))


def _padded(column: StoredColumn) -> Type:
    definition = ColumnDefinition(column.name, str(column.type))
    return types.of_column(definition.wire("", ""))


def require_on_update(column: StoredColumn) -> None:
    """Raises `InvalidOnUpdate` (1294)."""
    if column.on_update is not None and (
        column.type.name not in ("datetime", "timestamp")
        or column.on_update != now_text(_digits(column))
    ):
        raise InvalidOnUpdate(column.name)


def _is_cut(text: str, kind: Type) -> bool:
    """Whether a TIME column leaves out something of this value that nobody misses."""
    if kind.form in (ValueForm.DATE, ValueForm.DATETIME):
        return True
    if kind.is_number:
        return len(text.lstrip("-").partition(".")[0]) > _CLOCK_DIGITS
    if kind.form is not ValueForm.TEXT:
        return False
    parts = values.moment_parts(text) if values.is_dated(text.strip()) else None
    return (parts is not None and any(parts[:3])) or len(text.strip().partition(".")[2]) > _MICROS


def _clock(
    given: Any, text: str, kind: Type, digits: int
) -> tuple[datetime.timedelta | None, ErrorKind, bool]:
    """The TIME of a value, what is told where that is not the whole of it, and whether it is."""
    if kind.form is ValueForm.DATE:
        return datetime.timedelta(0), ColumnTruncated, True
    if kind.form is ValueForm.DATETIME:
        text = text[11:]
    span, is_whole = _number_span(given, text, kind) or values.span_in(text)
    if span is None or not _has_day(text, kind):
        return None, ColumnTruncated, False
    sign, size = (-1 if span < _NO_SPAN else 1), abs(span)
    is_within = size < values.TIME_END
    size = size if is_within else _CLOCK_MAX
    cut = size.microseconds % 10 ** (6 - digits)
    found = sign * (size - datetime.timedelta(microseconds=cut))
    return found, ColumnTruncated if is_within else ColumnOutOfRange, is_whole and is_within


def _has_day(text: str, kind: Type) -> bool:
    """Whether the date in front of a time, if there is one, is of the calendar, or zero."""
    if kind.form is not ValueForm.TEXT or not values.is_dated(text.strip()):
        return True
    parts = values.moment_parts(text.strip())
    return parts is not None and (not all(parts[:3]) or values.datetime_in(text) is not None)


def _number_span(
    given: Any, text: str, kind: Type
) -> tuple[datetime.timedelta | None, bool] | None:
    """Of a number with more digits than a TIME has: the time of day of a date, or beyond a TIME; None for others."""
    whole = text.lstrip("-").partition(".")[0]
    if not kind.is_number or (whole.isdecimal() and len(whole) <= _CLOCK_DIGITS):
        return None
    if text[:1] == "-" or not whole.isdecimal() or int(whole) > _LAST_MOMENT:
        return values.TIME_END * (-1 if text[:1] == "-" else 1), False
    moment = values.number_as_moment(given, kind) or ""
    if not values.is_moment(moment):
        return None, False
    return values.as_span(moment, _MOMENT), True


def entry_text(parts: Iterable[tuple[Any, Type, int]]) -> str:
    """The values of a key, as `Duplicate entry` shows them: each with its type, and how much of it is in the key."""
    text = "-".join(
        "NULL" if value is None else _entry_part(value[:prefix] if prefix else value, kind)
        for value, kind, prefix in parts
    )
    if len(text.encode()) <= _ENTRY_BYTES_MAX:
        return text
    kept = text.encode()[: _ENTRY_BYTES_MAX - len(_MORE)]
    return kept.decode(errors="ignore") + _MORE


def _entry_part(value: Any, kind: Type) -> str:
    if isinstance(value, bytes):
        if kind.column is not None and kind.column.type == ColumnType.STRING:
            value = value.rstrip(b"\0")  # what BINARY was filled up with
        return _UNSHOWN.sub(lambda found: f"\\x{ord(found[0]):02X}", value.decode("latin-1"))
    return values.as_text(value, kind)
