"""The framing of the MariaDB connection: packets with length and sequence number.

======  =====================================================================
bytes   content
======  =====================================================================
0..2    payload length, at most 0xFFFFFF
3       sequence number, one more than that of the packet before, modulo 256
4..     payload
======  =====================================================================

A payload of 0xFFFFFF bytes or more continues in the next packet; the last one is shorter than
0xFFFFFF, if need be empty. The reader has three outcomes: a packet, None for "need more", a
`ProtocolError`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, cast

from binlog_protocol.errors import PacketsOutOfOrder, PacketTooLarge, ProtocolError
from binlog_protocol.limits import PACKET_PAYLOAD_MAX
from binlog_protocol.wire.gathered import GATHERED_BYTES_MIN, Allocate, GatheredPayload

PACKET_HEADER_SIZE: Final = 4

# Length and sequence number together, the latter on top.
_HEADER: Final = struct.Struct("<I")
assert _HEADER.size == PACKET_HEADER_SIZE

# Consumed bytes at the front of the buffer are dropped when they are this many and at least half
# of it: each byte is then moved at most once on average.
_COMPACT_BYTES: Final = 64 * 1024


# Beyond this a payload is worth a thread: to check it takes 0.3 ms by the C part, more than 1 by zlib; a thread, 0.2.
LARGE_BYTES: Final = 4 << 20
_SLICE_BYTES: Final = 1 << 20  # that are copied at once


class Packet(NamedTuple):
    """One whole payload; `seq` is that of its first frame, `next_seq` follows its last one.

    With `PacketReader(allocate=...)` a large payload is a bytearray, which is the receiver's own.
    """

    seq: int
    payload: bytes
    next_seq: int


class PacketReader:
    """Cuts a byte stream into packets. Bounded: see `feed`.

    Bytes are either collected here (`feed`) or looked at where they came in (`lend`).
    """

    __slots__ = (
        "_allocate",
        "_buffer",
        "_gathered",
        "_gathered_seq",
        "_offset",
        "_parts",
        "_parts_bytes",
        "_seq",
        "numbered",
        "payload_bytes_max",
    )

    def __init__(self, payload_bytes_max: int, *, allocate: Allocate | None = None) -> None:
        """`payload_bytes_max`: bytes of one payload, continuations together. May be changed.

        `allocate`: large payloads are gathered in what it gives, and handed over so, without a copy (to copy 16 MB
        takes 10 ms where the memory is new).
        """
        self.payload_bytes_max = payload_bytes_max
        self.numbered = True
        """Whether a continuation must have the number that is due. Inside of compressed packets no MariaDB looks."""
        self._allocate = allocate
        self._gathered: GatheredPayload | None = (
            None  # the payload of the packet whose header was taken
        )
        self._gathered_seq = 0
        self._buffer: bytearray | memoryview = bytearray()
        self._offset = 0
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._seq = 0

    @property
    def buffered(self) -> int:
        """Bytes held: not yet cut, and those of a payload whose continuation is awaited."""
        gathered = self._gathered  # once: a thread may be taking packets
        held = len(self._buffer) - self._offset + self._parts_bytes
        return held if gathered is None else held + PACKET_HEADER_SIZE + gathered.filled

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer.

        Raises `PacketTooLarge` as soon as the header of the packet being received says so, and
        `ProtocolError` when more than a whole packet lies here untaken: a peer that sends ahead
        of the answers is read no further. So what is held is at most one payload of the largest
        size with the headers of its frames, and one `data`.
        """
        self._require_taken()
        if isinstance(self._buffer, memoryview):  # the place it is in will be used again
            self._buffer, self._offset = bytearray(self.untaken), 0
        if self._gathered is not None:
            data = memoryview(data)[self._gathered.take(data) :]
        self._buffer += data
        self._look_ahead()

    @property
    def untaken(self) -> memoryview:
        """The bytes that are in no packet yet. The view is to be released before anything else is done here."""
        return memoryview(self._buffer)[self._offset :]

    def lend(self, data: memoryview) -> None:
        """Take bytes without a copy: they begin with those of `untaken`, and stay unchanged until more are lent or fed.

        Raises as `feed`.
        """
        if self._offset < len(self._buffer):  # nearly never
            self._require_taken()
        self._buffer, self._offset = data, 0
        if self._gathered is not None:
            self._offset = self._gathered.take(data)
        self._look_ahead()

    @property
    def gathering(self) -> GatheredPayload | None:
        """The large payload that is coming. Its next bytes may be received where they stay, in the place of `feed`."""
        gathered = self._gathered
        return None if gathered is None or gathered.is_whole else gathered

    def _require_taken(self) -> None:
        frames_max = self.payload_bytes_max // PACKET_PAYLOAD_MAX + 1
        if self.buffered > self.payload_bytes_max + frames_max * PACKET_HEADER_SIZE:
            raise ProtocolError("the peer sends ahead of the answers", PacketsOutOfOrder())

    def _look_ahead(self) -> None:
        if len(self._buffer) - self._offset < PACKET_HEADER_SIZE or self._gathered is not None:
            return
        length = self._payload_length()
        if (
            self._allocate is not None
            and length >= GATHERED_BYTES_MIN
            and isinstance(self._buffer, bytearray)
        ):
            self._gather(length, self._allocate)

    def _gather(self, length: int, allocate: Allocate) -> None:
        """The payload of the packet at the offset, from now on."""
        start = self._offset + PACKET_HEADER_SIZE
        gathered = GatheredPayload(length, allocate)
        with memoryview(self._buffer) as view:
            self._gathered_seq = view[start - 1]
            with view[start:] as come:
                self._offset = start + gathered.take(come)
        self._gathered = gathered
        self._compact()

    def next_packet(self) -> Packet | None:
        """The next whole packet, or None while more bytes are needed.

        Raises `PacketTooLarge`, or `ProtocolError` when a continuation is out of order.
        """
        buffer = self._buffer
        while True:
            gathered = self._gathered
            if gathered is None:
                start = self._offset + PACKET_HEADER_SIZE
                if len(buffer) < start:
                    return None
                length = self._payload_length()
                end = start + length
                if length >= GATHERED_BYTES_MIN and self._allocate is not None:
                    self._gather(length, self._allocate)
                    continue
                if len(buffer) < end:
                    return None
                seq = buffer[start - 1]
                payload = bytes(memoryview(buffer)[start:end])
                self._offset = end
                if end == len(buffer) or end >= _COMPACT_BYTES:
                    self._compact()
            else:
                if not gathered.is_whole:
                    return None
                seq, length = self._gathered_seq, gathered.length
                payload = cast(bytes, gathered.payload)
                self._gathered = None
            if self._parts:
                self._check_continuation(seq)
                if length < PACKET_PAYLOAD_MAX:
                    return self._finish(seq, payload)
            elif length < PACKET_PAYLOAD_MAX:
                return Packet(seq, payload, (seq + 1) & 0xFF)
            else:
                self._seq = seq
            self._parts.append(payload)
            self._parts_bytes += length

    @property
    def holds_large(self) -> bool:
        """Whether `next_packet` has much to do: it may give a payload of more than `LARGE_BYTES`."""
        if self._parts:
            return True
        return (
            self._gathered is not None
            and self._gathered.filled == self._gathered.length > LARGE_BYTES
        )

    def window(self) -> tuple[bytearray | memoryview, int] | None:
        """The buffer, and where the next packet begins in it, for callers that take packets out and tell `take_to`.

        None in the middle of a payload that is continued.
        """
        return None if self._parts or self._gathered else (self._buffer, self._offset)

    def take_to(self, offset: int) -> None:
        """Packets were taken out of the `window` up to here."""
        self._offset = offset
        if type(self._buffer) is bytearray and (
            offset == len(self._buffer) or offset >= _COMPACT_BYTES
        ):
            self._compact()

    def take_rest(self) -> bytes:
        """The raw bytes behind the packets taken so far; they are forgotten here."""
        rest = bytes(memoryview(self._buffer)[self._offset :])
        self.discard()
        return rest

    def discard(self) -> None:
        """Forget what is buffered."""
        self._buffer = bytearray()
        self._offset = 0
        self._gathered = None
        self._parts.clear()
        self._parts_bytes = 0

    def _payload_length(self) -> int:
        """The length in the header at the offset, checked together with the parts before."""
        word: int = _HEADER.unpack_from(self._buffer, self._offset)[0]
        length = word & PACKET_PAYLOAD_MAX
        if self._parts_bytes + length > self.payload_bytes_max:
            next_seq = ((word >> 24) + 1) & 0xFF
            raise PacketTooLarge(self._parts_bytes + length, self.payload_bytes_max, next_seq)
        return length

    def _check_continuation(self, seq: int) -> None:
        expected = (self._seq + len(self._parts)) & 0xFF
        if self.numbered and seq != expected:
            raise ProtocolError(
                f"continuation packet has sequence number {seq}, not {expected}",
                PacketsOutOfOrder(),
            )

    def _finish(self, seq: int, payload: bytes) -> Packet:
        first = self._parts[0]
        if len(self._parts) == 1 and isinstance(first, bytearray) and len(payload) < _SLICE_BYTES:
            first += payload
            whole = cast(bytes, first)
        elif self._allocate is not None:
            self._parts.append(payload)
            whole = cast(bytes, _joined(self._parts, self._allocate))
        else:
            whole = b"".join((*self._parts, payload))
        packet = Packet(self._seq, whole, (seq + 1) & 0xFF)
        self._parts.clear()
        self._parts_bytes = 0
        return packet

    def _compact(self) -> None:
        if isinstance(self._buffer, memoryview):
            return
        if self._offset == len(self._buffer):
            self._buffer.clear()
            self._offset = 0
        elif self._offset >= _COMPACT_BYTES and 2 * self._offset >= len(self._buffer):
            del self._buffer[: self._offset]
            self._offset = 0


