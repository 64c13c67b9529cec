"""Sinks for changes of a table, by name: parquet, delta, iceberg hold the table, changes the changes themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.errors import BadOption
from binlog_pipeline.tables.buckets import DATA, open_parquet_state, state_position
from binlog_pipeline.tables.committed import CommittedTable
from binlog_pipeline.tables.delta import LOG, DeltaState, delta_position, said_of_delta
from binlog_pipeline.tables.facts import Facts
from binlog_pipeline.tables.iceberg import IcebergState, iceberg_position, said_of_iceberg
from binlog_pipeline.tables.landing import LandedDoubts, landed_parts, landed_position, open_landing
from binlog_pipeline.tables.lock import sole_writer
from binlog_pipeline.tables.manifest import StateManifest, manifest_numbers
from binlog_pipeline.tables.rewriting import Rewriting
from binlog_pipeline.targets import ICEBERG, SINKS, Target, delta_path, folder_path, is_local
from binlog_pipeline.tasks import HERE, Workers

_PUBLISH_S: Final = 30.0
_LEFT: Final = {
    "parquet": re.compile(rf"{DATA}/[0-9]{{3}}-[0-9]{{12}}-[0-9a-f]{{16}}\.parquet"),
    "delta": re.compile(r"part-[^/]*\.parquet"),
}
"""Files that a first run of a sink may have left that was killed."""


class TableSink(Protocol):
    """Open for writing. What is added behind its position counts once `add` or `flush` has published it."""

    @property
    def position(self) -> SlavePosition:
        """All up to here was published. Changes up to here are passed over."""

    @property
    def takes_parts(self) -> bool:
        """Whether a large group may come in parts."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing and nothing is in doubt; of what keeps no table, in what this run has added."""

    @property
    def doubt(self) -> str:
        """The reason for which rows may be wrong or missing; empty for none."""

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        """Changes, earlier ones in earlier calls; `position` is behind them, None in the middle of a group.

        Where it was None there is another call.
        """

    def flush(self, position: SlavePosition) -> None:
        """Publish the changes that were added: they are all up to the position."""


