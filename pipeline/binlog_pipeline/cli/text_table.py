"""Tables and sizes as text on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_BAR_CELLS: Final = 40


def text_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Lines. Numbers stand at the right, and so does what is above them."""
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(head))]
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()


def size_text(size: float) -> str:
    """A number of bytes for people, as `1.5 MiB`."""
    power = 0
    while size >= _STEP and power < len(_UNITS) - 1:
        size /= _STEP
        power += 1
    return f"{size:.0f} {_UNITS[power]}" if size == int(size) else f"{size:.1f} {_UNITS[power]}"


def time_text(seconds: int) -> str:
    """Seconds since 1970 as a time of ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def bar(part: float) -> str:
    """A bar for a part of 1, in signs; one sign at least for a part that is not 0."""
    return "#" * max(round(part * _BAR_CELLS), 1 if part else 0)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
