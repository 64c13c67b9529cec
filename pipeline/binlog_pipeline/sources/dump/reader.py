"""Groups of a server behind a position, over as many connections as it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from typing import Final

import numpy as np
from binlog_protocol.connection.replica import ReplicaHandshake
from binlog_protocol.errors import ProtocolError, RemoteError
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.belonging import in_place_of, replaced
from binlog_pipeline.groups import Groups, after
from binlog_pipeline.sources.dump.address import ServerAddress, random_server_id
from binlog_pipeline.sources.dump.beginning import beginning, state_of
from binlog_pipeline.sources.dump.file_places import FilePlace
from binlog_pipeline.sources.dump.large_group import LargeGroups
from binlog_pipeline.sources.dump.link import ServerLink
from binlog_pipeline.sources.dump.refusals import CAUGHT, is_fatal_to_dump, may_pass, source_error
from binlog_pipeline.sources.dump.stream import DumpStream
from binlog_pipeline.wanted import Wanted, unreached

_HEARTBEAT_NS: Final = 5_000_000_000
# Of our session there: reading stands still for as long as rows are made of what was read. The default is 60 s.
_NET_WRITE_TIMEOUT_S: Final = 3600
_PAUSE_S: Final = 0.05


class NotThere(Exception):
    """A range does not begin where it was thought to."""


class DumpReader:
    """Groups of a dump, for one thread, which iterates over `groups`; `close` may come from another one.

    A connection that is lost is made anew, and goes on behind the last whole group, until for `connect_timeout`
    seconds nothing has come.

    Args:
        until: where it ends: by then groups of other domains are not sent, either. None: it goes on for ever.
        strict: a position must be of a group that is there, and not just a number: where several servers have written
            to a domain, a number says nothing about the others'. If it is not, more is read, and left out.
        follows: small batches at once, and large groups are not kept but asked for again.
        server_id: 0 for any.
        place: where the position probably is.
        passes_incidents: go on where the server has lost changes; else that is `DataLost`.
        is_exact: it is `DataLost` if groups of other servers have numbers of the position.
    """

    def __init__(
        self,
        address: ServerAddress,
        position: SlavePosition,
        until: SlavePosition | None = None,
        *,
        strict: bool = False,
        follows: bool = False,
        server_id: int = 0,
        place: FilePlace | None = None,
        passes_incidents: bool = False,
        is_exact: bool = False,
    ) -> None:
        self._address = address
        self._position = position
        self._until = until
        self._strict = strict
        self._follows = follows
        self._server_id = server_id
        self._place = place
        self._passes_incidents = passes_incidents
        self._is_exact = is_exact
        self.file_names: dict[int, str] = {}
        """The names of the files that were read, by their numbers."""
        # Where reading begins instead of at the position, and what is in front of that is left out.
        self._from: SlavePosition | None = None
        self._state = BinlogState()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._link: ServerLink | None = None

    def close(self) -> None:
        """Interrupt the connection, so that `groups` ends soon; from any thread."""
        self._closed.set()
        with self._lock:
            if self._link is not None:
                self._link.interrupt()

    def groups(self) -> Generator[Groups]:
        """Raises `SourceError`, `DataLost`."""
        failing_since: float | None = None
        pause_s = _PAUSE_S
        while not self._closed.is_set():
            try:
                for groups in self._of_one_connection():
                    failing_since, pause_s = None, _PAUSE_S
                    self._position = after(self._position, groups)
                    yield groups
                return
            except NotThere:
                continue
            except CAUGHT as error:
                if self._closed.is_set():
                    return
                if self._strict and is_fatal_to_dump(error) and self._falls_back():
                    continue
                now = time.monotonic()
                failing_since = failing_since or now
                if not may_pass(error) or now - failing_since > self._address.connect_timeout:
                    doing = f"reading {self._position.as_start()}"
                    if self._until is not None:
                        doing += f" up to '{self._until}'"
                    raise source_error(self._address, error, doing) from None
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _of_one_connection(self) -> Iterator[Groups]:
        until = self._left()
        if until is not None and not len(until):
            return
        link = ServerLink.open(self._address)
        with self._lock:
            self._link = link
        try:
            if self._closed.is_set():
                return
            link.query(f"SET net_write_timeout={_NET_WRITE_TIMEOUT_S}")
            place, self._place = self._place, None
            if place is not None and until is not None:
                yield from self._from_place(link, place, until)
                return
            # Ours would look at each group for the end: to hang up there is cheaper. And where a position may not be
            # there, the end must not come before the server has noticed that.
            hangs_up = until is not None and (self._strict or link.has_engine_binlog())
            begin = self._position if self._from is None else self._from
            handshake = ReplicaHandshake(
                link.machine,
                server_id=self._server_id or random_server_id(),
                position=begin,
                heartbeat_period_ns=_HEARTBEAT_NS,
                strict_mode=self._strict and self._from is None,
                until=None if hangs_up else until,
                non_block=until is not None,
                comes_back=self._server_id != 0,
            )
            link.start_dump(handshake)
            stream = DumpStream(
                link,
                begin,
                handshake.checksum_algorithm,
                LargeGroups(self._again if self._follows else None),
                self.file_names,
                end=until if hangs_up else None,
                eager=self._follows,
                passes_incidents=self._passes_incidents,
            )
            if self._from is None:
                yield from stream.groups()
            else:
                behind = Wanted(GtidRange(start=self._position))
                for groups in stream.groups():
                    if self._is_exact and (gtid := in_place_of(self._position, groups)):
                        raise replaced(self._address.name, "binlog", gtid, self._state)
                    if len(found := behind.some(groups)):
                        yield found
        finally:
            with self._lock:
                self._link = None
            link.close()

    def _from_place(
        self, link: ServerLink, place: FilePlace, until: SlavePosition
    ) -> Iterator[Groups]:
        """Raises `NotThere` if something else is at that place."""
        gtid = place.gtid
        if self._position.get(gtid.domain_id) != gtid:
            raise NotThere
        algorithm = link.start_file_dump(random_server_id(), place.file, place.offset)
        # Of domains that are not wanted the position is where they end now: a dump by file has all of their groups.
        wanted = {end.domain_id for end in until}
        before = SlavePosition(one for one in self._position if one.domain_id in wanted)
        before = before.with_gtid(gtid._replace(seq_no=gtid.seq_no - 1))
        stream = DumpStream(
            link,
            before,
            algorithm,
            LargeGroups(),
            self.file_names,
            end=until,
            passes_incidents=self._passes_incidents,
        )
        is_first = True
        try:
            for groups in stream.groups():
                found = groups
                if is_first:
                    if groups.gtid(0) != gtid:
                        raise NotThere
                    found = groups.some(np.arange(len(groups)) > 0)
                    is_first = False
                if len(found):
                    yield found
        except (RemoteError, ProtocolError):
            if is_first:
                raise NotThere from None
            raise

    def _left(self) -> SlavePosition | None:
        """The part of the end that is not reached: its GTIDs in domains where reading has not come so far."""
        return (
            None if self._until is None else SlavePosition(unreached(self._until, self._position))
        )

    def _falls_back(self) -> bool:
        """Whether all behind the position is there, though nothing of the position itself: read from the beginning."""
        if self._from is not None:
            return False
        oldest = beginning(self._address)
        if GtidRange(start=self._position).misses(BinlogState(oldest)) is not None:
            return False
        state = state_of(self._address, "asking what is in its binlog")
        for gtid in self._position:
            seq_no = state.get(gtid.domain_id, gtid.server_id)
            if state.last(gtid.domain_id) is not None and (seq_no or -1) < gtid.seq_no:
                return False  # another history
        self._from, self._state = oldest, state
        return True

    def _again(self, position: SlavePosition, gtid: Gtid) -> Iterator[bytes]:
        reader = DumpReader(
            self._address,
            position,
            SlavePosition([gtid]),
            passes_incidents=self._passes_incidents,
        )
        for groups in reader.groups():
            yield from groups.pieces(0)
