"""The progress of `binlog-server import`."""

from __future__ import annotations

from binlog_storage.intake.intake import Taken
from binlog_storage.intake.source import IntakeSource

from binlog_server.cli.progress_line import ProgressLine


class ImportProgress:
    """Shows the progress of one import on standard error."""

    def __init__(self, source: IntakeSource) -> None:
        self._source = source
        self._line = ProgressLine()
        self.seconds = 0.0
        """Seconds from the beginning to `end`; 0 before."""

    def show(self, taken: Taken) -> None:
        """Show how much is taken; to be called at each step of the work."""
        self._line.show(lambda: self._text(taken))

    def end(self) -> None:
        """Remove the progress line: the import is done, or has failed."""
        self.seconds = self._line.seconds
        self._line.end()

    def _text(self, taken: Taken) -> str:
        done, size = self._source.bytes_read, self._source.size
        part = done / size if size else 1.0
        seconds = self._line.seconds
        rest = f", {seconds / part - seconds:.0f} s to go" if 0.01 < part < 1 else ""
        passed = f", {taken.passed_over} passed over" if taken.passed_over else ""
        return (
            f"{part:4.0%} of {size / (1 << 20):.0f} MiB, {taken.groups} groups stored{passed}{rest}"
        )
