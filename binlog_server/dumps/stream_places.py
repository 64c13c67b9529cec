"""The place of a replica in its stream, and the events that tell it so: one class for each style of stream.

*Engine* is the style of a MariaDB 12.3 master with an engine binlog: one artificial format description, then events
without positions. Unlike there, a ROTATE comes first, to a file that never ends. *Classic* is that of a traditional
binlog, by `binlog_protocol.dump.classic_positions`: each file of the store is one for the replica, begun by ROTATE,
format description and GTID_LIST. Over a store of traditional files there is one style, that of their own server
(`TraditionalPlace`): it sends what the file has.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from binlog_protocol.dump.classic_positions import position_of
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.format_description import FORMAT_DESCRIPTION_SIZE
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.gtid import BinlogState
from binlog_storage.classic.binlog import FileHead
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import EngineReader, Position

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
        self.as_in_files = False
        """Traditional files: the client gets checksums where its file has them, whatever it has asked for."""
        self.inside = 0
        """Classic style: how far the replica has counted inside a large group."""
        self._out = out
        self._events = events
        self._engine = engine
        self._registered = registered

    @abstractmethod
    def name_of(self, file_no: int) -> str:
        """What the replica calls that file of the store."""

    @abstractmethod
    async def open(
        self,
        cursor: Position,
        file_no: int,
        position: int,
        state: BinlogState | None,
        reached: Sequence[tuple[int, BinlogState]] = (),
    ) -> None:
        """Send the events that begin a stream from `cursor`.

        Args:
            file_no, position: where the replica is, in the coordinates of its style.
            state: the binlog state there; None without GTID.
            reached: in a traditional file, the places in front of it at which the replica's position was reached in a
                domain, with the GTIDs of the file up to there.
        """

    @abstractmethod
    async def move(self, end: Position, *, overtaken: bool) -> None:
        """The replica has all groups before `end`. `overtaken`: the last was longer than its place."""

    def moves_silently(self, end: Position) -> bool:
        """Whether a `move` to that end would send nothing: then it may be made by `cursor`."""
        return end.file_no == self.cursor.file_no

    @abstractmethod
    def gtid_list(self, state: BinlogState, flags: int) -> None:
        """Send a GTID_LIST: the binlog state here."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Send a heartbeat: there is nothing new behind this place."""


class EnginePlace(StreamPlace):
    """No positions: the replica adds up events. `name`: of the one file."""

    def __init__(
        self,
        out: ReplicaStream,
        events: StreamEvents,
        engine: EngineReader,
        *,
        registered: bool,
        name: str = STREAM_NAME,
    ) -> None:
        super().__init__(out, events, engine, registered=registered)
        self.name = name

    def name_of(self, file_no: int) -> str:
        """See `StreamPlace`."""
        return self.name

    async def open(
        self,
        cursor: Position,
        file_no: int,
        position: int,
        state: BinlogState | None,
        reached: Sequence[tuple[int, BinlogState]] = (),
    ) -> None:
        """See `StreamPlace`."""
        self.cursor = cursor
        self._out.event(self._events.rotate(self.name))
        self._out.event(self._events.engine_description())

    async def move(self, end: Position, *, overtaken: bool) -> None:
        """See `StreamPlace`."""
        self.cursor = end

    def moves_silently(self, end: Position) -> bool:
        """See `StreamPlace`."""
        return True

    def gtid_list(self, state: BinlogState, flags: int) -> None:
        """See `StreamPlace`."""
        self._out.event(self._events.gtid_list(state, flags, 0))

    def heartbeat(self) -> None:
        """See `StreamPlace`. The replica stops on a heartbeat that lies before its sum."""
        position = FIRST_EVENT_POSITION + self._out.event_bytes
        self._out.event(self._events.heartbeat(self.name, position))


