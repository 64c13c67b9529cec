"""A group that does not come out of a stream: is it one that a store may have?

The groups of a stream are put together by `EventGroupAssembler`, which reads each event. Those of another store or of
an archive lie there whole already: they are looked at here before they are stored, and by `verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, gtid_of
from binlog_protocol.events.header import TYPE_OFFSET, joined_events, split_events, split_pieces
from binlog_protocol.groups.event_group import ends_group
from binlog_protocol.groups.group_runs import take_bare_run
from binlog_protocol.groups.vocabulary import ROLES, Role, check_event, type_name

_OUTSIDE: Final = frozenset({Role.DROPPED, Role.INCIDENT})
_PIECE_BYTES: Final = 1 << 18


class GroupCheck:
    """Takes the events of one group, or one start marker, in normal form; then `finish`. Both raise `ProtocolError`.

    first: the first event.
    """

    def __init__(self, *, two_ends: bool = False) -> None:
        """`two_ends`: it is of two lists (of 12.3), each of which may have an end of its own."""
        self.first: bytes | None = None
        self._two_ends = two_ends
        self._standalone = self._ended = False

    def add(self, event: bytes) -> None:
        """Check the next event."""
        type_ = event[TYPE_OFFSET]
        if self._ended and not self._two_ends:
            raise ProtocolError(f"an event of type {type_name(type_)} behind the end of the group")
        if self.first is None:
            self.first = event
            self._begin(event)
            return
        if type_ == EventType.GTID:
            raise ProtocolError("a GTID event inside the group of another")
        if ROLES[type_] in _OUTSIDE:
            raise ProtocolError(f"an event of type {type_name(type_)} inside a group")
        check_event(event)
        self._ended = self._ended or ends_group(event, standalone=self._standalone)

    def _begin(self, event: bytes) -> None:
        type_ = event[TYPE_OFFSET]
        if type_ == EventType.GTID:
            self._standalone = GtidEvent.parse(event).is_standalone
        elif type_ == EventType.FORMAT_DESCRIPTION:
            check_event(event)
            self._ended = True
        else:
            raise ProtocolError(f"a group begins with an event of type {type_name(type_)}")

    def finish(self) -> None:
        """Check that the group ends here."""
        if self.first is None:
            raise ProtocolError("a group without events")
        if not self._ended:
            raise ProtocolError(f"group {gtid_of(self.first)} has no end")


def check_groups(payloads: bytes | bytearray | memoryview, ends: Sequence[int]) -> None:
    """Groups one behind the other, and where each of them ends. Raises `ProtocolError`."""
    data = memoryview(payloads)
    begin, number = 0, 0
    while number < len(ends):
        # At the speed of C, where they are as nearly all are.
        stop = max(ends[number], min(begin + _PIECE_BYTES, len(data)))
        taken = take_bare_run(data, begin, stop, ChecksumAlgorithm.NONE)
        if taken is not None:
            _, _, run = taken
            found = [begin + end for end in run.ends]
            if found == list(ends[number : number + len(found)]):
                begin, number = found[-1], number + len(found)
                continue
        check = GroupCheck(two_ends=True)
        for event in split_events(bytes(data[begin : ends[number]])):
            check.add(event)
        check.finish()
        begin, number = ends[number], number + 1


def checked_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """A group in pieces cut anywhere, again in pieces. Raises `ProtocolError`; what came before was sound so far."""
    return joined_events(_checked(pieces), _PIECE_BYTES)


def _checked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    check = GroupCheck(two_ends=True)
    for event in split_pieces(pieces):
        check.add(event)
        yield event
    check.finish()
