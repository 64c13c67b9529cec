"""Appending groups that are whole and in memory, alone or together with a transaction of tables."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

from binlog_protocol.events.checksum import CHECKSUM_SIZE, laid_out_events
from binlog_protocol.events.header import HEADER_SIZE
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import Gtid

from binlog_storage.binlog.appender import STEP_BYTES
from binlog_storage.classic.back_pressure import BackPressure
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.rotation import NEAR, Rotation
from binlog_storage.classic.written_log import BUFFER_MAX, CACHE_BYTES, WrittenLog
from binlog_storage.engine import Position
from binlog_storage.errors import DiskError, DiskFull
from binlog_storage.tables.records import CHANGE_BYTES
from binlog_storage.tables.store import TableStep

log = logging.getLogger(__name__)

_BUFFER_BYTES: Final = 1 << 20  # appended and not written: handed to the operating system beyond it
_RUN_S: Final = 0.001
_PIECE_BYTES: Final = 256 << 10  # of a run, at least: laid out and appended at once
_LONGEST_HEADER: Final = HEADER_SIZE + CHECKSUM_SIZE  # an event grows by no more than such a part


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
        self._prepare()
        log = self._log
        with log.lock:
            if log.copying or log.soundness.failure is not None or age != log.references.age:
                log.admit(age)
            end = self._put(payload, gtid)
        if len(log.buffer) > _BUFFER_BYTES:
            self._write_if_much()
        return end

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        until = time.monotonic() + _RUN_S
        while index < len(run) and self._pressure.has_room:
            if index + 1 == len(run) and len(run.payloads) <= CACHE_BYTES:  # most are of one group
                self.append(run.payload(index), run.gtid(index), age)
                return len(run)
            done = self._append_some(run, index, age)
            if done == index:
                break
            index = done
            if time.monotonic() > until:
                break
        return index

    def _append_some(self, run: GroupRun, index: int, age: int | None) -> int:
        """Groups of a run in one piece. Returns the index of the next group: `index`, if that one is too large."""
        self._prepare()
        log, ends = self._log, run.ends
        begin = ends[index - 1] if index else 0
        with log.lock:
            log.admit(age)
            end = log.current.end
            # Up to the one that wants a record of the GTID index, and no further than certainly into this file: of a
            # group that is too long for that there is one alone.
            size = min(log.files.indexes.until_record(end), _PIECE_BYTES)
            room = (log.files.options.max_binlog_size - end) * HEADER_SIZE // _LONGEST_HEADER
            following = bisect_left(ends, begin + size, index) + 1
            following = min(following, bisect_right(ends, begin + room, index), len(ends))
            if following > index + 1 and ends[following - 1] - ends[following - 2] > CACHE_BYTES:
                following -= 1
            following = max(following, index + 1)
            stop = ends[following - 1]
            if stop - begin > CACHE_BYTES and following == index + 1:
                return index
            payload = bytes(memoryview(run.payloads)[begin:stop])
            self._put(payload, run.gtid(following - 1), following - index)
        if len(log.buffer) > _BUFFER_BYTES:
            self._write_if_much()
        return following

    def append_ending(
        self, payload: bytes, gtid: Gtid, ending: Callable[[], TableStep], age: int | None = None
    ) -> Position:
        """The same: `ending` is called under the append lock."""
        self._prepare()
        with self._log.lock:
            self._log.admit_with_rows(STEP_BYTES, age)
            step = ending()
            end = self._put(payload, gtid)
            self._log.log_step(step, end)
        if len(self._log.buffer) > _BUFFER_BYTES:
            self._write_if_much()
        return end

    def append_change(
        self,
        table: int,
        key: bytes,
        before: bytes | None,
        after: bytes | None,
        payload: bytes,
        gtid: Gtid,
        age: int | None = None,
    ) -> Position | None:
        """See `TableEngine`."""
        if len(payload) > CACHE_BYTES:
            return None
        assert self._log.rows is not None
        store = self._log.rows.tables.store
        self._prepare()
        with self._log.lock:
            size = CHANGE_BYTES + len(key) + len(before or b"") + len(after or b"")
            self._log.admit_with_rows(STEP_BYTES + size, age)
            with store.latch:
                step = store.at_once(table, key, before, after)
                if step is None:
                    return None
                end = self._put(payload, gtid)
                self._log.log_step(step, end)
        if len(self._log.buffer) > _BUFFER_BYTES:
            self._write_if_much()
        return end

    # The hot path calls as few functions of Python as it can: each costs as much as the work in most of them.

    def _prepare(self) -> None:
        """What comes in front of an append, without locks: the wait on a full disk, the next file if that is due."""
        log = self._log
        if len(log.buffer) > BUFFER_MAX:
            self._wait_while_full()
        if log.rotation_due or log.current.end >= log.files.options.max_binlog_size * NEAR:
            self._rotation.rotate_before_append()

    def _put(self, payload: bytes, gtid: Gtid, count: int = 1) -> Position:
        """A group, in memory; or so many of one domain and server, with the GTID of the last. Under the append lock."""
        current = self._log.current
        data = laid_out_events(payload, current.end, current.checksum_algorithm)
        if current.cipher is not None:
            data = current.cipher.sealed(data, current.end)
        self._log.buffer += data
        return self._log.note_group(len(data), gtid, count)

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
