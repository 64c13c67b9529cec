"""The product with a bug put in, one at a time: a test that does not find them proves nothing.

Each plant changes the product for as long as its context lasts, and may put something between store and disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from binlog_protocol.gtid import BinlogState
from binlog_storage.binlog.durability import Durability
from binlog_storage.binlog.flusher import Flusher
from binlog_storage.binlog.log_writer import LogWriter
from binlog_storage.binlog.page_store import FullPages, PageStore
from binlog_storage.binlog.replay import _Applier
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk, File, one_by_one
from binlog_storage.engine import purge
from binlog_storage.engine.purge import FileFate
from binlog_storage.redo import format as redo_format
from binlog_storage.redo.log import RedoLog
from binlog_storage.redo.reader import RedoReader

Planted = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Plant:
    """One bug.

    scripts: histories, of `scripts.SCRIPTS`, in one of which it must be found.
    planted: the product has it inside of this context.
    wrap: put between the store and its disk.
    """

    name: str
    scripts: tuple[str, ...]
    planted: Planted = contextlib.nullcontext
    wrap: Callable[[Disk], Disk] | None = None


class Careless:
    """See `binlog_storage.disk.disk.Disk`. Leaves out some of the syncs."""

    def __init__(
        self, disk: Disk, *, directory: bool = True, file: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file = file
        self.names = disk.names
        self.make_folder = disk.make_folder
        self.lock = disk.lock
        self.modified = disk.modified
        self.size = disk.size
        self.close = disk.close
        self.rename = disk.rename
        self.reread = disk.reread
        self.unlink = disk.unlink

    def open(self, name: str, *, create: bool = False) -> File:
        file = self._disk.open(name, create=create)
        if not self._file(name):
            file.fdatasync = lambda: None  # type: ignore[method-assign]
        return file

    def fsync_dir(self) -> None:
        if self._directory:
            self._disk.fsync_dir()

    beside = staticmethod(one_by_one)


def _replaced(owner: Any, name: str, new: Callable[..., Any]) -> Planted:
    """`owner.name` is `new`, which is called with the old one first."""
    old = getattr(owner, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        return new(old, *args, **kwargs)

    return lambda: mock.patch.object(owner, name, method)


def _mark_first(old: Callable[..., None], durability: Durability, *given: object) -> None:
    if durability.mark.advance(durability.redo.write(durability.note)):
        durability.wake()
    old(durability, *given)


def _not_synced(
    _: object, redo: RedoLog, taken: Callable[[int], None], durable: Callable[[], object] | None
) -> int:
    redo.durable_lsn = redo.write(taken)
    if durable is not None:
        durable()
    return redo.durable_lsn


def _checkpoint_first(_: object, flusher: Flusher, *_given: object) -> None:
    with flusher.working:
        with flusher._lock:
            lsn = flusher._redo.lsn
            stand = flusher._writer.stand
            tail = flusher._writer.tail_taken()
        flusher._durability.sync_log()
        flusher._redo.write_checkpoint(lsn, stand)
        while batch := flusher._pages.ready(lsn, 64):
            flusher._write(batch)
        flusher._pages.write([tail])
        flusher._dirty.add(stand.file_no)
        flusher._sync_files()
        flusher.began(stand)


def _any_crc(_: object, redo: RedoReader, reader: Any, lsn: int, **__: object) -> Any:
    magic, epoch, there, size = redo_format.MTR_HEAD.unpack(
        reader.read(lsn, redo_format.MTR_HEAD.size)
    )
    if magic != redo_format.MTR_MAGIC or there != lsn or epoch != redo.checkpoint.epoch:
        return None
    if not redo_format.MTR_OVERHEAD < size <= redo.capacity - (lsn - redo.checkpoint.lsn):
        return None
    body = reader.read(lsn, size)[redo_format.MTR_HEAD.size : -redo_format.CRC.size]
    return redo_format.MiniTransaction(lsn, lsn + size, body)


def _published_first(_: object, flusher: Flusher) -> bool:
    with flusher.working, flusher._lock:
        end, state = flusher._writer.end, flusher._writer.state.copy()
        flusher._publication.publish(flusher._redo.epoch, end, state)
    return True


def _newest_first(
    old: Callable[..., list[FileFate]], *given: object, **more: object
) -> list[FileFate]:
    fates = old(*given, **more)
    return sorted(fates, key=lambda fate: -fate.file_no if fate.goes else 1)


def _removed_first(old: Callable[..., None], engine: IbbEngine, state: BinlogState) -> None:
    for file_no in engine._pages.files.numbers():
        engine._pages.files.remove(file_no)
    old(engine, state)


def _not_whole(_: object, writer: LogWriter) -> FullPages:
    return writer._pages.sealed_tail()


def _written_pages(_: object, pages: PageStore, file_no: int) -> int:
    written_file, page_no = pages.written_end
    return page_no if written_file == file_no else 0


PLANTS = [
    Plant(
        "names are not synced",
        ("synced", "files"),
        wrap=lambda disk: Careless(disk, directory=False),
    ),
    Plant(
        "a file is renamed before it is synced",
        ("synced",),
        wrap=lambda disk: Careless(disk, file=lambda name: not name.endswith(".new")),
    ),
    Plant(
        "the mark moves before the sync",
        ("synced",),
        _replaced(Durability, "sync_log", _mark_first),
    ),
    Plant(
        "the end is published before the sync",
        ("unsynced",),
        _replaced(Flusher, "publish", _published_first),
    ),
    Plant("the redo is written, not synced", ("synced",), _replaced(RedoLog, "flush", _not_synced)),
    Plant(
        "the redo is not checked",
        ("unsynced", "spilled"),
        _replaced(RedoReader, "_mtr_at", _any_crc),
    ),
    Plant(
        "a checkpoint comes before its pages",
        ("checkpoints", "files"),
        _replaced(Flusher, "checkpoint", _checkpoint_first),
    ),
    Plant(
        "pages are not synced for a checkpoint",
        ("checkpoints", "files"),
        _replaced(PageStore, "sync_file", lambda *_: None),
    ),
    Plant(
        "files are removed from the newest on",
        ("purge",),
        _replaced(purge, "fates", _newest_first),
    ),
    Plant(
        "a reset removes files before it is noted",
        ("reset",),
        _replaced(IbbEngine, "_start_anew", _removed_first),
    ),
    Plant(
        "a group is committed before its pages that are not logged are synced",
        ("bulk", "bulk in files"),
        _replaced(Flusher, "settle", lambda *_: None),
    ),
    Plant(
        "pages that are not logged are not looked at",
        ("bulk", "bulk by turns"),
        _replaced(_Applier, "_write_unlogged", lambda *_: None),
    ),
    Plant(
        "pages that are not logged are called safe once they are written",
        ("bulk", "bulk by turns"),
        _replaced(PageStore, "synced_pages", _written_pages),
    ),
    Plant(
        "a page that was written is not logged whole again",
        ("checkpoints",),
        _replaced(LogWriter, "tail_taken", _not_whole),
    ),
]
