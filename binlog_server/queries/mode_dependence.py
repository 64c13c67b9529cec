"""Generated columns that hang on sql_mode: MariaDB refuses those that it keeps, STORED ones and those in keys (1901).

Learnt by what an 11.8 takes. Of each part of an expression there is a mode that its value may hang on, softly or not:

    ============================  ========================================================================
    a CHAR column                 PAD_CHAR_TO_FULL_LENGTH, softly: what cuts blanks makes it nothing
    a - b, if that is unsigned    NO_UNSIGNED_SUBTRACTION
    RTRIM, TRIM, RPAD to its      the soft one of the first argument is gone
    whole length or more
    a comparison of texts, or     soft ones are gone
    with dates, labels, UUIDs
    LIKE '...%'                   soft ones are gone
    AND, OR                       all are gone
    any other part                that of an operand, and no longer softly
    the column itself             a soft one is gone but in texts and bytes of varying length; in TIME and
                                  DATETIME of fewer digits than the value may have, TIME_ROUND_FRACTIONAL
    ============================  ========================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.tables.definition import StoredColumn
from sqlglot import exp

from binlog_server.queries import types
from binlog_server.queries.types import NATIVE, Type, ValueForm

_PAD: Final = "PAD_CHAR_TO_FULL_LENGTH"
_SUBTRACTION: Final = "NO_UNSIGNED_SUBTRACTION"
_FRACTION: Final = "TIME_ROUND_FRACTIONAL"
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_FRACTION_MAX: Final = 6
_STRINGS: Final = (ValueForm.TEXT, ValueForm.BYTES)
_OF_ONE_LENGTH: Final = frozenset((
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year", "date", "time",
    "datetime", "timestamp", "char", "enum", "set",
))  # fmt: skip
Kinds = Callable[[Any], Type]
"""The type of a part of an expression."""
_AS_NUMBERS: Final = (types.HYBRID, types.HEX)
_Needs = tuple[str | None, str | None]
"""The mode that a value hangs on softly, and one that it does not."""
_NOTHING: Final[_Needs] = (None, None)


def mode_needed(tree: Any, kinds: Kinds, column: StoredColumn) -> str | None:
    """The sql_mode that the values of a generated column hang on, if any."""
    soft, hard = _needs(tree, kinds)
    if column.type.name in ("time", "datetime"):
        digits = column.type.numbers[0] if column.type.numbers else 0
        if min(_digits_of(tree, kinds(tree)), _FRACTION_MAX) > digits:
            return hard or _FRACTION
    return hard or (None if column.type.name in _OF_ONE_LENGTH else soft)


def _digits_of(node: Any, kind: Type) -> int:
    """Digits of a second that a value may have as a time."""
    if kind.form is ValueForm.INT:
        return 0
    if isinstance(node, exp.Anonymous) and node.name.upper() == "ROUND":
        digits = node.expressions[1].name if len(node.expressions) > 1 else "0"
        return int(digits) if digits.isdecimal() else _FRACTION_MAX
    is_column = kind.column is not None
    if kind.code == types.LABEL and is_column:
        return 0
    is_bytes = kind.form is ValueForm.BYTES
    if kind.form in _STRINGS and (is_column or is_bytes) and kind.code not in _AS_NUMBERS:
        return _FRACTION_MAX
    return kind.decimals


def _needs(node: Any, kinds: Kinds) -> _Needs:
    node = node.unnest()
    match node:
        case exp.Column():
            column = kinds(node).column
            is_char = column is not None and column.type == ColumnType.STRING
            is_char = is_char and kinds(node).code not in NATIVE | {types.LABEL: ""}
            return (_PAD if is_char and not _is_bytes(kinds(node)) else None), None
        case exp.And() | exp.Or():
            return _NOTHING
        case exp.Trim():
            return None, _needs(node.this, kinds)[1]
        case exp.Anonymous() if node.name.upper() == "RTRIM":
            return None, _needs(node.expressions[0], kinds)[1]
        case exp.Anonymous() if node.name.upper() == "RPAD" and _fills(node, kinds):
            return None, _needs(node.expressions[0], kinds)[1]
    found = [_needs(one, kinds) for one in _operands(node)]
    hard = next((one[1] for one in found if one[1] is not None), None)
    if isinstance(node, exp.Sub) and _is_unsigned(kinds(node.this), kinds(node.expression)):
        hard = hard or _SUBTRACTION
    if (isinstance(node, _COMPARISONS) and _cuts_blanks(node, kinds)) or _is_beginning(node):
        return None, hard
    return None, hard or next((one[0] for one in found if one[0] is not None), None)


def _operands(node: Any) -> list[Any]:
    return [one for one in node.iter_expressions() if isinstance(one, exp.Expression)]


def _is_bytes(kind: Type) -> bool:
    return kind.form is ValueForm.BYTES


def _is_unsigned(left: Type, right: Type) -> bool:
    """Whether a difference is: of integers where one is, of decimals and times where both are."""
    forms = {kind.form for kind in (types.numeric(left), types.numeric(right))}
    if not forms <= {ValueForm.INT, ValueForm.DECIMAL} or ValueForm.NULL in (left.form, right.form):
        return False
    is_whole = forms == {ValueForm.INT} and not (left.is_time or right.is_time)
    of_left, of_right = left.unsigned, right.unsigned
    return of_left or of_right if is_whole else of_left and of_right


def _cuts_blanks(node: Any, kinds: Kinds) -> bool:
    """Whether a comparison is one of texts, or of what texts become."""
    sides = kinds(node.this), kinds(node.expression)
    if any(kind.is_number or kind.code == types.HYBRID for kind in sides):
        return False
    return not any(_is_bytes(kind) and kind.code != types.HEX for kind in sides) or any(
        kind.is_time or kind.code in NATIVE for kind in sides
    )


def _is_beginning(node: Any) -> bool:
    """Whether it is LIKE '...%'."""
    if not isinstance(node, exp.Like):
        return False
    pattern = node.expression
    return isinstance(pattern, exp.Literal) and pattern.is_string and pattern.name.endswith("%")


def _fills(node: Any, kinds: Kinds) -> bool:
    """Whether RPAD puts blanks behind a column, up to its whole length at least."""
    given, length, *mark = node.expressions
    is_blank = not mark or (isinstance(mark[0], exp.Literal) and mark[0].name == " ")
    size = int(length.name) if isinstance(length, exp.Literal) and length.name.isdecimal() else 0
    return is_blank and isinstance(given, exp.Column) and size >= kinds(given).characters
