"""One conversation against our server: what differs from what the master answered, and what came of its dump."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from binlog_protocol.connection.commands import BinlogDump, parse_command
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.groups.event_group import EventGroup
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.engine import BinlogEngine
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from binlog_server.accounts.replica_policy import StreamStyle
from tests.binlog_server.lab import Lab, transaction

from .answers import Answer, decoded, intended
from .outcome import FIRST_FILE, SERVER_ID, STORE, Outcome, follow, users
from .peer import Peer
from .recordings import Exchange, Recording
from .stream import Follower

ACCESS_DENIED = 1045
MASTER_FATAL_ERROR = 1236

# Who needs tables, which a binlog server has not, and ends at the first error.
GIVES_UP = "cl-dump"

# Recordings in which the replica's position does not tell what the master had.
_FIRST_30 = SlavePosition.parse("0-1-30")
_HELD_BY_MASTER = {
    "19-err-future": _FIRST_30,
    "19b-err-diverged": _FIRST_30,
    "19d-err-purged": _FIRST_30,
    "19d2-err-purged-empty": _FIRST_30,
    "19e-err-hole-strict": SlavePosition.parse("0-1-30,5-1-2,7-77-1"),
    "19f-hole-nonstrict": SlavePosition.parse("0-1-30,5-1-2,7-77-1"),
}
_UNKNOWN_DOMAIN = 42  # of 19c-err-unknown-domain
_PURGED_GROUPS = {"19d-err-purged": 20, "19d2-err-purged-empty": 20}
_BEHIND_A_HOLE = {"19e-err-hole-strict": [Gtid(0, 1, 510)]}


def history(recording: Recording) -> list[tuple[bytes, Gtid]]:
    """The master's: up to the replica's position, then what was sent, then some more if there is an UNTIL."""
    held = _HELD_BY_MASTER.get(recording.scenario, recording.position or SlavePosition())
    sent = recording.groups
    begins: dict[int, int] = {}
    for group in reversed(sent):
        begins[group.gtid.domain_id] = group.gtid.seq_no
    gtids = [
        Gtid(end.domain_id, end.server_id, seq_no)
        for end in held
        if end.domain_id != _UNKNOWN_DOMAIN
        for seq_no in range(1, end.seq_no + 1)
        if seq_no < begins.get(end.domain_id, seq_no + 1)
    ]
    groups = [(transaction(gtid), gtid) for gtid in gtids]
    groups += [(group.payload, group.gtid) for group in sent]
    last = {gtid.domain_id: gtid for _, gtid in groups}
    more = _BEHIND_A_HOLE.get(recording.scenario, [])
    if "slave_until_gtid" in recording.variables:
        more = [Gtid(g.domain_id, g.server_id, g.seq_no + n) for g in last.values() for n in (1, 2)]
    return groups + [(transaction(gtid), gtid) for gtid in more]


def _engine(recording: Recording) -> BinlogEngine | None:
    """One that has lost its beginning, if the master's had; None for the ordinary store."""
    purged = _PURGED_GROUPS.get(recording.scenario)
    if purged is None:
        return None
    past = MemoryHistory(list(history(recording)))
    past.purge(purged)
    return MemoryEngine(past)


@asynccontextmanager
async def server_for(recording: Recording, style: StreamStyle) -> AsyncIterator[Lab]:
    engine = _engine(recording)
    async with Lab(
        engine,
        store=STORE,
        server_id=SERVER_ID,
        users=users(style),
        binlog_checksum=recording.checksum,
    ) as lab:
        if engine is None:
            for payload, gtid in history(recording):
                lab.engine.append(payload, gtid)
            lab.engine.sync()
        yield lab


