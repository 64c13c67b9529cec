"""Export: all tables as typed Parquet. What is read back is what the server has; a killed run leaves no trace."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.errors import BadOption, DataLost, PipelineError, SourceError
from binlog_pipeline.jobs import typed_files
from binlog_pipeline.jobs.cutting import over_slices
from binlog_pipeline.jobs.export import Exported, export
from binlog_pipeline.jobs.manifest import ExportManifest
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.tasks import WorkFailed

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.kit.programs import ended
from tests.pipeline.exports import folded, gtid, manifest_of, rows_of
from tests.pipeline.stores import FULL, MakeLoggedStore, store_of_binlog, store_of_upstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED = Path(__file__).parents[2] / "protocol" / "data"
HERE = Engine("local", 1)


def run(store: Path, target: Path, engine: Engine = HERE, **options: str) -> Exported:
    return export(SourceOptions.parse({"path": str(store), **options}), target, engine=engine)


def fill(upstream: MariaDB) -> None:
    """Rows of two tables and two domains, a column that comes, a transaction of 4.6 MiB, a table without rows."""
    upstream.script(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, amount DECIMAL(12,2), at DATETIME(6), note TEXT)",
        "CREATE TABLE shop.items (id INT PRIMARY KEY, big MEDIUMBLOB)",
        "CREATE TABLE shop.empty (id INT PRIMARY KEY)",
        "INSERT INTO shop.orders SELECT seq, seq / 7, '2026-01-02 03:04:05.678901' + INTERVAL seq SECOND, "
        "IF(seq % 3, CONCAT('note ', seq), NULL) FROM shop.seq_1_to_2000",
        "SET SESSION gtid_domain_id=7",
        "INSERT INTO shop.items SELECT seq, REPEAT(CHAR(seq), 300000) FROM shop.seq_1_to_16",
        "SET SESSION gtid_domain_id=0",
        "UPDATE shop.orders SET amount = amount + 1 WHERE id % 2",
        "DELETE FROM shop.orders WHERE id % 10 = 0",
        "ALTER TABLE shop.orders ADD COLUMN state VARCHAR(10) DEFAULT 'new' AFTER id",
        "INSERT INTO shop.orders VALUES (3001, 'paid', 5, NOW(), NULL)",
        "UPDATE shop.orders SET note = 'changed' WHERE id BETWEEN 100 AND 199",
    )


@pytest.fixture
def store(tmp_path: Path, make_upstream: MakeMariaDB) -> Path:
    upstream = make_upstream(FULL, server_id=1)
    fill(upstream)
    return store_of_upstream(tmp_path / "store", upstream)


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_what_is_read_back_is_what_the_server_has(
    backend: Backend, tmp_path: Path, make_upstream: MakeMariaDB
) -> None:
    upstream = make_upstream(FULL)
    fill(upstream)
    store, target = store_of_upstream(tmp_path / "store", upstream), tmp_path / "out"
    done = run(store, target)
    assert done.position.get(0) is not None
    assert done.position.get(7) is not None
    assert done.rows == 2000 + 16 + 1000 + 200 + 1 + 90
    orders = folded(rows_of(target, "shop", "orders"))
    assert_same_orders(upstream, orders)
    items = folded(rows_of(target, "shop", "items"))
    found = upstream.q("SELECT id, SHA2(big, 256) AS sum FROM shop.items ORDER BY id")
    assert [row["id"] for row in found] == sorted(items)
    manifest = manifest_of(target)
    names = {(table.database, table.table): table for table in manifest.tables}
    assert set(names) == {("shop", "orders"), ("shop", "items")}
    assert names["shop", "orders"].key == ["id"]
    first, second = names["shop", "orders"].schemas
    assert [name for name, _ in first.columns] == ["id", "amount", "at", "note"]
    assert [name for name, _ in second.columns] == ["id", "state", "amount", "at", "note"]
    assert [schema.folder for schema in (first, second)] == [
        "shop/orders/schema=1",
        "shop/orders/schema=2",
    ]

    # More comes: it alone is added.
    behind = manifest.position
    upstream.script(
        "DELETE FROM shop.orders WHERE id > 1500", "INSERT INTO shop.empty VALUES (1), (2)"
    )
    store_of_upstream(store, upstream, behind)
    before = set(manifest.files)
    done = run(store, target)
    assert done.files == 2
    assert before < set(manifest_of(target).files)
    assert_same_orders(upstream, folded(rows_of(target, "shop", "orders")))
    assert sorted(folded(rows_of(target, "shop", "empty"))) == [1, 2]
    assert run(store, target) == Exported(done.position, 0, 0, 0)


def assert_same_orders(upstream: MariaDB, found: dict[Any, dict[str, Any]]) -> None:
    """Rows of before the ALTER have no state in the log; `amount` and `note` of all must be equal."""
    there = upstream.q("SELECT id, amount, at, note FROM shop.orders ORDER BY id")
    assert len(there) == len(found)
    for row in there:
        assert {name: found[row["id"]][name] for name in row} == row


def test_the_order_and_the_ends_of_files(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    run(store, target)
    for table in manifest_of(target).tables:
        rows = rows_of(target, table.database, table.table)
        places = [tuple(row["_order"].values()) for row in rows]
        assert len(set(places)) == len(places)
        for schema in table.schemas:
            for file in schema.files:
                read = ds.dataset(target / schema.folder / file.name).to_table().to_pylist()
                numbers = [gtid(row).seq_no for row in read]
                assert file.first.endswith(f"-{min(numbers)}")
                assert file.last.endswith(f"-{max(numbers)}")


def test_processes_give_the_same(store: Path, tmp_path: Path) -> None:
    run(store, tmp_path / "one")
    run(store, tmp_path / "two", Engine("local", 2))
    one, two = (manifest_of(tmp_path / name) for name in ("one", "two"))
    assert one.position == two.position
    for table in one.tables:
        names = table.database, table.table
        assert rows_of(tmp_path / "one", *names) == rows_of(tmp_path / "two", *names)


@pytest.mark.spark
@pytest.mark.timeout(180)  # a session starts, perhaps on a busy machine
def test_spark_gives_the_same(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    """And reads it, by the names of the tables."""
    one, two = tmp_path / "one", tmp_path / "two"
    run(store, one)
    run(store, two, Engine("spark"))
    for table in manifest_of(one).tables:
        names = table.database, table.table
        assert rows_of(one, *names) == rows_of(two, *names)
    orders = spark.read.option("mergeSchema", "true").parquet(f"{two}/shop/orders")
    counts = {row["_op"]: row["count"] for row in orders.groupBy("_op").count().collect()}
    assert counts == {"c": 2001, "u": 1090, "d": 200}
    paid = orders.where("after.state = 'paid'").select("after.id", "schema").collect()
    assert [tuple(row) for row in paid] == [(3001, 2)]


def test_some_tables_only_and_flat(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    options = SourceOptions.parse({"path": str(store), "tables": "shop.ord*,else.*"})
    export(options, target, layout="flat", engine=HERE)
    (table,) = manifest_of(target).tables
    assert table.table == "orders"
    read = ds.dataset(target / "shop" / "orders" / "schema=1").to_table()
    assert read.column_names == [
        *("_op", "_gtid", "_ts", "_order", "_present"),
        *("id", "amount", "at", "note"),
    ]
    deleted = [row for row in read.to_pylist() if row["_op"] == "d"]
    assert sorted(row["id"] for row in deleted) == list(range(10, 2001, 10))
    with pytest.raises(BadOption, match="layout flat"):
        export(options, target, engine=HERE)
    with pytest.raises(BadOption, match="tables"):
        export(SourceOptions.parse({"path": str(store)}), target, layout="flat", engine=HERE)


def test_ranges(store: Path, tmp_path: Path) -> None:
    """Up to a GTID, then to the end: the same as at once. The end of a run is its position."""
    target = tmp_path / "out"
    done = run(store, target, endGtid="0-1-5,7-1-999")
    all_ = ExportManifest.read(target)
    assert all_ is not None
    first = len(rows_of(target, "shop", "orders"))
    assert first == 2000
    assert done.rows == first + 16 if done.position.get(7) else first
    run(store, target)
    run(store, tmp_path / "once")
    assert rows_of(target, "shop", "orders") == rows_of(tmp_path / "once", "shop", "orders")


def test_what_is_wrong_is_said(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    run(store, target)
    other = store_of_binlog(tmp_path / "other", [RECORDED / "1011-multidomain.binlog"])
    with pytest.raises(DataLost, match="another source"):
        run(other, target)
    with pytest.raises(BadOption, match="leave --start-gtid out"):
        run(store, target, startGtid="0-1-3")
    file = next(iter(manifest_of(target).files))
    (target / file).unlink()
    with pytest.raises(SourceError, match=file):
        run(store, target)
    (target / "_manifest.json").write_text('{"format": "binlog-')
    with pytest.raises(SourceError, match=r"_manifest\.json is damaged"):
        run(store, target)


def test_what_is_not_ours_is_left_alone(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    run(store, target)
    (target / "_manifest.json").unlink()
    files = sorted(target.rglob("*.parquet"))
    with pytest.raises(BadOption, match="a directory that is empty"):
        run(store, target)
    assert sorted(target.rglob("*.parquet")) == files


def test_a_damaged_page_is_named(store: Path, tmp_path: Path) -> None:
    file = store / "binlog-000000.ibb"
    data = bytearray(file.read_bytes())
    data[16384 * 20 + 100] ^= 1
    file.write_bytes(data)
    with pytest.raises(WorkFailed, match=r"page 20 in binlog number 0"):
        run(store, tmp_path / "out")
    assert manifest_of(tmp_path / "out").runs == 0


def test_one_run_at_a_time(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"

    def meanwhile(*arguments: Any) -> Any:
        with pytest.raises(PipelineError, match="another export"):
            run(store, target)
        return over_slices(*arguments)

    monkeypatch.setattr("binlog_pipeline.jobs.export.over_slices", meanwhile)
    run(store, target)


class Crash(BaseException):
    """The process ends here, as far as the disk can tell."""


def crash_at(
    number: int, monkeypatch: pytest.MonkeyPatch, owner: Any, names: tuple[str, ...]
) -> Callable[[], int]:
    """The call of that number of any of the functions does not happen; gives how many calls there were."""
    calls = 0

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Crash
            return real(*arguments, **named)

        return call

    for name in names:
        monkeypatch.setattr(owner, name, wrapped(getattr(owner, name)))
    return lambda: calls


def test_a_crash_at_any_step_of_publishing(store: Path, tmp_path: Path) -> None:
    """Every rename of a file and of the manifest, and every sync of a folder."""
    run(store, tmp_path / "once")
    wanted = rows_of(tmp_path / "once", "shop", "orders")
    number = 0
    while True:
        number += 1
        target = tmp_path / f"out{number}"
        run(store, target, endGtid="0-1-6,7-1-100")
        with pytest.MonkeyPatch.context() as patch:
            crash_at(number, patch, Path, ("rename", "replace", "mkdir"))
            try:
                run(store, target)
                break
            except Crash:
                pass
        run(store, target)
        assert rows_of(target, "shop", "orders") == wanted
    assert number > 5


def test_kill_9_anywhere(store: Path, tmp_path: Path, rng: random.Random) -> None:
    """Of the program with its processes; what is there after the next run is there once."""
    run(store, tmp_path / "once")
    wanted = rows_of(tmp_path / "once", "shop", "orders")
    target = tmp_path / "out"
    program = "import sys; from binlog_pipeline.cli import main; sys.exit(main())"
    argv = [sys.executable, "-c", program, "export", str(store), str(target)]
    argv += ["--option", "nonRow=skip"]  # a default of a new column is not in the log
    for attempt in range(2):
        child = subprocess.Popen([*argv, "--workers", "2"], stdout=subprocess.DEVNULL)
        until(partial(begun_or_ended, target, child), "files that are being written", 60)
        time.sleep(rng.random() * (0.2 + attempt))
        child.kill()
        child.wait()
    assert subprocess.run(argv, check=True, capture_output=True).returncode == 0
    assert rows_of(target, "shop", "orders") == wanted
    assert not (target / "_staging").exists()


def test_what_changes_rows_without_rows_is_told(
    make_upstream: MakeMariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE d", "USE d", "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT)",
        "INSERT INTO t VALUES (1)", "CREATE INDEX i ON t (id)", "TRUNCATE t", "ALTER TABLE t ADD a INT",
    )  # fmt: skip
    target = tmp_path / "out"

    def export_to(target: Path, *more: str) -> tuple[int, str]:
        store = store_of_upstream(tmp_path / f"store{len(list(tmp_path.iterdir()))}", upstream)
        code = main(["export", str(store), str(target), "--workers", "1", "--tables", "d.t", *more])
        return code, capsys.readouterr().err

    assert export_to(target) == (0, "")
    upstream.script(
        "ALTER TABLE d.t ADD b INT DEFAULT 5", "INSERT INTO d.t VALUES (1,1,1)", "DROP DATABASE d"
    )
    code, said = export_to(target)
    assert code == 1
    assert "d.t: 0-" in said
    assert "ADD b INT DEFAULT 5: the rows that are there get a value" in said
    manifest = ExportManifest.read(target)
    assert manifest is not None
    assert [(one.op, f"{one.database}.{one.table}") for one in manifest.statements] == [
        ("t", "d.t"), ("t", "d.t"), ("x", "d.t"), ("t", "d.*"),
    ]  # fmt: skip
    assert export_to(target) == (0, "")  # told once
    assert export_to(tmp_path / "other", "--option", "nonRow=skip") == (0, "")


def test_sequences_are_no_tables(
    make_upstream: MakeMariaDB, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is done to one is in the manifest, and no table is in doubt by it, but one that it takes the place of."""
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE d", "CREATE SEQUENCE d.s", "CREATE TABLE d.t (id INT PRIMARY KEY DEFAULT NEXTVAL(d.s))",
        "INSERT INTO d.t () VALUES ()", "ALTER SEQUENCE d.s RESTART 50", "DROP SEQUENCE d.s",
    )  # fmt: skip
    target = tmp_path / "out"
    assert main(["export", str(store_of_upstream(tmp_path / "one", upstream)), str(target)]) == 0
    manifest = ExportManifest.read(target)
    assert manifest is not None
    told = [(one.op, one.table) for one in manifest.statements]
    assert told == [("x", "s"), ("t", "t"), ("x", "s"), ("t", "s")]
    upstream.q("CREATE OR REPLACE SEQUENCE d.t")
    capsys.readouterr()
    assert main(["export", str(store_of_upstream(tmp_path / "two", upstream)), str(target)]) == 1
    assert "d.t: 0-" in capsys.readouterr().err


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from binlog_pipeline.jobs.workers import LocalWorkers\n"
        "def nap(name):\n"
        "    open(name, 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    list(LocalWorkers(2).map(nap, sys.argv[1:]))\n"
    )
    script = tmp_path / "naps.py"
    script.write_text(program)
    files = [tmp_path / "a", tmp_path / "b"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    child = subprocess.Popen([sys.executable, str(script), *map(str, files)], env=environment)
    until(lambda: all(file.exists() and file.read_text() for file in files), "workers", 60)
    child.kill()
    child.wait()
    pids = [int(file.read_text()) for file in files]
    until(lambda: all(map(ended, pids)), "their ends", 60)


def begun_or_ended(target: Path, child: subprocess.Popen[bytes]) -> bool:
    return (target / "_staging").exists() or child.poll() is not None


def test_few_open_files_and_small_row_groups(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed_files, "_OPEN_FILES", 1)
    monkeypatch.setattr(typed_files, "_GROUP_ROWS", 100)
    monkeypatch.setattr(typed_files, "_GROUP_BYTES", 1 << 20)
    monkeypatch.setattr(typed_files, "_WAITING_BYTES", 1 << 20)
    target = tmp_path / "out"
    run(store, target)
    run(store, tmp_path / "once")
    for path in target.rglob("*.parquet"):
        file = pq.ParquetFile(path)
        for i in range(file.metadata.num_row_groups):
            assert file.metadata.row_group(i).num_rows <= 100
    assert rows_of(target, "shop", "orders") == rows_of(tmp_path / "once", "shop", "orders")


def test_changes_that_are_not_logged_as_rows(tmp_path: Path, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream(FULL, "--binlog-format=STATEMENT")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT)",
        "INSERT INTO d.t VALUES (1)",
        "SET SESSION binlog_format=ROW",
        "INSERT INTO d.t VALUES (2)",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    with pytest.raises(WorkFailed, match=rf"0-{upstream.server_id}-3.*binlog_format=ROW"):
        run(store, tmp_path / "out")
    assert run(store, tmp_path / "out", nonRow="skip").rows == 1


def test_text_of_another_database_is_told(tmp_path: Path, make_upstream: MakeMariaDB) -> None:
    """Its trigger writes to a table that is exported."""
    upstream = make_upstream(FULL, server_id=1)
    upstream.script(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (1)", "CREATE DATABASE e", "USE e",
        "CREATE TABLE s (id INT)", "CREATE TRIGGER g AFTER INSERT ON s FOR EACH ROW INSERT INTO d.t VALUES (NEW.id)",
        "SET binlog_format=STATEMENT", "INSERT INTO s VALUES (2)", "INSERT INTO s VALUES (3)",
    )  # fmt: skip
    done = run(store_of_upstream(tmp_path / "store", upstream), tmp_path / "out", tables="d.t")
    assert done.rows == 1
    (told,) = done.unknown
    assert (told.gtid, told.database, told.table) == ("0-1-7", "e", "*")
    assert told.sql == "INSERT INTO s VALUES (2)"
    assert "by a trigger" in told.why


HASH = (
    "CREATE TABLE d.t (f VARCHAR(4096), UNIQUE (f)) CHARACTER SET latin1",
    "INSERT INTO d.t VALUES ('foo')",
)
PLAIN = ("CREATE TABLE d.t (a INT, b INT, KEY i (b))", "INSERT INTO d.t VALUES (1, 2)")
# Each part is a run of its own: statements, and which of them are told behind it.
MOVED: dict[str, list[tuple[tuple[str, ...], list[int]]]] = {
    "hidden": [((*HASH, "ALTER TABLE d.t DROP INDEX f, ADD COLUMN amount BIGINT UNSIGNED",
                 "INSERT INTO d.t VALUES ('baz', 42)"), [2])],
    "by_steps": [((*HASH, "DROP INDEX f ON d.t", "ALTER TABLE d.t ADD amount BIGINT UNSIGNED"), []),
                 (("INSERT INTO d.t VALUES ('baz', 42)",), [3])],
    "dropped": [((*PLAIN, "ALTER TABLE d.t DROP b"), []),
                (("ALTER TABLE d.t ADD c INT", "INSERT INTO d.t VALUES (3, 4)"), [2, 3]),
                (("INSERT INTO d.t VALUES (5, 6)",), [])],
    "shifted": [((*PLAIN, "ALTER TABLE d.t DROP a, ADD c INT FIRST", "INSERT INTO d.t VALUES (3, 4)"), [2])],
    "added": [((*PLAIN, "ALTER TABLE d.t DROP INDEX i, ADD c INT", "INSERT INTO d.t VALUES (3, 4, 5)"), [])],
    "unique_keys": [((*PLAIN, "ALTER TABLE d.t DROP INDEX i, ADD UNIQUE u (b)", "INSERT INTO d.t VALUES (3, 4)"), [])],
    "no_rows_before": [((PLAIN[0], "ALTER TABLE d.t DROP b, ADD c INT", "INSERT INTO d.t VALUES (3, 4)"), [])],
    "no_rows_behind": [((*PLAIN, "ALTER TABLE d.t DROP b, ADD c INT"), [])],
    "text": [((*PLAIN, "ALTER TABLE d.t ADD c INT, ENGINE=InnoDB", "INSERT INTO d.t VALUES (3, 4, 5)"), [])],
}  # fmt: skip


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL", "FULL"])
def test_columns_that_share_a_number_are_told(
    tmp_path: Path, make_upstream: MakeMariaDB, metadata: str
) -> None:
    """A hidden column of a key that is a hash has one, too. With names there is nothing to tell."""
    upstream = make_upstream(f"--binlog-row-metadata={metadata}", server_id=1)
    for case, parts in MOVED.items():
        upstream.script(f"CREATE DATABASE {case}")
        statements: list[str] = []
        for number, (more, told) in enumerate(parts):
            statements += [sql.replace("d.t", f"{case}.t") for sql in more]
            upstream.script(*statements[-len(more) :])
            store = store_of_upstream(tmp_path / f"{case}{number}", upstream)
            done = run(store, tmp_path / case, tables=f"{case}.*")
            wanted = [] if metadata == "FULL" else [statements[i] for i in told]
            assert [one.sql for one in done.unknown] == wanted, case
        listed = {one.op for one in manifest_of(tmp_path / case).statements}
        assert metadata != "FULL" or listed == {"t"}, case


def test_names_that_readers_pass_over(tmp_path: Path, make_logged_store: MakeLoggedStore) -> None:
    store = make_logged_store(
        "CREATE DATABASE `_d/b`",
        "CREATE TABLE `_d/b`.`.t ä` (id INT)",
        "INSERT INTO `_d/b`.`.t ä` VALUES (1)",
    )
    target = tmp_path / "out"
    run(store, target)
    (table,) = manifest_of(target).tables
    assert (table.database, table.table) == ("_d/b", ".t ä")
    assert ds.dataset(target, format="parquet", partitioning="hive").count_rows() == 1
    assert len(rows_of(target, "_d/b", ".t ä")) == 1


def test_xa_transactions_are_told_for_the_tables_that_they_are_about(
    tmp_path: Path, make_upstream: MakeMariaDB
) -> None:
    """Prepared in one run, at its end in another; the rows of another table are nothing of theirs."""
    upstream = make_upstream("--binlog-row-metadata=FULL", server_id=1)
    upstream.script(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "CREATE TABLE d.u (id INT)",
        "INSERT INTO d.u VALUES (1)",
    )  # fmt: skip
    for name in ("a", "b"):
        upstream.script(
            f"XA START '{name}'", f"INSERT INTO d.t VALUES ({ord(name)})", f"XA END '{name}'", f"XA PREPARE '{name}'"
        )  # fmt: skip

    def told(number: int, tables: str) -> list[tuple[str, str, str]]:
        store = store_of_upstream(tmp_path / f"{tables}{number}", upstream)
        done = run(store, tmp_path / tables, tables=tables)
        return [(one.gtid, one.sql, one.why) for one in done.unknown]

    waits = "only prepared: its rows may be taken back"
    assert told(1, "d.u") == []
    assert told(1, "d.t") == [
        ("0-1-5", "XA PREPARE X'61',X'',1", waits),
        ("0-1-6", "XA PREPARE X'62',X'',1", waits),
    ]
    upstream.script("XA ROLLBACK 'a'", "XA COMMIT 'b'", "INSERT INTO d.u VALUES (2)")
    assert told(2, "d.u") == []
    back = ("0-1-7", "XA ROLLBACK X'61',X'',1", "takes back the rows of 0-1-5")
    assert told(2, "d.t") == [back]
    manifest = ExportManifest.read(tmp_path / "d.t")
    assert manifest is not None
    assert [one.sql for one in manifest.statements if one.op == "x"] == [back[1]]
