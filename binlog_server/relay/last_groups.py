"""The last group of a domain, as the store has it: what an upstream must have, too. Waits for the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from binlog_protocol.groups.event_group import split_events
from binlog_protocol.groups.event_parts import EventRun, event_parts
from binlog_protocol.groups.group_content import GroupContent
from binlog_protocol.gtid import Gtid
from binlog_protocol.limits import EVENT_BYTES_MAX
from binlog_storage.engine import EngineReader
from binlog_storage.errors import PositionPurged
from binlog_storage.log.stored_groups import find_group


class LastGroup(NamedTuple):
    """`before`: the one before it in its domain; None for the first one ever."""

    before: Gtid | None
    content: GroupContent


def last_group(engine: EngineReader, gtid: Gtid) -> LastGroup | None:
    """The group, which is durable and the last of its domain. None if the store does not hold it.

    It may have been purged, or the store begins behind it. Raises `StorageError`.
    """
    hold = engine.hold("the last groups")
    try:
        return _find(engine, gtid)
    except PositionPurged:
        return None
    finally:
        hold.release()


def _find(engine: EngineReader, wanted: Gtid) -> LastGroup | None:
    others = engine.binlog_state().position()
    group, before, _ = find_group(engine, wanted, others, ascending=False)
    return None if group is None else LastGroup(before, content_of(group.pieces()))


def content_of(pieces: Iterable[bytes]) -> GroupContent:
    """The content of a group in normal form, which may be cut anywhere. Raises `ProtocolError`."""
    content = GroupContent()
    for event in _events(pieces):
        content.add(event)
    content.finish()
    return content


def _events(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for part in event_parts(pieces, long_bytes=EVENT_BYTES_MAX + 1):
        assert isinstance(part, EventRun)
        yield from split_events(part.data)
