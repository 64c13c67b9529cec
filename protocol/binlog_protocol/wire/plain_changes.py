"""Recognition of a change that needs no parser: the packets of the hot path of commits.

`is_plain_change` exists in C, too (`_speedups.c`), where it was built; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.packets import PACKET_HEADER_SIZE

STATEMENT_AT: Final = PACKET_HEADER_SIZE + 1
"""Where the statement begins in a packet with COM_QUERY."""
WORD_END: Final = STATEMENT_AT + 7
"""The end of its first word and the blank behind it."""
_QUERY: Final = b"\0\x03"  # sequence number 0, COM_QUERY
_WORDS: Final = (b"INSERT ", b"UPDATE ", b"DELETE ", b"insert ", b"update ", b"delete ")
_BLANK: Final = 0x20
_TAIL_BYTES: Final = 16 * 1024  # RETURNING stands near the end, and a long text is not copied


def may_return(text: bytes) -> bool:
    """Whether the last 16 KiB of a statement, or of its packet, have the word RETURNING, wherever it stands."""
    return b"returning" in text[-_TAIL_BYTES:].lower()


def is_plain_change_plainly(data: bytes) -> bool:
    """Whether bytes from a client are one whole packet with COM_QUERY whose statement surely is one simple change.

    It begins with INSERT, UPDATE or DELETE, is one statement (no `;`), has no variable (`@`), no comment (`*`), no
    blank at its end, and no RETURNING where `may_return` looks. False says nothing of the bytes.
    """
    size = len(data) - PACKET_HEADER_SIZE
    return (
        data[STATEMENT_AT:WORD_END] in _WORDS
        and data[3:STATEMENT_AT] == _QUERY
        and int.from_bytes(data[:3], "little") == size
        and size < PACKET_PAYLOAD_MAX
        and data[-1] > _BLANK
        and data.find(b";", STATEMENT_AT) < 0
        and data.find(b"@", STATEMENT_AT) < 0
        and data.find(b"*", STATEMENT_AT) < 0
        and not may_return(data)
    )


is_plain_change: Callable[[bytes], bool] = is_plain_change_plainly

try:
    from binlog_protocol.wire import _speedups
except ImportError:
    pass
else:
    is_plain_change = _speedups.is_plain_change
