"""The events of a group that comes in pieces cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import HEADER_SIZE, LENGTH_OFFSET
from binlog_protocol.limits import EVENT_BYTES_MAX

_LENGTH_END = LENGTH_OFFSET + 4


def split_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole events in normal form, one by one; holds one event and one piece. Raises `ProtocolError`."""
    held = bytearray()
    passed = 0
    for piece in pieces:
        held += piece
        at = 0
        while (length := _length(held, at, passed)) and at + length <= len(held):
            yield bytes(held[at : at + length])
            at += length
        del held[:at]
        passed += at
    if held:
        raise ProtocolError(
            f"a group ends inside an event: {len(held)} bytes of it at offset {passed}: {held[:24].hex(' ')}"
        )


def _length(held: bytearray, at: int, passed: int) -> int:
    """The length of the event that begins there; 0 while it cannot be told."""
    if len(held) - at < _LENGTH_END:
        return 0
    length = int.from_bytes(held[at + LENGTH_OFFSET : at + _LENGTH_END], "little")
    if not HEADER_SIZE <= length <= EVENT_BYTES_MAX:
        raise ProtocolError(
            f"event length {length} at offset {passed + at} of a group: {held[at : at + 24].hex(' ')}"
        )
    return length
