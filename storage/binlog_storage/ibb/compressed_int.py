"""Compressed integers of the .ibb format.

An unsigned 64-bit value in 1 to 7 or 9 bytes, little-endian. The low 3 bits of the first byte tell the length: n-1
for n = 1..7, and 7 for 9 bytes (8 never occurs). The value is the rest, shifted right by 3.

    bytes  largest value          bytes  largest value
    1      0x1f                   5      0x1fffffffff
    2      0x1fff                 6      0x1fffffffffff
    3      0x1fffff               7      0x1fffffffffffff
    4      0x1fffffff             9      0xffffffffffffffff

Writers use the shortest form. Readers take any. (MariaDB: `mysys/my_compr_int.cc`.)
"""

from __future__ import annotations

VALUE_MAX = 2**64 - 1
LENGTH_MAX = 9
_WIDE = 7  # length code of the 9-byte form
_SMALL = [bytes([v << 3]) for v in range(32)]


class ShortChunk(ValueError):
    """A record ends inside of what it has to hold."""

    def __init__(self) -> None:
        super().__init__("Short chunk")  # in MariaDB's words


def encode(value: int) -> bytes:
    """The shortest form of `value`, 0 <= value < 2**64."""
    if value < 32:
        return _SMALL[value]
    length = (value.bit_length() + 3 + 7) // 8
    if length <= 7:
        return (value << 3 | length - 1).to_bytes(length, "little")
    return (value << 3 | _WIDE).to_bytes(LENGTH_MAX, "little")


def decode(data: bytes | bytearray | memoryview, offset: int) -> tuple[int, int]:
    """(value, offset behind it). `ShortChunk` if `data` ends first."""
    if offset >= len(data):
        raise ShortChunk
    code = data[offset] & 7
    end = offset + (LENGTH_MAX if code == _WIDE else code + 1)
    if end > len(data):
        raise ShortChunk
    return (int.from_bytes(data[offset:end], "little") >> 3) & VALUE_MAX, end


def decode_some(
    data: bytes | bytearray | memoryview, offset: int, count: int
) -> tuple[list[int], int]:
    """So many values, and the offset behind them. `ShortChunk` if `data` ends first."""
    values = []
    for _ in range(count):
        value, offset = decode(data, offset)
        values.append(value)
    return values, offset
