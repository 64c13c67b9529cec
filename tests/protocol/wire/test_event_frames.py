"""The framing loop, in Python and in C: each beside one event after the other, and beside each other."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire import event_frames as module
from binlog_protocol.wire import semi_sync
from binlog_protocol.wire.event_frames import (
    EventFrames,
    event_frames,
    frame_event,
    frame_plainly,
    number_plainly,
)
from hypothesis import example, given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]
HAS_C = module.frame is not frame_plainly
ANNOTATE = int(EventType.ANNOTATE_ROWS)

Frame = Callable[[Iterable[bytes], int, bytes, bool], tuple[bytearray, "array[int]"]]
Number = Callable[[bytearray, "array[int]", int], None]
Loops = tuple[Frame, Number]

LOOPS = [
    pytest.param((frame_plainly, number_plainly), id="python"),
    pytest.param(
        (module.frame, module.number),
        id="c",
        marks=pytest.mark.skipif(not HAS_C, reason="the speed-ups in C were not built"),
    ),
]
by_loops = pytest.mark.parametrize("loops", LOOPS)

EVENTS = st.builds(
    lambda type_, body: build_event(type_, body, server_id=1),
    st.sampled_from([2, 15, 16, 19, 23, 160, 162]),
    st.one_of(st.binary(max_size=60), st.integers(990, 1020).map(bytes)),
)


def frames_by(loops: Loops, payloads: Iterable[bytes], seq: int, *, annotate: bool) -> bytes:
    frame, number = loops
    data, offsets = frame(payloads, -1 if annotate else ANNOTATE, b"\0", True)
    number(data, offsets, seq)
    return bytes(data)


def plain_frames(payloads: list[bytes], seq: int, *, annotate: bool) -> bytes:
    """The plain twin of both: one event after the other."""
    frames = b""
    for payload in payloads:
        for event in split_events(payload):
            if annotate or event[4] != EventType.ANNOTATE_ROWS:
                frame, seq = frame_event(event, seq)
                frames += frame
    return frames


@by_loops
@given(
    groups=st.lists(st.lists(EVENTS, max_size=6), max_size=6),
    annotate=st.booleans(),
    seq=st.integers(0, 255),
)
def test_equals_one_event_after_the_other(
    loops: Loops, groups: list[list[bytes]], annotate: bool, seq: int
) -> None:
    payloads = [b"".join(events) for events in groups]
    assert frames_by(loops, payloads, seq, annotate=annotate) == plain_frames(
        payloads, seq, annotate=annotate
    )


@given(
    st.lists(st.lists(EVENTS, max_size=6), max_size=6),
    st.booleans(),
    st.lists(st.integers(0, 255), min_size=1, max_size=5),
)
@example([[build_event(16, b"", server_id=1)]], True, [7, 0, 7, 9, 0, 9])
def test_any_numbering_in_any_order(
    groups: list[list[bytes]], annotate: bool, seqs: list[int]
) -> None:
    payloads = [b"".join(events) for events in groups]
    frames = event_frames(payloads, annotate=annotate)
    kept = []
    for seq in seqs:
        kept.append((frames.at_sequence(seq), plain_frames(payloads, seq, annotate=annotate)))
    for given_out, expected in kept:  # none was changed after it was given out
        assert given_out == expected
        assert frames.size == len(expected)
    assert frames.packets == sum(
        annotate or event[4] != 160 for events in groups for event in events
    )


def outcome(
    frame: Frame,
    payloads: list[bytes],
    dropped_type: int,
    status: bytes = b"\0",
    *,
    markers: bool = True,
) -> Any:
    """What it returns, or the error that it raises."""
    try:
        return frame(payloads, dropped_type, status, markers)
    except ProtocolError as error:
        return str(error)


BROKEN = st.builds(
    lambda event, at, value: event[:at] + bytes([value]) + event[at + 1 :],
    EVENTS,
    st.integers(9, 12),
    st.sampled_from([0, 1, 18, 19, 20, 127, 128, 255]),
)
CUT = st.builds(lambda event, size: event[:size], EVENTS, st.integers(0, 30))
PAYLOADS = st.one_of(
    st.binary(max_size=80), st.lists(st.one_of(EVENTS, BROKEN, CUT), max_size=5).map(b"".join)
)


@pytest.mark.skipif(not HAS_C, reason="the speed-ups in C were not built")
@given(
    st.lists(PAYLOADS, max_size=5),
    st.sampled_from([-1, ANNOTATE]),
    st.sampled_from([b"\0", semi_sync.STATUS]),
    st.booleans(),
)
def test_c_equals_python_for_any_bytes(
    payloads: list[bytes], dropped_type: int, status: bytes, markers: bool
) -> None:
    assert outcome(module.frame, payloads, dropped_type, status, markers=markers) == outcome(
        frame_plainly, payloads, dropped_type, status, markers=markers
    )


@by_loops
def test_start_markers_are_left_out(loops: Loops) -> None:
    """The whole payload that begins with a format description; not one that has it behind another event."""
    event = build_event(16, bytes(8), server_id=1)
    marker = build_event(15, bytes(80), server_id=1)
    payloads = [marker, event, marker + event, b"", event + marker, marker[:5]]
    assert outcome(loops[0], payloads, -1, markers=False) == outcome(
        loops[0], [event, event + marker], -1
    )
    kept = outcome(loops[0], payloads[:-1], -1)
    assert len(kept[1]) == 6
    with pytest.raises(ProtocolError):
        loops[0](payloads, -1, b"\0", True)


@pytest.mark.skipif(not HAS_C, reason="the speed-ups in C were not built")
def test_c_equals_python_for_much_damage() -> None:
    """Long payloads, which C frames while other threads run, with one byte changed anywhere."""
    random = Random(7)
    event = build_event(23, bytes(50), server_id=1) + build_event(160, b"x" * 9, server_id=1)
    whole = event * 400
    for _ in range(300):
        payload = bytearray(whole)
        payload[random.randrange(len(payload))] = random.randrange(256)
        payloads = [bytes(payload[: random.randrange(len(payload))]), bytes(payload)]
        assert outcome(module.frame, payloads, ANNOTATE) == outcome(
            frame_plainly, payloads, ANNOTATE
        )


@by_loops
def test_payloads_from_an_iterator(loops: Loops) -> None:
    short = build_event(16, bytes(8), server_id=1)
    long = build_event(23, bytes(PACKET_PAYLOAD_MAX), server_id=1)
    for payloads in ([short, short], [short, long]):
        expected = plain_frames(payloads, 3, annotate=True)
        assert frames_by(loops, iter(payloads), 3, annotate=True) == expected


@by_loops
def test_an_offset_outside_is_an_error(loops: Loops) -> None:
    _, number = loops
    for offsets in ([3, 8], [2**63]):
        data = bytearray(8)
        with pytest.raises(IndexError):
            number(data, array("Q", offsets), 0)


@pytest.mark.skipif(not HAS_C, reason="the speed-ups in C were not built")
def test_c_refuses_other_types() -> None:
    from binlog_protocol.wire import _speedups

    wrong: Any = bytearray(30)
    for payloads in ([wrong], [b"", None], 5, None):
        with pytest.raises(TypeError):
            _speedups.frame(payloads, -1)  # type: ignore[arg-type]
    for data, offsets in ((b"12345678", array("Q")), (None, array("Q")), (wrong, None)):
        with pytest.raises((TypeError, BufferError)):
            _speedups.number(data, offsets, 0)  # type: ignore[arg-type]
    for seq in (-1, 256):
        with pytest.raises(OverflowError):
            _speedups.number(wrong, array("Q"), seq)


@by_loops
def test_sequence_numbers_wrap(loops: Loops) -> None:
    payload = build_event(16, bytes(8), server_id=1)
    data = frames_by(loops, [payload] * 1000, 250, annotate=True)
    size = len(payload) + 5
    assert [data[i * size + 3] for i in range(1000)] == [(250 + i) % 256 for i in range(1000)]


def test_numberings_are_shared() -> None:
    payload = build_event(16, bytes(8), server_id=1)
    frames = event_frames([payload] * 3, annotate=True)
    first, other = frames.at_sequence(250), frames.at_sequence(3)
    assert frames.at_sequence(250) is first
    assert frames.at_sequence(3) is other


@pytest.mark.by_turns(3)
@by_loops
@pytest.mark.parametrize(
    "length",
    [1023, 1024, PACKET_PAYLOAD_MAX - 2, PACKET_PAYLOAD_MAX - 1, PACKET_PAYLOAD_MAX, 20_000_000],
)
def test_long_events(loops: Loops, length: int) -> None:
    long = build_event(23, bytes(length - 19), server_id=1)
    short = build_event(16, bytes(8), server_id=1)
    payload = short + long + short
    data, offsets = loops[0]([payload], ANNOTATE, b"\0", True)
    assert data[3] == 0
    assert len(offsets) == 3 + (length + 1) // PACKET_PAYLOAD_MAX
    for seq in (0, 254):
        assert frames_by(loops, [payload], seq, annotate=False) == plain_frames(
            [payload], seq, annotate=False
        )


@by_loops
@pytest.mark.parametrize("length", [0, 1, 18, 28, 2**31, 2**32 - 1])
def test_impossible_lengths(loops: Loops, length: int) -> None:
    event = build_event(16, bytes(8), server_id=1)
    broken = event[:9] + length.to_bytes(4, "little") + event[13:]
    with pytest.raises(ProtocolError, match="offset 27"):
        loops[0]([event + broken], -1, b"\0", True)


@by_loops
@pytest.mark.parametrize("cut", range(1, 27))
def test_cut_payload(loops: Loops, cut: int) -> None:
    event = build_event(16, bytes(8), server_id=1)
    with pytest.raises(ProtocolError):
        loops[0]([event + event[:cut]], -1, b"\0", True)


def test_nothing() -> None:
    for payloads in ([], [b""]):
        frames = event_frames(payloads, annotate=False)
        assert isinstance(frames, EventFrames)
        assert frames.packets == 0
        assert frames.at_sequence(9) == b""


@pytest.mark.parametrize("pure", ["", "0", "1"])
def test_c_is_switched_off_by_the_environment(pure: str) -> None:
    program = (
        "from binlog_protocol.wire import event_frames as e; from binlog_storage.log import batch_reader as b;"
        "print(e.frame is e.frame_plainly, b.take_plain_commits is b.take_plain_commits_plainly)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "BINLOG_SERVER_PURE": pure},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    folders = ("protocol/binlog_protocol/wire", "storage/binlog_storage/ibb")
    built = all(any((ROOT / d).glob("_speedups.*.so")) for d in folders)
    expected = pure == "1" or not built
    assert done.stdout.split() == [str(expected)] * 2


@pytest.mark.skipif("CI" not in os.environ, reason="only CI is known to have a compiler")
def test_ci_has_them_built() -> None:
    assert HAS_C or os.environ.get("BINLOG_SERVER_PURE") == "1"
