"""`recover --print`, and what is refused; tests/integration/test_point_in_time.py does it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.binlog_server.cli.command import Ran, run


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    folder = tmp_path / "it's a backup"
    folder.mkdir()
    (folder / "mariadb_backup_binlog_info").write_text("m-bin.000002\t617\t0-1-24\n")
    return folder


def recover(backup: Path, *arguments: str, until: str = "0-1-54") -> Ran:
    source = "mariadb://repl:secret@relay:3307"
    datadir = backup.parent / "new"
    return run(
        "recover", "--backup", backup, "--datadir", datadir, "--source", source, "--until", until, *arguments
    )  # fmt: skip


@pytest.mark.long
def test_printed(backup: Path) -> None:
    """A script that bash reads, with names quoted and no password in it."""
    ran = recover(backup, "--print", until="2026-11-20T10:00:00+01:00")
    assert ran.code == 0, ran.err
    text = ran.out.decode()
    assert "secret" not in text
    assert "until=2026-11-20T09:00:00Z\n" in text
    assert "position=0-1-24\n" in text
    assert subprocess.run(["bash", "-n"], input=ran.out, check=False).returncode == 0
    said = subprocess.run(
        ["bash"], input=text.split("\nsocket=")[0].encode() + b'\necho "$backup"', capture_output=True,
        env={"MASTER_PASSWORD": ""}, check=False,
    )  # fmt: skip
    assert said.stdout.decode() == f"{backup}\n"
    assert list(backup.parent.iterdir()) == [backup]


def test_refused(backup: Path) -> None:
    assert "neither a time" in recover(backup, until="noon").err
    assert "128 characters" in recover(backup, until=",".join(f"{n}-1-{n}" for n in range(40))).err
    (backup.parent / "new").mkdir()
    (backup.parent / "new" / "ibdata1").touch()
    ran = recover(backup)
    assert (ran.code, "is not empty" in ran.err) == (2, True)
    (backup / "mariadb_backup_binlog_info").unlink()
    assert "holds no mariadb_backup_binlog_info" in recover(backup).err
