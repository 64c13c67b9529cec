"""Follows one upstream as a replica: its groups, whole and in order, into the store. From START SLAVE to STOP SLAVE.

Where to go on is what the store holds: its binlog state, nothing kept beside it. A group that was cut off by a lost
connection was never stored, and comes again whole.

Reconnecting: at once, then after 1, 2, 4 ... s, up to MASTER_CONNECT_RETRY; with candidates as `candidates.Ring` says.
The count begins anew behind a connection that worked for a second, brought a MiB, or brought anything and broke off.
One group would not do in front of an error of the upstream's: it would be asked a hundred times a second.
Each pause is shortened by chance, by a quarter at most: many relays that have lost one upstream come one by one.
Before anything is taken in, the upstream must show that it has our history (`guard`).

What ends the following for good is named, in `_ends`: what the upstream refuses us for (1236, another history, our own
server_id, no GTIDs there), unless a candidate may do better; a domain that comes from elsewhere, a history that begins
anew, and an INCIDENT that nobody said to pass (`incidents`); a store that has failed. Whatever else goes wrong is tried
again, also what nobody has thought of, which is in the log with its traceback. What is in the store is still served.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from binlog_protocol.connection.replica import UpstreamRefused
from binlog_protocol.errors import MasterFatalError, ProtocolError, RemoteError
from binlog_protocol.gtid import SlavePosition
from binlog_storage.defects import Defects
from binlog_storage.errors import BinlogBegunAnew, StorageError, StoreFailed

from binlog_server.process.logs import shortened
from binlog_server.relay.failure import CR_UNKNOWN_ERROR, RelayFailure, told
from binlog_server.relay.gate import Gate, GroupRefused
from binlog_server.relay.guard import CandidateBehind, Guard, HistoryDiverged
from binlog_server.relay.incidents import Incidents
from binlog_server.relay.ingest import DumpEnded
from binlog_server.relay.into import Into
from binlog_server.relay.status import IoState, UpstreamStatus
from binlog_server.relay.stream import UpstreamStream
from binlog_server.upstreams.candidates import Ring
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import PasswordUnavailable

log = logging.getLogger(__name__)

WORKED_S = 1.0
WORKED_BYTES = 1 << 20
JITTER = 0.25  # of a pause: the part that is left to chance
BEGUN_ANEW_S = 1.0  # while a RESET MASTER is at work, perhaps
# What may happen with any upstream; others are defects, here or in what we use.
_EXPECTED = (
    asyncio.IncompleteReadError,
    OSError,
    PasswordUnavailable,
    ProtocolError,
    RemoteError,
    StorageError,
    UpstreamRefused,
)


class _CancelledInside(Exception):
    """The task that the following waited for was cancelled, but not the following itself."""


class Follower:
    """Follows one upstream from START SLAVE to STOP SLAVE. For one event loop.

    Args:
        ring: the servers that may be followed, the ones of `info`.
        until: where it ends by itself; groups beyond it, and of domains that are not in it, are not taken.
        follows: is told each server whose stream has begun.
        incidents: says which INCIDENT events are passed.
        chance: gives numbers from 0 to 1, for the length of pauses.
    """

    def __init__(
        self,
        info: MasterInfo,
        into: Into,
        status: UpstreamStatus,
        ring: Ring,
        incidents: Incidents,
        until: SlavePosition | None = None,
        follows: Callable[[str], Awaitable[None]] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._configured = info
        self._chance = chance
        self._into = into
        self._until = until
        self._ring = ring
        self._tell = follows
        self._incidents = incidents
        self.status = status
        self._gate = Gate(status.title, into.domains, info.filter)
        self._defects = Defects()
        self._guard = Guard(into, self._gate, info)

    @property
    def _info(self) -> MasterInfo:
        """The settings, with the address of the server that is followed or tried."""
        return self._configured.at(self._ring.current)

    def _stream(self) -> UpstreamStream:
        return UpstreamStream(
            self._info,
            self._into,
            self.status,
            self._gate,
            self._guard,
            among=self._ring.has_others,
            until=self._until,
            begun=self._begun,
            incidents=self._incidents,
        )

    async def _begun(self) -> None:
        self._ring.follows()
        if self._tell is not None:
            await self._tell(self.status.name)

    async def run(self) -> None:
        """Follow until cancelled, or until an error that no retry mends."""
        self.status.state = IoState.CONNECTING
        try:
            while not await self._run():
                pass
        finally:
            self.status.state = IoState.STOPPED
            self._gate.release()

    async def _run(self) -> bool:
        """Make one connection, and pause behind it. Returns whether following is over."""
        try:
            if self._has_reached_until():
                log.info("%s: UNTIL is reached: '%s'", self.status.title, self._until)
                return True
            stream = self._stream()
            began = time.monotonic()
            self._gate.begin()
            error = await self._end_of(stream)
            if self._ends(error):
                self._stopped(error)
                if isinstance(error, StorageError):
                    self._into.syncer.fail(error)
                return True
            if self._has_reached_until():  # the upstream has ended the stream there
                return False
            self._lost(error)
            lasted = stream.received and time.monotonic() - began >= WORKED_S
            broke_off = isinstance(error, OSError | asyncio.IncompleteReadError)
            worked = lasted or stream.new_bytes >= (1 if broke_off else WORKED_BYTES)
            pause = self._pause_behind(error, worked=worked)
            refusal = self._ring.hopeless()
            if refusal is not None:
                self._rename()
                self._stopped(refusal)
                return True
        except Exception as error:  # a defect here, of all places, must not end it either
            log.exception("%s: what is behind a lost connection has failed", self.status.title)
            self.status.state = IoState.CONNECTING
            self.status.last_error = self.status.error = shortened(
                f"{type(error).__name__}: {error}"
            )
            self.status.errno = CR_UNKNOWN_ERROR
            pause = self._info.connect_retry
        await self._pause(pause)
        return False

    def _pause_behind(self, error: Exception, *, worked: bool) -> float:
        if isinstance(error, CandidateBehind):
            return self._ring.pass_over()
        if isinstance(error, BinlogBegunAnew):  # by RESET MASTER here: the upstream is well
            return min(BEGUN_ANEW_S, self._info.connect_retry)
        if _is_refusal(error):
            return self._ring.pass_over(error)
        return self._ring.lost(worked=worked)

    async def _end_of(self, stream: UpstreamStream) -> Exception:
        """The error that ended the connection."""
        try:
            return await stream.run()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _CancelledInside("the following was not stopped, but what it waited for was")
        except Exception as error:  # noqa: BLE001 - `_ends` names those that count
            return error

    def _ends(self, error: Exception) -> bool:
        """Whether neither a retry nor another candidate would help."""
        if isinstance(error, GroupRefused):
            return True
        if isinstance(error, StorageError):
            return isinstance(error, StoreFailed) or self._into.syncer.failure is not None
        if not _is_refusal(error):
            return False
        if not self._ring.has_others:
            return True
        # Where the one that we followed has changed its history a human must choose.
        return isinstance(error, HistoryDiverged) and self._ring.is_home

    async def _pause(self, delay: float) -> None:
        name = str(self._ring.current)
        if name != self.status.name:
            log.warning("%s: the candidate %s is tried next", self.status.title, name)
            self._rename()
        delay *= 1 - JITTER * self._chance()
        if delay:
            log.info("connecting to %s again in %.1f s", self.status.title, delay)
        await asyncio.sleep(delay)

    def _rename(self) -> None:
        self.status.name = str(self._ring.current)
        self._gate.name = self.status.title

    def _has_reached_until(self) -> bool:
        if self._until is None:
            return False
        engine = self._into.engine
        for wanted in self._until:
            last = engine.binlog_state(wanted.domain_id).last(wanted.domain_id)
            if last is None or last.seq_no < wanted.seq_no:
                return False
        return True

    def _stopped(self, error: Exception) -> None:
        self._failed(error)
        self.status.stopped = True
        facts = {**self.status.facts, "error": told(error)}
        log.error("stopped following %(title)s: %(error)s", facts)

    def _lost(self, error: Exception) -> None:
        self._failed(error)
        self._add_refusal()
        self.status.losses += 1
        self._guard.lost(ended=isinstance(error, DumpEnded))
        trace = None if isinstance(error, _EXPECTED) else self._defects.trace(error)
        facts = {**self.status.facts, "error": told(error)}
        happened = "lost" if self.status.connects else "not reached yet:"
        log.warning(f"{happened} %(title)s: %(error)s", facts, exc_info=trace)

    def _failed(self, error: Exception) -> None:
        status = self.status
        failure = RelayFailure.of(error, self._info, connecting=status.state is not IoState.WAITING)
        status.errno, status.error = failure.errno, failure.text
        status.last_error = told(error)
        status.state = IoState.CONNECTING if failure.connecting else IoState.PAUSING

    def _add_refusal(self) -> None:
        """While a candidate that is down is waited for, show also why another one refused us: that can be mended."""
        refused = self._ring.refused_by
        if refused is None or refused[0] == self._ring.current:
            return
        address, refusal = refused
        failure = RelayFailure.of(refusal, self._configured.at(address), connecting=False)
        status = self.status
        status.errno = failure.errno
        status.error = f"{failure.text}; so says {address}, and {self._ring.current} is waited for: {status.error}"
        status.last_error = f"{status.last_error}; {address}: {told(refusal)}"


def _is_refusal(error: Exception) -> bool:
    """Whether the server refused us in a way that a retry does not change."""
    return isinstance(error, UpstreamRefused) or (
        isinstance(error, RemoteError) and error.errno == MasterFatalError.errno
    )
