"""Calls that may never return: who waits may go, and the threads of others stay free."""

from __future__ import annotations

import asyncio
import threading

import pytest

from binlog_server.loop import apart as module
from binlog_server.loop.apart import apart
from tests.binlog_server.lab import until, within


class Hanging:
    """Until `answer`."""

    def __init__(self) -> None:
        self.calls = 0
        self._event = threading.Event()

    def __call__(self) -> int:
        self.calls += 1
        self._event.wait()
        return self.calls

    def answer(self) -> None:
        self._event.set()


async def test_results_and_errors() -> None:
    assert await apart("two", lambda: 2) == 2
    with pytest.raises(ZeroDivisionError):
        await apart("division", lambda: 1 // 0)
    assert not module._under_way


async def test_who_waits_may_go_and_come_back() -> None:
    hanging = Hanging()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await apart("it", hanging)
    waiting = [asyncio.ensure_future(apart("it", hanging)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    hanging.answer()
    results = await within(asyncio.gather(*waiting, return_exceptions=True))
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [1, 1]
    assert hanging.calls == 1, "one thread for one thing"
    await until(lambda: not module._under_way)


async def test_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(OSError, match="can't start new thread: raise the limit of processes"):
        await apart("it", lambda: 1)
    monkeypatch.undo()
    assert await apart("it", lambda: 2) == 2


async def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALLS_MAX", 2)
    hanging = Hanging()
    waiting = [asyncio.ensure_future(apart(number, hanging)) for number in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="2 names and files have been asked for that do not answer"):
        await apart("more", hanging)
    hanging.answer()
    await within(asyncio.gather(*waiting))
    assert await apart("more", hanging) == 3


async def test_others_have_their_threads() -> None:
    hanging = Hanging()
    waiting = [asyncio.ensure_future(apart(number, hanging)) for number in range(40)]
    await asyncio.sleep(0)
    assert await within(asyncio.to_thread(lambda: 1)) == 1
    hanging.answer()
    await within(asyncio.gather(*waiting))
