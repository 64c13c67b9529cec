"""Columns of Iceberg tables, and the types in which this program has them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a table, in the types in which this program has them."""
    return pa.schema(
        [pa.field(field.name, arrow_type(field.field_type)) for field in schema.fields]
    )


def as_kept(schema: pa.Schema) -> pa.Schema:
    """The columns as the format keeps them."""
    return pa.schema(
        [pa.field(field.name, arrow_type(iceberg_type(field.type))) for field in schema]
    )


def iceberg_schema(schema: pa.Schema) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    return Schema(
        *(
            NestedField(number, field.name, iceberg_type(field.type), required=False)
            for number, field in enumerate(schema, 1)
        )
    )


def iceberg_type(type_: pa.DataType) -> IcebergType:
    """Raises TypeError for none. Numbers of nested fields are given by the table."""
    from pyiceberg import types

    known = pa.types
    if known.is_list(type_):
        return types.ListType(-1, iceberg_type(type_.value_type), element_required=False)
    if known.is_struct(type_):
        return types.StructType(
            *(
                types.NestedField(-1 - number, field.name, iceberg_type(field.type), required=False)
                for number, field in enumerate(type_)
            )
        )
    if known.is_decimal128(type_):
        return types.DecimalType(type_.precision, type_.scale)
    if known.is_timestamp(type_) and type_.unit == "us":
        return types.TimestamptzType() if type_.tz else types.TimestampType()
    if known.is_fixed_size_binary(type_):
        return types.FixedType(type_.byte_width)
    simple = {
        pa.bool_(): types.BooleanType, pa.int8(): types.IntegerType, pa.int16(): types.IntegerType,
        pa.int32(): types.IntegerType, pa.int64(): types.LongType, pa.float32(): types.FloatType,
        pa.float64(): types.DoubleType, pa.string(): types.StringType, pa.binary(): types.BinaryType,
        pa.date32(): types.DateType,
    }  # fmt: skip
    if type_ not in simple:
        raise TypeError(type_)
    found: IcebergType = simple[type_]()
    return found


def arrow_type(type_: IcebergType) -> pa.DataType:
    """The type in which rows are in memory: that of the library, with offsets of 32 bits as everywhere else here."""
    from pyiceberg import types
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    match type_:
        case types.ListType():
            return pa.list_(pa.field("element", arrow_type(type_.element_type)))
        case types.StructType():
            return pa.struct([(field.name, arrow_type(field.field_type)) for field in type_.fields])
        case types.StringType():
            return pa.string()
        case types.BinaryType():
            return pa.binary()
    found: pa.DataType = schema_to_pyarrow(type_)
    return found
