"""A group that comes in parts: one commit, whatever size it has, and nothing of it before."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from binlog_pipeline.tables import delta, iceberg, iceberg_files, merging
from binlog_pipeline.tables.chunks import chunks
from binlog_pipeline.tables.delta_files import DeltaFiles
from binlog_pipeline.tables.sinks import TableSink, open_sink
from binlog_pipeline.tasks import HERE, Workers
from binlog_protocol.gtid import Gtid, SlavePosition

from tests.pipeline.tables.changes import GTID, SCHEMA, History, in_order
from tests.pipeline.tables.lake import place, rows_of
from tests.pipeline.tables.test_merging import Elsewhere, partly

START = SlavePosition()
TABLE, KEYS = "shop.orders", ["id"]
SINKS = ("parquet", "delta", "iceberg")


class Killed(BaseException):
    """As kill -9: no handler of an ordinary error runs."""


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_WORTH_SENDING", 0)
    monkeypatch.setattr(merging, "_SMALL_ROWS", 6)
    monkeypatch.setattr(merging, "_SMALL_FILES", 3)
    monkeypatch.setattr(DeltaFiles, "size", 600)
    size = {iceberg_files.SIZE: "600"}
    monkeypatch.setattr(iceberg, "_PROPERTIES", {**iceberg._PROPERTIES, **size})


def one_group(changes: pa.Table) -> pa.Table:
    """The same changes, all of the last one's group."""
    rows = changes.to_pylist()
    return pa.Table.from_pylist([{**row, "_gtid": rows[-1]["_gtid"]} for row in rows], SCHEMA)


def add_in_parts(
    kept: TableSink, group: pa.Table, position: SlavePosition, rng: random.Random
) -> None:
    cuts = sorted(rng.sample(range(1, len(group)), 3))
    for begin, end in zip([0, *cuts], [*cuts, len(group)], strict=True):
        is_last = end == len(group)
        kept.add(group.slice(begin, end - begin), position if is_last else None)
    kept.flush(position)


def opened(sink: str, target: Path, workers: Workers = HERE) -> Any:
    return open_sink(sink, place(sink, target), TABLE, KEYS, START, workers=workers)


def versions(sink: str, target: Path) -> int:
    """How many commits the table has."""
    if sink == "delta":
        from deltalake import DeltaTable

        return len(DeltaTable(str(target)).history())
    with opened(sink, target) as kept:
        return len(kept._table.snapshots())


