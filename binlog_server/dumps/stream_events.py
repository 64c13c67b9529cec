"""The events of a dump that are in no store: a master makes them for one client."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from binlog_protocol.dump.weaker_clients import understood
from binlog_protocol.events.checksum import ChecksumAlgorithm, append_checksum
from binlog_protocol.events.format_description import FORMAT_DESCRIPTION_SIZE, FormatDescription
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import FLAG_IN_USE
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION, RotateEvent
from binlog_protocol.gtid import U32_MAX, BinlogState


class StreamEvents:
    """All as bytes, with a checksum if `checksum` says so: what the client wants, or what its file has.

    Args:
        format_version: server version in the format description.
        server_id: ours.
        capability: of the client; see `binlog_protocol.dump.weaker_clients`.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        format_version: str,
        server_id: int,
        *,
        checksum: bool,
        capability: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._format_version = format_version
        self._server_id = server_id
        self.checksum = checksum
        self._capability = capability
        self._clock = clock

    def rotate(self, name: str, position: int = FIRST_EVENT_POSITION) -> bytes:
        """A ROTATE: the client is at that place from now on."""
        return self._finished(RotateEvent.fake(name, self._server_id, position).build())

    def engine_description(self) -> bytes:
        """The first event of a master with an engine binlog."""
        return FormatDescription(
            self._format_version,
            self._server_id,
            checksum_algorithm=self._algorithm,
            flags=FormatDescription.artificial("", 0).flags,
        ).build()

    def file_description(self, *, at_beginning: bool) -> bytes:
        """The first event of a file. Away from the beginning of the file it has no position."""
        end = FIRST_EVENT_POSITION + FORMAT_DESCRIPTION_SIZE if at_beginning else 0
        return FormatDescription(
            self._format_version,
            self._server_id,
            checksum_algorithm=self._algorithm,
            timestamp=int(self._clock()) & U32_MAX,
            end_position=end,
        ).build()

    def described(self, description: FormatDescription) -> bytes:
        """A format description of a file, as the file has it."""
        return replace(
            description,
            checksum_algorithm=self._algorithm,
            flags=description.flags & ~FLAG_IN_USE,
        ).build()

    def stored(self, event: bytes) -> bytes:
        """An event of a file, which has no checksum. Empty for a client that does not know such events."""
        known = understood(event, self._capability, annotate=False)
        return b"" if known is None else self._finished(bytes(known))

    def file_gtid_list(self, state: BinlogState, end_position: int) -> bytes:
        """The second event of a file: what came before it. Empty for a client that does not know such events."""
        event = GtidList(
            tuple(state.entries()),
            self._server_id,
            timestamp=int(self._clock()) & U32_MAX,
            end_position=end_position & U32_MAX,
        ).build()
        return self.stored(event)

    def gtid_list(self, state: BinlogState, flags: int, end_position: int) -> bytes:
        """A GTID_LIST between groups, for a client that has asked for GTIDs."""
        entries = state.entries()
        end_position &= U32_MAX
        made = GtidList.fake(entries, self._server_id, flags=flags, end_position=end_position)
        return self._finished(made.build())

    def heartbeat(self, name: str, position: int) -> bytes:
        """A heartbeat: there is nothing new behind that place."""
        return self._finished(HeartbeatEvent(name, position, self._server_id).build())

    @property
    def _algorithm(self) -> ChecksumAlgorithm:
        return ChecksumAlgorithm.CRC32 if self.checksum else ChecksumAlgorithm.NONE

    def _finished(self, event: bytes) -> bytes:
        return append_checksum(event) if self.checksum else event
