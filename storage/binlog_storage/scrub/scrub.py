"""What a store and its archive are looked through for while a server has them open, in steps that can end anywhere.

    page      a page of an .ibb file whose checksum is wrong, an empty one in front of data, a file that ends in one
    record    records and groups of an .ibb file that are not what a writer makes
    event     an event of a traditional file: its CRC32, if it has one, and what it says of itself; and a file that ends
              in front of groups that the next one has behind it, or of its durable end
    file      a file that is missing between others
    read      bytes that the disk does not give
    part      a part of an archive: its SHA-256 by the manifest, or that it is missing

It takes the place of another process that reads: files are opened by their names, past the page cache of the store, up
to the published durable end. Nothing is locked or held, so files may be purged and the binlog may begin anew meanwhile:
the first is no damage, and of the second the owner says that it was so (`Round.is_over`).

`Verifier` looks at more, in a directory that nobody writes: states, facts, the redo log, references.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.header import split_pieces
from binlog_protocol.groups.group_check import GroupCheck

from binlog_storage.archive.archive import Archive
from binlog_storage.archive.errors import ArchiveDamaged, ArchiveUnreachable
from binlog_storage.archive.manifest import ArchivePart
from binlog_storage.classic.binlog import mark_of
from binlog_storage.classic.checked_file import CheckedFile
from binlog_storage.classic.encryption import Keys
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.disk.read_only_disk import ReadableDisk, ReadableFile
from binlog_storage.errors import (
    CorruptBinlog,
    DiskError,
    FileMissing,
    PositionPurged,
    StorageError,
    TooManyOpenFiles,
)
from binlog_storage.ibb.chunk import Position, Record, RecordType
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, check
from binlog_storage.ibb.records import RecordReader
from binlog_storage.log.group_reader import began_in, group_pieces, has_two_lists
from binlog_storage.log.log_pages import LogPages
from binlog_storage.log.whole_file import require_whole

KINDS: Final = ("page", "record", "event", "file", "read", "part")
_FILE_DAMAGES_MAX: Final = 20
"""Of one file; a disk that has lost more is not told page by page."""
_READ_PAGES: Final = 16
_READ_BYTES: Final = _READ_PAGES * PAGE_SIZE


class Damage(NamedTuple):
    """One thing that is wrong. `name`: of a file, or of a part with its archive. `offset`: in it, in bytes."""

    kind: str
    name: str
    offset: int
    reason: str

    def __str__(self) -> str:
        page = f" page {self.offset // PAGE_SIZE}" if self.kind in ("page", "record") else ""
        return f"{self.name}{page} offset {self.offset}: {self.reason}"


class LookedAt(NamedTuple):
    """A file or a part of an archive was looked at to its end, and all in front of it.

    mark: tells it from another one of that name.
    """

    name: str
    mark: str


Found = Damage | LookedAt | StorageError | None

Look = Generator[Found, None, None]
"""Goes on to the next damage, the end of a file, (None) a place where it may pause, or an error behind which it tries
again."""


@dataclass(eq=False)
class Meter:
    """The bytes that looks have read."""

    bytes_read: int = 0


class MeteredDisk:
    """A disk whose reads are counted. `failed`: the file in which the last failure was; empty before."""

    def __init__(self, disk: ReadableDisk, meter: Meter) -> None:
        self._disk: Final = disk
        self.meter: Final = meter
        self.names: Final = disk.names
        self.size: Final = disk.size
        self.failed = ""

    def open(self, name: str) -> ReadableFile:
        """Raises `DiskError`."""
        with self.noting(name):
            return _MeteredFile(self._disk.open(name), name, self)

    @contextlib.contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """What fails in here has failed in that file."""
        try:
            yield
        except DiskError:
            self.failed = name
            raise


class _MeteredFile:
    def __init__(self, file: ReadableFile, name: str, disk: MeteredDisk) -> None:
        self._file: Final = file
        self._name: Final = name
        self._disk: Final = disk
        self.size: Final = file.size
        self.next_data: Final = file.next_data
        self.close: Final = file.close

    def pread(self, size: int, offset: int) -> bytes:
        with self._disk.noting(self._name):
            data = self._file.pread(size, offset)
        self._disk.meter.bytes_read += len(data)
        return data


class Round:
    """One round over everything, in steps.

    Args:
        looks: made when their turn comes.
        is_over: whether the binlog has begun anew, so that all that was met since may be of no store.
        damages: that an earlier part of the round has found.
    """

    def __init__(
        self,
        looks: Sequence[Callable[[], Look]],
        meter: Meter,
        is_over: Callable[[], bool],
        damages: Iterable[Damage] = (),
    ) -> None:
        self._looks: Final = list(reversed(looks))
        self._meter: Final = meter
        self.is_over: Final = is_over
        self._look: Look | None = None
        self.damages: Final[dict[Damage, None]] = dict.fromkeys(damages)
        self.passed: LookedAt | None = None
        """How far it has come: another round may begin behind that."""
        self.given_up = False
        """It has ended because the binlog has begun anew."""

    def step(
        self, bytes_max: int, told: Callable[[Damage], None], stopped: Callable[[], bool]
    ) -> bool:
        """Read about so many bytes. Whether the round has ended. Raises `StorageError`: the next step tries again.

        Args:
            told: is given each damage, once.
            stopped: asked at each pause; True ends the step.
        """
        limit = self._meter.bytes_read + bytes_max
        while self._meter.bytes_read < limit and not stopped():
            if self._look is None:
                if not self._looks:
                    return True
                self._look = self._looks[-1]()
            try:
                found = next(self._look)
            except StopIteration:
                found = self._look = None
                self._looks.pop()
            except BaseException:
                self._look = None  # it begins anew, so that nothing is left out
                raise
            if self.is_over():  # what was found may be what RESET MASTER leaves of the files
                self.given_up = True
                self.close()
                return True
            if isinstance(found, StorageError):
                raise found
            if isinstance(found, LookedAt):
                self.passed = found
            elif found is not None and found not in self.damages:
                self.damages[found] = None
                told(found)
        return False

    def close(self) -> None:
        """Let go of the files of the look at work."""
        look, self._look = self._look, None
        if look is not None:
            look.close()


# --- .ibb files ---


def ibb_look(disk: MeteredDisk, end: Position, behind: str = "") -> Look:
    """The files of a store up to its published `end`. Raises `DiskError` if the directory cannot be listed.

    `behind`: an earlier look has passed the file of that name.
    """
    with LogPages(disk, end) as pages:
        told: set[tuple[str, int]] = set()
        numbers = [number for number in pages.files() if file_name(number) >= behind]
        for file_no, following in zip(numbers, [*numbers[1:], None], strict=True):
            missing = file_no + 1
            if following not in (missing, None) and not _was_purged_now(disk, missing):
                reason = f"the file is missing, but there is {file_name(following or 0)}"
                told.add((file_name(missing), 0))
                yield Damage("file", file_name(missing), 0, reason)
            if file_name(file_no) == behind:
                continue
            yield from _bounded(_one_ibb_file(disk, pages, file_no, end), told)
            if (passed := _passed_ibb(pages, file_no)) is not None:
                yield passed


def ibb_mark(disk: ReadableDisk, end: Position, name: str) -> LookedAt | None:
    """What the look at a file ends with; None for one whose header cannot be read, or is gone."""
    numbers = [number for number in file_numbers(disk.names()) if file_name(number) == name]
    with LogPages(disk, end) as pages:
        return _passed_ibb(pages, numbers[0]) if numbers else None


def _passed_ibb(pages: LogPages, file_no: int) -> LookedAt | None:
    try:
        page = pages.page(file_no, 0)
        header = None if page is None or page == ZERO_PAGE else FileHeader.parse(page, file_no)
    except StorageError:
        return None
    return None if header is None else LookedAt(file_name(file_no), f"{header.start_lsn}")


def _bounded(look: Look, told: set[tuple[str, int]]) -> Look:
    """The first damage of each page, and no more than some: then the file is left.

    Args:
        told: pages, by file; other files refer to this one, and what they meet in it is told once.
    """
    count = 0
    for found in look:
        if isinstance(found, Damage):
            page = found.name, found.offset // PAGE_SIZE
            if page in told:
                continue
            told.add(page)
            count += 1
        yield found
        if count >= _FILE_DAMAGES_MAX:
            look.close()
            return


def _one_ibb_file(disk: MeteredDisk, pages: LogPages, file_no: int, end: Position) -> Look:
    try:
        yield from _ibb_pages(disk, file_no, end)
        yield from _ibb_records(disk, pages, file_no, end)
        if file_no < end.file_no:
            yield from _ibb_end(disk, pages, file_no)
    except PositionPurged:
        return
    except TooManyOpenFiles:
        raise
    except DiskError as error:
        if not _was_purged_now(disk, file_no):
            yield Damage("read", disk.failed or file_name(file_no), 0, str(error))


def _was_purged_now(disk: ReadableDisk, file_no: int) -> bool:
    numbers = file_numbers(disk.names())
    return not numbers or file_no < numbers[0]


def _ibb_pages(disk: ReadableDisk, file_no: int, end: Position) -> Look:
    """The checksums of the pages that are not written any more."""
    name = file_name(file_no)
    file = disk.open(name)
    try:
        is_last = file_no == end.file_no
        size = file.size()
        count = end.offset // PAGE_SIZE if is_last else size // PAGE_SIZE
        if size % PAGE_SIZE and not is_last:
            yield Damage(
                "page",
                name,
                size - size % PAGE_SIZE,
                f"the file of {size} bytes ends inside a page",
            )
        empty: int | None = None
        for first in range(0, count, _READ_PAGES):
            wanted = min(_READ_PAGES, count - first) * PAGE_SIZE
            data = file.pread(wanted, first * PAGE_SIZE)
            for at in range(0, len(data), PAGE_SIZE):
                page, page_no = data[at : at + PAGE_SIZE], first + at // PAGE_SIZE
                if page == ZERO_PAGE:
                    empty = page_no if empty is None else empty
                    continue
                if empty is not None:
                    reason = "an empty page, but later pages hold data"
                    yield Damage("page", name, empty * PAGE_SIZE, reason)
                    empty = None
                try:
                    check(page, file_no, page_no)
                except CorruptBinlog as error:
                    yield Damage("page", name, error.offset, error.reason)
            if len(data) < wanted:
                reason = f"the file ends here, and {wanted - len(data)} bytes more were there"
                yield Damage("page", name, first * PAGE_SIZE + len(data), reason)
                return
            yield None
        if is_last and empty is not None:
            reason = "an empty page in front of the published end"
            yield Damage("page", name, empty * PAGE_SIZE, reason)
    finally:
        file.close()


def _ibb_records(disk: ReadableDisk, pages: LogPages, file_no: int, end: Position) -> Look:
    """The records that begin in a file, and the groups of its commit records."""
    limit = min(end, Position(file_no + 1, PAGE_SIZE))
    place, size = Position(file_no, PAGE_SIZE), disk.size(file_name(file_no))
    try:
        pages.header(file_no)
    except CorruptBinlog as error:
        yield Damage("record", file_name(file_no), error.offset, error.reason)
    while place < limit and place.offset < size:
        reader = RecordReader(pages, place, limit, skip_partial=True)
        try:
            while (record := reader.next()) is not None:
                if record.type == RecordType.COMMIT:
                    yield from _group(disk, pages, record)
                yield None
            return
        except CorruptBinlog as error:
            # What it meets at the beginning of the next file is told when that is looked at.
            if error.file_no <= file_no and not _was_purged_now(disk, error.file_no):
                yield Damage("record", file_name(error.file_no), error.offset, error.reason)
            here = reader.position
            if error.file_no == file_no:
                here = max(here, Position(error.file_no, error.offset))
            if here.file_no != file_no or error.file_no > file_no:
                return  # at the end of this file
            place = Position(file_no, max(here.page_no, place.page_no) * PAGE_SIZE + PAGE_SIZE)


def _ibb_end(disk: ReadableDisk, pages: LogPages, file_no: int) -> Look:
    """A file that was cut short behind a group."""
    try:
        require_whole(pages, file_no)
    except CorruptBinlog as error:
        if not _was_purged_now(disk, error.file_no):
            yield Damage("record", file_name(error.file_no), error.offset, error.reason)


def _group(disk: ReadableDisk, pages: LogPages, record: Record) -> Look:
    """The group of a commit record. Damage in it ends the look at it alone: the next record is known."""
    name, offset = file_name(record.start.file_no), record.start.offset
    try:
        gone = began_in(record)
        if gone is not None and _was_purged_now(disk, gone):
            return  # a half, as purge leaves it
        group = GroupCheck(two_ends=has_two_lists(record))
        size = 0
        for event in split_pieces(group_pieces(pages, record)):
            group.add(event)
            size += len(event)
            if size >= _READ_BYTES:
                size = 0
                yield None
        group.finish()
    except CorruptBinlog as error:
        if not _was_purged_now(disk, error.file_no):
            yield Damage("record", file_name(error.file_no), error.offset, error.reason)
    except PositionPurged:
        pass
    except (ProtocolError, ValueError) as error:
        yield Damage("record", name, offset, str(error))


# --- traditional files ---


def classic_look(
    disk: ReadableDisk,
    name: str,
    is_there: Callable[[], bool],
    keys: Keys | None = None,
    *,
    size: int | None = None,
    following: str | None = None,
    gap: bool = False,
) -> Look:
    """One traditional file, to its first damage: behind it nothing can be found.

    A file without a STOP or ROTATE event is no damage by itself, as a killed MariaDB leaves one: the next file decides.

    Args:
        is_there: whether it is one of the store still.
        size: its durable end, where it is being written; None: it is not written any more.
        following: the file behind it.
        gap: whether there are numbers between the two: a file may be missing.
    """
    yield from _one_classic_file(disk, name, is_there, keys, size, following, gap=gap)
    if (passed := classic_mark(disk, name)) is not None:
        yield passed


def classic_mark(disk: ReadableDisk, name: str) -> LookedAt | None:
    """The same of a traditional file."""
    try:
        with contextlib.closing(disk.open(name)) as file:
            return LookedAt(name, f"{mark_of(file)}")
    except StorageError:
        return None


def _one_classic_file(
    disk: ReadableDisk,
    name: str,
    is_there: Callable[[], bool],
    keys: Keys | None,
    size: int | None,
    following: str | None,
    *,
    gap: bool,
) -> Look:
    checked = CheckedFile(
        disk, name, keys, size=size, durable_end=size or 0, following=following, gap=gap
    )
    try:
        for _ in checked.groups():
            yield None
    except DamagedBinlog as error:
        if is_there():
            told = f"{error.reason}; what follows it was not looked at"
            yield Damage("event", name, error.offset, told)
    except UnreadableBinlog as error:
        if is_there():
            yield Damage("event", name, 0, str(error))
    except TooManyOpenFiles:
        raise
    except FileMissing as error:
        if is_there():
            yield Damage("file", name, 0, str(error))
    except DiskError as error:
        if is_there():
            yield Damage("read", name, 0, str(error))


# --- archives ---


def archive_look(
    opened: Callable[[], Archive],
    meter: Meter,
    stopped: Callable[[], bool],
    behind: LookedAt | None = None,
) -> Look:
    """The parts of an archive by its manifest. An archive that cannot be reached is tried again.

    Args:
        opened: the archive as it is now; asked again where a part is wrong, which may have become one with others.
        stopped: a part is not to be fetched to its end.
        behind: an earlier look came so far; if that part has become one with others, this one begins at the first.
    """
    archive = yield from _reached(opened)
    try:
        is_behind = behind is None or all(_part_mark(p.part) != behind for p in archive.parts())
        for placed in archive.parts():
            part = placed.part
            if not is_behind:
                is_behind = _part_mark(part) == behind
                continue
            while True:
                try:
                    reason = yield from _part(archive, part, meter, stopped)
                    break
                except ArchiveUnreachable as error:
                    yield error
            if reason:
                now = yield from _reached(opened)
                if any(one.part == part for one in now.parts()):
                    yield Damage("part", f"{archive.where}/{part.name}", 0, reason)
            yield _part_mark(part)
    except ArchiveDamaged as error:
        yield Damage("part", archive.where, 0, str(error))


def _part_mark(part: ArchivePart) -> LookedAt:
    return LookedAt(part.name, part.sha256)


def _reached(opened: Callable[[], Archive]) -> Generator[Found, None, Archive]:
    while True:
        try:
            return opened()
        except ArchiveUnreachable as error:
            yield error


def _part(
    archive: Archive, part: ArchivePart, meter: Meter, stopped: Callable[[], bool]
) -> Generator[Found, None, str]:
    """The fault of a part; empty if there is none."""
    digest, size = hashlib.sha256(), 0
    try:
        with archive.place.open(part.name, part.size, stopped) as file:
            while data := file.read(_READ_BYTES):
                meter.bytes_read += len(data)
                digest.update(data)
                size += len(data)
                yield None
    except FileNotFoundError:
        return "the part is missing"
    except (OSError, DiskError, ArchiveDamaged) as error:
        return str(error)
    if size != part.size:
        return f"it has {size} bytes, and the manifest says {part.size}"
    if digest.hexdigest() != part.sha256:
        return "its bytes are not those that were written (sha256)"
    return ""
