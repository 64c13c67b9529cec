"""Sinks for changes of a table, by name: parquet and delta hold the table, changes holds the changes themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.errors import BadOption
from binlog_pipeline.tables.buckets import open_parquet_state
from binlog_pipeline.tables.delta import DeltaState
from binlog_pipeline.tables.landing import LandedDoubts, open_landing

SINKS: Final = ("parquet", "delta", "changes")
_PUBLISH_S: Final = 30.0


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
        """Changes, earlier ones in earlier calls; `position` is behind them, None in the middle of a group."""

    def flush(self, position: SlavePosition) -> None:
        """Publish the changes that were added: they are all up to the position."""


@contextmanager
def open_sink(
    name: str,
    target: Path,
    table: str,
    keys: Sequence[str],
    begin: SlavePosition,
    *,
    pause_s: float = _PUBLISH_S,
    copy: Callable[[], pa.Table] | None = None,
    doubts: LandedDoubts | None = None,
) -> Iterator[TableSink]:
    """A sink by its name; see `open_parquet_state`.

    Args:
        pause_s: of parquet.
        copy: gives the rows of the table as they were at `begin`; asked if the target is new.
        doubts: of the sink `changes`, if a run opens it more than once.
    """
    match name:
        case "parquet":
            with open_parquet_state(target, table, keys, begin, pause_s=pause_s) as state:
                if copy is not None and state.is_new:
                    state.load(copy(), begin)
                yield state
        case "delta":
            delta = DeltaState(target, table, keys, begin)
            if copy is not None and delta.is_new:
                delta.load(copy(), begin)
            yield delta
        case "changes":
            with open_landing(target, doubts) as landing:
                yield landing
        case _:
            raise BadOption(f"there is no sink {name}: it is one of {', '.join(SINKS)}")
