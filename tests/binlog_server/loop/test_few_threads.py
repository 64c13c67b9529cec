"""Pools where the system gives no more threads."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest
from binlog_protocol.errors import CannotCreateThread

from binlog_server.loop.defects import internal_error
from binlog_server.loop.fair_thread import FairThread
from binlog_server.loop.few_threads import FewThreads
from tests.binlog_server.lab import until

REFUSED = "can't start new thread"


@pytest.fixture
def no_more(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the system gives threads: it does until the list is empty."""
    given, start = [True], threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if not given:
            raise RuntimeError(REFUSED)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    return given


def test_one_thread_does_all(no_more: list[bool]) -> None:
    with FewThreads(4, "few") as threads:
        no_more.clear()
        assert [threads.submit(str, n).result(10) for n in range(20)] == [*map(str, range(20))]


def test_without_any_it_says_so(no_more: list[bool]) -> None:
    no_more.clear()
    with pytest.raises(RuntimeError, match=REFUSED):
        FewThreads(4, "few")


async def test_calls_in_turn_wait_for_the_thread_that_there_is(no_more: list[bool]) -> None:
    thread, held = FairThread("fair", threads=4), threading.Event()
    began = threading.Event()

    def wait() -> bool:
        began.set()
        return held.wait(10)

    first = thread.call("a", wait)
    await until(began.is_set)
    no_more.clear()
    others = [thread.call(who, lambda: 1) for who in "abc"]
    held.set()
    assert await asyncio.gather(first, *others) == [True, 1, 1, 1]
    thread.close(wait=True)


def test_what_a_client_is_told() -> None:
    error = internal_error(RuntimeError(REFUSED), "connection 1")
    assert error.kind is CannotCreateThread
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/srv/x.py")
    told = internal_error(full, "connection 1")
    said = f"Out of resources when opening file 'x.py' (Errcode: {errno.EMFILE} \"Too many open files\")"
    assert (told.errno, told.message) == (23, said)
    assert internal_error(RuntimeError("x"), "connection 1").errno == 1815
