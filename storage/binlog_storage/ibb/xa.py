"""XA records: a transaction that was prepared (type 5), and what became of it (type 6).

    XA_PREPARE    u8 engines   XID   ci n, ci first_file, ci first_offset, ci last_file, ci last_offset
    XA_COMPLETE   u8 kind (bit 0: 0 committed, 1 rolled back)   XID

    XID           u32 format_id, u8 gtrid length (0..64), u8 bqual length (0..64), gtrid, bqual

`engines` is the number of engines that take part. At the commit the commit record follows in the same
mini-transaction, with the out-of-band list that the prepare record named. An older writer puts no list into the
prepare record: it ends behind the XID. (MariaDB: `storage/innobase/handler/innodb_binlog.cc`; its reader of 2026
takes bqual from the wrong offset, the order on disk is gtrid, bqual.)
"""

from __future__ import annotations

import string
import struct
from typing import NamedTuple

from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.commit import OobList
from binlog_storage.ibb.compressed_int import ShortChunk

XID_PART_MAX = 64
_XID = struct.Struct("<IBB")
_ROLLED_BACK = 1
_FORMAT_DEFAULT = 1
_NO_LIST = OobList(0, Position(0, 0), Position(0, 0))
_PLAIN = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"-_ ")

assert _XID.size == 6


class Xid(NamedTuple):
    """Name of an XA transaction."""

    format_id: int
    gtrid: bytes
    bqual: bytes = b""

    def encode(self) -> bytes:
        """The bytes of an XID in a record."""
        return _XID.pack(self.format_id, len(self.gtrid), len(self.bqual)) + self.gtrid + self.bqual

    def __str__(self) -> str:
        """The XID as MariaDB logs it."""
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id}"

    def sql(self) -> str:
        """The XID as XA RECOVER FORMAT='SQL' prints it: to be pasted behind XA COMMIT."""
        plain = all(byte in _PLAIN for byte in self.gtrid + self.bqual)
        gtrid, bqual = (
            f"'{part.decode('ascii')}'" if plain else f"X'{part.hex()}'"
            for part in (self.gtrid, self.bqual)
        )
        if self.format_id != _FORMAT_DEFAULT:
            return f"{gtrid},{bqual},{self.format_id}"
        return f"{gtrid},{bqual}" if self.bqual else gtrid


class XaPrepare(NamedTuple):
    """A prepared transaction: engines that take part, its name, its data if it logged any."""

    engines: int
    xid: Xid
    oob: OobList | None


class XaComplete(NamedTuple):
    """The end of a prepared transaction."""

    xid: Xid
    rolled_back: bool


def encode_prepare(prepare: XaPrepare) -> bytes:
    """The body of the record."""
    oob = prepare.oob or _NO_LIST
    return bytes((prepare.engines,)) + prepare.xid.encode() + oob.encode()


def decode_prepare(data: bytes) -> XaPrepare:
    """Parse a body; `ValueError` with the reason if it is malformed."""
    xid, at = decode_xid(data, 1)
    if at == len(data):
        return XaPrepare(data[0], xid, None)
    oob, _ = OobList.decode(data, at)
    return XaPrepare(data[0], xid, oob if oob.nodes else None)


def encode_complete(complete: XaComplete) -> bytes:
    """The body of the record."""
    return bytes((_ROLLED_BACK if complete.rolled_back else 0,)) + complete.xid.encode()


def decode_complete(data: bytes) -> XaComplete:
    """Parse a body; `ValueError` with the reason if it is malformed."""
    xid, _ = decode_xid(data, 1)
    return XaComplete(xid, bool(data[0] & _ROLLED_BACK))


def decode_xid(data: bytes, at: int) -> tuple[Xid, int]:
    """The XID at an offset, and the offset behind it; `ValueError` with the reason if it is malformed."""
    if len(data) < at + _XID.size:
        raise ShortChunk
    format_id, gtrid_size, bqual_size = _XID.unpack_from(data, at)
    if gtrid_size > XID_PART_MAX or bqual_size > XID_PART_MAX:
        raise ValueError(f"XID with parts of {gtrid_size} and {bqual_size} bytes")
    begin = at + _XID.size
    end = begin + gtrid_size + bqual_size
    if len(data) < end:
        raise ShortChunk
    return Xid(format_id, data[begin : begin + gtrid_size], data[begin + gtrid_size : end]), end
