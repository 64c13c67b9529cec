"""When the scrub works, how fast, and what it tells; by a clock of its own."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.settings.config import Config
from binlog_server.store.scrub import STEP_S, Scrub
from tests.binlog_server.lab import transaction
from tests.storage.groups import run_dry, settle
from tests.storage.sizes import small

INTERVAL, RATE, IDLE_S = 3600, 4 * PAGE_SIZE, 10.0


class World:
    """A store of some files of one group each."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.backup = False
        self.config = Config(
            binlog_directory=Path("/none"), binlog_scrub_rate=RATE, binlog_scrub_interval=INTERVAL
        )
        self.disk = MemoryDisk()
        self._open()
        for seq_no in range(1, 7):
            gtid = Gtid(0, 1, seq_no)
            self.engine.append(transaction(gtid), gtid)
            self.engine.flush()
        settle(self.engine)

    def _open(self) -> None:
        options = small(8, slave_connections_needed_for_purge=0)
        self.engine = IbbEngine(self.disk, options, facts=StateStore(self.disk))
        run_dry(self.engine)
        self.scrub = Scrub(
            lambda: self.config,
            lambda: self.engine,
            lambda: self.disk,
            self.engine.facts,
            None,
            lambda: self.backup,
            lambda: self.now,
        )

    def restart(self) -> None:
        self.engine.close()
        self._open()

    def damage(self, file_no: int) -> None:
        file = self.disk.open(file_name(file_no))
        file.pwrite(b"rot", PAGE_SIZE + 700)
        file.fdatasync()
        file.close()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.scrub.step()

    def until_over(self) -> int:
        """Steps of a pass to its end."""
        steps, passes = 0, self.scrub.passes
        while self.scrub.passes == passes:
            assert self.scrub.pause_s(IDLE_S) == STEP_S
            self.wait(STEP_S)
            steps += 1
        return steps

    def set(self, **values: int) -> None:
        self.config = dataclasses.replace(self.config, **values)  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    return World()


def test_a_pass_begins_an_interval_behind_the_one_before(world: World) -> None:
    world.scrub.step()
    world.wait(INTERVAL - 1)
    assert not world.scrub.bytes_read
    assert world.scrub.pause_s(IDLE_S) == IDLE_S
    world.wait(1)
    assert 0 < world.scrub.bytes_read <= RATE + 20 * PAGE_SIZE
    begun = world.now
    assert world.until_over() > 1
    assert world.scrub.last_pass == world.now
    read = world.scrub.bytes_read
    world.wait(begun + INTERVAL - 1 - world.now)
    assert world.scrub.bytes_read == read
    world.wait(1)
    assert world.scrub.bytes_read > read


def test_rate_0_and_a_backup_stop_it_where_it_is(world: World) -> None:
    world.scrub.step()
    world.wait(INTERVAL)
    read = world.scrub.bytes_read
    world.backup = True
    world.wait(STEP_S)
    world.backup = False
    world.set(binlog_scrub_rate=0)
    world.wait(STEP_S)
    assert world.scrub.bytes_read == read
    world.set(binlog_scrub_rate=RATE)
    world.until_over()
    assert world.scrub.damages() == []


def test_a_server_that_ends_reads_no_more(world: World) -> None:
    world.scrub.step()
    world.scrub.stop()
    world.wait(INTERVAL)
    assert not world.scrub.bytes_read


def test_damage_is_logged_once_and_outlives_a_restart(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.damage(2)
    world.scrub.step()
    with caplog.at_level(logging.ERROR):
        world.wait(INTERVAL)
        world.until_over()
    (line,) = (record.getMessage() for record in caplog.records)
    assert f"{file_name(2)} page 1 offset {PAGE_SIZE}: Page corruption" in line
    assert "troubleshooting" in line
    assert world.scrub.damages_by_kind() == {
        **dict.fromkeys(world.scrub.damages_by_kind(), 0),
        "page": 1,
    }
    before, finished = world.scrub.damages(), world.scrub.last_pass
    world.restart()
    assert world.scrub.damages() == before
    assert world.scrub.last_pass == finished


def test_what_was_purged_or_begun_anew_is_damaged_no_more(world: World) -> None:
    world.damage(2)
    world.scrub.step()
    world.wait(INTERVAL)
    world.until_over()
    world.engine.purge_to(2)
    world.scrub.step()
    assert world.scrub.damages()
    world.engine.purge_to(3)
    world.scrub.step()
    assert world.scrub.damages() == []


def test_reset_master_forgets_damages_and_ends_the_pass(world: World) -> None:
    world.damage(2)
    world.scrub.step()
    world.wait(INTERVAL)
    world.until_over()
    world.wait(INTERVAL)
    assert world.scrub.pause_s(IDLE_S) == STEP_S
    world.engine.reset()
    assert world.scrub.damages() == []
    world.wait(STEP_S)
    assert world.scrub.pause_s(IDLE_S) == IDLE_S
    assert (world.scrub.passes, world.scrub.damages()) == (1, [])


def test_a_clock_that_was_put_back_does_not_put_it_off_for_long(world: World) -> None:
    world.scrub.step()
    world.wait(-100 * INTERVAL)
    world.wait(INTERVAL)
    assert world.scrub.bytes_read


def test_traditional_files_are_read_up_to_their_durable_end(world: World) -> None:
    disk = MemoryDisk()
    options = ClassicOptions(slave_connections_needed_for_purge=0)
    engine = ClassicEngine(disk, options, facts=StateStore(disk))
    for seq_no in (1, 2, 3):
        gtid = Gtid(0, 1, seq_no)
        engine.append(transaction(gtid), gtid)
        engine.flush()
    scrub = Scrub(
        lambda: world.config,
        lambda: engine,
        lambda: disk,
        engine.facts,
        None,
        lambda: False,
        lambda: world.now,
    )
    scrub.step()
    world.now += INTERVAL
    name = engine.file_name(engine.files()[1].number)
    file = disk.open(name)
    file.pwrite(b"rot", file.size() - 60)
    file.close()
    while not scrub.passes:
        scrub.step()
    (damage,) = scrub.damages()
    assert (damage.kind, damage.name) == ("event", name)
    engine.purge_to(engine.files()[2].number)
    scrub.step()
    assert scrub.damages() == []
