"""Every disk state that a power cut may leave of a store of traditional files: tests/storage/crash says how.

At each of them the store opens, has what it had after one of the steps that had begun, no earlier one than was told
to be durable, and takes more. Files go by purge as wholes: the rest is what is compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.classic.directory import BinlogDirectory
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.reset import Reset
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.classic.xa_files import XA_PREFIX, PreparedFiles
from binlog_storage.disk.disk import Disk
from binlog_storage.engine import Xid
from binlog_storage.errors import DiskError, DiskFull, PositionPurged, StorageError
from binlog_storage.testing.memory_disk import MemoryDisk, MemoryFile

from tests.storage.crash.recorder import Mark, RecordingDisk, RecordingFile
from tests.storage.crash.states import crash_points
from tests.storage.crash.variants import Limits
from tests.storage.disks import fails_to_sync
from tests.storage.groups import (
    COMMIT_EVENT,
    Group,
    begin_event,
    events,
    group,
    gtid_of,
    marker,
    read_all,
    read_from,
)

OPTIONS = ClassicOptions(
    max_binlog_size=4096,
    slave_connections_needed_for_purge=0,
    binlog_gtid_index_page_size=64,  # so that a short file has a tree
    binlog_gtid_index_span_min=1,
)
RENAMING = replace(OPTIONS, binlog_large_commit_threshold=40_000)
GTID_OF_TESTS = begin_event(Gtid(0, 1, 1))
FEW = Limits(all_subsets=3, per_file=12, per_other=3, per_point=12)
MANY = Limits(any_names=True)


@dataclass(frozen=True)
class Snapshot:
    """What there is after a step. `base`: the state before the first group; `may_lack`: purge may have taken some."""

    groups: tuple[bytes, ...] = ()
    base: tuple[Gtid, ...] = ()
    prepared: tuple[Xid, ...] = ()
    may_lack: int = 0

    def state(self, lacking: int = 0, upto: int | None = None) -> BinlogState:
        state = BinlogState(self.base)
        state.overlay(g for p in self.groups[:upto] if (g := gtid_of(p)) is not None)
        return state


@dataclass
class Scene:
    """Plays steps on an engine, and notes what it should have after each."""

    engine: ClassicEngine
    disk: RecordingDisk
    snapshots: list[Snapshot] = field(default_factory=lambda: [Snapshot()])
    seq_no: int = 0

    def step(self, do: Callable[[], object], after: Snapshot) -> None:
        self.snapshots.append(after)
        self.disk.mark("begun", len(self.snapshots) - 1)
        do()

    def told(self) -> None:
        self.disk.mark("told", len(self.snapshots) - 1)

    @property
    def now(self) -> Snapshot:
        return self.snapshots[-1]

    def with_groups(self, *more: bytes, **changed: object) -> Snapshot:
        values = {**self.now.__dict__, "groups": (*self.now.groups, *more), **changed}
        return Snapshot(**values)

    def gtid(self, domain: int = 0) -> Gtid:
        self.seq_no += 1
        return Gtid(domain, 1, self.seq_no)

    # --- the steps ---

    def append(self, size: int = 200, domain: int = 0) -> None:
        one = group(self.gtid(domain), size)
        self.step(lambda: self.engine.append(*one), self.with_groups(one.payload))

    def mark(self) -> None:
        one: Group = marker(len(self.snapshots))
        self.step(lambda: self.engine.append(*one), self.with_groups(one.payload))

    def sync(self) -> None:
        self.engine.sync()
        self.told()

    def flush(self) -> None:
        self.step(self.engine.flush, self.now)
        self.told()

    def purge(self) -> None:
        last = self.engine.files()[-1].number
        kept = read_from(self.engine, self.engine.find_start(self.now.state().position()).position)
        lack = len(self.now.groups) - len(kept)
        self.step(lambda: self.engine.purge_to(last), self.with_groups(may_lack=lack))

    def reset(self, *base: Gtid) -> None:
        self.step(lambda: self.engine.reset(BinlogState(base)), Snapshot(base=base))
        self.told()

    def spilled(self, size: int) -> None:
        gtid, data = self.gtid(), events(size, f"{self.seq_no}") + COMMIT_EVENT
        writer = self.engine.begin()
        writer.spill(data)
        after = self.with_groups(begin_event(gtid) + data)
        self.step(lambda: writer.commit(begin_event(gtid), gtid), after)

    def prepare(self, name: Xid, size: int = 700) -> None:
        writer = self.engine.begin()
        writer.spill(events(size, str(name)) + COMMIT_EVENT)
        after = self.with_groups(prepared=(*self.now.prepared, name))
        self.step(lambda: writer.prepare(name), after)

    def commit(self, name: Xid, size: int = 700) -> None:
        gtid = self.gtid()
        payload = begin_event(gtid) + events(size, str(name)) + COMMIT_EVENT
        left = tuple(xid for xid in self.now.prepared if xid != name)
        self.step(
            lambda: self.engine.commit_prepared(name, begin_event(gtid), gtid),
            self.with_groups(payload, prepared=left),
        )

    def rollback(self, name: Xid) -> None:
        left = tuple(xid for xid in self.now.prepared if xid != name)
        self.step(lambda: self.engine.rollback_prepared(name), self.with_groups(prepared=left))


def simple(scene: Scene) -> None:
    for size in (60, 700, 200, 1500):
        scene.append(size)
        scene.append(90, domain=3)
        scene.sync()


def rotations(scene: Scene) -> None:
    for size in (2500, 2500, 90, 5000, 300):
        scene.append(size)
        scene.sync()
    scene.append(3000)
    scene.append(3000)
    scene.append(100)
    scene.sync()


def flushes(scene: Scene) -> None:
    scene.flush()
    scene.append()
    scene.flush()
    scene.append()
    scene.append(domain=7)
    scene.flush()


def markers(scene: Scene) -> None:
    scene.mark()
    scene.sync()
    scene.append()
    scene.mark()
    scene.append()
    scene.sync()
    scene.mark()
    scene.mark()
    scene.sync()


def purges(scene: Scene) -> None:
    for _ in range(3):
        scene.append(5000)
        scene.sync()
    scene.append(100)
    scene.sync()
    scene.purge()
    scene.append(100)
    scene.sync()


def resets(scene: Scene) -> None:
    scene.append(5000)
    scene.append(5000)
    scene.sync()
    scene.reset()
    scene.append()
    scene.sync()
    scene.reset(Gtid(0, 1, 50), Gtid(4, 2, 7))
    scene.append(300)
    scene.sync()


def large(scene: Scene) -> None:
    scene.append()
    scene.spilled(40_000)
    scene.sync()
    scene.spilled(1_100_000)
    scene.append()
    scene.sync()


def renamed(scene: Scene) -> None:
    scene.append()
    scene.spilled(40_100)
    scene.told()
    scene.append()
    scene.append(5000)
    scene.spilled(41_000)
    scene.told()
    scene.spilled(39_000)
    scene.sync()


def renamed_xa(scene: Scene) -> None:
    one = Xid(1, b"one")
    scene.append()
    scene.prepare(one, 41_000)
    scene.told()
    scene.append()
    scene.commit(one, 41_000)
    scene.told()
    scene.append()
    scene.sync()


def xa(scene: Scene) -> None:
    one, two, three = (Xid(1, name) for name in (b"one", b"two", b"three"))
    scene.prepare(one)
    scene.append()
    scene.prepare(two, 40_000)
    scene.sync()
    scene.commit(one)
    scene.append(3500)
    scene.prepare(three)
    scene.sync()
    scene.rollback(three)
    scene.commit(two, 40_000)
    scene.flush()
    scene.append()
    scene.sync()


SCRIPTS = {
    script.__name__: script
    for script in (
        simple,
        rotations,
        flushes,
        markers,
        purges,
        resets,
        large,
        renamed,
        renamed_xa,
        xa,
    )
}


def options_of(script: Callable[[Scene], None]) -> ClassicOptions:
    if script is renamed:  # each of its large groups fills a file, which is closed in the same step
        return RENAMING
    return replace(RENAMING, max_binlog_size=65_536) if script is renamed_xa else OPTIONS


def play(script: Callable[[Scene], None]) -> Scene:
    disk = RecordingDisk(MemoryDisk())
    scene = Scene(ClassicEngine(disk, options_of(script), clock=lambda: 1e9), disk)
    scene.told()
    script(scene)
    scene.engine.close()
    scene.told()
    return scene


def without_padding(payload: bytes) -> bytes:
    """A group without the zeros that a commit by rename has put behind its GTID event."""
    event = next(split_events(payload))
    least = len(GTID_OF_TESTS)
    if event[4] != EventType.GTID or len(event) == least:
        return payload
    assert not any(event[least:])
    size = least.to_bytes(4, "little")
    return event[:9] + size + event[13:least] + payload[len(event) :]


def holds(engine: ClassicEngine, one: Snapshot) -> bool:
    """Whether the engine has just what this snapshot has."""
    start = engine.first_start()
    found = [without_padding(payload) for payload in read_from(engine, start.position)]
    lacking = len(one.groups) - len(found)
    if not 0 <= lacking <= one.may_lack or found != list(one.groups[lacking:]):
        return False
    return (
        start.state == one.state(upto=lacking)
        and engine.binlog_state() == one.state()
        and engine.prepared() == list(one.prepared)
    )


def find_by_indexes(engine: ClassicEngine, disk: MemoryDisk, found: Snapshot) -> None:
    """Whatever GTID indexes a crash has left: a search finds what it finds without them."""
    contents = disk.contents()
    if not any(name.endswith(".idx") for name in contents):
        return
    options = dataclasses.replace(OPTIONS, binlog_gtid_index=False)
    plain = ClassicEngine(MemoryDisk(contents), options)
    for upto in range(0, len(found.groups) + 1, 3):
        position = found.state(upto=upto).position()
        with contextlib.suppress(PositionPurged):
            start = plain.find_start(position)
            assert engine.find_start(position) == start
            assert engine.state_at(start.position) == start.state


def check(disk: Disk, allowed: Iterable[Snapshot]) -> None:
    engine = ClassicEngine(disk, OPTIONS)
    assert engine.durable_end == engine.written_end
    found = next((one for one in reversed(list(allowed)) if holds(engine, one)), None)
    if found is None:
        start = engine.first_start()
        pytest.fail(
            f"has {len(read_from(engine, start.position))} groups behind {start.state}, {engine.binlog_state()}, "
            f"{engine.prepared()}"
        )
    assert isinstance(disk, MemoryDisk)
    find_by_indexes(engine, disk, found)
    # A purge may have taken all of them, a start marker at the end as well.
    is_there = bool(read_from(engine, engine.first_start().position))
    last = found.groups[-1] if is_there else None
    assert engine.last_marker == (last if last is not None and gtid_of(last) is None else None)
    more = group(Gtid(9, 9, 9), 300)
    engine.append(*more)
    for name in found.prepared[:1]:
        engine.commit_prepared(name, begin_event(Gtid(8, 8, 8)), Gtid(8, 8, 8))
    engine.sync()
    begin = engine.first_start().position
    now = read_from(engine, begin)
    assert now[len(now) - 1 - bool(found.prepared)] == more.payload
    disk.crash()
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        assert read_from(engine, begin) == now
        assert engine.prepared() == list(found.prepared[1:])


def check_all(scene: Scene, limits: Limits, rng: random.Random) -> int:
    least = most = count = 0
    seen: set[tuple[int, int, int]] = set()
    began = False
    for point, states in enumerate(crash_points(scene.disk, limits, rng)):
        if point:
            match scene.disk.trace[point - 1]:
                case Mark("begun", int() as value):
                    most = value
                case Mark("told", int() as value):
                    least = most = value
                    began = True
        for state in states:
            key = state.key, least, most
            if key in seen:
                continue
            seen.add(key)
            count += 1
            disk = MemoryDisk(state.files)
            try:
                check(disk, scene.snapshots[least : most + 1])
            except BaseException as error:
                before = [str(one)[:80] for one in scene.disk.trace[max(0, point - 4) : point]]
                error.add_note(f"cut behind operation {point}: {before}; told: {began}")
                raise
    return count


@pytest.mark.by_turns(12)
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(name: str, rng: random.Random) -> None:
    count = check_all(play(SCRIPTS[name]), FEW, rng)
    assert count > 30


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_in_full(name: str, rng: random.Random) -> None:
    check_all(play(SCRIPTS[name]), MANY, rng)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_of_encrypted_files(
    name: str, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("1;" + "0f" * 32)
    options = dataclasses.replace(
        OPTIONS, encrypt_binlog=True, file_key_management_filename=str(keys)
    )
    monkeypatch.setitem(globals(), "OPTIONS", options)
    check_all(play(SCRIPTS[name]), FEW, rng)


STEPS = "aaaaassssfmplxxcr"
"""What a random history is made of, each as often as it is here."""


def a_step(what: str, scene: Scene, rng: random.Random, names: Iterator[int]) -> None:
    """One step of a random history, a letter of `STEPS`, or R for RESET MASTER; nothing where it cannot be."""
    waiting = scene.now.prepared
    match what:
        case "a":
            scene.append(rng.choice((60, 300, 2000, 6000)), rng.randrange(3))
        case "s":
            scene.sync()
        case "f":
            scene.flush()
        case "m":
            scene.mark()
        case "p" if len(scene.engine.files()) > 1:
            scene.sync()
            scene.purge()
        case "l":
            scene.spilled(rng.choice((500, 40_000)))
        case "x":
            scene.prepare(Xid(1, b"%d" % next(names)))
        case "c" if waiting:
            scene.commit(rng.choice(waiting))
        case "r" if waiting:
            scene.rollback(rng.choice(waiting))
        case "R" if not waiting and rng.random() < 0.3:
            scene.reset()
        case _:
            pass


def random_history(rng: random.Random, steps: int) -> Callable[[Scene], None]:
    def script(scene: Scene) -> None:
        names = itertools.count(1)
        for _ in range(steps):
            a_step(rng.choice(STEPS), scene, rng, names)

    return script


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("number", range(3))
def test_random(number: int, rng: random.Random) -> None:
    rng.seed(f"{rng.random()} {number}")
    check_all(play(random_history(rng, 12)), FEW, rng)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(30))
def test_random_in_full(number: int, rng: random.Random) -> None:
    rng.seed(f"{rng.random()} {number}")
    check_all(play(random_history(rng, 24)), Limits(per_file=24, per_point=24), rng)


# --- a disk without room ---


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in ("simple", "large")])
def test_no_room_at_any_operation(name: str) -> None:
    """Once, at each write and each new name in turn: it is waited for, and nothing is lost or done twice."""
    at = 0
    while True:
        at += 1
        left = at
        memory = MemoryDisk()

        def fault(kind: str, name: str) -> None:
            nonlocal left
            if kind in ("write", "create"):
                left -= 1
                if not left:
                    raise DiskFull("no room (injected)")

        disk = RecordingDisk(memory)
        options = options_of(SCRIPTS[name])
        engine = ClassicEngine(disk, options, clock=lambda: 1e9, wait_for_room=lambda _: None)
        memory.fault = fault
        scene = Scene(engine, disk)
        SCRIPTS[name](scene)
        assert holds(engine, scene.now)
        memory.fault = None
        engine.close()
        with closing(ClassicEngine(MemoryDisk(memory.contents()), OPTIONS)) as engine:
            assert holds(engine, scene.now)
        if left > 0:
            return


# --- the same, of stores with a mistake ---


def no_sync_of_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryFile, "fdatasync", lambda self: None)


def index_before_the_file(patch: pytest.MonkeyPatch) -> None:
    note = BinlogDirectory.note

    def noted(self: BinlogDirectory, numbers: list[int]) -> None:
        note(self, numbers)
        if self.name(numbers[-1]) not in self.disk.names():
            self.write_index([*self.read_index(), *numbers])

    patch.setattr(BinlogDirectory, "note", noted)


def commits_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PreparedFiles, "note", lambda self, prepared, commitment: None)


def reset_without_its_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reset, "finish", lambda self: None)


PLANTS = [
    (no_sync_of_groups, "simple"),
    (index_before_the_file, "rotations"),
    (commits_are_not_noted, "xa"),
    (reset_without_its_file, "resets"),
]


@pytest.mark.parametrize(("plant", "script"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_planted(
    plant: Callable[[pytest.MonkeyPatch], None],
    script: str,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if plant is no_sync_of_groups:
        # The recorder tells what is durable by what is called.
        monkeypatch.setattr(RecordingFile, "fdatasync", lambda self: None)
    plant(monkeypatch)
    with pytest.raises((StorageError, AssertionError, pytest.fail.Exception)):
        check_all(play(SCRIPTS[script]), FEW, rng)


@pytest.mark.parametrize("times", [1, 3])
def test_a_file_of_a_committed_xa_that_cannot_be_removed_does_not_outlive_a_reset(
    times: int,
) -> None:
    """Without its group in the binlog a start would take it for a prepared one."""
    disk = MemoryDisk()
    engine = ClassicEngine(disk, OPTIONS)
    writer = engine.begin()
    writer.spill(events(200, "xa") + COMMIT_EVENT)
    writer.prepare(Xid(1, b"one"))
    engine.commit_prepared(Xid(1, b"one"), begin_event(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    left = [times]

    def fault(kind: str, name: str) -> None:
        if kind == "unlink" and XA_PREFIX in name and left[0]:
            left[0] -= 1
            raise DiskError(f"cannot remove {name}: Input/output error (injected)")

    disk.fault = fault
    engine.sync()
    if times > 1:
        with pytest.raises(DiskError, match="cannot remove"):
            engine.reset()
        assert len(read_all(engine)) == 1, "nothing was done"
    engine.reset()
    disk.kill()
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        assert not engine.prepared()
        assert read_all(engine) == []


@pytest.mark.parametrize("prepared", [False, True])
def test_what_a_start_serves_behind_a_sync_that_failed_is_durable(prepared: bool) -> None:
    """The kernel shows the group, and has given it up; a prepared transaction's own file goes when it is there."""
    disk = MemoryDisk()
    disk.failed_sync_forgets = True
    engine = ClassicEngine(disk, OPTIONS)
    engine.append(*group(Gtid(0, 1, 1), 300))
    if prepared:
        writer = engine.begin()
        writer.spill(events(200, "xa") + COMMIT_EVENT)
        writer.prepare(Xid(1, b"one"))
        engine.commit_prepared(Xid(1, b"one"), begin_event(Gtid(0, 1, 2)), Gtid(0, 1, 2))
    else:
        engine.sync()
        engine.append(*group(Gtid(0, 1, 2), 300))
    disk.fault = fails_to_sync
    with pytest.raises(DiskError):
        engine.sync()
    disk.fault = None
    disk.kill()
    engine = ClassicEngine(disk, OPTIONS)
    begin = engine.first_start().position
    served = read_from(engine, begin)
    assert len(served) == 2
    assert not engine.prepared()
    disk.crash()
    with closing(ClassicEngine(disk, OPTIONS)) as engine:
        assert read_from(engine, begin) == served
