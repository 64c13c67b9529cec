"""A recorded history told again by a master for tests: at its own pace or another, once or for ever.

`Pace` is pure. A `RunningReplay` runs in a thread of its own, `Served` has them; `ReplayHandle` is what a test has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

from binlog_protocol.errors import BadValue
from binlog_protocol.groups.moved_group import moved_group, seconds_of
from binlog_protocol.gtid import Gtid

from binlog_server.testing.waiting import until


class ReplayedGroup(Protocol):
    """A group in normal form; a start marker has no GTID."""

    @property
    def payload(self) -> bytes: ...
    @property
    def gtid(self) -> Gtid | None: ...


class Pace:
    """When each group is due, in seconds behind the begin.

    Args:
        speed: how many times as fast as it was recorded.
        rate: groups a second, whenever they were recorded; 0: as `speed` says.
        longest_gap: seconds that a pause of the recording becomes at most; 0: no pauses.
    """

    def __init__(self, *, speed: float = 1.0, rate: float = 0, longest_gap: float = inf) -> None:
        numbers = speed, rate, longest_gap
        are_numbers = all(isinstance(one, int | float) for one in numbers)
        if not (are_numbers and speed > 0 and rate >= 0 and longest_gap >= 0):  # nor is nan
            raise BadValue(f"speed {speed!r}, rate {rate!r}, longest_gap {longest_gap!r}")
        self._speed, self._rate, self._longest_gap = speed, rate, longest_gap
        self._due = 0.0
        self._last: int | None = None

    def due(self, recorded: int) -> float:
        """Of the next group, which was recorded at that second."""
        if self._rate:
            due, self._due = self._due, self._due + 1 / self._rate
            return due
        gap = 0 if self._last is None else max(0, recorded - self._last)
        self._last = recorded
        self._due += min(gap / self._speed, self._longest_gap)
        return self._due

    def again(self) -> None:
        """The recording begins anew: what lies between its end and its begin is no gap."""
        self._last = None


class RunningReplay:
    """Runs from the begin on.

    Args:
        groups: the recording, from its begin at each call.
        append: to log groups: returns the GTID of the last one.
        last_seq_no: the largest number of a domain in the store.
        loop: how often; 0 is for ever.
        fresh: events get the time at which they are logged again.
    """

    def __init__(
        self,
        groups: Callable[[], Iterable[ReplayedGroup]],
        append: Callable[[bytes, Gtid], str],
        last_seq_no: Callable[[int], int],
        pace: Pace,
        *,
        loop: int,
        fresh: bool,
    ) -> None:
        if not isinstance(loop, int) or loop < 0:
            raise BadValue(f"loop {loop!r}")
        self._groups, self._append, self._last_seq_no = groups, append, last_seq_no
        self._pace, self._loop, self._fresh = pace, loop, fresh
        self._stopping = threading.Event()
        self.count = 0
        self.gtid = ""
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="replay", daemon=True)
        self.thread.start()

    @property
    def is_over(self) -> bool:
        return not self.thread.is_alive()

    def stop(self) -> None:
        """Returns when nothing more is logged."""
        self._stopping.set()
        self.thread.join()

    def _run(self) -> None:
        try:
            rounds = 0
            begin = time.monotonic()
            while not self._stopping.is_set() and (not self._loop or rounds < self._loop):
                self._tell(begin)
                self._pace.again()
                rounds += 1
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self.error = error

    def _tell(self, begin: float) -> None:
        moves: dict[int, int] = {}  # by domain: a round goes behind what is there
        is_empty = True
        for payload, gtid in ((one.payload, one.gtid) for one in self._groups()):
            if gtid is None:
                continue
            is_empty = False
            wait_s = begin + self._pace.due(seconds_of(payload)) - time.monotonic()
            if self._stopping.wait(min(max(0.0, wait_s), threading.TIMEOUT_MAX)):
                return
            if gtid.domain_id not in moves:
                behind = self._last_seq_no(gtid.domain_id) + 1
                moves[gtid.domain_id] = max(0, behind - gtid.seq_no)
            by = moves[gtid.domain_id]
            moved = moved_group(payload, by, int(time.time()) if self._fresh else None)
            self.gtid = self._append(moved, gtid._replace(seq_no=gtid.seq_no + by))
            self.count += 1
        if is_empty:
            raise BadValue("there is no group to be replayed")


class ReplayHandle:
    """A replay that runs: groups come until it is over, or `stop`."""

    def __init__(self, call: Callable[..., tuple[int, str, bool]], number: int) -> None:
        self._call, self._number = call, number

    @property
    def count(self) -> int:
        """Groups that were logged."""
        return self._call("replayed", self._number)[0]

    @property
    def gtid(self) -> str:
        """Of the last group that was logged."""
        return self._call("replayed", self._number)[1]

    def wait(self, timeout: float = 60.0) -> str:
        """Until it is over. Returns the last GTID. Raises what it has met, and `TimeoutError`."""
        until(lambda: self._call("replayed", self._number)[2], "the replay is over", timeout)
        return self.gtid

    def stop(self) -> str:
        """It logs nothing more. Returns the last GTID."""
        self._call("stop_replay", self._number)
        return self.gtid
