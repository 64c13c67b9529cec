"""Text to `Statement`, by the grammar in `grammar.lark`."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

from binlog_protocol.errors import SqlSyntaxError
from lark import Lark
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError

from binlog_server.sql import account_statements, replication_statements
from binlog_server.sql.builder import Builder
from binlog_server.sql.replication_statements import (
    IS_ABOUT_REPLICATION,
    parse_replication_statement,
)
from binlog_server.sql.statements import Statement
from binlog_server.sql.tokens import NEAR_CHARS, is_too_long, whole_words

# What monitoring asks again and again, and what holds no password.
_REPEATED = re.compile(r"\s*(?:SHOW|SELECT)\b", re.IGNORECASE)
_REPEATED_CHARS_MAX = 512


def parse(text: str) -> Statement:
    """The statement in `text`. Raises `SqlSyntaxError` (1064)."""
    if is_too_long(text):
        raise SqlSyntaxError(text[:NEAR_CHARS])
    if IS_ABOUT_REPLICATION.match(text):
        return parse_replication_statement(text)
    if len(text) <= _REPEATED_CHARS_MAX and _REPEATED.match(text):
        return _parsed_before(text)
    return _parsed(text)


@lru_cache(maxsize=128)
def _parsed_before(text: str) -> Statement:
    return _parsed(text)


def _parsed(text: str) -> Statement:
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            at = len(text)
        line = text.count("\n", 0, at) + 1
        raise SqlSyntaxError(text[at : at + NEAR_CHARS], line) from None
    try:
        statement: Statement = Builder(text).transform(tree)
    except VisitError as error:  # lark wraps what a method of the builder raises
        raise error.orig_exc from None
    except RecursionError:  # conditions within conditions
        raise SqlSyntaxError(text[:NEAR_CHARS]) from None
    return statement


def build_grammars() -> None:
    """A quarter of a second of processor time, for which no statement is to wait."""
    for build in (_lark, replication_statements.build_grammar, account_statements.build_grammar):
        build()


@cache
def _lark() -> Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=True,
        edit_terminals=whole_words,
    )
