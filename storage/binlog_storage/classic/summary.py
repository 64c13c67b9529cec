"""A summary of a traditional file: its head, its first group, and its last one.

Nothing in such a file leads back from its end. A GTID index tells a place near it; where there is none that can be
read, the whole file is.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from binlog_protocol.events.header import event_time
from binlog_protocol.groups.group_runs import GroupRun

from binlog_storage.classic.binlog import FileHead, read_head
from binlog_storage.classic.checked_file import opened_in
from binlog_storage.classic.directory import BinlogNames, read_index
from binlog_storage.classic.durable_end import durable_end
from binlog_storage.classic.encryption import Keys
from binlog_storage.classic.errors import DamagedBinlog, EncryptedBinlog, UnreadableBinlog
from binlog_storage.classic.groups import FileGroups
from binlog_storage.classic.gtid_index import INDEX_SUFFIX, BadIndex, IndexReader
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import FileMissing, StorageError
from binlog_storage.intake.source import UnfinishedGroup
from binlog_storage.log.summary import FileState, FileSummary, GroupEnd


def summarize_files(
    disk: ReadableDisk, base: str, keys: Keys | None = None
) -> Iterator[FileSummary]:
    """Of each file that the index names. Damage becomes the state of its file.

    Raises `NotAStore` for an index that cannot be read, `EncryptedBinlog`, `NoBinlogKey`, `DiskError`.
    """
    names = BinlogNames(base)
    files = [names.name(number) for number in read_index(disk, base)]
    for name in files:
        yield _summary(disk, name, keys, is_last=name == files[-1])


def _summary(disk: ReadableDisk, name: str, keys: Keys | None, *, is_last: bool) -> FileSummary:
    size = 0
    try:
        size = disk.size(name)
        head = read_head(Path(name), opened_in(disk, name, keys))
        end = durable_end(disk, [head]) if is_last else None
        limit = None if end is None else end[1]
        first = next(_ends(disk, head, keys, head.end, limit), None)
        last = None if first is None else _last(disk, head, keys, limit)
    except FileMissing:
        return FileSummary(name, size, FileState.DAMAGED, damage="the file is missing")
    except EncryptedBinlog:
        raise
    except (DamagedBinlog, UnreadableBinlog) as error:
        return FileSummary(name, size, FileState.DAMAGED, damage=reason_of(error, name))
    state = FileState.LAST if is_last else FileState.CLOSED
    return FileSummary(name, size, state, first, last, head.state)


def reason_of(error: DamagedBinlog | UnreadableBinlog, name: str) -> str:
    """What is wrong with a file, without its name."""
    if isinstance(error, DamagedBinlog):
        return error.reason
    return str(error).removeprefix(f"{name} ")


def _last(
    disk: ReadableDisk, head: FileHead, keys: Keys | None, limit: int | None
) -> GroupEnd | None:
    for begin in _indexed(disk, f"{head.path.name}{INDEX_SUFFIX}"):
        # An index of other groups leads into the middle of an event: then the whole file is read.
        with contextlib.suppress(DamagedBinlog, UnreadableBinlog):
            if last := _last_from(disk, head, keys, begin, limit):
                return last
    return _last_from(disk, head, keys, head.end, limit)


def _last_from(
    disk: ReadableDisk, head: FileHead, keys: Keys | None, begin: int, limit: int | None
) -> GroupEnd | None:
    return next(iter(deque(_ends(disk, head, keys, begin, limit), maxlen=1)), None)


def _indexed(disk: ReadableDisk, name: str) -> Iterator[int]:
    """The last places that a GTID index tells, nearest to the end first; none without one that can be read."""
    try:
        with contextlib.closing(disk.open(name)) as file:
            found = IndexReader(file).find(lambda offset, state: True)
    except (StorageError, BadIndex):
        return
    if found is not None:
        yield found.offset
        if found.before is not None:
            yield found.before[0]


def _ends(
    disk: ReadableDisk, head: FileHead, keys: Keys | None, begin: int, limit: int | None
) -> Iterator[GroupEnd]:
    """The first and the last group of each piece of a file that is read at once."""
    name, algorithm = head.path.name, head.description.checksum_algorithm
    groups = FileGroups(
        head.path,
        offset=begin,
        checksum_algorithm=algorithm,
        file=opened_in(disk, name, keys),
        size=limit,
    )
    with contextlib.closing(groups), contextlib.suppress(UnfinishedGroup):
        for group in groups.items():
            if isinstance(group, GroupRun):
                for at in dict.fromkeys((0, len(group) - 1)):
                    yield GroupEnd(group.gtid(at), event_time(group.payload(at)))
                continue
            for _ in group.rest or ():
                pass  # whether it is whole is known at its end
            if group.gtid is not None:
                yield GroupEnd(group.gtid, event_time(group.payload))
