"""The durable end, up to which other processes may read, published in a file beside the files of a store.

The file `binlog-server.durable` is two slots of equal size, written by turns; the sound one with the higher number
holds. A reader that meets a slot half written takes the other one. Nothing is synced: after a power cut an older one,
or none, is found.

    0    8    magic
    8    8    number, one more each time
    16   16   uuid of the store; of traditional files a hash of the last one's head
    32   8    epoch: another one after each start of the server, and after RESET MASTER, where positions begin anew
    40   8    file number, and
    48   8    offset in it: groups that end there or before are durable, and in the files
    56   4    size of the text
    60   n    GTID binlog state at that place, as text; of traditional files none
    -    4    CRC-32C of everything before
"""

from __future__ import annotations

import contextlib
import struct
from typing import NamedTuple

import google_crc32c
from binlog_protocol.gtid import BinlogState

from binlog_storage.disk.disk import Disk, File
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.errors import DiskError
from binlog_storage.ibb.chunk import Position

PUBLICATION_NAME = "binlog-server.durable"
_NEW_NAME = "binlog-server.durable.new"
_MAGIC = b"ibb-end\x01"
_HEAD = struct.Struct("<8sQ16sQQQI")
_CRC = struct.Struct("<I")
_SLOT_MIN = 4096
_TRIES = 20

assert _HEAD.size == 60


class Published(NamedTuple):
    """See the module. `state` is the text of the binlog state."""

    number: int
    uuid: bytes
    epoch: int
    end: Position
    state: str

    def build(self) -> bytes:
        """The bytes of a slot, without padding."""
        text = self.state.encode()
        head = _HEAD.pack(_MAGIC, self.number, self.uuid, self.epoch, *self.end, len(text))
        body = head + text
        return body + _CRC.pack(google_crc32c.value(body))

    def is_of(self, uuid: bytes, epoch: int) -> bool:
        """Whether it was published in that epoch of that store. In another one positions may have begun anew."""
        return (self.uuid, self.epoch) == (uuid, epoch)

    @classmethod
    def parse(cls, slot: bytes) -> Published | None:
        """A slot from its bytes; None if it is torn or damaged."""
        if len(slot) < _HEAD.size + _CRC.size:
            return None
        magic, number, uuid, epoch, file_no, offset, size = _HEAD.unpack_from(slot)
        end = _HEAD.size + size
        if magic != _MAGIC or end + _CRC.size > len(slot):
            return None
        if _CRC.unpack_from(slot, end)[0] != google_crc32c.value(slot[:end]):
            return None
        return cls(number, uuid, epoch, Position(file_no, offset), slot[_HEAD.size : end].decode())


def read_published(disk: ReadableDisk) -> Published | None:
    """The newest whole slot of a directory; None if there is none. Raises `DiskError`."""
    for _ in range(_TRIES):
        if PUBLICATION_NAME not in disk.names():
            return None
        with contextlib.closing(disk.open(PUBLICATION_NAME)) as file:
            data = file.pread(file.size(), 0)
        half = len(data) // 2
        found = [p for p in map(Published.parse, (data[:half], data[half:])) if p is not None]
        if found:
            return max(found, key=lambda p: p.number)
    return None


class Publication:
    """Writes the published end. For one thread at a time."""

    def __init__(self, disk: Disk, uuid: bytes) -> None:
        self._disk = disk
        self.uuid = uuid
        self._file: File | None = None
        self._slot_bytes = 0
        before = read_published(disk)
        self._number = 0 if before is None else before.number
        self.end: Position | None = None
        self.epoch = -1

    def publish(self, epoch: int, end: Position, state: BinlogState) -> None:
        """Raises `DiskError`."""
        self._number += 1
        slot = Published(self._number, self.uuid, epoch, end, str(state)).build()
        if self._file is None or len(slot) > self._slot_bytes:
            self._make(slot)
        else:
            self._file.pwrite(slot, self._slot_bytes * (self._number & 1))
        self.end, self.epoch = end, epoch

    def _make(self, slot: bytes) -> None:
        """Make the file anew with slots of twice the size; readers of the old file lose nothing."""
        self.close()
        self._slot_bytes = max(_SLOT_MIN, 2 * len(slot))
        if _NEW_NAME in self._disk.names():
            self._disk.unlink(_NEW_NAME)
        file = self._disk.open(_NEW_NAME, create=True)
        try:
            file.truncate(2 * self._slot_bytes)
            file.pwrite(slot, self._slot_bytes * (self._number & 1))
        except DiskError:
            file.close()
            raise
        self._disk.rename(_NEW_NAME, PUBLICATION_NAME)
        self._file = file

    def close(self) -> None:
        """Let go of the file; what it says stays."""
        if self._file is not None:
            self._file.close()
            self._file = None
