"""Row images: where rows begin, and where the values of each column lie, in many rows at once.

An image is the null bits of its columns, then the values that are not NULL (`events/rows/rows_event.py`). A `RowLayout`
is made once for the columns of a table that are present in each image of a row.

One pass in C finds rows and reads the values of the columns that have a `ColumnReading`, a few rows at a time: their
places are nowhere kept. Its twin finds the places; columns without NULLs among the rows at hand cost it an addition,
others a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from binlog_protocol.events.rows.value import value_size
from binlog_protocol.events.table_map import TableColumn
from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.chains import chain_starts
from binlog_protocol.row_columns.loops import PLACES, ColumnReading, Reader
from binlog_protocol.row_columns.row_bytes import (
    Bools,
    Damaged,
    Field,
    Integers,
    ReadValues,
    RowBytes,
    Words,
)

_WORD_BITS: Final = 64
# Of `_speedups.c`.
_HAS_LENGTH: Final = 0x80  # bytes of the length, not of the value
_HAS_NULLS: Final = 1
_HAS_NONE: Final = 2
_NO_PLACES: Final = np.empty(0, np.int64)
_NO_BYTES: Final = np.empty(0, np.uint8)


class RowLayout:
    """The layout of rows, of one image or two: the columns of each. There is one at least.

    `readings`: what the loops in C make of each column; without them, places.
    """

    def __init__(
        self,
        images: Sequence[Sequence[TableColumn]],
        readings: Sequence[Sequence[ColumnReading]] | None = None,
    ) -> None:
        self._images: Final = [_Image(columns) for columns in images]
        first, *others = (image.codes() for image in self._images)
        self._codes: Final = (
            None if first is None or None in others else (first, others[0] if others else None)
        )
        sizes = [size for image in self._images for size in image.sizes]
        self._sizes: Final = sizes
        self._readings: Final = [*chain(*readings)] if readings else [PLACES] * len(sizes)

    def counts(self, data: RowBytes, ends: Integers) -> Integers:
        """How many rows each event has; they lie one behind the other. Raises `Damaged` if rows do not end so."""
        if self._codes is not None and loops.HAS_C:
            return self._counted(data, ends)[0]
        return self._starts(data, ends)[1]

    def fields(self, data: RowBytes, ends: Integers) -> tuple[list[list[Field]], Integers]:
        """The columns of each image, and the numbers of rows, as `counts` has them. Raises `Damaged`."""
        if self._codes is not None and loops.HAS_C:
            counts, sums = self._counted(data, ends)
            fields = self._read(data, ends, int(counts.sum()), sums.tolist())
            first = len(self._images[0].sizes)
            return [fields[:first], fields[first:]][: len(self._images)], counts
        at, counts = self._starts(data, ends)
        found = []
        for image in self._images:
            fields, at = image.fields(data, at)
            found.append(fields)
        return found, counts

    def hop(self, data: RowBytes, at: Integers) -> Integers:
        """See `Hop`: over the images of one row."""
        for image in self._images:
            at = image.hop(data, at)
        return at

    def hop_one(self, data: RowBytes, at: int) -> int:
        """See `Hop`."""
        for image in self._images:
            at = image.hop_one(data, at)
        return at

    def _starts(self, data: RowBytes, ends: Integers) -> tuple[Integers, Integers]:
        """Where rows begin, and how many each event has."""
        begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        starts = chain_starts(data, begins, ends, self)
        return starts, np.diff(np.searchsorted(starts, begins), append=len(starts))

    def _counted(self, data: RowBytes, ends: Integers) -> tuple[Integers, Integers]:
        """The rows of each event, and by column the bytes of values that have lengths."""
        counts, sums = np.empty(len(ends), np.int64), np.empty(len(self._sizes), np.int64)
        assert self._codes is not None
        if loops.count_rows(data.raw, ends, *self._codes, counts, sums) == loops.DAMAGED:
            raise Damaged
        return counts, sums

    def _read(self, data: RowBytes, ends: Integers, rows: int, sums: list[int]) -> list[Field]:
        plans = tuple(map(_plan, self._readings, sums, [rows] * len(sums)))
        nulls, flags = np.empty((len(plans), rows), np.bool_), np.empty(len(plans), np.uint8)
        assert self._codes is not None
        if not loops.read_rows(data.raw, ends, *self._codes, plans, nulls, flags):
            raise Damaged
        fields = []
        columns = zip(self._readings, self._sizes, plans, nulls, flags.tolist(), strict=True)
        for reading, size, (_, _, _, out, more), null, flag in columns:
            some_null = null if flag & _HAS_NULLS else None
            if reading.reader is Reader.PLACES:
                fields.append(Field(data, out, more if size.length else None, some_null))
                continue
            found = ReadValues(rows, out, more, bool(flag & _HAS_NONE))
            fields.append(Field(data, _NO_PLACES, None, some_null, found))
        return fields


_Plan = tuple[int, int, int, NDArray[Any], NDArray[Any]]


def _plan(reading: ColumnReading, size: int, rows: int) -> _Plan:
    """What a column is read by, and into: numbers; offsets and bytes; or places and lengths."""
    reader, _, one, other = reading
    if reader is Reader.UNWANTED:
        return reader, one, other, _NO_BYTES, _NO_BYTES
    if reader is Reader.PLACES:
        return reader, one, other, np.empty(rows, np.int64), np.empty(rows, np.int64)
    if reader is Reader.BYTES:
        return reader, one, other, np.empty(rows + 1, np.int32), np.empty(size, np.uint8)
    return reader, one, other, reading.room(rows), _NO_BYTES


class _Image:
    """The layout of images of these columns."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        self.sizes: Final = [value_size(column) for column in columns]
        self._null_bytes: Final = (len(columns) + 7) // 8

    def codes(self) -> bytes | None:
        """The columns as the loops in C know them; None if they do not."""
        if any(fixed >= _HAS_LENGTH for fixed, _ in self.sizes):
            return None
        return bytes(
            fixed or length | (_HAS_LENGTH if length else 0) for fixed, length in self.sizes
        )

    def hop(self, data: RowBytes, at: Integers) -> Integers:
        """See `Hop`."""
        return self._walk(data, at, None)

    def hop_one(self, data: RowBytes, at: int) -> int:
        """See `Hop`."""
        raw = data.raw
        nulls = int.from_bytes(raw[at : at + self._null_bytes], "little")
        at += self._null_bytes
        for fixed, length in self.sizes:
            if not nulls & 1:
                at += fixed or length + int.from_bytes(raw[at : at + length], "little")
            nulls >>= 1
        return at

    def fields(self, data: RowBytes, at: Integers) -> tuple[list[Field], Integers]:
        """The columns of the images that begin at these places, and where those end."""
        fields: list[Field] = []
        end = self._walk(data, at, fields)
        return fields, end

    def _walk(self, data: RowBytes, at: Integers, fields: list[Field] | None) -> Integers:
        nulls = _NullBits(data, at, len(self.sizes))
        at = at + self._null_bytes
        ahead = 0  # bytes of columns without NULLs, not added to `at` yet
        for number, (fixed, length_bytes) in enumerate(self.sizes):
            null = nulls.of(number)
            lengths: Integers | None = None
            begin = at
            if length_bytes:
                here = at + ahead if ahead else at
                lengths = data.unsigned(here, length_bytes)
                begin = here + length_bytes
                at = begin + lengths
                if null is not None:
                    lengths[null] = 0
                    at = np.where(null, here, at)
                ahead = 0
            elif null is not None:
                begin = at + ahead
                at = begin + np.where(null, 0, fixed)
                ahead = 0
            else:
                begin = at if fields is None else at + ahead
                ahead += fixed
            if fields is not None:
                fields.append(Field(data, begin, lengths, null))
        return at + ahead if ahead else at


class _NullBits:
    """The null bits of many images."""

    def __init__(self, data: RowBytes, at: Integers, count: int) -> None:
        self._words: list[Words] = []
        self._anywhere = 0
        for first in range(0, count, _WORD_BITS):
            mask = np.uint64((1 << min(count - first, _WORD_BITS)) - 1)
            words = data.words(at + first // 8) & mask
            self._words.append(words)
            self._anywhere |= int(np.bitwise_or.reduce(words)) << first

    def of(self, number: int) -> Bools | None:
        """Which values of a column are NULL; None if none is."""
        if not self._anywhere >> number & 1:
            return None
        words = self._words[number // _WORD_BITS]
        return (words >> np.uint64(number % _WORD_BITS) & np.uint64(1)).astype(np.bool_)
