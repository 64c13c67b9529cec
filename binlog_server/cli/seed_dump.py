"""The position in a file of mariadb-dump.

With --master-data or --dump-slave it stands among the first lines, commented out or not:

    SET GLOBAL gtid_slave_pos='0-1-4711,3-2-15';

Newer versions (as 10.11.19 and 11.8.6) put it behind the tables, and say so at the beginning:

    -- A corresponding to the above ... settings to the slave gtid state is printed later in the file.
    ...
    -- The deferred gtid setting for slave corresponding to the master-data CHANGE-MASTER follows
    -- Preferably use GTID to start replication from GTID position:
    SET GLOBAL gtid_slave_pos='0-1-4711,3-2-15';
    ...
    -- Dump completed on 2026-11-21  9:08:56

Text in tables and routines is not taken for a position: only lines of the head count, in front of the first table or
database, and lines behind the one about the deferred setting, which no other SQL follows. A compressed file is read
once, with 1 MiB in memory; of a plain one only the beginning and the end are read.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from binlog_protocol.gtid import SlavePosition
from binlog_storage.console.progress import Progress
from binlog_storage.disk.given_files import UTF16_MARKS, open_given

from binlog_server.cli.seed_position import Found, NoPosition

_GZIP_MAGIC: Final = b"\x1f\x8b"
_HEAD_BYTES: Final = 1 << 20
_END_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 20
_HEAD_ENDS: Final = (
    "-- Current Database:",
    "-- Table structure",
    "-- Temporary",
    "-- Dumping",
    "CREATE ",
    "DROP ",
    "INSERT ",
    "USE ",
)
_DEFERRED_ANNOUNCED: Final = "printed later in the file"
_DEFERRED_TOO: Final = "printed as comments later in the file"
_DEFERRED: Final = "-- The deferred gtid setting for slave corresponding to the "
_COMPLETED: Final = "-- Dump completed"
# The lines that may follow the deferred setting, besides comments.
_END_STATEMENTS: Final = ("--", "/*", "SET GLOBAL gtid_slave_pos", "CHANGE MASTER", "START ")


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def dump_position(path: Path) -> tuple[SlavePosition, str]:
    """The GTID position of a dump, and a text about its place. Raises `NoPosition`, `ServerError`, `OSError`."""
    try:
        with open_given(path) as raw:
            compressed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            if raw.peek(2)[:2] in UTF16_MARKS:
                raise NoPosition(
                    f"{path} is UTF-16 text, as shells of Windows write it: use --result-file there"
                )
            if not compressed:
                return _position(path, raw, lambda begin: _end_of_plain(raw))
            with gzip.open(raw) as file:
                return _position(path, file, lambda begin: _end(file, begin, raw))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise NoPosition(f"{path} cannot be unpacked: {error}") from None


def _position(
    path: Path, file: _Readable, end_behind: Callable[[bytes], bytes]
) -> tuple[SlavePosition, str]:
    found = Found()
    begin = file.read(_HEAD_BYTES)
    if not _take_head(begin, found):
        return found.the_one(str(path)), f"{path}: in its first lines"
    if not _take_end(end_behind(begin), found):
        raise NoPosition(
            f"{path} says that the GTID position is at its end, but it is not whole: there is no line "
            f"'{_COMPLETED}'. Make the dump again; or give its position by --gtid-slave-pos"
        )
    return found.the_one(str(path)), f"{path}: in its last lines"


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").split("\n")


def _take_head(data: bytes, found: Found) -> bool:
    """Take the positions in the head of a dump. True if the head says that they come at the end."""
    deferred = False
    for line in _lines(data):
        if line.startswith(_HEAD_ENDS):
            break
        deferred |= _DEFERRED_ANNOUNCED in line or _DEFERRED_TOO in line
        found.take(line)
    return deferred


def _end(file: _Readable, begin: bytes, packed: BinaryIO) -> bytes:
    """The last bytes of a compressed file, which can only be read forward."""
    size = os.fstat(packed.fileno()).st_size
    end = begin
    with Progress("unpacked") as progress:
        while data := file.read(_CHUNK_BYTES):
            end = (end + data)[-_END_BYTES:]
            progress.show(packed.tell(), size, lambda: f"of {size >> 20} MiB")
    return end


def _end_of_plain(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_BYTES))
    return file.read()


def _take_end(data: bytes, found: Found) -> bool:
    """Take the positions in the lines behind the last table. False if the dump has no last line: it is cut."""
    lines = _lines(data)
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or not lines[-1].startswith(_COMPLETED):
        return False
    number = len(lines)
    while number and (not lines[number - 1] or lines[number - 1].startswith(_END_STATEMENTS)):
        number -= 1
    is_deferred = False
    for line in lines[number:]:
        is_deferred |= line.startswith(_DEFERRED)
        if is_deferred:
            found.take(line)
    return True
