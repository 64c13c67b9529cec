"""Connections that have not logged in. They have a limit of their own, so that none of them can keep others out.

Beyond the limit a newcomer is let in, and another one has to leave: the oldest from the newcomer's own address, or, if
there is none, the oldest of all. So whoever floods from one address pushes out its own, and a flood from many addresses
leaves everybody as much time for a login as it takes to fill the limit once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from binlog_server.clients.connections import Connection


class PendingLogins:
    """For one event loop. Addresses are without port."""

    def __init__(self) -> None:
        # Dictionaries keep the order in which they were filled: the oldest is the first.
        self._all: dict[int, tuple[Connection, str]] = {}
        self._by_address: dict[str, dict[int, Connection]] = {}
        self.crowded_out = 0  # since the start

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection, address: str, limit: int) -> Connection | None:
        """One more. Returns who has to leave for it, removed here."""
        leaves = None
        if len(self._all) >= limit:
            own = self._by_address.get(address)
            leaves = next(iter(own.values())) if own else next(iter(self._all.values()))[0]
            self.remove(leaves)
            self.crowded_out += 1
        self._all[connection.id] = connection, address
        self._by_address.setdefault(address, {})[connection.id] = connection
        return leaves

    def remove(self, connection: Connection) -> None:
        """It has logged in, or gone; twice is no error."""
        _, address = self._all.pop(connection.id, (None, ""))
        own = self._by_address.get(address, {})
        if own.pop(connection.id, None) is not None and not own:
            del self._by_address[address]
