"""Writing a part of an archive, a slice as a Parquet file: `binlog_storage.archive.part_writer`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_storage.archive.encryption import NO_KEYS, ArchiveKeys
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.part_writer import write_part
from binlog_storage.archive.places import open_place
from binlog_storage.archive.publisher import STAGED_PREFIX, StagedPart
from binlog_storage.ibb.chunk import Position
from numpy.typing import NDArray

from binlog_pipeline.groups import Groups, chosen
from binlog_pipeline.sources.source import MarkedSlice, Slice


@dataclass(frozen=True, slots=True)
class ArchiveItem:
    """The content of a part: a slice, without the groups that end at `after` or before.

    known_markers: so many start markers in front of its first group are in the archive already.
    """

    part: Slice
    after: Position | None = None
    known_markers: int = 0

    def read(self) -> Iterator[Groups]:
        """The groups, with start markers where the source has them. Raises as `Slice.read`."""
        part, known = self.part, self.known_markers
        stream = part.read_marked() if isinstance(part, MarkedSlice) else part.read()
        for groups in stream if self.after is None else chosen(stream, self._is_behind):
            if known:
                in_front = [marker for at, marker in groups.markers if not at]
                yield groups.with_markers(groups.markers[min(known, len(in_front)) :])
                known = 0 if len(groups) else known - min(known, len(in_front))
            else:
                yield groups

    def _is_behind(self, groups: Groups) -> NDArray[np.bool_]:
        assert self.after is not None
        file_no, offset = self.after
        mask: NDArray[np.bool_] = (groups.file > file_no) | (
            (groups.file == file_no) & (groups.offset > offset)
        )
        return mask

    def __str__(self) -> str:
        return str(self.part)


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A part that waits to be published.

    first_place: where its first group ends in the source.
    """

    staged: StagedPart
    first_place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class WritePart:
    """A task of a worker: writes the part of an item, under a name that nobody else uses.

    Args:
        run: what the names of this run have in common.
        level: of zstd, 1 to 22.
        is_checked: read it back, and compare.
        keys, key_id: it is encrypted with that key; 0: it is not.
    """

    directory: str
    run: str
    level: int = 1
    is_checked: bool = False
    keys: ArchiveKeys = NO_KEYS
    key_id: int = 0

    def __call__(self, item: ArchiveItem) -> WrittenPart | None:
        """Write one part, and sync it; None if it would be empty. Raises as `Slice.read`, OSError."""
        name = f"{STAGED_PREFIX}{self.run}-{uuid.uuid4().hex}"
        path = Path(self.directory) / name
        key = self.keys.get(self.key_id, str(path)) if self.key_id else None
        facts = write_part(path, item.read(), self.level, key)
        if facts is None:
            return None
        try:
            part = facts.part(path)
            if self.is_checked:
                PartReader(open_place(path.parent, self.keys), part).check()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return WrittenPart(StagedPart(name, part), facts.first_place)
