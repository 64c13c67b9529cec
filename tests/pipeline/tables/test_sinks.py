"""Targets: what is in them after batches, repeated ones, new columns, and after being killed at any step."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from binlog_pipeline.errors import BadOption, PipelineError, SourceError
from binlog_pipeline.tables.buckets import manifest_at, open_parquet_state, read_state
from binlog_pipeline.tables.delta import DeltaState, read_delta
from binlog_pipeline.tables.landing import LandedDoubts, landed_parts, open_landing
from binlog_pipeline.tables.manifest import manifest_numbers
from binlog_pipeline.tables.sinks import KeptTable, open_sink, position_of_table, published
from binlog_pipeline.targets import TABLE_SINKS
from binlog_pipeline.views.changes_layouts import STATEMENT
from binlog_protocol.gtid import Gtid, SlavePosition

from tests.pipeline.tables.changes import SCHEMA, History, Row, in_order
from tests.pipeline.tables.lake import place, rows_of

START = SlavePosition()
TABLE, KEYS = "shop.orders", ["id"]


def read(sink: str, target: Path) -> list[Row]:
    """The table, whatever it is kept in."""
    if sink == "changes":
        rows: dict[int, Row] = {}
        for part in landed_parts(target):
            for change in pq.read_table(part).to_pylist():
                if change["before"] is not None:
                    rows.pop(change["before"]["id"], None)
                if change["after"] is not None:
                    rows[change["after"]["id"]] = change["after"]
        return sorted(rows.values(), key=lambda row: int(row["id"]))
    return in_order(rows_of(sink, target))


def add(sink: str, target: Path, changes: pa.Table, position: SlavePosition) -> None:
    with open_sink(sink, place(sink, target), TABLE, KEYS, START, pause_s=0) as kept:
        kept.add(changes, position)
        kept.flush(position)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("sink", ["parquet", "delta", "iceberg", "changes"])
def test_each_batch_once(sink: str, tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    for number in range(8):
        batch = history.batch(rng.randint(1, 40))
        for _ in range(rng.randint(1, 2)):  # Spark may give one again
            add(sink, tmp_path / "t", batch, history.position)
        assert read(sink, tmp_path / "t") == history.table(), f"after batch {number}"
    with open_sink(sink, place(sink, tmp_path / "t"), TABLE, KEYS, START) as kept:
        assert kept.position == history.position


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_a_batch_that_begins_with_what_was_there(
    sink: str, tmp_path: Path, rng: random.Random
) -> None:
    """As by a new checkpoint, or other limits: batches are cut elsewhere."""
    history = History(rng)
    first, position = history.batch(30), history.position
    second = history.batch(30)
    add(sink, tmp_path / "t", first, position)
    add(sink, tmp_path / "t", pa.concat_tables([first, second]), history.position)
    assert read(sink, tmp_path / "t") == history.table()


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_emptied(sink: str, tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    add(sink, tmp_path / "t", history.batch(20), history.position)
    batch = [history.batch(3), history.truncate(), history.batch(5)]
    add(sink, tmp_path / "t", pa.concat_tables(batch), history.position)
    assert read(sink, tmp_path / "t") == history.table()
    add(sink, tmp_path / "t", history.truncate(), history.position)
    assert read(sink, tmp_path / "t") == []


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_columns_come_and_go(sink: str, tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    add(sink, tmp_path / "t", history.batch(30), history.position)
    before = history.table()
    image = pa.struct([("id", pa.int64()), ("name", pa.string()), ("city", pa.string())])
    schema = SCHEMA.set(5, pa.field("before", image)).set(6, pa.field("after", image))
    number, seq = 10_000, history.position.get(0)
    assert seq is not None
    change = {
        "_op": "c",
        "_gtid": {"domain": 0, "server": 1, "seq": seq.seq_no + 1},
        "_order_key": number.to_bytes(24, "big"),
        "_key": {"id": number},
        "after": {"id": number, "name": "n", "city": "Wien"},
    }
    position = SlavePosition([seq._replace(seq_no=seq.seq_no + 1)])
    add(sink, tmp_path / "t", pa.Table.from_pylist([change], schema), position)
    found = {row["id"]: row for row in read(sink, tmp_path / "t")}
    assert found[number]["city"] == "Wien"
    assert {row["id"]: row["name"] for row in before} == {
        key: row["name"] for key, row in found.items() if key != number
    }


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_a_new_column_in_rows_that_are_not_whole(sink: str, tmp_path: Path) -> None:
    """With binlog_row_image=MINIMAL: what was not logged is kept, where the table had it."""
    add(sink, tmp_path / "t", _one(1, pa.string(), "kept"), _at(1))
    change = {
        "_op": "u",
        "_gtid": {"domain": 0, "server": 1, "seq": 2},
        "_order_key": (2).to_bytes(24, "big"),
        "_key": {"id": 1},
        "_present": b"\5",
        "before": {"id": 1},
        "after": {"id": 1, "city": "Wien"},
    }
    image = pa.struct(
        [("id", pa.int64()), ("v", pa.string()), ("city", pa.string()), ("x", pa.string())]
    )
    schema = SCHEMA.set(5, pa.field("before", image)).set(6, pa.field("after", image))
    add(sink, tmp_path / "t", pa.Table.from_pylist([change], schema), _at(2))
    assert read(sink, tmp_path / "t") == [{"id": 1, "v": "kept", "city": "Wien", "x": None}]


def _one(number: int, type_: pa.DataType, value: Any, op: str = "c") -> pa.Table:
    """A group with one row of which column v has that type; `op` t is a TRUNCATE."""
    image = pa.struct([("id", pa.int64()), ("v", type_)])
    schema = SCHEMA.set(5, pa.field("before", image)).set(6, pa.field("after", image))
    change = {
        "_op": op,
        "_gtid": {"domain": 0, "server": 1, "seq": number},
        "_order_key": number.to_bytes(24, "big"),
        "_key": None if op == "t" else {"id": number},
        "after": None if op == "t" else {"id": number, "v": value},
    }
    return pa.Table.from_pylist([change], schema)


def _at(seq: int) -> SlavePosition:
    return SlavePosition([Gtid(0, 1, seq)])


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("sink", TABLE_SINKS)
@pytest.mark.parametrize(
    ("then", "value", "now"),
    [
        (pa.int16(), 1, pa.string()),  # ENUM by its number, and by its label
        (pa.string(), "1", pa.int64()),
        (pa.string(), "x", pa.int64()),
        (pa.string(), "x", pa.binary()),
        (pa.binary(), b"x", pa.string()),
        (pa.binary(), b"\xff", pa.string()),
        (pa.int64(), 2, pa.bool_()),
        (pa.int64(), 1 << 40, pa.int32()),
        (pa.float64(), 0.1, pa.float32()),
        (pa.timestamp("us", "UTC"), 0, pa.timestamp("us")),
        (pa.list_(pa.string()), ["x"], pa.string()),
        (pa.decimal128(20, 2), Decimal("1.25"), pa.decimal128(20, 1)),
    ],
)
def test_kept_values_that_are_none_of_the_new_type(
    sink: str, then: pa.DataType, value: Any, now: pa.DataType, tmp_path: Path
) -> None:
    add(sink, tmp_path, _one(1, then, value), _at(1))
    kept = read(sink, tmp_path)[0]["v"]
    files = _all_files(tmp_path)
    with pytest.raises(SourceError, match=r"column v .*was .*, and is .* now.*new target"):
        add(sink, tmp_path, _one(2, now, None), _at(2))
    assert read(sink, tmp_path) == [{"id": 1, "v": kept}]
    if sink == "delta":
        assert _all_files(tmp_path) == files
    # Behind a TRUNCATE there is nothing that would have to become it.
    rows = pa.concat_tables([_one(2, now, None, "t"), _one(3, now, None)])
    add(sink, tmp_path, rows, _at(3))
    assert read(sink, tmp_path) == [{"id": 3, "v": None}]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("sink", TABLE_SINKS)
@pytest.mark.parametrize(
    ("then", "value", "now"),
    [
        (pa.int16(), 7, pa.int64()),
        (pa.int64(), 7, pa.int16()),
        (pa.int64(), 7, pa.decimal128(20, 0)),
        (pa.int64(), 7, pa.float64()),
        (pa.decimal128(10, 2), Decimal("1.25"), pa.decimal128(20, 4)),
        (pa.float32(), 0.5, pa.float64()),
        (pa.bool_(), True, pa.int16()),
        (pa.list_(pa.string()), ["x"], pa.list_(pa.field("element", pa.string()))),
    ],
)
def test_kept_values_that_are_the_same_in_the_new_type(
    sink: str, then: pa.DataType, value: Any, now: pa.DataType, tmp_path: Path
) -> None:
    add(sink, tmp_path, _one(1, then, value), _at(1))
    add(sink, tmp_path, _one(2, now, None), _at(2))
    assert read(sink, tmp_path) == [{"id": 1, "v": value}, {"id": 2, "v": None}]


def _all_files(target: Path) -> set[Path]:
    return {path for path in target.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("then", "value", "now", "new"),
    [
        (pa.int32(), 7, pa.int64(), 1 << 40),
        (pa.float32(), 0.5, pa.float64(), 0.1),
        (pa.int64(), 7, pa.decimal128(20, 0), Decimal(1 << 64)),
        (pa.decimal128(5, 2), Decimal("1.25"), pa.decimal128(20, 4), Decimal("123456789.0001")),
        (pa.date32(), date(2024, 2, 29), pa.timestamp("us"), datetime(2024, 2, 29, 12, 30)),
    ],
)
@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_new_values_are_as_the_new_type_has_them(
    sink: str, then: pa.DataType, value: Any, now: pa.DataType, new: Any, tmp_path: Path
) -> None:
    add(sink, tmp_path, _one(1, then, value), _at(1))
    add(sink, tmp_path, _one(2, now, new), _at(2))
    found = read(sink, tmp_path)
    assert found[1] == {"id": 2, "v": new}
    assert found[0]["v"] == value or found[0]["v"].date() == value


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_a_table_without_rows_takes_any_type(sink: str, tmp_path: Path) -> None:
    add(sink, tmp_path, _one(1, pa.int16(), 1), _at(1))
    add(sink, tmp_path, _one(2, pa.int16(), None, "t"), _at(2))
    add(sink, tmp_path, _one(3, pa.list_(pa.string()), ["x"]), _at(3))
    assert read(sink, tmp_path) == [{"id": 3, "v": ["x"]}]


def test_ended_between_new_types_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept then is the table of before: its rows, its position, and that nothing is missing."""
    emptied = pa.concat_tables([_one(1, pa.int32(), None, "t"), _one(2, pa.int32(), 7)])
    add("delta", tmp_path, emptied, _at(2))

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeltaState, "_merge", end)
        with pytest.raises(KeyboardInterrupt):
            add("delta", tmp_path, _one(3, pa.int64(), 1 << 40), _at(3))
    kept = DeltaState(tmp_path, TABLE, KEYS, START)
    assert (kept.position, kept.is_complete) == (_at(2), True)
    assert read_delta(tmp_path).schema.field("v").type == pa.int64()
    assert read("delta", tmp_path) == [{"id": 2, "v": 7}]
    add("delta", tmp_path, _one(3, pa.int64(), 1 << 40), _at(3))
    assert read("delta", tmp_path) == [{"id": 2, "v": 7}, {"id": 3, "v": 1 << 40}]


