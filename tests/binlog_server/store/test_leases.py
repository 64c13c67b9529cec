"""Leases hold files back, until their end; they survive a restart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import BinlogInUse, DiskFull
from binlog_storage.ibb.file_names import file_name
from binlog_storage.tables.facts import OfflineFacts
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.sql.maintenance import server_error
from binlog_server.store.leases import Leases
from tests.binlog_server.lab import transaction

OPTIONS = StoreOptions(max_binlog_size=1 << 16, slave_connections_needed_for_purge=0)


class World:
    """A store of four files, 0-1-1 to 0-1-3 in the first three; a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.disk = MemoryDisk()
        self.engine = IbbEngine(self.disk, OPTIONS, facts=StateStore(self.disk))
        self.state = self.engine.facts
        for seq_no in range(1, 4):
            gtid = Gtid(0, 1, seq_no)
            self.engine.append(transaction(gtid), gtid)
            self.engine.flush()
        self.leases = self.opened()

    def opened(self) -> Leases:
        return Leases(self.engine, self.state, lambda: self.now)

    def restart(self) -> None:
        self.disk = self.disk.after_crash()
        self.engine = IbbEngine(self.disk, OPTIONS, facts=StateStore(self.disk))
        self.state = self.engine.facts
        self.leases = self.opened()

    def first_left(self) -> int:
        """After a purge of all that may go."""
        self.leases.expire()
        self.engine.purge_to(3)
        return self.engine.files()[0].number


@pytest.fixture
def world() -> World:
    return World()


def test_holds_from_its_position_on(world: World) -> None:
    lease = world.leases.create("etl", "0-1-1", None, None)
    assert file_name(lease.from_file) == file_name(1)
    assert world.first_left() == 1
    plan = world.engine.purge_to(3)
    assert plan.why == "it is held by the lease 'etl'"
    assert world.leases.drop("etl")
    assert world.first_left() == 3
    assert not world.leases.drop("etl")


def test_holds_all_without_a_position(world: World) -> None:
    world.leases.create("etl", None, None, None)
    assert world.first_left() == 0


def test_is_moved_by_replacing_it(world: World) -> None:
    world.leases.create("etl", "", None, None)
    with pytest.raises(ServerError, match=r"^1105 .*exists"):
        world.leases.create("etl", "0-1-2", None, None)
    assert world.first_left() == 0
    world.leases.create("etl", "0-1-2", None, None, or_replace=True)
    assert world.first_left() == 2
    assert len(world.engine.references.holds()) == 1


def test_alter_moves_forward_and_renews(world: World) -> None:
    world.leases.create("etl", "0-1-1", 1500.0, 10**9)
    world.now = 1400.0
    moved = world.leases.alter("etl", "0-1-2", None, None)
    assert (file_name(moved.from_file), moved.position) == (file_name(2), "0-1-2")
    assert (moved.created, moved.until, moved.max_bytes) == (1000.0, 1500.0, 10**9)
    assert world.first_left() == 2
    renewed = world.leases.alter("etl", None, 2500.0, None)
    assert (file_name(renewed.from_file), renewed.until) == (file_name(2), 2500.0)
    world.now = 2400.0
    world.restart()
    assert world.leases.all() == [renewed]
    assert world.first_left() == 2
    assert len(world.engine.references.holds()) == 1


def test_alter_of_one_without_a_position(world: World) -> None:
    """Its first file was the oldest one when it was made; it stays that."""
    world.leases.create("etl", None, None, None)
    assert world.leases.alter("etl", None, 2000.0, None).from_file == 0
    assert world.first_left() == 0


def test_what_alter_refuses_changes_nothing(world: World) -> None:
    lease = world.leases.create("etl", "0-1-2", None, None)
    for arguments, said in (
        (("0-1-1", None, None), "CREATE OR REPLACE goes back"),
        ((None, 1000.0, None), "ended already"),
        ((None, None, 5), "more than MAX_BYTES 5"),
    ):
        with pytest.raises(ServerError, match=f"^1105 .*{said}"):
            world.leases.alter("etl", *arguments)
    with pytest.raises(ServerError, match=r"^1941 "):
        world.leases.alter("etl", "nonsense", None, None)
    with pytest.raises(ServerError, match=r"^1105 .*no lease 'other'"):
        world.leases.alter("other", None, None, None)
    assert world.leases.all() == [lease]
    assert world.first_left() == 2
    assert len(world.engine.references.holds()) == 1


def test_one_that_has_ended_cannot_be_renewed(world: World) -> None:
    """Files may have gone: its consumer must hear of it."""
    world.leases.create("etl", "0-1-1", 1500.0, None)
    world.now = 1500.0
    with pytest.raises(ServerError, match=r"^1105 .*dropped, or has ended"):
        world.leases.alter("etl", None, 2500.0, None)


def test_purge_tells_until_when(world: World) -> None:
    world.leases.create("etl", "0-1-1", 90_000.0, 10**9)
    plan = world.engine.purge_to(3)
    assert plan.why == (
        "it is held by the lease 'etl' until 1970-01-02 01:00:00Z up to 1000000000 bytes"
    )


def test_a_budget_that_is_used_up_already(world: World) -> None:
    with pytest.raises(
        ServerError, match=r"^1105 .*take 131072 bytes already, more than MAX_BYTES 1000"
    ):
        world.leases.create("etl", "0-1-1", None, 1000)
    assert world.engine.references.holds() == []


