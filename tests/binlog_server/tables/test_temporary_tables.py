"""CREATE TEMPORARY TABLE: a table of one session, which hides others, is logged nowhere, and ends with the session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from binlog_protocol.connection.commands import ResetConnection
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.tables.rows import TEMPORARY

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import STORE, Client, Lab, until
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import errno, rows
from tests.storage.groups import read_all

USERS = {
    "root": Account("pw", frozenset({"ALL PRIVILEGES"})),
    "own": Account("pw", frozenset({"CREATE TEMPORARY TABLES"})),
    "reader": Account("pw", frozenset({"SELECT"})),
}
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT UNIQUE)",
    "INSERT INTO shop.t VALUES (1, 1), (2, 2)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


async def session(lab: Lab, user: str = "root") -> Client:
    client = await lab.client(user, "pw")
    await client.query("USE shop")
    return client


async def told(client: Client, *texts: str) -> None:
    for text in texts:
        await client.query(text)


async def changed(client: Client, text: str) -> int:
    await client.query(text)
    return int((await rows(client, "SELECT ROW_COUNT()"))[0][0])


def groups(lab: Lab) -> list[list[EventType]]:
    """The kinds of events of each group behind the schema's."""
    lab.engine.sync()
    found = [[EventType(event[4]) for event in split_events(one)] for one in read_all(lab.engine)]
    return found[4:]


def numbers(lab: Lab) -> list[int]:
    """The temporary tables of the store."""
    return [n for n in lab.server.tables.store.memory.tables if n & TEMPORARY]


async def test_it_is_a_table_of_its_session(lab: Lab) -> None:
    root, other = await session(lab), await session(lab)
    await told(
        root,
        "CREATE TEMPORARY TABLE x (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(10) UNIQUE)",
        "INSERT INTO x (a) VALUES ('a'), ('b')",
        "UPDATE x SET a = 'c' WHERE id = 1",
        "INSERT INTO x (a) VALUES ('c') ON DUPLICATE KEY UPDATE a = 'd'",
        "DELETE FROM x WHERE a = 'b'",
        "REPLACE INTO x VALUES (9, 'z')",
    )
    assert await rows(root, "SELECT * FROM x") == [("1", "d"), ("9", "z")]
    assert await rows(root, "SELECT x.a, t.n FROM x JOIN t ON x.id = t.id") == [("d", "1")]
    assert await errno(root, "INSERT INTO x VALUES (9, 'q')") == 1062
    assert await errno(other, "SELECT * FROM x") == 1146
    assert groups(lab) == []
    await root.query("DROP TEMPORARY TABLE x")
    assert await errno(root, "SELECT * FROM x") == 1146
    assert numbers(lab) == []


async def test_it_hides_a_table(lab: Lab) -> None:
    root, other = await session(lab), await session(lab)
    await told(root, "CREATE TEMPORARY TABLE t LIKE t", "INSERT INTO t VALUES (7, 7)")
    assert await rows(root, "SELECT id FROM t") == [("7",)]
    assert await rows(other, "SELECT id FROM t") == [("1",), ("2",)]
    shown = (await rows(root, "SHOW CREATE TABLE t"))[0][1]
    assert shown.startswith("CREATE TEMPORARY TABLE `t` (\n  `id` int(11) NOT NULL AUTO_INCREMENT")
    kinds = "SELECT table_type, temporary FROM information_schema.tables WHERE table_name = 't'"
    assert await rows(root, kinds) == [("TEMPORARY", "Y"), ("BASE TABLE", "N")]
    assert await rows(root, "SHOW TABLES") == [("t",), ("t",)]
    for text in ("ALTER TABLE t ADD x INT", "CREATE INDEX i ON t (n)", "RENAME TABLE t TO u"):
        assert await errno(root, text) == 1235
    await root.query("TRUNCATE TABLE t")
    assert await rows(root, "SELECT id FROM t") == []
    assert groups(lab) == []
    await root.query("DROP TABLE t")  # the temporary one
    assert await rows(root, "SELECT id FROM t") == [("1",), ("2",)]
    assert groups(lab) == []
    await root.query("DROP TABLE t")
    assert len(groups(lab)) == 1


