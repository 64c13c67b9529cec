"""Layouts of a table are those of table maps, and of nothing else that has such bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from binlog_pipeline.groups import Groups
from binlog_pipeline.jobs.table_history import FindLayouts
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid

from tests.protocol.row_columns.reference import table_map


class Given(NamedTuple):
    """A slice that is in memory."""

    groups: Groups

    def read(self) -> Iterator[Groups]:
        yield self.groups


def test_a_value_that_looks_like_a_table_map_is_none() -> None:
    """Users write to tables what they like: a whole table map of theirs, too."""
    real, forged = table_map(7, 1), table_map(7, 2)
    group = [
        GtidEvent(Gtid(0, 1, 5)).build(),
        real,
        QueryEvent(b"INSERT INTO t VALUES ('" + forged + b"')", 1, b"d").build(),
        XidEvent(1, 1).build(),
    ]
    groups = Groups([b"".join(group)], np.array([0]), np.array([1000]))
    table = TableMap.parse(real)
    found = FindLayouts(table.database, table.table)(Given(groups))
    assert [len(one.table.columns) for one in found] == [1]
