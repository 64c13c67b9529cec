"""Text to `Statement`, by the grammars of all families."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from binlog_protocol.sql.tokens import first_words

from binlog_server.sql import (
    account_statements,
    assignments,
    events,
    explain,
    kills,
    lease_sql,
    maintenance,
    no_tables,
    selects,
    shows,
    slave_status,
)
from binlog_server.sql.grammars import Grammar
from binlog_server.sql.replication_sql import REPLICATION
from binlog_server.sql.statement import Statement

_FAMILIES: Final = (
    selects,
    shows,
    events,
    slave_status,
    no_tables,
    assignments,
    kills,
    maintenance,
    lease_sql,
    explain,
)
MAIN: Final = Grammar("grammar.lark", [module.FAMILY for module in _FAMILIES], quotes_strings=True)
# Statements that monitoring repeats and that hold no password: their parse is cached.
_REPEATED: Final = re.compile(r"\s*(?:SHOW|SELECT)\b", re.IGNORECASE)
_REPEATED_CHARS_MAX: Final = 512


def parse(text: str, grammar: Grammar | None = None) -> Statement:
    """The statement in `text`. Raises `SqlSyntaxError` (1064).

    Args:
        grammar: the one that `statement_kind.classify` has found; None: this one or that, by the first words.
    """
    if grammar is None:
        grammar = REPLICATION if REPLICATION.is_begun_by(first_words(text)) else MAIN
    if len(text) <= _REPEATED_CHARS_MAX and _REPEATED.match(text):
        return _parsed_before(text, grammar)
    statement: Statement = grammar.parse(text)
    return statement


@lru_cache(maxsize=128)
def _parsed_before(text: str, grammar: Grammar) -> Statement:
    statement: Statement = grammar.parse(text)
    return statement


def build_grammars() -> None:
    """Build all grammars when the server starts: it takes 0.25 s of processor time, which no statement should wait."""
    for grammar in (MAIN, REPLICATION, account_statements.ACCOUNTS):
        assert grammar.lark
