"""What nobody means well by, told to a server with tables: it is refused by the number that MariaDB has for it."""

from __future__ import annotations

import asyncio
import struct
import threading

import pytest
from binlog_protocol.connection.commands import Query, StmtExecute
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.wire.results import parse_error

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import PASSWORD, ROOT, until, within
from tests.binlog_server.sessions.test_prepared import NEW, Prepared
from tests.binlog_server.tables.scene import lab_with

SCHEMA = ("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, s TEXT)")
REFUSED = {
    "CREATE TABLE `\U0001f600` (id INT PRIMARY KEY)".encode(): 1300,
    "CREATE DATABASE `\U0001f600`".encode(): 1300,
    b"CREATE DATABASE `\xff`": 1300,
    b"CREATE TABLE `\xff` (id INT PRIMARY KEY)": 1300,
    b"CREATE TABLE u (id INT PRIMARY KEY, `\xff` INT)": 1300,
    b"CREATE TABLE u (id INT PRIMARY KEY, e ENUM('\xff'))": 1300,
    b"CREATE TABLE u (id INT PRIMARY KEY COMMENT '\xff')": 1300,
    b"CREATE TABLE u (id INT PRIMARY KEY) COMMENT '\xff'": 1300,
    b"ALTER TABLE t COMMENT '\xff'": 1300,
    b"ALTER TABLE t RENAME TO `\xff`": 1300,
    b"RENAME TABLE t TO `\xff`": 1300,
    b"CREATE TABLE `a\0b` (id INT PRIMARY KEY)": 1064,
    b"CREATE TABLE u (id INT PRIMARY KEY" + b", a INT" * 30_000 + b")": 1117,
    b"CREATE TABLE u (id INT PRIMARY KEY) COMMENT '" + b"x" * (1 << 20) + b"'": 1235,
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
async def test_definitions(text: bytes) -> None:
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        client = await lab.root()
        await client.query("SET NAMES utf8mb4")
        await client.query("USE shop")
        answer = await client.ask(Query(text).build())
        assert answer[:1] == b"\xff"
        assert parse_error(answer).errno == REFUSED[text]
        assert await client.query("SHOW TABLES") == [["t"]]


async def test_one_account_does_not_take_all_threads_for_rows() -> None:
    users = {**ROOT, "other": ROOT["root"]}
    async with lab_with(*SCHEMA, users=users) as lab:
        gate = threading.Event()
        runner = lab.server.runner
        busy = [runner.in_row_thread(gate.wait, "root@%") for _ in range(9)]
        client = await lab.client("other", "pw")
        try:
            await within(client.query("UPDATE shop.t SET s = CONCAT(s, 'x')"))
        finally:
            gate.set()
        await within(asyncio.gather(*busy))


async def test_memory_of_a_change_is_counted_while_it_is_read_and_computed() -> None:
    """Beyond the common limit its session is closed with 1041, also while a thread still reads."""
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        memory = lab.server.session_memory
        client = await lab.root()
        holder = await lab.root()
        await holder.query("BEGIN")
        await holder.query("INSERT INTO shop.t VALUES (1, 'x')")
        large = "INSERT INTO shop.t VALUES " + ",".join(
            f"({n} + 1, '{'x' * 60}')" for n in range(1000)
        )
        client.command(Query(large).build())
        await until(lambda: memory.held > 1000 * 5 * 1024)  # it waits for the row, with its tree
        await holder.query("COMMIT")
        assert parse_error(await client.answer()).errno == 1062
        await until(lambda: memory.held == 0)
        constants = "INSERT INTO shop.t VALUES " + ",".join(f"({n}, NULL)" for n in range(9000))
        await holder.query("BEGIN")
        await holder.query("DELETE FROM shop.t")
        client.command(Query(constants).build())
        await until(lambda: memory.held > len(constants))
        assert memory.held < 3 * len(constants)
        await holder.query("ROLLBACK")
        assert parse_error(await client.answer()).errno == 1062

        memory._limit = lambda: 1 << 20
        client.command(Query(large).build())
        assert parse_error(await client.answer()).errno == 1041
        await until(lambda: memory.held == 0)
        assert await holder.query("SELECT COUNT(*) FROM shop.t") == [["1"]]


async def test_parameters_that_are_cut_short() -> None:
    """Of a statement that goes the quick way, too: 1835 within the types, else 1210, and nothing is done."""
    async with lab_with(
        *SCHEMA, users={**ROOT, "adm": Account(PASSWORD, ROOT["root"].grants)}
    ) as lab:
        client = await Prepared.of(lab, NEW)
        number, _, _ = await client.prepare("INSERT INTO shop.t VALUES (?, ?)")
        types = bytes((ColumnType.LONG, 0, ColumnType.VAR_STRING, 0))
        body = b"\0\1" + types + struct.pack("<i", 7) + b"\1x"
        for size in range(len(body)):
            answer = await client.ask(StmtExecute(number, 0, body[:size]).build())
            assert parse_error(answer).errno == (1835 if 2 <= size < 6 else 1210), size
        assert (await client.ask(StmtExecute(number, 0, body).build()))[:1] == b"\0"
        again = b"\0\0" + struct.pack("<i", 8) + b"\1y"
        for size in range(len(again)):
            answer = await client.ask(StmtExecute(number, 0, again[:size]).build())
            assert parse_error(answer).errno == 1210, size
        root = await lab.root()
        assert await root.query("SELECT * FROM shop.t") == [["7", "x"]]


async def test_a_parameter_is_a_decimal_by_its_old_type_too() -> None:
    async with lab_with(
        *SCHEMA, users={**ROOT, "adm": Account(PASSWORD, ROOT["root"].grants)}
    ) as lab:
        client = await Prepared.of(lab, NEW)
        number, _, _ = await client.prepare(
            "SELECT 1 + ?, 2 > ? FROM shop.t RIGHT JOIN (SELECT 1) x ON 1"
        )
        for kind in (0, ColumnType.NEWDECIMAL):
            answer = await client.execute(number, (kind, kind), b"\0031.5\0031.5")
            assert answer[-2] == b"\0\0\0032.5\1\0\0\0"
