"""A token bucket: so many bytes a second, smooth to a tenth of a second. Pure; time comes from outside, in seconds."""

from __future__ import annotations

_BURST_S = 0.1  # of bytes that may go at once after a pause
_PIECE_S = 0.05  # half of it: a timer that fires late costs no throughput


class Throttle:
    """The token bucket of one stream. `rate`: bytes per second."""

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._tokens = rate * _BURST_S
        self._filled_at = now

    @property
    def piece_bytes(self) -> int:
        """The most bytes that should be sent at once."""
        return max(1, int(self.rate * _PIECE_S))

    def pause(self, size: int, now: float) -> float:
        """Seconds to wait before a piece of that size may go; 0: it goes now, and is counted."""
        elapsed = max(0.0, now - self._filled_at)
        self._filled_at = now
        self._tokens = min(self.rate * _BURST_S, self._tokens + elapsed * self.rate)
        missing = size - self._tokens
        if missing >= 1:  # less is a rounding error, and no clock is as fine
            return missing / self.rate
        self._tokens -= size
        return 0.0
