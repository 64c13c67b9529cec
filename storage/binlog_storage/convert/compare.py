"""Two stores, group by group: the same groups, start markers, states and prepared transactions, in the same order.

what is compared     how
the beginning        the binlog state in front of the first group: all servers of all domains. Where the source begins
                     later, as it was purged since, the target is compared from there on
groups, markers      GTID, and all bytes of all events in normal form: without checksums and positions in files
the end              the binlog state behind the last group that both have
XA transactions      names, order and bytes of those that wait
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, zip_longest

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.intake.source import (
    FileStart,
    PreparedTransaction,
    SourceGroup,
    StoreSource,
    UnfinishedGroup,
)
from binlog_storage.log.stored_groups import digest


@dataclass(slots=True)
class Compared:
    """What both stores have, and the first difference.

    groups, markers, prepared: how many are the same; `size` in bytes, in normal form.
    difference: in words; empty if there is none.
    missing: the first group that the target lacks at its end, in words; empty if it has all.
    more: the first group that the target has behind the end of the source.
    """

    groups: int = 0
    markers: int = 0
    prepared: int = 0
    size: int = 0
    difference: str = ""
    missing: str = ""
    more: str = ""

    @property
    def is_same(self) -> bool:
        """Whether the target has all of the source; it may have more behind it."""
        return not self.difference and not self.missing


class _Entry:
    """A group or a start marker. `size` in bytes; `name` for messages."""

    def __init__(self, gtid: Gtid | None, group: SourceGroup | bytes) -> None:
        """Raises `UnfinishedGroup`."""
        self.gtid = gtid
        self.name = "a start marker" if gtid is None else f"group {gtid}"
        if isinstance(group, bytes):
            self.size, self._payload, self._digest = len(group), group, b""
        else:
            self.size, self._payload, self._digest = _taken(group)

    def has_bytes_of(self, other: _Entry) -> bool:
        if not self._digest and not other._digest:
            return self._payload == other._payload
        return self.digest() == other.digest()

    def digest(self) -> bytes:
        return self._digest or digest([self._payload])


def _taken(group: SourceGroup) -> tuple[int, bytes, bytes]:
    if group.rest is None:
        return len(group.payload), group.payload, b""
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for piece in chain([group.payload], group.rest or ()):
            size += len(piece)
            yield piece

    found = digest(counted())
    return size, b"", found


class _Walk:
    """The groups and markers of one store, and the state as far as they were gone through."""

    def __init__(self, source: StoreSource) -> None:
        self.state = source.base(0).copy()
        self._items = source.items(0)
        self._entries = self._all()

    def next(self) -> _Entry | None:
        """The next one; None at the end, and where the files end inside a group."""
        try:
            entry = next(self._entries, None)
        except UnfinishedGroup:
            return None
        if entry is not None and entry.gtid is not None:
            self.state.update(entry.gtid)
        return entry

    def come_to(self, state: BinlogState) -> bool:
        """Pass over the groups in front of a state. Whether there is such a place."""
        while self.state != state:
            if self.next() is None:
                return False
        return True

    def _all(self) -> Iterator[_Entry]:
        for item in self._items:
            if isinstance(item, FileStart):
                self.state = item.state.copy()
            elif isinstance(item, GroupRun):
                for index in range(len(item)):
                    yield _Entry(item.gtid(index), item.payload(index))
            else:
                yield _Entry(item.gtid, item)


def compare(
    source: StoreSource,
    target: StoreSource,
    progress: Callable[[Compared], None] = lambda done: None,
) -> Compared:
    """Read both once. `progress` is called again and again. Raises `StorageError`, `OSError`."""
    done = Compared()
    here, there = _Walk(source), _Walk(target)
    base, other_base = source.base(0), target.base(0)
    later = base != other_base
    if not there.come_to(base):
        done.difference = f"the source begins at '{base}', the target at '{other_base}'"
        return done
    while (one := here.next()) is not None:
        other = there.next()
        while later and other is not None and other.gtid is None and not one.has_bytes_of(other):
            other = there.next()  # a marker in front of the place
        later = False
        if other is None:
            done.missing = one.name
            return done
        if one.gtid != other.gtid or not one.has_bytes_of(other):
            done.difference = _difference(one, other, done)
            return done
        if one.gtid is None:
            done.markers += 1
        else:
            done.groups += 1
            done.size += one.size
        progress(done)
    ended, then = here.state, there.state.copy()
    if (more := there.next()) is not None:
        done.more = more.name
    elif ended != there.state:
        done.difference = f"the source ends at '{ended}', the target at '{then}'"
    else:
        _compare_prepared(source.prepared(), target.prepared(), done)
    return done


def _difference(one: _Entry, other: _Entry, done: Compared) -> str:
    where = f"behind {done.groups} groups and {done.markers} start markers that are the same"
    if one.gtid == other.gtid:
        return f"{where}, {one.name} has other bytes: {one.size} in the source, {other.size} in the target"
    return f"{where}, the source has {one.name}, the target {other.name}"


def _compare_prepared(
    here: list[PreparedTransaction], there: list[PreparedTransaction], done: Compared
) -> None:
    for one, other in zip_longest(here, there):
        if one is None or other is None or one.xid != other.xid:
            names = [None if x is None else x.xid.sql() for x in (one, other)]
            done.difference = (
                f"of prepared XA transactions the source has {names[0]}, the target {names[1]}"
            )
        elif digest(one.pieces()) != digest(other.pieces()):
            done.difference = f"the prepared XA transaction {one.xid.sql()} has other bytes"
        if done.difference:
            return
        done.prepared += 1
