"""A backup holds what was durable at its point, whatever the store does while it is copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.backup.target import BackupTarget
from binlog_storage.binlog import backup as backup_module
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import REDO_KEY, StateStore
from binlog_storage.engine import Xid
from binlog_storage.engine.backup import (
    BACKUP_NAME,
    PREPARED,
    BackupRequest,
    becomes_a_store,
)
from binlog_storage.errors import BackupRefused, BinlogInUse, CorruptBinlog, DiskFull, NotAStore
from binlog_storage.ibb.file_names import file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.verify.verify import Finding, Severity, Verifier

from tests.storage.backup.copying import copy, make_ready, open_store, restored
from tests.storage.crash.check import FORGIVEN, look
from tests.storage.crash.model import Model
from tests.storage.crash.player import Player, Step
from tests.storage.crash.scripts import BULK_SCRIPTS, SCRIPTS
from tests.storage.groups import Group, append_all, group, payloads, simple
from tests.storage.sizes import small

SMALL = small(slave_connections_needed_for_purge=0)
LARGE = small(16, slave_connections_needed_for_purge=0)
# While a backup runs these wait, or its holds refuse them.
_WAIT = ("flush", "purge", "reset", "reset state", "delete domain")


def play(player: Player, steps_left: Iterator[Step]) -> None:
    step = next(steps_left, None)
    if step is not None and step.name not in _WAIT:
        player.play(step)


@pytest.mark.parametrize("name", [*SCRIPTS, *BULK_SCRIPTS])
def test_at_any_point_of_a_history(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup is begun behind one step of many, and the steps behind it are done between its pieces."""
    monkeypatch.setattr(backup_module, "PIECE_BYTES", PAGE_SIZE)
    script = SCRIPTS.get(name) or BULK_SCRIPTS[name]
    options = SMALL if name in SCRIPTS else LARGE
    for begin in range(0, len(script), max(1, len(script) // 4)):
        engine = open_store(MemoryDisk(), options)
        player = Player(engine, Model())
        for step in script[:begin]:
            player.play(step)
        behind = iter(script[begin:])
        engine.sync()
        truth = look(engine)
        target = MemoryDisk()
        copy(engine, target, between=partial(play, player, behind))
        make_ready(target, options)
        assert not [n for n in target.names() if n.endswith(".broken")], (
            "more was copied than there was"
        )
        copied, found = restored(target, options)
        assert found == truth, f"{name} behind step {begin}"
        goes_on(copied, target)


def add(engine: IbbEngine, groups: Sequence[Group]) -> None:
    append_all(engine, groups)
    engine.sync()


def goes_on(engine: IbbEngine, disk: MemoryDisk) -> None:
    """It takes more, gives it back, and is sound as a whole."""
    before = look(engine)
    more = [
        group(gtid._replace(seq_no=gtid.seq_no + 1), 300)
        for gtid in engine.binlog_state().position()
    ]
    add(engine, more)
    assert look(engine).groups == (*before.groups, *payloads(more))
    engine.close()
    findings: list[Finding] = []
    Verifier(disk, findings.append).run()
    assert not [
        f for f in findings if f.severity is Severity.ERROR and not re.search(FORGIVEN, f.reason)
    ]


def filled(count: int = 40, size: int = 5000) -> tuple[MemoryDisk, IbbEngine]:
    """A store of some files."""
    disk = MemoryDisk()
    engine = open_store(disk, SMALL)
    add(engine, simple(count, size=size))
    return disk, engine


def test_what_it_is_not_before_it_is_prepared() -> None:
    """Nobody opens a half copy, or a whole one, as a store; a prepared one is a store and no backup any more."""
    _, engine = filled()
    target = MemoryDisk()
    backup = engine.backup(BackupRequest())
    taking = BackupTarget(target, "here")
    taking.begin(backup.begin())
    for piece in backup.pieces():
        taking.take(piece)
        with pytest.raises(BackupRefused, match="here is a backup that is not whole"):
            becomes_a_store(target, "here")
    with pytest.raises(BackupRefused, match="is not whole"):
        make_ready(target, SMALL)
    taking.finish(backup.finish())
    with pytest.raises(BackupRefused, match="binlog-server prepare here"):
        becomes_a_store(target, "here")
    assert make_ready(target, SMALL).stage == PREPARED
    assert make_ready(target, SMALL).stage == PREPARED  # twice is no error
    becomes_a_store(target, "here")
    assert BACKUP_NAME not in target.names()
    with pytest.raises(NotAStore, match="is no backup"):
        make_ready(target, SMALL)
    with pytest.raises(NotAStore, match="give an empty directory"):
        BackupTarget(target, "here")
    backup.close()


def test_its_log_is_its_own() -> None:
    """Neither its redo log nor its tables go with those of the store."""
    disk, engine = filled()
    target = MemoryDisk()
    manifest = copy(engine, target)
    assert manifest.log_uuid != manifest.history == StateStore(disk).get(REDO_KEY)
    make_ready(target, SMALL)
    assert StateStore(target).get(REDO_KEY) == manifest.log_uuid


def test_its_files_stay_while_it_runs() -> None:
    """Purge and RESET MASTER, however they come, take nothing of what is being copied; afterwards they do."""
    _, engine = filled()
    truth = look(engine)
    target = MemoryDisk()
    last = engine.files()[-1].number

    def change() -> None:
        assert engine.purge_to(last).why == "it is held by a backup"
        with pytest.raises(BinlogInUse, match="a backup"):
            engine.reset()

    copy(engine, target, between=change)
    make_ready(target, SMALL)
    assert restored(target, SMALL)[1] == truth
    assert engine.purge_to(last).kept is None
    engine.reset()


def test_files_that_go_away_are_told() -> None:
    """--no-lock: a purge meanwhile. The backup begins behind what went."""
    _, engine = filled()
    truth, files = look(engine), engine.files()
    target = MemoryDisk()
    purge = iter([files[2].number])
    manifest = copy(
        engine, target, BackupRequest(no_lock=True), lambda: [engine.purge_to(n) for n in purge]
    )
    assert manifest.first_file == files[2].number
    assert [note.partition(" ")[0] for note in manifest.notes] == [
        file_name(f.number) for f in files[:2]
    ]
    make_ready(target, SMALL)
    _, found = restored(target, SMALL)
    assert found.state == truth.state
    assert found.groups == truth.groups[-len(found.groups) :]
    assert 0 < len(found.groups) < len(truth.groups)


@pytest.mark.parametrize("copied", [1, 2])
def test_files_in_front_of_those_that_went_are_left_out(copied: int) -> None:
    """--no-lock: a purge when some had been copied. There would be a gap."""
    _, engine = filled()
    truth, files, target = look(engine), engine.files(), MemoryDisk()

    def purge() -> None:
        if file_name(files[copied - 1].number) in target.names():
            engine.purge_to(files[copied + 1].number)

    manifest = copy(engine, target, BackupRequest(no_lock=True), purge)
    assert manifest.first_file == files[copied + 1].number
    assert file_name(files[0].number) in target.names()
    make_ready(target, SMALL)
    assert file_numbers(target.names())[0] == manifest.first_file
    _, found = restored(target, SMALL)
    assert found.state == truth.state
    assert found.groups == truth.groups[-len(found.groups) :]
    assert found.groups


def test_reset_master_in_the_middle_is_refused() -> None:
    """--no-lock: half of one binlog and half of another are no backup."""
    _, engine = filled()
    resets = iter([engine.reset])

    def reset() -> None:
        for call in resets:
            call()

    with pytest.raises(BackupRefused, match="RESET MASTER"):
        copy(engine, MemoryDisk(), BackupRequest(no_lock=True), reset)


@pytest.mark.parametrize("harm", ["missing", "short"])
def test_a_backup_that_has_lost_something_is_refused(harm: str) -> None:
    _, engine = filled()
    target = MemoryDisk()
    copy(engine, target)
    before = target.contents()
    if harm == "missing":
        target.unlink("binlog-000001.ibb")
    else:
        with closing(target.open("binlog-000001.ibb")) as file:
            file.truncate(file.size() - 1)
    with pytest.raises(BackupRefused, match=r"not whole: binlog-000001\.ibb .*Make another backup"):
        make_ready(target, SMALL)
    assert target.contents()[BACKUP_NAME] == before[BACKUP_NAME]


def test_damage_is_not_backed_up() -> None:
    disk, engine = filled()
    with closing(disk.open("binlog-000000.ibb")) as file:
        file.pwrite(b"?", 2 * PAGE_SIZE + 77)
    with pytest.raises(CorruptBinlog, match="nothing is backed up"):
        copy(engine, MemoryDisk())


def test_of_a_store_on_a_full_disk() -> None:
    """Pages wait in memory, and no checkpoint can be made: all that was durable is in the backup, and it goes on."""
    disk = MemoryDisk()
    engine = IbbEngine(
        disk, SMALL, facts=StateStore(disk), clock=lambda: 0.0, wait_for_room=lambda seconds: None
    )
    add(engine, [group(Gtid(0, 1, 1), 5000)])
    disk.capacity = disk.used()
    number = 1
    while engine.has_room:
        number += 1
        add(engine, [group(Gtid(0, 1, number), 5000)])
    assert number > 4
    truth, target = look(engine), MemoryDisk()
    copy(engine, target)
    assert engine.stalled(), "the disk was not full"
    make_ready(target, SMALL)
    copied, found = restored(target, SMALL)
    assert found == truth
    goes_on(copied, target)


def test_onto_a_full_disk() -> None:
    """Wherever it gets full: there is no backup, and nothing is held any more. In an empty place it is made again."""
    _, engine = filled()
    whole = MemoryDisk()
    copy(engine, whole)
    for part in range(1, 10):
        target = MemoryDisk()
        target.capacity = whole.used() * part // 10
        with pytest.raises(DiskFull):
            copy(engine, target)
        with pytest.raises(BackupRefused, match="interrupted"):
            becomes_a_store(target, "here")
        assert not engine.references.holds()
    target = MemoryDisk()
    target.capacity = whole.used() + 4 * PAGE_SIZE
    copy(engine, target)
    with pytest.raises(DiskFull):
        make_ready(target, SMALL)  # makes the redo log in full size
    target.capacity = 1 << 40
    make_ready(target, SMALL)
    assert restored(target, SMALL)[1] == look(engine)


def test_without_the_binlog() -> None:
    """--skip-binlog: the binlog begins at the GTID position of the backup, and holds nothing."""
    _, engine = filled()
    engine.begin().prepare(Xid(1, b"waits"))
    state = engine.binlog_state()
    target = MemoryDisk()
    copy(engine, target, BackupRequest(skip_binlog=True))
    assert not file_numbers(target.names())
    with pytest.raises(BackupRefused, match="made with --skip-binlog"):
        make_ready(target, SMALL)
    make_ready(target, SMALL, skip_binlog=True)
    opened, found = restored(target, SMALL)
    assert opened.binlog_state() == state
    assert not found.groups
    assert not found.prepared
    goes_on(opened, target)


# --- incremental ones ---


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("more", [0, 1, 30])
def test_what_came_since(prepared: bool, more: int) -> None:
    """It goes onto a backup as it was made, or prepared; two, one behind the other."""
    _, engine = filled()
    base = MemoryDisk()
    manifest = copy(engine, base)
    if prepared:
        make_ready(base, SMALL)
    before: MemoryDisk | None = None
    for number in range(2):
        add(engine, simple(more, first=41 + number * more, size=5000))
        truth = look(engine)
        later = MemoryDisk()
        manifest = copy(engine, later, BackupRequest(since=manifest.end))
        assert sum(len(data) for data in later.contents().values()) < 3_000_000
        assert file_numbers(later.names())[0] >= (1 if more else 0)
        with pytest.raises(BackupRefused, match="is an incremental backup"):
            make_ready(later, SMALL)
        make_ready(base, SMALL, incremental=later)
        if before is not None and more:  # it would take groups back
            with pytest.raises(BackupRefused, match="is older than this one: it ends at '0-1-"):
                make_ready(base, SMALL, incremental=before)
        before = later
    opened, found = restored(base, SMALL)
    assert found == truth
    goes_on(opened, base)


def test_onto_one_whose_last_pages_are_in_its_redo_log_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As under load, or on a full disk: behind the checkpoint of the earlier one more came in front of its point."""
    _, engine = filled()
    base, later = MemoryDisk(), MemoryDisk()
    engine.checkpoint()
    monkeypatch.setattr(engine._flusher, "checkpoint", lambda *_: None)
    add(engine, simple(8, first=41, size=5000))
    manifest = copy(engine, base)
    monkeypatch.undo()
    add(engine, simple(10, first=49, size=5000))
    truth = look(engine)
    copy(engine, later, BackupRequest(since=manifest.end))
    make_ready(base, SMALL, incremental=later)
    assert restored(base, SMALL)[1] == truth


def test_what_was_appended_a_moment_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point is durable: groups behind the checkpoint that no commit has synced are in front of it."""
    _, engine = filled()
    flusher = engine._flusher
    checkpoint = flusher.checkpoint
    more = simple(3, first=41)

    def checkpointed(*given: Callable[[], bool]) -> None:
        checkpoint(*given)
        append_all(engine, more)

    monkeypatch.setattr(flusher, "checkpoint", checkpointed)
    target = MemoryDisk()
    copy(engine, target)
    make_ready(target, SMALL)
    assert restored(target, SMALL)[1].groups[-3:] == tuple(payloads(more))


def test_since_a_position() -> None:
    """--incremental-since-gtid: whole files, from the one on that the position needs."""
    _, engine = filled()
    base, later = MemoryDisk(), MemoryDisk()
    copy(engine, base)
    position = engine.binlog_state().position()
    add(engine, simple(30, first=41, size=5000))
    engine.purge_to(engine.files()[1].number)
    manifest = copy(engine, later, BackupRequest(since_gtid=position))
    assert manifest.since is not None
    assert manifest.since.offset == 0
    assert manifest.since.file_no > 1
    make_ready(base, SMALL, incremental=later)
    _, found = restored(base, SMALL)
    assert found == look(engine)


def test_what_does_not_go_on_is_refused() -> None:
    _, engine = filled()
    base = MemoryDisk()
    first = copy(engine, base)
    add(engine, simple(5, first=41))
    second_disk = MemoryDisk()
    second = copy(engine, second_disk, BackupRequest(since=first.end))
    add(engine, simple(25, first=46, size=5000))
    third_disk = MemoryDisk()
    copy(engine, third_disk, BackupRequest(since=second.end))
    files = base.contents()
    if second.end != first.end:
        with pytest.raises(BackupRefused, match="there is a gap"):
            make_ready(base, SMALL, incremental=third_disk)
    assert base.contents() == files
    _, other = filled()
    other_disk = MemoryDisk()
    copy(other, other_disk)
    with pytest.raises(BackupRefused, match="of another store"):
        make_ready(other_disk, SMALL, incremental=second_disk)
    assert second.end is not None
    with pytest.raises(BackupRefused, match="not of this binlog"):
        copy(other, MemoryDisk(), BackupRequest(since=second.end))
    engine.purge_to(engine.files()[-1].number)
    with pytest.raises(BackupRefused, match=r"was purged since: make a full backup"):
        copy(engine, MemoryDisk(), BackupRequest(since=first.end))
    engine.reset()
    add(engine, simple(40, size=5000))
    with pytest.raises(BackupRefused, match="RESET MASTER came since"):
        copy(engine, MemoryDisk(), BackupRequest(since=first.end))
