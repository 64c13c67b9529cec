"""Rows that do not meet conditions are left out before they go to Spark: that is the dear part of their way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from binlog_pipeline.filters import PushedCondition

_COMPARISONS: Final[dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    "=": pc.equal,
    "<=>": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def kept_rows(batch: pa.RecordBatch, conditions: Iterable[PushedCondition]) -> pa.RecordBatch:
    """Without rows for which a condition is false or null.

    Conditions on types that Spark compares otherwise than Arrow, such as floating point numbers, are passed over.
    """
    for condition in conditions:
        if not batch.num_rows:
            break
        mask = _mask(batch, condition)
        if mask is not None:
            batch = batch.filter(mask)
    return batch


def _mask(batch: pa.RecordBatch, condition: PushedCondition) -> pa.Array | None:
    column = _column(batch, condition.path)
    if column is None:
        return None
    value = condition.value
    if condition.op == "<=>" and value is None:
        return pc.is_null(column)
    values = [v for v in value if v is not None] if condition.op == "in" else [value]
    if not all(_is_comparable(column.type, v) for v in values):
        return None
    try:
        found = pa.array(values, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None  # such as a number beyond those of the column
    if condition.op == "in":
        return pc.is_in(column, found)
    return _COMPARISONS[condition.op](column, found[0])


def _column(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | None:
    """The column at a path; None if there is none."""
    if path[0] not in batch.schema.names:
        return None
    column = batch.column(path[0])
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, name)
    return column


def _is_comparable(type_: pa.DataType, value: Any) -> bool:
    if pa.types.is_integer(type_):
        return type(value) is int
    if pa.types.is_string(type_):
        return isinstance(value, str)
    if pa.types.is_timestamp(type_):
        return isinstance(value, datetime) and (value.tzinfo is None) == (type_.tz is None)
    return bool(pa.types.is_boolean(type_)) and isinstance(value, bool)
