"""Row changes as a real server logs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.header import split_events
from binlog_protocol.events.rows import ROWS_TYPES, ChangeKind, RowChange, RowsEvent
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.groups.event_group import EventGroup, EventGroupAssembler

from binlog_server.testing.mariadb import MariaDB
from tests.integration.raw_client import RawClient

TABLE_MAP = 19


class LoggedChange(NamedTuple):
    kind: ChangeKind
    event: RowsEvent
    table: TableMap
    row: RowChange


def groups_after(upstream: MariaDB, position: str) -> list[EventGroup]:
    """What the server has logged behind a GTID position."""
    assembler = EventGroupAssembler(ChecksumAlgorithm.CRC32)
    with RawClient(upstream) as client:
        found = [assembler.feed(event) for event in client.dump(position)]
    return [group for group in found if isinstance(group, EventGroup)]


def row_events_after(upstream: MariaDB, position: str) -> Iterator[tuple[RowsEvent, TableMap]]:
    """The row events behind a position, their rows not decoded."""
    for group in groups_after(upstream, position):
        tables: dict[int, TableMap] = {}
        for event in split_events(group.payload):
            if event[4] == TABLE_MAP:
                table = TableMap.parse(event)
                tables[table.table_id] = table
            elif event[4] in ROWS_TYPES:
                rows = RowsEvent.parse(event)
                yield rows, tables[rows.table_id]


def changes_after(upstream: MariaDB, position: str) -> Iterator[LoggedChange]:
    """All rows changed behind a position."""
    for rows, table in row_events_after(upstream, position):
        for row in rows.rows(table):
            yield LoggedChange(rows.kind, rows, table, row)
