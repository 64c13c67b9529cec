"""Backups that are being made, and the statements that change which files there are: these wait for those.

A backup is one of BACKUP SERVER, or what a session frames by BACKUP STAGE START and END for a tool that copies the
files itself; one session at a time has a stage. Commits, the upstream and the entering of new files never wait. Purges
by age and size pass over what a backup holds: the store's own pins see to that. With --no-lock a backup makes nobody
wait. Only BACKUP STAGE BLOCK_COMMIT makes commits wait, those of upstreams and of XA too, until its session's END.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    BackupNotRunning,
    BackupStageActive,
    BackupStagePassed,
    LockWaitExceeded,
    QueryInterrupted,
    ReadLockHeld,
    UnknownBackupStage,
)
from binlog_storage.engine import EngineReader
from binlog_storage.engine.references import Pin
from binlog_storage.engine.switching import SwitchingEngine

_LOOK_S: Final = 0.1  # for a client that has gone
_WAIT_S: Final = 50.0
"""A backup waits so long for a FLUSH or RESET MASTER that is at work, which may wait for room on the disk."""
STAGES: Final = ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT", "END")


class Backups:
    """Of one server. Any thread; whoever waits blocks its thread."""

    def __init__(self, engine: SwitchingEngine) -> None:
        self.engine: Final = engine
        self._free = threading.Condition()
        self._running = 0
        self._changing = 0
        self._staged: SessionBackup | None = None  # whose BACKUP STAGE is active

    @property
    def is_one_made(self) -> bool:
        """Whether a backup is being made, by the server or by a session that has a stage."""
        return self._running > 0 or self._staged is not None

    @contextmanager
    def running(self) -> Iterator[None]:
        """While a backup is made. Raises `LockWaitExceeded` (1205) if files are being changed for long."""
        with self._free:
            self._wait(lambda: self._changing == 0, _WAIT_S)
            self._running += 1
        try:
            yield
        finally:
            with self._free:
                self._running -= 1
                self._free.notify_all()

    @contextmanager
    def changing(
        self, given_up: Callable[[], bool], own: SessionBackup | None = None
    ) -> Iterator[None]:
        """While PURGE, FLUSH or RESET MASTER is at work, which begins when no backup is being made.

        Args:
            own: that of the session which has said it: its own stage does not hold it up.

        Raises `QueryInterrupted` (1317) if `given_up` returns True before that.
        """
        with self._free:
            self._wait(lambda: self._others(own) == 0, None, given_up)
            self._changing += 1
        try:
            yield
        finally:
            with self._free:
                self._changing -= 1
                self._free.notify_all()

    def _others(self, own: SessionBackup | None) -> int:
        staged = self._staged is not None and self._staged is not own
        return self._running + staged

    def take(self, session: SessionBackup, wait_s: float, given_up: Callable[[], bool]) -> None:
        """BACKUP STAGE START. Raises `LockWaitExceeded` (1205), `QueryInterrupted` (1317)."""
        with self._free:
            self._wait(
                lambda: self._staged is None and not self._changing,
                wait_s,
                lambda: given_up() or session.has_gone,
            )
            self._staged = session

    def release(self, session: SessionBackup) -> None:
        """Its stage is over."""
        with self._free:
            if self._staged is session:
                self._staged = None
                self._free.notify_all()

    def leave(self, session: SessionBackup) -> None:
        """The session has gone: it gets no stage any more."""
        with self._free:
            session.has_gone = True
        self.release(session)

    def _wait(
        self,
        free: Callable[[], bool],
        wait_s: float | None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while not free() or given_up():
            if given_up():
                raise QueryInterrupted()
            if deadline is not None and time.monotonic() >= deadline:
                raise LockWaitExceeded()
            self._free.wait(_LOOK_S)


@dataclass(eq=False)
class SessionBackup:
    """BACKUP STAGE and BACKUP LOCK of one session, as of 11.8. On the loop, but for `begin`."""

    _backups: Backups
    _engine: EngineReader
    stage: str = ""
    """The active one; empty: none is."""
    lock: str = ""
    """The table of BACKUP LOCK."""
    has_gone: bool = False
    _pin: Pin | None = field(default=None, init=False)
    _blocks: bool = field(default=False, init=False)

    @property
    def is_active(self) -> bool:
        """Whether the session may commit nothing."""
        return bool(self.stage or self.lock)

    def require_inactive(self) -> None:
        """Raises 4145 or 1223 while it is active."""
        if self.stage:
            raise BackupStageActive()
        if self.lock:
            raise ReadLockHeld()

    def require_next(self, stage: str) -> None:
        """Raises 4149, 4146, 4147, 1223 if a stage cannot come now."""
        if stage not in STAGES:
            raise UnknownBackupStage(stage)
        if self.stage and STAGES.index(stage) <= STAGES.index(self.stage):
            raise BackupStagePassed(stage, self.stage)
        if not self.stage and stage != STAGES[0]:
            raise BackupNotRunning()
        if not self.stage and self.lock:
            raise ReadLockHeld()

    def begin(self, wait_s: float, given_up: Callable[[], bool]) -> None:
        """START: nobody else has a stage, and files stay, from now on. Waits: to be called in a thread. See `take`."""
        self._backups.take(self, wait_s, given_up)
        self._pin = self._engine.hold(
            "BACKUP STAGE",
            slot=True,
            ended_by="BACKUP STAGE END",
            holder=("reader", "BACKUP STAGE"),
        )
        self.stage = STAGES[0]
        if self.has_gone:
            self.end()

    def block_commits(self) -> None:
        """BLOCK_COMMIT, its first half: on the loop. `settle` is the second."""
        self._blocks = True
        self._backups.engine.block_commits()

    def settle(self, given_up: Callable[[], bool]) -> None:
        """Wait until what was committed is durable: to be called in a thread. Raises `QueryInterrupted` (1317)."""
        if not self._backups.engine.wait_for_commits(given_up):
            raise QueryInterrupted()
        self._engine.sync()

    def _unblock_commits(self) -> None:
        if self._blocks:
            self._blocks = False
            self._backups.engine.unblock_commits()

    def step_back(self, before: str) -> None:
        """`settle` was given up: the stage is the one before."""
        if self.stage:
            self.stage = before
        self._unblock_commits()

    def end(self) -> None:
        """END, or the session has ended."""
        self.stage = ""
        self._unblock_commits()
        if self._pin is not None:
            self._pin.release()
            self._pin = None
        self._backups.release(self)

    def close(self) -> None:
        """The session has ended."""
        self._backups.leave(self)
        self.lock = ""
        self.end()
