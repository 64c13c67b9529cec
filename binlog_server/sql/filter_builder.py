"""LIKE and WHERE of a SHOW: a method for each of their rules in `grammar.lark`."""

from __future__ import annotations

from typing import Any

from lark import Token, Transformer

from binlog_server.sql.row_filter import AllOf, AnyOf, Condition, Not, Operator, Test
from binlog_server.sql.tokens import integer, name_of, unquote

# By sign: the operator, and whether it is negated.
_COMPARISONS = {
    "=": (Operator.EQUAL, False),
    "<=>": (Operator.EQUAL, False),
    "!=": (Operator.EQUAL, True),
    "<>": (Operator.EQUAL, True),
    "<": (Operator.LESS, False),
    ">": (Operator.GREATER, False),
    "<=": (Operator.GREATER, True),
    ">=": (Operator.LESS, True),
}


class FilterBuilder(Transformer[Token, Any]):
    """Parse trees of conditions to a `Test`."""

    def like(self, children: list[Token]) -> Test:
        return Condition("", Operator.LIKE, (unquote(children[0]),))

    def any_of(self, children: list[Test]) -> Test:
        return AnyOf(tuple(children))

    def all_of(self, children: list[Test]) -> Test:
        return AllOf(tuple(children))

    def negation(self, children: list[Any]) -> Test:
        return Not(children[-1])

    def compares(self, children: list[Token]) -> Test:
        column, comparison, value = children
        operator, negated = _COMPARISONS[comparison]
        return _test(negated, Condition(name_of(column), operator, (_constant(value),)))

    def is_like(self, children: list[Any]) -> Test:
        column, negated, pattern = children
        return _test(negated, Condition(name_of(column), Operator.LIKE, (unquote(pattern),)))

    def is_in(self, children: list[Any]) -> Test:
        column, negated, *values = children
        return _test(
            negated, Condition(name_of(column), Operator.IN, tuple(map(_constant, values)))
        )

    def is_between(self, children: list[Any]) -> Test:
        column, negated, low, high = children
        name = name_of(column)
        outside = (
            Condition(name, Operator.LESS, (_constant(low),)),
            Condition(name, Operator.GREATER, (_constant(high),)),
        )
        return AnyOf(outside) if negated else Not(AnyOf(outside))

    def is_null(self, children: list[Any]) -> Test:
        column, negated = children
        return _test(negated, Condition(name_of(column), Operator.IS_NULL))


def _test(negated: object, condition: Condition) -> Test:
    return Not(condition) if negated else condition


def _constant(token: Token) -> str | int:
    return unquote(token) if token.type == "STRING" else integer(token)
