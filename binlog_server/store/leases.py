"""Retention leases: a named consumer keeps files from being purged, until a deadline or a disk budget is reached.

A consumer that reads the files themselves (a backup, a Spark job) is no replica, so no dump tells what it still needs.
It takes a lease from the GTID position where it goes on, moves and renews it as it gets on, and drops it in the end. If
it dies, the lease ends by itself: at its deadline, or when the files from its first one on take more than its budget.

Leases are kept in the store's state, and hold again after a restart. They hold whole files.

What lets files go takes effect on a full disk, too, as it makes room. It is kept as soon as there is some; a restart
before that finds the lease as it was.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from binlog_protocol.errors import UnknownServerError
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import EngineReader, Hold, Position
from binlog_storage.errors import DiskFull, PositionPurged, StorageError
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE

log = logging.getLogger(__name__)

_PREFIX = "lease/"
LEASES_MAX = 1000

Warn = Callable[[str], None]
NAME_CHARS_MAX = 64


def _untold(text: str) -> None:
    """A `Warn` of those whom nobody asked."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease. Times in seconds since 1970, None is for ever; `max_bytes` of files from its first one on.

    `from_file`: number of the first file that is held.
    """

    name: str
    position: str
    from_file: int
    created: float
    until: float | None
    max_bytes: int | None

    @property
    def first_file(self) -> str:
        """Name of the first file that is held."""
        return file_name(self.from_file)


class Leases:
    """All leases of one store. May be used from several threads; every change waits for a disk.

    Args:
        clock: seconds since 1970.
    """

    def __init__(
        self, engine: EngineReader, state: StateStore, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._state = state
        self._clock = clock
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}
        self._holds: dict[str, Hold] = {}
        self._unkept: set[str] = set()  # of which the state still says more than holds
        for key, value in state.items(_PREFIX):
            lease = _of_state(key.removeprefix(_PREFIX), value)
            self._leases[lease.name] = lease
            self._holds[lease.name] = self._hold(lease)
        self.expire()

    def create(
        self,
        name: str,
        position: str | None,
        until: float | None,
        max_bytes: int | None,
        *,
        or_replace: bool = False,
    ) -> Lease:
        """Hold files from the one on that a replica at `position` would read first; durable when it returns.

        Without a position from the oldest file on. Raises `UnknownServerError`, `BadGtidList`.
        """
        if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise UnknownServerError(f"a name has 1 to {NAME_CHARS_MAX} printable characters")
        with self._lock:
            self._end_expired()
            if name in self._leases and not or_replace:
                raise UnknownServerError(f"the lease '{name}' exists; ALTER moves or renews it")
            if name not in self._leases and len(self._leases) >= LEASES_MAX:
                raise UnknownServerError(f"there are {LEASES_MAX} leases already")
            lease = Lease(name, position or "", 0, self._clock(), until, max_bytes)
            return self._take(lease, lambda: self._first_file(position))

    def alter(
        self,
        name: str,
        position: str | None,
        until: float | None,
        max_bytes: int | None,
        warn: Warn = _untold,
    ) -> Lease:
        """Move one forward, or renew it; what is None stays as it was. Durable when it returns.

        Raises `UnknownServerError`, `BadGtidList`. On a full disk one is moved all the same, and `warn` told.
        """
        with self._lock:
            self._end_expired()
            older = self._leases.get(name)
            if older is None:
                raise UnknownServerError(
                    f"there is no lease '{name}': it was dropped, or has ended"
                )
            lease = replace(
                older,
                position=older.position if position is None else position,
                until=older.until if until is None else until,
                max_bytes=older.max_bytes if max_bytes is None else max_bytes,
            )
            only_moved = until is None and max_bytes is None
            return self._take(
                lease, lambda: self._moved(older, position), warn if only_moved else None
            )

    def _take(
        self, wanted: Lease, first_file: Callable[[], int], warn: Warn | None = None
    ) -> Lease:
        """Hold files for it, in place of those that a lease of that name has held.

        warn: given if what is kept may go on to say what it says.
        """
        name = wanted.name
        if wanted.until is not None and wanted.until <= self._clock():
            raise UnknownServerError(f"the lease '{name}' would have ended already")
        # Held before the search, as a dump does: what is found must not be purged meanwhile.
        hold = self._engine.hold(_told(wanted), ended_by=_ended_by(wanted))
        try:
            lease = replace(wanted, from_file=first_file())
            hold.move(lease.from_file)
            held = self.held_bytes(lease)
            if lease.max_bytes is not None and held > lease.max_bytes:
                raise UnknownServerError(
                    f"the files from {lease.first_file} on take {held} bytes already, more than "
                    f"MAX_BYTES {lease.max_bytes}"
                )
            try:
                self._keep(name, lease)
            except DiskFull as error:
                if warn is None:
                    raise
                self._keep_later(name, error, warn)
        except BaseException:
            hold.release()
            raise
        older = self._holds.get(name)
        self._leases[name], self._holds[name] = lease, hold
        if older is not None:
            older.release()
        facts = {"lease": name, "file": lease.first_file}
        log.info("lease '%(lease)s' holds %(file)s and later files", facts)
        return lease

    def _moved(self, older: Lease, position: str | None) -> int:
        if position is None:
            return older.from_file
        first = self._first_file(position)
        if first < older.from_file:
            raise UnknownServerError(
                f"'{position}' lies before {older.first_file}, the first file that the lease holds; CREATE OR REPLACE "
                "goes back"
            )
        return first

    def drop(self, name: str, warn: Warn = _untold) -> bool:
        """End one; whether there was one. On a full disk, too, and `warn` is told."""
        with self._lock:
            self._end_expired()
            if name not in self._leases:
                return False
            try:
                self._keep(name, None)
            except DiskFull as error:
                self._keep_later(name, error, warn)
            self._let_go(name)
        log.info("lease '%(lease)s' dropped", {"lease": name})
        return True

    def all(self) -> list[Lease]:
        """All leases that hold files, by name."""
        with self._lock:
            now = self._clock()
            return [
                lease
                for _, lease in sorted(self._leases.items())
                if lease.until is None or lease.until > now
            ]

    def held_bytes(self, lease: Lease) -> int:
        """Bytes of the files that the lease holds."""
        files = self._engine.files()
        return sum(size for number, size in files if number >= lease.from_file)

    def expire(self) -> None:
        """End those whose time or budget is over. To be called now and then, and before each purge."""
        with self._lock:
            with contextlib.suppress(StorageError):  # another time
                for name in sorted(self._unkept):
                    self._keep(name, self._leases.get(name))
            self._end_expired()

    def _first_file(self, position: str | None) -> int:
        oldest = self._engine.files()[0].number
        if position is None:
            return oldest
        try:
            return self._engine.find_start(SlavePosition.parse(position)).position.file_no
        except PositionPurged:
            raise UnknownServerError(
                f"no file reaches back to '{position}': it was purged"
            ) from None

    def _end_expired(self) -> None:
        now = self._clock()
        for lease in list(self._leases.values()):
            if lease.until is not None and lease.until <= now:
                log.warning("lease '%(lease)s' has reached its deadline", {"lease": lease.name})
                self._end_by_itself(lease.name)
            elif lease.max_bytes is not None and self.held_bytes(lease) > lease.max_bytes:
                log.warning(
                    "lease '%(lease)s' ends: the files that it holds take more than its MAX_BYTES=%(max_bytes)d",
                    {"lease": lease.name, "max_bytes": lease.max_bytes},
                )
                self._end_by_itself(lease.name)

    def _end_by_itself(self, name: str) -> None:
        """End a lease that is over, also if a full disk cannot keep that: its files are to go."""
        try:
            self._keep(name, None)
        except StorageError as error:
            self._keep_later(name, error)
        self._let_go(name)

    def _keep(self, name: str, lease: Lease | None) -> None:
        """Write the lease to the state; durable when it returns. Raises `DiskError`."""
        self._state.set(_PREFIX + name, None if lease is None else _to_state(lease))
        self._unkept.discard(name)

    def _keep_later(self, name: str, error: StorageError, warn: Warn = _untold) -> None:
        self._unkept.add(name)
        text = f"Lease '{name}': {error}; until there is room, a restart finds it as it was"
        log.error("%s", text)
        warn(text)

    def _let_go(self, name: str) -> None:
        del self._leases[name]
        self._holds.pop(name).release()

    def _hold(self, lease: Lease) -> Hold:
        start = Position(lease.from_file, PAGE_SIZE)
        return self._engine.hold(_told(lease), start, ended_by=_ended_by(lease))


def _told(lease: Lease) -> str:
    """The holder of a file, in the words of PURGE."""
    told = f"the lease '{lease.name}'"
    if lease.until is not None:
        told += time.strftime(" until %Y-%m-%d %H:%M:%S", time.gmtime(lease.until))
    if lease.max_bytes is not None:
        told += f" up to {lease.max_bytes} bytes"
    return told


def _ended_by(lease: Lease) -> str:
    return f"DROP BINLOG LEASE '{lease.name}'"


def _to_state(lease: Lease) -> dict[str, Any]:
    return {
        "position": lease.position,
        "from_file": lease.from_file,
        "created": lease.created,
        "until": lease.until,
        "max_bytes": lease.max_bytes,
    }


def _of_state(name: str, value: dict[str, Any]) -> Lease:
    try:
        return Lease(name, **value)
    except TypeError as error:
        raise UnknownServerError(f"the lease '{name}' cannot be read: {error}") from None
