"""Data files of a Delta table, for a MERGE by files (`merging.py`), and whether that may be done to a table.

deltalake writes no data file but together with a commit, and its commit of files that others have written looks at
nothing: constraints, columns that are generated, what columns there are. So such a commit is made only of a table that
asks its writers for nothing (`asks_for_nothing`), and with the columns that the table has.

Statistics are what readers leave files out by, so bounds may be wider than the values, and never narrower:

    texts       the first 32 characters; of the largest one, the next text behind all that begin with them
    DECIMAL     15 digits, rounded outwards: some readers take them for floating point numbers
    zeros       of floating point: of both signs
    others      as they are; none of binary columns and lists

deltalake's reader of pyarrow takes a bound that is missing, in a file that has others, for NULL, and finds no row of
that column (1.6.6). So a file has all bounds; or none, if a value is beyond all that could be said (NaN, infinity).

Its own files have DECIMAL as floating point numbers, which are other ones than the values, and if they have an exponent
are missing when they are read. So tables with such columns (`is_misread`) have files of ours, by whichever process;
and those that others have put there, as OPTIMIZE does, are written anew with the next batch.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.dataclass import dataclass
from binlog_storage.archive.places import is_remote

from binlog_pipeline.errors import SourceError
from binlog_pipeline.tables.merging import SIZE_BYTES, KeptFile, rolled

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

_FEATURES: Final = frozenset(("appendOnly", "invariants", "timestampNtz"))
"""Of readers and writers. The first two are asked for by properties and columns, which are looked at."""
_PROPERTIES: Final = frozenset(
    f"delta.{name}"
    for name in (
        "checkpointInterval",
        "dataSkippingNumIndexedCols",
        "deletedFileRetentionDuration",
        "enableExpiredLogCleanup",
        "logRetentionDuration",
        "targetFileSize",
    )
)
"""What a table may say of itself: of its log, and of files what is done here."""
_INDEXED: Final = "delta.dataSkippingNumIndexedCols"
_SIZE: Final = "delta.targetFileSize"
_INDEXED_COLUMNS: Final = 32
_TYPES: Final = re.compile(
    r"(string|long|integer|short|byte|float|double|boolean|binary|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\))"
)
_NUMBER: Final = re.compile(r"-?\d+", re.ASCII)
_PATH: Final = re.compile(r"[\w.=-]+(/[\w.=-]+)*", re.ASCII)
"""Relative to the table, and the same in its log as on the disk."""
_OURS: Final = re.compile(
    r"part-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.snappy\.parquet", re.ASCII
)
"""Names of files that were written here: in the others' a task has a number, too."""
_PART_BYTES: Final = 32 << 20
_BATCH_ROWS: Final = 1 << 16
_TEXT: Final = 32
_DIGITS: Final = 15
_WITHOUT_EXPONENT: Final = 5
"""So many digits behind the point of a floating point number are written as digits."""
_SURE: Final = Decimal("9.2E18")
_FROM_STORES: Final = re.compile(r"(AWS|AZURE|GOOGLE)_\w+")
_OF_A_MACHINE: Final = re.compile(
    r"\w+_(FILE|PATH|PROFILE|CREDENTIALS|SERVICE_ACCOUNT)|AWS_CONTAINER_\w+"
)
"""Variables that name what one machine has."""
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class NewDataFile:
    """A file that was written: where in the table, bytes, when in ms, its statistics as JSON."""

    path: str
    size: int
    modified_ms: int
    statistics: str


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """What a task has to know of a table to read and write its files. Made by `of`.

    version: of the table, which whoever is to work on it must see; -1 for one that is still to be made.
    indexed: so many columns have statistics; -1 for all.
    size_bytes: that the rows of a file may have in memory.
    options: what the object store asks of its clients.
    """

    where: str
    version: int
    schema: pa.Schema
    indexed: int
    size_bytes: int
    options: Mapping[str, str]

    @classmethod
    def of(cls, table: DeltaTable | None, where: str, schema: pa.Schema) -> Self:
        """Those of a table that `asks_for_nothing`, or is new. schema: with which it is written, in Delta's types."""
        said = {} if table is None else table.metadata().configuration
        options = {
            name: value
            for name, value in os.environ.items()
            if is_remote(where)
            and _FROM_STORES.fullmatch(name)
            and not _OF_A_MACHINE.fullmatch(name)
        }
        indexed = int(said.get(_INDEXED, _INDEXED_COLUMNS))
        size = int(said.get(_SIZE, SIZE_BYTES))
        version = -1 if table is None else table.version()
        return cls(where, version, schema, indexed, size, options)

    @property
    def size(self) -> int:
        """See `DataFiles`."""
        return self.size_bytes

    def unseen(self) -> str:
        """See `DataFiles`."""
        try:
            import deltalake  # noqa: F401 - whether it is there
        except ImportError:
            return "deltalake is not installed where Spark's executors run"
        from pyarrow.fs import FileType

        name = f"_delta_log/{self.version:020}.json"
        said = f"{self.where}/{name} is not there where Spark's executors run"
        if not is_remote(self.where) and not Path(self.where).is_dir():
            return said  # the library would make it
        try:
            found = self._store().get_file_info(name).type
        except OSError as error:
            return f"{self.where} is not seen where Spark's executors run: {error}"
        return "" if found == FileType.File else said

    def read(self, file: str, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """See `DataFiles`."""
        yield from rolled(self._batches(file, names), _PART_BYTES)

    def _batches(self, file: str, names: Sequence[str] | None) -> Iterator[pa.Table]:
        import pyarrow.parquet as pq

        try:
            with self._store().open_input_file(file) as source:
                # Spark writes times as INT96, which would be in nanoseconds: from 1677 to 2262.
                parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
                if names is not None:
                    names = [name for name in names if name in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=names):
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{self.where}/{file}: {error}") from error

    def write(self, parts: Iterable[pa.Table]) -> list[NewDataFile]:
        """See `DataFiles`."""
        store = self._store()
        return [self._written(store, rows) for rows in parts]

    def remove(self, file: str) -> None:
        """See `DataFiles`."""
        with suppress(OSError):
            self._store().delete_file(file)

    def _written(self, store: FileSystem, rows: pa.Table) -> NewDataFile:
        import pyarrow.parquet as pq

        rows = rows.select(self.schema.names).cast(self.schema)
        path = f"part-{uuid.uuid4()}.snappy.parquet"
        with store.open_output_stream(path) as stream:
            pq.write_table(rows, stream, compression="snappy", store_schema=False)
            size = stream.tell()
        return NewDataFile(path, size, now_ms(), statistics(rows, self.indexed))

    def _store(self) -> FileSystem:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.where, dict(self.options)))


