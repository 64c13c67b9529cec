"""GTID state record (type 2).

    ci count        GTIDs that follow
    ci xa_ref + 1   lowest file with an XA transaction pending; 0 for none
    count times     ci domain_id, ci server_id, ci seq_no

A *binlog state*: one GTID per (domain, server) ever logged; inside a domain the one logged last comes last. Page 1 of
a file holds the full state; pages that are multiples of the state interval hold what was logged since page 1 of the
same file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.ibb import compressed_int


class GtidStateRecord(NamedTuple):
    """`entries` in stored order; `xa_ref` None when no XA transaction is pending."""

    entries: list[Gtid]
    xa_ref: int | None


SeqNos = Mapping[int, Mapping[int, int]]


def entries_encoded_plainly(seq_nos: SeqNos) -> tuple[int, bytes]:
    """How many entries a state has, and the bytes of them. `seq_nos`: see `BinlogState.seq_nos`.

    Each rotation needs them, on the thread that appends, which may be the event loop's: 32,768 take 25 ms so, and
    1 ms in C (`_speedups.c`), which is used where it was built; tests hold the two equal.
    """
    ci = compressed_int.encode
    parts = [
        ci(domain_id) + ci(server_id) + ci(seq_no)
        for domain_id, of_domain in seq_nos.items()
        for server_id, seq_no in of_domain.items()
    ]
    return len(parts), b"".join(parts)


entries_encoded: Callable[[SeqNos], tuple[int, bytes]] = entries_encoded_plainly
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    entries_encoded = _speedups.entries_encoded


def encode(state: BinlogState, xa_ref: int | None = None) -> bytes:
    """The body of the record."""
    count, entries = entries_encoded(state.seq_nos)
    ci = compressed_int.encode
    return ci(count) + ci(0 if xa_ref is None else xa_ref + 1) + entries


def decode(data: bytes) -> GtidStateRecord:
    """Parse a body; `ValueError` with the reason if it is malformed. Bytes behind the last entry are allowed."""
    ci = compressed_int.decode
    (count, xa_plus_one), at = compressed_int.decode_some(data, 0, 2)
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
    return GtidStateRecord(entries, xa_plus_one - 1 if xa_plus_one else None)
