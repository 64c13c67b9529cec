"""The limits of temporary space, on ours as on a MariaDB 11.8: what is refused, with which error, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pymysql
import pytest

from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

USERS: Final = {"space": {"password": "space", "grants": ["ALL PRIVILEGES"]}}
SESSION: Final = "max_tmp_session_space_usage"
TOTAL: Final = "max_tmp_total_space_usage"
USED: Final = "SHOW STATUS LIKE 'Tmp_space_used'"
MOST: Final = "SHOW STATUS LIKE 'Max_tmp_space_used'"


def insert(size: int) -> str:
    """Two rows: one alone would be logged here in one piece, without a cache, if it is committed by itself."""
    return f"INSERT INTO space.t(b) VALUES (REPEAT('x',{size})),('')"


# Of each session what it says. Sizes are answered as 0 or not: how a file grows is each server's matter.
STATEMENTS: Final = [
    (0, "DROP DATABASE IF EXISTS space"),
    (0, "CREATE DATABASE space"),
    (0, "CREATE TABLE space.t(a INT PRIMARY KEY AUTO_INCREMENT, b LONGTEXT) ENGINE=InnoDB"),
    (0, f"SELECT @@{SESSION}, @@global.{SESSION}, @@{TOTAL}"),
    # of a session
    (0, f"SET SESSION {SESSION}=131072"),
    (0, "BEGIN"),
    (0, USED),
    (0, insert(50_000)),
    (0, USED),
    (0, MOST),
    (0, "SHOW GLOBAL STATUS LIKE 'Tmp_space_used'"),
    (1, USED),
    (0, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE TMP_SPACE_USED > 0"),
    (0, insert(200_000)),
    (0, "SHOW WARNINGS LIMIT 1"),
    (0, insert(300)),
    (0, "SELECT COUNT(*) FROM space.t"),
    (0, "COMMIT"),
    (0, USED),
    (0, MOST),
    (0, "SELECT COUNT(*) FROM space.t"),
    (0, "BEGIN"),
    (0, insert(50_000)),
    (0, "SAVEPOINT a"),
    (0, insert(200_000)),
    (0, "ROLLBACK TO a"),
    (0, insert(20_000)),
    (0, USED),
    (0, "ROLLBACK"),
    (0, USED),
    (0, "SELECT COUNT(*) FROM space.t"),
    (0, insert(200_000)),
    (0, USED),
    (0, f"SET STATEMENT {SESSION}=0 FOR {insert(200_000)}"),
    (0, "SELECT COUNT(*) FROM space.t"),
    (0, f"CREATE TABLE space.u(a INT PRIMARY KEY) COMMENT '{'x' * 2000}'"),
    # lowered below what is used: what needs no more goes on
    (0, "BEGIN"),
    (0, insert(100_000)),
    (0, f"SET SESSION {SESSION}=65536"),
    (0, insert(100)),
    (0, insert(90_000)),
    (0, "COMMIT"),
    (0, "SELECT COUNT(*) FROM space.t"),
    # XA
    (0, "XA START 'x'"),
    (0, insert(50_000)),
    (0, "XA END 'x'"),
    (0, "XA PREPARE 'x'"),
    (0, USED),
    (0, "XA COMMIT 'x'"),
    (0, "SELECT COUNT(*) FROM space.t"),
    # of all: asked first
    (0, f"SET SESSION {SESSION}=131072"),
    (0, f"SET GLOBAL {TOTAL}=131072"),
    (0, insert(200_000)),
    (0, f"SET SESSION {SESSION}=0"),
    (0, "BEGIN"),
    (0, insert(90_000)),
    (1, "BEGIN"),
    (1, insert(120_000)),
    (1, "SHOW WARNINGS LIMIT 1"),
    (1, insert(100)),
    (0, "ROLLBACK"),
    (1, insert(120_000)),
    (1, "COMMIT"),
    (1, "SELECT COUNT(*) FROM space.t"),
    (1, "SHOW GLOBAL STATUS LIKE 'Tmp_space_used'"),
    (1, "SHOW GLOBAL STATUS LIKE 'Max_tmp_space_used'"),
    (1, "FLUSH GLOBAL STATUS"),
    (1, "SHOW GLOBAL STATUS LIKE 'Max_tmp_space_used'"),
    (1, MOST),
    (1, "FLUSH STATUS"),
    (1, MOST),
    (0, f"SET GLOBAL {TOTAL}=DEFAULT"),
    # a new global value is one of sessions to come
    (0, f"SET GLOBAL {SESSION}=65536"),
    (1, f"SELECT @@{SESSION}"),
    (2, f"SELECT @@{SESSION}"),
    (2, insert(200_000)),
    (1, insert(200_000)),
    (1, f"SET SESSION {SESSION}=DEFAULT"),
    (1, insert(200_000)),
    (0, f"SET GLOBAL {SESSION}=DEFAULT"),
    *((0, f"SET SESSION {SESSION}={value}") for value in ("1", "65535", "100000", "-1", "'x'")),
    (0, f"SELECT @@{SESSION}"),
    (0, f"SET SESSION {SESSION}=18446744073709551616"),
    (0, "SHOW WARNINGS"),
]


class Sessions:
    """Three sessions of one server, each begun when it says something."""

    def __init__(self, host: str, port: int) -> None:
        self._where = {"host": host, "port": port, "user": "space", "password": "space"}
        self._open: dict[int, Any] = {}

    def answer(self, number: int, text: str) -> object:
        if number not in self._open:
            self._open[number] = pymysql.connect(**self._where, ssl_disabled=True, autocommit=True)
        cursor = self._open[number].cursor()
        try:
            cursor.execute(text)
        except pymysql.Error as error:
            return error.args
        rows = cursor.fetchall()
        if "STATUS LIKE" in text:
            return [(name, value != "0") for name, value in rows]
        return rows if cursor.description else cursor.rowcount

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()


@pytest.fixture
def both(make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer) -> Iterator[list[Sessions]]:
    """Sessions of a MariaDB, and of ours."""
    real = make_upstream("--binlog-format=ROW", version="11.8")
    real.script("GRANT ALL ON *.* TO space@'%' IDENTIFIED BY 'space'")
    ours = binlog_server(users=USERS, local_tables=True)
    found = [Sessions(real.host, real.port), Sessions(ours.host, ours.port)]
    yield found
    for sessions in found:
        sessions.close()


def test_temporary_space_is_limited_as_there(both: list[Sessions]) -> None:
    real, ours = both
    different = []
    for number, text in STATEMENTS:
        answers = real.answer(number, text), ours.answer(number, text)
        if answers[0] != answers[1]:
            different.append((number, text[:80], *answers))
    assert not different
