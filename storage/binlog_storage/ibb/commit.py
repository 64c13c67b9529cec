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

    def encode(self) -> bytes:
        """The five numbers of a reference in a record."""
        return b"".join(map(compressed_int.encode, (self.nodes, *self.first, *self.last)))

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[OobList, int]:
        """A reference, and the offset behind it."""
        (nodes, *places), at = compressed_int.decode_some(data, at, 5)
        return cls(nodes, Position(*places[:2]), Position(*places[2:])), at


class CommitRecord(NamedTuple):
    """`lists` in the order of replay: statement, transaction."""

    lists: tuple[OobList, ...]
    payload: bytes


def encode(payload: bytes, *lists: OobList) -> bytes:
    """The body of a commit record; at most two lists, the statement list first."""
    head = b"".join(oob.encode() for oob in lists)
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
    lists: list[OobList] = []
    at = 0
    while len(lists) < LISTS_MAX:
        nodes, behind = compressed_int.decode(data, at)
        if not nodes:
            at = behind
            break
        oob, at = OobList.decode(data, at)
        lists.append(oob)
    return CommitRecord(tuple(lists), data[at:])
