"""Sessions on tables that are here: what they see of each other, how they wait, what is in the binlog then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query, StmtPrepare
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import RowsEvent
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.wire.results import parse_ok
from binlog_storage.binlog.store import IbbEngine

from binlog_server.accounts.users import Account
from binlog_server.tables.held import HeldTables
from tests.binlog_server.lab import ROOT, STORE, Client, Lab, until
from tests.binlog_server.tables.scene import lab_with
from tests.storage.groups import read_all

USERS = {
    **ROOT,
    "replay": Account("pw", frozenset({"BINLOG REPLAY"})),
    "reader": Account("pw", frozenset({"SELECT"})),
    "writer": Account("pw", frozenset({"INSERT", "UPDATE"})),
    "nobody": Account("pw", frozenset({"USAGE"})),
}
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20), n INT NOT NULL DEFAULT 0)",
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with lab_with(*SCHEMA, users=USERS) as lab:
        yield lab


async def session(lab: Lab, user: str = "root") -> Client:
    client = await lab.client(user, "pw")
    if user == "root":
        await client.query("USE shop")
    return client


async def errno(client: Client, sql: str) -> int:
    try:
        await client.query(sql)
    except RemoteError as error:
        return error.errno
    return 0


async def rows(client: Client, sql: str = "SELECT id, a, n FROM shop.t ORDER BY id") -> list[Any]:
    return [tuple(row) for row in await client.query(sql)]


def groups(lab: Lab) -> list[list[bytes]]:
    """The events of the groups behind those of the schema."""
    lab.engine.sync()
    found = [list(split_events(payload)) for payload in read_all(lab.engine) if payload[4] == 162]
    return found[len(SCHEMA) :]


def kinds(group: list[bytes]) -> str:
    names = {
        EventType.GTID: "G",
        EventType.ANNOTATE_ROWS: "A",
        EventType.TABLE_MAP: "T",
        EventType.WRITE_ROWS_V1: "W",
        EventType.UPDATE_ROWS_V1: "U",
        EventType.DELETE_ROWS_V1: "D",
        EventType.QUERY: "Q",
        EventType.XID: "X",
        EventType.INTVAR: "i",
        EventType.RAND: "r",
        EventType.USER_VAR: "v",
    }
    return "".join(names[EventType(event[4])] for event in group)


async def test_statements_become_row_events(lab: Lab) -> None:
    client = await session(lab)
    for text in (
        "INSERT INTO t (a) VALUES ('one'), ('two')",
        "UPDATE t SET n = n WHERE id = 1",  # changes nothing: no group
        "DELETE FROM t WHERE id = 77",
        "BEGIN",
        "UPDATE t SET n = 5",
        "DELETE FROM t WHERE id = 1",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (9, 'gone', 1)",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT s",
        "INSERT INTO t VALUES (9, 'gone', 1)",
        "ROLLBACK TO s",
        "COMMIT",
        "TRUNCATE t",
    ):
        await client.query(text)
    assert await errno(client, "INSERT INTO t VALUES (1, 'a', 1), (1, 'b', 1)") == 1062
    found = groups(lab)
    assert [kinds(group) for group in found] == ["GATWX", "GATUATDX", "GQ"]
    flags = [GtidEvent.parse(group[0]).flags2 for group in found]
    assert flags[0] == GtidFlags.TRANSACTIONAL | GtidFlags.ALLOW_PARALLEL
    assert flags[2] == GtidFlags.STANDALONE | GtidFlags.ALLOW_PARALLEL | GtidFlags.DDL
    table = TableMap.parse(found[0][2])
    assert [column.name for column in table.columns] == ["id", "a", "n"]  # full metadata
    event = RowsEvent.parse(found[0][3])
    assert [row.after for row in event.rows(table)] == [(1, "one", 0), (2, "two", 0)]
    assert QueryEvent.parse(found[2][1]).text == b"TRUNCATE TABLE `shop`.`t`"


async def test_what_ok_says(lab: Lab) -> None:
    client = await session(lab)

    async def said(sql: str) -> tuple[int, int, bytes]:
        answer = parse_ok(await client.ask(Query(sql).build()))
        return answer.affected_rows, answer.insert_id, answer.info

    assert await said("INSERT INTO t (a) VALUES ('a')") == (1, 1, b"")
    told = b"Records: 2  Duplicates: 0  Warnings: 0"
    assert await said("INSERT INTO t (a) VALUES ('b'), ('c')") == (2, 2, told)
    assert await said("INSERT INTO t VALUES (50, 'd', 1)") == (1, 50, b"")
    assert await said("INSERT INTO t VALUES (NULL, 'e', 1)") == (1, 51, b"")
    none_matched = b"Rows matched: 0  Changed: 0  Warnings: 0"
    told = b"Rows matched: 5  Changed: 3  Warnings: 0"
    assert await said("UPDATE t SET n = 1") == (3, 0, told)
    assert await said("DELETE FROM t WHERE id > 2") == (3, 0, b"")
    assert await said("TRUNCATE t") == (0, 0, b"")
    assert await said("INSERT INTO t (a) VALUES ('a')") == (1, 1, b"")
    # LAST_INSERT_ID(x) is told, also where no row becomes another: so programs get numbers of their own.
    told = b"Rows matched: 1  Changed: 1  Warnings: 0"
    assert await said("UPDATE t SET n = LAST_INSERT_ID(n + 7)") == (1, 7, told)
    assert await said("UPDATE t SET n = LAST_INSERT_ID(n + 7) WHERE id = 9") == (0, 0, none_matched)
    unchanged = "ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)"
    assert await said(f"INSERT INTO t (id, a) VALUES (1, 'z') {unchanged}") == (0, 1, b"")
    assert await said("INSERT IGNORE INTO t (id, a) VALUES (1, 'z')") == (0, 0, b"")
    assert await said("DELETE FROM t WHERE id = LAST_INSERT_ID(6)") == (0, 0, b"")
    assert await said("DROP DATABASE shop") == (1, 0, b"")


async def test_warnings_of_questions_are_errors_of_changes(lab: Lab) -> None:
    client = await session(lab)
    await client.query("INSERT INTO t VALUES (1, 'a', 1)")
    await client.query("SET group_concat_max_len = 4")
    for text, number in (
        ("INSERT INTO t (n) VALUES (1 / 0)", 1365),
        ("UPDATE t SET n = n / 0", 1365),
        ("INSERT INTO t (n) VALUES (LENGTH(REPEAT('x', 2000000)))", 1301),
        ("UPDATE t SET n = LENGTH(SPACE(id * 2000000))", 1301),
        ("INSERT INTO t (a) SELECT GROUP_CONCAT(a, '2345') FROM t", 1260),
        ("UPDATE t SET n = a + 1", 1292),
        ("INSERT INTO t (n) VALUES (SLEEP(1))", 1235),
        ("UPDATE t SET n = GET_LOCK('x', 1)", 1235),
    ):
        assert await errno(client, text) == number, text
    assert await rows(client) == [("1", "a", "1")]
    await client.query("INSERT INTO t (a) VALUES ('b')")
    assert await rows(client, "SELECT LAST_INSERT_ID()") == [("2",)]
    await client.query("CREATE TABLE u (id INT PRIMARY KEY)")
    assert [kinds(group) for group in groups(lab)] == ["GATWX", "GATWX", "GQ"]


async def test_safe_updates(lab: Lab) -> None:
    """What `mariadb --safe-updates` says of itself."""
    client = await session(lab)
    await client.query("INSERT INTO t (a, n) VALUES ('a', 1), ('b', 2), ('c', 3)")
    await client.query("SET sql_safe_updates = 1")
    for text in (
        "DELETE FROM t",
        "DELETE FROM t LIMIT 1",
        "DELETE FROM t WHERE n = 1",
        "UPDATE t SET n = 5",
        "UPDATE t SET n = 5 WHERE n = 1 ORDER BY id",
    ):
        assert await errno(client, text) == 1175, text
    assert await rows(client) == [("1", "a", "1"), ("2", "b", "2"), ("3", "c", "3")]
    for text in (
        "UPDATE t SET n = 7 LIMIT 1",
        "UPDATE t SET n = n + 1 WHERE id = 1",
        "DELETE FROM t WHERE n = 2 LIMIT 1",
        "DELETE FROM t WHERE id > 2",
        "INSERT INTO t (a, n) SELECT a, n FROM t",
    ):
        await client.query(text)
    assert await rows(client) == [("1", "a", "8"), ("4", "a", "8")]
    await client.query("SET sql_safe_updates = 0")
    await client.query("DELETE FROM t")


async def test_numbers_of_rows_that_are_rolled_back_are_gone(lab: Lab) -> None:
    client = await session(lab)
    for text in (
        "BEGIN",
        "INSERT INTO t (a) VALUES ('a'), ('b')",
        "ROLLBACK",
        "INSERT INTO t (a) VALUES ('c')",
        "SET auto_increment_increment=10, auto_increment_offset=3",
        "INSERT INTO t (a) VALUES ('d'), ('e')",
        "INSERT INTO t VALUES (100, 'f', 0), (NULL, 'g', 0)",
    ):
        await client.query(text)
    assert [row[0] for row in await rows(client)] == ["3", "13", "23", "100", "103"]


async def test_isolation(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t VALUES (1, 'a', 0)")
    await other.query("BEGIN")
    await one.query("BEGIN")
    assert len(await rows(other)) == 1  # takes the view of REPEATABLE READ
    await one.query("INSERT INTO t VALUES (2, 'b', 0)")
    assert (len(await rows(one)), len(await rows(other))) == (2, 1)
    await one.query("COMMIT")
    assert len(await rows(other)) == 1
    await other.query("INSERT INTO t VALUES (3, 'c', 0)")
    assert [row[0] for row in await rows(other)] == ["1", "3"]
    await other.query("COMMIT")
    assert len(await rows(other)) == 3
    await other.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    await other.query("BEGIN")
    assert len(await rows(other)) == 3
    await one.query("DELETE FROM t WHERE id = 1")
    assert len(await rows(other)) == 2
    await other.query("COMMIT")
    await other.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    await other.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    await one.query("DELETE FROM t")
    assert len(await rows(other)) == 2
    await other.query("COMMIT")
    await other.query("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    await other.query("BEGIN")
    assert await errno(other, "SELECT * FROM t") == 1235


async def waiting(lab: Lab) -> None:
    """Somebody waits for a lock."""
    engine = lab.engine
    assert isinstance(engine, IbbEngine)
    await until(lambda: engine.tables.locks.waiting > 0)


async def test_a_row_is_waited_for(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)")
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = 1 WHERE id = 1")
    late = asyncio.create_task(other.query("UPDATE t SET n = n + 10"))
    await waiting(lab)
    assert await rows(one) == [("1", "a", "1"), ("2", "b", "0")]
    await one.query("UPDATE t SET n = 2 WHERE id = 1")
    await one.query("COMMIT")
    await late
    assert await rows(one) == [("1", "a", "12"), ("2", "b", "10")]


async def test_a_row_is_waited_for_no_longer_than_allowed(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)")
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = 1 WHERE id = 2")
    await other.query("SET innodb_lock_wait_timeout=0")
    await other.query("BEGIN")
    await other.query("INSERT INTO t VALUES (3, 'c', 0)")
    assert await errno(other, "UPDATE t SET n = 9") == 1205
    await other.query("COMMIT")  # only the statement is undone
    await one.query("COMMIT")
    assert await rows(one) == [("1", "a", "0"), ("2", "b", "1"), ("3", "c", "0")]


async def test_who_waits_in_a_circle_is_rolled_back(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0)")
    for client, number in ((one, 1), (other, 2)):
        await client.query("BEGIN")
        await client.query(f"UPDATE t SET n = {number} WHERE id = {number}")
    await one.query("INSERT INTO t VALUES (3, 'c', 0)")
    late = asyncio.create_task(one.query("UPDATE t SET n = 7 WHERE id = 2"))
    await waiting(lab)
    assert await errno(other, "UPDATE t SET n = 7 WHERE id = 1") == 1213
    assert await rows(other, "SELECT @@in_transaction") == [("0",)]
    await late
    await one.query("COMMIT")
    assert await rows(one) == [("1", "a", "1"), ("2", "b", "7"), ("3", "c", "0")]


async def test_a_wait_ends_with_its_session(lab: Lab) -> None:
    one, other, third = [await session(lab) for _ in range(3)]
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 'a', 0)")
    number = (await rows(other, "SELECT CONNECTION_ID()"))[0][0]
    await other.query("BEGIN")
    await other.query("INSERT INTO t VALUES (5, 'e', 0)")
    late = asyncio.create_task(errno(other, "INSERT INTO t VALUES (1, 'b', 0)"))
    await waiting(lab)
    await third.query(f"KILL QUERY {number}")
    assert await late == 1317
    assert len(await rows(other)) == 1  # its transaction goes on
    await third.query(f"KILL {number}")
    await third.query("INSERT INTO t VALUES (5, 'mine', 0)")
    one.close()
    await third.query("INSERT INTO t VALUES (1, 'mine', 0)")
    assert [row[1] for row in await rows(third)] == ["mine", "mine"]


async def test_ddl_waits_for_rows_and_rows_for_ddl(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 'a', 0)")
    await other.query("SET innodb_lock_wait_timeout=0")
    assert await errno(other, "DROP TABLE t") == 1205
    await other.query("SET innodb_lock_wait_timeout=50")
    late = asyncio.create_task(other.query("TRUNCATE t"))
    await waiting(lab)
    await one.query("COMMIT")
    await late
    assert await rows(one) == []
    await one.query("INSERT INTO t (a) VALUES ('first')")
    assert await rows(one) == [("1", "first", "0")]
    assert await errno(one, "CREATE TABLE t (id INT PRIMARY KEY)") == 1050
    await one.query("DROP DATABASE shop")
    assert await errno(one, "INSERT INTO t VALUES (1)") == 1046
    assert await errno(other, "INSERT INTO t VALUES (1)") == 1146
    assert await errno(other, "CREATE TABLE shop.t (id INT PRIMARY KEY)") == 1049
    assert await errno(other, "DROP TABLE shop.t") == 1051
    assert await errno(other, "TRUNCATE shop.t") == 1146
    assert await errno(other, "DROP DATABASE shop") == 1008
    assert await errno(other, "CREATE PROCEDURE shop.p() SELECT 1") == 1235
    await one.query("DROP DATABASE IF EXISTS shop")
    await one.query("CREATE DATABASE shop")
    assert await errno(one, "CREATE DATABASE shop") == 1007


async def test_restart(lab: Lab) -> None:
    client = await session(lab)
    await client.query("INSERT INTO t (a) VALUES ('kept'), ('gone')")
    await client.query("DELETE FROM t WHERE id = 2")
    await client.query("CREATE TABLE u (id INT PRIMARY KEY)")
    await client.query("BEGIN")
    await client.query("INSERT INTO u VALUES (1)")
    disk = lab.directory.disk
    await lab.stop()
    async with Lab(IbbEngine(disk, STORE), users=USERS, local_tables=True) as again:
        other = await session(again)
        assert await rows(other) == [("1", "kept", "0")]
        assert await rows(other, "SELECT COUNT(*) FROM u") == [("0",)]
        await other.query("INSERT INTO t (a) VALUES ('new')")
        assert await rows(other) == [("1", "kept", "0"), ("3", "new", "0")]


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("PIPES_AS_CONCAT", "SELECT 'a' || 'b'"),
        ("HIGH_NOT_PRECEDENCE", "SELECT NOT 1 BETWEEN -5 AND 5"),
        ("EMPTY_STRING_IS_NULL", "INSERT INTO t (a) VALUES ('')"),
        ("PAD_CHAR_TO_FULL_LENGTH", "SELECT a FROM t"),
        ("SIMULTANEOUS_ASSIGNMENT", "UPDATE t SET id = n, n = id"),
        ("REAL_AS_FLOAT", "CREATE TABLE u (id INT PRIMARY KEY, r REAL)"),
        ("ORACLE", "CREATE TABLE u (id INT PRIMARY KEY, d DATE)"),
        ("TIME_ROUND_FRACTIONAL", "INSERT INTO moments VALUES (1, '2024-12-31 23:59:59.9', NULL)"),
        ("TIME_ROUND_FRACTIONAL", "INSERT INTO moments VALUES (1, NULL, '10:11:12.9')"),
    ],
)
async def test_what_a_mode_makes_another_statement(lab: Lab, mode: str, text: str) -> None:
    """Refused: read as in the default mode it would give other values."""
    client = await session(lab)
    await client.query("CREATE TABLE moments (id INT PRIMARY KEY, d DATETIME, t TIME)")
    await client.query(f"SET sql_mode = '{mode}'")
    assert await errno(client, text) == 1235
    await client.query("SET sql_mode = ''")
    assert await errno(client, text) == 0


async def test_rights(lab: Lab) -> None:
    root = await session(lab)
    await root.query("INSERT INTO t VALUES (1, 'a', 0)")
    reader, writer, nobody = [await session(lab, name) for name in ("reader", "writer", "nobody")]
    assert len(await rows(reader)) == 1
    assert await errno(reader, "INSERT INTO shop.t VALUES (2, 'b', 0)") == 1142
    assert await errno(reader, "DROP TABLE shop.t") == 1142
    assert await errno(reader, "DROP DATABASE shop") == 1044
    await writer.query("INSERT INTO shop.t VALUES (2, 'b', 0)")
    assert await errno(writer, "SELECT * FROM shop.t") == 1142
    assert await errno(writer, "UPDATE shop.t SET n = 1 WHERE id = 1") == 1142  # it would read
    assert await errno(writer, "UPDATE shop.t SET n = a") == 1142  # an error would tell the value
    assert await errno(writer, "UPDATE shop.t SET n = n + 1") == 1142
    assert await errno(writer, "UPDATE shop.t SET a = DEFAULT(a)") == 1142
    await writer.query("UPDATE shop.t SET a = DEFAULT, n = 1 + 1")
    await writer.query("UPDATE shop.t SET a = 'b'")
    assert await errno(writer, "DELETE FROM shop.t") == 1142
    assert await errno(nobody, "SELECT * FROM shop.t") == 1142
    assert await errno(nobody, "CREATE TABLE shop.u (id INT PRIMARY KEY)") == 1142
    assert await rows(nobody, "SHOW DATABASES") == [
        ("information_schema",),
        ("performance_schema",),
    ]
    assert await errno(nobody, "INSERT INTO elsewhere.t VALUES (1)") == 1227
    assert await errno(root, "INSERT INTO elsewhere.t VALUES (1)") == 1146  # no text by mistake


async def test_rights_of_what_is_prepared(lab: Lab) -> None:
    """They are asked for when it is prepared: for a table here those on tables, not the one to send text."""

    async def prepared(user: str, sql: str) -> int:
        answer = await (await session(lab, user)).ask(StmtPrepare(sql.encode()).build())
        return int.from_bytes(answer[1:3], "little") if answer[:1] == b"\xff" else 0

    insert = "INSERT INTO shop.t VALUES (?, ?, ?)"
    assert await prepared("writer", insert) == 0
    assert await prepared("reader", insert) == 1142
    assert await prepared("writer", "DELETE FROM shop.t WHERE id = ?") == 1142
    assert await prepared("writer", "UPDATE shop.nothing SET a = ?") == 1146
    assert await prepared("root", "DROP TABLE shop.t") == 0
    assert await prepared("nobody", "INSERT INTO elsewhere.t VALUES (?)") == 1227
    assert await prepared("replay", "INSERT INTO elsewhere.t VALUES (?)") == 0


async def test_text_for_what_is_not_here(lab: Lab) -> None:
    """An account with BINLOG REPLAY alone makes no database here, and its text goes on as ever."""
    replay = await session(lab, "replay")
    for text in (
        "CREATE DATABASE elsewhere",
        "CREATE TABLE elsewhere.t (a ENUM('x'))",
        "INSERT INTO elsewhere.t SELECT a FROM shop.t",
        "BEGIN",
        "INSERT INTO elsewhere.t VALUES ('x')",
        "INSERT INTO shop.t VALUES (1, 'a', 0)",
        "COMMIT",
    ):
        await replay.query(text)
    assert [kinds(group) for group in groups(lab)] == ["GQ", "GQ", "GQX", "GQATWX"]
    assert await errno(replay, "SELECT * FROM elsewhere.t") == 1235
    for text in (
        "UPDATE elsewhere.t, shop.t SET n = 1",
        "DELETE shop.t FROM elsewhere.t JOIN shop.t",
        "DROP TABLE elsewhere.t, shop.t",
        "RENAME TABLE elsewhere.t TO shop.u",
        "CREATE TRIGGER shop.x BEFORE INSERT ON shop.t FOR EACH ROW SET @a = 1",
        "LOCK TABLES shop.t READ, elsewhere.t READ",
        "INSERT INTO shop.t SELECT * FROM elsewhere.t",
        "INSERT INTO elsewhere.t VALUES ('x') RETURNING a",
        "ALTER TABLE shop.t ADD FOREIGN KEY (n) REFERENCES shop.t (n)",
        "ALTER DATABASE shop CHARACTER SET utf8mb3",
        "SET STATEMENT sql_log_bin=0 FOR INSERT INTO shop.t VALUES (8, 'a', 0)",
    ):
        assert await errno(replay, text) == 1235, text
    await replay.query("GRANT SELECT ON shop.* TO somebody")  # is for replicas
    await replay.query("USE shop")
    await replay.query("INSERT INTO elsewhere.t VALUES ('x')")
    await replay.query("INSERT INTO t VALUES (7, 'a', 0)")
    assert [kinds(group) for group in groups(lab)][-2:] == ["GQX", "GATWX"]


async def test_without_the_option_nothing_is_here() -> None:
    async with Lab(users=USERS) as lab:
        client = await lab.root()
        await client.query("CREATE DATABASE shop")
        await client.query("CREATE TABLE shop.t (a ENUM('x'))")
        await client.query("INSERT INTO shop.t VALUES ('x')")
        assert await errno(client, "SELECT * FROM shop.t") == 1235
        assert not lab.server.tables.has_any


async def test_a_table_that_is_younger_than_the_view(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("CREATE TABLE u (id INT PRIMARY KEY)")
    await one.query("BEGIN")
    await rows(one)  # takes the view of REPEATABLE READ
    await other.query("TRUNCATE u")
    await other.query("CREATE TABLE v (id INT PRIMARY KEY)")
    for text in ("SELECT * FROM u", "SELECT * FROM u WHERE id = 1", "SELECT * FROM v"):
        assert await errno(one, text) == 1412, text
    await one.query("COMMIT")
    assert await errno(one, "SELECT * FROM u JOIN v ON u.id = v.id") == 0


async def test_the_time_to_wait_is_that_of_the_statement(lab: Lab) -> None:
    """Not that of the transaction's beginning."""
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t VALUES (1, 'a', 0)")
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = 1")
    await other.query("BEGIN")
    await other.query("INSERT INTO t VALUES (2, 'b', 0)")
    await other.query("SET innodb_lock_wait_timeout=0")
    assert await errno(other, "UPDATE t SET n = 2 WHERE id = 1") == 1205


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("CREATE TABLE t (id INT PRIMARY KEY)", 1050),
        ("DROP TABLE u", 1051),
        ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)", 0),
        ("TRUNCATE u", 1146),
    ],
)
async def test_what_ddl_commits_is_durable_before_its_answer(
    lab: Lab, text: str, number: int
) -> None:
    """Also where the DDL itself does nothing, or fails."""
    one = await session(lab)
    await one.query("BEGIN")
    await one.query("INSERT INTO t VALUES (1, 'a', 0)")
    assert await errno(one, text) == number
    engine = lab.engine
    assert isinstance(engine, IbbEngine)
    assert engine.durable_end == engine.written_end
    assert len(groups(lab)) == 1


