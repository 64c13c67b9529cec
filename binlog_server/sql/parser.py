"""Text to `Statement`, by the grammar in `grammar.lark`."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

from binlog_protocol.sql.tokens import first_words
from lark import Lark

from binlog_server.sql import account_statements, replication_statements
from binlog_server.sql.builder import Builder
from binlog_server.sql.replication_statements import (
    is_about_replication,
    parse_replication_statement,
)
from binlog_server.sql.statements import Statement
from binlog_server.sql.tokens import read, whole_words

# Statements that monitoring repeats and that hold no password: their parse is cached.
_REPEATED = re.compile(r"\s*(?:SHOW|SELECT)\b", re.IGNORECASE)
_REPEATED_CHARS_MAX = 512


def parse(text: str) -> Statement:
    """The statement in `text`. Raises `SqlSyntaxError` (1064)."""
    if len(text) <= _REPEATED_CHARS_MAX and _REPEATED.match(text):
        return _parsed_before(text)
    if is_about_replication(first_words(text)):
        return parse_replication_statement(text)
    return _parsed(text)


@lru_cache(maxsize=128)
def _parsed_before(text: str) -> Statement:
    return _parsed(text)


def _parsed(text: str) -> Statement:
    statement: Statement = read(text, _lark, Builder, quotes_strings=True)
    return statement


def build_grammars() -> None:
    """Build all grammars when the server starts: it takes 0.25 s of processor time, which no statement should wait."""
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
