"""A server with tables, before a test begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import Lab


@asynccontextmanager
async def lab_with(*texts: str, users: Mapping[str, Account | str]) -> AsyncIterator[Lab]:
    """A server that has been told these statements by root."""
    async with Lab(users=users, local_tables=True) as lab:
        client = await lab.root()
        for text in texts:
            await client.query(text)
        yield lab
