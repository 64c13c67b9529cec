"""View ddl, statements among changes, and where a micro-batch must end, over what real servers log."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_pipeline.errors import NonRowChange
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.admission import BatchLimits, next_end
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.views import open_view
from binlog_protocol.gtid import SlavePosition

from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, MakeLoggedStore, store_of_upstream
from tests.pipeline.view_rows import rows_of

DATABASE = "CREATE DATABASE d"
TABLE = "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)"


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_ddl(backend: Backend, make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        DATABASE,
        "USE d",
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE c SELECT 1 AS a",
        "ALTER TABLE t ADD v INT, RENAME TO `t.2`",
        "RENAME TABLE `t.2` TO t",
        "TRUNCATE t",
        "CREATE USER x@localhost",
        "DROP TABLE c, t",
    )
    found = rows_of(store, view="ddl")
    assert [(row["db"], row["kind"], row["affected"]) for row in found] == [
        ("d", "create", ["d.*"]),
        ("d", "create", ["d.t"]),
        ("d", "create", ["d.c"]),
        ("d", "alter", ["d.t", "d.t.2"]),
        ("d", "rename", ["d.t.2", "d.t"]),
        ("d", "truncate", ["d.t"]),
        ("d", "create", []),
        ("d", "drop", ["d.c", "d.t"]),
    ]
    assert [row["gtid"]["seq"] for row in found] == [1, 2, 4, 5, 6, 7, 8, 9]
    assert found[3]["sql"] == "ALTER TABLE t ADD v INT, RENAME TO `t.2`"


def test_alter_in_two_phases_counts_once(make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        DATABASE, TABLE, "ALTER TABLE d.t ADD w INT", flags=[FULL, "--binlog-alter-two-phase=1"]
    )
    assert [(row["kind"], row["gtid"]["seq"]) for row in rows_of(store, view="ddl")] == [
        ("create", 1),
        ("create", 2),
        ("alter", 4),
    ]


def test_emptied_tables_are_rows_if_asked_for(make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        DATABASE,
        TABLE,
        "CREATE TABLE d.u (id INT)",
        "INSERT INTO d.t VALUES (1, 1)",
        "TRUNCATE d.t",
        "TRUNCATE d.u",
        "INSERT INTO d.t VALUES (2, 2)",
        "DROP TABLE d.u, d.t",
        "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, v INT) SELECT 3 AS id, 3 AS v",
        "DROP DATABASE d",
    )
    found = rows_of(store, table="d.t", ops="c,u,d,t")
    assert [(row["_op"], row["_key"] and row["_key"]["id"]) for row in found] == [
        ("c", 1),
        ("t", None),
        ("c", 2),
        ("t", None),
        ("t", None),
        ("c", 3),
        ("t", None),
    ]
    assert [row["after"] for row in found if row["_op"] == "t"] == [None] * 4
    keys = [row["_order_key"] for row in found]
    assert keys == sorted(set(keys))
    assert [row["_op"] for row in rows_of(store, table="d.t")] == ["c", "c", "c"]


STATEMENT = ["SET binlog_format=STATEMENT"]
NON_ROW = [
    ([*STATEMENT, "UPDATE d.t SET v = 2"], "0-1-4: UPDATE d.t SET v = 2 is logged as text"),
    ([*STATEMENT, "USE d", "DELETE FROM t"], "DELETE FROM t"),
    ([*STATEMENT, "CREATE TABLE d.x SELECT * FROM d.t"], "CREATE TABLE d.x SELECT"),
    (["XA START 'a'", "INSERT INTO d.t VALUES (5, 5)", "XA END 'a'", "XA PREPARE 'a'", "XA ROLLBACK 'a'"],
     "XA ROLLBACK X'61'.* takes back rows that were given where it was prepared"),
    (["BEGIN", "INSERT INTO d.t VALUES (5, 5)", "SAVEPOINT b", "CREATE TEMPORARY TABLE d.q (a INT)",
      "INSERT INTO d.t VALUES (6, 6)", "ROLLBACK TO b", "COMMIT"], "ROLLBACK TO `b` takes back rows"),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "text"), NON_ROW)
def test_changes_that_are_not_rows(
    make_logged_store: MakeLoggedStore, statements: list[str], text: str
) -> None:
    store = make_logged_store(
        DATABASE, TABLE, "INSERT INTO d.t VALUES (1, 1)", *statements, server_id=1
    )
    with pytest.raises(NonRowChange, match=text):
        rows_of(store, table="d.t")
    assert rows_of(store, table="d.t", nonRow="skip")[0]["after"] == {"id": 1, "v": 1}


def test_statements_elsewhere_leave_a_doubt(
    make_upstream: MakeMariaDB, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """A trigger there may write here. What names a database that is read is refused, whichever is in use."""
    upstream = make_upstream(FULL)
    upstream.script(DATABASE, TABLE, "CREATE DATABASE e", "CREATE TABLE e.t (id INT)")
    upstream.script("INSERT INTO d.t VALUES (1, 1)", "INSERT INTO e.t VALUES (1)")
    upstream.script(*STATEMENT, "INSERT INTO e.t VALUES (1)")
    store = store_of_upstream(tmp_path / "store", upstream)
    for read in ({"table": "d.t"}, {"tables": "d.*"}):
        assert len(rows_of(store, **read)) == 1
        said = str(recwarn.pop(UserWarning).message)
        assert "INSERT INTO e.t VALUES (1) is logged as text, in another database" in said
        assert len(rows_of(store, nonRow="skip", **read)) == 1
        assert not len(recwarn)
    for read in ({"table": "e.t"}, {"tables": "e.*"}, {"tables": "*.*"}, {"tables": "d.*,e.*"}):
        with pytest.raises(NonRowChange):
            rows_of(store, **read)
    assert "as text" in rows_of(store, table="d.t", ops="c,u,d,t,x")[-1]["_statement"]["doubt"]
    assert not len(recwarn)


def test_a_micro_batch_ends_before_ddl_of_the_table(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream(FULL, "--binlog-alter-two-phase=1", server_id=1)
    upstream.script(
        DATABASE,
        TABLE,
        "INSERT INTO d.t VALUES (1, 1)",
        "CREATE TABLE d.u (id INT)",
        "INSERT INTO d.t VALUES (2, 1)",
        "ALTER TABLE d.t ADD w INT",  # 6 begins it, 7 has it
        "INSERT INTO d.t VALUES (3, 1, 1)",
        "SET STATEMENT sql_mode='' FOR DROP TABLE d.u",
        "INSERT INTO d.t VALUES (4, 1, 1)",
        "DROP DATABASE d",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    options = SourceOptions.parse({"path": str(store), "view": "changes", "table": "d.t"})
    source = open_source(options)
    barrier = open_view(options, source).barrier
    feed = source.feed()
    ends = [SlavePosition()]
    while ends[-1] != source.latest():
        ends.append(next_end(feed, ends[-1], BatchLimits(), 0.0, barrier))
    feed.close()
    assert [*map(str, ends[1:])] == ["0-1-1", "0-1-6", "0-1-10", "0-1-11"]


def test_an_xa_rollback_of_another_table_is_nothing(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream(FULL, server_id=1)
    xa = ("XA START 'a'", "INSERT INTO d.o VALUES (5)", "XA END 'a'", "XA PREPARE 'a'")
    upstream.script(DATABASE, TABLE, "CREATE TABLE d.o (id INT)", *xa)
    begin = upstream.gtid_binlog_pos
    upstream.script("XA ROLLBACK 'a'", "INSERT INTO d.t VALUES (1, 1)")
    store = store_of_upstream(tmp_path / "store", upstream)
    assert len(rows_of(store, table="d.t")) == 1
    assert len(rows_of(store, tables="d.t")) == 1
    with pytest.raises(NonRowChange, match="prepared in front of what is read"):
        rows_of(store, table="d.t", startGtid=str(begin))
