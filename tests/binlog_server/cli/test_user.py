"""`binlog-server user`: passwords, and what it says."""

from __future__ import annotations

import getpass
import io
from pathlib import Path

import pytest

from tests.binlog_server.cli.command import run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def accounts(store: Path) -> list[str]:
    return [line.split()[0] for line in run("user", "list", "--directory", store).lines[1:]]


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is not there is no account without a password; an empty one is."""
    store = tmp_path / "store"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = run("user", "add", "repl", "--directory", store)
    assert (ran.code, "no line with a password" in ran.err) == (2, True)
    assert accounts(store) == []
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    ran = run("user", "add", "repl", "--directory", store)
    assert (ran.code, ran.lines) == (0, ["add repl@%: done"])
    assert accounts(store) == ["repl@%"]


def test_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for twice: nobody sees what is typed."""
    store, said = tmp_path / "store", ["secret", "sceret", "secret", "secret"]
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", lambda prompt: said.pop(0))
    ran = run("user", "add", "repl", "--directory", store)
    assert (ran.code, "the two passwords differ" in ran.err) == (2, True)
    assert accounts(store) == []
    assert run("user", "add", "repl", "--directory", store).code == 0
    assert (accounts(store), said) == (["repl@%"], [])
