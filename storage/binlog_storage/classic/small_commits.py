"""Appending groups that are whole and in memory, alone or together with a transaction of tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from binlog_protocol.events.checksum import laid_out_events
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import STEP_BYTES
from binlog_storage.classic.back_pressure import BackPressure
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.rotation import Rotation
from binlog_storage.classic.written_log import BUFFER_MAX, CACHE_BYTES, WrittenLog
from binlog_storage.engine import Position
from binlog_storage.errors import DiskError, DiskFull
from binlog_storage.tables.records import CHANGE_BYTES
from binlog_storage.tables.store import TableStep

log = logging.getLogger(__name__)

_BUFFER_BYTES: Final = 1 << 20  # appended and not written: handed to the operating system beyond it
_RUN_S: Final = 0.001


class SmallCommits:
    """Of one store; each method from any thread."""

    def __init__(
        self, binlog: WrittenLog, patience: Patience, rotation: Rotation, pressure: BackPressure
    ) -> None:
        self._log = binlog
        self._pressure = pressure
        self._patience = patience
        self._rotation = rotation

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        if gtid is None:
            return self._rotation.append_marker(payload, age)
        self._wait_while_full()
        self._rotation.rotate_before_append()
        with self._log.lock:
            self._log.admit(age)
            end = self._put(payload, gtid)
        self._write_if_much()
        return end

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        self._rotation.rotate_before_append()
        until = time.monotonic() + _RUN_S
        while index < len(run) and self._pressure.has_room:
            payload = run.payload(index)
            if len(payload) > CACHE_BYTES:
                break
            self.append(payload, run.gtid(index), age)
            index += 1
            if time.monotonic() > until:
                break
        return index

    def append_ending(
        self, payload: bytes, gtid: Gtid, ending: Callable[[], TableStep], age: int | None = None
    ) -> Position:
        """The same: `ending` is called under the append lock."""
        self._wait_while_full()
        self._rotation.rotate_before_append()
        with self._log.lock:
            self._log.admit_with_rows(STEP_BYTES, age)
            step = ending()
            end = self._put(payload, gtid)
            self._log.log_step(step, end)
        self._write_if_much()
        return end

    def append_change(
        self,
        payload: bytes,
        gtid: Gtid,
        table: int,
        key: bytes,
        before: bytes | None,
        after: bytes | None,
        age: int | None = None,
    ) -> Position | None:
        """See `TableEngine`."""
        if len(payload) > CACHE_BYTES:
            return None
        assert self._log.rows is not None
        store = self._log.rows.tables.store
        self._wait_while_full()
        self._rotation.rotate_before_append()
        with self._log.lock:
            size = CHANGE_BYTES + len(key) + len(before or b"") + len(after or b"")
            self._log.admit_with_rows(STEP_BYTES + size, age)
            with store.latch:
                step = store.at_once(table, key, before, after)
                if step is None:
                    return None
                end = self._put(payload, gtid)
                self._log.log_step(step, end)
        self._write_if_much()
        return end

    def _put(self, payload: bytes, gtid: Gtid) -> Position:
        """A group, in memory. Under the append lock."""
        current = self._log.current
        data = laid_out_events(payload, current.end, current.checksum_algorithm)
        data = current.sealed(data, current.end)
        self._log.buffer += data
        return self._log.note_group(len(data), gtid)

    def _write_if_much(self) -> None:
        rows = self._log.rows
        # In front of groups with rows the redo log is synced, which is better left to a sync.
        must_sync = rows is not None and rows.group_lsn > rows.redo.durable_lsn
        if len(self._log.buffer) > (BUFFER_MAX // 2 if must_sync else _BUFFER_BYTES):
            self._write_some()

    def _write_some(self) -> None:
        """Write what is more than is wanted in memory. What fails here fails at the sync, which says so."""
        tries = self._patience.full.tries
        try:
            self._patience.full.require_time()
            self._log.write_once()
        except DiskFull as error:
            self._patience.note_full(error, tries)
        except DiskError as error:
            log.warning("%s", error)

    def _wait_while_full(self) -> None:
        """While too much is in memory, which could not be written."""
        while len(self._log.buffer) > BUFFER_MAX and not self._log.soundness.failed:
            self._patience.until_done(self._log.write_once)
