"""One history of a store, played on a recording disk: the trace, and what the outside knew at each point of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from storage.binlog.options import StoreOptions
from storage.binlog.store import IbbEngine
from storage.disk import Disk
from storage.ibb.chunk import Position
from storage.memory_disk import MemoryDisk
from storage.state import StateStore
from tests.storage.crash.model import Model
from tests.storage.crash.player import Player, Step
from tests.storage.crash.recorder import Mark, RecordingDisk

OPTIONS = StoreOptions(
    max_binlog_size=4 * 16384,
    innodb_binlog_state_interval=2 * 16384,
    slave_connections_needed_for_purge=0,
    innodb_log_file_size=256 << 10,
)


def open_engine(disk: Disk, options: StoreOptions = OPTIONS) -> IbbEngine:
    """As the server opens it, without threads."""
    return IbbEngine(disk, options, facts=StateStore(disk))


class Expectation(NamedTuple):
    """What a crash at one point of the trace may leave.

    least, most: numbers of snapshots.
    purged_below: number of a file; groups that begin before it may be gone.
    reset_after: of snapshots up to this number anything may be gone; -1 for none.
    """

    least: int = 0
    most: int = 0
    purged_below: int = 0
    reset_after: int = -1


@dataclass(frozen=True, slots=True)
class History:
    """What happened. `expectations[n]` belongs to the first n operations of the trace."""

    name: str
    steps: Sequence[Step]
    disk: RecordingDisk
    model: Model
    expectations: Sequence[Expectation]


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
    disk = RecordingDisk(MemoryDisk())
    model = Model()
    engine = open_engine(wrap(disk) if wrap else disk, options)
    player = Player(engine, model, disk.mark)
    seen: list[Position] = [engine.durable_end]

    def look() -> None:
        # What another thread may have read by now and sent on. Nothing is promised to it during a reset.
        if not player.resetting and engine.durable_end != seen[0]:
            seen[0] = engine.durable_end
            disk.mark("seen", seen[0])

    disk.before = look
    for step in steps:
        player.play(step)
        look()
    if finish:
        engine.close()
        disk.mark("told", model.last)
    disk.before = None
    return History(name, steps, disk, model, _expectations(disk, model))


def _expectations(disk: RecordingDisk, model: Model) -> list[Expectation]:
    now = Expectation()
    made = [now]
    for operation in disk.trace:
        if isinstance(operation, Mark):
            now = _told(now, operation, model)
        made.append(now)
    return made


def _told(now: Expectation, mark: Mark, model: Model) -> Expectation:
    value = mark.value
    if isinstance(value, Position):
        # All steps that ended there or before; those of earlier epochs have other positions.
        snapshots = model.snapshots
        epoch = snapshots[now.most].epoch
        known = [
            n
            for n in range(now.least, now.most + 1)
            if snapshots[n].epoch == epoch and snapshots[n].end <= value
        ]
        return now._replace(least=max([now.least, *known]))
    assert isinstance(value, int)
    match mark.what:
        case "begun":
            return now._replace(most=value)
        case "told":
            reset = now.reset_after
            over = reset >= 0 and value > reset
            return now._replace(
                least=value,
                reset_after=-1 if over else reset,
                purged_below=0 if over else now.purged_below,
            )
        case "purge":
            return now._replace(purged_below=max(value, now.purged_below))
        case "reset":
            return now._replace(reset_after=value)
    raise ValueError(f"unknown mark {mark.what}")
