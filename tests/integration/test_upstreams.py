"""Whatever an upstream writes: a replica of ours ends as one that follows the upstream itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.events.gtid import GtidEvent

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert
from tests.integration.raw_client import all_events
from tests.integration.test_relay_sql import ADMIN, status, wait_status
from tests.integration.test_statements import FORMATS, GTID, ddl, dml, objects
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]

MIB = 1 << 20
WITH_TLS = "--ssl"  # makes its own certificate, from 11.4 on
KEY = "0123456789abcdef" * 4


@dataclass(frozen=True)
class Kind:
    """Of upstream.

    checksums: `binlog_checksum`, set while it runs.
    options: of our server.
    """

    name: str
    flags: Sequence[str]
    encrypted: bool = False
    checksums: Sequence[str] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


KINDS = (
    Kind("minimal-encrypted", ["--binlog-row-image=MINIMAL"], encrypted=True),
    Kind(
        "noblob-compressed",
        [
            "--binlog-row-image=NOBLOB",
            "--binlog-row-metadata=FULL",
            "--log-bin-compress=1",
            "--log-bin-compress-min-len=10",
        ],
        options={"slave_compressed_protocol": True},
    ),
    Kind(
        "checksum-changes",
        ["--binlog-checksum=NONE", "--binlog-row-metadata=MINIMAL"],
        checksums=("CRC32", "NONE", "CRC32"),
    ),
)
FULL_NODUP = Kind("full-nodup", ["--binlog-row-image=FULL_NODUP"])  # from 11.4 on


def encryption(directory: Path) -> list[str]:
    keys = directory / "keys"
    keys.write_text(f"1;{KEY}\n")
    keys.chmod(0o644)
    return [
        "--plugin-load-add=file_key_management",
        f"--file-key-management-filename={keys}",
        "--encrypt-binlog",
    ]


def types_and_keys(db: str) -> Sequence[str]:
    """Columns and tables for which images of rows differ by `binlog_row_image` and metadata."""
    return (
        f"USE {db}",
        "CREATE TABLE every (id INT PRIMARY KEY, n DECIMAL(30,10), f DOUBLE, b BIT(13), y YEAR, d DATE, t TIME(6),"
        " dt DATETIME(3), e ENUM('a', 'b'), s SET('x', 'y', 'z'), v VARCHAR(50) CHARACTER SET latin1,"
        " u TEXT CHARACTER SET utf8mb4, bin VARBINARY(20), big LONGBLOB, j JSON, g POINT, i INET6,"
        " twice INT AS (id * 2) STORED, virt INT AS (id + 1) VIRTUAL)",
        "INSERT INTO every (id, n, f, b, y, d, t, dt, e, s, v, u, bin, big, j, g, i) VALUES"
        " (1, -1234567890.5, 1e300, b'101', 2026, '2026-11-21', '-12:00:00.000001', '2026-11-21 08:00:00.125', 'b',"
        " 'x,z', 'é', '😀', x'00ff', REPEAT('b', 70000), '{\"a\": [1]}', POINT(1, 2), '::1'),"
        " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "UPDATE every SET n = 1 WHERE id = 1",
        "UPDATE every SET big = 'now here' WHERE id = 2",
        "UPDATE every SET u = CONCAT(u, '!'), j = NULL",
        "CREATE TABLE no_key (a INT, t TEXT, b BLOB)",
        "INSERT INTO no_key VALUES (1, 'one', 'x'), (1, 'one', 'x'), (2, NULL, 'y')",
        "UPDATE no_key SET a = 3 WHERE t IS NULL",
        "DELETE FROM no_key WHERE b = 'x' LIMIT 2",
        "CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
        "INSERT INTO child VALUES (1, 1), (2, 1), (3, 2)",
        "DELETE FROM parent WHERE id = 1",
        "CREATE TABLE parted (id INT PRIMARY KEY, a TEXT) PARTITION BY HASH (id) PARTITIONS 3",
        "INSERT INTO parted SELECT seq, REPEAT('p', seq) FROM seq_1_to_200",
        "ALTER TABLE parted COALESCE PARTITION 1",
        "CREATE TABLE uniq (a INT UNIQUE NOT NULL, b TEXT, UNIQUE (b(5)))",
        "INSERT INTO uniq VALUES (1, 'one'), (2, 'two')",
        # No ON DUPLICATE KEY UPDATE: of a FULL_NODUP image even a replica of the upstream itself makes nothing.
        "INSERT IGNORE INTO uniq VALUES (1, 'again'), (3, 'three')",
        "REPLACE INTO uniq VALUES (2, 'replaced')",
        "CREATE USER reader IDENTIFIED BY 'secret'",
        f"GRANT SELECT ON {db}.* TO reader",
        "DROP USER reader",
    )


def files_and_temporaries(db: str, file: Path, binlog_format: str) -> Sequence[str]:
    """LOAD DATA, temporary tables, a procedure with a cursor, a sequence that is set."""
    return (
        f"USE {db}",
        "CREATE TABLE loaded (id INT PRIMARY KEY, a TEXT)",
        f"LOAD DATA INFILE '{file}' INTO TABLE loaded",
        f"LOAD DATA INFILE '{file}' REPLACE INTO TABLE loaded (id, @a) SET a = UPPER(@a)",
        "CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY, a TEXT)",
        "INSERT INTO tmp SELECT id, a FROM loaded WHERE id < 100",
        "INSERT INTO loaded SELECT id + 100000, a FROM tmp ORDER BY id",
        "DROP TEMPORARY TABLE tmp",
        "CREATE PROCEDURE walk() BEGIN DECLARE done INT DEFAULT 0; DECLARE n INT;"
        " DECLARE c CURSOR FOR SELECT id FROM loaded ORDER BY id LIMIT 20;"
        " DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = 1;"
        " OPEN c; REPEAT FETCH c INTO n; UPDATE loaded SET a = CONCAT(a, n) WHERE id = n; UNTIL done END REPEAT;"
        " CLOSE c; END",
        "CALL walk()",
        *(["SELECT SETVAL(s, 5000)"] if binlog_format != "STATEMENT" else []),
    )


def definitions(server: MariaDB) -> list[str]:
    return [
        str(server.q("SHOW CREATE TABLE `{}`.`{}`".format(*name.split(".")))[0])
        for name in server.tables()
    ]


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("kind", [*KINDS, FULL_NODUP], ids=str)
def test_as_if_there_was_nobody_between(
    backend: Backend,
    kind: Kind,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    if kind is FULL_NODUP and backend.version == "10.11":
        pytest.skip("10.11 has no FULL_NODUP")
    upstream = make_upstream(*kind.flags, start=False)
    if kind.encrypted:
        upstream.flags += encryption(upstream.dir)
    upstream.start().create_account()
    file = upstream.dir / "lines"
    file.write_text("".join(f"{n}\tline {n} of many\n" for n in range(5000)))
    file.chmod(0o644)
    server = binlog_server(upstream=upstream, max_binlog_size=262144, **kind.options)
    other = "11.8" if backend.version == "10.11" else "10.11"
    direct = make_replica().follow(upstream)
    ours, of_other_version = (make_replica(version=v).follow(server) for v in (None, other))
    checksums = iter(kind.checksums)
    for name in FORMATS:
        if checksum := next(checksums, None):
            upstream.q(f"SET GLOBAL binlog_checksum={checksum}")
        db = f"d_{name.lower()}"
        upstream.script(
            f"SET SESSION binlog_format={name}",
            *ddl(db),
            *dml(db, name),
            *types_and_keys(db),
            *files_and_temporaries(db, file, name),
        )
    assert_equal(upstream, direct, ours, of_other_version)
    for name in FORMATS:
        db = f"d_{name.lower()}"
        assert objects(direct, db) == objects(ours, db) == objects(of_other_version, db)
    assert definitions(ours) == definitions(direct)
    assert server.log().count("lost upstream") == 0


@pytest.mark.any_version
def test_large_rows_and_transactions(
    backend: Backend, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """By TLS where the upstream has it, and compressed."""
    tls = backend.version != "10.11"
    upstream, server = make_relay(
        *([WITH_TLS] if tls else []),
        "--innodb-log-file-size=256M",
        table="",
        slave_compressed_protocol=not tls,
    )
    replica = make_replica("--innodb-log-file-size=256M").follow(server)
    upstream.script(
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, a LONGBLOB)",
        f"INSERT INTO d.t (a) VALUES (REPEAT('0123456789', {2 * MIB}))",
        "INSERT INTO d.t (a) VALUES ('small')",
        f"INSERT INTO d.t (a) SELECT REPEAT(seq, 250) FROM seq_1_to_{20_000}",
        "UPDATE d.t SET a = 'short' WHERE id = 1",  # with what was there before
    )
    assert_equal(upstream, replica)
    assert ("without TLS, compressed" in following(server.log())) != tls
    assert server.log().count("lost upstream") == 0


def following(log: str) -> str:
    (line,) = [line for line in log.splitlines() if "INFO following" in line]
    return line.partition("from '")[2]


def test_reset_master_upstream(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """While we follow: it says nothing, skips its first groups, and sends later ones; we stop, and say why."""
    upstream, server = make_relay(users=ADMIN)
    before = insert(upstream, 30)
    replica = make_replica().follow(server)
    replica.wait_gtid(before)
    upstream.q("RESET MASTER")
    insert(upstream, 3)
    upstream.q(
        "FLUSH BINARY LOGS"
    )  # until here it waits for what comes behind the place where it was
    insert(upstream, 3)
    row = wait_status(server, Slave_IO_Running="No")
    assert row["Last_IO_Errno"] == 1593
    assert f"but {before} is stored already: its binlog has begun anew" in row["Last_IO_Error"]
    assert row["Gtid_IO_Pos"] == before
    assert server.log().count("stopped following") == 1
    # What is stored is served on.
    late = make_replica().follow(server)
    late.wait_gtid(before)
    assert replica.gtid_slave_pos == late.gtid_slave_pos == before
    # As the text says; and what there is now does not fit to what the replicas have.
    for one in (replica, late):
        one.q("STOP SLAVE")
    until(lambda: not server.q("SHOW SLAVE HOSTS"), "nobody reads")
    for sql in ("RESET MASTER", "START SLAVE"):
        server.q(sql)
    server.wait_position(upstream.gtid_binlog_pos)
    replica.q("START SLAVE")
    assert replica.wait_stopped()["Last_IO_Errno"] == 1236


@pytest.mark.parametrize("rows_after", [3, 60], ids=["behind us", "beyond us"])
def test_reset_master_upstream_is_seen_where_its_next_file_begins(
    backend: object, rows_after: int, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """While we follow. What it wrote meanwhile is not sent, nor is anything else: only the state tells."""
    upstream = make_upstream()
    upstream.make_table()
    upstream.q("INSERT INTO d.t (a) SELECT REPEAT('x', 200) FROM d.seq_1_to_500")
    before = insert(upstream)
    server = binlog_server(upstream=upstream, users=ADMIN)
    server.wait_position(before)
    stored = all_events(server)
    wait_status(server, Slave_IO_Running="Yes")
    upstream.q("RESET MASTER")
    after = insert(upstream, rows_after)
    upstream.q("FLUSH BINARY LOGS")
    row = wait_status(server, Slave_IO_Running="No", Last_IO_Errno=1593)
    wanted = f"a binlog file of it begins behind {after}, but {before} is stored already"
    assert wanted in row["Last_IO_Error"]
    assert all_events(server) == stored


def test_reset_master_upstream_that_overtakes_us(
    backend: object, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """While we follow, by bytes and by numbers: it ends the dump, and what we would go on behind is another group."""
    upstream = make_upstream()
    upstream.make_table()
    upstream.q("INSERT INTO d.t (a) SELECT REPEAT('x', 200) FROM d.seq_1_to_500")
    before = insert(upstream, 5)
    server = binlog_server(upstream=upstream, users=ADMIN)
    server.wait_position(before)
    stored = all_events(server)
    wait_status(server, Slave_IO_Running="Yes")
    upstream.q("RESET MASTER")
    insert(upstream, 20)
    upstream.q("INSERT INTO d.t (a) SELECT REPEAT('x', 200) FROM d.seq_1_to_1000")
    row = wait_status(server, Slave_IO_Running="No", Last_IO_Errno=1593)
    assert before in row["Last_IO_Error"]
    assert all_events(server) == stored


def test_its_files_and_positions(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """As a replica shows them, and the master itself."""
    upstream, server = make_relay(table="", users=ADMIN)
    replica = make_replica().follow(upstream)
    upstream.make_table()
    columns = (
        "Master_Log_File",
        "Read_Master_Log_Pos",
        "Relay_Master_Log_File",
        "Exec_Master_Log_Pos",
    )

    def is_there(follower: BinlogServer | MariaDB) -> bool:
        """The place is asked for each time: behind a FLUSH the master logs another event, when InnoDB has synced."""
        place = upstream.q("SHOW MASTER STATUS")[0]
        wanted = dict(zip(columns, 2 * [place["File"], place["Position"]], strict=True))
        return wanted.items() <= status(follower).items()

    for sql in (
        "INSERT INTO d.t (a) VALUES ('x')",
        "FLUSH BINARY LOGS",
        "INSERT INTO d.t (a) SELECT REPEAT('x', 200) FROM d.seq_1_to_20000",  # not in one piece
        "ALTER TABLE d.t ADD COLUMN b INT",
    ):
        upstream.q(sql)
        for follower in (server, replica):
            until(partial(is_there, follower), f"{follower} shows what the master does")
    server.restart()
    until(partial(is_there, server), "the same behind a restart")


def test_a_master_that_is_a_writable_replica(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """Without gtid_strict_mode: in one domain the numbers of two servers go back and forth, and meet."""
    first = make_upstream()
    first.make_table()
    first.make_table("e.t")
    second = make_upstream("--log-slave-updates")
    second.follow(first)
    server = binlog_server(upstream=second, users=ADMIN)
    replica = make_replica().follow(server)
    for _ in range(2):
        second.q("STOP SLAVE")
        insert(second, 8, table="e.t")
        insert(first, 3)  # with numbers that the other one has, too
        second.q("START SLAVE")
        # Not MASTER_GTID_WAIT, which goes by the numbers of the domain.
        until(lambda: second.gtid_slave_pos == first.gtid_binlog_pos, "the other one's groups")
        second.q("FLUSH BINARY LOGS")
        server.wait_position(second.gtid_binlog_pos)
        server.restart()
    numbers = [
        GtidEvent.parse(event).gtid.seq_no for event in all_events(server) if event[4] == GTID
    ]
    assert numbers != sorted(set(numbers))
    until(lambda: replica.gtid_slave_pos == second.gtid_binlog_pos, "the replica there")
    assert replica.checksum() == second.checksum()
    assert "stopped following" not in server.log()


def test_a_number_that_was_used_before_is_refused(backend: object, make_relay: MakeRelay) -> None:
    """A GTID is an address here; a MariaDB replica without gtid_strict_mode takes it."""
    upstream, server = make_relay(users=ADMIN)
    before = insert(upstream)
    server.wait_position(before)
    used = f"0-{upstream.server_id}-3"
    upstream.script("SET SESSION gtid_seq_no=3", "INSERT INTO d.t (a) VALUES ('again 3')")
    row = wait_status(server, Slave_IO_Running="No", Last_IO_Errno=1593)
    assert f"it sends {used}, but {before} is stored already" in row["Last_IO_Error"]
    # The way out that it tells of.
    after = insert(upstream)
    for sql in ("RESET MASTER", f"SET GLOBAL gtid_slave_pos='{after}'", "START SLAVE"):
        server.q(sql)
    server.wait_position(insert(upstream))


def shows(replica: MariaDB, wanted: dict[str, object]) -> bool:
    return wanted.items() <= replica.replica_status().items()


def test_purged_upstream(backend: object, make_relay: MakeRelay) -> None:
    """What comes next is gone there while we are away."""
    upstream, server = make_relay(users=ADMIN)
    before = insert(upstream)
    server.wait_position(before)
    stored = all_events(server)
    server.stop()
    insert(upstream)
    upstream.q("FLUSH BINARY LOGS")
    last = upstream.q("SHOW BINARY LOGS")[-1]["Log_name"]
    insert(upstream)

    def purged() -> bool:  # not while a crash would need the files
        upstream.q(f"PURGE BINARY LOGS TO '{last}'")
        return len(upstream.q("SHOW BINARY LOGS")) == 1

    until(purged, "the files behind our position are purged")
    server.start()
    row = wait_status(server, Slave_IO_Running="No", Last_IO_Errno=1236)
    assert "purged" in row["Last_IO_Error"]
    assert row["Gtid_IO_Pos"] == before
    assert all_events(server) == stored
