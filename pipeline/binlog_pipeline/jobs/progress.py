"""How far a long job is: a bar on standard error, if that is a terminal and somebody may be looking at it."""

from __future__ import annotations

import sys
from typing import Any, Self


class Progress:
    """A progress bar on a terminal, which counts up to `total` units; nothing elsewhere."""

    def __init__(self, total: int, label: str, unit: str = "part") -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=label, unit=unit, leave=False)

    def add(self, count: int = 1) -> None:
        """Count more units as done."""
        if self._bar is not None:
            self._bar.update(count)

    def set(self, count: int, total: int) -> None:
        """Show `count` of `total` units as done."""
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(count - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
