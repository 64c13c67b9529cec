"""The interface between the server layer and a binlog store: what MariaDB calls the storage engine API.

One implementation per format; the promises are in three roles (`EngineWriter`, `EngineReader`, `EngineAdmin`), and a
caller takes the one that it needs. `docs/engine-api.md` maps MariaDB's handlerton methods to these, and
tests/storage/contract holds every implementation to the same promises:

1. `append` orders: groups are read back in the order of the calls, each whole and with the bytes given.
2. Nothing appended is visible to a reader before it is durable; a `sync` that began later makes it so at the latest:
   sync, move the mark, wake.
3. After a crash and `open`, the store is a prefix of what was appended and holds everything that was ever durable.
4. A group's address is its GTID. A `Position` is a token of one open store, for its owner to hand back.

The store is synchronous; every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Final, NamedTuple, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.disk.durations import Durations
from binlog_storage.engine.purge import FileFate, PurgeHeld, PurgePlan
from binlog_storage.engine.references import Pin as Pin
from binlog_storage.errors import StorageError
from binlog_storage.ibb.chunk import Position as Position
from binlog_storage.ibb.xa import Xid as Xid

# Bytes of a group beyond which no batch holds it: see `LargeGroup`.
LARGE_GROUP_BYTES: Final = 4 << 20


class BinlogFile(NamedTuple):
    """One file: its number, and its physical size in bytes."""

    number: int
    size: int


class StartPoint(NamedTuple):
    """The place to read the groups behind a replica's position: read from `position`, skip by GTID.

    `state` is the binlog state there, everything logged before `position`.
    """

    position: Position
    state: BinlogState


@dataclass(frozen=True, slots=True)
class LargeGroup:
    """A group of more than `large_group_bytes`: it is not in memory, but read piece by piece.

    head: its first bytes, at least the GTID event.
    end: as `PlacedGroup.end`.
    pieces: begins to read it from its first byte. Raises `CorruptBinlog` where it is damaged or a file has gone. A hold
        on the file where the batch began holds all of the group.
    """

    head: bytes
    end: Position
    pieces: Callable[[], Iterator[bytes]] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """Consecutive whole groups, in normal form, and start markers. Empty when `start` was the durable end.

    A large group is a batch of its own: `large`, and no `groups`.
    """

    start: Position
    end: Position
    groups: list[bytes]
    large: LargeGroup | None = None

    @property
    def heads(self) -> list[bytes]:
        """The beginnings of all groups, at least their GTID events."""
        return self.groups if self.large is None else [self.large.head]


class PlacedGroup(NamedTuple):
    """A group, or a start marker, and where it ends in the file in which its commit record begins.

    `end` is the end of that file where the record goes on in the next one.
    """

    payload: bytes
    end: Position


@dataclass(frozen=True, slots=True)
class PlacedBatch:
    """Consecutive groups that begin in the file of `start`. The next batch begins at `end`.

    Empty when `start` was the durable end, or when nothing more begins in that file; `end` is in the next one then.
    A large group is a batch of its own: `large`, and no `groups`.
    """

    start: Position
    end: Position
    groups: list[PlacedGroup]
    large: LargeGroup | None = None


class Located(NamedTuple):
    """The group and the borders around a place in a file.

    border: whether a record or the file begins or ends exactly there.
    group: the first group of the file that ends behind the place; None if there is none yet.
    begin, after: the beginning of the group's record, and the position to read on behind it.
    """

    border: bool
    group: PlacedGroup | LargeGroup | None
    begin: Position
    after: Position


class GroupMark(NamedTuple):
    """A place in the transactional events of an open group, for `GroupWriter.rewind`. Opaque."""

    transactional: object


class GroupWriter(Protocol):
    """A group that is still open; its pieces go to the store as they come. One owner, no use after its end."""

    @property
    def spilled(self) -> bool:
        """Whether anything was spilled that was not taken back."""

    def spill(self, data: bytes | bytearray | memoryview, *, statement: bool = False) -> None:
        """Add `data` behind what was spilled before, to the transactional or to the statement list."""

    def mark(self) -> GroupMark:
        """The end of the transactional list now, to go back to by `rewind`."""

    def rewind(self, mark: GroupMark) -> None:
        """Take back all that was spilled to the transactional list since `mark`; it stays as garbage in the files."""

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Write a group begun with `bulk` to its files, and sync them. `commit` and `prepare` do it if it was not done.

        On a full disk it waits for room. Raises `NoRoom` if `given_up` returns True.
        """

    def turn(self) -> AbstractContextManager[None] | None:
        """For a commit that takes long: it is called in a thread, inside of this. None if it does not.

        `has_room` is false inside, so whoever asks that first commits behind it, under a later number.
        """

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        """Append the group: `gtid_event`, the statement list, the transactional list. Returns its end.

        `age`: see `BinlogEngine.append`. After `BinlogBegunAnew` it can be committed under another number.
        """

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        """Prepare the group: it waits for `commit_prepared` or `rollback_prepared`, over restarts too.

        Raises `XaStateError` if the name is in use.
        """

    def give_up(self) -> None:
        """End all waits of this group, for room or for files, with an error. From any thread; `rollback` follows."""

    def rollback(self) -> None:
        """Drop the group. Its spilled data stay in the files as garbage that no reader reaches."""


