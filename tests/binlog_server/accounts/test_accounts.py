"""Accounts by SQL, what they may do, and who may try to log in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from binlog_protocol.connection.auth import NATIVE_PASSWORD
from binlog_protocol.connection.commands import BinlogDump, Query, RegisterSlave
from binlog_protocol.connection.ed25519 import (
    CHALLENGE_SIZE,
    CLIENT_ED25519,
    ED25519,
    ed25519_sign,
)
from binlog_protocol.connection.handshake import AuthSwitchRequest, LoginRequest
from binlog_protocol.errors import RemoteError, SqlSyntaxError
from binlog_protocol.sql.tokens import first_words
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import parse_error
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskFull
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_server.accounts.account import Credential
from binlog_server.accounts.users import Users
from binlog_server.connections.login import FailedLogins
from binlog_server.process.logs import JsonFormatter
from binlog_server.sessions import conversation
from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.parser import parse
from tests.binlog_server.lab import ROOT, Client, Lab, until
from tests.binlog_server.tls_client import TlsClient

HASH = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"  # of 'secret'


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users={**ROOT, "plain": "pw"}, max_connect_errors=3) as running:
        yield running


async def errno(client: Client, sql: str) -> int:
    with pytest.raises(RemoteError) as caught:
        await client.query(sql)
    return caught.value.errno


async def shown(client: Client, sql: str) -> str:
    ((text,),) = await client.query(sql)
    assert text is not None
    return text


SPECS = {
    "CREATE USER a": "CREATE USER `a`@`%`",
    "create user 'a'@'10.0.%' identified by 'secret'": (
        f"CREATE USER `a`@`10.0.%` IDENTIFIED BY PASSWORD '{HASH}'"
    ),
    f"CREATE USER a@localhost IDENTIFIED BY PASSWORD '{HASH}' REQUIRE SSL": (
        f"CREATE USER `a`@`localhost` IDENTIFIED BY PASSWORD '{HASH}' REQUIRE SSL"
    ),
    "CREATE USER `a`@`%` IDENTIFIED VIA ed25519 USING PASSWORD('foo') REQUIRE X509": (
        "CREATE USER `a`@`%` IDENTIFIED VIA ed25519 USING"
        " 'vubFBzIrapbfHct1/J72dnUryz5VS7lA6XHH8sIx4TI' REQUIRE X509"
    ),
    f"CREATE OR REPLACE USER a IDENTIFIED WITH mysql_native_password AS '{HASH}'"
    " WITH MAX_USER_CONNECTIONS 7;": (
        f"CREATE USER `a`@`%` IDENTIFIED BY PASSWORD '{HASH}' WITH MAX_USER_CONNECTIONS 7"
    ),
}


@pytest.mark.parametrize("sql", SPECS)
async def test_create_and_show(lab: Lab, sql: str) -> None:
    client = await lab.root()
    await client.query(sql)
    account = SPECS[sql].split()[2]
    assert await shown(client, f"SHOW CREATE USER {account}") == SPECS[sql]
    grants = SPECS[sql].replace("CREATE USER", "GRANT USAGE ON *.* TO")
    assert await shown(client, f"SHOW GRANTS FOR {account}") == grants


async def test_a_life(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER a@'%' IDENTIFIED BY 'one', b IDENTIFIED BY 'x'")
    await client.query("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO a, b")
    assert "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `b`@`%`" in await shown(
        client, "SHOW GRANTS FOR b"
    )
    a = await lab.client("a", "one")
    assert (await shown(a, "SHOW GRANTS")).startswith("GRANT REPLICATION SLAVE, ")
    assert await errno(a, "SHOW GRANTS FOR b") == 1227
    assert await errno(a, "DROP USER b") == 1227
    assert await errno(a, "GRANT ALL ON *.* TO a") == 1227
    await a.query("SET PASSWORD = PASSWORD('two')")
    with pytest.raises(RemoteError, match="1045"):
        await lab.client("a", "one")
    await lab.client("a", "two")
    await client.query("ALTER USER a IDENTIFIED BY 'three'")
    await client.query(f"SET PASSWORD FOR b = '{HASH}'")
    await lab.client("a", "three")
    await lab.client("b", "secret")
    await client.query("REVOKE REPLICATION SLAVE ON *.* FROM a")
    assert "GRANT BINLOG MONITOR ON" in await shown(client, "SHOW GRANTS FOR a")
    await client.query("DROP USER a, b")
    with pytest.raises(RemoteError, match="1045"):
        await lab.client("a", "three")


async def test_a_password_among_settings(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """As `mariadb-admin password` says it. All is set, or nothing."""
    root = await lab.root()
    await root.query("CREATE USER a IDENTIFIED BY 'one'")
    await root.query("GRANT SUPER ON *.* TO a")
    a = await lab.client("a", "one")
    await a.query("SET sql_log_off=1")
    for refused, number in (("nothing", 1193), ("max_connections", 1229)):
        assert await errno(a, f"SET PASSWORD='{HASH}',{refused}=0") == number
    await lab.client("a", "one")
    with caplog.at_level("INFO"):
        await a.query(f"set password='{HASH}',sql_log_off=0")
    assert "SET PASSWORD: CURRENT_USER" in caplog.text
    assert await shown(a, "SELECT @@sql_log_off") == "0"
    await lab.client("a", "secret")
    await a.query("SET PASSWORD := PASSWORD('two')")
    await lab.client("a", "two")


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ("CREATE USER plain", 1290),
        ("DROP USER plain", 1290),
        ("SET PASSWORD = PASSWORD('x')", 1290),
        ("DROP USER nobody", 1396),
        ("ALTER USER nobody IDENTIFIED BY 'x'", 1396),
        ("GRANT RELOAD ON *.* TO nobody", 1133),
        ("SET PASSWORD FOR nobody = PASSWORD('x')", 1133),
        ("SHOW CREATE USER nobody", 1133),
        ("REVOKE ALL PRIVILEGES, GRANT OPTION FROM nobody", 1269),
        ("RENAME USER nobody TO x", 1396),
        ("RENAME USER plain TO x", 1290),
        ("RENAME USER nobody TO plain", 1290),
        ("RENAME USER x", 1064),
        ("REVOKE RELOAD ON *.* FROM nobody", 1141),
        ("SHOW GRANTS FOR nobody", 1141),
        ("GRANT SELECT, NONSENSE ON *.* TO plain2 IDENTIFIED BY 'x'", 1235),
        ("GRANT NONSENSE ON db.* TO plain2", 1235),
        ("GRANT role TO plain2", 1959),
        ("REVOKE role FROM plain2", 1959),
        ("SET ROLE role", 1959),
        (f"SET ROLE {'r' * 128}", 1959),
        (f"SET ROLE {'r' * 129}", 1470),
        (f"SET DEFAULT ROLE {'r' * 129}", 1470),
        ("CREATE USER plain3 PASSWORD EXPIRE", 1235),
        ("CREATE USER plain3 WITH SERVER_VERSION '5.7'", 1105),
        ("CREATE USER plain3 WITH SERVER_VERSION '10.11\\'x'", 1105),
        ("GRANT SELECT ON *.* TO nobody", 1133),
        ("GRANT RELOAD ON db.* TO plain2", 1221),
        ("CREATE USER x IDENTIFIED VIA unix_socket", 1524),
        ("CREATE USER x IDENTIFIED BY PASSWORD 'short'", 1372),
        ("CREATE USER x IDENTIFIED VIA ed25519 USING 'short'", 1372),
        ("CREATE USER x@'a b'", 1396),
        ("CREATE USER x IDENTIFED BY 'x'", 1064),
    ],
)
async def test_refused(lab: Lab, sql: str, number: int) -> None:
    assert await errno(await lab.root(), sql) == number


async def test_all_of_a_statement_or_nothing(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER a")
    assert await errno(client, "CREATE USER b, a") == 1396
    assert await errno(client, "DROP USER a, b") == 1396
    await client.query("SHOW GRANTS FOR a")
    await client.query("CREATE USER IF NOT EXISTS a, b")
    await client.query("DROP USER IF EXISTS a, b, c")


@pytest.mark.parametrize(
    "what",
    [
        *("ALL PRIVILEGES ON app.*", "SELECT, INSERT ON app.*", "SELECT (a, b) ON `app`.t"),
        *("EXECUTE ON PROCEDURE app.p", "SELECT ON TABLE app.t", "INDEX ON *"),
    ],
)
async def test_privileges_on_databases(lab: Lab, what: str) -> None:
    """None is kept, and least of all those on everything; a warning says so."""
    client = await lab.root()
    await client.query("CREATE USER a")
    for verb, word in (("GRANT", "TO"), ("REVOKE", "FROM")):
        await client.query(f"{verb} {what} {word} a")
        ((level, code, text),) = await client.query("SHOW WARNINGS")
        assert (level, code) == ("Warning", "1235")
        assert text is not None
        assert "ON a database" in text
        assert await shown(client, "SHOW GRANTS FOR a") == "GRANT USAGE ON *.* TO `a`@`%`"


async def test_a_locked_account(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER a IDENTIFIED BY 'pw' WITH MAX_USER_CONNECTIONS 3 ACCOUNT LOCK")
    assert (await shown(client, "SHOW CREATE USER a")).endswith(
        "MAX_USER_CONNECTIONS 3 ACCOUNT LOCK"
    )
    for password, number in (("pw", 4151), ("wrong", 1045)):
        other = await lab.connect()
        assert parse_error(await other.log_in("a", password)).errno == number
    await client.query("ALTER USER a ACCOUNT UNLOCK PASSWORD EXPIRE NEVER")
    other = await lab.connect()
    assert (await other.log_in("a", "pw"))[:1] == b"\0"


async def test_the_version_that_an_account_sees(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER old IDENTIFIED BY 'pw' WITH SERVER_VERSION '10.11.16-MariaDB'")
    assert "WITH SERVER_VERSION '10.11.16-MariaDB'" in await shown(client, "SHOW CREATE USER old")
    for user, version in (("old", "10.11.16-MariaDB"), ("root", "11.8.9-MariaDB-binlog-server")):
        other = await lab.connect()
        await other.log_in(user, "pw")
        assert await other.query("SELECT VERSION(), @@version, @@global.version") == [[version] * 3]
        assert await other.query("SHOW VARIABLES LIKE 'version'") == [["version", version]]


async def test_notes(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER a")
    for sql, number, text in (
        ("CREATE USER IF NOT EXISTS a", 1973, "Can't create user 'a'@'%'; it already exists"),
        ("DROP USER IF EXISTS a, b", 1974, "Can't drop user 'b'@'%'; it doesn't exist"),
        ("ALTER USER IF EXISTS b REQUIRE SSL", 1396, "Operation ALTER USER failed for 'b'@'%'"),
    ):
        answer = await client.ask(Query(sql).build())
        assert answer[:1] == b"\0", answer
        assert int.from_bytes(answer[5:7], "little") == 1
        assert await client.query("SHOW WARNINGS") == [["Note", str(number), text]]


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ("DROP USER ''@'%'", 1396),
        ("DROP USER ''", 1396),
        ("DROP USER IF EXISTS ''@'%', ''@localhost", None),
        ("ALTER USER ''@'%' IDENTIFIED BY 'x'", 1396),
        ("ALTER USER IF EXISTS '' IDENTIFIED BY 'x'", None),
        ("CREATE OR REPLACE USER ''@'%' IDENTIFIED BY 'x'", 1396),
        ("SET PASSWORD FOR ''@'%' = PASSWORD('x')", 1133),
        ("GRANT RELOAD ON *.* TO ''@'%'", 1133),
        ("REVOKE RELOAD ON *.* FROM ''@'%'", 1141),
        ("REVOKE ALL PRIVILEGES, GRANT OPTION FROM ''@'%'", 1269),
        ("SHOW GRANTS FOR ''@'%'", 1141),
        ("SHOW CREATE USER ''@'%'", 1133),
        ("RENAME USER ''@'%' TO b", 1396),
        ("RENAME USER ''@'%' TO b, a TO c", 1396),
    ],
)
async def test_empty_name_is_nobody(lab: Lab, sql: str, number: int | None) -> None:
    """CURRENT_USER is oneself; '' was taken for it, and so a DBA could drop the own account."""
    await (await lab.root()).query("GRANT ALL ON *.* TO a IDENTIFIED BY 'one' WITH GRANT OPTION")
    client = await lab.client("a", "one")
    before = await client.query("SHOW GRANTS")
    if number is None:
        await client.query(sql)
    else:
        assert await errno(client, sql) == number
    assert await (await lab.client("a", "one")).query("SHOW GRANTS") == before


async def test_rename(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER a IDENTIFIED BY 'one', b@localhost")
    await client.query("GRANT RELOAD ON *.* TO a")
    for sql in (
        "RENAME USER a TO b@localhost",
        "RENAME USER a TO a",
        "RENAME USER a TO c, nobody TO d",
        "RENAME USER a TO 'x y'@'a b'",
    ):
        assert await errno(client, sql) == 1396
    await client.query("RENAME USER a TO c, b@localhost TO a")
    assert "GRANT RELOAD ON" in await shown(client, "SHOW GRANTS FOR c")
    assert "GRANT USAGE ON" in await shown(client, "SHOW GRANTS FOR a")
    await lab.client("c", "one")
    assert await errno(client, "SHOW GRANTS FOR b@localhost") == 1141


async def test_privileges_of_what_is_not_here(lab: Lab) -> None:
    """What scripts of monitors say for any MariaDB: the rest is granted, and warnings name what means nothing."""
    client = await lab.root()
    await client.query("CREATE USER w IDENTIFIED BY 'x'")
    await client.query("GRANT process, trigger, REPLICATION CLIENT, show  view ON *.* TO w")
    told = await client.query("SHOW WARNINGS")
    assert [row[:2] for row in told] == [["Warning", "1235"]] * 2
    assert "TRIGGER:" in str(told[0][2])
    assert "SHOW VIEW:" in str(told[1][2])
    assert "GRANT PROCESS, BINLOG MONITOR ON *.* TO `w`@`%`" in await shown(
        client, "SHOW GRANTS FOR w"
    )
    await client.query("REVOKE TRIGGER, PROCESS ON *.* FROM w")
    assert len(await client.query("SHOW WARNINGS")) == 1
    await client.query("GRANT TRIGGER ON *.* TO w")
    assert "GRANT BINLOG MONITOR ON" in await shown(client, "SHOW GRANTS FOR w")


@pytest.mark.parametrize(
    ("privileges", "shown_as", "warnings"),
    [
        ("TRIGGER ON *.* TO w WITH GRANT OPTION", "USAGE", ["TRIGGER:", "WITH GRANT OPTION:"]),
        ("USAGE ON *.* TO w WITH GRANT OPTION", "USAGE", ["WITH GRANT OPTION:"]),
        ("PROCESS ON *.* TO w WITH GRANT OPTION", "PROCESS, CREATE USER", []),
        ("TRIGGER, PROCESS ON *.* TO w WITH GRANT OPTION", "PROCESS, CREATE USER", ["TRIGGER:"]),
        ("SELECT, DROP ON *.* TO w WITH GRANT OPTION", "SELECT, DROP, CREATE USER", []),
        ("GRANT OPTION ON *.* TO w", "CREATE USER", []),
        ("TRIGGER, GRANT OPTION ON *.* TO w", "CREATE USER", ["TRIGGER:"]),
        ("ALL ON *.* TO w WITH GRANT OPTION", "ALL PRIVILEGES", []),
    ],
)
async def test_the_grant_option(
    lab: Lab, privileges: str, shown_as: str, warnings: list[str]
) -> None:
    """It is the right to make accounts: nobody gets it beside a privilege that means nothing here."""
    client = await lab.root()
    await client.query("CREATE USER w IDENTIFIED BY 'x'")
    await client.query(f"GRANT {privileges}")
    told = [str(row[2]) for row in await client.query("SHOW WARNINGS")]
    assert len(told) == len(warnings)
    assert all(name in text for name, text in zip(warnings, told, strict=True))
    assert f"GRANT {shown_as} ON" in await shown(client, "SHOW GRANTS FOR w")
    await client.query("REVOKE GRANT OPTION ON *.* FROM w")
    assert "CREATE USER" not in await shown(client, "SHOW GRANTS FOR w")
    assert "ALL PRIVILEGES" not in await shown(client, "SHOW GRANTS FOR w")


async def test_revoke_all_with_the_grant_option(lab: Lab) -> None:
    client = await lab.root()
    await client.query("GRANT ALL ON *.* TO a IDENTIFIED BY 'x' WITH GRANT OPTION")
    await client.query("REVOKE ALL PRIVILEGES, GRANT OPTION FROM a")
    assert "GRANT USAGE ON" in await shown(client, "SHOW GRANTS FOR a")


async def test_all_privileges_and_what_is_taken_of_them(lab: Lab) -> None:
    client = await lab.root()
    await client.query("GRANT ALL PRIVILEGES ON *.* TO a IDENTIFIED BY 'x' WITH GRANT OPTION")
    assert "GRANT ALL PRIVILEGES ON" in await shown(client, "SHOW GRANTS FOR a")
    await client.query("REVOKE SUPER ON *.* FROM a")
    text = await shown(client, "SHOW GRANTS FOR a")
    assert "SUPER" not in text
    assert "REPLICATION SLAVE, " in text
    await client.query("REVOKE ALL ON *.* FROM a")
    assert "GRANT USAGE ON" in await shown(client, "SHOW GRANTS FOR a")


async def test_nothing_granted_may_do_nothing(lab: Lab) -> None:
    await (await lab.root()).query("CREATE USER a IDENTIFIED BY 'x'")
    client = await lab.client("a", "x")
    assert await client.query("SELECT 1") == [["1"]]
    assert await errno(client, "SHOW MASTER STATUS") == 1227
    await client.query("SET @slave_connect_state=''")
    client.command(BinlogDump(5).build())
    assert (await client.error())[0] == 1227
    other = await lab.client("a", "x")
    other.command(RegisterSlave(5, "h").build())
    assert (await other.error())[0] == 1045


async def test_ed25519_login(lab: Lab) -> None:
    await (await lab.root()).query("CREATE USER a IDENTIFIED VIA ed25519 USING PASSWORD('x')")
    for password, answer in (("x", 0x00), ("y", 0xFF)):
        client = await lab.connect()
        request = AuthSwitchRequest.parse(await client.log_in("a", password))
        assert (request.plugin, len(request.salt)) == ("client_ed25519", 32)
        client.send(frame_packet(ed25519_sign(password, request.salt), 3)[0])
        assert (await client.answer())[0] == answer


async def test_require_ssl(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER a IDENTIFIED BY 'x' REQUIRE SSL")
    await client.query("CREATE USER b IDENTIFIED BY 'x' REQUIRE X509")
    with pytest.raises(RemoteError, match="1045"):
        await lab.client("a", "x")
    for user, answer in (("a", b"\0"), ("b", b"\xff")):
        secured = await (await TlsClient.connect(lab.server.port)).upgrade()
        assert (await secured.log_in(user, "x"))[:1] == answer
        secured.close()


async def test_hosts(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER a@'10.%' IDENTIFIED BY 'x'")
    with pytest.raises(RemoteError, match="1045"):
        await lab.client("a", "x")
    await client.query("CREATE USER a@'127.0.0.1' IDENTIFIED BY 'y', a IDENTIFIED BY 'z'")
    await lab.client("a", "y")
    with pytest.raises(RemoteError, match="1045"):
        await lab.client("a", "z")


async def test_an_address_that_no_account_is_for() -> None:
    async with Lab(users={}) as lab:
        lab.server.users.add("a", "x", host="10.%")
        client = await Client.connect(lab.server.port)
        assert parse_error(client.seen[0].payload).errno == 1130


async def test_failures_block_an_address(lab: Lab) -> None:
    client = await lab.root()
    for _ in range(2):
        with pytest.raises(RemoteError, match="1045"):
            await lab.client("plain", "wrong")
    await lab.client("plain", "pw")  # begins to count anew
    for user in ("plain", "nobody", "root"):
        with pytest.raises(RemoteError, match="1045"):
            await lab.client(user, "wrong")
    blocked = await Client.connect(lab.server.port)
    assert parse_error(blocked.seen[0].payload).errno == 1129
    assert await errno(client, "FLUSH HOSTS x") == 1064
    await client.query("FLUSH HOSTS")
    await lab.client("plain", "pw")


async def test_how_many_failures_block_may_be_changed(lab: Lab) -> None:
    """At once: what has failed before counts."""
    client = await lab.root()
    for _ in range(3):
        with pytest.raises(RemoteError, match="1045"):
            await lab.client("plain", "wrong")
    blocked = await Client.connect(lab.server.port)
    assert parse_error(blocked.seen[0].payload).errno == 1129
    await client.query("SET GLOBAL max_connect_errors = 4")
    assert await shown(client, "SELECT @@max_connect_errors") == "4"
    await lab.client("plain", "pw")


def test_failures_are_remembered_in_bounds() -> None:
    failures = FailedLogins(lambda: 2)
    for number in range(20_000):
        failures.failed(str(number))
    assert failures.failed("19999") == 2
    assert failures.is_blocked("19999")
    assert failures.failed("0") == 1, "forgotten"


async def test_max_user_connections() -> None:
    async with Lab(users={"a": "x"}, max_user_connections=2) as lab:
        lab.server.users.add("b", "x", max_user_connections=1)
        for user, number in (("a", 2), ("b", 1)):
            clients = [await lab.client(user, "x") for _ in range(number)]
            with pytest.raises(RemoteError, match={"a": "1203", "b": "1226"}[user]):
                await lab.client(user, "x")
            for client in clients:
                client.close()
            await until(lambda: len(lab.server.connections) == 0)
            (await lab.client(user, "x")).close()
            await until(lambda: len(lab.server.connections) == 0)


async def test_kill_of_oneself(lab: Lab) -> None:
    client = await lab.root()
    client.command(Query(f"KILL {client.greeting.connection_id}").build())
    assert (await client.error())[0] == 1927
    assert await client.closed()


async def test_kill_of_who_waits(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    client, other = await lab.root(), await lab.root()
    client.command(Query("SELECT MASTER_GTID_WAIT('0-1-99', 30)").build())
    await other.query("SELECT 1")
    await other.query(f"KILL {client.greeting.connection_id}")
    assert (await client.error())[0] == 1927
    assert await client.closed()
    await until(lambda: len(lab.server.connections) == 1)
    assert "Traceback" not in caplog.text
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("sql", ["", " ", ";", " \n;; "])
async def test_empty_query(lab: Lab, sql: str) -> None:
    assert await errno(await lab.root(), sql) == 1065


async def test_wait_timeout(lab: Lab) -> None:
    idle, busy = await lab.root(), await lab.root()
    for client in (idle, busy):
        await client.query("SET wait_timeout=1")

    async def ask() -> None:
        while True:
            await busy.query("SELECT 1")
            await asyncio.sleep(0.02)

    asking = asyncio.create_task(ask())
    assert await idle.closed()
    await until(lambda: len(lab.server.connections) == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


ASKED = frame_packet(Query("SELECT 1").build(), 0)[0]


async def test_net_read_timeout(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Who stops within a packet is closed, wherever; who says nothing is not."""
    idle, *clients = [await lab.root() for _ in ASKED]
    for client in (idle, *clients):
        await client.query("SET net_read_timeout=1")
    for cut, client in enumerate(clients, 1):
        client.send(ASKED[:cut])
    assert all([await client.closed() for client in clients])
    assert caplog.text.count("it did not end a packet within net_read_timeout") == len(clients)
    assert await idle.query("SELECT 1") == [["1"]]


