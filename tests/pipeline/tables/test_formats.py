"""Tables of formats of others, Delta and Iceberg: killed at any step, two writers, maintenance by others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.errors import BadOption, SourceError, TargetChanged
from binlog_pipeline.tables import merging, sinks
from binlog_pipeline.tables.iceberg import IcebergState
from binlog_pipeline.tables.lock import in_turns
from binlog_pipeline.tables.sinks import open_sink, position_of_table
from binlog_protocol.gtid import Gtid, SlavePosition
from deltalake.exceptions import CommitFailedError

from tests.pipeline.tables.changes import SCHEMA, History, Row, in_order
from tests.pipeline.tables.lake import CATALOG, place, rows_of

START = SlavePosition()
TABLE, KEYS = "shop.orders", ["id"]
FORMATS = ("delta", "iceberg")


def add(sink: str, target: Path | str, changes: pa.Table, position: SlavePosition) -> None:
    target = place(sink, target) if isinstance(target, Path) else target
    with open_sink(sink, target, TABLE, KEYS, START) as kept:
        kept.add(changes, position)


def read(sink: str, target: Path | str) -> list[Row]:
    return in_order(rows_of(sink, target))


class Killed(BaseException):
    """As kill -9: no handler of an ordinary error runs."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Ends the program in front of the n-th file, or the n-th word to the catalog, from 0; which were begun."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import PyArrowFile

    begun: list[str] = []

    def counted(kind: type, name: str) -> None:
        real: Callable[..., Any] = getattr(kind, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if len(begun) == step:
                raise Killed
            begun.append(name)
            return real(*arguments, **named)

        monkeypatch.setattr(kind, name, call)

    with monkeypatch.context() as monkeypatch:
        counted(PyArrowFile, "create")
        for name in ("create_namespace", "create_table", "commit_table", "load_table"):
            counted(SqlCatalog, name)
        yield begun


def test_iceberg_killed_at_any_step(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch as well, which makes the table: what is there is the table of before or of behind it."""
    for is_first in (True, False):
        history = History(rng)
        target = tmp_path / str(is_first)
        if not is_first:
            add("iceberg", target, history.batch(20), history.position)
        steps = rng.randrange(2)  # every other one
        while True:
            before = history.table()
            batch = history.batch(8)
            try:
                with killed_at(steps, monkeypatch) as begun:
                    add("iceberg", target, batch, history.position)
                break
            except Killed:
                if not is_first:
                    found = read("iceberg", target)
                    assert found in (before, history.table()), f"killed behind {begun}"
            if is_first:
                with open_sink("iceberg", place("iceberg", target), TABLE, KEYS, START) as kept:
                    is_there = len(kept.position) > 0
                assert not is_there or "commit_table" in begun
                history = History(rng) if not is_there else history
            else:
                add("iceberg", target, batch, history.position)
                assert read("iceberg", target) == history.table(), f"killed behind {begun}"
            steps += 2
            assert steps < 30
        assert steps >= 4, begun
        assert read("iceberg", target) == history.table()


@pytest.mark.parametrize("sink", FORMATS)
def test_of_two_writers_the_slower_is_told_and_begins_anew(
    sink: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no lock: it has folded its batch over rows that are not those of now."""
    monkeypatch.setattr(sinks, "is_local", lambda _: False)
    history = History(rng)
    target = tmp_path / "t"
    add(sink, target, history.batch(20), history.position)
    first, position = history.batch(5), history.position
    both = pa.concat_tables([first, history.batch(5)])
    tries: list[SlavePosition] = []

    def work() -> None:
        with open_sink(sink, place(sink, target), TABLE, KEYS, START) as kept:
            tries.append(kept.position)
            if len(tries) == 1:
                add(sink, target, first, position)
            kept.add(both, history.position)

    with pytest.raises(TargetChanged, match="by somebody else"):
        in_turns(work, 0.0)
    tries.clear()
    first, position = pa.concat_tables([both, history.batch(5)]), history.position
    both = pa.concat_tables([first, history.batch(5)])
    in_turns(work)
    assert tries[1] == position
    assert read(sink, target) == history.table()


@pytest.mark.parametrize("sink", FORMATS)
def test_a_batch_behind_a_commit_without_changes(
    sink: str, tmp_path: Path, rng: random.Random
) -> None:
    """By the writer that has made it."""
    history = History(rng)
    target = tmp_path / "t"
    add(sink, target, history.batch(5), history.position)
    with open_sink(sink, place(sink, target), TABLE, KEYS, START) as kept:
        for quiet in range(1, 4):
            other = Gtid(7, 1, quiet)
            kept.flush(history.position.with_gtid(other))
            kept.add(history.batch(5), history.position.with_gtid(other))
    assert read(sink, target) == history.table()


def test_a_commit_right_behind_an_overwrite_is_not_taken_for_it(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer has the changes in the table already, which would be merged into it again."""
    import deltalake

    monkeypatch.setattr(sinks, "is_local", lambda _: False)
    history = History(rng)
    first, position = history.batch(5), history.position
    second = history.batch(5)
    real = deltalake.write_deltalake

    def write(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        monkeypatch.setattr(deltalake, "write_deltalake", real)
        add("delta", tmp_path, second, history.position)

    monkeypatch.setattr(deltalake, "write_deltalake", write)
    with open_sink("delta", tmp_path, TABLE, KEYS, START) as kept:
        kept.add(first, position)
        with pytest.raises(CommitFailedError):
            kept.add(second, history.position)
    assert read("delta", tmp_path) == history.table()


def test_an_iceberg_table_that_is_rolled_back_goes_on_from_there(
    tmp_path: Path, rng: random.Random
) -> None:
    """By its snapshot. And one that has none of ours any more is known by its properties, unless it was rolled back."""
    target = tmp_path / "t"
    history = History(rng)
    add("iceberg", target, history.batch(10), history.position)
    first, position = read("iceberg", target), history.position
    batch = history.batch(10)
    add("iceberg", target, batch, history.position)
    with table_of(target) as table:
        old = table.snapshots()[0].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(old).commit()
    assert read("iceberg", target) == first
    with open_sink("iceberg", place("iceberg", target), TABLE, KEYS, START) as kept:
        assert kept.position == position
        kept.add(batch, history.position)
    assert read("iceberg", target) == history.table()
    with table_of(target) as table:
        table.overwrite(table.scan().to_arrow())  # somebody else's snapshot, as of a compaction
        others = [one.snapshot_id for one in table.snapshots()[:-1]]
        table.maintenance.expire_snapshots().by_ids(others).commit()
        assert len(table.snapshots()) == 1
    again = history.batch(5)
    add("iceberg", target, again, history.position)
    assert read("iceberg", target) == history.table()


def test_a_delta_table_that_is_restored_goes_on_from_there(
    tmp_path: Path, rng: random.Random
) -> None:
    """By RESTORE to a version, also twice, and with commits of others behind it; one to a time is an error."""
    import deltalake

    history = History(rng)
    add("delta", tmp_path, history.batch(10), history.position)
    first, position = read("delta", tmp_path), history.position
    old = deltalake.DeltaTable(tmp_path).version()
    batch = history.batch(10)
    add("delta", tmp_path, batch, history.position)
    newest = deltalake.DeltaTable(tmp_path).version()
    for version in (old, newest, newest + 1):  # the last is the first RESTORE
        deltalake.DeltaTable(tmp_path).restore(version)
    deltalake.DeltaTable(tmp_path).optimize.compact()
    assert read("delta", tmp_path) == first
    assert position_of_table(tmp_path) == position
    moment = datetime.now(UTC)
    with open_sink("delta", tmp_path, TABLE, KEYS, START) as kept:
        assert kept.position == position
        kept.add(batch, history.position)
    assert read("delta", tmp_path) == history.table()
    deltalake.DeltaTable(tmp_path).restore(moment)
    with pytest.raises(SourceError, match="restored to a time"):
        position_of_table(tmp_path)


@contextmanager
def table_of(target: Path) -> Iterator[Any]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(CATALOG)
    try:
        yield catalog.load_table(tuple(str(place("iceberg", target)).split("/")[3:]))
    finally:
        catalog.close()


def test_only_iceberg_files_with_keys_that_changed_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And small ones are joined when there are many: so a table of many batches has few files."""
    target = tmp_path / "t"
    for number in range(1, 5):
        rows = [row(100 * number + i, number, i) for i in range(3)]
        add("iceberg", target, pa.Table.from_pylist(rows, SCHEMA), at(number))
    before = files_of(target)
    assert len(before) == 4
    change = row(201, 5, 0) | {"_op": "d", "after": None, "before": {"id": 201}}
    add("iceberg", target, pa.Table.from_pylist([change], SCHEMA), at(5))
    behind = files_of(target)
    assert len(before & behind) == 3
    assert len(read("iceberg", target)) == 11
    monkeypatch.setattr(merging, "_SMALL_FILES", 3)
    add("iceberg", target, pa.Table.from_pylist([row(900, 6, 0)], SCHEMA), at(6))
    assert len(files_of(target)) == 1
    assert len(read("iceberg", target)) == 12


def row(key: int, seq: int, number: int) -> dict[str, Any]:
    return {
        "_op": "c",
        "_gtid": {"domain": 0, "server": 1, "seq": seq},
        "_order_key": (1000 * seq + number).to_bytes(24, "big"),
        "_key": {"id": key},
        "after": {"id": key, "name": "n"},
    }


def at(seq: int) -> SlavePosition:
    return SlavePosition.parse(f"0-1-{seq}")


def files_of(target: Path) -> set[str]:
    with table_of(target) as table:
        return {task.file.file_path for task in table.scan().plan_files()}


def test_iceberg_tables_that_are_refused(tmp_path: Path, rng: random.Random) -> None:
    target = tmp_path / "t"
    history = History(rng)
    with pytest.raises(BadOption, match="iceberg://CATALOG/NAMESPACE/TABLE"):
        add("iceberg", str(tmp_path), history.batch(1), history.position)
    for url in ("iceberg://lake/t", "iceberg://", "iceberg://lake//t", "s3://bucket/t"):
        with pytest.raises(BadOption, match="iceberg://CATALOG/NAMESPACE/TABLE"):
            add("iceberg", url, history.batch(1), history.position)
    with pytest.raises(BadOption, match="catalog nowhere is not in pyiceberg's configuration"):
        add("iceberg", "iceberg://nowhere/d/t", history.batch(1), history.position)
    with pytest.raises(BadOption, match="say --sink iceberg"):
        add("delta", "iceberg://lake/d/t", history.batch(1), history.position)
    with pytest.raises(BadOption, match="--sink parquet writes folders of this machine"):
        add("parquet", "s3://bucket/t", history.batch(1), history.position)
    times = pa.struct([("id", pa.int64()), ("v", pa.duration("us"))])
    schema = SCHEMA.set(5, pa.field("before", times)).set(6, pa.field("after", times))
    change = row(1, 1, 0) | {"after": {"id": 1, "v": 5}}
    with pytest.raises(
        BadOption, match=r"of shop\.orders is a TIME, which Iceberg has no type for"
    ):
        add("iceberg", target, pa.Table.from_pylist([change], schema), at(1))
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(CATALOG)
    catalog.create_namespace_if_not_exists("d")
    made = catalog.create_table(("d", "other"), pa.schema([("id", pa.int64())]))
    for _ in range(2):
        with pytest.raises(SourceError, match="this program has not written"):
            add("iceberg", f"iceberg://{CATALOG}/d/other", history.batch(1), history.position)
        made.append(pa.table({"id": [1]}))
    catalog.close()


def test_names_and_types_of_iceberg_columns(tmp_path: Path) -> None:
    """Names with points and other signs; a list, a struct, a column of small integers, all there and back."""
    columns = pa.struct(
        [
            ("id", pa.int16()),
            ("a.b", pa.list_(pa.string())),
            ("ä `x`", pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
    schema = SCHEMA.set(5, pa.field("before", columns)).set(6, pa.field("after", columns))
    schema = schema.set(3, pa.field("_key", pa.struct([("id", pa.int16())])))
    value = {"id": 1, "a.b": ["x", None], "ä `x`": {"srid": 1, "wkb": b"\0"}, "t": None}
    other = {"id": 2, "a.b": None, "ä `x`": None, "t": None}
    target = tmp_path / "t"
    for seq, after in ((1, value), (2, other)):
        change = row(seq, seq, 0) | {"after": after}
        add("iceberg", target, pa.Table.from_pylist([change], schema), at(seq))
    assert rows_of("iceberg", target).sort_by("id").to_pylist() == [value, other]


def test_parts_of_rows_in_iceberg(tmp_path: Path) -> None:
    """What was not logged stays as it is in the table."""
    target = tmp_path / "t"
    whole = row(1, 1, 0) | {"after": {"id": 1, "name": "a", "amount": 5}}
    add("iceberg", target, pa.Table.from_pylist([whole], SCHEMA), at(1))
    image = {"id": 1, "name": "b"}
    part = row(1, 2, 0) | {"_op": "u", "before": {"id": 1}, "after": image, "_present": b"\3"}
    with open_sink("iceberg", place("iceberg", target), TABLE, KEYS, START) as kept:
        assert isinstance(kept, IcebergState)
        kept.add(pa.Table.from_pylist([part], SCHEMA), at(2))
    (found,) = read("iceberg", target)
    assert (found["name"], int(found["amount"])) == ("b", 5)
