"""A token bucket: never faster than its rate but for a tenth of a second, and not slower."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.accounts.replica_policy import RATE_MIN
from binlog_server.dumps.replica_stream import Throttle

BURST_S = 0.1


def run(rate: int, size: int, late_s: float = 0.0) -> list[tuple[float, int]]:
    """When which piece of `size` bytes goes, if timers fire so late."""
    now = 0.0
    throttle = Throttle(rate, now)
    sent = []
    while size:
        piece = min(size, throttle.piece_bytes)
        pause = throttle.pause(piece, now)
        if pause:
            now += pause + late_s
            continue
        sent.append((now, piece))
        size -= piece
    return sent


@pytest.mark.parametrize("rate", [RATE_MIN, 1_000_000, 123_456_789])
@pytest.mark.parametrize("late_s", [0.0, 0.001, 0.04])
def test_takes_as_long_as_the_rate_says(rate: int, late_s: float) -> None:
    sent = run(rate, rate * 3, late_s)
    assert sent[-1][0] == pytest.approx(3 - BURST_S, rel=0.02)


@given(rate=st.integers(RATE_MIN, 10**9), seconds=st.floats(0.01, 2), late_s=st.floats(0, 0.5))
def test_is_smooth(rate: int, seconds: float, late_s: float) -> None:
    """In no stretch of time more than the rate and one burst."""
    sent = run(rate, int(rate * seconds), late_s)
    for first in range(len(sent)):
        total = 0
        for now, piece in sent[first:]:
            total += piece
            assert total <= rate * (now - sent[first][0] + BURST_S) + 1


def test_no_gap_is_longer_than_a_piece() -> None:
    times = [now for now, _ in run(10_000, 50_000)]
    assert max(b - a for a, b in pairwise(times)) <= 0.051


def test_a_pause_earns_one_burst_only() -> None:
    throttle = Throttle(1000, 0.0)
    assert throttle.pause(100, 0.0) == 0
    assert throttle.pause(100, 3600.0) == 0
    assert throttle.pause(50, 3600.0) == pytest.approx(0.05)


def test_a_clock_that_goes_back_earns_nothing() -> None:
    throttle = Throttle(1000, 10.0)
    assert throttle.pause(100, 10.0) == 0
    assert throttle.pause(50, 5.0) == pytest.approx(0.05)
