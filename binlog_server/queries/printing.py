"""Expressions of definitions, of CHECK, generated columns and DEFAULT: as SHOW CREATE TABLE of MariaDB prints them, and
back to trees.

The printed text is what is kept, logged and shown; it means the same when it is parsed again. MariaDB writes names in
backquotes, words and functions in lower case and by one name of several, no brackets that are not needed, and a
comparison that is negated as the opposite one. What is not known to be printed so is 1235.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import (
    FunctionNotAllowed,
    NotSupportedYet,
    ServerError,
    SubqueriesNotSupported,
    UnknownColumn,
)
from sqlglot import exp

from binlog_server.queries import parsing
from binlog_server.queries.aggregates import AGGREGATES

_CHARS_MAX: Final = 4096
_NODES_MAX: Final = 500
_OR, _XOR, _AND, _NOT, _BETWEEN, _COMPARISON, _PREDICATE, _SUM, _PRODUCT, _NEGATIVE, _PRIMARY = (
    range(11)
)
_SIGNS: Final[dict[Any, tuple[str, int]]] = {
    exp.Or: ("or", _OR), exp.Xor: ("xor", _XOR), exp.And: ("and", _AND), exp.EQ: ("=", _COMPARISON),
    exp.NEQ: ("<>", _COMPARISON), exp.GT: (">", _COMPARISON), exp.GTE: (">=", _COMPARISON), exp.LT: ("<", _COMPARISON),
    exp.LTE: ("<=", _COMPARISON), exp.NullSafeEQ: ("<=>", _COMPARISON), exp.RegexpLike: ("regexp", _PREDICATE),
    exp.Add: ("+", _SUM), exp.Sub: ("-", _SUM), exp.Mul: ("*", _PRODUCT), exp.Div: ("/", _PRODUCT),
    exp.IntDiv: ("DIV", _PRODUCT), exp.Mod: ("MOD", _PRODUCT),
}  # fmt: skip
_OPPOSITES: Final[dict[Any, Any]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.GT: exp.LTE, exp.LTE: exp.GT, exp.LT: exp.GTE, exp.GTE: exp.LT,
    exp.And: exp.Or, exp.Or: exp.And,
}  # fmt: skip
_FUNCTIONS: Final = {
    **{name: name.lower() for name in (
        "ABS", "CHAR_LENGTH", "COALESCE", "CONCAT", "CONCAT_WS", "FIELD", "FIND_IN_SET", "FLOOR", "GREATEST", "HEX",
        "IFNULL", "INET_ATON", "JSON_VALID", "LCASE", "LEAST", "LEFT", "LOCATE", "LPAD", "LTRIM", "MD5", "MONTH",
        "NULLIF", "OCTET_LENGTH", "REPLACE", "REVERSE", "RIGHT", "ROUND", "RPAD", "RTRIM", "SIGN", "TO_DAYS", "UCASE",
        "YEAR", "HOUR", "MINUTE", "SECOND", "QUARTER", "BIT_LENGTH", "ASCII",
    )},
    "CHARACTER_LENGTH": "char_length", "LENGTH": "octet_length", "LOWER": "lcase", "UPPER": "ucase",
}  # fmt: skip
_CHANGING: Final = {
    name: f"{name.lower()}()"
    for name in ("RAND", "UUID", "CONNECTION_ID", "USER", "DATABASE", "SLEEP", "FOUND_ROWS", "SYSDATE", "VERSION",
                 "CURDATE", "CURTIME", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "LAST_INSERT_ID", "ROW_COUNT")
} | {
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP"), "current_timestamp()"), "LOCALTIMESTAMP": "localtimestamp()",
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), "curtime()"), "CURRENT_DATE": "curdate()",
}  # fmt: skip
_OF_DEFAULTS: Final = {
    **{name: name.lower() for name in (
        "UUID", "RAND", "CONNECTION_ID", "USER", "SESSION_USER", "CURRENT_USER", "DATABASE", "SYSDATE", "UTC_DATE",
        "UTC_TIME", "UTC_TIMESTAMP", "CURDATE", "CURTIME", "UNIX_TIMESTAMP", "DATE_FORMAT", "DAYOFWEEK", "DAYOFMONTH",
        "LAST_DAY", "FROM_UNIXTIME", "SHA2", "POW", "CEILING", "TRUNCATE", "REPEAT", "SPACE", "UNHEX", "TO_BASE64",
        "SUBSTRING_INDEX", "ORD", "CONV", "CRC32", "SQRT", "INSERT", "MONTHNAME", "JSON_OBJECT", "JSON_ARRAY",
        "JSON_QUOTE",
    )},
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP"), "current_timestamp"), "CURRENT_DATE": "curdate",
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), "curtime"), "LOCALTIMESTAMP": "localtimestamp",
    "SCHEMA": "database", "SYSTEM_USER": "user", "DAY": "dayofmonth", "SHA1": "sha", "SHA": "sha",
    "POWER": "pow", "CEIL": "ceiling", "UCASE": "ucase", "MID": "substr",
}  # fmt: skip
"""Functions of DEFAULT beside those: there they may change."""
_CALLED_BARE: Final[dict[Any, str]] = {
    exp.CurrentTimestamp: "current_timestamp()", exp.CurrentDate: "curdate()", exp.CurrentTime: "curtime()",
    exp.CurrentUser: "current_user()", exp.Localtime: "curtime()", exp.Localtimestamp: "localtimestamp()",
}  # fmt: skip
_BARE_IN_DEFAULTS: Final = ("UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "CURRENT_USER")
_UNCHANGED: Final = ("LAST_INSERT_ID", "SLEEP", "FOUND_ROWS", "ROW_COUNT")
_SHIFTS: Final = {"DATE_ADD": "+", "DATE_SUB": "-"}
_QUERY: Final = compiled_later(r"\s*(?:SELECT|WITH)\b", re.IGNORECASE)
_NUMBER: Final = compiled_later(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_TEXT: Final = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
)


CHECK: Final = "CHECK"
GENERATED: Final = "GENERATED ALWAYS AS"
VIRTUAL: Final = "VIRTUAL"
"""The same of a column whose values MariaDB keeps nowhere: there what changes may stand, but not here."""
DEFAULT: Final = "DEFAULT"


def printed(text: str, columns: Sequence[str], name: str, place: str = CHECK) -> str:
    """The expression of a CHECK, of a generated column, or of DEFAULT.

    Args:
        columns: of its table, that may stand in it.
        name: of the constraint, or the column.
        place: where it stands: `CHECK`, `GENERATED`, `VIRTUAL`, `DEFAULT`.

    Raises `SqlSyntaxError` (1064), `UnknownColumn` (1054), `FunctionNotAllowed` (1901), `SubqueriesNotSupported`
    (1970), `NotSupportedYet` (1235).
    """
    if len(text) > _CHARS_MAX:
        raise NotSupportedYet(f"{place} of more than {_CHARS_MAX} characters")
    try:
        found = tree(f"({text})" if _QUERY.match(text) else text)
    except parsing.HasQuery:
        if place == CHECK:
            raise SubqueriesNotSupported(CHECK) from None
        clause = GENERATED if place == VIRTUAL else place
        raise FunctionNotAllowed("select ...", clause, name) from None
    if place != DEFAULT:
        return _Printer(columns, name, place).text(found, _OR)
    said = _Printer(columns, name, place).text(found, _PRIMARY)
    return _bracketed(said, isinstance(found, exp.Case))


def tree(text: str) -> Any:
    """sqlglot's tree of an expression."""
    found = parsing.expression(text, _NODES_MAX)
    return found.unnest()


