"""Large families of tests take turns: the seed chooses some members of each for a run, the slow suite runs all.

A family is one parametrised test. `@pytest.mark.by_turns(3)` says that a third of it runs at a time: another third
with another seed, the same with the same BINLOG_TEST_SEED. Who names a test (`file.py::test`) gets all of it.

In the slow suite, BINLOG_TEST_REPEATS=4 leaves a fourth of what is the same test again with another seed (parameter
`number`): every test runs, in a part of the time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    @property
    def nodeid(self) -> str: ...


T = TypeVar("T", bound=Named)


def chosen(members: Sequence[T], turns: int, seed: str) -> list[T]:
    """One in `turns` of a family, rounded up, in their order: chance by `seed` and the family's name."""
    if turns < 2 or len(members) < 2:
        return list(members)
    rng = random.Random(f"{seed} {family(members[0])}")
    places = rng.sample(range(len(members)), -(-len(members) // turns))
    return [members[place] for place in sorted(places)]


def family(test: Named) -> str:
    """The name of a test without its parameters."""
    return test.nodeid.partition("[")[0]


def in_turn(tests: Sequence[tuple[T, int]], seed: str) -> list[T]:
    """Of tests with their `turns` (1: always) those whose turn it is, in their order."""
    families: defaultdict[tuple[str, int], list[T]] = defaultdict(list)
    for test, turns in tests:
        families[family(test), turns].append(test)
    kept = {
        id(test)
        for (_, turns), members in families.items()
        for test in chosen(members, turns, seed)
    }
    return [test for test, _ in tests if id(test) in kept]
