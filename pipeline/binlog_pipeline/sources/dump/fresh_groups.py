"""What a feed has given out last, for the batch that ends in it: who reads that need not ask the server once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import SlavePosition
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.groups import Groups, after
from binlog_pipeline.wanted import Wanted

_BYTES_MAX: Final = 512 << 10
"""They go to a worker with its task, of which Spark says from 1000 KiB on that it is large."""


class FreshGroups:
    """All groups behind a position, as long as they are few; none in a copy that another process gets."""

    def __init__(self) -> None:
        self._begin: SlavePosition | None = None
        self._groups: list[Groups] = []
        self._bytes = 0

    def __reduce__(self) -> tuple[type[FreshGroups], tuple[()]]:
        return FreshGroups, ()

    def begin(self, position: SlavePosition) -> None:
        """Forget what there is; what is added next is behind `position`."""
        self._begin, self._groups, self._bytes = position, [], 0

    def add(self, groups: Groups) -> None:
        """Add what comes next. Too much of it, or a large group, and there is none."""
        if self._begin is None:
            return
        self._bytes += sum(map(len, groups.payloads))
        if groups.large is not None or self._bytes > _BYTES_MAX:
            self._begin, self._groups = None, []
            return
        self._groups.append(groups)

    def slice(self, wanted: Wanted) -> FreshSlice | None:
        """What is wanted, if all of its range is here; else None."""
        start, stop = wanted.gtids.start, wanted.gtids.stop
        if start is None or stop is None or start != self._begin:
            return None
        between = Wanted(GtidRange(start, stop))
        found = [between.some(groups) for groups in self._groups]
        position = start
        for groups in found:
            position = after(position, groups)
        if position != stop:
            return None
        return FreshSlice(f"behind '{start}' up to '{stop}'", tuple(map(wanted.some, found)))


@dataclass(frozen=True, slots=True)
class FreshSlice:
    """A slice that has its groups with it."""

    name: str
    groups: tuple[Groups, ...] = field(repr=False)

    def read(self) -> Iterator[Groups]:
        return (groups for groups in self.groups if len(groups))

    def __str__(self) -> str:
        return self.name
