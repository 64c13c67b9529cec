"""Keeps passwords out of what is logged: statements are quoted in errors, and some hold one."""

from __future__ import annotations

import re

from protocol.errors import ServerError, SqlSyntaxError

# Words of statements that may hold a password, however badly they are written.
_SUSPICIOUS = re.compile(r"pass|ident|user|grant|auth|secret|master|using|by", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?""", re.DOTALL)
_NEAR = re.compile(r"near '(.*)' at line \d+\Z", re.DOTALL)


def hide_strings(sql: str) -> str:
    """SQL, or the rest of it, with every string, also one that is not ended, as '?'."""
    return _QUOTED.sub("'?'", sql)


def shown_text(sql: str) -> str:
    """A statement for others to see, as in SHOW PROCESSLIST: without strings if it may be about passwords."""
    return hide_strings(sql) if _SUSPICIOUS.search(sql) else sql


def log_text(error: ServerError) -> str:
    """An error for the log. What a syntax error quotes is the middle of a statement: a quote in it may begin a string
    or end one, so that nothing is kept of a text that has a quote and may be about passwords."""
    if isinstance(error, SqlSyntaxError):
        near = _NEAR.search(error.message)
        text = near[1] if near else ""
        if ("'" in text or '"' in text) and _SUSPICIOUS.search(text):
            return f"{error.errno} ({error.sqlstate}): a syntax error; the text may hold a password"
    return str(error)
