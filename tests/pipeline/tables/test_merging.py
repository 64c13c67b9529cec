"""A MERGE by files, by any workers: what tasks do twice, or in vain, is never in the table."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from binlog_pipeline.errors import SourceError
from binlog_pipeline.tables import iceberg, iceberg_files, merging
from binlog_pipeline.tables.committed import CommittedTable
from binlog_pipeline.tables.delta_files import DeltaFiles
from binlog_pipeline.tables.iceberg_files import TableFiles
from binlog_pipeline.tables.merging import rolled
from binlog_pipeline.tables.sinks import open_sink
from binlog_pipeline.tasks import HERE, InThisProcess, Workers
from binlog_protocol.gtid import SlavePosition

from tests.pipeline.tables.changes import SCHEMA, History, in_order
from tests.pipeline.tables.lake import place, rows_of

START = SlavePosition()
TABLE, KEYS = "shop.orders", ["id"]
FORMATS = ("delta", "iceberg")


class Elsewhere(InThisProcess):
    """Workers that get copies of everything, in any order, and may do an item more than once. Counts what is done."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.done: list[str] = []

    def map(self, task: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        shared = pickle.dumps(task)
        numbers = [*range(len(items))]
        self._rng.shuffle(numbers)
        for number in numbers:
            item = pickle.dumps(items[number])
            for _ in range(self._rng.randint(1, 2)):  # of two attempts one counts
                result = pickle.dumps(pickle.loads(shared)(pickle.loads(item)))
            self.done.append(type(items[number]).__name__)
            yield number, pickle.loads(result)


@pytest.fixture
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of these tests have files of a few rows, some of which are not small."""
    monkeypatch.setattr(merging, "_WORTH_SENDING", 0)
    monkeypatch.setattr(merging, "_SMALL_ROWS", 6)
    monkeypatch.setattr(merging, "_SMALL_FILES", 3)
    monkeypatch.setattr(DeltaFiles, "size", 600)
    size = {iceberg_files.SIZE: "600"}
    monkeypatch.setattr(iceberg, "_PROPERTIES", {**iceberg._PROPERTIES, **size})


def add(
    sink: str, target: Path, changes: pa.Table, position: SlavePosition, workers: Workers
) -> None:
    with open_sink(sink, place(sink, target), TABLE, KEYS, START, workers=workers) as kept:
        assert isinstance(kept, CommittedTable)
        kept.add(changes, position)


def partly(changes: pa.Table, rng: random.Random) -> pa.Table:
    """The same, of which some updates that keep their key have not logged one of the columns."""
    rows = changes.to_pylist()
    for row in rows:
        keeps = row["_op"] == "u" and row["before"]["id"] == row["after"]["id"]
        if keeps and rng.random() < 0.5:
            row["_present"] = b"\5"  # id and amount
            row["after"] = {**row["after"], "name": None}
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize("sink", FORMATS)
def test_any_workers_make_the_same_table(
    sink: str, tmp_path: Path, rng: random.Random, many_pieces: None
) -> None:
    """As this process: of whole rows, of parts, behind TRUNCATE."""
    history = History(rng)
    elsewhere = Elsewhere(rng)
    there, here = tmp_path / "there", tmp_path / "here"
    for number in range(12):
        batch = history.batch(rng.randint(1, 30))
        if number > 5:
            batch = partly(batch, rng)
        if number == 4:
            batch = pa.concat_tables([batch, history.truncate(), history.batch(20)])
        add(sink, there, batch, history.position, elsewhere)
        add(sink, here, batch, history.position, HERE)
        found = in_order(rows_of(sink, there))
        assert found == in_order(rows_of(sink, here)), f"behind batch {number}"
        if number < 6:
            assert found == history.table()
    wanted = {"_Piece", "_NewFile"} if sink == "iceberg" else {"_Piece"}
    assert {*elsewhere.done} == wanted


def test_workers_that_do_not_see_an_iceberg_table_are_told(
    tmp_path: Path, rng: random.Random, many_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that they write would be on their own disk. Nothing is committed."""
    history = History(rng)
    add("iceberg", tmp_path / "t", history.batch(20), history.position, HERE)
    before = in_order(rows_of("iceberg", tmp_path / "t"))
    real = TableFiles.of

    def elsewhere(*arguments: Any) -> TableFiles:
        found = real(*arguments)
        return TableFiles(found.io, found.then, found.now, f"{found.place}.not")

    monkeypatch.setattr(TableFiles, "of", elsewhere)
    with pytest.raises(SourceError, match=r"\.not is not there where Spark's executors run"):
        add("iceberg", tmp_path / "t", history.batch(20), history.position, HERE)
    assert in_order(rows_of("iceberg", tmp_path / "t")) == before


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("sink", FORMATS)
def test_a_damaged_file_is_named(
    sink: str, is_gone: bool, tmp_path: Path, rng: random.Random, many_pieces: None
) -> None:
    history = History(rng)
    add(sink, tmp_path / "t", history.batch(30), history.position, HERE)
    for file in tmp_path.rglob("*.parquet"):
        if is_gone:
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:100])
    said = r"[Nn]o such file|not found" if is_gone else "magic bytes not found|Parquet"
    with pytest.raises(SourceError, match=rf"/\S+\.parquet: .*({said})"):
        add(sink, tmp_path / "t", history.batch(30), history.position, Elsewhere(rng))


