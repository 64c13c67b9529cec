"""A directory that is ours: the store in it, its state, and the lock that keeps others out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Self

from binlog_protocol.dataclass import dataclass
from binlog_storage.backup.prepare import prepare, require_preparable
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.stored_tables import TableEngine
from binlog_storage.classic.directory import bases, belongs
from binlog_storage.classic.encryption import Keys
from binlog_storage.classic.opening import reaching_as_it_is
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.classic.xa_files import XA_PREFIX
from binlog_storage.disk.disk import Disk, OsDisk, mapped
from binlog_storage.disk.durable_files import replace_file, sync_folder
from binlog_storage.disk.local_path import link_to_nothing, no_directory, require_room
from binlog_storage.disk.overlay_disk import OverlayDisk
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.disk.state import (
    LOST_WITH_STATE,
    STATE_NAME,
    StateStore,
    StoreFacts,
)
from binlog_storage.engine import BinlogEngine, EngineAdmin
from binlog_storage.engine.backup import BACKUP_NAME, Manifest, becomes_a_store
from binlog_storage.engine.references import Reason
from binlog_storage.errors import BackupRefused, DiskError, DiskFull, NotAStore, StoreFailed
from binlog_storage.ibb.file_names import LOCK_NAME, file_number
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.tables.facts import OfflineFacts
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.tables.sqlite_rows import SQLITE_NAME, SqliteRows

from binlog_server.settings.config import LOG_BIN, Config, ConfigError
from binlog_server.settings.engine_limits import INNODB, TRADITIONAL
from binlog_server.store.replacement import (
    MARKS,
    MOVING,
    REPLACED,
    REPLACING,
    finish,
    is_half_done,
    remove_marks,
)
from binlog_server.upstreams.password import KEY_NAME

log = logging.getLogger(__name__)

# Of a store whose state was lost; a new one is made beside them.
_OURS = frozenset(
    {
        REDO_NAME,
        PUBLICATION_NAME,
        TABLES_NAME,
        f"{REDO_NAME}.new",
        f"{PUBLICATION_NAME}.new",
        f"{TABLES_NAME}.new",
        f"{STATE_NAME}.new",
        KEY_NAME,
        f"{KEY_NAME}.new",
        SQLITE_NAME,
        f"{SQLITE_NAME}-wal",
        f"{SQLITE_NAME}.new",
    }
)
# Which manifests of archives were seen.
ARCHIVES_NAME: Final = "binlog-server.archives"
# A file of a store that a conversion has not made whole yet.
CONVERTING_NAME = "binlog-server.converting"
# A file that tells where the store of a directory has gone on, in the other format.
MOVED_NAME = "binlog-server.moved"
_IGNORED = _OURS | {
    *(LOCK_NAME, CONVERTING_NAME, MOVED_NAME, BACKUP_NAME, f"{BACKUP_NAME}.new"),
    *(REPLACING, REPLACED, MOVING, MARKS),
    *(ARCHIVES_NAME, f"{ARCHIVES_NAME}.new"),
    "lost+found",
}


@dataclass(frozen=True, slots=True)
class WantedStore:
    """The kind of store that is asked for.

    engine: `binlog_storage_engine`; None: that of the directory, INNODB for a new one.
    log_bin: base name of traditional files; None: as above, LOG_BIN.
    options: makes those of a traditional store from its base name; ValueError for some that it cannot have.
    """

    engine: str | None = None
    log_bin: str | None = None
    options: Callable[[str], ClassicOptions] = ClassicOptions


_OF_ANY_KIND: Final = WantedStore()


class StoreDirectory:
    """Opens a directory, or raises and leaves it as it was.

    Args:
        background: files are made ahead and purged from now on; without it from `start` on, when all that holds files
            back is known.
        patient: on a full disk it is opened all the same, see `PatientDisk`.
        converting: it is not whole yet; `converted` says when it is.
        as_it_lies: nothing in it is changed; it may hold other things, and be written by nobody.
    """

    def __init__(
        self,
        path: Path,
        options: StoreOptions,
        wanted: WantedStore = _OF_ANY_KIND,
        *,
        background: bool = True,
        patient: bool = False,
        converting: bool = False,
        as_it_lies: bool = False,
    ) -> None:
        """`options`: of an `.ibb` store. Raises `NotAStore`, `StoreInUse`, `CorruptBinlog`, `DamagedBinlog`,
        `DiskError`; `DiskFull` where a new store has no room; `ConfigError`.
        """
        disk = _as_it_lies(path) if as_it_lies else _locked(path, patient=patient)
        try:
            self._disk = disk
            opened: IbbEngine | ClassicEngine
            becomes_a_store(disk, str(path))
            names = set(disk.names())
            base = _traditional_base(path, names, wanted)
            if converting:
                self._begin_converting(names)
            elif CONVERTING_NAME in names:
                raise NotAStore(
                    f"{path} was not made whole by binlog-server convert: give the same command again. If it is to be "
                    f"taken as it is, delete {CONVERTING_NAME} in it"
                )
            how = _How(background, as_it_lies)
            if base is None:
                opened = _open_innodb(path, disk, options, names, how)
            else:
                opened = _open_traditional(path, disk, base, wanted, how)
            if as_it_lies:
                opened.hold("innodb_read_only")  # or a purge would hide files
            self.path = path
            self.engine: BinlogEngine = opened
            self.table_engine: TableEngine | None = opened
            self.state: StoreFacts = opened.facts
            self._start = opened.start
            self._references = opened.references
        except BaseException:
            disk.close()
            raise

    @classmethod
    def of(
        cls,
        config: Config,
        *,
        background: bool = True,
        patient: bool = False,
        converting: bool = False,
        to_serve: bool = False,
        keeps_marks: bool = False,
    ) -> Self:
        """That of a server with this configuration; the one in which it has gone on, if it has.

        to_serve: with `innodb_read_only` as it lies; who does anything else with it would change it.
        keeps_marks: those in it are of this process; otherwise one that was killed has left them.
        """
        if config.innodb_read_only and not to_serve:
            raise ConfigError("innodb_read_only: this would write the store, leave it out")
        path = config.binlog_directory
        wanted = WantedStore(
            config.binlog_storage_engine, config.log_bin, config.traditional_options
        )
        moved = gone_on_in(path)
        if moved != path:
            log.warning(
                "the store of %s has gone on in %s by ALTER BINLOG CONVERT: write that as binlog_directory",
                path,
                moved,
            )
            wanted = WantedStore(options=config.traditional_options)  # it says itself what it is
        try:
            options = config.store_options() if wanted.engine != TRADITIONAL else StoreOptions()
        except ValueError as error:
            raise ConfigError(str(error)) from None
        directory = cls(
            moved,
            options,
            wanted,
            background=background,
            patient=patient,
            converting=converting or (moved != path and not config.innodb_read_only),
            as_it_lies=config.innodb_read_only,
        )
        if moved != path and not config.innodb_read_only:
            directory.converted()  # it was killed in between
        if to_serve and not keeps_marks and not config.innodb_read_only:
            with mapped("remove", moved / MARKS):
                remove_marks(moved)
        return directory

    def _begin_converting(self, there: set[str]) -> None:
        if CONVERTING_NAME not in there:
            if there - {LOCK_NAME, "lost+found"}:
                return  # it was a store before: it is one whatever comes
            self._disk.open(CONVERTING_NAME, create=True).close()
            self._disk.fsync_dir()

    def converted(self) -> None:
        """The store is whole: all is durable. Raises `DiskError`."""
        if CONVERTING_NAME in self._disk.names():
            self._disk.unlink(CONVERTING_NAME)
            self._disk.fsync_dir()

    def start(self) -> None:
        """See `background`."""
        self._start()

    @property
    def reads_files(self) -> bool:
        """Whether a statement reads files, or somebody else holds them by name."""
        return self._references.count(Reason.NAMED) > 0

    def close(self) -> None:
        """Sync and let go."""
        self.engine.close()


class _How(NamedTuple):
    """See `StoreDirectory`."""

    background: bool
    as_it_lies: bool

    def require_room(self, path: Path, redo: int, first: int) -> None:
        """See `_require_room`."""
        if not self.as_it_lies:
            _require_room(path, redo, first)

    def row_keeper(self, path: Path) -> SqliteRows | None:
        """That of a directory. Raises `NotAStore` for one that would be changed."""
        rows = SqliteRows(path / SQLITE_NAME)
        if not self.as_it_lies:
            return rows
        if rows.exists:
            raise NotAStore(
                f"{path} has tables with ENGINE=SQLITE ({SQLITE_NAME}), which are not served with innodb_read_only"
            )
        return None


def _open_innodb(
    path: Path, disk: Disk, options: StoreOptions, there: set[str], how: _How
) -> IbbEngine:
    has_files = any(file_number(name) is not None for name in there)
    if not has_files and REDO_NAME not in there:
        how.require_room(path, options.innodb_log_file_size, options.max_binlog_size)
    if STATE_NAME not in there and has_files:
        log.warning(
            "%s has .ibb files and no %s: it is a store of MariaDB, or the state was lost, and with it %s",
            path,
            STATE_NAME,
            LOST_WITH_STATE,
        )
    return IbbEngine(
        disk,
        options,
        facts=StateStore(disk),
        background=how.background,
        row_keeper=how.row_keeper(path),
    )


def _open_traditional(
    path: Path, disk: Disk, base: str, wanted: WantedStore, how: _How
) -> ClassicEngine:
    try:
        options = wanted.options(base)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if REDO_NAME not in disk.names():
        how.require_room(path, options.innodb_log_file_size, 0)
    return ClassicEngine(
        disk,
        options,
        background=how.background,
        locked=True,
        facts=StateStore(disk),
        row_keeper=how.row_keeper(path),
        as_it_lies=how.as_it_lies,
    )


def _traditional_base(path: Path, there: set[str], asked: WantedStore) -> str | None:
    """The base name of the traditional store that this directory is to be; None for an `.ibb` one.

    What is there says what the directory is. Raises `NotAStore` where an option says something else.
    """
    engine, wanted = asked.engine, asked.log_bin
    found = bases(there)
    is_innodb = any(file_number(name) is not None for name in there) or (
        REDO_NAME in there and not found
    )
    if found and is_innodb:
        raise NotAStore(
            f"{path} has .ibb files and {found[0]}.index: two binlogs. Move one of them to a directory of its own"
        )
    if is_innodb:
        if engine == TRADITIONAL:
            raise NotAStore(
                f'{path} is an .ibb store, and binlog_storage_engine="" asks for traditional binlog files: leave that '
                "out, or give another directory"
            )
        return None
    if not found:
        return wanted or LOG_BIN if engine == TRADITIONAL else None
    if engine == INNODB:
        raise NotAStore(
            f"{path} holds traditional binlog files ({found[0]}.index), and binlog_storage_engine={INNODB} asks for "
            ".ibb files: leave that out, or give another directory"
        )
    if not wanted and len(found) == 1:
        return found[0]
    if wanted not in found:
        raise NotAStore(
            f"{path} holds the binlog of {' and '.join(map(repr, found))}: "
            + (
                f"log_bin={wanted} is none of them"
                if wanted
                else 'say which is meant by log_bin, with binlog_storage_engine=""'
            )
        )
    return wanted


def _require_room(path: Path, redo: int, first: int) -> None:
    """Check the room for a new store, before anything is made of it. Raises `DiskFull`.

    Args:
        redo: bytes of the redo log. first: those of the first file, where it is made whole.
    """
    try:
        with mapped("look at", path):
            require_room(path, redo, first)
    except DiskFull as error:
        raise DiskFull(f"{error}. Nothing was made but the lock") from None


def gone_on_in(path: Path) -> Path:
    """The directory in which a store is served: that which its server has gone on in, or the given one.

    Raises `NotAStore`, `DiskError`.
    """
    seen = [path]
    while True:
        with mapped("read", path / MOVED_NAME):
            try:
                text = (path / MOVED_NAME).read_text(encoding="utf-8")
            except (FileNotFoundError, NotADirectoryError):
                return path
        path = Path(text.removesuffix("\n"))
        if not path.is_dir() or path in seen:
            raise NotAStore(
                f"{seen[-1]} has gone on in {path}, which is not there: give the directory that it is in now"
            )
        seen.append(path)


def go_on_in(path: Path, other: Path) -> None:
    """From now on the store of a directory is that of the other one: durable when it returns.

    Raises `DiskError`: it is not so; `StoreFailed`: nobody knows, as the disk has failed in between.
    """
    note = path / MOVED_NAME
    try:
        replace_file(note, f"{other.absolute()}\n".encode())
    except OSError as error:
        try:
            note.unlink(missing_ok=True)
            sync_folder(path)
        except OSError as again:
            raise StoreFailed(
                f"{note} could neither be written ({error.strerror}) nor removed ({again.strerror}): remove it if it "
                "is there, and restart"
            ) from None
        raise DiskError(f"{note} could not be written: {error.strerror}") from None


def has_no_store(path: Path) -> bool:
    """Whether a directory is missing, or has nothing: a store would be made there. Raises `DiskError`, `NotAStore`."""
    with mapped("read", path):
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    if path.exists():
        _require_ours(path, names)
    return not names - {LOCK_NAME, "lost+found"}


def require_new(path: Path) -> None:
    """Raise `NotAStore` unless a directory is missing, empty, or one that a conversion has begun."""
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        if CONVERTING_NAME not in names and names - {LOCK_NAME, "lost+found"}:
            raise NotAStore(
                f"{path} is not empty: give a new directory, or one that binlog-server convert --online has begun"
            )


def open_state(
    path: Path, keys: Keys | None = None, *, as_it_lies: bool = False
) -> tuple[OfflineFacts, Disk]:
    """The state alone, for the command line; close the disk afterwards. Raises as `StoreDirectory`.

    keys: of an encrypted binlog, whose end says which rows count.
    as_it_lies: nothing in the directory is changed, and none is made.
    """
    path = gone_on_in(path)
    disk: Disk
    if as_it_lies:
        has_no_store(path)  # raises for a directory of others
        disk = OverlayDisk(path)
        disk.lock(LOCK_NAME)
    else:
        disk = _locked(path)
    try:
        becomes_a_store(disk, str(path))
        found = bases(disk.names())
        reaches = reaching_as_it_is(disk, found[0], keys) if len(found) == 1 else None
        return OfflineFacts(disk, reaches), disk
    except BaseException:
        disk.close()
        raise


def prepare_backup(
    config: Config,
    *,
    skip_binlog: bool,
    incremental: Path | None,
    progress: Callable[[str], None],
    dry_run: bool = False,
) -> Manifest:
    """Make a store of the backup in the directory of this configuration: see `prepare`. Raises as `StoreDirectory`.

    dry_run: only look whether it can be made.
    """
    path = config.binlog_directory
    if not path.is_dir():
        raise NotAStore(no_directory(path))
    for folder in (path, incremental):
        if folder is not None:
            _require_no_links(folder)
    later = None if incremental is None else ReadOnlyDisk(incremental)
    if dry_run:
        return require_preparable(
            ReadOnlyDisk(path), str(path), skip_binlog=skip_binlog, incremental=later
        )
    if not (path / LOCK_NAME).exists():  # what is no backup is left as it is, without a lock
        require_preparable(
            ReadOnlyDisk(path), str(path), skip_binlog=skip_binlog, incremental=later
        )
    disk = _locked(path)
    try:
        how = _How(background=False, as_it_lies=False)

        def opened(manifest: Manifest) -> EngineAdmin:
            if manifest.engine == TRADITIONAL:
                wanted = WantedStore(options=config.traditional_options)
                return _open_traditional(path, disk, manifest.log_bin, wanted, how)
            return _open_innodb(path, disk, config.store_options(), set(disk.names()), how)

        return prepare(
            disk,
            str(path),
            opened,
            skip_binlog=skip_binlog,
            incremental=later,
            progress=progress,
        )
    finally:
        disk.close()


def _require_no_links(folder: Path) -> None:
    """A tar from a stranger may have links to files of this machine, which would become a part of the store.

    Raises `BackupRefused`.
    """
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_symlink():
            raise BackupRefused(
                f"{entry} is a symbolic link: no backup has one. Put the file there, or make another backup"
            )


def _locked(path: Path, *, patient: bool = False) -> Disk:
    """The disk of our directory, with its lock. Raises `NotAStore`, `StoreInUse`, `DiskError`."""
    if path.is_dir():
        _require_ours(path, (entry.name for entry in path.iterdir()))
    elif path.exists() or link_to_nothing(path) is not None:
        raise NotAStore(no_directory(path))
    below = OsDisk(path)
    below.lock(LOCK_NAME)
    try:
        with mapped("finish the store in", path):
            finish(path)
        return PatientDisk(below) if patient else below
    except BaseException:
        below.close()
        raise


def _begun(path: Path, names: set[str]) -> list[str]:
    """As `bases`, of traditional stores that were being made when the server ended: their first index is empty, and
    has not its name yet."""
    new = {name for name in names if name.endswith(".new") and not (path / name).stat().st_size}
    return bases(name.removesuffix(".new") for name in new)


def _as_it_lies(path: Path) -> Disk:
    """The disk of a directory that is not changed, with its lock. Raises `NotAStore`, `StoreInUse`, `DiskError`."""
    disk = OverlayDisk(path)
    names = disk.names()
    if is_half_done(names):
        raise NotAStore(
            f"the store in {path} is being replaced by an older one: start its server once"
        )
    if not bases(names) and not any(file_number(name) is not None for name in names):
        raise NotAStore(f"{path} has no binlog, and innodb_read_only makes none")
    disk.lock(LOCK_NAME)
    return disk


def _require_ours(path: Path, names: Iterable[str]) -> None:
    """Raise `NotAStore` unless the directory has our state, or nothing but files of binlogs, or nothing."""
    found = set(names) - _IGNORED
    if STATE_NAME in found:
        return
    binlogs = bases(found) or _begun(path, found)
    foreign = sorted(
        name
        for name in found
        if file_number(name) is None
        and name != CACHE_FOLDER
        and not name.startswith(XA_PREFIX)
        and not any(belongs(name, base) for base in binlogs)
    )
    if foreign:
        raise NotAStore(
            f"{path} is not a binlog store: it holds {foreign[0]!r}"
            f"{f' and {len(foreign) - 1} more' if len(foreign) > 1 else ''} and no {STATE_NAME}. Give an "
            "empty directory, or one with nothing but .ibb files in it, or nothing but traditional binlog files and "
            "their index"
        )
