"""Who lags too far, and who only has to catch up."""

from __future__ import annotations

from collections.abc import Iterable

from binlog_storage.engine import Position
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.accounts.replica_policy import ReplicaPolicy
from binlog_server.dumps.lag_watch import _MARKS_MAX, Lag, LagWatch

MB = 1 << 20
GRACE_S = 60.0
BYTES = ReplicaPolicy(max_lag_bytes=10 * MB)
SECONDS = ReplicaPolicy(max_lag_seconds=100)


def looks(policy: ReplicaPolicy, history: Iterable[tuple[int, int]]) -> list[Lag]:
    """One look a second; (sent, durable end) in bytes of one file."""
    watch = LagWatch(policy)
    return [
        watch.look(float(now), Position(0, sent), Position(0, end), end - sent, GRACE_S)
        for now, (sent, end) in enumerate(history)
    ]


def dropped_at(policy: ReplicaPolicy, history: Iterable[tuple[int, int]]) -> int | None:
    return next((n for n, lag in enumerate(looks(policy, history)) if lag.is_over), None)


def test_within_the_limits() -> None:
    history = [(n * MB, (n + 10) * MB) for n in range(1000)]
    assert not any(lag.beyond for lag in looks(BYTES, history))
    assert not any(lag.beyond for lag in looks(SECONDS, history))


def test_who_stands_still_is_dropped_after_the_grace_period() -> None:
    history = [(0, n * MB) for n in range(1000)]
    assert dropped_at(BYTES, history) == 11 + 60
    # The first byte that it has not was seen at 1; more than 100 seconds later it is 102.
    assert dropped_at(SECONDS, history) == 102 + 60


def test_who_takes_all_that_it_gets_is_not_judged() -> None:
    watch = LagWatch(BYTES)
    start, end = Position(0, 0), Position(0, 20 * MB)
    for now in range(100):
        lag = watch.look(float(now), start, end, 20 * MB, GRACE_S, excused=True)
        assert lag.beyond
        assert not lag.is_over
    found = [watch.look(float(now), start, end, 20 * MB, GRACE_S) for now in range(100, 160)]
    assert [lag.is_over for lag in found] == [False] * 59 + [True]


def test_a_pause_of_the_server_is_not_the_time_of_the_replica() -> None:
    watch = LagWatch(BYTES)
    times = [*range(30), *range(130, 200), *range(1200, 1300)]
    found = [
        (now, watch.look(float(now), Position(0, 0), Position(0, 20 * MB), 20 * MB, GRACE_S))
        for now in times
    ]
    over = [now for now, lag in found if lag.is_over]
    assert over[0] == 60 + (130 - 29 - 5), "what is longer than five seconds does not count"
    assert found[30][1].drops_in_s == 60 - 29 - 5


def test_one_group_that_does_not_go_out_is_lag_in_seconds_alone() -> None:
    history = [(0, 1000)] * 1000
    assert dropped_at(SECONDS, history) == 101 + 60
    assert dropped_at(BYTES, history) is None


def test_an_old_position_may_catch_up_for_as_long_as_it_takes() -> None:
    """Far beyond both limits from the beginning, and nearer by 1 MB each second."""
    history = [(n * 2 * MB, 50_000 * MB + n * MB) for n in range(40_000)]
    both = ReplicaPolicy(max_lag_bytes=10 * MB, max_lag_seconds=100)
    found = looks(both, history)
    assert found[0].beyond == "MAX_LAG_BYTES 10485760"
    assert not any(lag.is_over for lag in found)


def test_who_keeps_its_distance_is_not_nearer() -> None:
    history = [(n * MB, (n + 500) * MB) for n in range(1000)]
    assert dropped_at(BYTES, history) == 60


def test_who_stops_catching_up_is_dropped_in_two_periods_at_most() -> None:
    history = [(min(n, 130) * MB, 500 * MB) for n in range(1000)]
    assert dropped_at(BYTES, history) == 240  # 120 to 180 it was nearer in the end
    assert 2 * GRACE_S > 240 - 130


def test_back_within_the_limits_the_period_begins_anew() -> None:
    history = [(0 if n % 60 else 15 * MB, 20 * MB) for n in range(1000)]
    found = looks(BYTES, history)
    assert any(lag.beyond for lag in found)
    assert not any(lag.is_over for lag in found)


def test_what_is_said_before() -> None:
    (*_, lag) = looks(BYTES, [(0, 20 * MB)] * 31)
    assert (lag.beyond, lag.drops_in_s, lag.is_over) == ("MAX_LAG_BYTES 10485760", 30.0, False)


def test_seconds_are_since_the_first_unsent_byte_became_durable() -> None:
    """One write at each full 10 seconds; the replica is always three of them behind."""
    history = [(max(0, n // 10 - 3) * MB, n // 10 * MB) for n in range(300)]
    for now, lag in enumerate(looks(SECONDS, history)):
        assert lag.behind_s == (min(now - 10, 20 + now % 10) if now >= 10 else 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=200))
def test_seconds_are_those_of_a_plain_twin(steps: list[tuple[int, int]]) -> None:
    sent = end = 0
    history = []
    for taken, written in steps:
        end += written
        sent = min(end, sent + taken)
        history.append((sent, end))
    ends = [end for _, end in history]
    for now, lag in enumerate(looks(SECONDS, history)):
        sent, end = history[now]
        first = next(n for n, seen in enumerate(ends) if seen > sent) if sent < end else now
        assert lag.behind_s == now - first
        assert lag.behind_bytes == end - sent


def test_days_behind_cost_no_memory() -> None:
    watch = LagWatch(SECONDS)
    for now in range(20_000):
        lag = watch.look(float(now), Position(0, 0), Position(0, now + 1), now + 1, 1e9)
        assert len(watch._marks) <= _MARKS_MAX
    assert lag.behind_s == 19_999
