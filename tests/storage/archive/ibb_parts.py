"""Parts of `.ibb` pages, taken apart and put together again: with a list of frames that fits, whatever was changed."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from binlog_storage.archive.ibb_frames import (
    ENTRY,
    FOOTER,
    FOOTER_MAGIC,
    LIST_MAGIC,
    PIECE,
    PLACE_BYTES,
    PLACES_MAGIC,
    SKIPPABLE,
    Frame,
)
from binlog_storage.ibb.page import PAGE_SIZE

_CODEC: Final = pa.Codec("zstd")
_U64: Final = (1 << 64) - 1

Frames = tuple[list[Frame], list[bytes], list[bytes]]
"""The frames, the pages of each, the places of each."""


def taken_apart(data: bytes) -> Frames:
    (count, _) = FOOTER.unpack(data[-FOOTER.size :])
    begin = len(data) - FOOTER.size - ENTRY.size * count
    frames = [Frame(*one) for one in ENTRY.iter_unpack(data[begin : -FOOTER.size])]

    def unpacked(begin: int, end: int, size: int) -> bytes:
        return _CODEC.decompress(data[begin:end], size, asbytes=True) if size else b""

    pages = [unpacked(f.begin, f.begin + f.size, f.pages * PAGE_SIZE) for f in frames]
    places = [unpacked(f.places_begin, f.end, f.rows * PLACE_BYTES) for f in frames]
    return frames, pages, places


def put_together(parts: Frames, footer: bytes | None = None) -> bytes:
    """Begins and sizes of frames come out right, but for a begin below 0."""
    out, listed = b"", b""
    for frame, pages, places in zip(*parts, strict=True):
        packed = _CODEC.compress(pages, asbytes=True)
        behind = _CODEC.compress(places, asbytes=True) if places else b""
        begin = len(out) if frame.begin >= 0 else frame.begin & _U64
        made = frame._replace(begin=begin, size=len(packed), places_size=len(behind))
        listed += ENTRY.pack(*made)
        out += packed
        if frame.kind != PIECE:
            out += SKIPPABLE.pack(PLACES_MAGIC, len(behind)) + behind
    body = listed + (FOOTER.pack(len(parts[0]), FOOTER_MAGIC) if footer is None else footer)
    return out + SKIPPABLE.pack(LIST_MAGIC, len(body)) + body
