"""Events as objects for JSON, one each; row events with their rows decoded.

Every object: type, gtid, timestamp (seconds), time (UTC), server_id, length (bytes, as stored), and by type:

    GTID              flags, commit_id, xa_id, thread_id
    QUERY             database, statement, thread_id, exec_time, error_code; QUERY_COMPRESSED the same
    *_ROWS*           table, flags, rows: {"before": {column: value}, "after": {..}}; null, and error, if they cannot
                      be decoded (temporal columns in the format of MariaDB 5.3 do not say their precision)
    TABLE_MAP         table, columns (types, names where they were logged); null, and error, if they are not known here
    INTVAR ..         name and value
    ANNOTATE_ROWS     annotation

Columns have their names where those were logged, else @1, @2, ...; values as `literals.json_value` gives them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.literals import UTF8, json_value, shown_text
from binlog_protocol.event_text.table_maps import TableMaps, UnreadableMap
from binlog_protocol.events.charsets import charset_of
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import NAMES, EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId
from binlog_protocol.events.header import HEADER_SIZE, TYPE_OFFSET, EventHeader
from binlog_protocol.events.incident import IncidentEvent
from binlog_protocol.events.load_data import ExecuteLoadQuery, LoadPiece
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import ROWS_TYPES, Absent, Image, RowsEvent, RowsFlags
from binlog_protocol.events.statement_context import IntvarEvent, RandEvent, UserVarEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent

Object = dict[str, Any]


class JsonForm:
    """Turns groups into objects. One owner."""

    def __init__(self, choice: Choice) -> None:
        """`choice`: the events that are shown; a group without any is left out whole."""
        self._choice = choice
        self._table_maps = TableMaps()
        self._maps: dict[int, TableMap | UnreadableMap] = {}
        self._details: Final[dict[int, Callable[[bytes], Object | None]]] = {
            EventType.GTID: _gtid,
            EventType.QUERY: self._query,
            EventType.TABLE_MAP: self._table_map,
            EventType.INTVAR: _intvar,
            EventType.RAND: _rand,
            EventType.USER_VAR: _user_var,
            EventType.ANNOTATE_ROWS: _annotation,
            EventType.XID: lambda event: {"xid": XidEvent.parse(event).xid},
            EventType.XA_PREPARE_LOG: _xa_prepare,
            EventType.BEGIN_LOAD_QUERY: _load_piece,
            EventType.APPEND_BLOCK: _load_piece,
            EventType.EXECUTE_LOAD_QUERY: self._load,
            **dict.fromkeys(ROWS_TYPES, self._rows),
        }

    def marker(self, description: FormatDescription | IncidentEvent) -> Object:
        """A server start, or an incident."""
        if isinstance(description, IncidentEvent):
            return {
                "type": "INCIDENT",
                "timestamp": description.timestamp,
                "time": _time(description.timestamp),
                "server_id": description.server_id,
                "incident": description.name,
                "message": description.message,
            }
        return {
            "type": "FORMAT_DESCRIPTION",
            "timestamp": description.timestamp,
            "time": _time(description.timestamp),
            "server_id": description.server_id,
            "server_version": description.server_version,
            "created": description.created,
        }

    def group(self, events: Iterable[bytes]) -> Iterator[Object]:
        """The events of one group. Raises `ProtocolError`."""
        self._maps.clear()
        gtid = ""
        held: list[Object] = []  # until one is of what was chosen
        chosen = self._choice.is_all
        for stored in events:
            header = EventHeader.parse(stored)
            found = self._detail(stored)
            if found is None:
                del held[1:]  # what led to a statement that was not chosen
                continue
            gtid = found.pop("gtid", gtid)
            held.append(
                {
                    "type": NAMES.get(header.type, str(header.type)),
                    "gtid": gtid,
                    "timestamp": header.timestamp,
                    "time": _time(header.timestamp),
                    "server_id": header.server_id,
                    "length": header.length,
                    **found,
                }
            )
            chosen = chosen or "rows" in found or ("statement" in found and not _is_end(found))
            if chosen:
                yield from held
                held.clear()

    def _detail(self, stored: bytes) -> Object | None:
        try:
            if self._choice.leaves_out(stored, self._maps):
                return None
            plain = uncompressed(stored)
        except ProtocolError as error:
            return {"error": str(error)}
        detail = self._details.get(plain[TYPE_OFFSET])
        return {} if detail is None else detail(plain)

    def _query(self, event: bytes) -> Object | None:
        query = QueryEvent.parse(event)
        if not query.ends_group and not self._choice.has_statement(query.database):
            return None
        return _statement(query)

    def _load(self, event: bytes) -> Object | None:
        load = ExecuteLoadQuery.parse(event)
        if not self._choice.has_statement(load.query.database):
            return None
        return {"file_id": load.file_id, **_statement(load.query)}

    def _table_map(self, event: bytes) -> Object | None:
        table = self._table_maps.parse(event)
        if not self._choice.has_table(table):
            return None
        self._maps[table.table_id] = table
        found: Object = {"table": f"{table.database}.{table.table}"}
        if isinstance(table, UnreadableMap):
            return {**found, "columns": None, "error": table.error}
        columns = [
            {"type": c.type.name, **({"name": c.name} if c.name else {})} for c in table.columns
        ]
        return {**found, "columns": columns}

    def _rows(self, event: bytes) -> Object | None:
        rows = RowsEvent.parse(event)
        table = self._maps.get(rows.table_id)
        if table is None:
            return None
        found: Object = {
            "table": f"{table.database}.{table.table}",
            "flags": [flag.name for flag in RowsFlags if rows.flags & flag],
        }
        if isinstance(table, UnreadableMap):
            return {**found, "rows": None, "error": table.error}
        try:
            found["rows"] = [
                {
                    name: _image(image, table)
                    for name, image in (("before", change.before), ("after", change.after))
                    if image is not None
                }
                for change in rows.rows(table)
            ]
        except ProtocolError as error:
            found |= {"rows": None, "error": str(error)}
        return found


def _image(image: Image, table: TableMap) -> Object:
    return {
        column.name or f"@{number}": json_value(value, column)
        for number, (value, column) in enumerate(zip(image, table.columns, strict=True), 1)
        if not isinstance(value, Absent)
    }


def _is_end(found: Object) -> bool:
    return found["statement"] in ("COMMIT", "ROLLBACK")


def _gtid(event: bytes) -> Object:
    gtid = GtidEvent.parse(event)
    found: Object = {
        "gtid": str(gtid.gtid),
        "flags": [flag.name for flag in GtidFlags if gtid.flags2 & flag]
        + [flag.name for flag in GtidExtraFlags if gtid.flags_extra & flag],
    }
    if gtid.commit_id is not None:
        found["commit_id"] = gtid.commit_id
    if gtid.xa_id is not None:
        found["xa_id"] = _xa(gtid.xa_id)
    if gtid.thread_id is not None:
        found["thread_id"] = gtid.thread_id
    return found


def _statement(query: QueryEvent) -> Object:
    charset = StatusVariables.parse(query.status_variables).charset
    return {
        "database": query.database.decode("utf-8", "replace"),
        "statement": shown_text(query.text, charset[0] if charset else UTF8),
        "thread_id": query.thread_id,
        "exec_time": query.execution_seconds,
        "error_code": query.error_code,
    }


def _intvar(event: bytes) -> Object:
    intvar = IntvarEvent.parse(event)
    return {"name": intvar.kind.name, "value": intvar.value}


def _rand(event: bytes) -> Object:
    rand = RandEvent.parse(event)
    return {"seed1": rand.seed1, "seed2": rand.seed2}


def _user_var(event: bytes) -> Object:
    variable = UserVarEvent.parse(event)
    value: object = variable.value
    if isinstance(value, bytes):
        binary = charset_of(variable.collation) == "binary"
        value = {"hex": value.hex()} if binary else shown_text(value, variable.collation)
    elif not isinstance(value, (int, float, type(None))):
        value = str(value)
    return {"name": variable.name.decode("utf-8", "replace"), "value": value}


def _annotation(event: bytes) -> Object:
    return {"annotation": event[HEADER_SIZE:].decode("utf-8", "replace")}


def _xa_prepare(event: bytes) -> Object:
    prepare = XaPrepareEvent.parse(event)
    return {"xa_id": _xa(prepare.xa_id), "one_phase": prepare.one_phase}


def _load_piece(event: bytes) -> Object:
    piece = LoadPiece.parse(event)
    return {"file_id": piece.file_id, "bytes": len(piece.data)}


def _xa(xa_id: XaId) -> Object:
    return {
        "format_id": xa_id.format_id,
        "global": xa_id.global_part.hex(),
        "branch": xa_id.branch_part.hex(),
    }


def _time(timestamp: int) -> str:
    return datetime.datetime.fromtimestamp(timestamp, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