def now_ms() -> int:
    """The time of now, as Delta has it."""
    return time.time_ns() // 1_000_000


def asks_for_nothing(table: DeltaTable) -> bool:
    """Whether a table may be written by who does nothing but to write its columns."""
    protocol, metadata = table.protocol(), table.metadata()
    said = {
        name: value for name, value in metadata.configuration.items() if name.startswith("delta.")
    }
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return (
        protocol.min_reader_version in (1, 3)
        and protocol.min_writer_version in (1, 2, 7)
        and features <= _FEATURES
        and not metadata.partition_columns
        and said.keys() <= _PROPERTIES
        and all(_NUMBER.fullmatch(said.get(name, "0")) for name in (_INDEXED, _SIZE))
        and _is_plain(json.loads(table.schema().to_json()))
    )


def _is_plain(type_: Any) -> bool:
    """Whether values of a type, as the log has it in JSON, need no more than to be of that type."""
    if isinstance(type_, str):
        return bool(_TYPES.fullmatch(type_))
    match type_["type"]:
        case "struct":
            return all(
                one["nullable"]
                and not ({*one["metadata"]} - {"comment"})
                and _is_plain(one["type"])
                for one in type_["fields"]
            )
        case "array":
            return bool(type_["containsNull"]) and _is_plain(type_["elementType"])
    return False


