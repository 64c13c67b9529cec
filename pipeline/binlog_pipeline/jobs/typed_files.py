"""Parquet files of typed rows, many tables side by side, in bounded memory.

Rows come in the order of the log, and each file has its rows in that order. A file is of one table with one list of
columns. Row groups have at most 128 Ki rows, and about 32 MiB before they are encoded.

    layout struct    _op, _gtid, _ts, _order, _present, before, after
    layout flat      _op, _gtid, _ts, _order, _present, and the columns: as they are now; of a DELETE, as they were

_gtid, _ts and _order are those of view `changes`. _op is c, u or d (INSERT, UPDATE, DELETE). _present is null if all
columns were logged, else a bitmap of those that were, least bit first; of `after`, or of `before` for a DELETE.
`before` of an INSERT and `after` of a DELETE are null.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.row_columns import Changes
from binlog_storage.disk.durable_files import sync_file

from binlog_pipeline.errors import BadOption
from binlog_pipeline.schemas.columns import spark_type
from binlog_pipeline.views.changes_gathering import GatheredRows, Heads
from binlog_pipeline.views.changes_layouts import repeated
from binlog_pipeline.views.changes_order import PLACE_FIELDS, Places, log_order
from binlog_pipeline.views.changes_rows import OPS, logged_columns

Layout = Literal["struct", "flat"]

_GROUP_ROWS: Final = 1 << 17
_GROUP_BYTES: Final = 32 << 20
_WAITING_BYTES: Final = 96 << 20
_OPEN_FILES: Final = 200
_PLACE_COLUMNS: Final = 3  # `_order_key` is `_order` in other words
_HEAD: Final = [
    pa.field("_op", pa.string()),
    *PLACE_FIELDS[:_PLACE_COLUMNS],
    pa.field("_present", pa.binary()),
]
_PLAIN: Final = ("seq", "offset")  # columns that hardly repeat: a dictionary would only cost time


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is whole and on disk.

    fingerprint: of the names and types of the columns.
    key: columns of the primary key, if they were logged.
    first, last: of each domain, the group of the first and of the last row.
    """

    path: str
    database: str
    table: str
    fingerprint: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    rows: int
    bytes: int
    first: str
    last: str


class TypedFiles:
    """Writes files into a directory of its own. One owner."""

    def __init__(self, directory: Path, layout: Layout) -> None:
        self._directory: Final = directory
        self._layout: Final[Layout] = layout
        self._open: OrderedDict[tuple[str, str, pa.Schema], _OpenFile] = OrderedDict()
        self._waiting = 0
        self._written: list[WrittenFile] = []

    def add(self, gathered: GatheredRows) -> None:
        """All changes of some groups; what is added next comes behind them in the log."""
        tables: dict[tuple[str, str, pa.Schema], list[Changes]] = {}
        for some in gathered.changes:
            name = some.table.database, some.table.table
            tables.setdefault((*name, _image_schema(some)), []).append(some)
        for key, found in tables.items():
            file = self._file(key, found[0])
            self._waiting += file.add(found, gathered.heads)
            if file.is_full:
                self._waiting -= file.flush()
        while self._waiting > _WAITING_BYTES:
            largest = max(self._open.values(), key=lambda file: file.waiting)
            self._waiting -= largest.flush()

    def close(self) -> list[WrittenFile]:
        """Finish all files; they are returned."""
        while self._open:
            self._close_oldest()
        return self._written

    def _file(self, key: tuple[str, str, pa.Schema], changes: Changes) -> _OpenFile:
        file = self._open.get(key)
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._close_oldest()
            path = self._directory / f"{len(self._written) + len(self._open):05}.parquet"
            file = self._open[key] = _OpenFile(path, changes, self._layout)
        self._open.move_to_end(key)
        return file

    def _close_oldest(self) -> None:
        _, file = self._open.popitem(last=False)
        self._waiting -= file.waiting
        self._written.append(file.close())


