"""The divergence guard: nothing is taken from an upstream before it has shown that it has our history, as far as asked.

Asked is for each domain that comes from there: does it have our last group (`gtid_binlog_state`), and does that group
say the same there (`binlog_protocol.groups.group_comparison`)? The group is dumped alone, from behind the one before.
Beyond `PROOFS_MAX` domains the GTIDs of all are compared, but only as many groups at a connection, others at the next.

Asked is whenever a connection is made, but for one to the server that was proved before, which was not restarted in
between and lost for no more than a moment. What speaks against an upstream is asked for twice: only events have
checksums.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from binlog_protocol.connection.replica import ER_SLAVE_FATAL_ERROR, UpstreamRefused
from binlog_protocol.errors import (
    GtidDiverged,
    GtidNotInBinlog,
    MasterFatalError,
    ProtocolError,
    RemoteError,
    TooManyUserConnections,
    UserLimitReached,
)
from binlog_protocol.groups.group_comparison import Likeness, compare, describe, outline
from binlog_protocol.groups.group_content import GroupContent, content_of
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import EngineReader
from binlog_storage.errors import PositionPurged, StorageError
from binlog_storage.log.stored_groups import find_group

from binlog_server.loop.turn import in_turns
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.gate import Gate
from binlog_server.relay.into import Into
from binlog_server.relay.upstream_groups import (
    Connect,
    FoundGroup,
    UpstreamGroups,
    UpstreamState,
    ask_state,
)
from binlog_server.upstreams.master_info import MasterInfo

log = logging.getLogger(__name__)

MOMENT_S = 10.0
PROOFS_MAX = 100
"""Groups that are asked for at one connection. Each takes a connection and a dump of its own; with thousands of domains
an upstream would be asked for hours, and the stream would not begin."""
_TOLD_MAX: Final = 10  # of GTIDs in a message
# The group is purged there; the account may have no second connection (max_user_connections, of all or its own).
_NO_ANSWER = frozenset(
    {MasterFatalError.errno, TooManyUserConnections.errno, UserLimitReached.errno}
)
_WAY_OUT = (
    "nothing of it is stored; follow a server with this history (MASTER_HOST, MASTER_CANDIDATES), or begin anew here: "
    "RESET MASTER, SET GLOBAL gtid_slave_pos, replicas from a backup"
)


class HistoryDiverged(UpstreamRefused):
    """The upstream has another history than the store.

    As text, which may get into logs, it tells nothing of what groups say; `full_message` does.
    """

    def __init__(self, message: str, full_message: str, errno: int = ER_SLAVE_FATAL_ERROR) -> None:
        super().__init__(message, errno)
        self.full_message = full_message


class CandidateBehind(ConnectionError):
    """The candidate lacks our last groups, and may get them yet."""

    errno = MasterFatalError.errno


class LastGroup(NamedTuple):
    """Our last group of a domain. `before`: the one before it there; None for the first one ever."""

    before: Gtid | None
    content: GroupContent


class _Proof(NamedTuple):
    gtid: Gtid
    doubt: str  # why only the GTID proves it; empty if the group does


class Guard:
    """The divergence guard of one connection, from its start to its stop.

    Args:
        gate: whose domains are asked for.
    """

    def __init__(self, into: Into, gate: Gate, info: MasterInfo) -> None:
        self._engine = into.engine
        self._syncer = into.syncer
        self._config = into.config
        self._gate = gate
        self._wanted = info.filter
        self._check_groups = info.check_last_group
        self._proved: UpstreamState | None = None
        self._proved_name = ""
        self._holds = False  # the connection that was proved
        self._lost_at = 0.0
        self._asked_from = 0  # which groups were asked for before

    def lost(self, *, ended: bool) -> None:
        """The connection has ended, or the next one could not be made.

        `ended`: by the upstream, which does so after RESET MASTER, too.
        """
        if self._holds:
            self._lost_at = time.monotonic()
            self._holds = False
        if ended:
            self._proved = None

    async def prove(self, name: str, link: ClientLink, connect: Connect, *, among: bool) -> None:
        """The upstream `name` may be followed, over `link`, which is logged in; `connect` makes further ones.

        Args:
            among: it is one of several candidates: it must have our last groups now, and share a domain with us.

        Raises `HistoryDiverged`, `CandidateBehind`, and as a dump.
        """
        ours = await self._last_gtids()
        if not ours:
            return
        there = await ask_state(link)
        if not self._is_proved(name, there):
            try:
                await self._prove(name, there, ours, connect, among=among)
            except HistoryDiverged as error:
                log.info("%s: asked again: %s", name, error)
                try:
                    other = await connect()
                except RemoteError as refusal:
                    raise (error if refusal.errno in _NO_ANSWER else refusal) from None
                try:
                    there = await ask_state(other)
                finally:
                    other.close()
                await self._prove(name, there, ours, connect, among=among)
            self._asked_from += PROOFS_MAX
        self._proved, self._proved_name, self._holds = there, name, True

    async def _last_gtids(self) -> list[Gtid]:
        """Our last GTID of each domain that comes from this upstream, as far as known."""
        return [
            gtid
            async for gtid in in_turns(self._engine.binlog_state().position())
            if self._gate.may_own(gtid.domain_id)
        ]

    def _is_proved(self, name: str, there: UpstreamState) -> bool:
        return (
            self._proved is not None
            and self._proved_name == name
            and self._proved.is_same_server(there)
            and time.monotonic() - self._lost_at <= MOMENT_S
        )

    async def _prove(
        self, name: str, there: UpstreamState, ours: list[Gtid], connect: Connect, *, among: bool
    ) -> None:
        config = self._config()
        groups = UpstreamGroups(
            connect,
            config.server_id,
            config.slave_net_timeout * 10**9 // 3,
            config.max_event_group_size,
        )
        shared: list[tuple[Gtid, Gtid, bool]] = []  # ours, their last one, whether they have ours
        async for gtid in in_turns(ours):
            last = there.gtids.last(gtid.domain_id)
            if last is None:
                continue  # a domain of another upstream, perhaps
            shared.append((gtid, last, there.gtids.has(gtid)))
        asked = self._asked([gtid for gtid, _, has_it in shared if has_it])
        proofs: list[_Proof] = []
        async for gtid, last, has_it in in_turns(shared):
            if has_it and gtid not in asked:
                proofs.append(_Proof(gtid, f"{PROOFS_MAX} groups are asked for at a time"))
            elif has_it:
                proofs.append(await self._prove_group(gtid, there, groups))
            elif last.seq_no >= gtid.seq_no or (among and self._lacks(last)):
                raise await self._forked(name, gtid, last, there, groups)
            elif among:
                raise CandidateBehind(f"it has not got {gtid} yet; its last one there is {last}")
        if among and not proofs:
            raise CandidateBehind(f"it has nothing of {_listed(ours)}")
        await asyncio.sleep(0)  # there may be thousands
        _tell(name, proofs)
        await asyncio.sleep(0)

    def _asked(self, gtids: list[Gtid]) -> frozenset[Gtid]:
        """The groups of these that are to be shown: if they are many, others with each connection."""
        if len(gtids) <= PROOFS_MAX:
            return frozenset(gtids)
        first = self._asked_from % len(gtids)
        return frozenset((gtids[first:] + gtids[:first])[:PROOFS_MAX])

    async def _prove_group(
        self, gtid: Gtid, there: UpstreamState, groups: UpstreamGroups
    ) -> _Proof:
        """Compare our last group with the upstream's. Raises `HistoryDiverged`."""
        if not self._check_groups:
            return _Proof(gtid, "MASTER_CHECK_LAST_GROUP=0")
        ours = await self._own(gtid)
        if ours is None:
            return _Proof(gtid, "it is not in the store")
        try:
            theirs = await groups.find(gtid, ours.before, there.gtids, ours.content)
        except RemoteError as error:
            if error.errno not in _NO_ANSWER:
                raise
            return _Proof(gtid, f"the upstream cannot show it: {error.message}")
        if theirs is None:
            return _Proof(gtid, "the upstream does not show it")
        found = compare(ours.content, theirs.content)
        if found.likeness is Likeness.OTHER:
            full, outlined = (
                f"the upstream has another history: {gtid} is not the same group there ({difference}). "
                f"{sides}; {_WAY_OUT}; or MASTER_CHECK_LAST_GROUP=0 if both are right"
                for difference, sides in (
                    (found.difference, _sides(gtid, ours, theirs, describe)),
                    (found.outline, _sides(gtid, ours, theirs, outline)),
                )
            )
            raise HistoryDiverged(outlined, full)
        return _Proof(gtid, found.outline)

    def _lacks(self, theirs: Gtid) -> bool:
        """Whether the store would have this group if its history were the upstream's."""
        known = self._known(theirs)
        ignored = theirs.server_id in self._wanted.ignore_server_ids
        return known is not None and known.seq_no < theirs.seq_no and not ignored

    def _known(self, gtid: Gtid) -> Gtid | None:
        """The last group of the same server in that domain."""
        state = self._engine.binlog_state(gtid.domain_id)
        seq_no = state.get(gtid.domain_id, gtid.server_id)
        return None if seq_no is None else gtid._replace(seq_no=seq_no)

    async def _forked(
        self, name: str, gtid: Gtid, last: Gtid, there: UpstreamState, groups: UpstreamGroups
    ) -> HistoryDiverged:
        """The error, with the group that the upstream has in place of ours, as far as it can be found."""
        ours = await self._own(gtid)
        theirs: FoundGroup | None = None
        for before in (ours and ours.before, self._known(last)):
            if before is None or theirs is not None:
                continue
            try:
                theirs = await groups.first_behind(before, there.gtids)
            except RemoteError as error:
                log.info("what %s has behind %s: %s", name, before, error)
        told = GtidDiverged if last.seq_no >= gtid.seq_no else GtidNotInBinlog
        text = f"{told(gtid).message}. Its last one there is {last}"
        if self._lacks(last):
            text += ", which is not in the store here"
        full, outlined = (
            f"{text}. {_sides(gtid, ours, theirs, how)}; {_WAY_OUT}" for how in (describe, outline)
        )
        return HistoryDiverged(outlined, full, MasterFatalError.errno)

    async def _own(self, gtid: Gtid) -> LastGroup | None:
        await self._syncer.synced()  # only what is durable can be read
        try:
            return await asyncio.to_thread(last_group, self._engine, gtid)
        except (StorageError, ProtocolError) as error:
            log.error("%s cannot be read from the store: %s", gtid, error)
            return None


