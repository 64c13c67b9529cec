"""Makes a store of a backup: `binlog-server prepare`. An incremental one is put onto an earlier one, which is prepared.

    1  the stage `APPLYING` is noted          the same command again, with the same incremental backup
    2  files of the incremental are put there the same
    3  its manifest takes the place           `prepare` without it, too, goes on
    4  the stage `PREPARING` is noted         `prepare` again
    5  the store is opened: the redo is applied up to the point and the tables are made, as behind a crash; it is
       closed, with a redo log of its own     the same: recovery can be repeated
    6  the stage `PREPARED` is noted          nothing: it is a store

Behind each step is what a crash then leaves, and what goes on from there. Nothing is undone here: what was open at the
point is rolled back by the first start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from binlog_protocol.gtid import BinlogState

from binlog_storage.classic.backup import ENGINE
from binlog_storage.classic.binlog import mark_of
from binlog_storage.classic.directory import BinlogNames, belongs
from binlog_storage.classic.gtid_index import INDEX_SUFFIX
from binlog_storage.classic.xa_files import XA_PREFIX
from binlog_storage.disk.disk import Disk, File, replaced
from binlog_storage.disk.read_only_disk import ReadableDisk, ReadableFile
from binlog_storage.engine import EngineAdmin
from binlog_storage.engine.backup import (
    APPLYING,
    COPYING,
    PREPARED,
    PREPARING,
    WHOLE,
    BackupPlace,
    Manifest,
    read_manifest,
    require_by_itself,
    write_manifest,
)
from binlog_storage.errors import BackupRefused, NotAStore
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name, file_number
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.tables.sqlite_rows import SQLITE_NAME

_PIECE_BYTES: Final = 1 << 20


_GOES_WITH_THE_LOG: Final = frozenset(
    {
        TABLES_NAME,
        PUBLICATION_NAME,
        *(f"{SQLITE_NAME}{end}" for end in ("-wal", "-shm", "-journal")),
    }
)


class _Binlog(NamedTuple):
    """How files of a binlog are called and known.

    name: of the file with a number; number: of that, None for any other name.
    mark: by which one is known from that of another binlog; None for a damaged one.
    """

    name: Callable[[int], str]
    number: Callable[[str], int | None]
    mark: Callable[[ReadableFile, int], int | None]


def binlog_of(manifest: Manifest) -> _Binlog:
    """Of the binlog that a backup has."""
    if manifest.engine == ENGINE:
        names = BinlogNames(manifest.log_bin)
        return _Binlog(names.name, names.number, lambda file, _: mark_of(file))
    return _Binlog(file_name, file_number, _start_lsn)


def _start_lsn(file: ReadableFile, file_no: int) -> int | None:
    header = FileHeader.parse(file.pread(PAGE_SIZE, 0), file_no)
    return None if header is None else header.start_lsn


def is_of_a_backup(name: str, log_bin: str) -> bool:
    """Whether a backup may have a file of that name; it may come from a stranger.

    log_bin: the base name of traditional binlog files.
    """
    is_ours = name.startswith("binlog-") or (log_bin != "" and belongs(name, log_bin))
    return is_ours and "/" not in name and name.isprintable()


class Opener(Protocol):
    """Opens the store of a directory, with its recovery and without background work."""

    def __call__(self, manifest: Manifest) -> EngineAdmin: ...


def prepare(
    disk: Disk,
    where: str,
    opened: Opener,
    *,
    skip_binlog: bool = False,
    incremental: ReadableDisk | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Make a store of the backup in this directory. Returns its manifest.

    Args:
        where: the name of the directory, for errors.
        skip_binlog: as it was given to the backup.
        incremental: the later backup that is put onto it.
        progress: is told what is done now.

    Raises `BackupRefused`, `NotAStore`; what opening a store raises.
    """
    manifest = _require_whole(disk, where)
    if incremental is not None:
        later, since = _require_later(incremental)
        if manifest.stage != APPLYING:
            _require_follows(manifest, later, since)
            # A part of its pages may be in its redo log alone.
            manifest = _recovered(disk, where, manifest, opened, progress)
        progress("applying the incremental backup")
        manifest = _applied(disk, where, manifest, later, since, incremental)
    _require_alone(manifest, where, skip_binlog)
    return _recovered(disk, where, manifest, opened, progress)


