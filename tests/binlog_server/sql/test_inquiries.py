"""Questions over little tables, as clients ask them."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query, StmtPrepare
from binlog_protocol.errors import RemoteError
from binlog_protocol.wire.results import parse_error

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Account
from binlog_server.queries import terms
from binlog_server.queries.catalog import SCHEMAS, tables
from binlog_server.queries.running import SelectPlan
from binlog_server.queries.terms import Budget
from tests.binlog_server.lab import Client, Lab, until

NOBODY, ADMIN = "nobody", "admin"
USERS = {
    NOBODY: Account("pw", frozenset({"USAGE"})),
    ADMIN: Account("pw", frozenset({ALL_PRIVILEGES})),
}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=USERS) as running:
        running.publish("0-1-1")
        yield running


async def logged_in(lab: Lab, user: str = NOBODY) -> Client:
    client = await lab.connect()
    assert (await client.log_in(user, "pw"))[:1] == b"\0"
    return client


async def errno(client: Client, sql: str) -> int:
    with pytest.raises(RemoteError) as caught:
        await client.query(sql)
    return caught.value.errno


async def test_numbers_of_every_table_are_numbers(lab: Lab) -> None:
    """A DECIMAL that is a text breaks what computes with it: replication-manager's question to PROCESSLIST."""
    client = await logged_in(lab, ADMIN)
    for schema in SCHEMAS:
        for table in tables(schema).values():
            numbers = [
                f"`{d.name}` + 0, CASE WHEN 1 = 1 THEN `{d.name}` ELSE 0.5 END"
                for d in table.definitions
                if d.data_type in ("decimal", "bigint", "int", "double")
            ]
            if numbers:
                await client.query(f"SELECT {', '.join(numbers)} FROM {schema}.{table.name}")


async def test_set_statement_before_a_question(lab: Lab) -> None:
    """As monitors and Connector/J with a time limit ask: the setting holds for the question alone."""
    client = await logged_in(lab, ADMIN)
    setting = "SET STATEMENT lock_wait_timeout=0, max_statement_time=7 FOR "
    asked = "SELECT COUNT(*), @@max_statement_time FROM information_schema.SCHEMATA"
    ((count, limit),) = await client.query(setting + asked)
    assert int(count or 0) > 1
    assert float(limit or 0) == 7
    assert await client.query("SELECT @@max_statement_time") == [["0.000000"]]
    assert await client.query(setting + "SHOW COLUMNS FROM information_schema.SCHEMATA") != []
    assert await errno(client, setting + "SELECT a FROM shop.t") == 1235
    assert await errno(client, setting + "SELECT 1 +") == 1064
    assert await errno(client, "SET STATEMENT nope=1 FOR SELECT LEFT('a', 1)") == 1193
    assert await errno(client, "SET STATEMENT FOR SELECT LEFT('a', 1)") == 1064


@pytest.mark.parametrize(
    ("charset", "sent"),
    [
        ("latin1", [b"\xe9", b"?", b"\xe91", b"1.5"]),
        ("cp1251", [b"?", b"\xff", b"?1", b"1.5"]),
        ("gbk", [b"\xa8\xa6", b"\xa7\xf1", b"\xa8\xa61", b"1.5"]),
        ("utf8mb3", ["é".encode(), "я".encode(), "é1".encode(), b"1.5"]),
        ("binary", ["é".encode(), "я".encode(), "é1".encode(), b"1.5"]),
        (
            "utf16",
            ["é".encode(), "я".encode(), "é1".encode(), b"1.5"],
        ),  # ASCII has other bytes there
    ],
)
async def test_texts_come_in_the_character_set_of_results(
    lab: Lab, charset: str, sent: list[bytes]
) -> None:
    """As an 11.8 sends them; what is no character of the set is a question mark."""
    client = await logged_in(lab)
    await client.query(f"SET NAMES utf8mb4, character_set_results={charset}")
    (row,) = await client.query("SELECT 'é', 'я', CONCAT('é', 1), 1.5")
    assert [(value or "").encode("utf-8", "surrogateescape") for value in row] == sent
    (row,) = await client.query("SELECT 'é', 'я'")  # by the grammar
    assert [(value or "").encode("utf-8", "surrogateescape") for value in row] == sent[:2]


