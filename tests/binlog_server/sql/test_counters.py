"""What SHOW STATUS counts: see tests/integration/test_status_counters.py for what a MariaDB counts."""

from __future__ import annotations

import pytest

from binlog_server.connections.connections import Connections
from binlog_server.connections.statement_counts import StatementCounts
from binlog_server.sql.statement import Statement
from binlog_server.sql.statement_kind import classify
from binlog_server.sql.status_variables import status_variables
from tests.binlog_server.lab import WITH_ROOT, Lab

OURS = frozenset(
    {
        *("ExplainPurge", "ExplainGtid", "CreateLease", "AlterLease", "DropLease"),
        *("ConvertBinlog", "ReloadConfiguration"),
        *("CreateFault", "DropFault", "DropAllFaults", "ShowBinlogFaults"),
        *("ShowBinlogLeases", "ShowBinlogReplicas", "BackupServer"),
        *("AccountStatement", "AccountChange", "PreparedSql", "Filterable"),  # of others the base
    }
)
"""Statements that MariaDB does not have, and so has no counter of."""


def _all(statement: type[Statement]) -> set[type[Statement]]:
    below = set(statement.__subclasses__())
    return below.union(*map(_all, below))


async def test_each_statement_has_a_counter() -> None:
    async with Lab() as lab:
        rows = status_variables(lab.server).keys()
    counted = {s.__name__: s.com for s in _all(Statement) if s.com}
    assert {f"Com_{name}" for name in counted.values()} <= rows
    without = {s.__name__ for s in _all(Statement) if not s.com and "counted_as" not in vars(s)}
    assert without == OURS


@pytest.mark.parametrize(
    ("text", "counter"),
    {
        "CREATE TABLE t(a INT)": "create_table",
        "CREATE OR REPLACE TABLE t(a INT)": "create_table",
        "create  unique /* x */ index i ON t(a)": "create_index",
        "CREATE DEFINER=`table`@`%` VIEW v AS SELECT 1": "create_view",
        "CREATE DEFINER=root@localhost TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET @a=1": "create_trigger",
        "CREATE OR REPLACE DEFINER=a AGGREGATE FUNCTION f() RETURNS INT RETURN 1": "create_function",
        "ALTER ONLINE TABLE t ADD b INT": "alter_table",
        "ALTER DATABASE d COLLATE x": "alter_db",
        "ALTER VIEW v AS SELECT 1": "create_view",
        "DROP SCHEMA d": "drop_db",
        "DROP TABLES a, b": "drop_table",
        "RENAME TABLE a TO b": "rename_table",
        "TRUNCATE t": "truncate",
        "ANALYZE TABLE t": "analyze",
        "GRANT SELECT ON *.* TO x": "grant",
        "SET PASSWORD = PASSWORD('x')": "set_option",
        "SET STATEMENT max_statement_time=1 FOR DELETE FROM t": "delete",
        "insert into t values (1)": "insert",
        "BEGIN": "begin",
        "ROLLBACK TO a": "rollback_to_savepoint",
        "-- nothing": "empty_query",
        "SELECT 1": "",
    }.items(),
)
def test_what_is_committed(text: str, counter: str) -> None:
    assert classify(text.encode()).counted_as == counter


def test_sums_stay_when_sessions_go_and_begin_anew() -> None:
    connections = Connections()
    counts = StatementCounts(connections.asked)
    counts.command("select")
    counts.command("")
    counts.quick[b"INSERT "] += 2
    counts.quick[b"insert "] += 1
    assert counts.fold() == {"Com_select": 1, "Com_insert": 3, "Questions": 3, "Queries": 3}
    assert counts.fold() == connections.asked
    counts.forget()
    counts.command("select")
    assert counts.fold() == {"Com_select": 1}
    assert connections.asked["Com_select"] == 2


async def test_slow_ones_and_the_hot_path() -> None:
    async with Lab(users=WITH_ROOT) as lab:
        client, other = await lab.root(), await lab.root()

        async def look(scope: str = "SESSION") -> dict[str, int]:
            names = "'Com_insert', 'Com_commit', 'Slow_queries', 'Questions'"
            rows = await client.query(f"SHOW {scope} STATUS WHERE Variable_name IN ({names})")
            return {str(name): int(str(value)) for name, value in rows}

        before = await look("GLOBAL")
        for sql in ("INSERT INTO t VALUES (1)", "insert into t values (2)", "BEGIN", "COMMIT"):
            await client.query(sql)
        await other.query("INSERT INTO t VALUES (3)")
        own, now = await look(), await look("GLOBAL")
        assert (own["Com_insert"], own["Com_commit"], own["Slow_queries"]) == (2, 1, 0)
        assert now["Com_insert"] - before["Com_insert"] == 3
        assert now["Questions"] - before["Questions"] == 4 + 1 + 2
        await client.query("SET long_query_time=0")
        await client.query("INSERT INTO t VALUES (4)")
        await client.query("SELECT 1")
        await client.query("SET long_query_time=10")
        assert (await look())["Slow_queries"] == 3  # and the SET that made it so
        await other.query("FLUSH GLOBAL STATUS")
        assert (await look("GLOBAL"))["Com_insert"] == 3
        await client.query("FLUSH STATUS")
        assert (await look())["Com_insert"] == 0
