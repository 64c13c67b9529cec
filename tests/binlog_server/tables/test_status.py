"""SHOW ENGINE INNODB STATUS: transactions on tables, one by one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.engine import Xid
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.binlog_server.lab import ROOT, Lab
from tests.storage.tables.test_transactions import T, crashed, engine_with


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=ROOT, local_tables=True) as lab:
        yield lab


async def test_those_of_sessions(lab: Lab) -> None:
    one = await lab.root()
    await one.query("CREATE DATABASE shop")
    await one.query("CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT)")
    await one.query("BEGIN")
    await one.query("INSERT INTO shop.t (n) VALUES (1), (2)")
    ((_, _, text),) = await one.query("SHOW ENGINE INNODB STATUS")
    assert text is not None
    assert re.search(r"-\nTRANSACTIONS\n-+\n---TRANSACTION \d+, ACTIVE\nundo log entries 2$", text)
    await one.query("ROLLBACK")
    ((_, _, text),) = await one.query("SHOW ENGINE INNODB STATUS")
    assert text is not None
    assert text.endswith("\nTRANSACTIONS\n------------")


async def test_those_that_a_start_has_found() -> None:
    disk = MemoryDisk()
    engine = engine_with(disk)
    for name in (b"first", b"second"):
        t = engine.tables.begin()
        for n in range(300):
            t.put(T, name + b"%d" % n, b"")
    t = engine.tables.begin()
    t.put(T, b"p", b"2")
    Transaction(engine.writer_of(t)).prepare(Xid(1, b"x"))
    engine.sync()
    engine = crashed(engine, disk)
    engine.step()
    async with Lab(engine, users=ROOT) as lab:
        client = await lab.root()
        ((_, _, text),) = await client.query("SHOW ENGINE INNODB STATUS")
    assert text is not None
    assert re.sub(r"TRANSACTION \d+", "TRANSACTION n", text).endswith(
        "---TRANSACTION n, ACTIVE recovered trx\nROLLING BACK, undo log entries 44\n"
        "---TRANSACTION n, ACTIVE recovered trx\nundo log entries 300\n"
        "---TRANSACTION n, ACTIVE (PREPARED) recovered trx\nundo log entries 1"
    )
