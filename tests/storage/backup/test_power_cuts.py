"""A power cut at any step of a copy, or of preparing it, leaves what is refused, or what goes on to be the backup."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from binlog_storage.binlog import backup as backup_module
from binlog_storage.engine.backup import (
    BACKUP_NAME,
    COPYING,
    BackupRequest,
    Manifest,
    read_manifest,
)
from binlog_storage.errors import BackupRefused
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.backup.copying import copy, make_ready, open_store, restored
from tests.storage.crash.check import look, quiet
from tests.storage.crash.model import Found, Model
from tests.storage.crash.player import Player
from tests.storage.crash.recorder import RecordingDisk
from tests.storage.crash.scripts import BULK_SCRIPTS, steps
from tests.storage.crash.states import crash_points
from tests.storage.crash.variants import Limits
from tests.storage.sizes import small

OPTIONS = small(16, slave_connections_needed_for_purge=0)
STATES = 40
STATES_SLOW = 3000
"""More than there are: all of them."""
STATES_MIN = 20


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Player:
    """A store with groups, a bulk group that is open, one that is prepared, and a purge behind it."""
    monkeypatch.setattr(backup_module, "PIECE_BYTES", 4 * PAGE_SIZE)
    engine = open_store(MemoryDisk(), OPTIONS)
    player = Player(engine, Model())
    script = steps(
        "3x append 120000; flush; purge; prepare 20000; append sync 50000; begin bulk; spill 150000; step"
    )
    for step in [*script, *BULK_SCRIPTS["bulk by turns"][:9]]:
        player.play(step)
    engine.sync()
    return player


def cut(
    disk: RecordingDisk, wanted: int, rng: random.Random, check: Callable[[MemoryDisk], object]
) -> int:
    """`check` each of so many states that a power cut may leave. Returns their number."""
    seen: set[int] = set()
    points = list(crash_points(disk, Limits(), rng))
    with quiet():
        for number, states in enumerate(points):
            share = max(1, -(-(wanted - len(seen)) // (len(points) - number)))
            new = [state for state in states if state.key not in seen]
            for state in rng.sample(new, min(len(new), share)):
                seen.add(state.key)
                check(MemoryDisk(state.files))
    return len(seen)


def comes_to(disk: MemoryDisk, truth: Found, incremental: MemoryDisk | None = None) -> Manifest:
    manifest = make_ready(disk, OPTIONS, incremental=incremental)
    engine, found = restored(disk, OPTIONS)
    assert found == truth
    engine.close()
    return manifest


@pytest.mark.parametrize("states", [STATES, pytest.param(STATES_SLOW, marks=pytest.mark.slow)])
def test_during_the_copy(states: int, source: Player, rng: random.Random) -> None:
    truth = look(source.engine)
    target = RecordingDisk(MemoryDisk())
    copy(source.engine, target)
    whole = 0

    def check(disk: MemoryDisk) -> None:
        nonlocal whole
        manifest = read_manifest(disk)
        if manifest is None:
            assert set(disk.names()) <= {f"{BACKUP_NAME}.new"}
            return
        if manifest.stage == COPYING:
            with pytest.raises(BackupRefused, match="not whole"):
                make_ready(disk, OPTIONS)
            return
        whole += 1
        comes_to(disk, truth)

    assert cut(target, states, rng, check) >= STATES_MIN
    assert whole


@pytest.mark.parametrize("states", [STATES, pytest.param(STATES_SLOW, marks=pytest.mark.slow)])
def test_during_prepare(states: int, source: Player, rng: random.Random) -> None:
    truth = look(source.engine)
    copied = MemoryDisk()
    copy(source.engine, copied)
    disk = RecordingDisk(MemoryDisk(copied.contents()))
    make_ready(disk, OPTIONS)
    assert cut(disk, states, rng, lambda left: comes_to(left, truth)) >= STATES_MIN


@pytest.mark.parametrize("states", [STATES, pytest.param(STATES_SLOW, marks=pytest.mark.slow)])
def test_during_prepare_without_the_binlog(states: int, source: Player, rng: random.Random) -> None:
    state = source.engine.binlog_state()
    copied = MemoryDisk()
    copy(source.engine, copied, BackupRequest(skip_binlog=True))
    disk = RecordingDisk(MemoryDisk(copied.contents()))
    make_ready(disk, OPTIONS, skip_binlog=True)

    def check(left: MemoryDisk) -> None:
        make_ready(left, OPTIONS, skip_binlog=True)
        engine = open_store(left, OPTIONS)
        assert engine.binlog_state() == state
        assert not look(engine).groups

    assert cut(disk, states, rng, check) >= STATES_MIN


@pytest.mark.parametrize("states", [STATES, pytest.param(STATES_SLOW, marks=pytest.mark.slow)])
def test_during_prepare_of_an_incremental_one(
    states: int, source: Player, rng: random.Random
) -> None:
    """The same command again goes on; the one without it says what to do."""
    base, later = MemoryDisk(), MemoryDisk()
    manifest = copy(source.engine, base)
    make_ready(base, OPTIONS)
    before = look(source.engine)
    for step in steps("append sync 60000; commit open; append sync 90000; flush; append sync 3000"):
        source.play(step)
    truth = look(source.engine)
    copy(source.engine, later, BackupRequest(since=manifest.end))
    disk = RecordingDisk(MemoryDisk(base.contents()))
    make_ready(disk, OPTIONS, incremental=later)

    def check(left: MemoryDisk) -> None:
        there = read_manifest(left)
        assert there is not None
        if there.stage == "applying":
            with pytest.raises(BackupRefused, match="by --incremental-dir"):
                make_ready(left, OPTIONS)
        if there.history == manifest.history and there.end == manifest.end:
            comes_to(left, truth, later)
        else:
            comes_to(left, truth)

    assert before != truth
    assert cut(disk, states, rng, check) >= STATES_MIN
