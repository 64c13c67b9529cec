"""Prepared XA transactions of a store of traditional files: each in a file beside the binlog, until it ends.

    offset  size  field                               offset  size  field
    0       8     "BLXAPREP"                          148     8     bytes of the transaction
    8       4     format_id                           156     4     1: it is being committed, at
    12      4     bytes of gtrid, of bqual (u16)      160     8     file number
    16      128   gtrid and bqual                     168     8     offset in that file
    144     4     CRC-32 of the transaction           176     16    domain_id u32, server_id u32, seq_no u64
    192     16    nonce; 0: it is not encrypted
    508     4     CRC-32 of the bytes before          512     ...   the transaction, in normal form

The place of the commit is noted durably before the group is: after a crash the binlog decides. If the group of that
GTID lies there, the transaction is committed; else it is still prepared. The head is one sector, written whole. With
`encrypt_binlog` the transaction is encrypted by AES-CTR, with key 1 of the key file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid

from binlog_storage.classic.encryption import Keys
from binlog_storage.classic.errors import DamagedBinlog
from binlog_storage.classic.event_reader import Bytes
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.engine.references import Pin
from binlog_storage.errors import DiskError, FileMissing, NoBinlogKey, NotAStore
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.xa import XID_PART_MAX, Xid

XA_PREFIX: Final = "binlog-server.xa."
_NEW: Final = ".new"
_MAGIC: Final = b"BLXAPREP"
_HEAD: Final = struct.Struct("<8sIHH128sIQIQQIIQ16s")
_NONCE_BYTES: Final = 16
_PLAIN: Final = bytes(_NONCE_BYTES)
_HEAD_BYTES: Final = 512
_CRC_AT: Final = _HEAD_BYTES - 4
_PIECE_BYTES: Final = 256 << 10

assert _HEAD.size == 208
assert 2 * XID_PART_MAX == 128


class Commitment(NamedTuple):
    """The place in the binlog where a prepared transaction is being committed, and the GTID."""

    place: Position
    gtid: Gtid


@dataclass(eq=False, slots=True)
class PreparedFile:
    """One prepared transaction."""

    name: str
    xid: Xid
    size: int
    crc: int
    commitment: Commitment | None
    nonce: bytes = _PLAIN
    hold: Pin | None = None


def _head(
    xid: Xid, size: int, crc: int, commitment: Commitment | None, nonce: bytes = _PLAIN
) -> bytes:
    place, gtid = commitment or (Position(0, 0), Gtid(0, 0, 0))
    head = _HEAD.pack(
        _MAGIC,
        xid.format_id,
        len(xid.gtrid),
        len(xid.bqual),
        xid.gtrid + xid.bqual,
        crc,
        size,
        commitment is not None,
        *place,
        *gtid,
        nonce,
    ).ljust(_CRC_AT, b"\0")
    return head + zlib.crc32(head).to_bytes(4, "little")


def _read(disk: ReadableDisk, name: str) -> PreparedFile:
    with contextlib.closing(disk.open(name)) as file:
        head, whole = file.pread(_HEAD_BYTES, 0), file.size()
    if (
        len(head) < _HEAD_BYTES
        or not head.startswith(_MAGIC)
        or zlib.crc32(head[:_CRC_AT]).to_bytes(4, "little") != head[_CRC_AT:]
    ):
        raise NotAStore(
            f"{name} is damaged: it held a prepared XA transaction. The store was not opened; without that file it "
            "opens, and the transaction is lost"
        )
    _, format_id, gtrid_size, bqual_size, *fields = _HEAD.unpack_from(head)
    names, crc, size, committing, file_no, offset, *gtid, nonce = fields
    if whole != _HEAD_BYTES + size:
        raise NotAStore(f"{name} has {whole} bytes, not {_HEAD_BYTES + size}: it was cut")
    xid = Xid(format_id, names[:gtrid_size], names[gtrid_size : gtrid_size + bqual_size])
    place = Position(file_no, offset)
    commitment = Commitment(place, Gtid(*gtid)) if committing else None
    return PreparedFile(name, xid, size, crc, commitment, nonce)


def pieces_of(
    disk: ReadableDisk, prepared: PreparedFile, keys: Keys | None = None
) -> Iterator[bytes]:
    """The events of a transaction, in pieces cut anywhere. Raises `NoBinlogKey` for one that is encrypted."""
    with contextlib.closing(disk.open(prepared.name)) as opened:
        file: Bytes = opened
        if prepared.nonce != _PLAIN:
            if keys is None:
                raise NoBinlogKey(
                    f"{prepared.name} is encrypted: file-key-management-filename is not set"
                )
            file = keys.sealed_bytes(opened, prepared.nonce)
        at, end = _HEAD_BYTES, _HEAD_BYTES + prepared.size
        while at < end:
            piece = file.pread(min(_PIECE_BYTES, end - at), at)
            if not piece:
                raise NotAStore(f"{prepared.name} has become shorter")
            at += len(piece)
            yield piece


def _verify(disk: ReadableDisk, prepared: PreparedFile, keys: Keys | None) -> None:
    crc = 0
    for piece in pieces_of(disk, prepared, keys):
        crc = zlib.crc32(piece, crc)
    if crc != prepared.crc:
        reason = f"the CRC-32 of the prepared transaction {prepared.xid} is {crc:08x}, not {prepared.crc:08x}"
        raise DamagedBinlog(Path(prepared.name), _HEAD_BYTES, reason)


def prepared_fault(disk: ReadableDisk, name: str, keys: Keys | None = None) -> str:
    """What is wrong with the file of a prepared transaction, in words; empty for a sound one.

    Raises `NoBinlogKey`, `DiskError`.
    """
    if name.endswith(_NEW):
        return ""  # a start deletes it
    try:
        _verify(disk, _read(disk, name), keys)
    except DamagedBinlog as error:
        return error.reason
    except NotAStore as error:
        return str(error).removeprefix(f"{name} ")
    return ""


def waiting(disk: ReadableDisk, has: Callable[[Commitment], bool]) -> list[PreparedFile]:
    """The transactions that a start would find prepared: nothing is changed. `has`: as for `PreparedFiles.settle`."""
    names = sorted(name for name in disk.names() if name.startswith(XA_PREFIX))
    found = [_read(disk, name) for name in names if not name.endswith(_NEW)]
    return [one for one in found if one.commitment is None or not has(one.commitment)]


class PreparedCopy:
    """The file of a prepared transaction as it was at one moment: open, so that it may be deleted meanwhile."""

    def __init__(self, disk: ReadableDisk, prepared: PreparedFile) -> None:
        """Raises `DiskError`."""
        self.name = prepared.name
        self.size = _HEAD_BYTES + prepared.size
        self._head = _head(
            prepared.xid, prepared.size, prepared.crc, prepared.commitment, prepared.nonce
        )
        self._file = disk.open(prepared.name)

    def pieces(self) -> Iterator[bytes]:
        """All bytes. Raises `DiskError`, `NotAStore`."""
        yield self._head
        at = _HEAD_BYTES
        while at < self.size:
            piece = self._file.pread(min(_PIECE_BYTES, self.size - at), at)
            if not piece:
                raise NotAStore(f"{self.name} has become shorter")
            at += len(piece)
            yield piece

    def close(self) -> None:
        """Twice is no error."""
        self._file.close()


class PreparedFiles:
    """All of one store, in the order in which they were prepared. Its owner holds a lock."""

    def __init__(self, disk: Disk, sealing: Keys | None = None, keys: Keys | None = None) -> None:
        """Read what there is. Raises `NotAStore` for a damaged file.

        Args:
            sealing: new files are encrypted with it.
            keys: for those that are encrypted.
        """
        self._disk = disk
        self._sealing = sealing
        self._keys = keys
        self.by_xid: dict[Xid, PreparedFile] = {}
        self.ended: list[PreparedFile] = []
        """Of groups that are appended: they go at the next sync."""
        last = 0
        names = sorted(name for name in disk.names() if name.startswith(XA_PREFIX))
        for name in names:
            last = int(name.removeprefix(XA_PREFIX).removesuffix(_NEW))
            if name.endswith(_NEW):  # a crash while it was written
                disk.unlink(name)
                continue
            found = _read(self._disk, name)
            self.by_xid[found.xid] = found
        self._numbers = itertools.count(last + 1)

    def write(self, xid: Xid, size: int, pieces: Iterable[bytes]) -> PreparedFile:
        """Write a transaction of `size` bytes, durably, that is not prepared yet: `add` or `drop` follows.

        Needs no lock. Raises `DiskError`: nothing is left.
        """
        name = f"{XA_PREFIX}{next(self._numbers):012d}"
        nonce = _PLAIN if self._sealing is None else os.urandom(_NONCE_BYTES)
        file = self._disk.open(f"{name}{_NEW}", create=True)
        try:
            with contextlib.closing(file):
                body = file if self._sealing is None else self._sealing.sealed_file(file, nonce)
                at, crc = _HEAD_BYTES, 0
                for piece in pieces:
                    body.pwrite(piece, at)
                    body.start_writing(len(piece), at)
                    at += len(piece)
                    crc = zlib.crc32(piece, crc)
                file.pwrite(_head(xid, size, crc, None, nonce), 0)
                file.fdatasync()
        except BaseException:
            with contextlib.suppress(DiskError):
                self._disk.unlink(f"{name}{_NEW}")
            raise
        return PreparedFile(name, xid, size, crc, None, nonce)

    def add(self, written: PreparedFile) -> None:
        """It is prepared, durably when this returns. Raises `DiskError`: it may be tried again."""
        try:
            self._disk.rename(f"{written.name}{_NEW}", written.name)
        except FileMissing:  # it has its name already
            self._disk.size(written.name)
        self._disk.fsync_dir()
        self.by_xid[written.xid] = written

    def drop(self, written: PreparedFile) -> None:
        """It is not to be prepared."""
        for name in (f"{written.name}{_NEW}", written.name):
            with contextlib.suppress(FileMissing):
                self._disk.unlink(name)

    def verify(self, prepared: PreparedFile) -> None:
        """Raises `DamagedBinlog` if the transaction is not what was prepared."""
        _verify(self._disk, prepared, self._keys)

    def pieces(self, prepared: PreparedFile) -> Iterator[bytes]:
        """The events of a transaction, in pieces cut anywhere."""
        return pieces_of(self._disk, prepared, self._keys)

    def note(self, prepared: PreparedFile, commitment: Commitment | None) -> None:
        """Note durably where it is being committed, or that it is not."""
        with contextlib.closing(self._disk.open(prepared.name)) as file:
            head = _head(prepared.xid, prepared.size, prepared.crc, commitment, prepared.nonce)
            file.pwrite(head, 0)
            file.fdatasync()
        prepared.commitment = commitment

    def settle(self, has: Callable[[Commitment], bool], *, noted_again: bool) -> None:
        """At a start: forget those whose commit the binlog `has`; the others are prepared.

        noted_again: note that they are, whatever is read. A start before may have noted it, and the sync has failed:
            then the disk still says where one was to be committed, in a file that may be purged by the time it is read.
        """
        for prepared in list(self.by_xid.values()):
            if prepared.commitment is not None and has(prepared.commitment):
                self.remove(prepared)
                del self.by_xid[prepared.xid]
            elif noted_again or prepared.commitment is not None:
                self.note(prepared, None)
        self._disk.fsync_dir()

    def copies(self) -> list[PreparedCopy]:
        """Of all files that a start behind a crash might need. Raises `DiskError`."""
        found: list[PreparedCopy] = []
        try:
            for prepared in (*self.by_xid.values(), *self.ended):
                found.append(PreparedCopy(self._disk, prepared))
        except BaseException:
            for one in found:
                one.close()
            raise
        return found

    def forget(self, prepared: PreparedFile) -> None:
        """Its transaction is not prepared any more."""
        del self.by_xid[prepared.xid]
        if prepared.hold is not None:
            prepared.hold.release()

    def commits(self, prepared: PreparedFile) -> None:
        """Its group is appended: its file goes at the next sync."""
        self.forget(prepared)
        self.ended.append(prepared)

    def remove_ended(self) -> None:
        """Remove what is left of committed transactions. Raises `DiskError`."""
        for prepared in list(self.ended):
            self.remove(prepared)
            self.ended.remove(prepared)

    def remove(self, prepared: PreparedFile) -> None:
        """Delete the file of a transaction that has ended."""
        self._disk.unlink(prepared.name)
