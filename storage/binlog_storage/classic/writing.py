"""The bytes of traditional binlog files, as MariaDB 10.11 writes them. Pure.

    fe 62 69 6e   format description   GTID list   binlog checkpoint   groups ...   rotate | stop

Each event ends with a CRC-32 if the file has checksums, and tells in its header where it ends in its file, modulo 2^32.
The format description has a CRC-32 always, made as if the file were closed: its flag IN_USE is set as long as the file
is written, and cleared without another CRC-32. MariaDB 11.8 writes 0 as the end of all events inside of groups but the
first and the last; here that is so in groups that were spilled while they were open.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from binlog_protocol.events.checksum import CHECKSUM_SIZE, laid_out
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FORMAT_DESCRIPTION_SIZE, FormatDescription
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAG_IN_USE,
    FLAGS_OFFSET,
    LENGTH_OFFSET,
    build_event,
    split_events,
    split_pieces,
)
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.gtid import Gtid

from binlog_storage.classic.event_reader import CLASSIC_MAGIC

FILE_START: Final = len(CLASSIC_MAGIC)
FLAG_AT: Final = FILE_START + FLAGS_OFFSET
"""The byte of a file that has the flag IN_USE."""
_NAME_LENGTH: Final = struct.Struct("<I")
_PIECE_BYTES: Final = 1 << 20

assert LENGTH_OFFSET + 4 == END_POSITION_OFFSET
assert FILE_START + FORMAT_DESCRIPTION_SIZE <= 512  # in the first sector, which a disk writes whole


def padded(gtid_event: bytes, begin: int, end: int, checksum_algorithm: int) -> bytes | None:
    """A GTID event in normal form as it fills a file from `begin` to `end`, with zeros.

    None if it is longer, or if there are other events behind it.
    """
    size = end - begin - (CHECKSUM_SIZE if checksum_algorithm else 0)
    if size < len(gtid_event) or len(next(split_events(gtid_event))) < len(gtid_event):
        return None
    event = gtid_event[:LENGTH_OFFSET] + _NAME_LENGTH.pack(size) + gtid_event[END_POSITION_OFFSET:]
    return laid_out(event.ljust(size, b"\0"), begin, checksum_algorithm)


def pieces_laid_out(
    pieces: Iterable[bytes], begin: int, checksum_algorithm: int
) -> Iterator[bytes]:
    """A group in normal form that comes in pieces as it lies in a file, in pieces of at least a mebibyte, but for the
    last one.
    """
    parts: list[bytes] = []
    size = 0
    for event in split_pieces(pieces):
        parts.append(laid_out(event, begin + size, checksum_algorithm))
        size += len(parts[-1])
        if size >= _PIECE_BYTES:
            yield b"".join(parts)
            parts.clear()
            begin, size = begin + size, 0
    if parts:
        yield b"".join(parts)


def description_laid_out(description: FormatDescription, checksum_algorithm: int) -> bytes:
    """The format description of a file that is being written, from offset `FILE_START` on."""
    closed = replace(
        description,
        checksum_algorithm=checksum_algorithm,
        end_position=FILE_START + FORMAT_DESCRIPTION_SIZE,
        flags=description.flags & ~FLAG_IN_USE,
    ).build()
    event = bytearray(closed)
    event[FLAGS_OFFSET] |= FLAG_IN_USE
    return bytes(event)


def file_head(
    description: FormatDescription,
    gtids: Iterable[Gtid],
    checkpoint: str,
    checksum_algorithm: int,
    second: bytes = b"",
) -> bytes:
    """The beginning of a file that is being written, up to its first group.

    Args:
        description: its server id and time are those of the other events, too; `created` is 0 but in the first file
            that a server writes.
        gtids: the state before the file, the last one of a domain as the last.
        checkpoint: name of the oldest file that a recovery must read.
        second: an event, in normal form, behind the format description.
    """
    server_id, timestamp = description.server_id, description.timestamp
    head = bytearray(CLASSIC_MAGIC + description_laid_out(description, checksum_algorithm))
    if second:
        head += laid_out(second, len(head), checksum_algorithm)
    gtid_list = GtidList(tuple(gtids), server_id, timestamp=timestamp).build()
    head += laid_out(gtid_list, len(head), checksum_algorithm)
    name = checkpoint.encode()
    event = build_event(
        EventType.BINLOG_CHECKPOINT,
        _NAME_LENGTH.pack(len(name)) + name,
        server_id=server_id,
        timestamp=timestamp,
    )
    head += laid_out(event, len(head), checksum_algorithm)
    return bytes(head)


def rotate_event(
    next_name: str, begin: int, checksum_algorithm: int, server_id: int, timestamp: int
) -> bytes:
    """The last event of a file that is followed by another."""
    event = RotateEvent(next_name, server_id, FILE_START, timestamp).build()
    return laid_out(event, begin, checksum_algorithm)


def stop_event(begin: int, checksum_algorithm: int, server_id: int, timestamp: int) -> bytes:
    """The last event of a file whose server has stopped."""
    event = build_event(EventType.STOP, b"", server_id=server_id, timestamp=timestamp)
    return laid_out(event, begin, checksum_algorithm)
