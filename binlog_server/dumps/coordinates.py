"""File names and positions, as a client is told them and tells them: the one place where they are translated.

Over a store of traditional files every client sees these as they are. Over an `.ibb` store
a client of an account with the classic style of stream sees `binlog.000001` for the store's first file, and positions
that go with that style (`binlog_protocol.dump.classic_positions`). Others see the store's own names and offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dump.classic_positions import POSITIONS_PER_BYTE, position_of
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import BinlogFile, EngineReader
from binlog_storage.errors import UnknownBinlog
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.file_names import file_name, file_number

from binlog_server.accounts.replica_policy import StreamStyle

_CLASSIC_NAME: Final = compiled_later(r"binlog\.([0-9]{6,19})")


def classic_name(file_no: int) -> str:
    """`binlog.000001` for file 0, as a MariaDB server begins to count."""
    return f"binlog.{file_no + 1:06d}"


def classic_number(name: str) -> int | None:
    """The number in a name as `classic_name` makes it; None for any other name."""
    match = _CLASSIC_NAME.fullmatch(name)
    if match is None or classic_name(int(match[1]) - 1) != name or int(match[1]) == 0:
        return None
    return int(match[1]) - 1


class Coordinates:
    """Coordinates of an `.ibb` store itself: engine style.

    Attributes:
        base_name, index_name: that begins the files' names; that of the file that names them, if there is one.
        has_event_positions: whether each event has a position, as `BINLOG_GTID_POS()` and programs for dumps need it.
        storage_engine: the value of `binlog_storage_engine`; None is NULL.
        why_checksum_stays: the reason why SET `binlog_checksum` changes nothing.
    """

    base_name = "binlog"
    index_name = ""
    has_event_positions = False
    storage_engine: str | None = "innodb"
    why_checksum_stays = "an engine binlog has no checksums of events"

    def name(self, file_no: int) -> str:
        """The name of a file of the store in these coordinates."""
        return file_name(file_no)

    def position(self, offset: int) -> int:
        """The position of byte `offset` in a file of the store; also for its size."""
        return offset

    def number(self, name: str) -> int:
        """The file that the client means, which need not exist. Raises `UnknownBinlog` if it is no name of a file."""
        number = self._number(name)
        if number is None:
            raise UnknownBinlog(f"Target log not found in binlog index: {name!r}")
        return number

    def _number(self, name: str) -> int | None:
        return file_number(name)

    def offset(self, position: int) -> int:
        """The byte of the file that the client means."""
        return position

    def place(self, position: Position) -> tuple[str, int]:
        """The file's name and the position of a place in the store."""
        return self.name(position.file_no), self.position(position.offset)

    def listed(self, files: Sequence[BinlogFile], end: Position) -> list[tuple[str, int]]:
        """Names and sizes of the store's files for SHOW BINARY LOGS; `end` is the write position.

        As with MariaDB's engine the file made ahead is listed, too, and the one being written with its physical size.
        """
        return [(self.name(number), self.position(size)) for number, size in files]

    def checksum(self, configured: str) -> str:
        """The value of `binlog_checksum`."""
        return "NONE"


class ClassicCoordinates(Coordinates):
    """Coordinates as a traditional binlog has them: classic style."""

    has_event_positions = True
    storage_engine = None
    why_checksum_stays = (
        "positions depend on it, so it can be changed in the configuration file only"
    )

    def name(self, file_no: int) -> str:
        """See `Coordinates`."""
        return classic_name(file_no)

    def position(self, offset: int) -> int:
        """See `Coordinates`."""
        return position_of(offset)

    def _number(self, name: str) -> int | None:
        """The store's own names are none."""
        return classic_number(name)

    def offset(self, position: int) -> int:
        """See `Coordinates`."""
        return position // POSITIONS_PER_BYTE

    def listed(self, files: Sequence[BinlogFile], end: Position) -> list[tuple[str, int]]:
        """Ends with the file being written, as far as it is written: programs take that row for the end."""
        older = [file for file in files if file.number < end.file_no]
        return super().listed([*older, BinlogFile(*end)], end)

    def checksum(self, configured: str) -> str:
        """See `Coordinates`."""
        return configured


class FileCoordinates(Coordinates):
    """Coordinates of a store of traditional files: their names, and MariaDB's positions in them."""

    has_event_positions = True
    storage_engine = None

    def __init__(self, engine: ClassicEngine) -> None:
        self.engine: Final = engine
        self.base_name, self.index_name = engine.log_bin, engine.index_name

    def name(self, file_no: int) -> str:
        """See `Coordinates`."""
        return self.engine.file_name(file_no)

    def _number(self, name: str) -> int | None:
        return self.engine.file_number(name)

    def place(self, position: Position) -> tuple[str, int]:
        """See `Coordinates`. Where nothing comes next but what is written next, it is behind the head of its file."""
        if position == self.engine.written_end:
            position = self.engine.next_write
        return super().place(position)

    def checksum(self, configured: str) -> str:
        """See `Coordinates`."""
        return configured


AS_STORED: Final = Coordinates()
AS_CLASSIC: Final = ClassicCoordinates()


def coordinates_of(style: StreamStyle, engine: EngineReader) -> Coordinates:
    """For the sessions of an account whose replicas are served in that style, if there is a choice."""
    if isinstance(engine, ClassicEngine):
        return FileCoordinates(engine)
    return AS_CLASSIC if style is StreamStyle.CLASSIC else AS_STORED
