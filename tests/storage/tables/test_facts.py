"""The server's own facts as rows: kept, taken over from the file of an older version, told by who has no server."""

from __future__ import annotations

import random
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.patient_disk import PatientDisk
from binlog_storage.disk.state import FILE_KEYS, STATE_NAME, StateStore, read_facts
from binlog_storage.errors import CorruptTables, DiskError, DiskFull, StoreFailed
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.tables.facts import ACCOUNTS, LEASES, SERVER, UPSTREAMS, OfflineFacts
from binlog_storage.tables.rows import UNLOGGED, Table
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.groups import group
from tests.storage.sizes import small

OLD = Path(__file__).parents[1] / "data" / "store-before-facts.tar.xz"
"""The directory of a server, behind a kill -9, of the last version that had all facts in `binlog-server.state`."""
OLD_OPTIONS = StoreOptions(max_binlog_size=1 << 18, innodb_log_file_size=1 << 20)
SOME = {
    "account/a@%": {"grants": ["RELOAD"]},
    "lease/x": {"from_file": 3},
    "relay:": 1,
    "uuid": "u",
}


def opened(disk: Disk, **more: int) -> IbbEngine:
    return IbbEngine(disk, small(8, **more), facts=StateStore(disk))


def everything(engine: IbbEngine) -> dict[str, Any]:
    return {key: value for key, value in engine.facts.items("") if key != "taken"}


def old_store() -> MemoryDisk:
    with tarfile.open(OLD) as files:
        found = {member.name.removeprefix("./"): files.extractfile(member) for member in files}
        return MemoryDisk({name: file.read() for name, file in found.items() if file is not None})


def old_facts() -> dict[str, Any]:
    return {k: v for k, v in read_facts(old_store()).items() if k not in FILE_KEYS}


def test_kept_by_table() -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    engine.facts.update(SOME)
    engine.facts.update({"lease/x": None, "relay:": 2})
    expected = {**SOME, "relay:": 2}
    del expected["lease/x"]
    tables = engine.tables
    assert {n: [k for k, _ in tables.scan(n)] for n in (ACCOUNTS, LEASES, UPSTREAMS, SERVER)} == {
        ACCOUNTS: [b"account/a@%"],
        LEASES: [],
        UPSTREAMS: [b"relay:"],
        SERVER: [b"uuid"],
    }
    assert engine.facts.get("lease/x", 7) == 7
    assert engine.facts.items("re") == [("relay:", 2)]
    for found in (opened(disk.after_crash()), opened(disk.after_crash())):
        assert everything(found) == expected
    engine.close()
    assert everything(opened(disk)) == expected
    assert set(read_facts(disk)) <= FILE_KEYS


def test_names_that_are_no_utf8() -> None:
    disk = MemoryDisk()
    odd = {"slot/7/\udcff@%": {"text": "\udcff"}, "relay:\ud800\0'\U0001f600": 1}
    engine = opened(disk)
    engine.facts.update(odd)
    assert everything(opened(disk.after_crash())) == odd
    OfflineFacts(disk.after_crash()).update(odd)


def test_what_does_not_change_is_not_logged() -> None:
    engine = opened(MemoryDisk())
    engine.facts.update(SOME)
    lsn = engine.counters()["Innodb_lsn_current"]
    engine.facts.update({"uuid": "u", "nobody": None})
    assert engine.counters()["Innodb_lsn_current"] == lsn


def test_a_store_without_facts_has_no_tables() -> None:
    engine = opened(MemoryDisk())
    assert engine.tables.tables() == {}
    assert engine._redo.tables is None


