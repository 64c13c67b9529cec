"""How much memory a worker takes for a group of any size."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.pipeline.large_upstream import EVENT_BYTES, LargeUpstream


@pytest.mark.parametrize(
    "megabytes", [256, pytest.param(4096, marks=[pytest.mark.slow, pytest.mark.timeout(400)])]
)
async def test_memory(megabytes: int) -> None:
    """It lies on the disk instead."""
    async with LargeUpstream(megabytes) as upstream:
        argv = (sys.executable, "-m", "tests.pipeline.large_upstream", str(upstream.port))
        worker = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        out, _ = await worker.communicate()
    size, peak = map(int, out.split())
    assert size > megabytes * EVENT_BYTES
    assert peak < 200 << 20
