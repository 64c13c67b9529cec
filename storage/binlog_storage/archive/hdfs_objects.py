"""Files of HDFS as the objects of an archive. The only place that knows hdfs-native, the library which speaks to it.

HDFS has no call that replaces a file only if it is a certain one. It has renames, each of which is done as a whole or
not at all, and says which of both:

    _new/ID          a file that is being written. It is closed, and renamed to its name if nothing has that name.
    _new/ID.d/ID     one that is to replace another. Its folder is renamed to
    _new/on-NAME/    which nobody else can have then. NAME is compared, and _new/on-NAME/ID is renamed over it.

Somebody who stays in the way, killed or paused, loses the file on-NAME/ID to the next one, and with it what it would
rename: wherever it wakes up, and whenever a call that it has given up is done, it replaces nothing any more. So no
clock decides who may, and no lease. A clock only says how long one waits for another.

The tag of a file is its modification time and its size. A file that replaces another gets a later time than that had,
if need be by a call that sets it, so that no two versions have the same.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import IO, Any, Final, TypeVar

from binlog_protocol.compiled_later import compiled_later

from binlog_storage.archive.errors import ArchiveUnreachable, ObjectChanged, StoreLibraryMissing
from binlog_storage.archive.objects import HDFS, StoredObject, heard

_Found = TypeVar("_Found")

_DEFAULT_PORT: Final = 8020  # as Hadoop's own client has it
_NO_SERVICE: Final = "No NameNode hosts found"
HDFS_CONFIG: Final = {  # the library tries for three minutes by itself: these make some eleven seconds
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "500",
    "dfs.client.failover.sleep.max.millis": "5000",
}
_SILENCE_S: Final = 30.0  # of one call: the library itself waits for ever
_WHOLE_S: Final = 300.0  # of a file that is written
_PATIENCE_S: Final = 10.0  # with somebody who is about to rename, which takes milliseconds
_PAUSE_S: Final = 0.1
_LEFT_OVER_MS: Final = 3_600_000  # no file is being written for so long
_PIECE: Final = 1 << 20
_PACKETS: Final = 16  # of 64 KiB, as DataNodes send them
_AT_ONCE: Final = 8 << 20
"""Manifests are no larger. Such a file is read as a whole: the blocks of one that is replaced go some seconds later."""
_SHOWN: Final = 300
_FOLDER_MODE: Final = 0o755
_NEW: Final = "_new"
_AS_IT_IS: Final = (1 << 64) - 1  # a time that is not to be set: -1 for Java
_STACK: Final = compiled_later(r"(?:\n|\\n)(?:\t|\\t)at .*", re.DOTALL)
_OF_SERVER: Final = compiled_later(r'(?:Fatal)?RPCError\("(?:[\w$]+\.)*(?P<name>[\w$]+)", "')
_OF_LIBRARY: Final = compiled_later(r"[A-Z]\w+\(.*\)$|ChecksumError$|NoSASLMechanism$", re.DOTALL)
_DATANODE: Final = compiled_later(r'ip_addr: "([^"]+)".*?xfer_port: ([0-9]+)')
_ID: Final = compiled_later(r"\b[0-9a-f]{32}\b")


def open_hdfs(url: str) -> HdfsObjects:
    """The files of hdfs://HOST:PORT/PATH, hdfs://NAMESERVICE/PATH or hdfs:///PATH: nothing is asked.

    Raises `StoreLibraryMissing`, `ArchiveUnreachable`.
    """
    try:
        import hdfs_native
    except ModuleNotFoundError:
        raise StoreLibraryMissing(
            f"{url}: hdfs-native is needed for HDFS; pip install '.[hdfs]'"
        ) from None
    return HdfsObjects(hdfs_native, url)


class HdfsObjects:
    """See `Objects`.

    Args:
        library: the module.
        where: the URL.
        patience_s: so long another one may be in the way.
        silence_s: of one call.
        left_over_ms: older files that nobody has published are removed.
    """

    def __init__(
        self,
        library: Any,
        where: str,
        *,
        patience_s: float = _PATIENCE_S,
        silence_s: float = _SILENCE_S,
        left_over_ms: int = _LEFT_OVER_MS,
    ) -> None:
        self._hdfs: Final = library
        self.where: Final = where
        authority, _, path = where.partition("://")[2].partition("/")
        self._authority: Final = authority
        self._folder: Final = f"/{path}".rstrip("/")
        self._patience_s: Final = patience_s
        self._silence_s: Final = silence_s
        self._left_over_ms: Final = left_over_ms
        self._is_made = False  # the folder
        with self._said(""):
            self._client: Any = self._connected()

    def get(self, name: str) -> StoredObject | None:
        """See `Objects`."""
        with self._said(name):
            while True:
                # In this order: the tag of one that is replaced meanwhile is worth nothing, the other way round it
                # would be one that was not read.
                tag = self._tag(name)
                if tag is None:
                    return None
                try:
                    reader = self._call(lambda client: client.read(self._path(name)))
                    if len(reader) > _AT_ONCE:
                        return StoredObject(len(reader), tag, self._pieces(reader, name))
                    return StoredObject(len(reader), tag, [*self._pieces(reader, name)])
                except (OSError, RuntimeError, ArchiveUnreachable):
                    if self._tag(name) == tag:
                        raise

    def _pieces(self, reader: Any, name: str) -> Iterator[bytes]:
        with self._said(name):
            left = len(reader)
            packets = reader.read_range_stream(0, left)
            while left:
                piece = self._call(lambda _: b"".join(islice(packets, _PACKETS)))
                if not piece:
                    raise EOFError(f"it ends {left} bytes early")
                left -= len(piece)
                yield piece

    def put(self, name: str, data: bytes | IO[bytes], instead_of: str | None) -> str:
        """See `Objects`."""
        mine = uuid.uuid4().hex
        new = self._path(f"{_NEW}/{mine}" if instead_of is None else f"{_NEW}/{mine}.d")
        with self._said(name):
            try:
                if instead_of is None:
                    return self._place(new, name, self._write(new, data))
                tag = self._write(f"{new}/{mine}", data)
                return self._replace(new, mine, name, tag, instead_of)
            except TimeoutError:  # of a server that does not answer nothing more is asked
                raise
            except (OSError, RuntimeError, EOFError, ObjectChanged):
                with suppress(OSError, RuntimeError):
                    self._call(lambda client: client.delete(new, True))
                raise

    def _write(self, path: str, data: bytes | IO[bytes]) -> str:
        """A file, closed, and on the disks of DataNodes. Returns its tag."""
        deadline = time.monotonic() + _WHOLE_S

        def left_s() -> float:
            return max(0.0, min(self._silence_s, deadline - time.monotonic()))

        if not self._is_made:
            # Else they would have the rights of the folder above, which may be everybody's.
            for folder in (self._folder or "/", self._path(_NEW)):
                self._call(partial(_make_folder, folder))
            self._is_made = True
        writer = self._call(lambda client: client.create(path))
        size = 0
        for piece in _pieces_of(data):
            self._call(partial(_write, writer, piece), left_s())
            size += len(piece)
        if size:
            with suppress(NotImplementedError):  # where files are kept by erasure coding
                self._call(lambda _: writer.hsync())
        self._call(lambda _: writer.close())
        info = self._call(lambda client: client.get_file_info(path))
        if info.length != size:
            raise EOFError(f"{info.length} of {size} bytes were written")
        return _tag_of(info)

    def _place(self, new: str, name: str, tag: str) -> str:
        """Give a file that was written its name, if nothing has it."""
        try:
            self._call(lambda client: client.rename(new, self._path(name), False))
        except FileExistsError as error:
            raise ObjectChanged(f"{self.where}/{name} is there already") from error
        except FileNotFoundError:
            # The library asks again by itself when an answer is lost.
            if self._tag(name) != tag:
                raise
        return tag

    def _replace(self, new: str, mine: str, name: str, tag: str, instead_of: str) -> str:
        """Put the only file of a folder in the place of `name`, if that is still the one with the tag `instead_of`."""
        turn = self._path(f"{_NEW}/on-{name}")
        self._take_turn(new, turn, mine, name, instead_of)
        changed = ObjectChanged(f"{self.where}/{name} is another one by now")
        here = f"{turn}/{mine}"
        try:
            if self._tag(name) != instead_of:
                raise changed
            before, after = _time_of(instead_of), _time_of(tag)
            if after <= before:  # of one millisecond; or the server's clock was set back
                self._call(lambda client: client.set_times(here, before + 1, _AS_IT_IS))
                tag = f"{before + 1} {tag.partition(' ')[2]}"
            self._call(lambda client: client.rename(here, self._path(name), True))
        except FileNotFoundError as error:
            # Another one has taken the turn; or it was done, and the answer was lost.
            if self._tag(name) != tag:
                raise changed from error
        except TimeoutError:
            raise
        except (OSError, RuntimeError, ObjectChanged):
            with suppress(OSError, RuntimeError):
                self._end_turn(turn, mine)
            raise
        with suppress(OSError, RuntimeError):  # it is done: the next one clears up as well
            self._end_turn(turn)
            self._clear_up(_time_of(tag))
        return tag

    def _take_turn(self, new: str, turn: str, mine: str, name: str, instead_of: str) -> None:
        """Rename the folder `new` to `turn`. Raises `ObjectChanged` if that is of no use any more."""
        seen, since, begin = "", time.monotonic(), time.monotonic()
        while time.monotonic() < begin + _WHOLE_S:
            if self._tag(name) != instead_of:
                raise ObjectChanged(f"{self.where}/{name} is another one by now")
            try:
                self._call(lambda client: client.rename(new, turn, False))
                return
            except FileExistsError:
                pass
            except FileNotFoundError:  # it was done, and the answer was lost
                if mine in self._names_in(turn):
                    return
                raise
            there = self._names_in(turn)
            if not there:  # its owner has done what it wanted
                self._end_turn(turn)
                continue
            if there[0] != seen:
                seen, since = there[0], time.monotonic()
            elif time.monotonic() >= since + self._patience_s:
                self._end_turn(turn, seen)
                continue
            time.sleep(_PAUSE_S)
        raise TimeoutError("others write there all the time")

    def _end_turn(self, turn: str, holder: str | None = None) -> None:
        """Take the turn from its holder, or away as nobody has it. That of somebody else, who came later, stays."""
        if holder is not None:
            self._call(lambda client: client.delete(f"{turn}/{holder}", False))
        try:
            self._call(lambda client: client.delete(turn, False))
        except RuntimeError as error:
            if "PathIsNotEmptyDirectoryException" not in str(error):
                raise

    def _clear_up(self, now_ms: int) -> None:
        """Remove what was written long ago, and never published."""
        folder = self._path(_NEW)

        def clear(client: Any) -> None:
            for info in [*client.list_status(folder, False)]:
                is_turn = info.path.rpartition("/")[2].startswith("on-")
                if not is_turn and info.modification_time + self._left_over_ms <= now_ms:
                    client.delete(info.path, True)

        self._call(clear)

    def names(self, prefix: str, behind: str) -> list[str]:
        """See `Objects`."""
        with self._said(prefix):
            found = self._names_in(self._folder or "/")
            return sorted(name for name in found if name.startswith(prefix) and name > behind)

    def _names_in(self, folder: str) -> list[str]:
        """Names of the files in it; none if it is not there."""
        try:
            found = self._call(lambda client: [*client.list_status(folder, False)])
        except FileNotFoundError:
            return []
        return [info.path.rpartition("/")[2] for info in found if not info.isdir]

    def delete(self, name: str) -> None:
        """See `Objects`."""
        with self._said(name):
            self._call(lambda client: client.delete(self._path(name), False))

    def _tag(self, name: str) -> str | None:
        try:
            return _tag_of(self._call(lambda client: client.get_file_info(self._path(name))))
        except FileNotFoundError:
            return None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _connected(self) -> Any:
        try:
            return self._hdfs.Client(f"{HDFS}://{self._authority}/", HDFS_CONFIG)
        except RuntimeError as error:
            if _NO_SERVICE not in str(error):
                raise
        # No name of a service that HADOOP_CONF_DIR knows, so it is that of a machine.
        return self._hdfs.Client(f"{HDFS}://{self._authority}:{_DEFAULT_PORT}", HDFS_CONFIG)

    def _call(self, call: Callable[[Any], _Found], limit_s: float | None = None) -> _Found:
        client = self._client
        limit_s = self._silence_s if limit_s is None else limit_s
        try:
            return heard(lambda: call(client), limit_s)
        except TimeoutError:
            # All calls of a client have one connection, which may be to a machine that is gone.
            self._client = self._connected()
            raise TimeoutError(f"no answer within {limit_s:.0f} s") from None

    @contextmanager
    def _said(self, name: str) -> Iterator[None]:
        """Errors of the library and of the network are `ArchiveUnreachable`. Others are defects of ours, and seen."""
        try:
            yield
        except (OSError, RuntimeError, EOFError) as error:
            raise ArchiveUnreachable(
                f"{self.where}/{name}: {told_by_hdfs(error)[:_SHOWN]}"
            ) from error


def _pieces_of(data: bytes | IO[bytes]) -> Iterator[bytes]:
    if isinstance(data, bytes):
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
        return
    while piece := data.read(_PIECE):
        yield piece


def _make_folder(path: str, client: Any) -> None:
    client.mkdirs(path, _FOLDER_MODE, True)


def _write(writer: Any, piece: bytes, _: Any) -> None:
    writer.write(piece)


def _tag_of(info: Any) -> str:
    return f"{info.modification_time} {info.length}"


def _time_of(tag: str) -> int:
    return int(tag.partition(" ")[0])


def told_by_hdfs(error: Exception) -> str:
    """What an error of the library says.

    Without Java's stack, the numbers of files that were being written, and counters: else no two are the same.
    """
    text = _STACK.sub("", str(error))
    found = _OF_SERVER.match(text)
    if found is not None:
        text = f"{found['name']}: {text[found.end() :]}"
    text = text.replace('\\"', '"')
    nodes = [":".join(found) for found in _DATANODE.findall(text)]
    if nodes:
        text = f"{text.partition('[')[0]}{', '.join(nodes)}"
    return _ID.sub("...", text)


def is_of_hdfs(error: RuntimeError) -> bool:
    """Whether it is one of the library, which has no class for most of its errors."""
    return _OF_LIBRARY.match(str(error)) is not None
