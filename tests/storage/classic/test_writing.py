"""The bytes that are written, beside those of MariaDB 10.11 and 11.8: data/classic has binlogs of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import (
    laid_out,
    laid_out_events,
    laid_out_plainly,
    strip_checksum,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import (
    FLAG_IN_USE,
    HEADER_SIZE,
    LENGTH_OFFSET,
    TYPE_OFFSET,
    EventHeader,
)
from binlog_protocol.events.rotate import RotateEvent
from binlog_storage.classic.event_reader import CLASSIC_MAGIC, EventReader
from binlog_storage.classic.writing import (
    FILE_START,
    FLAG_AT,
    file_head,
    pieces_laid_out,
    rotate_event,
    stop_event,
)

from tests.storage.classic import binlog_files

SAMPLES = Path(__file__).parent.parent / "data" / "classic"
ALL_ENDS = [
    pytest.param(path, id=f"{path.parent.name}-{path.name}")
    for path in sorted(SAMPLES.glob("*/m-bin.0*"))
    if path.parent.name.startswith("1011-") or path.parent.name == "118-row-legacy-event-pos"
]
NO_ENDS = [
    pytest.param(path, id=f"{path.parent.name}-{path.name}")
    for path in sorted(SAMPLES.glob("118-*/m-bin.0*"))
]


def head_again(path: Path) -> bytes:
    """The head of a file of MariaDB, made here of what it says."""
    with EventReader(path) as reader:
        description = FormatDescription.parse(reader.next() or b"")
        gtids = GtidList.parse(
            strip_checksum(reader.next() or b"", description.checksum_algorithm)
        ).gtids
        event = strip_checksum(reader.next() or b"", description.checksum_algorithm)
    assert event[TYPE_OFFSET] == EventType.BINLOG_CHECKPOINT
    name = event[HEADER_SIZE + 4 :].decode()
    return file_head(description, gtids, name, description.checksum_algorithm)


def closed(data: bytes) -> bytes:
    """The same with the flag IN_USE clear."""
    assert data[FLAG_AT] & FLAG_IN_USE
    return data[:FLAG_AT] + bytes([data[FLAG_AT] & ~FLAG_IN_USE]) + data[FLAG_AT + 1 :]


@pytest.mark.parametrize("path", [*ALL_ENDS, *NO_ENDS])
def test_the_head_of_a_file(path: Path) -> None:
    data = path.read_bytes()
    made = head_again(path)
    if not data[FLAG_AT] & FLAG_IN_USE:
        made = closed(made)
    assert data.startswith(made)


@pytest.mark.parametrize("path", ALL_ENDS)
def test_whole_files(path: Path) -> None:
    """Head, groups, ROTATE and STOP; checkpoints in between are events that only stay where they are."""
    data = path.read_bytes()
    groups, reader = binlog_files.read(path, runs=False)
    algorithm = reader.checksum_algorithm
    normal = {group.payload for group in groups if group.gtid is not None}
    again = bytearray(head_again(path))
    if not data[FLAG_AT] & FLAG_IN_USE:
        again[:] = closed(bytes(again))
    pending = b""
    with EventReader(path, len(again)) as events:
        for event in events:
            header = EventHeader.parse(event)
            plain = strip_checksum(event, algorithm)
            plain = plain[:13] + bytes(4) + plain[17:]
            match header.type:
                case EventType.ROTATE:
                    name = RotateEvent.parse(strip_checksum(event, algorithm)).name
                    made = rotate_event(
                        name, len(again), algorithm, header.server_id, header.timestamp
                    )
                case EventType.STOP:
                    made = stop_event(len(again), algorithm, header.server_id, header.timestamp)
                case EventType.BINLOG_CHECKPOINT:
                    made = laid_out(plain, len(again), algorithm)
                case _:
                    pending += plain
                    if pending not in normal:
                        continue
                    made = laid_out_events(pending, len(again), algorithm)
                    assert made == laid_out_plainly(pending, len(again), algorithm)
                    in_pieces = pieces_laid_out(
                        (pending[at : at + 7] for at in range(0, len(pending), 7)),
                        len(again),
                        algorithm,
                    )
                    assert b"".join(in_pieces) == made
                    pending = b""
            again += made
    assert not pending
    assert bytes(again) == data


def test_ends_are_told_modulo_4_gib() -> None:
    event = binlog_files.standalone(binlog_files.simple(1)[0].gtid or (0, 0, 0)).payload  # type: ignore[arg-type]
    begin = (1 << 32) - 10
    first = laid_out_events(event, begin, 1)
    assert EventHeader.parse(first).end_position == EventHeader.parse(first).length - 10


@pytest.mark.parametrize("lie", [0, 18, 1 << 20])
def test_an_impossible_length_is_refused(lie: int) -> None:
    """By the loop in C as by its twin."""
    payload = bytearray(binlog_files.simple(1)[0].payload)
    payload[LENGTH_OFFSET : LENGTH_OFFSET + 4] = lie.to_bytes(4, "little")
    for lay_out in (laid_out_events, laid_out_plainly):
        for broken in (bytes(payload), bytes(payload[:18])):
            with pytest.raises(ProtocolError):
                lay_out(broken, 4, 1)
        assert lay_out(b"", 4, 1) == b""


def test_a_head_without_groups_before_it() -> None:
    description = FormatDescription("11.8.6-MariaDB", 7, created=5, timestamp=6)
    head = file_head(description, (), "binlog.000001", 1)
    assert head.startswith(CLASSIC_MAGIC)
    assert FormatDescription.parse(head[FILE_START:256]) == replace(
        description, checksum_algorithm=1, end_position=256, flags=FLAG_IN_USE
    )
    assert len(head) == 285 + 27 + len("binlog.000001")
