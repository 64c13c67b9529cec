"""The faults of one stream: packets in, packets and faults out. Pure; `faulty_stream.py` does what they say.

Packets are numbered when they are taken out, so that one may be put in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from binlog_protocol.errors import UnknownServerError
from binlog_protocol.events.checksum import CHECKSUM_SIZE, append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import FLAGS2_OFFSET, GtidFlags, gtid_of
from binlog_protocol.events.header import FLAG_IGNORABLE, TYPE_OFFSET, EventHeader, build_event
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.groups.event_group import ends_group
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_protocol.wire.packets import Packet, PacketReader, frame_packet
from binlog_protocol.wire.semi_sync import (
    ACK_WANTED,
    FLAG_OFFSET,
    SEQUENCE_AFTER_ACK,
    STATUS,
    ReplicaPlace,
)

from binlog_server.faults.faults import GOES_BACK, FaultOrder, OrderedFault

_CHANGED: Final = 0xFF
_FOREIGN: Final = b"what only another version knows"
_PLAIN_STATUS: Final = b"\0"
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
_ENDS: Final = ("cut", "error", "duplicate_server_id", "break_tls", *GOES_BACK)
"""Behind these nothing comes."""
_OF_ACKS: Final = ("lose_ack", "delay_ack")
HELD_BYTES_MAX: Final = 16 << 20
"""Of a group that is sent once more, or later: it waits in memory."""
_TOO_LARGE: Final = FaultOrder(
    "error",
    event=1,
    errno=UnknownServerError.errno,
    message=f"a fault holds no group of more than {HELD_BYTES_MAX} bytes",
)

Step = bytes | FaultOrder
"""Packets to send, or what happens behind them."""


class _Counted(NamedTuple):
    """A fault, and where its counting begins."""

    one: OrderedFault
    events: int = 0
    bytes: int = 0


class FaultRun:
    """The faults of one stream, but those at a time.

    Args:
        ordered: in front of the stream; `add` takes those that come later.
        checksum: the events have checksums.
    """

    def __init__(self, ordered: Iterable[OrderedFault], *, checksum: bool) -> None:
        self._ordered = [_Counted(one) for one in ordered]
        self._checksum = checksum
        self._status = _PLAIN_STATUS
        self._reader = PacketReader(EVENT_BYTES_MAX + len(STATUS))
        # In the compressed protocol each piece of a large event is numbered anew; and they are our own.
        self._reader.numbered = False
        self._current: Iterator[Step] = iter(())
        self._events = 0  # of the stream
        self._bytes = 0
        self._gtid: Gtid | None = None  # of the group that is under way
        self._standalone = False
        self._events_of_group = 0
        self._place = ReplicaPlace()  # behind what was sent
        self._server_id = 0  # of the events that are in no store
        self.next_seq: int | None = None
        """The sequence number of what comes next; None before the first packet."""
        self._left_out = False
        self._again: list[bytes] | None = None  # payloads of the group that is repeated
        # Of groups that are sent behind the next one; the last of them is the first here.
        self._later: list[list[bytes]] = []
        self._is_later = False  # the first of these is under way
        self._held = 0  # bytes of all these
        self._acks_wanted = 0
        self._ack_faults: list[OrderedFault] = []  # for the next acknowledgement that is asked for
        self.at_acks: dict[int, list[OrderedFault]] = {}
        """Faults of acknowledgements, by their numbers from 1 on."""
        self.has_ended = False

    def start_semi_sync(self) -> None:
        """The packets have what `binlog_protocol.wire.semi_sync` says."""
        self._status = STATUS

    def add(self, one: OrderedFault) -> None:
        """An order for the stream that runs: its events and bytes are counted from here on."""
        self._ordered.append(_Counted(one, self._events, self._bytes))

    def begin(self, seq: int, place: ReplicaPlace, server_id: int, acks_wanted: int) -> None:
        """What was sent so far was not fed: go on between two events of it.

        Args:
            seq: the number of the next packet.
            place: where the replica is.
            server_id: of the events in front.
            acks_wanted: how many acknowledgements were asked for.
        """
        self.next_seq, self._server_id, self._acks_wanted = seq, server_id, acks_wanted
        self._place.follow(place)

    def feed(self, data: bytes | bytearray) -> None:
        """Packets of the stream, cut anywhere."""
        self._reader.feed(data)

    def next_step(self) -> Step | None:
        """What comes next; None until more is fed, and behind the end."""
        while not self.has_ended:
            step = next(self._current, None)
            if step is not None:
                self.has_ended = isinstance(step, FaultOrder) and step.do in _ENDS
                return step
            packet = self._reader.next_packet()
            if packet is None:
                break
            self._current = self._steps_of(packet)
        return None

    def heartbeat(self, fault: FaultOrder) -> bytes:
        """A heartbeat, now: by default one with the place that the replica has. Nothing before the first packet."""
        if self.next_seq is None or self.has_ended:
            return b""
        file, position = fault.file or self._place.file, fault.log_pos or self._place.position
        return self._put_in(HeartbeatEvent(file, position, self._server_id).build())

    def _put_in(self, event: bytes) -> bytes:
        """The packet of an event that nobody has logged."""
        assert self.next_seq is not None, "there was a packet"
        payload = self._status + (append_checksum(event) if self._checksum else event)
        framed, self.next_seq = frame_packet(payload, self.next_seq)
        self._bytes += len(framed)
        return framed

    def _steps_of(self, packet: Packet) -> Iterator[Step]:
        if self.next_seq is None:
            self.next_seq = packet.seq
        event = packet.payload[len(self._status) :]
        self._count(event)
        payload = self._claimed(packet.payload, event)
        for counted in self._ordered:
            if self._is_here(counted):
                one, fault = counted.one, counted.one.fault
                if fault.do not in _OF_ACKS:  # these are met when the acknowledgement comes
                    one.met += 1
                match fault.do:
                    case "garble":
                        payload = payload[:-1] + bytes((payload[-1] ^ _CHANGED,))
                    case "cut" if fault.inside:
                        framed, _ = frame_packet(payload, self.next_seq)
                        yield framed[: len(framed) // 2]
                        yield fault
                    case "heartbeat":
                        yield self.heartbeat(fault)
                    case "foreign_event":
                        yield self._put_in(self._foreign(fault))
                    case "hole":
                        self.next_seq = (self.next_seq + 1) & 0xFF
                    case _ if not self._changes_group(one):
                        yield fault
        yield from self._send(payload)
        if self._ends_group(event):
            yield from self._end_group()

    def _foreign(self, fault: FaultOrder) -> bytes:
        flags = FLAG_IGNORABLE if fault.ignorable else 0
        return build_event(fault.event_type, _FOREIGN, server_id=self._server_id, flags=flags)

    def _changes_group(self, one: OrderedFault) -> bool:
        match one.fault.do:
            case "leave_out":
                self._left_out = True
            case "repeat":
                self._again = []
            case "reorder":
                self._later.insert(0, [])
                self._is_later = True
            case "lose_ack" | "delay_ack":
                self._ack_faults.append(one)
            case _:
                return False
        return True

    def _count(self, event: bytes) -> None:
        self._events += 1
        self._server_id = self._server_id or EventHeader.parse(event).server_id
        if event[TYPE_OFFSET] == EventType.GTID:
            self._gtid = gtid_of(event)
            self._standalone = bool(event[FLAGS2_OFFSET] & GtidFlags.STANDALONE)
            self._events_of_group = 0
        self._events_of_group += event[TYPE_OFFSET] not in _OUTSIDE_GROUPS

    def _claimed(self, payload: bytes, event: bytes) -> bytes:
        if event[TYPE_OFFSET] != EventType.FORMAT_DESCRIPTION:
            return payload
        for one, _, _ in self._ordered:
            if one.is_live and one.fault.is_of_format:
                one.met += 1
                claimed = replace(FormatDescription.parse(event), server_version=one.fault.version)
                payload = self._status + claimed.build()
        return payload

    def _is_here(self, counted: _Counted) -> bool:
        one, fault = counted.one, counted.one.fault
        if not one.is_live or fault.byte or fault.after_seconds or fault.is_of_format:
            return False
        if one.gtid is None:
            return fault.event == self._events - counted.events
        return self._gtid == one.gtid and self._events_of_group == (fault.event or 1)

    def _send(self, payload: bytes) -> Iterator[Step]:
        if self._left_out:
            return
        if self._is_later:
            yield from self._hold(self._later[0], payload)
        else:
            yield from self._frame(payload)
        if self._again is not None:
            yield from self._hold(self._again, payload)

    def _hold(self, held: list[bytes], payload: bytes) -> Iterator[Step]:
        """One that has no room ends the stream: it would not be what was ordered."""
        self._held += len(payload)
        if self._held > HELD_BYTES_MAX:
            held.clear()
            yield _TOO_LARGE
        else:
            held.append(payload)

    def _wants_ack(self, payload: bytes) -> bool:
        return self._status == STATUS and payload[FLAG_OFFSET] == ACK_WANTED

    def _frame(self, payload: bytes) -> Iterator[Step]:
        assert self.next_seq is not None, "the first packet has set it"
        framed, self.next_seq = frame_packet(payload, self.next_seq)
        self._note_sent(payload)
        begin, self._bytes = self._bytes, self._bytes + len(framed)
        for one, _, behind in self._ordered:
            at = behind + one.fault.byte - begin - 1  # the first byte is 1
            if not one.fault.byte or not one.is_live or not 0 <= at < len(framed):
                continue
            one.met += 1
            if one.fault.do == "cut":
                yield framed[: at + 1]
                yield one.fault
                return
            framed = framed[:at] + bytes((framed[at] ^ _CHANGED,)) + framed[at + 1 :]
        yield framed

    def _note_sent(self, payload: bytes) -> None:
        self._place.feed(payload[len(self._status) :], self._checksum)
        if self._wants_ack(payload):
            self.next_seq = SEQUENCE_AFTER_ACK
            self._acks_wanted += 1
            if self._ack_faults:
                self.at_acks[self._acks_wanted] = self._ack_faults
                self._ack_faults = []

    def _ends_group(self, event: bytes) -> bool:
        if (
            self._gtid is None
            or self._events_of_group == 1
            or event[TYPE_OFFSET] in _OUTSIDE_GROUPS
        ):
            return False
        plain = event[:-CHECKSUM_SIZE] if self._checksum else event
        return ends_group(plain, standalone=self._standalone)

    def _end_group(self) -> Iterator[Step]:
        again, self._again, self._gtid, self._left_out = self._again or [], None, None, False
        if self._is_later:
            self._later[0] += again
            self._is_later = False
            return
        later, self._later, self._held = self._later, [], 0
        for held in (again, *later):
            for payload in held:
                yield from self._frame(payload)