class ClassicPlace(StreamPlace):
    """Files and positions in them."""

    _file_no = 0  # that the replica reads

    def name_of(self, file_no: int) -> str:
        """See `StreamPlace`."""
        return classic_name(file_no)

    async def open(
        self,
        cursor: Position,
        file_no: int,
        position: int,
        state: BinlogState | None,
        reached: Sequence[tuple[int, BinlogState]] = (),
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
        name, position = self.name_of(self.cursor.file_no), position_of(self.cursor.offset)
        self._out.event(self._events.heartbeat(name, self.inside or position))

    async def _begin_file(self) -> None:
        """The file of the cursor from its beginning; nothing of it lies before the cursor."""
        self._file_no, offset = self.cursor
        state = await asyncio.to_thread(
            self._engine.state_at, Position(self._file_no, self._engine.file_start)
        )
        self._out.event(self._events.rotate(self.name_of(self._file_no)))
        self._out.event(self._events.file_description(at_beginning=True))
        gtid_list = self._events.file_gtid_list(state, position_of(offset))
        if gtid_list:
            self._out.event(gtid_list)

    def _tell(self, file_no: int, position: int) -> None:
        """The replica is there from now on, whatever it has counted. Never a ROTATE without a description behind."""
        self._file_no = file_no
        self._out.event(self._events.rotate(self.name_of(file_no), position))
        self._out.event(self._events.file_description(at_beginning=False))


class TraditionalPlace(StreamPlace):
    """Traditional files and MariaDB's positions in them. Learnt from dumps of 10.11: what a master sends that has read
    the file from its beginning.

    A start by GTID inside of a file begins with the head of the file, and a GTID_LIST of the place behind it.
    """

    def name_of(self, file_no: int) -> str:
        """See `StreamPlace`."""
        return self._engine.file_name(file_no)

    async def open(
        self,
        cursor: Position,
        file_no: int,
        position: int,
        state: BinlogState | None,
        reached: Sequence[tuple[int, BinlogState]] = (),
    ) -> None:
        """See `StreamPlace`."""
        if state is None and position != FIRST_EVENT_POSITION:
            self._head = await self._head_of(file_no)
            self._out.event(self._events.rotate(self.name_of(file_no), position))
            self._enter_file()
            description = replace(self._head.description, created=0, end_position=0)
            self._out.event(self._events.described(description))
            self._send_head(position)
            self.cursor = cursor
            return
        await self._begin_file(file_no, at=cursor.offset)
        for end, seen in reached:
            self._out.event(self._events.gtid_list(seen, 0, end))
        self.cursor = max(self.cursor, cursor)

    async def move(self, end: Position, *, overtaken: bool) -> None:
        """See `StreamPlace`."""
        if end.file_no != self.cursor.file_no:
            await self._begin_file(end.file_no)
        self.cursor = max(self.cursor, end)

    def gtid_list(self, state: BinlogState, flags: int) -> None:
        """See `StreamPlace`. It has the GTIDs of this file only, but at the end of all."""
        before = set() if flags else set(self._head.gtids)
        seen = BinlogState(gtid for gtid in state.entries() if gtid not in before)
        self._out.event(self._events.gtid_list(seen, flags, self._position))

    def heartbeat(self) -> None:
        """See `StreamPlace`."""
        name = self.name_of(self.cursor.file_no)
        self._out.event(self._events.heartbeat(name, max(self.inside, self._position)))

    @property
    def _position(self) -> int:
        """Where the replica is."""
        return max(self.cursor.offset, self._head.end)

    async def _head_of(self, file_no: int) -> FileHead:
        return await asyncio.to_thread(files_of(self._engine).head, file_no)

    async def _begin_file(self, file_no: int, at: int = FIRST_EVENT_POSITION) -> None:
        """A file from its beginning; for a replica that has groups of it, it is no start of a server."""
        head = self._head = await self._head_of(file_no)
        description = head.description if at < head.end else replace(head.description, created=0)
        self._out.event(self._events.rotate(self.name_of(file_no)))
        self._enter_file()
        self._out.event(self._events.described(description))
        begin = FIRST_EVENT_POSITION + FORMAT_DESCRIPTION_SIZE
        self._send_head(begin)
        # A start marker, which it was not yet, may still take the place of the description.
        self.cursor = Position(file_no, begin if head.description.created else FIRST_EVENT_POSITION)

    def _enter_file(self) -> None:
        """What follows has the checksums of the file; the ROTATE to it has those of the one before."""
        if self.as_in_files:
            self._events.checksum = bool(self._head.description.checksum_algorithm)

    def _send_head(self, position: int) -> None:
        """Send the events of the head from there on."""
        at = FIRST_EVENT_POSITION
        for event in self._head.events:
            if at >= position:
                algorithm = self._head.description.checksum_algorithm
                if made := self._events.stored(strip_checksum(event, algorithm)):
                    self._out.event(made)
            at += len(event)


def files_of(engine: EngineReader) -> ClassicEngine:
    """The engine of a stream of traditional files."""
    assert isinstance(engine, ClassicEngine)
    return engine
