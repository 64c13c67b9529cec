"""Encrypted binlog files, as `encrypt_binlog` makes them: each event behind the head is encrypted for itself.

    magic, format description   in clear
    START_ENCRYPTION            in clear: scheme 1 (u8), version of the key (u32), a nonce of 12 bytes
    all further events          encrypted with key 1 of the key file; lengths and offsets stay what they are

An event of L bytes, its CRC-32 (of the plain bytes) included, is encrypted from byte 4 on, with the time stamp, which
stands in front of it, in the place of its length (bytes 9 to 12). On the disk the length lies there in clear, and the
four encrypted bytes that it displaces lie at 0. The IV is the nonce and the offset of the event in its file (u32).

    aes_cbc   whole blocks by CBC without padding; the r bytes behind them are XORed with the first r bytes of the
              IV, encrypted by ECB
    aes_ctr   CTR, the IV is its first counter

No file tells which of the two it has: its first event, the GTID list, does. With this plugin a key has one version, 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import CHECKSUM_SIZE, append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import (
    FLAG_IGNORABLE,
    FLAGS_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
    EventHeader,
    build_event,
)

from binlog_storage.classic.event_reader import CLASSIC_MAGIC, Bytes, GivenFile
from binlog_storage.disk.disk import File
from binlog_storage.disk.key_file import SYSTEM_KEY
from binlog_storage.errors import NoBinlogKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

ALGORITHMS: Final = ("aes_cbc", "aes_ctr")
_SCHEME: Final = 1
_VERSION: Final = 1
_NONCE_BYTES: Final = 12
_BODY: Final = HEADER_SIZE  # of START_ENCRYPTION: scheme, version, nonce
_BODY_BYTES: Final = 1 + 4 + _NONCE_BYTES
_FROM: Final = 4  # what is in front of it is not encrypted
_AFTER_LENGTH: Final = LENGTH_OFFSET + 4
_BLOCK: Final = 16
_HEAD: Final = _FROM + _BLOCK  # holds all that is displaced
_U32: Final = 0xFFFFFFFF

assert _HEAD > HEADER_SIZE  # a header is plain once the first block is


class _Piece(NamedTuple):
    """Encrypted bytes of one event.

    first: the number of the first block.
    before: the block in front of it; the IV in front of the first one.
    is_end: the event ends with it.
    """

    iv: bytes
    first: int
    before: bytes
    data: bytes
    is_end: bool


def _xor(one: bytes, other: bytes) -> bytes:
    size = min(len(one), len(other))
    return (int.from_bytes(one[:size]) ^ int.from_bytes(other[:size])).to_bytes(size)


class _Aes:
    """AES with one key."""

    def __init__(self, key: bytes) -> None:
        # Loaded with the first key: most servers have none.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._algorithm, self._cipher, self._modes = algorithms.AES(key), Cipher, modes

    def cbc(self, iv: bytes, data: bytes) -> bytes:
        """Whole blocks, encrypted."""
        return self._cipher(self._algorithm, self._modes.CBC(iv)).encryptor().update(data)

    def ctr(self, counter: int, data: bytes | bytearray | memoryview, skip: int = 0) -> bytes:
        """Encrypted or in clear, from `skip` bytes behind the block of that number on."""
        number = (counter % (1 << 128)).to_bytes(_BLOCK)
        cipher = self._cipher(self._algorithm, self._modes.CTR(number)).encryptor()
        if skip:
            cipher.update(bytes(skip))
        return cipher.update(data)

    def ecb(self) -> tuple[CipherContext, CipherContext]:
        """What encrypts blocks, and what decrypts them."""
        cipher = self._cipher(self._algorithm, self._modes.ECB())
        return cipher.encryptor(), cipher.decryptor()


class EventCipher:
    """Encrypts and decrypts the events of one file. One owner."""

    def __init__(self, key: bytes, nonce: bytes, algorithm: str) -> None:
        self._aes = _Aes(key)
        self._nonce = nonce
        self._counts = algorithm == "aes_ctr"
        self._encrypts, self._decrypts = self._aes.ecb()

    def iv(self, begin: int) -> bytes:
        """Of the event that begins at an offset of the file."""
        return self._nonce + (begin & _U32).to_bytes(4, "little")

    def sealed(self, data: bytes, begin: int) -> bytes:
        """Events that will lie at an offset of the file, encrypted."""
        found = bytearray()
        at = 0
        while at < len(data):
            length = int.from_bytes(data[at + LENGTH_OFFSET : at + _AFTER_LENGTH], "little")
            found += self._sealed(data[at : at + length], self.iv(begin + at))
            at += length
        return bytes(found)

    def _sealed(self, event: bytes, iv: bytes) -> bytes:
        plain = event[_FROM:LENGTH_OFFSET] + event[:_FROM] + event[_AFTER_LENGTH:]
        if self._counts:
            data = self._aes.ctr(int.from_bytes(iv), plain)
        else:
            whole = len(plain) & -_BLOCK
            data = self._aes.cbc(iv, plain[:whole])
            if whole < len(plain):
                data += _xor(plain[whole:], self._encrypts.update(iv))
        displaced = slice(LENGTH_OFFSET - _FROM, _AFTER_LENGTH - _FROM)
        length = event[LENGTH_OFFSET:_AFTER_LENGTH]
        return data[displaced] + data[: displaced.start] + length + data[displaced.stop :]

    def opened(self, pieces: list[_Piece]) -> list[bytes]:
        """The plain bytes of pieces."""
        if self._counts:
            return [self._counted(piece) for piece in pieces]
        whole = [len(piece.data) & -_BLOCK for piece in pieces]
        blocks = [piece.data[:size] for piece, size in zip(pieces, whole, strict=True)]
        before = b"".join(
            piece.before + data[:-_BLOCK]
            for piece, data in zip(pieces, blocks, strict=True)
            if data
        )
        plain = _xor(self._decrypts.update(b"".join(blocks)), before)
        tails = self._encrypts.update(b"".join(piece.iv for piece in pieces))
        found, at = [], 0
        for number, (piece, size) in enumerate(zip(pieces, whole, strict=True)):
            tail = piece.data[size:]
            behind = (
                _xor(tail, tails[number * _BLOCK :][:_BLOCK]) if piece.is_end else bytes(len(tail))
            )
            found.append(plain[at : at + size] + behind)
            at += size
        return found

    def _counted(self, piece: _Piece) -> bytes:
        return self._aes.ctr(int.from_bytes(piece.iv) + piece.first, piece.data)


class EncryptionStart(NamedTuple):
    """The START_ENCRYPTION event of a file: where it ends, and what it says."""

    begin: int
    end: int
    scheme: int
    key_version: int
    nonce: bytes


def encryption_start(file: Bytes) -> EncryptionStart | None:
    """That of a file; None for one that is not encrypted, or has no whole head."""
    begin = len(CLASSIC_MAGIC)
    header = _header(file, begin)
    if header is None or header.type != EventType.FORMAT_DESCRIPTION:
        return None
    begin += header.length
    header = _header(file, begin)
    if header is None or header.type != EventType.START_ENCRYPTION or header.flags & FLAG_IGNORABLE:
        return None
    body = file.pread(_BODY_BYTES, begin + _BODY)
    if len(body) < _BODY_BYTES or begin + header.length > file.size():
        return None
    version = int.from_bytes(body[1:5], "little")
    return EncryptionStart(begin, begin + header.length, body[0], version, body[5:])


class _Held:
    """See `Bytes`; in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        """There is nothing to close."""


