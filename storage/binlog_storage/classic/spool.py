"""The events of an open group, in front of the binlog: MariaDB's cache of a transaction.

    #binlog_cache_files/ML_1    a hole of `reserved` bytes, and events as they lie in a binlog file

Events are laid out as they come, so that the file can become a binlog file: each with its CRC-32, and with 0 as its
end, as MariaDB 11.8 writes those inside of groups. The last one waits, since its end is real. What is reserved takes
the head of a binlog file and the GTID event. A file means nothing behind a crash: a start deletes it.
"""

from __future__ import annotations

import logging
import struct
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import CHECKSUM_SIZE, crc32, laid_out
from binlog_protocol.events.header import (
    END_POSITION_OFFSET,
    FLAGS_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
)
from binlog_protocol.limits import EVENT_BYTES_MAX

from binlog_storage.classic.stored_files import plain_pieces
from binlog_storage.classic.write_behind import WriteBehind
from binlog_storage.disk.disk import Disk, File
from binlog_storage.errors import DiskError, DiskFull, FileMissing

log = logging.getLogger(__name__)

CACHE_FOLDER: Final = "#binlog_cache_files"
_CACHE_PREFIX: Final = "ML"
_MEMORY_BYTES: Final = 32768  # MariaDB's binlog_cache_size
_PIECE_BYTES: Final = 256 << 10
_WHOLE_BYTES: Final = (
    64 << 10
)  # of an event that is held whole; a longer one is laid out as it comes
_END_BYTES: Final = 1024  # of events that end a group: they come behind what is settled ahead
_LENGTH: Final = struct.Struct("<I")
_LENGTH_AND_END: Final = struct.Struct("<II")


@dataclass(slots=True)
class _Reading:
    """Where the events that come are.

    last: the last whole event, in normal form: it is not laid out yet.
    event: the beginning of one that is not whole.
    left: so many bytes lacks a long one that is laid out as it comes; `crc` of what has come.
    long_at: where a long one begins that is the last whole event; -1 if that is `last`.
    broken: what came are no events.
    size: bytes that have come.
    """

    last: bytes = b""
    event: bytes = b""
    left: int = 0
    crc: int = 0
    long_at: int = -1
    broken: bool = False
    size: int = 0


class SpoolMark:
    """A place to go back to. It is one as long as somebody has it."""

    __slots__ = ("__weakref__", "ranges", "reading")

    def __init__(self, ranges: tuple[tuple[int, int], ...], reading: _Reading) -> None:
        self.ranges = ranges
        self.reading = reading

    @property
    def end(self) -> int:
        """Where what was laid out then ends."""
        return self.ranges[-1][1] if self.ranges else 0


class CacheFile(NamedTuple):
    """The file of a spool: its name, and the bytes at its beginning that are reserved."""

    name: str
    reserved: int


