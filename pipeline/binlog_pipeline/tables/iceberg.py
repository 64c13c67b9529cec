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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.hdfs_objects import is_of_hdfs, told_by_hdfs
from binlog_storage.archive.objects import HDFS

from binlog_pipeline.errors import BadOption, PipelineError, SourceError, TargetChanged
from binlog_pipeline.schemas.conversion import require_convertible
from binlog_pipeline.tables.committed import POSITION, CommittedTable
from binlog_pipeline.tables.effects import Effects
from binlog_pipeline.tables.iceberg_files import (
    SIZE,
    TableFiles,
    kept_files,
    ordered_type,
    read_files,
)
from binlog_pipeline.tables.iceberg_types import arrow_schema, as_kept, iceberg_schema, iceberg_type
from binlog_pipeline.tables.merging import SIZE_BYTES, KeptFile, Merge, Uncommitted, written
from binlog_pipeline.targets import Target, iceberg_names
from binlog_pipeline.tasks import HERE, Workers
from binlog_pipeline.telling import told_by_store

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction

_LAST: Final = "binlog.last"
_IO: Final = "py-io-impl"
_LIBRARIES: Final = frozenset(("pyiceberg", "sqlalchemy"))
_ONE_TRY: Final = {"commit.retry.num-retries": "0"}
"""A second one would put a snapshot behind that of another writer, whatever that has done."""
_PROPERTIES: Final = {
    SIZE: str(SIZE_BYTES),  # in memory; a row that is changed costs its file
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergState(CommittedTable):
    """A target. Its files are read and written by the workers, if that is worth it.

    Raises `BadOption` without pyiceberg or the catalog, and for a target of another table.
    """

    format = "Iceberg"

    def __init__(
        self,
        target: Target,
        table: str,
        keys: Sequence[str],
        begin: SlavePosition,
        workers: Workers = HERE,
    ) -> None:
        super().__init__(str(target), table, keys, begin)
        self._workers: Final = workers
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
        return read_files(self._table.metadata, self._table.io, self._tasks())

    @staticmethod
    def _require_type(type_: pa.DataType) -> None:
        iceberg_type(type_)

    def _columns(self) -> pa.Schema:
        assert self._table is not None
        return arrow_schema(self._table.schema())

    def _tasks(self) -> list[FileScanTask]:
        assert self._table is not None
        return [*self._table.scan().plan_files()]

    def _take_schema(self, schema: pa.Schema) -> None:
        """Check that what is kept may be what the columns are now; the commit of the rows makes it so."""
        if self.has_rows:
            require_convertible(self._shown_name, self._columns(), as_kept(schema))

    def _overwrite(self, rows: pa.Table, position: SlavePosition) -> None:
        rows = rows.cast(as_kept(rows.schema))
        change = self._begin(rows.schema, is_anew=not self._has_columns)
        assert self._table is not None
        gone = [task.file for task in self._tasks()]
        new = written(TableFiles.of(self._table, change), rows, self._workers)
        self._commit(change, position, gone, new)

    def _merge(self, found: Effects, position: SlavePosition) -> None:
        schema = as_kept(found.rows.schema)
        then = self._columns()
        is_converted = any(
            column.type != then.field(column.name).type
            for column in schema
            if column.name in then.names
        )
        change = self._files()
        begun = self._merge_files(change, found, is_converted=is_converted)
        self._commit(begun, position, [one.name.file for one in change.gone], change.new)

    def _files(self) -> Uncommitted[FileScanTask, DataFile]:
        assert self._table is not None
        from pyiceberg.table import FileScanTask

        key, there, spec = self.keys[0], self._table.schema(), self._table.spec().spec_id

        def found(file: DataFile) -> KeptFile[FileScanTask]:
            file.spec_id = spec  # as one that was read from a snapshot has it
            return next(kept_files(there, [FileScanTask(file)], key))

        return Uncommitted(kept_files(there, self._tasks(), key), found)

    def _merge_files(
        self,
        change: Uncommitted[FileScanTask, DataFile],
        found: Effects,
        *,
        is_converted: bool = False,
    ) -> Transaction:
        """Merge these effects into files that no commit names; a commit that was begun, with the columns of now."""
        assert self._table is not None
        schema = as_kept(found.rows.schema)
        begun = self._begin(schema)
        files = TableFiles.of(self._table, begun)
        if found.empties:
            change.empty(files)
        merge = Merge.of(
            change.kept,
            replace(found, rows=found.rows.cast(schema), empties=False),
            self.keys,
            self._shown_name,
            ordered_type(self._table.schema(), self.keys[0]),
            is_converted=is_converted,
        )
        change.take(merge, files, self._workers if merge.is_worth_sending else HERE)
        return begun

    def _open(self, schema: pa.Schema) -> Uncommitted[FileScanTask, DataFile] | None:
        kept, then = as_kept(schema), self._columns()
        is_same = {one.name: one.type for one in kept} == {one.name: one.type for one in then}
        return self._files() if is_same else None

    def _merge_part(self, change: Uncommitted[FileScanTask, DataFile], found: Effects) -> bool:
        self._merge_files(change, found)
        return True

    def _commit_part(
        self, change: Uncommitted[FileScanTask, DataFile], position: SlavePosition
    ) -> None:
        begun = self._begin(self._columns())
        self._commit(begun, position, [one.name.file for one in change.gone], change.new)

    def _say(self, position: SlavePosition) -> None:
        assert self._table is not None
        self._commit(self._begin(self._columns()), position, [], [])

    def _begin(self, schema: pa.Schema, *, is_anew: bool = False) -> Transaction:
        """A commit in which the table has these columns; the table is made if need be.

        is_anew: no column is the one of before, whatever it is called.
        """
        from pyiceberg.table import Table

        if self._table is None:
            self._catalog.create_namespace_if_not_exists(self._names[:-1])
            self._table = self._catalog.create_table(
                self._names, iceberg_schema(schema), properties={**_PROPERTIES, _LAST: "{}"}
            )
        table = self._table
        if not table.spec().is_unpartitioned():
            raise SourceError(f"{self.where} is partitioned, which this program does not write")
        properties = {**table.metadata.properties, **_ONE_TRY}  # here, and not in the table
        metadata = table.metadata.model_copy(update={"properties": properties})
        strict = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
        change = strict.transaction()
        then = arrow_schema(table.schema())
        kept = [field for field in then if field in schema and not is_anew]
        gone = [field for field in then if field not in kept]
        new = [field for field in schema if field not in kept]
        if gone or new:
            # A column of another type is another one: so no reader takes a value of the old type for one of the new.
            with change.update_schema(allow_incompatible_changes=True) as update:
                for field in gone:
                    update.delete_column((field.name,))
                for field in new:
                    update.add_column((field.name,), iceberg_type(field.type))
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
        return read_files(table.metadata, table.io, [*table.scan().plan_files()])


@contextmanager
def said_of_iceberg(where: object) -> Iterator[None]:
    """What pyiceberg says, in our errors: `TargetChanged` if another writer was faster, else `SourceError`."""
    try:
        yield
    except PipelineError:
        raise
    except RuntimeError as error:
        if not is_of_hdfs(error):
            raise
        raise SourceError(f"{where}: {told_by_hdfs(error)}") from error
    except OSError as error:
        if error.errno is not None:  # a disk's
            raise
        raise SourceError(told_by_store(where, error)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _LIBRARIES:
            raise
        if type(error).__name__ in ("CommitFailedException", "TableAlreadyExistsError"):
            raise TargetChanged(
                f"{where} was changed by somebody else meanwhile: {error}"
            ) from error
        raise SourceError(told_by_store(where, error)) from error


def _catalog(name: str) -> Catalog:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise BadOption(
            "an Iceberg table needs the library pyiceberg: pip install '.[iceberg]'"
        ) from None
    try:
        found = load_catalog(name)
        if _is_ours_to_reach(found.properties):
            found.close()
            found = load_catalog(name, **{_IO: "binlog_pipeline.tables.iceberg_hdfs.HdfsFileIO"})
        return found
    except ValueError as error:
        raise BadOption(
            f"catalog {name} is not in pyiceberg's configuration (.pyiceberg.yaml, or "
            f"PYICEBERG_CATALOG__{name.upper()}__URI and others): {error}"
        ) from None


def _is_ours_to_reach(properties: Mapping[str, str]) -> bool:
    """Whether files are in HDFS, and nobody has said who reads and writes them there."""
    is_there = properties.get("warehouse", "").startswith(f"{HDFS}://")
    return is_there and _IO not in properties and find_spec("hdfs_native") is not None


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
