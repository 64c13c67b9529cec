"""Changes of several tables as JSON: every type of both servers, what was not logged, names that need care."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.errors import BadOption
from binlog_pipeline.tables.landing import LandedDoubts
from binlog_pipeline.views.json_rows import json_objects
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.rows.test_values import SESSION, create, insert, raw_connection, tables
from tests.integration.rows.type_cases import cases_of
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, MakeLoggedStore, store_of_upstream
from tests.pipeline.view_rows import rows_of, table_of


def as_json(value: Any) -> Any:
    """What `json_rows.py` says of a value, as `json.loads` gives it."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            zone = "Z" if value.tzinfo else ""
            return value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0") + zone
        case datetime.date():
            return str(value)
        case datetime.timedelta():
            return value // datetime.timedelta(microseconds=1)
        case decimal.Decimal():
            return value
        case dict():
            return {name: as_json(member) for name, member in value.items()}
        case float():
            return decimal.Decimal(repr(value))
        case int() if not isinstance(value, bool):
            return decimal.Decimal(value)
    return value


def loads(text: str) -> Any:
    return json.loads(text, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


def same(have: Any, want: Any) -> bool:
    if isinstance(have, decimal.Decimal) and isinstance(want, decimal.Decimal):
        return have == want or float(have) == pytest.approx(float(want), rel=1e-6)
    if isinstance(have, dict):
        return have.keys() == want.keys() and all(same(have[k], want[k]) for k in have)
    return bool(have == want)


def test_what_is_only_prepared_is_in_doubt(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    """As of one table: its rows are given where it is prepared. Other tables' are not told."""
    upstream = make_upstream(FULL, server_id=1)
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "CREATE TABLE d.u (id INT)")
    for xid, table in (("a", "t"), ("b", "u")):
        upstream.script(
            f"XA START '{xid}'", f"INSERT INTO d.{table} VALUES (1)", f"XA END '{xid}'", f"XA PREPARE '{xid}'"
        )  # fmt: skip

    def doubt(start: str = "") -> str:
        doubts = LandedDoubts()
        store = store_of_upstream(tmp_path / f"store{len(list(tmp_path.iterdir()))}", upstream)
        more = {"startGtid": start} if start else {}
        doubts.add(table_of(store, tables="d.t", ops="c,u,d,t,x", **more))
        return doubts.text

    assert doubt() == "0-1-4: XA PREPARE X'61',X'',1: only prepared: its rows may be taken back"
    upstream.script("XA COMMIT 'a'", "XA COMMIT 'b'")
    assert doubt() == doubt("0-1-5") == ""


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_every_type(backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    upstream = make_upstream(FULL)
    cases = cases_of(backend.version)
    with raw_connection(upstream) as connection, connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute("CREATE DATABASE d")
        for table, some in tables(cases):
            cursor.execute(create(table, some))
            insert(cursor, table, some)
    store = store_of_upstream(tmp_path / "store", upstream)
    found = rows_of(store, tables="d.*")
    for table, _ in tables(cases):
        typed = rows_of(store, table=table)
        have = [row for row in found if f"{row['_db']}.{row['_table']}" == table]
        assert len(have) == len(typed) > 0
        for row, want in zip(have, typed, strict=True):
            after = loads(row["after"])
            assert list(after) == list(want["after"])
            for name, value in want["after"].items():
                assert same(after[name], as_json(value)), (name, after[name], value)
            assert loads(row["_key"]) == want["_key"]
            same_columns = ("_op", "_gtid", "_ts", "_order", "_order_key", "_schema_id")
            assert all(row[name] == want[name] for name in same_columns)
            assert row["before"] is None


TEXTS = st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=8), max_size=8)


@given(TEXTS, st.text(st.characters(codec="utf-8"), max_size=5))
def test_any_text(values: list[str | None], name: str) -> None:
    column = pa.array(["cut off", *values], pa.string())[1:]
    found = json_objects([name, "2"], [column, column], len(column)).to_pylist()
    assert [json.loads(text) for text in found] == [{name: v, "2": v} for v in values]
    raws = pa.array([[b"\xe9", b"a"], None, []], pa.list_(pa.binary()))
    assert json_objects(["c"], [raws], 3).to_pylist() == [
        '{"c":["6Q==", "YQ=="]}',
        '{"c":null}',
        '{"c":[]}',
    ]
    assert json_objects([], [], 2).to_pylist() == ["{}", "{}"]


def test_which_tables_and_columns(make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        "CREATE DATABASE d",
        "CREATE DATABASE e",
        'CREATE TABLE d.a (id INT PRIMARY KEY, `x "y` INT, b BLOB)',
        "CREATE TABLE d.b (id INT, v INT)",
        "CREATE TABLE e.a (v INT)",
        "INSERT INTO d.a VALUES (1, 2, 'z')",
        "BEGIN",
        "INSERT INTO e.a VALUES (7)",
        'UPDATE d.a SET `x "y` = NULL',
        "INSERT INTO d.b (v) VALUES (3)",
        "DELETE FROM d.a",
        "COMMIT",
        "DROP DATABASE e",
        flags=[FULL, "--binlog-row-image=MINIMAL"],
    )
    fields = ("_db", "_table", "_op", "_key", "_present", "before", "after")

    def rows(**options: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in fields) for row in rows_of(store, **options)]

    a = [
        ("d", "a", "c", '{"id":1}', None, None, '{"id":1,"x \\"y":2,"b":"eg=="}'),
        ("d", "a", "u", '{"id":1}', b"\2", '{"id":1}', '{"x \\"y":null}'),
        ("d", "a", "d", '{"id":1}', b"\1", '{"id":1}', None),
    ]
    b = ("d", "b", "c", None, None, None, '{"id":null,"v":3}')
    other = ("e", "a", "c", None, None, None, '{"v":7}')
    dropped = ("e", None, "t", None, None, None, None)
    assert rows() == [a[0], other, a[1], b, a[2]]
    assert rows(tables="d.a") == a
    assert rows(tables="?.a, x.y", ops="u,d,t") == [a[1], a[2], dropped]
    debezium = rows_of(store, tables="d.b", layout="debezium")
    assert [(row["before"], row["after"], row["op"]) for row in debezium] == [
        (None, '{"id":null,"v":3}', "c")
    ]
    assert (debezium[0]["source"]["db"], debezium[0]["source"]["table"]) == ("d", "b")


@pytest.mark.parametrize(
    "options", [{"layout": "cdf"}, {"layout": "flat"}, {"columns": "a"}, {"tables": "t"}]
)
def test_what_has_no_sense(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="table"):
        rows_of(tmp_path, **options)
