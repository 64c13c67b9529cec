"""One thread for many, who take turns: who asks for much waits longer, and nobody else does.

Those who wait are told apart by name, an account's for instance. Of each name one call is done, then one of the next:
a call waits for as many others as there are names, however many sessions one of them has.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class FairThread:
    """A thread for calls, fair to those who ask; for one event loop, which must run. `name`: the thread's."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting: OrderedDict[str, deque[_Asked]] = OrderedDict()  # whose turn is next first
        self._is_busy = False
        self._is_closed = False

    def call(self, who: str, call: Callable[[], T]) -> asyncio.Future[T]:
        """The result of `call`, or what it raises; cancelled before its turn it is not called."""
        if self._is_closed:
            raise RuntimeError("the thread has ended")
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.setdefault(who, deque()).append((call, future))
        if not self._is_busy:
            self._next()
        return future

    def close(self, *, wait: bool) -> None:
        """No more calls; those whose turn has not come are cancelled. `wait`: for the one that runs."""
        self._is_closed = True
        for asked in self._waiting.values():
            for _, future in asked:
                future.cancel()
        self._waiting.clear()
        self._thread.shutdown(wait=wait, cancel_futures=True)

    def _next(self) -> None:
        while self._waiting:
            who, asked = self._waiting.popitem(last=False)
            call, future = asked.popleft()
            if asked:
                self._waiting[who] = asked  # behind the others
            if not future.done():
                self._is_busy = True
                running = self._loop.run_in_executor(self._thread, call)
                running.add_done_callback(lambda done, future=future: self._done(done, future))  # type: ignore[misc]
                return

    def _done(self, running: asyncio.Future[Any], future: asyncio.Future[Any]) -> None:
        self._is_busy = False
        error = None if running.cancelled() else running.exception()
        if future.done():
            pass  # who has asked has gone
        elif running.cancelled():
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(running.result())
        self._next()


_Asked = tuple[Callable[[], Any], asyncio.Future[Any]]
