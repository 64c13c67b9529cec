"""GTID positions in the files that MariaDB's backup programs write."""

from __future__ import annotations

import re
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.gtid import SlavePosition
from binlog_storage.errors import StorageError

GTIDS: Final = r"[0-9][-0-9, ]*"
SET_POSITION: Final = compiled_later(
    rf"(?:-- )?SET GLOBAL gtid_slave_pos ?= ?'({GTIDS})?';?\s*", re.IGNORECASE
)
FILE_POSITION: Final = compiled_later(
    r"(?:-- )?CHANGE MASTER .*?MASTER_LOG_FILE='([^']*)', ?MASTER_LOG_POS=([0-9]+);?\s*",
    re.IGNORECASE,
)


class NoPosition(StorageError):
    """A dump or backup has no GTID position, or more than one."""


class Found:
    """The findings in the lines of a dump or backup: GTID positions, and a file and position."""

    def __init__(self) -> None:
        self.positions: list[SlavePosition] = []
        """The different positions, in the order of the lines."""
        self.file_position: tuple[str, str] | None = None

    def take(self, line: str) -> None:
        """Take the position of a line, if it has one. Raises `ServerError` for a bad GTID list."""
        if match := SET_POSITION.fullmatch(line):
            self.add(match[1] or "")
        elif match := FILE_POSITION.fullmatch(line):
            self.file_position = (match[1], match[2])

    def add(self, gtids: str) -> None:
        """Add the position of a GTID list. Raises `ServerError` for a bad one."""
        position = SlavePosition.parse(gtids)
        if len(position) and position not in self.positions:
            self.positions.append(position)

    def the_one(self, name: str) -> SlavePosition:
        """The position, if exactly one was found. Raises `NoPosition`, with advice, in all other cases.

        Args:
            name: the dump or backup, for the error.
        """
        if len(self.positions) > 1:
            told = " and ".join(f"'{position}'" for position in self.positions)
            raise NoPosition(
                f"{name} has two positions, {told}: that of the server itself, and that of its master. Give the one of "
                "the server that is to be followed by --gtid-slave-pos"
            )
        if self.positions:
            return self.positions[0]
        if self.file_position is not None:
            file, offset = self.file_position
            raise NoPosition(
                f"{name} has no GTID, only a file and a position. On the server that it was made of "
                f"SELECT BINLOG_GTID_POS('{file}', {offset}) tells the GTID: give it by --gtid-slave-pos"
            )
        raise NoPosition(f"{name} has no position of a binlog")
