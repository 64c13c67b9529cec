"""`recover --print`, and what is refused; tests/integration/test_point_in_time.py does it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from binlog_server.testing.waiting import until
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


@pytest.mark.long
def test_told_to_end(backup: Path, tmp_path: Path) -> None:
    """The server that it has begun ends with it."""
    pid, server = tmp_path / "pid", tmp_path / "mariadbd"
    server.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    server.chmod(0o755)
    environment = {
        **os.environ,
        "MARIADB_BACKUP": "true",
        "MARIADB": "false",
        "MARIADBD": str(server),
        "MARIADBD_OPTIONS": "--user=nobody",
    }
    words = ["--backup", str(backup), "--datadir", str(tmp_path / "new"), "--until", "0-1-54"]
    argv = [sys.executable, "-m", "binlog_server", "recover", *words]
    argv += ["--source", "mariadb://repl:secret@127.0.0.1:1"]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True) as running:
        until(pid.exists)
        running.terminate()
        _, said = running.communicate(timeout=50)
    assert running.returncode == -signal.SIGTERM
    assert said.endswith("binlog-server: interrupted by SIGTERM\n")
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
