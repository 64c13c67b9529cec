"""Statements of clients become groups: what is stored, what is answered, and when."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from binlog_protocol.connection.commands import InitDatabase, Ping, Query, ResetConnection
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.statement_context import IntvarEvent, RandEvent, UserVarEvent
from binlog_protocol.events.status_variables import SessionFlags, StatusVariables
from binlog_protocol.groups.stored_group import is_start_marker
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import parse_ok
from binlog_storage.binlog.transaction import Savepoint
from binlog_storage.errors import DiskError
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Account
from binlog_server.sql.expressions import USER_VARIABLES_MAX
from binlog_server.sql_commit import logged_text
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import Password
from tests.binlog_server.engines import FullEngine, SlowEngine
from tests.binlog_server.lab import PASSWORD, USER, Client, Lab, until, within
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit
from tests.binlog_server.upstream import groups as groups_sent
from tests.storage.groups import read_all

GRANTED = {
    "sql": Account("secret", frozenset({"BINLOG REPLAY"})),
    USER: PASSWORD,
}
AUTOCOMMIT, IN_TRANSACTION = 2, 1


def new_lab(engine: SlowEngine | None = None, **options: Any) -> Lab:
    return Lab(engine or SlowEngine(), users=GRANTED, **options)


@pytest.fixture
async def server() -> AsyncIterator[Lab]:
    async with new_lab() as lab:
        yield lab


async def ok(client: Client, sql: str | bytes) -> tuple[int, int]:
    """Affected rows and status flags of the OK."""
    answer = parse_ok(await client.ask(Query(sql).build()))
    return answer.affected_rows, answer.status


async def refused(client: Client, sql: str | bytes) -> tuple[int, str]:
    client.command(Query(sql).build())
    return await client.error()


def groups(lab: Lab) -> list[list[bytes]]:
    """The events of each group in the store."""
    lab.engine.sync()
    found = read_all(lab.engine)
    return [list(split_events(group)) for group in found if not is_start_marker(group)]


def shown(lab: Lab) -> list[str]:
    """Each group as its GTID and its statements."""
    return [
        " | ".join(
            [str(GtidEvent.parse(group[0]).gtid), *(q.text.decode() for q in queries(group))]
        )
        for group in groups(lab)
    ]


def queries(group: list[bytes]) -> list[QueryEvent]:
    return [QueryEvent.parse(event) for event in group if event[4] == EventType.QUERY]


def status(query: QueryEvent) -> StatusVariables:
    return StatusVariables.parse(query.status_variables)


async def test_each_statement_is_a_transaction(server: Lab) -> None:
    client = await server.client("sql")
    for number in range(1, 6):
        assert await ok(client, f"INSERT INTO d.t VALUES ({number})") == (1, AUTOCOMMIT)
    assert shown(server) == [f"0-1-{n} | INSERT INTO d.t VALUES ({n})" for n in range(1, 6)]
    for group in groups(server):
        assert [event[4] for event in group] == [162, 2, 16]
        flags = GtidEvent.parse(group[0]).flags2
        assert flags & GtidFlags.TRANSACTIONAL
        assert not flags & GtidFlags.STANDALONE
    (query,) = queries(groups(server)[-1])
    assert query.thread_id == 1


async def test_transactions(server: Lab) -> None:
    client = await server.client("sql")
    assert await ok(client, "BEGIN") == (0, AUTOCOMMIT | IN_TRANSACTION)
    assert await ok(client, "INSERT INTO t VALUES (1)") == (1, AUTOCOMMIT | IN_TRANSACTION)
    assert await ok(client, "UPDATE t SET a=2") == (1, AUTOCOMMIT | IN_TRANSACTION)
    assert shown(server) == []
    assert await ok(client, "COMMIT") == (0, AUTOCOMMIT)
    assert shown(server) == ["0-1-1 | INSERT INTO t VALUES (1) | UPDATE t SET a=2"]
    for text in ("BEGIN", "DELETE FROM t", "ROLLBACK", "COMMIT", "BEGIN", "COMMIT"):
        await ok(client, text)
    assert len(shown(server)) == 1
    for text in ("BEGIN", "INSERT INTO t VALUES (3)", "BEGIN"):
        await ok(client, text)
    assert shown(server)[1:] == ["0-1-2 | INSERT INTO t VALUES (3)"], "BEGIN commits what is open"


async def test_autocommit_off(server: Lab) -> None:
    client = await server.client("sql")
    assert await ok(client, "SET autocommit=0") == (0, 0)
    assert await ok(client, "INSERT INTO t VALUES (1)") == (1, IN_TRANSACTION)
    assert await ok(client, "INSERT INTO t VALUES (2)") == (1, IN_TRANSACTION)
    assert await ok(client, "COMMIT") == (0, 0)
    for text in (
        "SAVEPOINT a",
        "SAVEPOINT b",
        "ROLLBACK TO a",
        "RELEASE SAVEPOINT a",
        "SAVEPOINT c",
    ):
        assert await ok(client, text) == (0, 0), "a savepoint alone begins nothing"
    assert await ok(client, "INSERT INTO t VALUES (3)") == (1, IN_TRANSACTION)
    assert await ok(client, "SAVEPOINT d") == (0, IN_TRANSACTION)
    assert await ok(client, "SET autocommit=1") == (0, AUTOCOMMIT), "commits what is open"
    assert await ok(client, "INSERT INTO t VALUES (4)") == (1, AUTOCOMMIT)
    assert [line.count("|") for line in shown(server)] == [2, 1, 1]
    first, _, last = groups(server)
    flags = [status(queries(group)[0]).flags or SessionFlags(0) for group in (first, last)]
    assert not any(f & SessionFlags.NOT_AUTOCOMMIT for f in flags), "MariaDB logs it nowhere"


@pytest.mark.parametrize(
    ("texts", "committed"),
    [
        (("BEGIN", "INSERT INTO t VALUES (1)", "SET autocommit=0", "SET autocommit=1"), True),
        (("SET autocommit=0", "BEGIN", "INSERT INTO t VALUES (1)", "SET autocommit=1"), True),
        (("SET autocommit=0", "BEGIN", "INSERT INTO t VALUES (1)", "SET autocommit=DEFAULT"), True),
        (("SET autocommit=0", "INSERT INTO t VALUES (1)", "SET autocommit=1, autocommit=0"), True),
        (("BEGIN", "INSERT INTO t VALUES (1)", "SET autocommit=1"), False),
        (("BEGIN", "INSERT INTO t VALUES (1)", "SET autocommit=0"), False),
        (("SET autocommit=0", "INSERT INTO t VALUES (1)", "SET @a=1, autocommit=0"), False),
    ],
)
async def test_autocommit_that_is_turned_on_commits(
    server: Lab, texts: tuple[str, ...], committed: bool
) -> None:
    """Whatever has begun the transaction, and each time that it is turned on; as MariaDB 11.8 does."""
    client = await server.client("sql")
    for text in texts:
        await ok(client, text)
    assert len(groups(server)) == committed
    await ok(client, "ROLLBACK")
    assert len(groups(server)) == committed


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("FLUSH BINARY LOGS", 0),
        ("FLUSH TABLES", 0),
        ("FLUSH STATUS", 0),
        ("RESET SLAVE ALL", 0),
        ("SET DEFAULT ROLE NONE", 0),
        ("SET DEFAULT ROLE one FOR root", 1959),
        ("DROP USER nobody", 1396),
        ("GRANT REPLICATION SLAVE ON *.* TO nobody", 1133),
    ],
)
async def test_statements_that_commit_what_is_open(text: str, number: int) -> None:
    """Also if they fail; and what came together with them is answered behind them."""
    admin = Account("secret", frozenset({ALL_PRIVILEGES}))
    async with Lab(SlowEngine(), users={"sql": admin}) as server:
        client = await server.client("sql")
        await ok(client, "BEGIN")
        await ok(client, "INSERT INTO t VALUES (1)")
        client.send(frame_packet(Query(text).build(), 0)[0] + frame_packet(Ping().build(), 0)[0])
        if number:
            assert (await client.error())[0] == number
        else:
            assert parse_ok(await client.answer()).status == AUTOCOMMIT
        assert parse_ok(await client.answer()).status == AUTOCOMMIT
        await ok(client, "ROLLBACK")
        assert len(groups(server)) == 1
        await ok(client, "BEGIN")
        client.command(Query(text).build())
        await (client.error() if number else client.answer())
        assert await ok(client, "INSERT INTO t VALUES (2)") == (1, AUTOCOMMIT), "BEGIN is over"


@pytest.mark.parametrize(
    "text", ["SET GLOBAL read_only=1", "SET GLOBAL read_only=0", "STOP SLAVE", "STOP ALL SLAVES"]
)
async def test_what_a_transaction_refuses(text: str) -> None:
    """Behind it the session could not commit its own transaction."""
    admin = Account("secret", frozenset({ALL_PRIVILEGES}))
    async with Lab(SlowEngine(), users={"sql": admin}) as server:
        client = await server.client("sql")
        await ok(client, "BEGIN")
        await ok(client, "INSERT INTO t VALUES (1)")
        assert (await refused(client, text))[0] == 1192
        await ok(client, "COMMIT")
        assert len(groups(server)) == 1
        await ok(client, text)


async def test_a_commit_that_fails_in_front_of_a_statement() -> None:
    """The client hears it, and the statement is not run."""
    admin = Account("secret", frozenset({ALL_PRIVILEGES}))
    engine = SlowEngine()
    async with Lab(engine, users={"sql": admin}) as server:
        client = await server.client("sql")
        await ok(client, "BEGIN")
        await ok(client, "INSERT INTO t VALUES (1)")
        engine.sync_error = DiskError("Input/output error")
        assert (await refused(client, "CREATE USER somebody"))[0] == 1026
        assert await client.query("SELECT @@autocommit") == [["1"]]
        engine.sync_error = None
        assert (await refused(client, "DROP USER somebody"))[0] == 1396, "it was not made"


async def test_an_access_mode_for_the_session_replaces_the_next_one(server: Lab) -> None:
    client = await server.client("sql")
    await ok(client, "SET TRANSACTION READ ONLY")
    await ok(client, "SET SESSION TRANSACTION READ WRITE")
    await ok(client, "INSERT INTO t VALUES (1)")


async def test_ddl_commits_what_is_open_and_then_itself(server: Lab) -> None:
    client = await server.client("sql")
    for text in ("BEGIN", "INSERT INTO t VALUES (1)"):
        await ok(client, text)
    assert await ok(client, "CREATE TABLE u (a INT)") == (0, AUTOCOMMIT)
    assert shown(server) == ["0-1-1 | INSERT INTO t VALUES (1)", "0-1-2 | CREATE TABLE u (a INT)"]
    ddl = groups(server)[1]
    assert [event[4] for event in ddl] == [162, 2]
    wanted = GtidFlags.STANDALONE | GtidFlags.DDL
    assert GtidEvent.parse(ddl[0]).flags2 & wanted == wanted


async def test_savepoints(server: Lab) -> None:
    client = await server.client("sql")
    for text in (
        "BEGIN",
        "INSERT INTO t VALUES (1)",
        "SAVEPOINT a",
        "INSERT INTO t VALUES (2)",
        "SAVEPOINT b",
        "INSERT INTO t VALUES (3)",
        "ROLLBACK TO SAVEPOINT A",
    ):
        await ok(client, text)
    assert await refused(client, "ROLLBACK TO b") == (1305, "SAVEPOINT b does not exist")
    for text in ("INSERT INTO t VALUES (4)", "RELEASE SAVEPOINT a"):
        await ok(client, text)
    assert (await refused(client, "RELEASE SAVEPOINT a"))[0] == 1305
    await ok(client, "COMMIT")
    assert (await refused(client, "ROLLBACK TO a"))[0] == 1305
    for text in ("BEGIN", "SAVEPOINT a", "INSERT INTO t VALUES (5)", "ROLLBACK TO a", "COMMIT"):
        await ok(client, text)
    assert shown(server) == ["0-1-1 | INSERT INTO t VALUES (1) | INSERT INTO t VALUES (4)"]


async def test_no_statement_leaves_a_savepoint(server: Lab) -> None:
    """Each would take memory up to the commit, and be walked through whenever a cache is spilled."""
    client = await server.client("sql")
    gc.collect()
    before = count_of(Savepoint)
    await ok(client, "BEGIN")
    for number in range(50):
        for text in (
            f"INSERT INTO t VALUES ({number})",
            "SAVEPOINT a",  # in the place of the one before
            "SAVEPOINT b",
            f"INSERT INTO t VALUES ({number})",
            "RELEASE SAVEPOINT b" if number % 2 else "ROLLBACK TO a",
        ):
            await ok(client, text)
    gc.collect()
    assert count_of(Savepoint) == before + 1
    await ok(client, "COMMIT")


def count_of(kind: type) -> int:
    return sum(type(one) is kind for one in gc.get_objects())


async def test_chain_and_release(server: Lab) -> None:
    client = await server.client("sql")
    for text in ("BEGIN", "INSERT INTO t VALUES (1)"):
        await ok(client, text)
    assert await ok(client, "COMMIT AND CHAIN") == (0, AUTOCOMMIT | IN_TRANSACTION)
    await ok(client, "INSERT INTO t VALUES (2)")
    assert await ok(client, "COMMIT RELEASE") == (0, AUTOCOMMIT)
    assert await client.closed()
    assert len(shown(server)) == 2


async def test_read_only_transaction(server: Lab) -> None:
    client = await server.client("sql")
    await ok(client, "START TRANSACTION READ ONLY")
    assert (await refused(client, "INSERT INTO t VALUES (1)"))[0] == 1792
    await ok(client, "COMMIT")
    await ok(client, "INSERT INTO t VALUES (1)")


async def test_default_database(server: Lab) -> None:
    client = await server.client("sql")
    await ok(client, "SET NAMES utf8mb4")
    texts = iter(range(10))

    async def database() -> bytes:
        await ok(client, f"INSERT INTO t VALUES ({next(texts)})")
        # In hexadecimal: the text comes in the character set of the session.
        ((said,),) = await client.query("SELECT HEX(DATABASE())")
        assert bytes.fromhex(said or "") == queries(groups(server)[-1])[0].database
        return queries(groups(server)[-1])[0].database

    assert await database() == b""
    await ok(client, "USE shop")
    assert await database() == b"shop"
    await client.ask(InitDatabase("größe").build())
    assert await database() == "größe".encode()
    await client.query("SET NAMES latin1")
    await ok(client, b"USE gr\xf6\xdfe")
    assert await database() == "größe".encode()
    assert await refused(client, f"USE `{'x' * 65}`") == (
        1102,
        f"Incorrect database name '{'x' * 64}'",
    )
    assert await database() == "größe".encode()


async def test_a_disconnect_rolls_back(server: Lab) -> None:
    client = await server.client("sql")
    for text in ("BEGIN", "INSERT INTO t VALUES (1)"):
        await ok(client, text)
    client.close()
    await until(lambda: len(server.server.connections) == 0)
    other = await server.client("sql")
    for text in ("BEGIN", "INSERT INTO t VALUES (2)"):
        await ok(other, text)
    await other.ask(ResetConnection().build())
    assert await ok(other, "COMMIT") == (0, AUTOCOMMIT)
    assert shown(server) == []


# --- rights ---


async def test_without_the_right(server: Lab) -> None:
    client = await server.client()
    denied = (
        1227,
        "Access denied; you need (at least one of) the BINLOG REPLAY privilege(s) for this operation",
    )
    for text in (
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE t (a INT)",
        "LOCK TABLES t WRITE",
        "SET SESSION gtid_domain_id=1",
        "SET gtid_seq_no=1",
        "SET SESSION server_id=1",
    ):
        assert await refused(client, text) == denied, text
    for text in ("SET GLOBAL innodb_flush_log_at_trx_commit=0", "SET GLOBAL read_only=0"):
        assert (await refused(client, text))[0] == 1227, text
    for text in ("BEGIN", "COMMIT", "SET NAMES latin1", "USE d", "SET autocommit=0", "SAVEPOINT a"):
        await ok(client, text)
    assert groups(server) == []


async def test_read_only(server: Lab) -> None:
    async with new_lab(read_only=True) as lab:
        client = await lab.client("sql")
        number, text = await refused(client, "INSERT INTO t VALUES (1)")
        assert number == 1290
        assert "--read-only option" in text
        await ok(client, "SET GLOBAL read_only=0")
        await ok(client, "INSERT INTO t VALUES (2)")
        await ok(client, "INSERT INTO t VALUES (3)")
        await ok(client, "SET GLOBAL read_only=1")
        assert (await refused(client, "INSERT INTO t VALUES (4)"))[0] == 1290
        assert await client.query("SELECT @@read_only") == [["1"]]
        assert len(shown(lab)) == 2


async def test_promotion_of_a_relay() -> None:
    """As docs/relay.md has it: an upstream that SQL has made is forgotten by SQL, one of the file by the file."""
    history = MemoryHistory()
    sends = [Visit(OPENING + groups_sent("0-1-1", "0-1-2"))]
    async with FakeUpstream(sends) as upstream:
        info = MasterInfo("127.0.0.1", upstream.port, "u", Password("p"), ssl=False)
        users = {"sql": Account("secret", frozenset({"ALL PRIVILEGES"}))}
        options: dict[str, Any] = {"server_id": 10, "users": users}
        async with Lab(MemoryEngine(history), upstream={"": info}, **options) as lab:
            await until(lambda: str(lab.engine.binlog_state()) == "0-1-2")
            client = await lab.client("sql")
            for text in ("STOP ALL SLAVES", "SET GLOBAL read_only = 0"):
                await ok(client, text)
            assert (await refused(client, "RESET SLAVE ALL"))[0] == 1290
            number, text = await refused(client, "INSERT INTO t VALUES (1)")
            assert number == 1290
            assert "take it out of the configuration file and restart" in text
        async with Lab(MemoryEngine(history), **options) as lab:
            await ok(await lab.client("sql"), "INSERT INTO t VALUES (1)")
            assert str(lab.engine.binlog_state()) == "0-1-2,0-10-3"


# --- what goes with a statement ---


async def test_character_sets(server: Lab) -> None:
    client = await server.client("sql")
    text = b"INSERT INTO t VALUES ('\xe4\xff\x00\x01')"
    for names, charset in {
        "latin1": (8, 8, 45),
        "utf8mb4": (45, 45, 45),
        "binary": (63, 63, 45),
        "latin1 COLLATE latin1_bin": (8, 47, 45),
        "cp1251": (51, 51, 45),
    }.items():
        await ok(client, f"SET NAMES {names}")
        for _ in range(2):  # the long way and the quick one
            await ok(client, text)
            (query,) = queries(groups(server)[-1])
            assert query.text == text
            assert status(query).charset == charset
    assert (await refused(client, "SET NAMES klingon"))[0] == 1115
    assert (await refused(client, "SET NAMES ucs2"))[0] == 1231
    assert (await refused(client, "SET NAMES utf8mb4 COLLATE x"))[0] == 1273


async def test_session_variables(server: Lab) -> None:
    client = await server.client("sql")
    await ok(
        client,
        "SET sql_mode='STRICT_TRANS_TABLES,NO_ZERO_DATE', foreign_key_checks=0, unique_checks=OFF, "
        "auto_increment_increment=3, auto_increment_offset=2, time_zone='+02:00', "
        "timestamp=1700000000.25, lc_time_names='de_DE', collation_server='utf8mb4_bin', "
        "sql_if_exists=ON, system_versioning_insert_history=1",
    )
    await ok(client, "INSERT INTO t VALUES (NOW(6))")
    (group,) = groups(server)
    (query,) = queries(group)
    found = status(query)
    assert found.sql_mode == 1 << 21 | 1 << 24
    assert found.flags == (
        SessionFlags.NO_FOREIGN_KEY_CHECKS
        | SessionFlags.RELAXED_UNIQUE_CHECKS
        | SessionFlags.EXPLICIT_DEFAULTS_FOR_TIMESTAMP
        | SessionFlags.IF_EXISTS
        | SessionFlags.INSERT_HISTORY
    )
    assert found.lc_time_names == 4
    assert found.charset is not None
    assert found.charset[2] == 46
    assert found.auto_increment == (3, 2)
    assert found.time_zone == b"+02:00"
    assert found.microseconds == 250_000
    assert query.timestamp == 1_700_000_000
    assert [int.from_bytes(event[:4], "little") for event in group] == [1_700_000_000] * 3
    await ok(client, "SET timestamp=DEFAULT")
    await ok(client, "INSERT INTO t VALUES (NOW())")
    assert queries(groups(server)[-1])[0].timestamp > 1_700_000_000


# STRICT_TRANS_TABLES, ERROR_FOR_DIVISION_BY_ZERO, NO_AUTO_CREATE_USER, NO_ENGINE_SUBSTITUTION
DEFAULT_MODES = 1 << 21 | 1 << 26 | 1 << 28 | 1 << 30


async def test_set_statement_for_a_change(server: Lab) -> None:
    """It is logged as it stands, and holds for the one statement."""
    client = await server.client("sql")
    text = "SET STATEMENT gtid_domain_id=7, sql_mode='ANSI' FOR INSERT INTO t VALUES (1)"
    assert await ok(client, text) == (1, AUTOCOMMIT)
    assert await ok(client, "INSERT INTO t VALUES (2)") == (1, AUTOCOMMIT)
    long = (
        f"SET STATEMENT gtid_domain_id=7, sql_mode='{'ANSI,' * 40}ANSI' FOR CREATE TABLE u (a INT)"
    )
    assert await ok(client, long) == (0, AUTOCOMMIT)
    assert shown(server) == [
        f"7-1-1 | {text}",
        "0-1-1 | INSERT INTO t VALUES (2)",
        f"7-1-2 | {long}",
    ]
    assert await client.query("SELECT @@gtid_domain_id, @@sql_mode = @@GLOBAL.sql_mode") == [
        ["0", "1"]
    ]
    first, second, _ = groups(server)
    assert status(queries(first)[0]).sql_mode != status(queries(second)[0]).sql_mode
    assert status(queries(second)[0]).sql_mode == DEFAULT_MODES
    await ok(client, "BEGIN")
    for sql, number in (
        ("SET STATEMENT gtid_domain_id=7 FOR INSERT INTO t VALUES (1)", 1953),
        ("SET STATEMENT autocommit=0 FOR INSERT INTO t VALUES (1)", 1971),
        ("SET STATEMENT no_such=0 FOR INSERT INTO t VALUES (1)", 1193),
        ("SET STATEMENT sql_mode='x' FOR INSERT INTO t VALUES (1)", 1231),
        ("SET STATEMENT sql_mode='' FOR INSERT INTO t VALUES (1); SELECT 2", 1064),
        ("SET STATEMENT sql_mode='' FOR COMMIT", 1064),
    ):
        assert (await refused(client, sql))[0] == number, sql


async def test_changes_that_are_not_logged(server: Lab) -> None:
    """There is nothing here but the log: nothing is done, and a warning says so."""
    client = await server.client("sql")
    await ok(client, "INSERT INTO t VALUES (1)")
    await ok(client, "SET sql_log_bin=0")
    for text in ("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)", "CREATE TABLE u (a INT)"):
        assert await ok(client, text) == (0, AUTOCOMMIT)
        ((_, code, said),) = await client.query("SHOW WARNINGS")
        assert (code, said is not None and "nothing was logged" in said) == ("1105", True)
    await ok(client, "SET sql_log_bin=1")
    await ok(client, "BEGIN")
    assert (await refused(client, "SET sql_log_bin=0"))[0] == 1694
    await ok(client, "INSERT INTO t VALUES (4)")
    await ok(client, "COMMIT")
    assert shown(server) == ["0-1-1 | INSERT INTO t VALUES (1)", "0-1-2 | INSERT INTO t VALUES (4)"]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_completion_type(server: Lab, end: str) -> None:
    client = await server.client("sql")
    await ok(client, "SET completion_type=CHAIN")
    await ok(client, "BEGIN")
    assert (await ok(client, end))[1] & IN_TRANSACTION
    assert not (await ok(client, f"{end} AND NO CHAIN"))[1] & IN_TRANSACTION
    await ok(client, "SET completion_type=2")
    await ok(client, "BEGIN")
    assert not (await ok(client, f"{end} NO RELEASE"))[1] & IN_TRANSACTION
    assert (await ok(client, f"{end} AND CHAIN"))[1] & IN_TRANSACTION
    await ok(client, end)
    assert await within(client.reader.read()) == b"", "the connection is closed"


async def test_the_sessions_last_gtid(server: Lab) -> None:
    client = await server.client("sql")
    told = "SELECT @@last_gtid, @@in_transaction"
    assert await client.query(told) == [["", "0"]]
    for number in (1, 2, 3):  # the second goes the quick way
        await ok(client, f"INSERT INTO t VALUES ({number})")
        assert await client.query(told) == [[f"0-1-{number}", "0"]]
    await ok(client, "BEGIN")
    await ok(client, "INSERT INTO t VALUES (4)")
    assert await client.query(told) == [["0-1-3", "1"]]
    await ok(client, "COMMIT")
    assert await client.query(told) == [["0-1-4", "0"]]
    other = await server.client("sql")
    assert await other.query(told) == [["", "0"]]


async def test_unlock_tables(server: Lab) -> None:
    """It commits behind LOCK TABLES alone, and not behind BEGIN, which ends those locks."""
    client = await server.client("sql")
    await ok(client, "BEGIN")
    await ok(client, "INSERT INTO t VALUES (1)")
    assert (await ok(client, "UNLOCK TABLES"))[1] & IN_TRANSACTION
    await ok(client, "ROLLBACK")
    await ok(client, "LOCK TABLES t WRITE")
    await ok(client, "BEGIN")
    await ok(client, "INSERT INTO t VALUES (2)")
    assert (await ok(client, "UNLOCK TABLES"))[1] & IN_TRANSACTION
    await ok(client, "ROLLBACK")
    await ok(client, "SET autocommit=0")
    await ok(client, "LOCK TABLES t WRITE")
    await ok(client, "INSERT INTO t VALUES (3)")
    assert not (await ok(client, "UNLOCK TABLES"))[1] & IN_TRANSACTION
    assert [text.split(" | ")[-1] for text in shown(server)] == ["INSERT INTO t VALUES (3)"]


async def test_numbers_for_one_statement(server: Lab) -> None:
    client = await server.client("sql")
    await ok(client, "SET insert_id=7, last_insert_id=8, rand_seed1=1, rand_seed2=2")
    await ok(client, "INSERT INTO t VALUES (LAST_INSERT_ID(), RAND())")
    await ok(client, "INSERT INTO t VALUES (2)")
    first, second = groups(server)
    assert [event[4] for event in first] == [162, 5, 5, 13, 2, 16]
    assert [event[4] for event in second] == [162, 2, 16]
    assert IntvarEvent.parse(first[1]) == IntvarEvent(IntvarEvent.parse(first[1]).kind, 8)
    assert IntvarEvent.parse(first[2]).value == 7
    assert RandEvent.parse(first[3]) == RandEvent(1, 2)


async def test_user_variables(server: Lab) -> None:
    client = await server.client("sql")
    await ok(client, "SET @a=5, @b='x@y', @c=NULL, @d=18446744073709551615, @e=-1")
    await ok(client, "INSERT INTO t VALUES (@a, @B, @c, @d, @e, @never, '@not')")
    (group,) = groups(server)
    found = [UserVarEvent.parse(e) for e in group if e[4] == EventType.USER_VAR]
    assert {(v.name, v.value) for v in found} == {
        (b"a", 5),
        (b"B", b"x@y"),
        (b"c", None),
        (b"d", 2**64 - 1),
        (b"e", -1),
        (b"never", None),
    }
    await ok(client, "GRANT SELECT ON *.* TO u@h")
    assert [event[4] for event in groups(server)[-1]] == [162, 2]
    await ok(client, "CREATE TABLE u SELECT @a")
    assert [event[4] for event in groups(server)[-1]] == [162, 14, 2]


async def test_a_string_keeps_the_character_set_in_which_it_was_set(server: Lab) -> None:
    """What 11.8 and 10.11 log; where the client's is another than the connection's they convert."""
    client = await server.client("sql")

    async def logged(name: str) -> tuple[object, int]:
        await ok(client, f"INSERT INTO t VALUES (@{name})")
        (event,) = [e for e in groups(server)[-1] if e[4] == EventType.USER_VAR]
        found = UserVarEvent.parse(event)
        return found.value, found.collation

    await ok(client, "SET NAMES latin1")
    client.command(Query(b"SET @v='\xe9', @d=_".replace(b"_", b"@v")).build())
    assert (await client.answer())[:1] == b"\0"
    await ok(client, "SET NAMES utf8mb4 COLLATE utf8mb4_bin")
    await ok(client, "SET @w='é', @c=@v, NAMES cp1251, @s=@@version_comment")
    assert await logged("v") == (b"\xe9", 8)
    assert await logged("c") == (b"\xe9", 8)
    assert await logged("w") == ("é".encode(), 46)
    assert await logged("s") == (b"binlog-server", 33)
    await ok(client, "SET NAMES utf8mb4")
    assert await client.query("SELECT @v, @w") == [["é", "é"]]
    await ok(client, "SET collation_connection=latin1_bin, @before='x'")
    await ok(client, "SET @a='ascii', @e='é'")
    assert await logged("before") == (b"x", 45)
    assert await logged("a") == (b"ascii", 47)
    assert await logged("e") == ("é".encode(), 45)  # and not as the two characters of latin1
    await ok(client, "SET collation_connection=utf16_bin")
    await ok(client, "SET @u='a'")
    assert await logged("u") == (b"a", 45)
    await ok(client, "SET character_set_connection=binary")
    await ok(client, "SET @b='é'")
    assert await logged("b") == ("é".encode(), 63)


async def test_two_statements_in_one_text(server: Lab) -> None:
    client = await server.client("sql")
    number, text = await refused(client, "INSERT INTO t VALUES (1); DROP TABLE t")
    assert number == 1064
    assert "near 'DROP TABLE t'" in text
    await ok(client, "INSERT INTO t VALUES (';');")
    await ok(client, "CREATE PROCEDURE p() BEGIN SELECT 1; SELECT 2; END")
    await ok(client, "SET NAMES gbk")
    await ok(
        client, b"INSERT INTO t VALUES ('\xb5\x5c', ';')"
    )  # one character, then the end of a string
    await ok(client, "SET NAMES utf8mb4, sql_mode='NO_BACKSLASH_ESCAPES'")
    assert (await refused(client, r"INSERT INTO t VALUES ('\'); DROP TABLE t -- ')"))[0] == 1064
    assert len(groups(server)) == 3


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("CREATE PROCEDURE p()", "BEGIN {comment} SELECT @a; SELECT ';'; END"),
        ("CREATE {comment} FUNCTION f() RETURNS INT", "RETURN 1"),
        ("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW", "BEGIN SET @b=1; {comment} END"),
        ("ALTER EVENT e DO", "BEGIN DO 1; /* x */ {comment} DO 2; END"),
        (
            "/*!50003 CREATE*/ /*!50003 TRIGGER tr BEFORE INSERT ON t FOR EACH ROW",
            "BEGIN DO 1; END */",
        ),
        (
            "/*!50003 CREATE*/ /*!50020 DEFINER=`root`@`localhost`*/ /*!50003 PROCEDURE p()",
            "BEGIN DO 1; DO 2; END */",
        ),
        ("CREATE DEFINER=`root`@`localhost` EVENT e", "DO BEGIN DO 1; {comment} END"),
    ],
)
async def test_comments_in_a_stored_program(server: Lab, head: str, body: str) -> None:
    """What was not executed here is nothing that a newer replica executes. MariaDB's log leaves such comments out."""
    client = await server.client("sql")
    text = f"{head} {body}"
    await ok(client, text.format(comment="/*!999999 DO SLEEP(1); /* in */ '*' */"))
    ((_, logged),) = groups(server)
    assert text.format(comment="/* 999999 DO SLEEP(1); (* in *) '*' */").encode() in logged


