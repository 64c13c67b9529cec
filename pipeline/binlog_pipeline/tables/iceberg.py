"""A table kept as an Iceberg table of a catalog, by the library pyiceberg: no JVM, no Spark package.

    iceberg://CATALOG/NAMESPACE/TABLE

The catalog is one of pyiceberg's own configuration: its file .pyiceberg.yaml, or variables such as
PYICEBERG_CATALOG__CATALOG__URI. A batch is one snapshot (see `committed.py`), together with the columns of now, in one
commit. Files that have a row of a key that was changed are written anew, the others stay as they are; small ones are
joined as they become many. The position is in the summary of the snapshot, so a table that is rolled back goes on where
it is then. It is in the properties of the table as well, for one whose snapshots of ours have expired: compaction by
others leaves such.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.errors import BadOption, PipelineError, SourceError, TargetChanged
from binlog_pipeline.schemas.conversion import require_convertible, with_columns
from binlog_pipeline.tables.committed import POSITION, CommittedTable
from binlog_pipeline.tables.effects import Booleans, Effects, key_codes
from binlog_pipeline.tables.fold import fold
from binlog_pipeline.targets import Target, iceberg_names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction
    from pyiceberg.types import IcebergType

_LAST: Final = "binlog.last"
_LIBRARIES: Final = frozenset(("pyiceberg", "sqlalchemy"))
_ONE_TRY: Final = {"commit.retry.num-retries": "0"}
"""A second one would put a snapshot behind that of another writer, whatever that has done."""
_SIZE: Final = "write.target-file-size-bytes"
_SIZE_BYTES: Final = 128 << 20
_PROPERTIES: Final = {
    _SIZE: str(_SIZE_BYTES),  # in memory; a row that is changed costs its file
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_SMALL_ROWS: Final = 50_000
_SMALL_FILES: Final = 16
"""So many files of fewer rows are left as they are, though no row of them has changed."""


class IcebergState(CommittedTable):
    """A target.

    Raises `BadOption` without pyiceberg or the catalog, and for a target of another table.
    """

    format = "Iceberg"

    def __init__(
        self, target: Target, table: str, keys: Sequence[str], begin: SlavePosition
    ) -> None:
        super().__init__(str(target), table, keys, begin)
        catalog, self._names = iceberg_names(target)
        self._catalog: Final = _catalog(catalog)
        self._table = _loaded(self._catalog, self._names)
        self._is_published = False
        if self._table is not None:
            found = _published(self._table, self.where)
            if found is not None:
                self._take_metadata(found)
                self._is_published = True

    def close(self) -> None:
        """Release the catalog."""
        self._catalog.close()

    @property
    def is_new(self) -> bool:
        """Whether there is no table yet, or only one that a run has made which was killed."""
        return not self._is_published

    @property
    def has_rows(self) -> bool:
        """Whether rows are kept."""
        return not self.is_new and any(task.file.record_count for task in self._tasks())

    def rows(self) -> pa.Table:
        """All rows."""
        assert self._table is not None
        return _read(self._table, self._tasks())

    @staticmethod
    def _require_type(type_: pa.DataType) -> None:
        _iceberg_type(type_)

    def _columns(self) -> pa.Schema:
        assert self._table is not None
        return _arrow_schema(self._table)

    def _tasks(self) -> list[FileScanTask]:
        assert self._table is not None
        return [*self._table.scan().plan_files()]

    def _take_schema(self, schema: pa.Schema) -> None:
        """Check that what is kept may be what the columns are now; the commit of the rows makes it so."""
        if self.has_rows:
            require_convertible(self._shown_name, self._columns(), _as_kept(schema))

    def _overwrite(self, rows: pa.Table, position: SlavePosition) -> None:
        rows = rows.cast(_as_kept(rows.schema))
        change = self._begin(rows.schema, is_anew=not self._has_columns)
        gone = [task.file for task in self._tasks()]
        self._commit(change, position, gone, _written(change, self._files, [rows]))

    def _merge(self, found: Effects, position: SlavePosition) -> None:
        assert self._table is not None
        schema = _as_kept(found.rows.schema)
        found = replace(found, rows=found.rows.cast(schema))
        then = self._columns()
        is_converted = any(
            column.type != then.field(column.name).type
            for column in schema
            if column.name in then.names
        )
        tasks = self._tasks()
        small = [task for task in tasks if task.file.record_count < _SMALL_ROWS]
        joined = {id(task) for task in small} if len(small) > _SMALL_FILES else {0}
        may_have = _Touched(self._table, found.rows, self.keys[0])
        change = self._begin(schema)
        gone: list[DataFile] = []
        written: list[DataFile] = []
        held: list[pa.Table] = []  # small pieces become one file
        touched = [schema.empty_table()]
        for task in tasks:
            is_whole = is_converted or id(task) in joined
            if not is_whole and not may_have(task.file):
                continue
            rows = self._as_now(_read(self._table, [task]), schema)
            where = _has_keys(rows, found.rows, self.keys)
            if not is_whole and not where.any():
                continue
            gone.append(task.file)
            touched.append(rows.filter(pa.array(where)))
            rest = rows.filter(pa.array(~where))
            if len(rest) < _SMALL_ROWS:
                held.append(rest)
            else:
                written += _written(change, self._files, [rest])
        held.append(fold(pa.concat_tables(touched).combine_chunks(), found, self.keys))
        written += _written(change, self._files, held)
        self._commit(change, position, gone, written)

    def _say(self, position: SlavePosition) -> None:
        assert self._table is not None
        self._commit(self._begin(self._columns()), position, [], [])

    def _as_now(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Rows with the columns of now. Raises `SourceError` for a value that is another one in its new type."""
        return with_columns(rows, schema, lambda name: f"column {name} of {self._shown_name}")

    @property
    def _files(self) -> Any:
        """The door to the table's files."""
        assert self._table is not None
        return self._table.io

    def _begin(self, schema: pa.Schema, *, is_anew: bool = False) -> Transaction:
        """A commit in which the table has these columns; the table is made if need be.

        is_anew: no column is the one of before, whatever it is called.
        """
        from pyiceberg.table import Table

        if self._table is None:
            self._catalog.create_namespace_if_not_exists(self._names[:-1])
            self._table = self._catalog.create_table(
                self._names, _iceberg_schema(schema), properties={**_PROPERTIES, _LAST: "{}"}
            )
        table = self._table
        if not table.spec().is_unpartitioned():
            raise SourceError(f"{self.where} is partitioned, which this program does not write")
        properties = {**table.metadata.properties, **_ONE_TRY}  # here, and not in the table
        metadata = table.metadata.model_copy(update={"properties": properties})
        strict = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
        change = strict.transaction()
        then = _arrow_schema(table)
        kept = [field for field in then if field in schema and not is_anew]
        gone = [field for field in then if field not in kept]
        new = [field for field in schema if field not in kept]
        if gone or new:
            # A column of another type is another one: so no reader takes a value of the old type for one of the new.
            with change.update_schema(allow_incompatible_changes=True) as update:
                for field in gone:
                    update.delete_column((field.name,))
                for field in new:
                    update.add_column((field.name,), _iceberg_type(field.type))
        return change

    def _commit(
        self,
        change: Transaction,
        position: SlavePosition,
        gone: Sequence[DataFile],
        new: Sequence[DataFile],
    ) -> None:
        assert self._table is not None
        said = self._metadata(position)
        with change.update_snapshot(snapshot_properties=said).overwrite() as snapshot:
            for file in gone:
                snapshot.delete_data_file(file)
            for file in new:
                snapshot.append_data_file(file)
        last = {
            "snapshot": snapshot.snapshot_id,
            "sequence": self._table.last_sequence_number + 1,
            "said": said,
        }
        change.set_properties({_LAST: json.dumps(last)})
        change.commit_transaction()
        self._table = self._catalog.load_table(self._names)
        self._is_published = True


