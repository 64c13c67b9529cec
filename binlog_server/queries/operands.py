"""Operands of types that do not go with an operator or a function: 4078 and 4079, as an 11.8 gives them.

A UUID or an address goes with others of its kind, with texts and bytes, and with NULL; and is no number and no time
for most of what wants one. All other types go together.

    ===================================  =====================================================
    comparisons, IN, BETWEEN, CASE, IF,  a UUID or address beside a number or a time, or beside
    COALESCE, GREATEST, UNION and kin    one of the other kind: 4078, the first two that do not fit
    +, -, *, /, MOD                      any UUID or address: 4078
    unary -, bits, functions of          any UUID or address: 4079
    numbers and times, `_NUMBERS`
    an assignment                        as a comparison: 4078, with other words
    ===================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from binlog_protocol.errors import IllegalParameterType, IllegalParameterTypes
from binlog_protocol.events.column_type import ColumnType

from binlog_server.queries import types
from binlog_server.queries.types import INET4, INET6, NATIVE, Type, ValueForm

_ADDRESSES: Final = frozenset((INET4, INET6))
_COLUMN_NAMES: Final = {
    ColumnType.TINY: "tinyint", ColumnType.SHORT: "smallint", ColumnType.INT24: "mediumint", ColumnType.LONG: "int",
    ColumnType.LONGLONG: "bigint", ColumnType.NEWDECIMAL: "decimal", ColumnType.FLOAT: "float",
    ColumnType.DOUBLE: "double", ColumnType.BIT: "bit", ColumnType.YEAR: "year", ColumnType.DATE: "date",
    ColumnType.TIME: "time", ColumnType.DATETIME: "datetime", ColumnType.TIMESTAMP: "timestamp",
    ColumnType.NULL: "null", ColumnType.STRING: "char", ColumnType.VAR_STRING: "varchar", ColumnType.BLOB: "blob",
    ColumnType.MEDIUM_BLOB: "mediumblob", ColumnType.LONG_BLOB: "longblob",
}  # fmt: skip
_INTEGERS: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_FIRST: Final = (0,)
_NUMBERS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    **{name: (name.lower(), _FIRST) for name in (
        "ABS", "FLOOR", "ROUND", "SIGN", "TO_DAYS", "TO_SECONDS", "YEAR", "HOUR", "MINUTE", "SECOND", "MICROSECOND",
        "QUARTER", "DAYOFMONTH", "DAYOFYEAR", "LAST_DAY", "FROM_UNIXTIME", "CEILING", "SQRT", "DATE_FORMAT", "TRUNCATE",
        "WEEK", "YEARWEEK", "RAND", "SIN", "COS", "ACOS", "COT", "EXP", "LN", "LOG2", "LOG10", "DEGREES", "RADIANS",
        "SEC_TO_TIME", "FROM_DAYS", "CONVERT_TZ", "BIT_COUNT", "LAST_INSERT_ID", "SLEEP",
    )},
    "POW": ("pow", (0, 1)), "POWER": ("pow", (0, 1)), "LOG": ("log", (0, 1)), "ATAN": ("atan", _FIRST),
    "ATAN2": ("atan", _FIRST), "CEIL": ("ceiling", _FIRST), "DAY": ("dayofmonth", _FIRST), "LOCATE": ("locate", (2,)),
    "DATE": ("cast_as_date", _FIRST), "TIME": ("cast_as_time", _FIRST), "TIMESTAMP": ("cast_as_datetime", _FIRST),
    "DATEDIFF": ("to_days", (0, 1)),
}  # fmt: skip
"""Functions, with the name that errors give them, and which of their arguments are a number or a time."""
_ONE_OF: Final = {"IF": "if", "IFNULL": "ifnull", "NVL": "ifnull", "COALESCE": "coalesce"}
"""Functions that give one of their arguments."""
_COMPARED: Final = ("NULLIF", "GREATEST", "LEAST")
"""Functions that compare them."""
_OF_CASTS: Final = {
    ValueForm.INT: "cast_as_signed", ValueForm.DECIMAL: "decimal_typecast", ValueForm.DOUBLE: "double_typecast",
    ValueForm.DATE: "cast_as_date", ValueForm.TIME: "cast_as_time", ValueForm.DATETIME: "cast_as_datetime",
}  # fmt: skip


def type_name(kind: Type) -> str:
    """The type, as these errors name it."""
    if kind.code in NATIVE:
        return NATIVE[kind.code]
    if kind.code == types.LABEL:
        return "bigint"
    if kind.is_json and kind.column is not None:
        return "longblob/json"
    if kind is types.BOOLEAN or (kind.form is ValueForm.INT and kind == types.BOOLEAN.nullable()):
        return "boolean"
    name = _COLUMN_NAMES.get(ColumnType(kind.wire("").type), "varchar")
    return f"{name} unsigned" if kind.unsigned and name in _INTEGERS else name


def are_alike(one: Type, other: Type) -> bool:
    """Whether values of these types are compared, or assigned, in MariaDB."""
    codes = {kind.code for kind in (one, other) if kind.code in NATIVE}
    if not codes:
        return True
    if len(codes) == 2:
        return codes == _ADDRESSES
    return all(
        kind.code in NATIVE
        or (
            (kind.code != types.HYBRID or kind.column is None)
            and kind.form in (ValueForm.TEXT, ValueForm.BYTES, ValueForm.NULL)
        )
        for kind in (one, other)
    )


def require_alike(kinds: Sequence[Type], operation: str) -> None:
    """Raises `IllegalParameterTypes` (4078) for the first of types compared that does not go with one in front."""
    if not any(kind.code in NATIVE for kind in kinds):
        return
    for at, kind in enumerate(kinds):
        for before in kinds[:at]:
            if not are_alike(before, kind):
                raise IllegalParameterTypes(type_name(before), type_name(kind), operation)


def require_union(kinds: Sequence[Type], operation: str) -> None:
    """The same of types of which a value has one: those in front are one type by then, a text where they differ."""
    if not any(kind.code in NATIVE for kind in kinds):
        return
    together = kinds[0]
    for kind in kinds[1:]:
        if not are_alike(together, kind):
            raise IllegalParameterTypes(type_name(together), type_name(kind), operation)
        together = types.common((together, kind))


def require_one_alike(one: Type, others: Sequence[Type], operation: str) -> None:
    """The same, of one that is compared with each of the others."""
    for other in others:
        require_alike((one, other), operation)


def require_numbers(left: Type, right: Type, operation: str) -> None:
    """Raises `IllegalParameterTypes` (4078) for operands of arithmetic that are no numbers."""
    if left.code in NATIVE or right.code in NATIVE:
        raise IllegalParameterTypes(type_name(left), type_name(right), operation)


def require_number(kind: Type, operation: str) -> None:
    """Raises `IllegalParameterType` (4079) for what is never a number, nor a time."""
    if kind.code in NATIVE:
        raise IllegalParameterType(type_name(kind), operation)


def require_moment(kind: Type) -> None:
    """Raises `IllegalParameterTypes` (4078) for what no INTERVAL is added to."""
    if kind.code in NATIVE or (kind.is_json and kind.column is not None):
        raise IllegalParameterTypes(type_name(kind), "interval", "date_add_interval")


def require_arguments(name: str, kinds: Sequence[Type]) -> None:
    """Raises 4078, 4079 for arguments of a function, its name in upper case."""
    if not any(kind.code in NATIVE for kind in kinds):
        return
    if name in _ONE_OF:
        require_union(kinds[1:] if name == "IF" else kinds, _ONE_OF[name])
    elif name in _COMPARED:
        require_alike(kinds, name.lower())
    elif name in _NUMBERS:
        operation, places = _NUMBERS[name]
        for place in places:
            if place < len(kinds):
                require_number(kinds[place], operation)


def require_cast(kind: Type, target: Type) -> None:
    """Raises `IllegalParameterType` (4079) for CAST to a number or a time of what is neither."""
    if target.form in _OF_CASTS:
        require_number(kind, _OF_CASTS[target.form])
