"""Groups as a script for the `mariadb` client, which gives the same data and the same GTIDs again.

    row events      BINLOG '<base64>' with their table maps, behind a format description; several per statement, cut
                    at `_BLOCK_BYTES`: each block then ends the statement and begins with the table maps again
    statements      as text, behind what sets the session (`session_sql.py`)
    transactions    START TRANSACTION .. COMMIT; XA START .. XA PREPARE

Compressed events are shown plain. Of an ALTER in two phases the second one is shown, as an ordinary statement. The
delimiter is that of MariaDB's own tool: a comment, since a statement may hold any other.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.binlog_statement import binlog_statement
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.literals import hex_literal
from binlog_protocol.event_text.row_text import row_lines
from binlog_protocol.event_text.session_sql import END, SessionSql
from binlog_protocol.event_text.table_maps import TableMaps, UnreadableMap
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.load_data import ExecuteLoadQuery, LoadPiece
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import ROWS_TYPES, RowsEvent, RowsFlags, RowsHead
from binlog_protocol.events.statement_context import IntvarEvent, RandEvent, UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent

# (id of the file in the log, piece, whether it is the first) -> path to load it from
SaveFile = Callable[[int, bytes, bool], bytes]

_BLOCK_BYTES: Final = 1 << 20
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
        self._handlers: Final[dict[int, Callable[[bytes], Iterator[bytes]]]] = {
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
            yield from handler(event)
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
                yield b"XA START " + _xa(gtid.xa_id) + END
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

    def _context(self, event: bytes) -> Iterator[bytes]:
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
        return iter(())

    def _load_piece(self, event: bytes) -> Iterator[bytes]:
        piece = LoadPiece.parse(event)
        if self._choice.tables:
            return iter(())
        if self._save_file is None:
            raise ProtocolError(
                "LOAD DATA in statement format: its file must be kept somewhere, see --local-load"
            )
        first = event[TYPE_OFFSET] == EventType.BEGIN_LOAD_QUERY
        self._load_paths[piece.file_id] = self._save_file(piece.file_id, piece.data, first)
        return iter(())

    def _load(self, event: bytes) -> Iterator[bytes]:
        load = ExecuteLoadQuery.parse(event)
        path = self._load_paths.get(load.file_id)
        if self._choice.has_statement(load.query.database):
            if path is None:
                raise ProtocolError(f"LOAD DATA of file {load.file_id}, which is not in its group")
            yield from self._statement(load.query, load.statement(path))
        self._reset_statement()

    # --- rows ---

    def _table_map(self, event: bytes) -> Iterator[bytes]:
        table = self._table_maps.parse(event)
        if self._choice.has_table(table):
            self._maps[table.table_id] = table, event
        return iter(())

    def _annotation(self, event: bytes) -> Iterator[bytes]:
        if self._comments:
            text = event[HEADER_SIZE:].replace(b"\n", b"\n#Q> ")
            self._before.append(b"#Q> " + text + b"\n")
        return iter(())

    def _rows(self, event: bytes) -> Iterator[bytes]:
        rows = RowsEvent.parse(event)
        known = self._maps.get(rows.table_id)
        if known is not None:
            self._block.append(event)
            self._block_bytes += len(event)
            if self._verbose:
                lines = row_lines(rows, known[0], types=self._verbose > 1)
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
        yield from binlog_statement(events)
        yield from self._row_comments
        self._before.clear()
        self._block.clear()
        self._block_bytes = 0
        self._row_comments.clear()

    def _description(self, description: FormatDescription) -> Iterator[bytes]:
        self._described = True
        yield from binlog_statement([description.build()])

    # --- ends ---

    def _xid(self, event: bytes) -> Iterator[bytes]:
        xid = XidEvent.parse(event)
        if self._shows_end:
            yield from self._show(*([f"# Xid = {xid.xid}\n".encode()] if self._comments else []))
            yield b"COMMIT" + END

    def _xa_prepare(self, event: bytes) -> Iterator[bytes]:
        prepare = XaPrepareEvent.parse(event)
        name = _xa(prepare.xa_id)
        sql = b"XA COMMIT " + name + b" ONE PHASE" if prepare.one_phase else b"XA PREPARE " + name
        if self._shows_end:
            yield from self._show(sql + b"\n" + END)

    def _nothing(self, event: bytes) -> Iterator[bytes]:
        return iter(())


def _xa(xa_id: XaId) -> bytes:
    format_id, global_part, branch_part = xa_id
    return f"{hex_literal(global_part)},{hex_literal(branch_part)},{format_id}".encode()


def _flag_words(gtid: GtidEvent) -> str:
    words = [
        *(["ddl"] if gtid.flags2 & GtidFlags.DDL else []),
        *(["trans"] if gtid.flags2 & GtidFlags.TRANSACTIONAL else []),
        *(["waited"] if gtid.flags2 & GtidFlags.WAITED else []),
        *([f"cid={gtid.commit_id}"] if gtid.commit_id is not None else []),
        *(["START ALTER"] if gtid.flags_extra & GtidExtraFlags.START_ALTER else []),
        *(
            [f"COMMIT ALTER id={gtid.start_alter_seq_no}"]
            if gtid.flags_extra & GtidExtraFlags.COMMIT_ALTER
            else []
        ),
        *(
            [f"ROLLBACK ALTER id={gtid.start_alter_seq_no}"]
            if gtid.flags_extra & GtidExtraFlags.ROLLBACK_ALTER
            else []
        ),
        *([f"thread_id={gtid.thread_id}"] if gtid.thread_id is not None else []),
    ]
    return "".join(f" {word}" for word in words)


def _time(timestamp: int) -> str:
    return datetime.datetime.fromtimestamp(timestamp, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