def _sides(
    gtid: Gtid,
    ours: LastGroup | None,
    theirs: FoundGroup | None,
    how: Callable[[Gtid, GroupContent | None], str],
) -> str:
    here = how(gtid, None if ours is None else ours.content)
    there = "not known" if theirs is None else how(*theirs)
    return f"Here: {here}. There: {there}"


def _tell(name: str, proofs: list[_Proof]) -> None:
    doubts: dict[str, list[Gtid]] = {}
    for proof in proofs:
        doubts.setdefault(proof.doubt, []).append(proof.gtid)
    shown = doubts.pop("", None)
    if shown:
        log.info("%s has our last groups: %s", name, _listed(shown))
    for doubt, gtids in doubts.items():
        log.warning(
            "%s has our %s, but only its GTID says that it is the same group: %s",
            name,
            _listed(gtids),
            doubt,
        )


def _listed(gtids: list[Gtid]) -> str:
    """A list of GTIDs for an error, cut short: they may be thousands."""
    more = len(gtids) - _TOLD_MAX
    return ", ".join(map(str, gtids[:_TOLD_MAX])) + (f" and {more} more" if more > 0 else "")


def last_group(engine: EngineReader, gtid: Gtid) -> LastGroup | None:
    """The group, which is durable and the last of its domain. None if the store does not hold it.

    It may have been purged, or the store begins behind it. Waits for the disk. Raises `StorageError`.
    """
    hold = engine.hold("the last groups")
    try:
        others = engine.binlog_state().position()
        group, before, _ = find_group(engine, gtid, others, ascending=False)
        return None if group is None else LastGroup(before, content_of(group.pieces()))
    except PositionPurged:
        return None
    finally:
        hold.release()
