"""Which groups of which upstream are taken in: several upstreams, one GTID space, one position.

A domain belongs to the connection that has sent groups of it, for as long as that connection runs. Groups of it from
another one are an error there, before anything of them is stored: nobody could tell which of two histories is meant.
With `gtid_ignore_duplicates` a domain may come from several connections, as in MariaDB: a group is stored once, from
whichever connection it comes first, and what has no higher sequence number than the last one of its domain is skipped.
Without it a number that is not higher than the last one of its domain and server is an error: the upstream's binlog has
begun anew. After RESET MASTER a real master goes on sending to those who are connected, somewhere in the new history.
An upstream that would make a store of more than `STATE_ENTRIES_MAX` pairs of domain and server is an error, too.

DO_DOMAIN_IDS, IGNORE_DOMAIN_IDS and IGNORE_SERVER_IDS leave groups out. What is left out of a domain by its server
leaves a hole there, as on a MariaDB replica.

The lists in a stream tell of its history, too. A MariaDB master begins each binlog file with the state at its end of
the one before (GTID_LIST), and sends such a list of its own making when it has come to where the replica begins. A
stream that was right so far has brought just that: the last group of each domain there is the last one here. After
RESET MASTER it is another one: the master sends nothing of its new first file to those who are connected, and goes on
with the next one, which begins with the new state. What the lists cannot tell: a new history that has the number, in
the same domain and of the same server, from which a replica wants to go on.
"""

from __future__ import annotations

from binlog_protocol.connection.replica import ER_SLAVE_FATAL_ERROR
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import FLAG_ARTIFICIAL
from binlog_protocol.groups.event_group import EventGroup
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import STATE_ENTRIES_MAX
from binlog_storage.engine import EngineReader, OpenBinlog

from binlog_server.commits.publisher import Publisher
from binlog_server.upstreams.master_info import GroupFilter

_TIMESTAMP = slice(0, 4)  # of the group's GTID event: seconds since 1970


class GroupRefused(Exception):
    """The upstream sends what must not be stored; no later attempt would help. `errno`: MariaDB's number for it."""

    def __init__(self, message: str, errno: int = ER_SLAVE_FATAL_ERROR) -> None:
        super().__init__(message)
        self.errno = errno


def begun_anew(found: str, stored: Gtid) -> GroupRefused:
    """The error for a history that does not go on where the store ends. `found`: what shows it."""
    return GroupRefused(
        f"{found}, but {stored} is stored already: its binlog has begun anew, as by RESET MASTER, and groups may "
        "be missing; begin anew here, too: RESET MASTER, SET GLOBAL gtid_slave_pos, replicas from a backup"
    )


