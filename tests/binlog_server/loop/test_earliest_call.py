"""One timer: the earliest call wins, whatever kind of handle the loop gives for it."""

from __future__ import annotations

import asyncio

import pytest

from binlog_server.loop.earliest_call import EarliestCall
from tests.binlog_server.lab import until

NEVER = 3600.0


@pytest.mark.parametrize("first", [0.0, 1e-9, 0.001, NEVER])
@pytest.mark.parametrize("second", [0.0, 1e-9, 0.001, NEVER])
async def test_the_earliest_is_called_and_no_other(first: float, second: float) -> None:
    """uvloop calls at once what is due in less than half a millisecond, by another kind of handle."""
    called: list[float] = []
    one, now = EarliestCall(), asyncio.get_running_loop().time()
    for seconds in (first, second):
        one.by(now + seconds, lambda seconds=seconds: called.append(seconds))  # type: ignore[misc]
    if min(first, second) == NEVER:
        assert one.cancel()
    else:
        await until(lambda: bool(called))
        assert called == [min(first, second)]
    assert not one.cancel()


async def test_behind_a_call_there_may_be_another() -> None:
    called: list[int] = []
    one = EarliestCall()

    def again() -> None:
        called.append(len(called))
        if len(called) < 3:
            one.by(0.0, again)

    one.by(0.0, again)
    await until(lambda: called == [0, 1, 2])


async def test_what_is_cancelled_is_not_called() -> None:
    called: list[int] = []
    one = EarliestCall()
    one.by(0.0, lambda: called.append(1))
    assert one.cancel()
    one.by(0.0, lambda: called.append(2))
    await until(lambda: called == [2])
