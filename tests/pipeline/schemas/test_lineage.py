"""The stretches of a table: one name and one layout each."""

from __future__ import annotations

import pytest
from binlog_pipeline.schemas.lineage import PlacedDdl, lineage
from binlog_pipeline.schemas.logged_statements import LoggedStatement
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.sql.statements import TableName, parse_statement

NAME = TableName("d", "t")


def position(number: int) -> SlavePosition:
    return SlavePosition([Gtid(0, 1, number)])


def placed(*statements: str) -> list[PlacedDdl]:
    """Statement n has the GTID 0-1-n, from 1 on; * in front of one says that it may be of a temporary table."""
    found = []
    for number, text in enumerate(statements, 1):
        sql = text.removeprefix("*")
        said = LoggedStatement(
            "d", sql, parse_statement(sql, "d"), may_be_temporary=text.startswith("*")
        )
        gtid = Gtid(0, 1, number)
        found.append(PlacedDdl(said, gtid, position(number - 1), position(number), 0))
    return found


CREATE = "CREATE TABLE t (id INT PRIMARY KEY, a INT)"
CASES: dict[str, tuple[tuple[str, ...], list[str] | None]] = {
    "nothing": ((), ["d.t 0-9"]),
    "create": ((CREATE,), ["d.t 0-9 begun"]),
    "create again": ((CREATE, "DROP TABLE t", CREATE), ["d.t 2-9 begun"]),
    "replaced": ((CREATE, "CREATE OR REPLACE TABLE t (id INT)"), ["d.t 1-9 begun"]),
    "index": ((CREATE, "CREATE INDEX i ON t (a)", "ALTER TABLE t COMMENT='x'"), ["d.t 0-9 begun"]),
    "rename": ((CREATE, "RENAME TABLE t TO o, o TO t"), ["d.t 0-9 begun"]),
    "renamed": (
        ("CREATE TABLE o (id INT)", "RENAME TABLE o TO t"),
        ["d.o 0-1 begun", "d.t 2-9"],
    ),
    "swap": (
        (CREATE, "CREATE TABLE n LIKE t", "RENAME TABLE t TO x, n TO t"),
        ["d.n 1-2 begun", "d.t 3-9"],
    ),
    "swap behind a sentry, as gh-ost does it": (  # servers say of each DROP TABLE that it used its session
        (
            "CREATE TABLE n LIKE t",
            "CREATE TABLE x (id INT)",
            "*DROP TABLE x",
            "RENAME TABLE t TO x, n TO t",
            "*DROP TABLE x",
            "CREATE TABLE n LIKE t",
            "CREATE TABLE x (id INT)",
            "*DROP TABLE x",
            "RENAME TABLE t TO x, n TO t",
        ),
        ["d.n 5-8 begun", "d.t 9-9"],
    ),
    "other database": (("RENAME TABLE e.n TO t",), ["e.n 0-0", "d.t 1-9"]),
    "alter": (
        (CREATE, "ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t ADD c INT DEFAULT 5"),
        ["d.t 0-1 begun", "d.t 2-2", "d.t 3-9"],
    ),
    "alter rename": (("ALTER TABLE n RENAME TO t",), ["d.n 0-0", "d.t 1-9"]),
    "gone": ((CREATE, "RENAME TABLE t TO o"), None),
    "gone by alter": ((CREATE, "ALTER TABLE t RENAME o"), None),
    "temporary by its name": (
        ("CREATE TEMPORARY TABLE n (id INT)", "RENAME TABLE n TO t"),
        ["d.t 0-9"],
    ),
    "temporary as the name is there": (
        ("CREATE TABLE n (id INT)", CREATE, "RENAME TABLE n TO t"),
        ["d.t 1-9 begun"],
    ),
    "temporary as it is gone": (
        ("CREATE TABLE n (id INT)", "DROP TABLE n", "RENAME TABLE n TO t"),
        ["d.t 0-9"],
    ),
    "temporary as it is said": (("*ALTER TABLE t ADD b INT DEFAULT 5",), ["d.t 0-9"]),
    "computed": (("ALTER TABLE t ADD b INT AS (a + 1)",), ["d.t 0-9"]),
    "numbered": (("ALTER TABLE t ADD b INT AUTO_INCREMENT UNIQUE",), ["d.t 0-9"]),
    "partition": (("ALTER TABLE t DROP PARTITION p0",), ["d.t 0-9"]),
    "partition of others": (("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE o",), ["d.t 0-9"]),
    "ignore": (("ALTER IGNORE TABLE t MODIFY a BIGINT",), ["d.t 0-9"]),
    "engine": (("ALTER TABLE t ENGINE=BLACKHOLE, ADD b INT",), ["d.t 0-9"]),
    "versioned": (("ALTER TABLE t ADD SYSTEM VERSIONING, ADD b INT",), ["d.t 0-9"]),
    "not understood": (("ALTER TABLE t ADD b UNHEARD",), ["d.t 0-9"]),
}


@pytest.mark.parametrize("name", CASES)
def test_stretches(name: str) -> None:
    statements, want = CASES[name]
    found = lineage(NAME, position(0), position(9), placed(*statements))
    shown = None if found is None else [
        f"{one.name} {number(one.start)}-{number(one.stop)}{' begun' * one.is_begun}" for one in found
    ]  # fmt: skip
    assert shown == want
    if found is not None:
        assert [one.turn is None for one in found] == [True, *[False] * (len(found) - 1)]


def number(of: SlavePosition) -> int:
    found = of.get(0)
    return 0 if found is None else found.seq_no
