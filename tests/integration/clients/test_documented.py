"""The examples of docs/clients.md, run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from binlog_server.testing import process
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.waiting import until
from tests.integration.clients.programs import TIMEOUT_S, Programs, server_version
from tests.integration.load import insert
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

PAGE = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


COPY = "binlog.000001"  # what --raw makes
COMMANDS = [line for block in examples("sh") for line in block.splitlines()]
SCRIPTS = examples("python")


def test_they_are_found() -> None:
    assert len(COMMANDS) >= 7
    assert len(SCRIPTS) >= 4


@pytest.fixture
def programs(
    version: str, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer, tmp_path: Path
) -> Programs:
    """Nine groups 0-1-N, and what the page says is there: two accounts, and the programs on the path."""
    upstream = make_upstream(version=version, server_id=1)
    if not isinstance(upstream, LocalMariaDB):
        pytest.skip("needs the programs of that version on this machine")
    account: dict[str, object] = {"password": "secret", "grants": ["ALL PRIVILEGES"]}
    server = binlog_server(
        upstream=upstream,
        users={"dba": account, "archive": {**account, "stream_style": "classic"}},
        server_id=10,
        server_version=server_version(version),
    )
    upstream.make_table()
    position = insert(upstream, 7)
    assert server.q(f"SELECT MASTER_GTID_WAIT('{position}', 20) AS waited") == [{"waited": 0}]
    programs = Programs(upstream.install, server, tmp_path)
    for name, user in (("relay.cnf", "dba"), ("classic.cnf", "archive")):
        place = f"host = {server.host}\nport = {server.port}"
        (tmp_path / name).write_text(f"[client]\n{place}\nuser = {user}\npassword = secret\n")
    (tmp_path / "bin").mkdir()
    for name in ("mariadb", "mariadb-binlog", "mariadb-dump"):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(upstream.install.program(name))} "$@"\n')
        program.chmod(0o755)
    return programs


def environment(programs: Programs) -> dict[str, str]:
    return {**os.environ, "PATH": f"{programs.directory / 'bin'}:{os.environ['PATH']}"}


def test_commands(programs: Programs) -> None:
    for command in COMMANDS:
        (programs.directory / COPY).unlink(missing_ok=True)
        if "--stop-never" in command:
            archives(programs, command)
            continue
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=programs.directory,
            env=environment(programs),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "ERROR" not in done.stderr
        assert done.stdout.strip() or (programs.directory / COPY).exists(), command
    # What the page says that they print.
    assert "SET GLOBAL gtid_slave_pos='0-1-9';" in done.stdout


def archives(programs: Programs, command: str) -> None:
    """One that goes on for ever writes a file in the folder where it is started."""
    child = process.spawn(
        ["sh", "-c", f"cd {programs.directory} && exec {command}"],
        programs.directory / "archive.log",
        environment(programs),
    )
    copy = programs.directory / COPY
    try:
        until(lambda: "GTID 0-1-9 " in programs.read_growing(copy), command)
    finally:
        child.kill()
        child.wait(TIMEOUT_S)


@pytest.mark.parametrize("version", ["11.8"], indirect=True)
def test_scripts(programs: Programs) -> None:
    printed = []
    for script in SCRIPTS:
        if "import mariadb" in script and os.environ.get("CI") != "true":
            pytest.importorskip("mariadb")
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=programs.directory,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stderr}"
        printed.append(done.stdout)
    replicas, position, waited, rows = printed
    assert "Sent_gtid" in replicas
    assert position == "('0-1-9',)\n"
    assert waited == "(0,)\n"
    assert len(rows.splitlines()) == 7
    assert all(line.startswith("t [{'values': {") for line in rows.splitlines())
