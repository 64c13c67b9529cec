"""Work that is done again and again: it goes on behind whatever goes wrong, and tells since when it fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from binlog_storage.defects import Defects
from binlog_storage.errors import StorageError

from binlog_server.loop.apart import apart

log = logging.getLogger(__name__)


class Rounds:
    """The rounds of one such work.

    Args:
        what: a word for it, for metrics.
        call: does one round, in a thread. It may never return: others do not wait for it.
        failure: says in a log line what could not be done.
        hanging: says why a round does not return.
    """

    def __init__(self, what: str, call: Callable[[], None], *, failure: str, hanging: str) -> None:
        self.what: Final = what
        self._call = call
        self._failure = failure
        self._hanging = hanging
        self._error = ""  # of the last round
        self._defects: Final = Defects()
        self.since = 0.0
        """The begin of the first round behind the last good one, finished or not, by the monotonic clock; or 0."""

    @property
    def why(self) -> str:
        """The reason, while there is a `since`."""
        return self._error or self._hanging

    async def run(self, pause_s: Callable[[], float]) -> None:
        """Do rounds until it is cancelled, so many seconds apart. An error is logged once, until it changes."""
        while True:
            await asyncio.sleep(pause_s())
            self.since = self.since or time.monotonic()
            try:
                await apart(self, self._call)
            except StorageError as error:
                self._failed(f"{self._failure}: {error}", None)
            except Exception as error:  # noqa: BLE001 - logged there
                self._failed(f"{self._failure}: {error!r}", self._defects.trace(error))
            else:
                self.since, self._error = 0.0, ""

    def _failed(self, text: str, trace: Exception | None) -> None:
        if text != self._error:
            log.error("%s", text, exc_info=trace)
        self._error = text
