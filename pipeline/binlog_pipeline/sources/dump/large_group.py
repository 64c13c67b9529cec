"""A group that is too large for memory, on its way from a server: kept in a temporary file, or asked for again.

The file is made where TMPDIR says, has no name, and is gone with the last who holds the group.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.engine import LargeGroup
from binlog_storage.ibb.chunk import Position

_PIECE_BYTES: Final = 1 << 20

Again = Callable[[SlavePosition, Gtid], Iterator[bytes]]
"""Reads one group from its server once more; the position is that in front of it."""


class SpilledGroup:
    """The events of one group behind its GTID event, in an unnamed temporary file."""

    def __init__(self) -> None:
        self._fd, path = tempfile.mkstemp(prefix="binlog-group-")
        Path(path).unlink()
        self._close = weakref.finalize(self, os.close, self._fd)
        self._size = 0

    def add(self, events: bytes | bytearray) -> None:
        view = memoryview(events)
        while view:
            written = os.write(self._fd, view)
            self._size += written
            view = view[written:]

    def pieces(self, head: bytes) -> Iterator[bytes]:
        """The group, which begins with `head`."""
        yield head
        at = 0
        while at < self._size:
            piece = os.pread(self._fd, min(_PIECE_BYTES, self._size - at), at)
            yield piece
            at += len(piece)

    def discard(self) -> None:
        self._close()


class LargeGroups:
    """Makes the large groups of one stream.

    Args:
        again: with it nothing of large groups is kept here; they are read once more when they are wanted.
    """

    def __init__(self, again: Again | None = None) -> None:
        self._again = again
        self._spilled: SpilledGroup | None = None
        self.is_large = False
        """Whether some of the group that is coming was taken out of memory."""

    def add(self, events: bytes | bytearray) -> None:
        """Keep events of the group that is coming, from behind its GTID event on; none if it can be asked for again."""
        self.is_large = True
        if self._again is not None:
            return
        if self._spilled is None:
            self._spilled = SpilledGroup()
        self._spilled.add(events)

    def finish(self, head: bytes, before: SlavePosition, gtid: Gtid, end: Position) -> LargeGroup:
        """The whole large group; `head` is its GTID event."""
        spilled, self._spilled, self.is_large = self._spilled, None, False
        if self._again is not None:
            return LargeGroup(head, end, partial(self._again, before, gtid))
        assert spilled is not None
        return LargeGroup(head, end, lambda: spilled.pieces(head))

    def discard(self) -> None:
        """Drop the group that was begun: its stream has ended in the middle."""
        if self._spilled is not None:
            self._spilled.discard()
        self._spilled, self.is_large = None, False
