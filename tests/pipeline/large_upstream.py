"""A master with one group of any size, and a reader that tells how much memory it took.

`python -m tests.pipeline.large_upstream PORT` reads it, and prints the bytes of the group and the peak of its memory.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.server import ServerSlice
from binlog_pipeline.wanted import Wanted
from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList, GtidListFlags
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.gtid import Gtid, SlavePosition

from tests.binlog_server.lab import transaction
from tests.binlog_server.upstream import OPENING, PASSWORD, FakeUpstream, Visit
from tests.protocol.sample_events import row_body

EVENT_BYTES = 1 << 20
THE_GROUP = Gtid(0, 1, 1)


class LargeUpstream(FakeUpstream):
    """With so many events of a MiB in the group."""

    def __init__(self, events: int) -> None:
        super().__init__()
        self._events = events
        self._sending: list[asyncio.Task[None]] = []

    def _stream(
        self, machine: ServerConnection, writer: asyncio.StreamWriter, visit: Visit
    ) -> bool:
        self._sending.append(asyncio.create_task(self._send(machine, writer)))
        return True

    async def _send(self, machine: ServerConnection, writer: asyncio.StreamWriter) -> None:
        first, *rest = map(append_checksum, split_events(transaction(THE_GROUP)))
        rows = build_event(EventType.WRITE_ROWS_V1, row_body(EVENT_BYTES), server_id=1)
        until = GtidList.fake([THE_GROUP], 1, flags=GtidListFlags.UNTIL_REACHED)
        events = [*OPENING, first, *[append_checksum(rows)] * self._events, *rest]
        for event in (*events, append_checksum(until.build())):
            writer.write(machine.dump_event(event))
            await writer.drain()
        writer.write(machine.dump_end_eof())


def main(port: int) -> None:
    address = ServerAddress("127.0.0.1", port, "u", PASSWORD)
    part = ServerSlice(address, SlavePosition(), SlavePosition([THE_GROUP]), Wanted())
    for groups in part.read():
        print(sum(map(len, groups.pieces(0))))
    # Not `ru_maxrss`, which begins with what the process had before `exec`.
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    print(int(peak.split()[1]) << 10)


if __name__ == "__main__":
    main(int(sys.argv[1]))
