"""The durable content of a store in memory: a list of entries that outlives the engine, as a directory does a process.

An entry is a group, a start marker, or the empty one that stands for a step of an XA transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.ibb.xa import Xid

Entry = tuple[bytes, Gtid | None]  # a payload, and no GTID with a start marker
XA_STEP: Final[Entry] = b"", None


class MemoryXaStep(NamedTuple):
    """`data` is what a prepared transaction holds; None ends it. `at` is the entry that stands for the step."""

    at: int
    xid: Xid
    data: bytes | None


@dataclass(slots=True)
class MemoryHistory:
    """The durable content. `purge` forgets the oldest groups; `fails` makes every sync raise `DiskError`."""

    groups: list[Entry] = field(default_factory=list)
    purged: int = 0
    state: BinlogState = field(default_factory=BinlogState)  # before the first group that is left
    fails: bool = False
    xa: list[MemoryXaStep] = field(default_factory=list)

    def purge(self, count: int) -> None:
        """Forget the oldest `count` groups. Not while an engine is open on it."""
        self.state.overlay(gtid for _, gtid in self.groups[:count] if gtid is not None)
        del self.groups[:count]
        self.purged += count
