"""A group that is written while it is still open: its pieces go out of band as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.gtid import Gtid
from storage.binlog.log_writer import LogWriter
from storage.ibb import commit, oob
from storage.ibb.chunk import Position, RecordType


class OpenGroup:
    """See `storage.engine.GroupWriter`. Several may be open; one owner each.

    Args:
        writer, append_lock: the store's.
        piece_bytes: largest piece in one record.
        require_sound: called under the lock before anything is written; raises if the store accepts nothing more.
        committed: called under the lock when the group is.
    """

    def __init__(
        self,
        writer: LogWriter,
        append_lock: threading.Lock,
        piece_bytes: int,
        require_sound: Callable[[], None],
        committed: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._lock = append_lock
        self._piece_bytes = piece_bytes
        self._require_sound = require_sound
        self._committed = committed
        self._forest = oob.Forest()
        self._closed = False

    def spill(self, data: bytes | memoryview) -> None:
        """See `GroupWriter`. The lock is given up between pieces, so that small groups get in between."""
        for at in range(0, len(data), self._piece_bytes):
            piece = bytes(data[at : at + self._piece_bytes])
            with self._lock:
                self._require_open()
                self._require_sound()
                # Before node 0: the header of a new file may be written in the middle of it.
                self._writer.open_refs.setdefault(self, self._writer.end.file_no)
                node = self._forest.next_node(piece)
                self._forest.placed(self._writer.write(RecordType.OOB_DATA, oob.encode(node)))

    def commit(self, gtid_event: bytes, gtid: Gtid) -> Position:
        """See `GroupWriter`."""
        with self._lock:
            self._require_open()
            self._require_sound()
            reference = self._forest.reference() if self._forest.count else None
            self._writer.write(RecordType.COMMIT, commit.encode(gtid_event, reference), gtid)
            self._close()
            self._committed()
            return self._writer.end

    def rollback(self) -> None:
        """See `GroupWriter`. No use after it; a second call does nothing."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._closed = True
        self._writer.open_refs.pop(self, None)

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this group was committed or rolled back")
