"""The servers that one connection may follow: MASTER_HOST and its candidates, and which of them comes next.

They are a ring, and the one that is followed is kept for as long as it can be followed. One that cannot be reached is
tried again as without candidates: at once, after 1 s, after 2 s. Then the next one is tried at once, in the same way.
Once the ring has been gone round, each is tried once a round, and before each round there is a pause of 4, 8, 16 ... s,
up to MASTER_CONNECT_RETRY.

One that has not got our last groups yet, or that refuses us, is passed over: the next one comes at once. Who refuses
will go on to do so; who is only down may come back, and who is behind may catch up. So the connection ends, with the
last refusal, when all of them have refused, and none could be followed for MASTER_CONNECT_RETRY seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later

PORT: Final = 3306
TRIES: Final = 3
RETRY_S_MIN: Final = 1.0
CANDIDATES_MAX: Final = 16
_PORT_MAX: Final = 65535
_DOUBLINGS_MAX: Final = (
    32  # of the shortest pause: more than any MASTER_CONNECT_RETRY; a float has no more than 1,023
)
_ADDRESS: Final = compiled_later(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:,\[\]]+))(?::([0-9]{1,5}))?")


class Address(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int = PORT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """From HOST, HOST:PORT or [IPv6]:PORT. Raises ValueError."""
        found = _ADDRESS.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text.strip()!r} is not HOST, HOST:PORT or [IPv6]:PORT")
        port = PORT if found[3] is None else int(found[3])
        if not 1 <= port <= _PORT_MAX:
            raise ValueError(f"port {port} is not between 1 and {_PORT_MAX}")
        return cls(found[1] or found[2], port)


def parse_candidates(texts: Iterable[str]) -> tuple[str, ...]:
    """Addresses as they are kept: HOST:PORT each. Empty ones are left out. Raises ValueError."""
    wanted = dict.fromkeys(stripped for text in texts if (stripped := text.strip()))
    if len(wanted) > CANDIDATES_MAX:  # before they are looked at
        raise ValueError(f"{len(wanted)} candidates; up to {CANDIDATES_MAX} are possible")
    return tuple(dict.fromkeys(str(Address.parse(text)) for text in wanted))


class Ring:
    """The candidates of one connection, from its start to its stop.

    Args:
        addresses: MASTER_HOST and its candidates; not empty.
        followed: the one that was followed last, if any was; it is tried first.
        retry_s: the longest pause, MASTER_CONNECT_RETRY.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        followed: str,
        retry_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses = addresses
        names = [str(address) for address in addresses]
        self._index = self._home = names.index(followed) if followed in names else 0
        self._longest = max(retry_s, RETRY_S_MIN)
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._failures = self._moves = 0
        self._refusals: dict[
            int, Exception
        ] = {}  # of those whose last answer it was, the latest at the end
        self._since: float | None = None  # when the first one failed

    @property
    def current(self) -> Address:
        return self._addresses[self._index]

    @property
    def has_others(self) -> bool:
        return len(self._addresses) > 1

    @property
    def refused_by(self) -> tuple[Address, Exception] | None:
        """The last refusal that still holds, while other candidates may be followed yet."""
        if not self._refusals:
            return None
        index, refusal = next(reversed(self._refusals.items()))
        return self._addresses[index], refusal

    @property
    def is_home(self) -> bool:
        """Whether this is the one that was followed last, or MASTER_HOST if none was."""
        return self._index == self._home

    def follows(self) -> None:
        """Note that the stream of the current candidate has begun."""
        self._home = self._index

    def lost(self, *, worked: bool) -> float:
        """The current one could not be reached, or was lost. `worked`: it brought us on before.

        Returns the seconds until the next attempt.
        """
        if worked:
            self._begin()
        self._note(None)
        self._failures += 1
        if not self.has_others:
            return self._pause(self._failures)
        if self._failures > TRIES or self._rounds:
            return self._move_on()
        return self._pause(self._failures)

    def pass_over(self, refusal: Exception | None = None) -> float:
        """The current one is not to be followed; without a `refusal`, it may be later. Returns seconds as `lost`."""
        self._note(refusal)
        return self._move_on()

    def hopeless(self) -> Exception | None:
        """After a failure: why it makes no sense to go on, if that is so. Who said that is the current one then."""
        if len(self._refusals) < len(self._addresses) or self._since is None:
            return None
        if self._moves % len(self._addresses) or self._clock() - self._since < self._longest:
            return None
        self._index, refusal = next(reversed(self._refusals.items()))
        return refusal

    @property
    def _rounds(self) -> int:
        return self._moves // len(self._addresses)

    def _note(self, refusal: Exception | None) -> None:
        self._refusals.pop(self._index, None)
        if refusal is not None:
            self._refusals[self._index] = refusal
        if self._since is None:
            self._since = self._clock()

    def _move_on(self) -> float:
        self._moves += 1
        self._failures = 1  # the next attempt is the one at once
        self._index = (self._index + 1) % len(self._addresses)
        is_new_round = self._moves % len(self._addresses) == 0
        return self._pause(TRIES + self._rounds) if is_new_round else 0.0

    def _pause(self, failures: int) -> float:
        if failures == 1:
            return 0.0
        doublings = min(failures - 2, _DOUBLINGS_MAX)
        return float(min(RETRY_S_MIN * 2.0**doublings, self._longest))
