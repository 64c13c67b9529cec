"""Table maps parsed once: a busy table sends the same one before every statement, with another time in its header."""

from __future__ import annotations

from typing import Final

from protocol.events.header import HEADER_SIZE
from protocol.events.table_map import TableMap

_KEPT_MAX: Final = 256


class TableMaps:
    """Remembers some table maps by their bodies. One owner."""

    def __init__(self) -> None:
        self._kept: dict[bytes, TableMap] = {}

    def parse(self, event: bytes) -> TableMap:
        """Raises `ProtocolError`."""
        body = event[HEADER_SIZE:]
        table = self._kept.get(body)
        if table is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            table = self._kept[body] = TableMap.parse(event)
        return table
