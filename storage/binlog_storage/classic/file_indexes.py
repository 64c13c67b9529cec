"""The GTID indexes of a store of traditional files: made while a file is written, read by searches, made again.

The file that is written has places in memory; its index gets pages while it grows, and its root when another file
follows, by the store's caretaker, or when the store is closed. It is never needed: what cannot be written is left out,
and made again later. A search that finds none that it believes reads the binlog file, and has the index made again by
the caretaker.

An index is believed when all of this is true:

1. each page on the way has its CRC-32; offsets grow; a node lies in front of those that point to it;
2. its first record is the GTID list of its file, at its place;
3. the groups behind its last record lead to the GTID list of the next file. This is looked at once in each file;
4. the groups between the record that was found and the one before it are those that it tells, if that is not far.

So one that was made for other groups is not: an old one beside a file of the same name, or one of a file that was cut.
The file that the store goes on in loses its index before a byte of it changes.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.classic.binlog import FileHead
from binlog_storage.classic.directory import BinlogDirectory
from binlog_storage.classic.gtid_index import (
    INDEX_SUFFIX,
    BadIndex,
    IndexedPlace,
    IndexReader,
    IndexTree,
)
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.disk.disk import File, replaced
from binlog_storage.errors import DiskError, DiskFull, FileMissing, StorageError

log = logging.getLogger(__name__)

_MARK_BYTES: Final = 256 << 10  # between places in memory: a search reads as much
_PAGES_BYTES: Final = 64 << 10  # written at once


class GrowingIndex:
    """The index of a file to which groups are added. Adding is of one thread at a time; searches may be of any.

    Args:
        tree: None for places in memory alone.
        span_min: bytes from one record to the next, at least.
    """

    def __init__(self, head: FileHead, tree: IndexTree | None, span_min: int) -> None:
        self._begin = BinlogState(head.gtids)
        self._tree = tree
        self._span = span_min
        self._last = self._last_mark = 0
        self._latest: Gtid | None = None  # not in the next ones yet
        self._new = BinlogState()
        self._new_to_mark = BinlogState()
        self._marks: list[tuple[int, list[Gtid]]] = []
        self._lock = threading.Lock()
        self.has_grown = False
        """There are records that `take` has not looked at."""

    @classmethod
    def of(cls, head: FileHead, options: ClassicOptions) -> GrowingIndex:
        """An empty one, as the options say."""
        tree = None
        if options.binlog_gtid_index:
            tree = IndexTree(head.list_end, head.gtids, options.binlog_gtid_index_page_size)
        return cls(head, tree, options.binlog_gtid_index_span_min)

    def add(self, end: int, gtid: Gtid) -> None:
        """A group that ends at an offset."""
        latest = self._latest
        if latest is not None and (latest[1] != gtid[1] or latest[0] != gtid[0]):
            self._new.update(latest)  # of another domain or server: it stays
        self._latest = gtid
        if end - self._last >= self._span:
            self._record(end)

    def until_record(self, end: int) -> int:
        """Bytes from that end to the next one that gets a record; not below 1."""
        return max(self._last + self._span - end, 1)

    def add_run(self, run: GroupRun, ends: list[int]) -> None:
        """The same of many."""
        at = 0
        while at < len(ends):
            following = bisect_left(ends, self._last + self._span, at)
            if following == len(ends):
                self.add(ends[-1], run.last)  # which is too near for a record
                return
            self.add(ends[following], run.gtid(following))
            at = following + 1

    def _record(self, end: int) -> None:
        if self._latest is not None:
            self._new.update(self._latest)
            self._latest = None
        change = self._new.entries()
        self._new = BinlogState()
        self._last = end
        if self._tree is not None:
            with self._lock:
                self._tree.add(end, change)
            self.has_grown = True
        self._new_to_mark.overlay(change)
        if end - self._last_mark >= _MARK_BYTES:
            self._marks.append((end, self._new_to_mark.entries()))
            self._new_to_mark = BinlogState()
            self._last_mark = end

    def find(self, passes: Callable[[int, BinlogState], bool]) -> IndexedPlace | None:
        """As `IndexReader.find`, at the places in memory."""
        found = None
        state = self._begin.copy()
        for offset, change in self._marks[:]:
            state.overlay(change)
            if not passes(offset, state):
                break
            found = IndexedPlace(offset, state.copy(), None)
        return found

    @property
    def has_tree(self) -> bool:
        """Whether it becomes a file."""
        return self._tree is not None

    def take(self, least: int = 1) -> bytes:
        """The pages of the file that are due, if they are so many bytes."""
        self.has_grown = False  # before the look at them
        with self._lock:
            tree = self._tree
            return tree.take() if tree is not None and tree.waiting >= least else b""

    def finish(self) -> bytes:
        """The rest of the file."""
        with self._lock:
            assert self._tree is not None
            return self._tree.finish()


class Growing:
    """An index in its file, while it grows."""

    def __init__(self, number: int, index: GrowingIndex) -> None:
        self.number = number
        self.index = index
        self._file: File | None = None
        self._size = 0
        self.given_up = not index.has_tree

    def write(self, directory: BinlogDirectory) -> None:
        """Write what is due; what fails gives up the file."""
        if not self.given_up and (data := self.index.take(_PAGES_BYTES)):
            self._try(lambda: self._append(directory, data))

    def finish(self, directory: BinlogDirectory) -> bool:
        """Write the rest, durably. Whether the file is whole now."""
        if not self.given_up:
            self._try(lambda: self._finish(directory))
        return not self.given_up

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except DiskError as error:
            self.given_up = True
            log.warning(
                "%s: the GTID index of this file is made again when a search wants it", error
            )

    def _append(self, directory: BinlogDirectory, data: bytes) -> None:
        if self._file is None:
            self._file = directory.disk.open(
                directory.name(self.number) + INDEX_SUFFIX, create=True
            )
        self._file.pwrite(data, self._size)
        self._size += len(data)

    def _finish(self, directory: BinlogDirectory) -> None:
        self._append(directory, self.index.finish())
        assert self._file is not None
        self._file.fdatasync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FileIndexes:
    """All indexes of one store.

    Args:
        options: gives those that hold now.
        indexing: held while files lose their names.
        numbers: gives the files that the binlog's index names, under `indexing`.
        build: reads a file for its index.
    """

    def __init__(
        self,
        directory: BinlogDirectory,
        options: Callable[[], ClassicOptions],
        indexing: AbstractContextManager[object],
        numbers: Callable[[], list[int]],
    ) -> None:
        self._directory = directory
        self._options = options
        self._indexing = indexing
        self._numbers = numbers
        self.current: Growing | None = None
        """That of the last file, to which each group is added, under the append lock; None where it is not known."""
        self._ended: list[Growing] = []  # another file follows; they have no root yet
        self._missed: set[int] = set()
        self._checked: set[int] = set()
        self._told: set[int] = set()
        self._wanted: Callable[[], None] = lambda: None
        self._age = 0
        self._counting = threading.Lock()
        self.hits = self.misses = 0
        self.stopping = False
        """The store is being closed: nothing is made again any more."""

    def when_wanted(self, poke: Callable[[], None]) -> None:
        """`poke` is called when there is something to do for `step`."""
        self._wanted = poke

    # --- writing ---

    def clear(self, number: int) -> None:
        """In front of a new file: one that has its name already is of another. Raises `DiskError`."""
        with contextlib.suppress(FileMissing):
            self._directory.disk.unlink(self._directory.name(number) + INDEX_SUFFIX)
        self._missed.discard(number)
        self._checked.discard(number)

    def begin(self, number: int, head: Callable[[int], FileHead]) -> None:
        """Groups are added from now on to this file, which has only its `head`."""
        if self.current is not None:
            self._ended.append(self.current)
            self.current = None
        try:
            self.go_on(number, GrowingIndex.of(head(number), self._options()))
        except StorageError as error:
            log.warning("%s: the GTID index of this file is made when a search wants it", error)

    def go_on(self, number: int, index: GrowingIndex) -> None:
        """The same for a file of which the groups are in the index already."""
        self.current = Growing(number, index)

    def until_record(self, end: int) -> int:
        """Bytes from the end of the last file to the next record. Under the append lock."""
        return sys.maxsize if self.current is None else self.current.index.until_record(end)

    def write(self) -> None:
        """Write what is due of the last file. Under the lock of writes."""
        if self.current is not None and self.current.index.has_grown:
            self.current.write(self._directory)

    def forget(self) -> None:
        """Other files have the same numbers: RESET MASTER."""
        for growing in (*self._ended, *([self.current] if self.current else [])):
            growing.close()
        self.current = None
        self._age += 1
        for known in (self._ended, self._missed, self._checked, self._told):
            known.clear()

    def close(self) -> None:
        """No group is added any more: finish all."""
        if self.current is not None:
            self._ended.append(self.current)
            self.current = None
        self._finish_ended()

    def _finish_ended(self) -> None:
        for growing in self._ended[:]:
            with self._indexing:
                if growing.number in self._numbers() and growing in self._ended:
                    growing.finish(self._directory)
            growing.close()
            with contextlib.suppress(ValueError):
                self._ended.remove(growing)

    # --- searching ---

    @property
    def is_on(self) -> bool:
        """Whether there are to be files."""
        return self._options().binlog_gtid_index

    def growing(self, number: int) -> GrowingIndex | None:
        """The index in memory of a file, if it has one."""
        current = self.current
        if current is not None and current.number == number:
            return current.index
        return next((one.index for one in self._ended if one.number == number), None)

    def find(
        self,
        number: int,
        passes: Callable[[int, BinlogState], bool],
        check: Callable[[IndexReader], None],
        check_found: Callable[[IndexedPlace], None],
    ) -> IndexedPlace | None:
        """The place in a file from which a search may go on; None for its beginning.

        Args:
            check: raises `BadIndex` for an index that is another file's; called once for each.
            check_found: the same of what was found.
        """
        if (growing := self.growing(number)) is not None:
            self._count(hit=self.is_on)
            return growing.find(passes)
        if not self.is_on:
            return None
        name = self._directory.name(number) + INDEX_SUFFIX
        try:
            with contextlib.closing(self._directory.disk.open(name)) as file:
                reader = IndexReader(file)
                if number not in self._checked:
                    check(reader)
                    self._checked.add(number)
                found = reader.find(passes)
                if found is not None:
                    check_found(found)
        except (BadIndex, DiskError) as error:
            self._miss(number, name, error)
            return None
        self._count(hit=True)
        return found

    def _count(self, *, hit: bool = False, miss: bool = False) -> None:
        with self._counting:
            self.hits += hit
            self.misses += miss

    def _miss(self, number: int, name: str, error: Exception) -> None:
        self._count(miss=True)
        if not isinstance(error, FileMissing) and number not in self._told:
            self._told.add(number)
            log.warning("the binlog file is read instead of its GTID index %s: %s", name, error)
        self._checked.discard(number)
        self._missed.add(number)
        self._wanted()

    # --- the caretaker ---

    def step(self, build: Callable[[int], GrowingIndex | None]) -> bool:
        """One round: give the files that have ended their roots; make one index again. Whether there is more to do.

        `build`: reads a file; None if it is gone.
        """
        self._finish_ended()
        if not self._missed or not self.is_on:
            return False
        number, age = min(self._missed), self._age
        try:
            # The last file has none here if its head could not be read: it still grows.
            index = None if number in self._numbers()[-1:] else build(number)
            if index is not None:
                self._publish(number, age, index)
        except StorageError as error:
            log.warning("%s: there is no GTID index of %s", error, self._directory.name(number))
        finally:
            self._missed.discard(number)
        return bool(self._missed)

    def _publish(self, number: int, age: int, index: GrowingIndex) -> None:
        name = self._directory.name(number) + INDEX_SUFFIX
        with self._indexing:
            if number not in self._numbers() or age != self._age or not index.has_tree:
                return
            try:
                with replaced(self._directory.disk, name) as file:
                    file.pwrite(index.finish(), 0)
            except DiskFull:
                self._directory.disk.unlink(f"{name}.new")  # half of it is of no use
                raise
            self._checked.discard(number)
            self._told.discard(number)
        log.info("made the GTID index %s", name)


def remove_unfinished(directory: BinlogDirectory, names: Iterable[str]) -> None:
    """Delete the halves of indexes that a crash has left while they were made again."""
    for name in names:
        stem = name.removesuffix(f"{INDEX_SUFFIX}.new")
        if stem != name and directory.number(stem) is not None:
            directory.disk.unlink(name)
