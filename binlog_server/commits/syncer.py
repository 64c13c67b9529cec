"""Brings what was appended on the loop to the disk, from a thread, and tells the loop when it is committed.

What "committed" means is `flush_log_at_trx_commit`, by MariaDB's numbers:

    1, 3   durable: one sync serves all that was appended before it began
    2      handed to the operating system; durable within `flush_log_at_timeout` seconds
    0      appended; durable within `flush_log_at_timeout` seconds

Where that is durable, `sync_binlog` may say less:

    1   durable
    0   handed to the operating system, as 2 above
    N   the same, but one group of commits in N waits until it is durable

A sync that fails is the end of writing. One that ends in a defect of ours is said and done again, after a pause.

Whatever it says, replicas see only what is durable: `request` is for whoever does not want to wait for the next second.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

from binlog_storage.defects import Defects
from binlog_storage.engine import EngineWriter
from binlog_storage.errors import StorageError, WaitGivenUp

from binlog_server.loop.earliest_call import EarliestCall

log = logging.getLogger(__name__)

Committed = Callable[[StorageError | None], None]
_Work = Callable[[], Exception | None]

_WRITTEN = 2
_APPENDED = 0
_NOT_DURABLE = (_APPENDED, _WRITTEN)
_SHORT_SYNC_S = 0.001
_SYNCS_OF_LATE = 16
RETRY_S = 1.0  # after a defect


class Syncer:
    """Syncs for all commits of one event loop. After a failure every callback gets the error: writing has ended.

    Args:
        flush_log_at_trx_commit: 0, 1, 2 or 3.
        flush_log_at_timeout: seconds, for 0 and 2.
        failed: told once of the error after which nothing is accepted.
        alone: whether a single client is all there is to serve. Handing a short sync to the thread and back costs a
            third of it; with nobody else to keep waiting, the loop does it itself, as long as syncs are short.
        clock: what tells how long a sync takes, in seconds.
    """

    def __init__(
        self,
        engine: EngineWriter,
        *,
        flush_log_at_trx_commit: int = 1,
        flush_log_at_timeout: float = 1.0,
        sync_binlog: int = 1,
        failed: Callable[[StorageError], None] | None = None,
        alone: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self.flush_log_at_trx_commit = flush_log_at_trx_commit
        self.flush_log_at_timeout = flush_log_at_timeout
        self.sync_binlog = sync_binlog
        self._groups = 0  # of commits that were handed to the operating system together
        self._wanted: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()  # None ends the thread
        self._thread: threading.Thread | None = None  # from the first sync on, or `start`
        self._syncing = False
        self._began = 0.0  # the sync that is under way, or is tried again
        self._scheduled = False
        self._again = False
        self._next: list[Committed] = []  # served by the sync that begins next
        self._current: list[Committed] = []  # served by the one under way
        self._written: list[Committed] = []  # wait for the operating system only
        self._behind: list[Committed] = []  # the same, where that cannot be done on the loop
        self._timer = EarliestCall()
        self._timer_s = flush_log_at_timeout  # for which it was set last
        self._failure: StorageError | None = None
        self._defects = Defects()
        self._failed = failed
        self._alone = alone
        self._clock = clock
        self._sync_s = 1.0  # how long one takes, of late
        # Readers that have got everything durable and wait: what is appended is for them to get at once.
        self.readers_waiting = 0
        self.readers_rest_s: Callable[[], float] = lambda: 0.0
        """How long those readers will not look, in seconds: what nobody else waits for may share a sync until then."""
        self.while_moving: Callable[[Callable[[], bool]], bool] = lambda work: work()
        """Calls what may sync in this call: what those readers do then is done in it, too."""

    @property
    def waiting_s(self) -> float:
        """Seconds since the sync under way began, for which commits wait; 0 if none is."""
        return time.monotonic() - self._began if self._began else 0.0

    @property
    def _setting(self) -> int:
        """What a commit waits for, as a value of `flush_log_at_trx_commit`."""
        if self.sync_binlog != 1 and self.flush_log_at_trx_commit not in _NOT_DURABLE:
            return _WRITTEN
        return self.flush_log_at_trx_commit

    @property
    def failure(self) -> StorageError | None:
        """The error that ended writing; None while all is well."""
        return self._failure

    def on_commit(self, committed: Committed) -> None:
        """Call back, later, when everything appended so far is committed; with the error if it cannot be."""
        setting = self._setting
        if self._failure is not None:
            self._loop.call_soon(committed, self._failure)
        elif setting == _APPENDED:
            self._loop.call_soon(committed, None)
            self._sync_in_time()
        elif setting == _WRITTEN:
            self._written.append(committed)
            self._schedule()
            self._sync_in_time()
        else:
            self.on_durable(committed)

    def commit(self, committed: Committed, durable: Callable[[], object] | None = None) -> bool:
        """Commit everything appended so far in this call, without a thread and a turn of the loop: True.

        Only where nobody is kept waiting by it, and it would be done on the loop anyway. False: it is called back, as
        `on_commit` does, also with what this has failed with.

        `durable`: see `EngineWriter.sync`; if it is called, then in this call, and in front of what else is told.
        """
        if self._failure is None:
            if self.flush_log_at_trx_commit in _NOT_DURABLE:
                if not self._scheduled and self._alone() and self._is_written():
                    self._sync_in_time()
                    return True
            elif self.sync_binlog == 1:
                if not self._scheduled and self._is_synced(durable):
                    return True
                self._next.append(committed)  # as `on_commit`: most commits of many sessions
                if not self._scheduled:
                    self._schedule()
                return False
        self.on_commit(committed)
        return False

    def _is_synced(self, durable: Callable[[], object] | None = None) -> bool:
        """Sync in this call, if nobody is kept waiting by it, and it would be done on the loop anyway. False: it was
        not, or has failed, which all are told by `_done`.
        """
        if self._syncing or self._sync_s >= _SHORT_SYNC_S or not self._alone():
            return False
        error = self._sync(durable)
        if error is None:
            return True
        self._sync_s = 1.0  # not on the loop
        if not isinstance(error, WaitGivenUp):
            self._syncing = True
            self._began = time.monotonic()
            self._loop.call_soon(self._done, error)
        return False

    def _is_written(self) -> bool:
        """Hand everything to the operating system, if a commit waits for that; False if it cannot be done at once."""
        if self.flush_log_at_trx_commit == _APPENDED:
            return True
        error = self._hand_over()
        if isinstance(error, StorageError) and not isinstance(error, WaitGivenUp):
            self.fail(error)
        return error is None

    def appended(self) -> None:
        """Note an append that nobody waits for: it becomes durable as the settings say."""
        if self._setting in _NOT_DURABLE:
            self._sync_in_time()
        elif (rest_s := self.readers_rest_s()) > 0:
            self._sync_within(rest_s)
        else:
            self._sync_now()

    def on_durable(self, durable: Committed) -> None:
        """Call back, later, when everything appended so far is durable, whatever the setting; or with the error."""
        if self._failure is not None:
            self._loop.call_soon(durable, self._failure)
            return
        self._next.append(durable)
        self._schedule()

    def request(self) -> None:
        """Ask for a sync of everything appended so far, without waiting."""
        self._again = True
        self._schedule()

    async def synced(self) -> None:
        """Wait until everything appended so far is durable."""
        await self._wait(self.on_durable)

    async def committed(self) -> None:
        """Wait until everything appended so far is committed."""
        await self._wait(self.on_commit)

    async def close(self) -> None:
        """Finish what was requested, and end the thread."""
        if self._timer.cancel():
            self.request()
        while self._failure is None and (
            self._syncing or self._again or self._next or self._written or self._behind
        ):
            await self._wait(self.on_durable, quietly=True)
        if self._thread is not None:
            self._wanted.put(None)
            await asyncio.to_thread(self._thread.join)

    async def _wait(self, register: Callable[[Committed], None], *, quietly: bool = False) -> None:
        future = self._loop.create_future()

        def done(error: StorageError | None) -> None:
            if not future.done():
                future.set_result(error)

        register(done)
        error = await future
        if error is not None and not quietly:
            raise error

    def _sync_in_time(self) -> None:
        if self.readers_waiting:
            self.request()
        elif self._timer_s != self.flush_log_at_timeout or not self._timer.is_set:
            # One that is set comes early enough: it was set for who came before.
            self._timer_s = self.flush_log_at_timeout
            self._timer.by(self._loop.time() + self._timer_s, self._sync_now)

    def _sync_within(self, seconds: float) -> None:
        self._timer.by(self._loop.time() + seconds, self._sync_now)

    def _sync_now(self) -> None:
        """In this call, if nobody is kept waiting by that; else as `request`."""
        if self._scheduled or self._failure is not None or not self.while_moving(self._is_synced):
            self.request()

    def _schedule(self) -> None:
        # At the end of this round of the loop: all clients that were heard in it share one sync.
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        if self._written:
            self._write()
        is_sync = self._again or bool(self._next)
        if self._syncing or not (is_sync or self._behind):
            return
        self._syncing = True
        self._began = self._began or time.monotonic()
        self._again = False
        self._current = [*self._behind, *self._next]
        self._behind, self._next = [], []
        if is_sync and self._sync_s < _SHORT_SYNC_S and self._alone():
            error = self._sync()
            if not isinstance(error, WaitGivenUp):
                self._done(error)
                return
            self._sync_s = 1.0  # not on the loop
        try:
            self.start()
        except RuntimeError as error:  # the system has no more threads now
            self._done(error)
            return
        self._wanted.put(self._sync if is_sync else self._hand_over)

    def start(self) -> None:
        """Start the thread, if it does not run. Raises `RuntimeError` if there can be none."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="binlog-sync", daemon=True)
            thread.start()
            self._thread = thread

    def _write(self) -> None:
        written, self._written = self._written, []
        self._groups += 1
        every = 0 if self.flush_log_at_trx_commit == _WRITTEN else self.sync_binlog
        if every and self._groups % every == 0:
            self._next += written
            return
        try:
            self._engine.write_log()
        except WaitGivenUp:  # a full disk, a new file that begins: the thread may wait
            self._behind += written
            return
        except StorageError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - told there
            self._defect(error, self._schedule)
            self._written = [*written, *self._written]
            return
        self._tell(written)

    def fail(self, error: StorageError) -> None:
        """Note that writing has ended; callbacks get the error."""
        if self._failure is None:
            self._failure = error
            if self._failed is not None:
                self._failed(error)

    def _run(self) -> None:
        """The thread."""
        while (work := self._wanted.get()) is not None:
            error = work()
            try:
                self._loop.call_soon_threadsafe(self._done, error)
            except RuntimeError:
                return  # the loop is closed; nobody waits

    def _sync(self, durable: Callable[[], object] | None = None) -> Exception | None:
        began = self._clock()
        try:
            self._engine.sync(durable)
        except Exception as failure:  # noqa: BLE001 - told by the loop
            return failure
        self._sync_s += (self._clock() - began - self._sync_s) / _SYNCS_OF_LATE
        return None

    def _hand_over(self) -> Exception | None:
        try:
            self._engine.write_log()
        except Exception as failure:  # noqa: BLE001 - told by the loop
            return failure
        return None

    def _done(self, error: Exception | None) -> None:
        if error is not None and not isinstance(error, StorageError):
            self._defect(error, self._try_again)
            self._next, self._current = [*self._current, *self._next], []
            self._again = True
            return
        self._syncing = False
        self._began = 0.0
        if error is not None:
            self.fail(error)
        finished, self._current = self._current, []
        if self._failure is None:
            if self._next or self._again or self._behind:
                self._schedule()
        else:
            finished += self._next + self._written + self._behind
            self._next, self._written, self._behind, self._again = [], [], [], False
        self._tell(finished)

    def _tell(self, finished: Iterable[Committed]) -> None:
        for committed in finished:
            try:
                committed(self._failure)
            except Exception:  # the others wait, too
                log.exception("who waited for a commit could not be told of it")

    def _defect(self, error: Exception, then: Callable[[], None]) -> None:
        log.error(
            "internal error in the sync of the redo log: %r. Trying again in %.0f s",
            error,
            RETRY_S,
            exc_info=self._defects.trace(error),
        )
        self._sync_s = 1.0  # not on the loop
        self._loop.call_later(RETRY_S, then)

    def _try_again(self) -> None:
        self._syncing = False
        self._schedule()
