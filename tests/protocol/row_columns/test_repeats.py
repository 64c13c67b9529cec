"""Groups that are like an earlier one are not looked at, and nothing else comes out of it."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import compressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.row_columns import RowCounter, RowDecoder, loops, repeats, walk_groups
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.row_columns.reference import (
    column_rows,
    plain_rows,
    rows_event,
    same,
    table_map,
)

T = EventType
XID = XidEvent(1, server_id=1).build()
KINDS = (T.WRITE_ROWS_V1, T.UPDATE_ROWS_V1, T.DELETE_ROWS_V1)


def any_group(rng: Random) -> bytes:
    """Of few tables, whose ids mean another table now and then; mostly one map and one row event."""
    table_id = rng.choice((3, 3, 4))
    width = rng.choice((1, 1, 2, 9, 30, 70, 300))
    kind = rng.choice(KINDS)
    count = 2 if kind == T.UPDATE_ROWS_V1 else 1
    everything = (1 << width) - 1
    bitmaps = [
        rng.choice((everything, everything, rng.getrandbits(width) | 1)) for _ in range(count)
    ]
    row = b"".join(
        bytes((bitmap.bit_count() + 7) // 8) + rng.randbytes(bitmap.bit_count())
        for bitmap in bitmaps
    )
    map_ = table_map(table_id, width)
    rows = row * rng.choice((1, 1, 3))
    rows = rows_event(kind, table_id, width, bitmaps, rows)
    if rng.random() < 0.2:
        rows = compressed(rows)
    return rng.choice(
        (map_ + rows + XID, map_ + rows, map_ + rows + rows, XID, map_, map_ + map_ + rows)
    )


def damaged(rng: Random, group: bytes) -> bytes:
    made = bytearray(group)
    made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def decoded(groups: list[bytes], pieces: int) -> Any:
    """The rows, or what was wrong."""
    decoder = RowDecoder()
    try:
        for first in range(0, len(groups), pieces):
            decoder.add(groups[first : first + pieces], first)
        return column_rows(decoder.take())
    except ProtocolError as error:
        return str(error)


@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
@settings(max_examples=60)
def test_any_groups(seed: int, count: int, is_damaged: bool) -> None:
    rng = Random(seed)
    kinds = [any_group(rng) for _ in range(rng.randrange(1, 6))]
    groups = [rng.choice((rng.choice(kinds), any_group(rng))) for _ in range(count)]
    if is_damaged:
        groups = [damaged(rng, group) if rng.random() < 0.1 else group for group in groups]
    pieces = rng.choice((1, 7, 1000))
    with pytest.MonkeyPatch.context() as patch:
        by_loops = decoded(groups, pieces)
        patch.setattr(loops, "HAS_C", False)
        patch.setattr(repeats, "EVENTS_MIN", sys.maxsize)
        expected = decoded(groups, pieces)
        patch.setattr(repeats, "EVENTS_MIN", 0)
        found = decoded(groups, pieces)
    if isinstance(expected, str):
        assert found == by_loops == expected
        return
    assert same(found, expected)
    assert same(by_loops, expected)
    assert same(found, plain_rows(groups))


def test_few_are_looked_at() -> None:
    rows = rows_event(T.WRITE_ROWS_V1, 3, 2, [3], b"\0\1\2")
    other = rows_event(T.DELETE_ROWS_V1, 3, 2, [3], b"\0\1\2")
    groups = [table_map(3, 2) + event for event in (rows, other) * 500]
    data, events = walk_groups(groups)
    found, like = repeats.repeated(data, events)
    assert len(found) == 996  # all but the first and the last group, and one of each kind
    assert set(like.tolist()) == {3, 5}
    counter = RowCounter()
    counter.add(groups)
    assert sorted((len(counts), counts.kind.value) for counts in counter.take()) == [
        (500, "delete"),
        (500, "insert"),
    ]


def test_the_same_number_for_another_table() -> None:
    """What a table id means changes when the server opens the table anew."""
    one = table_map(3, 1) + rows_event(T.WRITE_ROWS_V1, 3, 1, [1], b"\0\1")
    two = one.replace(b"\1t\0", b"\1u\0")
    decoder = RowDecoder()
    decoder.add([one] * 50 + [two] * 50 + [one] * 50)
    found = sorted((changes.table.table, len(changes)) for changes in decoder.take())
    assert found == [("t", 100), ("u", 50)]