def is_misread(schema: pa.Schema) -> bool:
    """Whether statistics as deltalake makes them would hide rows from readers."""
    return any(map(_is_misread, schema.types))


def _is_misread(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return any(_is_misread(one.type) for one in type_)
    is_decimal = pa.types.is_decimal(type_)
    return bool(is_decimal and (type_.precision > _DIGITS or type_.scale > _WITHOUT_EXPONENT))


def has_feature(table: DeltaTable, schema: pa.Schema) -> bool:
    """Whether the protocol of a table allows these columns as it is: times without a zone are a feature."""
    is_asked = any(pa.types.is_timestamp(type_) and not type_.tz for type_ in schema.types)
    return not is_asked or "timestampNtz" in (table.protocol().writer_features or ())


def kept_files(table: DeltaTable, key: str, *, is_misread: bool) -> list[KeptFile[str]] | None:
    """The files of a table, with the bounds of this column; None if not all are files of its own.

    is_misread: those of others, as OPTIMIZE leaves them, have bounds that hide rows from readers.
    """
    actions = pa.table(table.get_add_actions())
    paths = actions.column("path").to_pylist()
    if not all(_PATH.fullmatch(path) for path in paths):
        return None
    sizes = actions.column("size_bytes").to_pylist()
    rows = actions.column("num_records").to_pylist()
    least, most = (_of_column(actions, name, key) for name in ("min", "max"))
    return [
        KeptFile(
            path,
            size,
            count,
            _widened(lower, -1),
            _widened(upper, 1),
            is_misread and not _OURS.fullmatch(path),
        )
        for path, size, count, lower, upper in zip(paths, sizes, rows, least, most, strict=True)
    ]


def kept_file(file: NewDataFile, key: str) -> KeptFile[str]:
    """What a file that was written is in the table, with the bounds of this column."""
    said = json.loads(file.statistics, parse_float=Decimal)
    lower, upper = (said.get(name, {}).get(key) for name in ("minValues", "maxValues"))
    return KeptFile(file.path, file.size, said["numRecords"], lower, upper)


def ordered_type(schema: pa.Schema, key: str) -> pa.DataType | None:
    """The type of a column, if bounds of it can be compared with its values."""
    type_ = schema.field(key).type
    is_ordered = (
        pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_decimal(type_)
    )
    return type_ if is_ordered else None


def _of_column(actions: pa.Table, name: str, key: str) -> list[Any]:
    nothing: list[Any] = [None] * len(actions)
    if name not in actions.schema.names:
        return nothing
    bounds = actions.column(name)
    number = bounds.type.get_field_index(key) if pa.types.is_struct(bounds.type) else -1
    return nothing if number < 0 else list(pc.struct_field(bounds, [number]).to_pylist())


def _widened(bound: Any, sign: int) -> Any:
    """A bound as others have written it; None if it is not to be believed.

    Those of DECIMAL columns have been floating point numbers, in deltalake, and then integers of 64 bits, where the
    largest stands for all that are larger.
    """
    if not isinstance(bound, Decimal):
        return bound
    return None if abs(bound) > _SURE else bound + sign * abs(bound) * Decimal("1E-14")


def statistics(rows: pa.Table, indexed: int = _INDEXED_COLUMNS) -> str:
    """The statistics of a file with these rows, as the log has them: JSON. indexed: of so many columns; -1 for all."""
    names = rows.schema.names
    left = [sys.maxsize if indexed < 0 else indexed]
    columns = {
        name: found
        for name, values in zip(names, rows.columns, strict=True)
        if (found := _column(values, left)) is not None
    }
    whole = _object_of(columns)
    said = {"numRecords": str(len(rows))}
    if whole.is_bounded:
        said |= {"minValues": whole.least or "", "maxValues": whole.most or ""}
    return _object({**said, "nullCount": whole.nulls})


@dataclass(frozen=True, slots=True)
class _Column:
    """The statistics of a column, as JSON.

    least, most: None if all values are NULL, or the type has no bounds.
    is_bounded: whether no value is beyond all that could be said.
    """

    least: str | None
    most: str | None
    nulls: str
    is_bounded: bool


def _column(values: pa.ChunkedArray, left: list[int]) -> _Column | None:
    """left: so many columns are still to have statistics."""
    type_, types = values.type, pa.types
    if types.is_struct(type_):
        inner = {
            one.name: found
            for number, one in enumerate(type_)
            if (found := _column(pc.struct_field(values, [number]), left)) is not None
        }
        return _object_of(inner) if inner else None
    if types.is_nested(type_) or not left[0]:
        return None
    if types.is_binary(type_):
        return _Column(None, None, str(values.null_count), True)
    left[0] -= 1
    if values.null_count == len(values):
        return _Column(None, None, str(values.null_count), True)
    least, most = _bounds(values)
    is_bounded = least is not None and most is not None
    return _Column(least, most, str(values.null_count), is_bounded)


def _object_of(columns: Mapping[str, _Column]) -> _Column:
    return _Column(
        _object({name: one.least for name, one in columns.items() if one.least is not None}),
        _object({name: one.most for name, one in columns.items() if one.most is not None}),
        _object({name: one.nulls for name, one in columns.items()}),
        all(one.is_bounded for one in columns.values()),
    )


def _object(fields: Mapping[str, str]) -> str:
    """A JSON object. values: JSON; Python's writer has no numbers of more than a float's digits."""
    return "{" + ",".join(f"{_text(name)}:{value}" for name, value in fields.items()) + "}"


def _text(text: str) -> str:
    """As JSON. deltalake does not read what is written as pairs of surrogates."""
    return json.dumps(text, ensure_ascii=False)


def _bounds(values: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """The least and the largest of values that are not all NULL, as JSON; None for one that cannot be said."""
    type_, types = values.type, pa.types
    if types.is_floating(type_) and pc.any(pc.is_nan(values)).as_py():
        return None, None
    found = pc.min_max(values)
    bounds = (found["min"], found["max"])
    if types.is_timestamp(type_) or types.is_date(type_):
        suffix = "Z" if types.is_timestamp(type_) and type_.tz else ""
        lower, upper = (_time(one.value, is_date=types.is_date(type_)) for one in bounds)
        return lower and f'"{lower}{suffix}"', upper and f'"{upper}{suffix}"'
    least, most = (one.as_py() for one in bounds)
    if types.is_floating(type_):
        return _number(least, -0.0), _number(most, 0.0)
    if types.is_decimal(type_):
        return _decimal(least, type_, ROUND_FLOOR), _decimal(most, type_, ROUND_CEILING)
    if types.is_string(type_):
        return _text(least[:_TEXT]), _text(text_above(most))
    return json.dumps(least), json.dumps(most)


def _number(bound: float, zero: float) -> str | None:
    """zero: the sign that is farther out."""
    return None if abs(bound) == float("inf") else json.dumps(bound or zero)


def _decimal(bound: Decimal, type_: pa.DataType, rounding: str) -> str:
    """Of 15 digits; all nines where these would be more than the type has in front of the point."""
    rounded = Context(prec=_DIGITS, rounding=rounding).plus(bound)
    if abs(rounded) >= 10 ** (type_.precision - type_.scale):
        nines = "9" * type_.precision
        rounded = Decimal(f"{'-' * (bound < 0)}{nines}E-{type_.scale}")
    return f"{rounded:f}"


def _time(value: int, *, is_date: bool) -> str | None:
    """Days or microseconds since 1970, as ISO 8601; None if Python does not know the year."""
    try:
        if is_date:
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        return (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds")
    except OverflowError:
        return None


def text_above(text: str) -> str:
    """A text that is not less than this one, of at most 32 characters if there is one."""
    if len(text) <= _TEXT:
        return text
    for end in range(_TEXT, 0, -1):
        code = ord(text[end - 1]) + 1
        if code <= 0x10FFFF:
            code = 0xE000 if 0xD800 <= code < 0xE000 else code  # what is between is no character
            return text[: end - 1] + chr(code)
    return text
