"""Events as a BINLOG statement: base64, with line breaks, each event by itself."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Final

from binlog_protocol.event_text.session_sql import END

# A packet of the client has 16 MiB unless it is told otherwise; what is longer goes in two halves.
_STATEMENT_BYTES: Final = 12 << 20
_LINE_BYTES: Final = 57  # 76 characters


def binlog_statement(events: Sequence[bytes]) -> Iterator[bytes]:
    """The statement in pieces. Beyond 24 MiB of base64 it needs a larger `max_allowed_packet`."""
    text = b"\n".join(map(_base64, events))
    if len(text) <= _STATEMENT_BYTES:
        yield b"BINLOG '\n" + text + b"\n'" + END
        return
    half = len(text) // 2
    yield b"SET @binlog_fragment_0='" + text[:half] + b"'" + END
    yield b"SET @binlog_fragment_1='" + text[half:] + b"'" + END
    yield b"BINLOG @binlog_fragment_0, @binlog_fragment_1" + END


def _base64(event: bytes) -> bytes:
    lines = (event[at : at + _LINE_BYTES] for at in range(0, len(event), _LINE_BYTES))
    return b"\n".join(map(base64.b64encode, lines))
