"""Locks of rows and tables: who holds them, who waits, in which order; who waits in a circle.

A resource is (table, key); the key None is the table itself. A row whose newest version belongs to an unfinished
transaction is locked by it, exclusively, without an entry here: the entry is made when somebody else meets it.

Nothing here blocks: the latch of the tables is held around every call but `LockRequest.wait` and what only looks.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from enum import IntEnum

from binlog_storage.errors import Deadlock, LockWaitTimeout, StorageError
from binlog_storage.tables.rows import Resource, Trx

log = logging.getLogger(__name__)


class Mode(IntEnum):
    """Of a lock. Shared ones go together."""

    SHARED = 1
    EXCLUSIVE = 2


class LockRequest:
    """One who waits for a lock."""

    __slots__ = ("_calls", "_done", "failure", "granted", "mode", "resource", "trx")

    def __init__(self, trx: Trx, resource: Resource, mode: Mode) -> None:
        self.trx = trx
        self.resource = resource
        self.mode = mode
        self.granted = False
        self.failure: StorageError | None = None
        self._done = threading.Event()
        self._calls: list[Callable[[], object]] = []

    @property
    def is_over(self) -> bool:
        """Whether the lock is there, or will not come."""
        return self.granted or self.failure is not None

    def end(self, failure: StorageError | None = None) -> None:
        """The wait is over: the lock is there, or it fails."""
        self.granted, self.failure = failure is None, failure
        self.trx.waiting = None
        self._done.set()
        for call in self._calls:
            try:
                call()
            except (
                Exception
            ):  # a loop that is closed: whoever ends the wait has to go on with its own work
                log.warning("who waited for a lock could not be told of it", exc_info=True)

    def when_over(self, call: Callable[[], object]) -> None:
        """Call it when the wait is over, or at once if it is. Its errors are logged."""
        if self.is_over:
            call()
        else:
            self._calls.append(call)

    def wait(self, timeout: float) -> bool:
        """Wait, without any lock held. False if it took too long."""
        return self._done.wait(timeout)


class _Lock:
    __slots__ = ("holders", "queue")

    def __init__(self) -> None:
        self.holders: dict[Trx, Mode] = {}
        self.queue: deque[LockRequest] = deque()

    def blockers(self, trx: Trx, mode: Mode, ahead: LockRequest | None = None) -> list[Trx]:
        """For whom a transaction would have to wait. Who holds the lock already passes those who wait.

        Args:
            ahead: its request, if it waits already.
        """
        found = [
            holder
            for holder, held in self.holders.items()
            if holder not in (trx, trx.patron) and Mode.EXCLUSIVE in (held, mode)
        ]
        if trx not in self.holders and trx.patron not in self.holders:
            for request in self.queue:
                if request is ahead:
                    break
                if request.trx is not trx and Mode.EXCLUSIVE in (request.mode, mode):
                    found.append(request.trx)
        return found


class LockTable:
    """All locks.

    Args:
        owner: the transaction that holds a row without an entry here, if one does.
    """

    def __init__(self, owner: Callable[[Resource], Trx | None]) -> None:
        self._owner = owner
        self._locks: dict[Resource, _Lock] = {}
        self._closed: Callable[[], StorageError] | None = None
        self.waits = 0
        self._over = 0  # of these
        self.deadlocks = 0
        self.timeouts = 0

    def has_others(self, transactions: Collection[Trx]) -> bool:
        """Whether there is a lock that none of these transactions has."""
        return any(trx not in transactions for lock in self._locks.values() for trx in lock.holders)

    def __len__(self) -> int:
        return len(self._locks)

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return self.waits - self._over

    def take(
        self, trx: Trx, resource: Resource, mode: Mode, *, implicit: bool = False
    ) -> LockRequest | None:
        """Take a lock at once, or stand in the queue. Returns the request to wait for, or None if the lock is there.

        The wait is over at once, with `Deadlock`, if this transaction is the one to give way.

        Args:
            implicit: the row is about to be changed, which locks it without an entry.
        """
        lock = self._locks.get(resource)
        if lock is None:
            owner = self._owner(resource)
            if implicit and owner in (trx, None):
                return None
            lock = self._locks[resource] = _Lock()
            if owner is not None:
                self._give(lock, owner, resource, Mode.EXCLUSIVE)
        if lock.holders.get(trx, 0) >= mode:
            return None
        if not lock.blockers(trx, mode):
            self._give(lock, trx, resource, mode)
            return None
        request = LockRequest(trx, resource, mode)
        if trx in lock.holders:
            lock.queue.appendleft(request)  # nobody behind it can get the lock before it anyway
        else:
            lock.queue.append(request)
        trx.waiting = request
        self.waits += 1
        if self._closed is not None:
            self.give_up(request, self._closed())
        self._break_circles(request)
        return request

    def is_free(self, table: int, key: bytes) -> bool:
        """Whether no entry keeps a new transaction from changing a row at once, nor from passing who waits for it."""
        if not self._locks:
            return True
        lock = self._locks.get((table, None))
        return (table, key) not in self._locks and (
            lock is None or not (lock.queue or Mode.EXCLUSIVE in lock.holders.values())
        )

    def may_have(self, trx: Trx, resource: Resource, mode: Mode) -> bool:
        """Whether `take` would give the lock at once."""
        lock = self._locks.get(resource)
        if lock is None:
            owner = self._owner(resource)
            return owner is None or owner is trx
        return lock.holders.get(trx, 0) >= mode or not lock.blockers(trx, mode)

    @staticmethod
    def _give(lock: _Lock, trx: Trx, resource: Resource, mode: Mode) -> None:
        lock.holders[trx] = max(mode, lock.holders.get(trx, mode))
        trx.locks.add(resource)

    def release(self, trx: Trx, resource: Resource) -> None:
        """Give back one lock, if there is an entry."""
        lock = self._locks.get(resource)
        if lock is not None and lock.holders.pop(trx, None) is not None:
            trx.locks.discard(resource)
            self._grant(resource, lock)

    def release_all(self, trx: Trx) -> None:
        """Give back all locks."""
        resources, trx.locks = trx.locks, set()
        for resource in resources:
            lock = self._locks[resource]
            lock.holders.pop(trx, None)
            self._grant(resource, lock)

    def holds(self, trx: Trx, resource: Resource, mode: Mode) -> bool:
        """Whether it has the lock with an entry."""
        lock = self._locks.get(resource)
        return lock is not None and lock.holders.get(trx, 0) >= mode

    def _grant(self, resource: Resource, lock: _Lock) -> None:
        while lock.queue:
            request = lock.queue[0]
            if lock.blockers(request.trx, request.mode, request):
                break
            lock.queue.popleft()
            self._give(lock, request.trx, resource, request.mode)
            self._over += 1
            request.end()
        if not lock.holders and not lock.queue:
            del self._locks[resource]

    def give_up(self, request: LockRequest, failure: StorageError) -> None:
        """End a wait without the lock; nothing if it is over already."""
        lock = self._locks.get(request.resource)
        if lock is None or request not in lock.queue:
            return
        lock.queue.remove(request)
        self._over += 1
        request.end(failure)
        self._grant(request.resource, lock)

    def timed_out(self, request: LockRequest) -> None:
        """The wait took too long, unless it is over just now."""
        if not request.is_over:
            self.timeouts += 1
            self.give_up(request, LockWaitTimeout())

    def close(self, failure: Callable[[], StorageError]) -> None:
        """End all waits, and from now on each at once."""
        self._closed = failure
        for lock in list(self._locks.values()):
            for request in list(lock.queue):
                self.give_up(request, failure())

    # --- circles ---

    def _break_circles(self, request: LockRequest) -> None:
        """If the new request closes a circle, end the wait in it whose transaction is the cheapest to roll back."""
        while (circle := self._circle(request)) is not None:
            victim = min(circle, key=lambda trx: (trx.count, trx is not request.trx))
            self.deadlocks += 1
            waiting = victim.waiting
            assert isinstance(waiting, LockRequest)
            self.give_up(waiting, Deadlock())

    def _circle(self, request: LockRequest) -> list[Trx] | None:
        """The transactions of a circle through this one, by who waits for whom."""
        start = request.trx
        came_from: dict[Trx, Trx] = {}
        todo = [start]
        while todo:
            trx = todo.pop()
            waiting = trx.waiting
            if not isinstance(waiting, LockRequest):
                continue
            for blocker in self._locks[waiting.resource].blockers(trx, waiting.mode, waiting):
                if blocker is start:
                    circle = [trx]
                    while circle[-1] is not start:
                        circle.append(came_from[circle[-1]])
                    return circle
                if blocker not in came_from:
                    came_from[blocker] = trx
                    todo.append(blocker)
        return None