@pytest.mark.parametrize(
    ("charset", "char"),
    [("gbk", b"\x95\x5c"), ("sjis", b"\x95\x5c"), ("cp932", b"\x95\x5c"), ("big5", b"\xa5\x5c")],
)
async def test_comments_in_a_charset_with_backslashes(
    server: Lab, charset: str, char: bytes
) -> None:
    """Their text is looked at in UTF-8, where everything stands elsewhere; a broken character stands in front, too."""
    client = await server.client("sql")
    await ok(client, f"SET NAMES {charset}")
    head, tail = b"INSERT INTO t VALUES ('%b', '\xff\x41') " % (char * 2), b" /* '%b' */" % char
    await ok(client, head + b"/*!999999 , (1) /* %b */ */" % char + tail)
    ((_, logged, _),) = groups(server)
    assert head + b"/* 999999 , (1) (* %b *) */" % char + tail in logged


@pytest.mark.parametrize("charset", ["gbk", "sjis", "cp932", "big5"])
@given(st.lists(st.sampled_from([b"\x95\x5c", b"\x81", b"\xff", b"a", b"*", b"\x95", b"\xa1\xa1"])))
def test_edits_of_text_in_a_charset_with_backslashes(charset: str, parts: list[bytes]) -> None:
    codec = logged_text._AMBIGUOUS[charset]
    text = b"".join(parts)
    utf8 = b"".join(logged_text._decoded(text, codec, 5))
    wanted = {at: ord("+") for at, byte in enumerate(utf8) if byte == ord("*")}
    edited = bytearray(text)
    steps = logged_text._in_charset(wanted, text, codec)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            edits = end.value
            break
    for at, byte in edits.items():
        edited[at] = byte
    assert b"".join(logged_text._decoded(bytes(edited), codec, 7)) == utf8.replace(b"*", b"+")


