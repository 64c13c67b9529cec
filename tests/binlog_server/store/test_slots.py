"""Slots: the leases of replicas that were here lately, which nobody has to ask for."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import Position
from binlog_storage.errors import DiskError, DiskFull, StoreFailed
from binlog_storage.tables.facts import OfflineFacts
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.store import leases as module
from binlog_server.store.leases import GRACE_S, Leases, Seen, SlotTerms
from tests.binlog_server.lab import transaction

FILE = 1 << 16
OPTIONS = StoreOptions(max_binlog_size=FILE, slave_connections_needed_for_purge=0)
ANN, BOB = "ann@%", "bob@%"


class World:
    """A store of some files, one group each; two clocks."""

    def __init__(self, files: int = 6) -> None:
        self.wall, self.steady = 10_000.0, 50.0
        self.terms = SlotTerms(3600, 1 << 30)
        self.seq_no = 0
        self.disk = MemoryDisk()
        self._open()
        self.write(files)

    def _open(self) -> None:
        self.engine = IbbEngine(self.disk, OPTIONS, facts=StateStore(self.disk))
        self.state = self.engine.facts
        self.leases = Leases(
            self.engine, self.state, lambda: self.wall, lambda: self.steady, lambda: self.terms
        )

    def write(self, files: int) -> None:
        for _ in range(files):
            self.seq_no += 1
            gtid = Gtid(0, 1, self.seq_no)
            self.engine.append(transaction(gtid), gtid)
            self.engine.flush()

    def kill(self) -> None:
        """Kill -9, and another start."""
        self.disk = self.disk.after_crash()
        self._open()

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def seen(self, file_no: int, account: str = ANN, server_id: int = 7) -> Seen:
        return Seen(server_id, account, Position(file_no, 20_000), True)

    def renew(self, *here: Seen, left: tuple[Seen, ...] = ()) -> None:
        self.leases.renew_slots(here, left, self.engine.age)

    def first_left(self) -> int:
        """After a purge of all that may go."""
        self.leases.expire()
        self.engine.purge_to(self.engine.durable_end.file_no)
        return self.engine.files()[0].number

    @property
    def slots(self) -> dict[str, int]:
        return {lease.name: lease.from_file for lease in self.leases.all()}


@pytest.fixture
def world() -> World:
    return World()


def test_one_that_has_gone_keeps_its_files_for_its_time(world: World) -> None:
    world.renew(left=(world.seen(2),))
    assert world.slots == {"slot/7/ann@%": 2}
    assert world.first_left() == 2
    world.passes(3599)
    assert world.first_left() == 2
    plan = world.engine.purge_to(5)
    assert plan.why.startswith(
        "it is kept for the slot 'slot/7/ann@%' until 1970-01-01 03:46:40Z up to"
    )
    assert plan.why.endswith("DROP BINLOG LEASE 'slot/7/ann@%' ends it")
    world.passes(2)
    assert world.first_left() == 6
    assert world.slots == {}
    why = world.leases.why_ended(7, ANN)
    assert why.startswith("1970-01-01 03:46:41 UTC: the replica was away for longer than")
    assert world.leases.why_ended(7, BOB) == ""


def test_one_that_is_connected_has_all_the_time(world: World) -> None:
    world.renew(world.seen(1))
    world.passes(10**6)  # the next look comes late
    assert world.first_left() == 1
    world.renew(world.seen(3))
    assert world.first_left() == 3
    assert "connected" in world.engine.purge_to(6).why
    world.renew(left=(world.seen(4),))
    world.passes(3599)
    assert world.first_left() == 4


def test_holds_one_pin_that_moves_both_ways(world: World) -> None:
    world.renew(world.seen(2))
    world.renew(world.seen(4))
    world.renew(world.seen(3))  # the relay log was thrown away
    assert [hold.file_no for hold in world.engine.references.holds()] == [3]
    assert world.first_left() == 3


def test_accounts_have_slots_of_their_own_for_one_server_id(world: World) -> None:
    world.renew(left=(world.seen(2, ANN), world.seen(4, BOB)))
    assert world.slots == {"slot/7/ann@%": 2, "slot/7/bob@%": 4}
    assert world.leases.drop("slot/7/ann@%")
    assert world.first_left() == 4
    assert "it was dropped" in world.leases.why_ended(7, ANN)


def test_what_is_not_acknowledged_may_be_on_its_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNACKNOWLEDGED_BYTES", FILE)
    sizes = dict(world.engine.files())
    world.renew(left=(Seen(7, ANN, Position(4, 20_000), False),))
    (first,) = world.slots.values()
    behind = sum(sizes[n] for n in range(first, 4)) + 20_000
    assert first < 4
    assert behind >= FILE > behind - sizes[first]


def test_ends_when_its_files_take_too_much(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.renew(left=(world.seen(3),))
    ((_, held),) = world.leases.all_held()
    world.leases.drop("slot/7/ann@%")
    world.terms = SlotTerms(3600, held)
    world.renew(left=(world.seen(3),))
    world.leases.expire()
    assert world.slots
    world.write(1)
    assert world.first_left() == 7
    assert f"more than replica_slot_bytes={held}" in world.leases.why_ended(7, ANN)
    assert "server_id 7, account 'ann@%' has no slot any more" in caplog.text
    assert "binlog-000003.ibb and later files" in caplog.text


def test_one_too_far_behind_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.terms = SlotTerms(3600, 1000)
    for _ in range(3):
        world.renew(world.seen(1))
        world.leases.expire()
    assert world.slots == {}
    assert caplog.text.count("has no slot any more") == 1


@pytest.mark.parametrize("terms", [SlotTerms(0, 1 << 30), SlotTerms(3600, 0)])
def test_off(world: World, terms: SlotTerms) -> None:
    world.renew(left=(world.seen(2),))
    world.terms = terms
    world.renew(world.seen(2, BOB))
    assert world.first_left() == 6
    assert world.slots == {}


def test_kill_and_restart(world: World) -> None:
    world.renew(world.seen(2))
    world.leases.expire()
    world.renew(world.seen(4))  # not written down yet
    world.kill()
    assert world.slots == {"slot/7/ann@%": 2}
    assert world.first_left() == 2
    world.wall += 3500
    world.steady += 3500
    world.kill()
    assert world.first_left() == 2, "away since the first start"


def test_kill_behind_the_first_visit(world: World) -> None:
    """Of one that was written down another start finds an older place, which keeps more; of this one it found none."""
    world.renew(left=(world.seen(2),))
    world.kill()
    assert world.slots == {"slot/7/ann@%": 2}
    assert world.first_left() == 2


def test_time_without_a_server_ends_none_at_once(world: World) -> None:
    world.renew(left=(world.seen(2),))
    world.leases.expire()
    world.wall += 10**6  # a machine that was switched off
    world.steady = 0.0
    world.kill()
    assert world.first_left() == 2
    world.passes(GRACE_S + 1)
    assert world.first_left() == 6
    world.kill()
    assert world.slots == {}
    assert "was away" in world.leases.why_ended(7, ANN), "kept over a restart"


@pytest.mark.parametrize("jump", [-(10**6), 10**6])
def test_a_clock_that_jumps(world: World, jump: int) -> None:
    world.wall += 10**7
    world.renew(left=(world.seen(2),))
    world.leases.expire()
    world.wall += jump
    assert world.first_left() == 2
    world.passes(3590)
    assert world.first_left() == 2
    world.passes(20)
    assert world.first_left() == 6


def test_a_clock_set_back_while_no_server_runs(world: World) -> None:
    world.wall += 10**7
    world.renew(left=(world.seen(2),))
    world.leases.expire()
    world.wall -= 10**7
    world.kill()
    world.passes(3601)
    assert world.first_left() == 6


def test_reset_master_does_not_wait_and_ends_all(world: World) -> None:
    seen = world.seen(2)
    age = world.engine.age
    world.renew(left=(seen,))
    world.leases.expire()
    world.engine.reset()
    world.leases.renew_slots([], [seen], age)  # a picture from before
    world.leases.expire()
    assert world.slots == {}
    assert not world.engine.references.holds()
    assert "RESET MASTER" in world.leases.why_ended(7, ANN)


def test_a_crash_behind_reset_master(world: World) -> None:
    world.renew(left=(world.seen(2),))
    world.leases.expire()
    world.engine.reset()
    world.kill()
    assert world.slots == {}


def test_a_crash_at_each_step_of_reset_master() -> None:
    """The slot goes with the binlog that it refers to: also one of the file whose number comes again."""
    stop, seen = 0, set()
    while True:
        world = World(2)
        world.renew(left=(world.seen(0),))
        world.leases.expire()
        assert world.slots == {"slot/7/ann@%": 0}
        stop += 1
        world.disk.fail_at = world.disk.operations + stop
        done = False
        with contextlib.suppress(DiskError, StoreFailed):
            world.engine.reset()
            done = True
        world.kill()
        has_begun = not len(world.engine.binlog_state())
        assert world.slots == ({} if has_begun else {"slot/7/ann@%": 0}), f"stopped at {stop}"
        world.kill()
        assert bool(world.slots) is not has_begun
        assert bool(world.state.items("slot/")) is not has_begun
        seen.add(has_begun)
        if done:
            break
        world.renew(left=(world.seen(0),))  # one of the new binlog holds
        world.leases.expire()
        world.kill()
        assert world.slots == {"slot/7/ann@%": 0}
    assert seen == {False, True}
    assert stop > 5


def test_a_full_disk_keeps_no_slot_from_ending(world: World) -> None:
    world.renew(left=(world.seen(2), world.seen(3, BOB)))
    world.leases.expire()

    def full(changes: Mapping[str, Any]) -> None:
        raise DiskFull("no room (injected)")

    with patch.object(world.state, "update", full):
        assert world.leases.drop("slot/7/ann@%")
        assert world.first_left() == 3
        world.passes(3601)
        assert world.first_left() == 6
    world.leases.expire()
    world.kill()
    assert world.slots == {}


def test_the_slots_of_one_account_crowd_out_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOTS_MAX", 5)
    world.renew(left=(world.seen(3, ANN),))
    for server_id in range(1, 10):
        world.passes(1)
        world.renew(left=(world.seen(2, BOB, server_id),))
    assert world.slots == {"slot/7/ann@%": 3, **{f"slot/{n}/bob@%": 2 for n in range(6, 10)}}
    world.renew(*(world.seen(2, BOB, n) for n in range(6, 10)))
    world.renew(*(world.seen(2, BOB, n) for n in range(6, 10)), left=(world.seen(2, ANN, 8),))
    assert "slot/8/ann@%" in world.slots
    assert len(world.leases._ended) <= 5
    world.leases.expire()
    kept = OfflineFacts(world.disk.after_crash())
    assert len(kept.items("slot/")) == 5
    assert len(kept.items("ended_slot/")) <= 5


def test_the_next_one_where_all_are_connected_is_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SLOTS_MAX", 2)
    here = [world.seen(2, BOB, 1), world.seen(2, BOB, 2), world.seen(2, ANN, 3)]
    world.renew(*here)
    world.renew(*here)
    assert len(world.slots) == 2
    assert world.leases.without_slot() == ["slot/3/ann@%"]
    assert [r.getMessage() for r in caplog.records if "has no slot" in r.getMessage()] == [
        "server_id 3, account 'ann@%' has no slot: there are 2 slots, all of replicas that are connected. Its files "
        "are not kept when it goes"
    ]
    assert "all of replicas that are connected" in world.leases.why_ended(3, ANN)
    world.renew(here[0], here[2])  # one of the others has gone, and makes room
    assert set(world.slots) == {"slot/1/bob@%", "slot/3/ann@%"}
    assert world.leases.without_slot() == []
    assert world.leases.why_ended(3, ANN) == ""


def test_one_without_a_slot_that_goes_is_told_of_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOTS_MAX", 1)
    world.renew(world.seen(2, BOB, 1), world.seen(2, ANN, 2))
    world.renew(world.seen(2, BOB, 1), left=(world.seen(2, ANN, 2),))
    assert world.leases.without_slot() == []
    assert world.leases.why_ended(2, ANN) != ""


def test_nobody_else_may_take_their_names(world: World) -> None:
    with pytest.raises(ServerError, match="those of replicas"):
        world.leases.create("slot/7/ann@%", None, None, None)


def test_alter_lets_one_stay_longer(world: World) -> None:
    world.renew(left=(world.seen(2),))
    world.leases.alter("slot/7/ann@%", None, world.wall + 9000, None)
    world.passes(8999)
    assert world.first_left() == 2


def test_a_round_without_news_writes_nothing(world: World) -> None:
    world.renew(world.seen(2))
    world.renew(world.seen(2))
    world.leases.expire()
    writes: list[str] = []
    world.disk.fault = lambda kind, name: writes.append(name)
    for _ in range(10):
        world.passes(10)
        world.renew(world.seen(2))
        world.leases.expire()
    assert writes == []
    world.passes(400)
    world.renew(world.seen(2))
    world.leases.expire()
    assert writes, "a kill -9 may not cost more than a tenth of its time"


def steps(rng: random.Random) -> Iterator[tuple[str, int, int]]:
    for _ in range(60):
        yield (
            rng.choice(
                ["here", "left", "left", "write", "purge", "purge", "pass", "jump", "kill", "drop"]
            ),
            rng.randrange(3),
            rng.randrange(4000),
        )


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("seed", range(25))
def test_purge_with_slots_keeps_what_a_model_says(seed: int) -> None:
    """Never is a file purged that a slot of the model holds; nor does one stay that none holds."""
    world = World(3)
    model: dict[int, tuple[int, float]] = {}  # server_id: first file, steady time of its end
    for what, server_id, number in steps(random.Random(seed)):
        oldest, end = world.engine.files()[0].number, world.engine.durable_end.file_no
        if what in ("here", "left"):
            file_no = oldest + number % (end - oldest + 1)
            seen = world.seen(file_no, ANN, server_id)
            world.renew(left=(seen,)) if what == "left" else world.renew(seen)
            if what == "here":
                world.renew(left=(seen,))
            model[server_id] = file_no, world.steady + 3600
        elif what == "write":
            world.write(1)
        elif what == "pass":
            world.passes(number)
        elif what == "jump":
            world.wall += number * 1000
        elif what == "kill":
            world.leases.expire()
            model = {i: held for i, held in model.items() if held[1] > world.steady}
            world.kill()
            left = world.steady + GRACE_S  # nobody ends within it behind a start
            model = {i: (file_no, max(until, left)) for i, (file_no, until) in model.items()}
        elif what == "drop":
            assert world.leases.drop(f"slot/{server_id}/{ANN}") == (
                server_id in model and model[server_id][1] > world.steady
            )
            model.pop(server_id, None)
        else:
            model = {i: held for i, held in model.items() if held[1] > world.steady}
            expected = min([end, *(file_no for file_no, _ in model.values())])
            assert world.first_left() == max(expected, oldest)


def test_a_crash_at_any_step_finds_the_slots_of_before_or_of_behind() -> None:
    """Each call of the disk while two slots move and one ends is the last one, once."""
    crashes = 0
    while True:
        world = World()
        world.renew(left=(world.seen(1), world.seen(2, BOB)))
        world.leases.expire()
        before = world.slots
        calls = 0

        def crash(kind: str, name: str, last: int = crashes) -> None:
            nonlocal calls
            calls += 1
            if calls > last:
                raise DiskFull(f"the machine stops at call {last} of the disk")

        world.disk.fault = crash
        world.renew(left=(world.seen(3), world.seen(4, BOB, 8)))
        world.leases.expire()
        world.disk.fault = None
        behind = world.slots
        is_done = calls <= crashes
        world.kill()
        assert world.slots == behind if is_done else world.slots in (before, behind)
        if is_done:
            break
        crashes += 1
    assert crashes >= 2  # the log is written, and synced
