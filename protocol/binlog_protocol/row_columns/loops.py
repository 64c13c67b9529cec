"""The loops in C (`_speedups.c`), where they were built: each has a twin of numpy's, and tests hold the two equal.

Whoever has such a loop asks `HAS_C` when it is called, so that a test can have the twin.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

try:
    from binlog_protocol.row_columns._speedups import (
        copy_ranges,
        count_events,
        count_rows,
        fill_events,
        fill_fields,
        find_likes,
        read_column,
    )
except ImportError:
    HAS_C = False
else:
    HAS_C = True

__all__ = [
    "DAMAGED",
    "HAS_C",
    "SOME_ARE_NONE",
    "Reader",
    "copy_ranges",
    "count_events",
    "count_rows",
    "fill_events",
    "fill_fields",
    "find_likes",
    "read_column",
]

DAMAGED: Final = -1
SOME_ARE_NONE: Final = 1


class Reader(IntEnum):
    """The functions of `read_column`; the values are those of `_speedups.c`."""

    INTEGERS = 0
    DECIMALS = 1
    DATES = 2
    DATETIMES = 3
    TIMESTAMPS = 4
    TIMES = 5
