"""Durations by buckets."""

from __future__ import annotations

import math

import pytest
from binlog_storage.disk.durations import BOUNDS_S, Durations


def test_buckets() -> None:
    durations = Durations()
    for seconds in (0.0, BOUNDS_S[0], 0.0003, 0.0003, BOUNDS_S[-1], 11.0):
        durations.add(seconds)
    assert durations.count == 6
    assert durations.total_s == pytest.approx(0.0007 + 10.0 + 11.0)
    cumulative = dict(durations.cumulative())
    assert list(cumulative) == [*BOUNDS_S, math.inf]
    assert cumulative[BOUNDS_S[0]] == 2, "a bound belongs to its bucket"
    assert cumulative[BOUNDS_S[2]] == 4
    assert cumulative[BOUNDS_S[-2]] == 4
    assert cumulative[BOUNDS_S[-1]] == 5
    assert cumulative[math.inf] == 6


def test_measured() -> None:
    durations = Durations()
    with durations.measured():
        pass
    with pytest.raises(OSError), durations.measured():
        raise OSError
    assert durations.count == 1, "what failed did not take its time"
    assert 0 < durations.total_s < 10
