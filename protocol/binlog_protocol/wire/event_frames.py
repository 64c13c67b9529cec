"""Events as packets of the dump stream: the hot path of the server.

Each event becomes one packet: header (length u24, sequence u8), status byte 00, event. Events of
0xFFFFFF bytes and more are continued in further packets without status byte. For replicas with
semi-sync the status byte is followed by two more; see `binlog_protocol.wire.semi_sync`.

The packets of a block of groups are built once, and serve every replica that is at that place:
`EventFrames.at_sequence` numbers them, in place for the first replica and those that count as it
does, in a copy for others.

`frame` and `number` are the two loops. They exist in C, too (`_speedups.c`), where it was built; the
twins here then frame what C leaves to them (events longer than a packet, and what has to be refused).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable
from itertools import cycle
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, LENGTH_OFFSET, TYPE_OFFSET
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE, frame_packet
from binlog_protocol.wire.semi_sync import (
    ACK_WANTED,
    FLAG_OFFSET,
    SEQUENCE_AFTER_ACK,
    STATUS,
    STILL,
    PositionStep,
)

_SEQ_OFFSET: Final = 3
# The status byte that says "an event follows".
_STATUS: Final = b"\0"

_TYPE_AND_LENGTH: Final = struct.Struct("<4xB4xI")
_TYPE_LENGTH_END: Final = struct.Struct("<4xB4xII")
assert _TYPE_AND_LENGTH.size == LENGTH_OFFSET + 4
assert struct.calcsize("<4x") == TYPE_OFFSET

_SEQUENCE: Final = bytes(range(256))
_ANNOTATE_ROWS: Final = int(EventType.ANNOTATE_ROWS)
_FORMAT_DESCRIPTION: Final = int(EventType.FORMAT_DESCRIPTION)
# The length of a packet that is continued.
_FULL: Final = PACKET_PAYLOAD_MAX.to_bytes(_SEQ_OFFSET, "little")
# No event has this type: nothing is dropped.
_NO_TYPE: Final = -1
# No packet has this number: nothing was numbered yet.
_UNNUMBERED: Final = -1
# Offsets are 64-bit numbers: one group may have gigabytes.
_OFFSET_CODE: Final = "Q"
assert array(_OFFSET_CODE).itemsize == 8


def _prefix(length: int, status: bytes) -> bytes:
    """Packet header with sequence number 0, and status, of an event of `length` bytes."""
    return (length + len(status)).to_bytes(3, "little") + b"\0" + status


# Most events are short; looking their prefix up takes a third of the time of packing it.
_SHORT_EVENT_MAX: Final = 1023
_PREFIXES: Final = {
    status: tuple(_prefix(length, status) for length in range(_SHORT_EVENT_MAX + 1))
    for status in (_STATUS, STATUS)
}


class EventFrames:
    """Packets of the stream, ready for any sequence number. Not for several threads."""

    __slots__ = (
        "_data",
        "_data_seq",
        "_seq_offsets",
        "_variant",
        "_variant_seq",
        "ack_wanted",
        "memory_bytes",
        "packets",
        "size",
        "step",
    )

    def __init__(
        self,
        data: bytearray,
        seq_offsets: array[int],
        step: PositionStep = STILL,
        *,
        ack_wanted: bool = False,
    ) -> None:
        """`seq_offsets`: where in `data` the sequence number of each packet lies. Both are taken over."""
        self._data = data
        self._seq_offsets = seq_offsets
        self._data_seq = _UNNUMBERED
        self._variant = data
        self._variant_seq = _UNNUMBERED
        self.packets = len(seq_offsets)
        """The number of packets: the steps of the sequence number, modulo 256."""
        self.size = len(data)
        """The size of all packets, in bytes."""
        self.memory_bytes = 2 * self.size + seq_offsets.itemsize * self.packets
        """The memory they may take, in bytes: the packets, another numbering of them, the offsets."""
        self.step = step
        """The step that they are for the position of the replica, which semi-sync counts."""
        self.ack_wanted = ack_wanted
        """The last event is to be acknowledged."""

    def sequence_after(self, seq: int) -> int:
        """The number of the packet that follows, if the first one had `seq`."""
        return SEQUENCE_AFTER_ACK if self.ack_wanted else (seq + self.packets) & 0xFF

    def at_sequence(self, seq: int) -> bytearray:
        """The packets numbered from `seq` (0..255) on. Not to be changed: it is shared.

        Two numberings are kept: that of the first call, and the last other one.
        """
        if seq == self._data_seq:
            return self._data
        if seq == self._variant_seq:
            return self._variant
        if self._data_seq == _UNNUMBERED:
            number(self._data, self._seq_offsets, seq)
            self._data_seq = seq
            return self._data
        variant = bytearray(self._data)
        number(variant, self._seq_offsets, seq)
        self._variant, self._variant_seq = variant, seq
        return variant


def event_frames(
    payloads: Iterable[bytes],
    *,
    annotate: bool,
    markers: bool = True,
    semi_sync: bool = False,
    step: PositionStep | None = None,
) -> EventFrames:
    """Frame the events of groups in normal form.

    Each payload holds whole events. ANNOTATE_ROWS events are left out unless `annotate`, and payloads that begin with
    a format description unless `markers`. With
    `semi_sync` the last event is to be acknowledged; `step` is what they do to the position of the
    replica, counted here if the caller does not know it.
    Raises `ProtocolError` where the length of an event is impossible.
    """
    dropped_type = _NO_TYPE if annotate else _ANNOTATE_ROWS
    if not semi_sync:
        return EventFrames(*frame(payloads, dropped_type, _STATUS, markers))
    data, seq_offsets = frame(payloads, dropped_type, STATUS, markers)
    if not seq_offsets:
        return EventFrames(data, seq_offsets)
    last = seq_offsets[-1] - _SEQ_OFFSET
    if step is None or len(data) > PACKET_PAYLOAD_MAX:
        step = STILL
        for last in _event_packets(data, seq_offsets):
            header = last + PACKET_HEADER_SIZE + len(STATUS)
            step = step.then(PositionStep.of(*_TYPE_LENGTH_END.unpack_from(data, header)))
    data[last + PACKET_HEADER_SIZE + FLAG_OFFSET] = ACK_WANTED
    return EventFrames(data, seq_offsets, step, ack_wanted=True)


def _event_packets(data: bytearray, seq_offsets: array[int]) -> Iterable[int]:
    """The offsets of the packets with which events begin."""
    continues = False
    for offset in seq_offsets:
        start = offset - _SEQ_OFFSET
        if not continues:
            yield start
        continues = data[start:offset] == _FULL


# -- the loops, in Python --------------------------------------------------------------------------


def frame_plainly(
    payloads: Iterable[bytes],
    dropped_type: int,
    status: bytes = _STATUS,
    markers: bool = True,
) -> tuple[bytearray, array[int]]:
    """The packets, all with sequence number 0, and where those numbers lie.

    Events of `dropped_type` are left out, and payloads that begin with a format description unless `markers`; `status`
    stands in front of each event.
    Raises `ProtocolError` where the length of an event is impossible.
    """
    unpack = _TYPE_AND_LENGTH.unpack_from
    prefixes = _PREFIXES[status]
    prefix_size = PACKET_HEADER_SIZE + len(status)
    whole_event_max = PACKET_PAYLOAD_MAX - 1 - len(status)
    parts: list[bytes] = []
    add = parts.append
    seq_offsets = array(_OFFSET_CODE)
    add_offset = seq_offsets.append
    offset = _SEQ_OFFSET
    for payload in payloads:
        position, end = 0, len(payload)
        if not markers and end > TYPE_OFFSET and payload[TYPE_OFFSET] == _FORMAT_DESCRIPTION:
            continue
        while position < end:
            try:
                type_, length = unpack(payload, position)
            except struct.error:
                raise _bad_length(payload, position) from None
            event_end = position + length
            if length < HEADER_SIZE or event_end > end:
                raise _bad_length(payload, position)
            if type_ != dropped_type:
                if length <= _SHORT_EVENT_MAX:
                    add(prefixes[length])
                    add(payload[position:event_end])
                    add_offset(offset)
                    offset += length + prefix_size
                elif length <= whole_event_max:
                    add(_prefix(length, status))
                    add(payload[position:event_end])
                    add_offset(offset)
                    offset += length + prefix_size
                else:
                    frames, _ = frame_event(payload[position:event_end], 0, status)
                    add(frames)
                    step = PACKET_HEADER_SIZE + PACKET_PAYLOAD_MAX
                    seq_offsets.extend(range(offset, offset + len(frames), step))
                    offset += len(frames)
            position = event_end
    return bytearray().join(parts), seq_offsets


def number_plainly(data: bytearray, seq_offsets: array[int], seq: int) -> None:
    """Write the sequence numbers, the first being `seq` (0..255)."""
    for offset, value in zip(seq_offsets, cycle(_SEQUENCE[seq:] + _SEQUENCE[:seq]), strict=False):
        data[offset] = value


def frame_event(event: bytes, seq: int, status: bytes = _STATUS) -> tuple[bytes, int]:
    """One event as packets; returns them and the sequence number that follows."""
    return frame_packet(status + event, seq)


def _bad_length(payload: bytes, position: int) -> ProtocolError:
    return ProtocolError(
        f"event at offset {position} of {len(payload)} bytes has no possible length: "
        f"{payload[position : position + HEADER_SIZE].hex()}"
    )


# -- the loops, in C where there is C --------------------------------------------------------------

frame: Callable[[Iterable[bytes], int, bytes, bool], tuple[bytearray, array[int]]] = frame_plainly
number: Callable[[bytearray, array[int], int], None] = number_plainly

try:
    from binlog_protocol.wire import _speedups
except ImportError:
    pass
else:

    def frame_by_c(
        payloads: Iterable[bytes],
        dropped_type: int,
        status: bytes = _STATUS,
        markers: bool = True,
    ) -> tuple[bytearray, array[int]]:
        """Frame in C; contract as `frame_plainly`."""
        kept = tuple(payloads)
        framed = _speedups.frame(kept, dropped_type, status, markers)
        if framed is None:
            return frame_plainly(kept, dropped_type, status, markers)
        data, offsets = framed
        return data, array(_OFFSET_CODE, offsets)

    frame = frame_by_c
    number = _speedups.number
