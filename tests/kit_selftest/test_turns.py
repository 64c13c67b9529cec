"""Which members of a large family run this time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from tests.kit import turns


@dataclass(frozen=True)
class Case:
    nodeid: str


FAMILY = [Case(f"tests/test_a.py::test[{number}]") for number in range(10)]


@pytest.mark.parametrize(("share", "count"), [(1, 10), (2, 5), (3, 4), (10, 1), (99, 1)])
def test_as_many_as_said(share: int, count: int) -> None:
    found = turns.chosen(FAMILY, share, "7")
    assert len(found) == count
    assert found == sorted(found, key=FAMILY.index)
    assert found == turns.chosen(FAMILY, share, "7")


def test_each_has_its_turn() -> None:
    found = Counter(case for seed in range(300) for case in turns.chosen(FAMILY, 3, str(seed)))
    assert set(found) == set(FAMILY)
    assert all(70 < count < 180 for count in found.values())


def test_one_alone_runs_always() -> None:
    assert turns.chosen(FAMILY[:1], 3, "7") == FAMILY[:1]


def test_families_are_chosen_from_apart_and_others_left_alone() -> None:
    others = [Case(f"tests/test_a.py::other[{number}]") for number in range(10)]
    always = [Case("tests/test_b.py::test[1]"), Case("tests/test_b.py::test[2]")]
    tests = [
        *((case, 2) for case in FAMILY),
        *((case, 1) for case in always),
        *((case, 5) for case in others),
    ]
    found = turns.in_turn(tests, "7")
    assert [case for case in found if case in always] == always
    assert Counter(map(turns.family, found)) == {
        "tests/test_a.py::test": 5,
        "tests/test_a.py::other": 2,
        "tests/test_b.py::test": 2,
    }


SUITE = """
import pytest

@pytest.mark.by_turns(3)
@pytest.mark.parametrize("number", range(9))
def test_family(number):
    pass


@pytest.mark.slow
def test_slow():
    pass


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_seeds(number):
    pass
"""


@pytest.mark.parametrize(
    ("matrix", "args", "passed"),
    [
        ("", [], 3),
        ("full", [], 18),
        ("full 4", [], 12),
        ("full 4", ["-m", "not slow"], 9),
        ("", ["test_it.py::test_seeds"], 8),
        ("", ["test_it.py::test_family"], 9),
        ("", ["test_it.py::test_slow"], 1),
        ("", ["-m", "slow"], 9),
        ("", ["-m", "not slow"], 3),
    ],
)
def test_in_a_run(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    matrix: str,
    args: list[str],
    passed: int,
) -> None:
    which, _, repeats = matrix.partition(" ")
    monkeypatch.setenv("BINLOG_TEST_MATRIX", which)
    monkeypatch.setenv("BINLOG_TEST_REPEATS", repeats)
    pytester.makepyfile(test_it=SUITE)
    pytester.makeconftest(
        """
        import pytest
        from tests.kit.fixtures import keep_those_in_turn, leave_slow_out

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(config, items):
            leave_slow_out(config, items)
            keep_those_in_turn(config, items)
        """
    )
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n by_turns(n): see docs\n slow: x\n"
    )
    pytester.inline_run("-p", "no:cacheprovider", *args).assertoutcome(passed=passed)
