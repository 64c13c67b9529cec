"""Bytes of many rows, and integers read from many places of them at once.

The places need no alignment. Without the loops in C an array of overlapping 8-byte words, one for each byte, is laid
over the bytes, and indexing it reads one word a place (4 ns on the machine of `benchmarks rows`, against 16 for byte by
byte).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.loops import ColumnReading, Reader

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

WORD_SIZE: Final = 8
_WORD_BITS: Final = 64


class Damaged(Exception):
    """Bytes that no server logs. The plain decoder then says what is wrong with them."""


class DamagedGroup(ProtocolError):
    """Bytes of a group that no server logs, with their place.

    group, event: numbers, the first as the caller counts groups; `event` is None where the group does not split into
        events.
    """

    def __init__(self, reason: str, group: int, event: int | None = None) -> None:
        self.group = group
        self.event = event
        place = f"group {group}" if event is None else f"group {group}, event {event}"
        super().__init__(f"{reason} ({place})")


class RowBytes:
    """Some bytes. What is behind their end reads as zeros: who hops checks where that led."""

    def __init__(self, raw: bytes) -> None:
        self.size: Final = len(raw)
        self.raw: Final = raw

    @cached_property
    def padded(self) -> bytes:
        """A word more: a copy, for what reads whole words from any place."""
        return self.raw + bytes(WORD_SIZE)

    @cached_property
    def _words(self) -> Words:
        return np.ndarray((self.size + 1,), "<u8", self.padded, strides=(1,))

    @cached_property
    def _reversed(self) -> Words:
        return np.ndarray((self.size + 1,), ">u8", self.padded, strides=(1,))

    def words(self, at: Integers) -> Words:
        """Eight bytes of each place, little endian."""
        if loops.HAS_C:
            return self._integers(at, WORD_SIZE)
        return self._words[np.minimum(at, self.size)]

    def unsigned(self, at: Integers, size: int) -> Integers:
        """Integers of up to 7 bytes, little endian."""
        if loops.HAS_C:
            return self._integers(at, size).view(np.int64)
        return (self.words(at) & np.uint64((1 << 8 * size) - 1)).view(np.int64)

    def _integers(self, at: Integers, size: int) -> Words:
        found = np.empty(len(at), np.uint64)
        places = np.ascontiguousarray(at)
        loops.read_column(Reader.INTEGERS, self.raw, places, None, found, size, True)
        return found

    def big_endian(self, at: Integers, size: int) -> Words:
        """Integers of 1 to 8 bytes, big endian."""
        words = self._reversed[np.minimum(at, self.size)].astype(np.uint64)
        return words >> np.uint64(_WORD_BITS - 8 * size)


class ReadValues(NamedTuple):
    """The values of a column, which were read when its rows were found.

    values: numbers, or the offsets of texts in `raw`.
    has_none: some stand for no date.
    """

    rows: int
    values: NDArray[Any]
    raw: NDArray[np.uint8]
    has_none: bool


@dataclass(frozen=True, slots=True)
class Field:
    """The values of one column in many rows.

    at: where each begins; of what has a length before it, behind that. Of a NULL: anywhere.
    lengths: of what has a length before it, 0 for NULL; None for columns of fixed size.
    nulls: None if no value is NULL.
    found: if there are, nobody knows the places.
    """

    data: RowBytes
    at: Integers
    lengths: Integers | None
    nulls: Bools | None
    found: ReadValues | None = None

    def __len__(self) -> int:
        return len(self.at) if self.found is None else self.found.rows

    def any(self, condition: NDArray[Any]) -> bool:
        """Whether the condition holds for a value that is not NULL."""
        if self.nulls is not None:
            condition = condition & ~self.nulls
        return bool(condition.any())

    def refuse(self, condition: NDArray[Any]) -> None:
        """Raises `Damaged` if the condition holds for a value that is not NULL."""
        if self.any(condition):
            raise Damaged

    def read(self, reading: ColumnReading) -> tuple[NDArray[Any], bool]:
        """The values, by a loop in C, and whether some stand for no date. Raises `Damaged`."""
        if self.found is not None:
            return self.found.values, self.found.has_none
        reader, _, *numbers = reading
        values = reading.room(len(self))
        places = np.ascontiguousarray(self.at)
        found = loops.read_column(reader, self.data.raw, places, self.nulls, values, *numbers)
        if found == loops.DAMAGED:
            raise Damaged
        return values, found == loops.SOME_ARE_NONE
