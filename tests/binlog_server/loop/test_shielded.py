"""What is waited for goes on without whoever waited, and its error is told to those who still wait."""

from __future__ import annotations

import asyncio
import gc

import pytest

from binlog_server.loop.shielded import shielded


@pytest.mark.parametrize("stays", [True, False])
async def test_an_error_that_nobody_waits_for_is_not_logged(stays: bool) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise KeyError("it failed")

    async def wait(working: asyncio.Future[None]) -> None:
        await shielded(working)

    working = asyncio.ensure_future(work())
    leaver = asyncio.ensure_future(wait(working))
    stayer = asyncio.ensure_future(wait(working)) if stays else None
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    assert not working.done()
    go.set()
    await asyncio.wait([working])
    if stayer is not None:
        with pytest.raises(KeyError):
            await stayer
    del working, leaver, stayer
    gc.collect()
    await asyncio.sleep(0)
    assert not told
