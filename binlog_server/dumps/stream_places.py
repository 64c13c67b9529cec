"""The place of a replica in its stream, and the events that tell it so: one class for each style of stream.

*Engine* is the style of a MariaDB 12.3 master with an engine binlog: one artificial format description, then events
without positions. Unlike there, a ROTATE comes first, to a file that never ends. *Classic* is that of a traditional
binlog, by `binlog_protocol.dump.classic_positions`: each file of the store is one for the replica, begun by ROTATE,
format description and GTID_LIST.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from binlog_protocol.dump.classic_positions import position_of
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.gtid import BinlogState
from binlog_storage.engine import EngineReader, Position
from binlog_storage.ibb.page import PAGE_SIZE

from binlog_server.dumps.coordinates import classic_name
from binlog_server.dumps.replica_stream import ReplicaStream
from binlog_server.dumps.stream_events import StreamEvents

# What replicas of the engine style call the file they read. There must be a name, with a dot in it: the parallel
# appliers of 10.11.19 and 11.8.6 crash when they compare names without (compare_log_name), and old replicas stop on a
# heartbeat for another file than theirs. It is always the same: a replica whose connection broke inside a group goes on
# with that group only if the name is what it was.
STREAM_NAME: Final = "binlog.000001"


class StreamPlace(ABC):
    """The place of one replica. `cursor` is where the next events of the store come from.

    Args:
        registered: see `FrameStyle`.
    """

    def __init__(
        self, out: ReplicaStream, events: StreamEvents, engine: EngineReader, *, registered: bool
    ) -> None:
        self.cursor = Position(0, 0)
        self.inside = 0
        """Classic style: how far the replica has counted inside a large group."""
        self._out = out
        self._events = events
        self._engine = engine
        self._registered = registered

    @abstractmethod
    async def open(
        self, cursor: Position, file_no: int, position: int, state: BinlogState | None
    ) -> None:
        """Send the events that begin a stream from `cursor`.

        Args:
            file_no, position: where the replica is, in classic coordinates.
            state: the binlog state there; None without GTID.
        """

    @abstractmethod
    async def move(self, end: Position, *, overtaken: bool) -> None:
        """The replica has all groups before `end`. `overtaken`: the last was longer than its place."""

    @abstractmethod
    def gtid_list(self, state: BinlogState, flags: int) -> None:
        """Send a GTID_LIST: the binlog state here."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Send a heartbeat: there is nothing new behind this place."""


class EnginePlace(StreamPlace):
    """No positions: the replica adds up events."""

    async def open(
        self, cursor: Position, file_no: int, position: int, state: BinlogState | None
    ) -> None:
        """See `StreamPlace`."""
        self.cursor = cursor
        self._out.event(self._events.rotate(STREAM_NAME))
        self._out.event(self._events.engine_description())

    async def move(self, end: Position, *, overtaken: bool) -> None:
        """See `StreamPlace`."""
        self.cursor = end

    def gtid_list(self, state: BinlogState, flags: int) -> None:
        """See `StreamPlace`."""
        self._out.event(self._events.gtid_list(state, flags, 0))

    def heartbeat(self) -> None:
        """See `StreamPlace`. The replica stops on a heartbeat that lies before its sum."""
        position = FIRST_EVENT_POSITION + self._out.event_bytes
        self._out.event(self._events.heartbeat(STREAM_NAME, position))


class ClassicPlace(StreamPlace):
    """Files and positions in them."""

    _file_no = 0  # that the replica reads

    async def open(
        self, cursor: Position, file_no: int, position: int, state: BinlogState | None
    ) -> None:
        """See `StreamPlace`."""
        self.cursor = cursor
        if position == FIRST_EVENT_POSITION:
            await self._begin_file()
            return
        self._tell(file_no, position)
        if state is not None:
            self.gtid_list(state, 0)

    async def move(self, end: Position, *, overtaken: bool) -> None:
        """See `StreamPlace`."""
        self.cursor = end
        if end.file_no != self._file_no:
            await self._begin_file()
        elif overtaken and self._registered:
            # Others do not count; and they get one format description a file.
            self._tell(end.file_no, position_of(end.offset))

    def gtid_list(self, state: BinlogState, flags: int) -> None:
        """See `StreamPlace`."""
        self._out.event(self._events.gtid_list(state, flags, position_of(self.cursor.offset)))

    def heartbeat(self) -> None:
        """See `StreamPlace`."""
        name, position = classic_name(self.cursor.file_no), position_of(self.cursor.offset)
        self._out.event(self._events.heartbeat(name, self.inside or position))

    async def _begin_file(self) -> None:
        """The file of the cursor from its beginning; nothing of it lies before the cursor."""
        self._file_no, offset = self.cursor
        state = await asyncio.to_thread(self._engine.state_at, Position(self._file_no, PAGE_SIZE))
        self._out.event(self._events.rotate(classic_name(self._file_no)))
        self._out.event(self._events.file_description(at_beginning=True))
        gtid_list = self._events.file_gtid_list(state, position_of(offset))
        if gtid_list:
            self._out.event(gtid_list)

    def _tell(self, file_no: int, position: int) -> None:
        """The replica is there from now on, whatever it has counted. Never a ROTATE without a description behind."""
        self._file_no = file_no
        self._out.event(self._events.rotate(classic_name(file_no), position))
        self._out.event(self._events.file_description(at_beginning=False))
