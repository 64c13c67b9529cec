"""Tables with ENGINE=SQLITE by SQL: the same statements, answers and groups; commits by two phases."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.query import QueryEvent
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.tables.sqlite_rows import SQLITE_NAME, SqliteRows

from tests.binlog_server.lab import Client, Lab, until
from tests.binlog_server.tables.test_sessions import (
    SCHEMA,
    USERS,
    errno,
    groups,
    kinds,
    rows,
    session,
)

STORE = StoreOptions(max_binlog_size=1 << 20, innodb_log_file_size=2 << 20)
TABLES = (
    "CREATE TABLE shop.s (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20), n INT NOT NULL DEFAULT 0, UNIQUE KEY (n)) "
    "ENGINE=SQLite",
)
OF_S = "SELECT id, a, n FROM shop.s ORDER BY id"


class Steps:
    """What is done to the file, and what is to happen then."""

    def __init__(self) -> None:
        self.met: list[str] = []
        self.then: Callable[[str], None] = lambda _: None

    def before(self, step: str) -> None:
        self.met.append(step)
        self.then(step)


def engine_in(path: Path, steps: Steps) -> IbbEngine:
    return IbbEngine(OsDisk(path), STORE, row_keeper=SqliteRows(path / SQLITE_NAME, steps.before))


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def lab(tmp_path: Path, steps: Steps) -> AsyncIterator[Lab]:
    async with Lab(engine_in(tmp_path, steps), users=USERS, local_tables=True) as lab:
        client = await lab.root()
        for text in SCHEMA + TABLES:
            await client.query(text)
        yield lab


async def test_the_same_statements_and_groups(lab: Lab) -> None:
    client = await session(lab)
    shown = []
    for name in ("t", "s"):
        for text in (
            "INSERT INTO {} (a, n) VALUES ('one', 1), ('two', 2), ('three', 3)",
            "UPDATE {} SET n = n + 10 WHERE id > 1",
            "DELETE FROM {} WHERE a = 'one'",
            "BEGIN",
            "INSERT INTO {} VALUES (9, 'nine', 9)",
            "SAVEPOINT x",
            "UPDATE {} SET a = 'gone'",
            "ROLLBACK TO x",
            "COMMIT",
            "BEGIN",
            "DELETE FROM {}",
            "ROLLBACK",
        ):
            await client.query(text.format(name))
        shown.append(await rows(client, f"SELECT id, a, n FROM {name} ORDER BY id"))
    assert shown[0] == shown[1] == [("2", "two", "12"), ("3", "three", "13"), ("9", "nine", "9")]
    assert await errno(client, "INSERT INTO s VALUES (20, 'x', 9)") == 1062
    assert await errno(client, "INSERT INTO s VALUES (9, 'x', 99)") == 1062
    found = [kinds(group) for group in groups(lab)]
    assert found[0] == "GQ"
    assert found[1:5] == found[5:]
    created = QueryEvent.parse(groups(lab)[0][1]).text
    assert b"ENGINE=InnoDB" in created, "replicas have no such engine"
    ((_, shown_text),) = await client.query("SHOW CREATE TABLE s")
    assert "ENGINE=SQLITE" in str(shown_text)
    sums = await rows(client, "CHECKSUM TABLE s, t")
    assert sums[0][1] == sums[1][1]


async def test_rows_of_both_are_one_transaction(lab: Lab, tmp_path: Path, steps: Steps) -> None:
    client = await session(lab)
    steps.met.clear()
    for text in ("BEGIN", "INSERT INTO t VALUES (1, 'a', 1)", "INSERT INTO s VALUES (1, 'b', 1)"):
        await client.query(text)
    assert steps.met == []
    await client.query("COMMIT")
    assert steps.met == [
        f"{what}: {when}" for what in ("prepare", "commit") for when in ("begin", "written", "done")
    ]
    await client.query("INSERT INTO t VALUES (2, 'only here', 1)")
    assert len(steps.met) == 6
    await lab.stop()
    with contextlib.closing(sqlite3.connect(tmp_path / SQLITE_NAME)) as file:
        assert file.execute("SELECT COUNT(*) FROM rows").fetchall() == [(2,)]  # and one of the key
    async with Lab(engine_in(tmp_path, steps), users=USERS, local_tables=True) as after:
        client = await session(after)
        assert await rows(client, OF_S) == [("1", "b", "1")]
        assert await rows(client) == [("1", "a", "1"), ("2", "only here", "1")]
        await client.query("INSERT INTO s (a, n) VALUES ('next', 2)")
        assert (await rows(client, OF_S))[1:] == [("2", "next", "2")]


async def test_others_do_not_wait_for_its_disk(lab: Lab, steps: Steps) -> None:
    """The loop goes on while a thread writes the file; commits in it come in turn, in the order of the binlog."""
    one, two, other = await session(lab), await session(lab), await session(lab)
    go_on = threading.Event()

    def stand_still(step: str) -> None:
        if step == "prepare: written":
            go_on.wait(10)

    steps.then = stand_still
    tasks = [
        asyncio.create_task(client.query(f"INSERT INTO s VALUES ({i}, 'x', {i})"))
        for i, client in enumerate((one, two), 1)
    ]
    await until(lambda: "prepare: written" in steps.met)
    await other.query("INSERT INTO t VALUES (1, 'a', 1)")
    assert await rows(other, OF_S) == []
    go_on.set()
    await asyncio.gather(*tasks)
    assert [row[0] for row in await rows(other, OF_S)] == ["1", "2"]
    assert steps.met.count("prepare: begin") == 2


async def test_a_client_that_goes_while_it_commits(lab: Lab, steps: Steps) -> None:
    one, other = await session(lab), await session(lab)
    go_on = threading.Event()

    def stand_still(step: str) -> None:
        if step == "prepare: written":
            go_on.wait(10)

    steps.then = stand_still
    task = asyncio.create_task(one.query("INSERT INTO s VALUES (1, 'x', 1)"))
    await until(lambda: "prepare: written" in steps.met)
    one.close()
    task.cancel()
    assert (
        await rows(other, OF_S) == []
    )  # behind the end of the other one, which nobody reads while it commits
    go_on.set()
    await other.query("SET innodb_lock_wait_timeout = 20")
    is_done = await errno(other, "INSERT INTO s VALUES (1, 'y', 1)") == 1062
    assert await rows(other, OF_S) == [("1", "x" if is_done else "y", "1")]
    assert is_done or "rollback: done" in steps.met
    await other.query("INSERT INTO s VALUES (2, 'z', 2)")


async def test_a_file_that_cannot_be_written(lab: Lab, steps: Steps) -> None:
    client = await session(lab)

    def fail(step: str) -> None:
        if step == "prepare: written":
            raise sqlite3.OperationalError("disk I/O error")

    steps.then = fail
    for _ in range(2):
        assert await errno(client, "INSERT INTO s VALUES (1, 'x', 1)") == 1026
        assert await rows(client, OF_S) == []
    steps.then = lambda _: None
    await client.query("INSERT INTO s VALUES (1, 'x', 1)")
    assert len(await rows(client, OF_S)) == 1


async def prepared(client: Client, *texts: str, xid: str = "q") -> None:
    for text in (f"XA START '{xid}'", *texts, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
        await client.query(text)


BOTH = ("INSERT INTO t VALUES (1, 'a', 1)", "INSERT INTO s VALUES (1, 'b', 1)")


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("owner", ["itself", "another", "another process"])
async def test_xa(lab: Lab, tmp_path: Path, steps: Steps, end: str, owner: str) -> None:
    client, other = await session(lab), await session(lab)
    steps.met.clear()
    await prepared(client, *BOTH)
    assert steps.met == ["prepare: begin", "prepare: written", "prepare: done"]
    ending, after = client, lab
    if owner == "another":
        client.close()
        ending = other
        await until(lambda: all(not branch.is_owned for branch in lab.server.xa._by_xid.values()))
    elif owner == "another process":
        await lab.stop()
        after = Lab(engine_in(tmp_path, steps), users=USERS, local_tables=True)
        await after.__aenter__()
        ending, other = await session(after), await session(after)
    await other.query("SET innodb_lock_wait_timeout = 0")
    assert await rows(other, OF_S) == await rows(other) == []
    for text in (
        "INSERT INTO s VALUES (1, 'x', 9)",
        "INSERT INTO s VALUES (9, 'x', 1)",
        "TRUNCATE s",
    ):
        assert await errno(other, text) == 1205
    steps.met.clear()
    await ending.query(f"XA {end} 'q'")
    assert steps.met[-1] == f"{end.lower()}: done"
    there = end == "COMMIT"
    assert await rows(other, OF_S) == ([("1", "b", "1")] if there else [])
    assert await rows(other) == ([("1", "a", "1")] if there else [])
    assert await errno(other, "INSERT INTO s VALUES (1, 'x', 1)") == (1062 if there else 0)
    if after is not lab:
        await after.stop()


async def test_xa_whose_part_cannot_be_prepared_is_rolled_back(lab: Lab, steps: Steps) -> None:
    client = await session(lab)

    def fail(step: str) -> None:
        if step == "prepare: written":
            raise sqlite3.OperationalError("disk I/O error")

    steps.then = fail
    with pytest.raises(RemoteError) as error:
        await prepared(client, *BOTH)
    assert error.value.errno == 1026
    assert await rows(client, "XA RECOVER") == []
    steps.then = lambda _: None
    await prepared(client, *BOTH)
    await client.query("XA COMMIT 'q'")
    assert (await rows(client, OF_S), await rows(client)) == ([("1", "b", "1")], [("1", "a", "1")])


async def test_a_client_that_goes_while_xa_is_prepared(lab: Lab, steps: Steps) -> None:
    """It is prepared, or gone: in both engines."""
    one, other = await session(lab), await session(lab)
    go_on = threading.Event()

    def stand_still(step: str) -> None:
        if step == "prepare: written":
            go_on.wait(10)

    steps.then = stand_still
    task = asyncio.create_task(prepared(one, *BOTH))
    await until(lambda: "prepare: written" in steps.met)
    one.close()
    task.cancel()
    assert (
        await rows(other, OF_S) == []
    )  # behind the end of the other one, which nobody reads while it commits
    go_on.set()
    await until(lambda: len(lab.server.connections) == 2)  # it, and the one that made the tables
    assert isinstance(lab.engine, IbbEngine)
    keeper = lab.engine.row_keeper
    assert keeper is not None
    await other.query("SET innodb_lock_wait_timeout = 20")
    for _ in await rows(other, "XA RECOVER"):
        await other.query("XA ROLLBACK 'q'")
    await other.query("INSERT INTO s VALUES (1, 'y', 1)")
    await other.query("INSERT INTO t VALUES (1, 'y', 1)")
    assert keeper.recover() == []


async def test_truncate_and_drop(lab: Lab, tmp_path: Path, steps: Steps) -> None:
    client = await session(lab)
    for text in (
        "INSERT INTO s VALUES (1, 'x', 1)",
        "TRUNCATE s",
        "INSERT INTO s VALUES (1, 'y', 1)",
        "CREATE TABLE other (id INT PRIMARY KEY) ENGINE=SQLITE",
        "INSERT INTO other VALUES (1)",
        "DROP TABLE other",
    ):
        await client.query(text)
    assert await rows(client, OF_S) == [("1", "y", "1")]
    await lab.stop()
    engine = engine_in(tmp_path, steps)
    assert isinstance(engine.row_keeper, SqliteRows)
    assert len(list(engine.row_keeper.rows())) == 2
    engine.close()


async def test_shown(lab: Lab) -> None:
    client = await session(lab)
    engines = await rows(client, "SHOW ENGINES")
    assert [(row[0], *row[3:]) for row in engines] == [
        ("InnoDB", "YES", "YES", "YES"),
        ("MyISAM", "NO", "NO", "NO"),
        ("Aria", "NO", "NO", "NO"),
        ("SQLITE", "YES", "YES", "YES"),
    ]
    sql = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema='shop' ORDER BY 1"
    assert await rows(client, sql) == [("s", "SQLITE"), ("t", "InnoDB")]


async def test_a_store_without_a_directory() -> None:
    async with Lab(users=USERS, local_tables=True) as lab:
        client = await lab.root()
        await client.query(SCHEMA[0])
        assert await errno(client, TABLES[0]) == 1235
