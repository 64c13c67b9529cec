"""Backups of traditional stores: whatever comes while one is taken, it holds what there was at its point."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog import backup as backup_module
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Xid
from binlog_storage.engine.backup import (
    BACKUP_NAME,
    COPYING,
    BackupRequest,
    Manifest,
    read_manifest,
)
from binlog_storage.errors import BackupRefused, DiskFull, StorageError
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.backup.copying import copy, make_ready
from tests.storage.backup.test_power_cuts import STATES_MIN, STATES_SLOW, cut
from tests.storage.classic.test_crash import (
    OPTIONS,
    SCRIPTS,
    Scene,
    Snapshot,
    holds,
    options_of,
    purges,
    resets,
)
from tests.storage.crash.recorder import RecordingDisk
from tests.storage.crash.tables import open_engine
from tests.storage.groups import begin_event, group, read_from

NO_LOCK = BackupRequest(no_lock=True)


def opened(disk: Disk, options: ClassicOptions = OPTIONS) -> ClassicEngine:
    engine = open_engine(disk, options)
    assert isinstance(engine, ClassicEngine)
    return engine


def scene_of(options: ClassicOptions = OPTIONS) -> Scene:
    """With a redo log, as each store of a server has."""
    disk = RecordingDisk(MemoryDisk())
    ticks = iter(range(10**9))  # so that binlogs that begin anew differ, as by the time of day
    engine = ClassicEngine(disk, options, facts=StateStore(disk), clock=lambda: 1e9 + next(ticks))
    return Scene(engine, disk)


def require(disk: MemoryDisk, truth: Snapshot, options: ClassicOptions = OPTIONS) -> ClassicEngine:
    """The store that was made of it has what there was, and takes more."""
    engine = opened(disk, options)
    assert holds(engine, truth), truth
    for name in truth.prepared:
        engine.commit_prepared(name, begin_event(Gtid(8, 8, 8)), Gtid(8, 8, 8))
    more = group(Gtid(9, 9, 9), 300)
    engine.append(*more)
    engine.sync()
    assert read_from(engine, engine.first_start().position)[-1] == more.payload
    return engine


class Backing(Scene):
    """Takes a backup around each step, which is done behind a random piece of it."""

    rng: random.Random
    refused = made = purged = 0

    def step(self, do: Callable[[], object], after: Snapshot) -> None:
        truth, target, begun = self.now, MemoryDisk(), False
        # A purge comes at once, when nothing is copied yet.
        left = 0 if after.may_lack > truth.may_lack else self.rng.randrange(6)

        def between() -> None:
            nonlocal left, begun
            if not left and not begun:
                begun = True
                Scene.step(self, do, after)
            left -= 1

        manifest: Manifest | None = None
        try:
            manifest = copy(self.engine, target, NO_LOCK, between)
            self.made += 1
        except BackupRefused:  # RESET MASTER came
            self.refused += 1
        if not begun:
            Scene.step(self, do, after)
        if manifest is None:
            return
        if manifest.notes:
            self.purged += 1
            truth = replace(truth, may_lack=len(truth.groups))
        options = self.engine._files.options
        make_ready(target, options)
        require(target, truth, options)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("name", SCRIPTS)
def test_around_each_step(name: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files, purges, RESET MASTER, large groups that are copied and renamed, XA: none of it gets in or is lost."""
    monkeypatch.setattr(backup_module, "PIECE_BYTES", 1 << 14)
    plain = scene_of(options_of(SCRIPTS[name]))
    scene = Backing(plain.engine, plain.disk)
    scene.rng = rng
    SCRIPTS[name](scene)
    assert scene.made
    assert not scene.refused or SCRIPTS[name] is resets
    assert bool(scene.purged) == (SCRIPTS[name] is purges)
    assert not scene.engine.references.holds()


def filled() -> Scene:
    """Some files, a purge, and transactions that wait: one small, one large."""
    scene = scene_of()
    for size in (2500, 2500, 90, 5000, 300):
        scene.append(size)
    scene.sync()
    scene.purge()
    scene.prepare(Xid(1, b"small"))
    scene.append(700)
    scene.prepare(Xid(1, b"large"), 40_000)
    scene.append(900)
    scene.sync()
    return scene


def test_files_stay_while_it_runs() -> None:
    """A purge passes over what a backup holds."""
    scene = filled()
    truth, target = scene.now, MemoryDisk()
    purged: list[int] = []

    def between() -> None:
        if not purged:
            purged.append(len(scene.engine.files()))
            scene.engine.purge_to(scene.engine.files()[-1].number)
            assert len(scene.engine.files()) == purged[0]

    copy(scene.engine, target, between=between)
    assert purged
    make_ready(target, OPTIONS)
    require(target, truth)


