"""View raw: the groups as they are in the log, lossless.

    gtid, file, offset, ts    see `view.py`
    part                      number of the row within its group, from 0
    is_last                   whether it is the last one of its group
    data                      bytes of the group, in normal form

A group has one row, unless it has more than 4 MiB: then it comes in parts of a MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from binlog_pipeline.groups import Groups
from binlog_pipeline.views.view import BATCH_ROWS, PLACE, place_arrays

RAW_SCHEMA: Final = pa.schema(
    [
        *PLACE,
        pa.field("part", pa.int32()),
        pa.field("is_last", pa.bool_()),
        pa.field("data", pa.binary()),
    ]
)
_PART_BYTES: Final = 1 << 20


class RawView:
    """View `raw`; see the module."""

    schema: Final = RAW_SCHEMA
    barrier: Final = None

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        for some in groups:
            if some.large is not None:
                yield from _parts(some)
                continue
            for begin in range(0, len(some), BATCH_ROWS):
                payloads = some.payloads[begin : begin + BATCH_ROWS]
                yield _batch(some, begin, payloads, part=0, is_last=True)


def _parts(group: Groups) -> Iterator[pa.RecordBatch]:
    held = bytearray()
    part = 0
    for piece in group.pieces(0):
        held += piece
        while len(held) > _PART_BYTES:
            yield _batch(group, 0, [bytes(held[:_PART_BYTES])], part, is_last=False)
            del held[:_PART_BYTES]
            part += 1
    yield _batch(group, 0, [bytes(held)], part, is_last=True)


def _batch(
    groups: Groups, begin: int, data: Sequence[bytes], part: int, is_last: bool
) -> pa.RecordBatch:
    count = len(data)
    arrays = [
        *place_arrays(groups, np.arange(begin, begin + count)),
        pa.repeat(pa.scalar(part, pa.int32()), count),
        pa.repeat(pa.scalar(is_last), count),
        pa.array(data, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)
