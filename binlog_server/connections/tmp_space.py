"""The temporary space of sessions: what open transactions have written beside the binlog, or into it out of band.

MariaDB's limits: max_tmp_session_space_usage of a session, max_tmp_total_space_usage of all together; a statement
beyond them is error 41 or 42, and leaves the transaction as it was. A commit is never refused, nor XA PREPARE, nor
DDL: the last flush of a cache may go over. What a savepoint takes back stays on the disk, and counted, until the
transaction's end. What is taken from upstreams is counted nowhere: it is a log, as that of an I/O thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from binlog_protocol.errors import GlobalTmpSpaceFull, LocalTmpSpaceFull


class TmpSpace:
    """The temporary space of a server, in bytes. Any thread.

    Args:
        limit: gives max_tmp_total_space_usage; 0 is none.

    Attributes:
        used: by all sessions now.
        most: the highest `used` since the start, or since `forget_most`.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._by_session: dict[int, int] = {}
        self.used = self.most = 0

    def session(self, connection_id: int, limit: Callable[[], int]) -> SessionTmpSpace:
        """The part of one session. `limit`: gives its max_tmp_session_space_usage."""
        return SessionTmpSpace(self, connection_id, limit)

    def used_by(self, connection_id: int) -> int:
        """Bytes of one session."""
        return self._by_session.get(connection_id, 0)

    def forget_most(self) -> None:
        """FLUSH GLOBAL STATUS."""
        with self._lock:
            self.most = self.used

    def take(self, connection_id: int, size: int, limit: int | None) -> int:
        """So many bytes more, or fewer. Returns those of the session.

        `limit`: of the session; None to take them beyond all limits. Raises as `SessionTmpSpace.take`.
        """
        with self._lock:
            total, own = self.used + size, self.used_by(connection_id) + size
            if limit is not None:
                if 0 < self._limit() < total:
                    raise GlobalTmpSpaceFull()
                if 0 < limit < own:
                    raise LocalTmpSpaceFull()
            self.used, self.most = total, max(total, self.most)
            if own:
                self._by_session[connection_id] = own
            else:
                self._by_session.pop(connection_id, None)
            return own


class SessionTmpSpace:
    """The temporary space of one session: see `binlog_storage.binlog.transaction.Space`. Any thread.

    Attributes:
        most: the highest `used` since the login, or since `forget_most`.
    """

    def __init__(self, of_all: TmpSpace, connection_id: int, limit: Callable[[], int]) -> None:
        self._all = of_all
        self._id = connection_id
        self._limit = limit
        self.most = 0

    @property
    def used(self) -> int:
        """Bytes now."""
        return self._all.used_by(self._id)

    def take(self, size: int, *, is_limited: bool) -> None:
        """Count so many bytes more. Raises `LocalTmpSpaceFull` (41), `GlobalTmpSpaceFull` (42): none are counted."""
        own = self._all.take(self._id, size, self._limit() if is_limited else None)
        self.most = max(self.most, own)

    def give_back(self, size: int) -> None:
        """They are free again."""
        self._all.take(self._id, -size, None)

    def forget_most(self) -> None:
        """FLUSH STATUS."""
        self.most = self.used
