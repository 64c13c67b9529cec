"""Sinks for changes of a table, by name: parquet and delta hold the table, changes holds the changes themselves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.errors import BadOption
from binlog_pipeline.tables.buckets import ParquetState, open_parquet_state
from binlog_pipeline.tables.delta import DeltaState
from binlog_pipeline.tables.landing import LandedDoubts, Landing

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
        """Changes, in the order of the log; `position` is behind them, None in the middle of a group."""

    def flush(self, position: SlavePosition) -> None:
        """Publish the changes that were added: they are all up to the position."""


class _StateSink:
    """The sink of a kept table: its state has the position and the doubts."""

    _state: ParquetState | DeltaState

    @property
    def position(self) -> SlavePosition:
        return self._state.position

    @property
    def is_complete(self) -> bool:
        return self._state.is_complete

    @property
    def doubt(self) -> str:
        return self._state.doubt


class _ParquetSink(_StateSink):
    """Each publishing writes buckets anew, so it is not done for every little thing."""

    takes_parts: Final = True
    _state: ParquetState

    def __init__(self, state: ParquetState, pause_s: float) -> None:
        self._state = state
        self._pause_s = pause_s
        self._published_at = time.monotonic()

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        self._state.fold(changes)
        if position is None or not self._state.is_known:
            return  # a TRUNCATE that comes may make it known again
        if time.monotonic() - self._published_at >= self._pause_s:
            self.flush(position)

    def flush(self, position: SlavePosition) -> None:
        self._state.publish(position)
        self._published_at = time.monotonic()


class _DeltaSink(_StateSink):
    _state: DeltaState
    takes_parts: Final = False

    def __init__(self, state: DeltaState) -> None:
        self._state = state

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        assert position is not None
        self._state.apply(changes, position)

    def flush(self, position: SlavePosition) -> None:
        """A commit was made for each `add`."""


class _LandingSink:
    takes_parts: Final = False

    def __init__(self, landing: Landing, doubts: LandedDoubts) -> None:
        self._landing = landing
        self._doubts = doubts

    @property
    def is_complete(self) -> bool:
        return not self._doubts.text

    @property
    def doubt(self) -> str:
        return self._doubts.text

    @property
    def position(self) -> SlavePosition:
        return self._landing.position

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        assert position is not None
        self._doubts.add(self._landing.add(changes, position))

    def flush(self, position: SlavePosition) -> None:
        """A file was made for each `add`."""


@contextlib.contextmanager
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
        pause_s: how long parquet gathers before it publishes; 0 publishes with each `add`.
        copy: gives the rows of the table as they were at `begin`; asked if the target is new.
        doubts: of the sink `changes`, if a run opens it more than once.
    """
    match name:
        case "parquet":
            with open_parquet_state(target, table, keys, begin) as state:
                if copy is not None and state.is_new:
                    state.load(copy())
                    state.publish(begin)
                yield _ParquetSink(state, pause_s)
        case "delta":
            delta = DeltaState(target, table, keys, begin)
            if copy is not None and delta.is_new:
                delta.load(copy(), begin)
            yield _DeltaSink(delta)
        case "changes":
            with contextlib.closing(Landing(target)) as landing:
                yield _LandingSink(landing, doubts or LandedDoubts())
        case _:
            raise BadOption(f"there is no sink {name}: it is one of {', '.join(SINKS)}")
