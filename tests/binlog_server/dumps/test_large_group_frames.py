"""Packets of large groups are those of the same groups in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from random import Random

import pytest
from binlog_protocol.dump.classic_positions import OVERTAKEN
from binlog_protocol.dump.weaker_clients import SlaveCapability
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_SKIP_REPLICATION, build_event
from binlog_protocol.groups.event_parts import event_parts
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import LargeGroup, PlacedGroup, Position

from binlog_server.dumps import large_group_frames
from binlog_server.dumps.frame_style import ClassicStyle, EngineStyle, FrameStyle
from binlog_server.dumps.large_group_frames import LargeGroupFrames
from tests.storage.groups import gtid_event

GTID = Gtid(0, 1, 1)
CHEAP: list[FrameStyle] = [
    EngineStyle(annotate, skip) for annotate, skip in product((True, False), repeat=2)
]
COSTLY = [
    style(annotate, skip, checksum, int(capability))
    for annotate, skip, (style, checksum, capability) in product(
        (True, False),
        (True, False),
        [
            (EngineStyle, True, SlaveCapability.GTID),
            *product([ClassicStyle], [True, False], [SlaveCapability.NONE, SlaveCapability.GTID]),
        ],
    )
]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        large_group_frames, "event_parts", partial(event_parts, run_bytes=300, long_bytes=500)
    )


def random_group(rng: Random, longest: int = 2500) -> bytes:
    """Events of all sizes, some of them annotations, some marked."""
    found = [gtid_event(GTID)]
    for _ in range(rng.randrange(1, 25)):
        type_ = rng.choice([EventType.QUERY, EventType.WRITE_ROWS_V1, EventType.ANNOTATE_ROWS])
        size = rng.choice([rng.randrange(60), rng.randrange(longest)])
        flags = rng.choice([0, 0, FLAG_SKIP_REPLICATION])
        found.append(build_event(type_, rng.randbytes(size), server_id=1, flags=flags))
    found.append(build_event(EventType.XID, bytes(8), server_id=1))
    return b"".join(found)


def large(payload: bytes, end: Position, rng: Random) -> LargeGroup:
    def pieces() -> Iterator[bytes]:
        at = 0
        while at < len(payload):
            size = rng.choice([1, 30, 1000])
            yield payload[at : at + size]
            at += size

    return LargeGroup(payload[:38], end, pieces)


def streamed(frames: LargeGroupFrames, sequence: int) -> bytes:
    found = b""
    for chunk in frames.chunks():
        found += chunk.frames.at_sequence(sequence)
        sequence = (sequence + chunk.frames.packets) % 256
    assert not chunk.inside_event
    return found


@pytest.mark.parametrize("style", CHEAP + COSTLY)
@pytest.mark.parametrize("seed", range(4))
def test_as_in_memory(style: FrameStyle, seed: int) -> None:
    rng = Random(seed)
    for _ in range(5):
        payload = random_group(rng)
        sequence = rng.randrange(256)
        before = Position(0, 16384)
        # About half of the groups fit in front of their end.
        end = Position(0, before.offset + rng.randrange(1, len(payload)))
        frames = LargeGroupFrames(large(payload, end, rng), style, before)
        found = streamed(frames, sequence)
        whole, overtaken = style.some(before, [PlacedGroup(payload, end)])
        assert frames.overtaken == overtaken
        assert found == whole.at_sequence(sequence)


@pytest.mark.parametrize("style", CHEAP + COSTLY)
def test_a_long_annotation_is_not_held(style: FrameStyle) -> None:
    """The text of a statement may be as long as any event: it passes in parts, unless a dummy takes its place."""
    annotation = build_event(EventType.ANNOTATE_ROWS, bytes(50_000), server_id=1)
    end_of_group = build_event(EventType.XID, bytes(8), server_id=1)
    payload = gtid_event(GTID) + annotation + end_of_group
    end = Position(0, 16384 + len(payload))
    frames = LargeGroupFrames(large(payload, end, Random(7)), style, Position(0, 16384))
    sizes = [chunk.frames.size for chunk in frames.chunks()]
    if not style.annotate and style.capability == SlaveCapability.NONE:
        assert max(sizes) > len(annotation)
    else:
        assert max(sizes) < 2000
        assert (sum(sizes) > len(annotation)) == style.annotate


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("style", [style for style in COSTLY if style.by_files])
def test_the_rest_of_a_group(style: FrameStyle) -> None:
    rng = Random(13861)  # a short one of nearly every kind of event: each of its bytes is asked for
    payload = random_group(rng, longest=700)
    end = Position(0, 16384 + len(payload))
    group = PlacedGroup(payload, end)
    for position in range(2 * end.offset - len(payload) - 100, 2 * end.offset + 1):
        rest = style.rest_of(group, position)
        frames = LargeGroupFrames(large(payload, end, rng), style, start=position)
        assert frames.begins_at(position) == (rest is not None)
        if rest is not None:
            assert streamed(frames, 3) == rest.at_sequence(3)


@pytest.mark.parametrize("overtaken", [False, True])
def test_the_place_inside(overtaken: bool) -> None:
    """What a replica has counted never exceeds what a heartbeat tells; see `HeartbeatEvent`."""
    rng = Random(3)
    payload = random_group(rng)
    style = ClassicStyle(annotate=True, skip_marked=False)
    end = Position(0, 16384 + len(payload))
    before = end._replace(offset=end.offset - 1) if overtaken else Position(0, 16384)
    counted = OVERTAKEN if overtaken else 2 * end.offset - len(payload)
    whole = 0
    for chunk in LargeGroupFrames(large(payload, end, rng), style, before).chunks():
        whole += chunk.frames.size - 5 * chunk.frames.packets
        assert chunk.position >= counted + whole
        assert chunk.inside_event or chunk.position == counted + whole
    assert whole == len(payload)


@pytest.mark.parametrize("style", [CHEAP[0], COSTLY[0], COSTLY[-1]])
def test_a_group_that_is_cut_short(style: FrameStyle) -> None:
    rng = Random(5)
    payload = random_group(rng)[:-3]
    group = large(payload, Position(0, 99999), rng)
    with pytest.raises(ProtocolError, match="ends inside an event"):
        list(LargeGroupFrames(group, style, Position(0, 16384)).chunks())
