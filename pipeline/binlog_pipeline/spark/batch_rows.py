"""The rows of a micro-batch on the driver, piece after piece: its memory does not grow with the batch.

A small batch comes with the job that reads it. Of a large one that job brings nothing but the news. Then Spark keeps
its rows on the disks of the executors, packed into pieces of some MiB, and each is a partition of its own, which the
driver asks for when it has folded those before it, by a job of no query. What an executor had that is lost is read from
the source again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from binlog_pipeline.spark.batch_reader import freeze
from binlog_pipeline.spark.session import is_connect
from binlog_pipeline.tables.merging import rolled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ORDER: Final = "_order_key"
_SMALL: Final = 1 << 20
"""Bytes of a partition that come at once."""
_PIECE: Final = 4 << 20
_QUERY: Final = "spark.sql.execution.id"
_LOOKED_AT: Final = "data binary"
_PACKED: Final = (
    "partition int, number int, first binary, last binary, is_ordered boolean, data binary"
)


class _Head(NamedTuple):
    """A piece: the number of the partition and in it, the least and the largest order key, whether it is in order."""

    partition: int
    number: int
    first: bytes
    last: bytes
    is_ordered: bool


@contextmanager
def batch_rows(batch: DataFrame) -> Iterator[Callable[[], Iterator[pa.RecordBatch]] | None]:
    """What goes through the rows in the order of `_order_key`, as often as it is called; None if there are none."""
    small = _small(batch)
    if small is not None:
        yield (lambda: iter(small.to_batches())) if len(small) else None
        return
    packed = batch.mapInArrow(_packing(_PIECE), _PACKED)
    heads = _heads(_kept(packed))
    try:
        if not _is_in_order(heads):
            packed.unpersist()
            packed = batch.sort(ORDER).mapInArrow(_packing(_PIECE), _PACKED)
            heads = _heads(_kept(packed))
        pieces = _one_by_one(packed, heads)
        yield lambda: _unpacked(pieces, len(heads))
    finally:
        packed.unpersist()


def _small(batch: DataFrame) -> pa.Table | None:
    """The rows, in order; None if a partition has too many."""
    import pyarrow as pa

    found = [row.data for row in batch.mapInArrow(_looking(_SMALL), _LOOKED_AT).collect()]
    if None in found:
        return None
    parts = [_table(data) for data in found]
    return pa.concat_tables(parts).sort_by(ORDER) if parts else pa.table([])


def _kept(packed: DataFrame) -> DataFrame:
    from pyspark import StorageLevel

    return packed.persist(StorageLevel.DISK_ONLY)


def _heads(packed: DataFrame) -> list[_Head]:
    """Those of all pieces, in the order in which they are to be gone through. The job that reads the batch."""
    found = [_Head(*row) for row in packed.drop("data").collect()]
    begins: dict[int, bytes] = {}
    for head in found:
        begins[head.partition] = min(begins.get(head.partition, head.first), head.first)
    return sorted(found, key=lambda head: (begins[head.partition], head.partition, head.number))


def _is_in_order(heads: Sequence[_Head]) -> bool:
    return all(head.is_ordered for head in heads) and all(
        one.last <= other.first for one, other in pairwise(heads)
    )


def _one_by_one(packed: DataFrame, heads: Sequence[_Head]) -> DataFrame:
    """A partition for each piece, in order."""
    from pyspark.sql import functions as f

    begins = [0] * (1 + max(head.partition for head in heads))
    for number, head in enumerate(heads):
        if not head.number:
            begins[head.partition] = number
    begin = f.element_at(f.array(*map(f.lit, begins)), f.col("partition") + 1)
    return packed.select("data", (begin + f.col("number")).alias("place")).repartitionById(
        len(heads), "place"
    )


def _unpacked(pieces: DataFrame, count: int) -> Iterator[pa.RecordBatch]:
    for data in _fetched(pieces, count):
        yield from _table(data).to_batches()


def _fetched(pieces: DataFrame, count: int) -> Iterator[bytes]:
    """A job of its own for each.

    Spark 4.3 keeps the results of all jobs of a query in the driver's heap until it ends: of `toLocalIterator`, and of
    the micro-batch. So these jobs are of no query.
    """
    if is_connect(pieces):
        yield from (row.data for row in pieces.toLocalIterator())
        return
    rdd = pieces.select("data").rdd
    query = rdd.context.getLocalProperty(_QUERY)
    for number in range(count):
        rdd.context.setLocalProperty(_QUERY, None)  # type: ignore[arg-type]
        try:
            found = rdd.context.runJob(rdd, list, [number])
        finally:
            rdd.context.setLocalProperty(_QUERY, query)  # type: ignore[arg-type]
        yield from (row.data for row in found)


def _looking(limit: int) -> Any:
    """A task: the rows of a partition as one value; NULL for too many."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        freeze()
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > limit:
                break
        if held:
            data = None if size > limit else _packed(pa.Table.from_batches(held))
            yield pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["data"])

    return look


def _packing(limit: int) -> Any:
    """A task: the rows of a partition in pieces of so many bytes, as `_Head` has them, each with its rows."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        freeze()
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        tables = (pa.Table.from_batches([batch]) for batch in batches)
        for number, rows in enumerate(rolled(tables, limit)):
            yield _piece(partition, number, rows)

    return pack


def _piece(partition: int, number: int, rows: pa.Table) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = rows.column(ORDER).combine_chunks()
    is_ordered = pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False
    bounds = pc.min_max(keys)
    types = (pa.int32(), pa.int32(), pa.binary(), pa.binary(), pa.bool_(), pa.binary())
    values = (
        partition,
        number,
        bounds["min"].as_py(),
        bounds["max"].as_py(),
        is_ordered,
        _packed(rows),
    )
    columns = [pa.array([value], type_) for value, type_ in zip(values, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=[*_Head._fields, "data"])


def _packed(rows: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def _table(data: bytes) -> pa.Table:
    """The rows of a piece, with times in UTC: they have the zone of the session."""
    import pyarrow as pa

    found = pa.ipc.open_stream(data).read_all()
    return found.cast(pa.schema([field.with_type(_in_utc(field.type)) for field in found.schema]))


def _in_utc(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_in_utc(type_.value_type)))
    return type_