@pytest.mark.parametrize("torn", [False, True])
def test_all_or_nothing(rng: random.Random, *, torn: bool) -> None:
    """A power cut at each step of the disk while facts of all tables change, with groups in between."""
    changes = {
        "account/a@%": None,
        "lease/x": {"from_file": 4},
        "relay:": 5,
        "new": [1],
        "uuid": "v",
    }
    behind = {key: value for key, value in {**SOME, **changes}.items() if value is not None}
    stop, seen = 0, set()
    while True:
        disk = MemoryDisk()
        engine = opened(disk)
        engine.facts.update(SOME)
        stop += 1
        disk.fail_at = disk.operations + stop
        done = False
        try:
            engine.append(*group(Gtid(0, 1, 1)))
            engine.facts.update(changes)
            done = True
            engine.append(*group(Gtid(0, 1, 2)))
            engine.checkpoint()
            engine._snapshots.make()
        except (DiskError, StoreFailed):
            pass
        else:
            break
        disk.crash(rng if torn else None)
        found = opened(disk)
        assert everything(found) in ((behind,) if done else (SOME, behind)), f"stopped at {stop}"
        # The log has an order: who finds the facts finds the group in front of them.
        state = found.binlog_state().get(0, 1) or 0
        assert state >= (everything(found) == behind)
        seen.add(everything(found) == behind)
        found.close()
    assert seen == {False, True}
    assert stop > 5


def test_threads_change_facts_beside_groups() -> None:
    disk = MemoryDisk()
    engine = opened(disk, innodb_log_file_size=1 << 20)
    engine.start()

    def change(name: str) -> None:
        for n in range(100):
            engine.facts.update({f"{name}/a": n, f"{name}/b": n})

    threads = [
        threading.Thread(target=change, args=(name,)) for name in ("lease", "relay", "account")
    ]
    for thread in threads:
        thread.start()
    for n in range(1, 400):
        engine.append(*group(Gtid(0, 1, n), 2000))
    for thread in threads:
        thread.join()
    engine.stop_waiting()
    kept = everything(opened(disk.after_crash(), innodb_log_file_size=1 << 20))
    assert kept == dict.fromkeys(
        [f"{name}/{k}" for name in ("lease", "relay", "account") for k in "ab"], 99
    )
    engine.close()


# --- an older store ---


def test_an_old_store_is_taken_over() -> None:
    disk = old_store()
    before = old_facts()
    assert {"account/repl@%", "user/old", "lease/backup", "slot/7/repl@%", "server_uuid"} < set(
        before
    )
    engine = IbbEngine(disk, OLD_OPTIONS, facts=StateStore(disk))
    assert everything(engine) == before
    assert str(engine.binlog_state()) == "0-1-2"
    assert set(read_facts(disk)) <= FILE_KEYS
    engine.facts.set("server_uuid", "another")
    for found in (disk.after_crash(), disk):
        again = IbbEngine(found, OLD_OPTIONS, facts=StateStore(found))
        assert everything(again) == {**before, "server_uuid": "another"}


@pytest.mark.long
@pytest.mark.parametrize("torn", [False, True])
def test_a_crash_at_each_step_of_taking_over(rng: random.Random, *, torn: bool) -> None:
    """It loses nothing, and what has changed since is not overwritten by what is still in the file."""
    before, stop, taken = old_facts(), 0, 0
    while True:
        disk = old_store()
        stop += 1
        disk.fail_at = disk.operations + stop
        changed = False
        try:
            engine = IbbEngine(disk, OLD_OPTIONS, facts=StateStore(disk))
            engine.facts.set("server_uuid", "another")
            changed = True
        except (DiskError, StoreFailed):
            pass
        disk.crash(rng if torn else None)
        taken += "server_uuid" in read_facts(disk)
        engine = IbbEngine(disk, OLD_OPTIONS, facts=StateStore(disk))
        found = everything(engine)
        if changed or found["server_uuid"] == "another":
            assert found == {**before, "server_uuid": "another"}, f"stopped at {stop}"
            assert set(read_facts(disk)) <= FILE_KEYS
            if changed:
                break
        assert {**found, "server_uuid": 0} == {**before, "server_uuid": 0}, f"stopped at {stop}"
        assert set(read_facts(disk)) <= FILE_KEYS
        engine.close()
    assert stop > 10
    assert taken > 5


