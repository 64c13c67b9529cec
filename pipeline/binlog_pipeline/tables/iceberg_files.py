"""The work on data files of an Iceberg table: which of them a batch concerns, and writing these anew.

It is done by tasks (`tasks.py`), so by any workers: this process, or executors of Spark. A task reads its files, takes
out the rows whose keys have changed, and writes what is left. One of them writes the rows of now, together, for a row
that has changed may soon change again. What comes back is descriptions of files; and where the log has only parts of
rows, the rest of these. No file counts until a commit names it: a task that runs twice leaves one that nobody names.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.dataclass import dataclass

from binlog_pipeline.errors import SourceError
from binlog_pipeline.schemas.conversion import with_columns
from binlog_pipeline.tables.effects import Booleans, Effects, key_codes
from binlog_pipeline.tables.fold import fold
from binlog_pipeline.tables.iceberg_types import arrow_schema, arrow_type
from binlog_pipeline.tasks import HERE, Workers

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import PrimitiveType

SIZE: Final = "write.target-file-size-bytes"
SIZE_BYTES: Final = 128 << 20
_SMALL_ROWS: Final = 50_000
_SMALL_FILES: Final = 16
"""So many files of fewer rows are left as they are, though no row of them has changed."""
_WORTH_SENDING: Final = 8 << 20
"""Bytes of files and of rows: of fewer, other processes would take longer to be told than to do it."""
_MOST_SENT: Final = 128 << 20
"""Bytes of rows that a job may carry: Spark's driver has a copy of them. Of larger batches all is written here."""
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

    def require_seen(self) -> None:
        """Check that files which are written here can be read where the commit is made. Raises `SourceError`."""
        is_here = urlsplit(self.place).scheme in _ON_ONE_MACHINE
        if is_here and not self.io.new_input(self.place).exists():
            raise SourceError(
                f"{self.place} is not there where Spark's executors run: a table that they write must be in an "
                "object store, or in a folder that all machines see"
            )

    def read(self, tasks: Sequence[FileScanTask]) -> pa.Table:
        """The rows of some files, in the columns of `then`."""
        return read_files(self.then, self.io, tasks)

    def write(self, parts: Iterable[Sequence[pa.RecordBatch]]) -> list[DataFile]:
        """A file for each part of what `cut` gives."""
        from pyiceberg.io.pyarrow import write_file
        from pyiceberg.table import WriteTask

        schema = self.now.schema()
        name = uuid.uuid4()
        tasks = (
            WriteTask(write_uuid=name, task_id=number, schema=schema, record_batches=[*batches])
            for number, batches in enumerate(parts)
        )
        return [*write_file(self.io, self.now, tasks)]

    def cut(self, rows: pa.Table) -> Iterator[list[pa.RecordBatch]]:
        """The rows, in the columns of `now`, of one file after the other; nothing of no row."""
        from pyiceberg.io.pyarrow import bin_pack_arrow_table

        rows = rows.select([field.name for field in self.now.schema().fields])
        size = int(self.now.properties.get(SIZE, SIZE_BYTES))
        return bin_pack_arrow_table(rows, size) if len(rows) else iter(())


@dataclass(frozen=True, slots=True)
class _Piece:
    """Files that one task writes anew, into one if they are small.

    begin, end: the effects that may concern their rows.
    is_whole: they are written though no row of them changes.
    adds: so are the rows of all effects.
    """

    files: tuple[FileScanTask, ...]
    begin: int
    end: int
    is_whole: bool
    adds: bool = False

    def __str__(self) -> str:
        return f"{'new rows and ' * self.adds}data files ({len(self.files)})"


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """The outcome of a piece.

    gone: numbers of its files that others stand for now.
    touched: rows that the effects change in part; None if all are set as a whole.
    """

    gone: tuple[int, ...]
    new: tuple[DataFile, ...]
    touched: pa.Table | None


