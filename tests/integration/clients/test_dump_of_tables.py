"""`mariadb-dump` of tables that are here: a replica that is made of it, while others write, goes on without a gap."""

from __future__ import annotations

import random
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from binlog_server.testing.waiting import until
from tests.integration.clients.programs import TIMEOUT_S, Programs, install_of, server_version
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

USERS = {"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}
SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.purses (id INT PRIMARY KEY, amount INT NOT NULL, note VARCHAR(50)) COMMENT='it''s'",
    "CREATE TABLE shop.moves (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT, b INT, raw VARBINARY(20), at TIMESTAMP(3) "
    "DEFAULT CURRENT_TIMESTAMP(3), words TEXT, KEY by_a (a), UNIQUE KEY one (b, id))",
    "INSERT INTO shop.purses VALUES "
    + ",".join(f"({i}, 100, 'Größe 😀 \\\\ \\' {i}')" for i in range(40)),
)
TABLES = ("shop.purses", "shop.moves")


class Movers:
    """Sessions that move what is in the purses from one to another, until they are stopped: the sum stays."""

    def __init__(self, server: BinlogServer) -> None:
        self.server = server
        self.stopped = threading.Event()
        self.moved = [0, 0]
        self.threads = [threading.Thread(target=self.move, args=(i,)) for i in range(2)]

    def __enter__(self) -> Movers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(TIMEOUT_S)

    def move(self, which: int) -> None:
        rng = random.Random(which)
        with self.server.connect() as connection, connection.cursor() as cursor:
            while not self.stopped.is_set():
                a, b = sorted(rng.sample(range(40), 2))  # in one order: no deadlocks
                cursor.execute("BEGIN")
                cursor.execute(f"UPDATE shop.purses SET amount = amount - 1 WHERE id = {a}")
                cursor.execute(
                    "INSERT INTO shop.moves (a, b, raw, words) VALUES (%s, %s, %s, 'ä'),"
                    " (%s, %s, %s, REPEAT('long ', 20))",
                    (a, b, rng.randbytes(9), b, a, None),
                )
                cursor.execute(f"UPDATE shop.purses SET amount = amount + 1 WHERE id = {b}")
                cursor.execute("COMMIT")
                self.moved[which] += 1


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("how", ["--master-data=2", "--master-data --gtid"])
def test_a_replica_of_a_dump(
    how: str,
    version: str,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
) -> None:
    master = binlog_server(users=USERS, local_tables=True, server_version=server_version(version))
    for text in SCHEMA:
        master.q(text)
    replica = make_replica("--gtid-strict-mode=1", version=version)
    programs = Programs(install_of(replica), master, tmp_path)
    with Movers(master) as movers:
        until(lambda: min(movers.moved) >= 5, "some moves")
        file = tmp_path / "dump.sql"  # it has raw bytes
        options = ("--single-transaction", *how.split(), f"--result-file={file}")
        programs.run("mariadb-dump", *options, "--databases", "shop")
        dump = file.read_bytes()
        during = sum(movers.moved)
        load(replica, programs, dump)
        rows = replica.q("SELECT SUM(amount) AS amount FROM shop.purses")
        assert rows == [{"amount": 40 * 100}], "all of one moment"
        (found,) = re.findall(rb"SET GLOBAL gtid_slave_pos='([^']+)'", dump)
        position = found.decode()
        if "=2" in how:
            replica.q(f"SET GLOBAL gtid_slave_pos='{position}'")
        assert replica.gtid_slave_pos == position
        replica.follow(master)
        until(lambda: sum(movers.moved) >= during + 10, "more moves")
    replica.wait_gtid(master.gtid_binlog_pos, timeout=60)
    for table in TABLES:
        assert replica.q(f"SELECT * FROM {table} ORDER BY id") == master.q(
            f"SELECT * FROM {table} ORDER BY id"
        )
    names = ",".join(TABLES)
    assert replica.q(f"CHECKSUM TABLE {names}") == master.q(f"CHECKSUM TABLE {names}")
    last = {row["id"] for row in replica.q("SELECT MAX(id) AS id FROM shop.moves")}
    assert last == {row["id"] for row in master.q("SELECT MAX(id) AS id FROM shop.moves")}


OF_A_REAL_SERVER = (
    "CREATE DATABASE real_shop",
    "CREATE TABLE real_shop.words (word VARCHAR(40) PRIMARY KEY, other CHAR(9) CHARACTER SET utf8mb3, UNIQUE (other))",
    "CREATE TABLE real_shop.kinds (id INT AUTO_INCREMENT PRIMARY KEY, kind ENUM('a','ß'), body LONGTEXT, j JSON)",
    "INSERT INTO real_shop.words VALUES ('Straße', 'œ'), ('strasze', 'à'), ('😀', 'b '), ('Ж', NULL), ('-', '')",
    "INSERT INTO real_shop.kinds (kind, body, j) VALUES ('SS', REPEAT('ä', 300), '{}'), (NULL, 'x', NULL)",
)


def test_the_dump_of_a_real_server(
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
) -> None:
    """As it is: with uca1400_ai_ci, the default of 11.8. Rows are the same here and on replicas of both versions."""
    real = make_upstream(version="11.8")
    ours = binlog_server(users=USERS, local_tables=True)
    replicas = [make_replica(version=version).follow(ours) for version in ("10.11", "11.8")]
    for text in OF_A_REAL_SERVER:
        real.q(text)
    programs = Programs(install_of(real), ours, tmp_path)
    file = tmp_path / "dump.sql"
    argv = [*programs.install.program("mariadb-dump"), "--no-defaults", "--databases", "real_shop"]
    argv += [f"--host={real.host}", f"--port={real.port}", "--user=root", f"--result-file={file}"]
    subprocess.run(argv, check=True, timeout=TIMEOUT_S)
    dump = file.read_bytes()
    assert dump.count(b"utf8mb4_uca1400_ai_ci") >= 2
    load(ours, programs, dump, "--password=pw")
    assert ours.q("SELECT word FROM real_shop.words WHERE word = 'STRASSE'") == [{"word": "Straße"}]
    checks = "CHECKSUM TABLE real_shop.words, real_shop.kinds"
    ordered = "SELECT * FROM real_shop.words ORDER BY word"
    for server in replicas:
        server.wait_gtid(ours.gtid_binlog_pos)
    for server in (real, *replicas):
        assert server.q(checks) == ours.q(checks)
        assert server.q(ordered) == ours.q(ordered)
        for table in ("words", "kinds"):
            assert server.q(f"SHOW CREATE TABLE real_shop.{table}") == ours.q(
                f"SHOW CREATE TABLE real_shop.{table}"
            )


def load(replica: Any, programs: Programs, dump: bytes, *more: str) -> None:
    argv = [
        *programs.install.program("mariadb"),
        "--no-defaults",
        "--default-character-set=utf8mb4",
    ]
    done = subprocess.run(
        [*argv, f"--host={replica.host}", f"--port={replica.port}", "--user=root", *more],
        input=dump,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
