"""Parameters of COM_STMT_EXECUTE that are integers, short texts or NULL, and a statement with them: the hot path.

`take_plain_parameters` reads them, and puts them as literals into the text around them: 5, 'it\\'s', NULL. It gives
what `binary_rows.Parameters` does, and the server's logged text. All others are None to it.

It exists in C, too (`_speedups.c`), where it was built; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.wire.binary_rows import INTEGER_BYTES, UNSIGNED

LENGTH_MAX: Final = 250  # of a string whose length is one byte
ESCAPES: Final = (
    *((b"\\", b"\\\\"), (b"'", b"\\'"), (b"\0", b"\\0")),
    *((b"\n", b"\\n"), (b"\r", b"\\r"), (b"\x1a", b"\\Z")),
)
"""What stands in a literal in the place of some bytes, where a backslash escapes."""
_SPECIAL: Final = compiled_later(rb"[\\'\0\n\r\x1a]")
_TEXTS: Final = (ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.STRING)

PlainValue = int | str | None
Taken = tuple[bytes, list[PlainValue], bytes]


def take_plain_parameters_plainly(
    data: bytes, at: int, known: bytes, pieces: Sequence[bytes]
) -> Taken | None:
    """Their types as two bytes each, their values, and the text. None for any others, for bytes that are not just
    these, and for a text that is no UTF-8.

    Args:
        data: the packet.
        at: where the NULL bitmap is; behind it stand a byte, and the types if that is 1.
        known: the types, if they do not stand there.
        pieces: the statement's text in front of each parameter, and behind the last one.
    """
    count = len(pieces) - 1
    if not count:
        return b"", [], pieces[0]
    end_of_nulls = at + (count + 7) // 8
    if end_of_nulls >= len(data):
        return None
    nulls = int.from_bytes(data[at:end_of_nulls], "little")
    at, types = end_of_nulls + 1, known
    if data[end_of_nulls] == 1:
        types = data[at : at + 2 * count]
        at += 2 * count
    if len(types) != 2 * count:
        return None
    found: list[PlainValue] = []
    parts = [pieces[0]]
    size = len(data)
    for number in range(count):
        kind = types[2 * number]
        if nulls >> number & 1:
            found.append(None)
            parts.append(b"NULL")
        elif kind in INTEGER_BYTES:
            end = at + INTEGER_BYTES[kind]
            if end > size:
                return None
            is_signed = types[2 * number + 1] != UNSIGNED
            value = int.from_bytes(data[at:end], "little", signed=is_signed)
            found.append(value)
            parts.append(b"%d" % value)
            at = end
        elif kind in _TEXTS and at < size and data[at] <= LENGTH_MAX:
            begin = at + 1
            at = begin + data[at]
            text = data[begin:at]
            try:
                found.append(text.decode())
            except UnicodeDecodeError:
                return None
            if _SPECIAL.search(text):
                for plain, escaped in ESCAPES:
                    text = text.replace(plain, escaped)
            parts += b"'", text, b"'"
        else:
            return None
        parts.append(pieces[number + 1])
    return (types, found, b"".join(parts)) if at == size else None


take_plain_parameters: Callable[[bytes, int, bytes, Sequence[bytes]], Taken | None] = (
    take_plain_parameters_plainly
)

try:
    from binlog_protocol.wire import _speedups
except ImportError:
    pass
else:
    take_plain_parameters = _speedups.take_plain_parameters
