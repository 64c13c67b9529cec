"""Row images: where rows begin, and where the values of each column lie, in many rows at once.

An image is the null bits of its columns, then the values that are not NULL (`events/rows/rows_event.py`). A `RowLayout`
is made once for the columns of a table that are present in each image of a row. One pass in C finds rows and values; in
its twin, columns without NULLs among the rows at hand cost an addition, others a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from binlog_protocol.events.rows.value import value_size
from binlog_protocol.events.table_map import TableColumn
from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.chains import chain_starts
from binlog_protocol.row_columns.row_bytes import Bools, Damaged, Field, Integers, RowBytes, Words

_WORD_BITS: Final = 64
_HAS_LENGTH: Final = 0x80  # of `_speedups.c`: bytes of the length, not of the value


class RowLayout:
    """The layout of rows, of one image or two: the columns of each. There is one at least."""

    def __init__(self, images: Sequence[Sequence[TableColumn]]) -> None:
        self._images: Final = [_Image(columns) for columns in images]
        first, *others = (image.codes() for image in self._images)
        self._codes: Final = (
            None if first is None or None in others else (first, others[0] if others else None)
        )
        self._columns: Final = sum(map(len, images))

    def counts(self, data: RowBytes, ends: Integers) -> Integers:
        """How many rows each event has; they lie one behind the other. Raises `Damaged` if rows do not end so."""
        if self._codes is not None and loops.HAS_C:
            counts = np.empty(len(ends), np.int64)
            if loops.count_rows(data.raw, ends, *self._codes, counts) == loops.DAMAGED:
                raise Damaged
            return counts
        return self._starts(data, ends)[1]

    def fields(self, data: RowBytes, ends: Integers) -> tuple[list[list[Field]], Integers]:
        """The columns of each image, and the numbers of rows, as `counts` has them. Raises `Damaged`."""
        if self._codes is not None and loops.HAS_C:
            counts = self.counts(data, ends)
            return self._fields_in_c(data, ends, int(counts.sum())), counts
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

    def _fields_in_c(self, data: RowBytes, ends: Integers, rows: int) -> list[list[Field]]:
        shape = (self._columns, rows)
        at, lengths = np.empty(shape, np.int64), np.empty(shape, np.int64)
        nulls, has_nulls = np.empty(shape, np.bool_), np.empty(self._columns, np.bool_)
        assert self._codes is not None
        columns = (at, lengths, nulls, has_nulls)
        if not loops.fill_fields(data.raw, ends, *self._codes, *columns):
            raise Damaged
        found = []
        number = 0
        for image in self._images:
            fields = []
            for size in image.sizes:
                null = nulls[number] if has_nulls[number] else None
                fields.append(
                    Field(data, at[number], lengths[number] if size.length else None, null)
                )
                number += 1
            found.append(fields)
        return found


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
