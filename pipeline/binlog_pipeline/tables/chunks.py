"""Batches of changes in pieces of about equal size, cut between groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.tables.watermark import gtid_columns, position_behind

CHUNK_ROWS: Final = 250_000


def chunks(
    batches: Iterable[pa.RecordBatch],
    start: SlavePosition,
    *,
    split_groups: bool,
    rows: int = CHUNK_ROWS,
) -> Iterator[tuple[pa.Table, SlavePosition | None]]:
    """Tables, and the GTID position behind each: None in the middle of a group.

    Args:
        batches: rows in the order of the log, with a column `_gtid`.
        split_groups: a group of more than `rows` rows may be split; otherwise it is a table of its own.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    position = start
    for batch in batches:
        held.append(batch)
        count += len(batch)
        if count < rows:
            continue
        table = pa.Table.from_batches(held)
        cut = _last_group(table)
        if cut:
            whole, rest = table.slice(0, cut), table.slice(cut)
            position = position_behind(whole, position)
            yield whole, position
            held, count = rest.to_batches(), len(rest)
        elif split_groups:
            yield table, None
            held, count = [], 0
    if count:
        table = pa.Table.from_batches(held)
        yield table, position_behind(table, position)


def _last_group(table: pa.Table) -> int:
    """The index at which the rows of the last group begin."""
    is_other = np.zeros(len(table), np.bool_)
    for numbers in gtid_columns(table):
        is_other |= numbers != numbers[-1]
    others = np.flatnonzero(is_other)
    return int(others[-1]) + 1 if len(others) else 0
