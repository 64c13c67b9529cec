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

    def kill(self) -> None:
        """The power goes, and comes back."""
        self.disk = self.disk.after_crash()
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


class Traditional:
    """A store of traditional files of one group each."""

    def __init__(self, world: World, groups: int) -> None:
        self.world = world
        self.disk = MemoryDisk()
        options = ClassicOptions(slave_connections_needed_for_purge=0)
        self.engine = ClassicEngine(self.disk, options, facts=StateStore(self.disk))
        for seq_no in range(1, groups + 1):
            gtid = Gtid(0, 1, seq_no)
            self.engine.append(transaction(gtid), gtid)
            if seq_no < groups:
                self.engine.flush()
        self.engine.sync()
        self.names = [self.engine.file_name(file.number) for file in self.engine.files()]

    def scrub(self) -> Scrub:
        return Scrub(
            lambda: self.world.config,
            lambda: self.engine,
            lambda: self.disk,
            self.engine.facts,
            None,
            lambda: False,
            lambda: self.world.now,
        )

    def cut(self, name: str, off: int) -> None:
        file = self.disk.open(name)
        file.truncate(file.size() - off)
        file.close()


def test_traditional_files_are_read_up_to_their_durable_end(world: World) -> None:
    store = Traditional(world, 4)
    scrub = store.scrub()
    scrub.step()
    world.now += INTERVAL
    name = store.names[1]
    file = store.disk.open(name)
    file.pwrite(b"rot", file.size() - 60)
    file.close()
    while not scrub.passes:
        scrub.step()
    (damage,) = scrub.damages()
    assert (damage.kind, damage.name) == ("event", name)
    store.engine.purge_to(store.engine.files()[2].number)
    scrub.step()
    assert scrub.damages() == []


def test_traditional_files_that_were_cut_short_and_a_restart_in_the_middle(world: World) -> None:
    world.set(binlog_scrub_rate=1)
    store = Traditional(world, 6)
    names = store.names
    store.cut(names[0], 200)
    store.cut(names[3], 200)
    store.cut(names[5], 1)  # in front of the durable end
    scrub = store.scrub()
    scrub.step()
    world.now += INTERVAL
    while names[2] not in str(store.engine.facts.get("scrub")):
        scrub.step()
    assert [damage.name for damage in scrub.damages()] == [names[0]]
    store.cut(names[1], 200)  # which it has passed
    again = store.scrub()
    assert again.damages() == scrub.damages()
    while not again.passes:
        again.step()
    found = [(damage.kind, damage.name) for damage in again.damages()]
    assert found == [("event", name) for name in (names[0], names[3], names[5])]


def test_a_pass_goes_on_behind_what_it_had_passed_when_the_server_was_killed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.damage(1)
    world.damage(4)
    world.scrub.step()
    world.wait(INTERVAL)
    begun = world.now
    while len(world.scrub.damages()) < 1:
        world.wait(STEP_S)
    world.kill()
    assert [damage.name for damage in world.scrub.damages()] == [file_name(1)]
    world.damage(0)  # which it has passed
    world.wait(STEP_S)
    assert world.scrub.pause_s(IDLE_S) == STEP_S, "it goes on at once"
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        world.until_over()
    (line,) = (record.getMessage() for record in caplog.records)
    assert file_name(4) in line, "what was told is not told again"
    names = [damage.name for damage in world.scrub.damages()]
    assert names == [file_name(1), file_name(4)]
    read = world.scrub.bytes_read
    world.now = begun + INTERVAL - 1
    world.scrub.step()
    assert world.scrub.bytes_read == read, "the next one begins an interval behind its begin"
    world.wait(1)
    assert world.scrub.bytes_read > read


def test_a_pass_of_another_binlog_does_not_go_on(world: World) -> None:
    world.scrub.step()
    world.wait(INTERVAL)
    while "under way" not in (world.engine.facts.get("scrub") or {}):
        world.wait(STEP_S)
    noted = world.engine.facts.get("scrub")
    world.engine.reset()
    world.wait(STEP_S)
    assert "under way" not in world.engine.facts.get("scrub")
    world.engine.facts.set("scrub", noted)  # as if it had been killed in front of that
    for seq_no in (1, 2, 3):
        gtid = Gtid(0, 1, seq_no)
        world.engine.append(transaction(gtid), gtid)
        world.engine.flush()
    settle(world.engine)
    world.kill()
    world.damage(0)
    world.scrub.step()
    world.until_over()
    assert {damage.name for damage in world.scrub.damages()} == {file_name(0)}
