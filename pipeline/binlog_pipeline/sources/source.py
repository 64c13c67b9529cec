"""The interface of a source of groups. Everything that reads, plans or follows is written against this.

Slices are pickled and read in other processes, perhaps on other machines; reading one twice gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.groups import Groups
from binlog_pipeline.wanted import Wanted


class Slice(Protocol):
    """A part of a source that is read by one worker. Picklable."""

    def read(self) -> Iterator[Groups]:
        """The wanted groups of the slice, in order. Raises `SourceError`, `DataLost`, `StorageError`."""


@runtime_checkable
class MarkedSlice(Slice, Protocol):
    """A slice of a source that keeps start markers."""

    def read_marked(self) -> Iterator[Groups]:
        """The groups as `read` gives them, with the markers. There may be markers where there are no groups."""


class Feed(Protocol):
    """Goes through what is behind a position, again and again, for whoever decides where a batch ends. One owner."""

    def after(self, position: SlavePosition, wait_s: float) -> Iterator[Groups]:
        """The groups behind `position`; the iteration ends where the log ends now.

        If nothing is, it is waited for up to `wait_s` seconds. Raises as `Slice.read`.
        """

    def latest(self) -> SlavePosition:
        """As that of its source, by what is open."""

    def close(self) -> None:
        """Let go of files and connections."""


class LogSource(Protocol):
    """A source of groups. Picklable; opens files and connections anew in each call."""

    @property
    def name(self) -> str:
        """The name for errors: a path, or an address."""

    @property
    def is_growing(self) -> bool:
        """Whether more may come: a closed directory or an archive that nobody adds to does not."""

    def earliest(self) -> SlavePosition:
        """The position behind which no group is missing."""

    def latest(self) -> SlavePosition:
        """The last group that may be read now."""

    def has_passed(self, position: SlavePosition) -> bool:
        """Whether the log has come as far as the position. Raises `DataLost` if it did, without being there."""

    def slices(self, wanted: Wanted, partition_bytes: int) -> Sequence[Slice]:
        """Slices of all wanted groups that may be read now, in order. Raises `DataLost` if some were purged."""

    def feed(self) -> Feed:
        """A feed of this source, at its beginning; see `Feed`."""


class LogPart(NamedTuple):
    """A part of a log, as its source tells of it without reading it. None is what nobody knows.

    file, first_page, end_page: pages `first_page` to `end_page` - 1 of a file of that number.
    before, behind: GTID binlog states.
    earliest, latest: times in seconds since 1970 of some of its groups.
    groups: how many.
    """

    file: int
    first_page: int | None
    end_page: int | None
    bytes: int
    before: str
    behind: str | None
    earliest: int | None
    latest: int | None
    groups: int | None


@runtime_checkable
class ListedSource(LogSource, Protocol):
    """A source that can tell what it has without reading it."""

    def parts(self, wanted: Wanted) -> Sequence[LogPart]:
        """The parts that may have wanted groups, in order. Raises as `slices`."""
