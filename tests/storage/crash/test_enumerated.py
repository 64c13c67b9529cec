"""No power cut, at any point of any history, leaves a disk from which the store does not come back right.

Each test prints how many disk states it opened. A failure names the history, the point, and what was expected there;
the same seed (BINLOG_TEST_SEED, in the head of the report) gives the same states.
"""

from __future__ import annotations

import random

import pytest
from binlog_storage.binlog.options import StoreOptions

from tests.storage.crash.check import Checker, Tally, Violation
from tests.storage.crash.history import BULK_OPTIONS, OPTIONS, record
from tests.storage.crash.player import Step
from tests.storage.crash.scripts import BULK_SCRIPTS, SCRIPTS, random_steps
from tests.storage.crash.variants import Limits

# All together: some 2,500 in a normal run, of a sixth of the scripts; more than 100,000 in a slow one.
STATES = 300
STATES_SLOW = 4000
RANDOM = 4
RANDOM_SLOW = 30
PASSES_MAX = 24  # a script may have hardly more states than are wanted


def explore(
    name: str,
    steps: list[Step],
    rng: random.Random,
    wanted: int,
    options: StoreOptions = OPTIONS,
) -> Tally:
    """As many passes over one history as it takes to open so many distinct states, but no more than `PASSES_MAX`."""
    checker = Checker(record(name, steps, options=options), Limits(), rng)
    for _ in range(PASSES_MAX):
        checker.run(wanted=wanted)
        if checker.tally.states >= wanted:
            break
    print(f"{name}: {checker.tally}")
    return checker.tally


@pytest.mark.by_turns(12)
@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, rng: random.Random) -> None:
    assert explore(name, SCRIPTS[name], rng, STATES).states >= STATES


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("name", BULK_SCRIPTS)
def test_bulk(name: str, rng: random.Random) -> None:
    assert explore(name, BULK_SCRIPTS[name], rng, STATES, BULK_OPTIONS).states >= STATES


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("number", range(RANDOM))
def test_random(number: int, rng: random.Random) -> None:
    steps = random_steps(rng, 50)
    try:
        tally = explore(f"random {number}", steps, rng, STATES)
        assert tally.states >= STATES
    except Violation as violation:
        raise Violation(f"{violation}\nsteps: {'; '.join(map(str, steps))}") from violation


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCRIPTS)
def test_script_in_full(name: str, rng: random.Random) -> None:
    # Some have no more than a thousand; the random ones make up the number.
    assert explore(name, SCRIPTS[name], rng, STATES_SLOW // 2).states >= STATES


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BULK_SCRIPTS)
def test_bulk_in_full(name: str, rng: random.Random) -> None:
    wanted = STATES_SLOW // 2
    assert explore(name, BULK_SCRIPTS[name], rng, wanted, BULK_OPTIONS).states >= wanted


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(RANDOM_SLOW))
def test_random_in_full(number: int, rng: random.Random) -> None:
    steps = random_steps(rng, 100)
    try:
        tally = explore(f"random {number}", steps, rng, STATES_SLOW)
        assert tally.states >= STATES_SLOW
    except Violation as violation:
        raise Violation(f"{violation}\nsteps: {'; '.join(map(str, steps))}") from violation
