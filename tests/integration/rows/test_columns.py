"""Arrow columns against real servers: what SELECT gives is what they hold, by value and in sums over many rows."""

from __future__ import annotations

import datetime
import zlib
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from binlog_protocol.row_columns import Changes, ColumnOptions, RowDecoder

from binlog_server.testing.mariadb import MariaDB
from tests.integration.rows.test_values import (
    SESSION,
    create,
    expected,
    insert,
    raw_connection,
    tables,
)
from tests.integration.rows.type_cases import FULL, MINIMAL, NO_LOG, cases_of
from tests.integration.rows.upstream_rows import groups_after
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.protocol.row_columns.reference import as_arrow, column_rows, plain_rows, same

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]


def decoded(
    upstream: MariaDB, position: str, options: ColumnOptions | None = None
) -> list[Changes]:
    decoder = RowDecoder(options)
    decoder.add([group.payload for group in groups_after(upstream, position)])
    return decoder.take()


def test_every_type(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """With its extremes, with each of the three amounts of metadata, and compressed events."""
    upstream = make_upstream()
    cases = cases_of(backend.version)
    with raw_connection(upstream) as connection, connection.cursor() as cursor:
        cursor.execute(SESSION)
        for metadata in (NO_LOG, MINIMAL, FULL):
            position = upstream.gtid_binlog_pos
            cursor.execute("CREATE OR REPLACE DATABASE d")
            upstream.script(
                f"SET GLOBAL binlog_row_metadata={metadata}",
                f"SET GLOBAL log_bin_compress={int(metadata == MINIMAL)}",
            )
            for table, some in tables(cases):
                cursor.execute(create(table, some))
                insert(cursor, table, some)
            found = {f"d.{changes.table.table}": changes for changes in decoded(upstream, position)}
            for table, some in tables(cases):
                changes = found[table]
                assert changes.after is not None
                changes.after.validate(full=True)
                columns = changes.table.columns
                wanted = expected(cursor, table, some, metadata)
                rows = [list(row.values())[1:] for row in changes.after.to_pylist()]
                assert len(rows) == len(wanted)
                for row, values in zip(rows, wanted, strict=True):
                    for have, value, case, column in zip(
                        row, values, some, columns[1:], strict=True
                    ):
                        want = as_arrow(value, column)
                        assert same(have, want), (case.definition, metadata, have, want)


def test_row_images(make_upstream: MakeMariaDB) -> None:
    """What an image leaves out is null, and not in the list of what is present."""
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script("CREATE DATABASE d")
    for image in ("FULL", "MINIMAL", "NOBLOB"):
        before = upstream.gtid_binlog_pos
        upstream.script(
            "CREATE OR REPLACE TABLE d.t (id INT PRIMARY KEY DEFAULT 5, a INT DEFAULT 7, b BLOB)",
            f"SET SESSION binlog_row_image={image}",
            "INSERT INTO d.t (id, a) VALUES (1, 2), (2, NULL)",
            "INSERT INTO d.t VALUES ()",
            "UPDATE d.t SET a = 3",
            "UPDATE d.t SET b = 'blob'",
            "DELETE FROM d.t",
        )
        groups = [group.payload for group in groups_after(upstream, before)]
        decoder = RowDecoder()
        decoder.add(groups)
        changes = decoder.take()
        assert same(column_rows(changes), plain_rows(groups))
        assert sum(map(len, changes)) == 12
        deleted = next(c for c in changes if c.kind.value == "delete")
        assert (
            deleted.before_present == {"FULL": (0, 1, 2), "MINIMAL": (0,), "NOBLOB": (0, 1)}[image]
        )
        assert deleted.before is not None
        assert deleted.before.column("id").to_pylist() == [1, 2, 5]


ROWS = 5000
MANY = f"""INSERT INTO d.t SELECT seq, seq * 1000003 % 4294967296, CAST(seq AS SIGNED) / 7 - 300,
    CONCAT('na\u00efve ', seq), '2000-01-01' + INTERVAL seq MINUTE + INTERVAL seq MICROSECOND,
    IF(seq % 3, REPEAT('x', seq % 600), NULL), SEC_TO_TIME(CAST(seq AS SIGNED) * 7 - 15000),
    18446744073709551615 - seq FROM d.seq_1_to_{ROWS}"""


def test_sums_over_many_rows(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """Counts, sums and CRC sums of a table are those of the changes that made it."""
    upstream = make_upstream("--binlog-row-metadata=FULL", "--log-bin-compress=1")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNSIGNED, dec_ DECIMAL(30,10), name VARCHAR(40), at DATETIME(6),"
        " note TEXT, t TIME, big BIGINT UNSIGNED) CHARACTER SET utf8mb4",
        MANY,
        "UPDATE d.t SET name = CONCAT(name, '\u20ac'), dec_ = -dec_ WHERE id % 5 = 0",
        "DELETE FROM d.t WHERE id % 7 = 0",
    )
    changes = {c.kind.value: c for c in decoded(upstream, "")}
    assert [len(changes[kind]) for kind in ("insert", "update", "delete")] == [
        ROWS,
        ROWS // 5,
        ROWS // 7,
    ]
    table = folded([changes[kind] for kind in ("insert", "update", "delete")])
    names = table.column("name").to_pylist()
    have = (
        table.num_rows,
        pc.sum(table.column("id")).as_py(),
        pc.sum(table.column("u")).as_py(),
        sum(table.column("dec_").to_pylist()),
        sum(zlib.crc32(name.encode()) for name in names),
        max(table.column("at").to_pylist()),
        sum(
            zlib.crc32(note.encode())
            for note in table.column("note").to_pylist()
            if note is not None
        ),
        sum(table.column("t").to_pylist(), datetime.timedelta()) // datetime.timedelta(seconds=1),
        sum(table.column("big").to_pylist()),
    )
    (row,) = upstream.q(
        "SELECT COUNT(*) a, SUM(id) b, SUM(u) c, SUM(dec_) d, SUM(CRC32(name)) e, MAX(at) f, SUM(CRC32(note)) g,"
        " SUM(TIME_TO_SEC(t)) h, SUM(big) i FROM d.t"
    )
    assert list(have) == [
        value if not isinstance(value, Decimal) else _number(value) for value in row.values()
    ]


def _number(value: Decimal) -> Any:
    return int(value) if value == value.to_integral_value() else value


def folded(changes: list[Changes]) -> pa.Table:
    """The table that INSERTs, then UPDATEs, then DELETEs leave."""
    rows: dict[int, dict[str, Any]] = {}
    for some in changes:
        before = [None] * len(some) if some.before is None else some.before.to_pylist()
        after = [None] * len(some) if some.after is None else some.after.to_pylist()
        for old, new in zip(before, after, strict=True):
            if old is not None:
                assert rows.pop(old["id"]) == old
            if new is not None:
                rows[new["id"]] = new
    schema = next(c.after.schema for c in changes if c.after is not None)
    return pa.Table.from_pylist(list(rows.values()), schema)


def test_options(make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script(
        "CREATE DATABASE d",
        "SET SESSION sql_mode='ALLOW_INVALID_DATES'",
        "CREATE TABLE d.t (day DATE, t TIME(3), big BIGINT UNSIGNED, b BIT(1), s SET('x','y'), name VARCHAR(9))"
        " CHARACTER SET utf8mb4",
        "INSERT INTO d.t VALUES ('2024-00-31', '-838:59:59.5', 18446744073709551615, 1, 'x,y', 'a\u00e9')",
    )
    options = ColumnOptions(
        zero_date="string", time="string", unsigned_bigint="string", bad_text="binary", bit1="boolean",
        set_labels="array",
    )  # fmt: skip
    (changes,) = decoded(upstream, "", options)
    assert changes.after is not None
    assert list(changes.after.to_pylist()[0].values()) == [
        "2024-00-31", "-838:59:59.500", "18446744073709551615", True, ["x", "y"], "a\u00e9".encode(),
    ]  # fmt: skip
