"""A transaction before its commit: its events in two small caches, which are spilled into the binlog when full.

This is the job of MariaDB's server layer in front of the engine. A transaction of any size takes no more memory than
its two caches: events of transactional tables go to one (`binlog_cache_size`), all others to the other one
(`binlog_stmt_cache_size`). A full cache is spilled out of band, in pieces. Pieces also end at savepoints, so that a
rollback to one can cut there; pieces that were spilled after it stay as garbage to which nothing refers.

At commit: if nothing was spilled and everything fits, the group is one record. Otherwise the rest is spilled too, and
only the GTID event goes into the commit record; readers take the lists behind it, the statement list first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.decision import Decision
from binlog_storage.engine import GroupMark, GroupWriter, Position
from binlog_storage.ibb.xa import Xid

BINLOG_CACHE_SIZE = 32 * 1024


@dataclass(eq=False, slots=True)
class Savepoint:
    """A savepoint in the transactional events: `offset` bytes into the cache, or `mark` once they are spilled."""

    offset: int
    mark: GroupMark | None = None


@runtime_checkable
class DecidingGroup(GroupWriter, Protocol):
    """A group of which engines with logs of their own may have a part."""

    def decide(
        self, decision: Decision, gtid_event: bytes, gtid: Gtid, age: int | None = None
    ) -> Position:
        """As `commit`, of what they have prepared."""


class GroupSink(Protocol):
    """The part of `EngineWriter` that a transaction needs."""

    @property
    def cache_bytes(self) -> int: ...

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position: ...

    def begin(self, *, bulk: bool = False) -> GroupWriter: ...


class Space(Protocol):
    """Who counts what is spilled."""

    def take(self, size: int, *, is_limited: bool) -> None:
        """So many bytes are about to be spilled. Raises `ServerError` if they are too many and `is_limited`."""

    def give_back(self, size: int) -> None:
        """They are a transaction's no longer."""