async def test_a_packet_may_come_slowly(lab: Lab) -> None:
    client = await lab.root()
    await client.query("SET net_read_timeout=1")
    for number in range(len(ASKED)):
        await asyncio.sleep(0.1)
        client.send(ASKED[number : number + 1])
    assert (await client.answer())[:1] == b"\x01"


SECRET = "hunter2"
LEAKY = [
    f"CREATE USER a IDENTIFIED BY '{SECRET}' nonsense",
    f"CREATE USER a IDENTIFED BY '{SECRET}'",
    f"CREATE USER a IDENTIFIED BY '{SECRET}",
    f'ALTER USER a IDENTIFIED BY "{SECRET}" nonsense',
    f"SET PASSWORD FOR a PASSWORD('{SECRET}')",
    f"GRANT ALL ON *.* TO a IDENTIFIED BY '{SECRET}' x",
    f"CREAT USER a IDENTIFIED BY '{SECRET}'",
    f"CHANGE MASTER TO MASTER_PASSWORD='{SECRET}'",
    f"SELECT PASSWORD('{SECRET}')",
    f"CREATE USER a IDENTIFIED BY '{SECRET}'",
    f"CREATE USER a IDENTIFIED VIA nonsense USING PASSWORD('{SECRET}')",
]


@pytest.mark.parametrize("sql", LEAKY)
@pytest.mark.parametrize("user", ["root", "plain"])
async def test_no_secret_in_logs(
    lab: Lab, sql: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = await lab.client(user, "pw")
    for text in (sql, sql.upper().replace(SECRET.upper(), SECRET)):
        await client.ask(Query(text).build())
    assert SECRET not in caplog.text
    assert SECRET not in "".join(map(JsonFormatter().format, caplog.records))
    assert SECRET not in str(list(lab.server.connections))


@settings(deadline=None)  # the first one builds the grammar
@given(st.text(max_size=60))
def test_any_text_is_a_statement_or_an_error(text: str) -> None:
    for start in ("", "CREATE USER ", "GRANT ", "ALTER USER a IDENTIFIED "):
        ACCOUNTS.is_begun_by(first_words(start + text))
        with contextlib.suppress(SqlSyntaxError):
            ACCOUNTS.parse(start + text)


def test_statements_about_accounts_are_told_from_others() -> None:
    for sql in (
        "CREATE  USER a",
        "show grants",
        " revoke x",
        "FLUSH LOCAL HOSTS",
        "set password=''",
    ):
        assert ACCOUNTS.is_begun_by(first_words(sql))
    for sql in (
        "CREATE TABLE user (a INT)",
        "SET passwords=1",
        "FLUSH LOGS",
        "SHOW CREATE TABLE t",
    ):
        assert not ACCOUNTS.is_begun_by(first_words(sql))


def test_long_user_names_are_no_login() -> None:
    assert LoginRequest("x" * 300).build()


async def test_a_long_user_name_is_cut(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(RemoteError, match="1045"):
        await lab.client("x" * 5000, "pw")
    assert "x" * 128 in caplog.text
    assert "x" * 129 not in caplog.text


async def asked_for(lab: Lab, name: str) -> str:
    """The plugin that a client which speaks mysql_native_password is asked for; every one of these logins fails."""
    client = await lab.connect()
    answer = await client.log_in(name, "wrong")
    if answer[:1] != b"\xfe":
        assert parse_error(answer).errno == 1045
        return NATIVE_PASSWORD
    request = AuthSwitchRequest.parse(answer)
    assert len(request.salt) == CHALLENGE_SIZE
    client.send(frame_packet(ed25519_sign("wrong", request.salt), 3)[0])
    assert parse_error(await client.answer()).errno == 1045
    return request.plugin


NAMES = [f"nobody{number}" for number in range(40)]
SHARES = {
    "native alone": ([NATIVE_PASSWORD] * 3, 0, 0),
    "ed25519 alone": ([ED25519] * 2, 40, 40),
    "both": ([NATIVE_PASSWORD, ED25519, NATIVE_PASSWORD, ED25519], 5, 35),
}


@pytest.mark.parametrize("plugins", SHARES)
async def test_a_name_does_not_tell_whether_it_has_an_account(plugins: str) -> None:
    """A name without one is asked for what one of the accounts is asked for, always the same, after a restart too."""
    of_accounts, least, most = SHARES[plugins]
    async with Lab(users={}, max_connect_errors=1000) as lab:
        users = Users(lab.directory.state)
        for number, plugin in enumerate(of_accounts):
            users.add(f"user{number}", "pw", plugin=plugin)
        users.add("elsewhere", "pw", host="10.9.9.9")
        asked = [await asked_for(lab, name) for name in NAMES]
        assert least <= asked.count(CLIENT_ED25519) <= most
        assert [await asked_for(lab, name) for name in NAMES] == asked
        again = Users(lab.directory.state)
        shares = [again.share_of(name) for name in NAMES]
        assert shares == [lab.server.users.share_of(name) for name in NAMES]
        assert sorted(zip(asked, shares, strict=True)) == sorted(
            zip(asked, shares, strict=True), key=lambda pair: pair[1]
        ), "names are asked for ed25519 up to one number, and for the other plugin from there on"


async def test_the_number_of_a_name_is_another_one_in_another_store(lab: Lab) -> None:
    other = Users(StateStore(MemoryDisk()))
    assert other.share_of("a") != lab.server.users.share_of("a")
    assert other.share_of("a") == other.share_of("a") != other.share_of("b")
    assert 0 <= other.share_of("\udcff") < 1


@pytest.mark.parametrize("name", ["plain", "nobody", "signs"])
async def test_a_wrong_password_takes_one_check_whoever_it_is(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """So that the time does not tell, either."""
    Users(lab.directory.state).add("signs", "pw", plugin=ED25519)
    checked: list[str] = []
    verify = Credential.verify

    def noted(self: Credential, challenge: bytes, response: bytes) -> bool:
        checked.append(self.plugin)
        return verify(self, challenge, response)

    monkeypatch.setattr(Credential, "verify", noted)
    plugin = await asked_for(lab, name)
    assert [f"client_{kind}" if kind == ED25519 else kind for kind in checked] == [plugin]


WRITING = (
    "CREATE USER z IDENTIFIED BY 'z'",
    "SET PASSWORD FOR z = PASSWORD('y')",
    "ALTER USER z WITH MAX_USER_CONNECTIONS 3",
    "GRANT PROCESS ON *.* TO z",
    "REVOKE PROCESS ON *.* FROM z",
    "RENAME USER z TO y",
    "DROP USER y",
)


async def test_accounts_are_not_written_on_the_loop(lab: Lab) -> None:
    """Each is a file written, synced and renamed: nobody else waits for that."""
    loop, threads = threading.get_ident(), []
    client = await lab.root()
    lab.directory.disk.fault = lambda *_: threads.append(threading.get_ident())
    for sql in WRITING:
        threads.clear()
        await client.query(sql)
        assert threads, sql
        assert loop not in threads, sql
    lab.directory.disk.fault = None


async def test_changes_of_many_are_one_after_the_other(lab: Lab) -> None:
    """What one has granted is not lost to another that had read the account before."""
    clients = [await lab.root() for _ in range(4)]
    await clients[0].query("CREATE USER z")
    names = ["PROCESS", "RELOAD", "SUPER", "BINLOG ADMIN"]
    await asyncio.gather(
        *(c.query(f"GRANT {n} ON *.* TO z") for c, n in zip(clients, names, strict=True))
    )
    text = await shown(clients[0], "SHOW GRANTS FOR z")
    assert all(name in text for name in names)


async def test_a_full_disk(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Where the redo log has no room either it is 1021, which says what is missing; nothing has changed."""
    client = await lab.root()
    disk = lab.directory.disk
    disk.capacity = disk.used()
    await client.query("CREATE USER z")  # the log has its room

    def full(changes: Mapping[str, Any]) -> None:
        raise DiskFull("no room (injected)")

    with patch.object(lab.directory.state, "update", full):
        assert await errno(client, "CREATE USER x IDENTIFIED BY 'x'") == 1021
        assert await errno(client, "GRANT PROCESS ON *.* TO z") == 1021
    disk.capacity = 1 << 62
    assert "GRANT USAGE ON" in await shown(client, "SHOW GRANTS FOR z")
    assert await errno(client, "SHOW GRANTS FOR x") == 1141
    await client.query("GRANT PROCESS ON *.* TO z")
    assert "Traceback" not in caplog.text


async def test_long_statements_of_one_account_keep_nobody_waiting(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sessions it has: another one's is parsed behind one of them."""
    gate, parsed = threading.Event(), []

    def slow(text: str, *others: Any) -> Any:
        gate.wait(30)
        parsed.append(text[:9])
        return parse(text, *others)

    monkeypatch.setattr(conversation, "parse", slow)
    long = ", 'a'" * 40
    flood = [await lab.client("plain", "pw") for _ in range(20)]
    replica = await lab.root()
    for client in flood:
        client.command(Query(f"SELECT 10{long}").build())
    await until(lambda: len(lab.server.runner._parser._waiting.get("plain@%", ())) == 19)
    replica.command(Query(f"SELECT 77{long}").build())
    await until(lambda: len(lab.server.runner._parser._waiting) == 2)
    gate.set()
    for client in (replica, *flood):
        assert (await client.answer())[:1] == b"\x29"
    assert parsed.index("SELECT 77") <= 2
