"""What clients ask about tables, and what they set before they read some: `mariadb-dump`, JDBC drivers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from binlog_protocol.errors import ServerError

from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.view import Computed, ResultSet
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
        (
            "SELECT DISTINCT FILE_NAME, ENGINE FROM INFORMATION_SCHEMA.FILES WHERE ENGINE IN"
            " (SELECT ENGINE FROM INFORMATION_SCHEMA.PARTITIONS) ORDER BY FILE_NAME, ENGINE",
            ["FILE_NAME", "ENGINE"],
        ),
        ("SELECT engine FROM information_schema.files\nGROUP BY engine LIMIT 1", ["engine"]),
        (
            "SHOW TABLES FROM information_schema LIKE 'none'",
            ["Tables_in_information_schema (none)"],
        ),
    ],
)
def test_no_rows(sql: SqlSession, text: str, columns: list[str]) -> None:
    result = run(sql, text)
    assert [column.name for column in result.columns] == columns
    assert result.rows == []


def run(sql: SqlSession, text: str) -> ResultSet:
    found = sql.execute(text)
    assert isinstance(found, Computed)
    return found.run()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT a FROM information_schema.none", 1109, "'none' in information_schema"),
        ("SELECT a FROM mysql.user", 1142, "denied to user 'root'@'localhost'"),
        ("SELECT a FROM performance_schema.none", 1146, "'performance_schema.none' doesn't exist"),
        ("SELECT a FROM shop.t", 1235, "SELECT: a binlog server holds no tables; ask the upstream"),
        ("SELECT a FROM t", 1046, "No database selected"),
        ("SELECT a FROM information_schema.files, shop.t", 1235, "holds no tables"),
        ("SELECT 1 FROM information_schema.files LIMIT 1 INTO OUTFILE 'x'", 1235, "INTO"),
        ("SHOW TABLES", 1046, "No database selected"),
        ("SHOW TABLES FROM d WHERE Tables_in_e = 'x'", 1054, "'Tables_in_e' in 'WHERE'"),
        ("DESCRIBE d.t", 1146, "'d.t' doesn't exist"),
        ("SHOW COLUMNS FROM t IN d", 1146, "'d.t' doesn't exist"),
        ("SHOW KEYS FROM d.t", 1146, "'d.t' doesn't exist"),
        ("SHOW CREATE TABLE d.t", 1146, "'d.t' doesn't exist"),
        ("SHOW CREATE DATABASE d", 1049, "'d'"),
    ],
)
def test_nothing_is_made_up(sql: SqlSession, text: str, error: int, message: str) -> None:
    with pytest.raises(ServerError, match=message) as caught:
        run(sql, text)
    assert caught.value.errno == error


LISTS = [
    ("SHOW TABLES FROM d", ["Tables_in_d"]),
    ("SHOW TABLES IN `a, b c`", ["Tables_in_a, b c"]),
    ("SHOW TABLES FROM `;`;", ["Tables_in_;"]),
    ("SHOW FULL TABLES FROM `d` LIKE 't%'", ["Tables_in_d (t%)", "Table_type"]),
    ("SHOW FULL TABLES FROM d WHERE Table_type = 'VIEW'", ["Tables_in_d", "Table_type"]),
    ("SHOW TABLES FROM d WHERE tables_in_D LIKE 't%'", ["Tables_in_d"]),
    ("SHOW TABLE STATUS IN d", ["Name", "Engine"]),
    ("SHOW TRIGGERS FROM d", ["Trigger", "Event"]),
    ("SHOW EVENTS FROM d LIKE 'x'", ["Db", "Name"]),
]


@pytest.mark.parametrize(("text", "columns"), LISTS)
def test_lists_of_a_users_database(sql: SqlSession, text: str, columns: list[str]) -> None:
    """Clients that look around find nothing, and SHOW WARNINGS says why."""
    result = run(sql, text)
    assert [column.name for column in result.columns][:2] == columns
    assert result.rows == []
    ((level, code, message),) = sql.diagnostics
    assert (level, code) == ("Note", 1235)
    assert "a binlog server holds no tables; ask the upstream" in message


@pytest.mark.parametrize(("text", "columns"), LISTS)
def test_what_a_dump_program_lists(sql: SqlSession, text: str, columns: list[str]) -> None:
    """A dump without tables, and no error, would be taken for a backup."""
    sql.program = "mysqldump"
    with pytest.raises(ServerError, match="holds no tables; ask the upstream") as caught:
        run(sql, text)
    assert caught.value.errno == 1235


def test_lists_of_the_current_database(sql: SqlSession) -> None:
    """The label has its name, also in WHERE."""
    sql.database = b"performance_schema"
    result = run(sql, "SHOW FULL TABLES WHERE Tables_in_performance_schema LIKE 'global%'")
    assert result.columns[0].name == "Tables_in_performance_schema"
    assert ("global_status", "BASE TABLE") in [tuple(row) for row in result.rows]
    assert sql.diagnostics == []
    sql.database = b"shop"
    assert run(sql, "SHOW TABLES").columns[0].name == "Tables_in_shop"


def test_tables_of_mysql(sql: SqlSession) -> None:
    """Who may read them finds them, by their database's name: no list of all databases has it."""
    assert run(sql, "SHOW TABLES FROM mysql").rows == []
    sql.grants = frozenset({"CREATE USER"})
    assert ["user"] in [list(row) for row in run(sql, "SHOW TABLES FROM mysql").rows]
    assert run(sql, "DESCRIBE mysql.user").rows[0][0] == "Host"
    databases = sql.execute("SHOW DATABASES")
    assert isinstance(databases, ResultSet)
    assert ("mysql",) not in databases.rows
    created = sql.execute("SHOW CREATE DATABASE mysql")
    assert isinstance(created, ResultSet)
    assert created.rows[0][0] == "mysql"
    (view,) = run(sql, "SHOW TABLE STATUS FROM mysql LIKE 'user'").rows
    assert (view[1], view[17]) == (None, "VIEW")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("information_schema.schemata", "CREATE TEMPORARY TABLE `SCHEMATA` ("),
        ("information_schema.schemata", "  `SQL_PATH` varchar(512),"),
        ("information_schema.schemata", "  `SCHEMA_COMMENT` varchar(1024) NOT NULL"),
        (
            "information_schema.schemata",
            ") ENGINE=MEMORY DEFAULT CHARSET=utf8mb3 COLLATE=utf8mb3_general_ci",
        ),
        (
            "information_schema.events",
            ") ENGINE=Aria DEFAULT CHARSET=utf8mb3 COLLATE=utf8mb3_general_ci PAGE_CHECKSUM=0",
        ),
        ("performance_schema.accounts", "CREATE TABLE `accounts` ("),
        (
            "performance_schema.accounts",
            "  `USER` char(128) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin DEFAULT NULL,",
        ),
        (
            "performance_schema.host_cache",
            "  `FIRST_ERROR_SEEN` timestamp NULL DEFAULT '0000-00-00 00:00:00',",
        ),
        (
            "performance_schema.replication_applier_status_by_worker",
            "  `LAST_ERROR_TIMESTAMP` timestamp NOT NULL DEFAULT current_timestamp() "
            "ON UPDATE current_timestamp(),",
        ),
    ],
)
def test_create_table_of_little_tables(sql: SqlSession, text: str, line: str) -> None:
    """As an 11.8 prints it: by it SQLAlchemy knows their columns."""
    found = sql.execute(f"SHOW CREATE TABLE {text}")
    assert isinstance(found, ResultSet)
    assert line in str(found.rows[0][1]).splitlines()


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("DESCRIBE mysql.user Password", None),
        ("DESCRIBE mysql.user User", ""),
        ("SHOW COLUMNS FROM mysql.db LIKE 'Select_priv'", "N"),
        ("SHOW COLUMNS FROM mysql.global_priv LIKE 'Priv'", "'{}'"),
        ("DESCRIBE mysql.proc created", "current_timestamp()"),
    ],
)
def test_defaults_that_describe_shows(sql: SqlSession, text: str, default: str | None) -> None:
    """A default is its value here; information_schema has it as CREATE TABLE does."""
    sql.grants = frozenset({"CREATE USER"})
    assert run(sql, text).rows[0][4] == default


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
        ("SET SESSION TRANSACTION ISOLATION LEVEL READ  COMMITTED", "READ-COMMITTED", 0),
        ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "REPEATABLE-READ", 0),
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


def test_set_transaction_for_all(sql: SqlSession) -> None:
    """For sessions that log in later."""
    text = "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    with pytest.raises(ServerError, match="SUPER"):
        sql.execute(text)
    sql.grants = frozenset({"SUPER"})
    assert sql.execute(text) is None
    later = SqlSession(sql.server, 7, "x@localhost")
    for name in ("tx_isolation", "transaction_isolation"):
        assert variable(sql, name) == "REPEATABLE-READ"
        assert variable(sql, f"global.{name}") == "SERIALIZABLE"
        assert variable(later, name) == "SERIALIZABLE"


def test_settings_of_dump_programs(sql: SqlSession) -> None:
    """They put back what they found."""
    before = variable(sql, "optimizer_switch")
    sql.execute("set optimizer_switch='semijoin=off'")
    assert variable(sql, "optimizer_switch") == str(before).replace("semijoin=on", "semijoin=off")
    sql.execute("set optimizer_switch=default")
    assert variable(sql, "optimizer_switch") == before
    sql.execute("SET SQL_QUOTE_SHOW_CREATE=0")
    assert variable(sql, "sql_quote_show_create") == 0
