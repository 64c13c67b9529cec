"""A binlog that goes on in another store while it is in use: one engine for all who hold one, and its facts.

Everybody holds a `SwitchingEngine`, which gives each call to the engine of now. A change of the store is

    1  `pause`     nothing is appended or changed any more: who may wait does, others are told that there is no room
    2  ...         the rest is brought into the other store; all of it durable there
    3  `go_on_in`  the other engine takes each call from here on, with an age of its own: what was remembered of places
                   means nothing any more, as behind RESET MASTER
    4  `resume`    who has waited goes on, and readers are woken. Without step 3 all is as it was

The first and the last are for the thread that must not wait, `never_wait_in`, in which groups are appended: so none of
its calls is at work then. Those of other threads are counted, and `pause` says no while there is one, or a group that
has something in the files of the old store.

`block_commits` is another, weaker pause: there is no room for groups, and facts and files go on. It is counted: each is
ended by its own `unblock_commits`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from binlog_protocol.gtid import Gtid

from binlog_storage.disk.state import StoreFacts
from binlog_storage.engine import (
    BinlogEngine,
    GroupBatch,
    GroupMark,
    GroupWriter,
    Pin,
    Position,
    Stalled,
)
from binlog_storage.errors import BinlogBegunAnew, StorageError, WaitGivenUp
from binlog_storage.ibb.xa import Xid

_PAUSED: Final = "the binlog is about to go on in another store"
_ON_THE_LOOP: Final = ("append", "append_run", "append_change")
_OF_ALL: Final = ("is_recent", "read")
_BLOCKED: Final = "commits wait for the session that has said BACKUP STAGE BLOCK_COMMIT"
_LOOK_S: Final = 0.1
_ELSEWHERE: Final = frozenset(
    {
        "begin_two_phase",
        "commit_prepared",
        "finish_two_phase",
        "flush",
        "make_row_keeper",
        "purge_before",
        "purge_to",
        "reset",
        "rollback_prepared",
        "set_option",
    }
)
"""Calls that change something, from any thread."""


class SwitchingEngine:
    """See `BinlogEngine`: that of `now`. It says that it is of its class, as a weak reference's proxy does."""

    append: Any
    append_run: Any
    append_change: Any
    # The same of now, in a pause, too.
    is_recent: Callable[[Position], bool]
    read: Callable[[Position], GroupBatch]

    def __init__(self, engine: BinlogEngine) -> None:
        self.now = engine
        self._condition = threading.Condition()
        self._paused = False
        self._blocks = 0
        self._is_free = True  # neither of them: the hot path asks for it, and each look costs here
        self._blocked_at = 0.0
        self._at_work = 0
        self._thread: int | None = None
        self._wakes: dict[object, tuple[Callable[[], None], Callable[[], None]]] = {}
        self._when_failed: list[Callable[[StorageError], None]] = []
        self._bind()
        self._bind_of_all()

    def _bind_of_all(self) -> None:
        for name in _OF_ALL:
            if (call := getattr(self.now, name, None)) is not None:
                setattr(self, name, call)

    def _bind(self) -> None:
        """The hot calls are the engine's own."""
        for name in _ON_THE_LOOP:
            if (call := getattr(self.now, name, None)) is not None:
                setattr(self, name, call)
        if self._blocks:  # those two look for room after they were called
            self.append_run = lambda run, index=0, age=None: index
            self.append_change = lambda *_, **__: False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.now)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.now, name)
        if name not in _ELSEWHERE:
            return value

        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.at_work() as engine:
                return getattr(engine, name)(*args, **kwargs)

        return counted

    # --- the change ---

    def pause(self) -> bool:
        """Step 1. False, and nothing is paused, while somebody is at work; to be tried again."""
        with self._condition:
            tables = getattr(self.now, "tables", None)
            if self._at_work or (tables is not None and not tables.pause()):
                return False
            self._paused = True
            self._is_free = False
        for name in _ON_THE_LOOP:
            setattr(self, name, self._refuse)
        return True

    def go_on_in(self, engine: BinlogEngine) -> None:
        """Step 3: of an engine that nobody else uses."""
        engine.begin_age(self.now.age + 2)
        if self._thread is not None:
            engine.never_wait_in(self._thread)
        self.now = engine
        self._bind_of_all()
        for failed in self._when_failed:
            engine.when_failed(self._while_now(engine, failed))
        for key, (wake, stop) in list(self._wakes.items()):
            stop()
            self._wakes[key] = wake, engine.subscribe(wake)

    def resume(self) -> None:
        """Step 4."""
        if (tables := getattr(self.now, "tables", None)) is not None:
            tables.pause(paused=False)
        self._bind()
        with self._condition:
            self._paused = False
            self._is_free = not self._blocks
            self._condition.notify_all()
        for wake, _ in list(self._wakes.values()):
            wake()

    # --- commits wait, and nothing else ---

    def block_commits(self) -> None:
        """No room for commits until `unblock_commits`. On the loop: a group that has found room is in the log."""
        self._blocks += 1
        self._is_free = False
        if self._blocks == 1:
            self._blocked_at = time.monotonic()
        if not self._paused:
            self._bind()

    def wait_for_commits(self, given_up: Callable[[], bool]) -> bool:
        """Wait, in a thread, for those that were under way when commits were blocked. False if it was given up."""
        while not self.now.wait_for_room(_LOOK_S):
            if given_up():
                return False
        return True

    def unblock_commits(self) -> None:
        """End one `block_commits`. On the loop."""
        with self._condition:
            self._blocks -= 1
            self._is_free = not (self._blocks or self._paused)
            self._condition.notify_all()
        if not self._paused:
            self._bind()

    def stalled(self) -> list[Stalled]:
        """See `OpenBinlog`."""
        found = self.now.stalled()
        if self._blocks:
            found.append(Stalled("backup", time.monotonic() - self._blocked_at, _BLOCKED))
        return found

    @contextlib.contextmanager
    def at_work(self) -> Iterator[BinlogEngine]:
        """The engine of now, which stays so within. Waits for the end of a pause; `WaitGivenUp` for who must not."""
        with self._condition:
            self._wait()
            self._at_work += 1
            engine = self.now
        try:
            yield engine
        finally:
            with self._condition:
                self._at_work -= 1

    def _wait(self, timeout: float | None = None) -> bool:
        """Under the condition: until nothing is paused."""
        if self._paused and threading.get_ident() == self._thread:
            raise WaitGivenUp(_PAUSED)
        return self._condition.wait_for(lambda: not self._paused, timeout)

    def _refuse(self, *_: object, **__: object) -> Any:
        with self._condition:
            self._wait()
        raise WaitGivenUp(_PAUSED)  # it was asked for what the old engine would have done

    # --- of the engine; each commit and each group at the tail asks for these: `__getattr__` costs a microsecond ---

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        """See `EngineWriter`."""
        self.now.sync(durable)

    def write_log(self) -> None:
        """See `EngineWriter`."""
        self.now.write_log()

    @property
    def durable_end(self) -> Position:
        """See `OpenBinlog`."""
        return self.now.durable_end

    @property
    def written_end(self) -> Position:
        """See `OpenBinlog`."""
        return self.now.written_end

    @property
    def tables(self) -> Any:
        """See `TableEngine`."""
        return self.now.tables  # type: ignore[attr-defined]

    @property
    def next_sync(self) -> Any:
        """See `TableEngine`."""
        return self.now.next_sync  # type: ignore[attr-defined]

    @property
    def age(self) -> int:
        """See `OpenBinlog`."""
        return self.now.age

    @property
    def spills_to_files(self) -> bool:
        """See `EngineWriter`."""
        return self.now.spills_to_files

    @property
    def has_room(self) -> bool:
        """See `EngineWriter`."""
        return self._is_free and self.now.has_room

    @property
    def has_room_to_spill(self) -> bool:
        """See `EngineWriter`."""
        return self._is_free and self.now.has_room_to_spill

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        """See `EngineWriter`."""
        began = time.monotonic()
        with self._condition:
            if not self._condition.wait_for(lambda: self._is_free, timeout):
                return False
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        return self.now.wait_for_room(left, to_spill=to_spill)

    def begin(self, *, bulk: bool = False) -> GroupWriter:
        """See `EngineWriter`."""
        return SwitchingGroup(self, bulk=bulk)

    def hold(self, name: str, start: Position | None = None, **options: Any) -> Pin:
        """See `EngineReader`. Dumps begin behind a pause; leases are taken along in one."""
        if self._paused and not options.get("wait", True):
            raise BinlogBegunAnew(_PAUSED)
        return self.now.hold(name, start, **options)

    def never_wait_in(self, thread: int) -> None:
        """See `EngineWriter`."""
        self._thread = thread
        self.now.never_wait_in(thread)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `OpenBinlog`."""
        key = object()
        self._wakes[key] = wake, self.now.subscribe(wake)

        def stop() -> None:
            if (found := self._wakes.pop(key, None)) is not None:
                found[1]()

        return stop

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        """See `OpenBinlog`."""
        self._when_failed.append(failed)
        self.now.when_failed(self._while_now(self.now, failed))

    def _while_now(
        self, engine: BinlogEngine, failed: Callable[[StorageError], None]
    ) -> Callable[[StorageError], None]:
        def tell(error: StorageError) -> None:
            if self.now is engine:
                failed(error)

        return tell


class SwitchingGroup:
    """See `GroupWriter`. It is begun in the engine of now by its first piece, and no change comes before its end."""

    def __init__(self, engine: SwitchingEngine, *, bulk: bool) -> None:
        self._engine = engine
        self._bulk = bulk
        self._held = contextlib.ExitStack()
        self._group: GroupWriter | None = None
        self._given_up = False

    def _begun(self) -> GroupWriter:
        if self._group is None:
            engine = self._held.enter_context(self._engine.at_work())
            self._group = engine.begin(bulk=self._bulk)
            if self._given_up:
                self._group.give_up()
        return self._group

    @property
    def spilled(self) -> bool:
        """See `GroupWriter`."""
        return self._group is not None and self._group.spilled

    def spill(self, data: bytes | bytearray | memoryview, *, statement: bool = False) -> None:
        """See `GroupWriter`."""
        if len(data) or self._group is not None:
            self._begun().spill(data, statement=statement)

    def mark(self) -> GroupMark:
        """See `GroupWriter`."""
        return self._begun().mark()

    def rewind(self, mark: GroupMark) -> None:
        """See `GroupWriter`."""
        self._begun().rewind(mark)

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """See `GroupWriter`."""
        if self._group is not None:
            self._group.settle(given_up)

    def turn(self) -> contextlib.AbstractContextManager[None] | None:
        """See `GroupWriter`."""
        return None if self._group is None else self._group.turn()

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        """See `GroupWriter`."""
        end = self._begun().commit(gtid_event, gtid, age)
        self._held.close()
        return end

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        """See `GroupWriter`."""
        end = self._begun().prepare(xid, engines)
        self._held.close()
        return end

    def give_up(self) -> None:
        """See `GroupWriter`."""
        self._given_up = True
        if self._group is not None:
            self._group.give_up()

    def rollback(self) -> None:
        """See `GroupWriter`."""
        try:
            if self._group is not None:
                self._group.rollback()
        finally:
            self._held.close()


class SwitchingFacts:
    """See `StoreFacts`: those of the store of now."""

    def __init__(self, facts: StoreFacts) -> None:
        self.now = facts
        self.lock = threading.Lock()
        """Held while they are taken into another store, which `now` is then."""

    @property
    def binlog_age(self) -> int:
        """See `StoreFacts`."""
        return self.now.binlog_age

    def get(self, key: str, default: Any = None) -> Any:
        """See `StoreFacts`."""
        return self.now.get(key, default)

    def items(self, prefix: str) -> list[tuple[str, Any]]:
        """See `StoreFacts`."""
        return self.now.items(prefix)

    def set(self, key: str, value: Any) -> None:
        """See `StoreFacts`."""
        self.update({key: value})

    def update(self, changes: Mapping[str, Any]) -> None:
        """See `StoreFacts`."""
        with self.lock:
            self.now.update(changes)
