"""A process with tables on a real disk is killed, again and again: what it was told durable is there, and no half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.errors import DiskError
from binlog_storage.tables.store import TableTransaction

KILLS = 4
TOLD = 60  # transactions that each life is told durable

_LIFE = """
import sys
from pathlib import Path
from tests.storage.tables.test_killed import live
live(Path(sys.argv[1]), int(sys.argv[2]))
"""


def opened(directory: Path, *, background: bool) -> IbbEngine:
    return IbbEngine(
        OsDisk(directory), StoreOptions(innodb_log_file_size=4 << 20), background=background
    )


def change(t: TableTransaction, number: int) -> None:
    """Two rows that belong together, and enough to need snapshots."""
    for name in (b"one", b"two"):
        t.put(1, name, b"%d " % number + b"x" * 20_000)


def live(directory: Path, first: int) -> None:
    """Commit, and say so, until the end comes; with a transaction that is open all the time."""
    engine = opened(directory, background=True)
    if not first:
        t = engine.tables.begin()
        t.create_table(1, b"")
        t.commit()
    left_open = engine.tables.begin()
    number = first
    while True:
        left_open.put(1, b"open %d" % (number % 500), b"y" * 500)
        number += 1
        t = engine.tables.begin()
        change(t, number)
        t.commit()
        engine.sync()
        print(number, flush=True)


@pytest.mark.long
def test_killed(tmp_path: Path) -> None:
    told = 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", _LIFE, str(tmp_path), str(told)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _, line in zip(range(TOLD), process.stdout, strict=False):
                told = int(line)
            process.kill()
            rest = process.stdout.read().split()
        told = max([told, *(int(line) for line in rest)])
        engine = opened(tmp_path, background=False)
        rows = dict(engine.tables.scan(1))
        assert set(rows) == {b"one", b"two"}
        numbers = {int(row.split()[0]) for row in rows.values()}
        assert len(numbers) == 1
        assert numbers <= {told, told + 1}, (
            "what was told durable is not there, or more than was begun"
        )
        assert engine.rows_to_undo
        told = numbers.pop()
        engine._redo.close()  # and it is undone by the next life, or the one behind that
        engine._disk.close()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    engine = opened(tmp_path, background=False)
    t = engine.tables.begin()
    t.create_table(1, b"")
    change(t, 1)
    t.commit()
    engine.sync()
    (tmp_path / "binlog-server.tables.new").mkdir()  # so that no snapshot can be made
    with pytest.raises(DiskError, match=r"binlog-server\.tables\.new"):
        engine._snapshots.make()
    t = engine.tables.begin()
    change(t, 2)
    t.commit()
    engine.close()
    (tmp_path / "binlog-server.tables.new").rmdir()
    engine = opened(tmp_path, background=False)
    assert len(dict(engine.tables.scan(1))) == 2
    engine._snapshots.make()
    engine.close()
