"""Where archives are: a folder of this machine, or an object store. One door for all who read one.

    /archive/main, file:///archive/main      a folder
    s3://bucket/path                         Amazon S3, and what speaks like it
    gs://bucket/path                         Google Cloud Storage
    az://container/path, abfss://...         Azure
    hdfs://namenode:8020/path                HDFS; hdfs://nameservice/path, of HADOOP_CONF_DIR

What an object store asks of its clients (keys, region, endpoint) comes from the variables of the environment that its
own tools know, such as AWS_ACCESS_KEY_ID or HADOOP_USER_NAME, and is in no URL.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import IO, Final, Protocol, cast

from binlog_protocol.compiled_later import compiled_later

from binlog_storage.archive.encryption import NO_KEYS, ArchiveKeys
from binlog_storage.archive.errors import ArchiveDamaged, FetchGivenUp, NotAnArchive
from binlog_storage.archive.manifest import MANIFEST_NAME
from binlog_storage.archive.objects import HDFS, SCHEMES, Objects, open_by_obstore
from binlog_storage.disk.disk import mapped
from binlog_storage.disk.given_files import open_given
from binlog_storage.disk.local_path import NotLocal, local_path, no_directory, path_argument
from binlog_storage.disk.read_only_disk import ReadableDisk, ReadOnlyDisk
from binlog_storage.errors import FileMissing

GivenUp = Callable[[], bool]
Where = str | PathLike[str]
"""A folder, or the URL of an object store. A URL is a text: a `Path` would lose a slash of it."""

_URL: Final = compiled_later(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>.+)")
_MANIFEST_BYTES_MAX: Final = 64 << 20
"""A limit against nonsense: a part takes some 700 bytes, and a list of 1000 full parts has a file of its own. While
JSON is taken apart all threads stand still."""


def never_given_up() -> bool:
    """Somebody waits for it to the end."""
    return False


class Place(Protocol):
    """The place of one archive, for who reads it. Any thread; keeps nothing open."""

    @property
    def where(self) -> str:
        """For messages."""

    @property
    def keys(self) -> ArchiveKeys:
        """Those with which its parts are encrypted."""

    def read(self, name: str) -> bytes | None:
        """A manifest, or a chunk of one; None without it. Raises `ArchiveDamaged`, `ArchiveUnreachable`."""

    def open(self, name: str, size: int, given_up: GivenUp = never_given_up) -> IO[bytes]:
        """A part, as a file of this machine; one that is encrypted as it is.

        Raises OSError, `ArchiveUnreachable`, `FetchGivenUp`, `DiskError`.

        Args:
            size: the bytes that it must have: no more are brought here.
            given_up: asked again and again while they are: nobody wants them any more.
        """


class DiskPlace:
    """A folder of this machine."""

    def __init__(self, disk: ReadableDisk, where: str, keys: ArchiveKeys = NO_KEYS) -> None:
        self._disk: Final = disk
        self.where: Final = where
        self.keys: Final = keys

    def read(self, name: str) -> bytes | None:
        """See `Place`."""
        try:
            opened = self._disk.open(name)
        except FileMissing:
            return None
        with contextlib.closing(opened) as file:
            _require_size(name, file.size())
            return file.pread(file.size(), 0)

    def open(self, name: str, size: int, given_up: GivenUp = never_given_up) -> BufferedReader:
        """See `Place`."""
        return open_given(Path(self.where) / name)


class ObjectPlace:
    """A path of an object store."""

    def __init__(self, objects: Objects, keys: ArchiveKeys = NO_KEYS) -> None:
        self._objects: Final = objects
        self.where: Final = objects.where
        self.keys: Final = keys

    def read(self, name: str) -> bytes | None:
        """See `Place`."""
        found = self._objects.get(name)
        if found is None:
            return None
        _require_size(name, found.size)
        return b"".join(found.pieces)

    def open(self, name: str, size: int, given_up: GivenUp = never_given_up) -> IO[bytes]:
        """See `Place`. The file has no name, and goes with its last descriptor."""
        found = self._objects.get(name)
        if found is None:
            raise FileNotFoundError(name)
        here = mapped("bring a part of the archive to", Path(tempfile.gettempdir()))
        with here:
            file = cast(IO[bytes], tempfile.TemporaryFile())  # noqa: SIM115 - the caller's
        try:
            if room := min(size, found.size):  # a manifest may say anything
                with here:  # a full disk is met before anything is fetched
                    os.posix_fallocate(file.fileno(), 0, room)
            left = size + 1  # one more than there should be is found out by who knows the size
            for piece in found.pieces:
                if given_up():
                    raise FetchGivenUp(f"{self.where}/{name} is not wanted any more")
                with here:
                    file.write(piece[:left])
                left -= len(piece)
                if left <= 0:
                    break
            with here:
                file.truncate()  # to what has come; it flushes, too
            file.seek(0)
        except BaseException:
            with contextlib.suppress(OSError):  # what is in its buffer has no room
                file.close()
            raise
        return file


def open_place(where: Where, keys: ArchiveKeys | None = None) -> Place:
    """The place that somebody names; it need not have an archive. Without `keys` those of the environment.

    Raises `NotLocal` for a URL of which nothing is known, `NotAnArchive` for a folder that is not there,
    `StoreLibraryMissing`.
    """
    keys = ArchiveKeys.of_environment() if keys is None else keys
    if is_remote(where):
        return ObjectPlace(open_objects(str(where)), keys)
    directory = local_path(where)
    if not directory.is_dir():
        raise NotAnArchive(no_directory(directory))
    return DiskPlace(ReadOnlyDisk(directory), str(directory), keys)


def open_objects(url: str) -> Objects:
    """The objects of a URL with one of `SCHEMES`: nothing is asked.

    Raises `StoreLibraryMissing`, `ArchiveUnreachable`.
    """
    if url.partition(":")[0].lower() == HDFS:
        from binlog_storage.archive.hdfs_objects import open_hdfs  # no start waits for it

        return open_hdfs(url)
    return open_by_obstore(url)


def is_remote(where: Where) -> bool:
    """Whether it is the URL of an object store."""
    found = _URL.match(where) if isinstance(where, str) else None
    return found is not None and found["scheme"].lower() in SCHEMES


def archive_path(where: Where) -> str | Path:
    """A URL as it is, or the path that `local_path` gives. Raises `NotLocal`, for a URL with a password as well."""
    text = str(where)
    if not is_remote(where):
        scheme, colon, rest = text.partition(":")
        if colon and scheme.lower() in SCHEMES and rest.startswith("/"):
            raise NotLocal(f"{text}: an object store is written as {scheme}://BUCKET/FOLDER")
        if "://" in text and scheme.isalnum() and scheme.lower() != "file":
            raise NotLocal(
                f"{text}: {scheme}:// is not supported yet, only object stores (s3://, gs://, az://, hdfs://) and "
                f"folders of this machine (a folder that is really called so is ./{text})"
            )
        return local_path(where)
    if "@" in text.split("//", 1)[1].split("/", 1)[0] and not text.startswith("abfs"):
        raise NotLocal(
            f"{text.split('//', 1)[0]}//...: keys of an object store are given by variables of the environment, not "
            "in its URL"
        )
    return text.rstrip("/")


def _is_seen_in(path: Path) -> bool:
    """Whether there is an archive. Who may not look there is told so by the command."""
    with contextlib.suppress(OSError):
        return (path / MANIFEST_NAME).is_file()
    return False


def store_argument(text: str) -> Path:
    """`path_argument`, of a store: one that is an archive is told as that."""
    path = None if is_remote(text) else path_argument(text)
    if path is None or _is_seen_in(path):
        raise argparse.ArgumentTypeError(
            f"{text} is an archive, no store: `binlog-spark verify` checks it, `binlog-server find` and `binlog-spark "
            "stats` read it"
        )
    return path


def archive_argument(text: str) -> str | Path:
    """`archive_path` as a type for argparse."""
    try:
        return archive_path(text)
    except NotLocal as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _require_size(name: str, size: int) -> None:
    if size > _MANIFEST_BYTES_MAX:
        raise ArchiveDamaged(f"{name} has {size} bytes; restore it from a copy")
