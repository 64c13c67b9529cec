"""Runs of whole groups, taken out of the packets of a dump stream at once: the hot path of a relay.

A run is what nearly all of a stream is: groups that are whole, of one domain and server, with increasing numbers, each
event in one packet, in sequence, with a right checksum and a body that can be read (`vocabulary`). Everything else ends
a run in front of its group, and is left to those who take one event after the other (`ClientConnection.next_event`,
`EventGroupAssembler`): groups that are not whole yet, large events, other events than those of groups, and whatever is
wrong.

Of a group that is larger than what is received at once its events are taken, as many as there are (`take_part`).

There are runs and parts only where the C part (`_group_runs.c`) was built. Without it everything goes the other way,
with the same outcome; tests/protocol/groups/test_group_runs.py holds the two equal.
"""

from __future__ import annotations

from array import array
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.vocabulary import C_TABLE
from binlog_protocol.gtid import Gtid, gtid_of
from binlog_protocol.wire.semi_sync import STILL, PositionStep

try:
    from binlog_protocol.events import _group_runs
except ImportError:
    HAS_C = False
else:
    HAS_C = True

_CODE: Final = "Q"
_POSITION_CODE: Final = "I"
assert array(_CODE).itemsize == 8
assert array(_POSITION_CODE).itemsize == 4


Buffer = bytearray | memoryview
# Of a `NamedTuple` itself it would be a call of Python; each group at the tail has one.
_step_of: Final = partial(tuple.__new__, PositionStep)


@dataclass(frozen=True, slots=True)
class GroupRun:
    """Groups one behind the other. At least one.

    payloads: all of them in normal form.
    ends: of each, in `payloads`.
    seq_nos: increasing.
    timestamp: of the last one, in seconds since 1970.
    step: what they did to the position of a replica.
    ack_wanted: with semi-sync, one of them is to be acknowledged.
    end_positions: of the last event of each, as the master sent it. Empty for a run that was made here.
    """

    domain_id: int
    server_id: int
    payloads: bytearray
    ends: array[int]
    seq_nos: array[int]
    timestamp: int
    step: PositionStep = STILL
    ack_wanted: bool = False
    end_positions: array[int] = field(default_factory=lambda: array(_POSITION_CODE))

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.ends)

    @property
    def last(self) -> Gtid:
        """The GTID of the last group."""
        return Gtid(self.domain_id, self.server_id, self.seq_nos[-1])

    def payload(self, index: int) -> bytes:
        """The bytes of one group, in normal form."""
        begin = self.ends[index - 1] if index else 0
        return bytes(memoryview(self.payloads)[begin : self.ends[index]])

    def gtid(self, index: int) -> Gtid:
        """The GTID of one group."""
        return gtid_of((self.domain_id, self.server_id, self.seq_nos[index]))

    @classmethod
    def of(cls, payloads: list[bytes], gtids: list[Gtid], timestamp: int = 0) -> GroupRun:
        """The run of these groups. ValueError if they cannot be one."""
        domains = {(gtid.domain_id, gtid.server_id) for gtid in gtids}
        seq_nos = array(_CODE, (gtid.seq_no for gtid in gtids))
        if len(domains) != 1 or any(a >= b for a, b in pairwise(seq_nos)):
            raise ValueError("these groups are not one run")
        ends = array(_CODE)
        end = 0
        for payload in payloads:
            end += len(payload)
            ends.append(end)
        return cls(*domains.pop(), bytearray().join(payloads), ends, seq_nos, timestamp)


TakenRun = tuple[int, int, GroupRun]
"""Where the stream goes on, place in the buffer and sequence number; and the run."""


class TakenPart(NamedTuple):
    """Events of a group that has begun, in normal form, so many of them, and where the stream goes on."""

    at: int
    seq: int
    events: bytearray
    event_count: int
    step: PositionStep
    ack_wanted: bool


def take_run(
    buffer: Buffer, at: int, stop: int, seq: int, checksum_algorithm: int, semi_sync: bool
) -> TakenRun | None:
    """The run in `buffer[at:stop]`, where a packet begins that must have the number `seq`. None if there is none.

    `semi_sync`: the packets are as `binlog_protocol.wire.semi_sync` says.
    """
    if not HAS_C:
        return None
    return _taken(
        _group_runs.take_run(buffer, at, stop, seq, checksum_algorithm, C_TABLE, semi_sync)
    )


def take_bare_run(buffer: Buffer, at: int, stop: int, checksum_algorithm: int) -> TakenRun | None:
    """The run in `buffer[at:stop]`, where events lie as in a binlog file, without packets. None if there is none."""
    if not HAS_C:
        return None
    return _taken(
        _group_runs.take_run(buffer, at, stop, 0, checksum_algorithm, C_TABLE, False, True)
    )


def pass_bare_groups(
    buffer: bytes | Buffer, at: int, stop: int, enough: int, checksum_algorithm: int
) -> int:
    """Behind the first plain group in `buffer[at:stop]` that ends at `enough` or later; without one behind the last.

    As `take_bare_run`, but nothing is taken, and the groups may be of any domains and servers.
    """
    if not HAS_C:
        return at
    passed: int = _group_runs.pass_groups(buffer, at, stop, enough, checksum_algorithm, C_TABLE)
    return passed


def _taken(found: Any) -> TakenRun | None:
    if found is None:
        return None
    at, seq, payloads, ends, seq_nos, domain_id, server_id, timestamp, *rest = found
    advance, floor, ack_wanted, end_positions = rest
    run = GroupRun(
        domain_id,
        server_id,
        payloads,
        array(_CODE, ends),
        array(_CODE, seq_nos),
        timestamp,
        _step_of((advance, floor)),
        bool(ack_wanted),
        array(_POSITION_CODE, end_positions),
    )
    return at, seq, run


def take_part(
    buffer: Buffer, at: int, stop: int, seq: int, checksum_algorithm: int, semi_sync: bool
) -> TakenPart | None:
    """The events there of a group that has begun and is not standalone, in front of the one that ends it."""
    if not HAS_C:
        return None
    found = _group_runs.take_part(buffer, at, stop, seq, checksum_algorithm, C_TABLE, semi_sync)
    if found is None:
        return None
    at, seq, events, count, advance, floor, ack_wanted = found
    return TakenPart(at, seq, events, count, PositionStep(advance, floor), bool(ack_wanted))
