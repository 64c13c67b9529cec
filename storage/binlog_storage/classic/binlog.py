"""Traditional binlog files that follow one another, as a source of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_storage.classic.groups import FileGroups
from binlog_storage.classic.head import FileHead, read_head
from binlog_storage.errors import NotAStore
from binlog_storage.intake.source import FileStart, Item


class ClassicBinlog:
    """See `binlog_storage.intake.source.IntakeSource`. All heads are read at once, the files one after the other."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """`paths`: files in their order, at least one. Raises `UnreadableBinlog`, `DamagedBinlog`, `OSError`."""
        if not paths:
            raise NotAStore("there are no binlog files")
        self.heads = [read_head(path) for path in paths]
        self.notes: list[str] = []
        self.lost_files = ""
        self._bytes_passed = 0
        self._open: FileGroups | None = None

    @property
    def names(self) -> tuple[str, str]:
        """See `Source`."""
        return str(self.heads[0].path), str(self.heads[-1].path)

    def base(self, number: int) -> BinlogState:
        """See `Source`."""
        return self.heads[number].state

    def file_before(self, position: SlavePosition) -> int | None:
        """See `Source`."""
        numbers = reversed(range(len(self.heads)))
        return next((n for n in numbers if self.base(n).is_before(position)), None)

    def items(self, number: int) -> Iterator[Item]:
        """See `Source`."""
        self._bytes_passed = sum(head.size for head in self.heads[:number])
        for head in self.heads[number:]:
            yield FileStart(str(head.path), head.state)
            groups = self._open = FileGroups(head.path)
            try:
                yield from groups.items()
                self._note_end(head, groups)
            finally:
                self.close()
            self._bytes_passed += head.size

    def _note_end(self, head: FileHead, groups: FileGroups) -> None:
        self.notes += groups.incidents
        if groups.left_out:
            self.notes.append(groups.left_out)
        elif head.in_use:
            self.notes.append(f"{head.path} was not closed: its server may have written more")

    @property
    def server_version(self) -> str:
        """See `Source`."""
        return self.heads[-1].description.server_version

    @property
    def size(self) -> int:
        """See `Source`."""
        return sum(head.size for head in self.heads)

    @property
    def bytes_read(self) -> int:
        """See `Source`."""
        return self._bytes_passed + (self._open.offset if self._open is not None else 0)

    def close(self) -> None:
        """See `Source`."""
        if self._open is not None:
            self._open.close()
            self._open = None
