"""Data files of an Iceberg table, for a MERGE by files (`merging.py`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import pyarrow as pa
from binlog_protocol.dataclass import dataclass

from binlog_pipeline.errors import SourceError
from binlog_pipeline.tables.iceberg_types import arrow_schema, arrow_type
from binlog_pipeline.tables.merging import SIZE_BYTES, KeptFile

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import PrimitiveType

SIZE: Final = "write.target-file-size-bytes"
_ON_ONE_MACHINE: Final = ("", "file")


@dataclass(frozen=True, slots=True)
class TableFiles:
    """What a task has to know of a table to read and write its files. Made by `of`.

    then: the table as it is, by which files are read.
    now: as it will be behind the commit, by which they are written.
    place: of its metadata, which whoever is to work on it must see.
    """

    io: FileIO
    then: TableMetadata
    now: TableMetadata
    place: str

    @classmethod
    def of(cls, table: Table, change: Transaction) -> Self:
        """Those of a table in a commit that was begun."""
        then, now = _without_history(table.metadata), _without_history(change.table_metadata)
        return cls(table.io, then, now, table.metadata_location)

    @property
    def size(self) -> int:
        """See `DataFiles`."""
        return int(self.now.properties.get(SIZE, SIZE_BYTES))

    def unseen(self) -> str:
        """See `DataFiles`."""
        is_here = urlsplit(self.place).scheme in _ON_ONE_MACHINE
        if not is_here or self.io.new_input(self.place).exists():
            return ""
        return (
            f"{self.place} is not there where Spark's executors run: a table that they write must be in an "
            "object store, or in a folder that all machines see"
        )

    def read(self, file: FileScanTask, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """See `DataFiles`. In the columns of `then`."""
        yield read_files(self.then, self.io, [file], names)

    def write(self, parts: Iterable[pa.Table]) -> list[DataFile]:
        """See `DataFiles`."""
        from pyiceberg.io.pyarrow import write_file
        from pyiceberg.table import WriteTask

        schema = self.now.schema()
        names = [field.name for field in schema.fields]
        name = uuid.uuid4()
        tasks = (
            WriteTask(
                write_uuid=name,
                task_id=number,
                schema=schema,
                record_batches=rows.select(names).to_batches(),
            )
            for number, rows in enumerate(parts)
        )
        return [*write_file(self.io, self.now, tasks)]

    def remove(self, file: FileScanTask) -> None:
        """See `DataFiles`."""
        with suppress(OSError):
            self.io.delete(file.file.file_path)


def kept_files(schema: Schema, tasks: Sequence[FileScanTask], key: str) -> Iterator[KeptFile[Any]]:
    """The files of a table, with the bounds of this column if it is of a type whose bounds can be compared."""
    from pyiceberg.conversions import from_bytes

    field = schema.find_field(key)
    type_ = _ordered_type(schema, key)
    for task in tasks:
        file = task.file
        bounds: list[Any] = [None, None]
        if type_ is not None:
            found = (
                (one or {}).get(field.field_id) for one in (file.lower_bounds, file.upper_bounds)
            )
            bounds = [None if one is None else from_bytes(type_, one) for one in found]
        yield KeptFile(task, file.file_size_in_bytes, file.record_count, *bounds)


def ordered_type(schema: Schema, key: str) -> pa.DataType | None:
    """The type of a column in memory, if bounds of it can be compared with values of that type."""
    found = _ordered_type(schema, key)
    return None if found is None else arrow_type(found)


def _ordered_type(schema: Schema, key: str) -> PrimitiveType | None:
    from pyiceberg import types

    ordered = (
        types.IntegerType,
        types.LongType,
        types.StringType,
        types.DecimalType,
        types.BinaryType,
    )
    found = schema.find_field(key).field_type
    return found if isinstance(found, ordered) else None


def read_files(
    metadata: TableMetadata,
    io: FileIO,
    tasks: Sequence[FileScanTask],
    names: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of some files of a table. Raises `SourceError` for one that is damaged or gone, OSError.

    names: the columns that are wanted, as far as there are; None for all.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = metadata.schema()
    if names is not None:
        schema = schema.select(*(name for name in names if name in schema.column_names))
    scan = ArrowScan(metadata, io, schema, AlwaysTrue())
    try:
        return scan.to_table(tasks).cast(arrow_schema(schema))
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        paths = ", ".join(task.file.file_path for task in tasks)
        raise SourceError(f"{paths}: {error}") from error


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """The columns, properties and places of a table: its snapshots may be thousands."""
    nothing: dict[str, Any] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "statistics": [],
        "partition_statistics": [],
        "refs": {},
        "current_snapshot_id": None,
    }
    return metadata.model_copy(update=nothing)
