"""Columns by the plain decoder, value by value: for types that are rare, and to say what is wrong with damaged rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from binlog_protocol.events.rows import Value, ZeroDate, read_value
from binlog_protocol.events.table_map import Column
from binlog_protocol.row_columns.options import UnrepresentableValue
from binlog_protocol.row_columns.row_bytes import Field
from binlog_protocol.values import Cursor


def plain_column(
    column: Column,
    type_: pa.DataType,
    field: Field,
    length_bytes: int,
    convert: Callable[[Value], Any],
) -> pa.Array:
    """`convert` turns a value that is not NULL into what Arrow takes for the type. Raises `ProtocolError`."""
    return pa.array(
        [None if v is None else convert(v) for v in _values(column, field, length_bytes)], type_
    )


def _values(column: Column, field: Field, length_bytes: int) -> Iterator[Value]:
    nulls = [False] * len(field) if field.nulls is None else field.nulls.tolist()
    cursor = Cursor(field.data.raw, "row event")
    for at, null in zip(field.at.tolist(), nulls, strict=True):
        cursor.position = at - length_bytes
        yield None if null else read_value(column, cursor)


def date_or_null(value: Value) -> Any:
    return None if isinstance(value, ZeroDate) else value


def date_or_error(column: str) -> Callable[[Value], Any]:
    def convert(value: Value) -> Any:
        if isinstance(value, ZeroDate):
            raise UnrepresentableValue(zero_date_text(column))
        return value

    return convert


def zero_date_text(column: str) -> str:
    return (
        f"column {column} holds a zero or partial date; zero_date=null makes it null, "
        "zero_date=string keeps it as text"
    )


def microseconds(value: Value) -> int:
    assert isinstance(value, datetime.timedelta)
    return value // datetime.timedelta(microseconds=1)
