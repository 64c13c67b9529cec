"""Tables without transactions (ENGINE=MyISAM, Aria): their groups, what stays of them, what they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_storage.binlog.store import IbbEngine

from tests.binlog_server.lab import ROOT, Client, Lab, until
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import errno, kinds
from tests.storage.groups import read_all

SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE shop.log (id INT AUTO_INCREMENT PRIMARY KEY, n INT, UNIQUE (n)) ENGINE=myisam",
    "CREATE TABLE shop.aria (id INT PRIMARY KEY, n INT) ENGINE = 'ARIA'",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        yield lab


async def session(lab: Lab) -> Client:
    client = await lab.root()
    await client.query("USE shop")
    return client


def groups(lab: Lab) -> list[str]:
    """Flags and kinds of events of the groups behind the schema's."""
    lab.engine.sync()
    found = [list(split_events(payload)) for payload in read_all(lab.engine) if payload[4] == 162]
    return [
        f"{GtidEvent.parse(group[0]).flags2:02x} {kinds(group)}" for group in found[len(SCHEMA) :]
    ]


async def ids(client: Client, table: str) -> list[str | None]:
    return [row[0] for row in await client.query(f"SELECT n FROM {table} ORDER BY n")]


async def warnings(client: Client) -> list[str | None]:
    return [row[1] for row in await client.query("SHOW WARNINGS")]


async def test_a_statement_sees_what_its_transaction_has_changed(lab: Lab) -> None:
    """In other tables: its own group is written in front of the transaction's all the same."""
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t VALUES (1, 1), (2, 2)")
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (3, 3)")
    await one.query("DELETE FROM t WHERE id = 1")
    await one.query("INSERT INTO log (n) SELECT n FROM t")
    assert await ids(other, "log") == ["2", "3"]
    await one.query("UPDATE log SET n = n + 10 WHERE n IN (SELECT n FROM t WHERE id = 3)")
    assert await ids(other, "log") == ["2", "13"]
    assert await ids(other, "t") == ["1", "2"]
    await one.query("ROLLBACK")


@pytest.mark.parametrize("begins", [True, False])
async def test_what_a_failure_leaves_is_durable_before_its_answer(
    lab: Lab, *, begins: bool
) -> None:
    one = await session(lab)
    if begins:
        await one.query("BEGIN")
    assert await errno(one, "INSERT INTO log (n) VALUES (1), (1)") == 1062
    engine = lab.engine
    assert isinstance(engine, IbbEngine)
    assert engine.durable_end == engine.written_end
    assert await warnings(one) == ["1062"] + ["1196"] * (not begins)
    assert groups(lab) == ["08 GATWQ"]


async def test_each_statement_is_a_group_of_its_own(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO log (n) VALUES (1), (2)")
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 1)")
    await one.query("INSERT INTO log (n) VALUES (3)")
    assert await ids(other, "log") == ["1", "2", "3"]
    assert await ids(other, "t") == []
    await one.query("UPDATE aria SET n = 1")  # nothing there
    await one.query("INSERT INTO t VALUES (2, 2)")
    await one.query("COMMIT")
    await one.query("UPDATE log SET n = 30 WHERE id = 3")
    await one.query("DELETE FROM log WHERE n < 3")
    await one.query("INSERT INTO aria VALUES (1, 1)")
    await one.query("INSERT INTO t VALUES (3, 3)")
    assert groups(lab) == [
        "08 GATWQ",
        "08 GATWQ",
        "08 GATWATWX",  # not TRANSACTIONAL, as it goes with the one before
        "08 GATUQ",
        "08 GATDQ",
        "08 GATWQ",
        "0c GATWX",
    ]
    payload = [payload for payload in read_all(lab.engine) if payload[4] == 162][len(SCHEMA)]
    *_, end = split_events(payload)
    query = QueryEvent.parse(end)
    assert query.text == b"COMMIT"


async def test_rollback_keeps_them_with_a_warning(lab: Lab) -> None:
    one = await session(lab)
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 1)")
    await one.query("SAVEPOINT s")
    await one.query("INSERT INTO t VALUES (2, 2)")
    await one.query("INSERT INTO log (n) VALUES (1)")
    await one.query("ROLLBACK TO s")
    assert await warnings(one) == ["1196"]
    assert await ids(one, "t") == ["1"]
    await one.query("ROLLBACK")
    assert await warnings(one) == ["1196"]
    assert (await ids(one, "t"), await ids(one, "log")) == ([], ["1"])
    assert groups(lab) == ["08 GATWQ"]
    await one.query("BEGIN")
    await one.query("INSERT INTO log (n) VALUES (2)")
    await one.query("COMMIT")
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 1)")
    await one.query("ROLLBACK")
    assert await warnings(one) == []
    assert groups(lab) == ["08 GATWQ"] * 2