def test_a_slice_of_rows_is_sent_without_the_others() -> None:
    rows = pa.table({"id": np.arange(1_000_000), "name": ["x"] * 1_000_000})
    sent = pickle.dumps(merging._NewFile(rows.slice(500_000, 10)))
    assert len(sent) < 10_000
    assert pickle.loads(sent).rows == rows.slice(500_000, 10)


@pytest.mark.parametrize("size", ["few", "many"])
@pytest.mark.parametrize("sink", FORMATS)
def test_what_is_not_worth_a_job_is_done_here(
    sink: str, size: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is too much to be carried by one: Spark's driver would hold another copy of it."""
    if size == "many":
        monkeypatch.setattr(merging, "_WORTH_SENDING", 0)
        monkeypatch.setattr(merging, "_MOST_SENT", -1)
    history = History(rng)
    elsewhere = Elsewhere(rng)
    for _ in range(2):
        add(sink, tmp_path / "t", history.batch(20), history.position, elsewhere)
    assert not elsewhere.done
    assert in_order(rows_of(sink, tmp_path / "t")) == history.table()


def test_rows_that_have_keys_of_others(rng: random.Random) -> None:
    """Of one column and of several, with NULL as a value like others; no rows, no keys."""
    types = [pa.int64(), pa.string(), pa.decimal128(20, 0), pa.date32(), pa.binary(), pa.bool_()]
    values: list[list[Any]] = [
        [None, 1, 2, 3], [None, "", "a", "ä"], [None, *map(Decimal, (0, 1, 1 << 63))],
        [None, *(date(2020, 1, n) for n in (1, 2, 3))], [None, b"", b"a", b"\xff"], [None, True, False],
    ]  # fmt: skip
    for _ in range(200):
        chosen = rng.choices(range(len(types)), k=rng.randint(1, 3))
        sizes = rng.choice([0, 1, 20]), rng.choice([0, 1, 5])
        keys = [f"k{number}" for number in range(len(chosen))]
        mine, others = (
            pa.table(
                [pa.array(rng.choices(values[one], k=size), types[one]) for one in chosen], keys
            )
            for size in sizes
        )
        wanted = {tuple(row.values()) for row in others.to_pylist()}
        parts = pa.concat_tables([mine.slice(0, 7), mine.slice(7)])
        found = merging._has_keys(parts, others, keys).tolist()
        assert found == [tuple(row.values()) in wanted for row in mine.to_pylist()]


def test_rows_are_cut_into_files_of_a_size(rng: random.Random) -> None:
    """Whatever parts they come in. None is lost, none twice, and no file is of no row."""
    rows = pa.table({"id": np.arange(10_000), "name": [f"name {n}" for n in range(10_000)]})
    for _ in range(20):
        cuts = sorted(rng.sample(range(10_001), rng.randint(0, 8)))
        parts = [rows.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, 10_000], strict=True)]
        parts.insert(rng.randrange(len(parts)), rows.slice(0, 0))
        size = rng.choice([1, 500, 10_000, rows.nbytes - 1, rows.nbytes, 1 << 30])
        found = [*rolled(parts, size)]
        assert all(map(len, found))
        assert pa.concat_tables(found).equals(rows)
        if size > 100:
            assert all(one.nbytes < 2 * size for one in found[:-1])
    assert not [*rolled([rows.slice(0, 0)], 1)]
