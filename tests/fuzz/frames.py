"""An input that consists of parts, as one string of bytes: of each part its length in four bytes, and the part.

Any bytes at all are such an input, so that what a mutation makes of one can be run and kept in a file: a length that
goes beyond the end means the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LENGTH: Final = 4


def joined(parts: Iterable[bytes]) -> bytes:
    """One string of all parts."""
    return b"".join(len(part).to_bytes(_LENGTH, "little") + part for part in parts)


def split(data: bytes) -> list[bytes]:
    """The parts of any bytes."""
    parts = []
    at = 0
    while at + _LENGTH <= len(data):
        begin = at + _LENGTH
        at = begin + int.from_bytes(data[at:begin], "little")
        parts.append(data[begin:at])
    return parts
