"""One history of a store, played on a recording disk: the trace, and what the outside knew at each point of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.publication import read_published
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.model import Found, Model
from tests.storage.crash.player import Player, Step
from tests.storage.crash.recorder import Mark, RecordingDisk

OPTIONS = StoreOptions(
    max_binlog_size=4 * 16384,
    innodb_binlog_state_interval=2 * 16384,
    slave_connections_needed_for_purge=0,
    innodb_log_file_size=256 << 10,
)


# Of one file and a half, each large enough for records of several whole pages.
BULK_OPTIONS = StoreOptions(
    max_binlog_size=16 * 16384,
    innodb_binlog_state_interval=8 * 16384,
    slave_connections_needed_for_purge=0,
    innodb_log_file_size=512 << 10,
)


def open_engine(disk: Disk, options: StoreOptions = OPTIONS) -> IbbEngine:
    """As the server opens it, without threads."""
    return IbbEngine(disk, options, facts=StateStore(disk))


class Expectation(NamedTuple):
    """What a crash at one point may leave.

    least, most: numbers of snapshots.
    purged_below: number of a file of `purged_epoch`; groups that begin before it may be gone.
    """

    least: int = 0
    most: int = 0
    purged_below: int = 0
    purged_epoch: int = 0

    def told(self, what: str, value: object, model: Model) -> Expectation:
        """What may be left from now on; see `Player.note`. "seen": readers may have everything up to a position."""
        snapshots = model.snapshots
        if isinstance(value, Position):
            # All steps that ended there or before; those of earlier epochs have other positions.
            epoch = snapshots[self.most].epoch
            known = [
                number
                for number in range(self.least, self.most + 1)
                if snapshots[number].epoch == epoch and snapshots[number].end <= value
            ]
            return self._replace(least=max([self.least, *known]))
        assert isinstance(value, int)
        match what:
            case "begun":
                return self._replace(most=value)
            case "told":
                return self._replace(least=value)
            case "purge":
                epoch = snapshots[self.least].epoch
                before = self.purged_below if epoch == self.purged_epoch else 0
                return self._replace(purged_below=max(before, value), purged_epoch=epoch)
        raise ValueError(f"unknown mark {what}")

    def fitting(self, found: Found, model: Model) -> int | None:
        """The last snapshot of those allowed that has what was found."""
        for number in range(self.most, self.least - 1, -1):
            purged = self.purged_epoch == model.snapshots[number].epoch
            if model.fits(found, number, purged_below=self.purged_below if purged else 0):
                return number
        return None


@dataclass(frozen=True, slots=True)
class History:
    """What happened, to a store of these options. `expectations[n]` belongs to the first n operations of the trace."""

    name: str
    steps: Sequence[Step]
    disk: RecordingDisk
    model: Model
    expectations: Sequence[Expectation]
    options: StoreOptions


def record(
    name: str,
    steps: Sequence[Step],
    *,
    wrap: Callable[[Disk], Disk] | None = None,
    options: StoreOptions = OPTIONS,
    finish: bool = True,
) -> History:
    """Play the steps on an empty disk, and close the store.

    Args:
        wrap: puts something between the store and the recorder, which then records what comes through.
        finish: close at the end.
    """
    memory = MemoryDisk()
    disk = RecordingDisk(memory)
    model = Model()
    engine = open_engine(wrap(disk) if wrap else disk, options)
    player = Player(engine, model, disk.mark)
    seen = {"durable": engine.durable_end, "published": Position(0, 0)}

    def look() -> None:
        # What another thread, or another process, may have read by now and sent on.
        now = {"durable": engine.durable_end}
        told = read_published(memory)
        if told is not None:
            now["published"] = told.end
        for what, end in now.items():
            if end != seen[what]:
                seen[what] = end
                if not player.resetting:  # when positions mean nothing
                    disk.mark("seen", end)

    disk.before = look
    for step in steps:
        player.play(step)
        look()
    if finish:
        engine.close()
        disk.mark("told", model.last)
    disk.before = None
    return History(name, steps, disk, model, _expectations(disk, model), options)


def _expectations(disk: RecordingDisk, model: Model) -> list[Expectation]:
    now = Expectation()
    made = [now]
    for operation in disk.trace:
        if isinstance(operation, Mark):
            now = now.told(operation.what, operation.value, model)
        made.append(now)
    return made
