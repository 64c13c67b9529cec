"""Writes and syncs of the store fail under load. What failed is not tried again as if nothing had been: the server
accepts nothing more, serves what is durable, and says so; or ends, if told to. Nothing acknowledged is lost.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.errors import StorageError

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Row
from binlog_server.testing.waiting import until
from tests.integration.committers import CLIENTS, TABLE, USERS, Committers, connect, make_table
from tests.integration.load import assert_equal, load
from tests.kit.faults import Faults
from tests.kit.fixtures import (
    MakeBinlogServer,
    MakeFailingDisk,
    MakeMariaDB,
    MakeThinDisk,
)
from tests.kit.server import BinlogServer
from tests.storage.groups import group, gtid_of, read_all
from tests.storage.tables.test_sqlite_killed import run, tell

OPTIONS = {"users": USERS, "max_binlog_size": 1 << 20, "innodb_log_file_size": 4 << 20}
ROWS = f"SELECT id FROM {TABLE}"
ER_ERROR_ON_WRITE = 1026
REFUSES = "accepts nothing more"
"""What the log says."""

CALLS = [
    ("fdatasync", ".redo"),
    ("pwrite", ".redo"),
    ("fdatasync", ".ibb"),
    ("pwritev", ".ibb"),
]


def ids(found: list[Row]) -> set[int]:
    return {row["id"] for row in found}


def refuses(server: BinlogServer) -> pymysql.Error:
    """What a client is told that comes now."""
    with connect(server) as connection, connection.cursor() as cursor:
        with pytest.raises(pymysql.Error) as caught:
            cursor.execute(f"INSERT INTO {TABLE} VALUES (1, 'late')")
        cursor.execute("SELECT 1")  # the connection is as good as before
    return caught.value


def served(server: BinlogServer, replica: MariaDB, late: MariaDB, acknowledged: set[int]) -> None:
    """The server lives; the replica, and one that comes now, get all that clients know of."""
    assert server.alive()
    late.follow(server)
    for one in (replica, late):
        one.wait(ROWS, lambda found: acknowledged <= ids(found))
    # The group under way may have become durable or not; but the two were told the same.
    until(lambda: late.gtid_slave_pos == replica.gtid_slave_pos, "the same end")


def restarted(
    server: BinlogServer, acknowledged: set[int], replica: MariaDB, late: MariaDB
) -> None:
    """On a sound disk: all is there, and more can be committed."""
    server.start()
    committers = Committers.at_work(server, random.Random(1), first=500_000_000)
    committers.end()
    end = server.gtid_binlog_pos
    for one in (replica, late):
        one.wait_gtid(end)
        assert acknowledged | committers.acknowledged <= ids(one.q(ROWS))
    assert replica.checksum() == late.checksum()
    server.stop()


@pytest.mark.by_turns(3)
@pytest.mark.parametrize(
    ("call", "file"), CALLS, ids=[f"{call}-{file[1:]}" for call, file in CALLS]
)
def test_one_call_fails(
    call: str,
    file: str,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    rng: random.Random,
) -> None:
    """Once; the next one would work, and would hide it."""
    faults = Faults()
    server = binlog_server(faults=faults, **OPTIONS)
    replica = make_replica(version="10.11").follow(server)
    make_table(server)
    committers = Committers.at_work(server, rng)
    faults.inject(call, file=file, error=errno.EIO, times=1, written=True)
    until(lambda: REFUSES in server.log(), "notice of the error")
    errors = committers.errors()
    assert len(errors) == CLIENTS
    for error in (*errors, refuses(server)):
        assert error.args[0] == ER_ERROR_ON_WRITE
        assert "Input/output error" in error.args[1]
    late = make_replica(version="11.8")
    served(server, replica, late, committers.acknowledged)
    server.kill()
    faults.clear()
    restarted(server, committers.acknowledged, replica, late)


def test_a_disk_that_dies(
    failing_disk: MakeFailingDisk,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    rng: random.Random,
) -> None:
    """EIO of a real kernel, from now on and for all that is written. What was read lately can be read on."""
    disk = failing_disk()
    server = binlog_server(directory=disk.path / "data", **OPTIONS)
    replica = make_replica(version="10.11").follow(server)
    make_table(server)
    committers = Committers.at_work(server, rng)
    disk.fail()
    until(lambda: REFUSES in server.log(), "notice of the error")
    assert len(committers.errors()) == CLIENTS
    refuses(server)
    late = make_replica(version="11.8")
    served(server, replica, late, committers.acknowledged)
    server.kill()
    disk.restart()
    restarted(server, committers.acknowledged, replica, late)


def test_a_disk_that_has_promised_too_much(
    thin_disk: MakeThinDisk,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    rng: random.Random,
) -> None:
    """The sync says ENOSPC, and the next one that all is well. To wait for room, as for a new file, would be wrong."""
    disk = thin_disk()
    server = binlog_server(directory=disk.path / "data", faults=Faults(), **OPTIONS)
    replica = make_replica(version="10.11").follow(server)
    make_table(server)
    committers = Committers.at_work(server, rng)
    disk.fail(leave=1 << 20)
    until(lambda: REFUSES in server.log(), "notice of the error")
    assert len(committers.errors()) == CLIENTS
    disk.heal()
    refuses(server)
    late = make_replica(version="11.8")
    served(server, replica, late, committers.acknowledged)
    server.kill()
    disk.restart()
    restarted(server, committers.acknowledged, replica, late)


def opened(path: Path, *, is_ibb: bool) -> IbbEngine | ClassicEngine:
    disk = OsDisk(path)
    if not is_ibb:
        return ClassicEngine(disk)
    return IbbEngine(disk, StoreOptions(max_binlog_size=8 << 20, innodb_log_file_size=4 << 20))


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("is_ibb", [True, False], ids=["ibb", "traditional"])
def test_another_start_on_the_same_disk_and_a_power_cut(
    thin_disk: MakeThinDisk, *, is_ibb: bool
) -> None:
    """The kernel shows the next process what it has lost, and ext4 loses what is written over it. Whatever that process
    has told durable is there when the power comes back."""
    disk = thin_disk()
    path = disk.path / "data"
    path.mkdir()

    def lives(first: int, last: int, fails_at: int) -> Callable[[Path, int], None]:
        def live(path: Path, _: int) -> None:
            engine = opened(path, is_ibb=is_ibb)
            for number in range(first, last):
                if number == fails_at:
                    disk.fail()
                payload, gtid = group(Gtid(0, 1, number), 60_000)
                try:
                    engine.append(payload, gtid)
                    engine.sync()
                    tell("told", number)
                    if number % 5 == 0:
                        engine.flush()
                except StorageError:
                    tell("failed", number)
                    break
            tell("end", 0)

        return live

    told = run(path, 0, lives(1, 100, fails_at=18))
    assert told[-2][0] == "failed"
    disk.heal()
    told += run(path, 0, lives(200, 240, fails_at=0))
    disk.restart()
    engine = opened(path, is_ibb=is_ibb)
    found = {gtid.seq_no for payload in read_all(engine) if (gtid := gtid_of(payload))}
    engine.close()
    assert {number for what, number in told if what == "told"} <= found


def test_relay(
    make_upstream: MakeMariaDB, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """It stops following, serves what it has, and after a restart gets the rest."""
    upstream = make_upstream()
    upstream.make_table()
    faults = Faults()
    server = binlog_server(upstream=upstream, faults=faults, **{**OPTIONS, "users": None})
    replica = make_replica().follow(server)
    with load(upstream) as running:
        running.wait_more(20)
        faults.inject("fdatasync", error=errno.EIO, times=1, written=True)
        until(lambda: "stopped following" in server.log(), "notice of the error")
        running.wait_more(20)
        assert REFUSES in server.log()
    late = make_replica(version="11.8").follow(server)
    until(lambda: late.gtid_slave_pos == replica.gtid_slave_pos, "the same end")
    assert upstream.gtid_binlog_pos != replica.gtid_slave_pos
    server.kill()
    faults.clear()
    server.start()
    assert_equal(upstream, replica, late)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("file", [".redo", ".ibb"])
def test_abort_server(
    file: str, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer, rng: random.Random
) -> None:
    faults = Faults()
    server = binlog_server(faults=faults, binlog_error_action="ABORT_SERVER", **OPTIONS)
    make_table(server)
    committers = Committers.at_work(server, rng)
    faults.inject("fdatasync", file=file, error=errno.EIO, times=1, written=True)
    assert server.wait_exit(30) == 1
    assert len(committers.errors()) == CLIENTS
    assert "the server ends, as binlog_error_action=ABORT_SERVER says" in server.log()
    faults.clear()
    server.start()
    replica = make_replica().follow(server)
    replica.wait(ROWS, lambda found: committers.acknowledged <= ids(found))
