"""Values inside packets: integers, length-encoded integers and strings, and a cursor over them.

Length-encoded integer:

==========  =====================================
first byte  value
==========  =====================================
00..FA      the byte itself
FB          NULL (only in rows of a result set)
FC          the next 2 bytes
FD          the next 3 bytes
FE          the next 8 bytes
FF          never (it is the mark of an ERR packet)
==========  =====================================

All integers are little endian. A length-encoded string is its length so encoded, then its bytes.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.errors import ProtocolError

LENENC_NULL: Final = 0xFB
_LENENC_2: Final = 0xFC
_LENENC_3: Final = 0xFD
_LENENC_8: Final = 0xFE
_LENENC_SIZES: Final = {_LENENC_2: 2, _LENENC_3: 3, _LENENC_8: 8}


def lenenc_int(value: int) -> bytes:
    """Write a length-encoded integer in its shortest form."""
    if value < LENENC_NULL:
        return bytes((value,))
    if value <= 0xFFFF:
        return b"\xfc" + value.to_bytes(2, "little")
    if value <= 0xFFFFFF:
        return b"\xfd" + value.to_bytes(3, "little")
    return b"\xfe" + value.to_bytes(8, "little")


def lenenc_bytes(value: bytes) -> bytes:
    """Write a length-encoded string."""
    return lenenc_int(len(value)) + value


def nul_terminated(value: bytes) -> bytes:
    """Write a string that ends at its NUL; one that contains a NUL cannot be written so."""
    if b"\0" in value:
        raise ValueError("a NUL-terminated string cannot contain a NUL")
    return value + b"\0"


class Cursor:
    """Reads values one after another; raises `ProtocolError` where the bytes run short."""

    __slots__ = ("_data", "_what", "position")

    def __init__(self, data: bytes, what: str, position: int = 0) -> None:
        """`what` names the thing being read in error texts."""
        self._data = data
        self._what = what
        self.position = position

    @property
    def remaining(self) -> int:
        return len(self._data) - self.position

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self.position + count
        if end > len(self._data):
            raise ProtocolError(
                f"{self._what} is cut short: {count} bytes wanted at offset {self.position}, "
                f"{self.remaining} left"
            )
        value = bytes(self._data[self.position : end])
        self.position = end
        return value

    def skip(self, count: int) -> None:
        if count > self.remaining:
            self.take(count)  # says that it is cut short
        self.position += count

    def rest(self) -> bytes:
        return self.take(self.remaining)

    def integer(self, size: int) -> int:
        """An unsigned integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def lenenc_int(self) -> int:
        first = self.integer(1)
        if first < LENENC_NULL:
            return first
        size = _LENENC_SIZES.get(first)
        if size is None:
            raise ProtocolError(f"{self._what}: byte {first:#04x} does not begin a length")
        return self.integer(size)

    def lenenc_bytes(self) -> bytes:
        return self.take(self.lenenc_int())

    def lenenc_bytes_or_null(self) -> bytes | None:
        """A value of a row: a length-encoded string or the NULL mark."""
        if self.remaining and self._data[self.position] == LENENC_NULL:
            self.position += 1
            return None
        return self.lenenc_bytes()

    def short_bytes(self) -> bytes:
        """A string with its length in one byte before it."""
        return self.take(self.integer(1))

    def nul_terminated(self) -> bytes:
        end = self._data.find(b"\0", self.position)
        if end < 0:
            raise ProtocolError(f"{self._what}: no NUL ends the text at offset {self.position}")
        value = self.take(end - self.position)
        self.position += 1
        return value
