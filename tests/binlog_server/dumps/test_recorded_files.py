"""Traditional files as a recorded master had them: what is sent from them, beside what that MariaDB sent."""

from __future__ import annotations

import asyncio

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_ARTIFICIAL, EventHeader
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.accounts.replica_policy import StreamStyle
from tests.binlog_server.compatibility.outcome import SERVER_ID, users
from tests.binlog_server.compatibility.peer import Peer
from tests.binlog_server.compatibility.recorded_files import events_of, files_of
from tests.binlog_server.compatibility.recordings import Recording, recordings
from tests.binlog_server.lab import Lab, within

# Without groups in it a stream does not say what the replica had of these files.
FILES = {
    name: files
    for name, recording in recordings().items()
    if recording.groups and (files := files_of(recording))
}


def disk_of(files: dict[str, bytes]) -> MemoryDisk:
    index = "".join(f"./{name}\n" for name in files).encode()
    return MemoryDisk({**files, "m-bin.index": index})


def without_times(event: bytes) -> bytes:
    """The same event whenever it is sent: one that is made for a stream has the time of then, and a CRC over it."""
    header = EventHeader.parse(event)
    if header.end_position and not header.flags & FLAG_ARTIFICIAL:
        return event
    return bytes(4) + event[4:-4]


def comparable(packets: list[bytes]) -> list[str]:
    """Lines that can be compared by eye, without heartbeats."""
    events = [without_times(event) for event in events_of(packets)]
    return [f"{EventType(e[4]).name} {e.hex()}" for e in events if e[4] != EventType.HEARTBEAT]


async def sent_by_us(recording: Recording, files: dict[str, bytes], count: int) -> list[str]:
    """The first events of our stream."""
    engine = ClassicEngine(disk_of(files), ClassicOptions(log_bin="m-bin"), as_it_lies=True)
    version = recording.greeting.server_version
    lab = Lab(
        engine,
        server_id=SERVER_ID,
        users=users(StreamStyle.CLASSIC),
        binlog_checksum=recording.checksum,
        server_version=version,
    )
    async with lab:
        peer = Peer(lab.server)
        assert peer.log_in(recording.login.request)[:1] == b"\0"
        for exchange in recording.commands:
            if exchange.is_dump:
                peer.command(exchange)
            elif exchange.answer and not exchange.sql.startswith("SET @rpl_semi_sync"):
                await peer.ask(exchange)
        packets: list[bytes] = []

        async def all_there() -> None:
            while len(comparable(packets)) < count:
                packets.extend(peer.packets())
                assert not any(packet[:1] == b"\xff" for packet in packets), packets[-1]
                await asyncio.sleep(0)

        await within(all_there())
        peer.shut_down()
        peer.end()
    return comparable(packets)[:count]


@pytest.mark.parametrize("name", FILES)
async def test_the_stream_is_the_recorded_one(name: str) -> None:
    recording = recordings()[name]
    recorded = comparable(recording.stream)
    if recorded[-1].startswith("BINLOG_CHECKPOINT"):
        del recorded[-1]  # in a last file without groups: ours goes out with its first one
    assert await sent_by_us(recording, FILES[name], len(recorded)) == recorded


def test_there_are_recordings_of_each_way() -> None:
    """By GTID and by file and position; with checksums and without; over several files."""
    found = [recordings()[name] for name in FILES]
    assert {recording.position is None for recording in found} == {True, False}
    assert {recording.checksum for recording in found} == {"CRC32", "NONE"}
    assert {len(files) for files in FILES.values()} == {1, 2}
    assert len(FILES) >= 5
