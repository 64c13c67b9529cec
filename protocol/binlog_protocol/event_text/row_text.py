"""Rows as comments behind `###`, in the words of a statement."""

from __future__ import annotations

from collections.abc import Iterator

from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.literals import identifier, sql_literal
from binlog_protocol.event_text.table_maps import UnreadableMap
from binlog_protocol.events.rows import Absent, ChangeKind, Image, RowsEvent
from binlog_protocol.events.table_map import TableMap

_HEADS = {
    ChangeKind.INSERT: "INSERT INTO",
    ChangeKind.UPDATE: "UPDATE",
    ChangeKind.DELETE: "DELETE FROM",
}


def row_lines(rows: RowsEvent, table: TableMap | UnreadableMap, *, types: bool) -> Iterator[str]:
    """Lines without their ends. `types` adds names and types of the columns where they were logged."""
    if isinstance(table, UnreadableMap):
        yield f"### cannot be decoded: {table.error}"
        return
    try:
        yield from _rows(rows, table, types)
    except ProtocolError as error:
        # The event applies all the same: only this reading of it fails (see `temporal.py` for a case).
        yield f"### cannot be decoded: {error}"


def _rows(rows: RowsEvent, table: TableMap, types: bool) -> Iterator[str]:
    head = f"### {_HEADS[rows.kind]} {identifier(table.database)}.{identifier(table.table)}"
    for change in rows.rows(table):
        yield head
        if change.before is not None:
            yield "### WHERE"
            yield from _image(change.before, table, types)
        if change.after is not None:
            yield "### SET"
            yield from _image(change.after, table, types)


def _image(image: Image, table: TableMap, types: bool) -> Iterator[str]:
    for number, (value, column) in enumerate(zip(image, table.columns, strict=True), 1):
        if isinstance(value, Absent):
            continue
        about = (
            f" /* {column.name or ''} {column.type.name} */".replace("/*  ", "/* ") if types else ""
        )
        yield f"###   @{number}={sql_literal(value, column)}{about}"
