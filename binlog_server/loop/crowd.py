"""Connections that cost something and have not said who they are. None of them can keep others out.

Beyond a limit a newcomer is let in, and another one has to leave: the oldest from the newcomer's own address, or, if
there is none, the oldest of all. So whoever floods from one address pushes out its own, and a flood from many addresses
leaves everybody as much time for a login or a request as it takes to fill the limit once.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar


class Numbered(Protocol):
    """A member of a crowd. `id` is no other's."""

    @property
    def id(self) -> int: ...


M = TypeVar("M", bound=Numbered)


class Crowd(Generic[M]):
    """A crowd with a limit, for one event loop. Addresses are without port."""

    def __init__(self) -> None:
        # Dictionaries keep the order in which they were filled: the oldest is the first.
        self._all: dict[int, tuple[M, str]] = {}
        self._by_address: dict[str, dict[int, M]] = {}
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self, member: M, address: str, limit: int) -> M | None:
        """Add a member. Returns the one that has to leave for it, removed here; None if none has to."""
        leaves = None
        if len(self._all) >= limit:
            own = self._by_address.get(address)
            leaves = next(iter(own.values())) if own else next(iter(self._all.values()))[0]
            self.remove(leaves)
        self._all[member.id] = member, address
        self._none.clear()
        self._by_address.setdefault(address, {})[member.id] = member
        return leaves

    def remove(self, member: M) -> None:
        """Remove a member; without one nothing happens."""
        _, address = self._all.pop(member.id, (None, ""))
        own = self._by_address.get(address, {})
        if own.pop(member.id, None) is not None and not own:
            del self._by_address[address]
        if not self._all:
            self._none.set()

    async def none_left(self) -> None:
        """Wait until nobody is in it."""
        await self._none.wait()
