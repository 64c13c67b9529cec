"""The newest manifest of each archive that was seen, in a file: an older one is not believed any more.

A manifest is authenticated by a key, or is in clear; an older one of the same archive is as good. Only who remembers
what was there finds out that it was put back. What is remembered is how many numbers of parts were given out, which
each change of an archive but its beginning makes more, and the SHA-256 of the manifest.

The file is one JSON object: {"format": 1, "archives": {URL or folder: [numbers, SHA-256], ...}}. One that is missing or
damaged knows of none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from pathlib import Path
from typing import Final, NamedTuple

from binlog_storage.archive.errors import ArchiveTurnedBack
from binlog_storage.disk.durable_files import replace_file
from binlog_storage.disk.given_files import read_given

_FORMAT: Final = 1
_BYTES_MAX: Final = 1 << 20
_ARCHIVES_MAX: Final = 100


class SeenManifest(NamedTuple):
    """How many numbers of parts were given out, and the SHA-256 of the manifest."""

    numbers: int
    sha256: str

    @classmethod
    def of(cls, numbers: int, data: bytes) -> SeenManifest:
        """That of a manifest: `ArchiveManifest.given`, and the bytes of its file."""
        return cls(numbers, hashlib.sha256(data).hexdigest())


class ManifestMemory:
    """The manifests that were seen, by the places of the archives. Any thread; one process.

    Args:
        path: the file. One that cannot be written is no error: the disk may be full, and archiving makes room.
    """

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._lock: Final = threading.Lock()
        self._seen: Final = self._read()

    def _read(self) -> dict[str, SeenManifest]:
        try:
            body = json.loads(read_given(self._path, _BYTES_MAX))
            if body["format"] != _FORMAT:
                return {}
            found = body["archives"].items()
            return {str(key): SeenManifest(int(n), str(sha256)) for key, (n, sha256) in found}
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return {}

    def seen(self, where: str) -> SeenManifest | None:
        """The newest that was seen there. To be asked in front of the reading of the manifest."""
        with self._lock:
            return self._seen.get(where)

    def require(self, where: str, seen: SeenManifest | None, found: SeenManifest | None) -> None:
        """Raises `ArchiveTurnedBack` unless what was found (None: no manifest) is what was seen, or newer."""
        if seen is None or found == seen or (found is not None and found.numbers > seen.numbers):
            return
        if found is None:
            what = "there is no manifest any more"
        elif found.numbers < seen.numbers:
            what = f"its manifest is an older one: {found.numbers} parts were numbered by then"
        else:
            what = "another manifest is in its place"
        raise ArchiveTurnedBack(
            f"the archive {where} was put back: {what}, and {seen.numbers} were when it was seen last. Nothing is read "
            f"or added there. Restore its newest state; or, if it is meant to be as it is, delete {self._path} and "
            "start again"
        )

    def remember(self, where: str, found: SeenManifest) -> None:
        """It was read and believed, or written."""
        with self._lock:
            seen = self._seen.pop(where, None)
            self._seen[where] = found if seen is None or found.numbers > seen.numbers else seen
            if self._seen[where] == seen:
                return
            while len(self._seen) > _ARCHIVES_MAX:
                del self._seen[next(iter(self._seen))]
            body = {"format": _FORMAT, "archives": self._seen}
            with contextlib.suppress(OSError):
                replace_file(self._path, json.dumps(body, indent=1).encode() + b"\n")