async def test_privileges_of_an_account_that_may_do_all(lab: Lab) -> None:
    client = await logged_in(lab, ADMIN)
    asked = "SELECT user, Select_priv, Super_priv, Reload_priv FROM mysql.user ORDER BY user"
    assert await client.query(asked) == [[ADMIN, "Y", "Y", "Y"], [NOBODY, "N", "N", "N"]]


async def test_every_table_is_there(lab: Lab) -> None:
    client = await logged_in(lab, ADMIN)
    for schema in SCHEMAS:
        for table in tables(schema).values():
            rows = await client.query(f"SELECT * FROM {schema}.{table.name}")
            assert all(len(row) == len(table.definitions) for row in rows), table.name
    counted = await client.query(
        "SELECT TABLE_NAME, COUNT(*) FROM information_schema.COLUMNS JOIN information_schema.TABLES"
        " USING (TABLE_SCHEMA, TABLE_NAME) WHERE TABLE_SCHEMA = 'information_schema' GROUP BY 1"
    )
    assert dict(counted) == {  # type: ignore[arg-type]
        t.name: str(len(t.definitions)) for t in tables("information_schema").values()
    }


async def test_what_is_ours(lab: Lab) -> None:
    client = await logged_in(lab, ADMIN)
    await client.query("CREATE BINLOG LEASE etl")
    for shown, table in {
        "SHOW BINARY LOGS": "BINLOG_FILES",
        "SHOW BINLOG LEASES": "BINLOG_LEASES",
        "SHOW BINLOG REPLICAS": "BINLOG_REPLICAS",
    }.items():
        said = await client.query(shown)
        assert await client.query(f"SELECT * FROM information_schema.{table}") == said


async def test_what_an_account_may_see(lab: Lab) -> None:
    client, admin = await logged_in(lab), await logged_in(lab, ADMIN)
    mine = await client.query("SELECT DISTINCT user FROM information_schema.PROCESSLIST")
    everybody = await admin.query("SELECT DISTINCT user FROM information_schema.PROCESSLIST")
    assert mine == [[NOBODY]]
    assert sorted(everybody) == [[ADMIN], [NOBODY]]
    assert await errno(client, "SELECT user FROM mysql.user") == 1142
    assert sorted(await admin.query("SELECT user FROM mysql.user")) == [[ADMIN], [NOBODY]]
    assert await admin.query("SELECT DISTINCT Password, authentication_string FROM mysql.user") == [
        [None, ""]
    ]
    grantees = "SELECT DISTINCT GRANTEE FROM information_schema.USER_PRIVILEGES ORDER BY 1"
    assert await client.query(grantees) == [["'nobody'@'%'"]]
    assert len(await admin.query(grantees)) == 2
    assert await client.query("SELECT * FROM information_schema.BINLOG_FILES") == []


async def test_user_variables(lab: Lab) -> None:
    client = await logged_in(lab)
    assert await client.query("SELECT @a := 1 + 1, @b := CONCAT('x', @a)") == [["2", "x2"]]
    assert await client.query("SELECT @a, @b") == [["2", "x2"]]
    many = ",".join(f"@v{n} := 1" for n in range(300))
    assert await errno(client, f"SELECT {many}") == 1231


async def test_warnings(lab: Lab) -> None:
    client = await logged_in(lab)
    assert await client.query("SELECT 1/0") == [[None]]
    assert await client.query("SHOW WARNINGS") == [["Warning", "1365", "Division by 0"]]


async def test_the_session_is_asked(lab: Lab) -> None:
    client = await logged_in(lab)
    await client.query("USE shop")
    await client.query("SET time_zone = '+02:00', timestamp = 86400")
    assert await client.query("SELECT CONCAT(DATABASE(), ' ', NOW(), ' ', @@time_zone)") == [
        ["shop 1970-01-02 02:00:00 +02:00"]
    ]
    assert await errno(client, "SELECT @@nonsense + 1") == 1193


