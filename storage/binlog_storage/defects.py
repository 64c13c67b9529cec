"""What goes wrong in loops that are to go on, and that nobody has thought of."""

from __future__ import annotations

import traceback


class Defects:
    """What goes wrong in a loop that is to go on, and that nobody has thought of: its traceback is logged once."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()  # file and line; a program has so many

    def trace(self, error: Exception) -> Exception | None:
        """For `exc_info`: the error, or None if one from the same place was seen before."""
        frames = traceback.extract_tb(error.__traceback__)
        place = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        if place in self._seen:
            return None
        self._seen.add(place)
        return error