@pytest.mark.parametrize(
    "text", ["TRUNCATE t", "LOCK TABLES t WRITE", "ALTER TABLE t DROP COLUMN n"]
)
async def test_what_ddl_commits_is_durable_while_the_ddl_waits(lab: Lab, text: str) -> None:
    """And stays so, whatever becomes of the DDL: nobody else has to commit."""
    one, other = await session(lab), await session(lab)
    await one.query("CREATE TABLE u (id INT PRIMARY KEY)")
    await other.query("BEGIN")
    await other.query("INSERT INTO t VALUES (1, 'a', 0)")
    await one.query("BEGIN")
    await one.query("INSERT INTO u VALUES (1)")
    late = asyncio.create_task(errno(one, text))
    await waiting(lab)
    engine = lab.engine
    assert isinstance(engine, IbbEngine)
    await until(lambda: engine.durable_end == engine.written_end, 5)  # by itself it takes ten
    assert len(groups(lab)) == 2
    (number,) = [row[0] for row in await other.query("SHOW PROCESSLIST") if row[7] == text]
    await other.query(f"KILL {number}")
    assert await late == 1927
    await other.query("ROLLBACK")
    assert len(groups(lab)) == 2


# --- ALTER, RENAME ---


async def test_a_view_that_is_older_than_an_alteration_is_told(lab: Lab) -> None:
    client, other = await session(lab), await session(lab)
    await client.query("INSERT INTO t (a) VALUES ('x')")
    await other.query("BEGIN")
    assert len(await rows(other)) == 1
    await client.query("ALTER TABLE t ADD c INT NOT NULL DEFAULT 5 FIRST")
    assert await errno(other, "SELECT * FROM t") == 1412
    await client.query("CREATE TABLE young (id INT PRIMARY KEY)")
    assert await errno(other, "SELECT * FROM young") == 1412
    await other.query("ROLLBACK")
    assert await rows(other, "SELECT * FROM t") == [("5", "1", "x", "0")]
    await other.query("BEGIN")
    assert len(await rows(other, "SELECT * FROM t")) == 1
    await client.query("ALTER TABLE t RENAME COLUMN c TO d")  # the rows are the same
    assert await rows(other, "SELECT d FROM t") == [("5",)]


