"""Rows are counted as the plain decoder counts them, without a value being looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events
from binlog_protocol.events.rows import RowsEvent
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.row_columns import Prepare, RowCounter, event_runs
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.events.rows import samples
from tests.protocol.row_columns.any_rows import TABLE_ID, AnyRows
from tests.protocol.row_columns.reference import plain_rows, rows_event, table_map

SEEDS = st.integers(0, 2**32)
Place = tuple[int, int, str]


def counted(counter: RowCounter) -> dict[Place, int]:
    """By group, event and kind of change."""
    return {
        (int(group), int(event), counts.kind.value): int(rows)
        for counts in counter.take()
        for group, event, rows in zip(counts.group, counts.event, counts.rows, strict=True)
    }


def plainly(groups: list[bytes], prepare: Prepare = lambda table: table) -> dict[Place, int]:
    return dict(Counter((r.group, r.event, r.kind) for r in plain_rows(groups, prepare)))


@pytest.mark.parametrize("name", samples.NAMES)
def test_recorded_binlogs(name: str) -> None:
    groups = [group.payload for group in samples.groups(name)]
    counter = RowCounter()
    counter.add(groups)
    assert counted(counter) == plainly(groups)


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=50)
def test_any_rows_of_any_table(seed: int) -> None:
    any_rows = AnyRows(seed)
    table = any_rows.table()
    groups = any_rows.groups(table)

    def prepare(found: TableMap) -> TableMap:
        return replace(found, columns=table.columns)

    counter = RowCounter(prepare=prepare)
    counter.add(groups)
    assert counted(counter) == plainly(groups, prepare)


def test_sizes_are_those_of_the_images() -> None:
    groups = [group.payload for name in samples.NAMES for group in samples.groups(name)]
    counter = RowCounter()
    counter.add(groups, 7)
    sizes = {}
    for counts in counter.take():
        assert len(counts) == len(counts.group) == len(counts.size)
        for group, event, size in zip(counts.group, counts.event, counts.size, strict=True):
            sizes[group - 7, event] = size
    expected = {
        (number, i): len(RowsEvent.parse(event).body)
        for number, group in enumerate(groups)
        for i, event in enumerate(split_events(group))
        if event[4] in range(23, 26) or event[4] in range(166, 169)
    }
    assert sizes == expected


def test_a_group_in_pieces() -> None:
    groups = [group.payload for name in samples.NAMES for group in samples.groups(name)]
    counter = RowCounter()
    for number, group in enumerate(groups):
        for run in event_runs([group], at_least=1):
            counter.add([run], number)
    assert counted(counter) == plainly(groups)


def test_rows_without_bytes() -> None:
    """An INSERT of nothing but defaults under binlog_row_image=MINIMAL."""
    counter = RowCounter()
    group = table_map(TABLE_ID, 1) + rows_event(EventType.WRITE_ROWS_V1, TABLE_ID, 1, [0], b"") * 2
    counter.add([group])
    assert counted(counter) == {(0, 1, "insert"): 1, (0, 2, "insert"): 1}


def test_rows_that_do_not_end_with_their_event() -> None:
    rows = rows_event(EventType.DELETE_ROWS_V1, TABLE_ID, 2, [3], b"\0\1\2" + b"\0\1")
    counter = RowCounter()
    counter.add([table_map(TABLE_ID, 2) + rows])
    with pytest.raises(ProtocolError, match=r"cut short.* \(group 0, event 1\)"):
        counter.take()