@runtime_checkable
class KeptTable(TableSink, Protocol):
    """A sink that holds the table, so that it can follow it through ALTER TABLE and RENAME TABLE."""

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever published."""

    @property
    def keys(self) -> Sequence[str]:
        """The columns that tell rows apart."""

    @property
    def columns(self) -> pa.Schema:
        """The columns that are kept; none as long as no row was there."""

    @property
    def has_rows(self) -> bool:
        """Whether rows are kept, or may have to be."""

    @property
    def logged_as(self) -> str:
        """The name of the table in the log, at the position."""

    @property
    def facts(self) -> Facts:
        """What statements have told of it."""

    def name(self, logged_as: str) -> None:
        """What follows comes under that name."""

    def load(self, rows: pa.Table, position: SlavePosition) -> None:
        """Publish a copy of the table as it was at that position. Only before anything else."""

    def take_over(
        self, rows: pa.Table, keys: Sequence[str], position: SlavePosition, facts: Facts
    ) -> None:
        """Publish these rows in the place of all that is there, at once: the table as it was at that position."""

    def begin_anew(self, keys: Sequence[str]) -> None:
        """What follows begins with the statement that makes the table."""

    def find_by(self, keys: Sequence[str]) -> None:
        """Rows are told apart by these columns from here on."""

    def rewrite(self, made: Rewriting, position: SlavePosition, facts: Facts) -> None:
        """Take the rows behind an ALTER TABLE, which stands in front of the position. Raises `NotUnderstood`."""

    def doubt_all(self, text: str, facts: Facts, *, goes_on: bool) -> None:
        """What the rows are is not known behind a statement; `goes_on` takes them as they are."""

    def forget_columns(self, facts: Facts) -> None:
        """No row is there, and what its columns would be is not known."""


@contextmanager
def open_sink(
    name: str,
    target: Target,
    table: str,
    keys: Sequence[str],
    begin: SlavePosition,
    *,
    pause_s: float = _PUBLISH_S,
    doubts: LandedDoubts | None = None,
    patience_s: float = 0.0,
    workers: Workers = HERE,
) -> Iterator[TableSink]:
    """A sink by its name; see `open_parquet_state`.

    Where no lock can be held, in an object store or a catalog, a commit behind another's is `TargetChanged`.

    Args:
        pause_s: of parquet.
        doubts: of the sink `changes`, if a run opens it more than once.
        patience_s: of those in a folder, how long another who writes is waited for.
        workers: of delta and iceberg, who reads and writes their files.
    """
    match name:
        case "parquet":
            _require_own(folder := folder_path(target, name), name)
            with open_parquet_state(
                folder,
                table,
                keys,
                begin,
                pause_s=pause_s,
                patience_s=patience_s,
            ) as state:
                yield state
        case "delta":
            place = delta_path(target)
            if is_local(place):
                _require_own(Path(place), name)
            text = f"{place} is being written by another process"
            lock = sole_writer(Path(place), text, patience_s) if is_local(place) else nullcontext()
            with lock, said_of_delta(place):
                yield DeltaState(place, table, keys, begin, workers)
        case "iceberg":
            with (
                said_of_iceberg(target),
                closing(IcebergState(target, table, keys, begin, workers)) as kept,
            ):
                yield kept
        case "changes":
            _require_own(folder := folder_path(target, name), name)
            with open_landing(folder, doubts, table, patience_s) as landing:
                yield landing
        case _:
            raise BadOption(f"there is no sink {name}: it is one of {', '.join(SINKS)}")


def position_of_table(target: Target) -> SlavePosition | None:
    """The GTID position of the table that is kept there; None if none is. Raises `SourceError`, `BadOption`."""
    if str(target).startswith(ICEBERG):
        return iceberg_position(target)
    if not is_local(target):
        return delta_position(target)
    folder = Path(target)
    if (folder / LOG).is_dir():
        return delta_position(folder)
    manifest = StateManifest.newest(folder)
    return None if manifest is None else manifest.slave_position


def published(name: str, target: Target, table: str) -> SlavePosition | None:
    """The position of what `open_sink` would open, and raises as that; None if nothing is there.

    No lock is taken, and nothing made.
    """
    match name:
        case "delta":
            place = delta_path(target)
            if is_local(place):
                _require_own(Path(place), name)
            with said_of_delta(place):
                delta = DeltaState(place, table, (), SlavePosition())
                return None if delta.is_new else delta.position
        case "iceberg":
            with (
                said_of_iceberg(target),
                closing(IcebergState(target, table, (), SlavePosition())) as iceberg,
            ):
                return None if iceberg.is_new else iceberg.position
        case _:
            _require_own(folder := folder_path(target, name), name)
            if name == "changes":
                return landed_position(folder, table)
            return state_position(folder, table)


def _require_own(folder: Path, name: str) -> None:
    """Raises `BadOption` for a folder in which another sink has its files: nobody could read them any more."""
    said = {
        "parquet": bool(manifest_numbers(folder)),
        "delta": (folder / LOG).is_dir(),
        "changes": bool(landed_parts(folder)),
    }
    for other, is_there in said.items():
        if is_there and other != name:
            raise BadOption(f"{folder} is a target of --sink {other}, not of {name}")
    if not said[name]:
        _require_empty(folder, name)


def _require_empty(folder: Path, name: str) -> None:
    """Raises `BadOption` for a new target's folder that has files of others, which would count among its own.

    What begins with a sign that readers of tables leave out may be there, and what a run that was killed has left.
    """
    there = [path.relative_to(folder) for path in folder.glob("*")]
    if name == "parquet":
        there = [one for one in there if one.name != DATA]
        there += [path.relative_to(folder) for path in (folder / DATA).glob("*")]
    left = _LEFT.get(name)
    others = [
        str(one)
        for one in there
        if one.name[0] not in "_."
        and one.name != "lost+found"
        and not (left and left.fullmatch(str(one)))
    ]
    if others:
        raise BadOption(
            f"{folder} has {min(others)}, and is no target yet: give a directory that is empty, or new"
        )


def require_kept_types(name: str, table: str, schema: pa.Schema) -> None:
    """Raises `BadOption` for a column that the tables of a sink have no type for."""
    kinds: dict[str, type[CommittedTable]] = {"delta": DeltaState, "iceberg": IcebergState}
    if name in kinds:
        kinds[name].require_types(table, schema)
