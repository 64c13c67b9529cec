"""The place in a store behind the groups of an archive: it is of one history with it, or that is an error.

An archiver goes on there, and so does a replica that was served from the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from binlog_protocol.groups.stored_group import group_gtid, is_start_marker
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.archive.errors import ArchiveNotOfStore
from binlog_storage.archive.manifest import ArchivePart
from binlog_storage.engine import EngineReader, PlacedBatch, Position
from binlog_storage.errors import PositionPurged
from binlog_storage.log.stored_groups import digest


def place_behind(
    engine: EngineReader, where: str, state: BinlogState, last: ArchivePart | None
) -> tuple[Position, int] | None:
    """A place, and how many groups and markers from there on are archived. None if the store begins behind `state`.

    Args:
        where: the archive, for messages.
        state: the binlog state behind the last of its groups that counts.
        last: the part that has that group; None if there is none.

    Raises `ArchiveNotOfStore` if the store has another group there, or has not come so far; `StorageError`.
    """
    try:
        if last is not None:
            gtid = last.last_gtid
            earlier = gtid._replace(seq_no=max(gtid.seq_no - 1, 0))
            start = engine.find_start(state.position().with_gtid(earlier))
            return _behind(engine, where, start.position, gtid, last.last_sha256)
    except PositionPurged:
        pass
    first = engine.first_start()
    return (first.position, 0) if first.state == state else None


def exact_place(engine: EngineReader, place: Position, skip: int, markers: int) -> Position:
    """The place behind `skip` groups and markers, and up to so many start markers more. Raises `StorageError`."""
    while (batch := engine.read_placed(place)).end != place:
        if batch.large is not None:
            if not skip:
                return place
            skip -= 1
        for payload, end in batch.groups:
            if skip:
                skip -= 1
            elif markers and is_start_marker(payload):
                markers -= 1
            else:
                return place
            place = end
        place = batch.end
    return place


def _behind(
    engine: EngineReader, where: str, place: Position, gtid: Gtid, sha256: str
) -> tuple[Position, int]:
    while (batch := engine.read_placed(place)).end != place:
        for count, (head, pieces) in enumerate(_of(batch), 1):
            if group_gtid(head) != gtid:
                continue
            if digest(pieces()).hex() == sha256:
                return place, count
            raise ArchiveNotOfStore(
                f"the last group of the archive {where}, {gtid}, is another one than the store's of that name: it is "
                "of another history. Archive into an empty place"
            )
        place = batch.end
    raise ArchiveNotOfStore(
        f"the last group of the archive {where}, {gtid}, is not in the store: it is of another history, or of a server "
        "that is ahead. Archive into an empty place"
    )


def _of(batch: PlacedBatch) -> Iterator[tuple[bytes, Callable[[], Iterable[bytes]]]]:
    """The beginning of each group and marker, and all of its bytes."""
    if batch.large is not None:
        yield batch.large.head, batch.large.pieces
    for payload, _ in batch.groups:
        yield payload, partial(iter, (payload,))
