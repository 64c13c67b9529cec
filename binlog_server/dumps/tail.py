"""The moving end of the store, as something to wait for on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from binlog_storage.engine import OpenBinlog


class Tail:
    """Wakes everyone who waits each time the durable mark moves, from whichever thread. Made on the loop's own.

    The order that loses no wake-up: take `moved`, look at the durable end, then wait for what was taken.
    """

    def __init__(self, engine: OpenBinlog, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._moved: asyncio.Event | None = None  # once somebody has taken it
        self._scheduled = False
        self._held = self._has_moved = False
        self._told: set[Callable[[], object]] = set()
        self._stop = engine.subscribe(self._wake_from_thread)

    @property
    def moved(self) -> asyncio.Event:
        """Set when the mark moves next."""
        if self._moved is None:
            self._moved = asyncio.Event()
        return self._moved

    def wake(self) -> None:
        """Let everyone look again, on the loop's thread."""
        self._scheduled = False
        moved, self._moved = self._moved, None
        if moved is not None:
            moved.set()
        for told in list(self._told):
            told()

    def while_moving(self, work: Callable[[], bool]) -> bool:
        """Call `work`, on the loop's thread, which may move the mark: who waits looks again behind it, in this call.

        That is a turn of the loop less than by itself.
        """
        self._held = True
        try:
            return work()
        finally:
            self._held = False
            if self._has_moved:
                self._has_moved = False
                try:
                    self.wake()
                except Exception as error:  # noqa: BLE001 - as of a turn of its own: whose call this is has no part in it
                    self._loop.call_exception_handler(
                        {"message": "who waits for the durable end failed", "exception": error}
                    )

    def tell(self, told: Callable[[], object]) -> None:
        """Call back each time, too, on the loop's thread."""
        self._told.add(told)

    def tell_no_more(self, told: Callable[[], object]) -> None:
        """The end of `tell`: while nobody wants to hear of it, a commit costs no turn of the loop for it."""
        self._told.discard(told)

    def close(self) -> None:
        """Stop listening to the store."""
        self._stop()

    def _wake_from_thread(self) -> None:
        # Who comes to wait behind this look finds the mark where it is.
        if self._moved is None and not self._told:
            return
        if not self._scheduled and not self._loop.is_closed():
            if threading.get_ident() == self._thread:
                if self._held:
                    self._has_moved = True
                    return
                self._scheduled = True
                self._loop.call_soon(self.wake)
            else:
                self._scheduled = True
                self._loop.call_soon_threadsafe(self.wake)
