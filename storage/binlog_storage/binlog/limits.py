"""The limits of the write side, and what each means for the others: asserted here, so that none is changed alone.

    pages in memory     a large group stops < `has_room` is false < `append` waits
    unsynced pages      one batch <= while clients commit <= ever: a start without the redo log looks at so many
    the redo log        a checkpoint is due before anybody has to stop

A writer that stops waits for the flusher. So the flusher's bound has to be met first, and the writer's behind it: in
the other order each would wait for the other, for good.
"""

from __future__ import annotations

from typing import Final

from binlog_storage.ibb.chunk import CHUNK_DATA_MAX
from binlog_storage.ibb.oob import PIECE_BYTES_MAX
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.survey import UNSYNCED_PAGES_MAX

# --- the largest step: what is written for one group between two calls of `has_room` ---

NODE_BYTES: Final = 256  # of a piece besides its data: the references of its node
COMMIT_BYTES: Final = 4096  # of a commit record: its GTID event and lists
RECORD_OVERHEAD: Final = 64  # of a record besides its payload, at most


def largest_step(piece_bytes: int) -> int:
    """Bytes written for a group whose two lists have `piece_bytes` together: out of band, and the commit record."""
    return piece_bytes + 2 * NODE_BYTES + COMMIT_BYTES + 3 * RECORD_OVERHEAD


_STEP_PAGES: Final = (
    largest_step(PIECE_BYTES_MAX) // CHUNK_DATA_MAX + 4
)  # each record may begin one

# --- pages that are not in their file yet ---

FIFO_PAGES_MAX: Final = 2048  # `append` waits
FIFO_PAGES_SOFT: Final = FIFO_PAGES_MAX // 2  # `has_room` is false
FIFO_PAGES_SPILL: Final = FIFO_PAGES_MAX // 8  # `has_room_to_spill` is false while clients commit
# While no client commits, large groups may have so many times more: nobody waits for their sync.
QUIET_FACTOR: Final = 3

assert FIFO_PAGES_MAX * PAGE_SIZE <= 32 << 20  # memory of a store
assert FIFO_PAGES_SOFT + _STEP_PAGES <= FIFO_PAGES_MAX  # `has_room` holds for a step
assert (
    FIFO_PAGES_SPILL * QUIET_FACTOR <= FIFO_PAGES_SOFT
)  # small groups have room when large ones have none

# --- pages in their file, but not synced ---

BATCH_PAGES: Final = 64  # that the flusher writes at once
# Small, so that a sync of a file is short: a sync of the redo log, and with it a commit, may wait for it in the disk.
UNSYNCED_PAGES: Final = 64  # while clients commit

assert _STEP_PAGES <= BATCH_PAGES  # a batch may be one entry of the FIFO, however large that is
assert (
    BATCH_PAGES <= UNSYNCED_PAGES <= UNSYNCED_PAGES_MAX
)  # syncs come before a batch, not within it

# --- pages that are not logged: the flusher syncs the redo log to be allowed to write them ---

UNLOGGED_PAGES: Final = 2 * BATCH_PAGES  # in memory, before it does

assert UNLOGGED_PAGES < FIFO_PAGES_SPILL  # or the large group that has them would wait first

# --- the redo log: bytes that are not synced, and parts of its capacity ---

UNSYNCED_SPILL_BYTES: Final = 2 << 20  # a large group stops at these, while clients commit
SYNC_SPILL_BYTES: Final = UNSYNCED_SPILL_BYTES // 2  # the flusher syncs at these
CHECKPOINT_PART: Final = 1 / 2  # a checkpoint is due with more in use
FREE_SPILL_PART: Final = 1 / 3  # a large group stops with less left
FREE_ENOUGH_PART: Final = 3 / 8  # `has_room`, however much the largest step takes
FREE_SOFT_PART: Final = 1 / 8  # `has_room` is false with less left

assert SYNC_SPILL_BYTES < UNSYNCED_SPILL_BYTES
assert FREE_SOFT_PART < FREE_SPILL_PART < FREE_ENOUGH_PART < 1 - CHECKPOINT_PART
