"""GTID state record (type 2).

    ci count        GTIDs that follow
    ci xa_ref + 1   lowest file with an XA transaction pending; 0 for none
    count times     ci domain_id, ci server_id, ci seq_no

A *binlog state*: one GTID per (domain, server) ever logged; inside a domain the one logged last comes last. Page 1 of
a file holds the full state; pages that are multiples of the state interval hold what was logged since page 1 of the
same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.ibb import compressed_int


class GtidStateRecord(NamedTuple):
    """`entries` in stored order; `xa_ref` None when no XA transaction is pending."""

    entries: list[Gtid]
    xa_ref: int | None


def encode(entries: Sequence[Gtid], xa_ref: int | None = None) -> bytes:
    """The body of the record."""
    return _head(len(entries), xa_ref) + _body(entries)


def _head(count: int, xa_ref: int | None) -> bytes:
    ci = compressed_int.encode
    return ci(count) + ci(0 if xa_ref is None else xa_ref + 1)


def _body(entries: Sequence[Gtid]) -> bytes:
    ci = compressed_int.encode
    if len(entries) == 1:  # most domains have one server
        (domain_id, server_id, seq_no), *_ = entries
        return ci(domain_id) + ci(server_id) + ci(seq_no)
    return b"".join([ci(number) for gtid in entries for number in gtid])


class StateEncoder:
    """Encodes one state again and again, as it grows: of a domain that has logged nothing since what was made of it is
    taken again. With 16,000 domains of which few have changed 1 ms in place of 13, on the thread that appends.
    """

    def __init__(self) -> None:
        self._made: dict[
            int, tuple[Gtid, int, bytes]
        ] = {}  # by domain: its last GTID then, entries

    def encode(self, state: BinlogState, xa_ref: int | None = None) -> bytes:
        """As `encode` of its entries. Of another state only if that has grown out of the one before."""
        made = self._made
        count, parts = 0, [b""]
        for last in state.lasts():
            found = made.get(last[0])
            if found is None or found[0] is not last:
                entries = state.entries_of(last)
                found = made[last[0]] = last, len(entries), _body(entries)
            count += found[1]
            parts.append(found[2])
        parts[0] = _head(count, xa_ref)
        return b"".join(parts)


def decode(data: bytes) -> GtidStateRecord:
    """Parse a body; `ValueError` with the reason if it is malformed. Bytes behind the last entry are allowed."""
    ci = compressed_int.decode
    try:
        count, at = ci(data, 0)
        xa_plus_one, at = ci(data, at)
        if count > len(data):
            raise ValueError(f"GTID state record counts {count} entries in {len(data)} bytes")
        entries = []
        for _ in range(count):
            domain, at = ci(data, at)
            server, at = ci(data, at)
            seq_no, at = ci(data, at)
            if domain >> 32 or server >> 32:
                raise ValueError(
                    f"GTID state record holds an impossible GTID {domain}-{server}-{seq_no}"
                )
            entries.append(Gtid(domain, server, seq_no))
    except compressed_int.ShortInteger:
        raise ValueError("Short chunk") from None
    return GtidStateRecord(entries, xa_plus_one - 1 if xa_plus_one else None)
