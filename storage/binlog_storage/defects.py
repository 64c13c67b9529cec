"""Unexpected errors in loops that are to go on."""

from __future__ import annotations

import traceback


class Defects:
    """Unexpected errors in a loop that is to go on: the traceback of each is logged once."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()  # file and line; a program has so many

    def trace(self, error: Exception) -> Exception | None:
        """The error for `exc_info`; None if one from the same place was seen before."""
        frames = traceback.extract_tb(error.__traceback__)
        place = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        if place in self._seen:
            return None
        self._seen.add(place)
        return error
