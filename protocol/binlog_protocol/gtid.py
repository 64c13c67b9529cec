"""Global transaction identifiers and the two collections MariaDB makes of them.

=================  =========================================================================
`Gtid`             domain-server-sequence, decimal u32-u32-u64, printed `0-1-42`
`SlavePosition`    at most one GTID per domain: where a replica stands (`gtid_slave_pos`)
`BinlogState`      the last sequence number per (domain, server), and which server logged
                   last in each domain (`gtid_binlog_state`)
=================  =========================================================================

Both collections print as GTIDs joined by commas. In the text of a state the most recently logged
GTID of a domain comes last among those of the domain, and a reader takes it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Self

from binlog_protocol.compiled_later import compiled_later, repeated
from binlog_protocol.errors import BadGtidList, DuplicateGtidDomain, GtidListTooLong
from binlog_protocol.limits import GTID_LIST_BYTES_MAX

U32_MAX: Final = 0xFFFFFFFF
U64_MAX: Final = 0xFFFFFFFFFFFFFFFF

_GTID: Final = r"\s*+[0-9]{1,10}-[0-9]{1,10}-[0-9]{1,20}\s*+"
_GTID_LIST: Final = compiled_later(_GTID + repeated(f",{_GTID}"))
_GTID_TEXT: Final = compiled_later(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})")


class Gtid(NamedTuple):
    """One transaction: its replication domain, the server that wrote it first, its number."""

    domain_id: int
    server_id: int
    seq_no: int

    def __str__(self) -> str:
        return f"{self.domain_id}-{self.server_id}-{self.seq_no}"

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Read `D-S-N`; raises `BadGtidList` (1941) for anything else or out of range."""
        match = _GTID_TEXT.fullmatch(text)
        if match is None:
            raise BadGtidList()
        gtid = cls(int(match[1]), int(match[2]), int(match[3]))
        if gtid.domain_id > U32_MAX or gtid.server_id > U32_MAX or gtid.seq_no > U64_MAX:
            raise BadGtidList()
        return gtid


gtid_of: Final[Callable[[tuple[int, int, int]], Gtid]] = partial(tuple.__new__, Gtid)
"""The GTID of these three, in one call of C where `Gtid` itself takes one of Python more: for each commit."""


def parse_gtid_list(text: str) -> list[Gtid]:
    """Read GTIDs joined by commas, white space around each allowed; blank text is no GTID.

    Raises `BadGtidList` (1941).
    """
    if not text.strip():
        return []
    if _GTID_LIST.fullmatch(text) is None:
        raise BadGtidList()
    # All numbers by one split, and all GTIDs by one map: half of the time of one after the other.
    numbers = list(map(int, text.replace("-", ",").split(",")))
    domain_ids, server_ids, seq_nos = numbers[::3], numbers[1::3], numbers[2::3]
    if max(domain_ids) > U32_MAX or max(server_ids) > U32_MAX or max(seq_nos) > U64_MAX:
        raise BadGtidList()
    return list(map(Gtid, domain_ids, server_ids, seq_nos))


