"""One script against our server."""

from __future__ import annotations

from binlog_protocol.connection.handshake import LoginRequest

from binlog_server.accounts.replica_policy import StreamStyle
from tests.binlog_server.lab import USER, Lab

from .answers import decoded
from .outcome import SERVER_ID, STORE, Outcome, follow, users
from .peer import Peer
from .recordings import Exchange
from .scripts import HISTORY, Script
from .stream import Follower


async def perform(script: Script, style: StreamStyle = StreamStyle.ENGINE) -> Outcome:
    """All of the script, up to the first answer that the client cannot go on with."""
    found = Outcome(script.name, style)
    # A server for replicas: nobody commits SQL on it.
    async with Lab(store=STORE, server_id=SERVER_ID, users=users(style), read_only=True) as lab:
        lab.publish(HISTORY)
        peer = Peer(lab.server)
        peer.log_in(LoginRequest(USER, bytes(range(1, 21))).build())
        fault = await _said(script, peer, found)
        if fault is None and script.dump is not None:
            fault = await _streamed(script, peer, found)
        if not peer.closed:
            peer.shut_down()
        peer.end()
        if fault is None and peer.out_of_order:
            fault = f"sequence numbers out of order: {peer.out_of_order}"
    if style is StreamStyle.ENGINE and script.engine_refuses:
        if fault is not None and script.engine_refuses in fault:
            found.refused = fault
        else:
            found.differences.append(f"{fault} where it says {script.engine_refuses!r}")
    elif fault is not None:
        found.differences.append(fault)
    return found


async def _said(script: Script, peer: Peer, found: Outcome) -> str | None:
    for request, expected in script.requests():
        answer = decoded(await peer.ask(Exchange(request, b"")))
        if request[1:] == b"SELECT @master_binlog_checksum" and answer.rows:
            found.checksum = answer.rows[0][0]
        if not expected.check(answer):
            return f"{_shown(request)}: {answer} instead of {expected.text}"
    return None


async def _streamed(script: Script, peer: Peer, found: Outcome) -> str | None:
    assert script.dump is not None
    stream = Follower(checksums=found.checksum == "CRC32", knows_gtids=not script.commits)
    peer.command(Exchange(script.dump.build(), b""))
    if script.during_dump:
        peer.interrupt(script.during_dump)

    def enough() -> bool:
        come = len(stream.types) >= 2 and len(stream.groups) >= len(script.gets)
        come = come and stream.commits >= script.commits
        return come and stream.heartbeats >= script.heartbeats and not script.ends

    in_time = await follow(peer, stream, enough)
    found.types = stream.types
    errno = 0 if stream.error is None else stream.error.errno
    if errno != script.error:
        return f"error {errno} {stream.error.message}" if stream.error else "not refused"
    got = tuple(str(group.gtid) for group in stream.groups)
    if got != script.gets:
        return f"groups {got} instead of {script.gets}"
    if stream.complaints:
        return stream.complaints[0]
    if not in_time:
        return "the stream does not come"
    if (stream.until_reached, stream.ended) != (script.until_reached, script.ends or errno > 0):
        return "the stream does not end where it should"
    return None


def _shown(request: bytes) -> str:
    return request[1:].decode() if request[:1] == b"\3" else f"command {request[:1].hex()}"
