"""How far a long command is, on standard error: a bar of rich on a terminal, elsewhere a plain line every 5 seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final, Self

from binlog_storage.console.output import is_terminal, shown

_DRAWN_S: Final = 0.1  # between two pictures of a bar
_LINE_S: Final = 5.0  # between two plain lines


class Progress:
    """The progress of one work. Nothing is shown of a work that is done at once.

    Args:
        label: the work, in a word.
        clock: seconds, ever growing.
    """

    def __init__(self, label: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._began = clock()
        self._draws = is_terminal(sys.stderr)
        self._next = self._began + (0.0 if self._draws else _LINE_S)
        self._bar: Any = None

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._began

    def show(self, done: float, total: float, text: Callable[[], str] = lambda: "") -> None:
        """`done` of `total` are done; 0 of `total`: nobody knows of how many.

        May be called at each step: `text` is asked only when something is shown.
        """
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (_DRAWN_S if self._draws else _LINE_S)
        said = shown(text())
        if self._draws:
            self._draw(done, total, said)
            return
        part = f" {done / total:.0%}" if total else ""
        sys.stderr.write(f"{self._label}:{part}{' ' * bool(said)}{said}, {self.seconds:.0f} s\n")
        sys.stderr.flush()

    def _draw(self, done: float, total: float, text: str) -> None:
        if self._bar is None:
            self._bar = _bar(self._label, self._clock)
            self._bar.start()
        self._bar.update(
            self._bar.task_ids[0], completed=done, total=total or None, text=text, refresh=True
        )

    def end(self) -> None:
        """Remove the bar from the terminal, as before something else is printed. `show` draws another one."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _bar(label: str, clock: Callable[[], float]) -> Any:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("{task.fields[text]}", markup=False),
        progress.TimeRemainingColumn(compact=True),
    )
    bar = progress.Progress(
        *columns,
        console=Console(file=sys.stderr),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # what is printed goes where it was printed to
        redirect_stderr=False,
        get_time=clock,
    )
    bar.add_task(label, total=None, text="")
    return bar
