"""The place of a time in an open store: in front of the first group, in the order of the log, that is late enough.

Clocks go back, so times need not ascend, and no search by halves finds that group. But a file of which all groups are
earlier can be passed over: the latest time of each closed file is remembered, two numbers a file. They are found by
reading the file once; a new process finds them again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import TYPE_OFFSET, event_time
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.engine import EngineReader, PlacedBatch, Position
from binlog_storage.errors import CorruptBinlog, WaitGivenUp
from binlog_storage.ibb.records import parsed


class TimePlace(NamedTuple):
    """The place of a time.

    before: the binlog state in front of it.
    reached: whether there is a group that is late enough; if not, `before` is the durable end.
    is_certain: False if that is the first group that is left: earlier ones, late enough too, may have been purged.
    """

    before: BinlogState
    reached: bool
    is_certain: bool = True


class FileTimes:
    """Of one server. For any thread; one looks at a time."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._age = -1
        self._latest: dict[int, int] = {}

    def find(
        self, engine: EngineReader, time: float, given_up: Callable[[], bool] = lambda: False
    ) -> TimePlace:
        """The place of `time`, in seconds since 1970. Waits for the disk; files stay meanwhile.

        Raises `StorageError`: `WaitGivenUp` if `given_up` returns True; `BinlogBegunAnew` during RESET MASTER.
        """
        hold = engine.hold("a search by time", wait=False)
        try:
            with self._lock:
                return self._find(engine, time, given_up)
        finally:
            hold.release()

    def _find(self, engine: EngineReader, time: float, given_up: Callable[[], bool]) -> TimePlace:
        start, end = engine.first_start(), engine.durable_end
        files = [file.number for file in engine.files()]
        if self._age != engine.age:
            self._age = engine.age
            self._latest.clear()
        self._latest = {number: self._latest[number] for number in files if number in self._latest}
        place = start.position
        while place < end:
            number = place.file_no
            latest = self._latest.get(number)
            if latest is not None and latest < time:
                behind = min((other for other in files if other > number), default=end.file_no)
                border = Position(behind, engine.file_start)
                place = engine.locate(border).begin if border < end else end
                continue
            latest = 0
            while place.file_no == number and place < end:
                if given_up():
                    raise WaitGivenUp("the search by time was given up")
                batch = engine.read_placed(place)
                found = _groups_before(batch, time)
                if found is not None:
                    before = engine.state_at(place)
                    for gtid in found:
                        before.update(gtid)
                    is_certain = not len(start.state) or before != start.state
                    return TimePlace(before, True, is_certain)
                latest = max([latest, *map(group_time, _heads(batch))])
                if batch.end == place:
                    raise CorruptBinlog(*place, "there are no groups in front of the durable end")
                place = batch.end
            if place.file_no > number:
                self._latest[number] = latest
        return TimePlace(engine.state_at(end), False)


def group_time(group: bytes) -> int:
    """The time of a group by its first bytes, in seconds since 1970; 0 of what is no group."""
    return event_time(group) if _is_group(group) else 0


def _is_group(head: bytes) -> bool:
    return len(head) > TYPE_OFFSET and head[TYPE_OFFSET] == EventType.GTID


def _groups_before(batch: PlacedBatch, time: float) -> list[Gtid] | None:
    """The groups of a batch in front of the first one that is late enough; None if there is none such."""
    heads = _heads(batch)
    for index, head in enumerate(heads):
        if _is_group(head) and group_time(head) >= time:
            earlier = filter(_is_group, heads[:index])
            found = [parsed(group_gtid, one, batch.start) for one in earlier]
            return [gtid for gtid in found if gtid is not None]
    return None


def _heads(batch: PlacedBatch) -> list[bytes]:
    if batch.large is not None:
        return [batch.large.head]
    return [group.payload for group in batch.groups]