def require_preparable(
    disk: ReadableDisk, where: str, *, skip_binlog: bool, incremental: ReadableDisk | None
) -> Manifest:
    """Look whether `prepare` would begin; nothing is changed. Returns the manifest of the store that would be made.

    Raises `BackupRefused`, `NotAStore`. What the redo log says is not looked at.
    """
    manifest = _require_whole(disk, where)
    if incremental is not None:
        later, since = _require_later(incremental)
        if manifest.stage != APPLYING:
            _require_follows(manifest, later, since)
            # Before it is prepared, a part of its pages may be in its redo log alone.
            if manifest.stage == PREPARED:
                _require_same_file(disk, binlog_of(manifest), since)
            elif manifest.stage == WHOLE:
                _require_files(disk, where, manifest)
        manifest = dataclasses.replace(later, since=None, stage=PREPARED)
    _require_alone(manifest, where, skip_binlog)
    if manifest.stage == WHOLE:
        _require_files(disk, where, manifest)
    return manifest


def _require_alone(manifest: Manifest, where: str, skip_binlog: bool) -> None:
    """Raises `BackupRefused` unless a store can be made of it by itself, with this option."""
    require_by_itself(manifest, where)
    if manifest.skip_binlog != skip_binlog:
        raise BackupRefused(
            f"{where} was made {'with' if manifest.skip_binlog else 'without'} --skip-binlog: give prepare the same"
        )


def _recovered(
    disk: Disk, where: str, manifest: Manifest, opened: Opener, progress: Callable[[str], None]
) -> Manifest:
    """Steps 4 to 6."""
    if manifest.stage == PREPARED:
        return manifest
    if manifest.stage == WHOLE:
        _require_files(disk, where, manifest)
        write_manifest(disk, manifest.at(PREPARING))
    _leave_out(disk, manifest)
    progress("applying the redo log")
    engine = opened(manifest)
    try:
        if manifest.skip_binlog:
            engine.reset(BinlogState.parse(manifest.state))
    finally:
        engine.close()
    prepared = dataclasses.replace(manifest, stage=PREPARED, sizes={})
    write_manifest(disk, prepared)
    return prepared


def _leave_out(disk: Disk, manifest: Manifest) -> None:
    """Remove files that were copied before a purge took later ones (--no-lock): the binlog begins behind these."""
    number = binlog_of(manifest).number
    early = []
    for name in disk.names():
        file_no = number(name.removesuffix(INDEX_SUFFIX))
        if file_no is not None and file_no < manifest.first_file:
            early.append(name)
    for name in early:
        disk.unlink(name)
    if early:
        disk.fsync_dir()


def _require_whole(disk: ReadableDisk, where: str) -> Manifest:
    manifest = read_manifest(disk)
    if manifest is None:
        raise NotAStore(
            f"{where} is no backup of binlog-server: there is no manifest in it. A store that a server has opened "
            "is none any more"
        )
    if manifest.stage == COPYING:
        raise BackupRefused(
            f"{where} is not whole: its copy was interrupted. Delete it, and make another one"
        )
    for name in manifest.sizes:
        if not is_of_a_backup(name, manifest.log_bin):
            raise NotAStore(f"{where} is damaged or not ours: no backup has a file {name!r}")
    return manifest


def _require_files(disk: ReadableDisk, where: str, manifest: Manifest) -> None:
    """Raises `BackupRefused` unless all files are there as they were copied."""
    names = set(disk.names())
    for name, size in manifest.sizes.items():
        if name not in names:
            raise BackupRefused(f"{where} is not whole: {name} is missing. Make another backup")
        if disk.size(name) != size:
            raise BackupRefused(
                f"{where} is not whole: {name} has {disk.size(name)} bytes instead of {size}. Make another backup"
            )


# --- an incremental one ---


def _require_later(source: ReadableDisk) -> tuple[Manifest, BackupPlace]:
    """The manifest of an incremental backup, and where it begins. Raises `BackupRefused`."""
    later = _require_whole(source, "the incremental backup")
    if later.since is None:
        raise BackupRefused("the incremental backup is a full one: prepare it by itself")
    if later.stage != WHOLE:
        raise BackupRefused(
            "the incremental backup was changed since it was made: it cannot be used"
        )
    _require_files(source, "the incremental backup", later)
    return later, later.since


