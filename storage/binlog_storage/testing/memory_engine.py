"""The plain twin of the store, for tests and simulations: groups in a list.

It keeps every promise of `BinlogEngine` in the simplest way there is, so that a test which fails
on `IbbEngine` and not here has found something in the files. Nothing is bounded: do not serve from it.

A `Position` is (0, number of entries before it): groups, and the steps of XA transactions, which stand among them as
empty ones. What is durable lies in a `MemoryHistory`, which outlives the engine as a directory outlives a process: open
another engine on it to see what a crash leaves. An entry of it is a group, a start marker, or the empty one that stands
for a step of an XA transaction. There is one file, so FLUSH begins none and there is nothing to purge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.disk.durations import Durations
from binlog_storage.engine import (
    LARGE_GROUP_BYTES,
    BinlogEngine,
    BinlogFile,
    GroupBatch,
    GroupMark,
    LargeGroup,
    Located,
    PlacedBatch,
    PlacedGroup,
    Position,
    Stalled,
    StartPoint,
    Xid,
)
from binlog_storage.engine.purge import FileFate, PurgeHeld, PurgePlan
from binlog_storage.engine.references import Holder, Pin, Reason, References
from binlog_storage.errors import (
    BinlogHasGtids,
    DiskError,
    DomainInUse,
    PositionPurged,
    StorageError,
    StoreFailed,
    UnknownBinlog,
    XaStateError,
)
from binlog_storage.ibb.file_names import file_name, file_number

BATCH_GROUPS = 8  # batches end at multiples of this, so that readers meet
PIECE_BYTES = 1000  # of a large group


Entry = tuple[bytes, Gtid | None]  # a payload, and no GTID with a start marker
XA_STEP: Final[Entry] = b"", None


@dataclass(slots=True)
class MemoryHistory:
    """The durable content. `purge` forgets the oldest groups; `fails` makes every sync raise `DiskError`."""

    groups: list[Entry] = field(default_factory=list)
    purged: int = 0
    state: BinlogState = field(default_factory=BinlogState)  # before the first group that is left
    fails: bool = False
    xa: dict[Xid, bytes] = field(default_factory=dict)  # of prepared transactions, in that order

    def purge(self, count: int) -> None:
        """Forget the oldest `count` groups. Not while an engine is open on it."""
        self.state.overlay(gtid for _, gtid in self.groups[:count] if gtid is not None)
        del self.groups[:count]
        self.purged += count


class MemoryEngine:
    """See `binlog_storage.engine.BinlogEngine`, and there for each method that says nothing here.

    Every method may be called from any thread.
    """

    def __init__(self, history: MemoryHistory | None = None, *, cache_bytes: int = 1 << 15) -> None:
        self._history = history or MemoryHistory()
        self.cache_bytes = cache_bytes
        self.spills_to_files = False
        self.large_group_bytes = LARGE_GROUP_BYTES
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self._when_failed: list[Callable[[StorageError], None]] = []
        self._failed = False
        self.references = References()
        self._groups = list(self._history.groups)
        self._first_state = self._history.state.copy()
        self._durable = len(self._groups)
        self._prepared: dict[Xid, tuple[bytes, Pin]] = {}
        for xid, data in self._history.xa.items():
            self._prepare(xid, data)

    def refuse_after_failure(self) -> None:
        """Raise `StoreFailed` if a sync has failed."""
        if self._failed:
            raise StoreFailed("this engine accepts nothing more after an earlier failure")

    # --- writing ---

    @property
    def age(self) -> int:
        return self.references.age

    def begin_age(self, age: int) -> None:
        self.references.begin_at(age)

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        with self._lock:
            self.refuse_after_failure()
            self.references.require_age(age)
            self._groups.append((bytes(payload), gtid))
            return self.written_end

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        while index < len(run) and self.has_room:
            payload = run.payload(index)
            if len(payload) > self.cache_bytes:
                break
            self.append(payload, run.gtid(index), age)
            index += 1
        return index

    def begin(self, *, bulk: bool = False) -> MemoryGroup:
        return MemoryGroup(self)

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        with self._lock:
            self.refuse_after_failure()
            if self._durable == len(self._groups) and not self._history.fails:
                return
            self._save()
            if durable is not None:
                durable()
        self._wake()

    def _wake(self) -> None:
        for wake in list(self._listeners):
            wake()

    def _save(self) -> None:
        """Under the lock."""
        self.refuse_after_failure()
        if self._history.fails:
            self._failed = True
            error = DiskError("cannot sync: Input/output error (injected)")
            for failed in self._when_failed:
                failed(error)
            self._when_failed.clear()
            raise error
        self._history.groups[:] = self._groups
        self._history.xa = {xid: data for xid, (data, _) in self._prepared.items()}
        self._history.state = self._first_state.copy()
        self._durable = len(self._groups)

    # --- XA ---

    def note_prepared(self, xid: Xid, data: bytes) -> Position:
        """Note a prepared XA transaction; called by `MemoryGroup`."""
        with self._lock:
            self.refuse_after_failure()
            if xid in self._prepared:
                raise XaStateError(f"the XID {xid} is prepared already")
            self._prepare(xid, data)
            self._groups.append(XA_STEP)
            return self.written_end

    def prepared(self) -> list[Xid]:
        with self._lock:
            return list(self._prepared)

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        with self._lock:
            self.refuse_after_failure()
            return self.append(gtid_event + self._completed(xid), gtid)

    def turn_of(self, xid: Xid) -> None:
        """See `EngineWriter`."""

    def rollback_prepared(self, xid: Xid) -> Position:
        with self._lock:
            self.refuse_after_failure()
            self._completed(xid)
            self._groups.append(XA_STEP)
            return self.written_end

    def _prepare(self, xid: Xid, data: bytes) -> None:
        hold = self.references.hold(Reason.PREPARED_XA, xid.sql(), 0)  # which refuses RESET MASTER
        self._prepared[xid] = data, hold

    def _completed(self, xid: Xid) -> bytes:
        """End a prepared transaction. Returns its data."""
        if xid not in self._prepared:
            raise XaStateError(f"the XID {xid} is not prepared")
        data, hold = self._prepared.pop(xid)
        hold.release()
        return data

    # --- files, of which there is one ---

    def flush(
        self, delete_domains: Iterable[int] = (), given_up: Callable[[], bool] = lambda: False
    ) -> None:
        with self._lock:
            self.refuse_after_failure()
            domains = set(delete_domains)
            for domain in sorted(domains):
                if any(gtid is not None and gtid.domain_id == domain for _, gtid in self._groups):
                    raise DomainInUse(domain)
            kept = [gtid for gtid in self._first_state.entries() if gtid.domain_id not in domains]
            self._first_state = BinlogState(kept)
            self._save()
        self._wake()

    def reset(
        self,
        state: BinlogState | None = None,
        given_up: Callable[[], bool] = lambda: False,
        *,
        only_if_empty: bool = False,
    ) -> None:
        with self._lock:
            self.refuse_after_failure()
            is_empty = not self._groups and not len(self._first_state)
            if only_if_empty and len(self.binlog_state()):
                raise BinlogHasGtids("there are GTIDs in the binlog")
            self.references.close(is_empty=is_empty)
            self.references.open()  # nobody gets in between: all of it is under the lock
            self._groups.clear()
            self._prepared.clear()
            self._history.purged = 0
            self._first_state = BinlogState(state.entries() if state is not None else [])
            self._save()
        self._wake()

    def purge_to(self, file_no: int) -> PurgePlan:
        """See `BinlogEngine`. There is no file before the only one."""
        _require_known(file_no)
        return PurgePlan([])

    def purge_before(self, seconds: float) -> PurgePlan:
        """See `BinlogEngine`. The only file is the one being written."""
        return PurgePlan([])

    def explain_purge(self, to: int | None = None, before: float | None = None) -> list[FileFate]:
        """See `BinlogEngine`. The only file is the one being written."""
        _require_known(to)
        size = self.files()[0].size
        return [
            FileFate(
                0,
                size,
                0.0,
                0,
                False,
                False,
                (Holder("the binlog file is in active use", "active_file"),),
            )
        ]

    @property
    def max_binlog_size_min(self) -> int:
        return 1 << 16

    def set_option(self, name: str, value: int) -> None:
        """See `BinlogEngine`. Nothing depends on any."""

    def groups_of_file(
        self, file_no: int | None = None, offset: int = 0
    ) -> Iterator[Iterator[bytes]]:
        _require_known(file_no)
        groups = self._groups[max(0, offset - self._history.purged) : self._durable]
        return (iter([payload]) for payload, _ in groups if payload)

    def hold(
        self,
        name: str,
        start: Position | None = None,
        *,
        dump: bool = False,
        slot: bool = False,
        ended_by: str = "",
        holder: tuple[str, str] | None = None,
        wait: bool = True,
    ) -> Pin:
        return self.references.hold_for_reader(
            name, lambda: 0, dump=dump, slot=slot, ended_by=ended_by, holder=holder, wait=wait
        )

    file_start = 0

    def file_name(self, number: int) -> str:
        return file_name(number)

    def file_number(self, name: str) -> int | None:
        return file_number(name)

    def files(self) -> list[BinlogFile]:
        """See `BinlogEngine`. One, of the size of what is durable."""
        size = sum(len(payload) for payload, _ in self._groups[: self._durable])
        return [BinlogFile(0, size)]

    # --- what there is ---

    def _position(self, count: int) -> Position:
        return Position(0, self._history.purged + count)

    def write_log(self) -> None:
        """See `BinlogEngine`."""

    @property
    def has_room(self) -> bool:
        return True

    @property
    def has_room_to_spill(self) -> bool:
        return True

    def never_wait_in(self, thread: int) -> None:
        """See `BinlogEngine`."""

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        return True

    def counters(self) -> Mapping[str, int]:
        return {}

    def stalled(self) -> list[Stalled]:
        return []

    def purge_held(self) -> PurgeHeld | None:
        return None

    def fsync_times(self) -> Mapping[str, Durations]:
        return {}

    @property
    def durable_end(self) -> Position:
        return self._position(self._durable)

    @property
    def written_end(self) -> Position:
        return self._position(len(self._groups))

    @property
    def last_marker(self) -> bytes | None:
        with self._lock:
            groups = (entry for entry in reversed(self._groups) if entry != XA_STEP)
            payload, gtid = next(groups, (None, None))
            return payload if gtid is None else None

    def binlog_state(self, domain_id: int | None = None) -> BinlogState:
        with self._lock:
            state = self._first_state.copy()
            state.overlay(gtid for _, gtid in self._groups if gtid is not None)
            return state if domain_id is None else state.of_domain(domain_id)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    # --- reading ---

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        self._when_failed.append(failed)

    def first_start(self) -> StartPoint:
        with self._lock:
            return StartPoint(self._position(0), self._first_state.copy())

    def find_start(self, position: SlavePosition) -> StartPoint:
        """See `BinlogEngine`. Tries the state behind each GTID; the latest one wins. Markers are not jumped."""
        with self._lock:
            state = self._first_state.copy()
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
        at = start.offset - self._history.purged
        if at < 0:
            raise PositionPurged("the groups there were purged")
        found: list[bytes] = []
        while at < self._durable:
            payload, _ = self._groups[at]
            if len(payload) > self.large_group_bytes:
                if found:
                    break
                end = self._position(at + 1)
                return GroupBatch(start, end, [], _large(payload, end))
            at += 1
            if payload:
                found.append(payload)
            if found and at % BATCH_GROUPS == 0:
                break
        return GroupBatch(start, self._position(at), found)

    def read_placed(self, start: Position) -> PlacedBatch:
        """See `BinlogEngine`. Places are counted in entries, as positions are."""
        batch = self.read(start)
        if batch.large is not None:
            return PlacedBatch(start, batch.end, [], batch.large)
        first = start.offset - self._history.purged
        entries = enumerate(
            self._groups[first : batch.end.offset - self._history.purged], first + 1
        )
        groups = [
            PlacedGroup(payload, self._position(at)) for at, (payload, _) in entries if payload
        ]
        return PlacedBatch(start, batch.end, groups)

    def locate(self, place: Position) -> Located:
        if place.file_no or place.offset < self._history.purged:
            raise PositionPurged("the groups there were purged")
        border = place <= self.durable_end
        batch = self.read_placed(place)
        group = batch.large or next(iter(batch.groups), None)
        if group is None:
            return Located(border, None, place, place)
        begin = group.end._replace(offset=group.end.offset - 1)
        return Located(border, group, begin, group.end)

    def state_at(self, place: Position) -> BinlogState:
        state = self._first_state.copy()
        groups = self._groups[: place.offset - self._history.purged]
        state.overlay(gtid for _, gtid in groups if gtid is not None)
        return state

    def is_recent(self, start: Position) -> bool:
        return True

    def stop_waiting(self) -> None:
        """See `BinlogEngine`. Nobody ever waits."""

    def close(self) -> None:
        if not self._failed:
            self.sync()


class MemoryGroup:
    """See `GroupWriter`. Its pieces stay in memory; all of them go to the engine at the end."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._transactional: list[bytes] = []
        self._statement: list[bytes] = []
        self._hold: Pin | None = None
        self._closed = False

    @property
    def spilled(self) -> bool:
        return bool(self._transactional or self._statement)

    def spill(self, data: bytes | bytearray | memoryview, *, statement: bool = False) -> None:
        self._require_open()
        self._engine.refuse_after_failure()
        if data:
            self._hold = self._hold or self._engine.references.hold(
                Reason.ACTIVE_TRANSACTION, "", 0
            )
            (self._statement if statement else self._transactional).append(bytes(data))

    def mark(self) -> GroupMark:
        return GroupMark(list(self._transactional))

    def rewind(self, mark: GroupMark) -> None:
        assert isinstance(mark.transactional, list)
        self._transactional = list(mark.transactional)

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """See `GroupWriter`."""

    def turn(self) -> None:
        """See `GroupWriter`."""

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        self._require_open()
        payload = b"".join((gtid_event, *self._statement, *self._transactional))
        end = self._engine.append(payload, gtid, age)
        self.rollback()
        return end

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        self._require_open()
        if self._statement:
            raise ValueError("an XA transaction has no statement list: spill into one list only")
        end = self._engine.note_prepared(xid, b"".join(self._transactional))
        self.rollback()
        return end

    def give_up(self) -> None:
        """See `GroupWriter`. Nobody ever waits."""

    def rollback(self) -> None:
        """See `GroupWriter`. A second call does nothing."""
        self._closed = True
        if self._hold is not None:
            self._hold.release()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed, prepared or rolled back")


def _require_known(file_no: int | None) -> None:
    if file_no:
        raise UnknownBinlog(f"Target log not found in binlog index: {file_no}")


def _large(payload: bytes, end: Position) -> LargeGroup:
    starts = range(0, len(payload), PIECE_BYTES)
    return LargeGroup(
        payload[:PIECE_BYTES], end, lambda: (payload[at : at + PIECE_BYTES] for at in starts)
    )


_ENGINE: type[BinlogEngine] = MemoryEngine  # mypy checks the interface here, before a caller does
