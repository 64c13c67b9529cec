"""Plain commit records onto a page, as many as fit: the hot path of writing runs.

It exists in C, too (`_speedups.c`), and is used where it was built; a test holds the two equal.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from storage.ibb.chunk import CHUNK_HEADER, LAST, RecordType
from storage.ibb.page import PAGE_END

_PLAIN_COMMIT: Final = RecordType.COMMIT | LAST
_HEAD: Final = CHUNK_HEADER + 1  # of a chunk, and that nothing is out of band


def fill_page_plainly(
    page: bytearray, at: int, payloads: bytearray, ends: array[int], index: int
) -> tuple[int, int]:
    """Write groups to the page from offset `at` on, beginning with number `index` of those that end at `ends`.

    Returns the offset behind them, and the number of the first one that does not fit whole.
    """
    begin = ends[index - 1] if index else 0
    while index < len(ends):
        end = ends[index]
        stop = at + _HEAD + end - begin
        if stop > PAGE_END:
            break
        size = end - begin + 1
        page[at : at + _HEAD] = bytes((_PLAIN_COMMIT, size & 0xFF, size >> 8, 0))
        page[at + _HEAD : stop] = payloads[begin:end]
        at, begin = stop, end
        index += 1
    return at, index


FillPage = Callable[[bytearray, int, bytearray, "array[int]", int], tuple[int, int]]
fill_page: FillPage = fill_page_plainly
try:
    from storage.binlog import _speedups
except ImportError:
    pass
else:
    fill_page = _speedups.fill_page
