"""The end of a micro-batch: a limit of bytes or transactions, another schema, or the end of the log."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import SlavePosition
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.groups import Groups, Integers, after
from binlog_pipeline.sources.source import Feed
from binlog_pipeline.wanted import Wanted

Barrier = Callable[[Groups, int], bool]
"""Whether group i must begin a batch: what follows it has another schema than what was before it."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one batch, of which at least one group is taken."""

    bytes: int = sys.maxsize
    transactions: int = sys.maxsize


def next_end(
    feed: Feed,
    start: SlavePosition,
    limits: BatchLimits,
    wait_s: float,
    barrier: Barrier | None = None,
    target: SlavePosition | None = None,
) -> SlavePosition:
    """The end of the batch that begins behind `start`; `start` if there is nothing.

    Args:
        wait_s: how long to wait if there is nothing yet.
        target: nothing behind it is taken. It must be a place of this log.
    """
    bytes_left, count_left = limits.bytes, limits.transactions
    allowed = None if target is None else Wanted(GtidRange(stop=target))
    end = start
    for groups in feed.after(start, wait_s):
        is_first = end == start
        sizes = np.cumsum(_sizes(groups))
        taken = min(int(np.searchsorted(sizes, bytes_left, side="right")), count_left)
        if is_first:
            taken = max(taken, 1)
        if allowed is not None:
            inside = allowed.mask(groups)
            if not inside.all():
                taken = min(taken, int(np.argmin(inside)))
        if barrier is not None:
            begin = 1 if is_first else 0
            taken = next((i for i in range(begin, taken) if barrier(groups, i)), taken)
        taken = min(taken, len(groups))
        if taken:
            end = after(end, groups.some(np.arange(len(groups)) < taken))
            bytes_left -= int(sizes[taken - 1])
            count_left -= taken
        if taken < len(groups) or bytes_left <= 0 or count_left <= 0:
            break
    return end


def _sizes(groups: Groups) -> Integers:
    """Bytes of each; a large group fills any batch."""
    if groups.large is not None:
        return np.array([1 << 40])
    return np.fromiter(map(len, groups.payloads), np.int64, len(groups))
