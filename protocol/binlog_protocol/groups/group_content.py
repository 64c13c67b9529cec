"""The content of a group, whichever server logged it: to tell whether two servers mean the same by one GTID.

A replica with log_slave_updates logs the groups of its master anew, under the same GTID and never with the same bytes.
As seen on 10.11 and 11.8, in both directions:

=========================  =========================================================================================
as on the master           statements and their time stamps, rows, their order, INTVAR, RAND, USER_VAR, XA ids
its own                    flags and time of the GTID event, commit ids, table ids, the order of table maps, XID, how
                           rows are cut into events and compressed, ANNOTATE_ROWS, thread ids, status variables;
                           COMMIT and XID; IF EXISTS and OR REPLACE in DDL; the database of XA END
otherwise by its options   statements as rows (binlog_format=ROW; also CREATE TABLE ... AS SELECT), columns left out
                           (binlog_row_image), columns of another type
=========================  =========================================================================================

So a group is read as a list of parts, of which only the first kind of facts is kept. A part is a statement, what a
statement needs, or consecutive changes of one kind to one table. What lies in memory is bounded: digests, and no more
than the first parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from hashlib import blake2b
from itertools import chain
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.compressed import COMPRESSED_TYPES, CompressedPart, uncompressed_slices
from binlog_protocol.events.event_type import NAMES, EventType
from binlog_protocol.events.header import HEADER_SIZE, EventHeader, parse_whole, split_events
from binlog_protocol.events.load_data import ExecuteLoadQuery, LoadPiece
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import RowsEvent
from binlog_protocol.events.table_map import TableMapHead
from binlog_protocol.groups.event_parts import EventRun, event_parts
from binlog_protocol.limits import EVENT_BYTES_MAX

PARTS_MAX: Final = 256  # that are kept one by one
TIMES_MAX: Final = 1024
TEXT_CHARS: Final = 60
TABLES_MAX: Final = 16_384  # of one group
INFLATED_BYTES_MAX: Final = EVENT_BYTES_MAX  # of all events of a group

_ROWS: Final = frozenset(
    {EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1}
)
_FILE_PIECES: Final = frozenset({EventType.BEGIN_LOAD_QUERY, EventType.APPEND_BLOCK})
_LEFT_OUT: Final = frozenset({EventType.GTID, EventType.XID})
# A replica adds these by itself, where slave_ddl_exec_mode is IDEMPOTENT.
_OF_REPLICAS: Final = compiled_later(rb"^(CREATE) OR REPLACE|^(DROP [A-Z ]{4,24}?) IF EXISTS", re.I)
_SECRET: Final = compiled_later(r"\b(?:identified|password)\b.*", re.I | re.S)
_FIRST_WORD: Final = compiled_later(r"[A-Za-z]{1,16}\b")
_DIGEST_SIZE: Final = 16
_REWORDED_BYTES: Final = 64  # in which `_OF_REPLICAS` is found


class ContentPart(NamedTuple):
    """A part of a group's content.

    is_statement: a statement, not rows or what a statement needs.
    subject: what it is, or whose rows, for people too.
    shape: of rows, the types of the columns and which are there; rows of other shapes cannot be compared.
    timestamp: of its first event; seconds since 1970.
    size: bytes.
    """

    is_statement: bool
    subject: str
    shape: bytes
    timestamp: int
    size: int
    digest: bytes

    @property
    def has_rows(self) -> bool:
        return bool(self.shape)

    def __str__(self) -> str:
        return self.subject if self.is_statement else f"{self.subject} ({self.size} bytes)"

    @property
    def outline(self) -> str:
        """Without names and contents."""
        word = _FIRST_WORD.match(self.subject)
        kind = word[0].upper() if word else "statement"
        return f"{kind} ({self.size} bytes)"


class _Table(NamedTuple):
    """`columns`: a digest of their types."""

    name: str
    columns: bytes


@dataclass(slots=True)
class GroupContent:
    """Takes the events of one group in normal form, in order; then `finish`.

    parts: the first ones; `part_count` is the number of all.
    statements, rows: how many parts are statements, and how many rows of a table.
    times: of the events that change something, the first ones.
    events, size: number and bytes of all events, which differ between servers.
    plain_size: bytes of all events, if none were compressed.
    inflate_max: so many bytes are uncompressed. `is_cut`: there were more, which are taken as they are.
    annotation: the beginning of the first statement that is quoted beside rows.
    """

    parts: list[ContentPart] = field(default_factory=list)
    part_count: int = 0
    statements: int = 0
    rows: int = 0
    times: set[int] = field(default_factory=set)
    events: int = 0
    size: int = 0
    plain_size: int = 0
    inflate_max: int = field(default=INFLATED_BYTES_MAX, compare=False)
    is_cut: bool = False
    annotation: str = ""
    digest: bytes = b""
    _tables: dict[int, _Table] = field(default_factory=dict)
    _open: _OpenPart | None = None

    def add(self, event: bytes) -> None:
        """The next event, one that a door has let in. Raises `ProtocolError` if it cannot be read."""
        self.events += 1
        self.size += len(event)
        header = parse_whole(event)
        type_, timestamp = header.type, header.timestamp
        if type_ in COMPRESSED_TYPES:
            try:
                self._add_compressed(event, header)
            except ProtocolError:  # no door looks into it: then its bytes are what it says
                self._keep(
                    (event[HEADER_SIZE:],), NAMES.get(type_, f"event of type {type_}"), timestamp
                )
            return
        self.plain_size += len(event)
        if type_ in _LEFT_OUT:
            return
        if type_ == EventType.TABLE_MAP:
            self._add_table(event)
            return
        if type_ == EventType.ANNOTATE_ROWS:
            self.annotation = self.annotation or shown(event[HEADER_SIZE:])
            return
        if type_ in _ROWS:
            self._add_rows(RowsEvent.parse(event), timestamp)
            return
        if type_ == EventType.QUERY:
            self._add_statement(QueryEvent.parse(event), timestamp)
            return
        if type_ == EventType.EXECUTE_LOAD_QUERY:
            load = ExecuteLoadQuery.parse(event)
            text = load.query.text
            text = text[: load.name_start] + text[load.name_end :]
            self._keep((text,), shown(text), timestamp, is_statement=True)
            return
        if type_ in _FILE_PIECES:
            self._extend("file", b"", (LoadPiece.parse(event).data,), timestamp)
            return
        self._keep((event[HEADER_SIZE:],), NAMES.get(type_, f"event of type {type_}"), timestamp)

    def finish(self) -> None:
        """End the content: no more events come."""
        self._close()
        self._tables.clear()

    def _add_compressed(self, event: bytes, header: EventHeader) -> None:
        """Slice by slice. Raises `ProtocolError`; nothing is added then."""
        length = CompressedPart.find(event).length
        self.plain_size += len(event) + length
        begin, rest = uncompressed_slices(event)
        if length > self.inflate_max:
            self.is_cut = True
            rest = iter((event,))
        else:
            self.inflate_max -= length
        if header.type == EventType.QUERY_COMPRESSED:
            self._add_statement(QueryEvent.parse(begin), header.timestamp, rest)
        else:
            self._add_rows(RowsEvent.parse(begin), header.timestamp, rest)

    def _add_table(self, event: bytes) -> None:
        head = TableMapHead.parse(event)
        # Without case: lower_case_table_names is an option of each server.
        name = f"{head.database}.{head.table}".lower()
        if len(self._tables) >= TABLES_MAX and head.table_id not in self._tables:
            raise ProtocolError(f"a group with more than {TABLES_MAX} tables")
        self._tables[head.table_id] = _Table(name, _columns(head))

    def _add_rows(self, event: RowsEvent, timestamp: int, rest: Iterable[bytes] = ()) -> None:
        table = self._tables.get(event.table_id)
        if table is None:  # a replica passes over such rows
            table = _Table(f"table {event.table_id} without a table map", b"")
        subject = f"{event.kind.name} {table.name}"
        shape = f"{event.present:x} {event.present_after:x} ".encode() + table.columns
        self._extend(subject, shape, chain((event.body,), rest), timestamp)

    def _extend(self, subject: str, shape: bytes, data: Iterable[bytes], timestamp: int) -> None:
        """Extend the open part, or begin one, with data that servers cut into events as they like."""
        part = self._open
        goes_on = part is not None and (part.subject, part.shape) == (subject, shape)
        new = part if part is not None and goes_on else _OpenPart(subject, shape, timestamp)
        known, size = new.hash.copy(), new.size
        for piece in data:
            known.update(piece)
            size += len(piece)
        if not goes_on:
            self._close()
        self._note_time(timestamp)
        self._open, new.hash, new.size = new, known, size

    def _add_statement(self, event: QueryEvent, timestamp: int, rest: Iterable[bytes] = ()) -> None:
        text = event.text
        if event.ends_group:
            return
        begin = _OF_REPLICAS.sub(lambda found: found[1] or found[2], text[:_REWORDED_BYTES])
        if not text.startswith(b"XA "):
            begin = event.database.lower() + b"\0" + begin
        pieces: Iterable[bytes | memoryview] = chain(
            (begin, memoryview(text)[_REWORDED_BYTES:]), rest
        )
        self._keep(pieces, shown(text), timestamp, is_statement=True)

    def _keep(
        self,
        data: Iterable[bytes | memoryview],
        subject: str,
        timestamp: int,
        *,
        is_statement: bool = False,
    ) -> None:
        size, known = 0, blake2b(digest_size=_DIGEST_SIZE)
        for piece in data:
            size += len(piece)
            known.update(piece)
        self._close()
        self._note_time(timestamp)
        self._append(ContentPart(is_statement, subject, b"", timestamp, size, known.digest()))

    def _close(self) -> None:
        part, self._open = self._open, None
        if part is not None:
            digest = part.hash.digest()
            self._append(
                ContentPart(False, part.subject, part.shape, part.timestamp, part.size, digest)
            )

    def _append(self, part: ContentPart) -> None:
        self.part_count += 1
        self.statements += part.is_statement
        self.rows += part.has_rows
        if len(self.parts) < PARTS_MAX:
            self.parts.append(part)
        known = blake2b(self.digest, digest_size=_DIGEST_SIZE)
        known.update(b"%d %d " % (part.timestamp, len(part.shape)) + part.shape + part.digest)
        # The subject of a statement is for people alone.
        known.update(b"" if part.is_statement else part.subject.encode(errors="replace"))
        self.digest = known.digest()

    def _note_time(self, timestamp: int) -> None:
        if len(self.times) < TIMES_MAX:
            self.times.add(timestamp)


class _OpenPart:
    """Changes of one kind to one table, or a file: more may come."""

    __slots__ = ("hash", "shape", "size", "subject", "timestamp")

    def __init__(self, subject: str, shape: bytes, timestamp: int) -> None:
        self.subject = subject
        self.shape = shape
        self.timestamp = timestamp
        self.size = 0
        self.hash = blake2b(digest_size=_DIGEST_SIZE)


def shown(text: bytes) -> str:
    """The beginning of a statement on one line, without passwords."""
    start = text[: 4 * TEXT_CHARS].decode(errors="replace")
    plain = " ".join(_SECRET.sub("...", start).split())
    return plain if len(plain) <= TEXT_CHARS else plain[:TEXT_CHARS] + "..."


def _columns(head: TableMapHead) -> bytes:
    return blake2b(head.types + head.metadata, digest_size=_DIGEST_SIZE).digest()


def content_of(pieces: Iterable[bytes]) -> GroupContent:
    """The content of a group in normal form, which may be cut anywhere. Raises `ProtocolError`."""
    content = GroupContent()
    for part in event_parts(pieces, long_bytes=EVENT_BYTES_MAX + 1):
        assert isinstance(part, EventRun)
        for event in split_events(part.data):
            content.add(event)
    content.finish()
    return content
