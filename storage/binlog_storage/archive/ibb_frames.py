"""Parts in the form of `.ibb`: the bytes around the pages.

    frame             zstd, with its size: pages of the file, so many that it ends where a record ends } once for
    skippable frame   0x184D2A50: places of the groups in it, zstd; none for a piece of a large group  } each frame
    skippable frame   0x184D2A51: the list of the frames, and behind it how many these are, and b"\\x89BLIBB\\1\\n"

    the list, for each frame:   8  where it begins in this file       4  its size
                                4  of the skippable frame behind it, without its header
                                4  how many pages                     4  how many groups and start markers
                                1  what is in it: 0 groups, 1 a piece of a large group, 2 the commit of that
    places:                     8 for each group: the file, then 8 for each: the offset where it ended in the source.
                                Each is the difference to the one before; 0 and 0 of a start marker

All numbers are little-endian. Programs that know zstd pass over skippable frames: `zstd -d` makes a file
`binlog-000000.ibb` of a part, which is whole in itself. Its page 1 has the binlog state in front of the part, and no
other page has one; a frame is filled up with a record DUMMY. Its header says more pages than there are, as that of a
file that was cut by FLUSH.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from binlog_storage.ibb.file_header import FileHeader

PLACES_MAGIC: Final = 0x184D2A50
LIST_MAGIC: Final = 0x184D2A51
SKIPPABLE: Final = struct.Struct("<II")  # magic, size
ENTRY: Final = struct.Struct("<QIIIIB")
FOOTER: Final = struct.Struct("<I8s")
FOOTER_MAGIC: Final = b"\x89BLIBB\x01\n"
PLACE_BYTES: Final = 16

GROUPS, PIECE, COMMIT = range(3)

_PAGES: Final = 1 << 22
_NO_STATES: Final = 1 << 49  # pages from one state to the next: none is that large

HEADER_PAGE: Final = FileHeader(0, _PAGES, 0, _NO_STATES, 0).build()


class Frame(NamedTuple):
    """An entry of the list."""

    begin: int
    size: int
    places_size: int
    pages: int
    rows: int
    kind: int

    @property
    def places_begin(self) -> int:
        return self.begin + self.size + SKIPPABLE.size

    @property
    def end(self) -> int:
        """Behind it and its places."""
        return (
            self.places_begin + self.places_size if self.kind != PIECE else self.begin + self.size
        )


assert ENTRY.size == 25
assert len(FOOTER_MAGIC) == 8