class CacheUse:
    """How often transactions have used a cache to their end, also to a rollback, and how often it was too small for
    them. `stmt_`: those of tables without transactions. Any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.cache = self.cache_disk = self.stmt_cache = self.stmt_cache_disk = 0

    def count(self, *, on_disk: bool, is_direct: bool = False) -> None:
        """One more."""
        with self._lock:
            if is_direct:
                self.stmt_cache += 1
                self.stmt_cache_disk += on_disk
            else:
                self.cache += 1
                self.cache_disk += on_disk


class Transaction:
    """One transaction on an engine. One owner; no use after `commit`, `prepare` or `rollback`.

    Args:
        binlog_cache_size, binlog_stmt_cache_size: bytes of the two caches.
        space: counts what is spilled, garbage included, up to the end. A statement may be refused by it, a commit is
            not: its rest may go over.
        uses: counts a rollback and a `prepare` of what has events; a commit is counted by who knows its kind.
    """

    def __init__(
        self,
        engine: GroupSink,
        *,
        binlog_cache_size: int = BINLOG_CACHE_SIZE,
        binlog_stmt_cache_size: int = BINLOG_CACHE_SIZE,
        space: Space | None = None,
        uses: CacheUse | None = None,
    ) -> None:
        self._engine = engine
        self._group = engine.begin()
        self._cache = bytearray()
        self._cache_size = binlog_cache_size
        self._statement_cache = bytearray()
        self._statement_cache_size = binlog_stmt_cache_size
        self._savepoints: list[Savepoint] = []
        self._marked = 0  # of them, the first ones: what stands before them is spilled
        self._space = space
        self._uses = uses
        self._taken = 0  # of it
        self._lock = threading.Lock()  # of the two below
        self._is_busy = self._has_ended = False

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory now; at most the size of both caches."""
        return len(self._cache) + len(self._statement_cache)

    @property
    def is_large(self) -> bool:
        """Whether the transaction has outgrown its caches, so that further events are spilled."""
        return self._group.spilled

    def spills(self, size: int) -> bool:
        """Whether so many bytes more of transactional events are too much for the cache."""
        return len(self._cache) + size > self._cache_size

    def write(self, events: bytes, *, transactional: bool = True, is_limited: bool = True) -> None:
        """Add events in normal form; they may be cut anywhere.

        What does not fit is spilled: that writes a file, and waits for room on a full disk. It may be rolled back
        meanwhile, as in `settle`. Raises what `space` does if `is_limited`: go back to a savepoint then, a part may be
        written.
        """
        cache = self._cache if transactional else self._statement_cache
        size = self._cache_size if transactional else self._statement_cache_size
        if len(cache) + len(events) <= size:
            cache += events
            return
        room = size - len(cache)
        rest = memoryview(events)[room:]
        # As many caches as are full, but in one piece: pieces of many pages are made several times as fast.
        whole = max(0, len(rest) - 1) // size * size
        with self._busy():
            cache += events[:room]
            if transactional:
                self._spill(is_limited=is_limited)
            else:
                self._spill_statement(is_limited=is_limited)
            if whole and not self._has_ended:
                self._take(whole, is_limited=is_limited)
                self._group.spill(rest[:whole], statement=not transactional)
            cache += rest[whole:]

    def savepoint(self) -> Savepoint:
        """Set a savepoint in the transactional events. Other events are never taken back, as their tables are not."""
        savepoint = Savepoint(len(self._cache))
        self._savepoints.append(savepoint)
        return savepoint

    def rollback_to(self, savepoint: Savepoint) -> None:
        """Forget the events after a savepoint. It stays, later ones are gone. Raises `ValueError` if it is gone."""
        del self._savepoints[self._at(savepoint) + 1 :]
        self._marked = min(self._marked, len(self._savepoints))
        if savepoint.mark is None:
            del self._cache[savepoint.offset :]
        else:
            self._group.rewind(savepoint.mark)
            self._cache.clear()

    def release(self, savepoint: Savepoint) -> None:
        """Forget a savepoint, and no events: it takes memory until then. Raises `ValueError` if it is gone."""
        at = self._at(savepoint)
        del self._savepoints[at]
        if at < self._marked:
            self._marked -= 1

    def _at(self, savepoint: Savepoint) -> int:
        if self._savepoints and self._savepoints[-1] is savepoint:
            return len(self._savepoints) - 1
        return self._savepoints.index(savepoint)

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        """Append the group: `gtid_event`, the statement events, the transactional events. Returns its end.

        `age`: see `BinlogEngine.append`. After `BinlogBegunAnew` it can be committed under another number.
        """
        if self._fits(gtid_event):
            self._uses = None
            self._group.rollback()
            return self._engine.append(gtid_event + self._statement_cache + self._cache, gtid, age)
        with self._busy():
            self._spill_all()
            end = self._group.commit(gtid_event, gtid, age)
            self._uses = None
            self._give_back()
        return end

    def turn(self) -> AbstractContextManager[None] | None:
        """See `GroupWriter.turn`, for `commit` and `decide`. It may be rolled back while these are at work, as in
        `settle`.
        """
        return self._group.turn()

    def decide(
        self, decision: Decision, gtid_event: bytes, gtid: Gtid, age: int | None = None
    ) -> Position:
        """As `commit`, of what engines with logs of their own have prepared."""
        with self._busy():
            self._spill_all()
            assert isinstance(self._group, DecidingGroup), (
                "a transaction without rows has no part elsewhere"
            )
            end = self._group.decide(decision, gtid_event, gtid, age)
            self._uses = None
            self._give_back()
        return end

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        """XA PREPARE: spill everything out of band; the transaction waits in the binlog under its name.

        In a thread, if it is large; it may be rolled back meanwhile, as in `settle`. `engines`: how many have a part of
        it.
        """
        self._count()
        with self._busy():
            self._spill_all()
            end = self._group.prepare(xid, engines)
            self._give_back()
        return end

    def settle(self) -> None:
        """Do ahead, in a thread, what takes long in the commit of a large transaction. Raises `StorageError`.

        It may be rolled back meanwhile: it is, then, when this is done.
        """
        with self._busy():
            self._spill_all()
            self._group.settle(lambda: self._has_ended)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """A rollback that comes inside of the block is done behind it."""
        with self._lock:
            self._is_busy = True
        try:
            yield
        finally:
            with self._lock:
                self._is_busy = False
            if self._has_ended:
                self.rollback()

    def give_up(self) -> None:
        """End what waits for room in a thread, with an error; `rollback` follows."""
        with self._lock:
            if self._is_busy:
                self._group.give_up()

    def rollback(self) -> None:
        """Drop all events of the transaction; what waits for room in a thread ends with an error."""
        with self._lock:
            self._has_ended = True
            if self._is_busy:
                self._group.give_up()
                return
        self._count()
        try:
            self._group.rollback()
        finally:
            self._give_back()
        self._cache.clear()
        self._statement_cache.clear()

    def _count(self) -> None:
        uses, self._uses = self._uses, None
        if uses is not None and (self._cache or self.is_large):
            uses.count(on_disk=self.is_large)

    def _fits(self, gtid_event: bytes) -> bool:
        size = len(gtid_event) + self.memory_bytes
        return not self._group.spilled and size <= min(self._cache_size, self._engine.cache_bytes)

    def _take(self, size: int, *, is_limited: bool) -> None:
        if self._space is not None and size:
            self._space.take(size, is_limited=is_limited)
            self._taken += size

    def _give_back(self) -> None:
        taken, self._taken = self._taken, 0
        if self._space is not None and taken:
            self._space.give_back(taken)

    def _spill_all(self) -> None:
        self._spill_statement(is_limited=False)
        self._spill(is_limited=False)

    def _spill_statement(self, *, is_limited: bool) -> None:
        self._take(len(self._statement_cache), is_limited=is_limited)
        self._group.spill(self._statement_cache, statement=True)
        self._statement_cache.clear()

    def _spill(self, *, is_limited: bool) -> None:
        """Spill the cache, in pieces that end at the savepoints in it."""
        self._take(len(self._cache), is_limited=is_limited)
        done = 0
        for savepoint in self._savepoints[self._marked :]:
            self._group.spill(self._cache[done : savepoint.offset])
            done = savepoint.offset
            savepoint.mark = self._group.mark()
            self._marked += 1
        self._group.spill(self._cache[done:])
        self._cache.clear()
