"""Groups of traditional binlog files: the same items as `offline` gives, from the other format.

    fe 62 69 6e, then events one behind the other (protocol/events/header.py), the first a format description

A group lies whole in one file. Relay logs and encrypted files are refused; a file that was not closed may end inside a
group, which is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from protocol.errors import ProtocolError
from protocol.event_group import EventGroup, EventGroupAssembler
from protocol.events.event_type import EventType
from protocol.events.header import HEADER_SIZE, TYPE_OFFSET, EventHeader
from storage.errors import NotAStore
from storage.ibb.chunk import Position
from storage.inspection.groups import OfflineGroup

CLASSIC_MAGIC = b"\xfebin"


def classic_groups(paths: Sequence[Path]) -> Iterator[OfflineGroup]:
    """In the order of the paths; `place` counts the files from 0. Raises `NotAStore` for what cannot be read."""
    for number, path in enumerate(paths):
        with path.open("rb") as file:
            try:
                yield from _file_groups(path.name, number, file)
            except ProtocolError as error:
                raise NotAStore(f"{path} at offset {file.tell()}: {error}") from None


def _file_groups(name: str, number: int, file: BinaryIO) -> Iterator[OfflineGroup]:
    if file.read(len(CLASSIC_MAGIC)) != CLASSIC_MAGIC:
        raise NotAStore(f"{name} is no binlog file")
    assembler = EventGroupAssembler()
    start = file.tell()
    while (event := _event(file)) is not None:
        if event[TYPE_OFFSET] == EventType.START_ENCRYPTION:
            raise NotAStore(f"{name} is encrypted: only the server that wrote it can read it")
        if event[TYPE_OFFSET] == EventType.GTID:
            start = file.tell() - len(event)
        item = assembler.feed(event)
        if item is None:
            continue
        if isinstance(item, EventGroup):
            yield OfflineGroup(
                name, Position(number, start), item.gtid, _timestamp(item.payload), [item.payload]
            )
        else:
            here = Position(number, file.tell() - len(event))
            yield OfflineGroup(name, here, None, _timestamp(item.payload), [item.payload])


def _timestamp(payload: bytes) -> int:
    return EventHeader.parse(payload[:HEADER_SIZE]).timestamp


def _event(file: BinaryIO) -> bytes | None:
    """The next event; None at the end, or when it is not whole."""
    head = file.read(HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return None
    length = EventHeader.parse(head).length
    body = file.read(length - HEADER_SIZE)
    return head + body if len(body) == length - HEADER_SIZE else None
