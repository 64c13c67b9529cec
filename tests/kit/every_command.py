"""A call of every command of both programs, for tests that hold for all of them: a new command must be given one here.

@name     what is read, or changed: a store, an archive, a backup, a configuration
TO        what is made
NOBODY    an address where nothing listens
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from binlog_pipeline import cli as of_pipeline

from binlog_server import cli as of_server
from binlog_server.app.in_process import running_server
from tests.binlog_server.lab import ROOT
from tests.kit.commands_page import commands

MAINS: Final = {"binlog-server": of_server.main, "binlog-spark": of_pipeline.main}
PARSERS: Final = {
    "binlog-server": of_server.parser()[0],
    "binlog-spark": of_pipeline.parser()[0],
}
COMMANDS: Final[dict[str, argparse.ArgumentParser]] = {
    one.prog: one for parser in PARSERS.values() for one in commands(parser)
}
CALLS: Final = {
    "binlog-server serve": "--check-config --directory @store",
    "binlog-server user list": "--directory @store",
    "binlog-server user add": "new --directory TO",
    "binlog-server user set": "known --max-lag-bytes 10M --directory @store",
    "binlog-server user drop": "known --directory @store",
    "binlog-server demo": "--seconds 0",
    "binlog-server events": "@store",
    "binlog-server find": "@store --larger-than 1",
    "binlog-server compare": "@store @store",
    "binlog-server verify": "@store",
    "binlog-server ls": "@store",
    "binlog-server seed": "--directory TO --gtid-slave-pos 0-1-5 --config @small.toml",
    "binlog-server import": "--directory TO --config @small.toml @store",
    "binlog-server convert": "@store TO --config @small.toml",
    "binlog-server backup": "--server mariadb://u:p@NOBODY --target TO",
    "binlog-server prepare": "@backup",
    "binlog-server recover": "--backup @xtra --datadir TO --source mariadb://u:p@NOBODY --until 0-1-9",
    "binlog-server monitoring": "rules",
    "binlog-server doctor": "--directory @store --config @small.toml --listen 127.0.0.1:0",
    "binlog-spark stats": "@store --workers 1",
    "binlog-spark export": "@store TO --workers 1",
    "binlog-spark archive": "@store TO --include-tail --workers 1",
    "binlog-spark replay": "@archive --ibb TO --max-binlog-size 1m",
    "binlog-spark load": "mariadb://u@NOBODY --target TO --tables shop.t",
    "binlog-spark state": "@store TO --table shop.t",
    "binlog-spark stream": "--from mariadb://u@NOBODY --to TO --table shop.t --checkpoint TO",
    "binlog-spark publish": "mariadb://u@NOBODY --kafka NOBODY",
    "binlog-spark lag": "@store 0-1-1",
    "binlog-spark schema": "@store --table shop.t --workers 1",
    "binlog-spark verify": "@store --workers 1",
    "binlog-spark package": "TO",
}
NOT_HERE: Final = {
    "binlog-server backup": "it needs a server: tests/binlog_server/cli/test_backup.py",
    "binlog-server demo": "it runs servers",
    "binlog-server recover": "it needs a MariaDB: tests/integration/test_point_in_time.py",
    "binlog-spark load": "it needs a MariaDB: tests/integration/pipeline/test_load.py",
    "binlog-spark stream": "it needs a Spark: tests/pipeline/spark/test_stream_cli.py",
    "binlog-spark publish": "it needs a Kafka: tests/pipeline/jobs/test_publish.py",
}
"""Commands whose call above does nothing, as what it needs is not there."""
DONE: Final = [name for name in CALLS if name not in NOT_HERE]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def sources(folder: Path) -> Path:
    """Make what commands read."""
    sizes = {"max_binlog_size": 1 << 16, "innodb_log_file_size": 4 << 20}
    with running_server(folder / "store", users=ROOT, **sizes) as server:
        server.master.create_database("shop")
        server.master.create_table("shop.t", {"id": "INT PRIMARY KEY", "a": "VARCHAR(50)"})
        for number in range(100):
            with server.master.transaction() as transaction:
                transaction.insert("shop.t", {"id": number, "a": "a" * 40})
        url = f"mariadb://root:pw@127.0.0.1:{server.port}"
        ran = run(f"binlog-server backup --server {url} --target @backup", folder, Path())
        assert ran.code == 0, ran.err
    (folder / "small.toml").write_text(
        "max_binlog_size = 1048576\ninnodb_log_file_size = 4194304\n"
    )
    (folder / "xtra").mkdir()
    (folder / "xtra/xtrabackup_binlog_info").write_text("m-bin.000001\t330\t0-1-3\n")
    for line in (
        "binlog-server user add known --directory @store",
        "binlog-spark archive @store @archive --include-tail --workers 1",
    ):
        ran = run(line, folder, Path())
        assert ran.code == 0, ran.err
    return folder


def call(name: str) -> str:
    return f"{name} {CALLS[name]}"


def words(line: str, at: Path, to: Path, nobody: str = "127.0.0.1:1") -> list[str]:
    """The words behind the program's name."""
    found = []
    for word in line.split()[1:]:
        text = str(at / word[1:]) if word.startswith("@") else word.replace("NOBODY", nobody)
        found.append(str(to) if text == "TO" else text)
    return found


def run(line: str, at: Path, to: Path, more: Iterable[str] = ()) -> Ran:
    """A command inside this process; it ends as a process would."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _typed("secret\n"),
    ):
        try:
            code = MAINS[line.split()[0]]([*words(line, at, to), *more])
        except SystemExit as error:  # of argparse
            code = int(error.code or 0)
        out.flush()
    raw = out.buffer
    assert isinstance(raw, io.BytesIO)
    return Ran(code, raw.getvalue().decode(), err.getvalue())


@contextlib.contextmanager
def _typed(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before


def copied(at: Path, to: Path) -> Path:
    """A copy of the sources, for a command that changes what it is given."""
    return Path(shutil.copytree(at, to))