class _Touched:
    """Which files may have a row of one of these keys, by the bounds of the first column of the key in each."""

    def __init__(self, table: Table, rows: pa.Table, key: str) -> None:
        from pyiceberg.types import (
            BinaryType,
            DecimalType,
            IntegerType,
            LongType,
            PrimitiveType,
            StringType,
        )

        ordered = (IntegerType, LongType, StringType, DecimalType, BinaryType)
        field = table.schema().find_field(key)
        self._id: Final = field.field_id
        self._type: PrimitiveType | None = None
        values = rows.column(key).unique()
        self._values: list[Any] = []
        is_same = values.type == _arrow_type(field.field_type)
        if isinstance(field.field_type, ordered) and is_same and not values.null_count:
            self._type = field.field_type
            self._values = sorted(values.to_pylist())

    def __call__(self, file: DataFile) -> bool:
        from pyiceberg.conversions import from_bytes

        lower, upper = (
            (bounds or {}).get(self._id) for bounds in (file.lower_bounds, file.upper_bounds)
        )
        if self._type is None or lower is None or upper is None:
            return True
        at = bisect_left(self._values, from_bytes(self._type, lower))
        return at < len(self._values) and self._values[at] <= from_bytes(self._type, upper)


def iceberg_position(target: Target) -> SlavePosition | None:
    """The GTID position of a table; None if none is there. Raises `SourceError` for one of others, `BadOption`."""
    name, names = iceberg_names(target)
    with said_of_iceberg(target), closing(_catalog(name)) as catalog:
        table = _loaded(catalog, names)
        said = None if table is None else _published(table, str(target))
        return None if said is None else SlavePosition.parse(said[POSITION])


