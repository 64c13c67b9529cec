"""Histories of Hypothesis: what a test fails at becomes as short and simple as it can. It needs `hypothesis`, which
nothing else here imports.

    @given(histories(types=("int", "varchar")))
    def test_my_decoder(history):
        ...
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from binlog_server.testing.random_histories import RandomHistory, random_history

_GROUPS_MAX = 12  # by default: each draws some dozens of numbers


class _DrawnChance:
    """Numbers that Hypothesis gives, and makes smaller."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


@st.composite
def _histories(draw: st.DrawFn, groups: int, shape: dict[str, Any]) -> RandomHistory:
    count = draw(st.integers(0, groups))
    return random_history(_DrawnChance(draw), groups=count, **shape)


def histories(groups: int = _GROUPS_MAX, **shape: Any) -> st.SearchStrategy[RandomHistory]:
    """Histories of up to so many `groups`; else of a `Shape`. Raises `BadValue` when it is drawn from."""
    return _histories(groups, shape)