async def test_a_program_may_have_many_variables(server: Lab) -> None:
    client = await server.client("sql")
    named = "".join(f"SET @v{number} = 1; " for number in range(USER_VARIABLES_MAX + 1))
    await ok(client, f"CREATE PROCEDURE p() BEGIN {named} /* c */ END")
    ((_, logged),) = groups(server)
    assert named.encode() in logged


@pytest.mark.parametrize(
    "first", ["DROP PROCEDURE p", "DROP EVENT IF EXISTS e", "CREATE TABLE event (a INT)"]
)
async def test_what_is_no_stored_program_has_no_body(server: Lab, first: str) -> None:
    """Both in one event would stop every replica."""
    client = await server.client("sql")
    assert (await refused(client, f"{first}; DROP TABLE t"))[0] == 1064
    assert groups(server) == []
    await ok(client, f"{first};")


async def test_gtids(server: Lab) -> None:
    client, other = await server.client("sql"), await server.client("sql")
    for who, text in (
        (client, "INSERT INTO t VALUES (1)"),
        (other, "INSERT INTO t VALUES (2)"),
        (client, "SET SESSION gtid_domain_id=3, SESSION server_id=9"),
        (client, "INSERT INTO t VALUES (3)"),
        (client, "SET gtid_seq_no=100"),
        (client, "INSERT INTO t VALUES (4)"),
        (client, "INSERT INTO t VALUES (5)"),
        (other, "INSERT INTO t VALUES (6)"),
        (client, "SET gtid_seq_no=50"),
        (client, "INSERT INTO t VALUES (7)"),
        (client, "INSERT INTO t VALUES (8)"),
    ):
        await ok(who, text)
    found = [str(GtidEvent.parse(group[0]).gtid) for group in groups(server)]
    assert found == ["0-1-1", "0-1-2", "3-9-1", "3-9-100", "3-9-101", "0-1-3", "3-9-50", "3-9-102"]
    await ok(client, "BEGIN")
    for name in ("gtid_domain_id", "gtid_seq_no"):
        assert (await refused(client, f"SET SESSION {name}=7"))[0] == 1953
    assert (await refused(client, "SET SESSION skip_replication=1"))[0] == 1929