class Domains:
    """The connection that delivers each domain, for one server. `server_id`: of that server, 0 for any."""

    def __init__(self, engine: OpenBinlog, publisher: Publisher, server_id: int = 0) -> None:
        self._server_id = server_id
        self._engine = engine
        self._publisher = publisher
        self.ignore_duplicates = False
        """gtid_ignore_duplicates; changed only while nothing is followed."""
        self._owners: dict[int, Gate] = {}
        self._seq_nos: dict[int, int] = {}  # the highest that was taken in, of domains in use
        self._entries: int | None = None  # pairs of domain and server; None: not counted yet
        self._age = engine.age  # of the binlog in which that is so

    @property
    def age(self) -> int:
        """The age of the binlog; see `BinlogEngine.age`."""
        return self._engine.age

    def claim(self, domain_id: int, gate: Gate, gtid: Gtid) -> None:
        """Give the domain to that connection. Raises `GroupRefused` if it comes from elsewhere."""
        if not self._publisher.follows_in(domain_id):
            if gtid.server_id == self._server_id:
                raise GroupRefused(
                    f"it sends {gtid}, which was committed here and has come back: it follows this server, too. "
                    f"CHANGE MASTER TO IGNORE_DOMAIN_IDS = ({domain_id})"
                )
            raise GroupRefused(
                f"it sends {gtid}, but SQL that was sent to this server is committed in domain {domain_id}; "
                "restart with read_only, or commit in a domain of its own"
            )
        owner = self._owners.setdefault(domain_id, gate)
        if owner is not gate and not self.ignore_duplicates:
            raise GroupRefused(
                f"it sends {gtid}, but domain {domain_id} comes from {owner.name}; give each master a "
                "gtid_domain_id of its own, name the domains that are wanted in DO_DOMAIN_IDS, or set "
                "gtid_ignore_duplicates if both send the same history"
            )

    def owner(self, domain_id: int) -> Gate | None:
        """The connection that the domain comes from."""
        return self._owners.get(domain_id)

    def last_seq_no(self, domain_id: int, server_id: int) -> int:
        """The last sequence number of the domain in the store; -1 without groups."""
        last = self._engine.binlog_state(domain_id).get(domain_id, server_id)
        return -1 if last is None else last

    def enter(self, gtid: Gtid) -> None:
        """Count a group whose server has none of its domain in the store yet. Raises `GroupRefused` beyond them."""
        self._enter_age()
        if self._entries is None:
            self._entries = len(self._engine.binlog_state())
        if self._entries >= STATE_ENTRIES_MAX:
            raise GroupRefused(
                f"it sends {gtid}, but the store has {self._entries} pairs of domain and server already, "
                f"{STATE_ENTRIES_MAX} are the most: delete domains that are not used any more, there and here, FLUSH "
                "BINARY LOGS DELETE_DOMAIN_ID=(...), or name the domains that are wanted in DO_DOMAIN_IDS"
            )
        self._entries += 1

    def is_new(self, group: EventGroup) -> bool:
        """Whether no group of its domain with this number or a higher one was taken in; this one is from now on."""
        self._enter_age()
        domain_id, _, seq_no = group.gtid
        if domain_id not in self._seq_nos:
            known = self._engine.binlog_state(domain_id).entries()
            self._seq_nos[domain_id] = max((last.seq_no for last in known), default=0)
        if seq_no <= self._seq_nos[domain_id]:
            return False
        self._seq_nos[domain_id] = seq_no
        return True

    def release(self, gate: Gate) -> None:
        """The connection has ended; others may deliver its domains."""
        for domain_id in [d for d, owner in self._owners.items() if owner is gate]:
            del self._owners[domain_id]

    def forget(self) -> None:
        """Forget what was let in: from now on the store tells which groups are new, and how many domains it has."""
        self._seq_nos.clear()
        self._entries = None

    def _enter_age(self) -> None:
        age = self._engine.age
        if age != self._age:
            self._age = age
            self.forget()


