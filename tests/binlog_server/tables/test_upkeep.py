"""ANALYZE, OPTIMIZE, REPAIR TABLE; EXPLAIN SELECT; lists of many tables; who may USE a database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import WITH_ROOT, Client, Lab
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import errno
from tests.storage.groups import read_all

USERS = {
    **WITH_ROOT,
    "reader": Account("pw", frozenset({"SELECT"})),
    "nobody": Account("pw", frozenset({"PROCESS"})),
}
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT UNIQUE, v VARCHAR(20))",
    "CREATE TABLE shop.m (id INT PRIMARY KEY) ENGINE=MyISAM",
    "INSERT INTO shop.t VALUES (1,1,'a'),(2,2,'b'),(3,3,'c')",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


async def session(lab: Lab, user: str = "root") -> Client:
    client = await lab.client(user, "pw")
    await client.query("USE shop")
    return client


def texts(lab: Lab) -> list[str]:
    lab.engine.sync()
    events = [event for payload in read_all(lab.engine) for event in split_events(payload)]
    return [QueryEvent.parse(e).text.decode() for e in events if e[4] == EventType.QUERY][3:]


async def test_upkeep_is_logged_as_text(lab: Lab) -> None:
    root = await session(lab)
    assert await root.query("ANALYZE TABLE t, m, nope") == [
        ["shop.t", "analyze", "status", "OK"],
        ["shop.m", "analyze", "status", "Table is already up to date"],
        ["shop.nope", "analyze", "Error", "Table 'shop.nope' doesn't exist"],
        ["shop.nope", "analyze", "status", "Operation failed"],
    ]
    recreated = "Table does not support optimize, doing recreate + analyze instead"
    assert await root.query("OPTIMIZE TABLE t") == [
        ["shop.t", "optimize", "note", recreated],
        ["shop.t", "optimize", "status", "OK"],
    ]
    for text in ("OPTIMIZE LOCAL TABLE t", "ANALYZE NO_WRITE_TO_BINLOG TABLE t"):
        assert (await root.query(text))[-1][-1] == "OK"
    await root.query("REPAIR TABLE t QUICK")
    assert texts(lab) == [
        "ANALYZE TABLE `shop`.`t`,`shop`.`m`,`shop`.`nope`",
        "OPTIMIZE TABLE `shop`.`t`",
        "REPAIR TABLE `shop`.`t`",
    ]
    reader = await session(lab, "reader")
    assert await errno(reader, "ANALYZE TABLE t") == 1142


async def test_upkeep_commits(lab: Lab) -> None:
    root = await session(lab)
    await root.query("BEGIN")
    await root.query("DELETE FROM t")
    await root.query("ANALYZE LOCAL TABLE t")
    await root.query("ROLLBACK")
    assert await root.query("SELECT COUNT(*) FROM t") == [["0"]]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("SELECT * FROM t", [("1", "SIMPLE", "t", "ALL", None, None, "3", "")]),
        ("SELECT * FROM t x WHERE n=1", [("1", "SIMPLE", "x", "const", "n", "5", "1", "")]),
        (
            "SELECT * FROM t WHERE id>1 AND v='a'",
            [("1", "SIMPLE", "t", "range", "PRIMARY", "4", "3", "Using where")],
        ),
        (
            "SELECT * FROM t ORDER BY n LIMIT 1",
            [("1", "SIMPLE", "t", "index", "n", "5", "3", "")],
        ),
        ("SELECT 1", [("1", "SIMPLE", None, None, None, None, None, "No tables used")]),
        (
            "SELECT id FROM t UNION SELECT id FROM m",
            [
                ("1", "PRIMARY", "t", "ALL", None, None, "3", ""),
                ("2", "UNION", "m", "ALL", None, None, "0", ""),
                (None, "UNION RESULT", "<union1,2>", "ALL", None, None, None, ""),
            ],
        ),
        (
            "SELECT * FROM t JOIN m USING (id) WHERE id IN (SELECT n FROM t)",
            [
                ("1", "PRIMARY", "t", "ALL", None, None, "3", "Using where"),
                ("1", "PRIMARY", "m", "ALL", None, None, "0", "Using where"),
                ("2", "SUBQUERY", "t", "ALL", None, None, "3", ""),
            ],
        ),
    ],
)
async def test_explain(lab: Lab, question: str, found: list[tuple[str | None, ...]]) -> None:
    root = await session(lab)
    for verb in ("EXPLAIN", "DESC"):
        rows = await root.query(f"{verb} {question}")
        told = [(row[0], row[1], row[2], row[3], row[5], row[6], row[8], row[9]) for row in rows]
        assert told == found


async def test_explain_is_refused_as_the_question_is(lab: Lab) -> None:
    root = await session(lab)
    assert await errno(root, "EXPLAIN SELECT nope FROM t") == 1054
    assert await errno(root, "EXPLAIN SELECT * FROM nope") == 1146
    assert await errno(root, "EXPLAIN EXTENDED SELECT * FROM t") == 1235
    assert await errno(root, "ANALYZE SELECT * FROM t") == 1235


async def test_a_list_of_many_tables(lab: Lab) -> None:
    root = await session(lab)
    many = ",".join(f"shop.nope{n}" for n in range(150))
    assert await errno(root, f"DROP TABLE {many}") == 1051
    assert await errno(root, f"DROP TABLE IF EXISTS {many}, t") == 0
    assert await root.query("SHOW TABLES") == [["m"]]
    with pytest.raises(RemoteError, match="of so many tables in one statement"):
        await root.query("DROP TABLE " + ",".join(f"n{n}" for n in range(3000)))


async def test_a_database_for_which_an_account_has_no_privilege(lab: Lab) -> None:
    nobody = await lab.client("nobody", "pw")
    for text in ("USE shop", "SHOW CREATE DATABASE shop"):
        with pytest.raises(
            RemoteError, match=r"Access denied for user 'nobody'@'127.0.0.1' to database"
        ):
            await nobody.query(text)
    assert await errno(nobody, "USE information_schema") == 0
    await session(lab, "reader")


async def test_the_option_says_how_long_a_lock_is_waited_for() -> None:
    async with Lab(users=USERS, local_tables=True, innodb_lock_wait_timeout=0) as lab:
        root = await lab.root()
        for text in SCHEMA:
            await root.query(text)
        one, other = await session(lab), await session(lab)
        await one.query("BEGIN")
        await one.query("UPDATE t SET n=9 WHERE id=1")
        assert await errno(other, "UPDATE t SET n=8 WHERE id=1") == 1205
        assert await other.query("SELECT @@innodb_lock_wait_timeout") == [["0"]]


async def test_check_table_commits_what_is_open(lab: Lab) -> None:
    """As in a live 11.8, also where it fails; CHECKSUM TABLE does not."""
    root = await session(lab)
    in_transaction = "SELECT @@in_transaction"
    for number, text in enumerate(
        (
            "CHECK TABLE t",
            "CHECK TABLE nope",
            "EXECUTE IMMEDIATE 'CHECK TABLE t'",
            "CHECK VIEW t FOR UPGRADE",
        ),
        10,
    ):
        await root.query("BEGIN")
        await root.query(f"INSERT INTO t (id) VALUES ({number})")
        await root.query("CHECKSUM TABLE t")
        assert await root.query(in_transaction) == [["1"]]
        assert await root.query(text), "rows of a result"
        assert await root.query(in_transaction) == [["0"]]
        await root.query("ROLLBACK")
    assert await root.query("SELECT id FROM t WHERE id >= 10") == [
        [str(id)] for id in range(10, 14)
    ]
    assert await errno(root, "CHECK VIEW t QUICK") == 1064
    await root.query("XA START 'x'")
    assert await errno(root, "CHECK TABLE t") == 1399