async def test_an_alteration_waits_for_who_has_changed_rows(lab: Lab) -> None:
    client, other = await session(lab), await session(lab)
    await other.query("BEGIN")
    await other.query("INSERT INTO t (a) VALUES ('x')")
    await client.query("SET innodb_lock_wait_timeout=1")
    for text in ("ALTER TABLE t ADD c INT", "RENAME TABLE t TO u", "ALTER TABLE t COMMENT='x'"):
        assert await errno(client, text) == 1205
    waiting = asyncio.ensure_future(client.query("ALTER TABLE t RENAME TO u, DROP a"))
    behind = await session(lab)
    engine = lab.engine
    assert isinstance(engine, IbbEngine)
    await until(lambda: engine.tables.locks.waiting > 0)
    late = asyncio.ensure_future(errno(behind, "INSERT INTO t (a) VALUES ('late')"))
    await other.query("COMMIT")
    await waiting
    assert await late == 1146
    assert await rows(client, "SELECT * FROM u") == [("1", "0")]


async def test_an_alteration_that_fails_leaves_the_table(lab: Lab) -> None:
    client = await session(lab)
    await client.query("INSERT INTO t (a) VALUES ('1'), ('x')")
    before = await rows(client, "SHOW CREATE TABLE t")
    for text, number in (
        ("ALTER TABLE t ADD c INT, MODIFY a INT", 1292),
        ("ALTER TABLE t ADD UNIQUE (n)", 1062),
        ("ALTER TABLE t RENAME TO nowhere.t", 1049),
        ("RENAME TABLE t TO u, missing TO v", 1146),
        ("RENAME TABLE t TO u, u TO u", 1050),
        ("ALTER TABLE missing ADD c INT", 1146),
        ("CREATE INDEX i ON t (missing)", 1072),
        ("DROP INDEX i ON t", 1091),
    ):
        assert await errno(client, text) == number, text
    assert await rows(client, "SHOW CREATE TABLE t") == before
    assert await rows(client, "SELECT a FROM t ORDER BY id") == [("1",), ("x",)]
    assert kinds(groups(lab)[-1]) == "GATWX"
    await client.query("SET sql_mode=''")
    await client.query("ALTER TABLE t MODIFY a INT")
    assert await rows(client, "SELECT a FROM t ORDER BY id") == [("1",), ("0",)]
    assert [row[1] for row in await rows(client, "SHOW WARNINGS")] == []  # of SELECT


