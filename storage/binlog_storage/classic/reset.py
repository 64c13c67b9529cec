"""RESET MASTER. The new first file is made under another name before anything goes: a crash leaves one or the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from binlog_protocol.gtid import BinlogState

from binlog_storage.classic.patience import Patience
from binlog_storage.classic.written_log import WrittenLog
from binlog_storage.errors import BinlogHasGtids, FileMissing, WaitGivenUp


class Reset:
    """Of one store.

    Args:
        purging: held by who takes files away.
    """

    def __init__(
        self, binlog: WrittenLog, patience: Patience, purging: AbstractContextManager[object]
    ) -> None:
        self._log = binlog
        self._files = binlog.files
        self._patience = patience
        self._purging = purging
        self.has_begun = True
        """Whether the one that a start has found at work had come so far that it was gone on with."""

    def finish(self) -> None:
        """Go on with a RESET MASTER that was at work: the old files are gone, the new first one is whole."""
        directory = self._files.directory
        names = set(self._files.disk.names())
        if directory.reset_name not in names:
            return
        if self._files.index and directory.name(self._files.index[-1]) in names:
            self.has_begun = False
            if self._log.rows is None:
                self._files.disk.unlink(directory.reset_name)
            return
        if not self._files.index:
            self._files.index = [directory.next_number(names)]
            directory.write_index(self._files.index)
        self._files.disk.rename(directory.reset_name, directory.name(self._files.index[-1]))
        self._files.disk.fsync_dir()

    def reset(
        self,
        state: BinlogState | None = None,
        given_up: Callable[[], bool] = lambda: False,
        *,
        only_if_empty: bool = False,
        number: int = 0,
    ) -> None:
        """See `EngineAdmin`. `number`: of the new first file, if no file there has that or a higher one."""
        begin = BinlogState(state.entries() if state is not None else [])

        def begun() -> None:
            with self._purging, self._log.alone():
                self._log.soundness.require_sound()
                is_empty = not len(self._log.state)
                if only_if_empty and not is_empty:
                    raise BinlogHasGtids("there are GTIDs in the binlog")
                self._log.sync_once()
                self._log.all_settled()
                # Without their groups a start would find them prepared; an error, and the binlog stays.
                self._log.xa.remove_ended()
                self._log.references.close(is_empty=is_empty)
                try:
                    self._start_anew(begin, number)
                finally:
                    self._log.references.open()

        self._patience.until_done(begun, given_up)
        self._log.soundness.wake()

    def _start_anew(self, state: BinlogState, wanted: int) -> None:
        """Remove all files and begin anew. A crash at any step leaves the old binlog, or the new one.

        Raises `DiskFull`: nothing was done.
        """
        directory, disk = self._files.directory, self._files.disk
        others = [n for name in disk.names() if (n := directory.number(name)) is not None]
        kept = (directory.name(n) for n in others if n not in set(self._files.index))
        number = max(wanted, directory.next_number(kept))
        rows = self._log.rows
        if rows is not None:
            rows.has_begun(begun=False)
        with contextlib.suppress(FileMissing):
            disk.unlink(directory.reset_name)
        checkpoint, self._files.checkpoint = self._files.checkpoint, None
        try:
            made = self._files.new_file(
                directory.reset_name, number, state, self._files.description()
            )
            try:
                made.file.fdatasync()
                if rows is not None:
                    disk.fsync_dir()
                    rows.will_begin()
                with self._files.indexing:
                    directory.note(self._files.index)
                    directory.write_index([])  # from now on it is the new one
            except BaseException:
                made.file.close()
                raise
        except BaseException:
            self._files.checkpoint = checkpoint
            raise
        old, self._files.index = self._files.index, [number]
        with self._log.soundness.failing(), self._files.indexing:
            self._log.current.file.close()
            for gone in old:
                directory.remove(gone)
            self._files.indexes.forget()
            self._files.indexes.clear(number)
            directory.end_note()
            disk.fsync_dir()
            try:
                self._patience.until_done(lambda: directory.write_index([number]))
            except WaitGivenUp as error:  # the next start goes on
                self._log.soundness.fail(error)
                raise
            disk.rename(directory.reset_name, directory.name(number))
            disk.fsync_dir()
        self._log.reader.forget()
        self._log.state, self._log.last_marker = state, None
        with self._log.extending:
            self._log.enter(number, made, (number,))
        if rows is not None:
            rows.has_begun(begun=True)
