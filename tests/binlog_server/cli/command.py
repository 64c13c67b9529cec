"""The command line inside the test process: what it prints, and its exit code."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import NamedTuple

from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.cli import main


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def run(*arguments: str | Path) -> Ran:
    """`binlog-server ARGUMENTS`."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(map(str, arguments)))
        out.flush()
    raw = out.buffer
    assert isinstance(raw, io.BytesIO)
    return Ran(code, raw.getvalue(), err.getvalue())


def copy_to(disk: MemoryDisk, directory: Path) -> Path:
    """The files of a disk in memory, as files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in disk.names():
        file = disk.open(name)
        (directory / name).write_bytes(file.pread(file.size(), 0))
    return directory
