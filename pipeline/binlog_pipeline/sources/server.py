"""A running server as a source: a MariaDB (10.11 and 11.8 were tried) or ours, by the protocol that replicas speak.

The account needs `REPLICATION SLAVE` and nothing else. To the server the readers are replicas with ids of 2^31 and
more, chosen at random; option `serverId` gives one to the connection that follows a stream.

A range is a dump that ends by itself (`@slave_until_gtid`). It may begin and end at numbers that do not exist, so it
can be cut by arithmetic; two connections read it at most, as each costs the server a search for its beginning. Every
domain that the server has is named in a dump: one that is not would be sent from its beginning.

`gtid_binlog_state` (BINLOG_GTID_POS and SHOW BINARY LOGS are not needed) tells where the log ends, and in which domains
more than one server has written. There a number tells nothing of the other servers' groups, so a range is not cut, and
its beginning has to be a group that is there; if it is not, all of the log is read, and what is in front is left out.

Reading a slice twice gives the same groups. A server that ends before the end of the slice is an error.

A stream follows a lasting dump, read ahead in a thread; a second connection is asked where the log ends. The driver
looks at each group once, and workers read what was planned by dumps of their own, so what comes is held only until it
was looked at. But the groups of a small batch go to the worker as they came (`FreshGroups`): a connection, a dump and
the server's search for its beginning would take longer than reading them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import field
from typing import Final

import numpy as np
from binlog_protocol.connection.replica import UpstreamRefused
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.belonging import has_passed, require_had
from binlog_pipeline.errors import SourceError
from binlog_pipeline.groups import Groups, after
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.dump.beginning import beginning, state_of
from binlog_pipeline.sources.dump.file_places import FilePlace, FilePlaces, finds_slowly
from binlog_pipeline.sources.dump.fresh_groups import FreshGroups, FreshSlice
from binlog_pipeline.sources.dump.history import (
    ends_of,
    has_several_servers,
    middle_of,
    without_gap,
)
from binlog_pipeline.sources.dump.link import SILENCE_S, ServerLink
from binlog_pipeline.sources.dump.read_ahead import ReadAhead
from binlog_pipeline.sources.dump.reader import DumpReader
from binlog_pipeline.sources.dump.refusals import CAUGHT, may_pass, source_error
from binlog_pipeline.wanted import Wanted, unreached

_RETRY_S: Final = 0.1
_ASKING: Final = "asking where its binlog ends"
_BINLOG: Final = "binlog"


@contextmanager
def table_session(address: ServerAddress) -> Iterator[ServerLink]:
    """A connection that asks for tables: its values are those that `ResultColumns` takes. Raises `SourceError`."""
    from binlog_protocol.row_columns.result_rows import SESSION

    try:
        opened = ServerLink.open(address)
    except CAUGHT as error:
        raise source_error(address, error, "connecting") from None
    with closing(opened) as link:
        try:
            link.be_patient()
            for sql in SESSION:
                link.query(sql)
            yield link
        except (RemoteError, UpstreamRefused, ConnectionError, TimeoutError) as error:
            raise source_error(address, error, "reading tables") from None


@dataclass(frozen=True, slots=True)
class ServerSource:
    """See the module. `fail_on_data_loss` False: what was purged is passed over, with a warning."""

    address: ServerAddress
    fail_on_data_loss: bool = True
    places: FilePlaces = field(default_factory=FilePlaces, compare=False, repr=False)
    fresh: FreshGroups = field(default_factory=FreshGroups, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def is_growing(self) -> bool:
        return True

    def earliest(self) -> SlavePosition:
        return beginning(self.address)

    def latest(self) -> SlavePosition:
        return state_of(self.address, _ASKING).position()

    def has_passed(self, position: SlavePosition) -> bool:
        state = state_of(self.address, _ASKING)
        if not has_passed(self.name, _BINLOG, position, state):
            return False
        end = state.position()
        is_sure = position == end or not has_several_servers(state, {*position.domains()})
        if is_sure or unreached(beginning(self.address), position):  # what was purged nobody knows
            return True
        begin = SlavePosition(position.get(gtid.domain_id) or gtid for gtid in end)
        reader = DumpReader(
            self.address, begin, end, strict=True, passes_incidents=True, is_exact=True
        )
        with closing(reader.groups()) as groups:
            next(groups, None)  # it may be the whole log, if there is nothing at the position
        return True

    def slices(
        self, wanted: Wanted, partition_bytes: int
    ) -> Sequence[ServerSlice] | Sequence[FreshSlice]:
        """Two slices at most, of unknown size. Raises `SourceError` if the log ends before `wanted` does."""
        fresh = self.fresh.slice(wanted)
        if fresh is not None:
            return [fresh]
        state = state_of(self.address, _ASKING)
        start, stop = wanted.gtids.start, wanted.gtids.stop
        if start is None:
            start = self.earliest()
        # A server does not look at that itself where a dump has an end.
        require_had(self.name, _BINLOG, start, state)
        if not self.fail_on_data_loss:
            start = without_gap(self.address, start)
        until = ends_of(self.name, wanted, start, state)
        if not until:
            return []
        domains = {gtid.domain_id for gtid in until}
        named = [gtid for gtid in start if gtid.domain_id in domains]
        # Domains that are not wanted get positions that exist: the server checks those as well.
        others = [gtid for gtid in state.position() if gtid.domain_id not in domains]
        strict = has_several_servers(state, {gtid.domain_id for gtid in named})
        cut = middle_of(named, until, state)
        pairs = [(named, until)] if cut is None else [(named, [cut]), ([cut], until)]
        # By number, as the end of the dump may be a later group than the last that is wanted.
        last = until if stop is None else [gtid for gtid in stop if gtid.domain_id in domains]
        return [
            ServerSlice(
                self.address,
                SlavePosition([*begin, *others]),
                SlavePosition(end),
                wanted.between(SlavePosition(begin), SlavePosition(last if end == until else end)),
                strict,
                self.places.get(start) if begin is named else None,
                passes_incidents=not self.fail_on_data_loss,
            )
            for begin, end in pairs
        ]

    def feed(self) -> ServerFeed:
        return ServerFeed(
            self.address,
            fail_on_data_loss=self.fail_on_data_loss,
            places=self.places,
            fresh=self.fresh,
        )


@dataclass(frozen=True, slots=True)
class ServerSlice:
    """The wanted groups behind `start`, which has all domains of the server, up to `until`."""

    address: ServerAddress
    start: SlavePosition
    until: SlavePosition
    wanted: Wanted
    strict: bool = False
    place: FilePlace | None = None
    passes_incidents: bool = False

    def read(self) -> Iterator[Groups]:
        reader = DumpReader(
            self.address,
            self.start,
            self.until,
            strict=self.strict,
            place=self.place,
            passes_incidents=self.passes_incidents,
        )
        ahead = ReadAhead(reader)
        try:
            while (groups := ahead.take()) is not None:
                found = self.wanted.some(groups)
                if len(found):
                    yield found
        finally:
            ahead.close()

    def __str__(self) -> str:
        return f"{self.address.name}, behind '{self.start}' up to '{self.until}'"


class ServerFeed:
    """See `Feed`. Goes on where it ended, if that is asked for; otherwise it connects again."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        fail_on_data_loss: bool = True,
        places: FilePlaces | None = None,
        fresh: FreshGroups | None = None,
    ) -> None:
        """`places`: learns where positions are in files, if the server is slow to find them. `fresh`: what comes."""
        self._address = address
        self._places = places
        self._fresh = FreshGroups() if fresh is None else fresh
        self._reader: DumpReader | None = None
        self._fail_on_data_loss = fail_on_data_loss
        self._asked: ServerLink | None = None
        self._ahead: ReadAhead | None = None
        # What was given out last, as not all of it may have been taken: the position in front of it, and behind it.
        self._held: Groups | None = None
        self._before = self._behind = SlavePosition()
        # Where the last groups in front of these two end.
        self._place_before: Position | None = None
        self._place_behind: Position | None = None

    def after(self, position: SlavePosition, wait_s: float) -> Iterator[Groups]:
        state = self._state()
        require_had(self._address.name, _BINLOG, position, state)
        deadline = time.monotonic() + wait_s
        goal = state.position()
        ahead = self._go_to(position, state)
        self._fresh.begin(position)
        held, self._held = self._held, None
        if held is not None:
            yield self._given(held)
        came = held is not None
        while unreached(goal, self._behind):
            groups = self._take(ahead, SILENCE_S)
            if groups is None:
                raise SourceError(
                    f"{self._address.name}: the binlog is said to end at '{goal}', but for {SILENCE_S:.0f} s nothing "
                    f"came, reading {self._behind.as_start()}; is the server stuck?"
                )
            came = True
            yield self._given(groups)
        if came:
            return
        groups = self._take(ahead, max(deadline - time.monotonic(), 0))
        waiting = ahead.waiting
        while groups is not None:
            yield self._given(groups)
            groups = self._take(ahead, 0) if waiting else None
            waiting -= 1

    def latest(self) -> SlavePosition:
        return self._state().position()

    def close(self) -> None:
        self._disconnect()
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    def _given(self, groups: Groups) -> Groups:
        self._held = groups
        self._fresh.add(groups)
        self._before, self._behind = self._behind, after(self._behind, groups)
        self._place_before, self._place_behind = self._place_behind, groups.place(len(groups) - 1)
        return groups

    def _take(self, ahead: ReadAhead, timeout_s: float) -> Groups | None:
        try:
            return ahead.take(timeout_s)
        except BaseException:
            self._disconnect()
            raise

    def _go_to(self, position: SlavePosition, state: BinlogState) -> ReadAhead:
        """A read-ahead whose next groups are behind the position; `_held` is the held part of them."""
        ahead = self._ahead
        # One that has failed meanwhile, while nobody asked: another one may do better.
        if ahead is not None and not ahead.has_failed and self._seek_held(position):
            return ahead
        self._disconnect()
        self._held = None
        if not self._fail_on_data_loss:
            position = without_gap(self._address, position)
        self._behind = position
        self._place_before = self._place_behind = None
        self._reader = DumpReader(
            self._address,
            position,
            strict=has_several_servers(state, set(position.domains())),
            follows=True,
            server_id=self._address.server_id,
            passes_incidents=not self._fail_on_data_loss,
        )
        self._ahead = ReadAhead(self._reader)
        return self._ahead

    def _seek_held(self, position: SlavePosition) -> bool:
        """Drops of what is held what is not behind the position; False if the position is elsewhere."""
        held = self._held
        if position == self._behind:
            if held is not None:
                self._note_place(position, held, len(held))
            self._held = None
            return True
        if held is None:
            return False
        rest = Wanted(GtidRange(start=position)).mask(held)
        first = int(np.argmax(rest)) if rest.any() else len(held)
        numbers = np.arange(len(held))
        if after(self._before, held.some(numbers < first)) != position:
            return False
        self._note_place(position, held, first)
        self._held = held.some(numbers >= first)
        self._behind = position
        self._place_behind = held.place(first - 1) if first else self._place_before
        return True

    def _note_place(self, position: SlavePosition, held: Groups, first: int) -> None:
        """`position` is in front of the group of that number."""
        if not first or self._places is None or self._reader is None or self._asked is None:
            return
        earlier = held.place(first - 2) if first > 1 else self._place_before
        last = held.place(first - 1)
        name = self._reader.file_names.get(last.file_no)
        if earlier is None or name is None or not finds_slowly(self._asked.version):
            return
        begin = earlier.offset if earlier.file_no == last.file_no else FIRST_EVENT_POSITION
        self._places.put(position, FilePlace(name, begin, held.gtid(first - 1)))

    def _disconnect(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _state(self) -> BinlogState:
        """The server's GTID binlog state; asked for again if the connection was lost. Raises `SourceError`."""
        deadline = time.monotonic() + self._address.connect_timeout
        while True:
            try:
                if self._asked is None:
                    self._asked = ServerLink.open(self._address)
                return self._asked.binlog_state()
            except CAUGHT as error:
                if self._asked is not None:
                    self._asked.close()
                    self._asked = None
                if not may_pass(error) or time.monotonic() > deadline:
                    raise source_error(self._address, error, _ASKING) from None
            time.sleep(_RETRY_S)
