"""The name of an XA transaction in SQL: `gtrid [, bqual [, formatID]]`, as XA COMMIT and XA ROLLBACK have it."""

from __future__ import annotations

import re
from typing import Final

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.sql_errors import InvalidXaArguments
from binlog_storage.engine import Xid
from binlog_storage.ibb.xa import XID_PART_MAX

_PART: Final = rb"(?:'([^'\\]*)'|\"([^\"\\]*)\"|x'((?:[0-9a-f]{2})*)'|0x((?:[0-9a-f]{2})*))"
_XID: Final = re.compile(
    rb"\s*"
    + _PART
    + rb"\s*(?:,\s*"
    + _PART
    + rb"\s*(?:,\s*([0-9]{1,10}|0x[0-9a-f]{1,8})\s*)?)?(one\s+phase\s*)?\Z",
    re.IGNORECASE,
)
_FORMAT_DEFAULT: Final = 1
_FORMAT_MAX: Final = 2**31 - 1


def xid_of(text: bytes) -> tuple[Xid, bool]:
    """Parse the text behind XA COMMIT or XA ROLLBACK: the transaction's name, and whether ONE PHASE follows.

    Raises `SqlSyntaxError` (1064), `InvalidXaArguments` (1398) for an empty gtrid.
    """
    match = _XID.match(text)
    if match is None:
        raise _syntax(text)
    gtrid, bqual = _bytes(match.groups()[:4]), _bytes(match.groups()[4:8])
    format_id = (
        _FORMAT_DEFAULT
        if match[9] is None
        else int(match[9], 16 if b"x" in match[9].lower() else 10)
    )
    if len(gtrid) > XID_PART_MAX or len(bqual) > XID_PART_MAX or format_id > _FORMAT_MAX:
        raise _syntax(text)
    if not gtrid:
        raise InvalidXaArguments
    return Xid(format_id, gtrid, bqual), match[10] is not None


def _bytes(found: tuple[bytes | None, ...]) -> bytes:
    single, double, *hexadecimal = found
    for digits in hexadecimal:
        if digits is not None:
            return bytes.fromhex(digits.decode("ascii"))
    return single or double or b""


def _syntax(text: bytes) -> SqlSyntaxError:
    return SqlSyntaxError(text.strip()[:80].decode("utf-8", "replace"))