@functools.lru_cache(maxsize=256)
def kept_tree(text: str) -> Any:
    """The tree of a printed expression; nobody changes it."""
    return tree(text)


class _Printer:
    def __init__(self, columns: Sequence[str], name: str, place: str) -> None:
        self._columns: Final = {column.lower(): column for column in columns}
        self._name: Final = name
        self._place: Final = GENERATED if place == VIRTUAL else place
        self._may_change: Final = place == VIRTUAL
        self._functions: Final = _FUNCTIONS | _OF_DEFAULTS if place == DEFAULT else _FUNCTIONS

    def text(self, node: Any, around: int) -> str:
        """The node's text, in brackets if it binds less than what is around it."""
        node = node.unnest()
        if isinstance(node, exp.Not):
            return self._negated(node.this.unnest(), around)
        sign, binds = _SIGNS.get(type(node), ("", _PRIMARY))
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            return self._shifted(node.this, node.expression, sign, around)
        if isinstance(node, exp.And | exp.Or):
            left, right = self._truth(node.this, binds), self._truth(node.expression, binds)
            return _bracketed(f"{left} {sign} {right}", binds < around)
        if sign:
            left, right = self.text(node.this, binds), self.text(node.expression, binds + 1)
            return _bracketed(f"{left} {sign} {right}", binds < around)
        if isinstance(node, exp.In | exp.Between | exp.Is | exp.Like | exp.Escape):
            return self._tested(node, around, is_not=False)
        return self._primary(node, around)

    def _truth(self, node: Any, around: int) -> str:
        """An operand of AND and OR."""
        found = self.text(node, around)
        return f"{found} <> 0" if isinstance(node.unnest(), exp.Column) else found

    def _negated(self, node: Any, around: int) -> str:
        opposite: Any = _OPPOSITES.get(type(node))
        if isinstance(node, exp.And | exp.Or):
            parts = exp.Not(this=node.this.copy()), exp.Not(this=node.expression.copy())
            return self.text(opposite(this=parts[0], expression=parts[1]), around)
        if opposite is not None:
            return self.text(opposite(this=node.this, expression=node.expression), around)
        if isinstance(node, exp.Column):
            return _bracketed(f"{self.text(node, _COMPARISON)} = 0", around > _COMPARISON)
        if isinstance(node, exp.In | exp.Between | exp.Is | exp.Like | exp.Escape):
            return self._tested(node, around, is_not=True)
        raise self._refused("NOT of this")

    def _tested(self, node: Any, around: int, *, is_not: bool) -> str:
        escape = ""
        if isinstance(node, exp.Escape):
            escape = f" escape {self.text(node.expression, _PRIMARY)}"
            node = node.this
        is_not = is_not != bool(node.args.get("negate"))
        word = "not " if is_not else ""
        tested = self.text(node.this, self._binds_in_front(node))
        match node:
            case exp.In() if node.expressions and not node.args.get("query"):
                items = [self.text(item, _OR) for item in node.expressions]
                if len(items) == 1:
                    return _bracketed(
                        f"{tested} {'<>' if is_not else '='} {items[0]}", around > _COMPARISON
                    )
                found, binds = f"{tested} {word}in ({','.join(items)})", _PREDICATE
            case exp.Between():
                low, high = (self.text(node.args[end], _SUM) for end in ("low", "high"))
                found, binds = f"{tested} {word}between {low} and {high}", _BETWEEN
            case exp.Is() if isinstance(node.expression, exp.Null):
                found, binds = f"{tested} is {word}null", _COMPARISON
            case exp.Like():
                word = " not " if is_not else ""  # with two spaces, as MariaDB has it
                found = f"{tested} {word}like {self.text(node.expression, _PREDICATE + 1)}{escape}"
                binds = _PREDICATE
            case _:
                raise self._refused(node.key.upper())
        return _bracketed(found, binds < around)

    @staticmethod
    def _binds_in_front(node: Any) -> int:
        """What the value tested has to bind without brackets: a = b IN (c, d) is a = (b IN (c, d))."""
        if isinstance(node, exp.Between):
            return _SUM
        is_alone = isinstance(node, exp.In) and len(node.expressions) == 1  # printed as =
        return _COMPARISON if is_alone or isinstance(node, exp.Is) else _PREDICATE

    def _shifted(self, moment: Any, interval: Any, sign: str, around: int) -> str:
        """A date, and what is added to it or taken away."""
        unit = interval.args.get("unit")
        if self._place != DEFAULT or unit is None:
            raise self._refused("INTERVAL")
        amount = interval.this
        if isinstance(amount, exp.Literal) and _NUMBER.fullmatch(amount.this):
            said = amount.this  # which sqlglot has turned into a text
        else:
            said = self.text(amount, _SUM + 1)
        found = f"{self.text(moment, _SUM)} {sign} interval {said} {unit.name.lower()}"
        return _bracketed(found, around > _SUM)

    def _primary(self, node: Any, around: int) -> str:
        called = _CALLED_BARE.get(type(node))
        if called is not None:
            return called if self._place == DEFAULT else self._changing(called)
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Literal() if node.is_string:
                return f"'{node.this.translate(_TEXT)}'"
            case exp.Literal():
                return node.this.lstrip("0") or "0" if node.this.isdecimal() else str(node.this)
            case exp.Boolean():
                return "1" if node.this else "0"
            case exp.Null():
                return "NULL"
            case exp.Neg():
                return _bracketed("-" + self.text(node.this, _NEGATIVE), around > _NEGATIVE)
            case exp.If() if node.args.get("false") is not None:
                return self._call("if", (node.this, node.args["true"], node.args["false"]))
            case exp.Case():
                return self._case(node)
            case exp.Substring():
                given = node.this, node.args.get("start"), node.args.get("length")
                return self._call("substr", [one for one in given if one is not None])
            case exp.Trim() if not any(
                node.args.get(part) for part in ("expression", "position", "collation")
            ):
                return self._call("trim", [node.this])
            case exp.Anonymous():
                return self._function(node, around)
        raise self._refused(node.key.upper())

    def _changing(self, called: str) -> NoReturn:
        """What changes may not stand here."""
        if self._may_change:
            raise self._refused(f"{called} in a VIRTUAL column")
        raise FunctionNotAllowed(called, self._place, self._name)

    def _column(self, node: Any) -> str:
        name = self._columns.get(node.name.lower())
        if name is None and self._place == DEFAULT and node.name.upper() in _BARE_IN_DEFAULTS:
            return f"{node.name.lower()}()"
        if node.table:
            raise self._refused(node.sql())
        if name is None and node.name.upper() in parsing.BARE_NAMES and not node.this.quoted:
            if self._place == DEFAULT:
                raise self._refused(node.name)
            self._changing(f"{node.name.lower()}()")
        if name is None:
            raise UnknownColumn(node.name, self._place)
        return "`" + name.replace("`", "``") + "`"

    def _case(self, node: Any) -> str:
        subject = "" if node.this is None else self.text(node.this, _OR) + " "
        parts = [
            f"when {self.text(one.this, _OR)} then {self.text(one.args['true'], _OR)}"
            for one in node.args["ifs"]
        ]
        default = node.args.get("default")
        if default is not None:
            parts.append(f"else {self.text(default, _OR)}")
        return f"case {subject}{' '.join(parts)} end"

    def _function(self, node: Any, around: int) -> str:
        name, given = node.name.upper(), node.expressions
        if name in _SHIFTS and len(given) == 2 and isinstance(given[1], exp.Interval):
            return self._shifted(given[0], given[1], _SHIFTS[name], around)
        if name in (_UNCHANGED if self._place == DEFAULT else _CHANGING):
            self._changing(_CHANGING[name])
        if name in AGGREGATES:
            raise FunctionNotAllowed(f"{name.lower()}()", self._place, self._name)
        if name == "MOD" and len(given) == 2:
            return self.text(exp.Mod(this=given[0].copy(), expression=given[1].copy()), around)
        if name == "ISNULL" and len(given) == 1:
            return self._tested(
                exp.Is(this=given[0].copy(), expression=exp.Null()), around, is_not=False
            )
        if name == "INSTR" and len(given) == 2:
            return self._call("locate", given[::-1])
        if name == "ROUND" and len(given) == 1:
            return self._call("round", [*given, exp.Literal.number(0)])
        if name not in self._functions:
            raise self._refused(f"{name}()")
        return self._call(self._functions[name], given)

    def _call(self, name: str, given: Sequence[Any]) -> str:
        return f"{name}({','.join(self.text(one, _OR) for one in given)})"

    def _refused(self, what: str) -> ServerError:
        return NotSupportedYet(f"{self._place} with {what}")


def _bracketed(text: str, needed: bool) -> str:
    return f"({text})" if needed else text