async def test_tables_change_places_and_stay_so_behind_a_restart(lab: Lab) -> None:
    client = await session(lab)
    await client.query("CREATE TABLE u (id INT PRIMARY KEY, b INT)")
    await client.query("INSERT INTO t (a) VALUES ('x')")
    await client.query("INSERT INTO u VALUES (7, 8)")
    await client.query("RENAME TABLE t TO v, u TO t, v TO u")
    await client.query("INSERT INTO t VALUES (9, 10)")
    await client.query("INSERT INTO u (a) VALUES ('y')")
    events = [event for group in groups(lab)[-2:] for event in group]
    maps = [TableMap.parse(event) for event in events if event[4] == EventType.TABLE_MAP]
    assert [(one.table, len(one.columns)) for one in maps] == [("t", 2), ("u", 3)]
    await client.query("CREATE UNIQUE INDEX ab ON u (a, n)")
    assert await errno(client, "INSERT INTO u (a) VALUES ('y')") == 1062
    assert isinstance(lab.engine, IbbEngine)
    again = HeldTables(lab.engine)
    assert sorted(again.databases["shop"].tables) == ["t", "u"]
    assert [key.name for key in again.databases["shop"].tables["u"].definition.keys] == [
        "PRIMARY",
        "ab",
    ]


async def test_who_may_alter(lab: Lab) -> None:
    writer = await session(lab, "writer")
    for text in (
        "ALTER TABLE shop.t ADD c INT",
        "CREATE INDEX i ON shop.t (n)",
        "RENAME TABLE shop.t TO shop.u",
    ):
        assert await errno(writer, text) == 1142


