"""Changes folded are the table: counts, sums, CRC sums, whatever the log has of rows. Large ones take little memory."""

from __future__ import annotations

import subprocess
import sys
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline.schemas.search import FoundTable, newest_table
from binlog_pipeline.schemas.seed_writing import write_seed
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.gtid import SlavePosition

from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, MakeLoggedStore, store_of_upstream
from tests.pipeline.view_rows import MINIMAL, rows_of

ROWS = 3000
CREATE = (
    "CREATE TABLE d.t (id INT PRIMARY KEY, u BIGINT UNSIGNED, n DECIMAL(20,4), name VARCHAR(90), at DATETIME(6), "
    "note MEDIUMTEXT) CHARACTER SET utf8mb4"
)
FILL = f"""INSERT INTO d.t SELECT seq, 18446744073709551615 - seq, seq / 7, CONCAT('na\u00efve ', seq),
    '2000-01-01' + INTERVAL seq MINUTE + INTERVAL seq MICROSECOND, IF(seq % 3, REPEAT('x', seq % 700), NULL)
    FROM d.seq_1_to_{ROWS}"""
CHANGE = (
    "UPDATE d.t SET name = CONCAT(name, '\u20ac'), n = -n WHERE id % 5 = 0",
    "BEGIN",
    "UPDATE d.t SET note = NULL, u = u - 1 WHERE id % 11 = 0",
    "DELETE FROM d.t WHERE id % 7 = 0",
    f"UPDATE d.t SET id = id + {ROWS} WHERE id % 13 = 0",
    "INSERT INTO d.t (id, name) VALUES (7, 'again'), (14, NULL)",
    "COMMIT",
)
SUMS = "SELECT COUNT(*) a, SUM(id) b, SUM(u) c, SUM(n) d, SUM(CRC32(name)) e, MAX(at) f, SUM(CRC32(note)) g FROM d.t"


