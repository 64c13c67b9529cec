"""A toy CDC consumer: it counts what is sold, from the inserts into shop.sale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import MariadbGtidEvent, XidEvent
from pymysqlreplication.row_event import WriteRowsEvent


class Stock:
    """Has a bug. `sold` is the number of items by name."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._connection = dict(connection)
        self.sold: Counter[str] = Counter()

    def _events(self) -> Iterator[Any]:
        stream = BinLogStreamReader(
            connection_settings=self._connection,
            server_id=100,
            is_mariadb=True,
            auto_position="",
            blocking=True,
            only_events=[MariadbGtidEvent, WriteRowsEvent, XidEvent],
        )
        try:
            yield from stream
        finally:
            stream.close()

    def read(self, until: str) -> None:
        """All groups up to that GTID."""
        gtid = ""
        for event in self._events():
            if isinstance(event, MariadbGtidEvent):
                gtid = event.gtid
            elif isinstance(event, WriteRowsEvent):
                self._count(event)
            elif gtid == until:
                return

    def _count(self, event: Any) -> None:
        for row in event.rows:
            self.sold[row["values"]["item"]] += row["values"]["amount"]


class MendedStock(Stock):
    """When the connection breaks, pymysqlreplication connects again by itself and begins where it has begun: what was
    read before comes once more. So a group counts when it is whole, and once."""

    def read(self, until: str) -> None:
        """All groups up to that GTID."""
        done: set[str] = set()
        gtid, rows = "", []
        for event in self._events():
            if isinstance(event, MariadbGtidEvent):
                gtid, rows = event.gtid, []
            elif isinstance(event, WriteRowsEvent):
                rows.append(event)
            elif gtid not in done:
                done.add(gtid)
                for each in rows:
                    self._count(each)
                if gtid == until:
                    return
