"""A client's transaction while it is open: how many statements it has, and its savepoints by name."""

from __future__ import annotations

from typing import Final

from binlog_protocol.errors.limit_errors import TooLongIdentifier
from binlog_protocol.errors.sql_errors import NoSuchSavepoint, NotSupportedYet
from binlog_storage.binlog.transaction import Savepoint, Transaction

NAME_BYTES_MAX: Final = 256  # of a savepoint: 64 characters
SAVEPOINTS_MAX: Final = 10_000  # of one transaction, released ones included: each takes memory


class OpenTransaction:
    """`events` is what will be committed; `changes` the statements in it: without any there is nothing to commit."""

    def __init__(self, events: Transaction) -> None:
        self.events = events
        self.changes = 0
        self._savepoints: dict[bytes, tuple[Savepoint, int]] = {}
        self._set = 0

    def savepoint(self, name: bytes) -> None:
        """SAVEPOINT; an older one of the same name is gone. Raises `TooLongIdentifier` (1059),
        `NotSupportedYet` (1235) when there are too many."""
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
        """Its key, once those that were set later are gone."""
        key = name.lower()
        if key not in self._savepoints:
            raise no_such_savepoint(name)
        names = list(self._savepoints)
        for later in names[names.index(key) + 1 :]:
            del self._savepoints[later]
        return key


def no_such_savepoint(name: bytes) -> NoSuchSavepoint:
    """1305."""
    return NoSuchSavepoint(name.decode("utf-8", "replace"))