def folded(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that are left, where nothing but `_key`, `_present`, `before` and `after` is used."""
    rows: dict[int, dict[str, Any]] = {}
    for change in changes:
        key = change["_key"]["id"]
        old: dict[str, Any] = {}
        if change["before"] is not None:
            old = rows.pop(change["before"]["id"])
        after = change["after"]
        if after is not None:
            present = change["_present"]
            bits = -1 if present is None else int.from_bytes(present, "little")
            logged = {name: v for i, (name, v) in enumerate(after.items()) if bits >> i & 1}
            rows[key] = {**dict.fromkeys(after), **old, **logged}
            assert rows[key]["id"] == key
    return [*rows.values()]


def sums(rows: list[dict[str, Any]]) -> list[Any]:
    def of(name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    def crc(name: str) -> int:
        return sum(zlib.crc32(text.encode()) for text in of(name))

    return [
        len(rows), sum(of("id")), sum(of("u")), sum(of("n")), crc("name"), max(of("at")), crc("note"),
    ]  # fmt: skip


@pytest.mark.each_version
@pytest.mark.by_turns(4)
@pytest.mark.parametrize("image", ["FULL", "MINIMAL", "NOBLOB"])
@pytest.mark.parametrize("metadata", [FULL, MINIMAL])
def test_folded_changes_are_the_table(
    backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path, metadata: str, image: str
) -> None:
    upstream = make_upstream(metadata, f"--binlog-row-image={image}", "--log-bin-compress=1")
    upstream.script("CREATE DATABASE d", CREATE, FILL, *CHANGE)
    seed = tmp_path / "seed.json"
    with upstream.connect() as connection:
        write_seed(connection, seed)
    store = store_of_upstream(tmp_path / "store", upstream)
    options = {"schemaSeed": str(seed)} if metadata == MINIMAL else {}
    changes = rows_of(store, table="d.t", batchRows="700", **options)
    (row,) = upstream.q(SUMS)
    assert sums(folded(changes)) == [_number(value) for value in row.values()]
    keys = [change["_order_key"] for change in changes]
    assert keys == sorted(set(keys))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) and value == value.to_integral() else value


def test_long_rows(make_logged_store: MakeLoggedStore) -> None:
    """Some are longer than what is gathered, some events longer than what a piece of a large group has."""
    store = make_logged_store(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)",
        "BEGIN",
        *(
            f"INSERT INTO d.t VALUES ({n}, REPEAT(CHAR({n}), {size}))"
            for n, size in enumerate([70_000, 0, 5 << 20, 1, 65_536, 9 << 20, 65_535], 1)
        ),
        "UPDATE d.t SET b = INSERT(b, 1, 1, 'z') WHERE id IN (1, 3)",
        "COMMIT",
        "DELETE FROM d.t",
        flags=[FULL, "--max-allowed-packet=64M"],
    )
    have = [
        (
            row["_op"],
            *(len(image["b"]) if image else None for image in (row["before"], row["after"])),
        )
        for row in rows_of(store, table="d.t")
    ]
    sizes = [70_000, 0, 5 << 20, 1, 65_536, 9 << 20, 65_535]
    assert have == [
        *(("c", None, size) for size in sizes),
        ("u", 70_000, 70_000),
        ("u", 5 << 20, 5 << 20),
        *(("d", size, None) for size in sizes),
    ]


MEMORY = """
import resource, sys
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.views import open_view
options = SourceOptions.parse({"path": sys.argv[1], "view": "changes", "table": "d.t"})
source = open_source(options)
view = open_view(options, source)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before, rows = peak(), 0
for part in source.slices(options.wanted, options.partition_bytes):
    for batch in view.batches(part.read()):
        assert batch.nbytes < 32 << 20
        rows += batch.num_rows
print(rows, peak() - before)
"""


def test_a_large_transaction_takes_little_memory(
    make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream = make_upstream(FULL, "--max-binlog-size=1G")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(400))",
        "INSERT INTO d.t SELECT seq, REPEAT('v', 390) FROM d.seq_1_to_60000",  # 24 MB
        "UPDATE d.t SET v = REVERSE(CONCAT('w', v))",  # 48 MB
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(store)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows, grown = map(int, done.stdout.split())
    assert rows == 120_000
    assert grown < 100  # MiB


def test_the_newest_layout_is_found_backwards(make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    """In a part read from its end on, or by ranges of GTIDs, in which domains lie unevenly."""
    upstream = make_upstream(FULL, server_id=1)
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "CREATE TABLE d.u (id INT)")
    upstream.script("SET gtid_domain_id=5", "INSERT INTO d.t VALUES (1)")
    upstream.script("ALTER TABLE d.t ADD a INT", "INSERT INTO d.t VALUES (2, 2)")
    call = "BEGIN NOT ATOMIC FOR i IN 1..{} DO INSERT INTO d.u VALUES (i); END FOR; END"
    upstream.script(call.format(1500), "SET gtid_domain_id=5", "INSERT INTO d.u VALUES (3)")
    store = store_of_upstream(tmp_path / "store", upstream)
    source = DirectorySource(str(store))

    def found(table: str, stop: str = "", *, by_numbers: bool) -> FoundTable | None:
        end = SlavePosition.parse(stop) if stop else None
        return newest_table(source, ("d", table), end, by_numbers=by_numbers)

    for by_numbers in (False, True):
        newest = found("t", by_numbers=by_numbers)
        assert newest is not None
        assert [column.name for column in newest.table.columns] == ["id", "a"]
        assert str(newest.gtid) == "0-1-5"
        older = found("t", "0-1-3,5-1-1", by_numbers=by_numbers)
        assert older is not None
        assert (len(older.table.columns), str(older.gtid)) == (1, "5-1-1")
        last = found("u", by_numbers=by_numbers)
        assert last is not None
        assert str(last.gtid) == "5-1-2"
        assert found("t", "0-1-3", by_numbers=by_numbers) is None
        assert found("T", by_numbers=by_numbers) is None
