"""Page 0 of an .ibb file.

    offset  size  field
    0       4     magic, bytes fe fe 0d 01
    4       4     log2 of the page size, 14
    8       4     major version, 1; a larger one is refused
    12      4     minor version, 0; a larger one is readable
    16      8     number of the file, the same as in its name
    24      8     pages in the file when it was made
    32      8     start LSN: redo log position just before this page was written
    40      8     GTID state interval, in pages
    48      8     lowest file that this one may have out-of-band references into; itself if none earlier
    56      8     lowest file with an XA transaction pending, 2**64-1 for none
    64      444   zero
    508     4     CRC-32C of bytes 0..507
    512     15868 zero
    16380   4     page CRC

(MariaDB: `storage/innobase/fsp/fsp_binlog.cc`; its document puts the first CRC at 512, its code at 508.)
"""

from __future__ import annotations

import struct

import google_crc32c
from binlog_protocol.dataclass import dataclass

from binlog_storage.errors import CorruptBinlog
from binlog_storage.ibb.page import PAGE_SIZE, PAGE_SIZE_LOG2, is_zero, seal

MAGIC = 0x010DFEFE
VERSION_MAJOR = 1
VERSION_MINOR = 0
NO_XA = 2**64 - 1
_FIELDS = struct.Struct("<IIIIQQQQQQ")
_START_LSN_AT = 32
_HEADER_CRC_AT = 508
_HEADER_BYTES = 512

FIELDS_BYTES = _FIELDS.size  # what the redo log holds of it; the rest follows from these

assert FIELDS_BYTES == 64
assert _HEADER_CRC_AT + 4 == _HEADER_BYTES


def header_page(fields: bytes) -> bytes:
    """The whole page from its fields, 64 bytes or more, both CRCs set."""
    page = bytearray(PAGE_SIZE)
    page[: len(fields)] = fields
    crc = google_crc32c.value(bytes(page[:_HEADER_CRC_AT]))
    page[_HEADER_CRC_AT:_HEADER_BYTES] = crc.to_bytes(4, "little")
    return seal(page)


def without_start_lsn(page: bytes) -> bytes:
    """A header page whose start LSN is 0, both CRCs set: of no redo log, so that no recovery compares it with one."""
    fields = bytearray(page[:_HEADER_CRC_AT])
    fields[_START_LSN_AT : _START_LSN_AT + 8] = bytes(8)
    return header_page(bytes(fields))


def no_data(file_no: int, *, missing: bool) -> CorruptBinlog:
    """The error for a file without data that must have some: a later one is in use, or its groups were durable.

    Only the newest files may be empty, those that were made ahead.
    """
    reason = "the file is missing" if missing else "the file is empty"
    return CorruptBinlog(
        file_no, 0, f"{reason}, but what was in it was durable; restore it from a copy"
    )


def number_in(page: bytes) -> int:
    """The number that the header of a file says, from its first bytes; `FileHeader.parse` checks them."""
    return int(_FIELDS.unpack_from(page)[4])


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The fields that vary. `xa_ref` is None when no XA transaction is pending."""

    file_no: int
    pages: int
    start_lsn: int
    state_interval_pages: int
    oob_ref: int
    xa_ref: int | None = None

    @property
    def refers_to(self) -> int:
        """The lowest file that groups of this one may have data in."""
        return min(self.file_no, self.oob_ref, self.file_no if self.xa_ref is None else self.xa_ref)

    def build(self) -> bytes:
        """The whole page, both CRCs set."""
        return header_page(
            _FIELDS.pack(
                MAGIC,
                PAGE_SIZE_LOG2,
                VERSION_MAJOR,
                VERSION_MINOR,
                self.file_no,
                self.pages,
                self.start_lsn,
                self.state_interval_pages,
                self.oob_ref,
                NO_XA if self.xa_ref is None else self.xa_ref,
            )
        )

    @classmethod
    def parse(cls, page: bytes, file_no: int) -> FileHeader | None:
        """The header of file `file_no` from its page 0; None if the page was never written (a pre-allocated file).

        The page CRC is the caller's to check. Raises `CorruptBinlog`.
        """

        def corrupt(offset: int, reason: str) -> CorruptBinlog:
            return CorruptBinlog(file_no, offset, reason, page[offset : offset + 16])

        if len(page) < _HEADER_BYTES:
            raise corrupt(0, "the file ends inside its header page")
        if is_zero(page[:_HEADER_BYTES]):
            if not is_zero(page):
                raise corrupt(0, "the header is empty, but its page is not")
            return None
        crc = int.from_bytes(page[_HEADER_CRC_AT:_HEADER_BYTES], "little")
        if google_crc32c.value(page[:_HEADER_CRC_AT]) != crc:
            raise corrupt(_HEADER_CRC_AT, "Invalid checksum on first page, cannot read binlog file")
        magic, log2, major, _, number, pages, lsn, interval, oob, xa = _FIELDS.unpack_from(page)
        if magic != MAGIC:
            raise corrupt(0, "no binlog file: wrong magic number")
        if log2 != PAGE_SIZE_LOG2:
            raise corrupt(4, f"Invalid/unsupported page size in InnoDB binlog file (2^{log2})")
        if major > VERSION_MAJOR:
            raise corrupt(8, f"Unsupported version of InnoDB binlog file ({major})")
        if number != file_no:
            raise corrupt(16, f"the header says file number {number}, the name says {file_no}")
        return cls(number, pages, lsn, interval, oob, None if xa == NO_XA else xa)
