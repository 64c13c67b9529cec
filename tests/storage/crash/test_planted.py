"""Bugs put into the product are found: a test of the tests beside this one."""

from __future__ import annotations

import random

import pytest
from binlog_storage.errors import StorageError

from tests.storage.crash.check import Checker, Violation, quiet
from tests.storage.crash.history import BULK_OPTIONS, History, record
from tests.storage.crash.plants import PLANTS, Plant
from tests.storage.crash.scripts import BULK_SCRIPTS, SCRIPTS
from tests.storage.crash.variants import Limits

STATES = 600
PASSES = 3


def _recorded(name: str, plant: Plant) -> History:
    if name in BULK_SCRIPTS:
        return record(name, BULK_SCRIPTS[name], wrap=plant.wrap, options=BULK_OPTIONS)
    return record(name, SCRIPTS[name], wrap=plant.wrap)


def first_violation(plant: Plant, rng: random.Random) -> str | None:
    """What is found first, and after how many states."""
    with plant.planted(), quiet():
        for name in plant.scripts:
            try:
                history = _recorded(name, plant)
            except (StorageError, AssertionError) as error:
                return f"while playing: {error}"
            checker = Checker(history, Limits(any_names=True), rng)
            try:
                for count in range(1, PASSES + 1):
                    checker.run(wanted=STATES * count // PASSES)
            except Violation as violation:
                return f"after {checker.tally.states} states: {violation}"
    return None


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_is_found(plant: Plant, rng: random.Random) -> None:
    found = first_violation(plant, rng)
    assert found is not None, "nothing was found"
    print(f"{plant.name}: {found}")
