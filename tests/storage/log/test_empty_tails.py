"""Files are made ahead, 1 GiB each as a rule: what was never written of them costs nobody a look."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.ibb.file_names import file_name
from binlog_storage.verify.verify import Finding, Verifier

from tests.storage.groups import append_all, simple

FILE_BYTES = 256 << 20
OPTIONS = StoreOptions(FILE_BYTES)
GROUPS = 300
READ_BYTES_MAX = 2 << 20
"""All of what was written, some of it twice, and what is read ahead."""


class Reads:
    """Bytes that were read of .ibb files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        pread = os.pread

        def counted(fd: int, size: int, offset: int) -> bytes:
            data = pread(fd, size, offset)
            name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
            if re.fullmatch(r"binlog-\d+\.ibb", name):
                self.bytes += len(data)
            return data

        monkeypatch.setattr(os, "pread", counted)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store as kill -9 leaves it, with a file that is begun and one that was made ahead."""
    running, killed = tmp_path / "running", tmp_path / "killed"
    running.mkdir()
    with_groups = IbbEngine(OsDisk(running), OPTIONS)
    append_all(with_groups, simple(GROUPS, size=1000))
    with_groups.checkpoint()
    append_all(with_groups, simple(GROUPS, first=GROUPS + 1, size=1000))
    with_groups.sync()
    killed.mkdir()
    for path in running.iterdir():
        # As `cp --sparse`: what was never written has no place on the disk there either.
        with open(path, "rb") as source, open(killed / path.name, "wb") as target:
            target.truncate(path.stat().st_size)
            at = 0
            while True:
                try:
                    at = os.lseek(source.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(source.fileno(), at, os.SEEK_HOLE)
                os.pwrite(target.fileno(), os.pread(source.fileno(), end - at, at), at)
                at = end
    with_groups.close()
    shutil.rmtree(running)
    assert (killed / file_name(0)).stat().st_size == FILE_BYTES
    return killed


def test_a_start_reads_none_of_them(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)
    engine = IbbEngine(OsDisk(killed), OPTIONS)
    try:
        last = engine.binlog_state().last(0)
        assert last is not None
        assert last.seq_no == 2 * GROUPS
        assert 0 < reads.bytes < READ_BYTES_MAX
    finally:
        engine.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_verify_reads_none_of_them(
    killed: Path, is_clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_clean:
        IbbEngine(OsDisk(killed), OPTIONS).close()
    reads = Reads(monkeypatch)
    found: list[Finding] = []
    totals = Verifier(OsDisk(killed), found.append).run()
    assert totals.errors == 0, found
    assert totals.groups >= GROUPS
    assert 0 < reads.bytes < READ_BYTES_MAX
