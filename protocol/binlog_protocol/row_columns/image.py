"""Row images: where the values of each column lie, in many rows at once.

An image is the null bits of its columns, then the values that are not NULL (`events/rows/rows_event.py`). An
`ImageLayout` is made once for the columns of a table that are present; columns without NULLs among the rows at hand
cost an addition, others a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from binlog_protocol.events.rows.value import value_size
from binlog_protocol.events.table_map import TableColumn
from binlog_protocol.row_columns.row_bytes import Bools, Field, Integers, RowBytes, Words

_WORD_BITS: Final = 64


class ImageLayout:
    """The layout of images of these columns."""

    def __init__(self, columns: Sequence[TableColumn]) -> None:
        self._sizes: Final = [value_size(column) for column in columns]
        self._null_bytes: Final = (len(columns) + 7) // 8

    def hop(self, data: RowBytes, at: Integers) -> Integers:
        """See `Hop`."""
        return self._walk(data, at, None)

    def hop_one(self, data: RowBytes, at: int) -> int:
        """See `Hop`."""
        raw = data.raw
        nulls = int.from_bytes(raw[at : at + self._null_bytes], "little")
        at += self._null_bytes
        for fixed, length in self._sizes:
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
        nulls = _NullBits(data, at, len(self._sizes))
        at = at + self._null_bytes
        ahead = 0  # bytes of columns without NULLs, not added to `at` yet
        for number, (fixed, length_bytes) in enumerate(self._sizes):
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
