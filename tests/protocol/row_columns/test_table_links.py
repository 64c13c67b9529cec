"""Row events find their table maps, whatever stands between them."""

from __future__ import annotations

from random import Random

import numpy as np
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.row_columns import table_maps_of, walk_groups
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.row_columns.reference import rows_event, table_map

ROWS = (EventType.WRITE_ROWS_V1, EventType.DELETE_ROWS_V1, EventType.WRITE_ROWS)
XID = XidEvent(1, server_id=1).build()


def any_group(rng: Random) -> list[bytes]:
    """Maps and row events of three tables in any order, row events without a map among them."""
    events = []
    for _ in range(rng.randrange(12)):
        table_id = rng.randrange(3)
        made = rng.choice(
            (table_map(table_id, 1), rows_event(rng.choice(ROWS), table_id, 1, [1], b"\0\0"), XID)
        )
        events.append(made)
    return events


def plainly(groups: list[list[bytes]]) -> list[int]:
    found = []
    number = 0
    for group in groups:
        maps: dict[bytes, int] = {}
        for event in group:
            table_id = event[19:25]
            if event[4] == EventType.TABLE_MAP:
                maps[table_id] = number
            found.append(-1 if event == XID else maps.get(table_id, -1))
            number += 1
    return found


@given(st.integers(0, 2**32), st.integers(1, 30))
@settings(max_examples=100)
def test_any_groups(seed: int, count: int) -> None:
    rng = Random(seed)
    groups = [any_group(rng) for _ in range(count)]
    data, events = walk_groups([b"".join(group) for group in groups])
    assert table_maps_of(data, events).tolist() == plainly(groups)


def test_no_tables() -> None:
    assert table_maps_of(*walk_groups([XID, XID])).tolist() == [-1, -1]
    assert np.size(table_maps_of(*walk_groups([b""]))) == 0