def test_the_file_that_cannot_be_written_is_not_taken_again() -> None:
    disk = old_store()

    def refuses(kind: str, name: str) -> None:
        if kind == "create" and name.startswith(STATE_NAME):
            raise DiskFull("no room (injected)")

    disk.fault = refuses
    engine = IbbEngine(disk, OLD_OPTIONS, facts=StateStore(disk))
    engine.facts.set("server_uuid", "another")
    engine.facts.set("account/repl@%", None)
    engine.close()
    assert "account/repl@%" in read_facts(disk)
    disk.fault = None
    offline = OfflineFacts(disk)
    assert offline.get("server_uuid") == "another"
    offline.set("account/new@%", {"grants": []})
    assert set(read_facts(disk)) <= FILE_KEYS
    engine = IbbEngine(disk, OLD_OPTIONS, facts=StateStore(disk))
    expected = {**old_facts(), "server_uuid": "another", "account/new@%": {"grants": []}}
    del expected["account/repl@%"]
    assert everything(engine) == expected


def test_an_old_store_on_a_full_disk() -> None:
    """What the file tells holds; it is taken with the next change that there is room for."""
    disk = old_store()
    patient = PatientDisk(disk)
    disk.capacity = disk.used()
    engine = IbbEngine(
        patient, OLD_OPTIONS, facts=StateStore(patient), wait_for_room=lambda s: None
    )
    assert everything(engine) == old_facts()
    if engine._late.full is not None:
        with pytest.raises(DiskFull):
            engine.facts.set("server_uuid", "another")
        assert everything(engine) == old_facts()
    disk.capacity = 1 << 62
    while engine._late.full is not None:
        engine.keeper.caretaker.step()
    engine.facts.set("server_uuid", "another")
    assert everything(engine) == {**old_facts(), "server_uuid": "another"}
    found = everything(IbbEngine(d := disk.after_crash(), OLD_OPTIONS, facts=StateStore(d)))
    assert found == {**old_facts(), "server_uuid": "another"}


# --- without a server ---


def test_told_to_the_next_start() -> None:
    disk = MemoryDisk()
    offline = OfflineFacts(disk)  # of a directory that is empty
    offline.set("account/a@%", 1)
    assert disk.names() == [STATE_NAME]
    engine = opened(disk)
    assert everything(engine) == {"account/a@%": 1}
    engine.facts.update({"account/a@%": 2, "account/b@%": 3})
    engine.close()
    offline = OfflineFacts(disk)
    assert offline.items("account/") == [("account/a@%", 2), ("account/b@%", 3)]
    offline.update({"account/b@%": None, "account/c@%": 4})
    offline.set("account/a@%", 1)  # as it was told before
    for same in (offline, OfflineFacts(disk)):
        assert same.items("")[:2] == [("account/a@%", 1), ("account/c@%", 4)]
        assert same.get("account/b@%") is None
    engine = opened(disk)
    assert everything(engine) == {"account/a@%": 1, "account/c@%": 4}
    assert set(read_facts(disk)) <= FILE_KEYS


def test_a_crash_at_each_step_of_telling() -> None:
    stop = 0
    while True:
        disk = MemoryDisk()
        engine = opened(disk)
        engine.facts.update(SOME)
        engine.close()
        offline = OfflineFacts(disk)
        offline.set("account/a@%", 1)
        stop += 1
        disk.fail_at = disk.operations + stop
        try:
            offline.update({"account/a@%": None, "account/b@%": 2})
        except DiskError:
            disk.crash()
            found = everything(opened(disk))
            first = {**SOME, "account/a@%": 1}
            second = {**SOME, "account/b@%": 2}
            del second["account/a@%"]
            assert found in (first, second)
        else:
            break
    assert stop > 2


def test_read_behind_a_crash_without_a_change() -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    engine.append(*group(Gtid(0, 1, 1)))
    engine.facts.update(SOME)
    disk = disk.after_crash()
    operations = disk.operations
    assert OfflineFacts(disk).items("lease/") == [("lease/x", {"from_file": 3})]
    assert disk.operations == operations


