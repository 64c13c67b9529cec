"""Wrong tokens of the status page, by address: who goes on to show others has to wait between them.

The first wrong ones of an address cost nothing, each further one twice the pause of the one before. While an address
has to wait no token of it is looked at, not even the right one: otherwise waiting would not slow a search down. A token
that is shown again is no further guess: a program with an old one locks nobody out who shares its address.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from binlog_protocol.dataclass import dataclass

FREE: Final = 5
WAIT_S_MAX: Final = 60.0
FORGOTTEN_S: Final = 600.0  # behind the last wrong token
ADDRESSES_MAX: Final = 1000  # beyond it the one that was wrong longest ago is forgotten
_NETWORK_BITS: Final = 64  # of IPv6: one client has as many addresses as it likes there


@dataclass(slots=True)
class _Wrong:
    count: int
    last: bytes  # digest of the token
    at: float

    @property
    def until(self) -> float:
        if self.count < FREE:
            return self.at
        return self.at + min(2.0 ** min(self.count - FREE, 30), WAIT_S_MAX)


class Guesses:
    """For one event loop. `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, _Wrong] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Seconds for which no token of the address is looked at; 0: it is looked at."""
        found = self._wrong.get(_client(address))
        return 0.0 if found is None else max(found.until - self._clock(), 0.0)

    def wrong(self, address: str, token: bytes) -> bool:
        """Note a wrong token. Returns whether the address has to wait for the first time now."""
        client, now = _client(address), self._clock()
        digest = hashlib.sha256(token).digest()
        found = self._wrong.pop(client, None)
        if found is None or now - found.at >= FORGOTTEN_S:
            found = _Wrong(0, b"", now)
        is_new = found.last != digest
        self._wrong[client] = _Wrong(found.count + is_new, digest, now)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)
        return is_new and found.count + 1 == FREE

    def right(self, address: str) -> None:
        """Forget the wrong ones of an address."""
        self._wrong.pop(_client(address), None)


def _client(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, ipaddress.IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
