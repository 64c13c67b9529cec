"""Table maps parsed once: a busy table sends the same one before every statement, with another time in its header."""

from __future__ import annotations

from typing import Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.events.table_map import TableMap, TableMapHead

_KEPT_MAX: Final = 256


class UnreadableMap(NamedTuple):
    """A table map whose columns cannot be understood, as those of a newer server; `error` says why."""

    table_id: int
    database: str
    table: str
    error: str


class TableMaps:
    """Remembers some table maps by their bodies. One owner."""

    def __init__(self) -> None:
        self._kept: dict[bytes, TableMap | UnreadableMap] = {}

    def parse(self, event: bytes) -> TableMap | UnreadableMap:
        """Raises `ProtocolError` for an event that no door would have let in."""
        body = event[HEADER_SIZE:]
        table = self._kept.get(body)
        if table is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            table = self._kept[body] = _read(event)
        return table


def _read(event: bytes) -> TableMap | UnreadableMap:
    head = TableMapHead.parse(event)
    try:
        return TableMap.parse(event)
    except ProtocolError as error:
        return UnreadableMap(head.table_id, head.database, head.table, str(error))
