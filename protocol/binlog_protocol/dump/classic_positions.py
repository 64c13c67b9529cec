"""Positions for clients that need them, in a stream from a store whose files look different.

The groups of a store file keep their order and their file; a group that ends at byte `offset` of a store file ends at
position 2 * offset of the file that clients see. So a place has one position for every client, at any time, and the
position never goes back. Twice, because a client adds up the lengths of the events it gets, and checksums make an
event of 19 bytes and more longer by 4: the sum must not come before the position.

The events of a group lie in front of its end, one behind the other, as long as they are with this client's checksums;
between groups there are gaps that nothing lies in. So each event has a position, too, and a client whose connection
broke inside a group can go on with the next event.

A group may not fit: its data were written to the file before, or between other groups. Such a group is *overtaken* by
the sum of its own lengths. Its events are put beyond all positions of files, OVERTAKEN and up. The last event carries
the true end, and after it the client must be told by a ROTATE where it is.

How a replica counts (10.11, 11.8: slave.cc, queue_event): ROTATE sets its position; an event adds its length, and if
its end_position is larger than the sum, that is taken.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from binlog_protocol.dump.weaker_clients import Event
from binlog_protocol.events.checksum import CHECKSUM_SIZE, ChecksumAlgorithm, crc32
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import FLAGS_OFFSET, HEADER_SIZE, LENGTH_OFFSET, TYPE_OFFSET
from binlog_protocol.gtid import U32_MAX

POSITIONS_PER_BYTE: Final = 2
# Beyond the last position of a file of 1 GiB, the largest there is.
OVERTAKEN: Final = 1 << 31

_LENGTH_AND_END: Final = struct.Struct("<II")
assert LENGTH_OFFSET + _LENGTH_AND_END.size == FLAGS_OFFSET
_FORMAT_DESCRIPTION: Final = int(EventType.FORMAT_DESCRIPTION)


def position_of(offset: int) -> int:
    """The classic position of byte `offset` of a store file."""
    return offset * POSITIONS_PER_BYTE


def event_lengths(events: Sequence[Event], *, checksum: bool) -> list[int]:
    """Lengths of the events in bytes, as the client gets them."""
    added = CHECKSUM_SIZE if checksum else 0
    return [len(event) + added for event in events]


def event_ends(lengths: Sequence[int], end: int) -> list[int]:
    """The end positions of the events of a group that ends at position `end`; below 0 where they do not fit."""
    return list(accumulate(lengths, initial=end - sum(lengths)))[1:]


def overtaken_ends(lengths: Sequence[int], end: int) -> list[int]:
    """The same for a group that is overtaken: only its first and its last event have one."""
    ends = [0] * len(lengths)
    ends[0] = OVERTAKEN + lengths[0]
    ends[-1] = end
    return ends


def ends_behind(lengths: Sequence[int], end: int, before: int) -> tuple[list[int], bool]:
    """The end positions of a group's events, and whether it is overtaken: it does not fit behind `before`."""
    overtaken = end - sum(lengths) < before
    return (overtaken_ends if overtaken else event_ends)(lengths, end), overtaken


def sealed(events: Sequence[Event], ends: Sequence[int], *, checksum: bool) -> bytes:
    """The events with these end positions and, if wanted, their checksums, in one piece.

    A start marker (a stored format description, which has a checksum of its own) says which it is; it has no position.
    """
    parts: list[Event] = []
    for event, end in zip(events, ends, strict=True):
        if event[TYPE_OFFSET] == _FORMAT_DESCRIPTION:
            parts.append(_marker(event, checksum=checksum))
            continue
        length = len(event) + CHECKSUM_SIZE if checksum else len(event)
        head = sealed_header(event, length, end)
        body = event[HEADER_SIZE:]
        parts += (head, body)
        if checksum:
            parts.append(crc32(body, crc32(head)).to_bytes(CHECKSUM_SIZE, "little"))
    return b"".join(parts)


def sealed_header(event: Event, length: int, end: int) -> bytes:
    """The header of an event, of which nothing else need be there, with that length and end position."""
    return b"".join(
        (
            event[:LENGTH_OFFSET],
            _LENGTH_AND_END.pack(length, end & U32_MAX),
            event[FLAGS_OFFSET:HEADER_SIZE],
        )
    )


def _marker(event: Event, *, checksum: bool) -> bytes:
    algorithm = ChecksumAlgorithm.CRC32 if checksum else ChecksumAlgorithm.NONE
    description = FormatDescription.parse(bytes(event))
    return replace(description, checksum_algorithm=algorithm, end_position=0).build()
