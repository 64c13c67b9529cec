"""KILL QUERY of a statement on tables here that waits for room in the store: 1317, and nothing of it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from binlog_storage.binlog.store import IbbEngine

from tests.binlog_server.lab import Client, Lab, until, within
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import USERS, errno, rows, session

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20), n INT NOT NULL)",
    "INSERT INTO shop.t VALUES (1, 'a', 0)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


class Room:
    """The room of the store, which a test takes away."""

    def __init__(self, lab: Lab) -> None:
        assert isinstance(lab.engine, IbbEngine)
        self._engine = lab.engine
        self._server = lab.server

    def __enter__(self) -> Room:
        with self._engine._append_lock:
            self._engine._bounds.pause()
        return self

    def __exit__(self, *_: object) -> None:
        with self._engine._append_lock:
            self._engine._bounds.resume()

    @property
    def waits(self) -> int:
        """How often somebody has waited for it."""
        return self._engine._room.redo_waits + self._server.room.waits


async def number_of(client: Client) -> str:
    return str((await rows(client, "SELECT CONNECTION_ID()"))[0][0])


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ((), "CREATE TABLE u (id INT PRIMARY KEY)"),
        ((), "CREATE TABLE u (PRIMARY KEY (id)) SELECT id FROM t"),
        ((), "INSERT INTO t (a, n) VALUES ('x', 1), ('y', 2)"),
        ((), "INSERT INTO t VALUES (9, 'x', 1)"),
        ((), "UPDATE t SET n = n + 1 WHERE a = 'a'"),
        ((), "TRUNCATE t"),
        (("BEGIN", "UPDATE t SET n = 5"), "COMMIT"),
        (("BEGIN", "UPDATE t SET n = 5"), "CREATE TABLE u (id INT PRIMARY KEY)"),
    ],
)
async def test_it_ends(lab: Lab, before: tuple[str, ...], text: str) -> None:
    one, other = await session(lab), await session(lab)
    number = await number_of(one)
    for first in before:
        await one.query(first)
    with Room(lab) as room:
        waited = room.waits
        running = asyncio.ensure_future(errno(one, text))
        await until(lambda: room.waits > waited)
        await other.query(f"KILL QUERY {number}")
        assert await within(running) == 1317
    assert await rows(one, "SELECT @@in_transaction") == [("0",)]
    assert await rows(other, "SELECT * FROM t") == [("1", "a", "0")]
    assert await errno(other, "SELECT * FROM u") == 1146
    await one.query("UPDATE t SET n = n + 1")
    assert await rows(other, "SELECT n FROM t") == [("1",)]
    await until(
        lab.server.tables.store.pause
    )  # no lock is left, or the binlog could never be switched


@pytest.mark.long
async def test_behind_another_that_counts(lab: Lab) -> None:
    """Numbers of AUTO_INCREMENT are taken one by one: who waits behind one that waits for room gives up, too."""
    one, two, other = await session(lab), await session(lab), await session(lab)
    number = await number_of(two)
    with Room(lab) as room:
        waited = room.waits
        first = asyncio.ensure_future(errno(one, "INSERT INTO t (n) VALUES (1), (2)"))
        await until(lambda: room.waits > waited)
        second = asyncio.ensure_future(errno(two, "INSERT INTO t (n) VALUES (3), (4)"))
        while not second.done():
            await other.query(f"KILL QUERY {number}")
        assert await second == 1317
    assert await within(first) == 0
    assert await rows(other, "SELECT n FROM t") == [("0",), ("1",), ("2",)]


async def test_in_a_transaction_only_the_statement_is_undone(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    number = await number_of(one)
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = 5")
    with Room(lab) as room:
        waited = room.waits
        running = asyncio.ensure_future(errno(one, "UPDATE t SET n = 6"))
        await until(lambda: room.waits > waited)
        await other.query(f"KILL QUERY {number}")
        assert await within(running) == 1317
    await one.query("COMMIT")
    assert await rows(other, "SELECT n FROM t") == [("5",)]
