"""A directory as a store that is converted or compared, whichever format it has. Nothing in it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from binlog_storage.binlog.stored_tables import TableEngine
from binlog_storage.classic.binlog import ClassicBinlog
from binlog_storage.classic.directory import bases
from binlog_storage.classic.durable_end import durable_end
from binlog_storage.classic.encryption import Keys
from binlog_storage.classic.errors import UnreadableBinlog
from binlog_storage.classic.file_list import of_index
from binlog_storage.classic.opening import has_group
from binlog_storage.classic.xa_files import Commitment, pieces_of, waiting
from binlog_storage.convert.tables import Remade, copy_tables, prepared_changes
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine import EngineWriter, GroupWriter
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import file_number
from binlog_storage.ibb.xa import Xid
from binlog_storage.intake.ibb_files import IbbFiles
from binlog_storage.intake.source import PreparedTransaction, StoreSource
from binlog_storage.tables.store import TableStore

_INDEX: Final = ".index"


class ClassicStore(ClassicBinlog):
    """See `binlog_storage.intake.source.StoreSource`. A MariaDB's prepared transactions are groups of its binlog; ours
    wait in files beside it.

    `running`: as for `store_source`: no more is read than what is durable, as its server has published.
    """

    def __init__(
        self, paths: Sequence[Path], *, running: bool = False, keys: Keys | None = None
    ) -> None:
        super().__init__(paths, keys)
        end = durable_end(ReadOnlyDisk(paths[-1].parent), self.heads) if running else None
        if end is not None:
            last, self.end = end
            del self.heads[last + 1 :]

    def prepared(self) -> list[PreparedTransaction]:
        """See `StoreSource`."""
        disk = ReadOnlyDisk(self.heads[-1].path.parent)
        names = {int(head.path.suffix[1:]): head.path.name for head in self.heads}

        def has(commitment: Commitment) -> bool:
            number, offset = commitment.place
            if number < min(names):
                return True
            return number in names and has_group(
                disk, names[number], offset, commitment.gtid, self.keys
            )

        return [
            PreparedTransaction(found.xid, partial(pieces_of, disk, found, self.keys))
            for found in waiting(disk, has)
        ]


def index_in(directory: Path, names: Iterable[str]) -> Path | None:
    """The index of the traditional binlog in a directory; None without one. Raises `NotAStore` where there are several.

    The one of a relay log is none.
    """
    found = []
    for name in sorted(name for name in names if name.endswith(_INDEX)):
        index = directory / name
        try:
            ClassicBinlog(of_index(index)[:1])
        except UnreadableBinlog as error:
            if "relay log" in str(error):
                continue
        found.append(index)
    if len(found) > 1:
        raise NotAStore(
            f"{directory} has several binlogs: {', '.join(path.name for path in found)}. Give the index of one instead "
            "of the directory"
        )
    return found[0] if found else None


def base_in(directory: Path, names: Iterable[str]) -> str | None:
    """The base name of the traditional binlog that a directory holds; None for one with .ibb files, or with neither.

    Raises `NotAStore` where there are several.
    """
    if any(file_number(name) is not None for name in names):
        return None
    found = bases(names)
    if len(found) > 1:
        index = index_in(directory, names)
        return None if index is None else index.name.removesuffix(_INDEX)
    return found[0] if found else None


def store_source(path: Path, *, running: bool = False, keys: Keys | None = None) -> StoreSource:
    """The store in a directory, or of the index of a traditional binlog. Raises `StorageError`, `OSError`.

    Args:
        running: a server of ours may be writing it.
        keys: for encrypted files.
    """
    if path.name.endswith(_INDEX) and path.is_file():
        return ClassicStore(of_index(path), running=running, keys=keys)
    names = ReadOnlyDisk(path).names()
    index = index_in(path, names)
    has_ibb = any(file_number(name) is not None for name in names)
    if index is not None and has_ibb:
        raise NotAStore(
            f"{path} has .ibb files and a traditional binlog: give {index} for the latter, or a copy of the .ibb files"
        )
    if index is not None:
        return ClassicStore(of_index(index), running=running, keys=keys)
    if not has_ibb:
        raise NotAStore(f"{path} has neither .ibb files nor the index of a traditional binlog")
    return IbbFiles(path, running=running)


def take_rest(
    engine: EngineWriter,
    source: StoreSource,
    rows: tuple[TableStore, TableEngine] | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """What is no group: let exactly those XA transactions wait in a store that wait in the source, in their order, and
    let its tables have the same rows. What was taken before and has ended since is rolled back: its group was taken.

    Durable when it returns. Returns how many wait. Raises `StorageError`.

    Args:
        rows: the tables of the source, and the engine as one that has tables; None: tables are left out.
        progress: see `copy_tables`.
    """
    for xid in engine.prepared():
        engine.rollback_prepared(xid)
    made: dict[Xid, Remade] = {}
    if rows is not None:
        tables, target = rows
        copy_tables(tables, target.tables, progress)
        made = prepared_changes(tables, target.tables)
    waiting = source.prepared()
    for one in waiting:
        if rows is not None and one.xid in made:
            trx = made[one.xid]()
            try:
                _prepare(engine, rows[1].writer_of(trx).begin(), one)
            except BaseException:
                trx.rollback()
                raise
        else:
            _prepare(engine, engine.begin(), one)
    engine.sync()
    return len(waiting)


def _prepare(engine: EngineWriter, writer: GroupWriter, one: PreparedTransaction) -> None:
    try:
        for piece in one.pieces():
            for at in range(0, len(piece), engine.cache_bytes):
                engine.wait_for_room()
                writer.spill(piece[at : at + engine.cache_bytes])
        writer.prepare(one.xid)
    except BaseException:
        writer.rollback()
        raise
