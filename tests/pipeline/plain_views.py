"""What views say of groups, by plain Python: event after event, with the parsers of `binlog_protocol/events`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from binlog_pipeline.groups import Groups
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import EventHeader, split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import ROWS_TYPES, RowsEvent
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.events.xid import XidEvent
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.engine import LargeGroup
from binlog_storage.ibb.chunk import Position

from tests.protocol.events.rows import samples

DATA = Path(__file__).parent.parent / "protocol" / "data"
Row = dict[str, Any]
T = EventType


class Placed(NamedTuple):
    payload: bytes
    end: Position


def recorded() -> list[bytes]:
    """Groups of real servers, of every kind."""
    found = [group.payload for name in samples.NAMES for group in samples.groups(name)]
    for path in sorted(DATA.glob("*.binlog")):
        found += [b"".join(g.pieces()) for g in classic_groups([path]) if g.gtid is not None]
    return found


def placed(payloads: Iterable[bytes]) -> list[Placed]:
    """At places as good as any."""
    return [Placed(p, Position(3, 1000 + 7 * i)) for i, p in enumerate(payloads)]


def as_groups(some: Sequence[Placed], at_once: int = 1000) -> Iterator[Groups]:
    for begin in range(0, len(some), at_once):
        part = some[begin : begin + at_once]
        yield Groups.of([g.payload for g in part], [g.end for g in part])


def as_large(some: Iterable[Placed], piece: int = 100) -> Iterator[Groups]:
    """Each as if it were a large group, in pieces of so many bytes."""
    for payload, end in some:

        def pieces(payload: bytes = payload) -> Iterator[bytes]:
            return (payload[at : at + piece] for at in range(0, len(payload), piece))

        yield Groups.of_large(LargeGroup(payload[:64], end, pieces))


def event_rows(some: Iterable[Placed], *, large: bool = False) -> list[Row]:
    """View events."""
    found = []
    for payload, end in some:
        tables: dict[int, TableMap] = {}
        events = list(split_events(payload))
        gtid = GtidEvent.parse(events[0]).gtid
        for number, event in enumerate(events):
            header = EventHeader.parse(event)
            row: Row = dict.fromkeys(("db", "table", "table_id", "rows"))
            if header.type == T.TABLE_MAP:
                table = TableMap.parse(event)
                tables[table.table_id] = table
                row.update(db=table.database, table=table.table, table_id=table.table_id)
            elif header.type in ROWS_TYPES:
                rows = RowsEvent.parse(uncompressed(event))
                table = tables[rows.table_id]
                row.update(db=table.database, table=table.table, table_id=table.table_id)
                row["rows"] = sum(1 for _ in rows.rows(table))
            elif header.type in (T.QUERY, T.QUERY_COMPRESSED):
                row["db"] = QueryEvent.parse(uncompressed(event)).database.decode() or None
            found.append(
                {
                    "file": end.file_no,
                    "offset": end.offset,
                    "gtid": gtid_value(payload),
                    "event_no": number,
                    "ts": when(header.timestamp),
                    "type": header.type,
                    "type_name": T(header.type).name,
                    "size": len(event),
                    "flags": header.flags,
                    **row,
                    "large": large,
                }
            )
        assert gtid.seq_no == found[-1]["gtid"]["seq"]
    return found


def transaction_rows(some: Iterable[Placed], *, large: bool = False) -> list[Row]:
    """View transactions."""
    return [_transaction(payload, end, large) for payload, end in some]


def _transaction(payload: bytes, end: Position, large: bool) -> Row:
    events = list(split_events(payload))
    begin = GtidEvent.parse(events[0])
    row: Row = {
        "gtid": gtid_value(payload),
        "file": end.file_no,
        "offset": end.offset,
        "ts": when(begin.timestamp),
        "events": len(events),
        "bytes": len(payload),
        "inserts": 0,
        "updates": 0,
        "deletes": 0,
        "tables": [],
        "ddl": bool(begin.flags2 & GtidFlags.DDL),
        "standalone": begin.is_standalone,
        "xa": "prepared" if begin.flags2 & GtidFlags.PREPARED_XA else None,
        "xid": None,
        "thread_id": begin.thread_id,  # of servers from 11.8 on
        "large": large,
    }
    tables: dict[tuple[str, str], Row] = {}
    for event in event_rows([Placed(payload, end)]):
        if event["rows"] is None:
            continue
        kind = event["type_name"].split("_")[0]
        row[{"WRITE": "inserts", "UPDATE": "updates", "DELETE": "deletes"}[kind]] += event["rows"]
        name = event["db"], event["table"]
        table = tables.setdefault(name, {"db": name[0], "table": name[1], "rows": 0, "bytes": 0})
        table["rows"] += event["rows"]
        table["bytes"] += event["size"]
    row["tables"] = list(tables.values())
    for raw in events:
        if raw[4] == T.XID:
            row["xid"] = XidEvent.parse(raw).xid
        elif raw[4] in (T.QUERY, T.QUERY_COMPRESSED):
            query = QueryEvent.parse(uncompressed(raw))
            if row["thread_id"] is None:
                row["thread_id"] = query.thread_id
            if begin.flags2 & GtidFlags.COMPLETED_XA:
                row["xa"] = query.text.split()[1].decode().lower()
    return row


def gtid_value(payload: bytes) -> Row:
    gtid = GtidEvent.parse(next(iter(split_events(payload)))).gtid
    return {"domain": gtid.domain_id, "server": gtid.server_id, "seq": gtid.seq_no}


def when(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
