"""Faults of streams to replicas, as a test orders them: what happens, where in the stream, and to whom.

    [[fault]]               TOML; a call has the same as arguments
    do = "cut"              what: see `KINDS`
    gtid = "0-1-5"          where: one of gtid (with event: the n-th of that group; the first is the GTID event), event
    event = 3               (of the stream), byte (of the stream), after_seconds (of the stream)
    account = "repl"        to whom: the user's name, the server_id of the replica; both, or all
    server_id = 100
    times = 1               how often, over all streams; 0 is always

A `FaultRun` is pure: packets of one stream in, packets and faults out. `faulty_stream.py` does what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from binlog_protocol.errors import ErrorKind, ServerError
from binlog_protocol.events.checksum import CHECKSUM_SIZE
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import FLAGS2_OFFSET, GtidFlags, gtid_of
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.groups.event_group import ends_group
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.wire.packets import Packet, PacketReader, frame_packet
from binlog_protocol.wire.semi_sync import ACK_WANTED, FLAG_OFFSET, STATUS

KINDS: Final = {
    "delay": "seconds",  # nothing is sent for so long, heartbeats included
    "throttle": "bytes_per_second",  # from there on
    "cut": "",  # the connection ends; with `inside` in the middle of the event
    "garble": "",  # the last byte of the event (of its CRC-32, if it has one), or that byte of the stream, is wrong
    "leave_out": "",  # the group is not sent
    "repeat": "",  # the group is sent twice
    "error": "errno",  # an ERR packet, with `message`; then the connection ends
}
"""What may be done, and the argument that it needs."""

_PLACES: Final = ("gtid", "event", "byte", "after_seconds")
_OF_GROUPS: Final = ("leave_out", "repeat")
_AT_BYTES: Final = ("cut", "garble")
_AT_TIMES: Final = ("delay", "throttle", "cut", "error")
_ERRNO_MAX: Final = 65_535
_CHANGED: Final = 0xFF
_STATUS_BYTES: Final = 1
_OUTSIDE_GROUPS: Final = frozenset(
    {
        EventType.ROTATE,
        EventType.FORMAT_DESCRIPTION,
        EventType.GTID_LIST,
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.STOP,
    }
)


class BadFault(ValueError):
    """A fault that says too little, too much, or what does not go together."""


@dataclass(frozen=True, slots=True)
class StreamFault:
    """See above. Times in seconds."""

    do: str
    gtid: str = ""
    event: int = 0
    byte: int = 0
    after_seconds: float = 0
    account: str = ""
    server_id: int = 0
    times: int = 1
    inside: bool = False
    seconds: float = 0
    bytes_per_second: int = 0
    errno: int = 0
    message: str = "A fault that was ordered"

    def __post_init__(self) -> None:
        """Raises `BadFault`."""
        if self.do not in KINDS:
            raise BadFault(f"do: {self.do!r} is none of {', '.join(KINDS)}")
        given = [name for name in _PLACES if getattr(self, name)]
        if len(given) != 1 and given != ["gtid", "event"]:
            raise BadFault(
                f"{self.do}: give one place of {', '.join(_PLACES)}, or a gtid and an event; not {given}"
            )
        self._check_place(given[0])
        needed = KINDS[self.do]
        for name in filter(None, KINDS.values()):
            if bool(getattr(self, name)) is not (name == needed):
                raise BadFault(
                    f"{self.do}: {name} is {'missing' if name == needed else 'for others'}"
                )
        if not 0 <= self.errno <= _ERRNO_MAX:
            raise BadFault(f"errno: {self.errno} is none")
        for name in ("event", "byte", "after_seconds", "times", "seconds", "bytes_per_second"):
            if getattr(self, name) < 0:
                raise BadFault(f"{name}: {getattr(self, name)} is less than nothing")
        if self.inside and (self.do != "cut" or given[0] not in ("gtid", "event")):
            raise BadFault("inside: it is for a cut at an event")

    def _check_place(self, place: str) -> None:
        if self.gtid:
            try:
                Gtid.parse(self.gtid)
            except (ServerError, ValueError) as error:
                raise BadFault(f"gtid: {error}") from None
        if self.do in _OF_GROUPS and (place != "gtid" or self.event):
            raise BadFault(f"{self.do}: it is for a whole group: give its gtid alone")
        if place == "byte" and self.do not in _AT_BYTES:
            raise BadFault(f"{self.do}: not at a byte, but at an event")
        if place == "after_seconds" and self.do not in _AT_TIMES:
            raise BadFault(f"{self.do}: not at a time, but at an event")

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> StreamFault:
        """From a table of TOML. Raises `BadFault`."""
        defaults = {one.name: one.default for one in fields(cls)}
        for name, value in table.items():
            if name not in defaults:
                raise BadFault(f"unknown: {name!r}")
            wanted = str if name == "do" else type(defaults[name])
            if isinstance(value, bool) is not (name == "inside") or not isinstance(
                value, (int, float) if name in ("seconds", "after_seconds") else wanted
            ):
                raise BadFault(f"{name}: {value!r} is not {wanted.__name__}")
        if "do" not in table:
            raise BadFault("do is missing")
        return cls(**table)

    @property
    def error(self) -> ServerError:
        """The error that it gives."""
        return ErrorKind(self.errno, "{message}")(self.message)

    def is_for(self, account: str, server_id: int) -> bool:
        """Whether that replica suffers it."""
        return self.account in ("", account) and self.server_id in (0, server_id)


class OrderedFault:
    """A fault, and how often it was met."""

    def __init__(self, fault: StreamFault) -> None:
        self.fault: Final = fault
        self.gtid: Final = Gtid.parse(fault.gtid) if fault.gtid else None
        self.met = 0
        self.is_over = False

    @property
    def is_live(self) -> bool:
        """Whether it is to be met again."""
        return not self.is_over and (not self.fault.times or self.met < self.fault.times)


class Faults:
    """All faults of a server, on its loop. A stream has those that were ordered before it began."""

    def __init__(self) -> None:
        self._ordered: list[OrderedFault] = []

    def add(self, tables: Iterable[Mapping[str, Any]]) -> None:
        """Order these: all or, if one is wrong, none. Raises `BadFault`."""
        made = [OrderedFault(StreamFault.of(table)) for table in tables]
        self._ordered += made

    def clear(self) -> None:
        """None is met any more, in no stream."""
        for one in self._ordered:
            one.is_over = True
        self._ordered = []

    def met(self) -> list[tuple[str, int]]:
        """What each does, and how often it was met, in their order."""
        return [(one.fault.do, one.met) for one in self._ordered]

    def of_stream(self, account: str, server_id: int) -> list[OrderedFault]:
        """Those that a stream which begins now has to fear."""
        return [
            one for one in self._ordered if one.is_live and one.fault.is_for(account, server_id)
        ]


Step = bytes | StreamFault
"""Packets to send, or what happens behind them. Behind a cut or an error nothing comes."""


class FaultRun:
    """The faults of one stream, but those at a time.

    Args:
        checksum: the events have checksums.
    """

    def __init__(self, ordered: Sequence[OrderedFault], *, checksum: bool) -> None:
        self._ordered = ordered
        self._checksum = checksum
        self._status_bytes = _STATUS_BYTES
        self._reader = PacketReader(EVENT_BYTES_MAX + len(STATUS))
        self._events = 0  # of the stream
        self._bytes = 0
        self._gtid: Gtid | None = None  # of the group that is under way
        self._standalone = False
        self._events_of_group = 0
        self._shift = 0  # of sequence numbers
        self.next_seq: int | None = None
        """The sequence number of what comes next; None before the first packet."""
        self._left_out = False
        self._again: list[bytes] | None = None  # packets of the group that is repeated
        self.has_ended = False

    def start_semi_sync(self) -> None:
        """The packets have what `binlog_protocol.wire.semi_sync` says."""
        self._status_bytes = len(STATUS)

    def take(self, data: bytes | bytearray) -> list[Step]:
        """Packets of the stream, cut anywhere."""
        steps: list[Step] = []
        self._reader.feed(data)
        while not self.has_ended and (packet := self._reader.next_packet()) is not None:
            self._take_packet(packet, steps)
        return steps

    def _take_packet(self, packet: Packet, steps: list[Step]) -> None:
        payload = packet.payload
        event = payload[self._status_bytes :]
        self._count(event)
        for one in self._ordered:
            if self._is_here(one):
                one.met += 1
                payload = self._meet(one.fault, packet, payload, steps)
                if self.has_ended:
                    return
        self._send(packet, payload, steps)
        if self._ends_group(event):
            self._end_group(steps)

    def _count(self, event: bytes) -> None:
        self._events += 1
        if event[TYPE_OFFSET] == EventType.GTID:
            self._gtid = gtid_of(event)
            self._standalone = bool(event[FLAGS2_OFFSET] & GtidFlags.STANDALONE)
            self._events_of_group = 0
        self._events_of_group += event[TYPE_OFFSET] not in _OUTSIDE_GROUPS

    def _is_here(self, one: OrderedFault) -> bool:
        fault = one.fault
        if not one.is_live or fault.byte or fault.after_seconds:
            return False
        if one.gtid is None:
            return fault.event == self._events
        return self._gtid == one.gtid and self._events_of_group == (fault.event or 1)

    def _meet(self, fault: StreamFault, packet: Packet, payload: bytes, steps: list[Step]) -> bytes:
        """The payload that is sent."""
        match fault.do:
            case "garble":
                return payload[:-1] + bytes((payload[-1] ^ _CHANGED,))
            case "leave_out":
                self._left_out = True
            case "repeat":
                self._again = []
            case "cut":
                if fault.inside:
                    framed, _ = frame_packet(payload, self._seq(packet.seq))
                    steps.append(framed[: len(framed) // 2])
                self._end(fault, steps)
            case "error":
                self.next_seq = self._seq(packet.seq)
                self._end(fault, steps)
            case _:
                steps.append(fault)
        return payload

    def _end(self, fault: StreamFault, steps: list[Step]) -> None:
        self.has_ended = True
        steps.append(fault)

    def _seq(self, seq: int) -> int:
        return (seq + self._shift) & 0xFF

    def _send(self, packet: Packet, payload: bytes, steps: list[Step]) -> None:
        if self._left_out:
            self._shift -= (packet.next_seq - packet.seq) & 0xFF
        else:
            self._frame(payload, self._seq(packet.seq), steps)
            if self._again is not None:
                self._again.append(payload)
        if self._status_bytes > _STATUS_BYTES and payload[FLAG_OFFSET] == ACK_WANTED:
            self._shift = 0  # numbers begin anew

    def _frame(self, payload: bytes, seq: int, steps: list[Step]) -> None:
        framed, self.next_seq = frame_packet(payload, seq)
        begin, self._bytes = self._bytes, self._bytes + len(framed)
        for one in self._ordered:
            at = one.fault.byte - begin - 1  # the first byte is 1
            if not one.fault.byte or not one.is_live or not 0 <= at < len(framed):
                continue
            one.met += 1
            if one.fault.do == "cut":
                steps.append(framed[: at + 1])
                self._end(one.fault, steps)
                return
            framed = framed[:at] + bytes((framed[at] ^ _CHANGED,)) + framed[at + 1 :]
        steps.append(framed)

    def _ends_group(self, event: bytes) -> bool:
        if (
            self._gtid is None
            or self._events_of_group == 1
            or event[TYPE_OFFSET] in _OUTSIDE_GROUPS
        ):
            return False
        plain = event[:-CHECKSUM_SIZE] if self._checksum else event
        return ends_group(plain, standalone=self._standalone)

    def _end_group(self, steps: list[Step]) -> None:
        again, self._again, self._gtid, self._left_out = self._again, None, None, False
        for payload in again or ():
            if not self.has_ended:
                assert self.next_seq is not None
                before = self.next_seq
                self._frame(payload, before, steps)
                self._shift += (self.next_seq - before) & 0xFF
