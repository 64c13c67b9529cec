"""docs/operations.md: each runbook is executed as it stands there, with real servers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.runbooks import Block, Ours, Runner, runbooks
from tests.kit.bad_disk import SmallDisk
from tests.kit.faults import Faults
from tests.kit.fixtures import MakeMariaDB, MakeSmallDisk

pytestmark = [pytest.mark.timeout(240)]

RUNBOOKS: Final = runbooks()
FIRST: Final = "Insert a relay"
WITH: Final = {
    FIRST: ("db2", "db3", "relay"),
    "Take a relay out": ("db2", "relay"),
    "Two relays": ("db2", "relay", "relay2"),
    "Restore a relay": ("db2", "relay"),
    "Promote a replica": ("db2", "db3", "relay"),
    "Files are not purged": ("db2", "relay"),
    "The disk is full": ("db2", "relay"),
    "A file is damaged": ("db2", "relay"),
    "Sizing": ("db2", "relay"),
}
"""The hosts of each test, besides `db1`; the page may name more."""
FILE_BYTES: Final = 1 << 20
ROW: Final = 50_000
DISK_MB: Final = 48


class Scene:
    """Hosts of one runbook, and what happens to them in the middle of it."""

    def __init__(self, hosts: dict[str, MariaDB | Ours], path: Path) -> None:
        self.hosts = hosts
        self.runner = Runner(
            hosts,
            path / "bin",
            {
                "rows": lambda: self.insert(30),
                "promoted": self.promoted,
                "gone": self.gone,
                "damage": self.damage,
                "full": self.full,
            },
        )
        self.primary = self.mariadb("db1")
        self.disk: SmallDisk | None = None

    def mariadb(self, name: str) -> MariaDB:
        host = self.hosts[name]
        assert isinstance(host, MariaDB)
        return host

    @property
    def replicas(self) -> list[MariaDB]:
        return [
            host
            for host in self.hosts.values()
            if isinstance(host, MariaDB) and host is not self.primary
        ]

    @property
    def relay(self) -> Ours:
        host = self.hosts["relay"]
        assert isinstance(host, Ours)
        return host

    def run(self, title: str) -> None:
        self.runner.forget()
        assert self.runner.run(RUNBOOKS[title])

    def insert(self, rows: int) -> None:
        self.primary.script(
            *(f"INSERT INTO d.t (a) VALUES (REPEAT('x', {ROW}))" for _ in range(rows))
        )

    def require_equal(self) -> None:
        self.insert(3)
        for replica in self.replicas:
            replica.wait_gtid(self.primary.value("SELECT @@gtid_binlog_pos"))
            assert replica.checksum() == self.primary.checksum()

    # --- what the comments of the page say ---

    def promoted(self) -> None:
        self.primary = self.mariadb("db2")
        self.insert(3)

    def gone(self) -> None:
        """A replica that has been there and is not any more; then files are written that it has not got."""
        replica = self.mariadb("db2")
        replica.q("STOP SLAVE")
        until(lambda: not self.relay.q("SHOW BINLOG REPLICAS"), "a replica that has gone")
        self.insert(60)
        self.relay.q("SET GLOBAL slave_connections_needed_for_purge = 0")
        self.settle()

    def settle(self) -> None:
        """The relay has everything."""
        position = self.primary.value("SELECT @@gtid_binlog_pos")
        assert self.relay.value(f"SELECT MASTER_GTID_WAIT('{position}', 30)") == 0

    def full(self) -> None:
        assert self.disk is not None
        self.insert(400)  # that is purged then, and makes room for all that comes behind it
        self.settle()
        for replica in self.replicas:
            replica.wait_gtid(self.primary.value("SELECT @@gtid_binlog_pos"))
        self.disk.fill(leave=2 << 20)
        self.insert(300)

    def damage(self) -> None:
        """A page of a closed file."""
        path = sorted(self.relay.store.glob("binlog-*.ibb"))[0]
        with path.open("r+b") as file:
            file.seek(5 * 16384 + 100)
            file.write(b"not what was written")


@pytest.fixture
def scene(
    title: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    small_disk: MakeSmallDisk,
    tmp_path: Path,
) -> Iterator[Scene]:
    """A primary with replicas, and hosts for ours."""
    # Who is followed has TLS, as 11.8 has by itself.
    flags = ["--log-bin=mariadb-bin", "--log-slave-updates", "--ssl"]
    hosts: dict[str, MariaDB | Ours] = {"db1": make_upstream(*flags, version="11.8")}
    disk = None
    for name in WITH[title]:
        if name.startswith("db"):
            promoted = title == "Promote a replica" and name == "db2"
            version = "10.11" if (name == "db2") != (title == "Promote a replica") else "11.8"
            hosts[name] = make_replica(*(flags if promoted else flags[:-1]), version=version)
        elif title == "The disk is full":
            disk = small_disk(size_mb=DISK_MB)
            hosts[name] = Ours(disk.path, Faults())
        else:
            hosts[name] = Ours(tmp_path / name)
    scene = Scene(hosts, tmp_path)
    scene.disk = disk
    scene.primary.make_table("d.t", "MEDIUMTEXT")
    for replica in scene.replicas:
        replica.follow(scene.primary)
    yield scene
    for host in hosts.values():
        if isinstance(host, Ours):
            host.discard()


def test_each_runbook_is_executed() -> None:
    """The page has no other ones, and each names the hosts of its test."""
    assert set(RUNBOOKS) == set(WITH)
    for title, blocks in RUNBOOKS.items():
        named = {name for block in blocks for name in block.hosts}
        assert named <= {"db1", "db2", "db3", "relay", "relay2"}, title
        assert {*WITH[title]} - {"db3"} <= {*named, *(n for b in RUNBOOKS[FIRST] for n in b.hosts)}


@pytest.mark.parametrize(
    ("shows", "ends_well"),
    [
        ("a 1\nb <NAME>\n", True),
        ("b 2\n", True),
        ("... 1\n", True),
        ("b 2\na 1\n", False),  # in this order
        ("a\n", False),  # the whole line
        ("a 2\n", False),
    ],
)
def test_what_is_not_seen_is_an_error(shows: str, ends_well: bool, tmp_path: Path) -> None:
    host = Ours(tmp_path / "relay")
    runner = Runner({"relay": host}, tmp_path / "bin", {})
    blocks = [Block("sh", ("relay",), "echo a 1\necho b 2\n"), Block("text", (), shows)]
    with contextlib.nullcontext() if ends_well else pytest.raises(AssertionError, match="shows"):
        assert runner.run(blocks) == 1
    if "<NAME>" in shows:
        later = [
            Block("sh", ("relay",), "echo <NAME> and <NAME>\n"),
            Block("text", (), "2 and 2\n"),
        ]
        assert runner.run(later) == 1
    with pytest.raises(AssertionError):
        runner.run([Block("sh", ("relay",), "false\n")])
    host.discard()


@pytest.mark.by_turns(5)
@pytest.mark.parametrize("title", RUNBOOKS)
def test_as_it_stands_there(title: str, scene: Scene) -> None:
    scene.run(FIRST)
    if title != FIRST:
        scene.insert(40)
        scene.settle()
        scene.run(title)
    if title not in {"Files are not purged"}:
        scene.require_equal()
