"""Which files of a store an archive has, all of each. Pure: the store tells the states, the archive its manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from binlog_protocol.gtid import BinlogState


def is_within(state: BinlogState, other: BinlogState) -> bool:
    """Whether all that leads to a state leads to the other, too."""
    return all(map(other.has, state.entries()))


def first_missing(
    begin: BinlogState,
    end: BinlogState,
    files: Sequence[int],
    state_before: Callable[[int], BinlogState],
) -> int:
    """The first file of which the archive from `begin` to `end` lacks something. The last one always counts as such.

    Args:
        files: all there are, ascending; the last is the one that is being written. At least one.
        state_before: the binlog state in front of a file.
    """
    if not is_within(begin, state_before(files[0])):
        return files[0]
    for file_no, following in pairwise(files):
        if not is_within(state_before(following), end):
            return file_no
    return files[-1]