async def test_strict_mode() -> None:
    async with new_lab(gtid_strict_mode=True) as lab:
        client = await lab.client("sql")
        for text in ("SET gtid_seq_no=10", "INSERT INTO t VALUES (1)", "SET gtid_seq_no=0"):
            await ok(client, text)
        number, text = await refused(client, "SET gtid_seq_no=10")
        assert number == 1950
        assert "GTID 0-1-10 which would create an out-of-order" in text
        await ok(client, "INSERT INTO t VALUES (3)")
        await ok(client, "SET gtid_domain_id=5")
        await ok(client, "SET gtid_seq_no=3")
        await ok(client, "INSERT INTO t VALUES (4)")
        assert [line.split()[0] for line in shown(lab)] == ["0-1-10", "0-1-11", "5-1-3"]


@pytest.mark.parametrize("change", ["INSERT INTO t VALUES (2)", "CREATE TABLE t (a INT)"])
async def test_a_number_that_others_have_overtaken_is_forgotten(change: str) -> None:
    """As by 11.8: the connection gets on with its next statement."""
    async with new_lab(gtid_strict_mode=True) as lab:
        client, other = await lab.client("sql"), await lab.client("sql")
        await ok(client, "SET gtid_seq_no=10")
        for text in ("SET gtid_seq_no=10", "INSERT INTO t VALUES (1)"):
            await ok(other, text)
        assert (await refused(client, change))[0] == 1950
        await ok(client, change)
        assert [line.split()[0] for line in shown(lab)] == ["0-1-10", "0-1-11"]


