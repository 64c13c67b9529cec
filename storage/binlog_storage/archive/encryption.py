"""Encrypted parts of an archive, and the keys for them.

A part in an archive is encrypted as a whole file, which is read from any place without the rest:

    offset  bytes
         0      8  b"\\x89BLARCH\\1"
         8      4  id of the key in the key file, little-endian
        12     32  salt, by chance, of this file
        44         frames: 65536 bytes of the part and 16 of a tag each; the last is shorter

Each file has a key of its own, by HKDF-SHA256 of the key in the key file and the salt. A frame is AES-256-GCM; its
nonce is its number and whether it is the last one (the construction STREAM), and the 44 bytes are authenticated with
each. So frames that were changed, left out, put elsewhere or taken from another part are found out, and so is a part
that was cut.

The manifest stays readable. Authenticated by the same key (HMAC-SHA256) it says which parts there are; what it knows of
the content of an encrypted part, by which a guess could be proved, is in it as AES-SIV, bound to the part's checksum.

The key file is that of MariaDB's plugin file_key_management. Commands find it by variables of the environment.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Mapping
from dataclasses import field
from io import RawIOBase
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Self

from binlog_protocol.dataclass import dataclass

from binlog_storage.archive.errors import ArchiveDamaged
from binlog_storage.archive.remembered_manifests import ManifestMemory
from binlog_storage.disk.key_file import read_keys
from binlog_storage.errors import NoBinlogKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE_VARIABLE: Final = "BINLOG_ARCHIVE_KEY_FILE"
PASSWORD_VARIABLE: Final = "BINLOG_ARCHIVE_KEY_FILE_PASSWORD"

FRAME_BYTES: Final = 65_536
_TAG_BYTES: Final = 16
_SALT_BYTES: Final = 32
_MAGIC: Final = b"\x89BLARCH\x01"
_HEADER: Final = struct.Struct(f"<8sI{_SALT_BYTES}s")
_NONCE: Final = struct.Struct("<Q3xB")
assert _HEADER.size == 44
assert _NONCE.size == 12
_SEALED_BYTES_MAX: Final = 1024
_FRAME_FILE_BYTES: Final = FRAME_BYTES + _TAG_BYTES


@dataclass(frozen=True, slots=True)
class ArchiveKey:
    """One key of a key file."""

    number: int
    secret: bytes = field(repr=False)

    def file_key(self, salt: bytes) -> bytes:
        """The key of a file."""
        return self._derived(salt, b"binlog archive: part", 32)

    def mac(self, data: bytes) -> str:
        """By which a manifest is known as one of somebody who has the key."""
        return hmac.new(
            self._derived(b"", b"binlog archive: manifest", 32), data, hashlib.sha256
        ).hexdigest()

    def seal(self, text: str, of: str) -> str:
        """A short text, encrypted: the same text of the same thing is always the same."""
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        return AESSIV(self._sealing).encrypt(text.encode(), [of.encode()]).hex()

    def opened(self, sealed: str, of: str) -> str | None:
        """The text; None if it was not sealed by this key, or was changed."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        if len(sealed) > _SEALED_BYTES_MAX:
            return None
        try:
            found: bytes = AESSIV(self._sealing).decrypt(bytes.fromhex(sealed), [of.encode()])
            return found.decode()
        except (InvalidTag, ValueError):
            return None

    @property
    def _sealing(self) -> bytes:
        return self._derived(b"", b"binlog archive: facts", 64)

    def _derived(self, salt: bytes, use: bytes, size: int) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), size, salt or None, use).derive(self.secret)


