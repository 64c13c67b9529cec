"""FOUND_ROWS(), ROW_COUNT(), LAST_INSERT_ID(), sql_select_limit and DO, as a real 11.8 has them (asked there)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from binlog_protocol.connection.commands import ResetConnection
from binlog_protocol.errors import RemoteError

from tests.binlog_server.lab import ROOT, Client, Lab


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Lab(users=ROOT) as lab:
        yield await lab.root()


THREE = "SELECT 1 UNION SELECT 2 UNION SELECT 3"


@pytest.mark.parametrize(
    ("statement", "found", "count"),
    [
        (THREE, "3", "-1"),
        ("SELECT 5", "1", "-1"),
        (f"SELECT * FROM ({THREE}) t LIMIT 1", "1", "-1"),
        (f"SELECT SQL_CALC_FOUND_ROWS * FROM ({THREE}) t LIMIT 1", "3", "-1"),
        (f"SELECT SQL_CALC_FOUND_ROWS * FROM ({THREE}) t ORDER BY 1 LIMIT 1, 1", "3", "-1"),
        ("SHOW DATABASES LIKE 'inf%'", "1", "-1"),
        ("SELECT 1 FROM DUAL WHERE 0", "0", "-1"),
        ("SET @a = 1", "1", "0"),
        ("BEGIN", "1", "0"),
        ("DO 1, 2", "1", "0"),
        ("INSERT INTO t VALUES (1)", "1", "1"),
        ("INSERT INTO t VALUES (/* long way */ 1)", "1", "1"),
        ("CREATE TABLE t (a INT)", "1", "0"),
        ("SELECT nothing", "1", "-1"),
    ],
)
async def test_rows(client: Client, statement: str, found: str, count: str) -> None:
    try:
        await client.query(statement)
    except RemoteError:
        assert statement == "SELECT nothing"
    assert await client.query("SELECT FOUND_ROWS(), ROW_COUNT()") == [[found, count]]
    assert await client.query("SELECT FOUND_ROWS(), ROW_COUNT()") == [["1", "-1"]]


async def test_last_insert_id(client: Client) -> None:
    assert await client.query("SELECT LAST_INSERT_ID()") == [["0"]]
    assert await client.query("SELECT LAST_INSERT_ID(5)") == [["5"]]
    asked = "SELECT LAST_INSERT_ID(), @@last_insert_id, @@identity"
    assert await client.query(asked) == [["5", "5", "5"]]
    await client.query("SET last_insert_id = 7")
    assert await client.query(asked) == [["7", "7", "7"]]
    await client.query("DO LAST_INSERT_ID(3)")
    assert await client.query("SELECT LAST_INSERT_ID()") == [["3"]]


async def test_sql_select_limit(client: Client) -> None:
    await client.query("SET sql_select_limit = 2")
    assert await client.query(THREE) == [["1"], ["2"]]
    assert await client.query(f"{THREE} LIMIT 3") == [["1"], ["2"], ["3"]]
    assert await client.query(f"SELECT COUNT(*) FROM ({THREE}) t") == [["3"]]
    await client.query("SET sql_select_limit = 0")
    assert await client.query("SELECT 1") == []
    await client.query("SET sql_select_limit = DEFAULT")
    assert len(await client.query(THREE)) == 3


async def test_pipes_that_would_mean_something_else_are_refused(client: Client) -> None:
    await client.query("SET sql_mode = 'ANSI'")
    assert await client.query("SELECT CONCAT('a||b')") == [["a||b"]]
    with pytest.raises(RemoteError) as caught:
        await client.query("SELECT 'a' || 'b'")
    assert caught.value.errno == 1235
    await client.query("SET sql_mode = ''")
    assert await client.query("SELECT 1 || 0") == [["1"]]


async def test_group_concat_max_len(client: Client) -> None:
    await client.query("SET group_concat_max_len = 4")
    asked = "SELECT GROUP_CONCAT(a ORDER BY a) FROM (SELECT 'abc' a UNION SELECT 'def') t"
    assert await client.query(asked) == [["abc,"]]
    assert await client.query("SHOW WARNINGS") == [
        ["Warning", "1260", "Row 2 was cut by group_concat()"]
    ]


async def test_do(client: Client) -> None:
    assert await client.query("DO 1/0") == []
    assert await client.query("SHOW WARNINGS") == [["Warning", "1365", "Division by 0"]]
    with pytest.raises(RemoteError) as caught:
        await client.query("DO nothing")
    assert caught.value.errno == 1054


async def test_an_isolation_level_for_the_next_transaction_is_not_the_sessions(
    client: Client,
) -> None:
    await client.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert await client.query("SELECT @@tx_isolation") == [["REPEATABLE-READ"]]
    await client.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert await client.query("SELECT @@tx_isolation") == [["READ-COMMITTED"]]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (1) RETURNING id",
        "INSERT INTO t VALUES ('a; b') /* c */ RETURNING id",
        "DELETE FROM t WHERE a = 'x' returning *",
        "REPLACE INTO t SELECT 1 RETURNING a",
        "INSERT INTO t VALUES ('" + "x" * 20_000 + "') RETURNING id",
    ],
)
async def test_returning_is_refused(client: Client, statement: str) -> None:
    """Nothing is committed: an OK would be the wrong answer, and there are no rows to give."""
    before = await client.query("SELECT @@gtid_binlog_pos")
    with pytest.raises(RemoteError) as caught:
        await client.query(statement)
    assert caught.value.errno == 1235
    assert await client.query("SELECT @@gtid_binlog_pos") == before


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES ('returning')",
        "INSERT INTO t (`returning`) VALUES (1)",
        "INSERT INTO t VALUES (1) /* RETURNING */",
        "UPDATE t SET returning_at = 1",
        "UPDATE t SET a = @returning",
    ],
)
async def test_the_word_elsewhere_is_none(client: Client, statement: str) -> None:
    await client.query(statement)


WARNED = [["Warning", "1365", "Division by 0"]]


@pytest.mark.parametrize(
    "statement",
    [
        *("SELECT 1", "SELECT @@sql_mode", "SELECT @a", "SELECT 1 UNION SELECT 2", "(SELECT 1)"),
        *("SET @a = 1", "SET NAMES utf8mb4", "SET autocommit = 1", "DO 1", "USE x", "BEGIN"),
        *("COMMIT", "ROLLBACK", "START TRANSACTION READ ONLY", "XA START 'q'", "UNLOCK TABLES"),
        *("SHOW MASTER STATUS", "SHOW PROCESSLIST", "SHOW GRANTS", "FLUSH STATUS", "XA RECOVER"),
        *("PREPARE p FROM 'SELECT 1'", "EXECUTE IMMEDIATE 'SELECT 1'", "CREATE DATABASE y"),
        *("SET STATEMENT max_statement_time=1 FOR SELECT 1", "SET ROLE NONE", "-- nothing"),
    ],
)
async def test_what_uses_no_tables_leaves_the_warnings_before_it(
    client: Client, statement: str
) -> None:
    await client.query("DO 1/0")
    await client.query(statement)
    assert await client.query("SELECT @@warning_count") == [["1"]]
    assert await client.query("SHOW COUNT(*) WARNINGS") == [["1"]]
    assert await client.query("SHOW WARNINGS") == WARNED


@pytest.mark.parametrize(
    "statement",
    [
        *("SHOW DATABASES", "SHOW VARIABLES LIKE 'x'", "SHOW STATUS LIKE 'x'", "SHOW ENGINES"),
        *("SELECT * FROM information_schema.engines", "EXECUTE IMMEDIATE 'SHOW ENGINES'"),
        *("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (/* long way */ 1)"),
        *("UPDATE t SET a = 1", "CREATE TABLE t (a INT)", "DROP TABLE t", "LOCK TABLES t READ"),
    ],
)
async def test_what_uses_tables_forgets_the_warnings_before_it(
    client: Client, statement: str
) -> None:
    await client.query("DO 1/0")
    await client.query(statement)
    assert await client.query("SHOW WARNINGS") == []


async def test_a_reset_connection_has_no_warnings(client: Client) -> None:
    await client.query("DO 1/0")
    await client.query("DO 1")
    client.command(ResetConnection().build())
    await client.answer()
    assert await client.query("SHOW WARNINGS") == []
