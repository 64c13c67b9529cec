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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_pipeline.groups import Groups
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.dump.beginning import beginning
from binlog_pipeline.sources.dump.file_places import FilePlace, FilePlaces
from binlog_pipeline.sources.dump.history import (
    check_history,
    ends_of,
    has_several_servers,
    middle_of,
    without_gap,
)
from binlog_pipeline.sources.dump.link import ServerLink
from binlog_pipeline.sources.dump.read_ahead import ReadAhead
from binlog_pipeline.sources.dump.reader import DumpReader
from binlog_pipeline.sources.dump.refusals import CAUGHT, source_error
from binlog_pipeline.sources.server_feed import ServerFeed
from binlog_pipeline.wanted import Wanted


@dataclass(frozen=True, slots=True)
class ServerSource:
    """See the module. `fail_on_data_loss` False: what was purged is passed over, with a warning."""

    address: ServerAddress
    fail_on_data_loss: bool = True
    places: FilePlaces = field(default_factory=FilePlaces, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def is_growing(self) -> bool:
        return True

    def earliest(self) -> SlavePosition:
        return beginning(self.address)

    def latest(self) -> SlavePosition:
        return self._state().position()

    def slices(self, wanted: Wanted, partition_bytes: int) -> Sequence[ServerSlice]:
        """Two slices at most, of unknown size. Raises `SourceError` if the log ends before `wanted` does."""
        state = self._state()
        start, stop = wanted.gtids.start, wanted.gtids.stop
        if start is None:
            start = self.earliest()
        check_history(self.name, start, state)
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
        return [
            ServerSlice(
                self.address,
                SlavePosition([*begin, *others]),
                SlavePosition(end),
                # By number, as the end of the dump may be a later group than the last that is wanted.
                wanted.between(
                    SlavePosition(begin),
                    SlavePosition(end if stop is None or end != until else _numbers(stop, domains)),
                ),
                strict,
                self.places.get(start) if begin is named else None,
                passes_incidents=not self.fail_on_data_loss,
            )
            for begin, end in pairs
        ]

    def feed(self) -> ServerFeed:
        return ServerFeed(
            self.address, fail_on_data_loss=self.fail_on_data_loss, places=self.places
        )

    def _state(self) -> BinlogState:
        try:
            with ServerLink.open(self.address) as link:
                return link.binlog_state()
        except CAUGHT as error:
            raise source_error(self.address, error, "asking where its binlog ends") from None


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


def _numbers(stop: SlavePosition, domains: set[int]) -> list[Gtid]:
    return [gtid for gtid in stop if gtid.domain_id in domains]
