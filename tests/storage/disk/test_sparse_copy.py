"""Copies of files with holes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from binlog_storage.disk.sparse_copy import copy_sparse

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (0, {}),
        (5, {0: b"short"}),
        (16 * MIB, {}),
        (16 * MIB, {0: b"head"}),
        (16 * MIB, {15 * MIB: b"tail"}),
        (16 * MIB, {0: b"head", 5 * MIB + 17: os.urandom(70_000), 16 * MIB - 1: b"e"}),
    ],
)
def test_the_same_bytes_in_no_more_room(size: int, parts: dict[int, bytes], tmp_path: Path) -> None:
    given, made = tmp_path / "given", tmp_path / "made"
    with given.open("wb") as file:
        file.truncate(size)
        for at, data in parts.items():
            os.pwrite(file.fileno(), data, at)
    given.chmod(0o640)
    made.write_bytes(b"what was there before" * 1000)
    copy_sparse(given, made)
    found = made.stat()
    assert found.st_size == size
    assert found.st_mode == given.stat().st_mode
    assert found.st_blocks * 512 <= 300_000  # blocks of file systems differ
    with made.open("rb") as file:
        for at, data in parts.items():
            assert os.pread(file.fileno(), len(data), at) == data
    if size:
        assert made.read_bytes() == given.read_bytes()


def test_errors_are_those_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        copy_sparse(tmp_path / "nothing", tmp_path / "made")
    (tmp_path / "given").touch()
    with pytest.raises(IsADirectoryError):
        copy_sparse(tmp_path / "given", tmp_path)
