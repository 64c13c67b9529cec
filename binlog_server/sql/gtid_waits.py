"""Waiters for a GTID (MASTER_GTID_WAIT): a commit wakes those whose GTID it has reached, and no other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from math import inf
from typing import Final

from binlog_protocol.gtid import Gtid
from binlog_storage.engine import OpenBinlog

# Up to so many domains are asked for one by one; with more, the whole state is read once.
_FEW_DOMAINS: Final = 8
# The sequence number waited for, a number that makes the tuple unique, and the future to wake.
_Waiter = tuple[int, int, asyncio.Future[None]]


class GtidWaits:
    """All waiters of one event loop. To be made while the loop runs, and used on it."""

    def __init__(self, engine: OpenBinlog) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, list[_Waiter]] = {}  # by domain; sorted
        self._numbers = itertools.count()
        self._looks = False  # whether a call of `_look` is scheduled
        self._stop: Callable[[], None] | None = None

    async def come(self, wanted: Gtid) -> None:
        """Wait until the store has this GTID or a later one of its domain. The group may not be durable yet."""
        woken: asyncio.Future[None] = self._loop.create_future()
        waiter = (wanted.seq_no, next(self._numbers), woken)
        insort(self._waiting.setdefault(wanted.domain_id, []), waiter)
        if self._stop is None:
            self._stop = self._engine.subscribe(self._moved)
        try:
            # The group may have been appended before the subscription.
            self._wake(wanted.domain_id, self._engine.binlog_state(wanted.domain_id).last)
            await woken
        finally:
            self._leave(wanted.domain_id, waiter)

    def _moved(self) -> None:
        """The store has appended; called by any thread."""
        if not self._looks:
            self._looks = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._looks = False  # first, so that an append from now on schedules another look
        if len(self._waiting) <= _FEW_DOMAINS:
            for domain_id in list(self._waiting):
                self._wake(domain_id, self._engine.binlog_state(domain_id).last)
            return
        state = self._engine.binlog_state()
        for domain_id in state.domains():
            if domain_id in self._waiting:
                self._wake(domain_id, state.last)

    def _wake(self, domain_id: int, last_of: Callable[[int], Gtid | None]) -> None:
        last = last_of(domain_id)
        if last is None:
            return
        waiting = self._waiting[domain_id]
        count = bisect_right(waiting, (last.seq_no, inf))
        for _, _, woken in waiting[:count]:
            if not woken.done():
                woken.set_result(None)
        self._remove(domain_id, 0, count)

    def _leave(self, domain_id: int, waiter: _Waiter) -> None:
        waiting = self._waiting.get(domain_id, [])
        at = bisect_left(waiting, waiter)
        if waiting[at : at + 1] == [waiter]:
            self._remove(domain_id, at, at + 1)
        if not self._waiting and self._stop is not None:
            self._stop()
            self._stop = None

    def _remove(self, domain_id: int, begin: int, end: int) -> None:
        waiting = self._waiting[domain_id]
        del waiting[begin:end]
        if not waiting:
            del self._waiting[domain_id]
