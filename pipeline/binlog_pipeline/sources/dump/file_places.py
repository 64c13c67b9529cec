"""Places in binlog files for ranges, for servers that are slow to find a GTID.

A MariaDB before 11.4 has no index of GTIDs: for each dump it reads the file up to the position, seconds where files are
of a GiB. A client that has followed the log knows the place. It is no more than a hint: the dump begins one group
early, and if that group is not the one that must be there, it is begun anew by GTID.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from binlog_protocol.gtid import U32_MAX, Gtid, SlavePosition

_KEPT: Final = 8
_VERSION: Final = re.compile(r"(?:5\.5\.5-)?([0-9]+)\.([0-9]+)")
_WITH_INDEX: Final = (11, 4)


class FilePlace(NamedTuple):
    """The last group in front of a position: where it begins, or what lies between it and the one before."""

    file: str
    offset: int
    gtid: Gtid


class FilePlaces:
    """The places in binlog files of the positions that were planned last."""

    def __init__(self) -> None:
        self._places: dict[SlavePosition, FilePlace] = {}

    def put(self, position: SlavePosition, place: FilePlace) -> None:
        if place.offset > U32_MAX:
            return  # that cannot be said
        self._places.pop(position, None)
        self._places[position] = place
        if len(self._places) > _KEPT:
            del self._places[next(iter(self._places))]

    def get(self, position: SlavePosition) -> FilePlace | None:
        return self._places.get(position)


def finds_slowly(version: str) -> bool:
    """Whether a server of this version reads a file to find a GTID in it."""
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) < _WITH_INDEX
