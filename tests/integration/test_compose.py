"""The compose files of docker/, run as docs/quick-start.md says: relay, test master, Spark beside the relay."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from binlog_server.testing.waiting import until
from tests.kit import images
from tests.kit.images import DOCKER

TABLE = "CREATE DATABASE shop; CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))"
ROW = "INSERT INTO shop.orders VALUES (1, 'a')"
READ = "SELECT note FROM shop.orders"
END = "SELECT @@gtid_binlog_pos"
ROWS = "import pyarrow.dataset as d; print(d.dataset('/lake/orders', format='parquet').to_table().to_pylist())"
LOCAL = ("-h127.0.0.1", "-uroot", "--skip-ssl")


class Project:
    """The containers of some compose files, under a name of their own; ports of this machine as the engine likes."""

    def __init__(self, name: str, files: list[str]) -> None:
        self._name = name
        named = [word for file in files for word in ("-f", str(DOCKER / file))]
        self._files = files
        self._argv = [*images.compose(), "-p", name, *named]
        ports = ("UPSTREAM", "SERVER", "METRICS", "REPLICA_1", "REPLICA_2", "REPLICA_3")
        self._environment = {**os.environ, **{f"{port}_PORT": "0" for port in ports}}

    def run(self, *arguments: str) -> str:
        return _said([*self._argv, *arguments], self._environment)

    def exec(self, service: str, *arguments: str) -> str:
        """What a program in the container of a service prints. By the engine: Compose takes a second for each."""
        label = "label=com.docker.compose."
        named = (f"{label}project={self._name}", f"{label}service={service}")
        asked = [word for filtered in named for word in ("--filter", filtered)]
        (container,) = _said(["docker", "ps", "--quiet", *asked]).split()
        return _said(["docker", "exec", container, *arguments])

    def tried(self, service: str, *arguments: str) -> str | None:
        """The same, or None if the program fails: what it looks for may not be there yet."""
        try:
            return self.exec(service, *arguments)
        except AssertionError:
            return None

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """What the services have logged, where the block fails: `down` takes it away."""
        try:
            yield
        except BaseException:
            print(self.run("logs", "--no-color", "--tail", "200"))
            raise

    def checks(self) -> dict[str, list[str]]:
        """What asks for the health of each service."""
        found = {}
        for name in self._files:
            told = yaml.safe_load((DOCKER / name).read_text("utf-8"))
            for service, its in told["services"].items():
                if "healthcheck" in its:
                    found[service] = its["healthcheck"]["test"][1:]
        return found

    def is_healthy(self, service: str) -> bool:
        """What its check says now: Compose waits for those alone that others depend on."""
        return self.tried(service, *self.checks()[service]) is not None

    def sql(self, service: str, *words: str) -> str:
        """What the program `mariadb` of a service prints."""
        return self.exec(service, "mariadb", "-N", *words).strip()

    def has_row(self, service: str, gtid: str) -> None:
        """The replica applies up to there, and has the row."""
        until(lambda: self.is_healthy(service), f"{service} is healthy", timeout=60)
        asked = f"SELECT MASTER_GTID_WAIT('{gtid}', 60); {READ}"
        assert self.sql(service, *LOCAL, "-e", asked).split() == ["0", "a"], service


def _said(argv: list[str], environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def project() -> Iterator[Callable[..., Project]]:
    made: list[Project] = []

    def make(name: str, *files: str) -> Project:
        made.append(Project(f"binlog-test-{name}-{os.getpid()}", list(files)))
        return made[-1]

    yield make
    for one in made:
        one.run("down", "--volumes", "--timeout", "0")


def relay(project: Callable[..., Project]) -> None:
    images.build("mariadb-10.11", "mariadb-11.8", "server")
    relay = project("relay", "compose.yaml")
    relay.run("up", "-d")
    end = relay.sql("upstream", *LOCAL, "-e", f"{TABLE}; {ROW}; {END}")
    for service in ("replica-1", "replica-2", "replica-3"):
        relay.has_row(service, end)
    until(lambda: relay.is_healthy("server"), "the server is ready", timeout=60)
    assert relay.checks().keys() == {"upstream", "server", "replica-1", "replica-2", "replica-3"}
    inspected = relay.exec("server", "env")
    assert "/run/secrets/users" in inspected
    assert "password_file" in inspected


def master(project: Callable[..., Project]) -> None:
    images.build("mariadb-11.8", "server")
    master = project("master", "compose.master.yaml")
    master.run("up", "-d")
    account = ("-hmaster", "-utester", "-ptester")
    master.has_row("replica", master.sql("replica", *account, "-e", f"{TABLE}; {ROW}; {END}"))
    assert master.checks().keys() == {"master", "replica"}
    until(lambda: master.is_healthy("master"), "the master is ready", timeout=60)


@pytest.mark.parametrize("file", [relay, master], ids=["relay", "master"])
@pytest.mark.by_turns(2)
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_compose_file(
    project: Callable[..., Project], file: Callable[[Callable[..., Project]], None]
) -> None:
    file(project)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_beside_the_relay(project: Callable[..., Project]) -> None:
    images.build("mariadb-10.11", "mariadb-11.8", "server", "spark")
    spark = project("spark", "compose.yaml", "compose.spark.yaml")
    spark.run("up", "-d", "upstream", "server", "spark")
    spark.sql("upstream", *LOCAL, "-e", f"{TABLE}; {ROW}")
    find = ("find", "/lake/orders", "-name", "[!._]*.parquet", "-size", "+0")
    with spark.explained():
        until(lambda: spark.tried("spark", *find), "a file of the table", timeout=300)
        rows = spark.exec("spark", "python3", "-c", ROWS)
    assert "'note': 'a'" in rows


def test_every_compose_file_is_run() -> None:
    said = Path(__file__).read_text("utf-8")
    assert all(f'"{path.name}"' in said for path in DOCKER.glob("compose*.yaml"))
