"""Which groups of which upstream are taken in: several upstreams, one GTID space, one position.

A domain belongs to the connection that has sent groups of it, for as long as that connection runs. Groups of it from
another one are an error there, before anything of them is stored: nobody could tell which of two histories is meant.
With `gtid_ignore_duplicates` a domain may come from several connections, as in MariaDB: a group is stored once, from
whichever connection it comes first, and what has no higher sequence number than the last one of its domain is skipped.

DO_DOMAIN_IDS, IGNORE_DOMAIN_IDS and IGNORE_SERVER_IDS leave groups out. What is left out of a domain by its server
leaves a hole there, as on a MariaDB replica.
"""

from __future__ import annotations

from dataclasses import dataclass

from binlog_server.publisher import Publisher
from protocol.event_group import EventGroup
from protocol.group_runs import GroupRun
from protocol.gtid import Gtid
from storage.engine import BinlogEngine

_TIMESTAMP = slice(0, 4)  # of the group's GTID event: seconds since 1970


class DomainTaken(Exception):
    """The upstream sends groups of a domain that comes from elsewhere."""


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """What CHANGE MASTER says is wanted. Only one of the first two may name domains; without any, all are wanted."""

    do_domain_ids: frozenset[int] = frozenset()
    ignore_domain_ids: frozenset[int] = frozenset()
    ignore_server_ids: frozenset[int] = frozenset()

    @property
    def is_about_domains(self) -> bool:
        """Whether some domains are left out as a whole."""
        return bool(self.do_domain_ids or self.ignore_domain_ids)

    def wants_domain(self, domain_id: int) -> bool:
        """Whether groups of the domain are taken in."""
        if self.do_domain_ids:
            return domain_id in self.do_domain_ids
        return domain_id not in self.ignore_domain_ids


class Domains:
    """Of one server: where each domain comes from."""

    def __init__(self, engine: BinlogEngine, publisher: Publisher) -> None:
        self._engine = engine
        self._publisher = publisher
        self.ignore_duplicates = False
        """gtid_ignore_duplicates; changed only while nothing is followed."""
        self._owners: dict[int, Gate] = {}
        self._seq_nos: dict[int, int] = {}  # the highest that was taken in, of domains in use

    def claim(self, domain_id: int, gate: Gate, gtid: Gtid) -> None:
        """The domain is that connection's from now on. Raises `DomainTaken`."""
        if not self._publisher.follows_in(domain_id):
            raise DomainTaken(
                f"it sends {gtid}, but SQL that was sent to this server is committed in domain {domain_id}; "
                "restart with read_only, or commit in a domain of its own"
            )
        owner = self._owners.setdefault(domain_id, gate)
        if owner is not gate and not self.ignore_duplicates:
            raise DomainTaken(
                f"it sends {gtid}, but domain {domain_id} comes from {owner.name}; give each master a "
                "gtid_domain_id of its own, name the domains that are wanted in DO_DOMAIN_IDS, or set "
                "gtid_ignore_duplicates if both send the same history"
            )

    def is_new(self, group: EventGroup) -> bool:
        """Whether no group of its domain with this number or a higher one was taken in; this one is from now on."""
        domain_id, _, seq_no = group.gtid
        if domain_id not in self._seq_nos:
            known = self._engine.binlog_state().entries()
            self._seq_nos[domain_id] = max(
                (last.seq_no for last in known if last.domain_id == domain_id), default=0
            )
        if seq_no <= self._seq_nos[domain_id]:
            return False
        self._seq_nos[domain_id] = seq_no
        return True

    def release(self, gate: Gate) -> None:
        """The connection has ended; others may deliver its domains."""
        for domain_id in [d for d, owner in self._owners.items() if owner is gate]:
            del self._owners[domain_id]

    def forget(self) -> None:
        """Nothing is followed, and the history may become another one."""
        self._seq_nos.clear()


class Gate:
    """Of one connection, from its start to its stop. Asked once for each group, in the order in which they come."""

    def __init__(self, name: str, domains: Domains, group_filter: GroupFilter) -> None:
        self.name = name
        self.last_timestamp = 0
        """When the last group was written by the upstream; seconds since 1970, 0 before the first."""
        self.skipped = 0
        """Groups that were left out."""
        self.last_marker: bytes | None = None
        """The start marker that was stored last."""
        self._domains = domains
        self._filter = group_filter
        self._claimed: set[int] = set()

    def admits(self, group: EventGroup) -> bool:
        """Whether the group is to be stored, which must happen at once. Raises `DomainTaken`."""
        self.last_timestamp = int.from_bytes(group.payload[_TIMESTAMP], "little")
        domain_id, server_id, _ = group.gtid
        if domain_id not in self._claimed:
            if not self._filter.wants_domain(domain_id):
                self.skipped += 1
                return False
            self._domains.claim(domain_id, self, group.gtid)
            self._claimed.add(domain_id)
        if server_id in self._filter.ignore_server_ids or (
            self._domains.ignore_duplicates and not self._domains.is_new(group)
        ):
            self.skipped += 1
            return False
        return True

    @property
    def takes_runs(self) -> bool:
        """Whether `admits_run` may be asked: not where each group may have come already by another way."""
        return not self._domains.ignore_duplicates

    def admits_run(self, run: GroupRun) -> bool:
        """As `admits`, for all groups of a run."""
        self.last_timestamp = run.timestamp
        if run.domain_id not in self._claimed:
            if not self._filter.wants_domain(run.domain_id):
                self.skipped += len(run)
                return False
            self._domains.claim(run.domain_id, self, run.gtid(0))
            self._claimed.add(run.domain_id)
        if run.server_id in self._filter.ignore_server_ids:
            self.skipped += len(run)
            return False
        return True

    def wants(self, gtid: Gtid) -> bool:
        """Whether `admits` may say yes, as far as that is known in the middle of a group."""
        return (
            self._filter.wants_domain(gtid.domain_id)
            and gtid.server_id not in self._filter.ignore_server_ids
        )

    def release(self) -> None:
        """Nothing more comes."""
        self._domains.release(self)