def _joined(parts: list[bytes], allocate: Allocate) -> bytearray:
    """The parts as one, hundreds of megabytes perhaps: joined slice by slice, so that other threads come in between.
    Each part is freed behind its last slice.
    """
    whole = allocate(sum(map(len, parts)))
    with memoryview(whole) as to:
        at = 0
        for index, part in enumerate(parts):
            with memoryview(part) as view:
                for start in range(0, len(view), _SLICE_BYTES):
                    with view[start : start + _SLICE_BYTES] as piece:
                        to[at : at + len(piece)] = piece
                        at += len(piece)
            parts[index] = b""
    return whole


def frame_packet(payload: bytes, seq: int) -> tuple[bytes, int]:
    """Frame one payload; returns the bytes and the sequence number that follows."""
    if len(payload) < PACKET_PAYLOAD_MAX:
        return len(payload).to_bytes(3, "little") + bytes((seq,)) + payload, (seq + 1) & 0xFF
    frames: list[bytes] = []
    # One step past the end on an exact multiple: the empty packet that tells "no more".
    for start in range(0, len(payload) + 1, PACKET_PAYLOAD_MAX):
        part = payload[start : start + PACKET_PAYLOAD_MAX]
        frames += (len(part).to_bytes(3, "little"), bytes((seq,)), part)
        seq = (seq + 1) & 0xFF
    return b"".join(frames), seq


def frame_packets(payloads: list[bytes], seq: int) -> tuple[bytes, int]:
    """Frame several payloads in a row, as `frame_packet`."""
    frames = []
    for payload in payloads:
        frame, seq = frame_packet(payload, seq)
        frames.append(frame)
    return b"".join(frames), seq
