"""Rows of one layout of a table as rows of another: by the names of the columns, where no value is lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.row_columns import ColumnOptions

from binlog_pipeline.errors import SourceError
from binlog_pipeline.schemas.columns import table_fields

_INTEGER_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}


class Inconvertible(Exception):
    """A column's values may not fit; the text says which, from what to what."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Rows of one layout as rows with `fields`. `sources`: for each field the number of its column, or None."""

    fields: tuple[pa.Field, ...]
    sources: tuple[int | None, ...]

    @classmethod
    def make(
        cls, table: TableMap, options: ColumnOptions, fields: Sequence[pa.Field]
    ) -> Conversion:
        """The conversion of a table's images to `fields`. Raises `Inconvertible`."""
        own = {field.name: (i, field.type) for i, field in enumerate(table_fields(table, options))}
        sources: list[int | None] = []
        for field in fields:
            number, type_ = own.get(field.name, (None, field.type))
            if not widens(type_, field.type):
                raise Inconvertible(f"column {field.name} is {type_}, not {field.type}")
            sources.append(number)
        return cls(tuple(fields), tuple(sources))

    def columns(self, image: pa.RecordBatch) -> list[pa.Array]:
        """The arrays for `fields`, made of a row image; null where the layout has no such column."""
        return [
            pa.nulls(len(image), field.type) if number is None else _as(image, number, field.type)
            for field, number in zip(self.fields, self.sources, strict=True)
        ]

    def present(self, numbers: Collection[int], *, with_absent: bool) -> bytes | None:
        """Which of the wanted columns were logged, least bit first; None if all were.

        with_absent: those that the layout does not have count among them, as null.
        """
        return bitmap(
            [with_absent if number is None else number in numbers for number in self.sources]
        )


def bitmap(logged: Sequence[bool]) -> bytes | None:
    """One bit for each element, the least first, 1 for True; None if all are True."""
    if all(logged):
        return None
    bits = sum(1 << i for i, is_there in enumerate(logged) if is_there)
    return bits.to_bytes((len(logged) + 7) // 8, "little")


def _as(image: pa.RecordBatch, number: int, type_: pa.DataType) -> pa.Array:
    column = image.column(number)
    return column if column.type is type_ else column.cast(type_)


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether every value of the one type is a value of the other."""
    if narrow == wide:
        return True
    types = pa.types
    if types.is_integer(narrow):
        digits = _INTEGER_DIGITS[narrow.bit_width]
        if types.is_integer(wide):
            return bool(wide.bit_width >= narrow.bit_width)
        if types.is_decimal(wide):
            return bool(wide.precision - wide.scale >= digits)
        exact = 24 if types.is_float32(wide) else 53 if types.is_float64(wide) else 0
        return bool(narrow.bit_width <= exact)
    if types.is_float32(narrow):
        return bool(types.is_float64(wide))
    if types.is_decimal(narrow) and types.is_decimal(wide):
        whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
        return bool(whole and wide.scale >= narrow.scale)
    if types.is_date32(narrow):
        return bool(types.is_timestamp(wide) and wide.tz is None)
    return bool(types.is_boolean(narrow) and types.is_integer(wide))


def may_become(then: pa.DataType, now: pa.DataType) -> bool:
    """Whether a value stays what it is in the other type, or is refused there: a number is no text, a text no bytes."""
    types = pa.types
    if widens(then, now):
        return True
    is_exact = types.is_integer(then) or types.is_decimal(then)
    if is_exact and (types.is_integer(now) or types.is_decimal(now)):
        return True
    return bool(types.is_integer(then) and (types.is_float32(now) or types.is_float64(now)))


def require_convertible(table: str, then: pa.Schema, now: pa.Schema) -> None:
    """Whether values that are kept of a table can be those of its columns now. Raises `SourceError`."""
    for column in now:
        if column.name not in then.names:
            continue
        type_ = then.field(column.name).type
        if not may_become(type_, column.type):
            raise SourceError(
                f"column {column.name} of {table} was {type_}, and is {column.type} now: values that "
                "are kept would not be what the server has. Keep the table in a new target, or go on with the "
                "schemaSeed and the options of before, if those were other ones"
            )


def with_columns(rows: pa.Table, schema: pa.Schema, where: Callable[[str], str]) -> pa.Table:
    """Rows with the columns of `schema`, whatever they were written with; NULL in those that they lack.

    Raises `SourceError` for a value that is another one in its new type.

    Args:
        where: a column for messages, by its name.
    """
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            columns.append(pa.nulls(len(rows), field.type))
            continue
        column = rows.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise unfit(where(field.name), column.type, field.type, error) from None
    return pa.table(columns, schema=schema)


def unfit(column: str, then: pa.DataType, now: pa.DataType, error: Exception) -> SourceError:
    """The refusal of a kept value that the type of its column now cannot hold. `column`: what to call it."""
    return SourceError(
        f"{column} was {then}, and is {now} now, which cannot hold all that is kept ({error}): "
        "keep the table in a new target"
    )
