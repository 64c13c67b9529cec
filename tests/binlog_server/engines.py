"""Engines that a test holds up: reads and syncs that wait, count and fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from binlog_storage.engine import GroupBatch, Position
from binlog_storage.errors import StorageError
from binlog_storage.testing.memory_engine import MemoryEngine

HOLD_S = 5.0  # a held call goes on by itself in the end, so that no thread hangs


class SlowEngine(MemoryEngine):
    """Reads and syncs wait for their gate, and are counted; `read_error` makes reads raise."""

    def __init__(self) -> None:
        super().__init__()
        self.recent = False
        self.reads: list[Position] = []
        self.syncs = 0
        self.read_gate = threading.Event()
        self.sync_gate = threading.Event()
        self.read_gate.set()
        self.sync_gate.set()
        self.read_error: StorageError | None = None
        self.sync_error: StorageError | None = None

    def is_recent(self, start: Position) -> bool:
        return self.recent

    def read(self, start: Position) -> GroupBatch:
        self.reads.append(start)
        self.read_gate.wait(HOLD_S)
        if self.read_error is not None:
            raise self.read_error
        return super().read(start)

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        self.syncs += 1
        self.sync_gate.wait(HOLD_S)
        if self.sync_error is not None:
            raise self.sync_error
        super().sync(durable)


class FullEngine(SlowEngine):
    """Has room when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.room = self.room_to_spill = True
        self.asked = 0

    @property
    def has_room(self) -> bool:
        return self.room

    @property
    def has_room_to_spill(self) -> bool:
        return self.room and self.room_to_spill

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        self.asked += 1
        end = time.monotonic() + (HOLD_S if timeout is None else timeout)
        while (
            not (found := self.has_room_to_spill if to_spill else self.room)
            and time.monotonic() < end
        ):
            time.sleep(0.005)
        return found
