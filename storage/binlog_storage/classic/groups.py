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
from binlog_protocol.events.checksum import normal_form
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_IGNORABLE, FLAGS_OFFSET, TYPE_OFFSET
from binlog_protocol.events.vocabulary import EventRefused
from binlog_protocol.groups.event_group import (
    EventGroup,
    EventGroupAssembler,
    Incident,
    OutsideGroup,
    StartMarker,
)
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid

from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import CLASSIC_MAGIC, EventReader
from binlog_storage.intake.source import SourceGroup, UnfinishedGroup

PIECE_BYTES: Final = 1 << 20  # of a large group that are in memory
_FLAG_RELAY_LOG: Final = 0x40  # of a format description
_NO_LIMIT: Final = 1 << 63
_TELL_GTIDS: Final = frozenset({EventType.GTID, EventType.GTID_LIST})


def refuse_kind(path: Path, event: bytes) -> None:
    """Raises `UnreadableBinlog` for an event that tells of a file which is not for us."""
    type_ = event[TYPE_OFFSET]
    if type_ == EventType.START_ENCRYPTION and not event[FLAGS_OFFSET] & FLAG_IGNORABLE:
        # With the flag it comes from a master, which has decrypted what follows.
        raise UnreadableBinlog(
            f"{path} is encrypted: only the server that wrote it can read it. Fetch it from there: "
            f"mariadb-binlog --read-from-remote-server --raw --host=HOST --user=USER --password {path.name}"
        )
    if type_ == EventType.FORMAT_DESCRIPTION and event[FLAGS_OFFSET] & _FLAG_RELAY_LOG:
        raise UnreadableBinlog(f"{path} is a relay log: take the binlog of its master")
    if type_ == EventType.MYSQL_PREVIOUS_GTIDS:
        raise UnreadableBinlog(f"{path} is MySQL's: its GTIDs mean nothing to MariaDB")


def no_gtids(path: Path) -> UnreadableBinlog:
    """Of a file that does not say which GTIDs its events have."""
    return UnreadableBinlog(
        f"{path} does not say which GTIDs came before it: it was not written by MariaDB 10.0 or later"
    )


class FileGroups:
    """Reads a file once, from its beginning. `close` it."""

    def __init__(
        self, path: Path, *, offset: int = len(CLASSIC_MAGIC), checksum_algorithm: int = 0
    ) -> None:
        """From an event on; behind the beginning with the checksums of the file. Raises as `EventReader`."""
        self.path: Final = path
        self._reader = EventReader(path, offset)
        self._assembler = EventGroupAssembler(checksum_algorithm, group_bytes_max=_NO_LIMIT)
        self._has_gtids = offset != len(CLASSIC_MAGIC)
        self.unfinished: Gtid | None = None
        """The group inside which the file ends."""
        self.end = offset
        """Of what was whole."""
        self.incidents: list[str] = []
        """Those that were met, for people."""

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        return self._reader.size

    @property
    def offset(self) -> int:
        """How far the file was read."""
        return self._reader.offset

    @property
    def left_out(self) -> str:
        """What of its end was left out, once all was read; empty if it was whole."""
        left = self.size - self.end
        if not left:
            return ""
        where = f"inside group {self.unfinished}" if self.unfinished else "inside an event"
        return f"{self.path} ends {where}: its last {left} bytes, from offset {self.end} on, were left out"

    @property
    def checksum_algorithm(self) -> int:
        """Of the events that were read."""
        return self._assembler.checksum_algorithm

    def items(
        self, *, runs: bool = True, incidents: bool = False
    ) -> Iterator[GroupRun | SourceGroup]:
        """Groups and start markers; without `runs` each for itself. Raises `DamagedBinlog`, `UnreadableBinlog`.

        `incidents`: they are items, too, with the event as their payload and no GTID.
        """
        reader, assembler = self._reader, self._assembler
        while True:
            if runs and (run := reader.take_run(assembler.checksum_algorithm)) is not None:
                self._has_gtids = True
                yield run
                self.end = reader.offset
                continue
            start = reader.offset
            if (event := reader.next()) is None:
                return
            whole = self._feed(event, start)
            if isinstance(whole, StartMarker):
                yield SourceGroup(None, whole.payload, self.path, start)
            elif isinstance(whole, Incident):
                self._note(whole, start)
                if incidents:
                    yield SourceGroup(None, whole.payload, self.path, start)
            elif assembler.unfinished is not None:
                group = self._group(event, start)
                if group is None:
                    return
                yield group
                if not self._passed(group):
                    return
            self.end = reader.offset

    def _group(self, gtid_event: bytes, start: int) -> SourceGroup | None:
        """The group that has begun; None if it does not end."""
        gtid = self._assembler.unfinished
        assert gtid is not None
        while self._assembler.buffered < PIECE_BYTES:
            at = self._reader.offset
            event = self._reader.next()
            if event is None:
                self.unfinished = gtid
                return None
            whole = self._feed(event, at)
            if isinstance(whole, EventGroup):
                return SourceGroup(gtid, whole.payload, self.path, start)
        head = normal_form(gtid_event, self._assembler.checksum_algorithm)
        return SourceGroup(gtid, head, self.path, start, self._rest(gtid, len(head)))

    def _rest(self, gtid: Gtid, head_size: int) -> Iterator[bytes]:
        while True:
            if self._assembler.buffered >= PIECE_BYTES:
                yield self._assembler.spill()
            at = self._reader.offset
            event = self._reader.next()
            if event is None:
                self.unfinished = gtid
                raise UnfinishedGroup(f"{self.path} ends inside group {gtid}")
            whole = self._feed(event, at)
            if isinstance(whole, EventGroup):
                yield whole.payload[head_size:]
                return

    def _passed(self, group: SourceGroup) -> bool:
        """What was not taken of a large group is read, so that the next one is found. Whether there is its end."""
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

    def _feed(self, event: bytes, offset: int) -> EventGroup | StartMarker | Incident | None:
        refuse_kind(self.path, event)
        begun = self._assembler.unfinished
        self._has_gtids = self._has_gtids or event[TYPE_OFFSET] in _TELL_GTIDS
        try:
            whole = self._assembler.feed(event)
        except EventRefused as error:
            raise UnreadableBinlog(f"{self.path}, offset {offset}: {error}") from None
        except OutsideGroup as error:
            if self._has_gtids:
                raise DamagedBinlog(self.path, offset, str(error)) from None
            raise no_gtids(self.path) from None
        except ProtocolError as error:
            raise DamagedBinlog(self.path, offset, str(error)) from None
        if begun is not None and isinstance(whole, StartMarker):
            raise DamagedBinlog(self.path, offset, f"a server starts inside group {begun}")
        return whole

    def close(self) -> None:
        self._reader.close()