class Gate:
    """Decides for one connection, from its start to its stop. Asked once for each group, in the order of arrival."""

    def __init__(self, name: str, domains: Domains, group_filter: GroupFilter) -> None:
        self.name = name
        self.last_timestamp = 0
        """The time at which the upstream wrote the last group; seconds since 1970, 0 before the first."""
        self.age = domains.age
        """The age of the binlog to which the groups of this network connection belong: they go into no other."""
        self.last_marker: bytes | None = None
        """The start marker that was stored last."""
        self._domains = domains
        self._filter = group_filter
        self._claimed: set[int] = set()
        self._last_seq_nos: dict[tuple[int, int], int] = {}  # by domain and server

    def admits(self, group: EventGroup) -> bool:
        """Whether the group is to be stored, which must happen at once. Raises `GroupRefused`."""
        self.last_timestamp = int.from_bytes(group.payload[_TIMESTAMP], "little")
        gtid = group.gtid
        if not self._takes(gtid):
            return False
        if not self._domains.ignore_duplicates:
            self._go_on(gtid, gtid.seq_no)
            return True
        if not self._domains.is_new(group):
            return False
        key = gtid.domain_id, gtid.server_id
        if key not in self._last_seq_nos:
            if self._domains.last_seq_no(*key) < 0:
                self._domains.enter(gtid)
            self._last_seq_nos[key] = gtid.seq_no
        return True

    @property
    def takes_runs(self) -> bool:
        """Whether `admits_run` may be asked: not where each group may have come already by another way."""
        return not self._domains.ignore_duplicates

    def admits_run(self, run: GroupRun) -> bool:
        """Whether the groups of a run are taken in, all or none; see `admits`."""
        self.last_timestamp = run.timestamp
        key = run.domain_id, run.server_id
        stored = self._last_seq_nos.get(key)
        if stored is not None and stored < run.seq_nos[0]:  # as the groups before it
            self._last_seq_nos[key] = run.seq_nos[-1]
            return True
        first = run.gtid(0)
        if not self._takes(first):
            return False
        self._go_on(first, run.last.seq_no)
        return True

    def _takes(self, gtid: Gtid) -> bool:
        """Whether the filters let the group through; its domain is the connection's from then on.

        One that is left out claims nothing: its domain may come from the server that has written it, or be committed in
        here.
        """
        if gtid.server_id in self._filter.ignore_server_ids:
            return False
        if gtid.domain_id not in self._claimed:
            if not self._filter.wants_domain(gtid.domain_id):
                return False
            self._domains.claim(gtid.domain_id, self, gtid)
            self._claimed.add(gtid.domain_id)
        return True

    def _go_on(self, first: Gtid, last_seq_no: int) -> None:
        """Groups of one server, up to that number, are stored next. Raises `GroupRefused`."""
        domain_id, server_id, seq_no = first
        key = domain_id, server_id
        stored = self._last_seq_nos.get(key)
        if stored is None:
            stored = self._domains.last_seq_no(domain_id, server_id)
        if seq_no <= stored:
            raise begun_anew(f"it sends {first}", Gtid(domain_id, server_id, stored))
        if stored < 0:
            self._domains.enter(first)
        self._last_seq_nos[key] = last_seq_no

    def owns(self, domain_id: int) -> bool:
        """Whether the connection has sent groups of the domain, and nobody else may."""
        return self._domains.owner(domain_id) is self

    def may_own(self, domain_id: int) -> bool:
        """Whether groups of the domain are wanted, and come from no other connection."""
        return self._filter.wants_domain(domain_id) and (
            self._domains.owner(domain_id) in (None, self)
        )

    def stores_all_of(self, domain_id: int) -> bool:
        """Whether every group of the domain that comes is stored, and none from elsewhere."""
        return (
            not self._domains.ignore_duplicates
            and not self._filter.ignore_server_ids
            and self.may_own(domain_id)
        )

    def wants(self, gtid: Gtid) -> bool:
        """Whether the filters let a group through that is not whole yet; `admits` decides when it is."""
        return (
            self._filter.wants_domain(gtid.domain_id)
            and gtid.server_id not in self._filter.ignore_server_ids
        )

    def begin(self) -> None:
        """A new network connection: groups let in on the previous one are stored, or come again."""
        self.age = self._domains.age
        self._last_seq_nos.clear()
        self._domains.forget()

    def release(self) -> None:
        """Give up the domains: the connection has ended."""
        self._domains.release(self)


class UpstreamHistory:
    """The history in one connection, from its dump command on. `compare` needs all groups before it in the store."""

    def __init__(self, engine: EngineReader, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate
        self._start = engine.binlog_state()
        # The stream has come to where we began in these; before that it has older groups, which are not sent.
        self._reached: set[int] = set()

    def compare(self, found: GtidList) -> None:
        """The next list of the stream, in any thread. Raises `GroupRefused`."""
        ours = self._engine.binlog_state()
        made_for_us = bool(found.header_flags & FLAG_ARTIFICIAL)
        for domain_id, theirs in found.lasts().items():
            stored = ours.last(domain_id)
            if stored is not None and self._gate.stores_all_of(domain_id):
                self._compare(domain_id, theirs, stored, made_for_us=made_for_us)

    def _compare(self, domain_id: int, theirs: Gtid, stored: Gtid, *, made_for_us: bool) -> None:
        if theirs == stored:
            self._reached.add(domain_id)
        elif made_for_us:
            return  # of other domains than the one that it is about it may be old
        elif domain_id in self._reached or self._has_come(stored):
            raise begun_anew(f"a binlog file of it begins behind {theirs}", stored)

    def _has_come(self, stored: Gtid) -> bool:
        """Whether the group came on this connection, which has brought all of its domain since it began."""
        domain_id = stored.domain_id
        return self._gate.owns(domain_id) and stored != self._start.last(domain_id)
