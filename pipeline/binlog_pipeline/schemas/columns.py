"""A table map as named columns, with types that Spark has too."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.row_columns import ColumnOptions, arrow_schema, column_names
from binlog_protocol.sql.token_reader import TableName

from binlog_pipeline.errors import BadOption

_ID_MASK: Final = (1 << 63) - 1


def spark_type(type_: pa.DataType) -> pa.DataType:
    """The same type as Spark would give it back: it calls the elements of a list `element`."""
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", spark_type(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, spark_type(f.type)) for f in type_])
    return type_


def table_fields(table: TableMap, options: ColumnOptions) -> list[pa.Field]:
    """Arrow fields of all columns of a table map, in the order of the table."""
    return [pa.field(f.name, spark_type(f.type)) for f in arrow_schema(table, options)]


def picked_fields(table: TableMap, options: ColumnOptions, names: Sequence[str]) -> list[pa.Field]:
    """The Arrow fields of the columns with these names, in their order; all fields for no names. Raises `BadOption`."""
    fields = table_fields(table, options)
    if not names:
        return fields
    by_name = {field.name: field for field in fields}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise BadOption(
            f"{table_name(table)} has no column {', '.join(unknown)}; it has {', '.join(by_name)}"
        )
    return [by_name[name] for name in names]


def key_fields(table: TableMap, options: ColumnOptions) -> tuple[pa.Field, ...]:
    """The Arrow fields of the primary key, as `key_names`."""
    by_name = {field.name: field for field in table_fields(table, options)}
    return tuple(by_name[name] for name in key_names(table))


def key_names(table: TableMap) -> list[str]:
    """Columns of the primary key in its order; none if there is none, or none was logged."""
    names = column_names(table)
    return [names[part.column] for part in table.primary_key or ()]


def is_named(table: TableMap) -> bool:
    """Whether the log has names of its columns."""
    return all(column.name is not None for column in table.columns)


def table_name(table: TableMap) -> TableName:
    """The name of its table; `database.table` as text."""
    return TableName(table.database, table.table)


def schema_id(table: TableMap) -> int:
    """63 bits that tell two layouts apart: a hash of all that the log and the seed say of columns and key."""
    said = repr((table.columns, table.primary_key)).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "big") & _ID_MASK


def described(table: TableMap, options: ColumnOptions) -> str:
    """The columns for an error: `id int32, name string`."""
    return ", ".join(f"{field.name} {field.type}" for field in table_fields(table, options))