def read_iceberg(target: Target) -> pa.Table:
    """The table as it is now. Raises `BadOption`, pyiceberg's errors."""
    name, names = iceberg_names(target)
    with closing(_catalog(name)) as catalog:
        table = catalog.load_table(names)
        return _read(table, [*table.scan().plan_files()])


@contextmanager
def said_of_iceberg(where: object) -> Iterator[None]:
    """What pyiceberg says, in our errors: `TargetChanged` if another writer was faster, else `SourceError`."""
    try:
        yield
    except (PipelineError, OSError):
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _LIBRARIES:
            raise
        if type(error).__name__ in ("CommitFailedException", "TableAlreadyExistsError"):
            raise TargetChanged(
                f"{where} was changed by somebody else meanwhile: {error}"
            ) from error
        raise SourceError(f"{where}: {error}") from error


def _catalog(name: str) -> Catalog:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise BadOption(
            "an Iceberg table needs the library pyiceberg: pip install '.[iceberg]'"
        ) from None
    try:
        return load_catalog(name)
    except ValueError as error:
        raise BadOption(
            f"catalog {name} is not in pyiceberg's configuration (.pyiceberg.yaml, or "
            f"PYICEBERG_CATALOG__{name.upper()}__URI and others): {error}"
        ) from None


def _published(table: Table, where: str) -> Mapping[str, str] | None:
    """What our last snapshot says of the table as it is; None for a table that has only been made.

    Raises `SourceError` for a table of others.
    """
    from pyiceberg.table.snapshots import ancestors_of

    current = table.current_snapshot()
    for snapshot in ancestors_of(current, table.metadata):
        said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if POSITION in said:
            return said
    last = json.loads(table.properties.get(_LAST, "{}"))
    if current is None and not last.get("snapshot"):
        if _LAST in table.properties:
            return None
    elif last.get("snapshot") and current is not None:
        is_kept = table.snapshot_by_id(last["snapshot"]) is not None
        if not is_kept and (current.sequence_number or 0) > last["sequence"]:
            return dict(last["said"])
        raise SourceError(
            f"{where} was rolled back to a snapshot whose GTID position has expired: begin a new target, or "
            "load the table again"
        )
    raise SourceError(f"{where} is an Iceberg table that this program has not written")


def _loaded(catalog: Catalog, names: tuple[str, ...]) -> Table | None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(names)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _read(table: Table, tasks: Sequence[FileScanTask]) -> pa.Table:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return scan.to_table(tasks).cast(_arrow_schema(table))


