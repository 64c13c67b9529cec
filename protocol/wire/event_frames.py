"""Events as packets of the dump stream: the hot path of the server.

Each event becomes one packet: header (length u24, sequence u8), status byte 00, event. Events of
0xFFFFFF bytes and more are continued in further packets without status byte.

The packets of a block of groups are built once, with sequence numbers from 0 on, and serve every
replica that is at that place: `EventFrames.at_sequence` patches one byte per packet in a copy.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from itertools import cycle
from typing import Final

from protocol.errors import ProtocolError
from protocol.events.event_type import EventType
from protocol.events.header import HEADER_SIZE, LENGTH_OFFSET, TYPE_OFFSET
from protocol.limits import PACKET_PAYLOAD_MAX
from protocol.wire.packets import PACKET_HEADER_SIZE, frame_packet

_SEQ_OFFSET: Final = 3
# The status byte that says "an event follows".
_STATUS: Final = b"\0"
_PREFIX_SIZE: Final = PACKET_HEADER_SIZE + len(_STATUS)
# The longest event that fits one packet together with the status byte.
_WHOLE_EVENT_MAX: Final = PACKET_PAYLOAD_MAX - 1 - len(_STATUS)

_TYPE_AND_LENGTH: Final = struct.Struct("<4xB4xI")
assert _TYPE_AND_LENGTH.size == LENGTH_OFFSET + 4
assert struct.calcsize("<4x") == TYPE_OFFSET

_SEQUENCE: Final = bytes(range(256))
# No event has this type: nothing is dropped.
_NO_TYPE: Final = -1


def _prefix(length: int) -> bytes:
    """Packet header with sequence number 0, and status byte, of an event of `length` bytes."""
    return (length + len(_STATUS)).to_bytes(3, "little") + b"\0" + _STATUS


# Most events are short; looking their prefix up takes a third of the time of packing it.
_SHORT_EVENT_MAX: Final = 1023
_PREFIXES: Final = tuple(_prefix(length) for length in range(_SHORT_EVENT_MAX + 1))


class EventFrames:
    """Packets of the stream, ready for any sequence number. Not for several threads."""

    __slots__ = ("_variant", "_variant_seq", "data", "seq_offsets")

    def __init__(self, data: bytearray, seq_offsets: array[int]) -> None:
        """`seq_offsets`: where in `data` the sequence number of each packet lies."""
        self.data = data
        self.seq_offsets = seq_offsets
        self._variant = data
        self._variant_seq = -1
        _number(data, seq_offsets, 0)
        self._variant_seq = 0

    @property
    def packets(self) -> int:
        """The number of packets: how far the sequence number moves, modulo 256."""
        return len(self.seq_offsets)

    @property
    def memory_bytes(self) -> int:
        """What they may take: the packets, the last numbering of them that was asked for, the offsets."""
        return 2 * len(self.data) + self.seq_offsets.itemsize * len(self.seq_offsets)

    def at_sequence(self, seq: int) -> bytearray:
        """The packets numbered from `seq` on. Not to be changed: the last one asked for is kept."""
        if seq == self._variant_seq:
            return self._variant
        if seq == 0:
            return self.data
        variant = bytearray(self.data)
        _number(variant, self.seq_offsets, seq)
        self._variant, self._variant_seq = variant, seq
        return variant


def _number(data: bytearray, seq_offsets: array[int], seq: int) -> None:
    """Write the sequence numbers, the first being `seq`."""
    for offset, number in zip(seq_offsets, cycle(_SEQUENCE[seq:] + _SEQUENCE[:seq]), strict=False):
        data[offset] = number


def event_frames(payloads: Iterable[bytes], *, annotate: bool) -> EventFrames:
    """Frame the events of groups in normal form.

    Each payload holds whole events. ANNOTATE_ROWS events are left out unless `annotate`.
    Raises `ProtocolError` where the length of an event is impossible.
    """
    dropped_type = _NO_TYPE if annotate else int(EventType.ANNOTATE_ROWS)
    unpack = _TYPE_AND_LENGTH.unpack_from
    parts: list[bytes] = []
    add = parts.append
    seq_offsets = array("L")
    add_offset = seq_offsets.append
    offset = _SEQ_OFFSET
    for payload in payloads:
        position, end = 0, len(payload)
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
                    add(_PREFIXES[length])
                    add(payload[position:event_end])
                    add_offset(offset)
                    offset += length + _PREFIX_SIZE
                elif length <= _WHOLE_EVENT_MAX:
                    add(_prefix(length))
                    add(payload[position:event_end])
                    add_offset(offset)
                    offset += length + _PREFIX_SIZE
                else:
                    frames, _ = frame_event(payload[position:event_end], 0)
                    add(frames)
                    step = PACKET_HEADER_SIZE + PACKET_PAYLOAD_MAX
                    seq_offsets.extend(range(offset, offset + len(frames), step))
                    offset += len(frames)
            position = event_end
    return EventFrames(bytearray().join(parts), seq_offsets)


def frame_event(event: bytes, seq: int) -> tuple[bytes, int]:
    """One event as packets; returns them and the sequence number that follows."""
    return frame_packet(_STATUS + event, seq)


def _bad_length(payload: bytes, position: int) -> ProtocolError:
    return ProtocolError(
        f"event at offset {position} of {len(payload)} bytes has no possible length: "
        f"{payload[position : position + HEADER_SIZE].hex()}"
    )
