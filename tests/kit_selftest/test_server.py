"""The life of a BinlogServer object, with a stand-in for the program."""

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_server.testing import ports, rundir
from tests.kit.server import BinlogServer, toml

STAND_IN = """
import pathlib, signal, sys
arguments = dict(a.removeprefix("--").split("=", 1) for a in sys.argv[2:])
print(sys.argv[1], arguments, pathlib.Path(arguments["config"]).read_text())
with open(arguments["directory"] + "/starts", "a") as starts:
    starts.write("x")
if "broken" in arguments["directory"]:
    sys.exit("cannot")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready for connections")
while True:
    signal.pause()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BinlogServer]:
    program = tmp_path / "stand_in.py"
    program.write_text(STAND_IN)
    server = BinlogServer(upstream="mariadb://u:p@h:1", server_id=7, max_binlog_size=65536)
    server.command = (sys.executable, str(program))
    yield server
    server.discard()
    assert not server.dir.exists()


def test_its_life(server: BinlogServer) -> None:
    starts = server.directory / "starts"
    server.start()
    assert server.alive()
    server.stop()
    server.restart()
    server.kill()
    assert not server.alive()
    server.restart().restart()
    assert starts.read_text() == "xxxx"
    log = server.log()
    assert "server_id = 7" in log
    assert f"'listen': '127.0.0.1:{server.port}'" in log
    assert "'upstream': 'mariadb://u:p@h:1'" in log


def test_a_server_that_does_not_come_up(server: BinlogServer, tmp_path: Path) -> None:
    server.directory = tmp_path / "broken"
    with pytest.raises(RuntimeError, match="cannot"):
        server.start()


def test_configuration() -> None:
    options = {"name": 'a "b" \\ é', "on": True, "n": 3, "x": 0.5, "list": ["a", "b"]}
    users = {"repl": "secret", "odd name": "'", "w": {"password": "p", "grants": ["A B"]}}
    assert tomllib.loads(toml(options, users=users)) == {**options, "users": users}


def test_ports_are_leased() -> None:
    first, second = ports.lease(), ports.lease()
    assert first != second
    ports.release(first)
    assert ports.lease() == first
    ports.release(first)
    ports.release(second)


def test_leftovers_are_told_from_what_is_in_use() -> None:
    assert rundir.is_alive(rundir.owner())
    assert not rundir.is_alive(f"{os.getpid()}-1")
    dead = rundir.base() / "run-1-1"
    dead.mkdir(exist_ok=True)
    rundir.remove_leftovers()
    assert not dead.exists()
    assert rundir.run_dir().exists()
