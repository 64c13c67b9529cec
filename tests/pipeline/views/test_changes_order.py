"""The order of rows of several shapes, and the bytes that order them."""

from __future__ import annotations

import numpy as np
import pytest
from binlog_pipeline.views.changes_gathering import Heads
from binlog_pipeline.views.changes_order import Places, log_order
from hypothesis import given
from hypothesis import strategies as st

PLACE = st.tuples(st.integers(0, 5), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
SMALL = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
Rows = list[tuple[int, int, int]]


def heads() -> Heads:
    """Of six groups, in two files."""
    number = np.arange(6)
    file, offset = number // 3, np.array([5, 2**40, 2**50, 1, 2, 2**62])
    return Heads(100, [(number, number, number, file, offset, number)])


def places(rows: Rows) -> Places:
    group, event, row = np.array(rows, np.int64).reshape(-1, 3).T
    return Places(heads(), group, event.astype(np.int32), row.astype(np.int32))


@pytest.mark.long
@given(st.lists(st.lists(PLACE | SMALL, max_size=20).map(sorted), min_size=1, max_size=4))
def test_rows_of_several_shapes_come_in_the_order_of_the_log(shapes: list[Rows]) -> None:
    parts = [places(rows) for rows in shapes]
    rows = [row for some in shapes for row in some]
    order = log_order(parts)
    ordered = rows if order is None else [rows[i] for i in order.tolist()]
    assert ordered == sorted(rows)
    if order is not None:  # those at one place, as an update's two in layout cdf, keep their order
        assert order.tolist() == sorted(range(len(rows)), key=lambda i: rows[i])


@given(st.lists(PLACE, min_size=1, max_size=20))
def test_keys_compare_as_the_places_do(rows: Rows) -> None:
    columns = places(rows).columns()
    orders = [tuple(order.values()) for order in columns[2].to_pylist()]
    keys = columns[3].to_pylist()
    assert {len(key) for key in keys} == {24}
    assert sorted(range(len(rows)), key=lambda i: keys[i]) == sorted(
        range(len(rows)), key=lambda i: orders[i]
    )
    at = heads()
    assert orders == [(*at.place(group), event, row) for group, event, row in rows]
