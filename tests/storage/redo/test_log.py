"""The ring: what was flushed is found again, what was not may be, and nothing else ever is."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from typing import cast

import google_crc32c
import pytest
from binlog_storage.disk.disk import Disk, OsDisk
from binlog_storage.errors import CorruptRedo, DiskError
from binlog_storage.ibb.chunk import Position
from binlog_storage.redo import log as redo_log
from binlog_storage.redo import reader
from binlog_storage.redo.format import (
    BLOCK,
    FLUSHED,
    KIND_FLUSHED,
    MTR_OVERHEAD,
    REDO_NAME,
    RING_AT,
    TablesFrom,
    build_mtr,
    placed_record,
    tables_record,
)
from binlog_storage.redo.log import FIRST_LSN, RedoLog
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.disks import fails_to_sync
from tests.storage.redo.logs import (
    BUFFER,
    END,
    UUID,
    body,
    flipped,
    new_log,
    opened,
    patched,
    replayed,
    ring,
)
from tests.storage.redo.recording import Recording

NOTE = FLUSHED.size + MTR_OVERHEAD
PLACE = Position(5, 70000)


def append(log: RedoLog, *bodies: bytes) -> int:
    for each in bodies:
        with log._lock:
            log.append(each)
    return log.lsn


# --- writing and finding again ---


def test_a_new_log() -> None:
    disk = MemoryDisk()
    log = new_log(disk, 2000)
    assert (log.uuid, log.capacity, log.size) == (UUID, 2000, RING_AT + 2000)
    assert log.lsn == log.written_lsn == log.durable_lsn == log.checkpoint_lsn == FIRST_LSN
    assert (log.epoch, log.checkpoint.number, log.checkpoint.end) == (1, 2, END)
    disk.crash()
    assert disk.names() == [REDO_NAME]
    assert replayed(disk) == []


def test_made_over_what_was_left_of_a_try() -> None:
    disk = MemoryDisk({"binlog-server.redo.new": b"half"})
    new_log(disk)
    assert disk.names() == [REDO_NAME]


def test_lsns_move_one_behind_the_other() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    end = append(log, body(1), body(2))
    assert end == FIRST_LSN + 2 * (MTR_OVERHEAD + len(body(1)))
    assert (log.written_lsn, log.durable_lsn) == (FIRST_LSN, FIRST_LSN)
    end += NOTE
    assert log.write() == end
    assert (log.written_lsn, log.durable_lsn) == (end, FIRST_LSN)
    assert log.flush() == end
    assert (log.durable_lsn, log.checkpoint_lsn) == (end, FIRST_LSN)
    log.write_checkpoint(end, PLACE)
    assert log.checkpoint_lsn == end


def test_a_kill_loses_what_was_not_written_and_a_power_cut_what_was_not_synced() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, body(1))
    log.flush()
    append(log, body(2))
    log.write()
    append(log, body(3))
    assert replayed(MemoryDisk(disk.contents())) == [body(1), body(2)]
    assert replayed(disk.after_crash()) == [body(1)]


@pytest.mark.parametrize("size", [1, 7, 50])
def test_around_the_end_of_the_ring_at_every_offset(size: int) -> None:
    capacity = 331
    for offset in range(capacity):
        disk = MemoryDisk()
        log = new_log(disk, capacity, FIRST_LSN + offset)
        append(log, body(1, size), body(2, size))
        log.flush()
        log.close()
        log = opened(disk)
        assert [m.body for m in log.replay()] == [body(1, size), body(2, size)]
        assert log.lsn == FIRST_LSN + offset + 2 * len(build_mtr(1, 0, body(1, size))) + NOTE


def test_many_rounds(rng: random.Random) -> None:
    """Checkpoints make room; after each round a crash finds exactly what was appended since the last one."""
    disk = MemoryDisk()
    log = new_log(disk, 1000)
    since: list[bytes] = []
    for number in range(600):
        made = body(number, rng.randrange(1, 120))
        if log.room() < len(made) + MTR_OVERHEAD:
            log.flush()
            log.write_checkpoint(log.lsn, Position(0, number))
            since = []
        append(log, made)
        since.append(made)
        if rng.random() < 0.5:
            log.flush()
            assert replayed(disk.after_crash()) == since
    assert log.lsn > 20 * log.capacity


def test_a_checkpoint_in_the_middle() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    lsn = append(log, body(1))
    append(log, body(2), body(3))
    log.flush()
    log.write_checkpoint(lsn, PLACE)
    assert replayed(disk) == [body(2), body(3)]
    assert opened(disk).checkpoint.end == PLACE


# --- flushing ---


def test_one_flush_serves_all_that_was_appended() -> None:
    disk = MemoryDisk()
    log = new_log(disk, 100_000)
    before = disk.syncs
    append(log, *(body(n) for n in range(200)))
    log.flush()
    assert disk.syncs == before + 1
    log.flush()
    assert disk.syncs == before + 1, "nothing to do"
    assert log.groups == 1


def test_one_sync_serves_many_threads() -> None:
    disk = MemoryDisk()
    log = new_log(disk, 100_000)
    fsyncs = log.fsyncs.count
    first_in, waiting = threading.Event(), threading.Event()

    def fault(kind: str, _: str) -> None:
        if kind == "sync":
            first_in.set()
            assert waiting.wait(20)

    disk.fault = fault
    short: list[int] = []

    def commit(number: int) -> None:
        end = append(log, body(number))
        if log.flush() < end:
            short.append(number)

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(16)]
    threads[0].start()
    assert first_in.wait(20)
    for thread in threads[1:]:
        thread.start()
    while log.lsn - log.written_lsn < 15 * len(build_mtr(1, 0, body(1))):
        time.sleep(0.001)
    waiting.set()
    for thread in threads:
        thread.join(20)
    assert not short
    assert log.fsyncs.count - fsyncs == 2
    assert sorted(replayed(disk.after_crash())) == sorted(map(body, range(16)))


def test_notes_of_what_was_durable() -> None:
    """Each write says what was durable before it; nobody gets to see the note."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, body(1))
    first = log.flush()
    second = append(log, body(2))
    log.flush()
    assert log.lsn == second + NOTE
    note = build_mtr(1, second, FLUSHED.pack(KIND_FLUSHED, first))
    assert ring(disk)[second % log.capacity :].startswith(note)
    append(log, body(3))
    log.flush()
    end = log.lsn
    again = opened(disk)
    assert [m.body for m in again.replay()] == [body(1), body(2), body(3)]
    assert again.lsn == end


