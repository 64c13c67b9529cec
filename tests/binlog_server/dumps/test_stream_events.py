"""The events that a master makes for one client, beside the bytes that a MariaDB 10.11.19 sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_server.dumps.stream_events import StreamEvents

CAPTURE = Path(__file__).parents[2] / "data/captures/1011-16-filepos.jsonl"
VERSION = "10.11.19-MariaDB-0+deb12u1-log"
STARTED = 0x6B002B7B
FILE = "m-bin.000001"

ROTATE = (
    "00000000 04 01000000 2b000000 00000000 2000 0400000000000000 6d2d62696e2e303030303031 2ce4d00c"
)
GTID_LIST = "7b2b006b a3 01000000 1d000000 1d010000 0000 00000000 0000 43c64412"
DUMMY_LIST = "7b2b006b 0e 01000000 1d000000 1d010000 0800 01000000 2101 0e1dcffc"
FAKE_LIST = "00000000 a3 01000000 2b000000 23030000 2000 01000000 00000000 01000000 0300000000000000 0c71a48f"
HEARTBEAT = "00000000 1b 01000000 23000000 23030000 0000 6d2d62696e2e303030303031 71738c8f"


def made(*, capability: int = 4, checksum: bool = True, now: int = STARTED) -> StreamEvents:
    return StreamEvents(VERSION, 1, checksum=checksum, capability=capability, clock=lambda: now)


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize(
    ("ours", "recorded"),
    [
        (made().rotate(FILE), ROTATE),
        (made().file_gtid_list(BinlogState(), 285), GTID_LIST),
        (made(capability=0).file_gtid_list(BinlogState(), 285), DUMMY_LIST),
        (made(capability=1).file_gtid_list(BinlogState(), 285), DUMMY_LIST),
        (made(capability=2).file_gtid_list(BinlogState(), 285), ""),
        (made().gtid_list(BinlogState([Gtid(0, 1, 3)]), 0, 0x323), FAKE_LIST),
        (made().heartbeat(FILE, 0x323), HEARTBEAT),
    ],
)
def test_as_recorded(ours: bytes, recorded: str) -> None:
    assert ours == bytes_of(recorded)


def test_the_format_description_away_from_the_beginning() -> None:
    """`created` and the position are 0, whatever stands in the file."""
    chunks = (json.loads(line) for line in CAPTURE.read_text().splitlines())
    sent = b"".join(bytes.fromhex(c["x"]) for c in chunks if c.get("d") == "S>C" and "x" in c)
    at = sent.index(bytes_of("0f 01000000 fc000000 00000000 0000")) - 4
    recorded = sent[at : at + 252]
    now = int.from_bytes(recorded[:4], "little")
    assert made(now=now).file_description(at_beginning=False) == recorded


def test_without_checksums() -> None:
    events = made(checksum=False)
    for plain, summed in (
        (events.rotate(FILE), ROTATE),
        (events.heartbeat(FILE, 0x323), HEARTBEAT),
    ):
        assert append_checksum(plain) == bytes_of(summed)
    assert events.engine_description()[-5] == 0, "the algorithm that follows"
    assert made().engine_description()[-5] == 1
