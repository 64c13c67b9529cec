"""Reading the redo log: its last checkpoint, and every whole mini-transaction since.

Changes nothing: for recovery, and for whoever looks at a store from outside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import google_crc32c
from binlog_protocol.dataclass import dataclass

from binlog_storage.disk.read_only_disk import ReadableFile
from binlog_storage.errors import CorruptRedo
from binlog_storage.ibb.chunk import Position
from binlog_storage.redo.format import (
    BLOCK,
    CHECKPOINT_AT,
    CRC,
    MTR_HEAD,
    MTR_MAGIC,
    MTR_OVERHEAD,
    REDO_NAME,
    RING_AT,
    Begun,
    Checkpoint,
    Flushed,
    LogHeader,
    MiniTransaction,
    NewerRedo,
    RedoFormatError,
    is_of_newer,
)

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20
_WINDOW_BYTES = 32 << 10
_SEARCH_BYTES = 4 << 20  # longer than several of the largest mini-transactions

_ADVICE = (
    ". The store was not opened and nothing was changed: restore the store with its redo log from a copy; or start "
    "once with innodb_force_recovery=6 to go on with what the .ibb files hold, without the last commits"
)

Take = Callable[[bytes, int, int, int, int], tuple[int, int]]
"""Takes whole mini-transactions from a part of the log; the offset to begin at and to stop at, LSN and epoch there.

