"""The command line: exit codes, and what it says."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_protocol.connection.auth import native_password_scramble

from binlog_server.accounts.users import Users
from binlog_server.cli import main
from binlog_server.store.store_directory import StoreDirectory, open_state

from .lab import STORE

SALT = b"0123456789abcdefghij"


def run(*arguments: str) -> int:
    """The exit code, also where argparse exits by itself."""
    try:
        return main(arguments)
    except SystemExit as exit_:
        return int(exit_.code or 0)


USAGE = [
    ([], "the following arguments are required: COMMAND"),
    (["nonsense"], "invalid choice: 'nonsense'"),
    (["serve", "--nonsense"], "unrecognized arguments: --nonsense"),
    (["serve", "--diretory=/d"], "--diretory=/d: did you mean '--directory'?"),
    (["serve", "--server-id", "x"], "'x' is no whole number from 1 to 4294967295"),
    (["serve", "--log-level", "LOUD"], "invalid choice: 'LOUD'"),
    (["serve", "--log-format", "xml"], "invalid choice: 'xml'"),
    (["serve", "--directory", "/d", "--metrics-listen", "x"], "--metrics-listen: 'x' is not HOST"),
    (["user"], "the following arguments are required: ACTION"),
    (["user", "list"], "the following arguments are required: --directory"),
    (["user", "add", "--directory", "/d"], "the following arguments are required: name"),
    (["serve"], "binlog_directory is missing"),
    (["serve", "--directory", "/d", "--listen", "x"], "--listen: 'x' is not HOST:PORT"),
    (["serve", "--directory", "/d", "--upstream", "x"], "--upstream: write it as mariadb://"),
    (["serve", "--directory", "/d", "--upstream", "mariadb://u:p@[::1"], "--upstream: "),
    (["serve", "--config", "/no/such.toml"], "there is no /no/such.toml"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("binlog-server ")
    assert run("--help") == 0
    assert "serve" in capsys.readouterr().out


def serve(directory: Path, *more: str) -> int:
    (directory.parent / "small.toml").write_text(f"max_binlog_size = {STORE.max_binlog_size}\n")
    config = str(directory.parent / "small.toml")
    return run("serve", "--config", config, "--directory", str(directory), *more)


def test_directory_that_is_not_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / "ibdata1").write_text("mine")
    assert serve(path, "--listen", "127.0.0.1:0") == 1
    assert "is not a binlog store: it holds 'ibdata1'" in capsys.readouterr().err
    assert [p.name for p in path.iterdir()] == ["ibdata1"]


def test_file_in_place_of_the_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert serve(tmp_path / "file", "--listen", "127.0.0.1:0") == 1
    assert "is no directory" in capsys.readouterr().err


def test_directory_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data"
    other = StoreDirectory(path, STORE)
    assert serve(path, "--listen", "127.0.0.1:0") == 1
    assert run("user", "list", "--directory", str(path)) == 1
    assert capsys.readouterr().err.count("in use by another process") == 2
    other.close()


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_address_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], taken: int) -> None:
    path = tmp_path / "data"
    assert serve(path, "--listen", f"127.0.0.1:{taken}") == 1
    err = capsys.readouterr().err
    remedy = "Address already in use: end the program that listens there, or give another address"
    assert err.endswith(f"binlog-server: listen: 127.0.0.1:{taken}: {remedy}\n")
    StoreDirectory(path, STORE).close()  # the lock was given up
    assert serve(path, "--listen=127.0.0.1:0", f"--metrics-listen=127.0.0.1:{taken}") == 1
    err = capsys.readouterr().err
    assert f"binlog-server: metrics_listen: 127.0.0.1:{taken}: {remedy}\n" in err


def test_address_of_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(tmp_path / "data", "--listen", "192.0.2.1:0") == 1
    assert "listen: 192.0.2.1:0: Cannot assign requested address: give" in capsys.readouterr().err


def test_address_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("listen", "metrics_listen"):
        address = f"--{option.replace('_', '-')}", "no.such.host.invalid:0"
        assert serve(tmp_path / "data", "--listen", "127.0.0.1:0", *address) == 1
        err = capsys.readouterr().err
        assert f"binlog-server: {option}: 'no.such.host.invalid': " in err
        assert "Traceback" not in err


def test_damaged_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data"
    StoreDirectory(path, STORE).close()
    file = path / "binlog-000000.ibb"
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    assert serve(path, "--listen", "127.0.0.1:0") == 1
    err = capsys.readouterr().err
    assert "binlog number 0" in err
    assert "Traceback" not in err


OF_A_REPLICA = "REPLICATION SLAVE"


def table_of(ran: tuple[int, str, str]) -> list[list[str]]:
    """The cells of a table."""
    code, out, err = ran
    assert (code, err) == (0, "")
    return [re.split(" {2,}", line) for line in out.splitlines()]


def test_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path)

    def user(*arguments: str, password: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(password))
        code = run("user", *arguments, "--directory", path)
        out, err = capsys.readouterr()
        return code, out, err

    assert user("list") == (0, "no accounts\n", "")
    assert user("add", "repl", password="se cret\n") == (0, "add repl@%: done\n", "")
    assert user("add", "open", password="\n") == (0, "add open@%: done\n", "")
    listed = [
        ["ACCOUNT", "PRIVILEGES", "REPLICAS"],
        ["open@%", OF_A_REPLICA],
        ["repl@%", OF_A_REPLICA],
    ]
    assert table_of(user("list")) == listed
    state, disk = open_state(tmp_path)
    users = Users(state)
    for name, response in (("repl", native_password_scramble("se cret", SALT)), ("open", b"")):
        account = users.find(name, "")
        assert account is not None
        assert account.credential.verify(SALT, response)
    disk.close()
    assert user("drop", "open") == (0, "drop open@%: done\n", "")
    code, _, err = user("drop", "open")
    assert (code, "there is no account 'open'" in err) == (1, True)
    code, _, err = user("add", "a'b", password="x\n")
    assert (code, "cannot be a user name" in err) == (2, True)
    options = ["--plugin", "ed25519", "--grant", "RELOAD", "--require", "SSL"]
    assert user("add", "etl@10.0.%", *options, password="x\n")[0] == 0
    assert table_of(user("list"))[1:] == [["etl@10.0.%", "RELOAD"], ["repl@%", OF_A_REPLICA]]
    assert user("drop", "etl")[0] == 1
    assert user("drop", "etl@10.0.%")[0] == 0


def test_user_of_a_foreign_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run("user", "list", "--directory", str(tmp_path)) == 1
    assert "is not a binlog store" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("action", [["list"], ["drop", "x"]])
def test_looking_for_users_makes_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: list[str]
) -> None:
    path = tmp_path / "mistyped"
    assert run("user", *action, "--directory", str(path)) != 0
    assert str(path) in capsys.readouterr().err
    assert not path.exists()
