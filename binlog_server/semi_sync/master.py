"""Semi-sync towards our replicas: who commits waits until enough of them have the group (AFTER_COMMIT).

    ON     commits wait, for rpl_semi_sync_master_timeout at most
    OFF    none waits: a commit has waited in vain. ON again when enough replicas have everything that was committed

Names and counts of status variables are MariaDB's; waiting for more than one replica is ours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from binlog_storage.engine import Position

from binlog_server.loop.defects import internal_error
from binlog_server.semi_sync.replica_acks import ReplicaAcks

log = logging.getLogger(__name__)

NOWHERE = Position(0, 0)
_US = 1_000_000


class SemiSyncOptions(Protocol):
    """The part of the configuration that matters here; the timeout in milliseconds."""

    @property
    def rpl_semi_sync_master_enabled(self) -> bool: ...
    @property
    def rpl_semi_sync_master_timeout(self) -> int: ...
    @property
    def rpl_semi_sync_master_wait_no_slave(self) -> bool: ...
    @property
    def rpl_semi_sync_master_wait_for_slave_count(self) -> int: ...


class _Waiter(NamedTuple):
    end: Position
    began: float
    deadline: float
    done: Callable[[], None]
    who: object


class SemiSyncMaster:
    """Semi-sync towards the replicas of one server, for one event loop.

    Args:
        options: as they are when it is called.
        clock: seconds.
        age: of the binlog; with another one all places have lost their meaning.
    """

    def __init__(
        self,
        options: Callable[[], SemiSyncOptions],
        clock: Callable[[], float] = time.monotonic,
        age: Callable[[], int] = lambda: 0,
    ) -> None:
        self.options = options
        self._clock = clock
        self._age_now = age
        self._age = age()
        self._replicas: set[ReplicaAcks] = set()
        self._waiting: OrderedDict[int, _Waiter] = OrderedDict()  # in the order of their ends
        self._next = 0  # their keys
        self._of: dict[object, list[int]] = {}  # keys of those of whom each waits
        self.when_moved: set[Callable[[], None]] = set()
        """Called when replicas have acknowledged more."""
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0  # when the timer does
        self._on = True
        self._was_enabled = options().rpl_semi_sync_master_enabled
        self._last = NOWHERE  # end of the last commit
        self.acks = self.requests = 0
        self.commits_acknowledged = self.commits_unacknowledged = 0
        self._times_off = self._waits = 0
        self._waited_s = 0.0

    # --- replicas ---

    def add(self, replica: ReplicaAcks) -> None:
        """Add a replica with semi-sync."""
        self._replicas.add(replica)
        self.moved()

    def remove(self, replica: ReplicaAcks) -> None:
        """Remove a replica; twice is no error."""
        self._replicas.discard(replica)
        if not self.options().rpl_semi_sync_master_wait_no_slave and self._lacks_replicas:
            self._switch_off("a replica has gone, and rpl_semi_sync_master_wait_no_slave is OFF")

    @property
    def clients(self) -> int:
        """Replicas with semi-sync."""
        return len(self._replicas)

    @property
    def enabled(self) -> bool:
        """Whether commits are to wait, if not just now."""
        return self.options().rpl_semi_sync_master_enabled

    @property
    def is_on(self) -> bool:
        """Whether commits wait now."""
        return self.options().rpl_semi_sync_master_enabled and self._on

    @property
    def _lacks_replicas(self) -> bool:
        return len(self._replicas) < self.options().rpl_semi_sync_master_wait_for_slave_count

    def held_by(self, count: int) -> Position:
        """The place up to which at least `count` replicas hold everything; NOWHERE if fewer follow."""
        ends = sorted((replica.acknowledged for replica in self._replicas), reverse=True)
        return ends[count - 1] if 0 < count <= len(ends) else NOWHERE

    def moved(self) -> None:
        """Look again: a replica has acknowledged more, or was added."""
        self.enter_age()
        for look in list(self.when_moved):
            look()
        end = self.held_by(self.options().rpl_semi_sync_master_wait_for_slave_count)
        if end == NOWHERE:
            return
        while self._waiting and self._waiting[next(iter(self._waiting))].end <= end:
            self.commits_acknowledged += 1
            self._release(self._take_first())
        if not self._on and self.options().rpl_semi_sync_master_enabled and end >= self._last:
            self._on = True
            log.warning("semi-sync is ON again: replicas have everything that was committed")

    # --- those who wait ---

    def when_acknowledged(
        self,
        end: Position,
        done: Callable[[], None],
        who: object = None,
        age: int | None = None,
    ) -> None:
        """Call `done` when the commit that ends there may be answered: at once if it need not wait.

        `who` waits, for `is_waiting` and `give_up`; `age`: of the binlog that has the place.
        """
        options = self.options()
        now_age = self.enter_age()
        if not options.rpl_semi_sync_master_enabled or (age is not None and age != now_age):
            done()  # RESET MASTER has come between: there is no such place any more
            return
        self._last = max(self._last, end)
        if self._on and not options.rpl_semi_sync_master_wait_no_slave and self._lacks_replicas:
            self._switch_off(
                "there are too few replicas, and rpl_semi_sync_master_wait_no_slave is OFF"
            )
        if not self._on:
            self.commits_unacknowledged += 1
            done()
        elif self.held_by(options.rpl_semi_sync_master_wait_for_slave_count) >= end:
            self.commits_acknowledged += 1
            done()
        else:
            now = self._clock()
            deadline = now + options.rpl_semi_sync_master_timeout / 1000
            self._next += 1
            self._waiting[self._next] = _Waiter(end, now, deadline, done, who)
            self._of.setdefault(who, []).append(self._next)
            self._watch(deadline)

    def is_waiting(self, who: object) -> bool:
        """Whether a commit of theirs waits for replicas."""
        return who in self._of

    def give_up(self, who: object, *, has_gone: bool = False) -> None:
        """Release the commits of `who`, answered as ones that no replica has acknowledged. Others go on waiting.

        `has_gone`: there is nobody to answer.
        """
        for key in self._of.pop(who, []):
            waiter = self._waiting.pop(key)
            self.commits_unacknowledged += 1
            self._release(waiter._replace(done=lambda: None) if has_gone else waiter)

    def changed(self) -> None:
        """The options have changed: when semi-sync was switched off, nobody waits any more.

        As in MariaDB it is ON only when it was switched on, and who waits already has the time-out from before; but as
        nobody waits any more when one has waited in vain, a shorter time-out ends their wait, too.
        """
        enabled = self.options().rpl_semi_sync_master_enabled
        if enabled and not self._was_enabled:
            self._on = True
        self._was_enabled = enabled
        if enabled:
            self.moved()  # fewer replicas may suffice
        else:
            self._release_all()

    def enter_age(self) -> int:
        """Forget the places of another age: RESET MASTER has removed them, and no replica will ever acknowledge one.

        Returns the age. Asked before every look at a place, as commits of the new binlog come as soon as there is one.
        """
        age = self._age_now()
        if age != self._age:
            self._age = age
            self._last = NOWHERE
            self.commits_unacknowledged += len(self._waiting)
            self._release_all()
        return age

    def close(self) -> None:
        """End semi-sync for shutdown: no callback is called any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self._of.clear()

    def _watch(self, deadline: float) -> None:
        """Look then, if not before. A later commit may have the earlier deadline: the time-out can be changed."""
        if self._timer is not None:
            if self._look_at <= deadline:
                return
            self._timer.cancel()
        self._look_at = deadline
        after = max(0.0, deadline - self._clock())
        self._timer = asyncio.get_running_loop().call_later(after, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        deadline = min(waiter.deadline for waiter in self._waiting.values())
        if deadline > self._clock():
            self._watch(deadline)
            return
        self._switch_off(
            "no acknowledgement within rpl_semi_sync_master_timeout of "
            f"{self.options().rpl_semi_sync_master_timeout} ms"
        )

    def _switch_off(self, reason: str) -> None:
        if self._on and self.options().rpl_semi_sync_master_enabled:
            self._on = False
            self._times_off += 1
            log.warning("semi-sync is OFF, commits do not wait: %s", reason)
        self.commits_unacknowledged += len(self._waiting)
        self._release_all()

    def _release_all(self) -> None:
        while self._waiting:
            self._release(self._take_first())

    def _take_first(self) -> _Waiter:
        key, waiter = self._waiting.popitem(last=False)
        keys = self._of[waiter.who]
        keys.remove(key)
        if not keys:
            del self._of[waiter.who]
        return waiter

    def _release(self, waiter: _Waiter) -> None:
        self._waits += 1
        self._waited_s += self._clock() - waiter.began
        try:
            waiter.done()
        except Exception as error:  # noqa: BLE001 - logged there; the others wait, too
            internal_error(error, "the answer to a commit")

    # --- status ---

    @property
    def waiting_s(self) -> float:
        """Seconds that the longest wait of a commit has lasted; 0 if none waits. From any thread."""
        waiting = list(self._waiting.values())
        return self._clock() - min(waiter.began for waiter in waiting) if waiting else 0.0

    @property
    def why_waiting(self) -> str:
        """The reason for which commits wait, and the ways in which that ends."""
        options = self.options()
        wanted, there = options.rpl_semi_sync_master_wait_for_slave_count, self.clients
        return (
            f"commits wait until replicas acknowledge them: {wanted} must "
            f"(rpl_semi_sync_master_wait_for_slave_count), {there} with semi-sync "
            f"{'is' if there == 1 else 'are'} connected. It ends by rpl_semi_sync_master_timeout, "
            f"{options.rpl_semi_sync_master_timeout} ms, or SET GLOBAL rpl_semi_sync_master_enabled=OFF"
        )

    def status_variables(self) -> Mapping[str, int | str]:
        """The variables of SHOW STATUS. Times in microseconds."""
        waited_us = round(self._waited_s * _US)
        average_us = waited_us // self._waits if self._waits else 0
        return {
            f"Rpl_semi_sync_master_{name}": value
            for name, value in {
                "clients": self.clients,
                "get_ack": self.acks,
                "net_avg_wait_time": 0,  # as MariaDB since 10.3: acknowledgements are read by a thread
                "net_wait_time": 0,
                "net_waits": self.acks,
                "no_times": self._times_off,
                "no_tx": self.commits_unacknowledged,
                "request_ack": self.requests,
                "status": "ON" if self.is_on else "OFF",
                "timefunc_failures": 0,
                "tx_avg_wait_time": average_us,
                "tx_wait_time": waited_us,
                "tx_waits": self._waits,
                "wait_pos_backtraverse": 0,
                "wait_sessions": len(self._waiting),
                "yes_tx": self.commits_acknowledged,
            }.items()
        }
