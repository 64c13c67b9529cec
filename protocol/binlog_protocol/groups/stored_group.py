"""A quick look at a group in normal form: its GTID, without parsing more than needed.

A stored group begins with its GTID event:

    offset  size  field                    offset  size  field
    0       4     timestamp, seconds       19      8     seq_no
    4       1     event type, 162          27      4     domain_id
    5       4     server_id                31      1     flags2
    9       4     event length

A server-start marker is one format description event (type 15) and has no GTID.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import is_marked, split_events
from binlog_protocol.gtid import Gtid

GTID_EVENT = 162
FORMAT_DESCRIPTION_EVENT = 15
_HEAD = struct.Struct("<xxxxBIxxxxxxxxxxQIx")
HEAD_BYTES = _HEAD.size

# The same for numpy.dtype, for many groups at once.
HEAD_FIELDS: Final[Any] = {
    "names": ["timestamp", "type", "server", "seq", "domain", "flags2"],
    "formats": ["<u4", "u1", "<u4", "<u8", "<u4", "u1"],
    "offsets": [0, 4, 5, 19, 27, 31],
    "itemsize": HEAD_BYTES,
}

assert HEAD_BYTES == 32


def is_start_marker(payload: bytes) -> bool:
    """Whether this is a stored format description instead of a group."""
    return len(payload) > 4 and payload[4] == FORMAT_DESCRIPTION_EVENT


def group_gtid(payload: bytes) -> Gtid | None:
    """The GTID of a stored group, None for a start marker. `ProtocolError` if it is neither."""
    if len(payload) >= HEAD_BYTES:
        kind, server_id, seq_no, domain_id = _HEAD.unpack_from(payload)
        if kind == GTID_EVENT:
            return Gtid(domain_id, server_id, seq_no)
        if kind == FORMAT_DESCRIPTION_EVENT:
            return None
    raise ProtocolError(
        f"a stored group begins with neither a GTID nor a format description: {payload[:24].hex(' ')}"
    )


def without_skipped(payload: bytes) -> bytes:
    """The events of a group that were not logged with `@@skip_replication=1` (header flag 0x8000)."""
    return b"".join(e for e in split_events(payload) if not is_marked(e))
