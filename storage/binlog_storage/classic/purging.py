"""Which files go: PURGE BINARY LOGS, and the caretaker, which purges by age and size and makes GTID indexes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from binlog_storage.binlog.worker import Worker
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.rotation import Rotation
from binlog_storage.classic.written_log import WrittenLog
from binlog_storage.engine import purge
from binlog_storage.engine.purge import FileFacts, FileFate, PurgeHeld, PurgePlan, Wanted
from binlog_storage.engine.references import Reason
from binlog_storage.errors import DiskError, DiskFull, UnknownBinlog

log = logging.getLogger(__name__)

_LIMITS_S: Final = 60.0


class Purging:
    """Of one store; each method from any thread.

    Args:
        purging: held by who takes files away.
        clock: gives seconds since 1970.
    """

    def __init__(
        self,
        binlog: WrittenLog,
        patience: Patience,
        rotation: Rotation,
        purging: AbstractContextManager[object],
        clock: Callable[[], float],
    ) -> None:
        self._log = binlog
        self._files = binlog.files
        self._patience = patience
        self._rotation = rotation
        self._purging = purging
        self._clock = clock
        self.held: PurgeHeld | None = None
        self._told: tuple[int, str] | None = None
        self.worker: Final = Worker("binlog-caretaker", self._take_care, retry_s=_LIMITS_S)

    def purge_to(self, file_no: int) -> PurgePlan:
        name = self._files.directory.name(self.known(file_no))
        return self._purge(purge.before_file(file_no), f"PURGE BINARY LOGS TO '{name}'")

    def purge_before(self, seconds: float) -> PurgePlan:
        return self._purge(purge.before_time(seconds), "PURGE BINARY LOGS BEFORE")

    def explain_purge(self, to: int | None = None, before: float | None = None) -> list[FileFate]:
        if to is not None:
            return self._fates(purge.before_file(self.known(to)))
        if before is not None:
            return self._fates(purge.before_time(before))
        wanted = purge.any_of([wanted for wanted, _ in self._limits()])
        return self._fates(wanted, self._replicas_missing)

    def known(self, file_no: int) -> int:
        if file_no > self._log.current.number:
            name = self._files.directory.name(file_no)
            raise UnknownBinlog(f"Target log not found in binlog index: {name!r}")
        return file_no

    @property
    def _replicas_missing(self) -> int:
        """For a purge by age and size. PURGE asks for none, as that of every MariaDB with such files."""
        needed = self._files.options.slave_connections_needed_for_purge
        return needed - self._log.references.count(Reason.DUMP)

    def _fates(self, wanted: Wanted, replicas_missing: int = 0) -> list[FileFate]:
        return purge.fates(
            [self._facts(number) for number in self._log.extent.numbers],
            wanted,
            first_open=self._log.current.number,
            holds=self._log.references.holds(),
            replicas_missing=replicas_missing,
        )

    def _facts(self, number: int) -> FileFacts:
        name = self._files.directory.name(number)
        try:
            modified = self._files.disk.modified(name)
        except DiskError:
            modified = 0.0
        return FileFacts(number, self.size_of(number), modified, number)

    def size_of(self, number: int) -> int:
        current = self._log.current
        if number == current.number:
            return current.end
        try:
            return self._files.disk.size(self._files.directory.name(number))
        except DiskError:
            return 0

    def _purge(self, wanted: Wanted, asked: str, replicas_missing: int = 0) -> PurgePlan:
        """Delete the wanted files, from the oldest on, up to the first that must stay."""
        deleted: list[int] = []
        with self._purging:
            plan = purge.plan(self._fates(wanted, replicas_missing))
            if self._files.checkpoint in plan.delete:
                self._move_checkpoint()
            for number in plan.delete:
                if not self._log.references.let_go(number, {}, lambda: self._log.hide_oldest()):
                    # A hold that came meanwhile.
                    plan = purge.plan(self._fates(wanted, replicas_missing))
                    break
                deleted.append(number)
            if deleted:
                try:
                    self._files.delete(deleted)
                finally:
                    self._patience.full.freed()
                names = len(deleted), self._files.directory.name(deleted[-1])
                log.info("purged %d binlog files, up to %s: %s", *names, asked)
        return dataclasses.replace(plan, delete=deleted)

    def _move_checkpoint(self) -> None:
        """A MariaDB does not start where the last file names one that is gone: let the last one be new."""
        named = self._files.directory.name(self._files.checkpoint or 0)
        log.warning(
            "%s is purged: a MariaDB that was killed while it wrote here finds none of its prepared transactions in it",
            named,
        )
        self._files.checkpoint = None
        try:
            with self._log.still():
                self._rotation.next_file(self._log.state)
        except DiskFull as error:
            log.warning("%s: until the next file begins, a MariaDB does not start here", error)
        self._log.soundness.wake()

    def _limits(self) -> list[tuple[Wanted, str]]:
        options = self._files.options
        return purge.limits(
            options.binlog_expire_logs_seconds, options.max_binlog_total_size, self._clock()
        )

    def _catch_up(self) -> None:
        """What opening had no room for, though nobody waits for it. Raises `NoRoom`."""
        full = self._patience.full
        full.require_time()
        tries = full.tries
        try:
            self._patience.catch_up()
        except DiskFull as error:
            raise full.met(error, tries) from None
        full.passed()

    def _take_care(self) -> float | None:
        """One round: what a rotation needs, the purge by age and size, a GTID index."""
        if self._patience.is_late:
            self._catch_up()
        self._rotation.step()
        self._files.write_index_again()
        self.held = None
        limits = self._limits()
        for wanted, name in limits:
            plan = self._purge(wanted, name, self._replicas_missing)
            if plan.kept is None:
                continue
            fates = self._fates(wanted, self._replicas_missing)
            stay = [fate for fate in fates if fate.wanted and not fate.goes]
            if not stay:
                continue
            size, oldest = sum(f.size for f in stay), min(f.modified for f in stay)
            if self.held is None or size > self.held.size:
                self.held = PurgeHeld(size, oldest, stay[0].held_by[0])
            if (plan.kept, str(plan.why)) != self._told:
                self._told = plan.kept, str(plan.why)  # logged once, not every round
                kept = self._files.directory.name(plan.kept)
                log.warning("Binary log %r is not purged because %s", kept, plan.why)
        if self._files.indexes.step(
            lambda number: self._log.reader.build_index(number, self._files.options)
        ):
            return 0.0
        return _LIMITS_S if limits or self._files.names_what_is_gone else None