async def test_show_is_about_the_one_that_hides(lab: Lab) -> None:
    """Columns and keys are those of the table that statements find; information_schema has the others', as an 11.8."""
    root, own, other = await session(lab), await session(lab, "own"), await session(lab)
    await told(root, "CREATE TEMPORARY TABLE t (z VARCHAR(5) DEFAULT 'x', KEY k (z))")
    for text in ("SHOW COLUMNS FROM t", "DESCRIBE t", "DESC shop.t", "EXPLAIN t"):
        assert await rows(root, text) == [("z", "varchar(5)", "YES", "MUL", "x", "")]
        assert [row[0] for row in await rows(other, text)] == ["id", "n"]
    assert await rows(root, "SHOW COLUMNS FROM t LIKE 'n'") == []
    keys = "SHOW KEYS FROM t WHERE Non_unique >= 0"
    assert [(row[2], row[4]) for row in await rows(root, keys)] == [("k", "z")]
    assert [(row[2], row[4]) for row in await rows(other, keys)] == [("PRIMARY", "id"), ("n", "n")]
    columns = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'shop'"
    assert await rows(root, columns) == [("id",), ("n",)]
    assert await rows(root, "SHOW FULL TABLES LIKE 't'") == [
        ("t", "TEMPORARY TABLE"),
        ("t", "BASE TABLE"),
    ]
    await told(own, "CREATE TEMPORARY TABLE mine (a INT PRIMARY KEY)")
    assert [row[0] for row in await rows(own, "DESCRIBE mine")] == ["a"]
    assert [row[2] for row in await rows(own, "SHOW INDEX FROM mine")] == ["PRIMARY"]
    assert await errno(own, "DESCRIBE t") == 1142


async def test_without_a_key(lab: Lab) -> None:
    root = await session(lab)
    await told(
        root,
        "CREATE TEMPORARY TABLE x (a INT, b INT, KEY (a))",
        "INSERT INTO x VALUES (1, 1), (1, 1), (2, 5)",
    )
    assert await rows(root, "SELECT * FROM x") == [("1", "1"), ("1", "1"), ("2", "5")]
    assert await changed(root, "UPDATE x SET b = b + 1") == 3
    assert await changed(root, "UPDATE x SET b = 2 WHERE a = 1") == 0
    assert await changed(root, "DELETE FROM x WHERE a = 1 LIMIT 1") == 1
    assert await rows(root, "SELECT * FROM x ORDER BY b DESC") == [("2", "6"), ("1", "2")]
    assert await errno(root, "CREATE TABLE y (a INT)") == 1173


async def test_of_a_query(lab: Lab) -> None:
    root = await session(lab)
    await told(
        root,
        "CREATE TEMPORARY TABLE x AS SELECT id, n + 10 AS m FROM t",
        "CREATE TEMPORARY TABLE t SELECT * FROM t",  # of the one that it hides
        "CREATE OR REPLACE TEMPORARY TABLE t (w INT DEFAULT 3) SELECT m + 1 AS k FROM x",
        "CREATE OR REPLACE TEMPORARY TABLE x SELECT * FROM t",
        "DROP TABLE t",
        "CREATE TEMPORARY TABLE IF NOT EXISTS x (a INT)",
    )
    assert await rows(root, "SELECT * FROM x") == [("3", "12"), ("3", "13")]
    assert await errno(root, "CREATE TEMPORARY TABLE x (a INT)") == 1050
    assert await errno(root, "CREATE OR REPLACE TEMPORARY TABLE x SELECT * FROM x") == 1137
    assert await errno(root, "CREATE TEMPORARY TABLE y (UNIQUE (a)) SELECT 1 a FROM t") == 1062
    assert await errno(root, "SELECT * FROM y") == 1146
    assert groups(lab) == []
    await root.query("INSERT INTO t SELECT k, k FROM x")
    (group,) = groups(lab)
    assert EventType.TABLE_MAP in group
    assert await rows(root, "SELECT id FROM t") == [("1",), ("2",), ("12",), ("13",)]


