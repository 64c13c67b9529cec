"""The interface between the server layer and a binlog store: what MariaDB calls the storage engine API.

One implementation per format. `docs/engine-api.md` maps MariaDB's handlerton methods to these, and
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
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.disk.durations import Durations
from binlog_storage.engine.purge import FileFate, PurgeHeld, PurgePlan
from binlog_storage.errors import StorageError
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.xa import Xid

# Bytes of a group beyond which no batch holds it: see `LargeGroup`.
LARGE_GROUP_BYTES: Final = 4 << 20


class BinlogFile(NamedTuple):
    """One file, as SHOW BINARY LOGS tells it: name without directory, physical size in bytes."""

    name: str
    size: int


class StartPoint(NamedTuple):
    """Where the groups behind a replica's position are found: read from `position`, skip by GTID.

    `state` is the binlog state there, everything logged before `position`.
    """

    position: Position
    state: BinlogState


@dataclass(frozen=True, slots=True)
class LargeGroup:
    """A group of more than `large_group_bytes`: it is not in memory, but read piece by piece.

    head: its first bytes, at least the GTID event.
    end: as `PlacedGroup.end`.
    pieces: begins to read it from its first byte. Raises `CorruptBinlog` where it is damaged or a file has gone. Who
        holds the file of the place where the batch began holds all of it.
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
    """What lies around a place in a file.

    border: whether a record ends or begins just there, or the file does.
    group: the first group of the file that ends behind it; None if there is none yet.
    begin, after: where its record begins, and where to read on behind it.
    """

    border: bool
    group: PlacedGroup | LargeGroup | None
    begin: Position
    after: Position


class Hold(Protocol):
    """Files that must stay, for a reader or whoever asked."""

    def move(self, file_no: int) -> None:
        """From now on only files from `file_no` on; never backwards."""

    def release(self) -> None:
        """Nothing is held any more; twice is no error."""


class GroupMark(NamedTuple):
    """How far the transactional events of an open group had come. Opaque."""

    transactional: object