def test_looking_back(tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    known = []
    for _ in range(5):
        add("parquet", tmp_path, history.batch(10), history.position)
        known.append((history.position, history.table()))
    for position, rows in known:
        assert in_order(read_state(tmp_path, position)[0]) == rows
    with pytest.raises(SourceError, match="at '' or before"):
        read_state(tmp_path, SlavePosition())


def test_old_files_go(tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    for _ in range(14):
        add("parquet", tmp_path, history.batch(3), history.position)
    assert len(manifest_numbers(tmp_path)) == 10
    kept = {f for n in manifest_numbers(tmp_path) for f in _files(tmp_path, n)}
    assert {f"data/{path.name}" for path in (tmp_path / "data").iterdir()} == kept


def test_long_values_have_no_bounds(tmp_path: Path) -> None:
    """Parquet keeps none of them, and making them takes five times their memory; others are kept."""
    for number, size in enumerate([100, 1 << 20], 1):
        change = _one(number, pa.binary(), b"x" * size)
        add("parquet", tmp_path, change, _at(number))
        (file,) = _files(tmp_path, number)
        group = pq.ParquetFile(tmp_path / file).metadata.row_group(0)
        found = {
            group.column(i).path_in_schema: group.column(i).is_stats_set
            for i in range(group.num_columns)
        }
        assert found == {"id": True, "v": number == 1}


def _files(target: Path, number: int) -> list[str]:
    from binlog_pipeline.tables.manifest import StateManifest

    return StateManifest.read(target, number).files


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_another_table_is_refused(sink: str, tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    add(sink, tmp_path / "t", history.batch(3), history.position)
    with (
        pytest.raises(BadOption, match=r"holds .*shop\.orders.*load --again"),
        open_sink(sink, place(sink, tmp_path / "t"), "shop.items", KEYS, START),
    ):
        pass


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_where_it_stands_though_nothing_has_changed(
    sink: str, tmp_path: Path, rng: random.Random
) -> None:
    """The log in front may be purged then. Not where rows of another table are kept."""
    target = place(sink, tmp_path / "t")
    assert position_of_table(target) is None
    history = History(rng)
    add(sink, tmp_path / "t", history.batch(9), history.position)
    assert position_of_table(target) == history.position
    quiet = history.position.with_gtid(Gtid(0, 1, 10_000)).with_gtid(Gtid(7, 1, 3))
    for _ in range(2):
        with open_sink(sink, target, TABLE, KEYS, START) as kept:
            kept.flush(quiet)
            assert kept.position == quiet
    assert position_of_table(target) == quiet
    assert read(sink, tmp_path / "t") == history.table()
    if sink != "parquet":  # which has dropped the rows
        with open_sink(sink, target, TABLE, KEYS, START) as kept:
            assert isinstance(kept, KeptTable)
            kept.begin_anew(KEYS)
            kept.flush(_at(20_000))
        assert position_of_table(target) == quiet


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_where_it_stands_behind_changes_that_change_nothing(
    sink: str, tmp_path: Path, rng: random.Random
) -> None:
    """What is said to be published is: a stream notes it, and takes a table that is not there for an older one."""
    history = History(rng)
    add(sink, tmp_path / "t", history.batch(9), history.position)
    before = history.table()
    gone = {"id": 1_000_000, "name": "", "amount": None}
    changes: tuple[Row, ...] = (
        {"_op": "a"},
        {"_op": "d", "_key": {"id": gone["id"]}, "before": gone},
    )
    for number, change in enumerate(changes, 100):
        gtid = {"domain": 0, "server": 1, "seq": number}
        row = {**change, "_gtid": gtid, "_order_key": number.to_bytes(24, "big")}
        add(sink, tmp_path / "t", pa.Table.from_pylist([row], SCHEMA), _at(number))
        assert position_of_table(place(sink, tmp_path / "t")) == _at(number)
    assert read(sink, tmp_path / "t") == before


@pytest.mark.parametrize("sink", ["parquet", "delta", "changes"])
def test_a_folder_is_of_one_sink(sink: str, tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    add(sink, tmp_path, history.batch(3), history.position)
    before = {*tmp_path.iterdir()}
    for other in {"parquet", "delta", "changes"} - {sink}:
        with pytest.raises(BadOption, match=f"is a target of --sink {sink}, not of {other}"):
            add(other, tmp_path, history.batch(3), history.position)
    assert {*tmp_path.iterdir()} == before


@pytest.mark.parametrize("sink", ["parquet", "delta", "changes"])
def test_nothing_is_left_of_what_was_not_used(sink: str, tmp_path: Path) -> None:
    """And whoever has waited for the lock that has gone makes one."""
    target = tmp_path / "t"
    with open_sink(sink, target, TABLE, KEYS, START):
        waiting = (target / "_lock").open("wb")
    assert not target.exists()
    with waiting, open_sink(sink, target, TABLE, KEYS, START):
        fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of a file that is no more
        with (
            pytest.raises(PipelineError, match="another"),
            open_sink(sink, target, TABLE, KEYS, START),
        ):
            pass


def test_one_writer(tmp_path: Path) -> None:
    with (
        open_parquet_state(tmp_path, TABLE, KEYS, START),
        pytest.raises(PipelineError, match="another"),
        open_parquet_state(tmp_path, TABLE, KEYS, START),
    ):
        pass
    with (
        open_landing(tmp_path / "l"),
        pytest.raises(PipelineError, match="another process"),
        open_landing(tmp_path / "l"),
    ):
        pass


def test_a_file_that_is_damaged_or_gone(tmp_path: Path, rng: random.Random) -> None:
    history = History(rng)
    add("parquet", tmp_path, history.batch(30), history.position)
    path = tmp_path / manifest_at(tmp_path).files[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=path.name):
        read_state(tmp_path)
    path.unlink()
    with pytest.raises(SourceError, match=path.name):
        read_state(tmp_path)


class Killed(BaseException):
    """As kill -9: no handler of an ordinary error runs."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Ends the program in front of the n-th operation on files, from 0; which were begun."""
    begun: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if len(begun) == step:
                raise Killed
            begun.append(name)
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("link", "fsync", "rename", "unlink", "replace"):
            patch.setattr(os, name, counted(name, getattr(os, name)))
        patch.setattr(pq, "write_table", counted("write_table", pq.write_table))
        yield begun


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("sink", ["parquet", "changes"])
def test_killed_at_any_step(
    sink: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(rng)
    target = tmp_path / "t"
    add(sink, target, history.batch(20), history.position)
    steps = 0
    while True:
        before = history.table()
        batch = history.batch(8)
        try:
            with killed_at(steps, monkeypatch) as begun:
                add(sink, target, batch, history.position)
            break
        except Killed:
            assert read(sink, target) in (before, history.table()), f"killed behind {begun}"
        add(sink, target, batch, history.position)
        assert read(sink, target) == history.table(), f"killed behind {begun}, then done again"
        steps += 1
    assert steps >= (20 if sink == "parquet" else 3), begun
    assert read(sink, target) == history.table()


Told = tuple[str, str, str, str]  # op, doubt, prepares, ends


@pytest.mark.parametrize(
    ("runs", "doubts"),
    [
        ([[("c", "", "", "")], [("a", "", "", ""), ("t", "", "", "")]], ["", ""]),
        ([[("a", "a trigger", "", "")], [("c", "", "", "")]], ["0-1-1: S: a trigger", ""]),
        ([[("x", "", "", "")]], ["0-1-1: S: "]),
        ([[("x", "one", "", ""), ("a", "two", "", "")]], ["0-1-1: S: one"]),
        ([[("x", "one", "", ""), ("t", "", "", ""), ("a", "two", "", "")]], ["0-1-3: S: two"]),
        ([[("t", "cascades", "", "")]], ["0-1-1: S: cascades"]),
        ([[("a", "prepared", "X", ""), ("a", "", "", "X")]], [""]),
        ([[("a", "prepared", "X", "")], [("a", "", "", "X")]], ["0-1-1: S: prepared", ""]),
        ([[("a", "prepared", "X", ""), ("x", "taken back", "", "X")]], ["0-1-2: S: taken back"]),
    ],
)
def test_what_lands_in_doubt(tmp_path: Path, runs: list[list[Told]], doubts: list[str]) -> None:
    """A sink that keeps no table says of each run whether what it has added makes the table; batches count as one."""
    schema = SCHEMA.append(pa.field("_statement", STATEMENT))
    number = 0
    for run, doubt in zip(runs, doubts, strict=True):
        landed = LandedDoubts()
        for op, why, prepares, ends in run:
            number += 1
            said = {"sql": "S", "doubt": why, "prepares": prepares, "ends": ends}
            change = {
                "_op": op,
                "_gtid": {"domain": 0, "server": 1, "seq": number},
                "_order_key": number.to_bytes(24, "big"),
                "_statement": None if op == "c" else said,
            }
            batch = pa.Table.from_pylist([change], schema)
            for _ in range(2):  # given again, it counts once
                with open_sink("changes", tmp_path, TABLE, KEYS, START, doubts=landed) as kept:
                    kept.add(batch, SlavePosition([Gtid(0, 1, number)]))
        assert (kept.doubt, kept.is_complete) == (doubt, not doubt)


def test_a_landing_table_of_other_tables(tmp_path: Path, rng: random.Random) -> None:
    """What was not read for it would be passed over by its position."""
    history = History(rng)

    def land(tables: str) -> None:
        with open_sink("changes", tmp_path / "l", tables, KEYS, START) as landing:
            landing.add(history.batch(20), history.position)

    for tables in ("", "shop.orders", "shop.orders, shop.users", "shop.users", "shop.users", ""):
        land(tables)
    land("shop.orders")  # by what does not know of which tables, nothing is told
    before = [*landed_parts(tmp_path / "l")]
    for tables in ("shop.users", "shop.*,shop.users"):
        with pytest.raises(BadOption, match=r"holds changes of shop\.orders, not of shop\."):
            land(tables)
        with pytest.raises(BadOption, match="give each a folder of its own"):
            published("changes", tmp_path / "l", tables)
    assert landed_parts(tmp_path / "l") == before