@dataclass(frozen=True, slots=True)
class ArchiveKeys:
    """Where keys are, and what else it takes to believe a manifest.

    The file is read when a key is wanted: one that was added is there with the next part.

    password: of an encrypted key file, or `FILE:` and the path of a file that has it.
    is_required: a manifest that was not authenticated by a key is refused, whoever has written it.
    memory: one that is older than what was seen is refused.
    """

    filename: str = ""
    password: str = field(default="", repr=False)
    is_required: bool = False
    memory: ManifestMemory | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Those that the environment names."""
        return cls(environment.get(KEY_FILE_VARIABLE, ""), environment.get(PASSWORD_VARIABLE, ""))

    def get(self, number: int, where: str) -> ArchiveKey:
        """A key by its id. Raises `NoBinlogKey`.

        Args:
            where: is encrypted with it, for the message.
        """
        if not self.filename:
            raise NoBinlogKey(
                f"{where} is encrypted with key {number}: give the key file that has it, by {KEY_FILE_VARIABLE}=FILE "
                "in the environment, or file_key_management_filename in the configuration of a server"
            )
        found = read_keys(self.filename, self.password).get(number)
        if found is None:
            raise NoBinlogKey(
                f"{where} is encrypted with key {number}, which {self.filename} does not have: add the line of that "
                "key to it, or give the key file with which the archive was written"
            )
        return ArchiveKey(number, found)

    def in_clear(self, where: str) -> NoBinlogKey:
        """The error for a manifest in clear where one in clear is not believed."""
        return NoBinlogKey(
            f"{where} is in clear, and binlog_archive_encryption_key_id says that this archive is encrypted: it may be "
            "of somebody without the key. Restore it from a copy. If the archive was in clear up to now, run "
            "binlog-spark archive DIRECTORY ARCHIVE --encryption-key-id N once, which goes on in it encrypted, or "
            "archive into an empty place"
        )

    def refused(self, number: int, where: str) -> NoBinlogKey:
        """The error for something that was not made with a key of this file."""
        return NoBinlogKey(
            f"{where} was not made with key {number} of {self.filename}: that is another key, or what is there was "
            "changed. Give the key file with which the archive was written; if this is it, restore from a copy"
        )


NO_KEYS: Final = ArchiveKeys()


class EncryptingFile(RawIOBase):
    """A new file into which a part is written, encrypted. `close` writes the last frame, and closes the file."""

    def __init__(self, file: IO[bytes], key: ArchiveKey) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._file = file
        salt = os.urandom(_SALT_BYTES)
        self._header = _HEADER.pack(_MAGIC, key.number, salt)
        self._cipher = AESGCM(key.file_key(salt))
        self._held = bytearray()
        self._frames = 0
        file.write(self._header)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._frames * FRAME_BYTES + len(self._held)

    def write(self, data: Any) -> int:
        self._held += data
        # One frame stays here: only what comes behind it tells that it is not the last.
        begin = 0
        while len(self._held) - begin > FRAME_BYTES:
            self._frame(bytes(self._held[begin : begin + FRAME_BYTES]), is_last=False)
            begin += FRAME_BYTES
        del self._held[:begin]
        return len(data)

    def _frame(self, data: bytes, *, is_last: bool) -> None:
        nonce = _NONCE.pack(self._frames, is_last)
        self._file.write(self._cipher.encrypt(nonce, data, self._header))
        self._frames += 1

    def close(self) -> None:
        """Write the last frame."""
        if self.closed:
            return
        try:
            self._frame(bytes(self._held), is_last=True)
        finally:
            self._file.close()
            super().close()


class PartBytes(Protocol):
    """The bytes of a part, from any place. Any thread."""

    @property
    def size(self) -> int: ...

    def pread(self, count: int, at: int) -> bytes:
        """Fewer only at the end. Raises OSError, `ArchiveDamaged`, `NoBinlogKey`."""


class PlainBytes:
    """See `PartBytes`: of a file that is not encrypted. The descriptor stays the caller's."""

    def __init__(self, fd: int) -> None:
        self._fd: Final = fd

    @property
    def size(self) -> int:
        """See `PartBytes`."""
        return os.fstat(self._fd).st_size

    def pread(self, count: int, at: int) -> bytes:
        """See `PartBytes`."""
        return os.pread(self._fd, count, at)


class DecryptedBytes:
    """See `PartBytes`: of an encrypted file, frame by frame, of which the last is kept.

    Args:
        where: the file, for messages.
    """

    def __init__(self, fd: int, number: int, keys: ArchiveKeys, where: str) -> None:
        """Raises `ArchiveDamaged`, `NoBinlogKey`, OSError."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._fd: Final = fd
        self._where: Final = where
        header = os.pread(fd, _HEADER.size, 0)
        frames = os.fstat(fd).st_size - _HEADER.size
        self._frames: Final = -(-frames // _FRAME_FILE_BYTES)
        self.size: Final = frames - self._frames * _TAG_BYTES
        if frames < _TAG_BYTES or self.size < (self._frames - 1) * FRAME_BYTES:
            raise ArchiveDamaged(f"{where} has no whole frames; restore it from a copy")
        magic, found, salt = _HEADER.unpack(header)
        if magic != _MAGIC or found != number:
            raise ArchiveDamaged(
                f"{where} is not encrypted with key {number}, as the manifest says; restore it from a copy"
            )
        self._header: Final = header
        self._cipher: Final[AESGCM] = AESGCM(keys.get(number, where).file_key(salt))
        self._refused: Final = keys.refused(number, where)
        self._last: tuple[int, bytes] = -1, b""

    def pread(self, count: int, at: int) -> bytes:
        """See `PartBytes`."""
        found = bytearray()
        end = min(at + count, self.size)
        while at < end:
            number, skip = divmod(at, FRAME_BYTES)
            piece = self._frame(number)[skip : skip + end - at]
            found += piece
            at += len(piece)
        return bytes(found)

    def _frame(self, number: int) -> bytes:
        from cryptography.exceptions import InvalidTag

        kept, data = self._last  # of one moment, whatever other threads do
        if kept == number:
            return data
        held = os.pread(self._fd, _FRAME_FILE_BYTES, _HEADER.size + number * _FRAME_FILE_BYTES)
        try:
            nonce = _NONCE.pack(number, number == self._frames - 1)
            data = self._cipher.decrypt(nonce, held, self._header)
        except InvalidTag:
            raise self._refused from None
        self._last = number, data
        return data
