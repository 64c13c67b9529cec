"""One thread for many: turns by name, whoever asks how often."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from binlog_server.loop.fair_thread import FairThread
from tests.binlog_server.lab import until, within


class Busy:
    """A thread that is in a call until it is `let_go`, and what was called in it then."""

    def __init__(self) -> None:
        self.thread = FairThread("fair")
        self.called: list[str] = []
        self._gate, begun = threading.Event(), threading.Event()

        def first() -> bool:
            begun.set()
            return self._gate.wait()

        self.first = self.thread.call("first", first)
        begun.wait(10)

    def ask(self, who: str, what: str) -> asyncio.Future[str]:
        def call() -> str:
            self.called.append(what)
            if what == "fails":
                raise ValueError(what)
            return what

        return self.thread.call(who, call)

    def let_go(self) -> None:
        self._gate.set()


@pytest.fixture
async def busy() -> AsyncIterator[Busy]:
    made = Busy()
    yield made
    made.let_go()
    made.thread.close(wait=True)


async def test_names_take_turns(busy: Busy) -> None:
    asked = [busy.ask("flood", f"flood {n}") for n in range(100)]
    asked += [busy.ask("replica", f"replica {n}") for n in range(2)]
    asked += [busy.ask("monitor", "monitor")]
    busy.let_go()
    assert sorted(await within(asyncio.gather(*asked))) == sorted(busy.called)
    expected = ["flood 0", "replica 0", "monitor", "flood 1", "replica 1"]
    assert busy.called == expected + [f"flood {n}" for n in range(2, 100)]


async def test_who_has_gone_has_no_turn(busy: Busy) -> None:
    gone, stays = busy.ask("a", "gone"), busy.ask("a", "stays")
    gone.cancel()
    busy.first.cancel()  # it runs: nobody waits for it, and the next one waits for its end
    busy.let_go()
    assert await within(stays) == "stays"
    assert busy.called == ["stays"]


async def test_an_error_is_of_who_has_asked(busy: Busy) -> None:
    fails, next_one = busy.ask("a", "fails"), busy.ask("a", "next")
    busy.let_go()
    with pytest.raises(ValueError, match="fails"):
        await within(fails)
    assert await within(next_one) == "next"


async def test_the_end(busy: Busy) -> None:
    waits = busy.ask("a", "never")
    busy.thread.close(wait=False)
    assert waits.cancelled()
    with pytest.raises(RuntimeError):
        busy.ask("a", "too late")
    busy.let_go()
    await within(busy.first)
    assert busy.called == []


async def test_who_has_taken_much_comes_behind_the_others() -> None:
    """By processor time of late: half of it is forgotten every ten seconds."""
    spent, now = [0.0], [0.0]
    thread = FairThread("fair", lambda: spent[0], lambda: now[0])
    called: list[str] = []

    def ask(who: str, seconds: float = 0.0) -> asyncio.Future[None]:
        def call() -> None:
            called.append(who)
            spent[0] += seconds

        return thread.call(who, call)

    async def order(*names: str) -> list[str]:
        called.clear()
        gate = threading.Event()
        thread.call("", gate.wait)
        asked = [ask(who) for who in names]
        gate.set()
        await within(asyncio.gather(*asked))
        return called

    await within(asyncio.gather(ask("much", 2.0), ask("some", 0.5), ask("little", 0.01)))
    names = ["much", "some", "little", "new", "new"]
    assert await order(*names) == ["little", "new", "new", "some", "much"]
    for _ in range(6):
        now[0] += 11
        await within(ask("little"))
    assert await order(*names) == ["much", "some", "little", "new", "new"]
    thread.close(wait=True)


async def test_no_name_takes_all_of_several_threads() -> None:
    thread, gate = FairThread("fair", threads=3), threading.Event()
    begun: list[str] = []

    def ask(who: str) -> asyncio.Future[bool]:
        def call() -> bool:
            begun.append(who)
            return gate.wait()

        return thread.call(who, call)

    asked = [ask("flood") for _ in range(5)]
    asked += [ask("another"), ask("a third")]
    await until(lambda: len(begun) == 3)
    assert sorted(begun) == ["another", "flood", "flood"]
    gate.set()
    await within(asyncio.gather(*asked))
    assert sorted(begun) == ["a third", "another", *["flood"] * 5]
    thread.close(wait=True)