@dataclass(frozen=True, slots=True)
class _Merging:
    """A task: the effects on the rows of a piece.

    touched: rows of other pieces that the effects change in part.
    """

    files: TableFiles
    effects: Effects
    keys: tuple[str, ...]
    shown_name: str
    touched: pa.Table

    def __call__(self, piece: _Piece) -> _Rewritten:
        """Raises `SourceError` for a value that is another one in its new type."""
        self.files.require_seen()
        effects = self.effects.some(np.arange(piece.begin, piece.end))
        schema = effects.rows.schema
        gone: list[int] = []
        kept = [schema.empty_table()]
        touched = [self.touched]
        for number, task in enumerate(piece.files):
            rows = with_columns(
                self.files.read([task]), schema, lambda name: f"column {name} of {self.shown_name}"
            )
            is_changed = _has_keys(rows, effects.rows, self.keys)
            if not piece.is_whole and not is_changed.any():
                continue
            gone.append(number)
            kept.append(rows.filter(pa.array(~is_changed)))
            if effects.present is not None:
                touched.append(rows.filter(pa.array(is_changed)))
        found = pa.concat_tables(touched).combine_chunks()
        if piece.adds:
            kept.append(fold(found, effects, self.keys))
        new = self.files.write(self.files.cut(pa.concat_tables(kept)))
        is_asked = effects.present is not None and not piece.adds
        return _Rewritten(tuple(gone), tuple(new), found if is_asked else None)


@dataclass(frozen=True, slots=True)
class _NewFile:
    """The rows of one file that is to be written."""

    rows: pa.Table

    def __str__(self) -> str:
        return f"a file of {len(self.rows)} new rows"

    def __reduce__(self) -> tuple[Any, ...]:
        """As a stream: what pickles a slice takes all the rows of which it is one."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as stream:
            stream.write_table(self.rows)
        return _new_file, (sink.getvalue().to_pybytes(),)


def _new_file(stream: bytes) -> _NewFile:
    return _NewFile(pa.ipc.open_stream(stream).read_all())


@dataclass(frozen=True, slots=True)
class _Writing:
    """A task: rows that are in no file."""

    files: TableFiles

    def __call__(self, item: _NewFile) -> list[DataFile]:
        self.files.require_seen()
        return self.files.write([item.rows.to_batches()])


def written(files: TableFiles, rows: pa.Table, workers: Workers) -> list[DataFile]:
    """Files with these rows, by the workers; none for no row."""
    items = [_NewFile(pa.Table.from_batches(batches)) for batches in files.cut(rows)]
    found: list[DataFile] = []
    for _, new in _chosen(workers, rows).map(_Writing(files), items):
        found += new
    return found


def merged(
    files: TableFiles,
    tasks: Sequence[FileScanTask],
    effects: Effects,
    keys: Sequence[str],
    shown_name: str,
    workers: Workers,
    *,
    is_converted: bool,
) -> tuple[list[DataFile], list[DataFile]]:
    """The files that go, and those that come, of a table behind effects, one a key: the workers write them.

    is_converted: a column has another type, so that all files are written anew.
    """
    bounds = _Bounds(files.then.schema(), effects, keys[0])
    pieces = _planned(tasks, bounds, is_converted=is_converted)
    sizes = [task.file.file_size_in_bytes for piece in pieces for task in piece.files]
    workers = _chosen(workers, effects.rows, sum(sizes))
    # What is left of rows that were logged in part must be known to the one that adds them.
    waves = [pieces] if effects.present is None else [pieces[:-1], pieces[-1:]]
    gone: list[DataFile] = []
    new: list[DataFile] = []
    touched = [effects.rows.schema.empty_table()]
    for wave in waves:
        task = _Merging(files, bounds.effects, tuple(keys), shown_name, pa.concat_tables(touched))
        for number, done in workers.map(task, wave):
            gone.extend(wave[number].files[i].file for i in done.gone)
            new.extend(done.new)
            if done.touched is not None:
                touched.append(done.touched)
    return gone, new


def read_files(metadata: TableMetadata, io: FileIO, tasks: Sequence[FileScanTask]) -> pa.Table:
    """The rows of some files of a table. Raises `SourceError` for one that is damaged or gone, OSError."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = metadata.schema()
    scan = ArrowScan(metadata, io, schema, AlwaysTrue())
    try:
        return scan.to_table(tasks).cast(arrow_schema(schema))
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        names = ", ".join(task.file.file_path for task in tasks)
        raise SourceError(f"{names}: {error}") from error