def test_without_the_binlog() -> None:
    """The binlog begins at the GTID position of the backup, and holds nothing; what was prepared is rolled back."""
    scene = filled()
    target = MemoryDisk()
    copy(scene.engine, target, BackupRequest(skip_binlog=True))
    assert not [name for name in target.names() if not name.startswith("binlog-server.")]
    with pytest.raises(BackupRefused, match="made with --skip-binlog"):
        make_ready(target, OPTIONS)
    make_ready(target, OPTIONS, skip_binlog=True)
    engine = opened(target)
    assert engine.binlog_state() == scene.engine.binlog_state()
    assert not engine.prepared()
    assert [file.number for file in engine.files()] == [1]


def test_of_a_store_on_a_full_disk() -> None:
    """What waits in memory is not in it; all that was durable is."""
    disk = MemoryDisk()
    engine = ClassicEngine(
        disk,
        OPTIONS,
        facts=StateStore(disk),
        clock=lambda: 1e9,
        wait_for_room=lambda _: engine.stop_waiting(),
    )
    groups = [group(Gtid(0, 1, number), 900) for number in range(1, 9)]
    for one in groups[:5]:
        engine.append(*one)
    engine.sync()
    disk.capacity = disk.used()
    for one in groups[5:]:
        engine.append(*one)
    with pytest.raises(StorageError):
        engine.sync()
    target = MemoryDisk()
    manifest = copy(engine, target)
    assert manifest.state == "0-1-5"
    make_ready(target, OPTIONS)
    require(target, Snapshot(tuple(one.payload for one in groups[:5])))
    short = MemoryDisk()
    short.capacity = 1000
    with pytest.raises(DiskFull):
        copy(engine, short)
    assert not engine.references.holds()


def test_of_encrypted_files(tmp_path: Path) -> None:
    """They go as they lie there, prepared transactions too: without the key nobody opens it."""
    keys = tmp_path / "keys"
    keys.write_text("1;" + "0f" * 32)
    options = replace(OPTIONS, encrypt_binlog=True, file_key_management_filename=str(keys))
    scene = scene_of(options)
    scene.append(2500)
    scene.append(2500)
    scene.prepare(Xid(1, b"one"), 3000)
    scene.append(200)
    scene.sync()
    truth, target, later = scene.now, MemoryDisk(), MemoryDisk()
    manifest = copy(scene.engine, target)
    here = target.contents()
    closed = f"binlog.{scene.engine.files()[0].number:06d}"
    assert here[closed] == scene.disk.open(closed).pread(1 << 20, 0)
    with pytest.raises(StorageError, match="is encrypted"):
        make_ready(MemoryDisk(here), OPTIONS)
    make_ready(target, options)
    scene.append(3000)
    scene.sync()
    copy(scene.engine, later, BackupRequest(since=manifest.end))
    base = MemoryDisk(target.contents())
    require(target, truth, options)
    make_ready(base, options, incremental=later)
    require(base, scene.now, options)


# --- incremental ones ---


def play_on(scene: Scene, number: int) -> None:
    for size in (200, 2500, 2500, 60)[: number + 1]:
        scene.append(size)
    if number == 1:
        scene.commit(Xid(1, b"small"))
    if number == 2:
        scene.rollback(Xid(1, b"large"))
        scene.purge()
    scene.sync()


@pytest.mark.parametrize("prepared", [False, True])
def test_what_came_since(prepared: bool) -> None:
    """Four behind each other: with nothing new but a group, new files, an XA that has ended, a purge."""
    scene = filled()
    base = MemoryDisk()
    manifest = copy(scene.engine, base)
    if prepared:
        make_ready(base, OPTIONS)
    before: MemoryDisk | None = None
    for number in range(4):
        play_on(scene, number)
        later = MemoryDisk()
        manifest = copy(scene.engine, later, BackupRequest(since=manifest.end))
        with pytest.raises(BackupRefused, match="is an incremental backup"):
            make_ready(later, OPTIONS)
        make_ready(base, OPTIONS, incremental=later)
        require(MemoryDisk(base.contents()), scene.now)
        make_ready(base, OPTIONS, incremental=later)  # once more: nothing changes
        require(MemoryDisk(base.contents()), scene.now)
        if before is not None:  # it would take groups back
            with pytest.raises(BackupRefused, match="is older than this one: it ends at '0-1-"):
                make_ready(base, OPTIONS, incremental=before)
            require(MemoryDisk(base.contents()), scene.now)
        before = later


def test_since_a_position() -> None:
    scene = filled()
    scene.append(3000)
    scene.append(3000)
    scene.sync()
    base, later = MemoryDisk(), MemoryDisk()
    copy(scene.engine, base)
    position = scene.engine.binlog_state().position()
    for _ in range(3):
        scene.append(3000)
    scene.sync()
    manifest = copy(scene.engine, later, BackupRequest(since_gtid=position))
    assert manifest.since is not None
    assert manifest.since.offset == 0
    assert manifest.since.file_no > manifest.first_file
    make_ready(base, OPTIONS, incremental=later)
    require(base, scene.now)


