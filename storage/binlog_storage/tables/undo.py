"""Undoes the transactions that a start has found without an end: in steps, each logged, while everybody else works."""

from __future__ import annotations

import logging
import time
from typing import Final

from binlog_storage.tables.records import State
from binlog_storage.tables.rows import Trx
from binlog_storage.tables.store import TableStore

log = logging.getLogger(__name__)

_TELL_S: Final = 15.0


class Undoer:
    """Of one store. `step` by one thread at a time."""

    def __init__(self, tables: TableStore) -> None:
        self._tables = tables
        self._todo: list[Trx] = [
            trx for trx in tables.open.values() if trx.recovered and trx.state == State.ACTIVE
        ]
        self._told_at = time.monotonic()
        self._has_begun = False
        self.found = len(self._todo)

    @property
    def transactions(self) -> int:
        """Transactions that are left."""
        return len(self._todo)

    @property
    def rows(self) -> int:
        """Changes that are left to undo."""
        return sum(trx.count for trx in self._todo.copy())

    def step(self, steps: int = 1) -> bool:
        """Undo so many steps of the oldest one. Returns whether there is more to do. Raises `StorageError`."""
        if not self._todo:
            return False
        trx = self._todo[0]
        if not self._has_begun:
            self._has_begun = True
            log.info("InnoDB: Starting the rollback of %d recovered transactions", len(self._todo))
        trx.undoing = True
        if self._tables.undo(trx, 0, release=True, steps=steps):
            self._tables.rolled_back(trx)
            self._todo.pop(0)
            log.info("InnoDB: Rolled back recovered transaction %d", trx.id)
            if not self._todo:
                log.info("InnoDB: Rollback of non-prepared transactions completed")
        elif time.monotonic() - self._told_at > _TELL_S:
            self._told_at = time.monotonic()
            log.info("InnoDB: To roll back: %d transactions, %d rows", len(self._todo), self.rows)
        return bool(self._todo)