async def test_skip_replication(server: Lab) -> None:
    client = await server.client("sql")
    await ok(client, "SET skip_replication=1")
    await ok(client, "INSERT INTO t VALUES (1)")
    assert all(event[18] & 0x80 for event in groups(server)[0])


# --- when the answer comes ---


async def test_ok_comes_after_the_sync() -> None:
    engine = SlowEngine()
    async with new_lab(engine) as lab:
        client = await lab.client("sql")
        await ok(client, "INSERT INTO t VALUES (0)")
        for number in range(4):
            engine.sync_gate.clear()
            text = "INSERT" if number % 2 else "/**/INSERT"
            client.command(Query(f"{text} INTO t VALUES ({number})").build())
            waiting = asyncio.ensure_future(client.answer())
            synced = engine.syncs
            await until(lambda before=synced: engine.syncs > before)  # type: ignore[misc]
            await asyncio.sleep(0.02)
            assert not waiting.done()
            engine.sync_gate.set()
            assert (await within(waiting))[:1] == b"\0"


@pytest.mark.parametrize("setting", [0, 2])
async def test_no_sync_per_commit(setting: int) -> None:
    engine = SlowEngine()
    async with new_lab(
        engine, innodb_flush_log_at_trx_commit=setting, innodb_flush_log_at_timeout=2700
    ) as lab:
        client = await lab.client("sql")
        for number in range(50):
            await ok(client, f"INSERT INTO t VALUES ({number})")
        assert engine.syncs == 0
        await ok(client, "SET GLOBAL innodb_flush_log_at_trx_commit=1")
        assert await client.query("SELECT @@global.innodb_flush_log_at_trx_commit") == [["1"]]
        await ok(client, "INSERT INTO t VALUES (50)")
        assert engine.syncs == 1
        assert (await refused(client, "SET innodb_flush_log_at_trx_commit=1"))[0] == 1229


