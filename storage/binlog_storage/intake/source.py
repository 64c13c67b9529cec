"""Sources of groups for a store: binlog files of another server, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import NamedTuple, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.errors import StorageError
from binlog_storage.ibb.xa import Xid


class UnfinishedGroup(StorageError):
    """The files end inside a group whose beginning was given already."""


class FileStart(NamedTuple):
    """A file begins here, and says that this had been logged before."""

    name: str
    state: BinlogState


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """One group in normal form, or a start marker (`gtid` None).

    payload: all of it; of a large group its GTID event alone.
    file, offset: where it begins.
    rest: the other events of a large group, piece by piece, to be taken before the next group is asked for. Raises
        `UnfinishedGroup`: then the group is not there.
    """

    gtid: Gtid | None
    payload: bytes
    file: Path
    offset: int
    rest: Iterator[bytes] | None = field(default=None, compare=False, repr=False)

    @property
    def where(self) -> str:
        """The source as error messages name it."""
        return f"{self.file}:{self.offset}"


Item = FileStart | GroupRun | SourceGroup


class PreparedTransaction(NamedTuple):
    """An XA transaction that waits for its end. `pieces` begins to read its events, in normal form, cut anywhere."""

    xid: Xid
    pieces: Callable[[], Iterator[bytes]]


class IntakeSource(Protocol):
    """Files that can only be read."""

    @property
    def names(self) -> tuple[str, str]:
        """Names of the first and the last file."""

    @property
    def lost_files(self) -> str:
        """Files in front of the first that are missing and were not purged, in words; empty if none are known to be."""

    def base(self, number: int) -> BinlogState:
        """The binlog state at the beginning of a file; files are counted from 0."""

    def file_before(self, position: SlavePosition) -> int | None:
        """The last file that begins at the position or before it; None if none does."""

    def items(self, number: int) -> Iterator[Item]:
        """Groups and markers from that file on, each file begun by its `FileStart`. Raises `StorageError`."""

    @property
    def server_version(self) -> str:
        """Version of the server that wrote the last file read; empty if unknown."""

    @property
    def size(self) -> int:
        """Total bytes of all files."""

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, earlier files included."""

    @property
    def notes(self) -> list[str]:
        """The parts that were left out at the ends of files, with reasons. Whole once `items` has ended."""

    def close(self) -> None:
        """Give up the files."""


class StoreSource(IntakeSource, Protocol):
    """All of one store."""

    def prepared(self) -> list[PreparedTransaction]:
        """The XA transactions that wait, in the order in which they were prepared. Raises `StorageError`."""
