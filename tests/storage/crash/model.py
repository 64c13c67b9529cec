"""What a store should hold: a plain list of groups, the prepared transactions, the state; after each step of a history.

`Snapshot` number n is what the store holds after step n. A crash leaves one of those between the last that the outside
was told of and the last that was begun.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.engine import Xid
from binlog_storage.ibb.chunk import Position

Entries = frozenset[tuple[Gtid, ...]]  # of each domain, in the order of logging


def entries_of(state: BinlogState) -> Entries:
    """The state as a value: the order of domains means nothing, that of servers in a domain does."""
    domains: dict[int, list[Gtid]] = {}
    for gtid in state.entries():
        domains.setdefault(gtid.domain_id, []).append(gtid)
    return frozenset(map(tuple, domains.values()))


class Snapshot(NamedTuple):
    """What a store holds.

    epoch: how many times it was reset.
    groups: how many, of that epoch.
    prepared: XA transactions that wait: name, and the events that a commit brings.
    state: the last GTID of each domain and server.
    end: where the next group goes.
    """

    epoch: int
    groups: int
    prepared: dict[Xid, bytes]
    state: Entries
    end: Position


class Found(NamedTuple):
    """What a store does hold. A group that has lost data to a purge is None."""

    groups: tuple[bytes | None, ...]
    prepared: frozenset[Xid]
    state: Entries


@dataclass(slots=True)
class Model:
    """All that was ever given to a store.

    Attributes:
        epochs: the groups since each reset, payload and the file in which it began at the earliest.
        first_states: the state with which each epoch begins.
        snapshots: after each step; number 0 is the empty store.
        prepared, state: of the last step, or of the one under way.
    """

    epochs: list[list[tuple[bytes, int]]] = field(default_factory=lambda: [[]])
    snapshots: list[Snapshot] = field(
        default_factory=lambda: [Snapshot(0, 0, {}, frozenset(), Position(0, 0))]
    )
    first_states: list[BinlogState] = field(default_factory=lambda: [BinlogState()])
    prepared: dict[Xid, bytes] = field(default_factory=dict)
    state: BinlogState = field(default_factory=BinlogState)

    @property
    def groups(self) -> list[bytes]:
        """Of this epoch."""
        return [payload for payload, _ in self.epochs[-1]]

    @property
    def last(self) -> int:
        """Number of the last snapshot."""
        return len(self.snapshots) - 1

    def add(self, payload: bytes, gtid: Gtid | None, file_no: int) -> None:
        """A group that begins in that file or a later one."""
        self.epochs[-1].append((payload, file_no))
        if gtid is not None:
            self.state.update(gtid)

    def reset(self, state: BinlogState) -> None:
        """Nothing is left but the state. In between there is not even that."""
        if state.entries():
            self._epoch(BinlogState())
            self.snapshot(Position(0, 0))
        self._epoch(state)

    def _epoch(self, state: BinlogState) -> None:
        self.epochs.append([])
        self.first_states.append(state.copy())
        self.state = state

    def snapshot(self, end: Position) -> None:
        """A step is over."""
        state = entries_of(self.state)
        self.snapshots.append(
            Snapshot(len(self.epochs) - 1, len(self.epochs[-1]), dict(self.prepared), state, end)
        )

    def fits(self, found: Found, number: int, *, purged_below: int = 0) -> bool:
        """Whether `found` is snapshot `number`, less what a purge up to that file may have taken."""
        held = self.snapshots[number]
        if found.prepared != held.prepared.keys() or found.state != held.state:
            return False
        groups = self.epochs[held.epoch][: held.groups]
        missing = held.groups - len(found.groups)
        if missing < 0 or (missing and groups[missing - 1][1] >= purged_below):
            return False
        return all(
            a == b or (a is None and purged_below > 0)
            for a, (b, _) in zip(found.groups, groups[missing:], strict=True)
        )

    def restart(self, number: int) -> None:
        """A crash has left this snapshot. It is number 0 from now on."""
        held = self.snapshots[number]
        del self.epochs[held.epoch + 1 :]
        del self.first_states[held.epoch + 1 :]
        del self.epochs[held.epoch][held.groups :]
        self.prepared = dict(held.prepared)
        self.state = BinlogState(itertools.chain.from_iterable(held.state))
        self.snapshots = [held]
