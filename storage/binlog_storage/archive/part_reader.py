"""Reading a part back, whatever its form: `parquet_rows`, `ibb_rows`.

An archive may be of anybody's making: its checksums say only that it is as its maker wants it. So a file is opened as
one that somebody names, a row group is read only if it fits into memory, and what the columns and the manifest say of
groups is compared with the groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Final

import google_crc32c
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState

from binlog_storage.archive.ibb_rows import IbbRows
from binlog_storage.archive.manifest import ArchivePart, form_of
from binlog_storage.archive.opened_part import OpenedPart
from binlog_storage.archive.parquet_rows import ParquetRows, parquet
from binlog_storage.archive.part_rows import PartForm, PartRows
from binlog_storage.archive.places import GivenUp, Place, never_given_up, open_place

_TIME_BYTES: Final = 4  # with which each event begins


class PartReader:
    """One part. That it is as it was written is looked at first.

    One descriptor is open as long as this lives, see `OpenedPart`.

    Args:
        place: of the archive, or the directory of it.
        given_up: asked while it is brought here: nobody wants it any more.
    """

    def __init__(
        self, place: Place | Path, part: ArchivePart, given_up: GivenUp = never_given_up
    ) -> None:
        """Raises `ArchiveDamaged`, `NoBinlogKey`, `PyarrowMissing`, and as `Place.open`, but for OSError."""
        place = open_place(place) if isinstance(place, Path) else place
        parquet()
        self._opened: Final = OpenedPart(place, part, given_up)
        self.part: Final = part
        self.path: Final = self._opened.path
        form = IbbRows if form_of(part.name) == "ibb" else ParquetRows
        self._form: Final[PartForm] = form(self._opened)

    def rows(self) -> Iterator[PartRows]:
        """All rows, a few MiB at a time. Raises `ArchiveDamaged`, at the end too, if more or less was to come."""
        told = _Told()
        with self._form.open() as file:
            number = 0
            while (found := self._form.next_rows(file, number)) is not None:
                rows, number = found
                told.add(rows)
                yield rows
        self._compare(told)
        self._opened.require_unchanged()

    def rows_from(self, number: int) -> tuple[PartRows, int] | None:
        """The rows of a row group, and the number of the next one; None behind the last. Any thread.

        They are not compared with the manifest: `rows` does that. Raises `ArchiveDamaged`.
        """
        with self._form.open() as file:
            found = self._form.next_rows(file, number)
        self._opened.require_unchanged()
        return found

    def _compare(self, told: _Told) -> None:
        """The manifest, with all that was read."""
        part = self.part
        if told.groups != part.groups:
            raise self._opened.damaged(
                f"it has {told.groups} groups, and the manifest says {part.groups}"
            )
        if (told.first, told.last) != (part.first, part.last):
            raise self._opened.damaged(f"it has the groups {told.first} to {told.last}")
        if told.state != BinlogState.parse(part.gtids):
            raise self._opened.damaged(
                f"it ends at '{told.state}', and the manifest says '{part.gtids}'"
            )
        if told.groups and told.last_place != part.last_place:
            raise self._opened.damaged(
                f"its last group ends at {told.last_place}, and the manifest says {part.last_place}"
            )
        times = min(told.times, default=0), max(told.times, default=0)
        if times != (part.ts_min, part.ts_max):  # by these a query for times leaves parts out
            raise self._opened.damaged(
                f"its groups are of the times {times[0]} to {times[1]}, and the manifest says {part.ts_min} to "
                f"{part.ts_max}"
            )

    def check(self) -> None:
        """Whether the groups are those that were read at the source. Raises `ArchiveDamaged`."""
        crc = 0
        for rows in self.rows():
            if rows.large is not None:
                for piece in rows.large.pieces():
                    crc = google_crc32c.extend(crc, piece)
                continue
            begin = 0
            for marker, end in zip(rows.is_marker.tolist(), rows.ends.tolist(), strict=True):
                if not marker:
                    crc = google_crc32c.extend(crc, bytes(rows.data[begin:end]))
                begin = end
        if crc != self.part.crc32c:
            raise self._opened.damaged(f"CRC-32C of its groups is {crc}, not {self.part.crc32c}")


@dataclass(eq=False)
class _Told:
    """The manifest's facts about a part, gathered while it is read."""

    groups: int = 0
    first: str = ""
    last: str = ""
    last_place: tuple[int, int] = (0, 0)
    times: list[int] = field(default_factory=list)
    state: BinlogState = field(default_factory=BinlogState)

    def add(self, rows: PartRows) -> None:
        import numpy as np

        begins = np.concatenate(([0], rows.ends[:-1]))
        octets = np.frombuffer(rows.data, np.uint8)
        times = np.ascontiguousarray(octets[begins[:, None] + np.arange(_TIME_BYTES)]).view("<u4")
        self.times.extend((int(times.min()), int(times.max())))
        at = np.flatnonzero(~rows.is_marker)
        if not len(at):
            return
        self.groups += len(at)
        self.first = self.first or str(rows.gtid(int(at[0])))
        self.last = str(rows.gtid(int(at[-1])))
        self.last_place = int(rows.file[at[-1]]), int(rows.offset[at[-1]])
        # The last of each domain and server, in their order.
        keys = (rows.domain[at] << 32 | rows.server[at])[::-1]
        _, from_end = np.unique(keys, return_index=True)
        self.state.overlay(rows.gtid(int(i)) for i in at[sorted(len(at) - 1 - from_end)])
