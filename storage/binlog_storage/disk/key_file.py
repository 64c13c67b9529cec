"""The key file of MariaDB's plugin file_key_management: `file_key_management_filename`, `file_key_management_filekey`.

    # a comment
    1;0123456789abcdef0123456789abcdef     the id of a key, the key in hexadecimal: 16, 24 or 32 bytes

The file itself may be encrypted, as `openssl enc -aes-256-cbc -md sha1 -pass ...` does it: "Salted__", a salt of 8
bytes, AES-256-CBC; key and IV are made of the password and the salt by SHA-1. Behind a key everything is ignored to the
end of its line. Key 1 must be there. Grammar and errors were tried on 10.11 and 11.8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from binlog_storage.disk.given_files import read_given
from binlog_storage.errors import NoBinlogKey

SYSTEM_KEY: Final = 1
_FILE_BYTES_MAX: Final = 1 << 20
_PASSWORD_BYTES_MAX: Final = 256
_SALTED: Final = b"Salted__"
_SALT_BYTES: Final = 8
_ID_MAX: Final = 0xFFFFFFFF
_KEY_BYTES: Final = (16, 24, 32)
_BLANK: Final = b" \t\r\v\f"
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


def read_keys(filename: str, filekey: str) -> Mapping[int, bytes]:
    """The keys of a file by their ids. Raises `NoBinlogKey`.

    Args:
        filekey: the password of an encrypted file, or `FILE:` and the path of a file that has it.
    """
    if not filename:
        raise NoBinlogKey("file-key-management-filename is not set")
    data = _contents(filename, _FILE_BYTES_MAX)
    if data.startswith(_SALTED):
        data = _decrypted(data, _password(filekey), filename)
    keys: dict[int, bytes] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        found = _Line(line, f"{filename} line {number}").key()
        if found is not None:
            keys[found[0]] = found[1]
    if SYSTEM_KEY not in keys:
        raise NoBinlogKey(f"System key id {SYSTEM_KEY} is missing at {filename} line 1, column 1")
    return keys


def _contents(path: str, bytes_max: int) -> bytes:
    try:
        return read_given(path, bytes_max)
    except FileNotFoundError as error:
        raise NoBinlogKey(
            f"File '{path}' not found (Errcode: {error.errno} \"{error.strerror}\")"
        ) from None
    except OSError as error:
        raise NoBinlogKey(f"cannot read {path}: {error.strerror or error}") from None


def _password(filekey: str) -> bytes:
    if filekey.startswith("FILE:"):
        return _contents(filekey.removeprefix("FILE:"), _PASSWORD_BYTES_MAX).rstrip(b"\r\n")
    return filekey.encode()


def _decrypted(data: bytes, password: bytes, filename: str) -> bytes:
    # Loaded where such a file is read: a start without encryption needs none of it.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    begin = len(_SALTED) + _SALT_BYTES
    salt = data[len(_SALTED) : begin]
    derived = part = b""
    while len(derived) < 32 + 16:
        part = hashlib.sha1(part + password + salt, usedforsecurity=False).digest()
        derived += part
    try:
        cipher = Cipher(algorithms.AES(derived[:32]), modes.CBC(derived[32:48])).decryptor()
        unpadder = PKCS7(128).unpadder()
        padded = cipher.update(data[begin:]) + cipher.finalize()
        return unpadder.update(padded) + unpadder.finalize()
    except ValueError:
        raise NoBinlogKey(f"Cannot decrypt {filename}. Wrong key?") from None


class _Line:
    """One line of a key file."""

    def __init__(self, line: bytes, where: str) -> None:
        self._line = line
        self._where = where
        self._at = 0

    def _bad(self, what: str) -> NoBinlogKey:
        return NoBinlogKey(f"{what} at {self._where}, column {self._at + 1}")

    def key(self) -> tuple[int, bytes] | None:
        """The id and the key; None for a line without one."""
        line = self._line
        self._at = len(line) - len(line.lstrip(_BLANK))
        if self._at == len(line) or line[self._at :].startswith(b"#"):
            return None
        number = self._id()
        if not line[self._at :].startswith(b";"):
            raise self._bad("Syntax error")
        self._at += 1
        begin = self._at
        while self._at - begin < 2 * max(_KEY_BYTES) and self._is_hex(self._at, 2):
            self._at += 2
        found = bytes.fromhex(line[begin : self._at].decode())
        if len(found) not in _KEY_BYTES or self._is_hex(self._at, 1):
            raise self._bad("Invalid key")
        return number, found

    def _id(self) -> int:
        number, begin = 0, self._at
        while self._line[self._at : self._at + 1].isdigit():
            number = number * 10 + int(self._line[self._at : self._at + 1])
            if number > _ID_MAX:
                raise self._bad("Invalid key id")
            self._at += 1
        if self._at == begin:
            raise self._bad("Syntax error")
        if not number:
            raise self._bad("Invalid key id")
        return number

    def _is_hex(self, at: int, count: int) -> bool:
        digits = self._line[at : at + count]
        return len(digits) == count and _HEX.issuperset(digits)
