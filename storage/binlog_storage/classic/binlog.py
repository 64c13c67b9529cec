"""Traditional binlog files that follow one another, as a source of groups; and the head of each: writer, GTID list."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import (
    FLAG_ARTIFICIAL,
    FLAG_IN_USE,
    FLAGS_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
    TYPE_OFFSET,
)
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_storage.classic.encryption import Keys, given_to_read
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import CLASSIC_MAGIC, Bytes, EventReader
from binlog_storage.classic.groups import FileGroups, no_gtids, refuse_kind
from binlog_storage.errors import NotAStore
from binlog_storage.intake.source import FileStart, Item

# What may stand in front of the GTID list, in a file of a server or in one that mariadb-binlog --raw has fetched.
_BEFORE_LIST: Final = frozenset(
    {EventType.START_ENCRYPTION, EventType.BINLOG_CHECKPOINT, EventType.ROTATE}
)

_MARK_BYTES: Final = 8
_MARKED_BYTES_MAX: Final = 16 << 20  # a damaged file may say any length
_LENGTH_BYTES: Final = 4
_HEAD_CHUNK_BYTES: Final = 4096  # a head is short, and may be read while others wait


@dataclass(frozen=True, slots=True)
class FileHead:
    """The head of one file; `size` in bytes, `list_end` the offset behind its GTID list event.

    events: as they lie in the file: the format description, with its flag IN_USE cleared, up to the last checkpoint.
    """

    path: Path
    size: int
    description: FormatDescription
    gtids: tuple[Gtid, ...]
    list_end: int
    events: tuple[bytes, ...]

    @property
    def end(self) -> int:
        """The offset behind it."""
        return len(CLASSIC_MAGIC) + sum(map(len, self.events))

    @property
    def state(self) -> BinlogState:
        """The GTID binlog state before the file."""
        return BinlogState(self.gtids)

    @property
    def in_use(self) -> bool:
        """Whether its server had not closed it: it was writing it, or was killed."""
        return bool(self.description.flags & FLAG_IN_USE)


def read_head(path: Path, file: Bytes | None = None) -> FileHead:
    """Raises `UnreadableBinlog` for a file without a GTID list, `DamagedBinlog`, `OSError`.

    `file`: as for `EventReader`.
    """
    with EventReader(path, file=file, chunk_bytes=_HEAD_CHUNK_BYTES) as reader:
        event, offset = reader.next(), 4
        try:
            if event is None or event[TYPE_OFFSET] != EventType.FORMAT_DESCRIPTION:
                raise UnreadableBinlog(
                    f"{path} has no format description; if it is the last file, and its server was killed when it "
                    "made it, leave it out"
                )
            description = FormatDescription.parse(event)
            refuse_kind(path, event)
            events = [with_flag_cleared(event)]
            while True:
                offset = reader.offset
                event = reader.next()
                if event is None:
                    raise UnreadableBinlog(
                        f"{path} ends behind its format description; if it is the last file, leave it out"
                    )
                plain = strip_checksum(event, description.checksum_algorithm)
                refuse_kind(path, event)
                events.append(event)
                is_artificial = event[FLAGS_OFFSET] & FLAG_ARTIFICIAL
                if event[TYPE_OFFSET] == EventType.GTID_LIST and not is_artificial:
                    gtids = GtidList.parse(plain).gtids
                    list_end = reader.offset
                    events += _checkpoints(reader)
                    return FileHead(path, reader.size, description, gtids, list_end, tuple(events))
                if event[TYPE_OFFSET] not in _BEFORE_LIST and not is_artificial:
                    raise no_gtids(path)
        except ProtocolError as error:
            raise DamagedBinlog(path, offset, str(error)) from None


def require_followed(path: Path, size: int, state: BinlogState, following: FileHead) -> None:
    """Raises `DamagedBinlog` if the next file begins with other groups before it than this one ends with.

    For a file without a ROTATE or STOP event, whose server was killed, or which was cut short; and for a gap of
    numbers, where a file may be missing. A domain that the next file does not know was deleted.

    Args:
        size: of the file, in bytes.
        state: the GTID binlog state behind the last whole group of the file.
    """
    begins = following.state
    for domain in begins.domains():
        if begins.last(domain) != state.last(domain):
            raise DamagedBinlog(
                path,
                size,
                f"the file ends behind {state.last(domain)}, but {following.path} begins behind {begins.last(domain)}",
            )


def mark_of(file: Bytes) -> int:
    """By which a file is known from one of the same name in another binlog: of the event behind its format description.

    That is its GTID list, or what an encrypted file says of its encryption; both lie in clear.
    """
    begin, event = len(CLASSIC_MAGIC), b""
    for _ in range(2):
        length = int.from_bytes(file.pread(_LENGTH_BYTES, begin + LENGTH_OFFSET), "little")
        event = file.pread(min(max(length, HEADER_SIZE), _MARKED_BYTES_MAX), begin)
        begin += len(event)
    return int.from_bytes(hashlib.blake2b(event, digest_size=_MARK_BYTES).digest())


def with_flag_cleared(description: bytes) -> bytes:
    """A format description as its server sends it: closed. Its CRC-32 is that already."""
    event = bytearray(description)
    event[FLAGS_OFFSET] &= ~FLAG_IN_USE & 0xFF
    return bytes(event)


def _checkpoints(reader: EventReader) -> list[bytes]:
    """The checkpoint events behind the GTID list; none in a torn head.

    A server writes one, which names the file where its recovery would begin, and another one once that is this file.
    """
    found: list[bytes] = []
    try:
        while (event := reader.next()) is not None:
            if event[TYPE_OFFSET] != EventType.BINLOG_CHECKPOINT:
                break
            found.append(event)
    except DamagedBinlog:
        pass  # it is met again behind the head
    return found


class ClassicBinlog:
    """See `binlog_storage.intake.source.IntakeSource`. All heads are read at once, the files one after the other."""

    def __init__(self, paths: Sequence[Path], keys: Keys | None = None) -> None:
        """`paths`: files in their order, at least one; `keys`: for those that are encrypted.

        Raises `UnreadableBinlog`, `DamagedBinlog`, `NoBinlogKey`, `OSError`.
        """
        if not paths:
            raise NotAStore("there are no binlog files")
        self.keys = keys
        self.heads = [read_head(path, given_to_read(keys, path)) for path in paths]
        self.end: int | None = None
        """The last file ends there for this reader; None: where it does."""
        self.notes: list[str] = []
        self.lost_files = ""
        self._bytes_passed = 0
        self._open: FileGroups | None = None

    @property
    def names(self) -> tuple[str, str]:
        return str(self.heads[0].path), str(self.heads[-1].path)

    def base(self, number: int) -> BinlogState:
        return self.heads[number].state

    def file_before(self, position: SlavePosition) -> int | None:
        numbers = reversed(range(len(self.heads)))
        return next((n for n in numbers if self.base(n).is_before(position)), None)

    def items(self, number: int) -> Iterator[Item]:
        self._bytes_passed = sum(head.size for head in self.heads[:number])
        for head in self.heads[number:]:
            yield FileStart(str(head.path), head.state)
            size = self.end if head is self.heads[-1] else None
            groups = self._open = FileGroups(
                head.path, file=given_to_read(self.keys, head.path), size=size
            )
            try:
                yield from groups.items()
                self._note_end(head, groups)
            finally:
                self.close()
            self._bytes_passed += head.size

    def _note_end(self, head: FileHead, groups: FileGroups) -> None:
        self.notes += groups.incidents
        if groups.left_out:
            self.notes.append(groups.left_out)
        elif head.in_use and groups.closed_at is None:
            self.notes.append(f"{head.path} was not closed: its server may have written more")

    @property
    def server_version(self) -> str:
        return self.heads[-1].description.server_version

    @property
    def size(self) -> int:
        return sum(head.size for head in self.heads)

    @property
    def bytes_read(self) -> int:
        return self._bytes_passed + (self._open.offset if self._open is not None else 0)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
