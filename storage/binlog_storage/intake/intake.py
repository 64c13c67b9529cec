"""Groups from elsewhere into a store: each once, in their order, exactly behind what is there.

    the store        the files begin where                     what is done
    empty            anywhere                                  it begins with the state of the first file
    at a position    at that position or before it             what comes before it is passed over
    at a position    behind it, or it is not in them           `DoesNotContinue`
    beyond them      all that they have is in the store        nothing

A place in the files is that of the store when the last GTIDs of all domains are equal. If it ends with a group, its
bytes must be those of the store's last group. Thus a second run goes on where one was killed, and a third does nothing.
Numbers that go backwards, as a server without gtid_strict_mode may log them, are taken as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.header import split_events
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.stored_group import HEAD_BYTES, group_gtid
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.disk.local_path import free_bytes
from binlog_storage.engine import BinlogEngine, Position
from binlog_storage.errors import DomainInUse, PositionPurged, StorageError
from binlog_storage.ibb.records import parsed
from binlog_storage.intake.nothing_stored import NothingStored
from binlog_storage.intake.source import FileStart, IntakeSource, SourceGroup, UnfinishedGroup
from binlog_storage.log.stored_groups import digest

UNSYNCED_BYTES_MAX = 64 << 20  # what a crash may cost of the work
_LOOK_UP_S = 0.5
_TAIL_BYTES = 4 << 20


class DoesNotContinue(StorageError):
    """The groups do not follow exactly upon what there is. None of them was stored."""


class FilesMissing(StorageError):
    """Between two files, or in front of the first, there were others."""


@dataclass
class Taken:
    """The groups that an intake has stored. Sizes in bytes, in normal form."""

    groups: int = 0
    size: int = 0
    passed_over: int = 0
    began_at: BinlogState | None = None
    """The state with which an empty store began."""
    is_beyond: bool = False
    """The store had all of it, and more."""
    notes: list[str] = field(default_factory=list)
    waits: bool = False
    """For room on the disk, or for the disk."""


def taken_object(taken: Taken, position: SlavePosition, seconds: float) -> dict[str, object]:
    """The same for a program, with the GTID position of the store behind it."""
    return {
        "groups": taken.groups,
        "bytes": taken.size,
        "passed_over": taken.passed_over,
        "begins_at": None if taken.began_at is None else str(taken.began_at),
        "position": str(position),
        "notes": taken.notes,
        "seconds": round(seconds, 3),
    }


def progress_text(taken: Taken, source: IntakeSource, target: Path) -> str:
    """How far an intake is, and what it waits for."""
    text = f"of {_mib(source.size)}, {taken.groups} groups"
    if taken.passed_over:
        text += f", {taken.passed_over} passed over"
    if taken.waits:
        text += f"; waits for room for some {_mib(source.size - source.bytes_read)} more"
        with contextlib.suppress(OSError):
            text += f", and {_mib(free_bytes(target))} are free there"
    return text


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"


IntakeTarget = BinlogEngine | NothingStored
"""What takes the groups; nothing, in a dry run."""


class Intake:
    """One run, in one thread. What was taken is durable when `run` returns; when it raises, too, if there is room.

    Whatever it waits for, it asks `progress` meanwhile.
    """

    def __init__(
        self,
        engine: IntakeTarget,
        source: IntakeSource,
        progress: Callable[[Taken], None] = lambda taken: None,
    ) -> None:
        """`progress` is called again and again, also while there is no room; what it raises ends the run."""
        self._engine = engine
        self._source = source
        self._progress = progress
        self._taken = Taken()
        self._unsynced = 0
        self._state = BinlogState()  # of the files, as far as they were gone through
        self._file = ""  # that is being read
        self._seen: set[int] = set()  # domains of which there were groups
        self._target: SlavePosition | None = None  # where the store is; None once we are there
        self._tail: StoreTail | None = None
        self._differs = ""  # a group that has the name of the last one that is stored
        self._markers: list[bytes] = []  # that come next, and are there already
        self._given_up: BaseException | None = None  # by `progress`, in a wait of the store

    def run(self) -> Taken:
        """Raises `DoesNotContinue`, `FilesMissing`, or another `StorageError`."""
        number = self._begin()
        try:
            for item in self._source.items(number):
                self._take(item)
                self._progress(self._taken)
        except BaseException:
            if self._engine.wait_for_room(0):  # else it would wait for that, and hear of no Ctrl-C
                self._engine.sync()
            raise
        self._engine.sync()
        if self._target is not None:
            self._require_beyond(self._target)
        self._taken.notes = self._source.notes
        return self._taken

    def _begin(self) -> int:
        """The file that the intake begins with."""
        state = self._engine.binlog_state()
        base = self._source.base(0)
        if not len(state):
            if self._source.lost_files:
                raise FilesMissing(
                    f"{self._source.lost_files}. Restore what is missing, or give a copy that has the .ibb files "
                    f"alone: it is taken to begin with {self._source.names[0]}"
                )
            if len(base):
                self._patiently(lambda given_up: self._engine.reset(base, given_up))
                self._taken.began_at = base
            self._markers = StoreTail(self._engine).markers
            return 0
        self._target = position = state.position()
        number = self._source.file_before(position)
        if number is None:
            raise DoesNotContinue(
                f"the store ends at {position}, but {self._source.names[0]} begins at {_shown(base.position())}: the "
                "files do not reach back to the store's end, or are another history. Give the earlier files, too, or "
                "begin with an empty directory"
            )
        self._tail = StoreTail(self._engine)
        # The group in front of a file is in one before: so it can be compared.
        while number and self._source.base(number).position() == position:
            number -= 1
        return number

    def _take(self, item: FileStart | GroupRun | SourceGroup) -> None:
        if isinstance(item, FileStart):
            self._enter(item)
        elif isinstance(item, GroupRun):
            self._take_run(item)
        elif item.gtid is None:
            self._take_marker(item.payload)
        else:
            self._take_group(item, item.gtid)

    def _enter(self, start: FileStart) -> None:
        is_next = self._file != "" and self._is_followed_by(start.state)
        if not is_next:
            if self._file and self._target is None:
                raise FilesMissing(
                    f"{self._file} ends at {_shown(self._state)}, but {start.name} begins at {_shown(start.state)}: "
                    "files between them are missing, or they are not of one history. What came before is stored"
                )
            self._state = start.state.copy()
            if self._state.position() == self._target and not self._differs:
                self._go_on_here()
        self._file = start.name

    def _is_followed_by(self, listed: BinlogState) -> bool:
        """FLUSH BINARY LOGS DELETE_DOMAIN_ID makes a server forget domains of which its files have no groups."""
        forgotten = set(self._state.domains()) - set(listed.domains()) - self._seen
        if forgotten:
            kept = (g for g in self._state.entries() if g.domain_id not in forgotten)
            self._state = BinlogState(kept)
            if self._target is None:
                self._forget(forgotten)
            elif self._state.position() == self._target and not self._differs:
                self._go_on_here()  # the store has forgotten them, too
        return (
            set(listed.entries()) == set(self._state.entries())
            and listed.position() == self._state.position()
        )

    def _forget(self, domains: set[int]) -> None:
        """As that server has; but a store that has groups of them, from elsewhere, does not."""
        with contextlib.suppress(DomainInUse):
            self._patiently(lambda given_up: self._engine.flush(domains, given_up))

    # --- groups ---

    def _take_run(self, run: GroupRun) -> None:
        index = 0
        if self._target is not None:
            index = self._index_behind(run, self._target)
            self._taken.passed_over += index
        begin = run.ends[index - 1] if index else 0
        self._note_logged(run.last)
        if self._target is not None:
            return
        while index < len(run):
            done = self._engine.append_run(run, index)
            if done == index:
                self._append(run.payload(index), run.gtid(index))
                done += 1
            self._count(done - index, run.ends[done - 1] - begin)
            index, begin = done, run.ends[done - 1]

    def _have_room(self) -> None:
        """Wait for it where `progress` is called meanwhile, and may give it up."""
        while not self._engine.wait_for_room(_LOOK_UP_S):
            self._taken.waits = True
            self._progress(self._taken)
        self._taken.waits = False

    def _patiently(self, work: Callable[[Callable[[], bool]], object]) -> None:
        """Work of the store that may wait for room by itself: `progress` is called meanwhile, and may give it up."""
        try:
            work(self._is_given_up)
        except StorageError:
            if self._given_up is not None:
                raise self._given_up from None
            raise
        self._taken.waits = False

    def _is_given_up(self) -> bool:
        self._taken.waits = True
        try:
            self._progress(self._taken)
        except BaseException as error:  # noqa: BLE001 - raised behind the wait
            self._given_up = error
            return True
        return False

    def _index_behind(self, run: GroupRun, target: SlavePosition) -> int:
        """Number of groups of the run in front of the store's end; all of them if the end is not in the run."""
        gtid = target.get(run.domain_id)
        if gtid is None or gtid.server_id != run.server_id or gtid.seq_no not in run.seq_nos:
            return len(run)
        index = run.seq_nos.index(gtid.seq_no)
        state = self._state.copy()
        state.update(gtid)
        if state.position() != target:
            return len(run)
        return index + 1 if self._arrives(gtid, [run.payload(index)], self._file) else len(run)

    def _take_group(self, group: SourceGroup, gtid: Gtid) -> None:
        if self._target is not None:
            self._pass_over(group, gtid, self._target)
            return
        if group.rest is None:
            self._append(group.payload, gtid)
            size = len(group.payload)
        else:
            try:
                size = self._append_spilled(group.payload, group.rest, gtid, bulk=True)
            except UnfinishedGroup:
                return
        self._note_logged(gtid)
        self._count(1, size)

    def _append(self, payload: bytes, gtid: Gtid) -> None:
        """A group that lies in memory."""
        if len(payload) <= self._engine.cache_bytes:
            self._have_room()
            self._engine.append(payload, gtid)
        else:
            gtid_event = next(split_events(payload))
            rest = memoryview(payload)[len(gtid_event) :]
            self._append_spilled(gtid_event, [rest], gtid, bulk=False)

    def _append_spilled(
        self, gtid_event: bytes, rest: Iterable[bytes | memoryview], gtid: Gtid, *, bulk: bool
    ) -> int:
        """Record by record: the store would wait for room between them, and ask nobody."""
        size, most = len(gtid_event), self._engine.cache_bytes
        writer = self._engine.begin(bulk=bulk)
        try:
            for piece in rest:
                for at in range(0, len(piece), most):
                    self._progress(self._taken)
                    self._have_room()
                    writer.spill(piece[at : at + most])
                size += len(piece)
            self._patiently(writer.settle)
            self._have_room()
            writer.commit(gtid_event, gtid)
        except BaseException:
            writer.rollback()  # or it would hold its files for ever
            raise
        return size

    def _pass_over(self, group: SourceGroup, gtid: Gtid, target: SlavePosition) -> None:
        state = self._state.copy() if gtid == target.get(gtid.domain_id) else None
        if state is not None:
            state.update(gtid)
        try:
            if state is not None and state.position() == target:
                self._arrives(gtid, chain([group.payload], group.rest or ()), group.where)
            else:
                for _ in group.rest or ():
                    self._progress(self._taken)
        except UnfinishedGroup:
            return
        self._note_logged(gtid)
        self._taken.passed_over += 1

    def _take_marker(self, payload: bytes) -> None:
        if self._target is not None:
            return
        if self._markers and self._markers[0] == payload:
            del self._markers[0]
        else:
            self._have_room()
            self._engine.append(payload, None)

    def _note_logged(self, gtid: Gtid) -> None:
        self._state.update(gtid)
        self._seen.add(gtid.domain_id)

    def _count(self, groups: int, size: int) -> None:
        self._markers.clear()
        self._taken.groups += groups
        self._taken.size += size
        self._unsynced += size
        if self._unsynced > UNSYNCED_BYTES_MAX:
            self._engine.sync()
            self._unsynced = 0

    # --- where the store ends ---

    def _go_on_here(self) -> None:
        self._target = None
        self._markers = list(self._tail.markers) if self._tail is not None else []

    def _arrives(self, gtid: Gtid, pieces: Iterable[bytes], where: str) -> bool:
        """Whether the store's last group has arrived, and says the same as here."""
        tail = self._tail
        assert tail is not None
        if tail.gtid == gtid and not tail.is_last(pieces):
            self._differs = f"{where}: group {gtid}"
            return False
        self._go_on_here()
        return True

    def _require_beyond(self, target: SlavePosition) -> None:
        """Check a source that ends before the store's last group: the store must have all of its groups."""
        if self._differs:
            raise DoesNotContinue(
                f"{self._differs} is another one than the store's last group of that name: the histories differ. "
                "Begin with an empty directory"
            )
        stored = self._engine.binlog_state()
        for gtid in self._state.position():
            if not stored.has(gtid):
                raise DoesNotContinue(
                    f"the store ends at {target}, and the files at {_shown(self._state.position())}, but no place in "
                    "them is where the store ends: they are not one history. Begin with an empty directory"
                )
        self._taken.is_beyond = True


