"""An object store in memory, which fails, is killed or loses an answer at its n-th call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import IO

from binlog_storage.archive.errors import ArchiveUnreachable, ObjectChanged
from binlog_storage.archive.objects import StoredObject


class Killed(BaseException):
    """In the place of kill -9: nothing catches it."""


class MemoryObjects:
    """See `Objects`. `fault`: called with the number of each change and "before" or "after"; may raise."""

    where = "s3://bucket/archive"

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.calls = 0
        self.fault: Callable[[int, str], None] = lambda number, when: None
        self.cut: int | None = None  # an answer ends behind so many bytes
        self.down = False
        self._tags = 0
        self._lock = threading.Lock()

    def get(self, name: str) -> StoredObject | None:
        if self.down:
            raise ArchiveUnreachable(f"{self.where}/{name}: 503 Service Unavailable (injected)")
        found = self.objects.get(name)
        return (
            None if found is None else StoredObject(len(found[0]), found[1], self._pieces(found[0]))
        )

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if self.cut is not None:
            yield data[: self.cut]
            raise ArchiveUnreachable(f"{self.where}: the connection was closed (injected)")
        yield data

    def put(self, name: str, data: bytes | IO[bytes], instead_of: str | None) -> str:
        content = data if isinstance(data, bytes) else data.read()
        with self._changing():
            there = self.objects.get(name)
            if (None if there is None else there[1]) != instead_of:
                raise ObjectChanged(f"{name} is another one (injected)")
            self._tags += 1
            self.objects[name] = content, f'"{self._tags}"'
        self.fault(self.calls, "after")
        return f'"{self._tags}"'

    def _changing(self) -> threading.Lock:
        if self.down:
            raise ArchiveUnreachable(f"{self.where}: 500 Internal Server Error (injected)")
        self.calls += 1
        self.fault(self.calls, "before")
        return self._lock

    def names(self, prefix: str, behind: str) -> list[str]:
        return sorted(name for name in self.objects if name.startswith(prefix) and name > behind)

    def delete(self, name: str) -> None:
        with self._changing():
            self.objects.pop(name, None)
        self.fault(self.calls, "after")