def test_no_note_where_there_is_no_room_for_it() -> None:
    disk = MemoryDisk()
    log = new_log(disk, 400)
    append(log, body(1))
    log.flush()
    rest = log.capacity - (log.lsn - log.checkpoint_lsn) - MTR_OVERHEAD - len(body(2, 0))
    append(log, body(2, rest))
    assert log.room() == -NOTE
    log.flush()
    assert replayed(disk) == [body(1), body(2, rest)]


def test_bounds() -> None:
    disk = MemoryDisk()
    redo_log.make(disk, uuid=UUID, size=RING_AT + 1000, epoch=0, lsn=FIRST_LSN, end=END)
    log = RedoLog(disk, threading.Lock(), 100)
    log.begin(END)
    assert log.room() == 1000 - NOTE
    assert log.buffer_room == 100
    size = append(log, body(1)) - FIRST_LSN
    assert log.room() == 1000 - NOTE - size
    assert (log.buffer_room, log.is_full) == (100 - size, False)
    append(log, body(2))
    assert (log.buffer_room, log.is_full) == (0, True)
    log.write()
    assert (log.buffer_room, log.is_full) == (100, False)
    assert log.room() == 1000 - 2 * NOTE - 2 * size
    log.flush()
    log.write_checkpoint(log.lsn, END)
    assert log.room() >= log.room_when_empty


