"""Appending groups that were spilled: their cache file becomes the next binlog file, or they are copied.

The steps, and what a crash leaves at each, stand at the head of `store.py`.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.classic.back_pressure import Turns
from binlog_storage.classic.binlog_files import CurrentFile, MadeFile, NewFiles
from binlog_storage.classic.encryption import CountedFile
from binlog_storage.classic.patience import Patience
from binlog_storage.classic.rotation import Rotation
from binlog_storage.classic.small_commits import SmallCommits
from binlog_storage.classic.spool import CACHE_FOLDER, CacheFile, Spool
from binlog_storage.classic.write_behind import WriteBehind
from binlog_storage.classic.writing import padded, pieces_laid_out
from binlog_storage.classic.written_log import CACHE_BYTES, WrittenLog
from binlog_storage.classic.xa_files import Commitment, PreparedFile
from binlog_storage.engine import Position
from binlog_storage.errors import DiskError, DiskFull, OtherFileSystem
from binlog_storage.tables.store import TableStep

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

_GTID_ROOM: Final = (
    2048  # reserved for a GTID event, and for GTIDs that the list has more until the commit
)
_BLOCK_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class LargeCommit:
    """A large group that is to be appended.

    age: of the binlog; None for any.
    given_up: ends waits for room.
    ending: under the locks, the end of the transaction of tables that commits with it.
    prepared: the XA transaction that it commits.
    """

    gtid_event: bytes
    gtid: Gtid
    age: int | None
    given_up: Callable[[], bool]
    ending: Callable[[], TableStep] | None = None
    prepared: PreparedFile | None = None

    def step(self) -> TableStep | None:
        """The end of its rows, if it has some."""
        return None if self.ending is None else self.ending()


class _AdoptedFile:
    """A cache file that gets the name of a binlog file, its group up to that place."""

    def __init__(self, binlog: WrittenLog, name: str, spool: Spool, place: Position) -> None:
        self._log = binlog
        self._files = binlog.files
        self._name = name
        self._spool = spool
        self._place = place

    def make(
        self,
        head: bytes,
        event: bytes,
        noted: Callable[[Position | None], None],
        follower: NewFiles | None,
    ) -> list[MadeFile]:
        """See `NewFiles`. `noted`: told where the group begins; `follower`: the file behind it, which it ends for."""
        file, end = self._spool.file, self._place.offset
        file.pwrite(head + event, 0)
        file.start_writing(self._spool.reserved, 0)
        if follower is not None:
            last = self._files.rotate_at(end, self._spool.checksum_algorithm, follower.numbers[0])
            try:
                file.pwrite(last, end)
            except DiskError:
                with self._log.soundness.failing():
                    file.truncate(end)
                raise
            file.start_writing(len(last), end)
        try:
            noted(Position(self._place.file_no, len(head)))
            self._files.disk.rename(self._spool.name, self._name)
        except BaseException:
            with self._log.soundness.failing():
                self._cut(noted)
            raise
        made = [MadeFile(file, end, end, self._spool.checksum_algorithm)]
        if follower is not None:
            try:
                made += follower.make()
            except BaseException:
                with self._log.soundness.failing():
                    self.unmake(noted, None, made)
                raise
        return made

    def unmake(
        self,
        noted: Callable[[Position | None], None],
        follower: NewFiles | None,
        made: list[MadeFile],
    ) -> None:
        """It is a cache file again."""
        if follower is not None:
            follower.unmake(made[1:])
        self._files.disk.rename(self._name, self._spool.name)
        self._cut(noted)

    def _cut(self, noted: Callable[[Position | None], None]) -> None:
        noted(None)
        self._spool.file.truncate(self._place.offset)


class LargeCommits:
    """Of one store; each method from any thread."""

    def __init__(
        self,
        binlog: WrittenLog,
        patience: Patience,
        rotation: Rotation,
        small: SmallCommits,
        turns: Turns,
        behind: WriteBehind,
    ) -> None:
        self._log = binlog
        self._files = binlog.files
        self._patience = patience
        self._rotation = rotation
        self._small = small
        self._turns = turns
        self._behind = behind
        self._spools = itertools.count(1)

    def turn(self) -> AbstractContextManager[None]:
        """`has_room` is false inside of it: see `GroupWriter.turn`."""
        return self._turns

    def new_spool(self) -> Spool:
        """For an open group."""
        algorithm = self._files.options.binlog_checksum
        encrypted = None if self._files.sealing is None else CountedFile.temporary
        return Spool(self._files.disk, algorithm, self._new_cache_file, self._behind, encrypted)

    def _new_cache_file(self) -> CacheFile:
        """With room for the head of the next file as it would be now, and a little more."""
        files = self._files
        with self._log.lock:
            head = files.head(
                self._log.current.number + 1,
                self._log.state,
                files.description(),
                files.options.binlog_checksum,
            )
        reserved = -(-(len(head) + _GTID_ROOM) // _BLOCK_BYTES) * _BLOCK_BYTES
        return CacheFile(f"{CACHE_FOLDER}/ML_{next(self._spools)}", reserved)

    def spill(self, spool: Spool, data: Buffer, given_up: Callable[[], bool]) -> None:
        """Add to an open group; waits for room. Raises `WaitGivenUp`."""
        self._patience.until_done(lambda: spool.add(data), given_up)

    def append_spools(
        self,
        gtid_event: bytes,
        gtid: Gtid,
        spools: Sequence[Spool],
        age: int | None,
        given_up: Callable[[], bool],
        ending: Callable[[], TableStep] | None = None,
    ) -> Position:
        """Append the group of a GTID event and what these hold. A large one is durable when it returns, if it was
        renamed.

        ending: under the locks, the end of the transaction of tables that commits with it.
        Raises `WaitGivenUp` if `given_up` returns True while the disk is full: nothing was appended.
        """
        self._log.soundness.require_sound()
        for spool in spools:
            spool.require_whole()
        group = LargeCommit(gtid_event, gtid, age, given_up, ending)
        if len(spools) == 1 and self.may_rename(spools[0]):
            end = self.rename(group, spools[0])
            if end is not None:
                return end
        if len(gtid_event) + sum(map(len, spools)) <= CACHE_BYTES:
            payload = gtid_event + b"".join(itertools.chain(*(spool.plain() for spool in spools)))
            if ending is None:
                return self._small.append(payload, gtid, age)
            return self._small.append_ending(payload, gtid, ending, age)
        self._rotation.rotate_before_append()
        return self.copy(
            group, lambda: itertools.chain([gtid_event], *(spool.plain() for spool in spools))
        )

    def may_rename(self, spool: Spool) -> bool:
        """Whether its file is to become the next binlog file."""
        return (
            spool.is_one_file
            and self.is_large(spool.body_size)
            and spool.checksum_algorithm == self._files.options.binlog_checksum
        )

    def is_large(self, size: int) -> bool:
        """Whether a group of so many bytes is to be renamed."""
        return (
            self._files.sealing is None
            and size >= self._files.options.binlog_large_commit_threshold
        )

    def settle(
        self, spool: Spool, given_up: Callable[[], bool], *, is_synced_again: bool = False
    ) -> int:
        """Do ahead what a rename needs and takes time. Returns the end of the file. Raises `WaitGivenUp`.

        is_synced_again: see `Spool.seal`.
        """

        def settled() -> int:
            end = spool.seal(is_synced_again=is_synced_again)
            self._files.prepare(2 if self._fills(end) else 1)
            return end

        return self._patience.until_done(settled, given_up)

    def _fills(self, end: int) -> bool:
        """Whether a file with that end is followed by another at once."""
        return end >= self._files.options.max_binlog_size

    def rename(self, group: LargeCommit, spool: Spool) -> Position | None:
        """Let the file of a large group be the next binlog file. None if it has to be copied."""
        end = self.settle(spool, group.given_up, is_synced_again=True)

        def renamed() -> Position | None:
            self._log.admit_step(with_tables=group.ending is not None)
            with self._rotation.still():
                self._log.require_open(group.age)
                place = self._adopt(group, spool, end)
                if place is None:
                    with self._files.indexing:
                        self._files.directory.end_note()
                return place

        try:
            place = self._patience.until_done(renamed, group.given_up)
        except OtherFileSystem as error:
            log.warning("%s: the group is copied", error)
            return None
        if place is not None:
            self._log.soundness.wake()
        return place

    def _adopt(self, group: LargeCommit, spool: Spool, end: int) -> Position | None:
        """The same, inside of `still`. The file is durable but for what is reserved, and its last events."""
        number = self._files.next_number()
        algorithm = spool.checksum_algorithm
        head = self._files.head(number, self._log.state, self._files.description(), algorithm)
        event = padded(group.gtid_event, len(head), spool.reserved, algorithm)
        if event is None or algorithm != self._files.options.binlog_checksum:
            log.info(
                "Could not rename binlog cache to binlog: required %d bytes, reserved are %d",
                len(head) + len(group.gtid_event),
                spool.reserved,
            )
            return None
        place = Position(number, end)

        def decide() -> None:
            step = group.step()
            self._log.log_step(step, place)
            if step is not None and self._log.rows is not None:
                self._log.rows.flush()

        def entered() -> None:
            if group.prepared is not None:
                self._log.xa.commits(group.prepared)
            self._log.note_group(0, group.gtid)  # it is in the file already
            self._log.bytes_written += end - len(head)
            self._log.group_commits += 1

        adopted = _AdoptedFile(self._log, self._files.directory.name(number), spool, place)
        noted = functools.partial(self._note_commitment, group)
        follower = self._follower(group.gtid, number + 1) if self._fills(end) else None
        new = NewFiles(
            [number] if follower is None else [number, number + 1],
            functools.partial(adopted.make, head, event, noted, follower),
            functools.partial(adopted.unmake, noted, follower),
            None if group.ending is None else decide,
            entered,
        )
        self._rotation.next_file(self._log.state, new)
        spool.give_file()
        log.info("Renamed binlog cache to binlog %s", self._files.directory.name(number))
        return place

    def _follower(self, gtid: Gtid, number: int) -> NewFiles:
        """The empty file behind one that is as long as a file may be."""
        state = BinlogState(self._log.state.entries())
        state.update(gtid)
        return self._files.empty_file(state, self._files.description(), number)

    def _note_commitment(self, group: LargeCommit, place: Position | None) -> None:
        """Note durably where the group of a prepared transaction is being written; None for nowhere."""
        if group.prepared is not None:
            commitment = None if place is None else Commitment(place, group.gtid)
            self._log.xa.note(group.prepared, commitment)

    def copy(self, group: LargeCommit, plain: Callable[[], Iterable[bytes]]) -> Position:
        """Append a group of pieces in normal form at the end of the file, waiting for room. Without locks."""
        return self._patience.until_done(lambda: self._copied_once(group, plain()), group.given_up)

    def _copied_once(self, group: LargeCommit, plain: Iterable[bytes]) -> Position:
        """The same, once. Its bytes are written without locks: others wait for its end before they append, and a sync
        makes durable what is in front of it.
        """
        with self._log.alone():
            self._log.admit(group.age)
            self._log.write_out()
            current, begin = self._log.current, self._log.current.end
            self._log.copying = True
        try:
            with self.turn():
                try:
                    self._note_commitment(group, Position(current.number, begin))
                    return self._copied_behind(group, plain, current)
                except BaseException as error:
                    with self._log.soundness.failing():
                        if isinstance(error, DiskError) and not isinstance(error, DiskFull):
                            raise
                        current.file.truncate(begin)
                        self._note_commitment(group, None)
                    raise
        finally:
            self._log.end_copy()

    def _copied_behind(
        self, group: LargeCommit, plain: Iterable[bytes], current: CurrentFile
    ) -> Position:
        """The last piece is written under the locks: with tables behind a sync of the redo log, over zeros that have
        kept its room.

        Each event is given its end: what waits has none, and a replica that reads by file and wants no ANNOTATE_ROWS
        events counts its place wrong between events without ends.
        """
        begin = at = last_at = current.end
        file, last, rows = current.file, b"", self._log.rows
        for data in pieces_laid_out(plain, begin, current.checksum_algorithm):
            file.pwrite(last, last_at)
            file.start_writing(len(last), last_at)
            last, last_at = current.sealed(data, at), at
            at += len(last)
        self._log.admit_step(with_tables=group.ending is not None)
        with self._log.writing, self._log.lock:
            self._log.soundness.require_sound()
            if rows is None:
                file.pwrite(last, last_at)
            else:
                file.pwrite(bytes(len(last)), last_at)
                self._log.log_step(group.step(), Position(current.number, at))
                rows.flush()
                with self._log.soundness.failing():
                    file.pwrite(last, last_at)
            current.written = at
            if group.prepared is not None:
                self._log.xa.commits(group.prepared)
            return self._log.note_group(at - begin, group.gtid)
