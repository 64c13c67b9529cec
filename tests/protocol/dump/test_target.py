"""A point in a history, as people say it."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from binlog_protocol.dump.target import HistoryEnd, NamedTarget, seconds_of, split_name

BERLIN = ZoneInfo("Europe/Berlin")
NOON = 1_795_172_400.0  # 2026-11-20 11:00:00 UTC

TIMES = {
    "2026-11-20 12:00:00": NOON,
    "2026-11-20T12:00:00": NOON,
    "2026-11-20T12:00": NOON,
    "2026-11-20T11:00:00Z": NOON,
    "2026-11-20 11:00:00 z": NOON,
    "2026-11-20T13:00:00+02:00": NOON,
    "2026-11-20 12:00:00.5": NOON + 0.5,
    "2026-11-20": NOON - 12 * 3600,
    "2026-10-25 00:30:00Z": 1_792_888_200.0,  # of a time that comes twice, but said in UTC
}


@pytest.mark.parametrize("text", TIMES)
def test_times(text: str) -> None:
    assert seconds_of(text, BERLIN) == TIMES[text]


NO_TIMES = {
    "": "neither a time",
    "yesterday": "neither a time",
    "2026-13-01 00:00:00": "neither a time",
    "2026-11-20 25:00:00": "neither a time",
    "0-1": "neither a time",
    "0-1-1,0-1-2": "domain",
    "99999999999-1-1": "99999999999",
    "2026-10-25 02:30:00": "comes twice, as clocks were put back: say 2026-10-25T00:30:00Z or 2026-10-25T01:30:00Z",
    "2026-03-29 02:30:00": "there is no 2026-03-29 02:30:00: clocks were put forward then",
    "1" * 600: "more than 512",
}


@pytest.mark.parametrize("text", NO_TIMES, ids=range(len(NO_TIMES)))
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=NO_TIMES[text]):
        HistoryEnd.parse(text, BERLIN)


def test_targets_say_what_they_are() -> None:
    assert str(HistoryEnd.parse("0-1-5, 1-2-7", UTC)) == "0-1-5,1-2-7"
    assert str(HistoryEnd.parse("2026-11-20T11:00:00Z", None)) == "2026-11-20T11:00:00Z"
    told = HistoryEnd.parse("2026-11-20 12:00:00", timezone(timedelta(hours=1)))
    assert str(told) == "2026-11-20 12:00:00 (2026-11-20T11:00:00Z)"


NAMES = {
    "repl": ("repl", None),
    "a+b": ("a+b", None),
    "a+stop": ("a+stop", None),
    "repl+until=": ("repl+until=", None),
    "repl+until=0-1-5": ("repl", NamedTarget("0-1-5", False)),
    "repl+until=0-1-5,1-2-7+stop": ("repl", NamedTarget("0-1-5,1-2-7", True)),
    "a+b+until=2026-11-20T12:00:00+01:00+stop": (
        "a+b",
        NamedTarget("2026-11-20T12:00:00+01:00", True),
    ),
    "repl+until=nonsense": ("repl", NamedTarget("nonsense", False)),
}


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert split_name(name) == NAMES[name]
