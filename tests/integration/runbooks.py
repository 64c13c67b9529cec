"""Executes a runbook of docs/operations.md: its blocks, in their order, each on the hosts that its first line names.

    sql HOST ...     statements; rows are shown as by \\G
    sh HOST ...      lines for a shell
    toml HOST        the configuration file
    text             what the block before shows: each line is a part of it, in order, `...` and <NAME> stand for
                     anything. A block of nothing but questions at its end is asked again until it is so
    <!-- test: x --> what happens to the servers there: a function of the test

A host is a MariaDB, or a directory in which ours runs. Names and ports of the page become those of the test, paths
those below the host's directory.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pymysql

from binlog_server.testing import ports, process
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import SqlServer
from binlog_server.testing.waiting import until
from tests.kit import forks
from tests.kit.faults import Faults
from tests.kit.server import READY

PAGE: Final = Path(__file__).parents[2] / "docs" / "operations.md"
_BLOCK: Final = re.compile(
    r"^```(?P<kind>\w+)(?P<hosts>[^\n]*)\n(?P<text>.*?)^```$|^<!-- test: (?P<event>\w+) -->$",
    re.MULTILINE | re.DOTALL,
)
_QUESTION: Final = re.compile(r"(SHOW|SELECT|EXPLAIN)\b", re.IGNORECASE)
_NAME: Final = re.compile(r"<([A-Z]+)>")
_PATHS: Final = re.compile(r"(?<![\w.])/(?=(var/lib|etc|srv)\b)")
_SERVICE: Final = re.compile(r"systemctl (\w+) (\S+)")
_WAIT_S: Final = 60.0
SMALL: Final = "max_binlog_size = 1048576\ninnodb_log_file_size = 4194304\n"
"""Sizes of a test, in front of each configuration file."""


class Block(NamedTuple):
    """`hosts`: their names; `event`: a comment instead of a block."""

    kind: str
    hosts: tuple[str, ...]
    text: str
    event: str = ""


def runbooks() -> dict[str, list[Block]]:
    """All of the page that have blocks, by their titles."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, list[Block]] = {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        blocks = [
            Block("", (), "", m["event"])
            if m["event"]
            else Block(m["kind"], tuple(m["hosts"].split()), m["text"])
            for m in _BLOCK.finditer(text)
        ]
        if blocks:
            found[title] = blocks
    return found


