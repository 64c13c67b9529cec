"""Conditions narrow what is read, and never what comes out of it."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pytest
from binlog_pipeline.filters import (
    SLACK_S,
    PushedCondition,
    kept_rows,
    narrowed,
    narrowed_tables,
)
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.views.events import EventsView
from binlog_pipeline.views.transactions import TransactionsView
from binlog_pipeline.views.view import View
from binlog_pipeline.wanted import Numbers, Wanted
from binlog_protocol.gtid import SlavePosition
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.ranges import GtidRange, TimeRange
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.logs import BEGIN, SMALL_FILES, any_log
from tests.pipeline.stores import make_store

Row = dict[str, Any]
VIEWS: Final[dict[str, View]] = {"events": EventsView(), "transactions": TransactionsView()}
COUNT, STEP_S = 500, 700
SIZE = 4 * PAGE_SIZE
OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(row: Row, condition: PushedCondition) -> bool:
    """As SQL has it."""
    found: Any = row
    for name in condition.path:
        found = found[name]
    if condition.op == "<=>":
        return bool(found == condition.value)
    if found is None:
        return False
    if condition.op == "in":
        return found in condition.value
    return OPERATORS[condition.op](found, condition.value)


def kept(rows: Iterable[Row], conditions: Sequence[PushedCondition]) -> list[Row]:
    return [row for row in rows if all(holds(row, condition) for condition in conditions)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> DirectorySource:
    """Four days of a log."""
    log = any_log(random.Random(11), COUNT, step_s=STEP_S)
    return DirectorySource(
        str(make_store(tmp_path_factory.mktemp("filters") / "store", log, SMALL_FILES))
    )


def read(source: DirectorySource, view: View, wanted: Wanted) -> list[Row]:
    return [
        row
        for part in source.slices(wanted, SIZE)
        for batch in view.batches(part.read())
        for row in batch.to_pylist()
    ]


@cache
def everything(source: DirectorySource, view: str) -> list[Row]:
    return read(source, VIEWS[view], Wanted())


def moments() -> st.SearchStrategy[datetime]:
    seconds = st.integers(-SLACK_S, COUNT * STEP_S + SLACK_S)
    return st.builds(
        lambda s, us: datetime.fromtimestamp(BEGIN + s, UTC) + timedelta(microseconds=us),
        seconds,
        st.sampled_from((0, 0, 1, 999_999)),
    )


def conditions() -> st.SearchStrategy[PushedCondition]:
    columns: list[tuple[tuple[str, ...], st.SearchStrategy[Any]]] = [
        (("gtid", "domain"), st.sampled_from((0, 1, 7, 99, -1))),
        (("gtid", "server"), st.sampled_from((1, 2, 3))),
        (("gtid", "seq"), st.integers(-5, COUNT * 2) | st.sampled_from((1 << 62, -(1 << 62)))),
        (("ts",), moments()),
    ]
    made = []
    for path, values in columns:
        one = st.sampled_from((*OPERATORS, "<=>"))
        made.append(st.builds(PushedCondition, one, st.just(path), values))
        made.append(
            st.builds(PushedCondition, st.just("in"), st.just(path), st.lists(values, max_size=3))
        )
    return st.one_of(made)


@given(view=st.sampled_from(tuple(VIEWS)), some=st.lists(conditions(), max_size=4))
@settings(max_examples=60)
def test_any_conditions(source: DirectorySource, view: str, some: list[PushedCondition]) -> None:
    wanted = narrowed(Wanted(), some, view, "struct")
    found = read(source, VIEWS[view], wanted)
    assert kept(found, some) == kept(everything(source, view), some)


EDGES = [
    *(PushedCondition(op, ("gtid", "seq"), n) for op in (*OPERATORS, "<=>") for n in (0, 1, 150, 151)),
    *(
        PushedCondition(op, ("ts",), datetime.fromtimestamp(BEGIN + s, UTC) + timedelta(microseconds=us))
        for op in (*OPERATORS, "<=>")
        for s in (100 * STEP_S, 101 * STEP_S - 600)
        for us in (-1, 0, 1)
    ),
]  # fmt: skip


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("view", VIEWS)
def test_edges(source: DirectorySource, view: str) -> None:
    """At numbers and times that there are: nothing less, and of groups nothing more either."""
    for condition in EDGES:
        found = read(source, VIEWS[view], narrowed(Wanted(), [condition], view, "struct"))
        expected = kept(everything(source, view), [condition])
        if view == "transactions" and (expected or condition.op not in ("=", "<=>")):
            assert found == expected
        assert kept(found, [condition]) == expected


@given(start=st.integers(0, 600), some=st.lists(conditions(), max_size=3))
@settings(max_examples=20)
def test_conditions_beside_a_range(
    source: DirectorySource, start: int, some: list[PushedCondition]
) -> None:
    range_ = Wanted(
        GtidRange(SlavePosition.parse(f"0-1-{start},1-1-5"), SlavePosition.parse("0-1-450,7-1-70"))
    )
    found = read(source, VIEWS["transactions"], narrowed(range_, some, "transactions", "struct"))
    assert kept(found, some) == kept(read(source, VIEWS["transactions"], range_), some)


NEAR = datetime.fromtimestamp(BEGIN + 2 * SLACK_S, UTC)
PRUNING = [
    [PushedCondition(">", ("gtid", "seq"), 500)],
    [PushedCondition("<=", ("gtid", "seq"), 20)],
    [PushedCondition("=", ("gtid", "domain"), 99)],
    [PushedCondition("=", ("gtid", "domain"), 1), PushedCondition("<", ("gtid", "seq"), 30)],
    [PushedCondition("in", ("gtid", "seq"), [300, 310]), PushedCondition("=", ("gtid", "domain"), 0)],
    [PushedCondition(">", ("ts",), NEAR + timedelta(days=1))],
    [PushedCondition("<", ("ts",), NEAR - timedelta(days=1))],
    [PushedCondition("=", ("gtid", "seq"), 300), PushedCondition("<", ("gtid", "seq"), 200)],
]  # fmt: skip


@pytest.mark.parametrize("some", PRUNING)
@pytest.mark.parametrize("view", VIEWS)
def test_less_is_read(source: DirectorySource, view: str, some: list[PushedCondition]) -> None:
    everything = source.slices(Wanted(), 1)
    left = source.slices(narrowed(Wanted(), some, view, "struct"), 1)
    assert len(left) < 0.7 * len(everything)


def test_groups_that_are_not_wanted_become_no_rows(source: DirectorySource) -> None:
    some = [PushedCondition("=", ("gtid", "server"), 2), PushedCondition(">=", ("ts",), NEAR)]
    found = read(source, VIEWS["transactions"], narrowed(Wanted(), some, "transactions", "struct"))
    assert found == kept(everything(source, "transactions"), some)


def test_of_other_views() -> None:
    """A column of the table, or of a part of the log, is something else."""
    some = [PushedCondition(">", ("ts",), NEAR), PushedCondition("=", ("gtid", "domain"), 1)]
    assert narrowed(Wanted(), some, "changes", "flat") == Wanted()
    assert narrowed(Wanted(), some, "files", "struct") == Wanted()
    own = [PushedCondition("<", ("_gtid", "seq"), 5), PushedCondition("<", ("_ts",), NEAR)]
    end = TimeRange(None, int(NEAR.timestamp()), SLACK_S)
    assert narrowed(Wanted(), own, "changes", "struct") == Wanted(
        times=end, numbers=Numbers(None, 4)
    )
    assert narrowed(Wanted(), own, "changes", "cdf") == Wanted()


def test_values_of_other_types() -> None:
    odd = [
        PushedCondition("=", ("gtid", "seq"), True),
        PushedCondition("<", ("gtid", "seq"), 1.5),
        PushedCondition("in", ("gtid", "domain"), ["0"]),
        PushedCondition("<=>", ("gtid", "domain"), None),
        PushedCondition("<", ("ts",), NEAR.replace(tzinfo=None)),
        PushedCondition("in", ("ts",), [None]),
        PushedCondition(">", ("gtid",), 3),
        PushedCondition(">", ("gtid", "domain"), 3),
    ]
    assert narrowed(Wanted(), odd, "transactions", "struct") == Wanted()


TABLES = [
    ((), [("=", "_db", "shop")], ("shop.*",)),
    ((), [("=", "_db", "shop"), ("in", "_table", ["b", "a", None])], ("shop.a", "shop.b")),
    (("sh*.o*", "crm.x"), [("=", "_db", "shop")], ("shop.o*",)),
    (("sh*.o*", "crm.x"), [("=", "_table", "x")], ("crm.x",)),
    (("sh*.o*",), [("=", "_db", "crm")], ("sh*.o*",)),
    ((), [("=", "_db", "s*p")], ("s[*]p.*",)),
    ((), [("=", "_db", "a.b")], ()),
    ((), [("<", "_db", "a"), ("=", "x", "y")], ()),
    (("a.b",), [("=", "_db", "a"), ("=", "_db", "c")], ("a.b",)),
]  # fmt: skip


@pytest.mark.parametrize(("patterns", "some", "left"), TABLES)
def test_tables(
    patterns: tuple[str, ...], some: list[tuple[str, str, Any]], left: tuple[str, ...]
) -> None:
    made = [PushedCondition(op, (name,), value) for op, name, value in some]
    assert narrowed_tables(patterns, made) == left


ROWS = [
    {"n": n, "s": s, "t": t, "f": 1.5, "b": b, "in": None if n is None else {"x": n}}
    for n, s, t, b in (
        (1, "a", NEAR, True),
        (2, "b", NEAR + timedelta(seconds=1), False),
        (None, None, None, None),
        (3, "\u00e9", NEAR, None),
    )
]
SCHEMA = pa.schema(
    [
        pa.field("n", pa.int16()),
        pa.field("s", pa.string()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("f", pa.float64()),
        pa.field("b", pa.bool_()),
        pa.field("in", pa.struct([pa.field("x", pa.int64())])),
    ]
)


@pytest.mark.parametrize("op", [*OPERATORS, "<=>"])
@pytest.mark.parametrize(
    ("path", "value"),
    [(("n",), 2), (("s",), "b"), (("t",), NEAR), (("b",), True), (("in", "x"), 2)],
)
def test_rows(op: str, path: tuple[str, ...], value: Any) -> None:
    condition = PushedCondition(op, path, value)
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    rows = [row for row in ROWS if path[0] != "in" or row["in"] or op == "<=>"]
    flat = [row if row["in"] else {**row, "in": {"x": None}} for row in rows]
    expected = [row["n"] for row in kept(flat, [condition])]
    assert kept_rows(batch, [condition]).column("n").to_pylist() == expected


def test_rows_in_lists_and_null() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)

    def left(*some: PushedCondition) -> list[int | None]:
        found: list[int | None] = kept_rows(batch, some).column("n").to_pylist()
        return found

    assert left(PushedCondition("in", ("s",), ["a", None, "\u00e9"])) == [1, 3]
    assert left(PushedCondition("in", ("n",), [])) == []
    assert left(PushedCondition("<=>", ("n",), None)) == [None]
    assert left(PushedCondition("=", ("n",), 2), PushedCondition("=", ("s",), "b")) == [2]
    passed_over = [
        PushedCondition("=", ("f",), 2.0),
        PushedCondition("=", ("n",), 70_000),
        PushedCondition("=", ("nothing",), 1),
        PushedCondition("=", ("in", "nothing"), 1),
        PushedCondition("=", ("n", "deeper"), 1),
        PushedCondition("<", ("t",), NEAR.replace(tzinfo=None)),
    ]
    assert left(*passed_over) == [1, 2, None, 3]


def test_options_of_a_range_are_kept() -> None:
    options = SourceOptions.parse({"path": "x", "endTime": "2023-11-15T00:00:00", "domains": "0,1"})
    some = [PushedCondition("in", ("gtid", "domain"), [1, 2]), PushedCondition("<", ("ts",), NEAR)]
    wanted = narrowed(options.wanted, some, "transactions", "struct")
    assert wanted.domains == frozenset({1})
    assert wanted.times.end == options.end_time