async def replay(recording: Recording, style: StreamStyle = StreamStyle.ENGINE) -> Outcome:
    """Say all that the client said; an answer that differs is noted, and the conversation goes on."""
    found = Outcome(recording.name, style)
    async with server_for(recording, style) as lab:
        peer = Peer(lab.server)
        wrong_password = decoded(recording.login.answer).errno == ACCESS_DENIED
        answer = peer.log_in(recording.login.request, wrong_password=wrong_password)
        ours, theirs = decoded([answer]), decoded(recording.login.answer)
        if ours != theirs:
            found.differences.append(f"login: {ours} instead of {theirs}")
        found.compressed = peer.compressed
        for exchange in recording.commands if ours.kind == "ok" else ():
            if found.differences and recording.scenario.startswith(GIVES_UP):
                found.refused = found.differences.pop().partition(" instead of ")[0]
                break
            if exchange.is_dump:
                await _dump(recording, exchange, peer, found)
            elif exchange.sql.startswith("SET @rpl_semi_sync_slave") and not found.semi_sync:
                pass  # a replica says so only if it was told that there is semi-sync
            elif exchange.answer:
                ours = decoded(await peer.ask(exchange), extended=recording.extended)
                _compare(exchange, ours, recording, found)
            else:
                peer.command(exchange)  # COM_QUIT, or the client left at once
        peer.end()
        if peer.out_of_order:
            found.differences.append(f"sequence numbers out of order: {peer.out_of_order}")
    return found


def _compare(exchange: Exchange, ours: Answer, recording: Recording, found: Outcome) -> None:
    theirs = decoded(exchange.answer, extended=recording.extended)
    if exchange.sql == "SELECT @master_binlog_checksum" and ours.rows:
        found.checksum = ours.rows[0][0]
    if "rpl_semi_sync_master_enabled" in exchange.sql:
        found.semi_sync = bool(ours.rows)
    if ours == theirs:
        return
    allowed = intended(exchange)
    if allowed is not None and allowed.check(ours, theirs):
        found.intended.append(allowed.statement)
        return
    what = exchange.sql or f"command {exchange.request[:1].hex()}"
    found.differences.append(f"{what}: {ours} instead of {theirs}")


async def _dump(recording: Recording, exchange: Exchange, peer: Peer, found: Outcome) -> None:
    """The same error, or the same groups to the same end."""
    fatal = next((decoded([p]) for p in recording.stream if p[:1] == b"\xff"), None)
    if fatal is not None and fatal.errno != MASTER_FATAL_ERROR:
        fatal = None  # it was killed, or came twice, while it was recorded
    has_until = "slave_until_gtid" in recording.variables
    ends = recording.non_block or has_until or fatal is not None
    heartbeats = 1 if recording.scenario == "04-heartbeat" else 0
    stream = Follower(checksums=found.checksum == "CRC32")
    peer.command(_with_our_file(exchange) if recording.position is None else exchange)

    def enough() -> bool:
        come = len(stream.types) >= 2 and len(stream.groups) >= len(recording.groups)
        return come and stream.heartbeats >= heartbeats and not ends

    if not await follow(peer, stream, enough):
        found.differences.append(f"dump: silent after groups {_gtids(stream.groups)}")
    found.types = stream.types
    found.differences += [f"dump: {complaint}" for complaint in stream.complaints]
    error = stream.error and Answer("error", errno=stream.error.errno, text=stream.error.message)
    if error is not None and error != fatal and recording.position is None:
        found.refused = str(error)
    elif error != fatal:
        found.differences.append(f"dump: {error} instead of {fatal or 'a stream'}")
    elif error is None:
        _compare_groups(recording, stream, found)
        if has_until and not stream.until_reached:
            found.differences.append("dump: no GTID list says that UNTIL was reached")
    if not peer.closed:
        peer.shut_down()


def _with_our_file(dump: Exchange) -> Exchange:
    """A client that has no GTIDs names a file and an offset that it has learnt from us."""
    command = parse_command(dump.request)
    assert isinstance(command, BinlogDump)
    if not command.file:
        return dump
    return Exchange(replace(command, file=FIRST_FILE, position=FIRST_EVENT_POSITION).build(), b"")


def _compare_groups(recording: Recording, ours: Follower, found: Outcome) -> None:
    theirs = recording.groups
    got = [(group.gtid, group.payload) for group in ours.groups]
    wanted = [(group.gtid, group.payload) for group in theirs]
    if got != wanted:
        found.differences.append(f"dump: groups {_gtids(ours.groups)} instead of {_gtids(theirs)}")


def _gtids(groups: Iterable[EventGroup]) -> str:
    return ",".join(str(group.gtid) for group in groups)
