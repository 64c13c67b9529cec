"""A connection that we make: what it says when it is gone."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from binlog_server.relay.client_link import ClientLink

from .upstream import PASSWORD, FakeUpstream


def test_a_question_to_one_that_is_gone() -> None:
    """On the server's own loop, whose transports answer that with a RuntimeError, which nobody takes for a loss."""

    async def ask() -> None:
        async with FakeUpstream() as upstream:
            link = await ClientLink.connect("127.0.0.1", upstream.port, "u", PASSWORD, 5)
            await link.log_in()
            assert await link.query("SELECT 1") == [["0"]]
            link.close()
            await asyncio.sleep(0)
            await link.query("SELECT 1")

    with pytest.raises(ConnectionError, match="the server has closed the connection"):
        uvloop.run(ask())