class _OpenFile:
    """A file that rows are added to."""

    def __init__(self, path: Path, changes: Changes, layout: Layout) -> None:
        self._path: Final = path
        self._image: Final = _image_schema(changes)
        self._table: Final = changes.table
        self._layout: Final[Layout] = layout
        self._schema: Final = _row_schema(self._image, layout)
        self._writer: Final = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=_repeating(self._schema),
        )
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._rows_waiting = 0
        self._first: dict[int, Gtid] = {}
        self._last: dict[int, Gtid] = {}
        self.waiting = 0
        """Bytes that are not written yet."""

    @property
    def is_full(self) -> bool:
        return self._rows_waiting >= _GROUP_ROWS or self.waiting >= _GROUP_BYTES

    def add(self, changes: list[Changes], heads: Heads) -> int:
        """Add changes. Returns by how many bytes the waiting rows have grown."""
        places = [Places.of(some, heads) for some in changes]
        batches = [
            _typed_rows(some, where, self._schema, self._layout)
            for some, where in zip(changes, places, strict=True)
        ]
        order = log_order(places)
        if order is not None:
            table = pa.Table.from_batches(batches).take(pa.array(order))
            batches = table.combine_chunks().to_batches()
        for where in places:
            self._note_ends(where)
        size = sum(int(batch.nbytes) for batch in batches)
        self._batches += batches
        self._rows_waiting += sum(map(len, changes))
        self.waiting += size
        return size

    def _note_ends(self, places: Places) -> None:
        domains = places.heads.domain[places.group]
        for domain in np.unique(domains).tolist():
            here = places.group[domains == domain]
            first, last = (places.heads.gtid(int(here[i])) for i in (0, -1))
            known = self._first.setdefault(domain, first)
            self._first[domain] = min(known, first, key=lambda gtid: gtid.seq_no)
            known = self._last.setdefault(domain, last)
            self._last[domain] = max(known, last, key=lambda gtid: gtid.seq_no)

    def flush(self) -> int:
        """Write what is waiting; how many bytes that were."""
        size = self.waiting
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            rows_at_once = max(_GROUP_ROWS * _GROUP_BYTES // max(size, _GROUP_BYTES), 1)
            self._writer.write_table(table, min(rows_at_once, _GROUP_ROWS))
            self._rows += len(table)
        self._batches, self._rows_waiting, self.waiting = [], 0, 0
        return size

    def close(self) -> WrittenFile:
        """Written out, and on disk."""
        self.flush()
        self._writer.close()
        sync_file(self._path)
        names = self._image.names
        columns = tuple((field.name, str(field.type)) for field in self._image)
        return WrittenFile(
            str(self._path),
            self._table.database,
            self._table.table,
            hashlib.sha256(repr(columns).encode()).hexdigest()[:16],
            columns,
            tuple(names[part.column] for part in self._table.primary_key or ()),
            self._rows,
            self._path.stat().st_size,
            str(SlavePosition(self._first.values())),
            str(SlavePosition(self._last.values())),
        )


def _repeating(schema: pa.Schema) -> list[str]:
    """Names of Parquet columns that get a dictionary."""
    found: list[str] = []
    for field in schema:
        found += _leaves(field, field.name)
    return [name for name in found if name.rpartition(".")[2] not in _PLAIN]


def _leaves(field: pa.Field, name: str) -> list[str]:
    if not pa.types.is_struct(field.type):
        return [name]
    return [leaf for child in field.type for leaf in _leaves(child, f"{name}.{child.name}")]


def _image_schema(changes: Changes) -> pa.Schema:
    """The schema of row images: the table's columns, with types that Spark has."""
    image = changes.before if changes.after is None else changes.after
    assert image is not None
    return pa.schema([pa.field(f.name, spark_type(f.type)) for f in image.schema])


def _row_schema(image: pa.Schema, layout: Layout) -> pa.Schema:
    """The schema of the rows that `_typed_rows` makes. Raises `BadOption`."""
    if layout == "flat":
        clash = {field.name for field in _HEAD} & set(image.names)
        if clash:
            raise BadOption(f"a table has a column {min(clash)}, as layout flat has: use struct")
        return pa.schema([*_HEAD, *image])
    both = pa.struct(list(image))
    return pa.schema([*_HEAD, pa.field("before", both), pa.field("after", both)])


def _typed_rows(
    changes: Changes, places: Places, schema: pa.Schema, layout: Layout
) -> pa.RecordBatch:
    """Rows of a file, in the order of the log; `places` are the places of the changes in it."""
    count = len(changes)
    columns = [
        repeated(OPS[changes.kind], pa.string(), count),
        *places.columns()[:_PLACE_COLUMNS],
        repeated(logged_columns(changes), pa.binary(), count),
    ]
    if layout == "flat":
        image = changes.before if changes.after is None else changes.after
        assert image is not None
        columns += image.columns
    else:
        kind = schema.field("after").type
        columns += [_struct(image, kind, count) for image in (changes.before, changes.after)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _struct(image: pa.RecordBatch | None, kind: pa.DataType, count: int) -> pa.Array:
    if image is None:
        return pa.nulls(count, kind)
    return pa.StructArray.from_arrays(image.columns, fields=list(kind))
