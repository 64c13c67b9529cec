"""`binlog-server import`: what it says, and that it goes on after kill -9. Rules: tests of binlog_storage/intake."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid
from binlog_storage.intake.server_version import UPSTREAM_VERSION_KEY
from binlog_storage.log.groups import OfflineBinlog

from binlog_server.store.store_directory import StoreDirectory
from tests.binlog_server.cli.command import Ran, run
from tests.storage.classic import binlog_files
from tests.storage.groups import Group
from tests.storage.sizes import small

PARTS = [binlog_files.simple(8), binlog_files.simple(9, first=9)]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Files take their space at once: small ones."""
    path = tmp_path / "server.toml"
    path.write_text("max_binlog_size = 1048576\ninnodb_log_file_size = 4194304\n")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def import_(store: Path, config: Path, *paths: str | Path) -> Ran:
    return run("import", "--directory", store, "--config", config, *paths)


def stored(store: Path) -> list[bytes]:
    binlog = OfflineBinlog.of_paths([store])
    try:
        found = [b"".join(group.pieces()) for group in binlog.groups()]
    finally:
        binlog.close()
    return [payload for payload in found if group_gtid(payload) is not None]


def payloads(groups: list[Group]) -> list[bytes]:
    return [group.payload for group in groups]


def test_import(store: Path, config: Path, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path / "files", *PARTS)
    (tmp_path / "files" / "m-bin.index").write_text("./m-bin.000001\n./m-bin.000002\n")
    ran = import_(store, config, paths[0])
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("8 groups stored, 0.0 MiB in ")
    assert ran.lines[1] == "the store ends at '0-1-8'"
    # In whichever order a shell names them, with what lies beside them.
    ran = import_(store, config, *sorted((tmp_path / "files").iterdir(), reverse=True))
    assert "; of those read, 8 were there already" in ran.lines[0]
    ran = import_(store, config, "--index", tmp_path / "files" / "m-bin.index")
    assert ran.lines[0] == "nothing to do: the store has all groups of these files"
    assert stored(store) == payloads(PARTS[0] + PARTS[1])
    directory = StoreDirectory(store, small(64, innodb_log_file_size=4 << 20))
    try:
        # Replicas are told who wrote the events.
        assert directory.state.get(UPSTREAM_VERSION_KEY) == binlog_files.VERSION
    finally:
        directory.close()
    # From one store into another.
    ran = import_(tmp_path / "other", config, store)
    assert ran.lines[0].startswith("17 groups stored")
    assert stored(tmp_path / "other") == stored(store)


def test_files_that_begin_later(store: Path, config: Path, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path / "files", *PARTS)
    ran = import_(store, config, paths[1])
    assert ran.lines[0].endswith("; the store begins at '0-1-8'")


def test_an_end_that_is_not_whole(store: Path, config: Path, tmp_path: Path) -> None:
    path = tmp_path / "m-bin.000001"
    *_, last, end = binlog_files.write(path, PARTS[0], closed=False)
    path.write_bytes(path.read_bytes()[: end - 3])
    said = (
        f"binlog-server: {path} ends inside group 0-1-8: its last {end - 3 - last} bytes, from offset {last} on, "
        "were left out\n"
    )
    ran = import_(store, config, path)
    assert (ran.code, ran.err) == (0, said)
    assert ran.lines[1] == "the store ends at '0-1-7'"
    ran = run("events", path)
    assert (ran.code, ran.err) == (0, said)


def test_what_is_refused_changes_nothing(store: Path, config: Path, tmp_path: Path) -> None:
    paths = binlog_files.write_chain(tmp_path / "files", *PARTS)
    ibb = tmp_path / "binlog-000000.ibb"
    ibb.write_bytes(bytes.fromhex("fefe0d01") + bytes(100))
    for arguments, code, said in (
        ((), 2, "give either binlog files"),
        ((paths[0], "--index", paths[0]), 2, "give either binlog files"),
        ((tmp_path / "none",), 1, f"there is no {tmp_path}/none"),
        ((tmp_path / "files",), 1, "has neither .ibb files nor the index of a traditional binlog"),
        ((tmp_path / "files", paths[0]), 1, "is a directory: give it alone"),
        ((ibb,), 1, f"is an .ibb file: give its directory {tmp_path}"),
        ((config,), 1, "is no binlog file"),
    ):
        ran = import_(store, config, *arguments)
        assert (ran.code, said in ran.err) == (code, True), ran
    assert not store.exists()
    directory = StoreDirectory(store, small(64, innodb_log_file_size=4 << 20))
    try:
        ran = import_(store, config, *paths)
    finally:
        directory.close()
    assert (ran.code, "in use by another process" in ran.err) == (1, True)


KILLED = """
import os, signal, sys
from binlog_server.cli import main
from binlog_storage.intake import intake

left = int(sys.argv[1])
take = intake.Intake._take

def take_or_die(self, item):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    take(self, item)

intake.Intake._take = take_or_die
intake.UNSYNCED_BYTES_MAX = 300_000
sys.exit(main(sys.argv[2:]))
"""


def test_kill_and_again(store: Path, config: Path, tmp_path: Path, rng: random.Random) -> None:
    """Small groups and large ones; wherever it is killed the next run goes on there."""
    parts = []
    for first in range(1, 8000, 2001):
        groups = [binlog_files.group(Gtid(0, 1, n), 300) for n in range(first, first + 2000)]
        parts.append([*groups, binlog_files.group(Gtid(0, 1, first + 2000), 4 << 20)])
    paths = binlog_files.write_chain(tmp_path / "files", *parts)
    arguments = ["import", "--directory", store, "--config", config, *paths]
    lengths = [0]
    for _ in range(4):
        argv = [sys.executable, "-c", KILLED, rng.randrange(2, 14), *arguments]
        done = subprocess.run(list(map(str, argv)), capture_output=True, timeout=50, check=False)
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
        lengths.append(len(stored(store)))
    assert lengths == sorted(lengths)
    ran = import_(store, config, *paths)
    assert ran.code == 0, ran.err
    assert stored(store) == [payload for part in parts for payload in payloads(part)]
