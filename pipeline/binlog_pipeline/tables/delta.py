"""A table kept as a Delta table, by the library deltalake: no JVM, no Spark package.

A batch is one commit of the Delta log (see `committed.py`), MERGE or, behind a TRUNCATE, an overwrite. Before it, where
the table's columns are others now, one commit takes out those that were dropped, and gives the rest the types of now;
and one adds new columns, if the library's statistics would mislead readers.
Both are the library's, in this process. Where the table asks its writers for nothing but files (`delta_files.py`), a
MERGE is done by files (`merging.py`), which this process commits: by workers, if it is worth that; and here, as
overwrites are, if readers would be misled by the library's statistics.
What an object store asks of its clients comes from the environment, as for archives: AWS_ACCESS_KEY_ID and others.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.places import is_remote

from binlog_pipeline.errors import BadOption, PipelineError, SourceError, TargetChanged
from binlog_pipeline.schemas.conversion import require_convertible, unfit
from binlog_pipeline.tables.committed import POSITION, CommittedTable
from binlog_pipeline.tables.delta_files import (
    DeltaFiles,
    NewDataFile,
    asks_for_nothing,
    has_feature,
    is_misread,
    kept_file,
    kept_files,
    now_ms,
    ordered_type,
)
from binlog_pipeline.tables.effects import Effects
from binlog_pipeline.tables.merging import KeptFile, Merge, NotSeen, Uncommitted, rolled
from binlog_pipeline.targets import delta_path
from binlog_pipeline.tasks import HERE, Workers
from binlog_pipeline.telling import tell, told_by_store

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

LOG: Final = "_delta_log"
"""The folder of a table that makes it one."""
_NEWEST: Final = (1, 20, None)
_REMOVES: Final = "__removes"
_PRESENT: Final = "__present_"
_FILE_BYTES: Final = 32 << 20
"""Bytes of a file that the library writes: one task reads it, and a changed row costs it."""
_NEVER: Final = re.compile("append-only|Unsupported table features")
"""In errors of commits that are not refused for another's sake: they would be the next time, too."""
_ASKED_AGAIN_S: Final = (60.0, 3600.0)
"""Executors that did not see a table are asked again after so long at first, and at most."""
_NOT_SEEN: Final[dict[str, tuple[float, float]]] = {}
"""Tables that they did not see: when they are asked again, by the clock of `time.monotonic`, and after how long."""


