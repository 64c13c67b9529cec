"""One large payload of a known length, put together where it stays while its parts come.

A buffer that grows part by part is moved by the C library whenever something lies behind it, all of it each time, at
the latest with 14 MB. Here the place is all of what is announced, or a quarter, or a quarter of that: whatever has room
for what came. So a quarter is moved at most, and memory is taken by what came, not by what a header says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# A payload of so many bytes is gathered so; what is shorter may be moved and copied.
GATHERED_BYTES_MIN: Final = 256 * 1024

_GROWTH: Final = 4
_PLACE_BYTES_MIN: Final = 64 * 1024
_RECEIVED_BYTES: Final = 512 * 1024  # that `rest` has place for, or for all that is left

Allocate = Callable[[int], bytearray]
"""Gives a bytearray of that length, with anything in it: best is memory that was not touched yet."""


class GatheredPayload:
    """`payload` is to be looked at when it `is_whole`."""

    __slots__ = ("_allocate", "filled", "length", "payload")

    def __init__(self, length: int, allocate: Allocate) -> None:
        self.length = length
        self.filled = 0
        self.payload = bytearray()
        self._allocate = allocate

    @property
    def is_whole(self) -> bool:
        """Whether all of the payload has come."""
        return self.filled == self.length

    @property
    def left(self) -> int:
        """Bytes that are still to come."""
        return self.length - self.filled

    def take(self, data: bytes | bytearray | memoryview) -> int:
        """Take what belongs to it from the front of `data`; returns how many bytes that is."""
        filled = self.filled
        end = min(filled + len(data), self.length)
        self._have_place(end)
        memoryview(self.payload)[filled:end] = memoryview(data)[: end - filled]
        self.filled = end
        return end - filled

    def rest(self) -> memoryview:
        """The place of the next bytes, to receive them there: `came` tells of them. Empty if it is whole.

        The view is to be gone before the payload is given away.
        """
        self._have_place(min(self.filled + _RECEIVED_BYTES, self.length))
        return memoryview(self.payload)[self.filled :]

    def came(self, size: int) -> None:
        """So many bytes stand in `rest` now."""
        self.filled += size

    def _have_place(self, end: int) -> None:
        if end <= len(self.payload):
            return
        size = self.length
        while size // _GROWTH >= max(end, _PLACE_BYTES_MIN):
            size //= _GROWTH
        place = self._allocate(size)
        memoryview(place)[: self.filled] = memoryview(self.payload)[: self.filled]
        self.payload = place
