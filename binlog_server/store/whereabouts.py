"""Whether the path of the store still leads to the directory that is served.

A process goes on in files that have lost their names: commits are answered, replicas are served, and all of it is gone
with the process. A directory that was moved away or unmounted, or another one in its place (a backup that was restored
too early), is nothing that a write would meet before the next file begins.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from binlog_storage.disk.disk import mapped
from binlog_storage.disk.local_path import folder_id
from binlog_storage.errors import FileMissing


class Whereabouts:
    """Of a server. `path`: the directory that it serves, which ALTER BINLOG CONVERT changes."""

    def __init__(self, path: Callable[[], Path]) -> None:
        self._path = path
        self._seen: dict[Path, tuple[int, int] | None] = {}

    def look(self) -> None:
        """Compare it with what it was at the first look. Raises `FileMissing`, `DiskError`."""
        path = self._path()
        with mapped("look at", path):
            found = folder_id(path)
        if path not in self._seen:
            self._seen = {path: found}
        if found != self._seen[path]:
            what = "is gone" if found is None else "is another directory now"
            raise FileMissing(
                f"{path} {what}: what is committed is lost when this server ends. Put the directory of the store back"
            )
