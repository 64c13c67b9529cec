"""Small parts that follow each other become one, so that an archive of a tail does not get thousands of them.

What is durable is archived every few seconds, in parts that may be tiny. As soon as there are `FAN` neighbours of about
one size, or some that fill a part, they are written into a new one, which takes their place in the manifest. So each
byte is written again a few times at most, and an archive has parts that are full, and some `FAN` of each size behind
them. Parts in lists that are full stay as they are.

The new part has a number of its own, that nobody has had. Whoever is killed leaves the archive as it was or with the
new part: the manifest changes at once. The old parts stay for `publisher.GRACE_S` for those who read by the manifest
of before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from binlog_storage.archive.errors import ArchiveDamaged
from binlog_storage.archive.manifest import FORMS, ArchivePart, PartFormName
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.part_rows import PartRows
from binlog_storage.archive.placed_groups import PlacedGroups, part_writer
from binlog_storage.archive.publisher import STAGED_PREFIX, ArchivePublisher, StagedPart
from binlog_storage.engine import Position

FAN: Final = 64
_LEVEL: Final = 1  # of zstd


class Merger:
    """Merges in one archive.

    Args:
        part_bytes: of the log, in a part that is full.
        fan: so many neighbours of one size become one.
        form: of the parts that are made, whatever that of the small ones is.
    """

    def __init__(self, part_bytes: int, fan: int = FAN, *, form: PartFormName = "parquet") -> None:
        self._part_bytes: Final = part_bytes
        self._fan: Final = fan
        self._form: Final[PartFormName] = form

    def step(self, publisher: ArchivePublisher) -> bool:
        """Make one part of some. Returns False if there is nothing to do.

        Raises as `ArchivePublisher.publish`, `ArchiveDamaged` for what is there.
        """
        manifest = publisher.manifest
        run = () if manifest is None else self.choose(manifest.parts)
        if manifest is None or not run:
            return False
        name = f"{STAGED_PREFIX}merged-{uuid.uuid4().hex}{FORMS[self._form]}"
        path = publisher.staging / name
        base = run[-1].file_base
        groups, before = _groups(publisher, run, base), manifest.state_before(run[0])
        facts = part_writer()(path, groups, _LEVEL, publisher.key(), before)
        try:
            assert facts is not None
            part = facts.part(path).moved(base)
            if _told([part]) != _told(run):
                raise ArchiveDamaged(
                    f"{publisher.where}: the parts {run[0].name} to {run[-1].name} do not have what the manifest says; "
                    "restore them from a copy"
                )
            publisher.replace(run, StagedPart(name, part))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return True

    def choose(self, parts: Sequence[ArchivePart]) -> Sequence[ArchivePart]:
        """Neighbours that are to become one part; none if there is nothing to do."""
        for size_max in (
            self._part_bytes // self._fan**2,
            self._part_bytes // self._fan,
            self._part_bytes // 2,
        ):
            begin = size = 0
            for at, part in enumerate(parts):
                follows = at > begin and part.file_base == parts[begin].file_base
                if part.payload_bytes > size_max:
                    begin, size = at + 1, 0
                    continue
                if follows and size + part.payload_bytes > self._part_bytes:
                    return parts[begin:at]  # they fill one
                if not follows:
                    begin, size = at, 0
                size += part.payload_bytes
                if at + 1 - begin == self._fan:
                    return parts[begin : at + 1]
        return ()


def _told(parts: Sequence[ArchivePart]) -> tuple[object, ...]:
    """What the manifest says of them together."""
    with_groups = [part for part in parts if part.groups]
    first = with_groups[0].first if with_groups else ""
    last = with_groups[-1] if with_groups else None
    return (
        sum(part.groups for part in parts),
        sum(part.payload_bytes for part in parts),
        first,
        None if last is None else (last.last, last.last_sha256, last.last_place),
        min(part.ts_min for part in parts),
        max(part.ts_max for part in parts),
    )


def _groups(
    publisher: ArchivePublisher, parts: Sequence[ArchivePart], base: int
) -> Iterator[PlacedGroups]:
    for part in parts:
        for rows in PartReader(publisher.place, part).rows():
            yield _placed(rows, base)


def _placed(rows: PartRows, base: int) -> PlacedGroups:
    """Rows, as they are to be written into a part with this `file_base`."""
    places = [
        Position(file_no - base, offset)
        for file_no, offset in zip(rows.file.tolist(), rows.offset.tolist(), strict=True)
    ]
    if rows.large is not None:
        large = rows.large
        return PlacedGroups([(large.head, places[0])], [], large)
    found, markers = list[tuple[bytes, Position]](), list[tuple[int, bytes]]()
    for at, (begin, end) in enumerate(pairwise((0, *rows.ends.tolist()))):
        payload = bytes(rows.data[begin:end])
        if rows.is_marker[at]:
            markers.append((len(found), payload))
        else:
            found.append((payload, places[at]))
    return PlacedGroups(found, markers)
