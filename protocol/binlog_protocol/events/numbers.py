"""Numbers in row events.

=============  =====================================================================================
integers       little endian, 1, 2, 3, 4 or 8 bytes
FLOAT, DOUBLE  IEEE 754, little endian
YEAR           one byte: years since 1900, 0 for the year 0000
BIT            big endian, in as many bytes as its bits need
DECIMAL        big endian; digits before and after the point apart, in groups of nine
=============  =====================================================================================

DECIMAL(p, s): each nine digits take four bytes; the 1 to 8 that remain stand at the outer ends and take 1, 1, 2, 2, 3,
3, 4, 4 bytes. The highest bit is set for numbers from zero up; a negative number then has all its bits inverted.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Final, NamedTuple

from binlog_protocol.errors import BadValue, ProtocolError
from binlog_protocol.values import Cursor

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DIGITS_IN_GROUP: Final = 9
_GROUP_SIZES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # by digits
_YEAR_ZERO: Final = 1900

assert len(_GROUP_SIZES) == _DIGITS_IN_GROUP + 1


def integer(cursor: Cursor, size: int, *, unsigned: bool) -> int:
    return int.from_bytes(cursor.take(size), "little", signed=not unsigned)


def integer_bytes(value: int, size: int, *, unsigned: bool) -> bytes:
    """Raises `BadValue`."""
    try:
        return value.to_bytes(size, "little", signed=not unsigned)
    except OverflowError:
        raise BadValue(f"{value} in {size} bytes, {'unsigned' if unsigned else 'signed'}") from None


def float4(cursor: Cursor) -> float:
    value: float = _FLOAT.unpack(cursor.take(_FLOAT.size))[0]
    return value


def float8(cursor: Cursor) -> float:
    value: float = _DOUBLE.unpack(cursor.take(_DOUBLE.size))[0]
    return value


def float4_bytes(value: float) -> bytes:
    """The nearest FLOAT. Raises `BadValue`."""
    try:
        raw = _FLOAT.pack(value)
    except OverflowError:
        raise BadValue(f"{value!r} in a FLOAT") from None
    _check_finite(_FLOAT.unpack(raw)[0])
    return raw


def float8_bytes(value: float) -> bytes:
    """Raises `BadValue`."""
    _check_finite(value)
    return _DOUBLE.pack(value)


def _check_finite(value: float) -> None:
    if value - value != 0:  # an infinity, or not a number
        raise BadValue(f"{value!r} in a floating-point column")


def year(cursor: Cursor) -> int:
    since_1900 = cursor.integer(1)
    return since_1900 + _YEAR_ZERO if since_1900 else 0


def year_bytes(value: int) -> bytes:
    """Raises `BadValue`."""
    if value and not _YEAR_ZERO < value <= _YEAR_ZERO + 0xFF:
        raise BadValue(f"year {value}")
    return bytes((value - _YEAR_ZERO if value else 0,))


def bit(cursor: Cursor, bits: int, size: int) -> int:
    value = int.from_bytes(cursor.take(size), "big")
    if value >> bits:
        raise ProtocolError(f"row event: BIT({bits}) holds {value:#x}")
    return value


def bit_bytes(value: int, bits: int, size: int) -> bytes:
    """Raises `BadValue`."""
    if value < 0 or value >> bits:
        raise BadValue(f"{value} in a BIT({bits})")
    return value.to_bytes(size, "big")


class DigitGroup(NamedTuple):
    """Digits of a DECIMAL that are kept together, and the bytes that they take."""

    digits: int
    size: int


def decimal_groups(digits: int, scale: int) -> list[DigitGroup]:
    """The groups of a DECIMAL(digits, scale), the highest digits first."""
    whole_groups, whole_rest = divmod(digits - scale, _DIGITS_IN_GROUP)
    part_groups, part_rest = divmod(scale, _DIGITS_IN_GROUP)
    counts = (whole_rest, *[_DIGITS_IN_GROUP] * (whole_groups + part_groups), part_rest)
    return [DigitGroup(n, _GROUP_SIZES[n]) for n in counts if n]


def digits_and_scale(value: Decimal) -> tuple[int, int]:
    """The DECIMAL(digits, scale) that a value needs; the value in plain digits, as `decimal` gives it."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    assert exponent <= 0
    return max(len(digits), 1 - exponent), -exponent


def decimal_bytes(value: Decimal, digits: int, scale: int) -> bytes:
    """A DECIMAL in the form that `decimal` reads; zero has no sign. Raises `BadValue` for one that does not fit."""
    sign, own, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise BadValue(f"{value} in a DECIMAL")
    number = int("".join(map(str, own)))
    shift = exponent + scale
    if number and not -len(own) < shift <= digits:  # before a power of ten that has no end
        raise BadValue(f"{value} in a DECIMAL({digits},{scale})")
    rest, lost = (
        (number * 10**shift, 0) if shift >= 0 else divmod(number, 10 ** min(-shift, len(own)))
    )
    if lost or rest >= 10**digits:
        raise BadValue(f"{value} in a DECIMAL({digits},{scale})")
    raw = bytearray()
    negative = sign and rest
    for digit_count, size in reversed(decimal_groups(digits, scale)):
        rest, group = divmod(rest, 10**digit_count)
        raw[:0] = group.to_bytes(size, "big")
    if negative:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    raw[0] ^= 0x80
    return bytes(raw)


def decimal(cursor: Cursor, digits: int, scale: int) -> Decimal:
    """A DECIMAL(digits, scale)."""
    groups = decimal_groups(digits, scale)
    raw = bytearray(cursor.take(sum(group.size for group in groups)))
    negative = not raw[0] & 0x80
    raw[0] ^= 0x80
    if negative:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    at, number = 0, 0
    for digit_count, size in groups:
        group = int.from_bytes(raw[at : at + size], "big")
        if group >= 10**digit_count:
            raise ProtocolError(
                f"row event: DECIMAL({digits},{scale}) with {group} for {digit_count} digits"
            )
        number = number * 10**digit_count + group
        at += size
    # By its digits, so that no context rounds it.
    return Decimal((int(negative and number != 0), tuple(map(int, str(number))), -scale))
