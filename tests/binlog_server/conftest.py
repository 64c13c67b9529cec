"""The loop of these tests is the one that the server runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from .lab import Lab


@pytest.hookimpl(optionalhook=True)  # older versions of pytest-asyncio do not ask
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    """A server on a store in memory, on a port of this machine."""
    async with Lab() as running:
        yield running
