"""Columns of results, by statement, beside a real 11.8: name, type, flags, character set, length, decimals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from pymysql.connections import MySQLResult
from pymysql.cursors import Cursor

from binlog_server.sql.variables import VARIABLES
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.oracle import require_same

NAMES: Final = "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"
MANAGED: Final = "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='x'"
USER_VARIABLES: Final = "SET @i=1, @t='x', @d=1.5, @n=NULL"
BINARY: Final = 63
TEXTS: Final = (251, 253)

STATEMENTS: Final = [
    "SHOW SLAVE STATUS",
    "SHOW ALL SLAVES STATUS",
    "SHOW SLAVE HOSTS",
    "SHOW BINARY LOGS",
    "SHOW PROCESSLIST",
    "SHOW FULL PROCESSLIST",
    "SHOW WARNINGS",
    "SHOW ERRORS",
    "SHOW COUNT(*) WARNINGS",
    "SHOW COUNT(*) ERRORS",
    "SHOW VARIABLES LIKE 'port'",
    "SHOW STATUS LIKE 'uptime'",
    "SHOW ENGINES",
    "SHOW PRIVILEGES",
    "SHOW DATABASES",
    "SHOW DATABASES LIKE 'inf%'",
    "SHOW BINLOG EVENTS LIMIT 1",
    "XA RECOVER",
    "XA RECOVER FORMAT='SQL'",
    "SELECT 0, 1, -1, TRUE, 999999999, -999999999, 1000000000, 12345678901",
    "SELECT 18446744073709551615, -9223372036854775808, 18446744073709551616",
    "SELECT 1.5, -12.50, 0.25, 'abc', 'ж', '', NULL",
    "SELECT @i, @t, @d, @n",
    "SELECT CONNECTION_ID(), UNIX_TIMESTAMP(), UUID()",
    "SELECT NOW(), SYSDATE(), UTC_TIMESTAMP(), CURRENT_TIMESTAMP",
    "SELECT USER(), SESSION_USER(), SYSTEM_USER(), CURRENT_USER(), CURRENT_USER",
    "SELECT CURRENT_ROLE(), DATABASE(), SCHEMA()",
    "SELECT MASTER_GTID_WAIT('0-1-0', 0)",
    "SELECT MASTER_GTID_WAIT(NULL)",
]
# What the answer is about has another length there.
OF_ANY_LENGTH: Final = ["SHOW GRANTS", "SHOW CREATE USER", "SELECT VERSION()"]


# Numbers that may not be below 0 here, see test_system_variables.
SIGNED: Final = {
    "max_user_connections",
    "tcp_keepalive_interval",
    "tcp_keepalive_probes",
    "tcp_keepalive_time",
}


class Shown(NamedTuple):
    name: str
    type: int
    flags: int
    charset: int
    length: int
    decimals: int


@pytest.fixture
def sessions(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> Iterator[tuple[Cursor, Cursor]]:
    """One on each, the real one first."""
    real = make_upstream("--max-allowed-packet=16M", version="11.8")
    ours = binlog_server(users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}})
    with real.connect() as there, ours.connect() as here:
        cursors = there.cursor(Cursor), here.cursor(Cursor)
        for cursor in cursors:
            for statement in (NAMES, MANAGED, USER_VARIABLES):
                cursor.execute(statement)
        yield cursors


def shown(cursor: Any, statement: str) -> list[Shown]:
    cursor.execute(statement)
    result: MySQLResult = cursor._result
    cursor.fetchall()
    return [
        Shown(f.name, f.type_code, f.flags, f.charsetnr, f.length, f.scale) for f in result.fields
    ]


def test_as_a_real_server_tells_them(sessions: tuple[Cursor, Cursor]) -> None:
    there, here = sessions
    different = {
        statement: [pair for pair in zip(*both, strict=True) if pair[0] != pair[1]]
        for statement in STATEMENTS
        if (both := (shown(here, statement), shown(there, statement)))[0] != both[1]
    }
    there.execute("SELECT VERSION()")
    require_same(there.fetchall()[0][0], different)


def test_those_whose_names_and_lengths_depend_on_the_server(
    sessions: tuple[Cursor, Cursor],
) -> None:
    for statement in OF_ANY_LENGTH:
        (theirs,), (ours,) = (shown(cursor, statement) for cursor in sessions)
        assert ours[1:4] == theirs[1:4], statement
    there, here = (shown(cursor, "SHOW MASTER STATUS") for cursor in sessions)
    assert here[: len(there)] == there


def test_every_system_variable(sessions: tuple[Cursor, Cursor]) -> None:
    there, _ = sessions
    there.execute("SELECT LOWER(VARIABLE_NAME) FROM information_schema.SYSTEM_VARIABLES")
    known = {name for (name,) in there.fetchall()}
    different = {}
    for name in sorted(set(VARIABLES) & known - SIGNED):
        (theirs,), (ours,) = (shown(cursor, f"SELECT @@{name}") for cursor in sessions)
        if theirs.type in TEXTS:  # as long as the value
            theirs = theirs._replace(length=ours.length)
        if ours != theirs:
            different[name] = ours, theirs
    assert different == {}


@pytest.mark.by_turns(4)
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("SET NAMES utf8mb4", (45, 4)),
        ("SET NAMES utf8mb4 COLLATE utf8mb4_bin", (46, 4)),
        ("SET NAMES utf8mb3", (33, 3)),
        ("SET NAMES binary", (63, 1)),
        ("SET NAMES latin1", (8, 1)),
        ("SET character_set_results=NULL", (33, 3)),
        ("SET character_set_results=binary", (63, 1)),
        ("SET character_set_results=utf8mb4", (45, 4)),
    ],
)
def test_texts_are_of_the_character_set_of_results(
    binlog_server: MakeBinlogServer, setting: str, expected: tuple[int, int]
) -> None:
    with binlog_server().connect(charset="latin1") as connection:
        cursor = connection.cursor(Cursor)
        cursor.execute(setting)
        level, code, _ = shown(cursor, "SHOW WARNINGS")
        assert (level.charset, level.length) == (expected[0], 7 * expected[1])
        assert code.charset == BINARY