def _written(change: Transaction, files: Any, some: Sequence[pa.Table]) -> list[DataFile]:
    """Files with these rows; none for no row."""
    from pyiceberg.io.pyarrow import bin_pack_arrow_table, write_file
    from pyiceberg.table import WriteTask

    rows = pa.concat_tables(some)
    if not len(rows):
        return []
    metadata = change.table_metadata
    schema = metadata.schema()
    rows = rows.select([field.name for field in schema.fields])
    size = int(metadata.properties.get(_SIZE, _SIZE_BYTES))
    name = uuid.uuid4()
    tasks = (
        WriteTask(write_uuid=name, task_id=number, schema=schema, record_batches=batches)
        for number, batches in enumerate(bin_pack_arrow_table(rows, size))
    )
    return [*write_file(files, metadata, tasks)]


def _has_keys(rows: pa.Table, changed: pa.Table, keys: Sequence[str]) -> Booleans:
    """Which rows have a key of `changed`."""
    mine, others = key_codes([rows.select(keys), changed.select(keys)], keys)
    is_changed = np.zeros(int(max(mine.max(initial=-1), others.max(initial=-1))) + 1, np.bool_)
    is_changed[others] = True
    return np.asarray(is_changed[mine], np.bool_)


def _arrow_schema(table: Table) -> pa.Schema:
    """The columns of a table, in the types in which this program has them."""
    return pa.schema(
        [pa.field(field.name, _arrow_type(field.field_type)) for field in table.schema().fields]
    )


def _as_kept(schema: pa.Schema) -> pa.Schema:
    """The columns as the format keeps them."""
    return pa.schema(
        [pa.field(field.name, _arrow_type(_iceberg_type(field.type))) for field in schema]
    )


def _iceberg_schema(schema: pa.Schema) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    return Schema(
        *(
            NestedField(number, field.name, _iceberg_type(field.type), required=False)
            for number, field in enumerate(schema, 1)
        )
    )


def _iceberg_type(type_: pa.DataType) -> IcebergType:
    """Raises TypeError for none. Numbers of nested fields are given by the table."""
    from pyiceberg import types

    known = pa.types
    if known.is_list(type_):
        return types.ListType(-1, _iceberg_type(type_.value_type), element_required=False)
    if known.is_struct(type_):
        return types.StructType(
            *(
                types.NestedField(
                    -1 - number, field.name, _iceberg_type(field.type), required=False
                )
                for number, field in enumerate(type_)
            )
        )
    if known.is_decimal128(type_):
        return types.DecimalType(type_.precision, type_.scale)
    if known.is_timestamp(type_) and type_.unit == "us":
        return types.TimestamptzType() if type_.tz else types.TimestampType()
    if known.is_fixed_size_binary(type_):
        return types.FixedType(type_.byte_width)
    simple = {
        pa.bool_(): types.BooleanType, pa.int8(): types.IntegerType, pa.int16(): types.IntegerType,
        pa.int32(): types.IntegerType, pa.int64(): types.LongType, pa.float32(): types.FloatType,
        pa.float64(): types.DoubleType, pa.string(): types.StringType, pa.binary(): types.BinaryType,
        pa.date32(): types.DateType,
    }  # fmt: skip
    if type_ not in simple:
        raise TypeError(type_)
    found: IcebergType = simple[type_]()
    return found


def _arrow_type(type_: IcebergType) -> pa.DataType:
    """The type in which rows are in memory: that of the library, with offsets of 32 bits as everywhere else here."""
    from pyiceberg import types
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    match type_:
        case types.ListType():
            return pa.list_(pa.field("element", _arrow_type(type_.element_type)))
        case types.StructType():
            return pa.struct(
                [(field.name, _arrow_type(field.field_type)) for field in type_.fields]
            )
        case types.StringType():
            return pa.string()
        case types.BinaryType():
            return pa.binary()
    found: pa.DataType = schema_to_pyarrow(type_)
    return found
