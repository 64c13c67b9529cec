"""How much of something: sizes and times of many transactions as counts that can be added up, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from typing import Final

import numpy as np
from binlog_protocol.dataclass import dataclass

from binlog_pipeline.groups import Integers

_EXACT_BITS: Final = 10
_TIMES_MAX: Final = 1 << 18
_STEPS: Final = (60, 3600, 86400)  # seconds


@dataclass(slots=True)
class Amount:
    """Transactions, rows and bytes of a table, a server or a second."""

    transactions: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, other: Amount) -> None:
        self.transactions += other.transactions
        self.rows += other.rows
        self.bytes += other.bytes


@dataclass(slots=True)
class Sizes:
    """Sizes in bytes, of which the first ten bits count: off by less than 0.2 %; the largest is exact."""

    counts: Counter[int] = field(default_factory=Counter)
    largest: int = 0

    def add(self, sizes: Integers) -> None:
        """Count the sizes of more transactions."""
        if not len(sizes):
            return
        bits = np.frexp(sizes.astype(np.float64))[1].astype(np.int64)
        shift = np.maximum(bits - _EXACT_BITS, 0)
        rounded, counts = np.unique(sizes >> shift << shift, return_counts=True)
        self.counts.update(dict(zip(rounded.tolist(), counts.tolist(), strict=True)))
        self.largest = max(self.largest, int(sizes.max()))

    def merge(self, other: Sizes) -> None:
        """Add the counts of `other`."""
        self.counts.update(other.counts)
        self.largest = max(self.largest, other.largest)

    def percentile(self, percent: float) -> int:
        """The size that so many percent are not above; 0 if there are none."""
        wanted = sum(self.counts.values()) * percent / 100
        seen = 0
        for size, count in sorted(self.counts.items()):
            seen += count
            if seen >= wanted:
                return size
        return 0

    def buckets(self) -> list[tuple[int, int]]:
        """Counts of sizes from a power of two up to the next, without gaps: (least size, count)."""
        by_bits: Counter[int] = Counter()
        for size, count in self.counts.items():
            by_bits[size.bit_length()] += count
        bits = range(min(by_bits), max(by_bits) + 1) if by_bits else range(0)
        return [(1 << n >> 1, by_bits[n]) for n in bits]


@dataclass(slots=True)
class Rates:
    """Amounts over time. `step` is in seconds: it grows where the times are many."""

    step: int = 1
    amounts: dict[int, Amount] = field(default_factory=dict)
    """Amounts by the first second of each step, counted from 1970."""

    def add(self, seconds: Integers, rows: Integers, sizes: Integers) -> None:
        """One element a transaction."""
        begins, which = np.unique(seconds - seconds % self.step, return_inverse=True)
        count = np.bincount(which)
        all_rows = np.bincount(which, rows).astype(np.int64)
        all_bytes = np.bincount(which, sizes).astype(np.int64)
        columns = (begins.tolist(), count.tolist(), all_rows.tolist(), all_bytes.tolist())
        for begin, *amount in zip(*columns, strict=True):
            self.amounts.setdefault(begin, Amount()).add(Amount(*amount))
        self._shorten()

    def merge(self, other: Rates) -> None:
        """Add the amounts of `other`, step by step."""
        step = max(self.step, other.step)
        self._coarsen(step)
        for begin, amount in other.amounts.items():
            self.amounts.setdefault(begin - begin % step, Amount()).add(amount)
        self._shorten()

    def by(self, step: int) -> Rates:
        """The same in larger steps, if they are not as large."""
        made = Rates(max(step, self.step))
        made.merge(self)
        return made

    def series(self) -> Iterator[tuple[int, Amount]]:
        """The steps in the order of time, those without amounts between them included."""
        times = sorted(self.amounts)
        for begin in range(times[0], times[-1] + 1, self.step) if times else ():
            yield begin, self.amounts.get(begin, Amount())

    def _shorten(self) -> None:
        for step in _STEPS:
            if len(self.amounts) > _TIMES_MAX and step > self.step:
                self._coarsen(step)

    def _coarsen(self, step: int) -> None:
        if step == self.step:
            return
        amounts, self.amounts, self.step = self.amounts, {}, step
        for begin, amount in amounts.items():
            self.amounts.setdefault(begin - begin % step, Amount()).add(amount)