class DeltaState(CommittedTable):
    """A target: a folder, or the URL of an object store.

    Its files are read and written by the workers, if that is worth it and may be done.

    Raises `BadOption` without deltalake, and for a target of another table.
    """

    format = "Delta"

    def __init__(
        self,
        target: str | PathLike[str],
        table: str,
        keys: Sequence[str],
        begin: SlavePosition,
        workers: Workers = HERE,
    ) -> None:
        self._delta: Final = _library()
        self._workers: Final = workers
        super().__init__(str(delta_path(target)), table, keys, begin)
        self._table = _opened(self.where)
        if self._table is not None:
            self._take_metadata(_published(self._table))

    @property
    def is_new(self) -> bool:
        """Whether there is no table yet."""
        return self._table is None

    @property
    def has_rows(self) -> bool:
        """Whether rows are kept."""
        return self._table is not None and bool(self._table.to_pyarrow_dataset().count_rows())

    def rows(self) -> pa.Table:
        """All rows."""
        assert self._table is not None
        return pa.table(self._table.to_pyarrow_table())

    @staticmethod
    def _require_type(type_: pa.DataType) -> None:
        """All others are written."""

    def _columns(self) -> pa.Schema:
        assert self._table is not None
        return pa.schema(self._table.schema().to_arrow())

    def _commit(self, position: SlavePosition, **more: Any) -> CommitProperties:
        # Without another try: that would put a commit behind one of another writer, whatever that has done.
        made: CommitProperties = self._delta.CommitProperties(
            custom_metadata={**self._metadata(position), **more}, max_commit_retries=0
        )
        return made

    def _take_schema(self, schema: pa.Schema) -> None:
        self._take_kept_columns(schema)
        self._take_new_columns(schema)

    def _take_new_columns(self, schema: pa.Schema) -> None:
        """Add columns, where a MERGE that brings them would be the library's, with statistics that hide rows."""
        assert self._table is not None
        there = self._columns().names
        found = self._delta.Schema.from_arrow(schema).fields
        new = [column for column in found if column.name not in there]
        if new and is_misread(schema) and self._takes(schema):
            self._table.alter.add_columns(new, commit_properties=self._commit(self.position))

    def _take_kept_columns(self, schema: pa.Schema) -> None:
        """Take out columns that are dropped, whose values a new one of the name would have; convert those that changed.

        MERGE keeps the types that are there, so it would write what is cut to them.
        """
        assert self._table is not None
        then = self._columns()
        now = pa.schema(self._delta.Schema.from_arrow(schema).to_arrow())  # as Delta has its types
        kept = [column for column in then if column.name in now.names]
        changed = [column for column in kept if column.type != now.field(column.name).type]
        if len(kept) == len(then) and not changed:
            return
        data = self._table.to_pyarrow_dataset()
        if not data.count_rows():
            self._overwrite(schema.empty_table(), self.position)
            return
        require_convertible(self._shown_name, then, now)
        columns = {column.name: pc.field(column.name) for column in kept}
        for column in changed:
            name, type_ = column.name, now.field(column.name).type
            columns[name] = pc.field(name).cast(type_)
            try:
                for _ in data.scanner(columns={name: columns[name]}).to_batches():
                    pass
            except pa.ArrowException as error:
                where = f"column {name} of {self._shown_name}"
                raise unfit(where, column.type, type_, error) from None
        self._overwrite(data.scanner(columns=columns).to_reader(), self.position)

    def _overwrite(self, rows: pa.Table | pa.RecordBatchReader, position: SlavePosition) -> None:
        version = 0 if self._table is None else self._table.version() + 1
        try:
            if is_misread(rows.schema) and self._takes(rows.schema):
                self._overwrite_files(rows, position)
            else:
                self._delta.write_deltalake(
                    # The table as it was read: by its name a commit of another would be overwritten.
                    self.where if self._table is None else self._table,
                    rows,
                    mode="error" if self._table is None else "overwrite",
                    schema_mode=None if self._table is None else "overwrite",
                    target_file_size=self._file_size(),
                    commit_properties=self._commit(position),
                )
        except self._delta.exceptions.DeltaError as error:
            if self._table is None and _opened(self.where) is not None:
                raise TargetChanged(f"{self.where} was made by somebody else meanwhile") from error
            raise
        # Not what is there by now, which may be another writer's.
        self._table = self._delta.DeltaTable(self.where, version=version)

    def _takes(self, schema: pa.Schema) -> bool:
        """Whether a commit of files with these columns may be made."""
        if self._table is None:
            return _takes_files()
        is_free = _takes_files() and asks_for_nothing(self._table)
        return is_free and has_feature(self._table, schema)

    def _overwrite_files(
        self, rows: pa.Table | pa.RecordBatchReader, position: SlavePosition
    ) -> None:
        schema = self._delta.Schema.from_arrow(rows.schema)
        if not is_remote(self.where):
            Path(self.where).mkdir(parents=True, exist_ok=True)
        files = DeltaFiles.of(self._table, self.where, pa.schema(schema.to_arrow()))
        is_table = isinstance(rows, pa.Table)
        parts = [rows] if is_table else (pa.Table.from_batches([batch]) for batch in rows)
        new = _added(files.write(rolled(parts, files.size)))
        said = self._commit(position, isBlindAppend=False)
        if self._table is None:
            from deltalake.transaction import create_table_with_add_actions

            create_table_with_add_actions(self.where, schema, new, commit_properties=said)
        else:
            self._table.create_write_transaction(new, "overwrite", schema, commit_properties=said)

    def _file_size(self) -> int | None:
        """Bytes of a file that the library writes; None if the table says it."""
        said = {} if self._table is None else self._table.metadata().configuration
        return None if "delta.targetFileSize" in said else _FILE_BYTES

    def _say(self, position: SlavePosition) -> None:
        self._commit_files([], [], position)

    def _merge(self, found: Effects, position: SlavePosition) -> None:
        is_needed = is_misread(found.rows.schema)
        if is_needed or self._asks_workers:
            change = self._open(found.rows.schema)
            if change is not None and self._merge_files(change, found, is_needed=is_needed):
                self._commit_part(change, position)
                return
        self._merge_here(found, position)

    @property
    def _asks_workers(self) -> bool:
        return self._workers is not HERE and _is_asked(self.where)

    def _open(self, schema: pa.Schema) -> Uncommitted[str, NewDataFile] | None:
        assert self._table is not None
        if not self._takes(schema):
            return None
        key = self.keys[0]
        kept = kept_files(self._table, key, is_misread=is_misread(schema))
        if kept is None or _types(self._kept_as(schema)) != _types(self._columns()):
            return None
        return Uncommitted(kept, lambda file: kept_file(file, key))

    def _kept_as(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema(self._delta.Schema.from_arrow(schema).to_arrow())

    def _merge_part(self, change: Uncommitted[str, NewDataFile], found: Effects) -> bool:
        return self._merge_files(change, found, is_needed=True)

    def _merge_files(
        self, change: Uncommitted[str, NewDataFile], found: Effects, *, is_needed: bool
    ) -> bool:
        """By the workers; or here, if that is needed though it is not worth sending. Whether that was done."""
        assert self._table is not None
        files = DeltaFiles.of(self._table, self.where, self._columns())
        if found.empties:
            change.empty(files)
        schema = self._kept_as(found.rows.schema)
        found = replace(found, rows=found.rows.cast(schema), empties=False)
        key_type = ordered_type(schema, self.keys[0])
        merge = Merge.of(change.kept, found, self.keys, self._shown_name, key_type)
        is_sent = self._asks_workers and merge.is_worth_sending
        if not is_sent and not is_needed:
            return False
        try:
            change.take(merge, files, self._workers if is_sent else HERE)
        except NotSeen as error:
            if not is_sent:  # the log of this version is gone behind a checkpoint
                return False
            if _note_unseen(self.where):
                tell(f"{error}: the files of {self._shown_name} are read and written by the driver")
            return self._merge_files(change, found, is_needed=is_needed)
        except PipelineError as error:
            if self._delta.DeltaTable(self.where).version() != self._table.version():
                # What they read may have been put into other files.
                raise TargetChanged(
                    f"{self.where} was changed by somebody else meanwhile"
                ) from error
            raise
        if is_sent:
            _NOT_SEEN.pop(self.where, None)
        return True

    def _commit_part(self, change: Uncommitted[str, NewDataFile], position: SlavePosition) -> None:
        self._commit_files(change.gone, change.new, position)

    def _commit_files(
        self, gone: Sequence[KeptFile[str]], new: Sequence[NewDataFile], position: SlavePosition
    ) -> None:
        """The files that go are of the version behind which this is: behind another one it is refused."""
        assert self._table is not None
        now, version = now_ms(), self._table.version()
        actions: list[Any] = _added(new)
        if gone:
            from deltalake.transaction import RemoveAction

            actions += [RemoveAction(one.name, True, now, one.size, {}) for one in gone]
        self._table.create_write_transaction(
            actions,
            "append",
            self._table.schema(),
            commit_properties=self._commit(position, isBlindAppend=False),
        )
        # The library does not. What is there by now may be another writer's.
        self._table.load_as_version(version + 1)

    def _merge_here(self, found: Effects, position: SlavePosition) -> None:
        """By the library."""
        assert self._table is not None
        version, there = self._table.version(), self._columns().names
        names = found.rows.column_names
        source = found.rows.append_column(_REMOVES, pa.array(found.removes))
        inserted = {_quoted(name): f"s.{_quoted(name)}" for name in names}
        updated = dict(inserted)
        if found.present is not None:
            for number, name in enumerate(names):
                flag = f"{_PRESENT}{number}"
                source = source.append_column(flag, pa.array(found.present[:, number]))
                if name not in self.keys and name in there:  # else there is nothing to keep
                    column = _quoted(name)
                    updated[column] = f"CASE WHEN s.{flag} THEN s.{column} ELSE t.{column} END"
        match = " AND ".join(  # the brackets are needed: AND binds more there
            f"(s.{_quoted(k)} IS NOT DISTINCT FROM t.{_quoted(k)})" for k in self.keys
        )
        (
            self._table.merge(
                source,
                predicate=match,
                source_alias="s",
                target_alias="t",
                merge_schema=True,
                commit_properties=self._commit(position),
            )
            .when_matched_delete(predicate=f"s.{_REMOVES}")
            .when_matched_update(updates=updated, predicate=f"NOT s.{_REMOVES}")
            .when_not_matched_insert(updates=inserted, predicate=f"NOT s.{_REMOVES}")
            .execute()
        )
        if (
            self._table.version() == version
        ):  # no row is another one, and then the library commits nothing
            self._say(position)


def _is_asked(where: str) -> bool:
    """Whether executors may see a table: a store that fails once does not fail for ever."""
    return where not in _NOT_SEEN or time.monotonic() >= _NOT_SEEN[where][0]


def _note_unseen(where: str) -> bool:
    """Note that they did not see it. Whether that is new."""
    first_s, most_s = _ASKED_AGAIN_S
    _, last_s = _NOT_SEEN.get(where, (0.0, 0.0))
    pause_s = min(2 * last_s, most_s) if last_s else first_s
    _NOT_SEEN[where] = time.monotonic() + pause_s, pause_s
    return not last_s


def _added(new: Sequence[NewDataFile]) -> list[Any]:
    from deltalake.transaction import AddAction

    return [AddAction(one.path, one.size, {}, one.modified_ms, True, one.statistics) for one in new]


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {column.name: column.type for column in schema}


@contextmanager
def said_of_delta(where: object) -> Iterator[None]:
    """What deltalake says, in our errors: `TargetChanged` if another writer was faster, else `SourceError`."""
    errors = _library().exceptions
    try:
        yield
    except errors.CommitFailedError as error:
        if _NEVER.search(str(error)):
            raise SourceError(f"{where}: {error}") from error
        raise TargetChanged(f"{where} was changed by somebody else meanwhile: {error}") from error
    except errors.DeltaError as error:
        raise SourceError(told_by_store(where, error)) from error
    except OSError as error:
        if isinstance(where, Path):  # a disk's
            raise
        raise SourceError(told_by_store(where, error)) from error


def delta_position(target: str | PathLike[str]) -> SlavePosition | None:
    """The GTID position of a table; None if none is there. Raises `SourceError` for one of others, `BadOption`."""
    place = str(delta_path(target))
    with said_of_delta(place):
        table = _opened(place)
        return None if table is None else SlavePosition.parse(_published(table)[POSITION])


def _opened(where: str) -> DeltaTable | None:
    """A table as it is now; None if none is there.

    The library's `is_deltatable` holds the interpreter's lock while a store says nothing, so no signal would be heard.
    """
    library = _library()
    try:
        table: DeltaTable = library.DeltaTable(where)
    except library.exceptions.TableNotFoundError:
        return None
    return table


def _published(table: DeltaTable) -> Mapping[str, Any]:
    """What our last commit that is in the table says of it. Raises `SourceError` for a table of others.

    RESTORE takes the table back to a version: the table has no commit that came between.
    """
    for newest in _NEWEST:  # most often it is the last one, and the others may be thousands
        last = table.version()
        for commit in table.history(newest):
            if commit["version"] > last:
                continue
            if POSITION in commit:
                return commit
            if commit["operation"] == "RESTORE":
                last = _restored(table, commit)
    raise SourceError(f"{table.table_uri} is a Delta table that this program has not written")


def _restored(table: DeltaTable, commit: Mapping[str, Any]) -> int:
    """The version that a RESTORE has led back to. Raises `SourceError` if that is not told."""
    version = commit.get("operationParameters", {}).get("version")
    if version is None:
        raise SourceError(
            f"{table.table_uri} was restored to a time (version {commit['version']}), which does not tell what it has "
            "of the log: restore it to a version by its number"
        )
    return int(version)


def read_delta(target: str | PathLike[str]) -> pa.Table:
    """The table as it is now."""
    import deltalake

    return pa.table(deltalake.DeltaTable(str(delta_path(target))).to_pyarrow_table())


def _library() -> Any:
    try:
        import deltalake
    except ImportError:
        raise BadOption(
            "a Delta table needs the library deltalake: pip install '.[delta]'"
        ) from None
    return deltalake


def _takes_files() -> bool:
    """Whether the library commits what others have written in the place of what was there: older ones do not."""
    try:
        from deltalake.transaction import RemoveAction  # noqa: F401
    except ImportError:
        return False
    return True


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
