"""Small durable facts: server uuid, users, leases. One atomic keyed store.

A value is anything JSON can hold. `update` makes all its changes or none durable, whatever happens in between. The
body is one JSON file, written beside and renamed over; later it may become a table of the store without a change to
its users.

File `binlog-server.state`:
    line 1   `binlog-server state 1 <crc32c of the rest, 8 hex digits>`
    rest     one JSON object
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import google_crc32c

from binlog_storage.disk.disk import Disk
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import NotAStore

STATE_NAME = "binlog-server.state"
_TEMPORARY_NAME = "binlog-server.state.new"
_MAGIC = "binlog-server state 1"
LOST_WITH_STATE = "users, leases, what CHANGE MASTER has said, and the server uuid"


class StateStore:
    """The keyed store of one directory. May be used from several threads."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._values: dict[str, Any] = read_facts(disk)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`. Values must be treated as read-only."""
        return self._values.get(key, default)

    def items(self, prefix: str) -> list[tuple[str, Any]]:
        """All (key, value) whose key starts with `prefix`, sorted by key."""
        return sorted(item for item in self._values.items() if item[0].startswith(prefix))

    def set(self, key: str, value: Any) -> None:
        """Durable when it returns."""
        self.update({key: value})

    def update(self, changes: Mapping[str, Any]) -> None:
        """All of `changes` or none; a value of None removes the key. Durable when it returns."""
        with self._lock:
            values = {k: v for k, v in {**self._values, **changes}.items() if v is not None}
            self._save(values)
            self._values = values

    def _save(self, values: dict[str, Any]) -> None:
        body = json.dumps(values, indent=1, sort_keys=True).encode() + b"\n"
        data = f"{_MAGIC} {google_crc32c.value(body):08x}\n".encode() + body
        if _TEMPORARY_NAME in self._disk.names():  # left by a crash between create and rename
            self._disk.unlink(_TEMPORARY_NAME)
        file = self._disk.open(_TEMPORARY_NAME, create=True)
        try:
            file.pwrite(data, 0)
            file.fdatasync()  # before the rename: a renamed empty file is what ext4 is known for
        finally:
            file.close()
        self._disk.rename(_TEMPORARY_NAME, STATE_NAME)
        self._disk.fsync_dir()


def read_facts(disk: ReadableDisk) -> dict[str, Any]:
    """All facts of a store; none without a file. Raises `NotAStore`, `DiskError`."""
    if STATE_NAME not in disk.names():
        return {}
    file = disk.open(STATE_NAME)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    head, _, body = data.partition(b"\n")
    expected = f"{_MAGIC} {google_crc32c.value(body):08x}".encode()
    if head != expected:
        raise NotAStore(
            f"{STATE_NAME} is damaged or not ours (it begins with {head[:48]!r}); restore it from a copy, or move "
            f"it away: the binlog is not touched then, but {LOST_WITH_STATE} are gone"
        )
    try:
        values = json.loads(body)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise NotAStore(f"{STATE_NAME} does not hold an object")
    return values
