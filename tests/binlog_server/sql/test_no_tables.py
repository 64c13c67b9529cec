"""What clients ask about tables, and what they set before they read some: `mariadb-dump`, JDBC drivers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from binlog_protocol.errors import ServerError

from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.view import ResultSet
from tests.binlog_server.lab import Lab


@pytest.fixture
def sql() -> Iterator[SqlSession]:
    lab = Lab()
    yield SqlSession(lab.server, 42, "root@localhost", grants=frozenset({"RELOAD"}))
    lab.directory.close()


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT FILE_NAME FROM INFORMATION_SCHEMA.FILES", ["FILE_NAME"]),
        ("select `a`, b from information_schema.files where b in ('x;', 'y');", ["a", "b"]),
        (
            "SELECT DISTINCT A, B FROM INFORMATION_SCHEMA.FILES WHERE A IN (SELECT C FROM X) ORDER BY A, B",
            ["A", "B"],
        ),
        ("SELECT A FROM information_schema.files\nGROUP BY A LIMIT 1", ["A"]),
    ],
)
def test_no_rows_of_tablespaces(sql: SqlSession, text: str, columns: list[str]) -> None:
    result = sql.execute(text)
    assert isinstance(result, ResultSet)
    assert [column.name for column in result.columns] == columns
    assert result.rows == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT a FROM information_schema.tables", 1109, "'tables' in information_schema"),
        ("SELECT a FROM INFORMATION_SCHEMA.Columns WHERE 1", 1109, "'columns' in"),
        ("SELECT a FROM mysql.user", 1064, "near 'mysql.user'"),
        ("SELECT 1 FROM information_schema.files", 1064, "near"),
        ("SELECT COUNT(*) FROM information_schema.files", 1064, "near"),
        ("SELECT a FROM information_schema.files, t", 1064, "near ', t'"),
        ("SELECT a FROM information_schema.files WHERE 1 UNION SELECT 1", 1064, "UNION"),
        ("SELECT a FROM information_schema.files LIMIT 1 INTO OUTFILE 'x'", 1064, "INTO"),
        ("SHOW TABLES", 1235, "holds no tables; ask the upstream"),
        ("SHOW FULL TABLES FROM `d` LIKE 't%'", 1235, "holds no tables"),
        ("SHOW TABLES IN d", 1235, "holds no tables"),
    ],
)
def test_nothing_is_made_up(sql: SqlSession, text: str, error: int, message: str) -> None:
    with pytest.raises(ServerError, match=message) as caught:
        sql.execute(text)
    assert caught.value.errno == error


@pytest.mark.parametrize("text", ["FLUSH TABLES", "FLUSH /*!40101 LOCAL */ TABLES", "flush table"])
def test_flush(sql: SqlSession, text: str) -> None:
    assert sql.execute(text) is None
    assert sql.diagnostics == []


def test_a_read_lock_holds_up_nothing_and_says_so(sql: SqlSession) -> None:
    assert sql.execute("FLUSH TABLES WITH READ LOCK") is None
    assert [(d.level, d.code) for d in sql.diagnostics] == [("Warning", 1235)]
    assert "commits and the upstream go on" in sql.diagnostics[0].message


def test_flush_needs_reload(sql: SqlSession) -> None:
    sql.grants = frozenset()
    with pytest.raises(ServerError, match="RELOAD"):
        sql.execute("FLUSH TABLES WITH READ LOCK")


def variable(sql: SqlSession, name: str) -> object:
    result = sql.execute(f"SELECT @@{name}")
    assert isinstance(result, ResultSet)
    return result.rows[0][0]


@pytest.mark.parametrize(
    ("text", "isolation", "read_only"),
    [
        ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "REPEATABLE-READ", 0),
        ("SET TRANSACTION ISOLATION LEVEL READ  COMMITTED", "READ-COMMITTED", 0),
        ("set local transaction read only", "REPEATABLE-READ", 1),
        (
            "SET SESSION TRANSACTION READ WRITE, ISOLATION LEVEL SERIALIZABLE",
            "SERIALIZABLE",
            0,
        ),
    ],
)
def test_set_transaction(sql: SqlSession, text: str, isolation: str, read_only: int) -> None:
    assert sql.execute(text) is None
    for prefix in ("tx", "transaction"):
        assert variable(sql, f"{prefix}_isolation") == isolation
        assert variable(sql, f"{prefix}_read_only") == read_only


def test_set_transaction_for_all_is_refused(sql: SqlSession) -> None:
    with pytest.raises(ServerError, match="tx_isolation"):
        sql.execute("SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE")


def test_settings_of_dump_programs(sql: SqlSession) -> None:
    """They put back what they found."""
    before = variable(sql, "optimizer_switch")
    sql.execute("set optimizer_switch='semijoin=off'")
    assert variable(sql, "optimizer_switch") == "semijoin=off"
    sql.execute("set optimizer_switch=default")
    assert variable(sql, "optimizer_switch") == before
    sql.execute("SET SQL_QUOTE_SHOW_CREATE=0")
    assert variable(sql, "sql_quote_show_create") == 0
