"""What all sessions together hold in memory: packets half here, statements under way, answers that nobody takes.

Each of them is bounded by itself, but there may be thousands. Beyond the limit of all a connection is closed with 1041:
of the account that holds most, the one that holds most. So whoever fills the memory pushes out itself.

The first `FREE_BYTES` of a session are not counted. What a replica has not taken of its stream is not, either: that is
limited by `WRITE_BUFFER_BYTES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from binlog_protocol.errors.limit_errors import OutOfResources

FREE_BYTES: Final = 64 * 1024


class Holder(Protocol):
    """A session. `id` is no other's."""

    @property
    def id(self) -> int: ...

    @property
    def account(self) -> str:
        """user@host of the account."""

    def drop(self, error: OutOfResources) -> None:
        """Close the connection, and forget at once what it holds."""


class SessionMemory:
    """For one event loop. `limit`: bytes of all together, asked for each time."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._held: dict[int, tuple[Holder, int]] = {}
        self.held = 0
        self.dropped = 0  # connections, since the start

    def holds(self, holder: Holder, size: int) -> None:
        """So much from now on. May drop anybody, the holder included."""
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
