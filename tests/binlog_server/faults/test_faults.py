"""What faults may be ordered: the schema says what is wrong, and of several all or none are ordered."""

from __future__ import annotations

import tomllib

import pytest

from binlog_server.faults.faults import KINDS, STEPS, BadFault, FaultOrder, Faults
from tests.house import ROOT

WRONG = """
do = "error"
on = "tls"
errno = 1
---
do = "cut"
on = "lunch"
---
do = "throttle"
on = "login"
bytes_per_second = 5
---
do = "cut"
on = "connect"
account = "repl"
---
do = "delay"
statement = "SET"
seconds = 1
server_id = 5
---
do = "delay"
on = "login"
seconds = 1
heartbeats = true
---
do = "claim"
on = "connect"
---
do = "claim"
on = "connect"
without = "SSL,WINGS"
---
do = "claim"
on = "connect"
without = ","
---
do = "claim"
on = "format"
version = "5"
without = "SSL"
---
do = "heartbeat"
event = 1
---
do = "foreign_event"
event = 4
---
do = "foreign_event"
event = 4
event_type = 256
---
do = "foreign_event"
event = 1
event_type = 200
---
do = "reorder"
event = 4
---
do = "lose_ack"
after_seconds = 1
---
do = "cut"
event = 1
message = "for errors"
---
do = "cut"
event = 1
name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
---
do = "explode"
gtid = "0-1-1"
---
gtid = "0-1-1"
---
do = "cut"
---
do = "cut"
gtid = "0-1-1"
byte = 7
---
do = "cut"
gtid = "1-2"
---
do = "cut"
gtid = 5
---
do = "cut"
event = true
---
do = "cut"
event = -1
---
do = "delay"
event = 1
---
do = "cut"
event = 1
seconds = 2
---
do = "error"
event = 1
errno = 70000
---
do = "error"
event = 1
errno = 65535
---
do = "repeat"
gtid = "0-1-1"
event = 2
---
do = "leave_out"
event = 3
---
do = "delay"
byte = 3
seconds = 1
---
do = "garble"
after_seconds = 1
---
do = "delay"
event = 1
seconds = 1
inside = true
---
do = "cut"
event = 1
when = "now"
---
do = "delay"
event = 1
seconds = 1e18
---
do = "delay"
after_seconds = nan
seconds = 1
---
do = "error"
event = 1
errno = 1236
message = "one line\\nanother"
---
do = "cut"
on = "login"
account = "a\\u0000"
---
do = "cut"
statement = "  "
---
do = "error"
command = "COM_STMT_CLOSE"
errno = 1
---
do = "cut"
command = "COM_PING"
server_id = 5
---
do = "cut"
on = "login"
connection = 7
---
do = "cut"
on = "connect"
connection = 7
"""


class NoMark:
    """Of no store."""

    def discard(self) -> None: ...


@pytest.mark.parametrize("text", WRONG.split("---"))
def test_what_cannot_be_ordered(text: str) -> None:
    faults = Faults()
    with pytest.raises(BadFault):
        faults.add([{"do": "cut", "event": 1}, tomllib.loads(text)])
    assert faults.met() == [], "all or none"


def test_what_is_refused_is_told_in_words() -> None:
    for table, words in (
        ({"do": "delay", "event": 1}, "delay: seconds is missing"),
        ({"do": "cut", "event": 1, "errno": 5}, "cut: errno is for others: error"),
        ({"do": "cut", "on": "lunch"}, "on: 'lunch' is none of connect, tls, login"),
        ({"do": "repeat", "event": 2}, "repeat: not at an event; it is for a gtid alone"),
        ({"do": "cut", "event": 1.0}, "event: 1.0 is not a whole number"),
        ({"do": "delay", "event": 1, "seconds": "1"}, "seconds: '1' is not a number"),
        ({"do": "cut", "event": 1, "file": "f" * 4097}, "file: it is longer than 4096"),
        (5, "5 is no table"),
        ({"do": "cut", "place": 1}, "unknown: 'place'; there are do, name, gtid"),
    ):
        with pytest.raises(BadFault) as error:
            FaultOrder.of(table)  # type: ignore[arg-type, unused-ignore]
        assert str(error.value).startswith(words)


def test_names() -> None:
    faults = Faults()
    faults.add([{"do": "cut", "event": 1, "name": "fault1"}, {"do": "cut", "event": 2}])
    assert [one.name for one in faults.ordered()] == ["fault1", "fault2"]
    with pytest.raises(BadFault, match="fault1"):
        faults.add(
            [{"do": "cut", "event": 1, "name": "new"}, {"do": "cut", "event": 1, "name": "fault1"}]
        )
    assert len(faults.ordered()) == 2
    assert faults.drop("fault1")
    assert not faults.drop("fault1")


def test_every_order_of_the_page_can_be_given() -> None:
    page = (ROOT / "docs/pytest.md").read_text("utf-8")
    table = page.partition("| to have | order |")[2].partition("\n\n")[0]
    tables = [
        tomllib.loads("\n".join(line.split("`")[1::2]))
        for line in table.splitlines()
        if "`do = " in line
    ]
    faults = Faults()
    faults.die = lambda: None
    faults.add(tables, mark=NoMark())
    assert {one["do"] for one in tables} == KINDS.keys()
    assert {one.get("on") for one in tables} - {None, "format"} == STEPS.keys()


def test_a_thread_of_another_process_does_not_die() -> None:
    faults = Faults()
    with pytest.raises(BadFault, match="process=True"):
        faults.add([{"do": "cut", "event": 1}, {"do": "die", "on": "login"}])
    assert faults.met() == []


def test_the_page_has_every_kind_and_step() -> None:
    page = (ROOT / "docs/pytest.md").read_text("utf-8")
    assert [one for one in (*KINDS, *STEPS) if f"`{one}`" not in page] == []
