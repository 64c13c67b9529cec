"""The plain per-value decoder as the measure: what the columns must hold, value by value."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pytest
from binlog_protocol.events.charsets import UndecodedText, replaced_text
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.events.rows import (
    ABSENT,
    ROWS_TYPES,
    Absent,
    EnumIndex,
    Geometry,
    Image,
    RowsEvent,
    SetBits,
    Value,
    ZeroDate,
)
from binlog_protocol.events.table_map import TableColumn, TableMap
from binlog_protocol.row_columns import Changes, Prepare, loops
from binlog_protocol.values import lenenc_int

T = ColumnType


class Row(NamedTuple):
    """One change, in Arrow's values as `to_pylist` gives them; None in what is absent."""

    group: int
    event: int
    row: int
    kind: str
    before: list[Any] | None
    after: list[Any] | None


def plain_rows(groups: Sequence[bytes], prepare: Prepare = lambda table: table) -> list[Row]:
    """By the plain decoder, in the order of the log. Raises `ProtocolError`."""
    found = []
    for number, group in enumerate(groups):
        tables: dict[int, TableMap] = {}
        for event_number, event in enumerate(split_events(group)):
            if event[4] == EventType.TABLE_MAP:
                table = TableMap.parse(event)
                prepared = prepare(replace(table, table_id=0, flags=0))
                if prepared is not None:
                    tables[table.table_id] = replace(prepared, table_id=table.table_id)
            elif event[4] in ROWS_TYPES:
                rows = RowsEvent.parse(uncompressed(event))
                if rows.table_id not in tables:
                    continue
                table = tables[rows.table_id]
                for i, change in enumerate(rows.rows(table)):
                    images = [_image(table, image) for image in change]
                    found.append(Row(number, event_number, i, rows.kind.value, *images))
    return found


def column_rows(changes: Iterable[Changes]) -> list[Row]:
    """The same of what the decoder gave, each batch checked by Arrow."""
    found = []
    for some in changes:
        images: list[list[Any]] = []
        for batch in (some.before, some.after):
            if batch is None:
                images.append([None] * len(some))
                continue
            batch.validate(full=True)
            columns = [_values(batch.column(i)) for i in range(batch.num_columns)]
            images.append([list(row) for row in zip(*columns, strict=True)])
        found += [
            Row(int(g), int(e), int(r), some.kind.value, before, after)
            for g, e, r, before, after in zip(
                some.group, some.event, some.row, *images, strict=True
            )
        ]
    return sorted(found, key=lambda row: row[:3])


def _values(column: pa.Array) -> list[Any]:
    """Microseconds stay microseconds: no datetime has all of them."""
    return column.to_pylist()  # type: ignore[no-any-return]


def _image(table: TableMap, image: Image | None) -> list[Any] | None:
    if image is None:
        return None
    return [
        None if isinstance(value, Absent) else as_arrow(value, column)
        for value, column in zip(image, table.columns, strict=True)
    ]


def as_arrow(value: Value, column: TableColumn) -> Any:
    """With the default options."""
    if isinstance(value, ZeroDate):
        return None
    if isinstance(value, UndecodedText):
        return replaced_text(value.raw, value.collation)
    if isinstance(value, str):
        return _text(value, column)
    if isinstance(value, EnumIndex):
        return value.index
    if isinstance(value, SetBits):
        return Decimal(value.bits) if column.layout.size == 8 else value.bits
    if isinstance(value, Geometry):
        srid = value.srid
        return {"srid": srid - (1 << 32) if srid >> 31 else srid, "wkb": value.wkb}
    if isinstance(value, Decimal) and column.layout.digits > 38:
        return format(value, "f")
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, int) and _is_wide(column):
        return Decimal(value)
    if value is None or isinstance(value, (int, float, Decimal, bytes, datetime.date)):
        return value
    return value if isinstance(value, datetime.timedelta) else str(value)


def _text(value: str, column: TableColumn) -> str:
    """Halves of surrogate pairs, which ucs2 may hold, are no text in Arrow."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return replaced_text(value.encode("utf-16-be", "surrogatepass"), column.collation or 0)
    return value


def _is_wide(column: TableColumn) -> bool:
    if column.type == T.BIT:
        return column.layout.digits == 64
    return column.type == T.LONGLONG and bool(column.unsigned)


def table_map(table_id: int, columns: int) -> bytes:
    """Of d.t with that many columns; what they are is for `prepare` to say."""
    body = (
        table_id.to_bytes(6, "little") + b"\1\0" + b"\1d\0" + b"\1t\0"
        + lenenc_int(columns) + bytes((T.TINY,)) * columns + b"\0" + b"\xff" * ((columns + 7) // 8)
    )  # fmt: skip
    return build_event(EventType.TABLE_MAP, body, server_id=1)


def rows_event(
    type_: EventType, table_id: int, columns: int, bitmaps: Sequence[int], rows: bytes
) -> bytes:
    size = (columns + 7) // 8
    body = table_id.to_bytes(6, "little") + b"\1\0" + lenenc_int(columns)
    body += b"".join(bitmap.to_bytes(size, "little") for bitmap in bitmaps) + rows
    return build_event(type_, body, server_id=1)


def same(one: Any, other: Any) -> bool:
    """Equal, and NaN too; a decimal with the same digits."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return str(one) == str(other) or (one == other == 0)
    return type(one) is type(other) and (one == other or (one != one and other != other))


_Given = TypeVar("_Given")


def both_ways(work: Callable[[], _Given]) -> tuple[_Given, _Given]:
    """What it gives by the loops in C, where there are some, and by their twins."""
    in_c = work()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "HAS_C", False)
        return in_c, work()


assert ABSENT is Absent.ABSENT
