"""View files: what there is of a directory, told by its GTID states."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline.errors import BadOption
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.views import open_view
from binlog_pipeline.views.files import FILES_SCHEMA
from binlog_pipeline.views.reading import rows_of, slices_of
from binlog_pipeline.views.transactions import TransactionsView
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.ranges import GtidRange

from tests.pipeline.logs import BEGIN, SMALL_FILES, any_log
from tests.pipeline.stores import make_store


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> DirectorySource:
    log = any_log(random.Random(3), 400)
    return DirectorySource(
        str(make_store(tmp_path_factory.mktemp("files") / "s", log, SMALL_FILES))
    )


def parts(source: DirectorySource, wanted: Wanted) -> list[dict[str, Any]]:
    view = open_view(SourceOptions.parse({"path": source.path, "view": "files"}), source)
    (part,) = slices_of(view, source, wanted, 1)
    (batch,) = rows_of(view, part, begins=True)
    batch.validate(full=True)
    assert batch.schema.equals(view.schema)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def test_states_lead_from_one_part_to_the_next(source: DirectorySource) -> None:
    found = parts(source, Wanted())
    assert len(found) > 20
    assert found[0]["state_before"] == ""
    assert [row["state_before"] for row in found[1:]] == [row["state_behind"] for row in found[:-1]]
    assert BinlogState.parse(found[-1]["state_behind"]).position() == source.latest()
    assert {row["file"] for row in found} == set(range(found[-1]["file"] + 1))
    assert all(row["bytes"] == (row["end_page"] - row["first_page"]) * PAGE_SIZE for row in found)


def test_groups_lie_where_the_states_say(source: DirectorySource) -> None:
    rows = [
        row
        for part in source.slices(Wanted(), 1 << 30)
        for batch in rows_of(TransactionsView(), part, begins=True)
        for row in batch.to_pylist()
    ]
    for part in parts(source, Wanted()):
        state = BinlogState.parse(part["state_before"])
        begin, end = part["first_page"] * PAGE_SIZE, part["end_page"] * PAGE_SIZE
        inside = [r for r in rows if r["file"] == part["file"] and begin < r["offset"] <= end]
        state.overlay(Gtid(**_gtid(row)) for row in inside[:-1])
        behind = BinlogState.parse(part["state_behind"])
        assert all(_has(behind, gtid) for gtid in state.entries())


def _gtid(row: dict[str, Any]) -> dict[str, int]:
    gtid = row["gtid"]
    return {"domain_id": gtid["domain"], "server_id": gtid["server"], "seq_no": gtid["seq"]}


def _has(state: BinlogState, gtid: Gtid) -> bool:
    last = state.last(gtid.domain_id)
    return last is not None and last.seq_no >= gtid.seq_no


def test_times_are_of_groups_at_the_ends(source: DirectorySource) -> None:
    found = parts(source, Wanted())
    first = datetime.fromtimestamp(BEGIN - 600, UTC)
    known = [row for row in found if row["max_ts"] is not None]  # others have no group's beginning
    assert len(known) > 0.8 * len(found)
    assert all(first <= row["min_ts"] <= row["max_ts"] for row in known)
    assert found[-1]["max_ts"] is None
    assert known[0]["min_ts"] < known[-1]["min_ts"]


def test_a_range(source: DirectorySource) -> None:
    few = Wanted(GtidRange(SlavePosition.parse("0-1-100"), SlavePosition.parse("0-1-120")))
    found, everything = parts(source, few), parts(source, Wanted())
    assert 0 < len(found) < len(everything) / 2
    assert all(row in everything for row in found[:-1])
    assert found[-1]["max_ts"] is None  # what is behind it was not looked at


def test_nothing(tmp_path: Path) -> None:
    source = DirectorySource(str(make_store(tmp_path / "store", [], SMALL_FILES)))
    assert all(row["state_behind"] == "" for row in parts(source, Wanted()))


def test_a_source_without_files() -> None:
    class Other:
        name = "db1:3306"

    view = open_view(SourceOptions.parse({"path": "x", "view": "files"}), DirectorySource("x"))
    assert view.schema.equals(FILES_SCHEMA)
    with pytest.raises(BadOption, match="db1:3306 has no files"):
        slices_of(view, Other(), Wanted(), 1)  # type: ignore[arg-type]
