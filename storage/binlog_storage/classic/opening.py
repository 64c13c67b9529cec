"""Opening a store of traditional files: what its last file holds, where it ends, and what is done to it.

====================================  ==================================================================================
the last file                         what opening does
====================================  ==================================================================================
closed: IN_USE clear                  its STOP event is cut off, and it is written again from there
not closed: its server was killed     its torn tail is cut off behind the last whole group, and kept as `*.broken`;
                                      what stays is written once more, as a sync of it may have failed
closed, and `BASE.state` is there     a MariaDB has stopped here: its file stays as it is, another one begins
====================================  ==================================================================================

MariaDB leaves a torn tail where it is, and its replicas never get past it. A group that was cut off was never durable:
no reader has seen it. In a file that was closed nothing is torn: there, damage refuses the start.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError
from binlog_protocol.events.header import FLAG_IN_USE
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.stored_group import is_start_marker
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.classic.binlog import FileHead, read_head
from binlog_storage.classic.directory import BinlogDirectory, read_small
from binlog_storage.classic.encryption import Keys, opened_to_read
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import Bytes
from binlog_storage.classic.file_indexes import GrowingIndex
from binlog_storage.classic.groups import FileGroups
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.writing import FILE_START, FLAG_AT
from binlog_storage.disk.disk import Disk, File, make_durable
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.engine import Position
from binlog_storage.errors import FileMissing, NotAStore
from binlog_storage.intake.source import UnfinishedGroup
from binlog_storage.redo.reader import Reaches

log = logging.getLogger(__name__)

KEPT_BYTES_MAX: Final = 16 << 20
"""Of the beginning of a group: a large one was being copied, and its other bytes are lost for certain."""


@dataclass(slots=True)
class Surveyed:
    """The last file of a store.

    numbers: all files that can be read, oldest first; the last one is `number`.
    head: of the last file.
    state: behind its last group.
    end: of what stays in it.
    logical_end: where readers stop: `FILE_START` with nothing in it, the end of its marker, or `end`.
    closed_by_mariadb: it is to be left as it is.
    last_marker: the start marker with which the binlog ends, if it does.
    torn: bytes behind `end` were never complete.
    unfinished: the group of which all these bytes are the beginning.
    checkpoint: the file where a recovery of a MariaDB would begin, if it is another one or its server was killed.
    index: the GTID index of what stays in it.
    """

    numbers: tuple[int, ...]
    number: int
    head: FileHead
    state: BinlogState
    end: int
    logical_end: int
    closed_by_mariadb: bool
    last_marker: bytes | None
    torn: bool
    unfinished: Gtid | None
    checkpoint: int | None
    index: GrowingIndex


def survey(directory: BinlogDirectory, numbers: list[int], options: ClassicOptions) -> Surveyed:
    """Look at the files that the index names, at least one; change nothing. Raises `StorageError`."""
    disk = directory.disk
    names = set(disk.names())
    number = numbers[-1]
    if directory.name(number) not in names:
        raise NotAStore(
            f"{directory.index_name} names {directory.name(number)} as its last file, which is not there. The "
            "store was not opened; take that line out if the file is lost"
        )
    there = _readable(directory, numbers, names)
    with contextlib.closing(directory.to_read(number)) as file:
        walk = _walk(directory, number, file, options)
    by_mariadb = directory.state_name in names and not walk.head.in_use
    if by_mariadb:
        _compare(read_small(disk, directory.state_name), walk.state, directory.state_name)
    marker = walk.marker
    if walk.is_empty and marker is None:
        marker = _marker_before(directory, there[:-1], options)
    return Surveyed(
        there,
        number,
        walk.head,
        walk.state,
        walk.end,
        walk.logical_end,
        by_mariadb,
        marker,
        walk.torn,
        walk.unfinished,
        _checkpoint(directory, numbers, walk),
        walk.index,
    )


def _checkpoint(directory: BinlogDirectory, numbers: list[int], walk: _Walk) -> int | None:
    """A MariaDB that was killed has transactions that it had only prepared: when it is started again it commits those
    that it finds in its binlog from this file on.
    """
    named = directory.number(walk.checkpoint)
    if named in numbers[:-1]:
        return named
    return numbers[-1] if walk.head.in_use else None


def _compare(text: bytes, state: BinlogState, name: str) -> None:
    """Warn if a state file says something else than the files do, which are what replicas get."""
    try:
        told = BinlogState(Gtid.parse(line) for line in text.decode().split())
    except (ServerError, ValueError):
        log.warning("%s cannot be read; the GTID state is that of the files: %s", name, state)
        return
    if told != state:
        log.warning("%s says %s, but the files end with %s: that counts", name, told, state)


def _readable(directory: BinlogDirectory, numbers: list[int], names: set[str]) -> tuple[int, ...]:
    """The files behind the last one that is missing."""
    there: list[int] = []
    for number in numbers:
        if directory.name(number) in names:
            there.append(number)
        else:
            if there:
                log.error(
                    "%s is missing, which the index names: what is in the %d files before it is not served",
                    directory.name(number),
                    len(there),
                )
            there.clear()
    return tuple(there)


@dataclass(slots=True)
class _Walk:
    head: FileHead
    state: BinlogState
    index: GrowingIndex
    end: int = FILE_START
    logical_end: int = FILE_START
    marker: bytes | None = None
    is_empty: bool = True
    torn: bool = False
    unfinished: Gtid | None = None
    checkpoint: str = ""


def _walk(directory: BinlogDirectory, number: int, file: Bytes, options: ClassicOptions) -> _Walk:
    path = Path(directory.name(number))
    head = read_head(path, _Kept(file))
    walk = _Walk(head, head.state, GrowingIndex.of(head, options))
    found = FileGroups(path, file=_Kept(file))
    try:
        for item in found.items():
            walk.is_empty = False
            if isinstance(item, GroupRun):
                walk.state.update(item.last)
                walk.index.add_run(item, found.ends_of(item))
                walk.marker = None
            elif item.gtid is None:
                walk.marker = item.payload if is_start_marker(item.payload) else None
                walk.is_empty = True
                walk.logical_end = found.offset
                continue
            else:
                for _ in item.rest or ():
                    pass
                walk.state.update(item.gtid)
                walk.index.add(found.offset, item.gtid)
                walk.marker = None
            walk.logical_end = 0
        walk.unfinished = found.unfinished
    except UnfinishedGroup:
        walk.unfinished = found.unfinished
    except (DamagedBinlog, UnreadableBinlog) as error:
        if not head.in_use:
            raise
        log.warning("%s; its server was killed: the file is cut in front of it", error)
    walk.checkpoint = found.checkpoint
    walk.torn = found.end < found.size
    walk.end = found.end if found.closed_at is None else found.closed_at
    if not walk.logical_end:
        walk.logical_end = walk.end
    return walk


class _Kept:
    """A file that stays open when its reader ends."""

    def __init__(self, file: Bytes) -> None:
        self.pread = file.pread
        self.size = file.size

    def close(self) -> None:
        """The owner closes it."""


def _marker_before(
    directory: BinlogDirectory, numbers: tuple[int, ...], options: ClassicOptions
) -> bytes | None:
    """The start marker behind which no group comes in these files."""
    for number in reversed(numbers):
        with contextlib.closing(directory.to_read(number)) as file:
            try:
                walk = _walk(directory, number, file, options)
            except DamagedBinlog:
                return None
        if walk.marker is not None or not walk.is_empty:
            return walk.marker
    return None


def take(directory: BinlogDirectory, opened: Surveyed) -> File:
    """Make the last file one that is written again. Returns it, open. Raises `DiskError`."""
    disk, name = directory.disk, directory.name(opened.number)
    file = disk.open(name)
    try:
        size = file.size()
        if opened.torn and opened.unfinished is not None and size - opened.end > KEPT_BYTES_MAX:
            log.warning(
                "cut a torn tail: %d bytes from offset %d of %s, the beginning of group %s, which was being written",
                size - opened.end,
                opened.end,
                name,
                opened.unfinished,
            )
        elif opened.torn:
            _keep_aside(disk, name, file, opened.end, size)
        flag = file.pread(1, FLAG_AT)[0]
        if not flag & FLAG_IN_USE:
            file.pwrite(bytes([flag | FLAG_IN_USE]), FLAG_AT)
        # Also where it seems to have been done: the sync behind it may have failed, and the length in memory is not
        # the one on the disk then.
        if size > opened.end or opened.head.in_use:
            file.truncate(opened.end)
        if opened.head.in_use:
            make_durable(disk, name, file, opened.end)
        else:
            file.fdatasync()
    except BaseException:
        file.close()
        raise
    return file


def _keep_aside(disk: Disk, name: str, file: File, begin: int, size: int) -> None:
    """Keep a durable copy of what a repair cuts off."""
    names, kept, count = set(disk.names()), f"{name}.broken", 1
    while kept in names:
        count += 1
        kept = f"{name}.broken.{count}"
    copied = 0
    with contextlib.closing(disk.open(kept, create=True)) as copy:
        while begin + copied < size:
            piece = file.pread(min(1 << 20, size - begin - copied), begin + copied)
            if not piece:
                break
            copy.pwrite(piece, copied)
            copied += len(piece)
        copy.fdatasync()
    disk.fsync_dir()
    log.warning(
        "cut a torn tail: %d bytes from offset %d of %s, never complete; kept in %s",
        copied,
        begin,
        name,
        kept,
    )


def has_group(
    disk: ReadableDisk, name: str, offset: int, gtid: Gtid, keys: Keys | None = None
) -> bool:
    """Whether that group is whole at that place of a file. Raises `NoBinlogKey`."""
    path = Path(name)
    try:
        file = opened_to_read(keys, path, disk.open(name))
    except FileMissing:
        return False
    with contextlib.closing(file):
        head = read_head(path, _Kept(file))
        if offset >= file.size():
            return False
        found = FileGroups(
            path,
            offset=offset,
            checksum_algorithm=head.description.checksum_algorithm,
            file=_Kept(file),
        )
        with contextlib.suppress(DamagedBinlog, UnfinishedGroup):
            for item in found.items(runs=False):
                if isinstance(item, GroupRun) or item.gtid != gtid:
                    return False
                for _ in item.rest or ():
                    pass
                return True
        return False


def reaching(directory: BinlogDirectory, opened: Surveyed) -> Reaches:
    """Whether the binlog reaches up to a place: whether all in front of it is whole."""
    ends = {opened.number: opened.end}

    def reaches(place: Position) -> bool:
        number, offset = place
        if number < opened.numbers[0]:
            return True  # a purge takes files that are whole
        if number not in ends:
            ends[number] = _readable_end(directory, number) if number in opened.numbers else 0
        return offset <= ends[number]

    return reaches


def reaching_as_it_is(disk: Disk, base: str, keys: Keys | None = None) -> Reaches:
    """The same of a store that nobody has open. Raises `StorageError`."""
    directory = BinlogDirectory(disk, base)
    directory.keys = keys
    index = directory.read_index()
    options = ClassicOptions(base)
    return reaching(directory, survey(directory, index, options)) if index else lambda _: False


def _readable_end(directory: BinlogDirectory, number: int) -> int:
    with contextlib.closing(directory.to_read(number)) as file:
        head = read_head(Path(directory.name(number)), _Kept(file))
        if not head.in_use:
            return file.size()
        return _walk(directory, number, file, ClassicOptions(directory.base)).end