@pytest.mark.parametrize("setting", [0, 2])
async def test_replicas_do_not_wait_for_the_next_second(setting: int) -> None:
    engine = SlowEngine()
    async with new_lab(
        engine, innodb_flush_log_at_trx_commit=setting, innodb_flush_log_at_timeout=100
    ) as lab:
        client = await lab.client("sql")
        await ok(client, "INSERT INTO t VALUES (1)")
        replica = await lab.replica()  # comes when there is something that is not durable
        await replica.opening()
        assert await replica.event()  # the start marker
        for number in range(2, 20):
            assert str(await replica.group()) == f"0-1-{number - 1}"  # or it fails by its own time
            await ok(client, f"INSERT INTO t VALUES ({number})")
        replica.client.close()
        await until(lambda: lab.server.syncer.readers_waiting == 0)
        await until(lambda: engine.durable_end == engine.written_end)
        syncs = engine.syncs
        for number in range(20, 40):
            await ok(client, f"INSERT INTO t VALUES ({number})")
        assert engine.syncs == syncs


# --- failures ---


@pytest.mark.parametrize("text", ["INSERT INTO t VALUES (1)", "COMMIT", "CREATE TABLE t (a INT)"])
@pytest.mark.parametrize("warm", [False, True])
async def test_a_failed_sync_is_an_error(text: str, warm: bool) -> None:
    engine = SlowEngine()
    async with new_lab(engine) as lab:
        client = await lab.client("sql")
        if warm:
            await ok(client, "INSERT INTO t VALUES (0)")
        for before in ("BEGIN", "INSERT INTO t VALUES (0)") if text == "COMMIT" else ():
            await ok(client, before)
        engine.sync_error = DiskError("cannot sync: Input/output error")
        number, message = await refused(client, text)
        assert number == 1026
        assert "Input/output error" in message
        for _ in range(2):
            assert (await refused(client, "INSERT INTO t VALUES (2)"))[0] == 1026
        assert await client.query("SELECT 1") == [["1"]]
        assert not lab.server.failed.is_set()


async def test_the_server_ends_if_told_to() -> None:
    engine = SlowEngine()
    async with new_lab(engine, binlog_error_action="ABORT_SERVER") as lab:
        client = await lab.client("sql")
        engine.sync_error = DiskError("cannot sync: Input/output error")
        assert (await refused(client, "INSERT INTO t VALUES (1)"))[0] == 1026
        await within(lab.server.failed.wait())


@pytest.mark.parametrize("text", ["INSERT INTO t VALUES (1)", "COMMIT", "CREATE TABLE t (a INT)"])
async def test_without_room_the_client_waits_and_others_do_not(text: str) -> None:
    engine = FullEngine()
    async with new_lab(engine) as lab:
        client, other = await lab.client("sql"), await lab.client("sql")
        await ok(client, "INSERT INTO t VALUES (0)")
        for before in ("BEGIN", "INSERT INTO t VALUES (0)") if text == "COMMIT" else ():
            await ok(client, before)
        count = len(groups(lab))
        engine.room = False
        client.command(Query(text).build())
        client.command(Query("SELECT 5").build())
        await until(lambda: engine.asked > 0)
        assert await other.query("SELECT 1") == [["1"]]
        assert len(groups(lab)) == count
        engine.room = True
        assert (await client.answer())[:1] == b"\0"
        assert len(groups(lab)) == count + 1
        assert (await client.answer())[:1] == b"\1", "what came meanwhile is answered"


async def test_a_large_transaction_waits_sooner_than_small_ones() -> None:
    engine = FullEngine()
    async with new_lab(engine) as lab:
        large, small = await lab.client("sql"), await lab.client("sql")
        piece = f"INSERT INTO t VALUES ('{'x' * 40_000}')"
        await ok(large, "BEGIN")
        await ok(large, piece)
        engine.room_to_spill = False
        large.command(Query(piece).build())
        await until(lambda: engine.asked > 0)
        count = len(groups(lab))
        await ok(small, "INSERT INTO t VALUES (1)")
        await ok(small, "BEGIN")
        await ok(small, "INSERT INTO t VALUES (1)")
        await ok(small, "COMMIT")
        assert len(groups(lab)) == count + 2
        engine.room_to_spill = True
        assert (await large.answer())[:1] == b"\0"
        await ok(large, "COMMIT")