def _applied(
    disk: Disk,
    where: str,
    base: Manifest,
    later: Manifest,
    since: BackupPlace,
    source: ReadableDisk,
) -> Manifest:
    """Put a later backup onto an earlier one, which is prepared. Returns the manifest of both together."""
    name = hashlib.sha256(later.build()).hexdigest()
    if base.stage == APPLYING:
        if base.notes != (name,):
            raise BackupRefused(
                f"{where}: another incremental backup was being put onto it. Give that one again"
            )
    else:
        _require_same_file(disk, binlog_of(base), since)
        write_manifest(disk, dataclasses.replace(base, stage=APPLYING, notes=(name,)))
    _put(disk, source, later, since)
    number = binlog_of(later).number
    sizes = {n: disk.size(n) for n in disk.names() if n in later.sizes or number(n) is not None}
    both = dataclasses.replace(later, since=None, sizes=sizes)
    write_manifest(disk, both)
    return both


def _require_follows(base: Manifest, later: Manifest, since: BackupPlace) -> None:
    """Raises `BackupRefused` unless the later one goes on in the binlog of the earlier one, without a gap.

    One that ends in front of it would take back what is there, and say nothing: a mistake in their order.
    """
    end = base.end
    gap = end is None or (since.file_no, since.offset) > (end.file_no, end.offset)
    if base.history != since.history or gap or base.skip_binlog or base.since is not None:
        name = binlog_of(base).name
        told = "" if end is None else f", this one ends in {name(end.file_no)} at {end.offset}"
        raise BackupRefused(
            "the incremental backup does not go on from this one: it is of another store, or there is a gap between "
            f"them (it begins in {name(since.file_no)} at {since.offset}{told})"
        )
    if end is not None and later.end is not None:
        # Tables may have changed with nothing in the binlog.
        ends = (later.end.file_no, later.end.offset, later.lsn)
        if ends < (end.file_no, end.offset, base.lsn):
            raise BackupRefused(
                f"the incremental backup is older than this one: it ends at {later.state!r}, this one at "
                f"{base.state!r} already"
            )


def _require_same_file(disk: ReadableDisk, binlog: _Binlog, since: BackupPlace) -> None:
    """Raises `BackupRefused` unless the file in which the later one goes on is the same one."""
    name = binlog.name(since.file_no)
    if name not in disk.names():
        raise BackupRefused(f"{name} is missing, in which the incremental backup goes on")
    with contextlib.closing(disk.open(name)) as file:
        is_same = binlog.mark(file, since.file_no) == since.start_lsn
    if not is_same:
        raise BackupRefused(f"{name} is that of another binlog than the incremental backup's")


def _put(disk: Disk, source: ReadableDisk, later: Manifest, since: BackupPlace) -> None:
    binlog = binlog_of(later)
    names = set(disk.names())
    # Of the earlier one, which may be prepared: they go with its log, or its transactions have ended since.
    gone = {n for n in names if n in _GOES_WITH_THE_LOG or n.startswith(XA_PREFIX)}
    for name in names:
        number = binlog.number(name.removesuffix(INDEX_SUFFIX))
        if number is not None and (number < later.first_file or number > since.file_no):
            gone.add(name)
    # A log of SQLite's would be applied to the file that is put in front of it.
    for name in sorted(gone - later.sizes.keys()):
        disk.unlink(name)
    disk.fsync_dir()
    for name in later.sizes:
        with contextlib.closing(source.open(name)) as there:
            if binlog.number(name) == since.file_no:
                with contextlib.closing(disk.open(name)) as file:
                    file.truncate(since.offset)
                    _copy(there, file, since.offset)
                    file.fdatasync()
                continue
            with replaced(disk, name) as file:
                _copy(there, file, 0)


class _Readable(Protocol):
    def pread(self, size: int, offset: int) -> bytes: ...
    def size(self) -> int: ...


def _copy(there: _Readable, file: File, at: int) -> None:
    for begin in range(0, there.size(), _PIECE_BYTES):
        file.pwrite(there.pread(_PIECE_BYTES, begin), at + begin)
