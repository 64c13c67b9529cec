"""Opens a disk that a crash has left, and says what the store on it holds; and whether that is right."""

from __future__ import annotations

import contextlib
import logging
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.engine import Position, Xid
from binlog_storage.errors import PositionPurged, StorageError
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import RecordReader
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.verify.verify import Finding, Severity, Verifier

from tests.storage.crash.history import Expectation, History, open_engine
from tests.storage.crash.model import Found, entries_of
from tests.storage.crash.recorder import RecordingDisk
from tests.storage.crash.states import CrashState, Images, crash_points
from tests.storage.crash.variants import Limits
from tests.storage.groups import events, group, group_payload, gtid_event

THOROUGH_EVERY = 16  # states whose store is written on at length, closed and verified
INNER_STATES = 8  # of each point inside a recovery
MORE_DOMAIN = 4_000_000
# The groups of these tests are whole events of no meaning.
FORGIVEN = r" event: | event of |format description of |^group .* has no end$"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Each of many thousand recoveries has something to say."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


class Violation(AssertionError):
    """A state of the disk from which the store does not come back as it should."""


def groups_held(engine: IbbEngine) -> list[bytes | None]:
    """All durable groups from the first file on; None for one that has lost data to a purge."""
    numbers = [file.number for file in engine.files()]
    # A new store has no file until its first page is written.
    first = min(numbers, default=engine.durable_end.file_no)
    pages = engine._pages
    reader = RecordReader(pages, Position(first, PAGE_SIZE), engine.durable_end, skip_partial=True)
    found: list[bytes | None] = []
    for record in reader.commits():
        try:
            found.append(group_payload(pages, record))
        except PositionPurged:
            found.append(None)
    return found


def look(engine: IbbEngine) -> Found:
    """What the store holds, as far as readers may see it."""
    return Found(
        tuple(groups_held(engine)),
        frozenset(engine.prepared()),
        entries_of(engine.binlog_state()),
    )


@dataclass(slots=True)
class Tally:
    """What was done.

    states: distinct disk states that were opened.
    in_recovery: of these, how many were left by a crash during a recovery.
    expectations: how often a state was held against what was known at its point.
    """

    states: int = 0
    in_recovery: int = 0
    expectations: int = 0

    def add(self, other: Tally) -> None:
        self.states += other.states
        self.in_recovery += other.in_recovery
        self.expectations += other.expectations

    def __str__(self) -> str:
        return (
            f"{self.states} disk states opened, {self.in_recovery} of them left by a crash in recovery; "
            f"{self.expectations} expectations met"
        )


