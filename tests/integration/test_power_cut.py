"""The power of the disk with the store goes: under the live server, with clients committing and replicas attached.

Replicas live elsewhere and go on. After each cut: what was acknowledged is in the store, no replica has what is not,
and replication goes on by itself.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.errors import StorageError

from binlog_server.store.store_directory import StoreDirectory
from binlog_server.testing import rundir
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.integration.committers import CLIENTS, USERS, Committers, ids_in, make_table, sleep_some
from tests.integration.load import assert_equal, load
from tests.integration.store_findings import verified
from tests.kit.cut_disk import CutDisk
from tests.kit.faults import Faults
from tests.kit.fixtures import MakeBinlogServer, MakeCutDisk, MakeMariaDB
from tests.kit.server import BinlogServer
from tests.storage.groups import read_from

STRICT = ("--log-bin=replica-bin", "--log-slave-updates=1", "--gtid-strict-mode=1")
"""A replica that stops (1950) at a group that comes twice or belies what it has."""

VERSIONS = ("10.11", "11.8")
SIZES = (64 << 10, 256 << 10, 1 << 20)  # of files; the next start takes another
TOTAL = 48 << 20
LOG_BYTES = 4 << 20
OPTIONS = {
    "users": USERS,
    "innodb_log_file_size": LOG_BYTES,
    "max_binlog_total_size": TOTAL,
    "slave_connections_needed_for_purge": len(VERSIONS),
    "replica_slot_seconds": 0,  # the size of the store stays what this test says
}


def contains(state: BinlogState, position: SlavePosition) -> bool:
    return all((state.get(g.domain_id, g.server_id) or 0) >= g.seq_no for g in position)


def received(replica: MariaDB) -> SlavePosition:
    """What the replica has been sent, applied or not: once all is read that was on its way."""
    until(lambda: replica.replica_status()["Slave_IO_Running"] != "Yes", "noticed that we are gone")
    return SlavePosition.parse(str(replica.replica_status()["Gtid_IO_Pos"]))


@dataclass
class Rig:
    """A server on a disk that can be cut, its replicas, and what was seen of the two over all cuts."""

    disk: CutDisk
    server: BinlogServer
    replicas: list[MariaDB]
    rng: random.Random
    before: SlavePosition = field(default_factory=SlavePosition)
    """Where the store ended after the last cut."""
    ids: set[int] = field(default_factory=set)
    """Of rows in the store."""
    ahead: list[str] = field(default_factory=list)
    """Replicas that had what the store has not."""

    def cut(self) -> None:
        """Cut, kill, look at what is left, start again."""
        sleep_some(self.rng, 0.4)
        if self.rng.random() < 0.5:
            self.disk.write_back(self.rng)
        if self.rng.random() < 0.5:
            self.server.pause()  # it goes down at once, and not a moment after its disk
        self.disk.cut()
        sleep_some(self.rng, 0.02)  # time to say something wrong
        self.server.kill()
        self.disk.restart()
        state = self._look()
        for replica in self.replicas:
            for position in (received(replica), SlavePosition.parse(replica.gtid_slave_pos)):
                if not contains(state, position):
                    self.ahead.append(f"{replica.name} at {position}, the store at {state}")
        self.server.options["max_binlog_size"] = self.rng.choice(SIZES)
        self.server.start()

    def _look(self) -> BinlogState:
        """What a start finds, in a copy of what the disk holds."""
        copy = rundir.new_dir("store") / "copy"
        shutil.copytree(self.server.directory, copy)
        store = StoreDirectory(copy, StoreOptions(innodb_log_file_size=LOG_BYTES))
        try:
            state = store.engine.binlog_state()
            start = store.engine.find_start(self.before).position
            self.ids |= ids_in(read_from(store.engine, start))
            self.before = state.position()
        finally:
            store.close()
        assert not verified(copy)
        shutil.rmtree(copy.parent)
        return state

    def wait_replicas(self) -> None:
        for replica in self.replicas:
            if replica.replica_status()["Last_IO_Errno"] == 1236:
                # The server was still there to tell it that its disk cannot be read. Else it comes by itself.
                replica.q("START SLAVE")
            replica.wait_running()

    def finish(self) -> None:
        """Replicas come to the end, and are equal; the store is sound."""
        self.wait_replicas()
        position = self.server.gtid_binlog_pos
        for replica in self.replicas:
            replica.wait_gtid(position, 40)
            assert replica.replica_status()["Last_SQL_Errno"] == 0
        first, *others = [replica.checksum() for replica in self.replicas]
        assert all(other == first for other in others)
        self.server.stop()
        assert not verified(self.server.directory)


NewRig = Callable[..., Rig]


@pytest.fixture
def new_rig(
    cut_disk: MakeCutDisk,
    binlog_server: MakeBinlogServer,
    make_replica: MakeMariaDB,
    rng: random.Random,
) -> NewRig:
    def new(kind: str = "ext4", **options: Any) -> Rig:
        disk = cut_disk(kind)
        options = {**OPTIONS, "max_binlog_size": rng.choice(SIZES), **options}
        server = binlog_server(directory=disk.path / "data", **options)
        replicas = [make_replica(*STRICT, version=v).follow(server) for v in VERSIONS]
        return Rig(disk, server, replicas, rng)

    return new


def cut_under_load(rig: Rig, cuts: int) -> Committers:
    """Clients commit; the power goes; again and again. Returns what they know."""
    make_table(rig.server)
    committers = Committers(rig.server, rig.rng)
    for _ in range(cuts):
        rig.wait_replicas()  # before the load: it could write, and purge, any amount meanwhile
        committers.start()
        committers.wait_more(20)
        rig.cut()
        assert len(committers.errors()) == CLIENTS
    committers.start()
    committers.wait_more(20)
    committers.end()
    return committers


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    slow = pytest.param(many, marks=pytest.mark.slow)
    return pytest.mark.parametrize("cuts", [few, slow])


@few_or_many(2, 25)
def test_ext4(new_rig: NewRig, cuts: int) -> None:
    check_nothing_lost(new_rig("ext4"), cuts)


@few_or_many(1, 25)
def test_xfs(new_rig: NewRig, cuts: int) -> None:
    check_nothing_lost(new_rig("xfs"), cuts)


def check_nothing_lost(rig: Rig, cuts: int) -> None:
    committers = cut_under_load(rig, cuts)
    rig.finish()
    rows = applied(rig.replicas[0])
    print(f"{cuts} cuts, {len(committers.acknowledged)} rows acknowledged")
    assert not committers.acknowledged - rows, "lost what was acknowledged"
    assert not rig.ahead
    assert rows <= committers.acknowledged | committers.unknown


def applied(replica: MariaDB) -> set[int]:
    return {row["id"] for row in replica.q("SELECT id FROM d.t")}


@few_or_many(1, 10)
@pytest.mark.by_turns(2)
@pytest.mark.parametrize("setting", [0, 2])
def test_when_nothing_was_promised(new_rig: NewRig, cuts: int, setting: int) -> None:
    """Clients may lose what they were acknowledged; replicas have none of that."""
    rig = new_rig(innodb_flush_log_at_trx_commit=setting)
    committers = cut_under_load(rig, cuts)
    rig.finish()
    lost = committers.acknowledged - applied(rig.replicas[0])
    print(f"{cuts} cuts, lost {len(lost)} of {len(committers.acknowledged)} rows")
    assert not rig.ahead


@few_or_many(1, 20)
def test_relay(new_rig: NewRig, make_upstream: MakeMariaDB, cuts: int) -> None:
    """What was lost comes again from the upstream, and nothing comes twice."""
    upstream = make_upstream()
    upstream.make_table()
    rig = new_rig(upstream=upstream, users=None)
    with load(upstream) as running:
        for _ in range(cuts):
            running.wait_more(20)
            rig.wait_replicas()
            rig.cut()
        rig.wait_replicas()
    assert_equal(upstream, *rig.replicas)
    assert not rig.ahead
    rig.finish()


def test_a_server_that_does_not_sync_is_found_out(new_rig: NewRig) -> None:
    """A test of the tests above. One cut may find nothing: whoever says `sync` on this machine syncs for the server."""
    faults = Faults()
    rig = new_rig(faults=faults)
    make_table(rig.server)
    faults.inject("fdatasync")
    committers = Committers(rig.server, rig.rng)
    for _ in range(10):
        rig.wait_replicas()
        committers.start()
        committers.wait_more(50)
        for replica in rig.replicas:
            replica.wait_gtid(rig.server.gtid_binlog_pos)
        try:
            rig.cut()
        except (StorageError, RuntimeError):
            return  # it did not even open
        finally:
            committers.errors()
        if rig.ahead:
            break
    assert committers.acknowledged - rig.ids
    assert rig.ahead