async def test_who_waits_for_room_may_be_killed() -> None:
    engine = FullEngine()
    async with new_lab(engine) as lab:
        client, other = await lab.client("sql"), await lab.client("sql")
        engine.room = False
        client.command(Query("INSERT INTO t VALUES (1)").build())
        await until(lambda: engine.asked > 0)
        await ok(other, "KILL 1")
        assert (await client.error())[0] == 1927
        assert await client.closed()
        await until(lambda: len(lab.server.connections) == 1)
        engine.room = True
        await asyncio.sleep(0.05)
        assert groups(lab) == []


async def test_large_statements() -> None:
    async with Lab(users=GRANTED) as lab:
        client = await lab.client("sql")
        large = b"INSERT INTO t VALUES ('" + b"x" * 3_000_000 + b"')"
        await ok(client, large)
        for text in (b"BEGIN", large, b"SAVEPOINT a", large, b"ROLLBACK TO a", large, b"COMMIT"):
            await ok(client, text)
        client.command(Query(large).build())
        client.command(Query("INSERT INTO t VALUES (1)").build())
        assert [(await client.answer())[:1] for _ in range(2)] == [b"\0", b"\0"]
        texts = [[q.text for q in queries(group)] for group in groups(lab)]
        assert texts == [[large], [large, large], [large], [b"INSERT INTO t VALUES (1)"]]
        assert [len(group) for group in groups(lab)] == [3, 4, 3, 3]


async def test_max_allowed_packet() -> None:
    async with new_lab(max_allowed_packet=2000) as lab:
        client = await lab.client("sql")
        await ok(client, b"INSERT INTO t VALUES ('" + b"x" * 1900 + b"')")
        await ok(client, b"INSERT INTO t VALUES ('" + b"x" * 1900 + b"')")
        number, _ = await refused(client, b"INSERT INTO t VALUES ('" + b"x" * 2000 + b"')")
        assert number == 1153
        assert await client.closed()
        assert len(groups(lab)) == 2


async def test_shutdown_refuses_and_loses_nothing() -> None:
    lab = new_lab()
    async with lab:
        client = await lab.client("sql")
        await ok(client, "INSERT INTO t VALUES (1)")
        lab.server.publisher.stop()
        assert (await refused(client, "INSERT INTO t VALUES (2)"))[0] == 1053
        assert await client.closed()


async def test_byte_by_byte(server: Lab) -> None:
    client = await server.client("sql")
    await ok(client, "INSERT INTO t VALUES (0)")
    for number in range(3):
        for byte in frame_packet(Query(f"INSERT INTO t VALUES ({number})").build(), 0)[0]:
            client.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await client.answer())[:1] == b"\0"
    assert len(groups(server)) == 4


async def test_many_sessions_get_growing_numbers(server: Lab) -> None:
    clients = [await server.client("sql") for _ in range(20)]

    async def run(client: Client) -> None:
        for number in range(20):
            await ok(client, f"{'' if number % 3 else '/**/'}INSERT INTO t VALUES ({number})")

    await within(asyncio.gather(*map(run, clients)))
    numbers = [GtidEvent.parse(group[0]).gtid.seq_no for group in groups(server)]
    assert numbers == list(range(1, 401))


async def test_status_and_variables(server: Lab) -> None:
    client = await server.client("sql")
    for name in (
        "innodb_flush_log_at_trx_commit",
        "innodb_flush_log_at_timeout",
        "innodb_log_file_size",
        "innodb_log_buffer_size",
        "read_only",
        "autocommit",
        "max_allowed_packet",
        "sync_binlog",
    ):
        assert await client.query(f"SHOW VARIABLES LIKE '{name}'"), name
    with pytest.raises(RemoteError, match="1193"):
        await client.query("SELECT @@no_such")


@pytest.mark.parametrize(
    ("mode", "literal", "value"),
    [
        ("", r"'50\%'", rb"50\%"),
        ("", r"'a\_b'", rb"a\_b"),
        ("", r"'a\nb\x'", b"a\nbx"),
        ("", r"'trail\\'", b"trail\\"),
        ("", "'a' 'b'", b"ab"),
        ("", "'it''s'", b"it's"),
        ("", '"dq"', b"dq"),
        ("", "true", 1),
        ("", "False", 0),
        ("", "007", 7),
        ("", "-0", 0),
        ("", "18446744073709551615", 2**64 - 1),
        ("", "-9223372036854775808", -(2**63)),
        ("", "99999999999999999999", Decimal("99999999999999999999")),
        ("", "-9223372036854775809", Decimal("-9223372036854775809")),
        ("", "1.50", Decimal("1.50")),
        ("", "-0.0000000001", Decimal("-0.0000000001")),
        ("", "-0.0", Decimal("0.0")),
        ("", "9" * 65, Decimal("9" * 65)),
        ("", "@@max_statement_time", Decimal(10)),
        ("", "@@autocommit", 1),
        ("NO_BACKSLASH_ESCAPES", r"'a\b'", rb"a\b"),
        ("NO_BACKSLASH_ESCAPES", r"'a\'", b"a\\"),
        ("NO_BACKSLASH_ESCAPES", r"'\''\'", b"\\'\\"),
        ("NO_BACKSLASH_ESCAPES", r'"a\"', b"a\\"),
        ("NO_BACKSLASH_ESCAPES", r"/* it's \ */ 'a\' -- '", b"a\\"),
        ("ANSI_QUOTES", r"""'it\'s "x"'""", b'it\'s "x"'),
    ],
)
async def test_a_user_variable_has_the_value_that_mariadb_gives_it(
    server: Lab, mode: str, literal: str, value: bytes | int | Decimal
) -> None:
    client = await server.client("sql")
    await ok(client, "SET max_statement_time=10")
    await ok(client, f"SET sql_mode='{mode}'")
    await ok(client, f"SET @v={literal}")
    await ok(client, "INSERT INTO t VALUES (@v)")
    (group,) = groups(server)
    (found,) = [UserVarEvent.parse(e) for e in group if e[4] == EventType.USER_VAR]
    assert (type(found.value), found.value) == (type(value), value)


@pytest.mark.parametrize(
    ("mode", "sql", "number"),
    [
        ("", "SET @v=abc", 1054),
        ("", "SET @v=`abc`", 1054),
        ("ANSI_QUOTES", 'SET @v="abc"', 1054),
        ("ANSI", 'SELECT "abc"', 1054),
        ("", "SET @v=on", 1064),
        ("", "SET @v=default", 1064),
        ("", "SET @v=12abc", 1054),
        ("", f"SET @v={'9' * 66}", 1235),
        ("", f"SET @v=0.{'0' * 38}1", 1235),
        ("", "SELECT 1a", 1054),
        ("", "SELECT 1é", 1054),
        ("", "SELECT x'41'", 1054),
        ("NO_BACKSLASH_ESCAPES", r"SELECT 'a\''", 1064),
    ],
)
async def test_a_literal_that_is_not_known_is_an_error(
    server: Lab, mode: str, sql: str, number: int
) -> None:
    client = await server.client("sql")
    await ok(client, f"SET NAMES utf8mb4, sql_mode='{mode}'")
    await ok(client, "SET @v='before'")
    assert (await refused(client, sql))[0] == number
    await ok(client, "INSERT INTO t VALUES (@v)")
    (group,) = groups(server)
    assert UserVarEvent.parse(group[1]).value == b"before"


