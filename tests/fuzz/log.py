"""Lines of the log that must not be, whatever comes: with a traceback, or critical."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from unittest import mock


class BadLines(logging.Handler):
    """Keeps them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.bad: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = (
            record.getMessage()
        )  # whatever it is asked to write must be something that can be written
        if record.exc_info or record.levelno >= logging.CRITICAL or "Traceback" in text:
            trace = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
            self.bad.append(text if trace is None else f"{text}: {trace!r}")

    def take(self) -> str:
        """The first one, in short; and forget all."""
        first = self.bad[0][:300]
        self.bad.clear()
        return first

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """From the server's log. What is quoted of inputs is not for others who keep lines: it may not even be text."""
        self.bad.clear()
        logger = logging.getLogger("binlog_server")
        logger.addHandler(self)
        try:
            with mock.patch.object(logger, "propagate", False):
                yield
        finally:
            logger.removeHandler(self)
