"""A store that is written while others read it: `python -m tests.pipeline.live_writer DIRECTORY COUNT`.

Groups go on behind the last there is, until it has number COUNT. What each holds follows from its number, so that a
reader knows what it must find. Among them lie pieces of large groups that are rolled back, or never end as the writer
is killed; and now and then FLUSH begins a new file.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk

from tests.storage.groups import GROUP_BYTES_MIN, GTID_EVENT_BYTES, Group, group, settle
from tests.storage.sizes import small

OPTIONS: StoreOptions = small(64, 4)


def live_group(number: int) -> Group:
    """Of any size; every 400th is a large one."""
    rng = random.Random(number)
    size = rng.choice((GROUP_BYTES_MIN, 300, 3000, 20_000))
    if number % 400 == 399:
        size = 5 << 20
    return group(Gtid(0, 1, number), size + rng.randrange(100))


def write(directory: Path, count: int) -> None:
    engine = IbbEngine(OsDisk(directory), OPTIONS)
    last = engine.binlog_state().last(0)
    rng = random.Random(0 if last is None else last.seq_no)
    pieces = memoryview(group(Gtid(9, 9, 9), 60_000).payload)[GTID_EVENT_BYTES:]
    open_group = engine.begin()
    for number in range(1 if last is None else last.seq_no + 1, count + 1):
        while not engine.has_room:
            engine.step()
        engine.append(*live_group(number))
        if number % 30 == 0:
            open_group.spill(pieces)
        if number % 250 == 0:
            open_group.rollback()
            open_group = engine.begin()
        if number % 350 == 0:
            engine.flush()
        if rng.random() < 0.3:
            engine.step()
    open_group.rollback()
    settle(engine)
    engine.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
