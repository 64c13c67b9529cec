"""The interface of a view: a schema, and groups turned into record batches with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import pyarrow as pa

from binlog_pipeline.groups import Groups, Integers
from binlog_pipeline.sources.admission import Barrier

BATCH_ROWS: Final = 16384

GTID: Final = pa.struct(
    [
        pa.field("domain", pa.int64()),
        pa.field("server", pa.int64()),
        pa.field("seq", pa.int64()),
    ]
)
TIME: Final = pa.timestamp("us", tz="UTC")
PLACE: Final = [
    pa.field("gtid", GTID),
    pa.field("file", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("ts", TIME),
]
"""The first columns of views with a row a group, or parts of one."""


class View(Protocol):
    """Picklable, and without state: `batches` is called once for each slice."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def barrier(self) -> Barrier | None:
        """The rule by which a micro-batch must begin anew; None for no such rule."""

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        """Rows of the schema, in the order of the groups, in batches of a few MiB. Raises `PipelineError`."""


def place_arrays(groups: Groups, which: Integers | None = None) -> list[pa.Array]:
    """The columns of `PLACE`; of those groups (indexes, which may repeat), or of all."""
    domain, server, seq, file, offset, seconds = (
        groups.columns if which is None else [column[which] for column in groups.columns]
    )
    gtid = pa.StructArray.from_arrays(
        [pa.array(domain), pa.array(server), pa.array(seq)], fields=list(GTID)
    )
    return [
        gtid,
        pa.array(file),
        pa.array(offset),
        pa.array(seconds * 1_000_000).cast(pa.int64()).view(TIME),
    ]
