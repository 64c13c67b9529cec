"""What a power cut may leave of one file: its durable bytes, and some of what was written since.

Each write since the last `fdatasync` may be there wholly, in part (cut at sector borders) or not at all, in any
combination; the length may have grown without the data (zeros then), or not. All combinations of a few writes;
of many, families that are known to hurt: the first n, the last n, all but one, one alone, and random ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from binlog_storage.testing.memory_disk import SECTOR_BYTES, apply_to

T = TypeVar("T")
Pending = tuple[int, bytes] | int  # a write (offset, data), or a length set


@dataclass(frozen=True, slots=True)
class Limits:
    """How far to go.

    sector: bytes that a disk writes whole.
    reorder: whether a later write may be there without an earlier one of the same file.
    all_subsets: up to that many pending writes, all combinations.
    per_file: most states of the file that was written last.
    per_other: most states of each other file, against each of those.
    per_point: most states of the disk at one point of the trace.
    any_names: pending operations of the directory may be there in any combination, not only the first n.
    """

    sector: int = SECTOR_BYTES
    reorder: bool = True
    all_subsets: int = 4
    per_file: int = 48
    per_other: int = 4
    per_point: int = 64
    any_names: bool = False


def apply_all(image: bytes, operations: Sequence[Pending]) -> bytes:
    """The bytes of the file behind all of them, in this order."""
    if not operations:
        return image
    changed = bytearray(image)
    for operation in operations:
        apply_to(changed, operation)
    return bytes(changed)


def file_variants(
    durable: bytes, pending: Sequence[Pending], limits: Limits, rng: random.Random
) -> list[bytes]:
    """States of the file that the last pending operation made possible. First the one with everything.

    Those without the last one were possible before it, and are left to the point before.
    """
    if not pending:
        return [durable]
    everything = apply_all(durable, pending)
    made = {everything: None}
    rest = list(_makers(durable, pending, limits, rng))
    if len(rest) >= limits.per_file:
        rest = rng.sample(rest, limits.per_file - 1)
    for make in rest:
        made.setdefault(make())
    return list(made)


def some_variants(
    durable: bytes, pending: Sequence[Pending], limits: Limits, rng: random.Random
) -> list[bytes]:
    """A few states of a file, whichever operation made them possible: everything, nothing, random ones."""
    if not pending:
        return [durable]
    made = {apply_all(durable, pending): None, durable: None}
    for _ in range(limits.per_other - 2):
        made.setdefault(_fates(durable, pending, limits, rng))
    return list(made)


def _makers(
    durable: bytes, pending: Sequence[Pending], limits: Limits, rng: random.Random
) -> Iterator[partial[bytes]]:
    """Ways to make the states, not made yet: most are thrown away if there are too many."""
    earlier = len(pending) - 1
    last = pending[-1]
    for chosen in _subsets(earlier, limits, rng):
        yield partial(_chosen, durable, pending, [*chosen, earlier])
    bases = [pending[:-1]]
    if limits.reorder and earlier:
        bases.append([])
        bases.append([op for op in pending[:-1] if rng.random() < 0.5])
    for operations in bases:
        base = apply_all(durable, operations)
        for part in _parts(last, limits, rng):
            yield partial(_with_part, base, last, part, zeros=False)
            yield partial(_with_part, base, last, part, zeros=True)
    if limits.reorder:
        for _ in range(4):
            yield partial(_fates, durable, pending, limits, rng)


def _subsets(
    count: int, limits: Limits, rng: random.Random
) -> Iterator[Sequence[int] | tuple[int, ...]]:
    """Which of the first `count` operations are there."""
    everything = range(count)
    if not limits.reorder:
        return
    if count < limits.all_subsets:
        for size in range(count):
            yield from itertools.combinations(everything, size)
        return
    yield from (range(n) for n in everything)
    yield from (range(n, count) for n in range(1, count))
    yield from ([i for i in everything if i != n] for n in everything)
    yield from ((n,) for n in everything)
    yield from ([i for i in everything if rng.random() < 0.5] for _ in range(8))


def _chosen(durable: bytes, pending: Sequence[Pending], chosen: Sequence[int]) -> bytes:
    return apply_all(durable, [pending[i] for i in chosen])


Part = list[tuple[int, int]]  # ranges of a write that are there


def _parts(operation: Pending, limits: Limits, rng: random.Random) -> Iterator[Part]:
    """Parts of one write, cut at the borders of sectors."""
    if isinstance(operation, int):
        return
    offset, data = operation
    sector = limits.sector
    first = sector - offset % sector
    borders = [*range(first, len(data), sector)]
    if not borders:
        if len(data):
            yield []  # not there, but the file has grown
        return
    if not limits.reorder:
        yield from ([(0, border)] for border in _some(borders, rng))
        return
    edges = [0, *borders, len(data)]
    sectors = list(itertools.pairwise(edges))
    if len(sectors) <= limits.all_subsets - 1:
        for size in range(len(sectors)):
            yield from map(list, itertools.combinations(sectors, size))
        return
    yield []
    yield from ([(0, border)] for border in _some(borders, rng))
    yield from ([(border, len(data))] for border in _some(borders, rng))
    yield from ([s for s in sectors if s != gone] for gone in _some(sectors, rng))
    for _ in range(3):
        yield [s for s in sectors if rng.random() < 0.5]


def _some(values: list[T], rng: random.Random, most: int = 5) -> list[T]:
    """The first, the last, and some in between."""
    if len(values) <= most:
        return values
    return [values[0], *rng.sample(values[1:-1], most - 2), values[-1]]


def _with_part(base: bytes, operation: Pending, part: Part, *, zeros: bool) -> bytes:
    """`base`, and of `operation` only a part; with `zeros` the file has grown by all of it."""
    image = bytearray(base)
    _apply_part(image, operation, part, zeros=zeros)
    return bytes(image)


def _apply_part(image: bytearray, operation: Pending, part: Part, *, zeros: bool) -> None:
    assert not isinstance(operation, int)
    offset, data = operation
    if zeros:
        image.extend(bytes(max(0, offset + len(data) - len(image))))
    for begin, end in part:
        apply_to(image, (offset + begin, data[begin:end]))


def _fates(durable: bytes, pending: Sequence[Pending], limits: Limits, rng: random.Random) -> bytes:
    """A random fate for each operation."""
    if not limits.reorder:
        return apply_all(durable, pending[: rng.randrange(len(pending) + 1)])
    image = bytearray(durable)
    for operation in pending:
        fate = rng.random()
        if fate < 0.4:
            apply_to(image, operation)
        elif fate < 0.7:
            parts = list(_parts(operation, limits, rng))
            if parts:
                _apply_part(image, operation, rng.choice(parts), zeros=rng.random() < 0.5)
    return bytes(image)
