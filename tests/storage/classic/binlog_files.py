"""Traditional binlog files as MariaDB writes them, made here: any groups, any list, closed or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAG_IN_USE,
    FLAGS_OFFSET,
    LENGTH_OFFSET,
    build_event,
)
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.classic.event_reader import CLASSIC_MAGIC
from binlog_storage.classic.groups import FileGroups
from binlog_storage.intake.source import SourceGroup, UnfinishedGroup

from tests.storage.groups import Group, filler

VERSION = "10.11.19-MariaDB-log"
CREATED = 1_700_000_000


def group(gtid: Gtid, size: int = 0, event_bytes: int = 8192) -> Group:
    """A transaction in normal form with `size` bytes of events between its GTID and XID."""
    events = [GtidEvent(gtid, GtidFlags.TRANSACTIONAL, timestamp=CREATED).build()]
    while size > 0:
        text = filler(min(size, event_bytes), f"{gtid} {size}")
        events.append(QueryEvent(text, gtid.server_id, timestamp=CREATED).build())
        size -= event_bytes
    events.append(XidEvent(gtid.seq_no, gtid.server_id, timestamp=CREATED).build())
    return Group(b"".join(events), gtid)


def standalone(gtid: Gtid, text: bytes = b"CREATE TABLE t (a INT)") -> Group:
    """DDL."""
    begin = GtidEvent(gtid, GtidFlags.STANDALONE | GtidFlags.DDL, timestamp=CREATED).build()
    return Group(begin + QueryEvent(text, gtid.server_id, timestamp=CREATED).build(), gtid)


def simple(count: int, *, first: int = 1, domain: int = 0, server: int = 1) -> list[Group]:
    """Groups of one domain and server, each third a standalone one."""
    gtids = [Gtid(domain, server, number) for number in range(first, first + count)]
    return [standalone(g) if g.seq_no % 3 == 0 else group(g, g.seq_no * 7 % 300) for g in gtids]


def state_after(groups: Iterable[Group], before: BinlogState | None = None) -> BinlogState:
    """What had been logged behind them."""
    state = before.copy() if before is not None else BinlogState()
    state.overlay(g.gtid for g in groups if g.gtid is not None)
    return state


def write(
    path: Path,
    groups: Sequence[Group],
    *,
    before: BinlogState | None = None,
    created: int = 0,
    checksums: bool = True,
    closed: bool = True,
    list_event: bool = True,
) -> list[int]:
    """One file. Returns the offsets: where each group begins, and where the last one ends."""
    description = FormatDescription(
        VERSION, 1, created, int(checksums), CREATED, flags=0 if closed else FLAG_IN_USE
    )
    data = bytearray(CLASSIC_MAGIC)
    head = bytearray(description.build())
    if not closed:
        # It is summed as if its file were closed.
        head[:] = FormatDescription(VERSION, 1, created, int(checksums), CREATED).build()
        head[FLAGS_OFFSET] |= FLAG_IN_USE
    data += head
    if list_event:
        entries = () if before is None else tuple(before.entries())
        _add(data, GtidList(entries, 1, timestamp=CREATED).build(), checksums)
    name = path.name.encode()
    checkpoint = len(name).to_bytes(4, "little") + name
    _add(data, build_event(EventType.BINLOG_CHECKPOINT, checkpoint, server_id=1), checksums)
    offsets = []
    for one in groups:
        offsets.append(len(data))
        at = 0
        while at < len(one.payload):
            begin = at + LENGTH_OFFSET
            size = int.from_bytes(one.payload[begin : begin + 4], "little")
            _add(data, one.payload[at : at + size], checksums)
            at += size
    offsets.append(len(data))
    if closed:
        _add(data, build_event(EventType.STOP, b"", server_id=1, timestamp=CREATED), checksums)
    path.write_bytes(data)
    return offsets


def _add(data: bytearray, event: bytes, checksums: bool) -> None:
    end = len(data) + len(event) + (4 if checksums else 0)
    event = event[:END_POSITION_OFFSET] + end.to_bytes(4, "little") + event[FLAGS_OFFSET:]
    data += append_checksum(event) if checksums else event


def write_chain(directory: Path, *parts: Sequence[Group], checksums: bool = True) -> list[Path]:
    """Files m-bin.000001 ... that follow one another; the server was started before the first."""
    directory.mkdir(parents=True, exist_ok=True)
    state = BinlogState()
    paths = []
    for number, groups in enumerate(parts, 1):
        path = directory / f"m-bin.{number:06d}"
        write(path, groups, before=state, created=CREATED * (number == 1), checksums=checksums)
        state = state_after(groups, state)
        paths.append(path)
    return paths


def read(path: Path, *, runs: bool = True) -> tuple[list[Group], FileGroups]:
    """The groups and markers of one file."""
    reader = FileGroups(path)
    found: list[Group] = []
    try:
        for item in reader.items(runs=runs):
            if isinstance(item, GroupRun):
                found += [Group(item.payload(i), item.gtid(i)) for i in range(len(item))]
            else:
                found += _whole(item)
    finally:
        reader.close()
    return found, reader


def _whole(item: SourceGroup) -> list[Group]:
    try:
        return [Group(b"".join([item.payload, *(item.rest or ())]), item.gtid)]
    except UnfinishedGroup:
        return []
