"""Groups of traditional binlog files: the same items as `groups` gives, from the other format.

Relay logs are refused, and encrypted files without their keys; a group that is not whole at the end of its file is left
out, and so is what the server of the directory has not made durable yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from binlog_protocol.events.header import event_time
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState

from binlog_storage.classic.binlog import FileHead, read_head, require_followed
from binlog_storage.classic.durable_end import durable_sizes
from binlog_storage.classic.encryption import Keys, given_to_read
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.groups import FileGroups
from binlog_storage.ibb.chunk import Position
from binlog_storage.intake.source import SourceGroup, UnfinishedGroup
from binlog_storage.log.groups import OfflineGroup


def classic_groups(
    paths: Sequence[Path],
    notes: list[str] | None = None,
    keys: Keys | None = None,
    *,
    is_all: bool = False,
) -> Iterator[OfflineGroup]:
    """Groups in the order of the paths; `place` counts the files from 0. `notes`: parts left out, and incidents.

    is_all: the files are all of a binlog: none may be missing between them. Of others a gap is a note.

    Raises `UnreadableBinlog`, `DamagedBinlog`, `NoBinlogKey` for what cannot be read, and for a gap.
    """
    ends = durable_sizes(paths, keys)
    state: BinlogState | None = None  # behind the file before
    for number, path in enumerate(paths):
        head = _head(path, keys)
        if state is not None and head is not None:
            try:
                require_followed(paths[number - 1], paths[number - 1].stat().st_size, state, head)
            except DamagedBinlog as error:
                if is_all:
                    raise
                if notes is not None:
                    notes.append(str(error))
        state = None if head is None else head.state
        groups = FileGroups(path, file=given_to_read(keys, path), size=ends.get(path))
        try:
            for group in groups.items(incidents=True):
                if state is not None:
                    last = group.last if isinstance(group, GroupRun) else group.gtid
                    if last is not None:
                        state.update(last)
                if isinstance(group, GroupRun):
                    begins = [groups.end, *groups.ends_of(group)]
                    for i in range(len(group)):
                        payload = group.payload(i)
                        place, time = Position(number, begins[i]), event_time(payload)
                        yield OfflineGroup(path.name, place, group.gtid(i), time, (payload,))
                    continue
                pieces: Iterable[bytes] = [group.payload]
                if group.rest is not None:
                    # Whether it is whole is known at its end only. It is read once more when it is asked for.
                    try:
                        for _ in group.rest:
                            pass
                    except UnfinishedGroup:
                        break
                    pieces = _pieces(path, keys, group.offset, groups.checksum_algorithm)
                yield OfflineGroup(
                    path.name,
                    Position(number, group.offset),
                    group.gtid,
                    event_time(group.payload),
                    pieces,
                )
            if notes is not None and groups.left_out:
                notes.append(groups.left_out)
        finally:
            if notes is not None:
                notes += groups.incidents
            groups.close()


def _head(path: Path, keys: Keys | None) -> FileHead | None:
    """None for a file that was not begun as a whole: what it has is told where it is read."""
    try:
        return read_head(path, given_to_read(keys, path))
    except UnreadableBinlog:
        return None


def _pieces(path: Path, keys: Keys | None, offset: int, checksum_algorithm: int) -> Iterator[bytes]:
    file = given_to_read(keys, path)
    with contextlib.closing(
        FileGroups(path, offset=offset, checksum_algorithm=checksum_algorithm, file=file)
    ) as groups:
        group = next(groups.items(runs=False))
        assert isinstance(group, SourceGroup)
        yield from chain([group.payload], group.rest or ())
