"""Types of the events in a stream that comes in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE

from benchmarks.raw_replica import DrainError

_STATUS_BYTES: Final = 1  # in front of each event
_TYPE_AT: Final = PACKET_HEADER_SIZE + _STATUS_BYTES + TYPE_OFFSET
_ERROR: Final = 0xFF


class EventScanner:
    """Finds the packets of a stream. For events that fit one packet."""

    def __init__(self) -> None:
        self._rest = b""

    def types(self, data: bytes) -> Iterator[int]:
        """The types of the events that `data` completes. Raises `DrainError` for an error packet."""
        buffer = self._rest + data
        at, end = 0, len(buffer)
        while at + _TYPE_AT < end:
            length = buffer[at] | buffer[at + 1] << 8 | buffer[at + 2] << 16
            if length == PACKET_PAYLOAD_MAX:
                raise DrainError("scanning is for small events only")
            following = at + PACKET_HEADER_SIZE + length
            if following > end:
                break
            if buffer[at + PACKET_HEADER_SIZE] == _ERROR:
                raise DrainError(f"the server sent an error: {buffer[at:following]!r}")
            yield buffer[at + _TYPE_AT]
            at = following
        self._rest = buffer[at:]
