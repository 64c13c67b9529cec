"""Tables, sizes, times and JSON on standard output.

On a terminal a table is drawn by rich, which is loaded by the first table. Behind a pipe it is plain lines, which are
never folded or coloured, so that grep and awk read them. Text of other machines (names of tables, errors of a server)
is shown without the characters that would steer the terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_BAR_CELLS: Final = 40
_TEXT_CHARS_MAX: Final = 4000  # of an error: it may quote what was given

Rows = Sequence[Sequence[object]]


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at it, and lines can be written over."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def show_table(head: Sequence[str], rows: Rows, right: Collection[int] = ()) -> None:
    """Print a table. Columns of nothing but numbers, and those of `right`, stand at the right."""
    if is_terminal(sys.stdout):
        _draw(head, rows, right)
        return
    for line in text_table(head, rows, right):
        sys.stdout.write(f"{line}\n")


def text_table(head: Sequence[str], rows: Rows, right: Collection[int] = ()) -> Iterator[str]:
    """The lines of a table, plain. A head of empty texts is left out."""
    at_right = _at_right(head, rows, right)
    cells = [list(head)] if any(head) else []
    cells += [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, at_right, strict=True)
        ).rstrip()


def _draw(head: Sequence[str], rows: Rows, right: Collection[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=any(head), pad_edge=False, padding=(0, 2, 0, 0))
    for name, is_right in zip(head, _at_right(head, rows, right), strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    Console(file=sys.stdout, highlight=False).print(table)


def show_json(value: object) -> None:
    """Print a value as JSON, for people too: indented by one."""
    sys.stdout.write(f"{json.dumps(value, indent=1)}\n")


def show_json_line(value: dict[str, Any]) -> None:
    """Print one of many objects, in a line of its own, at once."""
    sys.stdout.write(f"{json.dumps(value)}\n")


def shortened(text: str) -> str:
    """A text, without its middle if it is long: what quotes a value says behind it what is wrong."""
    if len(text) <= _TEXT_CHARS_MAX:
        return text
    half = _TEXT_CHARS_MAX // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters) ... {text[-half:]}"


def shown(text: object) -> str:
    """A text in one line, without characters that steer a terminal."""
    line = " ".join(str(text).split())
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in line)


def size_text(size: float) -> str:
    """A number of bytes for people, as `1.5 MiB`."""
    power = 0
    while size >= _STEP and power < len(_UNITS) - 1:
        size /= _STEP
        power += 1
    return f"{size:.0f} {_UNITS[power]}" if size == int(size) else f"{size:.1f} {_UNITS[power]}"


def counted(number: int, noun: str) -> str:
    """A number of things for people, as `1 file` and `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_text(seconds: int) -> str:
    """Seconds since 1970 as a time of ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def bar(part: float) -> str:
    """A bar for a part of 1, in signs; one sign at least for a part that is not 0."""
    return "#" * max(round(part * _BAR_CELLS), 1 if part else 0)


def _at_right(head: Sequence[str], rows: Rows, right: Collection[int]) -> list[bool]:
    def is_number(i: int) -> bool:
        return bool(rows) and all(isinstance(row[i], int) for row in rows)

    return [i in right or is_number(i) for i in range(len(head))]


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    return text if text.isprintable() else shown(text)
