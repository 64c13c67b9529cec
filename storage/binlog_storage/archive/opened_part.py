"""A part that is open: its bytes are those that the manifest means, decrypted, for who knows its form.

One descriptor is open as long as this lives: what was looked at is what is read, whatever gets the name meanwhile.
What is written into the file itself meanwhile is `ArchiveDamaged` at the end.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BufferedReader, RawIOBase
from typing import Any, Final

from binlog_storage.archive.encryption import FRAME_BYTES, DecryptedBytes, PartBytes, PlainBytes
from binlog_storage.archive.errors import ArchiveDamaged
from binlog_storage.archive.manifest import ArchivePart
from binlog_storage.archive.places import GivenUp, Place

_READ_BYTES: Final = 1 << 20


class _SharedFile(RawIOBase):
    """A reader with a position of its own over bytes that others read, too. Closing it leaves them open."""

    def __init__(self, content: PartBytes) -> None:
        self._content = content
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._content.size}
        self._at = base[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        found = self._content.pread(len(buffer), self._at)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


class OpenedPart:
    """See the module. Any thread.

    Args:
        given_up: asked while it is brought here: nobody wants it any more.
    """

    def __init__(self, place: Place, part: ArchivePart, given_up: GivenUp) -> None:
        """Raises `ArchiveDamaged`, `NoBinlogKey`, and as `Place.open`, but for OSError."""
        self.part: Final = part
        self.path: Final = f"{place.where}/{part.name}"
        with self.said_by_system(), place.open(part.name, part.size, given_up) as file:
            self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self._changed_ns = 0
        self._check("its bytes are not those that were written (sha256)")
        self.content: PartBytes = PlainBytes(self._fd)
        """Its bytes, decrypted."""
        if part.key_id:
            with self.said_by_system():
                self.content = DecryptedBytes(self._fd, part.key_id, place.keys, self.path)

    def file(self) -> AbstractContextManager[BufferedReader[_SharedFile]]:
        """`content` as a file with a place of its own. OSErrors in it are `ArchiveDamaged`."""
        return self._opened(self.content)

    def _check(self, otherwise: str) -> None:
        part, digest = self.part, hashlib.sha256()
        with self._opened(PlainBytes(self._fd)) as file:
            found = os.fstat(self._fd)
            if found.st_size != part.size:
                raise self.damaged(f"it has {found.st_size} bytes, not {part.size}")
            while data := file.read(_READ_BYTES):
                digest.update(data)
        if digest.hexdigest() != part.sha256:
            raise self.damaged(otherwise)
        self._changed_ns = found.st_ctime_ns

    def require_unchanged(self) -> None:
        """Check behind a read that the bytes did not change; another name, or other rights, are no change of them."""
        if os.fstat(self._fd).st_ctime_ns != self._changed_ns:
            self._check("its bytes were changed while it was read (sha256)")

    @contextmanager
    def _opened(self, content: PartBytes) -> Iterator[BufferedReader[_SharedFile]]:
        with (
            self.said_by_system(),
            BufferedReader(_SharedFile(content), FRAME_BYTES) as file,
        ):
            yield file

    @contextmanager
    def said_by_system(self) -> Iterator[None]:
        """Errors of the system in it are `ArchiveDamaged`."""
        try:
            yield
        except FileNotFoundError:
            raise self.damaged(
                "it is missing (if this began hours ago, small parts may have become one since: start it again)"
            ) from None
        except OSError as error:
            raise self.damaged(f"it cannot be read: {error.strerror or error}") from error

    def damaged(self, what: str) -> ArchiveDamaged:
        """The error for it."""
        first, last = self.part.first, self.part.last
        return ArchiveDamaged(
            f"{self.path} (groups {first} to {last}): {what}; restore it from a copy of the archive"
        )
