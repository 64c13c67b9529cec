"""The compressed protocol: once a login with the capability COMPRESS is through, all bytes of both ends lie in these.

======  =====================================================================
bytes   content
======  =====================================================================
0..2    length of what follows the header
3       sequence number, that of the compressed packets alone
4..6    length when uncompressed; 0: it is stored as it is
7..     packets, or parts of them, as one zlib stream
======  =====================================================================

Where packets begin and end has nothing to do with where compressed packets do. Their numbers begin at 0 with each
request and go on in its answer, modulo 256. The numbers of the packets inside are looked at by no client of MariaDB;
a MariaDB server begins them anew with each compressed packet of a dump.

The reader has three outcomes: one compressed packet, None for "need more", a `ProtocolError`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

from binlog_protocol.errors import (
    CannotUncompress,
    PacketsOutOfOrder,
    PacketTooLarge,
    ProtocolError,
)
from binlog_protocol.events.compressed import inflate
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.gathered import GATHERED_BYTES_MIN, Allocate, GatheredPayload

COMPRESSED_HEADER_SIZE: Final = 7

# Length and sequence number together, the latter on top; then the other length in three bytes.
_HEADER: Final = struct.Struct("<I3s")
assert _HEADER.size == COMPRESSED_HEADER_SIZE
_SEQ_OFFSET: Final = 3

# As MariaDB (MIN_COMPRESS_LENGTH): what is shorter only grows.
STORED_BYTES_MAX: Final = 49

# Of zlib. MariaDB has 6, which on binlogs takes more than three times as long for a tenth less (docs/performance.md).
LEVEL: Final = 3

# Bytes, uncompressed, of one compressed packet of ours. A client needs a buffer of that size, and gives none beyond its
# max_allowed_packet.
PART_BYTES_MAX: Final = 256 * 1024


class CompressedPacket(NamedTuple):
    """One compressed packet but for its number. `size`: its bytes when uncompressed, 0 if `body` is stored.

    A large body that was received is a bytearray.
    """

    body: bytes
    size: int

    def payload(self) -> bytes:
        """The content of the packet. Raises `ProtocolError` if it is no zlib stream of that size."""
        if not self.size:
            return self.body
        try:
            return inflate(self.body, self.size, self.size)
        except ProtocolError as error:
            reason = f"compressed packet: {error.reason}"
            raise ProtocolError(reason, CannotUncompress()) from None


def compressed(data: bytes | bytearray | memoryview) -> list[CompressedPacket]:
    """`data` in parts, each compressed if that makes it shorter."""
    return [_part(piece) for piece in _pieces(data)]


def _pieces(data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), PART_BYTES_MAX):
        yield view[start : start + PART_BYTES_MAX]


def _part(piece: memoryview) -> CompressedPacket:
    if len(piece) > STORED_BYTES_MAX:
        body = zlib.compress(piece, LEVEL)
        if len(body) < len(piece):
            return CompressedPacket(body, len(piece))
    return CompressedPacket(bytes(piece), 0)


def framed(parts: Iterable[CompressedPacket], seq: int) -> tuple[bytes, int]:
    """Compressed packets numbered from `seq` on; returns them and the number that follows."""
    pieces: list[bytes] = []
    for body, size in parts:
        pieces += (_HEADER.pack(len(body) | seq << 24, size.to_bytes(3, "little")), body)
        seq = (seq + 1) & 0xFF
    return b"".join(pieces), seq


class CompressedReader:
    """Takes compressed packets apart. Bounded: see `feed`.

    For either end: a server expects each request to begin at 0, a client that the answer goes on behind its request
    (`next_seq` is to be set to the number that followed it).
    """

    __slots__ = (
        "_allocate",
        "_buffer",
        "_gathered",
        "_gathered_head",
        "_payload_bytes_max",
        "_restarts",
        "next_seq",
    )

    def __init__(
        self,
        payload_bytes_max: int = PACKET_PAYLOAD_MAX,
        *,
        restarts: bool,
        allocate: Allocate = bytearray,
    ) -> None:
        """`payload_bytes_max`: of one compressed packet, in either form. `restarts`: number 0 may come at any time.
        `allocate`: where large ones are gathered.
        """
        self._payload_bytes_max = min(payload_bytes_max, PACKET_PAYLOAD_MAX)
        self._restarts = restarts
        self._allocate = allocate
        self._buffer = bytearray()
        self._gathered: GatheredPayload | None = None  # what follows the header that was taken
        self._gathered_head = (0, 0)  # its number, and what becomes of it
        self.next_seq = 0
        """The sequence number behind the last packet: that of the answer."""

    @property
    def buffered(self) -> int:
        """Bytes that were not taken yet, as they came."""
        if self._gathered is None:
            return len(self._buffer)
        return COMPRESSED_HEADER_SIZE + self._gathered.filled + len(self._buffer)

    def discard(self) -> None:
        """Forget what has come."""
        self._buffer = bytearray()
        self._gathered = None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer.

        Raises `ProtocolError` for a header that is too large, and when a whole packet of the largest size lies here
        untaken. So what is held is no more than that and one `data`.
        """
        if self.buffered >= COMPRESSED_HEADER_SIZE + self._payload_bytes_max:
            raise ProtocolError("the peer sends ahead of the answers", PacketsOutOfOrder())
        if self._gathered is not None:
            data = memoryview(data)[self._gathered.take(data) :]
        self._buffer += data
        lengths = self._lengths()
        if self._gathered is None and lengths is not None and lengths[0] >= GATHERED_BYTES_MIN:
            self._gather(*lengths)

    def _gather(self, length: int, size: int) -> None:
        """Gather the payload of the header at the front from now on."""
        self._gathered = GatheredPayload(length, self._allocate)
        self._gathered_head = self._buffer[_SEQ_OFFSET], size
        with memoryview(self._buffer) as view, view[COMPRESSED_HEADER_SIZE:] as come:
            taken = self._gathered.take(come)
        del self._buffer[: COMPRESSED_HEADER_SIZE + taken]  # at the front: nothing moves

    def next_part(self) -> CompressedPacket | None:
        """The next compressed packet, or None while more bytes are needed.

        Raises `ProtocolError` for a number that is not due.
        """
        if self._gathered is not None:
            if not self._gathered.is_whole:
                return None
            seq, size = self._gathered_head
            self._take_seq(seq)
            body, self._gathered = self._gathered.payload, None
            return CompressedPacket(cast(bytes, body), size)
        lengths = self._lengths()
        if lengths is None:
            return None
        length, size = lengths
        end = COMPRESSED_HEADER_SIZE + length
        if len(self._buffer) < end:
            return None
        self._take_seq(self._buffer[_SEQ_OFFSET])
        part = CompressedPacket(bytes(memoryview(self._buffer)[COMPRESSED_HEADER_SIZE:end]), size)
        del self._buffer[:end]
        return part

    def _take_seq(self, seq: int) -> None:
        expected = self.next_seq
        self.next_seq = (seq + 1) & 0xFF  # also that of the answer to a wrong one
        if seq != expected and not (self._restarts and seq == 0):
            raise ProtocolError(
                f"compressed packet has sequence number {seq}, not {expected}",
                PacketsOutOfOrder(),
            )

    def _lengths(self) -> tuple[int, int] | None:
        """The lengths of the next packet: of its payload, and uncompressed (0: stored); None without its header."""
        if len(self._buffer) < COMPRESSED_HEADER_SIZE:
            return None
        word, plain = _HEADER.unpack_from(self._buffer)
        length, size = word & PACKET_PAYLOAD_MAX, int.from_bytes(plain, "little")
        if max(length, size) > self._payload_bytes_max:
            self.next_seq = (self._buffer[_SEQ_OFFSET] + 1) & 0xFF
            raise PacketTooLarge(max(length, size), self._payload_bytes_max)
        return length, size
