"""The loops in C (`_speedups.c`), where they were built: each has a twin of numpy's, and tests hold the two equal.

Whoever has such a loop asks `HAS_C` when it is called, so that a test can have the twin.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

try:
    from binlog_protocol.row_columns._speedups import (
        copy_ranges,
        count_events,
        count_rows,
        fill_events,
        find_likes,
        read_column,
        read_rows,
    )
except ImportError:
    HAS_C = False
else:
    HAS_C = True

__all__ = [
    "DAMAGED",
    "HAS_C",
    "NOTHING",
    "PLACES",
    "SOME_ARE_NONE",
    "Reader",
    "ColumnReading",
    "copy_ranges",
    "count_events",
    "count_rows",
    "fill_events",
    "find_likes",
    "read_column",
    "read_rows",
]

DAMAGED: Final = -1
SOME_ARE_NONE: Final = 1


class Reader(IntEnum):
    """What becomes of a column: its values by a function, or less; the numbers are those of `_speedups.c`."""

    INTEGERS = 0
    DECIMALS = 1
    DATES = 2
    DATETIMES = 3
    TIMESTAMPS = 4
    TIMES = 5
    BYTES = -1
    PLACES = -2
    UNWANTED = -3


class ColumnReading(NamedTuple):
    """How a column is read.

    dtype: of the values.
    one, other: what the function wants to know: bytes of an integer, and whether it has no sign; digits of a DECIMAL,
        and those behind the point; digits behind the second; the most bytes that a value has.
    """

    reader: Reader
    dtype: Any = None
    one: int = 0
    other: int = 0

    def room(self, count: int) -> NDArray[Any]:
        """An array for so many values."""
        return np.empty((count, 2) if self.reader is Reader.DECIMALS else count, self.dtype)


PLACES: Final = ColumnReading(Reader.PLACES)
NOTHING: Final = ColumnReading(Reader.UNWANTED)