Returns the offset behind them, and the highest LSN that notes among them say was durable (0: there were none)."""

Reaches = Callable[[Position], bool]
"""Whether the traditional binlog beside a log reaches up to a place."""


class _Progress:
    """Says in the log how far a replay is, where it takes long: how much is left is not known before its end."""

    EVERY_S = 10.0

    def __init__(self, lsn: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first = self._looked = lsn
        self._began = self._said = clock()
        self._has_said = False

    def at(self, lsn: int) -> None:
        """All in front of that LSN was replayed."""
        if lsn - self._looked < _READ_BYTES:
            return
        self._looked = lsn
        if self._clock() - self._said >= self.EVERY_S:
            self._say("redo log: %d MiB are read again so far, in %.0f s", lsn)

    def end(self, lsn: int) -> None:
        """That was all. It is said if something was said before."""
        if self._has_said:
            self._say("redo log: all %d MiB are read again, in %.0f s", lsn)

    def _say(self, text: str, lsn: int) -> None:
        self._has_said = True
        self._said = self._clock()
        log.info(text, lsn - self._first >> 20, self._said - self._began)


class RedoReader:
    """One look at an open log file.

    Attributes:
        size, capacity: bytes of the file, and of its ring.
        checkpoint: the last one.
        end, epoch: LSN behind the last mini-transaction, and the epoch there, once `replay` has come to it.
        synced: the log in front of that LSN was durable once, as far as it says so itself. Behind it nothing is known.
    """

    def __init__(self, file: ReadableFile) -> None:
        """Raises `CorruptRedo`, `DiskError`."""
        self._file = file
        self.size = file.size()
        header = self._parse_header()
        self.uuid = header.uuid
        self.capacity = header.capacity
        self._torn_checkpoint = False
        self._missed: Position | None = None  # where the binlog does not reach
        self.checkpoint = self._last_checkpoint()
        self.begin, self._first_epoch = self.checkpoint.begin
        self.end, self.epoch = self.begin, self._first_epoch
        self.synced = self.checkpoint.lsn
        self._again = _RingReader(file, self.capacity, self.begin)
        self._last: MiniTransaction | None = None

    def _parse_header(self) -> LogHeader:
        try:
            header = LogHeader.parse(self._file.pread(BLOCK, 0))
        except NewerRedo as error:
            raise CorruptRedo(f"{REDO_NAME} holds {error}") from None
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
        newer = [
            block[:8] for block in blocks if Checkpoint.parse(block) is None and is_of_newer(block)
        ]
        if newer:  # beside it one of ours may be left, which is no longer the last
            raise CorruptRedo(f"{REDO_NAME} holds {NewerRedo(f'a checkpoint {newer[0]!r}')}")
        if not found:
            raise CorruptRedo(f"both checkpoints of {REDO_NAME} are damaged{_ADVICE}")
        self._torn_checkpoint = len(found) < len(blocks)  # or the file was just made
        return max(found, key=lambda c: c.number)

    def replay(
        self, take: Take | None = None, reaches: Reaches | None = None
    ) -> Iterator[MiniTransaction]:
        """The mini-transactions since the checkpoint, in order. Afterwards `end` is the LSN behind them.

        Raises `CorruptRedo` if it ends in the middle of what was durable.

        Args:
            take: may take many at once, which are not given then: none that have a place.
            reaches: asked for places behind the checkpoint; where the binlog does not, the log ends.
        """
        lsn, self.epoch = self.begin, self._first_epoch
        reader = _RingReader(self._file, self.capacity, lsn)
        told = _Progress(lsn)
        while True:
            told.at(lsn)
            if take is not None:
                lsn = self._taken(take, reader, lsn, self.begin + self.capacity, self.epoch, told)
            if (found := self._next(reader, lsn)) is None:
                break
            place = found.place if reaches is not None and lsn >= self.checkpoint.lsn else None
            if place is not None and reaches is not None and not reaches(place):
                self._missed = place
                break
            lsn = found.end
            if found.is_note:
                self.synced = max([self.synced, *_claims(found)])
            else:
                yield found
        self._require_end(lsn)
        told.end(lsn)
        self.end = lsn

    def mtrs_from(self, lsn: int, take: Take | None = None) -> Iterator[MiniTransaction]:
        """The mini-transactions from that LSN on, once more, but those that are of tables alone.

        Raises `CorruptRedo` if they have changed since then. `take`: see `replay`.
        """
        while lsn < self.end:
            if take is not None:
                _, epoch, _, _ = MTR_HEAD.unpack(self._again.read(lsn, MTR_HEAD.size))
                lsn = self._taken(take, self._again, lsn, self.end, epoch)
                if lsn == self.end:
                    return
            if self._last is None or self._last.lsn != lsn:
                self._last = self._whole(self._again, lsn, self.capacity)
            found = self._last
            if found is None:
                raise CorruptRedo(
                    f"{REDO_NAME} was changed at LSN {lsn} while it was read{_ADVICE}"
                )
            lsn = found.end
            if not found.is_note and not found.is_of_tables:
                yield found

    def _taken(
        self,
        take: Take,
        reader: _RingReader,
        lsn: int,
        limit: int,
        epoch: int,
        progress: _Progress | None = None,
    ) -> int:
        """Let `take` have what it wants from there on, up to the LSN `limit`. Returns the LSN behind that."""
        while True:
            window, at = reader.window(lsn)
            behind, durable = take(window, at, min(len(window), at + limit - lsn), lsn, epoch)
            if behind == at:
                return lsn
            self.synced = max(self.synced, durable)
            lsn += behind - at
            if progress is not None:
                progress.at(lsn)

    def _next(self, reader: _RingReader, lsn: int) -> MiniTransaction | None:
        """The one that begins there, of this epoch or the first of the next one. Follows into that one."""
        found = self._mtr_at(reader, lsn)
        if found is None and self.checkpoint.tables is not None:
            _, epoch, _, _ = MTR_HEAD.unpack(reader.read(lsn, MTR_HEAD.size))
            later = self._mtr_at(reader, lsn, epoch)
            if later is not None and epoch > self.epoch and _records(later) == [Begun(self.epoch)]:
                self.epoch, found = epoch, later
        return found

    def _mtr_at(
        self, reader: _RingReader, lsn: int, wanted: int | None = None
    ) -> MiniTransaction | None:
        """The one of this epoch, or of that which is wanted, that begins there, if it is whole."""
        magic, epoch, there, _ = MTR_HEAD.unpack(reader.read(lsn, MTR_HEAD.size))
        if (
            magic != MTR_MAGIC
            or there != lsn
            or epoch != (self.epoch if wanted is None else wanted)
        ):
            return None
        return self._whole(reader, lsn, self.capacity - (lsn - self.begin))

    @staticmethod
    def _whole(reader: _RingReader, lsn: int, size_max: int) -> MiniTransaction | None:
        magic, _, there, size = MTR_HEAD.unpack(reader.read(lsn, MTR_HEAD.size))
        if magic != MTR_MAGIC or there != lsn:
            return None
        if not MTR_OVERHEAD < size <= size_max:
            return None
        data = reader.read(lsn, size)
        body_end = size - CRC.size
        if CRC.unpack_from(data, body_end)[0] != google_crc32c.value(data[:body_end]):
            return None
        return MiniTransaction(lsn, lsn + size, data[MTR_HEAD.size : body_end])

    def _require_end(self, end: int) -> None:
        """Check the end of the log: whole mini-transactions may follow if they were never durable, others must not."""
        if self.epoch < self.checkpoint.epoch or end < self.checkpoint.lsn:
            raise CorruptRedo(
                f"{REDO_NAME} is damaged at LSN {end} (offset {RING_AT + end % self.capacity}): the last checkpoint "
                f"is one of LSN {self.checkpoint.lsn}, and what lies in front of it is not readable any more{_ADVICE}"
            )
        for later in self._later(end):
            claims = _claims(later)
            if self._missed is not None and any(lsn > end for lsn in claims):
                file_no, offset = self._missed
                raise CorruptRedo(
                    f"the binlog does not reach up to offset {offset} of its file {file_no:06d}, but by {REDO_NAME} it "
                    "did, durably, and there are rows of what is missing. The store was not opened and nothing was "
                    "changed: put the file back; or start once with innodb_force_recovery=6, which keeps these rows"
                )
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
        window = _RingReader(self._file, self.capacity, end).read(end, self.capacity)
        reader = _RingReader(self._file, self.capacity, end)
        at = window.find(MTR_MAGIC)
        while at >= 0:
            _, epoch, lsn, _ = MTR_HEAD.unpack(reader.read(end + at, MTR_HEAD.size))
            later = epoch > self.epoch or lsn >= self.begin + self.capacity
            at_its_place = lsn > self.begin and (lsn - end - at) % self.capacity == 0
            if later and at_its_place and self._whole(reader, lsn, self.capacity) is not None:
                return True
            at = window.find(MTR_MAGIC, at + 1)
        return False

    def _later(self, end: int) -> Iterator[MiniTransaction]:
        """Whole mini-transactions of this epoch not far behind `end`, wherever they begin."""
        limit = min(end + _SEARCH_BYTES, self.begin + self.capacity)
        reader = _RingReader(self._file, self.capacity, end)
        # Without zeros at its end: over a ring that is mostly zeros find() takes a fifth of the time.
        wanted = MTR_MAGIC + self.epoch.to_bytes(4, "little").rstrip(b"\0")
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


def _claims(note: MiniTransaction) -> list[int]:
    return [record.lsn for record in _records(note) if isinstance(record, Flushed)]


@dataclass(eq=False)
class _RingReader:
    """Reads the ring by LSN, in large steps."""

    _file: ReadableFile
    _capacity: int
    _start: int
    _data: bytes = b""

    def read(self, lsn: int, size: int) -> bytes:
        """`size` bytes from `lsn` on; no more than the ring holds."""
        at = lsn - self._start
        if at < 0 or at + size > len(self._data):
            self._start = lsn
            self._data = self._pread(lsn, min(self._capacity, max(size, _READ_BYTES)))
            at = 0
        return self._data[at : at + size]

    def window(self, lsn: int) -> tuple[bytes, int]:
        """What was read, and an LSN's offset in it; there is more behind it than one small record."""
        at = lsn - self._start
        if at < 0 or at + _WINDOW_BYTES > len(self._data):
            self._start = lsn
            self._data = self._pread(lsn, min(self._capacity, _READ_BYTES))
            at = 0
        return self._data, at

    def _pread(self, lsn: int, size: int) -> bytes:
        at = lsn % self._capacity
        first = min(size, self._capacity - at)
        data = self._file.pread(first, RING_AT + at)
        if first < size:
            data += self._file.pread(size - first, RING_AT)
        return data
