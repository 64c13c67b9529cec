"""The plain twin of the store, for tests and simulations: groups in a list.

It keeps every promise of `storage.engine.BinlogEngine` in the simplest way there is, so that a test which fails on
`IbbEngine` and not here has found something in the files. Nothing is bounded: do not serve from it.

A `Position` is (0, number of groups before it). What is durable lies in a `MemoryHistory`, which outlives the engine
as a directory outlives a process: open another engine on it to see what a crash leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.gtid import BinlogState, Gtid, SlavePosition
from storage.engine import BinlogFile, GroupBatch, Position, StartPoint
from storage.errors import DiskError, PositionPurged, StoreFailed

FILE_NAME = "memory"
BATCH_GROUPS = 8  # batches end at multiples of this, so that readers meet

_Entry = tuple[bytes, Gtid | None]


@dataclass(slots=True)
class MemoryHistory:
    """What is durable. `purge` forgets the oldest groups; `fails` makes every sync raise `DiskError`."""

    groups: list[_Entry] = field(default_factory=list)
    purged: int = 0
    state: BinlogState = field(default_factory=BinlogState)  # before the first group that is left
    fails: bool = False

    def purge(self, count: int) -> None:
        """Forget the oldest `count` groups. Not while an engine is open on it."""
        self.state.overlay(gtid for _, gtid in self.groups[:count] if gtid is not None)
        del self.groups[:count]
        self.purged += count


class MemoryGroup:
    """See `GroupWriter`."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._pieces: list[bytes] | None = []

    def spill(self, data: bytes | memoryview) -> None:
        """See `GroupWriter`."""
        self._engine.refuse_after_failure()
        self._open().append(bytes(data))

    def commit(self, gtid_event: bytes, gtid: Gtid) -> Position:
        """See `GroupWriter`."""
        end = self._engine.append(b"".join((gtid_event, *self._open())), gtid)
        self._pieces = None
        return end

    def rollback(self) -> None:
        """See `GroupWriter`. A second call does nothing."""
        self._pieces = None

    def _open(self) -> list[bytes]:
        if self._pieces is None:
            raise RuntimeError("this group was committed or rolled back")
        return self._pieces


class MemoryEngine:
    """See `storage.engine.BinlogEngine`. Every method may be called from any thread."""

    def __init__(self, history: MemoryHistory | None = None, *, cache_bytes: int = 1 << 15) -> None:
        self._history = history or MemoryHistory()
        self._cache_bytes = cache_bytes
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self._failed = False
        self._groups = list(self._history.groups)
        self._durable = len(self._groups)

    @property
    def cache_bytes(self) -> int:
        """See `BinlogEngine`."""
        return self._cache_bytes

    def refuse_after_failure(self) -> None:
        """Raise `StoreFailed` if a sync has failed."""
        if self._failed:
            raise StoreFailed("this engine accepts nothing more after an earlier failure")

    def append(self, payload: bytes, gtid: Gtid | None) -> Position:
        """See `BinlogEngine`."""
        with self._lock:
            self.refuse_after_failure()
            self._groups.append((bytes(payload), gtid))
            return self.written_end

    def begin(self) -> MemoryGroup:
        """See `BinlogEngine`."""
        return MemoryGroup(self)

    def sync(self) -> None:
        """See `BinlogEngine`."""
        with self._lock:
            self.refuse_after_failure()
            if self._history.fails:
                self._failed = True
                raise DiskError("cannot sync: Input/output error (injected)")
            if self._durable == len(self._groups):
                return
            self._history.groups[:] = self._groups
            self._durable = len(self._groups)
        for wake in list(self._listeners):
            wake()

    def _position(self, count: int) -> Position:
        return Position(0, self._history.purged + count)

    @property
    def durable_end(self) -> Position:
        """See `BinlogEngine`."""
        return self._position(self._durable)

    @property
    def written_end(self) -> Position:
        """See `BinlogEngine`."""
        return self._position(len(self._groups))

    @property
    def last_marker(self) -> bytes | None:
        """See `BinlogEngine`."""
        with self._lock:
            payload, gtid = self._groups[-1] if self._groups else (None, None)
            return payload if gtid is None else None

    def binlog_state(self) -> BinlogState:
        """See `BinlogEngine`."""
        with self._lock:
            state = self._history.state.copy()
            state.overlay(gtid for _, gtid in self._groups if gtid is not None)
            return state

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `BinlogEngine`."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def find_start(self, position: SlavePosition) -> StartPoint:
        """See `BinlogEngine`. Tries the state behind each GTID; the latest one wins. Markers are not jumped."""
        with self._lock:
            state = self._history.state.copy()
            best = (
                StartPoint(self._position(0), state.copy()) if state.is_before(position) else None
            )
            for count, (_, gtid) in enumerate(self._groups[: self._durable], 1):
                if gtid is None:
                    continue
                state.update(gtid)
                if state.is_before(position):
                    best = StartPoint(self._position(count), state.copy())
        if best is None:
            raise PositionPurged
        return best

    def read(self, start: Position) -> GroupBatch:
        """See `BinlogEngine`."""
        first = start.offset - self._history.purged
        last = min(first - first % BATCH_GROUPS + BATCH_GROUPS, self._durable)
        found = [payload for payload, _ in self._groups[first:last]]
        return GroupBatch(start, self._position(first + len(found)), found)

    def is_recent(self, start: Position) -> bool:
        """See `BinlogEngine`."""
        return True

    def files(self) -> list[BinlogFile]:
        """See `BinlogEngine`. One, of the size of what is durable."""
        size = sum(len(payload) for payload, _ in self._groups[: self._durable])
        return [BinlogFile(FILE_NAME, size)]

    def status(self) -> tuple[str, int]:
        """See `BinlogEngine`."""
        return FILE_NAME, self.written_end.offset

    def close(self) -> None:
        """See `BinlogEngine`."""
        if not self._failed:
            self.sync()
