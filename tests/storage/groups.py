"""Groups to store: small, of any size, and recognisable.

A group made here is what the store takes in normal form: a GTID event first, whose lengths are right, and then one
event of filler, of a type that a newer server may have: it ends the group, and nobody reads what is in it. The filler
depends on the GTID, so that mixed-up bytes are seen.
"""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import BinlogEngine, Position
from binlog_storage.ibb.chunk import Record
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.ibb.records import PageSource
from binlog_storage.log.group_reader import payload_up_to

_HEADER = struct.Struct("<IBIIIH")
_GTID_BODY = struct.Struct("<QIB6x")
_GTID_EVENT = 162
_FORMAT_DESCRIPTION_EVENT = 15
_FILLER_EVENT = 250

GTID_EVENT_BYTES = _HEADER.size + _GTID_BODY.size
GROUP_BYTES_MIN = GTID_EVENT_BYTES + _HEADER.size

assert GTID_EVENT_BYTES == 38


class Group(NamedTuple):
    """One group as it is appended; a start marker when `gtid` is None."""

    payload: bytes
    gtid: Gtid | None


def _event(kind: int, server_id: int, body: bytes) -> bytes:
    return _HEADER.pack(0, kind, server_id, _HEADER.size + len(body), 0, 0) + body


def filler(size: int, key: str) -> bytes:
    """`size` bytes that no other key gives. Never zeros or 0xFF alone, which the format uses."""
    block = hashlib.sha256(key.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def events(size: int, key: str) -> bytes:
    """One event of exactly `size` bytes, or nothing: what a group that crosses files must be made of."""
    assert size == 0 or size >= _HEADER.size
    return _event(_FILLER_EVENT, 1, filler(size - _HEADER.size, key)) if size else b""


def gtid_event(gtid: Gtid) -> bytes:
    return _event(_GTID_EVENT, gtid.server_id, _GTID_BODY.pack(gtid.seq_no, gtid.domain_id, 1))


def begin_event(gtid: Gtid) -> bytes:
    """The GTID event of a transaction: its group goes on until `COMMIT_EVENT`."""
    return _event(_GTID_EVENT, gtid.server_id, _GTID_BODY.pack(gtid.seq_no, gtid.domain_id, 4))


COMMIT_EVENT = XidEvent(7, 1).build()
"""The last event of a transaction."""


def group(gtid: Gtid, size: int = GROUP_BYTES_MIN) -> Group:
    """A group of exactly `size` bytes."""
    assert size >= GROUP_BYTES_MIN
    rest = _event(_FILLER_EVENT, gtid.server_id, filler(size - GROUP_BYTES_MIN, f"{gtid} {size}"))
    return Group(gtid_event(gtid) + rest, gtid)


def marker(number: int = 0) -> Group:
    """A start marker: one format description event."""
    description = FormatDescription("11.8.6-MariaDB", 1, created=1 + number)
    return Group(description.build(), None)


def simple(count: int, *, first: int = 1, domain: int = 0, size: int = 100) -> list[Group]:
    """`count` groups of one domain and server, numbered from `first`."""
    return [group(Gtid(domain, 1, seq_no), size) for seq_no in range(first, first + count)]


def history(
    rng: random.Random, count: int, *, size_max: int, domains: int = 3, servers: int = 2
) -> list[Group]:
    """A mixed history: several domains and servers, sizes from the least to `size_max`, some start markers.

    It begins with no marker, since a search from nothing may jump those that stand before all groups.
    """
    seq_nos = dict.fromkeys(range(domains), 0)
    made: list[Group] = []
    for number in range(count):
        if made and rng.random() < 0.04:
            made.append(marker(number))
            continue
        domain = rng.randrange(domains)
        seq_nos[domain] += 1
        gtid = Gtid(domain, 1 + rng.randrange(servers), seq_nos[domain])
        made.append(group(gtid, pick_size(rng, size_max)))
    return made


def pick_size(rng: random.Random, size_max: int) -> int:
    """Mostly small, some around a page, a few large."""
    kind = rng.random()
    if kind < 0.7:
        size = rng.randrange(GROUP_BYTES_MIN, 600)
    elif kind < 0.9:
        size = PAGE_SIZE + rng.randrange(-60, 60)
    else:
        size = rng.randrange(GROUP_BYTES_MIN, size_max + 1)
    return min(size, size_max)


def state_after(groups: Iterable[Group]) -> BinlogState:
    """The binlog state that these groups leave."""
    return BinlogState(g.gtid for g in groups if g.gtid is not None)


def payloads(groups: Iterable[Group]) -> list[bytes]:
    return [g.payload for g in groups]


def append_all(engine: BinlogEngine, groups: Iterable[Group]) -> None:
    for payload, gtid in groups:
        engine.append(payload, gtid)


def append_step_by_step(engine: IbbEngine, groups: Iterable[tuple[bytes, Gtid | None]]) -> None:
    """With room for each, which the background threads would make."""
    for payload, gtid in groups:
        while not engine.has_room:
            engine.step()
        engine.append(payload, gtid)
        engine.step()


def append_run(engine: BinlogEngine, groups: Sequence[Group]) -> None:
    """The same for groups of one domain and server, at once as far as there is room."""
    run = GroupRun.of([group.payload for group in groups], [g.gtid for g in groups if g.gtid])
    index = 0
    while (index := engine.append_run(run, index)) < len(run):
        append_all(engine, groups[index : index + 1])
        index += 1


def run_dry(engine: IbbEngine) -> None:
    """Do all that the background threads would do, until nothing is left."""
    while engine.step():
        pass


def settle(engine: IbbEngine) -> None:
    """All that was appended is durable, in the files and published."""
    engine.sync()
    run_dry(engine)


def opens_with(
    disk: Disk, options: StoreOptions, groups: Iterable[Group], facts: StateStore | None = None
) -> None:
    """A store is opened, and closed again, that has exactly these."""
    with closing(IbbEngine(disk, options, facts=facts)) as engine:
        assert read_all(engine) == payloads(groups)


def beginning(engine: BinlogEngine) -> Position:
    """Where the first group is: behind everything that a replica which has nothing could skip."""
    return engine.find_start(SlavePosition()).position


def read_from(engine: BinlogEngine, start: Position) -> list[bytes]:
    """All groups from `start` to the durable end."""
    found: list[bytes] = []
    while (batch := engine.read(start)).heads:
        assert batch.start == start
        assert batch.end > start
        found += batch.groups
        if batch.large is not None:
            found.append(b"".join(batch.large.pieces()))
        start = batch.end
    return found


def read_all(engine: BinlogEngine) -> list[bytes]:
    """All groups of a store from which nothing was purged.

    It is asked as by a replica that has nothing, which is refused if something is missing in front. Such a search may
    jump start markers (`wanted`), so it is read from the first place.
    """
    beginning(engine)
    return read_from(engine, engine.first_start().position)


def gtid_of(payload: bytes) -> Gtid | None:
    """The GTID of a group made here."""
    if payload[4] == _FORMAT_DESCRIPTION_EVENT:
        return None
    server_id = int.from_bytes(payload[5:9], "little")
    seq_no, domain_id, _ = _GTID_BODY.unpack_from(payload, _HEADER.size)
    return Gtid(domain_id, server_id, seq_no)


def wanted(groups: Sequence[bytes], position: SlavePosition, state: BinlogState) -> Iterator[bytes]:
    """The groups that a replica at `position` gets, of `groups` that begin where the state is `state`.

    The plain rule of MariaDB's linear scan: in a domain of the position everything is passed over up to and with the
    group of the position; other domains are sent from the start. Start markers are left out: a search may jump them.
    """
    waiting = {g.domain_id: g for g in position if state.last(g.domain_id) != g}
    for payload in groups:
        gtid = gtid_of(payload)
        if gtid is None:
            continue
        target = waiting.get(gtid.domain_id)
        if target is None:
            yield payload
        elif gtid.server_id == target.server_id and gtid.seq_no >= target.seq_no:
            del waiting[gtid.domain_id]
            if gtid.seq_no > target.seq_no:
                yield payload


def group_payload(pages: PageSource, record: Record) -> bytes:
    """The whole group of a commit record in one piece. Raises `CorruptBinlog`."""
    payload = payload_up_to(pages, record, sys.maxsize)
    assert payload is not None
    return payload