class Stalled(NamedTuple):
    """Work that fails and is tried again: its name, for how many seconds, and the reason."""

    what: str
    seconds: float
    why: str


class OpenBinlog(Protocol):
    """The common promises to all who have a store open: its age, its state, its two ends, and the way between them."""

    @property
    def age(self) -> int:
        """A number that RESET MASTER changes: positions and numbers of one age mean nothing in another."""

    def binlog_state(self, domain_id: int | None = None) -> BinlogState:
        """A copy of the state behind everything appended.

        With `domain_id` it has that domain only, at a cost that does not grow with the number of domains.
        """

    @property
    def written_end(self) -> Position:
        """The end of the last appended record, durable or not."""

    @property
    def durable_end(self) -> Position:
        """The end of the last durable record: readers see the groups in front of it."""

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        """Make everything appended so far durable, move the mark, wake. Calls at the same time share the work.

        `durable` may be called as soon as it is so, in front of all else, by this thread and once: for whoever waits
        for that alone. It must not raise, nor ask anything of the store. Not where another call has done the work.
        """

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each move of the durable mark, from the thread that synced. Returns the way to stop it."""

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        """Call `failed` once, from whichever thread meets it, when the disk has failed and nothing more is accepted."""


class EngineWriter(OpenBinlog, Protocol):
    """The promises to those who add groups: order, room, and the XA transactions that wait."""

    @property
    def cache_bytes(self) -> int:
        """Groups up to this size are stored in one piece, larger ones are spilled."""

    @property
    def spills_to_files(self) -> bool:
        """Whether `spill` writes a file, which takes as long as the disk does, also where `has_room` is true."""

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        """Add one group in normal form, GTID event first; or, with `gtid` None, a start marker.

        With `age` it is added in that age only, in which its number was given; in another it raises `BinlogBegunAnew`.

        Returns the end of the group: it is durable once `durable_end` has reached it. Raises `StoreFailed` after an
        earlier failure of the disk; `WaitGivenUp` if there is no room, and nobody waits for it; `NoRoom`, or another
        `DiskError`, for a group that goes back in its domain, if that cannot be noted first. Behind the latter two, and
        behind `BinlogBegunAnew`, nothing was written: the group can be appended later.
        """

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        """Add groups of a run from `index` on, as far as there is room. Returns the index of the next group.

        Never waits, and stops after about a millisecond, so that the caller can serve others. It also stops at a group
        larger than `cache_bytes`, which is for `append`. Raises as `append`.
        """

    def begin(self, *, bulk: bool = False) -> GroupWriter:
        """Start a group of unknown size.

        Args:
            bulk: the group may be very large. Its pages are not logged, so they are written once, not twice; its commit
                waits for the disk.
        """

    def prepared(self) -> list[Xid]:
        """Names of the prepared XA transactions."""

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        """Commit a prepared XA transaction. Returns the end of its group. Raises `XaStateError` if there is none."""

    def turn_of(self, xid: Xid) -> AbstractContextManager[None] | None:
        """As `GroupWriter.turn`, for `commit_prepared` of that name."""

    def rollback_prepared(self, xid: Xid) -> Position:
        """Roll back a prepared XA transaction. Raises `XaStateError` if there is none of that name."""

    @property
    def last_marker(self) -> bytes | None:
        """The start marker, if the binlog ends with one; else None."""

    def write_log(self) -> None:
        """Hand everything appended so far to the operating system: a crash of this process alone loses none of it.

        Raises `WaitGivenUp`, at once, in a thread that must not wait, where it would have to: see `never_wait_in`.
        """

    @property
    def has_room(self) -> bool:
        """False when the disk does not keep up, or is full: `append` and `spill` may block then.

        A caller that must not block asks before each, and waits for room in a thread. True holds for `cache_bytes` in
        one `append`, or in one `spill` of each list, and for the `commit` behind these.
        """

    @property
    def has_room_to_spill(self) -> bool:
        """Whether a large group may go on: false sooner than `has_room`, so that small ones need not wait for it."""

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        """Wait for room, `timeout` seconds at most. Returns whether there is room; True if the store has failed."""

    def never_wait_in(self, thread: int) -> None:
        """Name a thread, by `threading.get_ident`, that must not block, such as that of an event loop.

        If `append`, `spill` or `commit` would wait for room there for more than half a second, which `has_room` is to
        prevent, they raise `WaitGivenUp`; such a group must be rolled back.
        """


class EngineReader(OpenBinlog, Protocol):
    """The promises to those who read groups: places, batches cut at fixed places, and files that stay."""

    large_group_bytes: int
    """Groups above this size are read as a `LargeGroup`. At least 32 KiB: what is on two pages is in memory anyway."""

    @property
    def file_start(self) -> int:
        """The offset at which a file begins for readers: `Position(file_no, file_start)`."""

    def file_name(self, number: int) -> str:
        """The name of a file, which need not exist."""

    def file_number(self, name: str) -> int | None:
        """The number in a name as `file_name` makes it; None for any other name."""

    def first_start(self) -> StartPoint:
        """The first place from which everything can be read: behind groups of which purge has left a half.

        `PositionPurged` while everything goes.
        """

    def find_start(self, position: SlavePosition) -> StartPoint:
        """The latest place to start reading for `position`.

        `PositionPurged` if no file reaches back to it, or a part of a group behind it is gone.
        """

    def read(self, start: Position) -> GroupBatch:
        """Groups from `start` up to the durable end: at least one if there is one, and no more than memory bears.

        Batches from the same start are equal as long as neither ends at the durable end: they are cut at fixed places,
        so that readers which came by different ways meet.
        """

    def read_placed(self, start: Position) -> PlacedBatch:
        """A batch as of `read`, of one file at most, with the place of each group: for streams with positions."""

    def is_recent(self, start: Position) -> bool:
        """Whether reading from `start` is served from memory, without waiting for a disk."""

    def locate(self, place: Position) -> Located:
        """The group and borders around a place that comes from outside, right or wrong.

        Raises `PositionPurged` if its file is gone.
        """

    def state_at(self, place: Position) -> BinlogState:
        """The binlog state where a batch of `read` ended. `PositionPurged` if its file is gone."""

    def files(self) -> list[BinlogFile]:
        """The files, oldest first."""

    def groups_of_file(
        self, file_no: int | None = None, offset: int = 0
    ) -> Iterator[Iterator[bytes]]:
        """The groups and markers that begin in a file (the oldest without a number), from byte `offset` of it on.

        Each as its bytes, piece by piece, to be taken before the next group. An offset inside a group starts at the
        next one. Up to the durable end. The file is held until the end of the iteration, or until it is closed.
        `UnknownBinlog` as for `purge_to`; `PositionPurged` for a file that is gone.
        """

    def hold(
        self,
        name: str,
        start: Position | None = None,
        *,
        dump: bool = False,
        slot: bool = False,
        ended_by: str = "",
        holder: tuple[str, str] | None = None,
        wait: bool = True,
    ) -> Pin:
        """Keep the files from `start` on, or without it all files, from being purged.

        Args:
            name: names the hold in messages about files that stay.
            dump: whether a connected replica needs the files.
            slot: whether a replica may come back for them: RESET MASTER does not wait for that.
            ended_by: the action of a person that ends the hold, for the same messages.
            holder: its kind and name for metrics: see `references.Holder`. Without it they follow from the others.
            wait: whether to wait for a RESET MASTER under way, which may take long. If not, it raises
                `BinlogBegunAnew`; listeners (`subscribe`) are woken at the end of the RESET MASTER.
        """


class EngineAdmin(OpenBinlog, Protocol):
    """The promises to those who run a store: its files, its limits, its figures, its end."""

    def flush(
        self, delete_domains: Iterable[int] = (), given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """FLUSH BINARY LOGS [DELETE_DOMAIN_ID]: go on in a new file, everything before it durable.

        The domains to delete are removed from the state; `DomainInUse` if a file still has groups of one. On a full
        disk it waits for room; `NoRoom` if `given_up` returns True.
        """

    def reset(
        self,
        state: BinlogState | None = None,
        given_up: Callable[[], bool] = lambda: False,
        *,
        only_if_empty: bool = False,
    ) -> None:
        """RESET MASTER: delete everything and begin anew, with `state` or from nothing. Positions lose their meaning.

        `only_if_empty`: `BinlogHasGtids` if there is any GTID. `hold`, `first_start` and `find_start` wait for its end.
        `BinlogInUse` while a hold on files exists, `BinlogInUseByTransaction` with a transaction open or prepared;
        `NoRoom` if the store is closed, or `given_up` returns True, while the first file waits for room: the binlog is
        empty then.
        """

    def begin_age(self, age: int) -> None:
        """The age that it has from now on, an even number; before anybody uses it.

        For a store that takes the place of another one while that is in use: positions there mean nothing here.
        """

    def purge_to(self, file_no: int) -> PurgePlan:
        """PURGE BINARY LOGS TO: delete files before this one, from the oldest on, up to one that must stay.

        Returns the deleted files, and why the next wanted file was not. `UnknownBinlog` for a file behind the last one;
        a file that was purged already is fine.
        """

    def purge_before(self, seconds: float) -> PurgePlan:
        """PURGE BINARY LOGS BEFORE: the same for files last written before that time, in seconds since 1970."""

    def explain_purge(self, to: int | None = None, before: float | None = None) -> list[FileFate]:
        """The fate of each file under `purge_to` or `purge_before`, or with neither under the limits of age and size.

        `UnknownBinlog` as for `purge_to`.
        """

    @property
    def max_binlog_size_min(self) -> int:
        """The least that `set_option` takes for max_binlog_size."""

    def set_option(self, name: str, value: int) -> None:
        """Change one of max_binlog_size, max_binlog_total_size, binlog_expire_logs_seconds (in seconds) and
        slave_connections_needed_for_purge; the limits apply soon. ValueError for an impossible value. An option that
        means nothing to the engine is ignored: binlog_large_commit_threshold, where no file is renamed.
        """

    def counters(self) -> Mapping[str, int]:
        """Counters and amounts of the store, by the names of SHOW STATUS."""

    def stalled(self) -> list[Stalled]:
        """The work that the store's threads try again and again. Reads no disk."""

    def purge_held(self) -> PurgeHeld | None:
        """The files that the limits of age and size could not purge in their last round. Reads no disk."""

    def fsync_times(self) -> Mapping[str, Durations]:
        """Durations of syncs by kind of file: `redo` for the log, `binlog` for its files."""

    def stop_waiting(self) -> None:
        """The store will be closed: all waits for room end with an error, now and later."""

    def close(self) -> None:
        """Sync, write the last page, give up the directory."""


class BinlogEngine(EngineWriter, EngineReader, EngineAdmin, Protocol):
    """A binlog store that is open: it keeps the promises of all three roles."""