def _header(file: Bytes, offset: int) -> EventHeader | None:
    try:
        return EventHeader.parse(file.pread(HEADER_SIZE, offset))
    except ProtocolError:
        return None


class Keys:
    """The key of a store, and how new files use it.

    Args:
        keys: by their ids.
        algorithm: one of `ALGORITHMS`; of new files, and what is tried first.
    """

    def __init__(self, keys: Mapping[int, bytes], algorithm: str) -> None:
        self._key = keys[SYSTEM_KEY]
        self._algorithm = algorithm

    def start_event(self, server_id: int, timestamp: int) -> bytes:
        """A START_ENCRYPTION event for a new file, in normal form."""
        nonce = os.urandom(_NONCE_BYTES)
        body = bytes([_SCHEME]) + _VERSION.to_bytes(4, "little") + nonce
        return build_event(
            EventType.START_ENCRYPTION, body, server_id=server_id, timestamp=timestamp
        )

    def sealed_head(self, head: bytes) -> bytes:
        """The head of a file with such an event, encrypted from there on."""
        start = encryption_start(_Held(head))
        assert start is not None
        cipher = EventCipher(self._key, start.nonce, self._algorithm)
        return head[: start.end] + cipher.sealed(head[start.end :], start.end)

    def cipher(self, path: Path, file: Bytes, start: EncryptionStart) -> EventCipher:
        """For a file that is there, by its first event. Raises `NoBinlogKey` if the key is another one."""
        if start.scheme != _SCHEME:
            raise NoBinlogKey(
                f"{path} has encryption scheme {start.scheme}, which is not known here"
            )
        if start.key_version != _VERSION:
            raise NoBinlogKey(
                f"{path} was encrypted with version {start.key_version} of its key: file_key_management has only "
                f"version {_VERSION}"
            )
        others = (name for name in ALGORITHMS if name != self._algorithm)
        for algorithm in (self._algorithm, *others):
            cipher = EventCipher(self._key, start.nonce, algorithm)
            if file.size() < start.end + _HEAD:
                return cipher  # killed while it was made
            header = _header(PlainFile(file, start, cipher), start.end)
            # The type alone is right in one of 256 files that another algorithm has made.
            if (
                header is not None
                and header.type == EventType.GTID_LIST
                and header.end_position in (0, start.end + header.length)
            ):
                return cipher
        raise NoBinlogKey(
            f"{path}: Event decryption failure: key {SYSTEM_KEY} of the key file is not the one that this file was "
            "encrypted with"
        )

    def sealed_file(self, file: File, nonce: bytes) -> CountedFile:
        """A file of our own beside the binlog, encrypted with the same key."""
        return CountedFile(file, self._key, nonce)

    def sealed_bytes(self, file: Bytes, nonce: bytes) -> CountedBytes:
        """The same to read."""
        return CountedBytes(file, self._key, nonce)


