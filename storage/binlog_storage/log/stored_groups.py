"""Groups of an open store, and the one with a certain GTID: by the promises of any engine. Waits for the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid, SlavePosition

from binlog_storage.engine import EngineReader, Position, StartPoint
from binlog_storage.ibb.records import parsed


class StoredGroup(NamedTuple):
    """A group, or a start marker (`gtid` None). `pieces` begins to read its bytes, in order."""

    gtid: Gtid | None
    pieces: Callable[[], Iterable[bytes]]


class Lookup(NamedTuple):
    """The result of a look for a GTID.

    group: None if it is not there.
    before: the last one of its domain before it, or before the end of the look; None: there never was one.
    passed: whether a higher number of the same server came first, so that it was never logged behind the start.
    """

    group: StoredGroup | None
    before: Gtid | None
    passed: bool = False


def groups_from(engine: EngineReader, place: Position) -> Iterator[StoredGroup]:
    """All from `place`, where a record begins, up to the durable end. Raises `StorageError`."""
    while (batch := engine.read(place)).end != place:
        if batch.large is not None:
            yield StoredGroup(parsed(group_gtid, batch.large.head, place), batch.large.pieces)
        for payload in batch.groups:
            yield StoredGroup(parsed(group_gtid, payload, place), partial(iter, (payload,)))
        place = batch.end


def look_for(
    engine: EngineReader, gtid: Gtid, start: StartPoint, *, ascending: bool = True
) -> Lookup:
    """Look for a group behind a place. Raises `StorageError`.

    ascending: a higher number of the same server ends the search. Without that it goes on up to the durable end, as
        numbers may have gone back.
    """
    before = start.state.last(gtid.domain_id)
    for group in groups_from(engine, start.position):
        found = group.gtid
        if found == gtid:
            return Lookup(group, before)
        if found is not None and found.domain_id == gtid.domain_id:
            if ascending and found.server_id == gtid.server_id and found.seq_no > gtid.seq_no:
                return Lookup(None, before, passed=True)
            before = found
    return Lookup(None, before)


def find_group(
    engine: EngineReader, gtid: Gtid, others: SlavePosition, *, ascending: bool = True
) -> Lookup:
    """Look for a group as a replica would get it that has all of `others`, and of its domain what comes before it.

    Raises `PositionPurged` if the store does not reach back to that, and other `StorageError`s.
    """
    earlier = gtid._replace(seq_no=max(gtid.seq_no - 1, 0))
    start = engine.find_start(others.with_gtid(earlier))
    return look_for(engine, gtid, start, ascending=ascending)


def digest(pieces: Iterable[bytes]) -> bytes:
    """SHA-256 of a group that is given in any pieces."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