def test_what_is_no_fact_is_an_error() -> None:
    disk = MemoryDisk()
    engine = opened(disk)
    engine.facts.update(SOME)
    t = engine.tables.begin()
    t.put(SERVER, b"uuid", b"{")
    t.commit()
    engine.sync()
    with pytest.raises(CorruptTables, match="uuid"):
        OfflineFacts(disk.after_crash())


# --- room, and the log ---


def test_a_full_disk_and_a_full_log_is_said_at_once() -> None:
    """Nobody waits for room that a purge is to make, which may have to wait for this."""
    disk = MemoryDisk()
    waits: list[float] = []
    engine = IbbEngine(disk, small(8), facts=StateStore(disk), wait_for_room=waits.append)
    engine.facts.update(SOME)
    disk.capacity = disk.used()

    def up_to_the_last_bytes_of_the_log() -> None:
        for n in range(2000):
            engine.facts.set("uuid", str(n) * 100)

    with pytest.raises(DiskFull):
        up_to_the_last_bytes_of_the_log()
    assert len(waits) <= 1
    assert engine.facts.get("lease/x") == SOME["lease/x"]
    assert dict(OfflineFacts(disk.after_crash()).items("uuid")) == dict(engine.facts.items("uuid"))


def test_a_stop_leaves_them_where_no_log_is_needed() -> None:
    """A log that is lost, as one may be, does not take them along."""
    disk = MemoryDisk()
    engine = opened(disk)
    engine.facts.update(SOME)
    engine.close()
    assert TABLES_NAME in disk.names()
    disk.unlink(REDO_NAME)
    engine = opened(disk, innodb_force_recovery=6)
    assert everything(engine) == SOME
    engine.close()


def test_a_stop_while_another_thread_makes_a_table() -> None:
    """Counting the rows must not meet it: the store was left open by a RuntimeError."""
    engine = opened(MemoryDisk())
    engine.facts.update(SOME)
    tables = engine._snapshots._tables
    waiting: list[threading.Thread] = []

    def make() -> None:
        with tables.latch:
            tables.memory.tables[UNLOGGED | 9] = Table()

    class Slow(Table):
        __slots__ = ()

        def __len__(self) -> int:
            waiting.append(threading.Thread(target=make))
            waiting[-1].start()
            waiting[-1].join(0.2)
            return super().__len__()

    tables.memory.tables = {UNLOGGED | 8: Slow(), **tables.memory.tables}
    engine.close()
    assert waiting
    for thread in waiting:
        thread.join()


def test_groups_that_fill_the_log_wake_who_makes_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the checkpoint of the binlog: nobody has to wait for room first."""
    engine = opened(MemoryDisk())
    engine.facts.update(SOME)
    pokes: list[int] = []
    snapshots = engine._snapshots
    monkeypatch.setattr(snapshots.worker, "poke", lambda: pokes.append(engine._redo.room()))
    n = 0
    while not pokes:
        n += 1
        engine.append(*group(Gtid(0, 1, n), 3000))
        engine.sync()
        engine._flusher.step()
    assert engine.counters()["Innodb_log_waits"] == 0
    assert pokes[0] > engine._redo.capacity / 4


def test_groups_move_the_tables_place_in_the_log() -> None:
    """Where facts rest, the log is free behind each checkpoint: no snapshot is made for that."""
    disk = MemoryDisk()
    engine = opened(disk)
    engine.facts.update(SOME)
    engine._snapshots.make()
    for n in range(1, 1200):
        engine.append(*group(Gtid(0, 1, n), 3000))
        if n % 10 == 0:
            engine.sync()
            engine.step()
    assert engine.counters()["Innodb_lsn_current"] > 10 * engine._redo.capacity
    assert engine.counters()["Binlog_table_snapshots"] == 1
    checkpoint = engine._redo.checkpoint
    assert checkpoint.tables is not None
    assert checkpoint.tables.lsn == checkpoint.lsn
    assert everything(opened(disk.after_crash())) == SOME
