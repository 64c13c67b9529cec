"""Whether a store accepts anything more; and those who are told, of its durable mark and of its failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from binlog_storage.errors import DiskError, DiskFull, StorageError, StoreFailed

log = logging.getLogger(__name__)


def final(error: StorageError) -> StorageError:
    """The error for who wrote, behind a failure: a full disk is otherwise one where nothing was done, and which may be
    tried again."""
    return DiskError(str(error)) if isinstance(error, DiskFull) else error


class _Failing:
    """See `Soundness.failing`."""

    __slots__ = ("_soundness",)

    def __init__(self, soundness: Soundness) -> None:
        self._soundness = soundness

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, DiskError):
            self._soundness.end(error)


class Soundness:
    """The failure of one store, and its listeners; from any thread.

    failure: the error after which it accepts nothing more.
    """

    def __init__(self) -> None:
        self.failure: StorageError | None = None
        self._failing = threading.Lock()
        self._guard = _Failing(self)
        self._when_failed: list[Callable[[StorageError], None]] = []
        self._listeners: list[Callable[[], None]] = []

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed: the store accepts nothing more."""
        return self.failure is not None

    def require_sound(self) -> None:
        """Raises `StoreFailed` after a failure."""
        if self.failure is not None:
            raise StoreFailed(
                f"the binlog accepts nothing more after an earlier failure: {self.failure}"
            )

    def fail(self, error: StorageError) -> None:
        """End writing for good: it is unknown which bytes reached the disk, and the next sync may succeed without
        them."""
        with self._failing:
            if self.failure is not None:
                return
            self.failure = error = final(error)
        log.error("the binlog accepts nothing more: %s; what is durable is still served", error)
        for failed in self._when_failed:
            failed(error)

    def failing(self) -> _Failing:
        """What fails on the disk in here ends the store."""
        return self._guard

    def end(self, error: DiskError) -> None:
        """The same for an error that is being handled: raises it as `final` if that is another one."""
        self.fail(error)
        if isinstance(error, DiskFull):
            raise final(error) from error.__cause__

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
