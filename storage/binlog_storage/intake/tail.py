"""The last group of a store, and the start markers behind it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid

from binlog_storage.engine import BinlogEngine


class StoreTail:
    """The last group of a store that nobody writes. Reads at most 3 MiB, and that group."""

    def __init__(self, engine: BinlogEngine) -> None:
        """Raises `StorageError`."""
        self.gtid: Gtid | None = None
        """Of the last group; None if there is no group."""
        self.markers: list[bytes] = []
        """Start markers behind it."""
        self._digest = b""
        at = engine.find_start(engine.binlog_state().position()).position
        while at < engine.durable_end:
            batch = engine.read(at)
            for payload in batch.groups:
                self._take(payload, [payload])
            if batch.large is not None:
                self._take(batch.large.head, batch.large.pieces())
            at = batch.end

    def _take(self, head: bytes, pieces: Iterable[bytes]) -> None:
        gtid = group_gtid(head)
        if gtid is None:
            self.markers += pieces
        else:
            self.gtid = gtid
            self._digest = digest(pieces)
            self.markers.clear()

    def is_last(self, pieces: Iterable[bytes]) -> bool:
        """Whether these are the bytes of the last group."""
        return digest(pieces) == self._digest


def digest(pieces: Iterable[bytes]) -> bytes:
    """Digest of a group that is given in any pieces."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
