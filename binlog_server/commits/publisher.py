"""Groups of our own: what makes this server a master.

One publisher a server: it numbers the groups of each domain. Whoever commits on one event loop gets increasing numbers
in the order of the commits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from binlog_protocol.errors import (
    GtidOutOfOrder,
    OptionPreventsBecause,
    OptionPreventsStatement,
    ServerShutdown,
    UnknownServerError,
)
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.groups.event_group import StartMarker
from binlog_protocol.groups.statement_group import Origin, QuickGroup
from binlog_protocol.gtid import U64_MAX, BinlogState, Gtid, gtid_of
from binlog_protocol.tables.row_group import QuickRows
from binlog_storage.binlog.decision import Decision
from binlog_storage.binlog.transaction import (
    BINLOG_CACHE_SIZE,
    CacheUse,
    GroupSink,
    Space,
    Transaction,
)
from binlog_storage.engine import EngineWriter, Xid
from binlog_storage.errors import BinlogBegunAnew

from binlog_server.commits.commit_ids import CommitIds, Writes

Append = Callable[[bytes, Gtid, int], object]
"""Append a payload with its GTID, in an age of the binlog; what it returns is false if that cannot be done now."""
_NEVER: Final = -1  # in no age: to be read anew


class Domain:
    """The numbers of one replication domain. `seq_no` is the highest so far."""

    __slots__ = ("age", "commit_ids", "foreign", "id", "last", "own", "seq_no")

    def __init__(self, domain_id: int) -> None:
        self.id = domain_id
        self.seq_no = 0
        self.last: Gtid | None = None  # in the order of logging
        self.foreign = False  # its numbers are given by the upstream
        self.own = False  # and they are given here
        self.commit_ids = CommitIds()
        self.age = _NEVER  # of the binlog in which these are the numbers

    def next_seq_no(self) -> int:
        """Raises `UnknownServerError` (1105) behind the highest; MariaDB goes on with 0, which nobody could order."""
        if self.seq_no >= U64_MAX:
            raise UnknownServerError(
                f"The sequence numbers of replication domain {self.id} are used up: its last one is {U64_MAX}. "
                "SET SESSION gtid_domain_id to another domain"
            )
        return self.seq_no + 1


class Publisher:
    """Commits SQL text into the store. `sync` makes it durable and visible.

    With its first group it stores a start marker: this server is then the master, and it has just started.

    Args:
        follows: there is an upstream; an attribute that may be changed. Domains of which the store has groups from
            other servers are then its own, and nothing is committed in them here.
        strict: numbers within a domain may only grow; an attribute that may be changed.
    """

    def __init__(
        self,
        engine: EngineWriter,
        *,
        server_version: str,
        server_id: int,
        domain_id: int,
        binlog_cache_size: int = BINLOG_CACHE_SIZE,
        binlog_stmt_cache_size: int = BINLOG_CACHE_SIZE,
        follows: bool = False,
        strict: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._server_version = server_version
        self._server_id = server_id
        self._domain_id = domain_id
        self._cache_sizes = binlog_cache_size, binlog_stmt_cache_size
        self._cache_use = CacheUse()
        self._quick = 0  # commits that have used it, and are not counted there
        self._announced = _NEVER  # the age in which it has
        self._follows = follows
        self.strict = strict
        self._clock = clock
        self._domains: dict[int, Domain] = {}
        self._read_only = False
        self._as_it_lies = False
        self._stopping = False
        self._missing: Callable[[], str] | None = None
        self.accepts = True  # the sum of all four

    # --- who may ---

    @property
    def read_only(self) -> bool:
        return self._read_only

    @read_only.setter
    def read_only(self, value: bool) -> None:
        self._read_only = value
        self._sum_up()

    @property
    def as_it_lies(self) -> bool:
        """Whether the store is served as it lies (innodb_read_only): nothing may be changed in it."""
        return self._as_it_lies

    @as_it_lies.setter
    def as_it_lies(self, value: bool) -> None:
        self._as_it_lies = value
        self._sum_up()

    def require_writable(self) -> None:
        """Raises 1290 where the store is served as it lies."""
        if self._as_it_lies:
            raise OptionPreventsStatement("--innodb-read-only")

    @property
    def missing(self) -> Callable[[], str] | None:
        """Tells why the history is not whole, if it is not: what comes next in it is in an archive.

        Until then nobody may add to it, or begin it anew, whatever `read_only` says.
        """
        return self._missing

    @missing.setter
    def missing(self, value: Callable[[], str] | None) -> None:
        self._missing = value
        if value is None:
            self.others_have_logged()
        self._sum_up()

    def others_have_logged(self) -> None:
        """In any domain: numbers go on behind what is in the store."""
        for domain in self._domains.values():
            domain.age = _NEVER

    def require_whole(self) -> None:
        """Raises 1290 while something is `missing`, or the store is served as it lies."""
        self.require_writable()
        if self._missing is not None:
            raise OptionPreventsBecause("--archive", self._missing())

    def _sum_up(self) -> None:
        closed = self._read_only or self._as_it_lies or self._stopping
        self.accepts = not (closed or self._missing is not None)

    @property
    def follows(self) -> bool:
        """Whether there is an upstream."""
        return self._follows

    @follows.setter
    def follows(self, value: bool) -> None:
        self._follows = value
        if not value:  # its domains may go on here, from where it has left them
            for domain in self._domains.values():
                domain.foreign = False
                domain.age = _NEVER

    def stop(self) -> None:
        """Refuse all further commits."""
        self._stopping = True
        self._sum_up()

    def require_open(self, domain_id: int) -> None:
        """Raises `ServerShutdown`, or 1290 when the history is not whole, read_only is set, or the domain is that of
        the upstream.

        From then on the domain is ours.
        """
        if self._stopping:
            raise ServerShutdown()
        self.require_whole()
        if self._read_only:
            raise OptionPreventsStatement("--read-only")
        domain = self.domain(domain_id)
        if domain.foreign:
            raise OptionPreventsBecause(
                "--upstream",
                f"the groups of domain {domain_id} come from there. SET SESSION gtid_domain_id to one of your own; "
                "or end the following for good: RESET SLAVE ALL, or take it out of the configuration file and restart",
            )
        domain.own = True

    def domain(self, domain_id: int) -> Domain:
        """The numbers of a domain: read from the store once, kept up to date from then on."""
        domain = self._domains.get(domain_id)
        if domain is None:
            domain = self._domains[domain_id] = Domain(domain_id)
            state = self._reload(domain)
            domain.foreign = self._follows and state.has_others_than(self._server_id)
        elif domain.age != self._engine.age:
            self._reload(domain)
        return domain

    def follows_in(self, domain_id: int) -> bool:
        """The upstream sends groups of this domain: from now on it is its own. False if commits here number it."""
        domain = self._domains.get(domain_id) or self.domain(domain_id)
        domain.foreign = domain.foreign or not domain.own
        return domain.foreign

    def require_in_order(self, gtid: Gtid) -> None:
        """Check the number that a session asks for. Raises `GtidOutOfOrder` (1950) in strict mode if it goes back."""
        if self.strict and gtid.seq_no:
            state = self._engine.binlog_state(gtid.domain_id)
            last = state.last(gtid.domain_id)
            if last is not None and gtid.seq_no <= max(known.seq_no for known in state.entries()):
                raise GtidOutOfOrder(gtid, last)

    def _reload(self, domain: Domain) -> BinlogState:
        domain.age = self._engine.age  # before the state, which may be that of the next age
        state = self._engine.binlog_state(domain.id)
        domain.seq_no = max((gtid.seq_no for gtid in state.entries()), default=0)
        domain.last = state.last(domain.id)
        return state

    # --- commits ---

    def now(self) -> int:
        """The time, in seconds since 1970."""
        return int(self._clock())

    def begin(self, writer: GroupSink | None = None, space: Space | None = None) -> Transaction:
        """Begin a transaction, which takes all events of the group but the GTID event and the commit.

        `writer`: takes its group, in the place of the engine. `space`: as of `Transaction`.
        """
        # What is left for the commit must be no more than there is room for where `has_room` says so.
        most = max(BINLOG_CACHE_SIZE, self._engine.cache_bytes // 2)
        cache, stmt_cache = (min(size, most) for size in self._cache_sizes)
        sink = self._engine if writer is None else writer
        return Transaction(
            sink,
            binlog_cache_size=cache,
            binlog_stmt_cache_size=stmt_cache,
            space=space,
            uses=self._cache_use,
        )

    def commit(
        self,
        transaction: Transaction,
        origin: Origin,
        domain: Domain,
        *,
        seq_no: int = 0,
        timestamp: int | None = None,
        standalone: bool = False,
        with_rows: bool = False,
        is_direct: bool = False,
        is_transactional: bool = True,
        decision: Decision | None = None,
        writes: Writes | None = None,
    ) -> Gtid:
        """Append the group, under the next number or `seq_no`. Raises `GtidOutOfOrder` (1950),
        `UnknownServerError` (1105) when there is none, `StorageError`.

        `timestamp`: seconds since 1970, by default now. `standalone`: the one statement commits by itself. `with_rows`:
        it makes a table with rows. `is_direct`: it is one on a table without transactions.
        `is_transactional`: False for a transaction that has logged such.
        `decision`: other engines have prepared a part of it.
        `writes`: all that it changes, if that is known, and it is rows of tables with transactions.
        """
        gtid = self._next_of(domain, origin, seq_no)
        now = self.now() if timestamp is None else timestamp
        if is_direct:
            transaction.write(origin.direct_end(now), is_limited=False)
        elif not standalone:
            transaction.write(origin.commit(gtid.seq_no, now), is_limited=False)
        while True:
            self.announce()
            commit_id = domain.commit_ids.next(None if standalone else writes, gtid.seq_no)
            if with_rows:
                head = origin.begin_with_rows(gtid, now, is_direct=is_direct)
            elif is_direct or not is_transactional:
                head = origin.begin_untransactional(gtid, now)
            elif standalone:
                head = origin.standalone_head(gtid, now)
            else:
                head = origin.begin(gtid, now, commit_id)
            on_disk = transaction.is_large
            try:
                if decision is None:
                    transaction.commit(head, gtid, domain.age)
                else:
                    transaction.decide(decision, head, gtid, domain.age)
            except BinlogBegunAnew:
                gtid = self._next_of(domain, origin, seq_no)
            else:
                self._committed(domain, gtid)
                if with_rows or not standalone:  # DDL is written without a cache
                    self._cache_use.count(on_disk=on_disk, is_direct=is_direct)
                return gtid

    def commit_prepared(
        self,
        xid: Xid,
        origin: Origin,
        domain: Domain,
        *,
        seq_no: int = 0,
        timestamp: int | None = None,
        is_transactional: bool = True,
        append: Callable[[Xid, bytes, Gtid], object] | None = None,
    ) -> Gtid:
        """Commit what is prepared by that name; as `commit`. Raises `XaStateError`, too.

        `append`: in the place of the engine's `commit_prepared`.
        """
        gtid = self._next_of(domain, origin, seq_no)
        now = self.now() if timestamp is None else timestamp
        domain.commit_ids.next(None, 0)
        self.announce()
        begin = origin.begin if is_transactional else origin.begin_untransactional
        (append or self._engine.commit_prepared)(xid, begin(gtid, now), gtid)
        self._committed(domain, gtid)
        return gtid

    def _next_of(self, domain: Domain, origin: Origin, seq_no: int) -> Gtid:
        if domain.age != self._engine.age:
            self._reload(domain)
        gtid = Gtid(domain.id, origin.server_id, seq_no or domain.next_seq_no())
        if self.strict and domain.last is not None and gtid.seq_no <= domain.seq_no:
            raise GtidOutOfOrder(gtid, domain.last)
        return gtid

    @staticmethod
    def _committed(domain: Domain, gtid: Gtid) -> None:
        domain.last = gtid
        domain.seq_no = max(domain.seq_no, gtid.seq_no)

    def commit_quickly(
        self, domain: Domain, group: QuickGroup, server_id: int, text: bytes
    ) -> None:
        """A transaction of one statement: the hot path. Raises as `commit`."""
        domain.commit_ids.sync = None
        # Calls of the C library cost half of what a function of our own would, which makes a difference here.
        self._commit_quickly(domain, server_id, partial(group.build, text), self._engine.append)

    def commit_change(
        self,
        domain: Domain,
        group: QuickRows,
        server_id: int,
        text: bytes,
        images: bytes,
        append: Append,
        writes: Writes,
    ) -> bool:
        """A transaction that changes one row: the hot path. Raises as `commit`.

        `append` makes the change, too. False if it cannot do that at once: then nothing has happened.
        """

        def build(seq_no: int, now: int) -> bytes:
            commit_id = domain.commit_ids.next(writes, seq_no)
            return group.build(seq_no, now, text, images, commit_id)

        return self._commit_quickly(domain, server_id, build, append)

    def _commit_quickly(
        self, domain: Domain, server_id: int, build: Callable[[int, int], bytes], append: Append
    ) -> bool:
        while True:
            seq_no = domain.seq_no + 1
            if seq_no > U64_MAX:
                domain.next_seq_no()  # which says so
            gtid = gtid_of((domain.id, server_id, seq_no))
            if self._announced != domain.age:  # after RESET MASTER
                self.announce()
            try:
                if not append(build(seq_no, int(self._clock())), gtid, domain.age):
                    return False
                break
            except BinlogBegunAnew:  # under a number of the new binlog
                if domain.age != self._engine.age:
                    self._reload(domain)
        domain.last = gtid
        domain.seq_no = seq_no
        self._quick += 1
        return True

    def cache_use(self) -> dict[str, int]:
        """Status variables: how often a cache of a transaction was used."""
        uses = self._cache_use
        return {
            "Binlog_cache_disk_use": uses.cache_disk,
            "Binlog_cache_use": uses.cache + self._quick,
            "Binlog_stmt_cache_disk_use": uses.stmt_cache_disk,
            "Binlog_stmt_cache_use": uses.stmt_cache,
        }

    def announce(self) -> None:
        """Put the start marker in front of the first group."""
        while self._announced != (age := self._engine.age):
            started = FormatDescription(
                self._server_version,
                self._server_id,
                created=self.now(),
                timestamp=self.now(),
            )
            with contextlib.suppress(BinlogBegunAnew):
                self._engine.append(StartMarker(started).payload, None, age)
                self._announced = age

    def went_on(self, age: int) -> None:
        """The binlog of that age goes on, in another store: its start marker is there."""
        if self._announced == age:
            self._announced = self._engine.age

    # --- for programs ---

    def ddl(self, statement: str, database: str = "") -> Gtid:
        """Commit one statement that commits by itself."""
        return self._publish([statement], database, standalone=True)

    def transaction(self, statements: Sequence[str], database: str = "") -> Gtid:
        """Commit statements as one transaction."""
        return self._publish(statements, database, standalone=False)

    def _publish(self, statements: Sequence[str], database: str, *, standalone: bool) -> Gtid:
        origin, now = Origin(self._server_id, database.encode()), self.now()
        transaction = self.begin()
        try:
            for statement in statements:
                transaction.write(origin.statement(statement.encode(), now))
            domain = self.domain(self._domain_id)
            return self.commit(transaction, origin, domain, timestamp=now, standalone=standalone)
        except BaseException:
            transaction.rollback()
            raise
