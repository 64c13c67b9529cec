"""XA statements behind their two words: a name, `gtrid [, bqual [, formatID]]`, and words such as ONE PHASE."""

from __future__ import annotations

from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import InvalidXaArguments, SqlSyntaxError
from binlog_protocol.sql.token_reader import NotUnderstood, TokenReader
from binlog_protocol.sql.tokens import TokenKind, tokens
from binlog_storage.engine import Xid
from binlog_storage.ibb.xa import XID_PART_MAX

from binlog_server.sql.tokens import unquote

_OPTIONS: Final = {
    "START": ("JOIN", "RESUME"),
    "END": ("SUSPEND FOR MIGRATE", "SUSPEND"),
    "COMMIT": ("ONE PHASE",),
}
_HEX: Final = compiled_later(r"0x([0-9A-Fa-f]+)")
_DIGITS: Final = compiled_later(r"[0-9]{1,10}")
_HEX_BYTES: Final = compiled_later(r"'((?:[0-9A-Fa-f]{2})*)'")
_FORMAT_DEFAULT: Final = 1
_FORMAT_MAX: Final = 2**31 - 1
_TEXT_MAX: Final = 4096


def xid_of(
    text: bytes, verb: str = "", *, backslash_escapes: bool = True, ansi_quotes: bool = False
) -> tuple[Xid, str]:
    """Parse the text behind `XA verb`: the transaction's name, and the words that follow it, in capitals.

    Raises `SqlSyntaxError` (1064), `InvalidXaArguments` (1398) for an empty gtrid.
    """
    if len(text) > _TEXT_MAX:
        raise _syntax(text)
    spoken = text.decode("latin-1")
    found = tokens(
        spoken, backslash_escapes=backslash_escapes, ansi_quotes=ansi_quotes, is_logged=False
    )
    reader = TokenReader(list(found), "")
    try:
        gtrid, bqual, format_id = _part(reader, escapes=backslash_escapes), b"", _FORMAT_DEFAULT
        if reader.sign(","):
            bqual = _part(reader, escapes=backslash_escapes)
            if reader.sign(","):
                format_id = _number(reader)
        options = _OPTIONS.get(verb, ())
        said = next((option for option in options if reader.accept(*option.split())), "")
        if not reader.is_at_end():
            raise NotUnderstood(reader.shown())
    except NotUnderstood:
        raise _syntax(text) from None
    if not gtrid:
        raise InvalidXaArguments()
    return Xid(format_id, gtrid, bqual), said


def _part(reader: TokenReader, *, escapes: bool) -> bytes:
    token = reader.token()
    reader.at += 1
    if token is None:
        raise NotUnderstood("no name")
    part = b""
    if token.kind is TokenKind.STRING:
        quote = token.text[0]
        plain = token.text[1:-1].replace(quote * 2, quote)
        part = (unquote(token.text) if escapes else plain).encode("latin-1")
    elif match := _HEX.fullmatch(token.text) if token.kind is TokenKind.WORD else None:
        part = bytes.fromhex(match[1].zfill(len(match[1]) + len(match[1]) % 2))
    elif reader.is_at_end() or token.text.upper() != "X" or token.kind is not TokenKind.WORD:
        raise NotUnderstood(token.text)
    else:
        behind = reader.tokens[reader.at]
        digits = _HEX_BYTES.fullmatch(behind.text)
        reader.at += 1
        if digits is None or behind.end - len(behind.text) != token.end:
            raise NotUnderstood(behind.text)
        part = bytes.fromhex(digits[1])
    if len(part) > XID_PART_MAX:
        raise NotUnderstood("a part that is too long")
    return part


def _number(reader: TokenReader) -> int:
    token = reader.token()
    word = "" if token is None else token.text
    reader.at += 1
    if match := _HEX.fullmatch(word):
        number = int(match[1], 16)
    elif _DIGITS.fullmatch(word):
        number = int(word)
    else:
        raise NotUnderstood(word)
    if number > _FORMAT_MAX:
        raise NotUnderstood(word)
    return number


def _syntax(text: bytes) -> SqlSyntaxError:
    return SqlSyntaxError(text.strip()[:80].decode("utf-8", "replace"))
