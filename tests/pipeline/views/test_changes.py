"""View changes over what real servers log: every layout, folded to the table, in the log's order."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_pipeline.errors import BadOption, SourceError

from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, MakeLoggedStore, store_of_upstream
from tests.pipeline.view_rows import rows_of


def test_each_row_in_order(make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, id INT PRIMARY KEY)",
        "CREATE TABLE d.other (id INT PRIMARY KEY)",
        "INSERT INTO d.t VALUES (1, 10), (2, 20)",
        "BEGIN",
        "INSERT INTO d.other VALUES (1)",
        "UPDATE d.t SET a = 5 WHERE id = 20",
        "INSERT INTO d.t VALUES (3, 30)",
        "UPDATE d.t SET id = 21 WHERE id = 20",
        "DELETE FROM d.t WHERE id = 10",
        "COMMIT",
    )
    rows = rows_of(store, table="d.t")
    assert [(row["_op"], row["_key"]["id"], row["before"], row["after"]) for row in rows] == [
        ("c", 10, None, {"a": 1, "id": 10}),
        ("c", 20, None, {"a": 2, "id": 20}),
        ("u", 20, {"a": 2, "id": 20}, {"a": 5, "id": 20}),
        ("c", 30, None, {"a": 3, "id": 30}),
        ("u", 21, {"a": 5, "id": 20}, {"a": 5, "id": 21}),
        ("d", 10, {"a": 1, "id": 10}, None),
    ]
    keys = [row["_order_key"] for row in rows]
    assert keys == sorted(set(keys))
    assert [
        b"".join(row["_order"][name].to_bytes(size, "big") for name, size in SIZES) for row in rows
    ] == keys
    assert {row["_present"] for row in rows} == {None}
    assert len({row["_schema_id"] for row in rows}) == 1
    assert [row["_gtid"]["seq"] for row in rows] == [4, 4, 5, 5, 5, 5]


SIZES = (("file", 8), ("offset", 8), ("event", 4), ("row", 4))


def test_other_layouts(make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)",
        "SET timestamp=1700000000",
        "INSERT INTO d.t VALUES (1, 10), (2, 20)",
        "UPDATE d.t SET v = v + 1",
        "DELETE FROM d.t WHERE id = 1",
        server_id=7,
    )
    struct = rows_of(store, table="d.t")
    flat = rows_of(store, table="d.t", layout="flat")
    kept = ("_op", "_gtid", "_ts", "_order", "_order_key")
    assert flat == [
        {**{name: row[name] for name in kept}, **(row["after"] or row["before"])} for row in struct
    ]

    cdf = rows_of(store, table="d.t", layout="cdf")
    assert [(row["_change_type"], row["id"], row["v"]) for row in cdf] == [
        ("insert", 1, 10),
        ("insert", 2, 20),
        ("update_preimage", 1, 10),
        ("update_postimage", 1, 11),
        ("update_preimage", 2, 20),
        ("update_postimage", 2, 21),
        ("delete", 1, 11),
    ]
    versions = [row["_commit_version"] for row in cdf]
    assert versions == sorted(versions)
    assert len(set(versions)) == 3
    assert {str(row["_commit_timestamp"]) for row in cdf} == {"2023-11-14 22:13:20+00:00"}

    debezium = rows_of(store, table="d.t", layout="debezium")
    assert [(row["op"], row["before"], row["after"]) for row in debezium] == [
        (row["_op"], row["before"], row["after"]) for row in struct
    ]
    place = struct[3]["_order"]
    assert debezium[3]["ts_ms"] == 1_700_000_000_000
    assert debezium[3]["source"] == {
        "connector": "mariadb", "db": "d", "table": "t", "ts_ms": 1_700_000_000_000, "server_id": 7,
        "gtid": "0-7-4", "file": str(place["file"]), "pos": place["offset"], "event": place["event"], "row": 1,
    }  # fmt: skip


def test_a_layout_with_the_name_of_a_column(make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        "CREATE DATABASE d", "CREATE TABLE d.t (_OP INT)", "INSERT INTO d.t VALUES (1)"
    )
    with pytest.raises(BadOption, match=r"layout=flat has a column _op itself"):
        rows_of(store, table="d.t", layout="flat")
    assert rows_of(store, table="d.t", layout="cdf")[0]["_OP"] == 1
    with pytest.raises(BadOption, match="leave t out of ops"):
        rows_of(store, table="d.t", layout="cdf", ops="c,t")


def test_unknown_table(make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store("CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
    with pytest.raises(BadOption, match=r"no row of d\.t"):
        rows_of(store, table="d.t")


def test_values_that_have_no_place(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    """The error says which option to change; a column that is not picked does not matter."""
    upstream = make_upstream(FULL)
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT, n BIGINT UNSIGNED)")
    upstream.script("INSERT INTO d.t VALUES (1, 18446744073709551615)")
    store = store_of_upstream(tmp_path / "store", upstream)
    with pytest.raises(SourceError, match=r"d\.t\.n holds .*; unsignedBigint=decimal has room"):
        rows_of(store, table="d.t", unsignedBigint="long")
    picked = rows_of(store, table="d.t", unsignedBigint="long", columns="id")
    assert [row["after"] for row in picked] == [{"id": 1}]
