"""Work that stands still: the one place that knows. /readyz and the metrics tell it.

    disk          a call of the operating system that has not returned
    room          commits and upstreams wait for room, in memory or on the disk
    reset         a RESET MASTER is at work, and commits and dumps wait for it
    backup        commits wait for the session that has said BACKUP STAGE BLOCK_COMMIT
    sync          commits wait for a sync of the redo log
    semi_sync     commits are durable, and wait for the acknowledgements of replicas
    flusher, caretaker, publication, tables, undo
                  what a thread of the store tries again and again, and why it cannot
    rows          changes of rows wait for a snapshot of the tables, which lets the redo log be used again
    directory     the path of the store leads to no directory, or to another one: what is committed will be lost
    leases, archive
                  the look at who holds files: what is over, and what is archived, is not let go
    upstream      what an upstream has sent is not stored

Each of them stands still for moments all day: only for how long tells something. What a client has wished for is none:
MASTER_GTID_WAIT, GET_LOCK and SLEEP, a limit of bytes a second, a replica that waits for its own position. Nor is what
is refused at once (1290 before all of an archive is taken), or ends by a limit of its own (net_write_timeout).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from binlog_storage.disk.disk import calls_under_way
from binlog_storage.engine import Stalled

from binlog_server.metrics.observed import Observed

KINDS: Final = (
    "disk",
    "room",
    "reset",
    "backup",
    "sync",
    "semi_sync",
    "flusher",
    "caretaker",
    "publication",
    "tables",
    "undo",
    "rows",
    "directory",
    "leases",
    "archive",
    "scrub",
    "upstream",
)


def why_no_room(stalled: Sequence[Stalled]) -> str:
    """Why commits wait for room, by what `BinlogEngine.stalled` gives."""
    for one in stalled:
        if one.what in ("reset", "backup"):
            return one.why
    room = [one.why for one in stalled if one.what == "room"]
    # The redo log is not free before pages and tables are in their files: who fails at that says why.
    late = [one.why for one in stalled if one.what in ("flusher", "tables")]
    if late and not room:
        return ": ".join(["the redo log is full", *late])
    return ": ".join(["the disk is full or slow", *room])


def standstills(server: Observed) -> list[Stalled]:
    """All waits that are under way, the shortest too."""
    now = time.monotonic()
    stalled = server.engine.stalled()
    found = list(stalled)
    for call in calls_under_way():
        why = f"the disk does not answer: {call.action} {call.path}"
        found.append(Stalled("disk", now - call.since, why))
    if server.room.waiting_s:
        why = f"commits wait for room: {why_no_room(stalled)}"
        found.append(Stalled("room", server.room.waiting_s, why))
    if server.syncer.waiting_s:
        why = "commits wait for a sync of the redo log"
        found.append(Stalled("sync", server.syncer.waiting_s, why))
    if waited_s := server.semi_sync.waiting_s:
        found.append(Stalled("semi_sync", waited_s, server.semi_sync.why_waiting))
    for rounds in server.rounds:
        if since := rounds.since:
            found.append(Stalled(rounds.what, now - since, rounds.why))
    for upstream in server.upstreams:
        if upstream.connected and upstream.storing:
            name = f"{upstream.connection} {upstream.name}".lstrip()
            why = f"what {name} has sent is not stored"
            found.append(Stalled("upstream", now - upstream.storing_since, why))
    return found