def _chosen(workers: Workers, rows: pa.Table, size: int = 0) -> Workers:
    """Who works on these rows, and so many bytes of files."""
    is_sent = size + rows.nbytes >= _WORTH_SENDING and rows.nbytes <= _MOST_SENT
    return workers if is_sent else HERE


def _planned(tasks: Sequence[FileScanTask], bounds: _Bounds, *, is_converted: bool) -> list[_Piece]:
    """Pieces that may go side by side; the last one adds the rows of the effects, to small files if there are any."""
    is_joined = sum(task.file.record_count < _SMALL_ROWS for task in tasks) > _SMALL_FILES
    found: list[_Piece] = []
    packs: list[list[FileScanTask]] = [[]]
    rows = 0
    for task in tasks:
        is_small = task.file.record_count < _SMALL_ROWS
        is_whole = is_converted or (is_small and is_joined)
        begin, end = bounds(task.file)
        if not is_whole and begin == end:
            continue
        if not is_small:
            found.append(_Piece((task,), begin, end, is_whole))
            continue
        if rows >= _SMALL_FILES * _SMALL_ROWS:
            packs.append([])
            rows = 0
        packs[-1].append(task)
        rows += task.file.record_count
    all_of_them = len(bounds.effects)
    for pack in packs:
        adds = pack is packs[-1]
        found.append(_Piece(tuple(pack), 0, all_of_them, is_converted or is_joined, adds))
    return found


class _Bounds:
    """Which effects may concern rows of a file, by the bounds of the first column of the key in it.

    effects: in the order of that column, if its type has bounds that can be compared.
    """

    def __init__(self, schema: Schema, effects: Effects, key: str) -> None:
        from pyiceberg import types

        ordered = (
            types.IntegerType,
            types.LongType,
            types.StringType,
            types.DecimalType,
            types.BinaryType,
        )
        field = schema.find_field(key)
        self._id: Final = field.field_id
        self._type: PrimitiveType | None = None
        self._values: list[Any] = []
        self.effects = effects
        values = effects.rows.column(key)
        is_same = values.type == arrow_type(field.field_type)
        if isinstance(field.field_type, ordered) and is_same and not values.null_count:
            self._type = field.field_type
            self.effects = effects.some(pc.sort_indices(values).to_numpy())
            self._values = self.effects.rows.column(key).to_pylist()

    def __call__(self, file: DataFile) -> tuple[int, int]:
        """Numbers of `effects`: the first one, and the one behind the last."""
        from pyiceberg.conversions import from_bytes

        lower, upper = (
            (bounds or {}).get(self._id) for bounds in (file.lower_bounds, file.upper_bounds)
        )
        if self._type is None or lower is None or upper is None:
            return 0, len(self.effects)
        begin = bisect_left(self._values, from_bytes(self._type, lower))
        return begin, bisect_right(self._values, from_bytes(self._type, upper))


def _has_keys(rows: pa.Table, changed: pa.Table, keys: Sequence[str]) -> Booleans:
    """Which rows have a key of `changed`."""
    mine, others = key_codes([rows.select(keys), changed.select(keys)], keys)
    is_changed = np.zeros(int(max(mine.max(initial=-1), others.max(initial=-1))) + 1, np.bool_)
    is_changed[others] = True
    return np.asarray(is_changed[mine], np.bool_)


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
