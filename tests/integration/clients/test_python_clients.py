"""Python's clients of MariaDB: each logs in, asks, gets errors as exceptions, and uses a connection again.

Theirs are other C libraries and other habits: MySQL's libmysqlclient, MariaDB's libmariadb, and two in pure Python.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

from tests.kit.server import BinlogServer

USERS = {"dba": {"password": "it's secret", "grants": ["ALL PRIVILEGES"]}}
# What a client says in its own words, for each of SQL's errors.
NO_VARIABLE, NO_TABLES, NO_THREAD = 1193, 1235, 1094


@pytest.fixture(scope="module")
def server() -> Iterator[BinlogServer]:
    """For all of them: nobody changes anything. Nothing in it but one group."""
    server = BinlogServer(users=USERS, server_id=4711).start()
    server.q("CREATE DATABASE d")
    yield server
    server.discard()


def module(name: str) -> Any:
    """A client that only the tests need. tests/kit/setup.sh installs it; in CI it must be there."""
    if os.environ.get("CI") == "true":
        return importlib.import_module(name)
    return pytest.importorskip(name)


def login(server: BinlogServer) -> dict[str, Any]:
    account = server.account
    return {
        "host": server.host,
        "port": server.port,
        "user": account.user,
        "password": account.password,
    }


def asks(connection: Any, errors: type[Exception]) -> None:
    """What every client does in the same way, by Python's DB-API."""
    cursor = connection.cursor()

    def rows(sql: str) -> list[tuple[Any, ...]]:
        cursor.execute(sql)
        return list(cursor.fetchall())

    assert rows("SELECT @@gtid_binlog_pos, @@server_id, NULL") == [("0-4711-1", 4711, None)]
    assert [d[0] for d in cursor.description] == ["@@gtid_binlog_pos", "@@server_id", "NULL"]
    ((file, position, _, _, gtid),) = rows("SHOW MASTER STATUS")
    assert (file, gtid) == ("binlog-000000.ibb", "0-4711-1")
    assert position > 16384
    assert rows("SHOW VARIABLES LIKE 'server_id'") == [("server_id", "4711")]
    assert rows("SHOW VARIABLES LIKE 'nothing'") == []
    assert rows("SELECT 'ünï', '😀'") == [("ünï", "😀")]
    for sql, number in (
        ("SELECT @@nope", NO_VARIABLE),
        ("SET nope = 1", NO_VARIABLE),
        ("SELECT * FROM d.t WHERE a = b", NO_TABLES),
        ("KILL 4294967295", NO_THREAD),
    ):
        with pytest.raises(errors) as refused:
            rows(sql)
        assert getattr(refused.value, "errno", refused.value.args[0]) == number, sql
    assert rows("SELECT 1") == [(1,)]
    cursor.close()
    connection.commit()
    connection.rollback()


@pytest.mark.proves("queries", "TLS", client="pymysql")
@pytest.mark.parametrize("tls", [False, True])
def test_pymysql(server: BinlogServer, tls: bool) -> None:
    secured = {"ssl": {"check_hostname": False}} if tls else {"ssl_disabled": True}
    connection = pymysql.connect(**login(server), **secured)
    asks(connection, pymysql.Error)
    connection.ping()
    connection.select_db("d")
    connection.autocommit(True)
    assert connection.get_server_info() == "11.8.9-MariaDB-binlog-server"
    cursor = connection.cursor()
    # Arguments go into the text on this side of the wire.
    cursor.execute("SELECT %s, %s", ("it's", 7))
    assert cursor.fetchone() == ("it's", 7)
    cursor.execute("SELECT DATABASE(), @@autocommit")
    assert cursor.fetchone() == ("d", 1)
    connection.close()


@pytest.mark.proves("queries", "TLS", client="mysql-connector-python")
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("pure", [True, False], ids=["pure", "C"])
def test_mysql_connector(server: BinlogServer, pure: bool, tls: bool) -> None:
    connector = module("mysql.connector")
    connection = connector.connect(**login(server), use_pure=pure, ssl_disabled=not tls)
    asks(connection, connector.Error)
    assert connection.is_connected()
    connection.ping()
    connection.cmd_reset_connection()
    connection.autocommit = True
    assert connection.autocommit is True
    connection.time_zone = "+00:00"
    connection.start_transaction(isolation_level="READ COMMITTED")
    connection.rollback()
    assert connection.cmd_statistics()["Threads"] >= 1
    assert connection.server_info == "11.8.9-MariaDB-binlog-server"
    cursor = connection.cursor(dictionary=True)
    cursor.execute("SELECT %(a)s AS a, @@time_zone AS zone", {"a": "it's"})
    assert cursor.fetchall() == [{"a": "it's", "zone": "+00:00"}]
    connection.close()


@pytest.mark.proves("queries", "TLS", client="MariaDB Connector/Python")
@pytest.mark.parametrize("tls", [False, True])
def test_mariadb_connector(server: BinlogServer, tls: bool) -> None:
    mariadb = module("mariadb")
    connection = mariadb.connect(**login(server), ssl=tls)
    asks(connection, mariadb.Error)
    assert (connection.tls_version is not None) is tls
    connection.ping()
    assert connection.autocommit is False
    connection.reset()
    connection.autocommit = True
    assert connection.autocommit is True
    connection.select_db("d")
    assert connection.server_info == "11.8.9-MariaDB-binlog-server"
    cursor = connection.cursor()
    cursor.execute("SELECT ?, ?, DATABASE()", ("it's", 7))
    assert cursor.fetchall() == [("it's", 7, "d")]
    number = connection.connection_id
    connection.reconnect()
    assert connection.connection_id > number
    connection.close()


@pytest.mark.proves("a pool", client="MariaDB Connector/Python")
def test_mariadb_connector_pool(server: BinlogServer) -> None:
    mariadb = module("mariadb")
    pool = mariadb.ConnectionPool(pool_name="monitor", pool_size=2, **login(server))
    seen = [_position_and_thread(pool.get_connection) for _ in range(5)]
    pool.close()
    assert {position for position, _ in seen} == {"0-4711-1"}
    assert len({thread for _, thread in seen}) == 2


@pytest.mark.proves("a pool", client="mysql-connector-python")
def test_mysql_connector_pool(server: BinlogServer) -> None:
    """Between two users it resets the session."""
    pooling = module("mysql.connector.pooling")
    pool = pooling.MySQLConnectionPool(pool_name="monitor", pool_size=2, **login(server))
    first = pool.get_connection()
    first.cursor().execute("SET @left_behind = 1")
    first.close()
    seen = [_position_and_thread(pool.get_connection) for _ in range(4)]
    assert {position for position, _ in seen} == {"0-4711-1"}
    assert len({thread for _, thread in seen}) == 2
    connection = pool.get_connection()
    cursor = connection.cursor()
    cursor.execute("SELECT @left_behind")
    assert cursor.fetchall() == [(None,)]


def _position_and_thread(get: Callable[[], Any]) -> tuple[str, int]:
    connection = get()
    cursor = connection.cursor()
    cursor.execute("SELECT @@gtid_binlog_pos, CONNECTION_ID()")
    ((position, thread),) = cursor.fetchall()
    connection.close()
    return position, thread