class GroupWriter(Protocol):
    """A group that is still open; its pieces go to the store as they come. One owner, no use after its end."""

    @property
    def spilled(self) -> bool:
        """Whether anything was spilled that was not taken back."""

    def spill(self, data: bytes | bytearray | memoryview, *, statement: bool = False) -> None:
        """Add `data` behind what was spilled before, to the transactional or to the statement list."""

    def mark(self) -> GroupMark:
        """A place to go back to."""

    def rewind(self, mark: GroupMark) -> None:
        """What was spilled to the transactional list since `mark` stays as garbage that no reader reaches."""

    def settle(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Of a group begun with `bulk`: write out, and wait for the disk. `commit` and `prepare` do it if need be.

        On a full disk it waits for room; `NoRoom` when `given_up` says so.
        """

    def commit(self, gtid_event: bytes, gtid: Gtid, age: int | None = None) -> Position:
        """The group is `gtid_event`, the statement list, the transactional list. Returns its end.

        `age`: see `BinlogEngine.append`; behind `BinlogBegunAnew` it can be committed under another number.
        """

    def prepare(self, xid: Xid, engines: int = 1) -> Position:
        """The group waits for `commit_prepared` or `rollback_prepared`, over restarts too.

        `XaStateError` for a name in use.
        """

    def give_up(self) -> None:
        """Whoever waits for room, or for files, on behalf of this group gets an error. From any thread; behind it comes
        `rollback`.
        """

    def rollback(self) -> None:
        """The group never was. What was spilled stays as garbage that no reader reaches."""


class Stalled(NamedTuple):
    """Something that does not move, and is tried again: what, for how many seconds, and why."""

    what: str
    seconds: float
    why: str


class BinlogEngine(Protocol):
    """A binlog store that is open."""

    large_group_bytes: int
    """Groups above this size are read as a `LargeGroup`. At least 32 KiB: what is on two pages is in memory anyway."""

    @property
    def cache_bytes(self) -> int:
        """Groups up to this size are stored in one piece, larger ones are spilled."""

    @property
    def age(self) -> int:
        """Another number after each RESET MASTER: what is remembered of the binlog is right in one age alone."""

    def append(self, payload: bytes, gtid: Gtid | None, age: int | None = None) -> Position:
        """Add one group in normal form, GTID event first; or, with `gtid` None, a start marker.

        With `age`, in that age alone, in which its number was given: `BinlogBegunAnew` in another.

        Returns the end of the group: it is durable once `durable_end` has reached it. Raises `StoreFailed` after an
        earlier failure of the disk; `WaitGivenUp` if there is no room, and nobody waits for it; `NoRoom`, or another
        `DiskError`, for a group that goes back in its domain, if that cannot be noted first. Behind the latter two, and
        behind `BinlogBegunAnew`, nothing was written: the group can be appended later.
        """

    def append_run(self, run: GroupRun, index: int = 0, age: int | None = None) -> int:
        """Add groups of a run from that one on, as far as there is room. Returns the index of the next one.

        Never waits, and stops after a millisecond's work or so: the caller decides who comes next. Groups that are
        larger than `cache_bytes` are left, too: they are for `append`. Raises as that.
        """

    def begin(self, *, bulk: bool = False) -> GroupWriter:
        """Start a group of unknown size.

        bulk: it may well be very large, and whoever commits it waits for the disk then: written once, not twice.
        """

    def sync(self) -> None:
        """Make everything appended so far durable, move the mark, wake. Calls at the same time share the work."""

    def write_log(self) -> None:
        """Hand everything appended so far to the operating system: a crash of this process alone loses none of it."""

    @property
    def has_room(self) -> bool:
        """False when the disk does not keep up, or is full: `append` and `spill` may block then.

        Whoever must not block asks before each, and waits for room in a thread. It holds for `cache_bytes` in
        one `append`, or in one `spill` of each list, and for the `commit` behind these.
        """

    def never_wait_in(self, thread: int) -> None:
        """That thread, by `threading.get_ident`, must not block, as an event loop's.

        Where `append`, `spill` or `commit` would wait there for room for more than half a second, which `has_room` is
        to prevent, they raise `WaitGivenUp` instead; such a group is to be rolled back.
        """

    @property
    def has_room_to_spill(self) -> bool:
        """Whether a large group may go on: false sooner than `has_room`, so that small ones need not wait for it."""

    def wait_for_room(self, timeout: float | None = None, *, to_spill: bool = False) -> bool:
        """Wait until there is room, that many seconds at most. Returns whether there is; True once it failed."""

    def counters(self) -> Mapping[str, int]:
        """Counters and amounts of the store, by the names of SHOW STATUS."""

    def stalled(self) -> list[Stalled]:
        """What the threads of the store try again and again. Asks no disk."""

    def purge_held(self) -> PurgeHeld | None:
        """What the limits of age and size want to go and cannot, as their last round found it. Asks no disk."""

    def fsync_times(self) -> Mapping[str, Durations]:
        """How long the syncs of each kind of file took, of the `redo` log and of `binlog` files."""

    @property
    def durable_end(self) -> Position:
        """End of what readers may see."""

    @property
    def written_end(self) -> Position:
        """End of what was appended."""

    @property
    def last_marker(self) -> bytes | None:
        """The start marker, if that is the last thing appended."""

    def binlog_state(self, domain_id: int | None = None) -> BinlogState:
        """A copy of the state after everything appended; of that domain alone, at a cost that does not depend on how
        many there are.
        """

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each move of the durable mark, from the thread that synced. Returns the way to stop it."""

    def when_failed(self, failed: Callable[[StorageError], None]) -> None:
        """Call `failed` once, from whichever thread meets it, when the disk has failed and nothing more is accepted."""

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
        """As `read`, with the place of each group, for those who tell positions. Never beyond one file."""

    def locate(self, place: Position) -> Located:
        """What lies around a place that somebody was told, or made up. `PositionPurged` if its file is gone."""

    def state_at(self, place: Position) -> BinlogState:
        """The binlog state where a batch of `read` ended. `PositionPurged` if its file is gone."""

    def is_recent(self, start: Position) -> bool:
        """Whether reading from `start` is served from memory, without waiting for a disk."""

    def prepared(self) -> list[Xid]:
        """Names of the XA transactions that wait."""

    def commit_prepared(self, xid: Xid, gtid_event: bytes, gtid: Gtid) -> Position:
        """Commit one. Returns the end of the group. `XaStateError` if nothing waits by that name."""

    def rollback_prepared(self, xid: Xid) -> Position:
        """Roll one back. `XaStateError` if nothing waits by that name."""

    def flush(
        self, delete_domains: Iterable[int] = (), given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """FLUSH BINARY LOGS [DELETE_DOMAIN_ID]: go on in a new file, everything before it durable.

        Domains to be deleted are forgotten by the state. `DomainInUse` if a file still holds groups of one. On a full
        disk it waits for room; `NoRoom` when `given_up` says so.
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
        `BinlogInUse` while somebody holds files, `BinlogInUseByTransaction` with a transaction open or prepared;
        `NoRoom` if the store is closed, or `given_up` says so, while the first file waits for room: it is empty then.
        """

    def purge_to(self, name: str) -> PurgePlan:
        """PURGE BINARY LOGS TO: delete files before the named one, from the oldest on, up to one that must stay.

        Returns what was deleted, and why the next wanted one was not. `UnknownBinlog` for a name that is none or lies
        beyond the last file; a file that is merely gone already is fine.
        """

    def purge_before(self, seconds: float) -> PurgePlan:
        """PURGE BINARY LOGS BEFORE: the same for files last written before that time, in seconds since 1970."""

    def explain_purge(self, to: str | None = None, before: float | None = None) -> list[FileFate]:
        """What `purge_to`, `purge_before`, or with neither the limits of age and size would do, file by file.

        `UnknownBinlog` as for `purge_to`.
        """

    @property
    def max_binlog_size_min(self) -> int:
        """The least that `set_option` takes for max_binlog_size."""

    def set_option(self, name: str, value: int) -> None:
        """Change one of max_binlog_size, max_binlog_total_size, binlog_expire_logs_seconds (in seconds) and
        slave_connections_needed_for_purge; the limits apply soon. ValueError for an impossible value.
        """

    def groups_of_file(self, name: str | None = None, offset: int = 0) -> Iterator[Iterator[bytes]]:
        """The groups and markers that begin in a file (the oldest without a name), from byte `offset` of it on.

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
        ended_by: str = "",
        wait: bool = True,
    ) -> Hold:
        """Keep the files from `start` on (all of them without it) from being purged. `name` is told to who asks why.

        Args:
            ended_by: what a person does to end it.
            wait: for a RESET MASTER that is at work, which may take long; False: `BinlogBegunAnew` then. Listeners
                (`subscribe`) are woken at its end.
        """

    def files(self) -> list[BinlogFile]:
        """The files, oldest first."""

    def status(self) -> tuple[str, int]:
        """Name of the file being written and offset of the next write."""

    def stop_waiting(self) -> None:
        """The store will be closed: whoever waits for room gets an error, now and from now on."""

    def close(self) -> None:
        """Sync, write the last page, give up the directory."""
