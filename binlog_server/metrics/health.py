"""Whether the server is alive, and whether it is ready: a line of text for each thing that is wrong."""

from __future__ import annotations

from binlog_server.metrics.observed import Observed
from binlog_server.metrics.standstill import standstills, why_no_room

ROOM_WAIT_S = 10.0  # less is what back-pressure does all day
# What statements wait for is told as soon as what commits wait for; what is lost, too.
_SOON = ("rows", "directory")


def what_ails(server: Observed) -> list[str]:
    """The faults for /healthz: those that only a restart, or a repair before it, mends."""
    failure = server.syncer.failure
    return [] if failure is None else [f"store: it accepts nothing more: {failure}"]


def what_is_missing(server: Observed) -> list[str]:
    """The reasons for /readyz to send clients elsewhere."""
    found = what_ails(server)
    if not server.is_listening:
        found.append("listener: it does not accept clients")
    if (missing := server.publisher.missing) is not None:
        found.append(missing())
    waiting_s = server.room.waiting_s
    if waiting_s >= ROOM_WAIT_S:
        why = why_no_room(server.engine.stalled())
        found.append(f"store: commits have waited {waiting_s:.0f} s for room: {why}")
    for stalled in standstills(server):
        if stalled.what == "scrub":
            continue  # clients lack nothing
        limit_s = ROOM_WAIT_S if stalled.what in _SOON else server.config.net_read_timeout
        if stalled.seconds >= limit_s and not (stalled.what == "room" and waiting_s >= ROOM_WAIT_S):
            found.append(f"{stalled.what}: stands still for {stalled.seconds:.0f} s: {stalled.why}")
    for upstream in server.upstreams:
        if not upstream.connected:
            name = f"{upstream.connection} {upstream.name}".lstrip()
            found.append(f"upstream {name}: not connected: {upstream.last_error}")
    return found
