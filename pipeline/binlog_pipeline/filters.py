"""Conditions on rows that narrow what is read, of groups and of tables; and rows left out before they go to Spark.

Spark applies its conditions again, so what is read may be more, but never less than they ask for.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.sql.token_reader import TableName
from binlog_storage.log.ranges import TimeRange

from binlog_pipeline.table_names import parsed_table, table_text
from binlog_pipeline.wanted import Numbers, Wanted

SLACK_S: Final = 86_400
"""How far times of a log may be out of order, and those of a statement before the end of its transaction. The log tells
times of few groups, and what is further than that outside of a condition is not read for it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_CHANGES_LAYOUTS: Final = ("struct", "flat")  # those that have _gtid and _ts

Value = TypeVar("Value", int, str)


class PushedCondition(NamedTuple):
    """`column op value`. A nested column has several names.

    op: = <=> < <= > >= in; the value of in is a sequence.
    """

    op: str
    path: tuple[str, ...]
    value: Any


def narrowed(
    wanted: Wanted, conditions: Iterable[PushedCondition], view: str, layout: str
) -> Wanted:
    """`wanted`, narrowed by conditions; those that say nothing of groups are passed over.

    Times of view events are those of events; of other views, those of groups.
    """
    gtid, ts = ("gtid", "ts")
    if view == "changes":
        if layout not in _CHANGES_LAYOUTS:
            return wanted  # a column of the table may have any name
        gtid, ts = ("_gtid", "_ts")
    elif view == "files":
        return wanted
    for condition in conditions:
        match condition.path:
            case (name, "domain") if name == gtid:
                found = _values(condition, int)
                if found is not None:
                    wanted = replace(wanted, domains=_both(wanted.domains, found))
            case (name, "server") if name == gtid:
                found = _values(condition, int)
                if found is not None:
                    wanted = replace(wanted, servers=_both(wanted.servers, found))
            case (name, "seq") if name == gtid:
                wanted = replace(wanted, numbers=wanted.numbers.and_also(_numbers(condition)))
            case (name,) if name == ts and view == "events":
                wanted = replace(wanted, hints=wanted.hints.and_also(_times(condition)))
            case (name,) if name == ts:
                wanted = replace(wanted, times=wanted.times.and_also(_times(condition)))
    return wanted


def narrowed_tables(
    patterns: Sequence[str], conditions: Iterable[PushedCondition]
) -> tuple[str, ...]:
    """The patterns of option `tables` (none: all tables), narrowed by conditions on `_db` and `_table`."""
    databases: frozenset[str] | None = None
    tables: frozenset[str] | None = None
    for condition in conditions:
        found = _values(condition, str)
        if found is None or any("." in name for name in found):
            continue
        if condition.path == ("_db",):
            databases = _both(databases, found)
        elif condition.path == ("_table",):
            tables = _both(tables, found)
    if databases is None and tables is None:
        return tuple(patterns)
    left = [
        table_text(TableName(database, table))
        for pattern in map(parsed_table, patterns or ["*.*"])
        for database in _matching(pattern.database, databases)
        for table in _matching(pattern.table, tables)
    ]
    return tuple(left or patterns)  # nothing at all cannot be said; the rows are looked at again


def _matching(pattern: str, names: frozenset[str] | None) -> list[str]:
    if names is None:
        return [pattern]
    return [glob.escape(name) for name in sorted(names) if fnmatchcase(name, pattern)]


def _values(condition: PushedCondition, kind: type[Value]) -> frozenset[Value] | None:
    """The values that the column may have; None if the condition does not list them."""
    if condition.op in ("=", "<=>"):
        found = [condition.value]
    elif condition.op == "in":
        found = [value for value in condition.value if value is not None]
    else:
        return None
    return frozenset(found) if all(type(value) is kind for value in found) else None


def _both(one: frozenset[Value] | None, other: frozenset[Value]) -> frozenset[Value]:
    return other if one is None else one & other


def _numbers(condition: PushedCondition) -> Numbers:
    values = _values(condition, int)
    if values is not None:
        return Numbers(min(values), max(values)) if values else Numbers(0, -1)
    value = condition.value
    if type(value) is not int:
        return Numbers()
    return _RANGES[condition.op](value)


_RANGES: Final[dict[str, Callable[[int], Numbers]]] = {
    "<": lambda value: Numbers(None, value - 1),
    "<=": lambda value: Numbers(None, value),
    ">": lambda value: Numbers(value + 1, None),
    ">=": lambda value: Numbers(value, None),
}


def _times(condition: PushedCondition) -> TimeRange:
    """The range of times of a condition, in whole seconds."""
    op, value = condition.op, condition.value
    values = list(value) if op == "in" else [value]
    moments = [v for v in values if isinstance(v, datetime) and v.tzinfo is not None]
    if len(moments) != len([v for v in values if v is not None]) or not moments:
        return TimeRange()
    first, last = min(moments) - _EPOCH, max(moments) - _EPOCH
    match op:
        case "<":
            return TimeRange(None, -(-last // _SECOND), SLACK_S)
        case "<=":
            return TimeRange(None, last // _SECOND + 1, SLACK_S)
        case ">":
            return TimeRange(first // _SECOND + 1, None, SLACK_S)
        case ">=":
            return TimeRange(-(-first // _SECOND), None, SLACK_S)
    return TimeRange(first // _SECOND, last // _SECOND + 1, SLACK_S)


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
