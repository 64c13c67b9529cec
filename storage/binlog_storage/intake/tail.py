"""The last group of a store, and the start markers behind it."""

from __future__ import annotations

from collections.abc import Iterable

from binlog_protocol.gtid import Gtid

from binlog_storage.engine import EngineReader
from binlog_storage.log.stored_groups import digest, groups_from


class StoreTail:
    """The last group of a store that nobody writes. Reads at most 3 MiB, and that group."""

    def __init__(self, engine: EngineReader) -> None:
        """Raises `StorageError`."""
        self.gtid: Gtid | None = None
        """The GTID of the last group; None if there is no group."""
        self.markers: list[bytes] = []
        """Start markers behind it."""
        self._digest = b""
        start = engine.find_start(engine.binlog_state().position())
        for group in groups_from(engine, start.position):
            if group.gtid is None:
                self.markers += group.pieces()
            else:
                self.gtid = group.gtid
                self._digest = digest(group.pieces())
                self.markers.clear()

    def is_last(self, pieces: Iterable[bytes]) -> bool:
        """Whether these are the bytes of the last group."""
        return digest(pieces) == self._digest
