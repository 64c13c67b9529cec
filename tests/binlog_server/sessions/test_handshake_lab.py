"""The handshake lab (`compatibility/`): a client that meets our server goes on as it did with a real master."""

from __future__ import annotations

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.wire.packets import frame_packet

from binlog_server.accounts.replica_policy import StreamStyle
from tests.binlog_server.compatibility.fleet import FLEET, OF_HABIT, SCRIPTS
from tests.binlog_server.compatibility.outcome import STYLES, Outcome
from tests.binlog_server.compatibility.perform import perform
from tests.binlog_server.compatibility.recordings import (
    PacketsFromServer,
    Recording,
    recordings,
)
from tests.binlog_server.compatibility.replay import GIVES_UP, replay
from tests.binlog_server.compatibility.scripts import Script
from tests.binlog_server.compatibility.stream import Follower

RECORDINGS = recordings()


def require_served(recording: Recording, outcome: Outcome) -> None:
    """Some give up by themselves, and some are refused: no stream of the engine begins at a file and position."""
    if outcome.refused is not None and not recording.scenario.startswith(GIVES_UP):
        assert outcome.style is StreamStyle.ENGINE, recording.scenario
        assert recording.dump is not None
        assert recording.position is None


# Each by itself in the slow suite: `test_compatibility_page.py` holds them all at once in every run, and asks the same.
@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.value)
@pytest.mark.parametrize("name", RECORDINGS)
async def test_recorded(name: str, style: StreamStyle) -> None:
    outcome = await replay(RECORDINGS[name], style)
    assert outcome.differences == []
    require_served(RECORDINGS[name], outcome)


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.value)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_scripted(name: str, style: StreamStyle) -> None:
    assert (await perform(SCRIPTS[name], style)).differences == []


@pytest.mark.parametrize("script", OF_HABIT, ids=lambda script: script.client)
async def test_checks_by_habit(script: Script) -> None:
    assert (await perform(script)).differences == []


def test_each_step_of_the_fleet_says_what_follows() -> None:
    silent = [(s.name, step) for s in FLEET for step, expected in s.steps if not expected.then]
    assert {name for name, _ in silent} <= {s.name for s in FLEET if s.dump is not None}


def test_all_recordings_are_there() -> None:
    assert len(RECORDINGS) > 110
    assert sum(len(recording.groups) > 0 for recording in RECORDINGS.values()) > 40


@pytest.mark.parametrize("name", [n for n, r in RECORDINGS.items() if r.groups])
def test_streams_of_masters_are_borne(name: str) -> None:
    """What the lab asks of our streams holds for those of real masters."""
    recording = RECORDINGS[name]
    follower = Follower(checksums=recording.stream_begins_with_checksum)
    for payload in recording.stream:
        follower.take(payload)
    assert follower.complaints == []
    assert follower.groups == recording.groups


def test_sequence_numbers_are_looked_at() -> None:
    server = PacketsFromServer()
    server.expect(2)
    packets = [frame_packet(b"answer", sequence)[0] for sequence in (2, 3, 3)]
    assert server.feed(b"".join(packets)) == [b"answer"] * 3
    assert server.out_of_order == [3]


def test_a_stream_that_a_replica_would_not_bear() -> None:
    """The judge finds faults: a heartbeat before the replica's position, an event before the format description."""
    recording = RECORDINGS["118-04-heartbeat#1"]
    heartbeats = [p for p in recording.stream if p[5:6] == bytes((EventType.HEARTBEAT,))]
    early = heartbeats[0][:14] + (100).to_bytes(4, "little") + heartbeats[0][18:]
    follower = Follower(checksums=recording.stream_begins_with_checksum)
    for payload in recording.stream[: recording.stream.index(heartbeats[0])]:
        follower.take(payload)
    follower.take(early)
    assert follower.complaints == ["heartbeat at 100, the replica is at 2248"]
    groups = [p for p in recording.stream if p[5:6] == bytes((EventType.GTID,))]
    follower = Follower()
    follower.take(groups[0])
    assert "before the format description" in follower.complaints[0]
