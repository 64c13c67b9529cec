"""Follows one upstream as a replica: its groups, whole and in order, into the store. From START SLAVE to STOP SLAVE.

Where to go on is what the store holds: its binlog state, nothing kept beside it. A group that was cut off by a lost
connection was never stored, and comes again whole.

Reconnecting: at once, then after 1, 2, 4 ... s, up to MASTER_CONNECT_RETRY; with candidates as `candidates.Ring` says.
Before anything is taken in, the upstream must show that it has our history (`guard`).

An error that will not pass by itself (1236, another history, our own server_id, no GTIDs there) ends the following,
unless a candidate may do better; a domain that comes from elsewhere, and a history that begins anew, always do. What is
in the store is still served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from binlog_server.relay.candidates import Ring
from binlog_server.relay.failure import Failure
from binlog_server.relay.gate import Gate, GroupRefused
from binlog_server.relay.guard import CandidateBehind, Guard, HistoryDiverged
from binlog_server.relay.ingest import DumpEnded
from binlog_server.relay.into import Into
from binlog_server.relay.master_info import MasterInfo
from binlog_server.relay.password import PasswordUnavailable
from binlog_server.relay.status import IoState, UpstreamStatus
from binlog_server.relay.stream import UpstreamStream
from protocol.connection.replica import UpstreamRefused
from protocol.errors import MasterFatalError, ProtocolError, RemoteError
from protocol.gtid import SlavePosition
from storage.errors import StorageError

log = logging.getLogger(__name__)

WORKED_S = 1.0


class Follower:
    """One following. For one event loop.

    Args:
        ring: the servers that may be followed, the ones of `info`.
        until: where it ends by itself; groups beyond it, and of domains that are not in it, are not taken.
        follows: is told each server whose stream has begun.
    """

    def __init__(
        self,
        info: MasterInfo,
        into: Into,
        status: UpstreamStatus,
        ring: Ring,
        until: SlavePosition | None = None,
        follows: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._configured = info
        self._into = into
        self._until = until
        self._ring = ring
        self._tell = follows
        self.status = status
        self._gate = Gate(self._name, into.domains, info.filter)
        self._guard = Guard(
            into.engine,
            into.syncer,
            into.domains,
            self._gate,
            info.filter,
            into.config,
            check_groups=info.check_last_group,
        )

    @property
    def _info(self) -> MasterInfo:
        """With the address of the server that is followed, or tried."""
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
        )

    async def _begun(self) -> None:
        self._ring.follows()
        if self._tell is not None:
            await self._tell(self.status.name)

    async def run(self) -> None:
        """Follow until cancelled, or until following makes no sense any more."""
        try:
            await self._run()
        except Exception as error:  # of ours; it must not look as if nobody had started anything
            self._stopped(error)
            raise
        finally:
            self.status.state = IoState.STOPPED
            self._gate.release()

    async def _run(self) -> None:
        while not self._has_reached_until():
            stream = self._stream()
            began = time.monotonic()
            pause: float | None = None  # known, for those who are passed over
            try:
                await stream.run()
            except GroupRefused as error:
                self._stopped(error)
                return
            except StorageError as error:
                self._stopped(error)
                self._into.syncer.fail(error)
                return
            except CandidateBehind as error:
                self._lost(error)
                pause = self._ring.pass_over()
            except (UpstreamRefused, RemoteError) as error:
                refused = (
                    isinstance(error, UpstreamRefused) or error.errno == MasterFatalError.errno
                )
                if refused and self._is_final(error):
                    self._stopped(error)
                    return
                self._lost(error)
                if refused:
                    pause = self._ring.pass_over(error)
            except (
                OSError,
                ProtocolError,
                TimeoutError,
                asyncio.IncompleteReadError,
                PasswordUnavailable,
            ) as error:
                if self._has_reached_until():  # the upstream has ended the stream there
                    break
                self._lost(error)
            if pause is None:
                # A connection that brought us on, or worked for more than a moment, starts the count anew.
                lasted = stream.received and time.monotonic() - began >= WORKED_S
                pause = self._ring.lost(worked=stream.stored or lasted)
            refusal = self._ring.hopeless()
            if refusal is not None:
                self._rename()
                self._stopped(refusal)
                return
            await self._pause(pause)
        log.info("%s: UNTIL is reached: '%s'", self._name, self._until)

    def _is_final(self, refusal: Exception) -> bool:
        """Whether no candidate may help. Where the one that we followed has changed its history a human must choose."""
        if not self._ring.has_others:
            return True
        return isinstance(refusal, HistoryDiverged) and self._ring.is_home

    async def _pause(self, delay: float) -> None:
        name = str(self._ring.current)
        if name != self.status.name:
            log.warning("upstream %s: the candidate %s is tried next", self.status.name, name)
            self._rename()
        if delay:
            log.info("connecting to %s again in %.0f s", self._name, delay)
        await asyncio.sleep(delay)

    def _rename(self) -> None:
        self.status.name = str(self._ring.current)
        self._gate.name = self._name

    def _has_reached_until(self) -> bool:
        if self._until is None:
            return False
        state = self._into.engine.binlog_state()
        for wanted in self._until:
            last = state.last(wanted.domain_id)
            if last is None or last.seq_no < wanted.seq_no:
                return False
        return True

    def _stopped(self, error: Exception) -> None:
        self._failed(error)
        self.status.stopped = True
        facts = {"upstream": self.status.name, "error": error}
        log.error("stopped following upstream %(upstream)s: %(error)s", facts)

    def _lost(self, error: Exception) -> None:
        self._failed(error)
        self.status.losses += 1
        self._guard.lost(ended=isinstance(error, DumpEnded))
        facts = {"upstream": self.status.name, "error": self.status.last_error}
        log.warning("lost upstream %(upstream)s: %(error)s", facts)

    def _failed(self, error: Exception) -> None:
        status = self.status
        failure = Failure.of(error, self._info, connecting=status.state is not IoState.WAITING)
        status.errno, status.error = failure.errno, failure.text
        status.last_error = str(error) or type(error).__name__
        status.state = IoState.CONNECTING if failure.connecting else IoState.PAUSING

    @property
    def _name(self) -> str:
        return f"upstream {self.status.name}"
