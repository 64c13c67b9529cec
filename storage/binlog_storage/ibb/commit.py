"""Commit record (type 1): one event group, or the server-start marker.

    no out-of-band data   ci 0                                                    payload
    one list              ci n, ci f_first, ci o_first, ci f_last, ci o_last, ci 0  payload
    two lists             the same five for the statement list, then five for the transaction list, payload

n is the number of nodes, first the place of node 0, last the root of the last tree (see `oob.py`). The payload is a
sequence of replication events without checksums and with end_log_pos 0. With a list the payload is the GTID event
alone and the rest of the group is in the list. The order of events is payload, first list, second list.
"""

from __future__ import annotations

from typing import NamedTuple

from binlog_storage.ibb import compressed_int
from binlog_storage.ibb.chunk import Position

HEADER_BYTES_MAX = 45  # MariaDB reads the header in one piece of this size
LISTS_MAX = 2
_NO_LIST = b"\0"

assert compressed_int.encode(0) == _NO_LIST


class OobList(NamedTuple):
    """Reference to the out-of-band data of a group."""

    nodes: int
    first: Position
    last: Position


class CommitRecord(NamedTuple):
    """`lists` in the order of replay: statement, transaction."""

    lists: tuple[OobList, ...]
    payload: bytes


def encode(payload: bytes, *lists: OobList) -> bytes:
    """The body of a commit record; at most two lists, the statement list first."""
    ci = compressed_int.encode
    head = b"".join(
        b"".join((ci(oob.nodes), *map(ci, oob.first), *map(ci, oob.last))) for oob in lists
    )
    if len(lists) < LISTS_MAX:
        head += _NO_LIST
    if len(lists) > LISTS_MAX or len(head) > HEADER_BYTES_MAX:
        raise ValueError(
            f"a commit record of {len(lists)} lists, with a header of {len(head)} bytes"
        )
    return head + payload


def decode(data: bytes) -> CommitRecord:
    """Parse a body; `ValueError` with the reason if it is malformed."""
    if data[:1] == _NO_LIST:
        return CommitRecord((), data[1:])
    ci = compressed_int.decode
    lists: list[OobList] = []
    at = 0
    try:
        while len(lists) < LISTS_MAX:
            nodes, at = ci(data, at)
            if not nodes:
                break
            first_file, at = ci(data, at)
            first_offset, at = ci(data, at)
            last_file, at = ci(data, at)
            last_offset, at = ci(data, at)
            lists.append(
                OobList(nodes, Position(first_file, first_offset), Position(last_file, last_offset))
            )
    except compressed_int.ShortInteger:
        raise ValueError("Short chunk") from None
    return CommitRecord(tuple(lists), data[at:])
