"""One world: a store on a disk that breaks, writers, replicas; and after every event what must hold.

What happens, at random: groups are appended, spilled, committed, rolled back, prepared; the store syncs, works in the
background, flushes, purges, is reset; replicas come by GTID, read, go. The process dies, the power goes between
operations or in the middle of them, a write, sync or read fails, the disk fills up and has room again later.

What must hold:
    every replica gets the groups of the model, each once, in order, its bytes
    the durable end never goes back, and is never beyond what was written
    after a crash, and in a crash that only might have been, the store is one of the model's snapshots, with
        everything that was told durable and everything that any replica has
    after a failed write or sync the store takes nothing more, and still serves what is durable
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable

from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import DiskError, PositionPurged, StoreFailed
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.crash.check import groups_held, look, quiet
from tests.storage.crash.history import OPTIONS, Expectation
from tests.storage.crash.model import Model
from tests.storage.crash.player import Player
from tests.storage.crash.scripts import random_step
from tests.storage.groups import gtid_of
from tests.storage.simulation.faults import Faults
from tests.storage.simulation.replica import Replica

EVENTS = 300
REPLICAS = 4
TOLD_LAST = 30

TORN = 0.8  # of the power cuts; the others leave nothing that was not synced
FAULTS_IN_STARTS = 0.3  # of the starts; each then begins once more

EVENT_WEIGHTS = {
    "play": 60,
    "read": 40,
    "connect": 8,
    "disconnect": 3,
    "what if": 4,
    "fault": 3,
    "repair": 2,
    "restart": 1,
    "kill": 1,
    "cut": 1,
}


class Failed(AssertionError):
    """What must hold does not. Tells the seed and the last events."""


class World:
    """Of one seed.

    Args:
        say: told of every event.
    """

    def __init__(self, seed: int, say: Callable[[str], None] = lambda text: None) -> None:
        self.seed = seed
        self._rng = random.Random(seed)
        self._say = say
        self._last: deque[str] = deque(maxlen=TOLD_LAST)
        self.now = 0.0
        self.disk = MemoryDisk()
        self.disk.failed_sync_forgets = self._rng.random() < 0.5
        self.faults = Faults(self.disk, self._rng)
        self.model = Model()
        self.expected = Expectation()
        self.replicas: list[Replica] = []
        self.events = 0
        self.crashes = 0
        self.groups_read = 0
        self.engine = self._open(self.disk)
        self.player = Player(self.engine, self.model, self._note)
        self._durable_end = self.engine.durable_end

    def _open(self, disk: Disk) -> IbbEngine:
        return IbbEngine(
            disk,
            OPTIONS,
            facts=StateStore(disk),
            clock=lambda: self.now,
            wait_for_room=self._wait,
        )

    def _note(self, what: str, value: object) -> None:
        self.expected = self.expected.told(what, value, self.model)

    def _wait(self, seconds: float) -> None:
        """The store waits for room on the disk."""
        self.now += seconds
        self._tell(f"  waits for room, {self.now:.0f} s")
        self._read_some()
        if self._rng.random() < 0.4:
            self.faults.repair()

    def _tell(self, text: str) -> None:
        self._last.append(text)
        self._say(text)

    # --- running ---

    def run(self, events: int = EVENTS) -> None:
        """So many events, then everybody reads to the end. Raises `Failed`."""
        try:
            with quiet():
                for _ in range(events):
                    self._event()
                self._finish()
        except Failed:
            raise
        except Exception as error:
            lines = "\n".join(f"  {line}" for line in self._last)
            raise Failed(
                f"seed {self.seed}, event {self.events}: {error!r}\nthe last events:\n{lines}\n"
                f"again: python -m tests.storage.simulation {self.seed}"
            ) from error

    def _event(self) -> None:
        self.events += 1
        self.now += self._rng.expovariate(1.0)
        name = self._rng.choices(list(EVENT_WEIGHTS), list(EVENT_WEIGHTS.values()))[0]
        ACTIONS[name](self)
        self._check()

    def _check(self) -> None:
        end = self.engine.durable_end
        assert self._durable_end <= end, f"the durable end went back to {end}"
        assert end <= self.engine.written_end
        self._durable_end = end

    def _finish(self) -> None:
        self.faults.repair()
        self._tell("the end")
        self._restart()
        for replica in list(self.replicas):
            if not replica.connected:
                self._try_connect(replica)
            while replica.behind(self.engine):
                self._read(replica)
            if replica.connected:
                left = self.model.groups[replica.index :]
                assert all(gtid_of(p) is None for p in left), f"{replica.name} lacks {len(left)}"

    # --- the store ---

    def _play(self) -> None:
        step = random_step(self._rng)
        self._tell(f"{step}")
        if step.name.startswith("reset"):
            for replica in self.replicas:
                replica.disconnect()
        epoch = len(self.model.epochs)
        try:
            self.player.play(step)
        except (DiskError, StoreFailed) as error:
            self._tell(f"  failed: {error}")
            self.faults.repair()
            if step.name == "sync" and isinstance(error, DiskError):
                self._takes_nothing_more()
            self._broken()
        if step.name == "delete domain":
            for replica in self.replicas:
                replica.forget_domains(self.model.state.domains())
        if len(self.model.epochs) != epoch:
            self.replicas.clear()
            self._durable_end = self.engine.durable_end

    def _takes_nothing_more(self) -> None:
        """After a sync failed, the kernel may have forgotten what it should have written."""
        before = self.engine.durable_end
        try:
            self.engine.sync()
        except (DiskError, StoreFailed):
            assert self.engine.durable_end == before
        else:
            raise AssertionError("a sync went well after one had failed")

    def _broken(self) -> None:
        """The disk failed under the store: it serves what is durable, until somebody starts it anew."""
        self._read_some()
        self._what_if()
        way = self._rng.choice((self._kill, self._cut, self._give_up))
        way()

    def _restart(self) -> None:
        self._tell("restart")
        try:
            self.engine.sync()  # a store that failed unseen closes without a word
            self.engine.close()
            self.expected = self.expected.told("told", self.model.last, self.model)
        except (DiskError, StoreFailed) as error:
            self._tell(f"  close: {error}")
        self._start()

    def _give_up(self) -> None:
        """Close after a failure. Whether the last step was done is not known."""
        self._tell("give up")
        with contextlib.suppress(DiskError, StoreFailed):
            self.engine.close()
        self._start()

    def _kill(self) -> None:
        self._tell("kill")
        self.disk.kill()
        self._start()

    def _cut(self) -> None:
        self._tell("power cut")
        self.disk.crash(self._rng if self._rng.random() < TORN else None)
        self._start()

    def _start(self) -> None:
        self.crashes += 1
        for replica in self.replicas:
            replica.lost_connection()
        if self._rng.random() < FAULTS_IN_STARTS:
            self._fault()
        while True:
            try:
                self.engine = self._open(self.disk)
                break
            except DiskError as error:
                if not self.faults.any:
                    raise
                self._tell(f"  not opened: {error}")
                self.faults.repair()
                if self._rng.random() < 0.3:
                    self.disk.kill()
                else:
                    self.disk.crash(self._rng if self._rng.random() < TORN else None)
        self.faults.repair()
        number = self._recognise(self.engine)
        self.model.restart(number)
        self.expected = self.expected._replace(least=0, most=0)
        epoch = len(self.model.epochs) - 1
        self.replicas = [r for r in self.replicas if r.epoch == epoch]
        self._tell(f"  opened: {len(self.model.groups)} groups, snapshot {number}")
        # Numbers go on: a GTID is never used twice.
        self.player = Player(self.engine, self.model, self._note, count=self.player.count)
        self._durable_end = self.engine.durable_end

    def _recognise(self, engine: IbbEngine) -> int:
        """The snapshot that the store is. Everything told and everything read must be in it."""
        found = look(engine)
        number = self.expected.fitting(found, self.model)
        assert number is not None, (
            f"found {len(found.groups)} groups, prepared {sorted(map(str, found.prepared))}, state "
            f"{sorted(map(list, found.state))}; expected {self.expected}, "
            + "; ".join(
                f"{n}: {s.groups} groups, prepared {sorted(map(str, s.prepared))}, state {sorted(map(list, s.state))}"
                for n, s in enumerate(self.model.snapshots)
                if n in (self.expected.least, self.expected.most)
            )
        )
        snapshot = self.model.snapshots[number]
        for replica in self.replicas:
            assert replica.epoch != snapshot.epoch or replica.index <= snapshot.groups, (
                f"{replica.name} has {replica.index} groups, the store only {snapshot.groups}"
            )
        return number

    def _what_if(self) -> None:
        """The power goes on a copy of the disk."""
        twin = self.disk.after_crash(self._rng if self._rng.random() < TORN else None)
        engine = self._open(twin)
        self._recognise(engine)

    def _fault(self) -> None:
        self._tell(f"fault: {self.faults.inject()}")

    def _repair(self) -> None:
        self.faults.repair()

    # --- replicas ---

    def _connect(self) -> None:
        idle = [replica for replica in self.replicas if not replica.connected]
        if idle and self._rng.random() < 0.7:
            self._try_connect(self._rng.choice(idle))
        elif len(self.replicas) < REPLICAS:
            epoch = len(self.model.epochs) - 1
            name = f"replica {self.events}"
            start = self.model.first_states[epoch]
            replica = Replica(name, epoch, 0, start.position())
            self.replicas.append(replica)
            self._try_connect(replica)

    def _try_connect(self, replica: Replica) -> None:
        try:
            replica.connect(self.engine)
            self._tell(f"{replica.name} connects at group {replica.index}")
        except PositionPurged:
            self._tell(f"{replica.name} comes too late for group {replica.index}")
            assert self._may_be_purged(replica.index), "nothing of that was purged"
            self.replicas.remove(replica)
        except DiskError as error:
            self._tell(f"{replica.name}: {error}")
            assert self.faults.any, "reading failed without a fault"

    def _may_be_purged(self, index: int) -> bool:
        expected = self.expected
        if expected.purged_epoch != len(self.model.epochs) - 1:
            return False
        # The state at the start of the first file may be behind what the replica has, though all groups are there.
        return expected.purged_below > 0 and index <= len(self.model.groups)

    def _has_lost_data(self, replica: Replica) -> bool:
        """Whether a group on its way was spilled into files that were purged before it came.

        Also if it has that group already and would pass over it: to be passed over, a group is read.
        """
        return self.expected.purged_epoch == replica.epoch and None in groups_held(self.engine)

    def _disconnect(self) -> None:
        if self.replicas:
            self._rng.choice(self.replicas).disconnect()

    def _read_some(self) -> None:
        for replica in list(self.replicas):
            if replica.connected and self._rng.random() < 0.6:
                self._read(replica)

    def _read(self, replica: Replica) -> int:
        try:
            new = replica.read(self.engine, self.model.groups)
        except DiskError as error:
            self._tell(f"{replica.name}: {error}")
            assert self.faults.any, "reading failed without a fault"
            replica.disconnect()
            return 0
        except PositionPurged as error:
            self._tell(f"{replica.name}: {error}")
            self.faults.repair()
            assert self._has_lost_data(replica), "what it holds was purged"
            replica.disconnect()
            self.replicas.remove(replica)
            return 0
        if new:
            self._tell(f"{replica.name} reads {new}, has {replica.index}")
        self.groups_read += new
        return new


ACTIONS: dict[str, Callable[[World], None]] = {
    "play": World._play,
    "read": World._read_some,
    "connect": World._connect,
    "disconnect": World._disconnect,
    "what if": World._what_if,
    "fault": World._fault,
    "repair": World._repair,
    "restart": World._restart,
    "kill": World._kill,
    "cut": World._cut,
}
