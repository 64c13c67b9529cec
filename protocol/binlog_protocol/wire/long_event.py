"""One event of the dump stream as packets, while it still comes: the twin of `event_frames.frame_event`.

The length of the event is known from its header, so each packet can be announced before its bytes are there.
"""

from __future__ import annotations

from array import array
from typing import Final

from binlog_protocol.events.header import EventHeader
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.event_frames import EventFrames
from binlog_protocol.wire.semi_sync import STATUS_WITH_ACK, STILL, PositionStep

_STATUS: Final = b"\0"
_SEQUENCE_OFFSET: Final = 3
_UNNUMBERED: Final = b"\0"


class LongEvent:
    """An event of `length` bytes. Give its bytes to `frame`, in order, at first those of its whole header.

    `semi_sync`: see `binlog_protocol.wire.semi_sync`; it is to be acknowledged, as it may be the last one of its group.
    """

    def __init__(self, length: int, *, semi_sync: bool = False) -> None:
        self._semi_sync = semi_sync
        self._status = STATUS_WITH_ACK if semi_sync else _STATUS
        self._unannounced = len(self._status) + length
        self._room = 0  # bytes of the packet that has begun which are still to come
        self._begun = False
        self._ended = False  # a packet has begun that is not full: the last one

    def frame(self, data: bytes) -> EventFrames:
        """The next bytes of the stream; the packets that begin in them are to be numbered."""
        step = STILL
        if not self._begun:
            self._begun = True
            if self._semi_sync:
                header = EventHeader.parse(data)
                step = PositionStep.of(header.type, header.length, header.end_position)
            data = self._status + data
        framed = bytearray()
        numbers = array("Q")
        at = 0
        while at < len(data):
            if not self._room:
                self._begin_packet(framed, numbers)
            taken = min(self._room, len(data) - at)
            framed += data[at : at + taken]
            self._room -= taken
            at += taken
        if not self._room and not self._unannounced and not self._ended:
            self._begin_packet(
                framed, numbers
            )  # a full packet says that more follows, if need be an empty one
        is_over = not self._room and not self._unannounced
        return EventFrames(framed, numbers, step, ack_wanted=self._semi_sync and is_over)

    def _begin_packet(self, framed: bytearray, numbers: array[int]) -> None:
        size = min(self._unannounced, PACKET_PAYLOAD_MAX)
        self._unannounced -= size
        self._room = size
        self._ended = size < PACKET_PAYLOAD_MAX
        numbers.append(len(framed) + _SEQUENCE_OFFSET)
        framed += size.to_bytes(3, "little") + _UNNUMBERED