async def test_transactions(lab: Lab) -> None:
    """What is changed in it is committed and undone with the rest; CREATE and DROP end no transaction."""
    root = await session(lab)
    await told(
        root,
        "BEGIN",
        "INSERT INTO t VALUES (3, 3)",
        "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY)",
        "INSERT INTO x VALUES (1)",
        "SAVEPOINT a",
        "INSERT INTO x VALUES (2)",
        "INSERT INTO t VALUES (4, 4)",
        "ROLLBACK TO a",
    )
    assert await rows(root, "SELECT id FROM x") == [("1",)]
    await root.query("CREATE TEMPORARY TABLE y SELECT id FROM t WHERE id = 3")
    await root.query("INSERT INTO y VALUES (4)")
    await root.query("ROLLBACK")
    assert await rows(root, "SELECT id FROM x") == []
    assert await rows(root, "SELECT id FROM y") == [("3",)]  # as in an 11.8
    assert await rows(root, "SELECT COUNT(*) FROM t") == [("2",)]
    await told(root, "BEGIN", "INSERT INTO x VALUES (5)", "COMMIT")
    assert groups(lab) == []
    await told(root, "BEGIN", "INSERT INTO x VALUES (6)", "INSERT INTO t VALUES (6, 6)", "COMMIT")
    assert len(groups(lab)) == 1
    await told(root, "BEGIN", "INSERT INTO x VALUES (7)", "DROP TEMPORARY TABLE x", "ROLLBACK")
    await told(root, "INSERT INTO t VALUES (7, 7)")
    assert await errno(root, "SELECT * FROM x") == 1146
    assert await rows(root, "SELECT id FROM t") == [("1",), ("2",), ("6",), ("7",)]


async def test_mixed_with_logged_rows_over_a_start(lab: Lab) -> None:
    """Steps of the undo that the log has not are left out of what it says of the others."""
    root = await session(lab)
    await told(root, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY)", "BEGIN")
    for i in range(700):
        await root.query(f"INSERT INTO {'x' if i % 3 else 't'} (id) VALUES ({10 + i})")
    await told(root, "ROLLBACK", "INSERT INTO t VALUES (5, 5)")
    assert await rows(root, "SELECT id FROM x") == []
    disk = lab.directory.disk
    await lab.stop()
    async with Lab(IbbEngine(disk, STORE), users=USERS, local_tables=True) as again:
        client = await session(again)
        assert await rows(client, "SELECT id FROM t") == [("1",), ("2",), ("5",)]
        assert numbers(again) == []


async def test_statement_format_logs_rows(lab: Lab) -> None:
    root = await session(lab)
    await told(
        root,
        "SET SESSION binlog_format = STATEMENT",
        "CREATE TEMPORARY TABLE x SELECT 5 AS a",
        "INSERT INTO x VALUES (6)",
        "INSERT INTO t SELECT a, a FROM x",
        "UPDATE t SET n = 50 WHERE id = 5",
    )
    lab.engine.sync()
    texts = [
        QueryEvent.parse(event).text
        for payload in read_all(lab.engine)
        for event in split_events(payload)
        if event[4] == EventType.QUERY
    ]
    assert texts[-1] == b"UPDATE t SET n = 50 WHERE id = 5"
    assert not any(b"x" in text.split() for text in texts)


