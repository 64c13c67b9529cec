"""INCIDENT events of an upstream: following stops with 1590, and goes on when somebody has said so."""

from __future__ import annotations

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.rotate import RotateEvent

from binlog_server.relay.incidents import Passed
from binlog_server.relay.slave_rows import slave_row
from tests.binlog_server.lab import until
from tests.binlog_server.relay.test_relay import Place, address, errno, place
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit, groups

__all__ = ["place"]

SAID = "The incident LOST_EVENTS occurred on the master. Message: error writing to the binary log"


def incident(end_position: int = 500, timestamp: int = 7) -> bytes:
    event = IncidentEvent("error writing to the binary log", 1, timestamp=timestamp).build()
    return append_checksum(event[:13] + end_position.to_bytes(4, "little") + event[17:])


async def stopped(place: Place) -> None:
    relay = place.relays[-1]
    await until(lambda: not relay.connections[0].runs)
    status = relay.connections[0].status
    assert (status.errno, status.stopped) == (1590, True)


async def test_following_stops_and_goes_on_when_it_is_told_to(place: Place) -> None:
    before, behind = groups("0-1-1"), groups("0-1-2")
    visits = [
        Visit(OPENING + before + [incident()] + behind),
        Visit([*OPENING, incident(), *behind]),
        Visit([*OPENING, incident(), *behind]),
    ]
    async with FakeUpstream(visits) as upstream:
        relay = await place.follow(upstream)
        await stopped(place)
        assert place.position == "0-1-1"
        row = slave_row(relay.connections[0], "0-1-1", 60)
        assert (row["Last_IO_Errno"], row["Last_SQL_Errno"], row["Last_Errno"]) == (0, 1590, 1590)
        assert str(row["Last_SQL_Error"]).startswith(f"{SAID}. Behind '0-1-1' changes are missing")
        assert "SET GLOBAL sql_slave_skip_counter = 1, START SLAVE" in str(row["Last_SQL_Error"])
        assert row["Slave_SQL_Running"] == "No"

        await relay.start("")  # not told: it stops again
        await stopped(place)
        relay.skip("", 1)
        assert slave_row(relay.connections[0], "", 60)["Skip_Counter"] == 1
        await relay.start("")
        await until(lambda: place.position == "0-1-2")
        assert relay.skip_counter("") == 0
        assert relay.connections[0].runs


async def test_one_that_was_passed_is_passed_again(place: Place) -> None:
    """Until a group comes: over reconnects and restarts."""
    visits = [
        Visit(OPENING + groups("0-1-1") + [incident()]),
        Visit([*OPENING, incident()], "cut"),
        Visit([*OPENING, incident()]),
        Visit([*OPENING, incident(), *groups("0-1-2"), incident(900, 8)]),
    ]
    async with FakeUpstream(visits) as upstream:
        first = await place.follow(upstream)
        await stopped(place)
        first.skip("", 1)
        await first.start("")
        await until(lambda: upstream.streaming == 2)
        assert first.connections[0].runs
        await first.close()
        place.relay()
        await until(lambda: place.position == "0-1-2")
        await stopped(place)  # at the next one
        assert upstream.visits == 4


async def test_a_number_of_incidents_up_to_the_next_group(place: Place) -> None:
    several = [incident(500), incident(600), incident(700)]
    visits = [
        Visit(OPENING + several),
        Visit(OPENING + several),
        Visit(OPENING + several + groups("0-1-1") + [incident(900)]),
    ]
    async with FakeUpstream(visits) as upstream:
        relay = await place.follow(upstream)
        await stopped(place)
        relay.skip("", 2)
        await relay.start("")
        await stopped(place)
        assert relay.skip_counter("") == 0
        relay.skip("", 9)
        await relay.start("")
        await until(lambda: place.position == "0-1-1")
        await stopped(place)
        assert relay.skip_counter("") == 0


async def test_when_it_may_be_said(place: Place) -> None:
    async with FakeUpstream([Visit(OPENING), Visit([*OPENING, incident()])]) as upstream:
        relay = place.relay()
        for name, number in (("", 1200), ("x", 1617)):
            with pytest.raises(ServerError) as error:
                relay.skip(name, 1)
            assert errno(error) == number
        await place.change(relay, **address(upstream))
        with pytest.raises(ServerError) as error:
            relay.skip("", 1)
        assert errno(error) == 1235
        relay.skip("", 0)
        await relay.start("")
        with pytest.raises(ServerError) as error:
            relay.skip("", 1)
        assert errno(error) == 1198
        await until(lambda: upstream.streaming == 1)
        upstream.cut()
        await stopped(place)
        relay.skip("", 1)
        await relay.reset("", everything=False)
        assert relay.skip_counter("") == 0


async def test_what_was_passed_is_forgotten_with_the_master(place: Place) -> None:
    visits = [Visit([*OPENING, incident()])] * 2
    async with FakeUpstream(visits) as upstream, FakeUpstream(visits) as other:
        relay = await place.follow(upstream)
        await stopped(place)
        relay.skip("", 1)
        await relay.start("")
        await until(lambda: place.state.get("relay_passed:") is not None)
        assert place.state.get("relay_passed:") == [1, 7, "m-bin.000001", 500]
        await relay.stop("")
        await place.change(relay, connect_retry=5)
        assert place.state.get("relay_passed:") is not None
        await place.change(relay, port=other.port)
        assert place.state.get("relay_passed:") is None
        await relay.start("")
        await stopped(place)


async def test_the_file_counts(place: Place) -> None:
    """The same offset in a later file of the master is another incident."""
    rotated = append_checksum(RotateEvent.fake("m-bin.000002", 1).build())
    visits = [Visit([*OPENING, incident()]), Visit([*OPENING, incident(), rotated, incident()])]
    async with FakeUpstream(visits) as upstream:
        relay = await place.follow(upstream)
        await stopped(place)
        relay.skip("", 1)
        await relay.start("")
        await stopped(place)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Passed(1, 50, "m-bin.000009", 700), True),
        (Passed(1, 40, "m-bin.000009", 600), True),
        (Passed(1, 40, "m-bin.000008", 900), True),
        (Passed(1, 50, "m-bin.000009", 701), False),
        (Passed(1, 50, "m-bin.000010", 4), False),
        (Passed(1, 50, "m-bin.1000000", 4), False),
        (Passed(2, 50, "m-bin.000009", 700), False),  # of another server
        (Passed(1, 51, "m-bin.000009", 700), False),  # behind a RESET MASTER there
    ],
)
def test_which_incidents_were_passed(other: Passed, expected: bool) -> None:
    assert Passed(1, 50, "m-bin.000009", 700).includes(other) is expected


def test_files_are_counted_beyond_six_digits() -> None:
    """As numbers: by letters the millionth file comes before the one in front of it."""
    before, behind = Passed(1, 50, "m-bin.999999", 700), Passed(1, 50, "m-bin.1000000", 4)
    assert behind.includes(before)
    assert not before.includes(behind)
