"""Files that commands are given: what is no file is said, and nothing waits for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.binlog_server.cli.command import run

COMMANDS = {
    "serve": ["serve", "--config", "FIFO", "--directory", "STORE"],
    "seed": ["seed", "--from-dump", "FIFO", "--directory", "STORE"],
    "import": ["import", "FIFO", "--directory", "STORE"],
    "import --index": ["import", "--index", "FIFO", "--directory", "STORE"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_fifo(name: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    names = {"FIFO": fifo, "STORE": tmp_path / "store"}
    ran = run(*(names.get(word, word) for word in COMMANDS[name]))
    assert ran.code != 0
    assert "it is a FIFO, not a file" in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "store").exists()
