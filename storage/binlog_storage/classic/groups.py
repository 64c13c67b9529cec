"""The groups of one traditional binlog file.

A group lies whole in one file. One that is not whole at its end is left out, and the offset told where it begins. An
INCIDENT, where the server that wrote the file has lost changes, stands between groups and has no GTID: it is told in
`notes`, and an item of its own only where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import CHECKSUM_SIZE, normal_form
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import (
    FLAG_IGNORABLE,
    FLAGS_OFFSET,
    HEADER_SIZE,
    TYPE_OFFSET,
    split_events,
)
from binlog_protocol.groups.event_group import EventGroup, Incident, OutsideGroup, StartMarker
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.group_stream import (
    PIECE_BYTES,
    EventReceived,
    GroupPart,
    GroupStream,
    Item,
    StreamEvent,
)
from binlog_protocol.groups.vocabulary import EventRefused
from binlog_protocol.gtid import Gtid

from binlog_storage.classic.errors import DamagedBinlog, EncryptedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import CLASSIC_MAGIC, Bytes, EventReader
from binlog_storage.intake.source import SourceGroup, UnfinishedGroup

_FLAG_RELAY_LOG: Final = 0x40  # of a format description
_NO_LIMIT: Final = 1 << 63
_END_MASK: Final = 0xFFFFFFFF
_CLOSE: Final = frozenset({EventType.STOP, EventType.ROTATE})
_CHECKPOINT_NAME: Final = HEADER_SIZE + 4  # behind its length
_TELL_GTIDS: Final = frozenset({EventType.GTID, EventType.GTID_LIST})


def refuse_kind(path: Path, event: bytes) -> None:
    """Raises `UnreadableBinlog` for an event that tells of a file which is not for us. Its checksum was verified."""
    type_ = event[TYPE_OFFSET]
    if type_ == EventType.START_ENCRYPTION and not event[FLAGS_OFFSET] & FLAG_IGNORABLE:
        # With the flag it comes from a master, which has decrypted what follows.
        raise EncryptedBinlog(
            f"{path} is encrypted: it is read with the key file of the server that wrote it "
            "(file_key_management_filename). Or fetch it from there: "
            f"mariadb-binlog --read-from-remote-server --raw --host=HOST --user=USER --password {path.name}"
        )
    if type_ == EventType.FORMAT_DESCRIPTION and event[FLAGS_OFFSET] & _FLAG_RELAY_LOG:
        raise UnreadableBinlog(f"{path} is a relay log: take the binlog of its master")
    if type_ == EventType.MYSQL_PREVIOUS_GTIDS:
        raise UnreadableBinlog(f"{path} is MySQL's: its GTIDs mean nothing to MariaDB")


def no_gtids(path: Path) -> UnreadableBinlog:
    """The error for a file that does not tell the GTIDs of its events."""
    return UnreadableBinlog(
        f"{path} does not say which GTIDs came before it: it was not written by MariaDB 10.0 or later"
    )


class _FileEvents:
    """A source of a `GroupStream`, which takes no parts here: events lie whole in the buffer."""

    def __init__(self, reader: EventReader, *, has_gtids: bool) -> None:
        self._reader = reader
        self.has_gtids = has_gtids

    def take_run(self, checksum_algorithm: int) -> GroupRun | None:
        run = self._reader.take_run(checksum_algorithm)
        if run is not None:
            self.has_gtids = True
        return run

    def take_part(self, checksum_algorithm: int) -> None:
        return None

    def take_event(self) -> EventReceived | None:
        """None: the file ends, or what is left of it is torn."""
        event = self._reader.next()
        if event is None:
            return None
        self.has_gtids = self.has_gtids or event[TYPE_OFFSET] in _TELL_GTIDS
        return EventReceived(event)


class FileGroups:
    """Reads a file once, from its beginning. `close` it."""

    def __init__(
        self,
        path: Path,
        *,
        offset: int = len(CLASSIC_MAGIC),
        checksum_algorithm: int = 0,
        file: Bytes | None = None,
        size: int | None = None,
        large_bytes: int = PIECE_BYTES,
    ) -> None:
        """`offset`: of the first event; behind the head also give the checksum algorithm. Raises as `EventReader`.

        Args:
            file, size: as for `EventReader`.
            large_bytes: a larger group comes in pieces.
        """
        self.path: Final = path
        self._reader = EventReader(path, offset, file=file, size=size)
        self._events = _FileEvents(self._reader, has_gtids=offset != len(CLASSIC_MAGIC))
        self._stream = GroupStream(
            self._events,
            checksum_algorithm,
            group_bytes_max=_NO_LIMIT,
            large_bytes=large_bytes,
        )
        self.unfinished: Gtid | None = None
        """The group inside which the file ends."""
        self.end = offset
        """The end of the last whole group, in bytes."""
        self.closed_at: int | None = None
        """Where the STOP or ROTATE event begins that is the last event so far; None if another is."""
        self.checkpoint = ""
        """The file that the last checkpoint event names: a recovery of a MariaDB begins there."""
        self.incidents: list[str] = []
        """Incidents that were met, as texts for people."""

    @property
    def size(self) -> int:
        """The size of the file, in bytes."""
        return self._reader.size

    @property
    def offset(self) -> int:
        """How far the file was read."""
        return self._reader.offset

    @property
    def left_out(self) -> str:
        """The part of the file's end that was left out, in words, once all was read; empty if the file is whole."""
        left = self.size - self.end
        if not left:
            return ""
        where = f"inside group {self.unfinished}" if self.unfinished else "inside an event"
        return f"{self.path} ends {where}: its last {left} bytes, from offset {self.end} on, were left out"

    @property
    def checksum_algorithm(self) -> int:
        """The checksum algorithm of the events that were read."""
        return self._stream.checksum_algorithm

    def items(
        self, *, runs: bool = True, incidents: bool = False
    ) -> Iterator[GroupRun | SourceGroup]:
        """Groups and start markers; without `runs` each for itself. Raises `DamagedBinlog`, `UnreadableBinlog`.

        `incidents`: they are items, too, with the event as their payload and no GTID.
        """
        while True:
            start = self._reader.offset
            match self._next(runs=runs):
                case None:
                    return
                case GroupRun() as run:
                    yield run
                case StartMarker() as marker:
                    yield SourceGroup(None, marker.payload, self.path, start)
                case Incident() as incident:
                    self._note(incident, start)
                    if incidents:
                        yield SourceGroup(None, incident.payload, self.path, start)
                case StreamEvent() as event if self._stream.unfinished is None:
                    self.closed_at = start if event.type in _CLOSE else None
                    if event.type == EventType.BINLOG_CHECKPOINT:
                        self.checkpoint = event.event[_CHECKPOINT_NAME:].decode("utf-8", "replace")
                    self.end = self._reader.offset
                    continue
                case StreamEvent() as event:
                    group = self._group(event, start)
                    if group is None:
                        return
                    yield group
                    if not self._passed(group):
                        return
            self.end = self._reader.offset
            self.closed_at = None

    def ends_of(self, run: GroupRun) -> list[int]:
        """The offsets where the groups of a run end: of the last item that `items` gave."""
        found = []
        at, end = self.end, self._reader.offset
        for position in run.end_positions:
            following = at & ~_END_MASK | position
            if following <= at:
                following += _END_MASK + 1
            found.append(following)
            at = following
        if found and at == end and len(found) == len(run):
            return found
        # Whoever wrote the file tells other ends: count the events.
        found = []
        at = self.end
        tail = CHECKSUM_SIZE if self.checksum_algorithm else 0
        for index in range(len(run)):
            for event in split_events(memoryview(run.payload(index))):
                at += len(event) + tail
            found.append(at)
        return found

    def _group(self, begin: StreamEvent, start: int) -> SourceGroup | None:
        """The group that has begun; None if it does not end."""
        gtid = self._stream.unfinished
        assert gtid is not None
        while True:
            match self._next(runs=False):
                case None:
                    self.unfinished = gtid
                    return None
                case EventGroup(payload=payload):
                    return SourceGroup(gtid, payload, self.path, start)
                case GroupPart() as part:
                    head = normal_form(begin.sent, begin.checksum_algorithm)
                    return SourceGroup(
                        gtid, head, self.path, start, self._rest(part, head_size=len(head))
                    )

    def _rest(self, first: GroupPart, *, head_size: int) -> Iterator[bytes]:
        yield b"".join(first.events)
        while True:
            match self._next(runs=False):
                case None:
                    self.unfinished = first.gtid
                    raise UnfinishedGroup(f"{self.path} ends inside group {first.gtid}")
                case GroupPart(events=events):
                    yield b"".join(events)
                case EventGroup(payload=payload):
                    yield payload[head_size:]
                    return

    def _passed(self, group: SourceGroup) -> bool:
        """Read the rest of a large group, so that the next one is found. Whether the file has the group's end."""
        try:
            for _ in group.rest or ():
                pass
        except UnfinishedGroup:
            pass
        return self.unfinished is None

    def _note(self, incident: Incident, offset: int) -> None:
        self.incidents.append(
            f"{self.path}:{offset}: the server that wrote this has lost changes here: {incident.event}"
        )

    def _next(self, *, runs: bool) -> Item | None:
        """The next item of the stream; one that is no run is of one event. None at the end."""
        begun, offset = self._stream.unfinished, self._reader.offset
        try:
            item = self._stream.next(runs=runs)
        except EventRefused as error:
            raise UnreadableBinlog(f"{self.path}, offset {offset}: {error}") from None
        except OutsideGroup as error:
            if self._events.has_gtids:
                raise DamagedBinlog(self.path, offset, str(error)) from None
            raise no_gtids(self.path) from None
        except ProtocolError as error:
            raise DamagedBinlog(self.path, offset, str(error)) from None
        if isinstance(item, StreamEvent):
            refuse_kind(self.path, item.sent)
        elif isinstance(item, StartMarker):
            refuse_kind(self.path, item.payload)
            if begun is not None:
                raise DamagedBinlog(self.path, offset, f"a server starts inside group {begun}")
        return item

    def close(self) -> None:
        self._reader.close()