def test_what_recovery_needs_is_never_overwritten() -> None:
    """Whoever appends asks for room before. If it did not: nothing is written, and nothing more is taken."""
    disk = MemoryDisk()
    log = new_log(disk, 1000)
    append(log, body(1, 400))
    log.flush()
    append(log, body(2, 400), body(3, 400))
    with pytest.raises(DiskError, match="too small"):
        log.flush()
    with pytest.raises(DiskError, match="failed before"):
        log.flush()
    assert replayed(disk) == [body(1, 400)]


# --- the end of the log ---


def two_writes() -> tuple[MemoryDisk, int, int]:
    """1 and 2 are durable; 3, 4 and a note were written behind, from the first offset to the second."""
    disk = MemoryDisk()
    log = new_log(disk, 700, FIRST_LSN + 600)  # 3 and 4 go over the end of the ring
    append(log, body(1), body(2))
    log.flush()
    start = log.lsn
    append(log, body(3), body(4))
    log.write()
    return disk, start, log.lsn


def test_a_torn_tail_at_every_byte() -> None:
    disk, start, end = two_writes()
    size = len(build_mtr(1, 0, body(3)))
    old, new = ring(disk.after_crash()), ring(disk)
    assert start % 700 > end % 700
    for kept in range(end - start + 1):
        for garbage in (None, b"\xff", b"\x00", b"\xb1\x06mt"):
            image = bytearray(old)
            for lsn in range(start, end):
                at = lsn % 700
                if lsn < start + kept:
                    image[at] = new[at]
                elif garbage is not None:
                    image[at] = garbage[lsn % len(garbage)]
            found = replayed(patched(disk, RING_AT, bytes(image)))
            assert found == [body(1), body(2), body(3), body(4)][: 2 + kept // size]


def test_a_tail_that_came_in_any_order() -> None:
    """Any of its bytes may be missing: the log ends in front of the first mini-transaction that is not whole."""
    disk, start, end = two_writes()
    size = len(build_mtr(1, 0, body(3)))
    for lsn in range(start, end):
        found = replayed(flipped(disk, RING_AT + lsn % 700))
        assert found == [body(1), body(2), body(3), body(4)][: min(4, 2 + (lsn - start) // size)]


def test_damage_in_what_was_durable() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    first = append(log, body(1))
    log.flush()
    append(log, body(2))
    log.flush()
    for lsn in range(FIRST_LSN, first):
        with pytest.raises(CorruptRedo, match=r"durable.*innodb_force_recovery=6"):
            replayed(flipped(disk, RING_AT + lsn % log.capacity))


def test_opening_that_fails_changes_nothing() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, body(1))
    log.flush()
    append(log, body(2))
    log.flush()
    bad = flipped(disk, RING_AT + FIRST_LSN % log.capacity + 30)
    before = bad.contents()
    with pytest.raises(CorruptRedo):
        replayed(bad)
    assert bad.contents() == before


def test_what_an_earlier_start_left_behind_is_not_of_the_log() -> None:
    """The tail of epoch 1 is torn at its start; epoch 2 goes on there, up to where a whole one of epoch 1 begins."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, body(1))
    start = log.flush()
    stale = append(log, body(2, 100))
    append(log, body(3), body(4))
    log.write()
    torn = flipped(disk, RING_AT + start % log.capacity)
    log = opened(torn)
    assert [m.body for m in log.replay()] == [body(1)]
    assert log.lsn == start
    log.begin(PLACE)
    assert log.epoch == 2
    assert replayed(torn) == []
    append(log, body(5, 100 - NOTE))
    assert log.flush() == stale
    assert ring(torn)[stale % log.capacity :].startswith(build_mtr(1, stale, body(3)))
    assert replayed(torn) == [body(5, 100 - NOTE)]


def test_a_second_crash_before_recovery_is_done() -> None:
    disk, _, _ = two_writes()
    for _ in range(3):
        assert replayed(disk) == [body(1), body(2), body(3), body(4)]


# --- checkpoints ---


def test_checkpoints_take_turns() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for number in range(3, 9):
        before = disk.contents()[REDO_NAME]
        log.write_checkpoint(log.lsn, Position(0, number))
        after = disk.contents()[REDO_NAME]
        changed = {at // BLOCK for at in range(len(after)) if after[at] != before[at]}
        assert changed == {1 if number % 2 else 2}
        assert opened(disk).checkpoint.number == number
        assert opened(disk.after_crash()).checkpoint.end == Position(0, number)


def test_a_torn_checkpoint_is_none() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    lsn = append(log, body(1))
    append(log, body(2))
    log.flush()
    log.write_checkpoint(lsn, PLACE)
    append(log, body(3))
    log.flush()
    assert replayed(disk) == [body(2), body(3)]
    block = log.checkpoint.at
    for at in range(52):
        assert replayed(flipped(disk, block + at)) == [body(1), body(2), body(3)]
    assert replayed(patched(disk, block, bytes(BLOCK))) == [body(1), body(2), body(3)]


def test_both_checkpoints_damaged() -> None:
    disk = MemoryDisk()
    new_log(disk)
    with pytest.raises(CorruptRedo, match="both checkpoints"):
        opened(flipped(flipped(disk, BLOCK + 3), 2 * BLOCK + 3))


@pytest.mark.parametrize("at", [0, BLOCK, 2 * BLOCK])
def test_what_a_newer_version_has_written_is_not_called_damaged(at: int) -> None:
    """Else one is told to go on without the last commits (innodb_force_recovery)."""
    disk = MemoryDisk()
    new_log(disk)
    magic = b"redo ck3" if at else b"binlog redo 2\r\n\0"
    body = magic + bytes(range(1, 81 - len(magic)))
    newer = patched(disk, at, body + google_crc32c.value(body).to_bytes(4, "little"))
    with pytest.raises(
        CorruptRedo, match="a newer version of binlog-server has written it"
    ) as told:
        opened(newer)
    assert "force_recovery" not in str(told.value)
    if not at:
        with pytest.raises(CorruptRedo, match="does not begin as a redo log does"):
            opened(flipped(newer, 20))


@pytest.mark.parametrize("damage", ["flipped", "zeros"])
def test_a_damaged_checkpoint_whose_log_was_used_again(damage: str) -> None:
    """The one before leads into what was written over since: that is no end of a log."""
    for rounds in range(1, 60):
        disk = MemoryDisk()
        log = new_log(disk, 900)
        append(log, body(1), body(2))
        log.flush()
        log.write_checkpoint(log.lsn, END)
        append(log, *(body(n) for n in range(10)))
        log.flush()
        older = log.checkpoint.lsn
        log.write_checkpoint(log.lsn, PLACE)
        for number in range(rounds):
            if log.room() < 60:
                break
            append(log, body(100 + number))
            if number % 3 == 0:
                log.flush()
        log.flush()
        block = log.checkpoint.at
        bad = flipped(disk, block + 9) if damage == "flipped" else patched(disk, block, bytes(52))
        if log.lsn > older + log.capacity:
            with pytest.raises(CorruptRedo, match=r"used again|was durable"):
                replayed(bad)
        else:
            assert replayed(bad)[:10] == [body(n) for n in range(10)]
            assert len(replayed(bad)) == 10 + rounds


def test_a_damaged_checkpoint_of_a_new_start() -> None:
    """The log of the epoch before is whole; but it went on in another epoch, which must not be forgotten."""
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, body(1))
    log.flush()
    log = opened(disk)
    list(log.replay())
    log.begin(PLACE)
    block = log.checkpoint.at
    assert replayed(flipped(disk, block)) == [body(1)], "nothing was written in it"
    append(log, body(2))
    log.flush()
    with pytest.raises(CorruptRedo, match="used again"):
        replayed(flipped(disk, block))


# --- the file ---


@pytest.mark.parametrize("at", [*range(44)])
def test_a_damaged_header(at: int) -> None:
    disk = MemoryDisk()
    new_log(disk)
    with pytest.raises(CorruptRedo, match="damaged or not ours"):
        opened(flipped(disk, at))


@pytest.mark.parametrize("more", [-1, 1, -2000])
def test_a_file_of_another_length(more: int) -> None:
    disk = MemoryDisk()
    new_log(disk)
    data = disk.contents()[REDO_NAME]
    data = data[:more] if more < 0 else data + bytes(more)
    with pytest.raises(CorruptRedo, match=f"has {len(data)} bytes, but was made with"):
        opened(MemoryDisk({REDO_NAME: data}))


def test_made_whole_or_not_at_all() -> None:
    for way in ("kill", "cut", "torn"):
        for stop in itertools.count(1):
            disk = MemoryDisk()
            new_log(disk, 500).close()
            disk.fail_at = disk.operations + stop
            try:
                redo_log.make(disk, uuid=UUID, size=RING_AT + 900, epoch=4, lsn=9999, end=PLACE)
            except DiskError:
                if way == "kill":
                    disk.kill()
                else:
                    disk.crash(random.Random(stop) if way == "torn" else None)
                log = opened(disk)
                assert list(log.replay()) == []
                assert (log.capacity, log.lsn) in ((500, FIRST_LSN), (900, 9999))
            else:
                break
        assert stop > 5


def test_on_a_real_disk(tmp_path: object) -> None:
    disk = OsDisk(tmp_path)  # type: ignore[arg-type]
    redo_log.make(disk, uuid=UUID, size=RING_AT + 3_000_001, epoch=0, lsn=FIRST_LSN, end=END)
    log = RedoLog(disk, threading.Lock(), BUFFER)
    log.begin(END)
    bodies = [body(n, 1000 + n) for n in range(1500)]
    for made in bodies:
        append(log, made)
        if log.is_full:
            log.write()
    log.flush()
    log.close()
    log = RedoLog(disk, threading.Lock(), BUFFER)
    assert [m.body for m in log.replay()] == bodies
    log.close()


# --- failures ---


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("what", ["flush", "checkpoint"])
def test_a_failure_is_for_good(kind: str, what: str) -> None:
    """The next sync of the kernel would succeed without what was lost; so there is none."""
    disk = MemoryDisk()
    disk.failed_sync_forgets = True
    log = new_log(disk)
    append(log, body(1))
    durable = log.flush()
    append(log, body(2))
    failures = [1]

    def fault(now: str, _: str) -> None:
        if now == kind and failures:
            failures.pop()
            raise DiskError("cannot do it: Input/output error (injected)")

    disk.fault = fault

    def checkpoint() -> None:
        log.write_checkpoint(durable, PLACE)

    with pytest.raises(DiskError, match="Input/output error"):
        (log.flush if what == "flush" else checkpoint)()
    assert not failures
    operations = disk.operations
    append(log, body(3))
    for use in (log.flush, log.write, checkpoint):
        with pytest.raises(DiskError, match="failed before"):
            use()
    assert disk.operations == operations, "the file was touched again"
    assert (log.durable_lsn, log.checkpoint_lsn) == (durable, FIRST_LSN)
    assert replayed(disk.after_crash()) == [body(1)]


@pytest.mark.parametrize("what", ["flush", "checkpoint"])
def test_a_start_writes_again_what_a_failed_sync_has_lost(what: str) -> None:
    """At every place of the ring. The kernel shows what it will never write: only a new write makes it durable."""
    for before in range(0, 600, 7):
        disk = MemoryDisk()
        disk.failed_sync_forgets = True
        log = new_log(disk, 500)
        for _ in range(before // 60):
            append(log, body(9))
            log.flush()
            log.write_checkpoint(log.lsn, END)
        append(log, body(1, 1 + before % 60))
        durable = log.flush()
        append(log, body(2), body(3))
        if what == "checkpoint":
            log.flush()
        disk.fault = fails_to_sync
        with pytest.raises(DiskError):
            log.flush() if what == "flush" else log.write_checkpoint(durable, PLACE)
        disk.fault = None
        disk.kill()
        again = opened(disk)
        found = [mtr.body for mtr in again.replay()]
        assert found[-2:] == [body(2), body(3)]
        again.write_again()
        cut = disk.after_crash()
        assert replayed(cut) == found
        assert opened(cut).checkpoint == again.checkpoint


def test_a_start_writes_no_more_again_than_it_must() -> None:
    """What the log itself says to have been durable is not written another time."""
    disk = Recording()
    log = new_log(disk.disk, 1_000_000)
    for number in range(100):
        append(log, body(number, 5000))
        log.flush()
    again = RedoLog(cast(Disk, disk), threading.Lock(), BUFFER)
    assert len(list(again.replay())) == 100
    disk.done.clear()
    again.write_again()
    written = sum(len(done.data) for done in disk.done)
    assert BLOCK + 5000 < written < BLOCK + 11_000


def test_a_defect_before_the_log_is_written_loses_nothing() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, body(1), body(2))

    def defect(lsn: int) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        log.flush(defect)
    assert log.durable_lsn == FIRST_LSN
    append(log, body(3))
    assert log.flush() == log.lsn
    disk.crash()
    assert replayed(disk) == [body(1), body(2), body(3)]


def test_no_two_syncs_at_once() -> None:
    """Of two at the same time only one is told of an error, and the other believes that all is well."""
    disk = MemoryDisk()
    log = new_log(disk, 1_000_000)
    inside = 0
    together = 0

    def fault(kind: str, _: str) -> None:
        nonlocal inside, together
        if kind == "sync":
            inside += 1
            together = max(together, inside)
            time.sleep(0.0005)
            inside -= 1

    disk.fault = fault

    def commit() -> None:
        for number in range(40):
            append(log, body(number))
            log.flush()

    threads = [threading.Thread(target=commit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        log.write_checkpoint(log.durable_lsn, PLACE)
    for thread in threads:
        thread.join(20)
    assert together == 1


# --- beside a traditional binlog ---


def behind(place: int) -> bytes:
    return placed_record(Position(1, place)) + tables_record(b"%d" % place)


def test_the_log_ends_where_the_binlog_does() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    log.settled_lsn = append(log, behind(100))
    log.flush()
    append(log, behind(200), behind(300))
    log.flush()  # notes that all up to 100 is settled
    append(log, behind(400))
    log.flush()
    disk.crash()

    def found(end: int) -> list[int]:
        log = opened(disk)
        places = [mtr.place for mtr in log.replay(None, lambda place: place.offset <= end)]
        return [place.offset for place in places if place is not None]

    assert found(1000) == [100, 200, 300, 400]
    assert found(399) == [100, 200, 300]
    assert found(250) == [100, 200]
    with pytest.raises(CorruptRedo, match="reach up to offset 100 of its file 000001"):
        found(99)


def test_what_a_checkpoint_says_is_not_asked_for() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, behind(100))
    log.flush()
    log.write_checkpoint(log.lsn, None, TablesFrom(FIRST_LSN, 1))
    disk.crash()
    log = opened(disk)
    assert [mtr.place for mtr in log.replay(None, lambda _: False)] == [Position(1, 100)]


def test_a_long_replay_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """And a short one nothing."""
    now = 0.0
    with caplog.at_level(logging.INFO):
        told = reader._Progress(5 << 20, clock=lambda: now)
        for mib in range(6, 20):
            told.at(mib << 20)
        told.end(20 << 20)
        assert caplog.messages == []
        told = reader._Progress(5 << 20, clock=lambda: now)
        for mib in range(6, 20):
            now += 2.5
            told.at(mib << 20)
            told.at((mib << 20) + 1)  # hardly any more: the clock is not asked
        told.end(20 << 20)
    assert caplog.messages == [
        "redo log: 4 MiB are read again so far, in 10 s",
        "redo log: 8 MiB are read again so far, in 20 s",
        "redo log: 12 MiB are read again so far, in 30 s",
        "redo log: all 15 MiB are read again, in 35 s",
    ]
