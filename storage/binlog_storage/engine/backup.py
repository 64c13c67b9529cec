"""What a backup of an open store is, whichever engine it has: a manifest, and the bytes of files in pieces.

Whoever takes one keeps the manifest as the file `binlog-server.backup` beside the others, from the first moment on:

    copying     files are missing; a crash or a lost connection leaves it so, and nobody takes it for a backup
    whole       all is there, durably. `prepare` makes a store of it
    applying    a later, incremental one is being put onto it
    preparing   recovery is at work in it
    prepared    a store. Whoever opens it as one removes the manifest: from then on nothing incremental fits it

`binlog-server prepare` may be given again behind each of these but the first. The file is one JSON object.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_storage.disk.disk import Disk, replaced
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import BackupRefused, NotAStore

BACKUP_NAME: Final = "binlog-server.backup"
_FORMAT: Final = 1
_ERROR_CHARS: Final = 300

COPYING: Final = "copying"
WHOLE: Final = "whole"
APPLYING: Final = "applying"
PREPARING: Final = "preparing"
PREPARED: Final = "prepared"


class Piece(NamedTuple):
    """Bytes of a file of `size` bytes. Those of one file come together and in order; gaps and the rest are zeros."""

    name: str
    size: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """The place from which on an incremental backup has the binlog: byte 0 of its first file is this one.

    history: the uuid of the redo log of the store. start_lsn: of the header of that file: another binlog has another.
    """

    history: str
    file_no: int
    offset: int
    start_lsn: int


@dataclass(frozen=True, slots=True)
class BackupRequest:
    """What a backup is to have.

    no_lock: nothing waits for it; files may go meanwhile.
    skip_binlog: the tables alone.
    since: where an earlier one has ended; since_gtid: only the files from this position on.
    """

    no_lock: bool = False
    skip_binlog: bool = False
    since: BackupPlace | None = None
    since_gtid: SlavePosition | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module.

    engine: as `binlog_storage_engine`. history: the uuid of the redo log of the store; log_uuid: that of the backup's.
    state: the binlog state at its point, as text. lsn: the LSN of that point.
    end: the place from which on a later one is wanted; None without a binlog.
    first_file: of the binlog as it was; earlier ones are to go from what this one is put onto.
    sizes: of its files, by their names. bytes_total: to be copied, about.
    log_bin: the base name of traditional binlog files.
    """

    engine: str
    history: str
    log_uuid: str
    state: str
    lsn: int
    end: BackupPlace | None
    first_file: int = 0
    since: BackupPlace | None = None
    skip_binlog: bool = False
    stage: str = COPYING
    sizes: dict[str, int] = field(default_factory=dict)
    bytes_total: int = 0
    notes: tuple[str, ...] = ()
    log_bin: str = ""

    def at(self, stage: str) -> Manifest:
        """The same at another stage."""
        return dataclasses.replace(self, stage=stage)

    def build(self) -> bytes:
        """As the file has it."""
        values = {"format": _FORMAT, **dataclasses.asdict(self)}
        return json.dumps(values, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Raises `NotAStore`."""
        try:
            values: dict[str, Any] = json.loads(data)
            if values.pop("format") != _FORMAT:
                raise NotAStore(f"{BACKUP_NAME} is of another version")
            for name in ("end", "since"):
                values[name] = None if values[name] is None else BackupPlace(**values[name])
            values["notes"] = tuple(values["notes"])
            made = cls(**values)
            made._require_types()
            return made
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise NotAStore(
                f"{BACKUP_NAME} is damaged or not ours: {str(error)[:_ERROR_CHARS]}"
            ) from None

    def _require_types(self) -> None:
        """Raises `TypeError`, `ValueError`: it may have come from a server that is not ours."""
        texts = [self.engine, self.history, self.log_uuid, self.state, self.stage, self.log_bin]
        counts = [self.lsn, self.first_file, self.bytes_total, *self.sizes.values()]
        for place in (self.end, self.since):
            if place is not None:
                texts.append(place.history)
                counts += [place.file_no, place.offset, place.start_lsn]
        if not all(isinstance(text, str) for text in (*texts, *self.notes, *self.sizes)):
            raise TypeError("a text is none")
        if not all(type(count) is int and 0 <= count < 1 << 64 for count in counts):
            raise TypeError("a number is none")
        if type(self.skip_binlog) is not bool:
            raise TypeError("skip_binlog is neither true nor false")
        if self.skip_binlog != (self.end is None):
            raise ValueError("it has an end without a binlog, or a binlog without an end")
        if self.end is not None and self.first_file > self.end.file_no:
            raise ValueError("its binlog begins behind its end")
        try:
            BinlogState.parse(self.state)
        except ServerError as error:
            raise ValueError(f"its state: {error.message}") from None


class Backup(Protocol):
    """One backup of an open store. First `begin`, then all `pieces`, then `finish`; in one thread or several by turns.

    It never holds up a commit.
    """

    def begin(self) -> Manifest:
        """Fix the point. Raises `BackupRefused`, `PositionPurged`, `DiskError`, `StoreFailed`."""

    def pieces(self) -> Iterator[Piece]:
        """All bytes. Raises as `begin`, and `CorruptBinlog`: no backup is made of damaged files."""

    def finish(self) -> Manifest:
        """What it has, at the stage `WHOLE`. Raises `BackupRefused` if the store has begun anew meanwhile."""

    def close(self) -> None:
        """Let go of all that it holds; twice is no error."""


@runtime_checkable
class BackupEngine(Protocol):
    """An engine of which backups can be made while it is open."""

    def backup(self, wanted: BackupRequest) -> Backup:
        """A backup that has not begun. Several may be made at a time."""


def read_manifest(disk: ReadableDisk) -> Manifest | None:
    """That of a directory; None if it is no backup. Raises `NotAStore`, `DiskError`."""
    if BACKUP_NAME not in disk.names():
        return None
    with contextlib.closing(disk.open(BACKUP_NAME)) as file:
        return Manifest.parse(file.pread(file.size(), 0))


def write_manifest(disk: Disk, manifest: Manifest) -> None:
    """Durable when it returns. Raises `DiskError`."""
    with replaced(disk, BACKUP_NAME) as file:
        file.pwrite(manifest.build(), 0)


def becomes_a_store(disk: Disk, where: str) -> None:
    """Somebody opens a directory as a store: if it is a prepared backup it is none any more.

    Raises `BackupRefused` for one that is not prepared.
    """
    if require_prepared(disk, where):
        disk.unlink(BACKUP_NAME)
        disk.fsync_dir()


def require_prepared(disk: ReadableDisk, where: object) -> bool:
    """Whether the directory is a backup. Raises `BackupRefused` for one that is not prepared."""
    manifest = read_manifest(disk)
    if manifest is None:
        return False
    require_by_itself(manifest, where)
    if manifest.stage != PREPARED:
        raise BackupRefused(
            f"{where} is a backup that is not prepared: binlog-server prepare {where}"
        )
    return True


def require_readable(disk: ReadableDisk, where: object) -> None:
    """Groups are to be read from the files of a directory, which may be a backup's.

    What an incremental one has begins in the middle of a file: a reader would call it damaged.
    Raises `BackupRefused`, `NotAStore`, `DiskError`.
    """
    manifest = read_manifest(disk)
    if manifest is not None:
        require_by_itself(manifest, where)


def require_by_itself(manifest: Manifest, where: object) -> None:
    """Raises `BackupRefused` for a backup of which no store can be made by itself, however it is prepared."""
    if manifest.stage == COPYING:
        raise BackupRefused(
            f"{where} is a backup that is not whole: its copy was interrupted. Delete it, and make another one"
        )
    if manifest.stage == APPLYING:
        raise BackupRefused(
            f"{where}: an incremental backup was being put onto it. Give it again, by --incremental-dir"
        )
    if manifest.since is not None:
        raise BackupRefused(
            f"{where} is an incremental backup: put it onto the one that it goes on from, by "
            f"binlog-server prepare EARLIER --incremental-dir {where}"
        )