@pytest.mark.parametrize("is_partly", [False, True])
@pytest.mark.parametrize("sink", SINKS)
def test_a_group_in_parts_is_the_same_table(
    sink: str, is_partly: bool, tmp_path: Path, rng: random.Random
) -> None:
    """As in one; in a new table, too, and behind other groups."""
    history = History(rng)
    workers = Elsewhere(rng)
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    for number in range(5):
        group = one_group(history.batch(25))
        if is_partly and number:
            group = partly(group, rng)
        with opened(sink, parts, workers) as kept:
            add_in_parts(kept, group, history.position, rng)
            assert kept.position == history.position
        with opened(sink, whole) as kept:
            kept.add(group, history.position)
            kept.flush(history.position)
        found = in_order(rows_of(sink, parts))
        assert found == in_order(rows_of(sink, whole)), f"behind group {number}"
        if not is_partly:
            assert found == history.table()


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_it_is_one_commit_and_leaves_no_file(sink: str, tmp_path: Path, rng: random.Random) -> None:
    """That no commit has named: a range of keys may write files of the one before anew."""
    history = History(rng)
    target = tmp_path / "t"
    with opened(sink, target) as kept:
        kept.add(history.batch(30), history.position)
    count, names = versions(sink, target), data_files(tmp_path)
    group = one_group(history.batch(40))
    before = in_order(rows_of(sink, target))
    with opened(sink, target) as kept:
        for begin in range(0, len(group), 10):
            kept.add(group.slice(begin, 10), None)
            assert in_order(rows_of(sink, target)) == before
        assert data_files(tmp_path) == names
        kept.add(group.slice(0, 0), history.position)
    left = data_files(tmp_path) - names
    assert in_order(rows_of(sink, target)) == history.table()
    assert versions(sink, target) == count + 1
    assert {Path(name).name for name in left} <= named_files(sink, target)


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_file_is_written_anew_once(
    sink: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not once for each part that changes a row of it; but those at the end of a range of keys twice."""
    target = tmp_path / "t"
    rows = [changed(number, "c", number) for number in range(400)]
    with opened(sink, target, Elsewhere(rng)) as kept:
        kept.add(pa.Table.from_pylist(rows[:1], SCHEMA), SlavePosition([Gtid(0, 1, 1)]))
        rest = [{**row, "_gtid": {"domain": 0, "server": 1, "seq": 2}} for row in rows[1:]]
        kept.add(pa.Table.from_pylist(rest, SCHEMA), SlavePosition([Gtid(0, 1, 2)]))
    count = len(named_files(sink, target))
    assert count > 10
    removed: list[object] = []
    for kind in (DeltaFiles, iceberg_files.TableFiles):
        monkeypatch.setattr(kind, "remove", lambda _, file: removed.append(file))
    monkeypatch.setattr(merging, "_SMALL_ROWS", 0)
    group = [changed(rng.randrange(400), "u", 1000 + number) for number in range(800)]
    with opened(sink, target, Elsewhere(rng)) as kept:
        for begin in range(0, 800, 100):
            part = pa.Table.from_pylist(group[begin : begin + 100], SCHEMA)
            kept.add(part, None)
        kept.add(part.slice(0, 0), SlavePosition([Gtid(0, 1, 3)]))
    assert len(removed) < 3
    values = {row["after"]["id"]: row["after"]["name"] for row in [*rows, *group]}
    assert {row["id"]: row["name"] for row in rows_of(sink, target).to_pylist()} == values


def changed(key: int, op: str, number: int) -> dict[str, Any]:
    row = {"id": key, "name": f"value {number}", "amount": None}
    return {
        "_op": op,
        "_gtid": {"domain": 0, "server": 1, "seq": 1 + 2 * (op == "u")},
        "_order_key": number.to_bytes(24, "big"),
        "before": row if op == "u" else None,
        "after": row,
    }


def named_files(sink: str, target: Path) -> set[str]:
    """By the newest commit, without their folders."""
    if sink == "delta":
        from deltalake import DeltaTable

        return {uri.rsplit("/", 1)[-1] for uri in DeltaTable(str(target)).file_uris()}
    with opened(sink, target) as kept:
        return {task.file.file_path.rsplit("/", 1)[-1] for task in kept._tasks()}


def data_files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_killed_between_two_parts(sink: str, tmp_path: Path, rng: random.Random) -> None:
    """Nothing of the group is there; it comes again, in a new table as in one that has rows."""
    history = History(rng)
    target = tmp_path / "t"
    for _ in range(3):
        before = history.table()
        group = one_group(history.batch(20))
        with suppress(Killed), opened(sink, target) as kept:
            kept.add(group.slice(0, 10), None)
            kept.add(group.slice(10, 5), None)
            raise Killed
        assert in_order(rows_of(sink, target)) == before
        with opened(sink, target) as kept:
            add_in_parts(kept, group, history.position, rng)
        assert in_order(rows_of(sink, target)) == history.table()


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_parts_that_cannot_be_merged_are_held(
    sink: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a table of Delta that asks its writers for more, and a group that brings a column."""
    kind = delta.DeltaState if sink == "delta" else iceberg.IcebergState
    monkeypatch.setattr(kind, "_open", lambda *_: None)
    history = History(rng)
    target = tmp_path / "t"
    for _ in range(3):
        group = one_group(history.batch(20))
        with opened(sink, target) as kept:
            add_in_parts(kept, group, history.position, rng)
        assert in_order(rows_of(sink, target)) == history.table()


def test_of_groups_in_two_domains_each_counts(rng: random.Random) -> None:
    """The last part of a large group may be the last of all, or be followed by a group of another domain."""
    for _ in range(300):
        groups = [(rng.randint(0, 1), rng.choice([1, 3, 10, 25])) for _ in range(rng.randint(1, 5))]
        gtids, last = [], [0, 0]
        for domain, count in groups:
            last[domain] += 1
            gtids += [{"domain": domain, "server": 1, "seq": last[domain]}] * count
        rows = pa.table({"_gtid": pa.array(gtids, GTID), "n": range(len(gtids))})
        found = [
            *chunks(rows.to_batches(rng.choice([1, 4, 10])), START, split_groups=True, rows=10)
        ]
        assert pa.concat_tables([part for part, _ in found]).equals(rows)
        seen = 0
        for part, position in found:
            seen += len(part)
            if position is not None:
                behind = {0: 0, 1: 0}
                for gtid in gtids[:seen]:
                    behind[gtid["domain"]] = gtid["seq"]
                assert position == SlavePosition([Gtid(d, 1, n) for d, n in behind.items() if n])
                assert seen == len(gtids) or gtids[seen] != gtids[seen - 1]
        assert found[-1][1] is not None


def test_parts_are_cut_by_bytes_too() -> None:
    gtid = {"domain": 0, "server": 1, "seq": 1}
    rows = pa.table({"_gtid": pa.array([gtid] * 100, GTID), "text": ["x" * 1000] * 100})
    found = [*chunks(rows.to_batches(5), START, split_groups=True, size=20_000)]
    assert max(part.nbytes for part, _ in found) < 30_000
    assert pa.concat_tables([part for part, _ in found]).equals(rows)
