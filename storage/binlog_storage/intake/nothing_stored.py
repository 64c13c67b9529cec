"""An engine for a dry run: an intake runs over it as over the store, reads all of its source, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.engine import EngineReader, Position

_CACHE_BYTES = 1 << 20


class NothingStored:
    """Has what an intake asks of a `BinlogEngine`.

    Args:
        there: the store as it is; None for one that would be made.
    """

    cache_bytes = _CACHE_BYTES

    def __init__(self, there: EngineReader | None) -> None:
        self._there = there
        self._state = BinlogState() if there is None else there.binlog_state()

    @property
    def position(self) -> SlavePosition:
        """Where the store would be."""
        return self._state.position()

    def binlog_state(self) -> BinlogState:
        return self._state.copy()

    @property
    def durable_end(self) -> Position:
        return Position(0, 0) if self._there is None else self._there.durable_end

    def files(self) -> list[tuple[int, int]]:
        return [] if self._there is None else list(self._there.files())

    def groups_of_file(self, file_no: int, begin: int) -> Iterator[Iterator[bytes]]:
        assert self._there is not None
        return self._there.groups_of_file(file_no, begin)

    def reset(self, state: BinlogState, given_up: Callable[[], bool] = lambda: False) -> None:
        self._state = state.copy()

    def flush(self, domains: Iterable[int], given_up: Callable[[], bool] = lambda: False) -> None:
        """Domains that are forgotten are not in the position that is told."""
        gone = set(domains)
        kept = (gtid for gtid in self._state.entries() if gtid.domain_id not in gone)
        self._state = BinlogState(kept)

    def wait_for_room(self, seconds: float) -> bool:
        return True

    def append_run(self, run: GroupRun, index: int) -> int:
        self._state.update(run.last)
        return len(run)

    def append(self, payload: bytes, gtid: Gtid | None) -> None:
        if gtid is not None:
            self._state.update(gtid)

    def begin(self, *, bulk: bool = False) -> _Writer:
        return _Writer(self)

    def sync(self) -> None:
        """There is nothing to sync."""


class _Writer:
    """A group that is not stored."""

    def __init__(self, engine: NothingStored) -> None:
        self._engine = engine

    def spill(self, piece: bytes | memoryview) -> None:
        """It is left out."""

    def settle(self, given_up: Callable[[], bool]) -> None:
        """There is nothing to settle."""

    def commit(self, gtid_event: bytes, gtid: Gtid) -> None:
        self._engine.append(gtid_event, gtid)

    def rollback(self) -> None:
        """There is nothing to roll back."""