async def test_an_update_that_changes_nothing_keeps_its_locks(lab: Lab) -> None:
    one, other = await session(lab), await session(lab)
    await one.query("INSERT INTO t (n) VALUES (1), (2)")
    await other.query("SET innodb_lock_wait_timeout=0")
    await one.query("BEGIN")
    await one.query("UPDATE t SET n = n WHERE id = 1")
    assert await errno(other, "UPDATE t SET n = 9 WHERE id = 1") == 1205
    assert await errno(other, "UPDATE t SET n = n WHERE id = 1") == 1205
    assert await errno(other, "UPDATE t SET n = 9 WHERE id = 2") == 0
    await one.query("COMMIT")
    assert await errno(other, "UPDATE t SET n = 9 WHERE id = 1") == 0


async def test_insert_id_is_given_up_behind_1205(lab: Lab) -> None:
    """And the counter is where it was: the row that had the number is not there."""
    one, other = await session(lab), await session(lab)
    await one.query("ALTER TABLE t ADD UNIQUE (n)")
    await other.query("SET innodb_lock_wait_timeout=0")
    await one.query("BEGIN")
    await one.query("INSERT INTO t (n) VALUES (7)")
    await other.query("SET INSERT_ID=500")
    assert await errno(other, "INSERT INTO t (n) VALUES (7)") == 1205
    await one.query("ROLLBACK")
    await other.query("INSERT INTO t (n) VALUES (8)")
    assert await other.query("SELECT id FROM t") == [["2"]]