async def test_what_was_done_before_an_error_stays(lab: Lab) -> None:
    one = await session(lab)
    await one.query("INSERT INTO log (n) VALUES (5)")
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 1)")
    assert await errno(one, "INSERT INTO log (n) VALUES (1), (2), (5), (6)") == 1062
    assert await warnings(one) == ["1062"]
    assert await errno(one, "UPDATE log SET n = 5 ORDER BY n") == 1062
    await one.query("COMMIT")
    assert await ids(one, "log") == ["1", "2", "5"]
    assert await ids(one, "t") == ["1"]
    assert groups(lab)[:2] == ["08 GATWQ"] * 2
    assert groups(lab)[-1] == "08 GATWX"


async def test_autocommit_off_and_views(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("SET autocommit = 0")
    assert await ids(one, "t") == []  # the view of REPEATABLE READ is taken
    await other.query("INSERT INTO log (n) VALUES (1)")
    await other.query("INSERT INTO t VALUES (1, 1)")
    assert (await ids(one, "t"), await ids(one, "log")) == ([], ["1"])
    await one.query("INSERT INTO log (n) VALUES (2)")
    assert await ids(other, "log") == ["1", "2"]
    await one.query("ROLLBACK")
    assert await warnings(one) == ["1196"]


async def test_a_client_that_is_killed_while_its_statement_waits(lab: Lab) -> None:
    """The transaction around it is rolled back, too: its locks are free."""
    one, other = await session(lab), await session(lab)
    holder = lab.engine.tables.begin()  # type: ignore[attr-defined]
    table = lab.server.tables.find("shop", "log")
    assert table is not None
    holder.lock(table.number, None)
    ((number,),) = await one.query("SELECT CONNECTION_ID()")
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 1)")
    asked = asyncio.ensure_future(one.query("INSERT INTO log (n) VALUES (1)"))
    await until(lambda: lab.engine.counters()["Innodb_row_lock_current_waits"] == 1)
    await other.query(f"KILL {number}")
    await until(lambda: not lab.engine.counters()["Innodb_row_lock_current_waits"])
    await other.query("INSERT INTO t VALUES (1, 2)")
    holder.rollback()
    with pytest.raises(Exception, match=r"1927"):
        await asked
    await other.query("INSERT INTO log (n) VALUES (7)")
    assert (await ids(other, "t"), await ids(other, "log")) == (["2"], ["7"])


REFUSED = {
    "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MEMORY": 1235,
    "CREATE TABLE m (id INT PRIMARY KEY, b BIT(3)) ENGINE=MyISAM": 1235,
    "CREATE TABLE m (a VARCHAR(255), PRIMARY KEY (a)) ENGINE=MyISAM": 1071,
    "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=none": 1286,
}


@pytest.mark.parametrize("text", REFUSED)
async def test_what_is_refused(lab: Lab, text: str) -> None:
    assert await errno(await session(lab), text) == REFUSED[text]


async def test_the_engine_is_shown(lab: Lab) -> None:
    one = await session(lab)
    ((_, text),) = await one.query("SHOW CREATE TABLE log")
    assert text is not None
    assert "ENGINE=MyISAM" in text
    found = await one.query(
        "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'shop' ORDER BY 1"
    )
    assert found == [["aria", "Aria"], ["log", "MyISAM"], ["t", "InnoDB"]]


async def test_xa(lab: Lab) -> None:
    """Each statement is a group of its own, there at once and for good; what is prepared is not marked as one that can
    be rolled back."""
    one, other = await session(lab), await session(lab)
    for number, end in enumerate(("COMMIT", "ROLLBACK"), 1):
        for text in (
            "XA START 'x'",
            f"INSERT INTO t VALUES ({number}, {number})",
            f"INSERT INTO log (n) VALUES ({number})",
            "XA END 'x'",
            "XA PREPARE 'x'",
        ):
            await one.query(text)
        assert await ids(other, "log") == [str(n) for n in range(1, number + 1)]
        await one.query(f"XA {end} 'x'")
        assert await warnings(one) == (["1196"] if end == "ROLLBACK" else [])
    assert await ids(other, "t") == ["1"]
    assert groups(lab) == ["08 GATWQ", "08 GATWQ", "08 GATWQ"]
    for ends in (("XA ROLLBACK 'y'",), ("XA PREPARE 'y'", "XA ROLLBACK 'y'")):
        for text in ("XA START 'y'", "UPDATE aria SET n = n", "DELETE FROM log", "XA END 'y'"):
            await one.query(text)
        for text in ends:
            await one.query(text)
        assert await warnings(one) == (["1196"])
        await one.query("INSERT INTO log (n) VALUES (7)")
    assert groups(lab)[3:] == ["08 GATDQ", "08 GATWQ", "08 GATDQ", "08 GATWQ"]
