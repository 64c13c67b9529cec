"""Event groups: the unit that is stored, sent and positioned; cut out of a stream of events.

A group begins with a GTID event and ends

* with STANDALONE in the GTID: at the first event that is none of GTID, INTVAR, RAND, USER_VAR,
  TABLE_MAP, ANNOTATE_ROWS;
* otherwise: at XID, XA_PREPARE_LOG, or a QUERY that is exactly COMMIT or ROLLBACK.

Everything else about a stream (ROTATE, STOP, GTID_LIST, BINLOG_CHECKPOINT, START_ENCRYPTION,
HEARTBEAT, whatever is ARTIFICIAL) belongs to the connection or to the upstream's files, and is
checked and dropped: `binlog_protocol.groups.vocabulary` has all types, and reads each event before it becomes
part of a group. A format description with a creation time tells that the upstream has started
anew at this place: it becomes a start marker, and an unfinished group before it is gone, as on a
real replica. An INCIDENT stands between groups.

The rules are those of MariaDB 10.11 to 12.3.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import ChecksumAlgorithm, normal_form, verify_checksum
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import FLAGS2_OFFSET, GtidEvent, GtidFlags, gtid_of
from binlog_protocol.events.header import (
    FLAG_ARTIFICIAL,
    HEADER_SIZE,
    TYPE_OFFSET,
)
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.query import query_ends_group
from binlog_protocol.groups.vocabulary import (
    C_TABLE,
    CHECKS,
    ROLES,
    Role,
    is_sound,
    refuse,
    type_name,
)
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import GROUP_BYTES_MAX, GTID_EVENT_BYTES_MAX


class EventGroup(NamedTuple):
    """One whole group; `payload` holds its events in normal form, the GTID event first.

    Without those that were taken out by `EventGroupAssembler.spill`; `event_count` is the number of all.
    """

    gtid: Gtid
    payload: bytes
    event_count: int

    @property
    def flags2(self) -> int:
        """`GtidFlags` of its GTID event."""
        return self.payload[FLAGS2_OFFSET]

    @property
    def is_standalone(self) -> bool:
        return bool(self.flags2 & GtidFlags.STANDALONE)


class StartMarker(NamedTuple):
    """The upstream started at this place in its history."""

    format_description: FormatDescription

    @property
    def payload(self) -> bytes:
        """The event as it is stored."""
        return self.format_description.for_store().build()


class Incident(NamedTuple):
    """The upstream has lost changes at this place in its history. `payload` is the event in normal form."""

    event: IncidentEvent
    payload: bytes


class OutsideGroup(ProtocolError):
    """An event of a group that has not begun: events are missing, or their server writes no GTIDs."""


class GroupTooLarge(ProtocolError):
    """A group exceeds the limit of bytes in memory."""


# Looked up once: a member of an enum costs a lookup in its class, for each event.
_GTID: Final = Role.GTID
_FORMAT: Final = Role.FORMAT
_DROPPED: Final = Role.DROPPED
_INCIDENT: Final = Role.INCIDENT
_REFUSED: Final = Role.REFUSED
_PREFIX: Final = Role.PREFIX
_QUERY: Final = Role.QUERY
_COMMIT: Final = Role.COMMIT
# An IntFlag would make a new flag object of every test.
_STANDALONE: Final = int(GtidFlags.STANDALONE)

_HEAD: Final = struct.Struct("<4xB4xI4xH")
assert _HEAD.size == HEADER_SIZE


class EventGroupAssembler:
    """Takes the events of one connection and returns whole groups. One thread.

    Keeps track of the checksum algorithm by itself: before the first format description it is the
    negotiated one, then that of the last description.
    """

    def __init__(
        self,
        checksum_algorithm: int = ChecksumAlgorithm.NONE,
        *,
        group_bytes_max: int = GROUP_BYTES_MAX,
        limit_option: str = "max_event_group_size",
    ) -> None:
        """`limit_option` is the name to be raised that the error for a too large group gives."""
        self.checksum_algorithm = checksum_algorithm
        self._group_bytes_max = group_bytes_max
        self._limit_option = limit_option
        self.unfinished: Gtid | None = None
        """The group that has begun and not ended."""
        self._standalone = False
        self._count = self._spilled = 0
        self._events: list[bytes | bytearray] = []
        self._bytes = 0
        self.has_ended = False
        """A group has become whole and was not given out: see `take_ended`."""

    @property
    def takes_parts(self) -> bool:
        """Whether a group has begun that goes on until an event says that it ends: see `add_part`."""
        return self.unfinished is not None and not self._standalone

    @property
    def buffered(self) -> int:
        """Bytes of the unfinished group in memory."""
        return self._bytes

    def add_part(self, events: bytes | bytearray, count: int) -> None:
        """Events of the unfinished group in normal form, one behind the other, none of which ends it.

        Raises `GroupTooLarge`.
        """
        self._events.append(events)
        self._count += count
        self._count_bytes(len(events))

    def spill(self) -> list[bytes | bytearray]:
        """Take the events of the unfinished group behind its GTID event out of memory, as they came: by events, and by
        what was added at once.

        They are not in the payload of the group then, when it is whole: only what comes after them.
        """
        spilled = self._events[1:]
        del self._events[1:]
        size = sum(map(len, spilled))
        self._bytes -= size
        self._spilled += size
        return spilled

    def take_ended(self) -> EventGroup | None:
        """The group that has become whole and was not given out, because it is large: behind `spill`."""
        return self._whole() if self.has_ended else None

    def feed(
        self, event: bytes, large_bytes: int = GROUP_BYTES_MAX
    ) -> EventGroup | StartMarker | Incident | None:
        """One event as received; returns what became whole with it. A bytearray is changed, and kept.

        large_bytes: a group of which more is in memory at its end is not put together: `spill` it, then `take_ended`.

        Raises `EventChecksumError`, `GroupTooLarge`, or another `ProtocolError`; after an error
        the connection is to be given up and the unfinished group is lost.
        """
        try:
            type_, length, flags = _HEAD.unpack_from(event)
        except struct.error:
            raise ProtocolError(f"event of {len(event)} bytes") from None
        if length != len(event):
            raise ProtocolError(f"event of {len(event)} bytes says that it has {length}")
        role = ROLES[type_]
        if role is _FORMAT:
            return self._format_description(event)
        if role is _DROPPED or role is _REFUSED or flags & FLAG_ARTIFICIAL:
            if self.checksum_algorithm:
                verify_checksum(event)
            if role is _REFUSED and not flags & FLAG_ARTIFICIAL:
                refuse(event)
            return None
        event = normal_form(event, self.checksum_algorithm)
        if role is _GTID:
            self._begin(event)
            return None
        if role is _INCIDENT:
            return self._incident(event)
        return self._continue(event, role, large_bytes)

    def discard_partial(self) -> None:
        """The connection ended: the unfinished group will be sent again as a whole."""
        self.unfinished = None
        self._events = []
        self._bytes = self._spilled = 0
        self.has_ended = False

    def _format_description(self, event: bytes) -> StartMarker | None:
        description = FormatDescription.parse(event)
        self.checksum_algorithm = description.checksum_algorithm
        if not description.created or description.flags & FLAG_ARTIFICIAL:
            return None
        self.discard_partial()
        return StartMarker(description)

    def _incident(self, event: bytes) -> Incident:
        incident = IncidentEvent.parse(event)
        if self.unfinished is not None:
            raise ProtocolError(
                f"an incident inside the unfinished group {self.unfinished}: {incident}"
            )
        return Incident(incident, event)

    def _begin(self, event: bytes) -> None:
        if self.unfinished is not None:
            raise ProtocolError(
                f"GTID {gtid_of(event)} inside the unfinished group {self.unfinished}"
            )
        if len(event) > GTID_EVENT_BYTES_MAX:
            raise ProtocolError(
                f"a GTID event of {len(event)} bytes; {GTID_EVENT_BYTES_MAX} are the most"
            )
        if not is_sound(event, C_TABLE):
            GtidEvent.parse(event)
        self.unfinished = gtid_of(event)
        self._standalone = bool(event[FLAGS2_OFFSET] & _STANDALONE)
        self._events = [event]
        self._count = 1
        self._bytes, self._spilled = len(event), 0

    def _continue(self, event: bytes, role: Role, large_bytes: int) -> EventGroup | None:
        gtid = self.unfinished
        if gtid is None:
            raise OutsideGroup(f"an event of type {type_name(event[TYPE_OFFSET])} outside a group")
        if not is_sound(event, C_TABLE):
            check = CHECKS[event[TYPE_OFFSET]]
            if check is not None:
                check(event)
        self._events.append(event)
        self._count += 1
        self._count_bytes(len(event))
        if not _ends(event, role, self._standalone):
            return None
        if self._bytes > large_bytes:
            self.has_ended = True
            return None
        return self._whole()

    def _whole(self) -> EventGroup:
        assert self.unfinished is not None
        group = EventGroup(self.unfinished, b"".join(self._events), self._count)
        self.discard_partial()
        return group

    def _count_bytes(self, size: int) -> None:
        self._bytes += size
        if self._bytes + self._spilled > self._group_bytes_max:
            raise GroupTooLarge(
                f"group {self.unfinished} has more than {self._group_bytes_max} bytes; "
                f"raise {self._limit_option}"
            )


def ends_group(event: bytes, *, standalone: bool) -> bool:
    """Whether an event of a group, behind its GTID event, is the last one."""
    return _ends(event, ROLES[event[TYPE_OFFSET]], standalone)


def _ends(event: bytes, role: Role, standalone: bool) -> bool:
    if standalone:
        return role is not _PREFIX
    if role is _QUERY:
        return query_ends_group(event)
    return role is _COMMIT
