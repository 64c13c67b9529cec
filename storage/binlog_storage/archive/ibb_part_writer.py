"""Writing a part in the form of `.ibb`: groups onto pages, pages into frames. The bytes are told in `ibb_frames`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from binlog_protocol.events.header import HEADER_SIZE, EventHeader
from binlog_protocol.gtid import BinlogState
from numpy.typing import NDArray

from binlog_storage.archive.ibb_frames import (
    COMMIT,
    ENTRY,
    FOOTER,
    FOOTER_MAGIC,
    GROUPS,
    HEADER_PAGE,
    LIST_MAGIC,
    PIECE,
    PLACES_MAGIC,
    SKIPPABLE,
    Frame,
)
from binlog_storage.ibb import commit, gtid_state, oob
from binlog_storage.ibb.chunk import (
    CHUNK_HEADER,
    CHUNK_MIN,
    CONT,
    FILLER,
    LAST,
    Position,
    RecordType,
)
from binlog_storage.ibb.page import PAGE_END, PAGE_SIZE, seal

_COMMIT_LAST: Final = RecordType.COMMIT | LAST
_NO_PLACES: Final = np.zeros((2, 0), np.int64)


class IbbPartWriter:
    """Writes into a file that is open, and stays so. Raises OSError.

    Args:
        level: of zstd.
        before: the binlog state in front of the part.
        frame_bytes: of pages; more if what is given at one go has more.
    """

    def __init__(self, file: Any, level: int, before: BinlogState, frame_bytes: int) -> None:
        self._file: Final = file
        self._codec: Final = pa.Codec("zstd", compression_level=level)
        self._frame_bytes: Final = frame_bytes
        self._written = 0
        self._frames: list[Frame] = []
        self._done: list[bytes] = [HEADER_PAGE]  # pages of the frame that is being made
        self._first_page = 0  # of that
        self._page = bytearray(PAGE_SIZE)
        self._at = 0
        self._record(RecordType.GTID_STATE, gtid_state.encode(before))

    def groups(self, payloads: Sequence[bytes], places: NDArray[np.int64]) -> None:
        """Write groups and start markers: a frame.

        Args:
            places: of each the file, and of each the offset; two rows.
        """
        for payload in payloads:
            begin = self._at + CHUNK_HEADER + 1
            end = begin + len(payload)
            if end > PAGE_END:
                self._record(RecordType.COMMIT, commit.encode(payload))
                continue
            size = end - begin + 1
            page = self._page
            page[self._at : begin] = bytes((_COMMIT_LAST, size & 0xFF, size >> 8, 0))
            page[begin:end] = payload
            self._at = end
        self._end_frame(GROUPS, len(payloads), places)

    def large(self, pieces: Iterator[bytes], place: NDArray[np.int64]) -> Iterator[bytes]:
        """Write a large group: frames of its own. Gives out its bytes as they are written."""
        held = bytearray()
        size = HEADER_SIZE
        while len(held) < size:
            held += next(pieces)
            if len(held) >= HEADER_SIZE:
                size = EventHeader.parse(bytes(held[:HEADER_SIZE])).length
        event = bytes(held[:size])
        del held[:size]
        yield event
        forest = oob.Forest()
        for piece in pieces:
            held += piece
            while len(held) > oob.PIECE_BYTES_MAX:
                data = bytes(held[: oob.PIECE_BYTES_MAX])
                del held[: oob.PIECE_BYTES_MAX]
                self._node(forest, data)
                yield data
        if held:
            self._node(forest, bytes(held))
            yield bytes(held)
        if self._at or self._done:
            self._end_frame(PIECE, 0, _NO_PLACES)
        lists = (forest.reference(),) if forest.count else ()
        self._record(RecordType.COMMIT, commit.encode(event, *lists))
        self._end_frame(COMMIT, 1, place)

    def _node(self, forest: oob.Forest, data: bytes) -> None:
        forest.placed(self._record(RecordType.OOB_DATA, oob.encode(forest.next_node(data))))
        if len(self._done) * PAGE_SIZE >= self._frame_bytes:
            self._end_frame(PIECE, 0, _NO_PLACES)

    def finish(self) -> None:
        """Write the list of the frames."""
        entries = b"".join(ENTRY.pack(*frame) for frame in self._frames)
        body = entries + FOOTER.pack(len(self._frames), FOOTER_MAGIC)
        self._file.write(SKIPPABLE.pack(LIST_MAGIC, len(body)) + body)

    # --- pages ---

    def _record(self, kind: RecordType, data: bytes) -> Position:
        """Write a record, in as many chunks as it takes. Returns the place of the first."""
        self._leave_full_page()
        page_no = self._first_page + len(self._done)
        place = Position(0, page_no * PAGE_SIZE + self._at)
        done, flags = 0, int(kind)
        while True:
            take = min(PAGE_END - CHUNK_HEADER - self._at, len(data) - done)
            is_last = done + take == len(data)
            begin = self._at + CHUNK_HEADER
            self._page[self._at : begin] = bytes(
                (flags | LAST if is_last else flags, take & 0xFF, take >> 8)
            )
            self._page[begin : begin + take] = data[done : done + take]
            self._at = begin + take
            done += take
            if is_last:
                return place
            flags = kind | CONT
            self._leave_full_page()

    def _leave_full_page(self) -> None:
        if self._at <= PAGE_END - CHUNK_MIN:
            return
        self._page[self._at : PAGE_END] = bytes((FILLER,)) * (PAGE_END - self._at)
        self._done.append(seal(self._page))
        self._page = bytearray(PAGE_SIZE)
        self._at = 0

    def _end_frame(self, kind: int, rows: int, places: NDArray[np.int64]) -> None:
        self._leave_full_page()
        if self._at:
            filler = b"\xff" * (PAGE_END - CHUNK_HEADER - self._at)
            self._record(RecordType.DUMMY, filler)
            self._leave_full_page()
        packed = self._codec.compress(b"".join(self._done), asbytes=True)
        steps = np.diff(places, axis=1, prepend=0).astype("<i8").tobytes()
        places_packed = self._codec.compress(steps, asbytes=True) if steps else b""
        frame = Frame(self._written, len(packed), len(places_packed), len(self._done), rows, kind)
        self._file.write(packed)
        if kind != PIECE:
            self._file.write(SKIPPABLE.pack(PLACES_MAGIC, len(places_packed)) + places_packed)
        self._frames.append(frame)
        self._written = frame.end
        self._first_page += len(self._done)
        self._done = []
