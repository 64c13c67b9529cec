"""Bytes of many rows, and integers read from many places of them at once.

The places need no alignment: an array of overlapping 8-byte words, one for each byte, is laid over the bytes, and
indexing it reads one word a place (4 ns on the machine of `benchmarks rows`, against 16 for byte by byte).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError

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
    """Some bytes. A place behind their end reads as their last words: who hops checks where that led."""

    def __init__(self, raw: bytes) -> None:
        self.size: Final = len(raw)
        self.raw: Final = raw + bytes(WORD_SIZE)
        self.bytes: Final = np.frombuffer(self.raw, np.uint8)
        shape = (self.size + 1,)
        self._words: Words = np.ndarray(shape, "<u8", self.raw, strides=(1,))
        self._reversed: Words = np.ndarray(shape, ">u8", self.raw, strides=(1,))

    def words(self, at: Integers) -> Words:
        """Eight bytes of each place, little endian."""
        return self._words[np.minimum(at, self.size)]

    def unsigned(self, at: Integers, size: int) -> Integers:
        """Integers of up to 7 bytes, little endian."""
        if size == 1:
            return self.bytes[np.minimum(at, self.size)].astype(np.int64)
        return (self.words(at) & np.uint64((1 << 8 * size) - 1)).view(np.int64)

    def big_endian(self, at: Integers, size: int) -> Words:
        """Integers of 1 to 8 bytes, big endian."""
        words = self._reversed[np.minimum(at, self.size)].astype(np.uint64)
        return words >> np.uint64(_WORD_BITS - 8 * size)


@dataclass(frozen=True, slots=True)
class Field:
    """The values of one column in many rows.

    at: where each begins; of what has a length before it, behind that. Of a NULL: anywhere.
    lengths: of what has a length before it, 0 for NULL; None for columns of fixed size.
    nulls: None if no value is NULL.
    """

    data: RowBytes
    at: Integers
    lengths: Integers | None
    nulls: Bools | None

    def __len__(self) -> int:
        return len(self.at)

    def any(self, condition: NDArray[Any]) -> bool:
        """Whether the condition holds for a value that is not NULL."""
        if self.nulls is not None:
            condition = condition & ~self.nulls
        return bool(condition.any())

    def refuse(self, condition: NDArray[Any]) -> None:
        """Raises `Damaged` if the condition holds for a value that is not NULL."""
        if self.any(condition):
            raise Damaged
