"""Batches of changes in pieces of about equal size, cut between groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.tables.watermark import gtid_columns, position_behind

CHUNK_ROWS: Final = 250_000
CHUNK_BYTES: Final = 64 << 20


def chunks(
    batches: Iterable[pa.RecordBatch],
    start: SlavePosition,
    *,
    split_groups: bool,
    rows: int = CHUNK_ROWS,
    size: int = CHUNK_BYTES,
) -> Iterator[tuple[pa.Table, SlavePosition | None]]:
    """Tables, and the GTID position behind each: None in the middle of a group. The last one has a position.

    Args:
        batches: rows in the order of the log, with a column `_gtid`.
        split_groups: a group of more than that may be split; otherwise it is a table of its own.
        rows, size: how many, or bytes in memory, are enough for a table.
    """
    held: list[pa.RecordBatch] = []
    count = have = 0
    part: pa.Schema | None = None
    position = start
    for batch in batches:
        held.append(batch)
        count += len(batch)
        have += batch.nbytes
        if count < rows and have < size:
            continue
        table = pa.Table.from_batches(held)
        cut = _last_group(table)
        if cut:
            whole, rest = table.slice(0, cut), table.slice(cut)
            position = position_behind(whole, position)
            yield whole, position
            held, count, have = rest.to_batches(), len(rest), rest.nbytes
        elif split_groups:
            position = position_behind(table, position)  # it counts once the group is at its end
            yield table, None
            held, count, have, part = [], 0, 0, table.schema
    if count:
        table = pa.Table.from_batches(held)
        yield table, position_behind(table, position)
    elif part is not None:
        yield part.empty_table(), position


def _last_group(table: pa.Table) -> int:
    """The index at which the rows of the last group begin."""
    is_other = np.zeros(len(table), np.bool_)
    for numbers in gtid_columns(table):
        is_other |= numbers != numbers[-1]
    others = np.flatnonzero(is_other)
    return int(others[-1]) + 1 if len(others) else 0
