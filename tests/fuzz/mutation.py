"""Changes of bytes, as damage and malice make them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

SIZE_MAX: Final = 1 << 16  # of an input; a few changes make it longer, one behind the other no end

# Lengths, counts and numbers at which code changes its mind.
_NUMBERS: Final = (
    0,
    1,
    2,
    3,
    4,
    18,
    19,
    127,
    128,
    250,
    251,
    252,
    253,
    254,
    255,
    256,
    32767,
    65535,
    65536,
)
_LARGE: Final = (
    0xFFFFFF,
    1 << 24,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
_WIDTHS: Final = (1, 2, 3, 4, 6, 8)


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes] = (), most: int = 5) -> bytes:
    """Up to `most` changes, perhaps none; `others` are what pieces are taken from."""
    changed = bytearray(data)
    for _ in range(rng.randrange(most + 1)):
        rng.choice(_CHANGES)(changed, rng, others)
        if len(changed) > SIZE_MAX:
            del changed[SIZE_MAX:]
    return bytes(changed)


def mutated_parts(
    parts: Sequence[bytes], rng: random.Random, others: Sequence[bytes], most: int = 4
) -> list[bytes]:
    """The same of a sequence: parts changed, dropped, doubled, moved, put in from elsewhere."""
    changed = list(parts)
    for _ in range(rng.randrange(most + 1)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(7):
            case 0:
                del changed[at : at + rng.randrange(1, 4)]
            case 1:
                changed[at:at] = changed[at : at + rng.randrange(1, 4)]
            case 2:
                changed.insert(at, rng.choice(others) if others else b"")
            case 3 if len(changed) > 1:
                first, second = rng.randrange(len(changed)), rng.randrange(len(changed))
                changed[first], changed[second] = changed[second], changed[first]
            case _ if at < len(changed):
                changed[at] = mutated(changed[at], rng, others, 3)
    return changed


def _set_byte(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _flip_bit(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_number(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """Where a length or a count may stand."""
    width = rng.choice(_WIDTHS)
    number = rng.choice(_LARGE if rng.random() < 0.4 else _NUMBERS)
    at = rng.randrange(len(data) + 1)
    data[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _add_to_number(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    width = rng.choice(_WIDTHS)
    if len(data) >= width:
        at = rng.randrange(len(data) - width + 1)
        number = int.from_bytes(data[at : at + width], "little") + rng.choice((-2, -1, 1, 2, 255))
        data[at : at + width] = (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def _cut(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 2, 4, 8, rng.randrange(1, 60)))]


def _cut_off(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _double(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = data[at : at + rng.randrange(1, 60)]


def _repeat(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """A piece very often: what is not linear shows."""
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.choice((1, 1, 2, 3, 8, 20))] or b"("
    data[at:at] = piece * rng.randrange(1, rng.choice((10, 100, 1 + SIZE_MAX // len(piece))))


def _put_in(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randrange(1, 30))


def _splice(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """A piece of another input."""
    if others:
        other = rng.choice(others)
        begin = rng.randrange(len(other) + 1)
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice((0, 0, 8, 40))] = other[begin : begin + rng.randrange(1, 200)]


_CHANGES: Final[Sequence[Callable[[bytearray, random.Random, Sequence[bytes]], None]]] = (
    _set_byte, _set_byte, _flip_bit, _set_number, _add_to_number, _cut, _cut_off, _double, _repeat, _put_in, _splice,
)  # fmt: skip