async def test_the_client_is_told_how_its_strings_are_read(server: Lab) -> None:
    """By the status of each answer, also of commits, clients choose how they quote."""
    client = await server.client("sql")
    for mode, status in (
        ("NO_BACKSLASH_ESCAPES", AUTOCOMMIT | 0x200),
        ("ANSI", AUTOCOMMIT | 0x8000),
        ("ORACLE,NO_BACKSLASH_ESCAPES", AUTOCOMMIT | 0x8200),
        ("TRADITIONAL", AUTOCOMMIT),
    ):
        assert (await ok(client, f"SET sql_mode='{mode}'"))[1] == status
        for _ in range(3):
            assert await ok(client, "INSERT INTO t VALUES (1)") == (1, status)
    await ok(client, "SET sql_mode='ANSI,NO_BACKSLASH_ESCAPES'")
    assert parse_ok(await client.ask(ResetConnection().build())).status == AUTOCOMMIT


async def test_session_variables_that_are_set_beside_a_global_one() -> None:
    """The rest of such a statement is done in a thread, and answered from there."""
    async with Lab(
        SlowEngine(), users={USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}
    ) as lab:
        client = await lab.client()
        await ok(client, "SET sql_mode='ANSI', gtid_domain_id=7, GLOBAL gtid_slave_pos=''")
        assert await ok(client, "INSERT INTO t VALUES (1)") == (1, AUTOCOMMIT | 0x8000)
        assert shown(lab) == ["7-1-1 | INSERT INTO t VALUES (1)"]


async def test_a_domain_whose_numbers_are_used_up() -> None:
    """No number is left, and nothing else is wrong: an error to each commit, also after a restart."""
    engine = SlowEngine()
    async with new_lab(engine) as lab:
        client = await lab.client("sql")
        await ok(client, "INSERT INTO t VALUES (0)")
        await ok(client, f"SET gtid_seq_no={2**64 - 2}")
        await ok(client, "INSERT INTO t VALUES (1)")
        await ok(client, "INSERT INTO t VALUES (2)")
        assert shown(lab)[-1] == f"0-1-{2**64 - 1} | INSERT INTO t VALUES (2)"
        for sql in (
            "INSERT INTO t VALUES (3)",
            "CREATE TABLE u (a INT)",
            "insert into t values (4)",
        ):
            number, text = await refused(client, sql)
            assert (number, "SET SESSION gtid_domain_id" in text) == (1105, True)
        await ok(client, "BEGIN")
        await ok(client, "INSERT INTO t VALUES (5)")
        assert (await refused(client, "COMMIT"))[0] == 1105
        await ok(client, "SET gtid_domain_id=4")
        await ok(client, "INSERT INTO t VALUES (6)")
        count = len(shown(lab))
    async with new_lab(engine) as lab:
        client = await lab.client("sql")
        assert (await refused(client, "INSERT INTO t VALUES (7)"))[0] == 1105
        await ok(client, "SET gtid_domain_id=4")
        await ok(client, "INSERT INTO t VALUES (8)")
        assert shown(lab)[count:] == ["4-1-2 | INSERT INTO t VALUES (8)"]


# Statements in a row, each with the error that MariaDB 11.8 gives it; 0 is OK.
READ_ONLY_TRANSACTIONS: dict[str, list[tuple[str, int]]] = {
    "the next one alone": [
        ("SET TRANSACTION READ ONLY", 0),
        ("INSERT", 1792),
        ("INSERT", 1792),
        ("BEGIN", 0),
        ("INSERT", 1792),
        ("COMMIT", 0),
        ("INSERT", 0),
    ],
    "by its variable": [
        ("SET @@tx_read_only=1", 0),
        ("INSERT", 1792),
        ("SET TRANSACTION READ WRITE", 0),
        ("INSERT", 0),
        ("INSERT", 0),
    ],
    "what ends it": [
        ("SET TRANSACTION READ ONLY", 0),
        ("COMMIT", 0),
        ("INSERT", 0),
        ("SET TRANSACTION READ ONLY", 0),
        ("ROLLBACK", 0),
        ("INSERT", 0),
        ("SET TRANSACTION READ ONLY", 0),
        ("CREATE TABLE t (a INT)", 0),
        ("INSERT", 0),
        ("SET TRANSACTION READ ONLY", 0),
        ("START TRANSACTION READ WRITE", 0),
        ("INSERT", 0),
        ("COMMIT", 0),
        ("INSERT", 0),
    ],
    "all of a session": [
        ("INSERT", 0),
        ("SET SESSION TRANSACTION READ ONLY", 0),
        ("INSERT", 1792),
        ("INSERT", 1792),
        ("CREATE TABLE t (a INT)", 1792),
        ("BEGIN", 0),
        ("INSERT", 1792),
        ("SET tx_read_only=0", 0),
        ("INSERT", 1792),
        ("ROLLBACK", 0),
        ("INSERT", 0),
        ("SET transaction_read_only=1", 0),
        ("START TRANSACTION READ WRITE", 0),
        ("INSERT", 0),
        ("COMMIT", 0),
        ("INSERT", 1792),
    ],
    "within one": [
        ("BEGIN", 0),
        ("SET TRANSACTION READ ONLY", 1568),
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", 1568),
        ("SET @@tx_read_only=1", 1568),
        ("SET tx_read_only=1", 0),
        ("INSERT", 0),
        ("COMMIT", 0),
        ("INSERT", 1792),
    ],
    "without autocommit": [
        ("SET autocommit=0", 0),
        ("SET TRANSACTION READ ONLY", 0),
        ("INSERT", 1792),
        ("COMMIT", 0),
        ("INSERT", 0),
        ("SET TRANSACTION READ ONLY", 1568),
        ("COMMIT", 0),
        ("SET tx_read_only=1", 0),
        ("INSERT", 1792),
        ("COMMIT AND CHAIN", 0),
        ("INSERT", 1792),
        ("ROLLBACK", 0),
    ],
    "DDL ends one that was begun so": [
        ("START TRANSACTION READ ONLY", 0),
        ("CREATE TABLE t (a INT)", 0),
        ("INSERT", 0),
    ],
}


@pytest.mark.parametrize("title", READ_ONLY_TRANSACTIONS)
async def test_a_transaction_that_is_read_only_changes_nothing(server: Lab, title: str) -> None:
    client = await server.client("sql")
    found = []
    for sql, _ in READ_ONLY_TRANSACTIONS[title]:
        text = "INSERT INTO t VALUES (1)" if sql == "INSERT" else sql
        answer = await client.ask(Query(text).build())
        found.append((sql, int.from_bytes(answer[1:3], "little") if answer[0] == 0xFF else 0))
    assert found == READ_ONLY_TRANSACTIONS[title]


async def test_a_read_only_transaction_is_told_in_the_status(server: Lab) -> None:
    client = await server.client("sql")
    begun = AUTOCOMMIT | IN_TRANSACTION
    assert (await ok(client, "START TRANSACTION READ ONLY"))[1] == begun | 0x2000
    assert (await ok(client, "COMMIT"))[1] == AUTOCOMMIT
    await ok(client, "SET SESSION TRANSACTION READ ONLY")
    assert (await ok(client, "BEGIN"))[1] == begun | 0x2000
    assert parse_ok(await client.ask(ResetConnection().build())).status == AUTOCOMMIT
    assert await ok(client, "INSERT INTO t VALUES (1)") == (1, AUTOCOMMIT)
