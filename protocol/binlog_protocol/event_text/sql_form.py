"""Groups as a script for the `mariadb` client, which gives the same data and the same GTIDs again.

    row events      BINLOG '<base64>' with their table maps, behind a format description; several per statement, cut
                    at `_BLOCK_BYTES`: each block then ends the statement and begins with the table maps again
    statements      as text, behind what sets the session (`session_sql.py`)
    transactions    START TRANSACTION .. COMMIT; XA START .. XA PREPARE

Compressed events are shown plain. Of an ALTER in two phases the second one is shown, as an ordinary statement. The
delimiter is that of MariaDB's own tool: a comment, since a statement may hold any other.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.literals import identifier, sql_literal
from binlog_protocol.event_text.session_sql import END, SessionSql
from binlog_protocol.event_text.table_maps import TableMaps, UnreadableMap
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.load_data import ExecuteLoadQuery, LoadPiece
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import (
    ROWS_TYPES,
    Absent,
    ChangeKind,
    Image,
    RowsEvent,
    RowsFlags,
    RowsHead,
)
from binlog_protocol.events.statement_context import IntvarEvent, RandEvent, UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent

# (id of the file in the log, piece, whether it is the first) -> path to load it from
SaveFile = Callable[[int, bytes, bool], bytes]

_BLOCK_BYTES: Final = 1 << 20
# A packet of the client has 16 MiB unless it is told otherwise; what is longer goes in two halves.
_STATEMENT_BYTES: Final = 12 << 20
_LINE_BYTES: Final = 57  # 76 characters
_ROW_HEADS: Final = {
    ChangeKind.INSERT: "INSERT INTO",
    ChangeKind.UPDATE: "UPDATE",
    ChangeKind.DELETE: "DELETE FROM",
}
_ROWS_FLAGS_AT: Final = HEADER_SIZE + 6
_SERVER_VERSION: Final = (
    "10.11.0-MariaDB"  # of the made-up format description: any that knows these events
)
# As MariaDB's own tool does: no server takes it, so that who applies the script is told, and decides.
_AT_INCIDENT: Final = b"RELOAD DATABASE /* an INCIDENT: changes are missing here */"
_ALTER_BEGIN_OR_UNDONE: Final = GtidExtraFlags.START_ALTER | GtidExtraFlags.ROLLBACK_ALTER

HEAD: Final = (
    b"/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=1*/;\n"
    b"/*!50003 SET @OLD_COMPLETION_TYPE=@@COMPLETION_TYPE,COMPLETION_TYPE=0*/;\n"
    # Changed inside a transaction it would commit that one. Each transaction here says its own beginning and end.
    b"SET @@session.autocommit=1;\n"
    b"DELIMITER /*!*/;\n"
)
TAIL: Final = (
    b"DELIMITER ;\n"
    b"ROLLBACK;\n"
    b"/*!50003 SET COMPLETION_TYPE=@OLD_COMPLETION_TYPE*/;\n"
    b"/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=0*/;\n"
)


class SqlForm:
    """Writes one script: `head`, then groups and markers in their order, then `tail`. One owner."""

    def __init__(
        self,
        choice: Choice,
        *,
        verbose: int = 0,
        comments: bool = True,
        save_file: SaveFile | None = None,
    ) -> None:
        """`verbose` 1 shows rows, 2 names and types too; without `comments` only what is executed is written.

        `save_file` keeps the files of LOAD DATA statements; without it such a statement is an error.
        """
        self._choice = choice
        self._verbose = verbose
        self._comments = comments
        self._save_file = save_file
        self._session = SessionSql()
        self._table_maps = TableMaps()
        self._described = False
        self._handlers: Final[dict[int, Callable[[bytes], Iterator[bytes] | None]]] = {
            EventType.QUERY: self._query,
            EventType.INTVAR: self._context,
            EventType.RAND: self._context,
            EventType.USER_VAR: self._context,
            EventType.TABLE_MAP: self._table_map,
            EventType.ANNOTATE_ROWS: self._annotation,
            EventType.ROWS_QUERY: self._nothing,
            EventType.XID: self._xid,
            EventType.XA_PREPARE_LOG: self._xa_prepare,
            EventType.BEGIN_LOAD_QUERY: self._load_piece,
            EventType.APPEND_BLOCK: self._load_piece,
            EventType.DELETE_FILE: self._nothing,
            EventType.EXECUTE_LOAD_QUERY: self._load,
            **dict.fromkeys(ROWS_TYPES, self._rows),
        }
        # of the group
        self._where = ""
        self._begun = False  # whether anything of it was shown
        self._gtid: GtidEvent | None = None
        # of the statement
        self._before: list[bytes] = []
        self._maps: dict[int, tuple[TableMap | UnreadableMap, bytes]] = {}
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._row_comments: list[bytes] = []
        self._load_paths: dict[int, bytes] = {}

    def head(self) -> bytes:
        return HEAD

    def tail(self) -> bytes:
        return TAIL

    def marker(self, description: FormatDescription | IncidentEvent, where: str) -> Iterator[bytes]:
        """A server start: the temporary tables of before are gone. Or an incident, at which the script fails."""
        if isinstance(description, IncidentEvent):
            if self._comments:
                yield f"# {where} {_time(description.timestamp)} {description}\n".encode()
            yield _AT_INCIDENT + END
            return
        if self._comments:
            yield f"# {where} server {description.server_version} started\n".encode()
        yield b"ROLLBACK" + END
        yield from self._description(description.for_store())

    def group(self, events: Iterable[bytes], where: str) -> Iterator[bytes]:
        """One group, its GTID event first. Raises `ProtocolError` where it cannot be said in SQL."""
        self._gtid = None
        self._begun = False
        self._where = where
        self._load_paths.clear()
        self._reset_statement()
        for stored in events:
            # Behind a beginning a statement may be XA END, which is wanted whatever its database.
            if not self._begun and self._choice.leaves_out(stored, self._maps):
                yield from self._passed(stored)
                continue
            event = uncompressed(stored)
            if self._gtid is None:
                self._gtid = GtidEvent.parse(event)
                continue
            handler = self._handlers.get(event[TYPE_OFFSET])
            if handler is None:
                raise ProtocolError(
                    f"group {self._gtid.gtid}: an event of type {event[TYPE_OFFSET]} cannot be written as SQL"
                )
            yield from handler(event) or ()
        if self._block and self._gtid is not None:
            raise ProtocolError(
                f"group {self._gtid.gtid}: its last row event does not end the statement"
            )

    def _show(self, *lines: bytes) -> Iterator[bytes]:
        """Lines of the group, behind its beginning if that was not shown yet."""
        gtid = self._gtid
        if not self._begun and gtid is not None:
            self._begun = True
            if self._comments:
                yield f"# {self._where} {_time(gtid.timestamp)} GTID {gtid.gtid}{_flag_words(gtid)}\n".encode()
            yield from self._session.gtid(gtid)
            if gtid.xa_id is not None and gtid.flags2 & GtidFlags.PREPARED_XA:
                yield b"XA START " + gtid.xa_id.sql.encode() + END
            elif not gtid.is_standalone:
                yield b"START TRANSACTION\n" + END
        yield from lines

    @property
    def _shows_end(self) -> bool:
        """Whether the end of the group is shown: not if nothing else of the group was."""
        return self._begun or self._choice.is_all

    def _reset_statement(self) -> None:
        self._before.clear()
        self._maps.clear()
        self._block.clear()
        self._block_bytes = 0
        self._row_comments.clear()

    # --- statements ---

    def _query(self, event: bytes) -> Iterator[bytes]:
        query = QueryEvent.parse(event)
        if query.ends_group and self._gtid is not None and not self._gtid.is_standalone:
            if self._shows_end:
                yield from self._show(query.text + b"\n" + END)
        elif self._choice.has_statement(query.database) or (
            self._begun and query.text.startswith(b"XA END ")
        ):
            yield from self._statement(query, query.text)
        self._reset_statement()

    def _statement(self, query: QueryEvent, text: bytes) -> Iterator[bytes]:
        variables = StatusVariables.parse(query.status_variables)
        about = []
        if self._comments:
            about.append(
                f"# {_time(query.timestamp)} server id {query.server_id} Query thread_id={query.thread_id} "
                f"exec_time={query.execution_seconds} error_code={query.error_code}\n".encode()
            )
        extra = self._gtid.flags_extra if self._gtid is not None else 0
        if extra & _ALTER_BEGIN_OR_UNDONE:
            if self._comments:
                yield from self._show(
                    *about, b"# begins or undoes: " + text.replace(b"\n", b"\n# ") + b"\n"
                )
            return
        yield from self._show(*about, *self._before, *self._session.query(query, variables))
        yield text + b"\n" + END

    def _context(self, event: bytes) -> None:
        type_ = event[TYPE_OFFSET]
        if type_ == EventType.INTVAR:
            intvar = IntvarEvent.parse(event)
            self._before.append(f"SET {intvar.kind.name}={intvar.value}".encode() + END)
        elif type_ == EventType.RAND:
            rand = RandEvent.parse(event)
            sql = f"SET @@RAND_SEED1={rand.seed1}, @@RAND_SEED2={rand.seed2}"
            self._before.append(sql.encode() + END)
        else:
            self._before += self._session.user_variable(UserVarEvent.parse(event))

    def _load_piece(self, event: bytes) -> None:
        piece = LoadPiece.parse(event)
        if self._choice.tables:
            return
        if self._save_file is None:
            raise ProtocolError(
                "LOAD DATA in statement format: its file must be kept somewhere, see --local-load"
            )
        first = event[TYPE_OFFSET] == EventType.BEGIN_LOAD_QUERY
        self._load_paths[piece.file_id] = self._save_file(piece.file_id, piece.data, first)

    def _load(self, event: bytes) -> Iterator[bytes]:
        load = ExecuteLoadQuery.parse(event)
        path = self._load_paths.get(load.file_id)
        if self._choice.has_statement(load.query.database):
            if path is None:
                raise ProtocolError(f"LOAD DATA of file {load.file_id}, which is not in its group")
            yield from self._statement(load.query, load.statement(path))
        self._reset_statement()

    # --- rows ---

    def _table_map(self, event: bytes) -> None:
        table = self._table_maps.parse(event)
        if self._choice.has_table(table):
            self._maps[table.table_id] = table, event

    def _annotation(self, event: bytes) -> None:
        if self._comments:
            text = event[HEADER_SIZE:].replace(b"\n", b"\n#Q> ")
            self._before.append(b"#Q> " + text + b"\n")

    def _rows(self, event: bytes) -> Iterator[bytes]:
        rows = RowsEvent.parse(event)
        known = self._maps.get(rows.table_id)
        if known is not None:
            self._block.append(event)
            self._block_bytes += len(event)
            if self._verbose:
                lines = _row_lines(rows, known[0], types=self._verbose > 1)
                self._row_comments += (
                    (line + "\n").encode("utf-8", "surrogateescape") for line in lines
                )
        if rows.ends_statement:
            yield from self._end_statement()
        elif self._block_bytes >= _BLOCK_BYTES:
            yield from self._flush_block()

    def _passed(self, event: bytes) -> Iterator[bytes]:
        """A compressed event of nothing that was chosen; it may end a statement."""
        if event[TYPE_OFFSET] not in ROWS_TYPES or RowsHead.take(event).flags & RowsFlags.STMT_END:
            yield from self._end_statement()

    def _end_statement(self) -> Iterator[bytes]:
        yield from self._flush_block()
        self._reset_statement()

    def _flush_block(self) -> Iterator[bytes]:
        if not self._block:
            return
        last = bytearray(self._block.pop())
        last[_ROWS_FLAGS_AT] |= RowsFlags.STMT_END
        events = [event for _, event in self._maps.values()] + self._block + [bytes(last)]
        annotations = [line for line in self._before if line.startswith(b"#Q> ")]
        yield from self._show()
        if not self._described:
            yield from self._description(FormatDescription(_SERVER_VERSION, 1))
        yield from annotations
        yield from _binlog_statement(events)
        yield from self._row_comments
        self._before.clear()
        self._block.clear()
        self._block_bytes = 0
        self._row_comments.clear()

    def _description(self, description: FormatDescription) -> Iterator[bytes]:
        self._described = True
        yield from _binlog_statement([description.build()])

    # --- ends ---

    def _xid(self, event: bytes) -> Iterator[bytes]:
        xid = XidEvent.parse(event)
        if self._shows_end:
            yield from self._show(*([f"# Xid = {xid.xid}\n".encode()] if self._comments else []))
            yield b"COMMIT" + END

    def _xa_prepare(self, event: bytes) -> Iterator[bytes]:
        prepare = XaPrepareEvent.parse(event)
        name = prepare.xa_id.sql.encode()
        sql = b"XA COMMIT " + name + b" ONE PHASE" if prepare.one_phase else b"XA PREPARE " + name
        if self._shows_end:
            yield from self._show(sql + b"\n" + END)

    def _nothing(self, event: bytes) -> None:
        """The event says nothing that a script has to say."""


def _flag_words(gtid: GtidEvent) -> str:
    extra = gtid.flags_extra
    words = {
        "ddl": gtid.flags2 & GtidFlags.DDL,
        "trans": gtid.flags2 & GtidFlags.TRANSACTIONAL,
        "waited": gtid.flags2 & GtidFlags.WAITED,
        f"cid={gtid.commit_id}": gtid.commit_id is not None,
        "START ALTER": extra & GtidExtraFlags.START_ALTER,
        f"COMMIT ALTER id={gtid.start_alter_seq_no}": extra & GtidExtraFlags.COMMIT_ALTER,
        f"ROLLBACK ALTER id={gtid.start_alter_seq_no}": extra & GtidExtraFlags.ROLLBACK_ALTER,
        f"thread_id={gtid.thread_id}": gtid.thread_id is not None,
    }
    return "".join(f" {word}" for word, is_said in words.items() if is_said)


def _time(timestamp: int) -> str:
    return datetime.datetime.fromtimestamp(timestamp, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


# --- events as a BINLOG statement: base64, with line breaks, each event by itself ---


def _binlog_statement(events: Sequence[bytes]) -> Iterator[bytes]:
    """The statement in pieces. Beyond 24 MiB of base64 it needs a larger `max_allowed_packet`."""
    text = b"\n".join(map(_base64, events))
    if len(text) <= _STATEMENT_BYTES:
        yield b"BINLOG '\n" + text + b"\n'" + END
        return
    half = len(text) // 2
    yield b"SET @binlog_fragment_0='" + text[:half] + b"'" + END
    yield b"SET @binlog_fragment_1='" + text[half:] + b"'" + END
    yield b"BINLOG @binlog_fragment_0, @binlog_fragment_1" + END


def _base64(event: bytes) -> bytes:
    lines = (event[at : at + _LINE_BYTES] for at in range(0, len(event), _LINE_BYTES))
    return b"\n".join(map(base64.b64encode, lines))


# --- rows as comments behind `###`, in the words of a statement ---


def _row_lines(rows: RowsEvent, table: TableMap | UnreadableMap, *, types: bool) -> Iterator[str]:
    """Lines without their ends. `types` adds names and types of the columns where they were logged."""
    if isinstance(table, UnreadableMap):
        yield f"### cannot be decoded: {table.error}"
        return
    try:
        yield from _change_lines(rows, table, types)
    except ProtocolError as error:
        # The event applies all the same: only this reading of it fails (see `temporal.py` for a case).
        yield f"### cannot be decoded: {error}"


def _change_lines(rows: RowsEvent, table: TableMap, types: bool) -> Iterator[str]:
    head = f"### {_ROW_HEADS[rows.kind]} {identifier(table.database)}.{identifier(table.table)}"
    for change in rows.rows(table):
        yield head
        if change.before is not None:
            yield "### WHERE"
            yield from _image_lines(change.before, table, types)
        if change.after is not None:
            yield "### SET"
            yield from _image_lines(change.after, table, types)


def _image_lines(image: Image, table: TableMap, types: bool) -> Iterator[str]:
    for number, (value, column) in enumerate(zip(image, table.columns, strict=True), 1):
        if isinstance(value, Absent):
            continue
        about = (
            f" /* {column.name or ''} {column.type.name} */".replace("/*  ", "/* ") if types else ""
        )
        yield f"###   @{number}={sql_literal(value, column)}{about}"
