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
    assert not store.exists()  # nothing was done
    assert accounts(store) == []
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    ran = run("user", "add", "repl", "--directory", store)
    assert (ran.code, ran.lines) == (0, ["add repl@%: done"])
    assert accounts(store) == ["repl@%"]


def test_two_dashes_are_no_value() -> None:
    """Python takes them out wherever they stand: the directory was a list."""
    with pytest.raises(SystemExit) as ended:
        run("user", "list", "--directory=--")
    assert ended.value.code == 2


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


def test_what_cannot_be_done_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock file in a folder that is no store, and no account without its privileges."""
    assert run("user", "drop", "nobody", "--directory", tmp_path).code == 1
    assert run("user", "set", "nobody", "--max-lag-seconds=9", "--directory", tmp_path).code == 1
    assert run("user", "set", "nobody", "--max-lag-bytes=1", "--directory", tmp_path).code == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    ran = run("user", "add", "x", "--grant", "NO SUCH", "--directory", tmp_path)
    assert (ran.code, "NO SUCH" in ran.err) == (2, True)
    assert run("prepare", tmp_path).code == 1
    assert list(tmp_path.iterdir()) == []
