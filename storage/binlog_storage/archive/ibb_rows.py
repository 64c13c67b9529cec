"""Parts in the form of `.ibb`: from frames of pages to rows. The bytes are told in `ibb_frames`.

Nothing of the file's own structure is believed further than it is checked here: a frame is unpacked only to the size
that the list says, which is bounded; pages by their checksums; rows by their number. Out-of-band data are read in the
order in which they lie, not by their links: a part has one large group after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.groups.stored_group import (
    FORMAT_DESCRIPTION_EVENT,
    GTID_EVENT,
    HEAD_BYTES,
    HEAD_FIELDS,
)

from binlog_storage.archive.ibb_frames import (
    COMMIT,
    ENTRY,
    FOOTER,
    FOOTER_MAGIC,
    GROUPS,
    HEADER_PAGE,
    LIST_MAGIC,
    PIECE,
    PLACE_BYTES,
    PLACES_MAGIC,
    SKIPPABLE,
    Frame,
)
from binlog_storage.archive.opened_part import OpenedPart
from binlog_storage.archive.part_rows import ROW_GROUP_BYTES_MAX, PartRows
from binlog_storage.engine import LargeGroup
from binlog_storage.errors import CorruptBinlog, TruncatedRecord
from binlog_storage.ibb import oob
from binlog_storage.ibb.chunk import Position, Record, RecordType
from binlog_storage.ibb.page import PAGE_SIZE, check
from binlog_storage.ibb.records import PageSource, RecordReader, parsed
from binlog_storage.log.batch_reader import read_batch
from binlog_storage.log.group_reader import payload_and_nodes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FRAMES_MAX: Final = 1 << 20
_PAGES_MAX: Final = ROW_GROUP_BYTES_MAX // PAGE_SIZE
_LARGE_HEAD_BYTES: Final = 64


class _FramePages(PageSource):
    """See `PageSource`: the pages of one frame."""

    def __init__(self, data: memoryview, first: int) -> None:
        self._data: Final = data
        self._first: Final = first
        self._page: tuple[int, bytes] = -1, b""

    def page(self, file_no: int, page_no: int) -> bytes | None:
        """See `PageSource`."""
        known, page = self._page
        if known == page_no and not file_no:
            return page
        at = (page_no - self._first) * PAGE_SIZE
        if file_no or not 0 <= at < len(self._data):
            return None
        page = bytes(self._data[at : at + PAGE_SIZE])
        check(page, file_no, page_no)
        self._page = page_no, page
        return page

    def has_data(self, file_no: int) -> bool:
        """See `PageSource`."""
        return file_no == 0


class IbbRows:
    """See `PartForm`."""

    def __init__(self, part: OpenedPart) -> None:
        """Raises `ArchiveDamaged`, `NoBinlogKey`."""
        self._part: Final = part
        with part.said_by_system():
            self._frames: Final = self._list()
        first = 0
        self._first_pages: Final = [first := first + frame.pages for frame in self._frames]

    @contextmanager
    def open(self) -> Iterator[None]:
        """See `PartForm`."""
        with self._part.said_by_system():
            try:
                yield
            except (CorruptBinlog, TruncatedRecord) as error:
                raise self._part.damaged(str(error)) from error

    def next_rows(self, file: Any, number: int) -> tuple[PartRows, int] | None:
        """See `PartForm`."""
        begin = number
        while number < len(self._frames) and self._frames[number].kind == PIECE:
            number += 1
        if number == len(self._frames):
            if begin != number:
                raise self._part.damaged("it ends in the middle of a group")
            return None
        if self._frames[number].kind == COMMIT:
            return self._large(begin, number), number + 1
        if begin != number:
            raise self._part.damaged("a group of several frames is not alone in them")
        return self._groups(number), number + 1

    # --- the list ---

    def _list(self) -> list[Frame]:
        size = self._part.content.size
        tail = self._read(max(size - FOOTER.size, 0), FOOTER.size)
        count, magic = FOOTER.unpack(tail) if len(tail) == FOOTER.size else (0, b"")
        if magic != FOOTER_MAGIC or not 0 < count <= _FRAMES_MAX:
            raise self._part.damaged("it does not end with a list of frames")
        body = ENTRY.size * count + FOOTER.size
        begin = size - body - SKIPPABLE.size
        data = self._read(max(begin, 0), SKIPPABLE.size + body)
        if begin < 0 or data[: SKIPPABLE.size] != SKIPPABLE.pack(LIST_MAGIC, body):
            raise self._part.damaged("its list of frames is not whole")
        entries = ENTRY.iter_unpack(data[SKIPPABLE.size : SKIPPABLE.size + ENTRY.size * count])
        frames = [Frame(*one) for one in entries]
        at = 0
        for frame in frames:
            self._check(frame, at)
            at = frame.end
        if at != begin:
            raise self._part.damaged("its frames do not end where the list of them begins")
        return frames

    def _check(self, frame: Frame, at: int) -> None:
        rows_max = {GROUPS: 1 + frame.pages * PAGE_SIZE // HEAD_BYTES, PIECE: 0, COMMIT: 1}
        if (
            frame.begin != at
            or not 0 < frame.pages <= _PAGES_MAX
            or frame.rows > rows_max.get(frame.kind, -1)
            or (frame.kind == COMMIT and frame.rows != 1)
        ):
            raise self._part.damaged(f"the list of its frames says {tuple(frame)}")

    # --- a frame ---

    def _pages(self, number: int) -> _FramePages:
        frame = self._frames[number]
        data = self._unpacked(frame.begin, frame.size, frame.pages * PAGE_SIZE)
        pages = _FramePages(memoryview(data), self._first_pages[number] - frame.pages)
        if not number and pages.page(0, 0) != HEADER_PAGE:
            raise self._part.damaged("it does not begin with the header of such a file")
        return pages

    def _span(self, number: int) -> tuple[Position, Position]:
        """The places in the file where the records of a frame begin and end."""
        end = self._first_pages[number]
        begin = max(end - self._frames[number].pages, 1)  # behind the header
        return Position(0, begin * PAGE_SIZE), Position(0, end * PAGE_SIZE)

    def _places(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The files and offsets where the groups of a frame ended."""
        import numpy as np

        frame = self._frames[number]
        head = self._read(frame.begin + frame.size, SKIPPABLE.size)
        if head != SKIPPABLE.pack(PLACES_MAGIC, frame.places_size):
            raise self._part.damaged("a frame has no places behind it")
        data = self._unpacked(frame.places_begin, frame.places_size, frame.rows * PLACE_BYTES)
        steps = np.frombuffer(data, "<i8").reshape(2, frame.rows)
        file, offset = np.cumsum(steps, axis=1)
        if (file < 0).any() or (offset < 0).any():
            raise self._part.damaged("a group ends at no place")
        return file, offset

    def _unpacked(self, begin: int, size: int, unpacked_size: int) -> bytes:
        import pyarrow as pa

        packed = self._read(begin, size)
        if not unpacked_size:
            return b""
        try:
            # Never more than that: it is written into a buffer of this size, and must fill it.
            data: bytes = pa.Codec("zstd").decompress(packed, unpacked_size, asbytes=True)
        except (OSError, ValueError) as error:
            raise self._part.damaged(f"a frame cannot be unpacked: {error}") from None
        return data

    def _read(self, begin: int, size: int) -> bytes:
        return self._part.content.pread(size, begin)

    def _groups(self, number: int) -> PartRows:
        pages, (place, end) = self._pages(number), self._span(number)
        payloads: list[bytes] = []
        while place < end:
            batch = read_batch(pages, place, end, ROW_GROUP_BYTES_MAX)
            if batch.end == place or batch.large is not None:
                raise self._part.damaged("a frame does not end where its records do")
            payloads += batch.groups
            place = batch.end
        return self._rows(number, payloads)

    def _rows(self, number: int, payloads: list[bytes]) -> PartRows:
        import numpy as np

        count = self._frames[number].rows
        if len(payloads) != count:
            raise self._part.damaged(
                f"a frame has {len(payloads)} groups, and the list says {count}"
            )
        if any(len(payload) < HEAD_BYTES for payload in payloads):
            raise self._part.damaged(f"a group of less than {HEAD_BYTES} bytes")
        heads = np.frombuffer(
            b"".join(payload[:HEAD_BYTES] for payload in payloads), np.dtype(HEAD_FIELDS)
        )
        is_marker = heads["type"] == FORMAT_DESCRIPTION_EVENT
        if not (is_marker | (heads["type"] == GTID_EVENT)).all():
            raise self._part.damaged("a group begins with no GTID event")
        domain, server, seq = (
            np.where(is_marker, 0, heads[name]).astype("<u8").view(np.int64)
            for name in ("domain", "server", "seq")
        )
        file, offset = self._places(number)
        ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, count))
        return PartRows(
            memoryview(b"".join(payloads)),
            ends,
            domain,
            server,
            seq,
            file + np.where(is_marker, 0, self._part.part.file_base),
            offset,
            is_marker,
        )

    # --- large groups ---

    def _large(self, begin: int, number: int) -> PartRows:
        """A large group, whose out-of-band data are in the frames from `begin` on, and its commit in `number`."""
        payload, nodes = payload_and_nodes(self._only_commit(number))
        rows = self._rows(number, [payload])
        if rows.is_marker[0]:
            raise self._part.damaged("a start marker stands where a large group would")
        large = LargeGroup(
            payload[:_LARGE_HEAD_BYTES],
            Position(int(rows.file[0]), int(rows.offset[0])),
            partial(self._pieces, begin, number, payload, nodes),
        )
        return replace(rows, large=large)

    def _only_commit(self, number: int) -> Record:
        place, end = self._span(number)
        found = [
            record
            for record in RecordReader(self._pages(number), place, end)
            if record.type == RecordType.COMMIT
        ]
        if len(found) != 1:
            raise self._part.damaged(f"a frame has {len(found)} commits where one would be")
        return found[0]

    def _pieces(self, begin: int, end: int, payload: bytes, nodes: int) -> Iterator[bytes]:
        yield payload
        count = 0
        for number in range(begin, end):
            for data in self._node_data(number, count):
                count += 1
                yield data
        if count != nodes:
            raise self._part.damaged(
                f"a large group has {count} pieces, and its commit says {nodes}"
            )
        self._part.require_unchanged()

    def _node_data(self, number: int, count: int) -> list[bytes]:
        """The out-of-band data in a frame, of which `count` nodes came before."""
        found: list[bytes] = []
        with self.open():
            place, end = self._span(number)
            for record in RecordReader(self._pages(number), place, end):
                if record.type == RecordType.OOB_DATA:
                    node = parsed(oob.decode, record.data, record.start)
                    if node.number != count + len(found):
                        raise self._part.damaged(
                            f"piece {node.number} of a large group is where {count + len(found)} would be"
                        )
                    found.append(node.data)
        return found