@pytest.mark.parametrize("engine", ["MEMORY", "HEAP", "MyISAM", "Aria"])
async def test_without_transactions(lab: Lab, engine: str) -> None:
    root = await session(lab)
    await told(
        root,
        f"CREATE TEMPORARY TABLE x (id INT PRIMARY KEY) ENGINE={engine}",
        "BEGIN",
        "INSERT INTO x VALUES (1)",
        "ROLLBACK",
        "INSERT INTO x VALUES (2)",
    )
    assert await errno(root, "INSERT INTO x VALUES (3), (2), (4)") == 1062
    assert await rows(root, "SELECT id FROM x") == [("1",), ("2",), ("3",)]
    assert groups(lab) == []
    assert await errno(root, "CREATE TABLE y (id INT PRIMARY KEY) ENGINE=MEMORY") == 1235


ROLLBACKS = [  # what is done in a transaction, its end, and whether an 11.8 warns (1196)
    (["INSERT INTO m VALUES (1)"], "ROLLBACK", True),
    (["INSERT INTO m VALUES (1)", "SAVEPOINT a"], "ROLLBACK TO a", True),
    (["SAVEPOINT a", "INSERT INTO m VALUES (1)"], "COMMIT", False),
    (["DELETE FROM m WHERE id = 7"], "ROLLBACK", False),
    (["UPDATE m SET id = id"], "ROLLBACK", False),
    (["INSERT INTO m VALUES (1), (0)"], "ROLLBACK", True),
    (["CREATE TEMPORARY TABLE o ENGINE=MyISAM SELECT 1 AS a"], "ROLLBACK", True),
    (["INSERT INTO x VALUES (1)", "CREATE TEMPORARY TABLE o SELECT 1 AS a"], "ROLLBACK", False),
    (["SAVEPOINT a", "CREATE TEMPORARY TABLE o (a INT)"], "ROLLBACK TO a", True),
    (["SAVEPOINT a", "DROP TEMPORARY TABLE x"], "ROLLBACK TO a", True),
    (["INSERT INTO t VALUES (9, 9)", "DROP TEMPORARY TABLE x"], "ROLLBACK", False),
]


@pytest.mark.parametrize(("texts", "end", "warns"), ROLLBACKS)
async def test_a_rollback_says_what_it_leaves(
    lab: Lab, texts: list[str], end: str, warns: bool
) -> None:
    root = await session(lab)
    await told(
        root,
        "CREATE TEMPORARY TABLE m (id INT PRIMARY KEY) ENGINE=MEMORY SELECT 0 AS id",
        "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY)",
        "BEGIN",
    )
    for text in texts:
        assert await errno(root, text) in ((0, 1062) if "(0)" in text else (0,))
    await root.query(end)
    assert [row[1] for row in await rows(root, "SHOW WARNINGS")] == ["1196"] * warns
    await root.query("ROLLBACK")
    assert groups(lab) == []


async def test_it_ends_with_the_session(lab: Lab) -> None:
    root = await session(lab)
    await told(
        root, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY)", "BEGIN", "INSERT INTO x VALUES (1)"
    )
    await root.ask(ResetConnection().build())
    assert await errno(root, "SELECT * FROM shop.x") == 1146
    await told(root, "USE shop", "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, n INT UNIQUE)")
    assert len(numbers(lab)) == 2
    await root.query("INSERT INTO x VALUES (1, 1)")
    root.close()
    await until(lambda: not numbers(lab))


async def test_who_may_do_that(lab: Lab) -> None:
    own, reader = await session(lab, "own"), await session(lab, "reader")
    await told(
        own,
        "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY)",
        "INSERT INTO x VALUES (1)",
        "DELETE FROM x WHERE id = 1",
    )
    assert await rows(own, "SELECT * FROM x") == []
    assert await errno(own, "CREATE TEMPORARY TABLE y LIKE t") == 1142
    assert await errno(own, "CREATE TEMPORARY TABLE y SELECT * FROM t") == 1142
    assert await errno(reader, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY)") == 1044
    assert await errno(own, "DROP TEMPORARY TABLE x, nothing") == 1051
    assert await errno(own, "SELECT * FROM x") == 1142


