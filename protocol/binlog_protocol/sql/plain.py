"""A statement as the grammars read it: without comments, and as it would be written in the default sql_mode."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.sql.tokens import (
    BEGIN,
    COMMENT,
    DOUBLE,
    END,
    NAME,
    SKIPPED,
    STRING,
    UNENDED_COMMENT,
)

_MAY_BE_COMMENT: Final = compiled_later(r"/\*|\*/|--|#")
_BLANKED: Final = compiled_later(r"[^\n]")


@cache
def _pattern(escapes: bool, ansi_quotes: bool) -> re.Pattern[str]:
    double = DOUBLE[escapes and not ansi_quotes]
    return re.compile(
        rf"(?P<string>{STRING[escapes]})|(?P<double>{double})|(?P<unended>['\"].*)|{NAME}|`.*"
        rf"|(?P<comment>(?:{SKIPPED}|{COMMENT}){{1,64}})|{UNENDED_COMMENT}|(?P<begin>{BEGIN})|(?P<end>{END})",
        re.DOTALL,
    )


def plain(sql: str, *, backslash_escapes: bool = True, ansi_quotes: bool = False) -> str:
    """The statement with blanks for comments, each as long, and as it is written in the default sql_mode.

    What no comment begins or ends stays, for the grammar to refuse. Raises `SqlSyntaxError` (1064), which quotes
    nothing, where a comment has no end; and, in other modes than the default, a string: it may be a password. Also
    where a comment stands right behind two minus signs, as in `1--/* */1`, which no program writes.
    """
    is_default = backslash_escapes and not ansi_quotes
    if is_default and not _MAY_BE_COMMENT.search(sql):
        return sql
    is_within = False  # what is executed, of a comment

    def written(match: re.Match[str]) -> str:
        nonlocal is_within
        token: str = match[0]
        if match.lastgroup in ("comment", "begin", "end") and sql.endswith("--", 0, match.start()):
            raise SqlSyntaxError("")  # two signs: before blanks they would begin a comment
        match match.lastgroup:
            case "comment":
                return _BLANKED.sub(" ", token) if "\n" in token else " " * len(token)
            case "begin":
                is_within = True
                return " " * len(token)
            case "end" if is_within:
                is_within = False
                return " " * len(token)
            case "unended" if not is_default:
                raise SqlSyntaxError("")
            case "double" if ansi_quotes:
                return "`" + token[1:-1].replace('""', '"').replace("`", "``") + "`"
            case "string" | "double" if not backslash_escapes:
                return token.replace("\\", r"\\")
        return token

    text = _pattern(backslash_escapes, ansi_quotes).sub(written, sql)
    if is_within:
        raise SqlSyntaxError("")
    return text