async def test_a_sleep_holds_nobody_and_can_be_killed(lab: Lab) -> None:
    client, other = await logged_in(lab), await logged_in(lab)
    ((number,),) = await client.query("SELECT CONNECTION_ID()")
    client.command(Query("SELECT SLEEP(1000)").build())
    sleeping = (
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE info = 'SELECT SLEEP(1000)'"
    )
    while await other.query(sleeping) != [["1"]]:
        pass
    await other.query(f"KILL QUERY {number}")
    assert await client.error() == (1317, "Query execution was interrupted")
    assert await client.query("SELECT 1") == [["1"]]
    await client.query("SET max_statement_time = 0.01")
    assert await errno(client, "SELECT SLEEP(1000)") == 1969


async def test_what_takes_too_long_ends(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "PROCESSOR_S", 0.1)
    client = await logged_in(lab)
    columns = "information_schema.COLUMNS"
    began = time.thread_time()
    assert (
        await errno(client, f"SELECT COUNT(*) FROM {columns} a, {columns} b, {columns} c") == 1969
    )
    assert time.thread_time() - began < 1.0  # of the loop
    assert await client.query("SELECT 1+1") == [["2"]]


THREE = "(SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3)"
WITHOUT_END = "SELECT COUNT(*) FROM " + ",".join(f"{THREE} d{n}" for n in range(30))


class Watched:
    """The question that runs in its thread: whether one has begun, and whether none runs any longer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No question ends by itself from now on."""
        self.begun = self.running = 0
        run = SelectPlan.run

        def watched(plan: SelectPlan) -> Sequence[Sequence[Any]]:
            self.begun += 1
            self.running += 1
            try:
                return run(plan)
            finally:
                self.running -= 1

        monkeypatch.setattr(SelectPlan, "run", watched)
        monkeypatch.setattr(Budget, "begin", lambda self, _=0: setattr(self, "_ends", math.inf))

    async def ended(self) -> None:
        await until(lambda: not self.running)


ASKED = [WITHOUT_END, f"SET @a=({WITHOUT_END})", f"SET STATEMENT sql_mode='' FOR {WITHOUT_END}"]


