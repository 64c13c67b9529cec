"""Text to `Statement`, by the grammars of all families."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import NotSupportedYet, ServerError, SqlSyntaxError
from binlog_protocol.sql.plain import plain
from binlog_protocol.sql.tokens import TokenKind, first_words, tokens

from binlog_server.queries.constant_rows import cut_lists
from binlog_server.sql import (
    account_statements,
    assignments,
    backup_sql,
    events,
    explain,
    fault_sql,
    inquiries,
    kills,
    lease_sql,
    maintenance,
    prepared_sql,
    selects,
    shows,
    slave_status,
    table_shows,
)
from binlog_server.sql.expressions import Given
from binlog_server.sql.grammars import STATEMENT_CHARS_MAX, Grammar, is_too_long
from binlog_server.sql.replication_sql import REPLICATION
from binlog_server.sql.statement import Statement

_FAMILIES: Final = (
    selects,
    shows,
    events,
    slave_status,
    assignments,
    kills,
    maintenance,
    lease_sql,
    backup_sql,
    fault_sql,
    explain,
    prepared_sql,
)
MAIN: Final = Grammar("grammar.lark", [module.FAMILY for module in _FAMILIES], quotes_strings=True)
BEYOND: Final[tuple[type[Statement], ...]] = (
    inquiries.Inquiry,
    inquiries.SetComputed,
    table_shows.ShowWhere,
    table_shows.ShowOfTables,
    table_shows.ShowCreate,
    table_shows.ShowEngine,
    table_shows.ShowOpenTables,
    table_shows.CheckTable,
    table_shows.ChecksumTable,
)
"""Statements that stand in no grammar."""
# Characters of such a statement without those inside of strings: reading it takes up to 300 bytes of memory for each.
QUESTION_CHARS_MAX: Final = 16 * 1024
# Characters of one with its long lists of constants.
_LISTS_CHARS_MAX: Final = 1 << 20
# Statements that monitoring and each login repeat, and that hold no password: their parse is cached.
_REPEATED: Final = compiled_later(r"\s*(?:SHOW|SELECT|SET)\b", re.IGNORECASE)
_REPEATED_CHARS_MAX: Final = 512
# Of these MariaDB takes some that are too long here: they are not said to be wrong.
_QUESTIONS: Final = (["SELECT"], ["WITH"], ["DO"], ["SET"])
_WITH_LISTS: Final = _QUESTIONS[:-1]
_HEAD_CHARS: Final = 1024
_TOO_LONG: Final = (
    f"more than {STATEMENT_CHARS_MAX} characters, or {QUESTION_CHARS_MAX} outside of strings and long lists "
    "of IN, in a statement that is computed here"
)


def parse(
    text: str, grammar: Grammar | None = None, parameters: Sequence[Given] | None = None
) -> Statement:
    """The statement in `text`. Raises `SqlSyntaxError` (1064).

    Args:
        grammar: the one that `statement_kind.classify` has found; None: this one or that, by the first words.
        parameters: the values for the places of a prepared statement; None: it is none.
    """
    if grammar is None:
        grammar = REPLICATION if REPLICATION.is_begun_by(first_words(text)) else MAIN
    is_short = not parameters and len(text) <= _REPEATED_CHARS_MAX
    if is_short and grammar is not account_statements.ACCOUNTS and _REPEATED.match(text):
        return _parsed_before(text, grammar)
    return _parsed(text, grammar, parameters)


@lru_cache(maxsize=256)
def _parsed_before(text: str, grammar: Grammar) -> Statement:
    return _parsed(text, grammar, None)


def _parsed(text: str, grammar: Grammar, parameters: Sequence[Given] | None) -> Statement:
    if grammar is MAIN and (said := assignments.set_by_driver(text)) is not None:
        return said
    try:
        statement: Statement = grammar.parse(text, parameters)
    except SqlSyntaxError as refusal:
        if grammar is not MAIN:
            raise
        if is_too_long(text, QUESTION_CHARS_MAX) and is_too_long(
            cut_lists(plain(text))[0], QUESTION_CHARS_MAX
        ):
            raise too_long(text[:_HEAD_CHARS], refusal) from None
        behind_for = _behind_for(text)
        if behind_for is not None:
            setting, inner = behind_for
            found: Statement = grammar.parse(f"{setting} SELECT 1", None)
            assert isinstance(found, assignments.SetStatement)
            return replace(found, statement=_parsed(inner, grammar, parameters))
        beyond = inquiries.inquired(text, refusal) or table_shows.shown(
            plain(text), refusal, grammar.parse
        )
        if beyond is None:
            beyond = inquiries.set_by_values(text, refusal, grammar.parse)
        if beyond is None:
            raise
        return beyond if parameters is None else beyond.given(parameters) or beyond
    return statement


def chars_max(head: str) -> int:
    """How long a statement with these first characters may be, with all that is in it."""
    return _LISTS_CHARS_MAX if first_words(head, 1) in _WITH_LISTS else STATEMENT_CHARS_MAX


def too_long(head: str, refusal: SqlSyntaxError | None = None) -> ServerError:
    """The error of a statement that is longer than those that are read here.

    Args:
        head: its first characters.
        refusal: of a grammar, for it.
    """
    if first_words(head, 1) in _QUESTIONS:
        return NotSupportedYet(_TOO_LONG)
    return refusal or SqlSyntaxError(head)


def _behind_for(text: str) -> tuple[str, str] | None:
    """SET STATEMENT ... FOR of a text, and the question behind it; None if it is none of these."""
    if first_words(text)[:2] != ["SET", "STATEMENT"]:
        return None
    for token in tokens(text, ansi_quotes=False, is_logged=False):
        if token.kind is TokenKind.WORD and token.text.upper() == "FOR":
            inner = text[token.end :]
            is_question = first_words(inner)[:1] in (["SELECT"], ["SHOW"], ["DESCRIBE"], ["DESC"])
            return (text[: token.end], inner) if is_question else None
    return None


def build_grammars() -> None:
    """Have all grammars: with lark they take 0.09 s of processor time, which no statement should wait, and 0.3 s where
    they are not kept from an earlier start.
    """
    for grammar in (MAIN, REPLICATION, account_statements.ACCOUNTS):
        assert grammar.lark
