"""What the binlog says: its row events applied to empty tables, and nothing is forgiven.

A replica looks rows up by their key and forgives the rest; here an image must be the row that is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import RowsEvent, RowsFlags
from binlog_protocol.events.table_map import TableMap

Values = tuple[Any, ...]
Tables = dict[str, dict[Values, Values]]
"""By `database.table` the rows by their primary key."""

_DDL = re.compile(
    r"(CREATE TABLE|DROP TABLE(?: IF EXISTS)?|TRUNCATE TABLE|ALTER TABLE) `(\w+)`\.`(\w+)`"
)
_ROWS = (EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1)


class Replay:
    """Tables that groups are applied to. Raises `AssertionError` for what no replica should be given.

    Attributes:
        seq_no: of the last group.
        highest: by table the highest first value that any row has had: numbers of AUTO_INCREMENT that are used.
    """

    def __init__(self, base: Mapping[str, Mapping[Values, Values]] | None = None) -> None:
        self.tables: Tables = {name: dict(rows) for name, rows in (base or {}).items()}
        self.seq_no = 0
        self.highest: dict[str, int] = {}

    def apply_all(self, groups: Iterable[bytes]) -> None:
        for payload in groups:
            if payload[4] == EventType.GTID:
                self._group(list(split_events(payload)))

    def _group(self, events: list[bytes]) -> None:
        gtid = GtidEvent.parse(events[0])
        assert gtid.gtid.seq_no == self.seq_no + 1, f"{gtid.gtid} behind {self.seq_no}"
        self.seq_no = gtid.gtid.seq_no
        if gtid.flags2 & GtidFlags.STANDALONE:
            assert len(events) == 2, f"{gtid.gtid}: DDL of {len(events)} events"
            self._ddl(QueryEvent.parse(events[1]).text.decode())
            return
        if events[-1][4] == EventType.QUERY:  # of a table without transactions, or XA
            end = QueryEvent.parse(events[-1]).text
            assert end == b"COMMIT" or end.startswith(b"XA COMMIT"), end
        else:
            assert events[-1][4] == EventType.XID, f"{gtid.gtid} has no XID"
        assert len(events) > 2, f"{gtid.gtid} is empty"
        table: TableMap | None = None
        is_ended = True
        for event in events[1:-1]:
            kind = event[4]
            if kind == EventType.ANNOTATE_ROWS:
                assert is_ended, f"{gtid.gtid}: a statement within another"
                table = None
            elif kind == EventType.TABLE_MAP:
                table, is_ended = TableMap.parse(event), False
            else:
                assert kind in _ROWS, f"{gtid.gtid}: an event of type {kind}"
                assert table is not None, f"{gtid.gtid}: rows without a table"
                rows = RowsEvent.parse(event)
                self._rows(table, rows, f"{gtid.gtid}")
                is_ended = bool(rows.flags & RowsFlags.STMT_END)
        assert is_ended, f"{gtid.gtid}: a statement without an end"

    def _ddl(self, text: str) -> None:
        if text.startswith(("CREATE DATABASE", "CREATE SCHEMA")):
            return
        found = _DDL.match(text)
        assert found is not None, text
        verb, name = found[1], f"{found[2]}.{found[3]}"
        if verb.startswith("ALTER"):  # these keep rows as they are
            assert name in self.tables, f"{name} is not there: {text}"
            return
        self.highest.pop(name, None)
        if verb.startswith("CREATE"):
            assert name not in self.tables, f"{name} is there: {text}"
            self.tables[name] = {}
        elif verb.startswith("DROP"):
            assert name in self.tables, f"{name} is not there: {text}"
            del self.tables[name]
        else:
            self.tables[name].clear()

    def _rows(self, table: TableMap, event: RowsEvent, place: str) -> None:
        assert table.primary_key is not None, f"{place}: no full metadata"
        name = f"{table.database}.{table.table}"
        columns = [part.column for part in table.primary_key]
        rows = self.tables[name]
        for change in event.rows(table):
            for image in (change.before, change.after):
                if image is not None and isinstance(image[0], int):
                    self.highest[name] = max(self.highest.get(name, 0), image[0])
            if change.before is not None:
                before = tuple(change.before)
                found = rows.pop(tuple(before[c] for c in columns), None)
                assert found == before, f"{place}: {name} has {found} in the place of {before}"
            if change.after is not None:
                after = tuple(change.after)
                key = tuple(after[c] for c in columns)
                assert key not in rows, f"{place}: {name} has {rows.get(key)} where {after} comes"
                rows[key] = after
