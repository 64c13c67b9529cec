"""Logs that were never written by a server, but could have been: several domains, servers, databases, times."""

from __future__ import annotations

import random

from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions

from tests.storage.groups import Group
from tests.storage.sizes import small

BEGIN = 1_700_000_000
SMALL_FILES: StoreOptions = small(16, 2)
"""Files of 16 pages, a GTID state every second page."""


def any_log(
    rng: random.Random, count: int, *, step_s: int = 60, size_max: int = 3000
) -> list[Group]:
    """Numbers of a domain ascend, with gaps. Times go on by about `step_s`; statements began up to an hour before."""
    numbers = dict.fromkeys((0, 1, 7), 0)
    made = []
    for i in range(count):
        domain = rng.choice((0, 0, 0, 1, 7))
        numbers[domain] += rng.choice((1, 1, 1, 5))
        gtid = Gtid(domain, rng.choice((1, 2)), numbers[domain])
        made.append(any_group(rng, gtid, BEGIN + i * step_s, size_max))
    return made


def any_group(rng: random.Random, gtid: Gtid, timestamp: int, size_max: int = 3000) -> Group:
    """Statements, each logged with a time of its own, and the end of the transaction."""
    events = [GtidEvent(gtid, timestamp=timestamp - rng.choice((0, 0, 600))).build()]
    for _ in range(rng.randrange(1, 4)):
        text = rng.randbytes(rng.randrange(size_max))
        database = rng.choice((b"", b"shop", b"crm"))
        began = timestamp - rng.randrange(3600)
        events.append(QueryEvent(text, gtid.server_id, database, timestamp=began).build())
    events.append(XidEvent(rng.getrandbits(40), gtid.server_id, timestamp=timestamp).build())
    return Group(b"".join(events), gtid)
