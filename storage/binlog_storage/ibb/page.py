"""Pages of an .ibb file.

    offset  size   content
    0       16380  chunks (pages 1..), or the file header (page 0); zero behind the last chunk
    16380   4      CRC-32C (Castagnoli) of bytes 0..16379, little-endian

A page is believed if its CRC matches, or if every byte is zero: such a page was never written. Everything else is
corruption. (MariaDB: `storage/innobase/fsp/fsp_binlog.cc`.)

`sound_run` exists in C, too (`_speedups.c`), where it was built.
"""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c

from binlog_storage.errors import CorruptBinlog

PAGE_SIZE = 16384
PAGE_SIZE_LOG2 = 14
CRC_SIZE = 4
PAGE_END = PAGE_SIZE - CRC_SIZE  # chunks live in front of this offset
ZERO_PAGE = bytes(PAGE_SIZE)

assert 1 << PAGE_SIZE_LOG2 == PAGE_SIZE == CorruptBinlog.PAGE_SIZE


def seal(page: bytearray) -> bytes:
    """The page with its CRC set, as it goes to disk."""
    page[PAGE_END:] = google_crc32c.value(bytes(page[:PAGE_END])).to_bytes(CRC_SIZE, "little")
    return bytes(page)


def is_zero(data: bytes) -> bool:
    """Whether every byte is zero; of nothing as well."""
    return data == bytes(len(data))


def is_sound(page: bytes) -> bool:
    """Whether the CRC matches or the page was never written."""
    crc = google_crc32c.value(page[:PAGE_END])
    return crc == int.from_bytes(page[PAGE_END:], "little") or page == ZERO_PAGE


def sound_run_plainly(data: bytes) -> list[bytes]:
    """The pages with which `data` begins, up to the first that was never written, has a wrong CRC, or is cut."""
    found: list[bytes] = []
    for at in range(0, len(data) - PAGE_SIZE + 1, PAGE_SIZE):
        page = data[at : at + PAGE_SIZE]
        if page == ZERO_PAGE or not is_sound(page):
            break
        found.append(page)
    return found


sound_run: Callable[[bytes], list[bytes]] = sound_run_plainly
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    sound_run = _speedups.sound_run


def check(page: bytes, file_no: int, page_no: int) -> None:
    """Raise `CorruptBinlog` unless the page is sound."""
    if is_sound(page):
        return
    stored = int.from_bytes(page[PAGE_END:], "little")
    raise CorruptBinlog(
        file_no,
        page_no * PAGE_SIZE,
        f"Page corruption (invalid crc32 checksum 0x{stored:08X})",
        page,
    )
