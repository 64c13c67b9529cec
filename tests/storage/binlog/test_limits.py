"""A limit that is changed alone is refused: what it means for the others is asserted where they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from binlog_storage.binlog import limits

SOURCE = Path(limits.__file__).read_text()

WRONG = {
    "the largest step is more than a batch": ("COMMIT_BYTES", "1 << 20"),
    "more pages in memory than a store may take": ("FIFO_PAGES_MAX", "4096"),
    "no room for a step behind `has_room`": ("FIFO_PAGES_SOFT", "FIFO_PAGES_MAX - 8"),
    "small groups stop before large ones": ("QUIET_FACTOR", "5"),
    "a batch of more pages than may be unsynced": ("BATCH_PAGES", "96"),
    "fewer unsynced pages than a batch has": ("UNSYNCED_PAGES", "32"),
    "more unsynced pages than a start looks at": ("UNSYNCED_PAGES", "1024"),
    "a large group stops before its pages are written": ("UNLOGGED_PAGES", "4 * BATCH_PAGES"),
    "so it does with fewer pages": ("FIFO_PAGES_SPILL", "FIFO_PAGES_MAX // 16"),
    "a large group stops before the log is synced": ("SYNC_SPILL_BYTES", "UNSYNCED_SPILL_BYTES"),
    "a large group stops before a checkpoint is due": ("CHECKPOINT_PART", "3 / 4"),
    "so does a small one": ("FREE_ENOUGH_PART", "1 / 2"),
    "large groups take the room of small ones": ("FREE_SPILL_PART", "1 / 10"),
}


def changed(name: str, value: str) -> str:
    source, count = re.subn(rf"^({name}: Final = )[^#\n]*", rf"\g<1>{value}  ", SOURCE, flags=re.M)
    assert count == 1
    return source


@pytest.mark.parametrize(("name", "value"), WRONG.values(), ids=WRONG)
def test_a_wrong_pair_is_refused(name: str, value: str) -> None:
    with pytest.raises(AssertionError):
        exec(changed(name, value), {"__name__": "limits"})


def test_the_right_ones_are_not() -> None:
    for name in {name for name, _ in WRONG.values()}:
        exec(changed(name, repr(getattr(limits, name))), {"__name__": "limits"})
