"""Changes of one event that leave it whole outside: what reads its fields is met, not only what counts its bytes."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.compressed import COMPRESSED_TYPES, CompressedPart
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAGS_OFFSET, HEADER_SIZE, TYPE_OFFSET

from tests.fuzz.mutation import mutated

CHECKSUM_SIZE: Final = 4
_GTID_FLAGS_AT: Final = HEADER_SIZE + 12
_TYPES: Final = [type_ for type_ in range(256) if type_ < 50 or 155 < type_ < 180]
_ZLIB: Final = 0x80
_COMPRESSED_FROM: Final = {
    EventType.QUERY: EventType.QUERY_COMPRESSED,
    EventType.WRITE_ROWS_V1: EventType.WRITE_ROWS_COMPRESSED_V1,
    EventType.UPDATE_ROWS_V1: EventType.UPDATE_ROWS_COMPRESSED_V1,
    EventType.DELETE_ROWS_V1: EventType.DELETE_ROWS_COMPRESSED_V1,
}


def changed_event(event: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Of an event with its checksum; length and checksum are right in what it becomes."""
    plain = bytearray(event[:-CHECKSUM_SIZE])
    if len(plain) < HEADER_SIZE:
        return event
    for _ in range(rng.randrange(1, 3)):
        rng.choice(_CHANGES)(plain, rng, others)
    return append_checksum(bytes(plain))


def _type(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    event[TYPE_OFFSET] = rng.choice(_TYPES)


def _flags(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    event[FLAGS_OFFSET + rng.randrange(2)] ^= 1 << rng.randrange(8)


def _head(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """Time, server id, position."""
    at = rng.choice((0, 5, 13))
    event[at : at + 4] = rng.choice((0, 1, 2, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(4, "little")


def _body(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    event[HEADER_SIZE:] = mutated(bytes(event[HEADER_SIZE:]), rng, others, 3)


def _body_of_another(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    event[HEADER_SIZE:] = rng.choice(others)[HEADER_SIZE:-CHECKSUM_SIZE]


def _gtid_flags(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """Each of them says that something else stands behind it."""
    if event[TYPE_OFFSET] == EventType.GTID and len(event) > _GTID_FLAGS_AT:
        event[_GTID_FLAGS_AT] ^= 1 << rng.randrange(8)
        event += rng.randbytes(rng.randrange(40))
        if rng.random() < 0.5:
            event[_GTID_FLAGS_AT + 1 :] = rng.randbytes(rng.randrange(1, 150))


def _inside(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """What is compressed, changed and compressed again."""
    if event[TYPE_OFFSET] not in COMPRESSED_TYPES:
        return
    with contextlib.suppress(ProtocolError, zlib.error):
        part = CompressedPart.find(bytes(event))
        plain = mutated(zlib.decompress(event[part.data :]), rng, others, 3)
        event[part.begin :] = _packed(plain)


def _compress(event: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    """What is plain; the head of it wherever chance will have it, or where it is."""
    type_ = (
        _COMPRESSED_FROM.get(EventType(event[TYPE_OFFSET]))
        if event[TYPE_OFFSET] in _COMPRESSED_FROM
        else None
    )
    if type_ is None:
        return
    probe = bytes([*event[:TYPE_OFFSET], type_, *event[TYPE_OFFSET + 1 :]])
    begin = rng.randrange(HEADER_SIZE, len(event) + 1)
    if rng.random() < 0.9:
        with contextlib.suppress(ProtocolError):
            begin = _data_begin(probe)
    event[TYPE_OFFSET] = type_
    event[begin:] = _packed(mutated(bytes(event[begin:]), rng, others, 2))


def _data_begin(event: bytes) -> int:
    """Where the compressed data would have to begin: behind the head that any such event has plain."""
    for begin in range(HEADER_SIZE, len(event)):
        with contextlib.suppress(ProtocolError):
            if CompressedPart.find(event[:begin] + _packed(b"x")).begin == begin:
                return begin
    raise ProtocolError("no place for compressed data")


def _packed(plain: bytes) -> bytes:
    size = max(1, (len(plain).bit_length() + 7) // 8)
    return bytes([_ZLIB | size]) + len(plain).to_bytes(size, "big") + zlib.compress(plain)


_CHANGES: Final[Sequence[Callable[[bytearray, random.Random, Sequence[bytes]], None]]] = (
    _type, _flags, _head, _body, _body, _body, _body_of_another, _gtid_flags, _inside, _inside, _compress,
)  # fmt: skip
