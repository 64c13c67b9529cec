"""Which files may be deleted, and why one has to stay. Pure: the store tells it what there is, and does it.

Files are looked at from the oldest on, and the first that must stay ends it: a store is one run of files without
gaps.

    wanted       by name: its number is below the one named; by date: last written before it; by size: the files
                 together take more than the limit
    kept anyway  the file being written, or not closed yet; files that somebody holds; files that a held or the current
                 file may refer to (header fields 48 and 56, the smaller one); everything, with too few replicas
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.binlog.references import Hold


class FileFacts(NamedTuple):
    """One file: its size in bytes, last write in seconds since 1970, and the lowest file that its data may refer to."""

    file_no: int
    size: int
    modified: float
    refers_to: int


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """Files to delete, in this order; and, if a wanted file has to stay, which one and why."""

    delete: list[int]
    kept: int | None = None
    why: str = ""


Wanted = Callable[[FileFacts, int], bool]  # (file, bytes that it and all later ones take)


def before_file(file_no: int) -> Wanted:
    """PURGE BINARY LOGS TO."""
    return lambda facts, _: facts.file_no < file_no


def before_time(limit: float) -> Wanted:
    """PURGE BINARY LOGS BEFORE, and binlog_expire_logs_seconds. Seconds since 1970."""
    return lambda facts, _: facts.modified < limit


def above_size(bytes_max: int) -> Wanted:
    """max_binlog_total_size."""
    return lambda _, total: total > bytes_max


def plan(
    files: Sequence[FileFacts],
    wanted: Wanted,
    *,
    first_open: int,
    holds: Sequence[Hold],
    replicas_missing: int = 0,
) -> PurgePlan:
    """What to delete of `files`, which are all there are, oldest first.

    Args:
        first_open: the first file that is written or not closed yet.
        holds: everything that is held.
        replicas_missing: how many more replicas would have to be connected (slave_connections_needed_for_purge).
    """
    limit, why = first_open, "the binlog file is in active use"
    refers_to = {facts.file_no: facts.refers_to for facts in files}
    for hold in holds:
        needed = min(hold.file_no, refers_to.get(hold.file_no, hold.file_no))
        if needed < limit:
            limit, why = needed, hold.why
    # What the current file refers to may be read by the replica that connects next.
    needed = refers_to.get(first_open, first_open)
    if needed < limit:
        limit, why = needed, f"binlog file number {first_open} refers to data in it"
    delete: list[int] = []
    total = sum(facts.size for facts in files)
    for facts in files:
        if not wanted(facts, total):
            break
        if replicas_missing > 0:
            reason = f"{replicas_missing} more slave connections are needed (slave_connections_needed_for_purge)"
            return PurgePlan(delete, facts.file_no, reason)
        if facts.file_no >= limit:
            return PurgePlan(delete, facts.file_no, why)
        delete.append(facts.file_no)
        total -= facts.size
    return PurgePlan(delete)