COMMITTED = "READ COMMITTED"
REPEATABLE = "REPEATABLE READ"
NEXT = "SET TRANSACTION ISOLATION LEVEL "
ALWAYS = "SET SESSION TRANSACTION ISOLATION LEVEL "


@pytest.mark.parametrize(
    "steps",
    [
        # Statements of one session; a level stands where its transaction is to read as at that.
        (NEXT + COMMITTED, "BEGIN", COMMITTED, "COMMIT", "BEGIN", REPEATABLE),
        (NEXT + COMMITTED, "BEGIN", COMMITTED, "BEGIN", REPEATABLE),
        (NEXT + COMMITTED, "BEGIN", "COMMIT AND CHAIN", COMMITTED, "COMMIT", "BEGIN", REPEATABLE),
        (
            NEXT + COMMITTED,
            "BEGIN",
            "ROLLBACK AND CHAIN",
            COMMITTED,
            "ROLLBACK",
            "BEGIN",
            REPEATABLE,
        ),
        (NEXT + COMMITTED, "ROLLBACK", "BEGIN", REPEATABLE),
        (NEXT + COMMITTED, "SELECT COUNT(*) FROM t", "BEGIN", REPEATABLE),
        (NEXT + COMMITTED, "SELECT 1", "BEGIN", COMMITTED),
        (NEXT + COMMITTED, "UPDATE t SET n = 1 WHERE id = 0", "BEGIN", REPEATABLE),
        (NEXT + COMMITTED, "CREATE TABLE IF NOT EXISTS w (a INT PRIMARY KEY)", "BEGIN", REPEATABLE),
        (NEXT + COMMITTED, "START TRANSACTION WITH CONSISTENT SNAPSHOT", COMMITTED),
        (NEXT + COMMITTED, ALWAYS + REPEATABLE, "BEGIN", REPEATABLE),
        (
            NEXT + COMMITTED,
            "XA START 'a'",
            COMMITTED,
            "XA END 'a'",
            "XA ROLLBACK 'a'",
            "BEGIN",
            REPEATABLE,
        ),
        (
            "SET @@tx_isolation = 'READ-COMMITTED'",
            "BEGIN",
            COMMITTED,
            "COMMIT",
            "BEGIN",
            REPEATABLE,
        ),
        (NEXT + COMMITTED, "SET @@transaction_isolation = DEFAULT", "BEGIN", REPEATABLE),
        (ALWAYS + COMMITTED, NEXT + REPEATABLE, "BEGIN", REPEATABLE, "COMMIT", "BEGIN", COMMITTED),
        ("BEGIN", ALWAYS + COMMITTED, REPEATABLE, "COMMIT", "BEGIN", COMMITTED),
        ("SET autocommit = 0", NEXT + COMMITTED, COMMITTED, "COMMIT", REPEATABLE),
        (
            "SET autocommit = 0",
            ALWAYS + COMMITTED,
            COMMITTED,
            ALWAYS + REPEATABLE,
            COMMITTED,
            "COMMIT",
            REPEATABLE,
        ),
    ],
    ids=lambda steps: "; ".join(steps),
)
async def test_the_isolation_of_one_transaction(lab: Lab, steps: tuple[str, ...]) -> None:
    """Each has been compared with a live 11.8."""
    one, other = await session(lab), await session(lab)
    count = "SELECT COUNT(*) FROM t"
    for step in steps:
        if step not in (COMMITTED, REPEATABLE):
            await one.query(step)
            continue
        before = await rows(one, count)
        await other.query("INSERT INTO t VALUES ()")
        assert (await rows(one, count) != before) == (step == COMMITTED)


