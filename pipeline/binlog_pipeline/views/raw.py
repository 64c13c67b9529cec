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
from binlog_storage.archive.part_writer import PART_SCHEMA, large_batches

from binlog_pipeline.groups import Groups
from binlog_pipeline.views.view import BATCH_ROWS, place_arrays

RAW_SCHEMA: Final = PART_SCHEMA


class RawView:
    """View `raw`; see the module."""

    schema: Final = RAW_SCHEMA
    barrier: Final = None

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        for some in groups:
            if some.large is not None:
                yield from large_batches(some)
                continue
            for begin in range(0, len(some), BATCH_ROWS):
                payloads = some.payloads[begin : begin + BATCH_ROWS]
                yield _batch(some, begin, payloads)


def _batch(groups: Groups, begin: int, data: Sequence[bytes]) -> pa.RecordBatch:
    count = len(data)
    arrays = [
        *place_arrays(groups, np.arange(begin, begin + count)),
        pa.repeat(pa.scalar(0, pa.int32()), count),
        pa.repeat(pa.scalar(True), count),
        pa.array(data, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)