class Checker:
    """Of one history."""

    def __init__(self, history: History, limits: Limits, rng: random.Random) -> None:
        self._history = history
        self._limits = limits
        self._rng = rng
        self._found: dict[int, Found] = {}
        self._groups: dict[bytes | None, bytes | None] = {}
        self.tally = Tally()

    def run(self, *, wanted: int | None = None, recovery_every: int = 40) -> Tally:
        """One pass over the trace. Raises `Violation`.

        Args:
            wanted: distinct states to open in all passes so far, spread over the points, each of which gives one at
                least; all of them by default.
            recovery_every: of so many states, one also with crashes inside its recovery.
        """
        disk = self._history.disk
        points = len(disk.trace) + 1
        with quiet():
            for number, states in enumerate(crash_points(disk, self._limits, self._rng)):
                if wanted is not None:
                    share = -(-(wanted - self.tally.states) // (points - number))
                    states = self._some(states, max(1, share))
                for state in states:
                    self._one(state, recovery_every)
        return self.tally

    def _some(self, states: list[CrashState], share: int) -> list[CrashState]:
        """Those that were seen before, which cost nothing, and so many new ones."""
        keys = [(state.key in self._found, state) for state in states]
        known = [state for old, state in keys if old]
        new = [state for old, state in keys if not old]
        if len(new) > share:
            new = [*new[:1], *self._rng.sample(new[1:], share - 1)]
        return known + new

    def _one(self, state: CrashState, recovery_every: int) -> None:
        expected = self._history.expectations[state.point]
        new = state.key not in self._found
        self.check(state.files, expected, self._place(state))
        if new and self.tally.states % recovery_every == 1:
            self._crash_in_recovery(state, expected)

    def check(self, files: Images, expected: Expectation, place: str) -> None:
        """Open the files and look; what was found in equal files before is not looked for again."""
        key = CrashState(0, files).key
        found = self._found.get(key)
        if found is None:
            self.tally.states += 1
            try:
                found = self._open(files, thorough=self.tally.states % THOROUGH_EVERY == 1)
            except (StorageError, AssertionError, ValueError, LookupError) as error:
                raise Violation(self._report(place, expected, files, repr(error))) from error
            self._found[key] = found
        self.tally.expectations += 1
        if expected.fitting(found, self._history.model) is None:
            raise Violation(self._report(place, expected, files, self._describe(found)))

    # --- one state ---

    def _open(self, files: Images, *, thorough: bool) -> Found:
        disk = MemoryDisk(files)
        engine = open_engine(disk, self._history.options)
        assert engine.durable_end == engine.written_end, "not all that was recovered is durable"
        found = look(engine)
        found = found._replace(groups=tuple(self._groups.setdefault(g, g) for g in found.groups))
        self._goes_on(disk, engine, found, thorough=thorough)
        return found

    def _goes_on(
        self, disk: MemoryDisk, engine: IbbEngine, found: Found, *, thorough: bool
    ) -> None:
        """It takes more, gives it back at once and after a restart, clean or by a power cut right after the sync."""
        groups = list(found.groups)
        sizes = (200, 40_000, 200) if thorough else (200,)
        state = engine.binlog_state()
        for seq_no, size in enumerate(sizes, 1):
            gtid = Gtid(MORE_DOMAIN, 1, seq_no)
            payload, _ = group(gtid, size)
            engine.append(payload, gtid)
            state.update(gtid)
            groups.append(payload)
        if thorough:
            self._completes_prepared(engine, state, groups)
            engine.flush()
        engine.sync()
        prepared = frozenset() if thorough else found.prepared
        expected = Found(tuple(groups), prepared, entries_of(state))
        assert look(engine) == expected, "what was added is not there"
        if thorough:
            engine.close()
        else:
            disk.crash()
        again = open_engine(disk, self._history.options)
        assert look(again) == expected, "another start finds something else"
        again.close()
        if thorough:
            verify(disk)

    def _completes_prepared(
        self, engine: IbbEngine, state: BinlogState, groups: list[bytes | None]
    ) -> None:
        """Prepared transactions commit with the data that they were prepared with."""
        data: dict[Xid, bytes] = {}
        for snapshot in self._history.model.snapshots:
            data.update(snapshot.prepared)
        for seq_no, xid in enumerate(sorted(engine.prepared()), 1000):
            gtid = Gtid(MORE_DOMAIN, 2, seq_no)
            engine.commit_prepared(xid, gtid_event(gtid), gtid)
            state.update(gtid)
            groups.append(gtid_event(gtid) + data[xid])
        writer = engine.begin()
        gtid = Gtid(MORE_DOMAIN, 3, 1)
        piece = events(40_000, "spilled after the crash")
        writer.spill(piece)
        writer.commit(gtid_event(gtid), gtid)
        state.update(gtid)
        groups.append(gtid_event(gtid) + piece)

    def _crash_in_recovery(self, state: CrashState, expected: Expectation) -> None:
        """The power goes again at each operation of the recovery. What it had recovered may have been seen."""
        disk = RecordingDisk(MemoryDisk(state.files))
        open_engine(disk, self._history.options)
        before = self.tally.states
        found = self._found[state.key]
        limits = replace(self._limits, per_file=INNER_STATES, per_point=INNER_STATES)
        points = list(crash_points(disk, limits, self._rng))
        for number, inner_states in enumerate(points):
            place = f"{self._place(state)}; then at operation {number} of the recovery"
            for inner in inner_states:
                self.check(inner.files, expected, place)
                # Once it is open, readers are served: from here on exactly that must be found.
                if number == len(points) - 1 and self._found[inner.key] != found:
                    text = "a second crash, behind the recovery, leaves something else"
                    raise Violation(self._report(place, expected, inner.files, text))
        self.tally.in_recovery += self.tally.states - before

    # --- words ---

    def _place(self, state: CrashState) -> str:
        return f"{self._history.name}, cut behind operation {state.point} of {len(self._history.disk.trace)}"

    def _describe(self, found: Found) -> str:
        lost = sum(group is None for group in found.groups)
        return (
            f"holds {len(found.groups)} groups ({lost} without their data), prepared {sorted(map(str, found.prepared))}"
            f", state {sorted(map(list, found.state))}"
        )

    def _report(self, place: str, expected: Expectation, files: Images, text: str) -> str:
        model = self._history.model
        wanted = [
            f"  snapshot {n}: {s.groups} groups, prepared {sorted(map(str, s.prepared))}, "
            f"state {sorted(map(list, s.state))}"
            for n, s in enumerate(model.snapshots)
            if n in (expected.least, expected.most)
        ]
        names = [f"  {name} {len(data)} bytes" for name, data in sorted(files.items())]
        return "\n".join([f"{place}: {text}", f"expected {expected}", *wanted, *names])


def verify(disk: Disk) -> None:
    """Every page, record and state of a closed store is right. What is in the events is filler here.

    Nor is it damage that a group of the first file had data in files that were purged.
    """
    findings: list[Finding] = []
    Verifier(disk, findings.append).run()
    wrong = [
        finding
        for finding in findings
        if finding.severity is Severity.ERROR and not re.search(FORGIVEN, finding.reason)
    ]
    assert not wrong, f"verify finds {wrong[0]} and {len(wrong) - 1} more"
