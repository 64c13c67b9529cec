"""The files of a closed `.ibb` store for a MariaDB 12.3, which goes on in them: a copy, file by file.

InnoDB compares the start LSN in the header of a file with the LSN of its own redo log, in crash recovery and in
backups. One of our redo log would be larger: it would skip the file, and lose groups. So each header gets the start LSN
0, and new checksums; all else stays as it is.

    1  the file under a temporary name, synced, with the time of the source's      a crash leaves that name
    2  renamed, its folder synced                                                  the next run passes it over
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from binlog_storage.disk.disk import mapped
from binlog_storage.disk.durable_files import put_in_place, synced_file
from binlog_storage.errors import CorruptBinlog, NotAStore
from binlog_storage.ibb.file_header import FileHeader, without_start_lsn
from binlog_storage.ibb.file_names import file_name, file_number
from binlog_storage.ibb.page import PAGE_SIZE, is_sound, is_zero

_PIECE_BYTES: Final = 1 << 20
_MODE: Final = 0o660  # of a MariaDB's own
_NEW: Final = ".new"


def copy_files(
    source: Path,
    target: Path,
    progress: Callable[[int, int], None],
    *,
    dry_run: bool = False,
) -> tuple[int, int]:
    """Copy the files that have data; those that are there already are passed over. Returns how many there are, and how
    many were copied; in a dry run, how many would be.

    `progress` is called with bytes done, and of all. Raises `NotAStore`, `CorruptBinlog`, `DiskError`.
    """
    numbers = sorted(n for path in source.iterdir() if (n := file_number(path.name)) is not None)
    with mapped("read", source):
        heads = [(number, _head(source / file_name(number), number)) for number in numbers]
        wanted = {file_name(number): head for number, head in heads if head is not None}
        total = sum((source / name).stat().st_size for name in wanted)
    with mapped("make directory", target):
        if not dry_run:
            target.mkdir(parents=True, exist_ok=True)
        if target.exists():
            _require_empty(target, set(wanted))
    copied = done = 0
    for name, head in wanted.items():
        size = (source / name).stat().st_size
        if not _is_there(source / name, target / name):
            with mapped("copy", target / name):
                for at in () if dry_run else _copy(source / name, target / name, head):
                    progress(done + at, total)
            copied += 1
        done += size
        progress(done, total)
    return len(wanted), copied


def _head(path: Path, number: int) -> bytes | None:
    """Page 0 as it leaves; None of a file that was only made ahead."""
    with path.open("rb") as file:
        page = file.read(PAGE_SIZE)
    if is_zero(page):
        return None
    if not is_sound(page):
        raise CorruptBinlog(number, 0, "page 0 has another checksum")
    FileHeader.parse(page, number)
    return without_start_lsn(page)


def _require_empty(target: Path, wanted: set[str]) -> None:
    known = wanted | {f"{name}{_NEW}" for name in wanted}
    foreign = sorted(path.name for path in target.iterdir() if path.name not in known)
    if foreign:
        raise NotAStore(
            f"{target} holds {foreign[0]!r}, which is none of the files that are copied: give an empty directory"
        )


def _is_there(source: Path, target: Path) -> bool:
    if not target.exists():
        return False
    one, other = source.stat(), target.stat()
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def _copy(source: Path, target: Path, head: bytes) -> Iterator[int]:
    """Copy one file; gives how far it is."""
    staged = target.with_name(f"{target.name}{_NEW}")
    with source.open("rb") as there, synced_file(staged, _MODE) as here:
        facts = os.fstat(there.fileno())
        # All of it is really there: MariaDB goes on in the last one.
        os.posix_fallocate(here.fileno(), 0, facts.st_size)
        here.write(head)
        at = there.seek(PAGE_SIZE)
        while piece := there.read(_PIECE_BYTES):
            if not is_zero(piece):
                here.seek(at)
                here.write(piece)
            at += len(piece)
            yield at
    os.utime(staged, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # limits of age count on
    put_in_place(staged, target)
