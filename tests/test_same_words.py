"""Each command with each error: both programs say the same in the same words, and what has failed leaves nothing."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_pipeline.cli import main as spark
from binlog_protocol.errors import RemoteError
from binlog_storage.console.arguments import BAD_ADDRESS
from binlog_storage.console.running import refused
from binlog_storage.errors import REPAIR
from binlog_storage.ibb.page import PAGE_SIZE

from binlog_server.cli import main as server
from tests.pipeline.stores import make_store
from tests.storage.groups import simple

PROGRAMS = {"binlog-server": server, "binlog-spark": spark}
NO_STORE = "{} has neither .ibb files nor the index of a traditional binlog"
TAKEN = "{} is not a binlog store: it holds 'ibdata1'"

# @ is what is read or changed, TO what is made. A store that is read, by each command that reads one:
READ = [
    "binlog-server events @",
    "binlog-server find @ --larger-than 1",
    "binlog-server compare @ @",
    "binlog-server verify @",
    "binlog-server ls @",
    "binlog-server import @ --directory TO",
    "binlog-server convert @ TO",
    "binlog-spark stats @",
    "binlog-spark export @ TO",
    "binlog-spark archive @ TO",
    "binlog-spark state @ TO --table d.t",
    "binlog-spark schema @ --table d.t",
    "binlog-spark verify @",
]
CHANGED = [
    "binlog-server user list --directory @",
    "binlog-server user add a --directory @",
    "binlog-server user set a --max-lag-bytes 1 --directory @",
    "binlog-server user drop a --directory @",
    "binlog-server seed --gtid-slave-pos 0-1-5 --directory @",
]
NO_SERVER = {"verify", "ls", "import", "convert"}  # of binlog-server: files alone
OF_SERVERS = [
    *(one for one in READ if one.startswith("binlog-spark") or one.split()[1] not in NO_SERVER),
    "binlog-server backup --server @ --target TO",
    "binlog-spark load @ --target TO --tables d.t",
]


@pytest.fixture(autouse=True)
def nothing_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))


def said(line: str, at: object, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that fails says: one line."""
    program, *words = line.split()
    to = Path(str(at)).parent / "to" if isinstance(at, Path) else Path("/nowhere/to")
    code = PROGRAMS[program]([{"@": str(at), "TO": str(to)}.get(word, word) for word in words])
    assert code in (1, 2)
    err = capsys.readouterr().err
    assert err.startswith(f"{program}: ")
    assert err.count("\n") == 1
    assert not to.exists()
    return err.removeprefix(f"{program}: ").removeprefix("they cannot be compared: ").rstrip()


@pytest.mark.parametrize(
    "line", [*READ, *(one for one in CHANGED if "add" not in one and "seed" not in one)]
)
def test_a_directory_that_is_not_there(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "user list" in line:
        line = line.replace("list", "drop a")
    assert said(line, tmp_path / "x", capsys) == f"there is no {tmp_path / 'x'}"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("line", READ)
def test_a_directory_without_a_store(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").mkdir()
    assert said(line, tmp_path / "x", capsys) == NO_STORE.format(tmp_path / "x")
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize("line", CHANGED)
def test_a_directory_of_others(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/ibdata1").touch()
    assert said(line, tmp_path / "x", capsys).startswith(TAKEN.format(tmp_path / "x"))
    assert [one.name for one in (tmp_path / "x").iterdir()] == ["ibdata1"]


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("line", OF_SERVERS)
def test_a_server_that_is_not_there(
    line: str, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(line, f"mariadb://u@{nobody}", capsys)
    assert text.startswith(f"{nobody}: ")
    assert text.endswith("Connection refused; is the server up, and reachable?")


@pytest.mark.parametrize("line", OF_SERVERS)
def test_an_address_that_is_none(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(line, "mariadb://u@h:port", capsys).removeprefix("--server: ") == BAD_ADDRESS


TELLS_MORE = {
    "verify",
    "ls",
    "import",
    "convert",
}  # of damage; or keep what they have made of sound files


@pytest.mark.parametrize(
    "line", [one for one in READ if "spark" in one or one.split()[1] not in TELLS_MORE]
)
def test_a_page_that_is_damaged(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path / "x", simple(3))
    with (store / "binlog-000000.ibb").open("r+b") as file:
        file.seek(PAGE_SIZE + 200)
        file.write(b"damaged!")
    text = said(line, store, capsys)
    assert "Page corruption" in text
    assert text.endswith(f"; {REPAIR}")


@pytest.mark.parametrize(
    "line",
    [
        "binlog-server find x --larger-than 1X",
        "binlog-server user set a --directory x --max-lag-bytes 1X",
        "binlog-server user add a --directory x --max-bytes-per-second 1X",
        "binlog-spark archive x y --partition-bytes 1X",
        "binlog-spark archive x y --partition-bytes 64mb",
        "binlog-spark archive x y --option maxBytesPerTrigger=16E",
        "binlog-spark replay x --ibb y --max-binlog-size 1X",
    ],
)
def test_a_size_that_is_none(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *words = line.split()
    try:
        code = PROGRAMS[program](words)
    except SystemExit as error:  # of argparse
        code = int(error.code or 0)
    assert code == 2
    assert capsys.readouterr().err.endswith("is no size such as 64K, 16M or 1G\n")


@pytest.mark.parametrize(
    ("line", "meant"), [("binlog-server evnts x", "events"), ("binlog-spark exprt x", "export")]
)
def test_a_command_that_is_none(line: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *words = line.split()
    with pytest.raises(SystemExit, match="2"):
        PROGRAMS[program](words)
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


def test_an_archive_that_is_not_there_leaves_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "binlog-server serve --archive @ --directory TO --listen 127.0.0.1:0"
    assert said(line, tmp_path / "x", capsys) == f"there is no {tmp_path / 'x'}"


def test_a_password_that_is_wrong() -> None:
    """Said of each connection that a command makes."""
    error = RemoteError(1045, "28000", "Access denied for user 'u'@'10.0.0.1'")
    assert refused(error).endswith("'u'@'10.0.0.1'; is the user right, and the password?")
    assert "is the user" not in refused(RemoteError(1236, "HY000", "no such file"))


def test_rows_are_loaded_of_a_server_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "mariadb://" in said("binlog-spark load @ --target TO --tables d.t", tmp_path, capsys)
