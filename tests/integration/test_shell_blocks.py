"""Commands of the documents, as a reader types them: in a folder with what the pages speak of, under their paths.

A page is a test, and has its folders to itself; its blocks are run in their order. What a block needs beside that, the
comment above it says (tests/shell_blocks.py).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from binlog_server.app.in_process import running_server
from binlog_server.cli import main
from binlog_server.testing import ports, process
from binlog_server.testing.found import install_of
from binlog_server.testing.waiting import until
from tests.kit.server import READY
from tests.shell_blocks import ROOT, Block, blocks, commands, pages

RUN = [page for page in pages() if any(block.mark == "run" for block in blocks(page))]
FOLDERS = re.compile(r"(?<![\w.$}])/(?=(?:srv|archive|backup|var/lib|etc/binlog-server|lake)\b)")
HISTORY = """
    CREATE DATABASE shop;
    CREATE TABLE shop.orders (id INT PRIMARY KEY, item VARCHAR(20));
    INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b');
    UPDATE shop.orders SET item = 'c' WHERE id = 1;
    DROP TABLE shop.orders;
    CREATE TABLE shop.orders (id INT PRIMARY KEY, item VARCHAR(20));
    INSERT INTO shop.orders VALUES (3, 'd');
    CREATE USER 'branch'@'10.%' IDENTIFIED BY 'secret';
"""
PASSWORD = "secret"
ACCOUNT = {"password": PASSWORD, "grants": ["ALL PRIVILEGES", "BINLOG REPLAY"]}
CONFIGURATION = f"""
server_id = 10
max_binlog_size = "64K"
local_tables = true
[users]
repl = "{PASSWORD}"
dba = {{password = "{PASSWORD}", grants = ["ALL PRIVILEGES", "BINLOG REPLAY"]}}
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that pages speak of: a store, its history as files of a MariaDB in both formats, a password."""
    root = tmp_path_factory.mktemp("prepared")
    store, traditional = root / "var/lib/binlog-server", root / "var/lib/mysql"
    users = {"dba": ACCOUNT}
    with running_server(store, max_binlog_size=1 << 18, users=users) as server:
        login = {"user": "dba", "password": PASSWORD, "autocommit": True}
        with pymysql.connect(host="127.0.0.1", port=server.port, **login) as client:
            for statement in filter(str.strip, HISTORY.split(";")):
                client.cursor().execute(statement)
    assert main(["convert", str(store), str(traditional), "--log-bin", "mariadb-bin"]) == 0
    for folder in ("srv", "backup", "work", "archive", "srv/ibb", "etc/binlog-server"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in traditional.glob("mariadb-bin.0*"):
        shutil.copy(name, root / "backup")
    for name in store.glob("binlog-*.ibb"):
        shutil.copy(name, root / "srv/ibb")
    keys = "".join(f"{number};{number:064x}\n" for number in (1, 2))
    (root / "etc/binlog-server/keys.txt").write_text(keys)
    (root / "bin").mkdir()
    if (install := install_of()) is not None:  # Debian's client-core has no mariadb-dump
        program = root / "bin/mariadb-dump"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(install.program(program.name))} "$@"\n')
        program.chmod(0o755)
    (root / "work/pw").write_text(PASSWORD + "\n")
    (root / "work/pw").chmod(0o600)
    return root


class Place:
    """A copy of the folders, and the shell in it, with the programs of this environment and its home there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port, self.metrics = ports.lease(), ports.lease()
        self._running: list[subprocess.Popen[bytes]] = []
        store = f'binlog_directory = "{root}/var/lib/binlog-server"\n'
        (root / "work/server.toml").write_text(store + CONFIGURATION)
        client = f"[client]\nhost=127.0.0.1\nport={self.port}\nuser=dba\npassword={PASSWORD}\n"
        (root / ".my.cnf").write_text(client)
        folders = [str(Path(sys.executable).parent), os.environ["PATH"], str(root / "bin")]
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join(folders),
            "HOME": str(root),
            "BINLOG_SERVER_SLAVE_CONNECTIONS_NEEDED_FOR_PURGE": "0",
        }

    def run(self, block: Block) -> None:
        """The commands of a block; servers run in the background until its end."""
        text = block.text.replace(".venv/bin/", "")
        folder = ROOT if "checkout" in block.words else self.root / "work"
        if "serving" in block.words:
            pid = self._serve(
                [
                    "serve",
                    "--directory",
                    str(self.root / "var/lib/binlog-server"),
                    "--config",
                    "server.toml",
                ]
            )
            text = re.sub(r"\bPID\b", str(pid), text)
        for word in block.words:
            name, given, value = word.partition("=")
            if given:
                text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", value, text)
        text = self._here(text)
        exports = ""  # of the block, for its later commands: each has a shell of its own
        try:
            for command in commands(text):
                if command.startswith("export "):
                    exports += f"{command}\n"
                elif re.match(r"binlog-server serve\b(?!.*--check-config)", command):
                    self._serve(shlex.split(command)[1:])
                else:
                    self._command(block, exports + command, folder)
        finally:
            self._end()

    def _here(self, text: str) -> str:
        """Paths and ports of the page as those of this place."""
        text = FOLDERS.sub(f"{self.root}/", text)
        for port, ours in (("3306", self.port), ("9104", self.metrics)):
            text = re.sub(rf"\b{port}\b", str(ours), text)
        text = re.sub(r"(?<=@127\.0\.0\.1)(?![:\d])", f":{self.port}", text)
        return text.replace("0.0.0.0", "127.0.0.1")

    def _command(self, block: Block, command: str, folder: Path) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=self._environment,
            input=f"{PASSWORD}\n",  # for a program that asks
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == 0, (
            f"{block}: {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )

    def _serve(self, arguments: list[str]) -> int:
        log = self.root / "server.log"
        seen = len(process.read_log(log))
        listen = [f"--metrics-listen=127.0.0.1:{self.metrics}"]
        if "--listen" not in arguments:
            listen.append(f"--listen=127.0.0.1:{self.port}")
        argv = [sys.executable, "-m", "binlog_server", *arguments, *listen]
        child = process.spawn(
            argv, log, {**self._environment, "PYTHONPATH": str(ROOT)}, folder=self.root / "work"
        )
        self._running.append(child)

        def is_ready() -> bool:
            assert child.poll() is None, process.read_log(log)[seen:]
            return READY in process.read_log(log)[seen:]

        until(is_ready, READY)
        return child.pid

    def _end(self) -> None:
        while self._running:
            child = self._running.pop()
            child.send_signal(signal.SIGTERM)
            assert child.wait(20) == 0

    def close(self) -> None:
        for child in self._running:
            child.kill()
            child.wait(20)
        ports.release(self.port)
        ports.release(self.metrics)


@pytest.fixture
def place(prepared: Path, tmp_path: Path) -> Iterator[Place]:
    place = Place(shutil.copytree(prepared, tmp_path / "place"))
    try:
        yield place
    finally:
        place.close()


@pytest.mark.parametrize("page", RUN)
@pytest.mark.by_turns(12)
@pytest.mark.timeout(120)
def test_the_blocks_of_a_page(place: Place, page: str) -> None:
    for block in blocks(page):
        if block.mark == "run":
            place.run(block)
