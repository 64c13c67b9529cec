"""The form of a column: its Arrow type, and the function that makes its values. See the table in the package."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from binlog_protocol.event_text.literals import json_value
from binlog_protocol.events.charsets import BINARY_COLLATION, UndecodedText
from binlog_protocol.events.column_type import BLOB_TYPES, INTEGER_SIZES, ColumnType
from binlog_protocol.events.rows import Value, ZeroDate, read_value, value_size
from binlog_protocol.events.table_map import ColumnKind, Label, TableColumn
from binlog_protocol.row_columns import loops, numbers, temporal, texts
from binlog_protocol.row_columns.arrays import array, binary
from binlog_protocol.row_columns.loops import ColumnReading, Reader
from binlog_protocol.row_columns.options import ColumnOptions, UnrepresentableValue
from binlog_protocol.row_columns.row_bytes import Bools, Field, Words
from binlog_protocol.values import Cursor

T = ColumnType
_SIGNED: Final = {1: pa.int8(), 2: pa.int16(), 3: pa.int32(), 4: pa.int32(), 8: pa.int64()}
_UNSIGNED: Final = {1: pa.int16(), 2: pa.int32(), 3: pa.int32(), 4: pa.int64()}
_UNSIGNED_DECIMAL: Final = pa.decimal128(20, 0)
_LONG_BITS: Final = 63
_TIMES: Final = {"interval": pa.duration("us"), "micros": pa.int64()}
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_LOCAL: Final = pa.timestamp("us")
_COMPRESSED: Final = (T.VARCHAR_COMPRESSED, T.BLOB_COMPRESSED)
_DATE_TYPES: Final = {
    T.DATE: pa.date32(),
    T.NEWDATE: pa.date32(),
    T.DATETIME: _LOCAL,
    T.DATETIME2: _LOCAL,
    T.TIMESTAMP: _INSTANT,
    T.TIMESTAMP2: _INSTANT,
}
_OLD_TEMPORAL: Final = (T.TIME, T.DATETIME, T.TIMESTAMP)


class ArrowColumn(NamedTuple):
    """`values` raises `Damaged` or `ProtocolError` for damaged bytes, `UnrepresentableValue` as the options say.

    `reading` is how the loops in C read the column for it.
    """

    name: str
    type: pa.DataType
    values: Callable[[Field], pa.Array]
    reading: ColumnReading


def arrow_column(column: TableColumn, name: str, options: ColumnOptions) -> ArrowColumn:
    """`name` is what the column is called in the result, and in errors."""
    return ArrowColumn(name, *_Maker(column, name, options).make())


def without_values(column: ArrowColumn) -> ArrowColumn:
    """The same, all null: its bytes are not looked at."""
    return column._replace(
        values=lambda field: pa.nulls(len(field), column.type), reading=loops.NOTHING
    )


class _Made(NamedTuple):
    """Of an `ArrowColumn`."""

    type: pa.DataType
    values: Callable[[Field], pa.Array]
    reading: ColumnReading = loops.PLACES


class _Maker:
    """Chooses for one column."""

    def __init__(self, column: TableColumn, name: str, options: ColumnOptions) -> None:
        self._column = column
        self._layout = column.layout
        self._name = name
        self._options = options

    def make(self) -> _Made:
        type_ = self._layout.type
        if type_ in INTEGER_SIZES:
            return self._integer()
        if type_ in _DATE_TYPES:
            return self._date()
        if type_ in (T.TIME, T.TIME2):
            return self._time()
        others: dict[ColumnType, Callable[[], _Made]] = {
            T.FLOAT: lambda: self._float(pa.float32(), 4),
            T.DOUBLE: lambda: self._float(pa.float64(), 8),
            T.YEAR: lambda: _Made(pa.int16(), numbers.years),
            T.BIT: self._bit,
            T.NEWDECIMAL: self._decimal,
            T.ENUM: self._enum,
            T.SET: self._set,
            T.GEOMETRY: lambda: _Made(texts.GEOMETRY, texts.geometries),
            T.NULL: lambda: _Made(pa.null(), lambda field: pa.nulls(len(field)), loops.NOTHING),
        }
        return others.get(type_, self._string)()

    def _plain(self, type_: pa.DataType, convert: Callable[[Value], Any]) -> _Made:
        """By the plain decoder, value by value: for types that are rare. `convert` gives what Arrow takes."""
        column, length_bytes = self._column, value_size(self._column).length

        def values(field: Field) -> pa.Array:
            plain = _values(column, field, length_bytes)
            return pa.array([None if v is None else convert(v) for v in plain], type_)

        return _Made(type_, values)

    def _as_text(self) -> _Made:
        return self._plain(pa.string(), lambda value: str(json_value(value, self._column)))

    def _integer(self) -> _Made:
        size = self._layout.size
        unsigned = bool(self._column.unsigned)
        if unsigned and size == 8:
            return self._unsigned_words(numbers.unsigned_words, numbers.WORDS)
        type_ = (_UNSIGNED if unsigned else _SIGNED)[size]
        return _integers(size, type_, unsigned=unsigned)

    def _float(self, type_: pa.DataType, size: int) -> _Made:
        return _Made(
            type_, lambda field: numbers.floats(field, size), numbers.reading_of_floats(size)
        )

    def _unsigned_words(
        self, words: Callable[[Field], Words], reading: ColumnReading = loops.PLACES
    ) -> _Made:
        """Numbers of 64 bits without a sign."""
        choice = self._options.unsigned_bigint
        if choice == "long":
            return _Made(pa.int64(), lambda field: self._longs(words(field), field), reading)

        def decimals(field: Field) -> pa.Array:
            return numbers.decimal128(words(field), 0, _UNSIGNED_DECIMAL, field)

        if choice == "string":
            return _Made(pa.string(), lambda field: decimals(field).cast(pa.string()), reading)
        return _Made(_UNSIGNED_DECIMAL, decimals, reading)

    def _longs(self, words: Words, field: Field) -> pa.Array:
        if field.any(words >> _LONG_BITS != 0):
            raise UnrepresentableValue(
                f"column {self._name} holds a number beyond 2^63-1; unsigned_bigint=decimal has room for it"
            )
        return array(pa.int64(), words, field.nulls)

    def _bit(self) -> _Made:
        bits, size = self._layout.digits, self._layout.size
        if bits > _LONG_BITS:
            return self._unsigned_words(lambda field: numbers.bits(field, bits, size))
        if bits == 1 and self._options.bit1 == "boolean":
            return _Made(
                pa.bool_(),
                lambda field: array(pa.bool_(), numbers.bits(field, bits, size) != 0, field.nulls),
            )
        return _Made(
            pa.int64(),
            lambda field: array(pa.int64(), numbers.bits(field, bits, size), field.nulls),
        )

    def _decimal(self) -> _Made:
        digits, scale = self._layout.digits, self._layout.scale
        if digits > numbers.DECIMAL_DIGITS_MAX:
            return self._as_text()
        return _Made(
            pa.decimal128(digits, scale),
            lambda field: numbers.decimals(field, digits, scale),
            numbers.reading_of_decimals(digits, scale),
        )

    def _date(self) -> _Made:
        kind = self._layout.type
        type_ = _DATE_TYPES[kind]
        if self._options.zero_date == "string":
            return self._as_text()
        if kind in _OLD_TEMPORAL:
            return self._plain(type_, self._plain_date)
        digits = self._layout.digits
        if kind == T.DATETIME2:
            return _Made(
                type_,
                lambda field: self._dated(temporal.datetimes(field, digits), type_, field),
                temporal.reading(Reader.DATETIMES, digits),
            )
        if kind == T.TIMESTAMP2:
            return _Made(
                type_,
                lambda field: self._dated(temporal.timestamps(field, digits), type_, field),
                temporal.reading(Reader.TIMESTAMPS, digits),
            )
        return _Made(
            type_, lambda field: self._dated(temporal.dates(field), type_, field), temporal.DATES
        )

    def _dated(self, times: temporal.Times, type_: pa.DataType, field: Field) -> pa.Array:
        nulls: Bools | None = field.nulls
        if times.none is not None and field.any(times.none):
            self._take_for_null()
            nulls = times.none if nulls is None else nulls | times.none
        return array(type_, times.values.astype(f"i{type_.bit_width // 8}", copy=False), nulls)

    def _plain_date(self, value: Value) -> Any:
        if isinstance(value, ZeroDate):
            return self._take_for_null()
        return value

    def _take_for_null(self) -> None:
        """A zero or partial date becomes null, unless that is to be an error."""
        if self._options.zero_date == "error":
            raise UnrepresentableValue(
                f"column {self._name} holds a zero or partial date; zero_date=null makes it null, "
                "zero_date=string keeps it as text"
            )

    def _time(self) -> _Made:
        type_ = _TIMES.get(self._options.time)
        if type_ is None:
            return self._as_text()
        if self._layout.type == T.TIME:
            return self._plain(type_, _microseconds)
        digits = self._layout.digits
        return _Made(
            type_,
            lambda field: array(type_, temporal.times(field, digits), field.nulls),
            temporal.reading(Reader.TIMES, digits),
        )

    def _labels(self) -> Sequence[Label] | None:
        """The labels of an ENUM or SET; None to give numbers instead, if two labels that differ would become one."""
        labels, on_bad = self._column.labels, self._options.bad_text
        if labels is None or on_bad == "error":
            return labels
        if on_bad == "binary":
            return None if any(isinstance(label, UndecodedText) for label in labels) else labels
        return labels if texts.are_told_apart(labels) else None

    def _bad_label(self, label: UndecodedText) -> str:
        if self._options.bad_text == "error":
            return self._refuse_text(label.raw)
        return texts.replaced_label(label)

    def _enum(self) -> _Made:
        size, labels = self._layout.size, self._labels()
        if labels is None:
            return _integers(size, pa.int32(), unsigned=True)
        return _Made(
            texts.labels_type(labels),
            lambda field: texts.enum(field, size, labels, self._bad_label),
            numbers.reading_of_labels(size),
        )

    def _set(self) -> _Made:
        size, labels = self._layout.size, self._labels()
        is_joined = self._options.set_labels == "string"
        if labels is not None:
            return _Made(
                texts.set_type(labels, is_joined=is_joined),
                lambda field: texts.set_members(
                    field,
                    numbers.set_bits(field, size),
                    labels,
                    self._bad_label,
                    is_joined=is_joined,
                ),
                numbers.reading_of_set(size),
            )
        if size == 8:
            return self._unsigned_words(numbers.unsigned_words, numbers.WORDS)
        return _Made(
            pa.int64(),
            lambda field: array(pa.int64(), numbers.set_bits(field, size), field.nulls),
            numbers.reading_of_set(size),
        )

    def _string(self) -> _Made:
        column = self._column
        if column.kind == ColumnKind.VECTOR:
            return self._plain(pa.list_(pa.float32()), lambda value: value)
        if column.kind != ColumnKind.AS_LOGGED:
            return self._plain(pa.string(), str)
        collation = column.collation
        is_text = collation not in (None, BINARY_COLLATION) and self._options.bad_text != "binary"
        raw = self._stored if self._layout.type not in _COMPRESSED else self._decompressed
        is_bounded = raw == self._stored and self._layout.type not in BLOB_TYPES
        reading = texts.reading_of_bytes(*[self._layout.size] * is_bounded)
        if not is_text:
            return _Made(pa.binary(), raw, reading)
        assert collation is not None
        on_bad = (
            self._refuse_text if self._options.bad_text == "error" else texts.replacing(collation)
        )
        return _Made(pa.string(), lambda field: texts.text(raw(field), collation, on_bad), reading)

    def _stored(self, field: Field) -> pa.Array:
        kind, size = self._layout.type, self._layout.size
        if kind not in BLOB_TYPES:
            texts.check_lengths(field, size)
        values = binary(field)
        if kind == T.STRING and self._column.collation == BINARY_COLLATION:
            return texts.padded(values, size)
        return values

    def _decompressed(self, field: Field) -> pa.Array:
        return texts.decompressed(binary(field))

    def _refuse_text(self, raw: bytes) -> str:
        raise UnrepresentableValue(
            f"column {self._name} holds bytes that are no text in its character set: {raw[:32].hex(' ')}; "
            "bad_text=replace makes U+FFFD of them, bad_text=binary keeps the column as bytes, labels as numbers"
        )


def _integers(size: int, type_: pa.DataType, *, unsigned: bool) -> _Made:
    return _Made(
        type_,
        lambda field: numbers.integers(field, size, type_, unsigned=unsigned),
        numbers.reading_of_integers(size, type_.to_pandas_dtype(), unsigned=unsigned),
    )


def _values(column: TableColumn, field: Field, length_bytes: int) -> Iterator[Value]:
    nulls = [False] * len(field) if field.nulls is None else field.nulls.tolist()
    cursor = Cursor(field.data.raw, "row event")
    for at, null in zip(field.at.tolist(), nulls, strict=True):
        cursor.position = at - length_bytes
        yield None if null else read_value(column, cursor)


def _microseconds(value: Value) -> int:
    assert isinstance(value, datetime.timedelta)
    return value // datetime.timedelta(microseconds=1)
