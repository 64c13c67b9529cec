"""Few threads for many, who take turns: who asks for much waits longer, and nobody else does.

Those who wait are told apart by name, an account's for instance. Of each name one call is done, then one of the next:
a call waits for as many others as there are names, however many sessions one of them has. Names that have taken much
processor time of late come behind the others: a short call waits for one long one, not for one of each. Of several
threads the last that is free is for a name that has none: one name alone never takes all.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from binlog_server.loop.few_threads import FewThreads

T = TypeVar("T")

STEP_S: Final = 0.1
"""Names whose processor times differ by less take turns."""
_HALVED_S: Final = 10.0  # what a name has taken counts half after so many seconds


class FairThread:
    """A thread for calls, or some, fair to those who ask; for one event loop, which must run.

    Args:
        name: the thread's.
        threads: how many.
        processor_time: of the thread that it is called in, in seconds.
        clock: seconds of a clock that is never set.
    """

    def __init__(
        self,
        name: str,
        processor_time: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
        *,
        threads: int = 1,
    ) -> None:
        self._processor_time = processor_time
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._count = threads
        self._threads = FewThreads(threads, name)
        self._waiting: OrderedDict[str, deque[_Asked]] = OrderedDict()  # whose turn is next first
        self._used: dict[str, float] = {}  # seconds of processor time, by name, of late
        self._halved = clock()
        self._running: Counter[str] = Counter()  # calls that run, by name
        self._is_closed = False

    def call(self, who: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """The result of `call`, or what it raises; cancelled before its turn it is not called."""
        if self._is_closed:
            raise RuntimeError("the thread has ended")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.setdefault(who, deque()).append((call, future))
        self._next()
        return future

    def close(self, *, wait: bool) -> None:
        """No more calls; those whose turn has not come are cancelled. `wait`: for the one that runs."""
        self._is_closed = True
        for asked in self._waiting.values():
            for _, future in asked:
                future.cancel()
        self._waiting.clear()
        self._threads.shutdown(wait=wait, cancel_futures=True)

    def _next(self) -> None:
        """Begin what may begin."""
        self._halve()
        while (who := self._whose_turn()) is not None:
            asked = self._waiting.pop(who)
            call, future = asked.popleft()
            if asked:
                self._waiting[who] = asked  # behind the others
            if not future.done():
                self._running[who] += 1
                running = self._loop.run_in_executor(self._threads, self._timed, call)
                running.add_done_callback(partial(self._done, who, future))

    def _whose_turn(self) -> str | None:
        free = self._count - self._running.total()
        if free == 0:
            return None
        is_last = free == 1 < self._count
        may = [who for who in self._waiting if not (is_last and self._running[who])]
        return min(may, key=lambda who: int(self._used.get(who, 0.0) / STEP_S), default=None)

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None, float]:
        began = self._processor_time()
        try:
            return call(), None, self._processor_time() - began
        except BaseException as error:  # noqa: BLE001 - it is raised to who has asked
            return None, error, self._processor_time() - began

    def _halve(self) -> None:
        now = self._clock()
        if now - self._halved > _HALVED_S:
            self._halved = now
            self._used = {who: s / 2 for who, s in self._used.items() if s > STEP_S}

    def _done(self, who: str, future: asyncio.Future[Any], running: asyncio.Future[Any]) -> None:
        self._running -= Counter((who,))  # leaves no zeros
        if not running.cancelled():
            result, error, spent = running.result()
            self._used[who] = self._used.get(who, 0.0) + spent
        if future.done():
            pass  # who has asked has gone
        elif running.cancelled():
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
        self._next()


_Asked = tuple[Callable[[], Any], asyncio.Future[Any]]
