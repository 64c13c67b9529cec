"""When a commit may be answered: once it is as safe as the options say, here and with replicas."""

from __future__ import annotations

from collections.abc import Callable

from binlog_storage.engine import OpenBinlog
from binlog_storage.errors import StorageError

from binlog_server.commits.syncer import Committed, Syncer
from binlog_server.loop.defects import internal_error
from binlog_server.semi_sync.master import SemiSyncMaster


class Commits:
    """Decides for one server when a commit may be answered."""

    def __init__(self, engine: OpenBinlog, syncer: Syncer, semi_sync: SemiSyncMaster) -> None:
        self._engine = engine
        self._syncer = syncer
        self._semi_sync = semi_sync

    def on_commit(self, committed: Committed) -> None:
        """Call back, later, when everything appended so far is committed; with the error if it cannot be."""
        semi_sync = self._semi_sync
        if not semi_sync.enabled:
            self._syncer.on_commit(committed)
            return
        age = self._engine.age  # before the end, which may be that of the next age
        end = self._engine.written_end

        def done(error: StorageError | None) -> None:
            if error is None:
                try:
                    semi_sync.when_acknowledged(end, lambda: committed(None), committed, age)
                except Exception as defect:  # noqa: BLE001 - logged there
                    # It is durable here, and nobody would answer it any more: as if no replica had in time.
                    internal_error(defect, "semi-sync of a commit")
                    committed(None)
            else:
                committed(error)

        self._syncer.on_commit(done)

    def commit(self, committed: Committed, durable: Callable[[], object] | None) -> bool:
        """Commit everything appended so far in this call, if nobody else is kept waiting by that. False: it is called
        back, as `on_commit` does. `durable`: see `Syncer.commit`.
        """
        if self._semi_sync.options().rpl_semi_sync_master_enabled:
            self.on_commit(committed)
            return False
        return self._syncer.commit(committed, durable)

    def on_record(self, written: Committed) -> None:
        """As `on_commit`, of what no replica sees: a prepared transaction, or the end of one that is rolled back."""
        self._syncer.on_commit(written)

    def waits_for_replicas(self, committed: Committed) -> bool:
        """Whether it is durable here, and only replicas are waited for."""
        return self._semi_sync.is_waiting(committed)

    def give_up(self, committed: Committed, *, has_gone: bool = False) -> None:
        """Wait for no replicas; `has_gone`: there is nobody to call back."""
        self._semi_sync.give_up(committed, has_gone=has_gone)
