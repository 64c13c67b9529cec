"""The columns that say of a row change where in the log it stands, and the order of rows by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.row_columns import Changes
from numpy.typing import NDArray

from binlog_pipeline.groups import Integers
from binlog_pipeline.views.changes_gathering import Heads
from binlog_pipeline.views.view import GTID, TIME

ORDER: Final = pa.struct(
    [
        pa.field("file", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("event", pa.int32()),
        pa.field("row", pa.int32()),
    ]
)
PLACE_FIELDS: Final = [
    pa.field("_gtid", GTID),
    pa.field("_ts", TIME),
    pa.field("_order", ORDER),
    pa.field("_order_key", pa.binary()),
]
"""`_order`: place of the group's end, number of the event in it, of the row in that. `_order_key` is the same, and
compares as bytes. Both order all rows of one source."""
_KEY: Final = np.dtype([("file", ">i8"), ("offset", ">i8"), ("event", ">i4"), ("row", ">i4")])
assert _KEY.itemsize == 24
_SORT_BITS: Final = 63


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of rows: index of the group in `heads`, numbers of event and row."""

    heads: Heads
    group: Integers
    event: NDArray[np.int32]
    row: NDArray[np.int32]

    @classmethod
    def of(cls, changes: Changes, heads: Heads) -> Self:
        """The places of changes in the groups of `heads`."""
        return cls(heads, changes.group - heads.first, changes.event, changes.row)

    def __len__(self) -> int:
        return len(self.row)

    def columns(self) -> list[pa.Array]:
        """The columns of `PLACE_FIELDS`."""
        heads, group = self.heads, self.group
        file, offset = heads.file[group], heads.offset[group]
        gtid = pa.StructArray.from_arrays(
            [pa.array(c[group]) for c in (heads.domain, heads.server, heads.seq)], fields=list(GTID)
        )
        order = pa.StructArray.from_arrays(
            [pa.array(file), pa.array(offset), pa.array(self.event), pa.array(self.row)],
            fields=list(ORDER),
        )
        return [gtid, self.times(), order, self._keys(file, offset)]

    def times(self) -> pa.Array:
        """The times at which the statements of the groups began."""
        return pa.array(self.heads.timestamp[self.group] * 1_000_000).view(TIME)

    def _keys(self, file: Integers, offset: Integers) -> pa.Array:
        keys = np.empty(len(self), _KEY)
        keys["file"], keys["offset"] = file, offset
        keys["event"], keys["row"] = self.event, self.row
        ends = np.arange(len(self) + 1, dtype=np.int32) * _KEY.itemsize
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(keys)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)


def log_order(parts: Sequence[Places]) -> Integers | None:
    """Indexes that sort all rows of the parts, one part behind the other; None if they are sorted."""
    if len(parts) == 1:
        return None
    columns = [
        np.concatenate([getattr(part, name) for part in parts]).astype(np.int64)
        for name in ("group", "event", "row")
    ]
    bits = [int(column.max()).bit_length() if len(column) else 0 for column in columns]
    group, event, row = columns
    if sum(bits) > _SORT_BITS:
        return np.lexsort((row, event, group))
    keys = (group << bits[1] + bits[2]) | (event << bits[2]) | row
    if bool((keys[1:] >= keys[:-1]).all()):
        return None
    return np.argsort(keys, kind="stable")  # few runs that ascend: they are merged