async def test_what_is_refused(lab: Lab) -> None:
    root = await session(lab)
    await root.query("CREATE TEMPORARY TABLE x (id INT PRIMARY KEY)")
    assert await errno(root, "CREATE TABLE y LIKE x") == 1235
    await root.query("XA START 'a'")
    assert await errno(root, "INSERT INTO x VALUES (1)") == 1235
    await told(root, "XA END 'a'", "XA ROLLBACK 'a'", "START TRANSACTION READ ONLY")
    await root.query("INSERT INTO x VALUES (1)")
    for text in (
        "INSERT INTO t VALUES (8, 8)",
        "CREATE TEMPORARY TABLE y (a INT)",
        "DROP TEMPORARY TABLE x",
    ):
        assert await errno(root, text) == 1792


def held(lab: Lab) -> int:
    """Bytes of all temporary tables, as the store counts them."""
    store = lab.server.tables.store
    return sum(store.temporary_bytes(number, 1) for number in numbers(lab))


async def test_its_memory_is_counted(lab: Lab) -> None:
    root = await session(lab)
    await told(root, "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, a VARCHAR(700) UNIQUE)")
    assert held(lab) == 0
    await root.query("INSERT INTO x VALUES (1, REPEAT('a', 700)), (2, NULL), (3, 'c')")
    full = held(lab)
    assert full > 1400  # the row and its entry
    await told(root, "BEGIN", "UPDATE x SET a = REPEAT('b', 500) WHERE id = 1", "SAVEPOINT a")
    assert held(lab) > full + 1000
    await told(root, "DELETE FROM x", "INSERT INTO x VALUES (4, 'd')", "ROLLBACK TO a", "ROLLBACK")
    assert held(lab) == full
    await told(root, "UPDATE x SET a = 'a' WHERE id = 1", "DELETE FROM x WHERE id > 1")
    assert 0 < held(lab) < 1400
    await root.query("DELETE FROM x")
    assert held(lab) == 0


async def test_its_memory_has_an_end(lab: Lab) -> None:
    """1114 at a quarter of what all sessions may have: the statement is undone, but in a table without transactions."""
    config = lab.server.config
    lab.server.config = replace(
        config, max_total_session_mem_used=1 << 20, max_allowed_packet=1 << 18
    )
    root = await session(lab)
    more = "INSERT INTO {} (a) VALUES (REPEAT('x', 60000)), (REPEAT('y', 60000))"
    await told(
        root,
        "CREATE TEMPORARY TABLE x (a TEXT)",
        "CREATE TEMPORARY TABLE m (a MEDIUMTEXT) ENGINE=MyISAM",
        "BEGIN",
        more.format("x"),
        "INSERT INTO m VALUES (REPEAT('x', 60000))",
    )
    assert await errno(root, more.format("x")) == 1114
    assert await errno(root, more.format("m")) == 1114
    counted = "SELECT (SELECT COUNT(*) FROM x), (SELECT COUNT(*) FROM m)"
    assert await rows(root, counted) == [("2", "3")]
    await root.query("DROP TEMPORARY TABLE x")  # the transaction can undo what it did there
    await root.query("CREATE TEMPORARY TABLE x (a TEXT)")
    assert await errno(root, more.format("x")) == 1114
    selected = "CREATE TEMPORARY TABLE y SELECT a FROM m"
    assert await errno(root, selected) == 1114
    await told(root, "COMMIT", "TRUNCATE TABLE m", more.format("x"))
    selected = "CREATE TEMPORARY TABLE y{} SELECT a FROM x"
    await root.query(selected.format(1))
    assert await errno(root, selected.format(2)) == 1114
    await told(root, "DROP TEMPORARY TABLE x, m, y1", "CREATE TEMPORARY TABLE x (a TEXT)")
    await root.query(more.format("x"))
    assert lab.server.session_memory.held > 120_000
    await root.query("DROP TEMPORARY TABLE x")
    assert numbers(lab) == []
