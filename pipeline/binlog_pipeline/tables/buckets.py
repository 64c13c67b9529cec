"""A table kept as Parquet files: rows are spread over buckets by their keys; what has changed is written anew.

    TARGET/data/BUCKET-NUMBER.parquet    rows of a bucket, as the manifest NUMBER and perhaps later ones have them
    TARGET/_manifests/                   which files count, and up to which GTID position: `manifest.py`

A run folds changes in as many steps as it likes, and publishes once: files first, then the manifest. Whatever stops it
in between, the last manifest is as it was, and what comes again is folded again. Files of the last few manifests stay,
for those who are reading them, and for looking back.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.durable_files import sync_folder, synced_file
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption, PipelineError, SourceError
from binlog_pipeline.groups import Integers
from binlog_pipeline.schemas.conversion import require_convertible, with_columns
from binlog_pipeline.tables.effects import Effects, effects
from binlog_pipeline.tables.facts import Facts, TableOfFacts, kept_by_others, refusal
from binlog_pipeline.tables.fold import fold
from binlog_pipeline.tables.lock import sole_writer
from binlog_pipeline.tables.manifest import (
    FOLDER,
    Bucket,
    StateManifest,
    encode_schema,
    manifest_numbers,
    remove_manifest,
)
from binlog_pipeline.tables.rewriting import Rewriting, new_keys
from binlog_pipeline.tables.watermark import behind
from binlog_pipeline.wanted import unreached

BUCKETS: Final = 16
KEPT_MANIFESTS: Final = 10
DATA: Final = "data"
_ROW_GROUP: Final = 1 << 17
_LONG: Final = 64 << 10


class ParquetState(TableOfFacts):
    """A target that is open for writing; one process at a time. Made by `open_parquet_state`.

    Each publishing writes buckets anew, so it is not done for every little thing.
    """

    takes_parts: Final = True

    def __init__(self, target: Path, manifest: StateManifest, pause_s: float) -> None:
        self._target: Final = target
        self._manifest = manifest
        self._schema = manifest.arrow_schema
        self._is_changed = False
        facts = Facts.of(manifest.facts) if manifest.facts else Facts()
        self._facts = replace(facts, is_whole=manifest.complete or facts.is_whole)
        self._published_facts = self._facts
        self._unknown = ""
        self._pause_s: Final = pause_s
        self._published_at = time.monotonic()

    @property
    def position(self) -> SlavePosition:
        """The GTID position of the manifest that was published last."""
        return self._manifest.slave_position

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever published."""
        return not self._manifest.number

    @property
    def keys(self) -> Sequence[str]:
        """The columns that tell the rows apart."""
        return self._manifest.keys

    @property
    def columns(self) -> pa.Schema:
        """The columns that are kept; none as long as no row was there."""
        return self._schema

    @property
    def has_rows(self) -> bool:
        """Whether rows are kept, or may have to be."""
        return bool(self._manifest.rows or self._unknown)

    @property
    def logged_as(self) -> str:
        """The name of the table in the log, at the position."""
        return self._manifest.logged_as or self._manifest.table

    def name(self, logged_as: str) -> None:
        """What follows comes under that name."""
        self._manifest.logged_as = "" if logged_as == self._manifest.table else logged_as

    def begin_anew(self, keys: Sequence[str]) -> None:
        """What follows begins with the statement that makes the table."""
        self._drop_rows()
        self._schema = pa.schema([])
        self._manifest.schema = encode_schema(self._schema)
        self._manifest.keys = list(keys)
        self._unknown = ""

    def find_by(self, keys: Sequence[str]) -> None:
        """Rows are told apart by these columns from here on."""
        if list(keys) == self._manifest.keys:
            return
        rows = self._rows()
        missing = [key for key in keys if key not in rows.column_names]
        if len(rows) and missing:
            raise SourceError(
                f"rows of {self._manifest.table} are kept without column {missing[0]}, which is in its key now: keep "
                "the table in a new target"
            )
        self._manifest.keys = list(keys)
        if len(rows):
            self._spread(rows)

    def rewrite(self, made: Rewriting, position: SlavePosition, facts: Facts) -> None:
        """Take the rows behind an ALTER TABLE. Raises `NotUnderstood`, and then all is as it was.

        Whole in memory if values change that rows may be told apart by.
        """
        keys = new_keys(made, self._manifest.keys, has_rows=self.has_rows)
        if made.converts_values or made.key:
            rows = made.rows(self._rows())
            self._take_columns(rows.schema, keys)
            self._spread(rows)
        else:
            empty = made.rows(self._schema.empty_table())
            found = [
                None if bucket is None else made.rows(self._read(bucket))
                for bucket in self._manifest.buckets
            ]
            self._take_columns(empty.schema, keys)
            for number, rows in enumerate(found):
                if rows is not None:
                    self._write(number, rows)
        self._facts = facts
        self._is_changed = True

    def doubt_all(self, text: str, facts: Facts, *, goes_on: bool) -> None:
        """What the rows are is not known behind a statement; `goes_on` takes them as they are."""
        self._facts = replace(facts, doubt=facts.doubt or text) if goes_on else facts
        if not goes_on and not self._unknown:
            self._unknown = text
            self._drop_rows()
        self._is_changed = True

    def forget_columns(self, facts: Facts) -> None:
        """No row is there, and what its columns would be is not known."""
        self._schema = pa.schema([])
        self._manifest.schema = encode_schema(self._schema)
        self._facts = facts
        self._is_changed = True

    def _take_columns(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._schema = schema
        self._manifest.schema = encode_schema(schema)
        self._manifest.keys = list(keys)

    def _rows(self) -> pa.Table:
        tables = [self._read(bucket) for bucket in self._manifest.buckets if bucket is not None]
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    def _drop_rows(self) -> None:
        self._manifest.buckets = [None] * len(self._manifest.buckets)
        self._is_changed = True

    def _spread(self, rows: pa.Table) -> None:
        """Write rows into the buckets of their keys."""
        numbers = _bucket_of(rows, self._manifest.keys, len(self._manifest.buckets))
        for number in range(len(self._manifest.buckets)):
            self._write(number, rows.take(pa.array(np.flatnonzero(numbers == number))))
        self._is_changed = True

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        """Fold changes; see `TableSink`. What was published already is left out. Raises `PipelineError`, OSError."""
        self._fold(behind(changes, self.position))
        if position is None or self._unknown:
            return  # a TRUNCATE that comes may make it known again
        if time.monotonic() - self._published_at >= self._pause_s:
            self.flush(position)

    def _fold(self, changes: pa.Table) -> None:
        if not len(changes):
            return
        try:
            found = effects(
                changes,
                self._manifest.keys,
                self._facts,
                self._schema.names,
                is_empty=self.is_complete and not self._unknown and not self._manifest.rows,
            )
        except BadOption:
            if self._unknown:  # what cannot be folded behind it is told by what came first
                raise self._refusal() from None
            raise
        self._facts = found.facts
        self._unknown = found.unknown if found.empties else self._unknown or found.unknown
        if found.empties or self._unknown:  # no row from before it can be published
            self._drop_rows()
        if not self._schema.names and not len(found):
            self._is_changed = True
            return
        self._take_schema(found.rows.schema)
        numbers = _bucket_of(found.rows, self._manifest.keys, len(self._manifest.buckets))
        for number in range(len(self._manifest.buckets)):
            which = np.flatnonzero(numbers == number)
            if len(which) or found.empties:
                self._fold_bucket(number, found.some(which))
        self._is_changed = True

    def _refusal(self) -> Exception:
        return refusal(self._manifest.table, self._unknown, self.position, self._published_facts)

    def load(self, rows: pa.Table, position: SlavePosition) -> None:
        """Publish a copy of the table as it was at that position. Only before anything else."""
        if self._is_changed or self._manifest.number:
            raise BadOption(f"{self._target} has rows already; load the copy into a new target")
        self._manifest.schema = encode_schema(rows.schema)
        self._schema = rows.schema
        self._spread(rows)
        self._facts = replace(self._facts, is_whole=True)
        self.flush(position)

    def take_over(
        self, rows: pa.Table, keys: Sequence[str], position: SlavePosition, facts: Facts
    ) -> None:
        """Publish these rows in the place of all that is there, at once: the table as it was at that position."""
        self._drop_rows()
        self._unknown = ""
        self._take_columns(rows.schema, keys)
        self._spread(rows)
        self._facts = facts
        self.flush(position)

    def flush(self, position: SlavePosition) -> None:
        """Publish all that was folded: everything up to the position.

        Raises as `add`, `NonRowChange` behind a statement that makes the rows unknown.
        """
        if self._unknown:
            raise self._refusal()
        if not self._is_changed and position == self.position and self._manifest.number:
            return
        (self._target / DATA).mkdir(exist_ok=True)
        sync_folder(self._target / DATA)
        self._manifest.position = str(position)
        self._manifest.complete = self.is_complete
        self._manifest.facts = self._facts.content()
        self._manifest.publish(self._target)
        self._published_facts = self._facts
        self._is_changed = False
        self._clean()
        self._published_at = time.monotonic()

    def _take_schema(self, schema: pa.Schema) -> None:
        """Columns have come or gone: all buckets get them."""
        if schema == self._schema:
            return
        if self._manifest.rows:
            for key in self._manifest.keys:
                if schema.field(key).type != self._schema.field(key).type:
                    raise SourceError(
                        f"key column {key} of {self._manifest.table} was {self._schema.field(key).type}, and is "
                        f"{schema.field(key).type} now: keep the table in a new target"
                    )
        if self._manifest.rows:
            require_convertible(self._manifest.table, self._schema, schema)
        self._schema = schema
        for number, bucket in enumerate(self._manifest.buckets):
            if bucket is not None:
                self._write(number, self._read(bucket))
        self._manifest.schema = encode_schema(schema)

    def _fold_bucket(self, number: int, found: Effects) -> None:
        bucket = self._manifest.buckets[number]
        base = self._schema.empty_table() if bucket is None else self._read(bucket)
        if bucket is not None or len(found):
            self._write(number, fold(base, found, self._manifest.keys))

    def _read(self, bucket: Bucket) -> pa.Table:
        return read_bucket(self._target, bucket, self._schema)

    def _write(self, number: int, rows: pa.Table) -> None:
        if not len(rows):
            self._manifest.buckets[number] = None
            return
        folder = self._target / DATA
        folder.mkdir(exist_ok=True)
        # A name is used once: a file that a manifest has is never written again. A process id would not do: in a
        # container each run has the same.
        name = f"{number:03}-{self._manifest.number + 1:012}-{secrets.token_hex(8)}.parquet"
        with synced_file(folder / name) as file:
            pq.write_table(
                rows,
                file,
                compression="zstd",
                row_group_size=_ROW_GROUP,
                write_statistics=_bounded(rows),
            )
        self._manifest.buckets[number] = Bucket(f"{DATA}/{name}", len(rows))

    def discard(self) -> None:
        """Remove what was written and is not published. Nothing more can be done with it then."""
        if (self._target / DATA).is_dir():
            self._clean()
        for folder in (DATA, FOLDER):
            with contextlib.suppress(OSError):  # there are files in it
                (self._target / folder).rmdir()

    def _clean(self) -> None:
        """Without files that no kept manifest has, and that only a run that was killed can have left."""
        numbers = manifest_numbers(self._target)
        for number in numbers[:-KEPT_MANIFESTS]:
            remove_manifest(self._target, number)
        kept = {
            file
            for number in numbers[-KEPT_MANIFESTS:]
            for file in StateManifest.read(self._target, number).files
        }
        for path in (self._target / DATA).iterdir():
            if f"{DATA}/{path.name}" not in kept:
                path.unlink()


@contextlib.contextmanager
def open_parquet_state(
    target: Path,
    table: str,
    keys: Sequence[str],
    begin: SlavePosition,
    *,
    pause_s: float = 0.0,
    patience_s: float = 0.0,
) -> Iterator[ParquetState]:
    """The target of a table. One that is there already goes on where it is.

    Args:
        keys: none for those that the target has.
        begin: the GTID position behind which changes come.
        pause_s: how long changes are gathered before they are published; 0 publishes with each `add`.
        patience_s: how long another who writes is waited for.

    Raises `PipelineError` for a target of something else, or one that is open elsewhere; OSError.
    """
    target = local_path(target)
    with sole_writer(target, f"{target} is being written by another process", patience_s):
        manifest = StateManifest.newest(target)
        if manifest is None:
            empty = encode_schema(pa.schema([]))
            manifest = StateManifest(
                table, list(keys), str(begin), str(begin), False, empty, [None] * BUCKETS
            )
        else:
            _require_same(target, manifest, table, keys)
        state = ParquetState(target, manifest, pause_s)
        try:
            yield state
        except BaseException:
            with contextlib.suppress(PipelineError, OSError):
                state.discard()
            raise


def state_position(target: Path, table: str) -> SlavePosition | None:
    """The position of a target, which is not opened; None without one. Raises as `open_parquet_state`."""
    target = local_path(target)
    manifest = StateManifest.newest(target)
    if manifest is None:
        return None
    _require_same(target, manifest, table, ())
    return manifest.slave_position


def _require_same(target: Path, manifest: StateManifest, table: str, keys: Sequence[str]) -> None:
    if manifest.table != table or (keys and manifest.keys != list(keys)):
        raise kept_by_others(target, manifest.table, manifest.keys, table, keys)


def read_state(target: Path, at: SlavePosition | None = None) -> tuple[pa.Table, StateManifest]:
    """The table as it was published last, or at that position or before. Raises `SourceError`."""
    target = local_path(target)
    manifest = manifest_at(target, at)
    schema = manifest.arrow_schema
    tables = [read_bucket(target, b, schema) for b in manifest.buckets if b is not None]
    return pa.concat_tables(tables) if tables else schema.empty_table(), manifest


def manifest_at(target: Path, at: SlavePosition | None = None) -> StateManifest:
    """The newest that is not beyond the position. Raises `SourceError`."""
    target = local_path(target)
    for number in reversed(manifest_numbers(target)):
        manifest = StateManifest.read(target, number)
        if at is None or not unreached(manifest.slave_position, at):
            return manifest
    where = "" if at is None else f" at '{at}' or before"
    raise SourceError(f"{target} has no state of a table{where}")


def _bounded(rows: pa.Table) -> bool | list[str]:
    """The columns of which a file has the least and the greatest value: all, or those without long values.

    Parquet keeps none above 4 KiB, and while a file is written five times the longest is in memory for them.
    """
    long = [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if any(one(column.type) for one in (pa.types.is_binary, pa.types.is_string))
        and (pc.max(pc.binary_length(column)).as_py() or 0) > _LONG
    ]
    return [name for name in rows.column_names if name not in long] if long else True


def read_bucket(target: Path, bucket: Bucket, schema: pa.Schema) -> pa.Table:
    """The rows of a bucket with the columns of `schema`, whatever they were written with.

    Raises `SourceError`, for values that the type of their column cannot hold, too.
    """
    path = target / bucket.file
    try:
        rows = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path} is in the manifest, but cannot be read: {error}") from None
    if len(rows) != bucket.rows:
        raise SourceError(f"{path} has {len(rows)} rows, but the manifest says {bucket.rows}")
    return with_columns(rows, schema, lambda name: f"{path}: column {name}")


def _bucket_of(rows: pa.Table, keys: Sequence[str], count: int) -> Integers:
    """The bucket of each row, by the text of its key: the same in each run."""
    hashes = np.zeros(len(rows), np.uint64)
    for key in keys:
        column = rows.column(key)
        if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
            column = column.cast(pa.string())
        values = column.to_numpy(zero_copy_only=False).astype(object)
        hashes = hashes * np.uint64(31) + pd.util.hash_array(values, categorize=False)
    return (hashes % np.uint64(count)).astype(np.int64)
