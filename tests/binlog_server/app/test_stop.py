"""The end of a server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.binlog_server.lab import Lab


async def test_statements_that_waited_for_room_end_before_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their clients may have gone: nothing else tells that a thread still works for them."""
    async with Lab() as lab:
        space, stop_waiting = lab.server.tmp_space, lab.engine.stop_waiting
        loop, closed = asyncio.get_running_loop(), lab.server.directory.close
        at_close: list[int] = []

        def woken() -> None:
            stop_waiting()
            loop.call_later(0.05, lambda: space.take(7, -1000, None))

        def close() -> Any:
            at_close.append(space.used)
            return closed()

        monkeypatch.setattr(lab.engine, "stop_waiting", woken)
        monkeypatch.setattr(lab.server.directory, "close", close)
        space.take(7, 1000, None)
        await lab.stop()
    assert at_close == [0]
