"""SHOW BINLOG EVENTS: one file's events, a batch at a time, so that a file of any size takes little memory."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import CommandFailed, ProtocolError, ServerError
from binlog_protocol.event_text.info import event_info, event_type_name
from binlog_protocol.events.header import EventHeader, split_pieces
from binlog_protocol.wire.results import Column
from binlog_storage.classic.errors import DamagedBinlog
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import EngineReader
from binlog_storage.errors import PositionPurged, StorageError, UnknownBinlog

from binlog_server.dumps.coordinates import AS_STORED
from binlog_server.dumps.frame_style import FrameStyle
from binlog_server.sql import classic_places
from binlog_server.sql.expressions import NO_LIMIT, Limit
from binlog_server.sql.statement import Family, Statement
from binlog_server.sql.tokens import integer, unquote
from binlog_server.sql.view import Row, RowStream

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

log = logging.getLogger(__name__)

_COMMAND = "SHOW BINLOG EVENTS"
_BATCH_ROWS = 200
_BATCH_CHARS = 256 * 1024


def failed(error: StorageError) -> ServerError:
    """The client's error for a damaged or purged binlog: 1220."""
    if isinstance(error, UnknownBinlog | PositionPurged):
        return CommandFailed(_COMMAND, "Could not find target log")
    return CommandFailed(_COMMAND, f"error reading event data: {error}")


@dataclass(frozen=True, slots=True)
class ShowBinlogEvents(Statement):
    """SHOW BINLOG EVENTS; `file` None is the oldest, `start` a position in the file, in the session's coordinates.

    Pos and End_log_pos are 0, as with MariaDB's engine binlog, which addresses no event by a position; in classic
    coordinates they are the positions of that style, and over traditional files what these have.
    """

    syntax = '"SHOW"i "BINLOG"i "EVENTS"i ["IN"i STRING] ["FROM"i INTEGER] [limit]'
    needs = ("BINLOG MONITOR",)
    com = "show_binlog_events"
    only_looks = True

    file: str | None = None
    start: int = 0
    limit: Limit = NO_LIMIT

    @classmethod
    def built(cls, children: list[Any]) -> ShowBinlogEvents:
        file, start, limit = children
        return cls(
            None if file is None else unquote(file),
            0 if start is None else integer(start),
            limit or NO_LIMIT,
        )

    def answer(self, session: SqlSession) -> RowStream:
        style, engine = classic_places.style_for(session), session.server.engine
        if isinstance(engine, ClassicEngine):
            rows = _stored(engine, self)
        else:
            rows = _rows(engine, self) if style is None else _classic(engine, self, style)
        return RowStream(COLUMNS, _batches(rows, self.limit))


COLUMNS: Final = [
    Column.text("Log_name", 20),
    Column.bigint("Pos", 21),
    Column.text("Event_type", 20),
    Column.integer("Server_id"),
    Column.bigint("End_log_pos", 21),
    Column.text("Info", 20),
]
FAMILY = Family((ShowBinlogEvents,))


def _batches(rows: Generator[Row, None, None], limit: Limit) -> Iterator[list[Row]]:
    skip = limit.offset
    left = limit.count
    batch: list[Row] = []
    chars = 0
    try:
        for row in rows:
            if skip:
                skip -= 1
                if skip % _BATCH_ROWS == 0:
                    yield []  # lets the reader stop here
                continue
            if left is not None:
                if not left:
                    break
                left -= 1
            batch.append(row)
            chars += len(str(row[-1]))
            if len(batch) >= _BATCH_ROWS or chars >= _BATCH_CHARS:
                yield batch
                batch, chars = [], 0
    finally:
        rows.close()
    if batch:
        yield batch


def _classic(
    engine: EngineReader, statement: ShowBinlogEvents, style: FrameStyle
) -> Generator[Row, None, None]:
    try:
        yield from classic_places.event_rows(engine, style, statement.file, statement.start)
    except ProtocolError as error:
        raise StorageError(str(error)) from error


def _stored(engine: ClassicEngine, statement: ShowBinlogEvents) -> Generator[Row, None, None]:
    files = dict(engine.files())
    number = min(files) if statement.file is None else engine.file_number(statement.file)
    _require_inside(statement, None if number is None else files.get(number))
    try:
        yield from classic_places.file_event_rows(engine, number, statement.start)
    except (DamagedBinlog, ProtocolError) as error:
        log.warning("SHOW BINLOG EVENTS: %s", error)
        raise CommandFailed(_COMMAND, "Wrong offset or I/O error") from None


def _require_inside(statement: ShowBinlogEvents, size: int | None) -> None:
    """Raises 1220 for a place behind the end of a file of that size; None for no file."""
    if size is not None and statement.start > size:
        asked = min(statement.start, 2**64 - 1)
        raise CommandFailed(
            _COMMAND,
            f"Invalid pos specified. Requested from pos:{asked} is greater than actual file size:{size}",
        )


def _rows(engine: EngineReader, statement: ShowBinlogEvents) -> Generator[Row, None, None]:
    files = dict(engine.files())
    number = min(files, default=0) if statement.file is None else AS_STORED.number(statement.file)
    _require_inside(statement, files.get(number))
    name = AS_STORED.name(number)
    for group in engine.groups_of_file(number, statement.start):
        try:
            for event in split_pieces(group):
                header = EventHeader.parse(event)
                yield (name, 0, event_type_name(event), header.server_id, 0, event_info(event))
        except ProtocolError as error:
            raise StorageError(str(error)) from error
