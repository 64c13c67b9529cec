"""Keeps passwords out of SHOW PROCESSLIST, of the log, and of errors, which clients log in their turn.

A statement is shown up to the first word behind which a password may stand. The rest is left out as a whole, so it need
not be understood: a password may be without quotes, behind a comment, mistyped or cut off. Such words are searched as
parts of words, so that one missing letter does not matter.
"""

from __future__ import annotations

import re
from typing import Final

from binlog_protocol.compiled_later import compiled_later, repeated
from binlog_protocol.errors import ServerError, SqlSyntaxError
from binlog_protocol.sql.tokens import GAP, STRING_OR_REST

SHOWN_CHARS: Final = 1024
"""Characters of a statement that are shown at most; the rest is not searched either."""
_LEFT_OUT: Final = "..."

# As the tokenizer sees it; and what only looks like a comment, because a statement may be mistyped.
_GAP: Final = repeated(rf"\s|--[^\n]*\n|{GAP}")
# PASSWORD and IDENTIFIED with any one letter missing, and their kin; statements of which any part may be a password.
_WORDS: Final = (
    r"pas|word|pwd|iden|tified|auth|secre|cred"
    rf"|(?:create|replace|alter|exists){_GAP}user|grant(?!s\b)"
)
_BEFORE_A_SECRET: Final = compiled_later(rf"{_WORDS}|change{_GAP}master", re.IGNORECASE | re.DOTALL)
# In an error for the sender, CHANGE MASTER is shown up to its password: the error may be about its host or port.
_BEFORE_A_SECRET_OF_ONES_OWN: Final = compiled_later(_WORDS, re.IGNORECASE | re.DOTALL)
# Without such a word, a statement that may still be about accounts is shown without its strings.
_ABOUT_ACCOUNTS: Final = compiled_later(r"user|grant|master", re.IGNORECASE)
_QUOTED: Final = compiled_later(STRING_OR_REST, re.DOTALL)


def shown_text(sql: str) -> str:
    """A statement as other users and the log may see it, of `SHOWN_CHARS` characters at most."""
    return _shown(sql, _BEFORE_A_SECRET)


def _shown(sql: str, before_a_secret: re.Pattern[str]) -> str:
    text = sql[:SHOWN_CHARS]
    found = before_a_secret.search(text)
    if found is not None:
        return hide_strings(text[: found.end()]) + _LEFT_OUT
    if len(text) < len(sql):  # the rest was not searched
        return hide_strings(text) + _LEFT_OUT
    return hide_strings(text) if _ABOUT_ACCOUNTS.search(text) else text


def hide_strings(sql: str) -> str:
    """SQL, or its end, with '?' for every string, also for one without its closing quote."""
    return _QUOTED.sub("'?'", sql)


def shown_error(error: ServerError, sql: str) -> ServerError:
    """An error for the client and the log: a syntax error quotes only text that `shown_text` would show."""
    if not isinstance(error, SqlSyntaxError):
        return error
    shown = _shown(sql, _BEFORE_A_SECRET_OF_ONES_OWN)
    if shown == sql or error.near in ("", shown):
        return error
    found = _BEFORE_A_SECRET_OF_ONES_OWN.search(error.near)
    near = error.near if found is None else error.near[: found.end()]
    if near not in shown.removesuffix(_LEFT_OUT):
        return SqlSyntaxError("?", error.line)
    return error if near == error.near else SqlSyntaxError(near + _LEFT_OUT, error.line)
