"""A client's open transaction: its events, the number of its statements, and its savepoints by name."""

from __future__ import annotations

from typing import Final

from binlog_protocol.errors.limit_errors import TooLongIdentifier
from binlog_protocol.errors.sql_errors import NoSuchSavepoint, NotSupportedYet
from binlog_storage.binlog.transaction import Savepoint, Transaction

NAME_BYTES_MAX: Final = 256  # a savepoint's name: 64 characters of up to 4 bytes
SAVEPOINTS_MAX: Final = 10_000  # in one transaction, with the released ones: each takes memory


class OpenTransaction:
    """An open transaction. `events` will be committed; `changes` is the number of statements: with 0 nothing is."""

    def __init__(self, events: Transaction) -> None:
        self.events = events
        self.changes = 0
        self._savepoints: dict[bytes, tuple[Savepoint, int]] = {}
        self._set = 0

    def savepoint(self, name: bytes) -> None:
        """SAVEPOINT; it replaces an older one of the same name.

        Raises `TooLongIdentifier` (1059), and `NotSupportedYet` (1235) beyond `SAVEPOINTS_MAX`.
        """
        if len(name) > NAME_BYTES_MAX:
            raise TooLongIdentifier(name.decode("utf-8", "replace"))
        if self._set >= SAVEPOINTS_MAX:
            raise NotSupportedYet(f"more than {SAVEPOINTS_MAX} savepoints in a transaction")
        self._set += 1
        self._savepoints.pop(name.lower(), None)
        self._savepoints[name.lower()] = self.events.savepoint(), self.changes

    def rollback_to(self, name: bytes) -> None:
        """ROLLBACK TO. Raises `NoSuchSavepoint` (1305)."""
        savepoint, self.changes = self._savepoints[self._last(name)]
        self.events.rollback_to(savepoint)

    def release(self, name: bytes) -> None:
        """RELEASE SAVEPOINT. Raises `NoSuchSavepoint` (1305)."""
        del self._savepoints[self._last(name)]

    def _last(self, name: bytes) -> bytes:
        """The key of a savepoint, made the last one: those that were set later are dropped."""
        key = name.lower()
        if key not in self._savepoints:
            raise no_such_savepoint(name)
        names = list(self._savepoints)
        for later in names[names.index(key) + 1 :]:
            del self._savepoints[later]
        return key


def no_such_savepoint(name: bytes) -> NoSuchSavepoint:
    """The error for an unknown savepoint: 1305."""
    return NoSuchSavepoint(name.decode("utf-8", "replace"))