def test_what_does_not_go_on_is_refused() -> None:
    scene, other = filled(), filled()
    base, second, third = MemoryDisk(), MemoryDisk(), MemoryDisk()
    first = copy(scene.engine, base)
    scene.append(3000)
    scene.append(3000)
    scene.sync()
    end = copy(scene.engine, second, BackupRequest(since=first.end)).end
    scene.append(3000)
    scene.sync()
    copy(scene.engine, third, BackupRequest(since=end))
    with pytest.raises(BackupRefused, match=r"there is a gap .*begins in binlog\.0000"):
        make_ready(base, OPTIONS, incremental=third)
    elsewhere = MemoryDisk()
    copy(other.engine, elsewhere)
    with pytest.raises(BackupRefused, match="of another store"):
        make_ready(elsewhere, OPTIONS, incremental=second)
    with pytest.raises(BackupRefused, match="not of this binlog"):
        copy(other.engine, MemoryDisk(), BackupRequest(since=end))
    scene.engine.purge_to(scene.engine.files()[-1].number)
    with pytest.raises(BackupRefused, match="was purged since: make a full backup"):
        copy(scene.engine, MemoryDisk(), BackupRequest(since=first.end))
    for name in scene.now.prepared:
        scene.rollback(name)
    scene.reset()
    for _ in range(9):
        scene.append(3000)
    scene.sync()
    with pytest.raises(BackupRefused, match="RESET MASTER came since"):
        copy(scene.engine, MemoryDisk(), BackupRequest(since=end))


# --- power cuts ---


def comes_to(disk: MemoryDisk, truth: Snapshot, incremental: MemoryDisk | None = None) -> Manifest:
    manifest = make_ready(disk, OPTIONS, incremental=incremental)
    require(disk, truth)
    return manifest


@pytest.mark.parametrize("states", [STATES_MIN, pytest.param(STATES_SLOW, marks=pytest.mark.slow)])
def test_a_power_cut_during_the_copy(states: int, rng: random.Random) -> None:
    scene = filled()
    target = RecordingDisk(MemoryDisk())
    copy(scene.engine, target)
    whole = 0

    def check(disk: MemoryDisk) -> None:
        nonlocal whole
        manifest = read_manifest(disk)
        if manifest is None:
            assert set(disk.names()) <= {f"{BACKUP_NAME}.new"}
        elif manifest.stage == COPYING:
            with pytest.raises(BackupRefused, match="not whole"):
                make_ready(disk, OPTIONS)
        else:
            whole += 1
            comes_to(disk, scene.now)

    assert cut(target, states, rng, check) >= STATES_MIN
    assert whole


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("states", [STATES_MIN, pytest.param(STATES_SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("skip_binlog", [False, True])
def test_a_power_cut_during_prepare(states: int, skip_binlog: bool, rng: random.Random) -> None:
    scene = filled()
    copied = MemoryDisk()
    copy(scene.engine, copied, BackupRequest(skip_binlog=skip_binlog))
    disk = RecordingDisk(MemoryDisk(copied.contents()))
    make_ready(disk, OPTIONS, skip_binlog=skip_binlog)
    state = tuple(scene.engine.binlog_state().entries())
    truth = Snapshot(base=state) if skip_binlog else scene.now

    def check(left: MemoryDisk) -> None:
        make_ready(left, OPTIONS, skip_binlog=skip_binlog)
        require(left, truth)

    assert cut(disk, states, rng, check) >= STATES_MIN


@pytest.mark.parametrize("states", [STATES_MIN, pytest.param(STATES_SLOW, marks=pytest.mark.slow)])
def test_a_power_cut_during_prepare_of_an_incremental_one(states: int, rng: random.Random) -> None:
    """The same command again goes on; the one without it says what to do."""
    scene = filled()
    base, later = MemoryDisk(), MemoryDisk()
    manifest = copy(scene.engine, base)
    make_ready(base, OPTIONS)
    for number in range(2):
        play_on(scene, number)
    scene.rollback(Xid(1, b"large"))
    copy(scene.engine, later, BackupRequest(since=manifest.end))
    disk = RecordingDisk(MemoryDisk(base.contents()))
    make_ready(disk, OPTIONS, incremental=later)

    def check(left: MemoryDisk) -> None:
        there = read_manifest(left)
        assert there is not None
        if there.stage == "applying":
            with pytest.raises(BackupRefused, match="by --incremental-dir"):
                make_ready(left, OPTIONS)
        is_base = there.history == manifest.history and there.end == manifest.end
        comes_to(left, scene.now, later if is_base else None)

    assert cut(disk, states, rng, check) >= STATES_MIN