def of_file(keys: Keys | None, path: Path, file: Bytes) -> EventCipher | None:
    """The cipher of a file; None if it is not encrypted. Raises `NoBinlogKey`, also without keys."""
    start = encryption_start(file)
    if start is None:
        return None
    if keys is None:
        raise NoBinlogKey(
            f"{path} is encrypted: set file_key_management_filename to the key file of the server that wrote it"
        )
    return keys.cipher(path, file, start)


def opened_to_read(keys: Keys | None, path: Path, file: Bytes) -> Bytes:
    """A binlog file, its events in clear. Raises `NoBinlogKey`; the file is closed then."""
    try:
        start = encryption_start(file) if keys is not None else None
        if keys is None or start is None:
            return file
        return PlainFile(file, start, keys.cipher(path, file, start))
    except BaseException:
        file.close()
        raise


def given_to_read(keys: Keys | None, path: Path) -> Bytes:
    """The same of a file that a user names. Raises `OSError` also."""
    return opened_to_read(keys, path, GivenFile(path))


class PlainFile:
    """An encrypted file as if it were not, as a master sends it: START_ENCRYPTION is ignorable. One owner.

    A read begins at an event, or where the last one has ended: nothing else tells where events begin. A block that is
    not whole, because the file ends inside of it, is zeros, as torn tails may be.
    """

    def __init__(self, file: Bytes, start: EncryptionStart, cipher: EventCipher) -> None:
        self._file = file
        self._start = start
        self._cipher = cipher
        self.size = file.size
        self.close = file.close
        self._next = -1  # where the last read has ended
        self._begin = self._length = 0  # of the event there; length 0: it is not known yet

    def pread(self, size: int, offset: int) -> bytes:
        """See `Bytes`."""
        if offset >= self._start.end:
            return self._body(size, offset)
        head = self._file.pread(min(size, self._start.end - offset), offset)
        if offset + len(head) > self._start.begin:
            head = self._with_flag(head, offset)
        if len(head) < size and offset + len(head) == self._start.end:
            self._next, self._begin, self._length = self._start.end, self._start.end, 0
            return head + self._body(size - len(head), self._start.end)
        return head

    def _with_flag(self, head: bytes, offset: int) -> bytes:
        begin, end = self._start.begin, self._start.end
        event = bytearray(self._file.pread(end - begin, begin))
        has_checksum = len(event) >= HEADER_SIZE + _BODY_BYTES + CHECKSUM_SIZE
        flags = int.from_bytes(event[FLAGS_OFFSET:HEADER_SIZE], "little") | FLAG_IGNORABLE
        event[FLAGS_OFFSET:HEADER_SIZE] = flags.to_bytes(2, "little")
        plain = bytes(event)
        if has_checksum:
            plain = append_checksum(plain[:-CHECKSUM_SIZE])
        whole = bytearray(head)
        at = max(offset, begin)
        whole[at - offset :] = plain[at - begin : offset + len(head) - begin]
        return bytes(whole)

    def _body(self, size: int, offset: int) -> bytes:
        if offset != self._next:
            self._begin, self._length = offset, 0
        begin, length = self._begin, self._length
        low = (
            begin if offset < begin + _HEAD else offset - (offset - begin - _FROM) % _BLOCK - _BLOCK
        )
        raw = self._file.pread(size + offset - low + 2 * _HEAD, low)
        end = min(offset + size, low + len(raw))
        parts: list[_Part | bytes] = []
        while True:
            if not length:
                field = raw[begin - low + LENGTH_OFFSET : begin - low + _AFTER_LENGTH]
                length = int.from_bytes(field, "little")
            if begin >= end:
                length = 0
                break
            if length < HEADER_SIZE:  # no event: zeros behind a power cut
                parts.append(raw[max(offset, begin) - low : end - low])
                begin, length = end, 0
                break
            if low + len(raw) < begin + min(_HEAD, length):  # the file ends in its first block
                parts.append(bytes(end - max(offset, begin)))
                break
            stop = min(begin + length, end)
            parts.append(self._part(raw, low, begin, length, max(offset, begin), stop))
            if begin + length > end:
                break
            begin, length = begin + length, 0
        self._next, self._begin, self._length = end, begin, length
        opened = iter(self._cipher.opened([p.piece for p in parts if isinstance(p, _Part)]))
        return b"".join(
            part.cut(next(opened)) if isinstance(part, _Part) else part for part in parts
        )

    def _part(self, raw: bytes, low: int, begin: int, length: int, at: int, stop: int) -> _Part:
        """Bytes `at` to `stop` of the event at `begin`; of the file, `raw` is at `low`."""
        skipped = max(0, at - begin - _FROM) // _BLOCK if at >= begin + _HEAD else 0
        cipher_begin = begin + _FROM + skipped * _BLOCK
        last = max(stop, begin + min(_HEAD, length))
        cipher_end = min(
            begin + length, cipher_begin + -(-(last - cipher_begin) // _BLOCK) * _BLOCK
        )
        iv = self._cipher.iv(begin)
        data = raw[cipher_begin - low : cipher_end - low]
        before, shown = iv, None
        if skipped:
            before = raw[cipher_begin - low - _BLOCK : cipher_begin - low]
            if skipped == 1:
                before = self._first_block(begin)
        else:
            shown = raw[begin - low + LENGTH_OFFSET : begin - low + _AFTER_LENGTH]
            displaced = LENGTH_OFFSET - _FROM
            data = data[:displaced] + raw[begin - low : begin - low + 4] + data[displaced + 4 :]
        is_whole = cipher_begin + len(data) == begin + length
        piece = _Piece(iv, skipped, before, data, is_whole)
        return _Part(piece, shown, at - (begin if shown is not None else cipher_begin), stop - at)

    def _first_block(self, begin: int) -> bytes:
        """The first block of an event, encrypted, with what is displaced in its place."""
        raw = self._file.pread(_HEAD, begin)
        return raw[_FROM:LENGTH_OFFSET] + raw[:_FROM] + raw[_AFTER_LENGTH:]


class _Part(NamedTuple):
    """A part of an event.

    length: its length field, if the part has the beginning of the event.
    skip, size: what is wanted of it.
    """

    piece: _Piece
    length: bytes | None
    skip: int
    size: int

    def cut(self, plain: bytes) -> bytes:
        if self.length is not None:
            stamp = plain[LENGTH_OFFSET - _FROM : _AFTER_LENGTH - _FROM]
            plain = (
                stamp
                + plain[: LENGTH_OFFSET - _FROM]
                + self.length
                + plain[_AFTER_LENGTH - _FROM :]
            )
        return plain[self.skip : self.skip + self.size]


class CountedBytes:
    """A file of our own that is encrypted by AES-CTR, to read."""

    def __init__(self, file: Bytes, key: bytes, nonce: bytes) -> None:
        self._bytes = file
        self._aes = _Aes(key)
        self._nonce = int.from_bytes(nonce)
        self.size = file.size
        self.close = file.close

    def turned(self, data: bytes | bytearray | memoryview, offset: int) -> bytes:
        """What is in clear of what is encrypted, and the other way round."""
        return self._aes.ctr(self._nonce + offset // _BLOCK, data, offset % _BLOCK)

    def pread(self, size: int, offset: int) -> bytes:
        """See `Bytes`."""
        return self.turned(self._bytes.pread(size, offset), offset)


class CountedFile(CountedBytes):
    """The same to write. No offset is written twice with other bytes, but where nobody has read the first."""

    def __init__(self, file: File, key: bytes, nonce: bytes) -> None:
        super().__init__(file, key, nonce)
        self._file = file
        self.truncate = file.truncate
        self.allocate = file.allocate
        self.start_writing = file.start_writing
        self.fdatasync = file.fdatasync

    @classmethod
    def temporary(cls, file: File) -> CountedFile:
        """With a key that nobody else has, and nobody after us."""
        return cls(file, os.urandom(32), bytes(_BLOCK))

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """See `File`."""
        self._file.pwrite(self.turned(data, offset), offset)

    def pwritev(self, parts: Sequence[bytes], offset: int) -> None:
        """See `File`."""
        self.pwrite(b"".join(parts), offset)

    def next_data(self, offset: int) -> int:
        """See `File`: zeros on the disk are none when they are decrypted."""
        return offset
