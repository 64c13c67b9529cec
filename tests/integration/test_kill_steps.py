"""kill -9 and power cuts at the n-th call of the operating system, for n over a whole run of a real store.

After each the store opens as the server opens it; holds what was acknowledged; and is a prefix of what was appended.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import COPYING, read_manifest
from binlog_storage.errors import BackupRefused, NotAStore

from binlog_server.store.store_directory import StoreDirectory, prepare_backup
from binlog_server.testing import rundir
from tests.integration.killed_run import (
    BACKED_UP,
    COPY,
    OPTIONS,
    STORES,
    WAYS,
    Outcome,
    Runs,
    config_of,
    groups_of,
)
from tests.integration.store_findings import verified
from tests.kit import mounts
from tests.kit.cut_disk import CutDisk
from tests.kit.fixtures import MakeCutDisk
from tests.storage.groups import payloads, read_from, state_after, wanted

FIRST = 6
"""Calls that make the directory ours."""

FILLER = ("QUERY event", "format description of", "has no end")
"""What `verify` says of the events in these groups, which are none. Everything below the events must be sound."""


@pytest.fixture
def runs() -> Iterator[Runs]:
    with Runs() as runs:
        yield runs


@pytest.fixture
def place() -> Path:
    """Not pytest's own, which is on a slow disk."""
    return rundir.new_dir("steps")


@pytest.fixture
def seed(rng: random.Random) -> int:
    return rng.getrandbits(32)


def check(directory: Path, seed: int, outcome: Outcome) -> None:
    """Open, read, close, verify; then the directory is removed."""
    groups = groups_of(seed)
    store = StoreDirectory(directory, OPTIONS)
    try:
        before = state_after(groups[: outcome.begins])
        begin = before.position()
        start = store.engine.find_start(begin)
        found = list(wanted(read_from(store.engine, start.position), begin, start.state))
        expected = payloads(g for g in groups[outcome.begins :] if g.gtid is not None)
        least = payloads(g for g in groups[outcome.begins : outcome.acknowledged] if g.gtid)
        assert len(found) >= len(least), f"lost what was acknowledged: {outcome}"
        assert found == expected[: len(found)]
        with_gtid = [g for g in groups if g.gtid is not None]
        begun = len([g for g in groups[: outcome.begins] if g.gtid is not None])
        state: BinlogState = state_after(with_gtid[: begun + len(found)])
        assert str(store.engine.binlog_state()) == str(state)
    finally:
        store.close()
    found_wrong = [f for f in verified(directory) if not any(text in f.reason for text in FILLER)]
    assert not found_wrong
    shutil.rmtree(directory)


def test_the_whole_run(runs: Runs, seed: int, place: Path) -> None:
    outcome = runs(place / "store", seed)
    assert outcome.status == 0
    assert outcome.begins > 0, "nothing was purged"
    check(place / "store", seed, outcome)


def killed(runs: Runs, directory: Path, seed: int, numbers: list[int], way: str) -> None:
    for number in numbers:
        outcome = runs(directory, seed, at=number, how=way)
        # How many calls there are depends on threads; the last few may not be reached.
        assert outcome.status in (-signal.SIGKILL, 0), outcome
        check(directory, seed, outcome)


def test_kill_in_the_first_moment(runs: Runs, seed: int, place: Path) -> None:
    for way in WAYS:
        killed(runs, place / "store", seed, list(range(FIRST)), way)


@pytest.mark.parametrize("way", WAYS)
def test_kill(runs: Runs, seed: int, way: str, place: Path, rng: random.Random) -> None:
    calls = whole_run(runs, place, seed)
    killed(runs, place / "store", seed, rng.sample(range(FIRST, calls), 6), way)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_kill_at_every_call(runs: Runs, seed: int, way: str, place: Path) -> None:
    calls = whole_run(runs, place, seed)
    print(f"{calls} calls")
    killed(runs, place / "store", seed, list(range(FIRST, calls)), way)


def whole_run(runs: Runs, place: Path, seed: int) -> int:
    """How many calls a run makes."""
    outcome = runs(place / "whole", seed)
    shutil.rmtree(place / "whole")
    return outcome.calls