async def test_a_read_is_the_transaction_that_was_to_be_read_only(lab: Lab) -> None:
    one = await session(lab)
    for read, number in (("SELECT 1", 1792), ("SELECT COUNT(*) FROM t", 0)):
        await one.query("SET TRANSACTION READ ONLY")
        await one.query(read)
        assert await errno(one, "INSERT INTO t VALUES ()") == number


# What the session then asks for by the unique key; rows of u as id, a.
BY_A = (
    "SELECT id, a FROM u WHERE a = 'x'",
    "SELECT id, a FROM u WHERE a IN ('w', 'x', 'y') ORDER BY a, id",
    "SELECT id, a FROM u WHERE a >= 'x' ORDER BY a DESC, id",
    "SELECT id, a FROM u WHERE a BETWEEN 'a' AND 'x' ORDER BY a",
    "SELECT COUNT(*) FROM u WHERE a = 'x'",
    "SELECT id, a FROM u WHERE a IS NULL ORDER BY id",
)


@pytest.mark.parametrize(
    "own",
    [
        ("INSERT INTO u VALUES (3, 'x')",),
        ("INSERT INTO u VALUES (3, 'x')", "DELETE FROM u WHERE id = 3"),
        ("INSERT INTO u VALUES (3, 'x')", "UPDATE u SET a = 'w' WHERE id = 3"),
        ("INSERT INTO u VALUES (3, 'x')", "UPDATE u SET id = 4 WHERE id = 3"),
        ("UPDATE u SET a = 'x' WHERE id = 9",),
        ("UPDATE u SET a = NULL WHERE id = 9", "INSERT INTO u VALUES (1, 'z')"),
    ],
    ids=" then ".join,
)
async def test_a_view_keeps_rows_whose_values_the_transaction_has_taken(
    lab: Lab, own: tuple[str, ...]
) -> None:
    """Another session gives row 6 another value; the transaction's own row takes the old one. By the unique key row 6
    is found as by a look at all rows: its entry is hidden by what the transaction has made of that.
    """
    writer, reader = await session(lab), await session(lab)
    await writer.query("CREATE TABLE u (id INT PRIMARY KEY, a VARCHAR(10), UNIQUE KEY (a))")
    await writer.query("INSERT INTO u VALUES (6, 'x'), (9, 'z')")
    await reader.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    await writer.query("UPDATE u SET a = 'y' WHERE id = 6")
    for statement in own:
        await reader.query(statement)
    for question in BY_A:
        # The same without any path: no condition here is of a column by itself.
        without = question.replace("WHERE a ", "WHERE CONCAT(a, '') ")
        assert await reader.query(question) == await reader.query(without), question
    found = await reader.query("SELECT id FROM u WHERE a = 'x' ORDER BY id")
    assert ["6"] in [[*row] for row in found]


@pytest.mark.parametrize("begin", ["BEGIN", "SET autocommit = 0"])
@pytest.mark.parametrize("text", ["PREPARE p FROM 'SELECT n FROM t'", "CHECK TABLE t"])
async def test_what_is_prepared_or_checked_keeps_no_view(lab: Lab, begin: str, text: str) -> None:
    """As in a live 11.8: what others commit between PREPARE and EXECUTE is seen."""
    one, other = await session(lab), await session(lab)
    await other.query("INSERT INTO t (id, n) VALUES (1, 1)")
    await one.query(begin)
    await one.query(text)
    if begin != "BEGIN":
        assert await one.query("SELECT @@in_transaction") == [["0"]]
    await other.query("UPDATE t SET n = 2")
    assert await one.query("SELECT n FROM t") == [["2"]]
