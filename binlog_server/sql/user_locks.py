"""The locks of GET_LOCK: names that one session at a time may have, for programs that agree on them. Of one server."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import field
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import LockDeadlock, NotSupportedYet, QueryInterrupted

LOCKS_MAX: Final = 1000
"""Names that one session may have at a time."""


@dataclass(slots=True)
class _Lock:
    """One that somebody has: who, how often, and those who wait for it in their order."""

    owner: int
    times: int = 1
    waiting: deque[tuple[int, asyncio.Future[bool]]] = field(default_factory=deque)


class UserLocks:
    """All locks of a server, by name. Sessions are told apart by the numbers of their connections.

    Any thread may take and release; only the loop waits.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, _Lock] = {}
        self._names: dict[int, set[str]] = {}  # that a session has
        self._waits: dict[int, str] = {}  # what a session waits for

    def take(self, who: int, name: str) -> bool:
        """Whether the session has the lock now. Raises `NotSupportedYet` (1235) for too many."""
        with self._mutex:
            lock = self._locks.get(name)
            if lock is None:
                self._give(who, name)
            elif lock.owner == who:
                lock.times += 1
            else:
                return False
            return True

    def release(self, who: int, name: str) -> int | None:
        """Give a lock back once: 1, or 0 if it is another's, None if nobody has it."""
        with self._mutex:
            lock = self._locks.get(name)
            if lock is None:
                return None
            if lock.owner != who:
                return 0
            lock.times -= 1
            if not lock.times:
                self._pass_on(name)
            return 1

    def release_all(self, who: int) -> int:
        """Give back all locks of a session: how often they had been taken."""
        with self._mutex:
            times = 0
            for name in list(self._names.get(who, ())):
                times += self._locks[name].times
                self._pass_on(name)
            return times

    def owner(self, name: str) -> int | None:
        """Who has a lock."""
        with self._mutex:
            lock = self._locks.get(name)
            return None if lock is None else lock.owner

    def interrupt(self, who: int) -> bool:
        """KILL QUERY of a session: it waits no longer. Whether it has waited. On the loop."""
        with self._mutex:
            lock = self._locks.get(self._waits.get(who, ""))
            future = None if lock is None else dict(lock.waiting).get(who)
            if future is None or future.done():
                return False
            future.set_result(False)
            return True

    async def wait(self, who: int, name: str, seconds: float | None) -> bool | None:
        """Wait for a lock in turn: whether the session has it; None behind `interrupt`. On the loop.

        Raises `LockDeadlock` (1213) if its owner waits for this session, over however many others.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        with self._mutex:
            lock = self._locks.get(name)
            if lock is None:
                self._give(who, name)
                return True
            self._require_no_circle(who, lock)
            lock.waiting.append((who, future))
            self._waits[who] = name
        try:
            async with asyncio.timeout(None if seconds is None else min(seconds, _SECONDS_MAX)):
                if await future:
                    return True
            return self._leave(who, name, future) or None
        except TimeoutError:
            return self._leave(who, name, future)
        except asyncio.CancelledError:
            if self._leave(who, name, future):
                self.release(who, name)
            raise

    def _give(self, who: int, name: str) -> None:
        names = self._names.setdefault(who, set())
        if len(names) >= LOCKS_MAX:
            raise NotSupportedYet(f"more than {LOCKS_MAX} locks of one session")
        self._locks[name] = _Lock(who)
        names.add(name)

    def _pass_on(self, name: str) -> None:
        """Its owner has it no longer: the first who waits gets it."""
        lock = self._locks[name]
        names = self._names[lock.owner]
        names.discard(name)
        if not names:
            del self._names[lock.owner]
        if not lock.waiting:
            del self._locks[name]
            return
        lock.owner, future = lock.waiting.popleft()
        lock.times = 1
        self._names.setdefault(lock.owner, set()).add(name)
        self._waits.pop(lock.owner, None)
        future.get_loop().call_soon_threadsafe(_end, future)

    def _leave(self, who: int, name: str, future: asyncio.Future[bool]) -> bool:
        """Wait no longer: whether the session has got the lock at the last moment."""
        with self._mutex:
            lock = self._locks.get(name)
            if lock is None or (who, future) not in lock.waiting:
                return True
            lock.waiting.remove((who, future))
            self._waits.pop(who, None)
            return False

    def _require_no_circle(self, who: int, lock: _Lock) -> None:
        owner = lock.owner
        while (waited := self._waits.get(owner)) is not None:
            owner = self._locks[waited].owner
            if owner == who:
                raise LockDeadlock()


_SECONDS_MAX: Final = 1e9


def _end(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


@dataclass(slots=True)
class SessionLocks:
    """The locks as one session sees them: see `queries.terms.Locks`. Behind `close` it gets none."""

    all_locks: UserLocks
    number: int
    is_closed: bool = False

    def take(self, name: str) -> bool:
        """Raises `QueryInterrupted` (1317) when the session has gone."""
        taken = self.all_locks.take(self.number, name)
        if self.is_closed:  # looked at behind `take`, as this thread does not wait for the loop
            if taken:
                self.all_locks.release(self.number, name)
            raise QueryInterrupted()
        return taken

    def release(self, name: str) -> int | None:
        return self.all_locks.release(self.number, name)

    def release_all(self) -> int:
        return self.all_locks.release_all(self.number)

    def owner(self, name: str) -> int | None:
        return self.all_locks.owner(name)

    def close(self) -> None:
        """The session ends: its locks are free."""
        self.is_closed = True
        self.release_all()
