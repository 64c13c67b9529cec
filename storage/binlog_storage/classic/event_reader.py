"""The events of one traditional binlog file, one behind the other.

    fe 62 69 6e, then events (binlog_protocol/events/header.py), the first of them a format description

Where a file ends inside an event, that is its torn tail, and no damage: a server was killed, the file is still being
written, or it was copied meanwhile. So are zeros up to the end, which a power cut leaves behind. A header that no
server writes is damage, also the one of the torn event: nothing behind it could be found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, Self

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import HEADER_SIZE, EventHeader
from binlog_protocol.groups.group_runs import GroupRun, take_bare_run
from binlog_protocol.groups.vocabulary import NEWER_FROM
from binlog_protocol.limits import EVENT_BYTES_MAX

from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.disk.given_files import open_given

CLASSIC_MAGIC: Final = b"\xfebin"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_CHUNK_BYTES: Final = 256 << 10
# A run costs memory for all that it might take. Where runs are short, less is offered.
_SHORT_RUN: Final = 4
_SHORT_BYTES: Final = 16 << 10
# What a header may say: a number that no server has used so far is damage, those of a newer MariaDB excepted.
_TYPES: Final = frozenset((*map(int, EventType), *range(NEWER_FROM, 256)))
_U32: Final = 0xFFFFFFFF


class Bytes(Protocol):
    """A file to read from: one of a store, or one that a user names."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""

    def size(self) -> int:
        """Length in bytes."""

    def close(self) -> None:
        """Further use is an error."""


class GivenFile:
    """One that a user names. Raises `OSError`."""

    def __init__(self, path: Path) -> None:
        self._file = open_given(path).detach()

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


class EventReader:
    """One file as long as it was when it was opened. One owner; `close` it, or use it in a `with`."""

    def __init__(
        self,
        path: Path,
        offset: int = len(CLASSIC_MAGIC),
        *,
        file: Bytes | None = None,
        size: int | None = None,
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> None:
        """Begins at an event. Raises `UnreadableBinlog`, `OSError`.

        Args:
            path: of the file; only its name in errors, if `file` is given.
            file: what is read, and closed at the end.
            size: the file ends there for this reader, at the latest.
            chunk_bytes: are read at a time, or as many as an event has.
        """
        self._chunk_bytes: Final = chunk_bytes
        self.path: Final = path
        self._file = GivenFile(path) if file is None else file
        self._buffer = bytearray()
        self._at = 0
        self._begin = offset  # of the buffer, in the file
        self._run_bytes = _CHUNK_BYTES
        try:
            whole = self._file.size()
            self.size: Final = whole if size is None else min(whole, size)
            magic = self._file.pread(len(CLASSIC_MAGIC), 0)
            if magic != CLASSIC_MAGIC:
                raise UnreadableBinlog(f"{path} is no binlog file: {_instead(magic)}")
        except BaseException:
            self.close()
            raise

    @property
    def offset(self) -> int:
        """The offset of the next event, in bytes."""
        return self._begin + self._at

    def next(self) -> bytes | None:
        """The next event; None at the end, or in front of a torn tail. Raises `DamagedBinlog`."""
        if not self._has(HEADER_SIZE):
            return None
        header = self._header()
        if header is None or not self._has(header.length):
            return None
        event = bytes(memoryview(self._buffer)[self._at : self._at + header.length])
        self._at += header.length
        return event

    def __iter__(self) -> Iterator[bytes]:
        while (event := self.next()) is not None:
            yield event

    def take_run(self, checksum_algorithm: int) -> GroupRun | None:
        """The next groups, if they are plain and have been read already: see `binlog_protocol.groups.group_runs`."""
        stop = min(len(self._buffer), self._at + self._run_bytes)
        taken = take_bare_run(self._buffer, self._at, stop, checksum_algorithm)
        if taken is None:
            self._run_bytes = _CHUNK_BYTES
            return None
        self._at, _, run = taken
        self._run_bytes = _SHORT_BYTES if len(run) < _SHORT_RUN else _CHUNK_BYTES
        return run

    def _has(self, size: int) -> bool:
        """Whether so many bytes of the file are still to come; they are in the buffer then."""
        missing = size - (len(self._buffer) - self._at)
        if missing <= 0:
            return True
        if self.offset + size > self.size:
            return False
        self._begin += self._at
        del self._buffer[: self._at]
        self._at = 0
        end = self._begin + len(self._buffer)
        wanted = min(max(missing, self._chunk_bytes), self.size - end)
        while wanted > 0:
            data = self._file.pread(wanted, end)
            if not data:
                raise DamagedBinlog(self.path, self.offset, "the file has become shorter")
            self._buffer += data
            end += len(data)
            wanted -= len(data)
        return True

    def _header(self) -> EventHeader | None:
        """The header of the next event; None if there are only zeros from here on. Raises `DamagedBinlog`."""
        try:
            header = EventHeader.parse(bytes(self._buffer[self._at : self._at + HEADER_SIZE]))
        except ProtocolError as error:
            if self._only_zeros():
                return None
            raise DamagedBinlog(self.path, self.offset, self._what(str(error))) from None
        if header.type not in _TYPES or header.length > EVENT_BYTES_MAX:
            reason = f"no event of type {header.type} has {header.length} bytes"
            raise DamagedBinlog(self.path, self.offset, self._what(reason))
        end = self.offset + header.length
        # A wrong length would make all that follows look like a torn tail.
        if end > self.size and header.end_position not in (0, end & _U32):
            reason = f"an event of {header.length} bytes that says it ends at {header.end_position}"
            raise DamagedBinlog(self.path, self.offset, self._what(reason))
        return header

    def _only_zeros(self) -> bool:
        offset = self.offset
        while offset < self.size:
            data = self._file.pread(min(_CHUNK_BYTES, self.size - offset), offset)
            if not data:
                break
            if data.count(0) < len(data):
                return False
            offset += len(data)
        return True

    def _what(self, reason: str) -> str:
        found = self._buffer[self._at : self._at + HEADER_SIZE]
        return f"{reason}; bytes there: {found.hex(' ')}"

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _instead(magic: bytes) -> str:
    if not magic:
        return "it is empty"
    if magic.startswith(_GZIP_MAGIC):
        return "it is compressed by gzip; unpack it first"
    return f"it begins {magic.hex(' ')}"
