"""Python's clients that prepare statements: they look, and what they commit is in the binlog as they gave it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.clients.test_python_clients import USERS, login, module
from tests.kit.server import BinlogServer

VALUES = (
    1,
    "it's \\ ünï 😀",
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
    b"\0\xff'\\",
    Decimal("1.50"),
    -2.25,
    None,
)
INSERT = "INSERT INTO d.t VALUES ({})"
ROW = r"1,'it\'s \\ ünï 😀',TIMESTAMP'2024-02-29 01:02:03.000004',"


@pytest.fixture
def server() -> Iterator[BinlogServer]:
    server = BinlogServer(users=USERS, server_id=4711).start()
    yield server
    server.discard()


def committed(server: BinlogServer) -> list[str]:
    """The changes in the binlog."""
    infos = [str(row["Info"]) for row in server.q("SHOW BINLOG EVENTS")]
    return [info for info in infos if "INSERT" in info]


def looks(cursor: Callable[[], Any], mark: str) -> None:
    def rows(sql: str, *values: object) -> list[tuple[Any, ...]]:
        made = cursor()  # one of MariaDB's keeps its first statement
        made.execute(sql, values)
        found = list(made.fetchall())
        made.close()
        return found

    assert rows(f"SELECT {mark}, {mark} AS x, @@server_id, NULL", 7, "it's") == [
        (7, "it's", 4711, None)
    ]
    assert rows("SHOW MASTER STATUS")[0][0] == "binlog-000000.ibb"
    variable = f"SHOW VARIABLES WHERE Variable_name = {mark}"
    assert rows(variable, "server_id") == [("server_id", "4711")]
    schemas = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE "
    assert rows(schemas + mark, "inform%") == [("information_schema",)]


@pytest.mark.by_turns(2)
@pytest.mark.proves("prepared statements", client="mysql-connector-python")
@pytest.mark.parametrize("pure", [True, False], ids=["pure", "C"])
def test_mysql_connector(server: BinlogServer, pure: bool) -> None:
    connector = module("mysql.connector")
    connection = connector.connect(**login(server), use_pure=pure)
    looks(lambda: connection.cursor(prepared=True), "%s")
    cursor = connection.cursor(prepared=True)
    # Its C part writes beyond the values of some statements with several, such as a text, bytes and a Decimal
    # (mysql-connector-python 9.7: one process of 60 such statements in two ends by a signal).
    for values in [VALUES] if pure else [(value,) for value in VALUES]:
        cursor.execute(INSERT.format(",".join(["%s"] * len(values))), values)
        assert cursor.rowcount == 1
    cursor.executemany("INSERT INTO d.t (a) VALUES (%s)", [(1,), (2,)])
    connection.commit()
    # Its C part reads the error of a refused preparation from a statement that it has freed
    # (mysql-connector-python 9.7: now and then a crash); there a text is refused instead.
    asked = connection.cursor(prepared=pure)
    with pytest.raises(connector.Error) as refused:
        asked.execute("SELEC %s", (1,))
    assert refused.value.errno == 1064
    *first, one, two = [text.rpartition("VALUES ")[2][1:-1] for text in committed(server)]
    assert ",".join(first).startswith(ROW)
    assert ",".join(first).endswith(",-2.25e0,NULL")
    assert (one, two) == ("1", "2")
    who = login(server)
    connection.cmd_change_user(who["user"], who["password"], "d")
    cursor = connection.cursor()
    cursor.execute("SELECT DATABASE()")
    assert cursor.fetchone() == ("d",)
    connection.close()


@pytest.mark.proves("prepared statements", client="MariaDB Connector/Python")
def test_mariadb_connector(server: BinlogServer) -> None:
    mariadb = module("mariadb")
    connection = mariadb.connect(**login(server))
    looks(lambda: connection.cursor(prepared=True), "?")
    cursor = connection.cursor()
    cursor.execute(INSERT.format(",".join("?" * len(VALUES))), VALUES)
    cursor.executemany("INSERT INTO d.t (a) VALUES (?)", [(1,), (2,), (None,)])
    assert cursor.rowcount == 3
    connection.commit()
    first, *others = committed(server)
    assert ROW in first
    assert first.endswith(",1.50,-2.25e0,NULL)")
    assert [text.rpartition("VALUES ")[2] for text in others] == ["(1)", "(2)", "(NULL)"]
    cursor = connection.cursor(prepared=True, cursor_type=1)
    cursor.execute("SELECT 1 UNION SELECT 2 UNION SELECT ?", (3,))
    assert [cursor.fetchone(), *cursor.fetchall()] == [(1,), (2,), (3,)]
    connection.change_user(login(server)["user"], login(server)["password"], "d")
    cursor = connection.cursor()
    cursor.execute("SELECT DATABASE()")
    assert cursor.fetchone() == ("d",)
    connection.close()