def cut(runs: Runs, disk: CutDisk, seed: int, numbers: list[int]) -> None:
    for number in numbers:
        outcome = runs(disk.path / "store", seed, at=number, how="cut")
        disk.restart()
        check(disk.path / "store", seed, outcome)
        mounts.sync(disk.path)  # or the next cut would bring back what was removed here


def test_power_cut(
    runs: Runs, seed: int, place: Path, cut_disk: MakeCutDisk, rng: random.Random
) -> None:
    calls = whole_run(runs, place, seed)
    cut(runs, cut_disk(), seed, rng.sample(range(FIRST, calls), 12))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cut_at_every_call(
    runs: Runs, seed: int, place: Path, cut_disk: MakeCutDisk, kind: str
) -> None:
    calls = whole_run(runs, place, seed)
    cut(runs, cut_disk(kind), seed, list(range(FIRST, calls)))


def test_kill_while_recovering(runs: Runs, seed: int, place: Path, rng: random.Random) -> None:
    """A store whose recovery was killed recovers."""
    calls = whole_run(runs, place, seed)
    directory = place / "store"
    for number in rng.sample(range(FIRST, calls), 4):
        outcome = runs(directory, seed, at=number, how="torn")
        again = runs(directory, seed, only_open=True, at=rng.randrange(6), how=rng.choice(WAYS))
        assert again.status in (-signal.SIGKILL, 0), again
        check(directory, seed, outcome)


# --- backups ---


def check_backup(directory: Path, seed: int, store: str, outcome: Outcome) -> str:
    """The store has what it had, and the copy is refused, or becomes a store. Returns the stage in which that was."""
    groups = payloads(g for g in groups_of(seed) if g.gtid is not None)
    here = StoreDirectory(directory, OPTIONS, STORES[store])
    found = read_from(here.engine, here.engine.first_start().position)
    here.close()
    assert len(found) >= outcome.acknowledged
    assert found == groups[: len(found)]
    copied = directory.with_name(COPY)
    manifest = read_manifest(ReadOnlyDisk(copied))
    stage = "nothing" if manifest is None else manifest.stage
    prepared = partial(
        prepare_backup, config_of(copied), skip_binlog=False, incremental=None, progress=print
    )
    if stage in ("nothing", COPYING):
        with pytest.raises((NotAStore, BackupRefused)):
            prepared()
    else:
        prepared()
        restored = StoreDirectory(copied, OPTIONS, STORES[store])
        found = read_from(restored.engine, restored.engine.first_start().position)
        restored.close()
        assert found == groups[:BACKED_UP]
    shutil.rmtree(directory)
    shutil.rmtree(copied)
    return stage


def killed_backups(
    runs: Runs, place: Path, seed: int, store: str, numbers: Iterable[int], rng: random.Random
) -> set[str]:
    """Each in one of the ways. Returns the stages in which the copies were."""
    stages = set()
    for number in numbers:
        outcome = runs(place / "store", seed, at=number, how=rng.choice(WAYS), backup_of=store)
        assert outcome.status in (-signal.SIGKILL, 0), outcome
        stages.add(check_backup(place / "store", seed, store, outcome))
    return stages


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("store", STORES)
def test_kill_during_a_backup_and_while_it_is_prepared(
    runs: Runs, seed: int, place: Path, store: str, rng: random.Random
) -> None:
    outcome = runs(place / "store", seed, backup_of=store)
    assert outcome.status == 0
    assert check_backup(place / "store", seed, store, outcome) == "prepared"
    killed_backups(runs, place, seed, store, rng.sample(range(outcome.calls), 4), rng)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", STORES)
def test_kill_at_every_call_of_a_backup(
    runs: Runs, seed: int, place: Path, store: str, rng: random.Random
) -> None:
    calls = runs(place / "store", seed, backup_of=store).calls
    shutil.rmtree(place / "store")
    shutil.rmtree(place / COPY)
    print(f"{calls} calls")
    stages = killed_backups(runs, place, seed, store, range(calls), rng)
    assert stages >= {"nothing", "copying", "whole", "preparing"}