class ReadableStore(Protocol):
    """What the end of a store is read by; see `EngineReader`."""

    @property
    def durable_end(self) -> Position: ...
    def files(self) -> Sequence[tuple[int, int]]: ...
    def groups_of_file(self, file_no: int, begin: int) -> Iterator[Iterator[bytes]]: ...


class StoreTail:
    """The last group of a store that nobody writes. Reads 4 MiB and that group, or more if markers alone follow it."""

    def __init__(self, engine: ReadableStore) -> None:
        """Raises `StorageError`."""
        self.gtid: Gtid | None = None
        """The GTID of the last group; None if there is no group."""
        self.markers: list[bytes] = []
        """Start markers behind it."""
        self._digest = b""
        end = engine.durable_end
        for file_no, size in reversed(engine.files()):
            if file_no > end.file_no:
                continue  # made ahead
            size = end.offset if file_no == end.file_no else size
            behind = self.markers
            for begin in sorted({max(size - _TAIL_BYTES, 0), 0}, reverse=True):
                with contextlib.suppress(PositionPurged):
                    self._read(engine, file_no, begin)
                    self.markers += behind
                if self.gtid is not None:
                    return

    def _read(self, engine: ReadableStore, file_no: int, begin: int) -> None:
        """The last group that begins in that part of a file, and the markers behind it."""
        self.markers = []
        for pieces in engine.groups_of_file(file_no, begin):
            head = b""
            while len(head) < HEAD_BYTES and (piece := next(pieces, b"")):
                head += piece
            gtid = parsed(group_gtid, head, Position(file_no, begin))
            if gtid is None:
                self.markers.append(b"".join((head, *pieces)))
            else:
                self.gtid, self._digest = gtid, digest(chain([head], pieces))
                self.markers.clear()

    def is_last(self, pieces: Iterable[bytes]) -> bool:
        """Whether these are the bytes of the last group."""
        return digest(pieces) == self._digest


def _shown(gtids: BinlogState | SlavePosition) -> str:
    return f"'{gtids}'" if len(gtids) else "the very beginning"
