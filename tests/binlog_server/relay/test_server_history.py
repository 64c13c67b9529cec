"""The history of a server: how a command that reads it is left."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from binlog_server.relay.server_history import ServerHistory


def test_ctrl_c_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end would be told with a traceback, when the connection is closed."""
    told: list[Any] = []
    history = ServerHistory.__new__(ServerHistory)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    monkeypatch.setattr(history, "_loop", loop, raising=False)

    def interrupt() -> None:
        raise KeyboardInterrupt

    closed = loop.create_future()

    async def receive() -> None:
        await closed
        raise ConnectionError("the server has closed the connection")

    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        history._run(receive())
    if not closed.done():
        closed.set_result(None)
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    gc.collect()
    assert told == []
