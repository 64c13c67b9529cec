"""Reading the redo log: its last checkpoint, and every whole mini-transaction since.

Changes nothing: for recovery, and for whoever looks at a store from outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import google_crc32c

from binlog_storage.errors import CorruptRedo
from binlog_storage.redo.format import (
    BLOCK,
    CHECKPOINT_AT,
    CRC,
    KIND_FLUSHED,
    MTR_HEAD,
    MTR_MAGIC,
    MTR_OVERHEAD,
    REDO_NAME,
    RING_AT,
    Checkpoint,
    Flushed,
    LogHeader,
    MiniTransaction,
    RedoFormatError,
)

_READ_BYTES = 1 << 20
_SEARCH_BYTES = 4 << 20  # longer than several of the largest mini-transactions

_ADVICE = (
    ". The store was not opened and nothing was changed: restore the store with its redo log from a copy; or start "
    "once with innodb_force_recovery=6 to go on with what the .ibb files hold, without the last commits"
)


class LogFile(Protocol):
    """The methods of `binlog_storage.disk.disk.File` that reading needs."""

    def pread(self, size: int, offset: int) -> bytes: ...
    def size(self) -> int: ...


class RedoReader:
    """One look at an open log file.

    Attributes:
        size, capacity: bytes of the file, and of its ring.
        checkpoint: the last one.
        end: LSN behind the last mini-transaction, once `replay` has come to it.
    """

    def __init__(self, file: LogFile) -> None:
        """Raises `CorruptRedo`, `DiskError`."""
        self._file = file
        self.size = file.size()
        header = self._parse_header()
        self.uuid = header.uuid
        self.capacity = header.capacity
        self._torn_checkpoint = False
        self.checkpoint = self._last_checkpoint()
        self.end = self.checkpoint.lsn
        self._again = _RingReader(file, self.capacity, self.checkpoint.lsn)
        self._last: MiniTransaction | None = None

    def _parse_header(self) -> LogHeader:
        try:
            header = LogHeader.parse(self._file.pread(BLOCK, 0))
        except RedoFormatError as error:
            raise CorruptRedo(f"{REDO_NAME} is damaged or not ours: {error}{_ADVICE}") from None
        if header.capacity + RING_AT != self.size:
            raise CorruptRedo(
                f"{REDO_NAME} has {self.size} bytes, but was made with "
                f"{header.capacity + RING_AT}{_ADVICE}"
            )
        return header

    def _last_checkpoint(self) -> Checkpoint:
        blocks = [self._file.pread(BLOCK, at) for at in CHECKPOINT_AT]
        found = [c for c in map(Checkpoint.parse, blocks) if c is not None]
        if not found:
            raise CorruptRedo(f"both checkpoints of {REDO_NAME} are damaged{_ADVICE}")
        self._torn_checkpoint = len(found) < len(blocks)  # or the file was just made
        return max(found, key=lambda c: c.number)

    def replay(self) -> Iterator[MiniTransaction]:
        """The mini-transactions since the checkpoint, in order. Afterwards `end` is the LSN behind them.

        Raises `CorruptRedo` if it ends in the middle of what was durable.
        """
        lsn = self.checkpoint.lsn
        reader = _RingReader(self._file, self.capacity, lsn)
        while (found := self._mtr_at(reader, lsn)) is not None:
            lsn = found.end
            if found.body[0] != KIND_FLUSHED:
                yield found
        self._require_end(lsn)
        self.end = lsn

    def mtrs_from(self, lsn: int) -> Iterator[MiniTransaction]:
        """The mini-transactions from that LSN on, once more. Raises `CorruptRedo` if they have changed since then."""
        while lsn < self.end:
            if self._last is None or self._last.lsn != lsn:
                self._last = self._mtr_at(self._again, lsn)
            found = self._last
            if found is None:
                raise CorruptRedo(
                    f"{REDO_NAME} was changed at LSN {lsn} while it was read{_ADVICE}"
                )
            lsn = found.end
            if found.body[0] != KIND_FLUSHED:
                yield found

    def _mtr_at(self, reader: _RingReader, lsn: int) -> MiniTransaction | None:
        """The one of this epoch that begins there, if it is whole."""
        magic, epoch, there, _ = MTR_HEAD.unpack(reader.read(lsn, MTR_HEAD.size))
        if magic != MTR_MAGIC or there != lsn or epoch != self.checkpoint.epoch:
            return None
        return self._whole(reader, lsn, self.capacity - (lsn - self.checkpoint.lsn))

    @staticmethod
    def _whole(reader: _RingReader, lsn: int, size_max: int) -> MiniTransaction | None:
        size = MTR_HEAD.unpack(reader.read(lsn, MTR_HEAD.size))[3]
        if not MTR_OVERHEAD < size <= size_max:
            return None
        data = reader.read(lsn, size)
        body_end = size - CRC.size
        if CRC.unpack_from(data, body_end)[0] != google_crc32c.value(data[:body_end]):
            return None
        return MiniTransaction(lsn, lsn + size, data[MTR_HEAD.size : body_end])

    def _require_end(self, end: int) -> None:
        """Check the end of the log: whole mini-transactions may follow if they were never durable, others must not."""
        for later in self._later(end):
            claims = [r.lsn for r in _records(later) if isinstance(r, Flushed)]
            if any(lsn > end for lsn in claims):
                raise CorruptRedo(
                    f"{REDO_NAME} is damaged at LSN {end} (offset {RING_AT + end % self.capacity}): what was written "
                    f"there was durable, and is not readable any more{_ADVICE}"
                )
        if self._torn_checkpoint and self._used_again(end):
            raise CorruptRedo(
                f"the last checkpoint of {REDO_NAME} is damaged, and the log since the one before was used again"
                f"{_ADVICE}"
            )

    def _used_again(self, end: int) -> bool:
        """Whether the ring holds what was written only after a later checkpoint than the one that was found."""
        base = self.checkpoint
        window = _RingReader(self._file, self.capacity, end).read(end, self.capacity)
        reader = _RingReader(self._file, self.capacity, end)
        at = window.find(MTR_MAGIC)
        while at >= 0:
            _, epoch, lsn, _ = MTR_HEAD.unpack(reader.read(end + at, MTR_HEAD.size))
            later = epoch > base.epoch or lsn >= base.lsn + self.capacity
            at_its_place = lsn > base.lsn and (lsn - end - at) % self.capacity == 0
            if later and at_its_place and self._whole(reader, lsn, self.capacity) is not None:
                return True
            at = window.find(MTR_MAGIC, at + 1)
        return False

    def _later(self, end: int) -> Iterator[MiniTransaction]:
        """Whole mini-transactions of this epoch not far behind `end`, wherever they begin."""
        limit = min(end + _SEARCH_BYTES, self.checkpoint.lsn + self.capacity)
        reader = _RingReader(self._file, self.capacity, end)
        wanted = MTR_MAGIC + self.checkpoint.epoch.to_bytes(4, "little")
        window = reader.read(end, limit - end)
        at = window.find(wanted)
        while at >= 0:
            lsn = end + at
            found = self._mtr_at(reader, lsn)
            if found is not None:
                yield found
            at = window.find(wanted, at + 1)


def _records(mtr: MiniTransaction) -> list[object]:
    try:
        return list(mtr.records())
    except RedoFormatError:
        return []


class _RingReader:
    """Reads the ring by LSN, in large steps."""

    def __init__(self, file: LogFile, capacity: int, lsn: int) -> None:
        self._file = file
        self._capacity = capacity
        self._start = lsn
        self._data = b""

    def read(self, lsn: int, size: int) -> bytes:
        """`size` bytes from `lsn` on; no more than the ring holds."""
        at = lsn - self._start
        if at < 0 or at + size > len(self._data):
            self._start = lsn
            self._data = self._pread(lsn, min(self._capacity, max(size, _READ_BYTES)))
            at = 0
        return self._data[at : at + size]

    def _pread(self, lsn: int, size: int) -> bytes:
        at = lsn % self._capacity
        first = min(size, self._capacity - at)
        data = self._file.pread(first, RING_AT + at)
        if first < size:
            data += self._file.pread(size - first, RING_AT)
        return data
