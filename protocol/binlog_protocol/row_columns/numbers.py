"""Columns of numbers; `binlog_protocol/events/numbers.py` has their bytes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from binlog_protocol.events.numbers import DigitGroup, decimal_groups
from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.arrays import array
from binlog_protocol.row_columns.loops import ColumnReading, Reader
from binlog_protocol.row_columns.row_bytes import WORD_SIZE, Field, Integers, Words

_WORD_BITS: Final = 64
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_YEAR_ZERO: Final = 1900
DECIMAL_DIGITS_MAX: Final = 38  # of Arrow's decimal128, and of Spark


def reading_of_integers(size: int, dtype: Any, *, unsigned: bool) -> ColumnReading:
    return ColumnReading(Reader.INTEGERS, dtype, size, unsigned)


def reading_of_decimals(digits: int, scale: int) -> ColumnReading:
    """The numbers as pairs of words, the low one first."""
    return ColumnReading(Reader.DECIMALS, np.uint64, digits, scale)


def integers(field: Field, size: int, type_: pa.DataType, *, unsigned: bool) -> pa.Array:
    """The integers of `size` bytes each, as an Arrow type that holds them."""
    dtype = type_.to_pandas_dtype()
    if loops.HAS_C:
        return array(
            type_, field.read(reading_of_integers(size, dtype, unsigned=unsigned))[0], field.nulls
        )
    words = field.data.words(field.at)
    unused = np.uint64(_WORD_BITS - 8 * size)
    words = words << unused
    values: NDArray[Any] = (
        words >> unused if unsigned else words.view(np.int64) >> unused.astype(np.int64)
    )
    return array(type_, values.astype(dtype), field.nulls)


WORDS: Final = reading_of_integers(WORD_SIZE, np.uint64, unsigned=True)


def unsigned_words(field: Field) -> Words:
    """BIGINT UNSIGNED."""
    return field.read(WORDS)[0] if loops.HAS_C else field.data.words(field.at)


def reading_of_labels(size: int) -> ColumnReading:
    return reading_of_integers(size, np.int64, unsigned=True)


def label_numbers(field: Field, size: int) -> Integers:
    """An ENUM of `size` bytes."""
    if loops.HAS_C:
        return field.read(reading_of_labels(size))[0]
    return field.data.unsigned(field.at, size)


def reading_of_set(size: int) -> ColumnReading:
    return reading_of_integers(size, np.uint64, unsigned=True)


def set_bits(field: Field, size: int) -> Words:
    """A SET of `size` bytes."""
    if loops.HAS_C:
        return field.read(reading_of_set(size))[0]
    return field.data.words(field.at) & np.uint64((1 << 8 * size) - 1)


def bits(field: Field, bits_: int, size: int) -> Words:
    """BIT(bits_)."""
    words = field.data.big_endian(field.at, size)
    if bits_ < 8 * size:
        field.refuse(words >> np.uint64(bits_) != 0)
    return words


def reading_of_floats(size: int) -> ColumnReading:
    """As integers with the same bits."""
    return reading_of_integers(size, np.uint64 if size == WORD_SIZE else np.uint32, unsigned=True)


def floats(field: Field, size: int) -> pa.Array:
    type_ = pa.float64() if size == WORD_SIZE else pa.float32()
    if loops.HAS_C:
        return array(type_, field.read(reading_of_floats(size))[0], field.nulls)
    words = field.data.words(field.at)
    return array(type_, words if size == WORD_SIZE else words.astype(np.uint32), field.nulls)


def years(field: Field) -> pa.Array:
    since = field.data.unsigned(field.at, 1)
    return array(pa.int16(), np.where(since, since + _YEAR_ZERO, 0).astype(np.int16), field.nulls)


def decimals(field: Field, digits: int, scale: int) -> pa.Array:
    """DECIMAL(digits, scale) of up to 38 digits."""
    type_ = pa.decimal128(digits, scale)
    if loops.HAS_C:
        return array(type_, field.read(reading_of_decimals(digits, scale))[0], field.nulls)
    low, high, negative = _magnitudes(field, decimal_groups(digits, scale))
    # Two's complement over both words.
    low = np.where(negative, ~low + np.uint64(1), low)
    high = np.where(negative, ~high + (low == 0), high)
    return decimal128(low, high, type_, field)


def decimal128(low: Words, high: Words | int, type_: pa.DataType, field: Field) -> pa.Array:
    pairs = np.empty((len(low), 2), np.uint64)
    pairs[:, 0] = low
    pairs[:, 1] = high
    return array(type_, pairs, field.nulls)


def _magnitudes(field: Field, groups: list[DigitGroup]) -> tuple[Words, Words, NDArray[np.bool_]]:
    """The numbers without their signs, low and high word, and which are negative."""
    negative = (field.data.unsigned(field.at, 1) & 0x80) == 0
    low = np.zeros(len(field), np.uint64)
    high = np.zeros(len(field), np.uint64)
    at, sign_bit = 0, 0x80
    for digits, size in groups:
        ones = (1 << 8 * size) - 1
        inverted = np.where(negative, np.uint64(ones), np.uint64(0))
        group = field.data.big_endian(field.at + at, size)
        group ^= np.uint64(sign_bit << 8 * (size - 1)) ^ inverted
        field.refuse(group >= np.uint64(10**digits))
        low, high = _times_plus(low, high, 10**digits, group)
        at += size
        sign_bit = 0
    return low, high, negative


def _times_plus(low: Words, high: Words, factor: int, summand: Words) -> tuple[Words, Words]:
    """(high, low) * factor + summand; both below 2^30."""
    by = np.uint64(factor)
    first = (low & _LOW_HALF) * by + summand
    second = (low >> _HALF) * by + (first >> _HALF)
    return (second << _HALF) | (first & _LOW_HALF), high * by + (second >> _HALF)
