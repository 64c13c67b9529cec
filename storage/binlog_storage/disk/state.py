"""Small durable facts in a file: what must be known of a store without its redo log. One atomic keyed store.

A value is anything JSON can hold. `update` makes all its changes or none durable, whatever happens in between. The
body is one JSON file, written beside and renamed over.

File `binlog-server.state`:
    line 1   `binlog-server state 1 <crc32c of the rest, 8 hex digits>`
    rest     one JSON object

    store                whose directory it is
    redo/uuid            of the redo log that belongs to it: a missing one is noticed
    binlog/first_file    see `binlog_storage.log.first_file`; other processes read it
    binlog/breaks        whether the state breaks are known, which are rows: see `binlog_storage.binlog.state_breaks`
    binlog/state_breaks  these, of a store of an older version, up to its first start
    offline              changes for the next start: see `binlog_storage.tables.facts`

All other facts (accounts, leases, upstreams, server uuid ...) are rows of tables. A store of an older version has them
here, by the same keys; the first start takes them over.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

import google_crc32c

from binlog_storage.disk.disk import Disk, replaced
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import NotAStore

STATE_NAME = "binlog-server.state"
_MAGIC = "binlog-server state 1"
LOST_WITH_STATE = (
    "the note of purged files, what `binlog-server user` has changed since the last start, and, of a store that no "
    "server of this version has opened, users, leases, what CHANGE MASTER has said, and the server uuid"
)

STORE_KEY: Final = "store"
REDO_KEY: Final = "redo/uuid"
FIRST_FILE_KEY: Final = "binlog/first_file"
KNOWS_BREAKS_KEY: Final = "binlog/breaks"
BREAKS_KEY: Final = "binlog/state_breaks"
OFFLINE_KEY: Final = "offline"
FILE_KEYS: Final = frozenset(
    {STORE_KEY, REDO_KEY, FIRST_FILE_KEY, KNOWS_BREAKS_KEY, BREAKS_KEY, OFFLINE_KEY}
)
"""The facts that stay in the file."""


class StoreFacts(Protocol):
    """Durable facts by key. May be used from several threads."""

    @property
    def binlog_age(self) -> int:
        """How often the binlog has begun anew; a crash leaves it as it was if it leaves the old binlog."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`. Values must be treated as read-only."""

    def items(self, prefix: str) -> list[tuple[str, Any]]:
        """All (key, value) whose key starts with `prefix`, sorted by key."""

    def set(self, key: str, value: Any) -> None:
        """Durable when it returns. Raises as `update`."""

    def update(self, changes: Mapping[str, Any]) -> None:
        """All of `changes` or none; a value of None removes the key. Durable when it returns.

        Raises `DiskFull`, if there is no room to note it now; `StorageError`.
        """


class StateStore:
    """The keyed store of one directory. May be used from several threads."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._values: dict[str, Any] = read_facts(disk)
        self.binlog_age = 0  # nothing here is changed together with the binlog

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
        with replaced(self._disk, STATE_NAME) as file:
            file.pwrite(facts_file(values), 0)


def facts_file(values: Mapping[str, Any]) -> bytes:
    """The file with these facts."""
    body = json.dumps(values, indent=1, sort_keys=True).encode() + b"\n"
    return f"{_MAGIC} {google_crc32c.value(body):08x}\n".encode() + body


def read_facts(disk: ReadableDisk) -> dict[str, Any]:
    """All facts of a store; none without a file. Raises `NotAStore`, `DiskError`."""
    if STATE_NAME not in disk.names():
        return {}
    with contextlib.closing(disk.open(STATE_NAME)) as file:
        data = file.pread(file.size(), 0)
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
