"""The memory of all sessions together: packets that are half received, running statements, answers not taken yet.

Each session has its own limits, but there may be thousands. Beyond the common limit one connection is closed with 1041:
of the account that holds most, the session that holds most. So an account that fills the memory loses its own.

The first `FREE_BYTES` of a session are not counted. Nor is the unsent part of a dump's stream, which is limited by
`WRITE_BUFFER_BYTES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from binlog_protocol.errors import OutOfResources, ServerError

FREE_BYTES: Final = 64 * 1024


class LargeSession(Protocol):
    """A session that holds memory. Its `id` is unique."""

    @property
    def id(self) -> int: ...

    @property
    def account(self) -> str:
        """user@host of the account."""

    def drop(self, error: ServerError) -> None:
        """Close the connection with this error, and free its memory at once."""


class SessionMemory:
    """The memory of all sessions on one event loop. `limit` gives the bytes that all may hold together."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._held: dict[int, tuple[LargeSession, int]] = {}
        self.held = 0
        self.dropped = 0  # connections, since the start

    def holds(self, holder: LargeSession, size: int) -> None:
        """Note that a session holds `size` bytes from now on. May drop any session, this one included."""
        self.held -= self._held.pop(holder.id, (None, 0))[1]
        if size <= FREE_BYTES:
            return
        self._held[holder.id] = holder, size
        self.held += size
        while self.held > self._limit():
            self._drop_one()

    def _drop_one(self) -> None:
        by_account: Counter[str] = Counter()
        for holder, size in self._held.values():
            by_account[holder.account] += size
        (account, _), *_ = by_account.most_common(1)
        _, leaves = max(
            (size, number)
            for number, (holder, size) in self._held.items()
            if holder.account == account
        )
        holder, size = self._held.pop(leaves)
        self.held -= size
        self.dropped += 1
        holder.drop(OutOfResources(self._limit()))