class SlavePosition:
    """The position of a replica: at most one GTID per domain. Immutable; keeps the given order."""

    __slots__ = ("_by_domain",)

    def __init__(self, gtids: Iterable[Gtid] = ()) -> None:
        """Raises `DuplicateGtidDomain` (1943) for two GTIDs of one domain."""
        by_domain: dict[int, Gtid] = {}
        for gtid in gtids:
            earlier = by_domain.setdefault(gtid.domain_id, gtid)
            if earlier is not gtid:
                raise DuplicateGtidDomain(gtid, earlier, gtid.domain_id)
        self._by_domain = by_domain

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a GTID list; raises `BadGtidList` (1941) or `DuplicateGtidDomain` (1943)."""
        return cls(parse_gtid_list(text))

    @classmethod
    def from_peer(cls, text: str) -> Self:
        """A position from a peer, as text. Raises `BadGtidList` (1941), also beyond `GTID_LIST_BYTES_MAX`."""
        if len(text) > GTID_LIST_BYTES_MAX:
            raise GtidListTooLong(len(text), GTID_LIST_BYTES_MAX)
        return cls.parse(text)

    def get(self, domain_id: int) -> Gtid | None:
        return self._by_domain.get(domain_id)

    def domains(self) -> list[int]:
        return list(self._by_domain)

    def with_gtid(self, gtid: Gtid) -> SlavePosition:
        """The position after `gtid` was applied."""
        return SlavePosition({**self._by_domain, gtid.domain_id: gtid}.values())

    def __iter__(self) -> Iterator[Gtid]:
        return iter(self._by_domain.values())

    def __len__(self) -> int:
        return len(self._by_domain)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SlavePosition):
            return NotImplemented
        return self._by_domain == other._by_domain

    def __hash__(self) -> int:
        return hash(frozenset(self._by_domain.values()))

    def __str__(self) -> str:
        return ",".join(map(str, self))

    def __repr__(self) -> str:
        return f"SlavePosition({str(self)!r})"

    def as_start(self) -> str:
        """Where reading begins, for messages."""
        return f"behind '{self}'" if self._by_domain else "from the beginning"


class BinlogState:
    """The last sequence number per (domain, server), and the last GTID logged per domain.

    Mutable and not locked: one writer owns it, others take a `copy()`. That is cheap, and `of_domain()` costs the same
    whatever the number of domains: what a domain has is shared until one of the two states logs in it.
    """

    __slots__ = ("_last", "_owned", "_seq_nos")

    def __init__(self, gtids: Iterable[Gtid] = ()) -> None:
        self._seq_nos: dict[int, dict[int, int]] = {}
        self._last: dict[int, Gtid] = {}
        # Domains whose numbers no other state shares. No set: an empty one takes 216 bytes, and each dump has a state.
        self._owned: dict[int, None] = {}
        self.overlay(gtids)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a GTID list, applied in its order; raises `BadGtidList` (1941)."""
        return cls(parse_gtid_list(text))

    def update(self, gtid: Gtid) -> None:
        """`gtid` was logged just now. Called once per group: the hot path of the store."""
        domain_id, server_id, seq_no = gtid
        if domain_id in self._owned:
            seq_nos = self._seq_nos[domain_id]
        else:
            seq_nos = self._seq_nos[domain_id] = dict(self._seq_nos.get(domain_id, ()))
            self._owned[domain_id] = None
        if server_id in seq_nos and server_id != self._last[domain_id].server_id:
            del seq_nos[server_id]  # to the end: the order is that of logging
        seq_nos[server_id] = seq_no
        self._last[domain_id] = gtid

    def follow(self, gtid: Gtid) -> bool:
        """As `update`, if its server has logged in its domain before, under a lower number. False: nothing is done."""
        domain_id, server_id, seq_no = gtid
        seq_nos = self._seq_nos.get(domain_id)
        if seq_nos is None or seq_nos.get(server_id, seq_no) >= seq_no:
            return False
        if domain_id in self._owned and self._last[domain_id][1] == server_id:
            seq_nos[server_id] = seq_no
            self._last[domain_id] = gtid
        else:
            self.update(gtid)
        return True

    def overlay(self, gtids: Iterable[Gtid]) -> None:
        """Apply stored entries in their stored order: the last of a domain becomes its last."""
        for gtid in gtids:
            self.update(gtid)

    def get(self, domain_id: int, server_id: int) -> int | None:
        """The last sequence number of that server in that domain."""
        seq_nos = self._seq_nos.get(domain_id)
        return None if seq_nos is None else seq_nos.get(server_id)

    def has(self, gtid: Gtid) -> bool:
        """Whether its server has logged that number, or a later one, in its domain."""
        seq_no = self.get(gtid.domain_id, gtid.server_id)
        return seq_no is not None and seq_no >= gtid.seq_no

    def last(self, domain_id: int) -> Gtid | None:
        """The GTID that was logged last in the domain."""
        return self._last.get(domain_id)

    def domains(self) -> list[int]:
        return list(self._last)

    def entries(self) -> list[Gtid]:
        """All entries, grouped by domain, inside a domain in the order in which the servers logged last."""
        return [
            Gtid(domain_id, server_id, seq_no)
            for domain_id, seq_nos in self._seq_nos.items()
            for server_id, seq_no in seq_nos.items()
        ]

    @property
    def seq_nos(self) -> Mapping[int, Mapping[int, int]]:
        """The last sequence number by domain and by server, in the order of `entries`. No copy: read it at once."""
        return self._seq_nos

    def position(self) -> SlavePosition:
        """The last GTID of each domain: `gtid_binlog_pos`."""
        return SlavePosition(self._last.values())

    def is_before(self, position: SlavePosition) -> bool:
        """Whether a replica at `position` may start reading where this was the state.

        True iff each D-S-N of the position is not yet passed here (no entry for D, S, or a lower
        number, or exactly N as the last entry of D), and every domain here is in the position.
        Numbers of different servers are never compared. As MariaDB 12.3 searches its files.
        """
        for gtid in position:
            seq_no = self.get(gtid.domain_id, gtid.server_id)
            if seq_no is None or seq_no < gtid.seq_no:
                continue
            if self._last[gtid.domain_id] != gtid:
                return False
        return all(position.get(domain_id) is not None for domain_id in self._last)

    def copy(self) -> BinlogState:
        twin = BinlogState()
        twin._seq_nos = self._seq_nos.copy()
        twin._last = self._last.copy()
        self._owned.clear()
        return twin

    def of_domain(self, domain_id: int) -> BinlogState:
        """A copy of one domain's entries."""
        twin = BinlogState()
        seq_nos = self._seq_nos.get(domain_id)
        if seq_nos is not None:
            twin._seq_nos[domain_id] = seq_nos
            twin._last[domain_id] = self._last[domain_id]
            self._owned.pop(domain_id, None)
        return twin

    def has_others_than(self, server_id: int) -> bool:
        """Whether another server has logged anything."""
        return any(len(seq_nos) > (server_id in seq_nos) for seq_nos in self._seq_nos.values())

    def clear(self) -> None:
        self._seq_nos.clear()
        self._last.clear()
        self._owned.clear()

    def __len__(self) -> int:
        """The number of (domain, server) pairs."""
        return sum(map(len, self._seq_nos.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BinlogState):
            return NotImplemented
        return self._seq_nos == other._seq_nos and self._last == other._last

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __str__(self) -> str:
        return ",".join(map(str, self.entries()))

    def __repr__(self) -> str:
        return f"BinlogState({str(self)!r})"
