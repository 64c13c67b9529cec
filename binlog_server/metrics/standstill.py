"""What does not move: the one place that knows. /readyz and the metrics tell it.

    disk          a call of the operating system that has not returned
    room          commits and upstreams wait for room, in memory or on the disk
    sync          commits wait for a sync of the redo log
    flusher, caretaker, publication
                  what a thread of the store tries again and again, and why it cannot
    upstream      what an upstream has sent is not stored

Each of them stands still for moments all day: only for how long tells something.
"""

from __future__ import annotations

import time
from typing import Final

from binlog_storage.disk.disk import calls_under_way
from binlog_storage.engine import Stalled

from binlog_server.metrics.observed import Observed

KINDS: Final = (
    "disk",
    "room",
    "sync",
    "flusher",
    "caretaker",
    "publication",
    "upstream",
)


def standstills(server: Observed) -> list[Stalled]:
    """All that are under way, the shortest too."""
    now = time.monotonic()
    stalled = server.engine.stalled()
    found = list(stalled)
    for call in calls_under_way():
        why = f"the disk does not answer: {call.action} {call.path}"
        found.append(Stalled("disk", now - call.since, why))
    if server.room.waiting_s:
        why = next((one.why for one in stalled if one.what == "room"), "the disk is full or slow")
        found.append(Stalled("room", server.room.waiting_s, f"commits wait for room: {why}"))
    if server.syncer.waiting_s:
        why = "commits wait for a sync of the redo log"
        found.append(Stalled("sync", server.syncer.waiting_s, why))
    for upstream in server.upstreams:
        if upstream.connected and upstream.storing:
            name = f"{upstream.connection} {upstream.name}".lstrip()
            why = f"what {name} has sent is not stored"
            found.append(Stalled("upstream", now - upstream.storing_since, why))
    return found
