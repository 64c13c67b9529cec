"""Whether a store accepts anything more; and those who are told, of its durable mark and of its failure."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from binlog_storage.errors import DiskError, StorageError, StoreFailed

log = logging.getLogger(__name__)


class Soundness:
    """The failure of one store, and its listeners; from any thread."""

    def __init__(self) -> None:
        self._failure: StorageError | None = None
        self._failing = threading.Lock()
        self._when_failed: list[Callable[[StorageError], None]] = []
        self._listeners: list[Callable[[], None]] = []

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed: the store accepts nothing more."""
        return self._failure is not None

    def require_sound(self) -> None:
        """Raises `StoreFailed` after a failure."""
        if self._failure is not None:
            raise StoreFailed(
                f"the binlog accepts nothing more after an earlier failure: {self._failure}"
            )

    def fail(self, error: StorageError) -> None:
        """End writing for good: it is unknown which bytes reached the disk, and the next sync may succeed without
        them."""
        with self._failing:
            if self._failure is not None:
                return
            self._failure = error
        log.error("the binlog accepts nothing more: %s; what is durable is still served", error)
        for failed in self._when_failed:
            failed(error)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """What fails on the disk in here ends the store."""
        try:
            yield
        except DiskError as error:
            self.fail(error)
            raise

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        """See `BinlogEngine`."""
        self._when_failed.append(failed)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See `BinlogEngine`."""
        self._listeners.append(wake)
        return lambda: self._listeners.remove(wake)

    def wake(self) -> None:
        """Call the listeners: the mark has moved."""
        for wake in list(self._listeners):
            wake()
