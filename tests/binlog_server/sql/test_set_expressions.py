"""SET with values that have to be computed, as a real 11.8 sets them (asked there)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from binlog_protocol.errors import RemoteError

from tests.binlog_server.lab import ROOT, Client, Lab


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Lab(users=ROOT) as lab:
        yield await lab.root()


@pytest.mark.parametrize(
    ("text", "asked", "found"),
    [
        ("SET sql_select_limit=1+1, @a=IF(1,2,3)", "@@sql_select_limit, @a", ["2", "2"]),
        ("SET @q := (@r := 5)", "@q, @r", ["5", "5"]),
        ("SET long_query_time=2e0", "@@long_query_time", ["2.000000"]),
        ("SET @b=(SELECT 1), @c = NULL", "@b, @c", ["1", None]),
        ("SET autocommit=1=1", "@@autocommit", ["1"]),
        ("SET @t = CONCAT('a;', 'b, c=', \"d\"), @u=(1)", "@t, @u", ["a;b, c=d", "1"]),
        (
            "SET GLOBAL net_write_timeout=3+4, net_read_timeout=8, @@lock_wait_timeout=5*2",
            "@@global.net_write_timeout, @@global.net_read_timeout, @@lock_wait_timeout",
            ["7", "8", "10"],
        ),
        (
            "SET sql_mode = REPLACE(CONCAT_WS(',', @@sql_mode, 'ANSI_QUOTES'), ',,', ',')",
            "@@sql_mode",
            [
                "ANSI_QUOTES,STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,"
                "NO_ENGINE_SUBSTITUTION"
            ],
        ),
        ("SET /*!40101 @v=1 +*/ 2 ;", "@v", ["3"]),
    ],
)
async def test_computed(client: Client, text: str, asked: str, found: list[str | None]) -> None:
    await client.query(text)
    assert await client.query(f"SELECT {asked}") == [found]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SET net_write_timeout=2e0", 1232),
        ("SET net_write_timeout=CONCAT('1')", 1232),
        ("SET no_such=1+1", 1193),
        ("SET @a=1+", 1064),
        ("SET @a=1+1, nonsense", 1064),
        ("SET +", 1064),
        ("SET @a=nothing+1", 1054),
        ("SET @a=(SELECT 1 UNION SELECT 2)", 1242),
        ("SET @a=SLEEP(1)", 1235),
        ("SET @a=(SELECT port FROM information_schema.processlist)", 1235),
    ],
)
async def test_refused(client: Client, text: str, number: int) -> None:
    """Nothing is set."""
    with pytest.raises(RemoteError) as caught:
        await client.query(text.replace("SET ", "SET @before=1+1, ", 1))
    assert caught.value.errno == number
    assert await client.query("SELECT @a, @before") == [[None, None]]


async def test_a_bomb(client: Client) -> None:
    """NULL, and the warning of computing it is that of the SET."""
    await client.query("SET @a=REPEAT('x', 100000000)")
    assert [row[1] for row in await client.query("SHOW WARNINGS")] == ["1301"]
    assert await client.query("SELECT @a") == [[None]]
    await client.query("SET @a=1/0")
    assert await client.query("SHOW WARNINGS") == [["Warning", "1365", "Division by 0"]]


async def test_autocommit_by_an_expression_commits(client: Client) -> None:
    await client.query("BEGIN")
    await client.query("SET autocommit=1-1")
    assert await client.query("SELECT @@in_transaction, @@autocommit") == [["1", "0"]]
    await client.query("SET autocommit=1*1")
    assert await client.query("SELECT @@in_transaction, @@autocommit") == [["0", "1"]]
