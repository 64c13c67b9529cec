"""Recorded conversations of real MariaDB servers, and real binlog files.

`tests/data/captures/*.jsonl`: one TCP chunk per line; `c` connection, `d` direction (C>S or S>C),
`x` bytes in hex. `tests/protocol/data/*.binlog`: files as the server wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import split_events
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.wire.packets import Packet, PacketReader

CAPTURES = Path(__file__).parent.parent / "data" / "captures"
BINLOGS = Path(__file__).parent / "data"
_BINLOG_MAGIC = b"\xfebin"


@dataclass
class Conversation:
    """One TCP connection: chunks in the order in which they were seen."""

    name: str
    chunks: list[tuple[str, bytes]] = field(default_factory=list)

    def sent_by(self, direction: str) -> bytes:
        return b"".join(data for side, data in self.chunks if side == direction)

    @property
    def from_client(self) -> bytes:
        return self.sent_by("C>S")

    @property
    def from_server(self) -> bytes:
        return self.sent_by("S>C")


def capture_names() -> list[str]:
    return sorted(path.stem for path in CAPTURES.glob("*.jsonl"))


def conversations(name: str) -> list[Conversation]:
    return conversations_in(CAPTURES / f"{name}.jsonl")


def conversations_in(path: Path) -> list[Conversation]:
    found: dict[int, Conversation] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "x" in record:
            number = record["c"]
            conversation = found.setdefault(number, Conversation(f"{path.stem}#{number}"))
            conversation.chunks.append((record["d"], bytes.fromhex(record["x"])))
    return list(found.values())


def packets(data: bytes) -> Iterator[Packet]:
    """All packets; a cut-off last one is dropped."""
    reader = PacketReader(EVENT_BYTES_MAX)
    reader.feed(data)
    while (packet := reader.next_packet()) is not None:
        yield packet


def stream_events(conversation: Conversation) -> list[bytes]:
    """The events of the dump in a conversation, with their checksums; none if it has no dump."""
    requests = [packet.payload for packet in packets(conversation.from_client)]
    if not any(payload[:1] == b"\x12" for payload in requests[1:]):
        return []
    answers = [packet.payload for packet in packets(conversation.from_server)]
    start = next((i for i, p in enumerate(answers) if _is_event(p)), len(answers))
    return [payload[1:] for payload in answers[start:] if _is_event(payload)]


def _is_event(payload: bytes) -> bool:
    return (
        len(payload) > 20
        and payload[0] == 0
        and int.from_bytes(payload[10:14], "little") == len(payload) - 1
    )


def all_streams() -> list[tuple[str, list[bytes]]]:
    found = []
    for name in capture_names():
        for conversation in conversations(name):
            events = stream_events(conversation)
            if events:
                found.append((conversation.name, events))
    return found


def binlog_names() -> list[str]:
    return sorted(path.stem for path in BINLOGS.glob("*.binlog"))


def binlog_events(name: str) -> list[bytes]:
    """The events of a binlog file as they lie there."""
    data = (BINLOGS / f"{name}.binlog").read_bytes()
    assert data[:4] == _BINLOG_MAGIC
    events = list(split_events(data[4:]))
    assert events[0][4] == EventType.FORMAT_DESCRIPTION
    return events


def checksum_algorithm(events: list[bytes]) -> int:
    """That of the first format description among them."""
    first = next(event for event in events if event[4] == EventType.FORMAT_DESCRIPTION)
    return FormatDescription.parse(first).checksum_algorithm
