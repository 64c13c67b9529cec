"""Recorded histories told again: when each group is due, and what is logged."""

from __future__ import annotations

from math import inf, nan

import pytest
from binlog_protocol.errors import BadValue

from binlog_server.testing.replay import Pace
from binlog_server.testing.running import running_master
from binlog_server.testing.waiting import until


@pytest.mark.parametrize(
    ("pace", "due"),
    [
        (Pace(), [0, 0, 10, 11]),
        (Pace(speed=10), [0, 0, 1, 1.1]),
        (Pace(speed=10, longest_gap=0.5), [0, 0, 0.5, 0.6]),
        (Pace(longest_gap=0), [0, 0, 0, 0]),
        (Pace(rate=4), [0, 0.25, 0.5, 0.75]),
    ],
)
def test_when_groups_are_due(pace: Pace, due: list[float]) -> None:
    recorded = [100, 100, 110, 111]
    assert [pace.due(second) for second in recorded] == pytest.approx(due)
    last = due[-1] + (0.25 if due[1] else 0)
    pace.again()
    assert pace.due(5) == pytest.approx(last)


def test_a_clock_that_was_set_back_is_no_gap() -> None:
    pace = Pace()
    assert [pace.due(second) for second in (50, 40, 41)] == [0, 0, 1]


@pytest.mark.parametrize(
    "wrong",
    [{"speed": 0}, {"rate": -1}, {"longest_gap": -inf}]
    + [{name: nan} for name in ("speed", "rate", "longest_gap")],
)
def test_paces_that_are_none(wrong: dict[str, float]) -> None:
    with pytest.raises(BadValue):
        Pace(**wrong)


def test_a_recording_is_told_twice_and_for_ever() -> None:
    with running_master(server_id=7) as recorded, running_master() as master:
        recorded.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY)")
        recorded.stop()
        replay = master.replay(recorded.directory, longest_gap=0, loop=2)
        assert replay.wait() == "0-7-4"
        assert replay.count == 4
        events = master.sql("SHOW BINLOG EVENTS")
        assert sum("CREATE DATABASE" in event["Info"] for event in events) == 2
        for_ever = master.replay(recorded.directory, rate=500, loop=0)
        until(lambda: for_ever.count > 4, "it goes on")
        end = for_ever.stop()
        assert master.gtid_binlog_pos == end
        assert for_ever.stop() == end
        for wrong in (-1, 1.5):
            with pytest.raises(BadValue, match="loop"):
                master.replay(recorded.directory, loop=wrong)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="nowhere"):
            master.replay("/nowhere/at/all")