class Spool:
    """One list of events. One owner. What is taken back stays as garbage while a mark behind it is somebody's.

    Args:
        checksum_algorithm: of the events as they are laid out.
        new_file: gives a new name for the file, in `CACHE_FOLDER`.
        behind: is told what is written to the file.
        encrypted: what is written to and read from in the place of the file, which no offset is written twice in.
    """

    def __init__(
        self,
        disk: Disk,
        checksum_algorithm: int,
        new_file: Callable[[], CacheFile],
        behind: WriteBehind,
        encrypted: Callable[[File], File] | None = None,
    ) -> None:
        self._disk = disk
        self.checksum_algorithm = checksum_algorithm
        self._new_file = new_file
        self._behind = behind
        self._encrypted = encrypted
        self._memory = bytearray()  # laid out, behind what is in the file
        self._file: File | None = None
        self.name = ""
        self.reserved = 0
        self._in_file = 0  # without what is reserved
        self._ranges: list[tuple[int, int]] = []  # of what was laid out and not taken back
        self._reading = _Reading()
        self._marks: weakref.WeakSet[SpoolMark] = weakref.WeakSet()
        self._sealed: int | None = None  # the size with which the file was, and was synced

    def __len__(self) -> int:
        """Bytes of the events in normal form."""
        return self._reading.size

    # --- adding ---

    def add(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end, cut anywhere. Raises `DiskError`: nothing is added then."""
        reading, before = replace(self._reading), len(self._memory)
        begin = self._in_file + before
        self._lay_out(memoryview(data))
        self._reading.size += len(data)
        end = self._in_file + len(self._memory)
        if len(self._memory) > _MEMORY_BYTES:
            try:
                self._write()
            except BaseException:
                del self._memory[before:]
                self._reading = reading
                raise
        if end == begin:
            return
        if self._ranges and self._ranges[-1][1] == begin:
            begin = self._ranges.pop()[0]
        self._ranges.append((begin, end))

    def _lay_out(self, data: memoryview) -> None:
        at, size, reading = 0, len(data), self._reading
        while at < size:
            if reading.left:
                piece = data[at : at + reading.left]
                self._go_on(piece)
                at += len(piece)
            elif reading.broken:
                self._memory += data[at:]
                return
            elif reading.event:
                at += self._gather(data[at:])
            else:
                while size - at >= HEADER_SIZE:
                    (length,) = _LENGTH.unpack_from(data, at + LENGTH_OFFSET)
                    if not HEADER_SIZE <= length <= min(_WHOLE_BYTES, size - at):
                        break
                    self._push(bytes(data[at : at + length]))
                    at += length
                reading.event = bytes(data[at : at + HEADER_SIZE])
                at += len(reading.event)
                if len(reading.event) == HEADER_SIZE:
                    self._gather(data[:0])

    def _gather(self, data: memoryview) -> int:
        """More of an event that is not whole. Returns how much was taken."""
        reading = self._reading
        taken = data[: max(0, HEADER_SIZE - len(reading.event))]
        reading.event += taken
        if len(reading.event) < HEADER_SIZE:
            return len(taken)
        (length,) = _LENGTH.unpack_from(reading.event, LENGTH_OFFSET)
        if not HEADER_SIZE <= length <= EVENT_BYTES_MAX:
            reading.broken = True
            self._memory += reading.event
            reading.event = b""
        elif length > _WHOLE_BYTES:
            self._begin_long(length)
        else:
            rest = data[len(taken) : len(taken) + length - len(reading.event)]
            reading.event += rest
            if len(reading.event) == length:
                self._push(reading.event)
                reading.event = b""
            return len(taken) + len(rest)
        return len(taken)

    def _push(self, event: bytes) -> None:
        """A whole event: the one before it is not the last."""
        reading = self._reading
        if reading.last:
            self._memory += laid_out(reading.last, None, self.checksum_algorithm)
        reading.last, reading.long_at = event, -1

    def _begin_long(self, length: int) -> None:
        reading = self._reading
        head, reading.event = reading.event, b""
        self._push(b"")
        reading.long_at = self._in_file + len(self._memory)
        reading.left, reading.crc = length - HEADER_SIZE, 0
        self._go_on_head(head, length, 0)

    def _go_on_head(self, head: bytes, length: int, end: int) -> None:
        data = self._long_head(head, length, end)
        self._reading.crc = crc32(data)
        self._memory += data

    def _long_head(self, head: bytes, length: int, end: int) -> bytes:
        tail = CHECKSUM_SIZE if self.checksum_algorithm else 0
        changed = _LENGTH_AND_END.pack(length + tail, end & 0xFFFFFFFF)
        return head[:LENGTH_OFFSET] + changed + head[FLAGS_OFFSET:]

    def _go_on(self, piece: memoryview) -> None:
        """More of a long event."""
        reading = self._reading
        self._memory += piece
        reading.left -= len(piece)
        if self.checksum_algorithm:
            reading.crc = crc32(piece, reading.crc)
            if not reading.left:
                self._memory += _LENGTH.pack(reading.crc)

    def _write(self) -> None:
        if self._file is None:
            found = self._new_file()
            self._file, self.name, self.reserved = self._made(found.name), *found
            if self._encrypted is not None:
                self._file = self._encrypted(self._file)
        if not self._memory:
            return
        self._file.pwrite(self._memory, self.reserved + self._in_file)
        self._in_file += len(self._memory)
        self._behind.wrote(self.name, len(self._memory))
        self._memory.clear()

    def _made(self, name: str) -> File:
        try:
            return self._disk.open(name, create=True)
        except FileMissing:  # somebody has removed the folder
            self._disk.make_folder(CACHE_FOLDER)
            return self._disk.open(name, create=True)

    # --- going back ---

    def mark(self) -> SpoolMark:
        """What there is now."""
        mark = SpoolMark(tuple(self._ranges), replace(self._reading))
        self._marks.add(mark)
        return mark

    def rewind(self, mark: SpoolMark) -> None:
        """Go back to a mark."""
        self._sealed = None
        self._ranges = list(mark.ranges)
        self._reading = replace(mark.reading)
        if self._encrypted is None and all(other.end <= mark.end for other in self._marks):
            del self._memory[max(0, mark.end - self._in_file) :]
            self._in_file = min(self._in_file, mark.end)

    # --- what there is ---

    def require_whole(self) -> None:
        """Raises `ProtocolError` for what are no whole events."""
        reading = self._reading
        if reading.broken or reading.event or reading.left:
            raise ProtocolError(f"an open group of {reading.size} bytes does not end with an event")

    @property
    def body_size(self) -> int:
        """Bytes of what is laid out: all but the last event, if that is not a long one."""
        return sum(end - begin for begin, end in self._ranges)

    @property
    def size(self) -> int:
        """Bytes of all events as they lie in a file."""
        return self.body_size + len(self.last(None))

    def body(self) -> Iterator[bytes]:
        """What is laid out, in pieces cut anywhere."""
        at, size = 0, self.body_size
        while at < size:
            piece = self._read(min(_PIECE_BYTES, size - at), at)
            at += len(piece)
            yield piece

    def last(self, begin: int | None) -> bytes:
        """The last event as it lies at an offset of a file, or with 0 as its end; nothing if it is a long one."""
        last = self._reading.last
        return laid_out(last, begin, self.checksum_algorithm) if last else b""

    def end_at(self, end: int) -> None:
        """Note in the last event where it ends, if it is a long one. Raises `DiskError`."""
        at = self._reading.long_at
        if at < 0:
            return
        self._write()
        assert self._file is not None
        place = self.reserved + at
        head = self._file.pread(HEADER_SIZE, place)
        (length,) = _LENGTH.unpack_from(head, LENGTH_OFFSET)
        changed = head[:END_POSITION_OFFSET] + _LENGTH.pack(end & 0xFFFFFFFF) + head[FLAGS_OFFSET:]
        self._file.pwrite(changed, place)
        if self.checksum_algorithm:
            crc, done = crc32(changed), HEADER_SIZE
            while done < length - CHECKSUM_SIZE:
                piece = self._file.pread(
                    min(_PIECE_BYTES, length - CHECKSUM_SIZE - done), place + done
                )
                crc = crc32(piece, crc)
                done += len(piece)
            self._file.pwrite(_LENGTH.pack(crc), place + done)

    def _read(self, size: int, offset: int) -> bytes:
        """Bytes of what is laid out, fewer only in front of a border between file, memory, and garbage."""
        for begin, end in self._ranges:
            if offset >= end - begin:
                offset -= end - begin
                continue
            at, upto = begin + offset, min(end, begin + offset + size)
            if at < self._in_file:
                assert self._file is not None
                piece = self._file.pread(min(upto, self._in_file) - at, self.reserved + at)
                assert piece
                return piece
            return bytes(self._memory[at - self._in_file : upto - self._in_file])
        return b""

    def plain(self) -> Iterator[bytes]:
        """All events in normal form, in pieces, and the beginning of one behind them. Raises `ProtocolError`."""
        if self._reading.broken or self._reading.left:
            self.require_whole()
        name = Path(self.name or "a group in memory")
        algorithm, size = self.checksum_algorithm, self.body_size
        yield from plain_pieces(self._read, name, 0, size, algorithm, piece_bytes=_PIECE_BYTES)
        yield self._reading.last + self._reading.event

    # --- as a binlog file ---

    @property
    def is_one_file(self) -> bool:
        """Whether all of it lies in clear behind what is reserved in the file, or will when it is written."""
        if self._encrypted is not None:
            return False
        return self._file is not None and [(0, self._in_file + len(self._memory))] == self._ranges

    def seal(self, *, is_synced_again: bool = False) -> int:
        """Let the file end with the last event, durably. Returns where that is. Raises `DiskError`.

        is_synced_again: by who takes it; what ends the group waits for that, if all else was sealed ahead.
        """
        end, sealed = self.reserved + self.size, self._sealed
        if sealed == self._reading.size:
            return end
        self.end_at(end)
        self._write()
        assert self._file is not None
        last = self.last(self.reserved + self.body_size)
        if last:
            self._file.pwrite(last, self.reserved + self.body_size)
        if self._file.size() > end:
            self._file.truncate(end)
        if not is_synced_again or sealed is None or self._reading.size - sealed > _END_BYTES:
            self._file.fdatasync()
            self._behind.forget(self.name)
            self._sealed = self._reading.size
        return end

    @property
    def file(self) -> File:
        """The file, if `is_one_file`."""
        assert self._file is not None
        return self._file

    def give_file(self) -> None:
        """The file is somebody else's from now on."""
        self._behind.forget(self.name)
        self._file = None
        self.close()

    def close(self) -> None:
        """Give up the file; a second call does nothing. One that cannot be removed stays until the next start: its
        transaction has ended as it has."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._behind.forget(self.name)
            try:
                self._disk.unlink(self.name)
            except DiskError as error:
                log.warning("%s", error)
        self._memory.clear()
        self._ranges.clear()
        self._reading = _Reading()
        self._in_file = 0


def prepare_folder(disk: Disk) -> None:
    """Make the folder of the cache files, or empty it of those that a crash has left."""
    try:
        disk.make_folder(CACHE_FOLDER)
    except DiskFull as error:
        log.warning("%s: large transactions have to wait for it", error)
        return
    for name in disk.names(CACHE_FOLDER):
        if name.startswith(_CACHE_PREFIX):
            disk.unlink(f"{CACHE_FOLDER}/{name}")
        else:
            log.warning("%s is in %s/, but it is not a binlog cache file", name, CACHE_FOLDER)