def test_deadline(world: World) -> None:
    world.leases.create("etl", None, 1500.0, None)
    world.now = 1499.0
    assert world.first_left() == 0
    world.now = 1500.0
    assert world.leases.all() == []
    assert world.first_left() == 3
    with pytest.raises(ServerError, match=r"^1105 .*ended already"):
        world.leases.create("etl", None, 1500.0, None)


def test_budget(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.leases.create("etl", "0-1-1", None, 200_000)
    assert world.leases.held_bytes(world.leases.all()[0]) == 2 * 32768 + 65536
    assert world.first_left() == 1
    world.engine.flush()
    world.engine.flush()
    assert world.first_left() == 1
    world.engine.flush()
    world.engine.flush()
    assert world.first_left() == 3
    assert world.leases.all() == []
    assert "lease 'etl' ends: " in caplog.text


def test_survives_a_restart(world: World) -> None:
    lease = world.leases.create("etl", "0-1-1", 5000.0, 10**9)
    world.leases.create("gone", None, None, None)
    world.leases.drop("gone")
    world.restart()
    assert world.leases.all() == [lease]
    assert world.first_left() == 1
    world.now = 5000.0
    world.restart()
    assert world.leases.all() == []
    assert world.state.items("lease/") == []


def test_refusals(world: World) -> None:
    for name in ("", "x" * 65, "a\nb"):
        with pytest.raises(ServerError, match=r"^1105 .*name"):
            world.leases.create(name, None, None, None)
    with pytest.raises(ServerError, match=r"^1941 "):
        world.leases.create("etl", "nonsense", None, None)
    world.first_left()
    with pytest.raises(ServerError, match=r"^1105 .*purged"):
        world.leases.create("etl", "0-1-1", None, None)
    assert world.engine.references.holds() == []


def test_reset_is_refused_while_there_is_one(world: World) -> None:
    world.leases.create("etl", None, None, None)
    with pytest.raises(BinlogInUse):
        world.engine.reset()


def test_the_end_of_one_makes_room_on_a_full_disk(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end cannot be kept, which keeps neither PURGE nor a start from what they do."""
    world.leases.create("gone", "0-1-1", 2000.0, None)
    world.now = 2001.0

    with no_room(world):
        assert world.opened().all() == []
        assert world.first_left() == 3
        assert "Lease 'gone': no room (injected)" in caplog.text
    world.restart()
    assert world.leases.all() == []


@contextlib.contextmanager
def no_room(world: World) -> Iterator[None]:
    """The disk is full, and the redo log, too."""

    def full(changes: Mapping[str, Any]) -> None:
        raise DiskFull("no room (injected)")

    with patch.object(world.state, "update", full):
        yield


def test_on_a_full_disk_a_lease_is_kept_where_the_log_has_room(world: World) -> None:
    def full(kind: str, name: str) -> None:
        if kind in ("create", "allocate"):
            raise DiskFull(f"cannot {kind} {name}: No space left on device (injected)")

    world.disk.fault = full
    world.leases.create("etl", "0-1-1", None, None)
    world.leases.create("backup", None, None, None)
    assert world.leases.drop("backup")
    world.restart()
    assert [lease.name for lease in world.leases.all()] == ["etl"]


def test_who_lets_files_go_is_not_refused_on_a_full_disk(world: World) -> None:
    """It is kept when there is room; a restart before that finds the lease as it was."""
    told: list[str] = []
    world.leases.create("etl", "0-1-1", None, None)
    world.leases.create("backup", "0-1-1", None, None)
    with no_room(world):
        assert world.leases.drop("backup", told.append)
        world.leases.alter("etl", "0-1-2", None, None, told.append)
        assert [text.split(":")[0] for text in told] == ["Lease 'backup'", "Lease 'etl'"]
        assert "no room (injected); until there is room, a restart" in told[0]
        assert world.first_left() == 2
        with pytest.raises(DiskFull):  # what holds files for longer must be kept
            world.leases.alter("etl", None, 9e9, None, told.append)
        with pytest.raises(DiskFull):
            world.leases.create("new", None, None, None)
        before = Leases(world.engine, OfflineFacts(world.disk.after_crash()), lambda: world.now)
        assert [(lease.name, file_name(lease.from_file)) for lease in before.all()] == [
            ("backup", file_name(1)),
            ("etl", file_name(1)),
        ]
        for hold in before._holds.values():
            hold.release()
        world.leases.expire()
        assert len(told) == 2
    world.leases.expire()
    world.restart()
    assert [(lease.name, file_name(lease.from_file)) for lease in world.leases.all()] == [
        ("etl", file_name(2))
    ]


def test_a_full_disk_has_a_number_of_its_own() -> None:
    error = server_error(DiskFull("cannot create x: No space left on device"))
    assert (error.errno, error.sqlstate) == (1021, "HY000")
    assert "cannot create x" in error.message


def test_who_holds_purge_is_told_by_kind_and_name(world: World) -> None:
    """As metrics label it; the words are for EXPLAIN PURGE."""
    world.leases.create("etl", None, None, None)
    (holder,) = world.engine.explain_purge(1)[0].held_by
    assert (holder.kind, holder.name) == ("lease", "etl")
    assert holder == "it is held by the lease 'etl'"