async def test_a_client_that_leaves_ends_its_question(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await logged_in(lab), await logged_in(lab)
    question = Watched(monkeypatch)
    client.command(Query(WITHOUT_END).build())
    await until(lambda: question.begun > 0)
    client.close()
    await question.ended()
    await until(lambda: len(list(lab.server.connections)) == 1)
    assert await other.query("SELECT 2+2") == [["4"]]


@pytest.mark.parametrize("text", ASKED)
async def test_kill_query_ends_a_question_at_once(
    lab: Lab, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = await logged_in(lab), await logged_in(lab)
    ((number,),) = await client.query("SELECT CONNECTION_ID()")
    question = Watched(monkeypatch)
    client.command(Query(text).build())
    await until(lambda: question.begun > 0)
    await other.query(f"KILL QUERY {number}")
    assert (await client.error())[0] == 1317
    await question.ended()
    assert await client.query("SELECT 2+2") == [["4"]]


async def test_kill_query_ends_a_statement_that_waits_to_be_read(lab: Lab) -> None:
    """Those who read and compute for others are busy."""
    client, other = await logged_in(lab), await logged_in(lab)
    ((number,),) = await client.query("SELECT CONNECTION_ID()")
    free = threading.Event()
    runner = lab.server.runner
    busy = [thread.call("", free.wait) for thread in (runner._parser, runner._questions)]
    for text in ("SELECT 1+1", f"SET @a='{'x' * 1000}'"):
        client.command(Query(text).build())
        await until(lambda: "Query" in [c.shown_now[0] for c in lab.server.connections])
        await other.query(f"KILL QUERY {number}")
        assert (await client.error())[0] == 1317
    free.set()
    await asyncio.gather(*busy)
    assert await client.query("SELECT 1+1") == [["2"]]


async def test_a_text_that_is_too_long_is_null(lab: Lab) -> None:
    """And the connection goes on, as in MariaDB."""
    client = await logged_in(lab)
    assert await client.query("SELECT LENGTH(REPEAT('x', 1048577))") == [[None]]
    assert await client.query("SHOW WARNINGS") == [
        [
            "Warning",
            "1301",
            "Result of repeat() was larger than max_allowed_packet (1048576) - truncated",
        ]
    ]


async def test_a_text_that_stands_in_many_rows(lab: Lab) -> None:
    """It is made once, and would be sent two thousand times."""
    client = await logged_in(lab)
    long = "(SELECT REPEAT('x', 1000000) x) l"
    columns = "information_schema.COLUMNS"
    assert await errno(client, f"SELECT x FROM {columns}, {long}") == 1105
    assert await errno(client, f"SELECT {','.join(['x'] * 20)} FROM {long}") == 1105
    found = await client.query(f"SELECT x FROM {columns}, {long} LIMIT 10")
    assert [len(row[0] or "") for row in found] == [1_000_000] * 10


async def test_variables_in_another_character_set_concern_who_names_them(lab: Lab) -> None:
    client = await logged_in(lab)
    await client.query("SET NAMES latin1")
    for name, count in {"a": 40_000, "b": 40_001}.items():
        text = f"SET @{name}='" + "\udce9" * count + "'"
        query = Query(text.encode("utf-8", "surrogateescape"))
        assert (await client.ask(query.build()))[:1] == b"\0"
    await client.query("SET NAMES utf8mb4")
    assert await client.query("SELECT 1+1") == [["2"]]
    assert await errno(client, "SELECT LENGTH(@a) + LENGTH(@b)") == 1105
    assert await client.query("SELECT 1+1") == [["2"]]


async def test_memory_of_questions_that_wait_is_counted(lab: Lab) -> None:
    """Their trees, and then their rows while the client does not take them."""
    client = await logged_in(lab)
    free = threading.Event()
    busy = lab.server.runner._questions.call("", free.wait)
    client.command(Query("SELECT " + "+".join(["1"] * 500)).build())
    memory = lab.server.session_memory
    await until(lambda: memory.held > 500_000)
    free.set()
    await busy
    assert (await client.answer())[:1] == b"\1"
    await until(lambda: memory.held == 0)


async def test_an_error_is_the_answer(lab: Lab) -> None:
    client = await logged_in(lab)
    answer = await client.ask(Query("SELECT nonsense + 1").build())
    assert parse_error(answer).message == "Unknown column 'nonsense' in 'SELECT'"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT 7 IN ({})", "0"),
        ("SELECT 19999 NOT IN ({})", "0"),
        ("WITH w AS (SELECT 5 a UNION SELECT -1) SELECT COUNT(*) FROM w WHERE a IN ({0}) OR a * 2 IN ({0})", "1"),
        ("SELECT 7 IN ({}, NULL)", None),
    ],
)  # fmt: skip
async def test_a_long_list_of_constants(lab: Lab, text: str, wanted: str | None) -> None:
    client = await logged_in(lab)
    numbers = ",".join(str(n) for n in range(5, 20_000) if n != 7)
    assert await client.query(text.format(numbers)) == [[wanted]]
    await client.ask(Query("SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'").build())
    assert await client.query(text.format(numbers)) == [[wanted]]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COALESCE({})",
        "WITH w AS (SELECT 1) SELECT COALESCE({})",
        "DO COALESCE({})",
        "SET @a = COALESCE({})",
        "SELECT 1 IN ({}) AND 1 IN ("
        + "1," * 70_000
        + "1)",  # more constants than a statement may have
    ],
)
async def test_a_question_that_is_too_long_is_not_said_to_be_wrong(lab: Lab, text: str) -> None:
    client = await logged_in(lab)
    for count in (3000, 20_000):
        assert await errno(client, text.format(",".join(["12345"] * count))) == 1235
    prepared = await client.ask(StmtPrepare(text.format(",".join("?" * 40_000)).encode()).build())
    assert parse_error(prepared).errno == 1235
    assert await errno(client, "SHUTDOWN " + " x" * 10_000) == 1064
