"""Some seeds, and in the slow suite as many as fit in the time; the first one is printed before it starts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.storage.simulation.classic import ClassicWorld
from tests.storage.simulation.rows import RowsWorld
from tests.storage.simulation.world import World

WORLDS = 12
SECONDS = 60.0  # of each of the slow tests, which run side by side
PARTS = 2
ROWS_WORLDS = 5
CLASSIC_WORLDS = 8


def simulate(rng: random.Random, is_over: Callable[[int], bool]) -> None:
    """`is_over` is asked with the number of seeds so far."""
    first = rng.randrange(1 << 48)
    print(f"simulation: seeds from {first}")
    seed = first
    starts = groups = 0
    while not is_over(seed - first):
        world = World(seed)
        world.run()
        starts += world.crashes
        groups += world.groups_read
        seed += 1
    print(f"simulation: {seed - first} seeds, {starts} starts, {groups} groups read by replicas")
    assert groups


def test_some_seeds(rng: random.Random) -> None:
    simulate(rng, lambda count: count >= WORLDS)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_as_many_seeds_as_fit_in_two_minutes(part: int, rng: random.Random) -> None:
    end = time.monotonic() + SECONDS
    simulate(rng, lambda _: time.monotonic() > end)


def simulate_failing(kind: type[RowsWorld | ClassicWorld], rng: random.Random, worlds: int) -> None:
    first = rng.randrange(1 << 48)
    starts = 0
    for seed in range(first, first + worlds):
        print(f"{kind.__name__}: seed {seed}")
        world = kind(seed)
        world.run()
        starts += world.starts
    assert starts > 3 * worlds


def test_rows_on_a_disk_that_fails(rng: random.Random) -> None:
    simulate_failing(RowsWorld, rng, ROWS_WORLDS)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rows_on_a_disk_that_fails_in_many_worlds(rng: random.Random) -> None:
    simulate_failing(RowsWorld, rng, 200)


def test_traditional_files_on_a_disk_that_fails(rng: random.Random) -> None:
    simulate_failing(ClassicWorld, rng, CLASSIC_WORLDS)


def test_a_cut_whose_sync_has_failed_is_made_again() -> None:
    """A start cuts a torn tail off, and its sync fails; the next start sees no tail, and it is on the disk."""
    ClassicWorld(86562091835099).run()


def test_a_note_whose_sync_has_failed_is_made_again() -> None:
    """A start notes that an XA transaction is still prepared, and the sync of that fails; the next start reads it, and
    it is not on the disk: behind a loss of power, and a purge, the transaction had vanished as one that is committed.
    """
    ClassicWorld(153835228246186).run()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_traditional_files_on_a_disk_that_fails_in_many_worlds(rng: random.Random) -> None:
    simulate_failing(ClassicWorld, rng, 600)


def test_a_seed_makes_it_all_again() -> None:
    told: list[list[str]] = []
    for _ in range(2):
        told.append([])
        World(42, told[-1].append).run(150)
    assert told[0] == told[1]
    assert len(told[0]) > 100
