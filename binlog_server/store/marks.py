"""A mark of a store that is served, and the way back to it: a master that has lost its tail, or has another history.

A mark is a backup of the moment, made a store. What was logged since is lost behind `StoreMark.restore`; with `differs`
each lost GTID is given away again at once, to a group that says nothing. For servers of tests: the old store is
deleted, once the new one is whole beside it (`replacement`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import OptionPreventsStatement
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import Gtid
from binlog_storage.backup.target import BackupTarget
from binlog_storage.convert.stores import store_source
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.sparse_copy import copy_sparse
from binlog_storage.engine.backup import BackupEngine, BackupRequest
from binlog_storage.ibb.file_names import LOCK_NAME
from binlog_storage.intake.source import FileStart

from binlog_server.settings.config import Config
from binlog_server.store.backups import Backups
from binlog_server.store.replacement import new_mark, remove_mark, replace_store
from binlog_server.store.store_directory import StoreDirectory, gone_on_in, prepare_backup

_STATEMENT: Final = b"DO 0 /* another history */"


@dataclass(frozen=True, slots=True)
class StoreMark:
    """A store as it was, in a folder of the store's own directory."""

    folder: Path

    @classmethod
    def make(cls, engine: BackupEngine, backups: Backups, config: Config) -> StoreMark:
        """Commits go on meanwhile: of those that nobody waits for the last may be missing. To be called in a thread.

        `config`: that of the server. Raises `ServerError`, `StorageError`, `OSError`.
        """
        if config.innodb_read_only:
            raise OptionPreventsStatement("--innodb-read-only")
        folder = new_mark(config.binlog_directory)
        try:
            with backups.running(), contextlib.closing(engine.backup(BackupRequest())) as backup:
                target = BackupTarget(OsDisk(folder), str(folder))
                with contextlib.closing(target):
                    target.begin(backup.begin())
                    for piece in backup.pieces():
                        target.take(piece)
                    target.finish(backup.finish())
            prepare_backup(
                _in(config, folder),
                skip_binlog=False,
                incremental=None,
                progress=lambda what: None,
            )
        except BaseException:
            remove_mark(folder)
            raise
        return cls(folder)

    def restore(self, config: Config, *, differs: bool) -> None:
        """The store of this configuration, which nobody has open, is that of the mark.

        Raises `StorageError`, `OSError`; then it is whole all the same: the old one, or that of the mark.
        """
        path = gone_on_in(config.binlog_directory)
        lost = self._lost(config, path) if differs else []

        def make(folder: Path) -> None:
            try:
                shutil.copytree(self.folder, folder, dirs_exist_ok=True, copy_function=copy_sparse)
            except shutil.Error as error:  # it goes on to the end, and has a list
                (_, target, why), *_ = error.args[0]
                raise OSError(f"cannot write {target}: {why}") from None
            if lost:
                store = StoreDirectory.of(_in(config, folder))
                try:
                    for gtid in lost:
                        store.engine.append(_another(gtid), gtid)
                    store.engine.sync()
                finally:
                    store.close()

        disk = OsDisk(path)
        with contextlib.closing(disk):
            disk.lock(LOCK_NAME)
            replace_store(path, make)

    def _lost(self, config: Config, path: Path) -> list[Gtid]:
        kept = set(_gtids(_in(config, self.folder)))
        return [gtid for gtid in _gtids(_in(config, path)) if gtid not in kept]

    def discard(self) -> None:
        """There is no way back to it any more."""
        remove_mark(self.folder)


def _in(config: Config, folder: Path) -> Config:
    return dataclasses.replace(config, binlog_directory=folder)


def _gtids(config: Config) -> Iterator[Gtid]:
    with contextlib.closing(
        store_source(config.binlog_directory, keys=config.binlog_keys())
    ) as source:
        for item in source.items(0):
            if isinstance(item, GroupRun):
                yield from (item.gtid(index) for index in range(len(item)))
            elif not isinstance(item, FileStart):
                for _ in item.rest or ():
                    pass
                if item.gtid is not None:
                    yield item.gtid


def _another(gtid: Gtid) -> bytes:
    # Of another second than all that is lost: a group of rows and a statement of one second may be the same change.
    origin, then = Origin(gtid.server_id), int(time.time()) + 1
    statement = origin.statement(_STATEMENT, then)
    return origin.begin(gtid, then) + statement + origin.commit(gtid.seq_no, then)
