"""The events of a group that comes in pieces: runs of whole events, and the parts of events too long to wait for.

A group of any size passes through in bounded memory: at most a run and a piece of it are held, or one event of a type
that is wanted whole.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import HEADER_SIZE, LENGTH_OFFSET, TYPE_OFFSET

# Bytes of events that are worth being worked on at once.
RUN_BYTES: Final = 512 * 1024
# Bytes of an event beyond which it comes in parts.
LONG_EVENT_BYTES: Final = 1 << 20


class EventRun(NamedTuple):
    """Whole events in normal form, one behind the other."""

    data: bytes


class EventPart(NamedTuple):
    """Consecutive bytes of one event in normal form; the first part has the whole header.

    length: of the whole event.
    """

    data: bytes
    length: int
    first: bool
    last: bool


def event_parts(
    pieces: Iterable[bytes],
    *,
    whole: Container[int] = (),
    run_bytes: int = RUN_BYTES,
    long_bytes: int = LONG_EVENT_BYTES,
) -> Iterator[EventRun | EventPart]:
    """The events of a group in normal form that is cut anywhere. `whole`: types of events that never come in parts.

    Raises `ProtocolError` where it is not made of events.
    """
    held = bytearray()
    wanted = run_bytes  # as many bytes are needed before anything can be done
    length = missing = 0  # of a long event that has begun
    for piece in pieces:
        rest = piece
        if missing:
            part, rest = piece[:missing], piece[missing:]
            missing -= len(part)
            yield EventPart(part, length, first=False, last=not missing)
        held += rest
        if len(held) < wanted:
            continue
        end, length = _whole_events(held)
        if end:
            yield EventRun(bytes(held[:end]))
            del held[:end]
        wanted = max(run_bytes, length)
        if length > long_bytes and held[TYPE_OFFSET] not in whole:
            missing = length - len(held)
            yield EventPart(bytes(held), length, first=True, last=False)
            held.clear()
            wanted = run_bytes
    end, _ = _whole_events(held)
    if end:
        yield EventRun(bytes(held[:end]))
    if missing or end < len(held):
        raise ProtocolError("the group ends inside an event: a part of it is missing")


def _whole_events(data: bytearray) -> tuple[int, int]:
    """The end of the whole events, and the length of the event that begins there; 0 if too little of it has come.

    Raises `ProtocolError`.
    """
    at, end = 0, len(data)
    from_bytes = int.from_bytes
    while end - at >= HEADER_SIZE:
        length = from_bytes(data[at + LENGTH_OFFSET : at + LENGTH_OFFSET + 4], "little")
        if length < HEADER_SIZE:
            header = data[at : at + HEADER_SIZE].hex()
            raise ProtocolError(f"an event inside a group has no possible length: {header}")
        if at + length > end:
            return at, length
        at += length
    return at, 0
