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
from operator import itemgetter
from typing import NamedTuple

from binlog_protocol.dataclass import dataclass

from binlog_storage.engine.references import Holder, Pin


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
    why: Holder | str = ""

    @property
    def reached_the_active_file(self) -> bool:
        """Whether all went that can ever go: the file that is written had to stay, and nothing held one before it."""
        return self.why == _ACTIVE


class FileFate(NamedTuple):
    """The fate of a file of `FileFacts` under a purge: whether it is `wanted`, whether it `goes`, and all that holds it
    back. The reason that holds the most files comes first.
    """

    file_no: int
    size: int
    modified: float
    refers_to: int
    wanted: bool
    goes: bool
    held_by: tuple[Holder, ...]


class PurgeHeld(NamedTuple):
    """Files that a limit of age or size wants to go, and that stay: their bytes, the last write of the oldest one in
    seconds since 1970, and who holds most of them.
    """

    size: int
    oldest: float
    holder: Holder


Wanted = Callable[[FileFacts, int], bool]  # (file, bytes that it and all later ones take)


def before_file(file_no: int) -> Wanted:
    """PURGE BINARY LOGS TO."""
    return lambda facts, _: facts.file_no < file_no


def before_time(limit: float) -> Wanted:
    """PURGE BINARY LOGS BEFORE, and binlog_expire_logs_seconds. Seconds since 1970."""
    return lambda facts, _: facts.modified < limit


def any_of(wanted: Sequence[Wanted]) -> Wanted:
    """Several limits at once; nothing is wanted without any."""
    return lambda facts, total: any(one(facts, total) for one in wanted)


def above_size(bytes_max: int) -> Wanted:
    """max_binlog_total_size."""
    return lambda _, total: total > bytes_max


def limits(age: int, size: int, now: float) -> list[tuple[Wanted, str]]:
    """The limits that are set, each with its option for the log.

    Args:
        age: binlog_expire_logs_seconds, 0 for none.
        size: max_binlog_total_size, 0 for none.
        now: in seconds since 1970.
    """
    found = []
    if age:
        found.append((before_time(now - age), f"binlog_expire_logs_seconds={age}"))
    if size:
        found.append((above_size(size), f"max_binlog_total_size={size}"))
    return found


def fates(
    files: Sequence[FileFacts],
    wanted: Wanted,
    *,
    first_open: int,
    holds: Sequence[Pin],
    replicas_missing: int = 0,
) -> list[FileFate]:
    """The fates of `files`, which are all there are, oldest first.

    Args:
        first_open: the first file that is written or not closed yet.
        holds: everything that is held.
        replicas_missing: how many more replicas would have to be connected (slave_connections_needed_for_purge).
    """
    refers_to = {facts.file_no: facts.refers_to for facts in files}
    # What the current file refers to may be read by the replica that connects next. MariaDB keeps it from its own purge
    # only: by PURGE it deletes halves of groups that are to be read.
    reasons = [
        (first_open, _ACTIVE),
        *((min(h.file_no, refers_to.get(h.file_no, h.file_no)), h.why) for h in holds),
        (refers_to.get(first_open, first_open), _refers(first_open)),
    ]
    if replicas_missing > 0:
        reasons.append((-1, _missing(replicas_missing)))
    reasons.sort(key=itemgetter(0))
    total = sum(facts.size for facts in files)
    found: list[FileFate] = []
    is_wanted = True
    for facts in files:
        # Behind a file that stays none goes, as what holds it holds all later ones; they are wanted nevertheless.
        is_wanted = is_wanted and wanted(facts, total)
        if is_wanted:
            total -= facts.size
        # Said once: a file that is in use refers to data in itself.
        held_by = dict.fromkeys(
            why
            for lowest, why in reasons
            if facts.file_no >= lowest and why != _refers(facts.file_no)
        )
        goes = is_wanted and not held_by
        found.append(FileFate(*facts, is_wanted, goes, tuple(held_by)))
    return found


def plan(fates: Sequence[FileFate]) -> PurgePlan:
    """The plan of a purge with these fates."""
    delete = [fate.file_no for fate in fates if fate.goes]
    kept = next((fate for fate in fates if fate.wanted and not fate.goes), None)
    return PurgePlan(delete) if kept is None else PurgePlan(delete, kept.file_no, kept.held_by[0])


_ACTIVE = Holder("the binlog file is in active use", "active_file")


def _refers(file_no: int) -> Holder:
    return Holder(
        f"binlog file number {file_no} refers to data in it (the file in active use: its groups would not be whole; "
        "FLUSH BINARY LOGS first)",
        "reference",
    )


def _missing(replicas: int) -> Holder:
    return Holder(
        f"{replicas} more slave connections are needed (slave_connections_needed_for_purge)",
        "replicas_missing",
    )