class Ours(SqlServer):
    """A host on which ours runs as a service. With `faults` it looks for room again sooner."""

    def __init__(self, root: Path, faults: Faults | None = None) -> None:
        self.root = root
        self._module = "binlog_server" if faults is None else faults.module
        self._environment = {} if faults is None else faults.environment
        self.port = ports.lease()
        self.log = root / "server.log"
        self._process: Any = None
        for name in ("etc/binlog-server", "var/lib", "srv"):
            (root / name).mkdir(parents=True)

    @property
    def config(self) -> Path:
        return self.root / "etc/binlog-server/server.toml"

    @property
    def store(self) -> Path:
        return self.root / "var/lib/binlog-server"

    def login(self) -> Mapping[str, Any]:
        """As the page's administrator."""
        password = tomllib.loads(self.config.read_text())["users"]["admin"]["password"]
        return {"user": "admin", "password": password, "autocommit": True}

    def start(self) -> None:
        arguments = ["serve", "--config", str(self.config)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self._environment}
        seen = len(process.read_log(self.log))
        self._process = forks.start(arguments, self.log, environment, self._module)
        if self._process is None:
            command = [sys.executable, "-m", self._module, *arguments]
            self._process = process.spawn(command, self.log, environment)
        until(lambda: READY in process.read_log(self.log)[seen:], "a server that is ready", _WAIT_S)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(40) == 0
        self._process = None

    def discard(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
        ports.release(self.port)


class Runner:
    """Executes blocks on these hosts; those of others are left out.

    Args:
        events: what the comments of the page mean, by their names.
    """

    def __init__(
        self,
        hosts: Mapping[str, MariaDB | Ours],
        bin_dir: Path,
        events: Mapping[str, Callable[[], object]],
    ) -> None:
        self._hosts = hosts
        self._events = events
        self._bin = bin_dir
        self._known: dict[str, str] = {}
        bin_dir.mkdir(exist_ok=True)
        program = bin_dir / "binlog-server"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m binlog_server "$@"\n')
        program.chmod(0o755)

    def run(self, blocks: Sequence[Block]) -> int:
        """Execute them. Returns the number of those that were."""
        count = 0
        for number, block in enumerate(blocks):
            if block.event:
                self._events[block.event]()
                continue
            if block.kind == "text":
                continue
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            shows = following.text if following is not None and following.kind == "text" else ""
            for name in block.hosts:
                if name in self._hosts:
                    count += 1
                    self._one(block, name, shows)
        return count

    def _one(self, block: Block, name: str, shows: str) -> None:
        host = self._hosts[name]
        text = self._here(block.text, host)
        if block.kind == "toml":
            assert isinstance(host, Ours)
            host.config.write_text(SMALL + text)
            host.config.chmod(0o600)
        elif block.kind == "sh":
            said = self._shell(text, host)
            assert self._matches(shows, said), f"on {name}:\n{text}\nshows\n{said}\nnot\n{shows}"
        elif block.kind == "sql":
            self._sql(text, host, name, shows)
        else:
            raise AssertionError(f"a block of kind {block.kind}")

    def _here(self, text: str, host: MariaDB | Ours) -> str:
        """With the names, ports and paths of the test."""
        text = _NAME.sub(lambda m: self._known[m[1]], text)
        for name, other in self._hosts.items():
            text = text.replace(
                f"MASTER_HOST='{name}'", f"MASTER_HOST='127.0.0.1', MASTER_PORT={other.port}"
            ).replace(f"@{name}:3306", f"@127.0.0.1:{other.port}")
        text = text.replace('"0.0.0.0:3306"', f'"127.0.0.1:{host.port}"')
        if isinstance(host, Ours):
            text = _PATHS.sub(lambda m: f"{host.root}/", text)
        return text

    def _matches(self, shows: str, said: str) -> bool:
        """Whether each line is in there, in order; then the values of names are known."""
        text = said
        found: dict[str, str] = {}
        for line in filter(None, map(str.strip, shows.splitlines())):
            parts = re.split(r"(\.\.\.|<[A-Z]+>)", line)
            pattern = "".join(
                r"[^\n]*?"
                if part == "..."
                else rf"(?P<{part[1:-1]}>[^\s']*?)"
                if _NAME.fullmatch(part) and part[1:-1] not in self._known
                else re.escape(self._known.get(part[1:-1], part))
                for part in parts
            )
            begins = r"^[^\n]*?" if line.startswith("/") else r"^\s*"
            match = re.compile(rf"{begins}{pattern}\s*$", re.MULTILINE).search(text)
            if match is None:
                return False
            found.update(match.groupdict())
            text = text[match.end() :]
        self._known.update(found)
        return True

    def forget(self) -> None:
        """Another runbook begins: its names have no values yet."""
        self._known.clear()

    # --- a shell ---

    def _shell(self, text: str, host: MariaDB | Ours) -> str:
        """What its lines say. A service is started and stopped as the test does it."""
        said, lines = "", list[str]()
        for line in [*text.splitlines(), ""]:
            service = _SERVICE.fullmatch(line)
            if line and service is None:
                lines.append(line)
                continue
            if lines:
                environment = {**os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}"}
                done = subprocess.run(
                    ["bash", "-euc", "\n".join(lines)],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=_WAIT_S,
                    check=False,
                )
                said += done.stdout + done.stderr
                assert done.returncode == 0, said
                lines = []
            if service is not None:
                assert service[2] == ("mariadb" if isinstance(host, MariaDB) else "binlog-server")
                {"start": host.start, "stop": host.stop}[service[1]]()
        return said

    # --- SQL ---

    def _sql(self, text: str, host: MariaDB | Ours, name: str, shows: str) -> None:
        statements = list(_statements(text))
        questions = 0
        while (
            questions < len(statements) and _QUESTION.match(statements[-1 - questions]) is not None
        ):
            questions += 1
        with host.connect() as connection:
            for statement in statements[: len(statements) - questions]:
                _answer(connection, statement)
        said = ""

        def shown() -> bool:
            nonlocal said
            with host.connect() as connection:
                said = "".join(_answer(connection, s) for s in statements[-questions:] if questions)
            return self._matches(shows, said)

        try:
            until(shown, shows, _WAIT_S)
        except TimeoutError:
            raise AssertionError(f"on {name}:\n{text}\nshows\n{said}\nnot\n{shows}") from None


def _statements(text: str) -> Iterator[str]:
    for statement in re.split(r";\n|\\G\n", text):
        if statement.strip():
            yield statement.strip()


def _answer(connection: pymysql.Connection[Any], statement: str) -> str:
    """Its rows, a column a line."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else ()
    return "".join(
        f"{name}: {'' if value is None else value}\n" for row in rows for name, value in row.items()
    )
