"""The decoder against real servers: what SELECT gives is what the row events hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pymysql.cursors
import pytest
from binlog_protocol.events.rows import ABSENT, ChangeKind, Value
from binlog_protocol.events.table_map import ColumnKind

from binlog_server.testing.mariadb import MariaDB
from tests.integration.rows import type_cases
from tests.integration.rows.type_cases import FULL, MINIMAL, NO_LOG, TypeCase, cases_of
from tests.integration.rows.upstream_rows import LoggedChange, changes_after, row_events_after
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]

SESSION = "SET SESSION sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'"
COLUMNS_AT_ONCE = 12  # a row has 64 KiB at the most


def tables(cases: list[TypeCase]) -> Iterator[tuple[str, list[TypeCase]]]:
    for n, at in enumerate(range(0, len(cases), COLUMNS_AT_ONCE)):
        yield f"d.t{n}", cases[at : at + COLUMNS_AT_ONCE]


def create(table: str, cases: list[TypeCase]) -> str:
    columns = ", ".join(f"c{i} {case.definition}" for i, case in enumerate(cases))
    return f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns}) DEFAULT CHARACTER SET latin1"


def insert(cursor: Any, table: str, cases: list[TypeCase]) -> None:
    """Row n has the n-th value of each type; NULL where there are no more, so the last row is all NULL."""
    for n in range(max(len(case.literals) for case in cases) + 1):
        values = [case.literals[n] if n < len(case.literals) else "NULL" for case in cases]
        cursor.execute(f"INSERT INTO {table} VALUES ({n}, {', '.join(values)})")


def expected(cursor: Any, table: str, cases: list[TypeCase], mode: str) -> list[tuple[Value, ...]]:
    columns = [case.select.format(c=f"c{i}") for i, case in enumerate(cases)]
    cursor.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY id")
    return [
        tuple(
            None if raw is None else case.read(_str(raw), mode)
            for raw, case in zip(row, cases, strict=True)
        )
        for row in cursor.fetchall()
    ]


def _str(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode()


def raw_connection(upstream: MariaDB) -> Any:
    """Values come as the text that the server sends."""
    return upstream.connect(conv={}, cursorclass=pymysql.cursors.Cursor, charset="utf8mb4")


@pytest.mark.parametrize("metadata", [NO_LOG, MINIMAL, FULL])
def test_every_type(backend: Backend, make_upstream: MakeMariaDB, metadata: str) -> None:
    upstream = make_upstream(
        f"--binlog-row-metadata={metadata}", f"--log-bin-compress={int(metadata == MINIMAL)}"
    )
    cases = cases_of(backend.version)
    with raw_connection(upstream) as connection, connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute("CREATE DATABASE d")
        for table, some in tables(cases):
            cursor.execute(create(table, some))
            insert(cursor, table, some)
        changes: dict[str, list[LoggedChange]] = {}
        for change in changes_after(upstream, ""):
            changes.setdefault(f"d.{change.table.table}", []).append(change)
        for table, some in tables(cases):
            wanted = expected(cursor, table, some, metadata)
            found = [change.row.after for change in changes[table]]
            assert len(found) == len(wanted)
            for image, row in zip(found, wanted, strict=True):
                assert image is not None
                for value, want, case in zip(image[1:], row, some, strict=True):
                    assert value == want, (case.definition, metadata)
                    assert type(value) is type(want), (case.definition, metadata)
                    if isinstance(want, Decimal):
                        assert str(value) == str(want)
            if metadata == FULL:
                names = [column.name for column in changes[table][0].table.columns]
                assert names == ["id", *(f"c{i}" for i in range(len(some)))]
                assert changes[table][0].table.primary_key == ((0, 0),)


def present(image: tuple[object, ...] | None) -> list[int] | None:
    return None if image is None else [i for i, value in enumerate(image) if value is not ABSENT]


IMAGES = {  # of (id, a, b BLOB): what is in an INSERT of (id, a), an UPDATE of a, and one of b; before and after
    "FULL": ([0, 1, 2], ([0, 1, 2], [0, 1, 2]), ([0, 1, 2], [0, 1, 2]), [0, 1, 2]),
    "MINIMAL": ([0, 1], ([0], [1]), ([0], [2]), [0]),
    "NOBLOB": ([0, 1], ([0, 1], [0, 1]), ([0, 1], [0, 1, 2]), [0, 1]),
}


def test_row_images(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script("CREATE DATABASE d")
    for image, (of_insert, of_update, of_blob_update, of_delete) in IMAGES.items():
        before = upstream.gtid_binlog_pos
        upstream.script(
            "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY, a INT DEFAULT 7, b BLOB)",
            f"SET SESSION binlog_row_image={image}",
            "INSERT INTO d.t (id, a) VALUES (1, 2)",
            "UPDATE d.t SET a = 3",
            "UPDATE d.t SET b = 'blob'",
            "DELETE FROM d.t",
        )
        rows = [change.row for change in changes_after(upstream, before)]
        assert [present(rows[0].before), present(rows[0].after)] == [None, of_insert]
        assert (present(rows[1].before), present(rows[1].after)) == of_update
        assert (present(rows[2].before), present(rows[2].after)) == of_blob_update
        assert [present(rows[3].before), present(rows[3].after)] == [of_delete, None]
        assert rows[1].after is not None
        assert rows[1].after[1] == 3
        assert rows[2].after is not None
        assert rows[2].after[2] == b"blob"
        assert rows[3].before is not None
        assert rows[3].before[0] == 1


def test_insert_of_nothing_but_defaults(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """Under MINIMAL such a row has no bytes at all."""
    upstream = make_upstream()
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY DEFAULT 5)",
        "SET SESSION binlog_row_image=MINIMAL",
        "INSERT INTO d.t VALUES ()",
    )
    assert len(list(changes_after(upstream, ""))) == 1


def test_generated_invisible_and_versioned(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.g (id INT PRIMARY KEY, v INT AS (id * 2) VIRTUAL, s INT AS (id * 3) STORED,"
        " hidden INT INVISIBLE DEFAULT 9)",
        "INSERT INTO d.g (id) VALUES (4)",
        "CREATE TABLE d.v (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING",
        "INSERT INTO d.v VALUES (1, 1)",
        "UPDATE d.v SET a = 2",
        "DELETE FROM d.v",
    )
    changes = list(changes_after(upstream, ""))
    generated = changes[0]
    assert [c.name for c in generated.table.columns] == ["id", "v", "s", "hidden"]
    assert generated.row.after == (4, 8, 12, 9)
    versioned = changes[1:]
    assert [c.name for c in versioned[0].table.columns] == ["id", "a", "row_start", "row_end"]
    # An UPDATE also writes the row as it was, a DELETE is an UPDATE of row_end.
    assert [c.kind for c in versioned] == [
        ChangeKind.INSERT,
        ChangeKind.UPDATE,
        ChangeKind.INSERT,
        ChangeKind.UPDATE,
    ]
    with raw_connection(upstream) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone='+00:00'")
        cursor.execute(
            "SELECT id, a, row_start, row_end FROM d.v FOR SYSTEM_TIME ALL ORDER BY row_end"
        )
        history = [
            (int(row[0]), int(row[1]), *map(type_cases.timestamp, row[2:]))
            for row in cursor.fetchall()
        ]
    assert [versioned[2].row.after, versioned[3].row.after] == history


OLD_FORMAT = (
    (
        "TIME",
        type_cases.time,
        ("'-838:59:59{n}'", "'838:59:59{n}'", "'-0:0:1{f}'", "'1:2:3{f}'", "'0:0:0'"),
    ),
    (
        "DATETIME",
        type_cases.date_time,
        (
            "'2024-02-29 13:14:15{f}'",
            "'9999-12-31 23:59:59{n}'",
            "'0000-00-00 00:00:00'",
            "'2024-00-05 1:2:3{f}'",
        ),
    ),
    (
        "TIMESTAMP",
        type_cases.timestamp,
        (
            "'2024-02-29 13:14:15{f}'",
            "'2038-01-19 03:14:07{n}'",
            "'0000-00-00 00:00:00'",
            "'1970-01-01 00:00:01'",
        ),
    ),
)


@pytest.mark.parametrize(("type_", "read", "literals"), OLD_FORMAT)
def test_format_of_mariadb_53(
    backend: Backend, make_upstream: MakeMariaDB, type_: str, read: Any, literals: tuple[str, ...]
) -> None:
    """The precision is not logged: it comes from the schema."""
    upstream = make_upstream("--mysql56-temporal-format=OFF")
    columns = ", ".join(f"c{digits} {type_}({digits}) NULL" for digits in range(7))
    with raw_connection(upstream) as connection, connection.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute("CREATE DATABASE d")
        cursor.execute(f"CREATE TABLE d.t (id INT PRIMARY KEY, {columns})")
        for n, literal in enumerate(literals):
            values = []
            for digits in range(7):
                point = "." if digits else ""
                values.append(literal.format(f=point + "987654"[:digits], n=point + "9" * digits))
            cursor.execute(f"INSERT INTO d.t VALUES ({n}, {', '.join(values)})")
        cursor.execute("SELECT * FROM d.t ORDER BY id")
        wanted = [(int(row[0]), *map(read, row[1:])) for row in cursor.fetchall()]
    found = []
    for event, table in row_events_after(upstream, ""):
        known = [
            replace(column, fraction_digits=i - 1) if i else column
            for i, column in enumerate(table.columns)
        ]
        (row,) = event.rows(table.with_columns(known))
        found.append(row.after)
    assert found == wanted


def test_kinds(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """What only a schema tells: UUID, INET4, INET6 and VECTOR."""
    upstream = make_upstream("--binlog-row-metadata=MINIMAL")
    kinds = [ColumnKind.UUID, ColumnKind.INET4, ColumnKind.INET6]
    types, values = ["UUID", "INET4", "INET6"], ["UUID()", "'10.0.0.0'", "'2001:db8::'"]
    if backend.version != "10.11":
        kinds, types, values = (
            [*kinds, ColumnKind.VECTOR],
            [*types, "VECTOR(2)"],
            [*values, "VEC_FromText('[0.5,2]')"],
        )
    columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(types))
    upstream.script(
        "CREATE DATABASE d",
        f"CREATE TABLE d.t ({columns})",
        f"INSERT INTO d.t VALUES ({', '.join(values)})",
    )
    (change,) = changes_after(upstream, "")
    table = change.table.with_columns(
        [
            replace(column, kind=kind)
            for column, kind in zip(change.table.columns, kinds, strict=True)
        ]
    )
    (row,) = change.event.rows(table)
    assert row.after is not None
    assert str(row.after[0]) == upstream.value("SELECT c0 FROM d.t")
    assert str(row.after[1]) == "10.0.0.0"
    assert str(row.after[2]) == "2001:db8::"
    assert row.after[3:] == ((0.5, 2.0),) * (len(kinds) - 3)
