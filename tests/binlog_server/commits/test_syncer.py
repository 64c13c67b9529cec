"""One sync for all that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.errors import DiskError, StorageError, WaitGivenUp
from binlog_storage.testing.memory_engine import MemoryEngine

from binlog_server.commits import syncer as syncer_module
from binlog_server.commits.syncer import Syncer
from tests.binlog_server.engines import SlowEngine
from tests.binlog_server.lab import transaction, until, within


def append(engine: SlowEngine, seq_no: int) -> None:
    gtid = Gtid(0, 1, seq_no)
    engine.append(transaction(gtid), gtid)


async def test_one_sync_for_many(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    engine.sync_gate.clear()
    append(engine, 1)
    waiting = [asyncio.ensure_future(syncer.synced())]
    await until(lambda: engine.syncs == 1)
    for number in range(2, 100):
        append(engine, number)
        syncer.request()
        waiting.append(asyncio.ensure_future(syncer.synced()))
    await asyncio.sleep(0)
    engine.sync_gate.set()
    await within(asyncio.gather(*waiting))
    assert engine.syncs == 2, "one that ran, and one for all that came meanwhile"
    assert engine.durable_end == engine.written_end


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine()


async def test_synced_means_durable(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    for number in range(1, 50):
        append(engine, number)
        end = engine.written_end
        await within(syncer.synced())
        assert engine.durable_end >= end


async def test_what_nobody_waits_for_is_synced_when_the_readers_look(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    rest_s = 3600.0
    syncer.readers_rest_s = lambda: rest_s
    append(engine, 1)
    syncer.appended()
    await asyncio.sleep(0)
    assert engine.durable_end < engine.written_end
    rest_s = 0.001  # never later than the next who appends would have it
    append(engine, 2)
    syncer.appended()
    await until(lambda: engine.durable_end == engine.written_end)
    assert engine.syncs == 1
    rest_s = 3600.0
    append(engine, 3)
    syncer.appended()
    await within(syncer.synced())  # somebody waits
    append(engine, 4)
    syncer.appended()
    await within(syncer.close())
    assert engine.durable_end == engine.written_end, "and not at the end either"


async def test_a_rest_too_short_for_a_timer(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    rests_s = iter([1e-9, 3600.0, 1e-9])
    syncer.readers_rest_s = lambda: next(rests_s)
    for seq_no in (1, 2, 3):  # in one turn of the loop
        append(engine, seq_no)
        syncer.appended()
    await until(lambda: engine.durable_end == engine.written_end)
    assert engine.syncs == 1


async def test_request_is_enough(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    append(engine, 1)
    syncer.request()
    await until(lambda: engine.durable_end == engine.written_end)


async def test_failure_reaches_all_and_stays(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    engine.sync_gate.clear()
    engine.sync_error = DiskError("cannot sync: No space left on device")
    append(engine, 1)
    waiting = [asyncio.ensure_future(syncer.synced()) for _ in range(5)]
    await until(lambda: engine.syncs == 1)
    engine.sync_gate.set()
    found = await within(asyncio.gather(*waiting, return_exceptions=True))
    assert found == [engine.sync_error] * 5
    with pytest.raises(DiskError, match="No space left"):
        await within(syncer.synced())
    await within(syncer.close())


async def test_who_waits_may_go(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    engine.sync_gate.clear()
    append(engine, 1)
    first, second = (asyncio.ensure_future(syncer.synced()) for _ in range(2))
    await until(lambda: engine.syncs == 1)
    first.cancel()
    await until(first.done)
    engine.sync_gate.set()
    await within(second)
    assert engine.durable_end == engine.written_end


async def test_close_finishes_what_was_requested(engine: SlowEngine) -> None:
    syncer = Syncer(engine)
    append(engine, 1)
    syncer.request()
    await within(syncer.close())
    assert engine.durable_end == engine.written_end
    await within(Syncer(engine).close())


# --- what committed means ---


class Written(SlowEngine):
    """Counts what is handed to the operating system."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.write_error: DiskError | None = None

    def write_log(self) -> None:
        self.writes += 1
        if self.write_error is not None:
            raise self.write_error


@pytest.mark.parametrize("sync_binlog", [0, 1, 2])
@pytest.mark.parametrize(("setting", "writes"), [(0, 0), (2, 1)])
async def test_committed_before_the_sync(setting: int, writes: int, sync_binlog: int) -> None:
    engine = Written()
    syncer = Syncer(
        engine, flush_log_at_trx_commit=setting, flush_log_at_timeout=3600, sync_binlog=sync_binlog
    )
    found: list[StorageError | None] = []
    for number in range(1, 6):
        append(engine, number)
        syncer.on_commit(found.append)
    assert not found, "the answer never comes before the call returns"
    await until(lambda: len(found) == 5)
    assert (found, engine.writes, engine.syncs) == ([None] * 5, writes, 0)
    syncer.flush_log_at_timeout = 0.05
    syncer.appended()
    await until(lambda: engine.durable_end == engine.written_end)
    assert engine.syncs == 1
    await within(syncer.close())


@pytest.mark.parametrize("setting", [1, 3])
async def test_sync_binlog_may_say_less(setting: int) -> None:
    """0 hands all to the operating system; of 3, two groups of commits are, and the third waits for a sync of all."""
    engine = Written()
    syncer = Syncer(
        engine, flush_log_at_trx_commit=setting, flush_log_at_timeout=100, sync_binlog=0
    )
    found: list[tuple[bool, bool]] = []

    async def commits(number: int) -> tuple[int, int]:
        before = engine.writes, engine.syncs
        for seq_no in range(2 * number - 1, 2 * number + 1):
            append(engine, seq_no)
            syncer.on_commit(
                lambda error: found.append(
                    (error is None, engine.written_end == engine.durable_end)
                )
            )
        await until(lambda: len(found) == 2 * number)
        return engine.writes - before[0], engine.syncs - before[1]

    for number in (1, 2):
        assert await commits(number) == (1, 0)
    syncer.sync_binlog = 3
    assert [await commits(number) for number in range(3, 8)] == [
        *[(0, 1), (1, 0), (1, 0), (0, 1), (1, 0)]
    ]
    assert [durable for _, durable in found[4:]] == [
        *[True] * 2,
        *[False] * 4,
        *[True] * 2,
        *[False] * 2,
    ]
    syncer.sync_binlog = 1
    assert await commits(8) == (0, 1)
    assert found[-2:] == [(True, True)] * 2
    await within(syncer.close())


@pytest.mark.parametrize("setting", [1, 3])
async def test_committed_is_durable(setting: int) -> None:
    engine = Written()
    syncer = Syncer(engine, flush_log_at_trx_commit=setting)
    ends = []
    for number in range(1, 6):
        append(engine, number)
        syncer.on_commit(lambda _: ends.append(engine.durable_end))
    await until(lambda: len(ends) == 5)
    assert ends == [engine.written_end] * 5
    assert engine.syncs == 1
    await within(syncer.close())


@pytest.mark.parametrize("setting", [0, 2])
async def test_readers_that_wait_are_served_at_once(setting: int) -> None:
    engine = Written()
    syncer = Syncer(engine, flush_log_at_trx_commit=setting, flush_log_at_timeout=100)
    append(engine, 1)
    syncer.appended()
    await asyncio.sleep(0.02)
    assert engine.syncs == 0
    syncer.readers_waiting += 1
    append(engine, 2)
    syncer.appended()
    await until(lambda: engine.durable_end == engine.written_end)
    syncer.readers_waiting -= 1
    append(engine, 3)
    syncer.on_commit(lambda _: None)
    await within(syncer.close())
    assert engine.durable_end == engine.written_end, "close leaves nothing behind"


async def test_a_failed_write_is_told_to_who_waits_for_it() -> None:
    engine = Written()
    failures: list[StorageError] = []
    syncer = Syncer(engine, flush_log_at_trx_commit=2, failed=failures.append)
    engine.write_error = DiskError("cannot write: Input/output error")
    found: list[StorageError | None] = []
    append(engine, 1)
    syncer.on_commit(found.append)
    await until(lambda: bool(found))
    for setting in range(4):
        syncer.flush_log_at_trx_commit = setting
        syncer.on_commit(found.append)
    await until(lambda: len(found) == 5)
    assert found == [engine.write_error] * 5
    assert failures == [engine.write_error], "told once"
    await within(syncer.close())


@pytest.mark.parametrize("setting", range(4))
async def test_after_a_failed_sync_nothing_is_committed(setting: int) -> None:
    engine = Written()
    failures: list[StorageError] = []
    syncer = Syncer(engine, flush_log_at_trx_commit=setting, failed=failures.append)
    engine.sync_error = DiskError("cannot sync: Input/output error")
    append(engine, 1)
    with pytest.raises(DiskError):
        await within(syncer.synced())
    found: list[StorageError | None] = []
    syncer.on_commit(found.append)
    await until(lambda: bool(found))
    assert found == failures == [engine.sync_error]
    assert syncer.failure is engine.sync_error
    await within(syncer.close())


class NotingThreads(MemoryEngine):
    """Notes which thread syncs; each sync takes so many seconds of its own `clock`."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.now = 0.0
        self.threads: list[int] = []

    def clock(self) -> float:
        return self.now

    def sync(self, durable: Callable[[], object] | None = None) -> None:
        self.threads.append(threading.get_ident())
        self.now += self.seconds
        super().sync(durable)


async def commit_many(engine: NotingThreads, syncer: Syncer, count: int) -> list[bool]:
    """Commit one by one; whether the loop's thread did the sync."""
    for number in range(1, count + 1):
        gtid = Gtid(0, 1, number)
        engine.append(transaction(gtid), gtid)
        await within(syncer.committed())
    await within(syncer.close())
    return [thread == threading.get_ident() for thread in engine.threads]


async def test_a_single_client_needs_no_thread_once_syncs_are_known_to_be_short() -> None:
    engine = NotingThreads()
    here = await commit_many(engine, Syncer(engine, alone=lambda: True, clock=engine.clock), 300)
    assert not here[0], "nothing is known yet"
    assert here[-1]
    assert engine.durable_end == engine.written_end


async def test_long_syncs_never_hold_the_loop() -> None:
    engine = NotingThreads(0.005)
    syncer = Syncer(engine, alone=lambda: True, clock=engine.clock)
    assert not any(await commit_many(engine, syncer, 300))


async def test_with_others_to_serve_syncs_never_hold_the_loop() -> None:
    engine = NotingThreads()
    assert not any(await commit_many(engine, Syncer(engine, clock=engine.clock), 300))


async def test_a_sync_on_the_loop_that_fails_is_told() -> None:
    engine = NotingThreads()
    failures: list[StorageError] = []
    syncer = Syncer(engine, alone=lambda: True, failed=failures.append, clock=engine.clock)
    for number in range(1, 200):
        gtid = Gtid(0, 1, number)
        engine.append(transaction(gtid), gtid)
        await within(syncer.committed())
    assert engine.threads[-1] == threading.get_ident()
    engine._history.fails = True
    with pytest.raises(DiskError):
        await within(syncer.committed())
    assert len(failures) == 1
    await within(syncer.close())


class Alone:
    """A syncer that has seen short syncs, whose one client has appended a group."""

    def __init__(self, **options: Any) -> None:
        self.is_alone = True
        self.engine = SlowEngine()
        self.syncer = Syncer(self.engine, alone=lambda: self.is_alone, **options)
        self.syncer._sync_s = 0.0
        self.waiting = 0
        self.answers: list[StorageError | None] = []
        self.at_once = 0
        append(self.engine, 1)

    def commit(self) -> bool:
        """Whether it was done in the call."""
        done = self.syncer.commit(self.answers.append, self._durable)
        self.waiting += not done
        return done

    def _durable(self) -> None:
        assert self.answers == [], "in front of all else"
        self.at_once += 1

    @property
    def is_durable(self) -> bool:
        return self.engine.durable_end == self.engine.written_end

    async def told(self) -> StorageError | None:
        """What all were called back with that were not done in the call."""
        await until(lambda: len(self.answers) == self.waiting)
        assert len(set(self.answers)) == 1
        answer, self.answers, self.waiting = self.answers[0], [], 0
        return answer


async def test_who_is_alone_commits_in_the_call() -> None:
    lab = Alone()
    assert lab.commit()
    assert lab.is_durable, "without a turn of the loop"
    assert lab.at_once == 1
    assert lab.commit(), "with nothing to do"
    assert lab.at_once == 1, "no sync has made it so"
    await within(lab.syncer.close())


@pytest.mark.parametrize(
    "options", [{"flush_log_at_trx_commit": 0}, {"flush_log_at_trx_commit": 2}, {"sync_binlog": 0}]
)
async def test_what_need_not_be_durable_is_not_synced_in_the_call(options: dict[str, int]) -> None:
    lab = Alone(**options, flush_log_at_timeout=3600.0)
    in_the_call = "sync_binlog" not in options  # by which some wait for a sync
    assert lab.commit() is in_the_call
    assert not lab.engine.syncs
    assert lab.syncer._timer.is_set, "it becomes durable in time"
    lab.is_alone = False
    assert not lab.commit()
    assert await lab.told() is None
    await within(lab.syncer.close())
    assert lab.is_durable


@pytest.mark.parametrize(
    ("error", "is_the_end"),
    [
        (WaitGivenUp("a new file begins"), False),
        (DiskError("cannot write: Input/output error"), True),
        (KeyError("a defect"), False),
    ],
)
async def test_what_cannot_be_written_in_the_call(
    error: Exception, is_the_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is done as for all others, who hear the first error."""
    failures: list[StorageError] = []
    lab = Alone(flush_log_at_trx_commit=2, flush_log_at_timeout=3600.0, failed=failures.append)
    original, fails = lab.engine.write_log, [error]

    def write() -> None:
        if fails:
            raise fails.pop()
        original()

    monkeypatch.setattr(lab.engine, "write_log", write)
    assert not lab.commit()
    assert await lab.told() is (error if is_the_end else None)
    assert failures == [error] * is_the_end
    await within(lab.syncer.close())


async def test_what_comes_alone_is_synced_in_the_call() -> None:
    """A group of an upstream, for which nobody waits: replicas have it a turn of the loop sooner."""
    lab = Alone()
    lab.syncer.appended()
    assert lab.is_durable
    append(lab.engine, 2)
    lab.is_alone = False
    lab.syncer.appended()
    assert not lab.is_durable
    await until(lambda: lab.is_durable)
    await within(lab.syncer.close())


async def test_what_comes_alone_and_fails() -> None:
    failures: list[StorageError] = []
    lab = Alone(failed=failures.append)
    lab.engine.sync_error = DiskError("cannot sync: Input/output error")
    lab.syncer.appended()
    await until(lambda: failures == [lab.engine.sync_error])
    lab.syncer.appended()
    assert not lab.commit()
    assert await lab.told() is lab.engine.sync_error
    assert len(failures) == 1
    await within(lab.syncer.close())


async def test_with_others_nothing_is_synced_in_the_call() -> None:
    lab = Alone()
    lab.is_alone = False
    assert not lab.commit()
    lab.is_alone = True
    lab.syncer._sync_s = 1.0  # syncs are long
    assert not lab.commit()
    lab.syncer._sync_s = 0.0
    lab.syncer.request()  # another one is served by the sync of this round
    assert not lab.commit()
    assert not lab.engine.syncs
    assert await lab.told() is None
    assert lab.is_durable
    await within(lab.syncer.close())


async def test_what_has_to_wait_is_done_by_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Alone()
    here, original = threading.get_ident(), lab.engine.sync

    def sync(durable: Callable[[], object] | None = None) -> None:
        if threading.get_ident() == here:
            raise WaitGivenUp("a full disk")
        original(durable)

    monkeypatch.setattr(lab.engine, "sync", sync)
    assert not lab.commit()
    assert await lab.told() is None
    assert lab.is_durable
    assert lab.syncer.failure is None
    await within(lab.syncer.close())


async def test_a_sync_in_the_call_that_fails_is_told_once() -> None:
    failures: list[StorageError] = []
    lab = Alone(failed=failures.append)
    lab.engine.sync_error = DiskError("cannot sync: Input/output error")
    assert not lab.commit()
    assert await lab.told() is lab.engine.sync_error, "the first error, not that of a second try"
    assert not lab.at_once
    assert failures == [lab.engine.sync_error]
    assert not lab.commit()
    assert await lab.told() is lab.engine.sync_error
    await within(lab.syncer.close())


async def test_a_defect_in_the_call_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncer_module, "RETRY_S", 0.01)
    lab = Alone()
    original, fails = lab.engine.sync, [KeyError("a defect")]

    def sync(durable: Callable[[], object] | None = None) -> None:
        if fails:
            raise fails.pop()
        original(durable)

    monkeypatch.setattr(lab.engine, "sync", sync)
    assert not lab.commit()
    assert lab.syncer.waiting_s > 0
    assert await lab.told() is None
    assert lab.is_durable
    await until(lambda: lab.syncer.waiting_s == 0)
    await within(lab.syncer.close())


@pytest.mark.parametrize("alone", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize("setting", [1, 2])
async def test_a_defect_keeps_nobody_waiting_for_ever(
    alone: bool, setting: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and done again; the store has not failed by it."""
    monkeypatch.setattr(syncer_module, "RETRY_S", 0.01)
    engine = SlowEngine()
    syncer = Syncer(engine, alone=lambda: alone, flush_log_at_trx_commit=setting)
    syncer._sync_s = 0.0
    name = "sync" if setting == 1 else "write_log"
    original, fails = getattr(engine, name), [KeyError("a defect"), MemoryError()]

    def fail(*given: Any) -> None:
        if fails:
            raise fails.pop()
        original(*given)

    monkeypatch.setattr(engine, name, fail)
    append(engine, 1)
    await within(asyncio.gather(syncer.committed(), syncer.committed()))
    assert not fails
    assert caplog.text.count("internal error in the sync of the redo log") == 2
    assert syncer.failure is None
    await within(syncer.synced())
    assert engine.durable_end == engine.written_end
    await until(lambda: syncer.waiting_s == 0)  # another may have begun for who came meanwhile
    await within(syncer.close())


async def test_what_cannot_be_written_at_once_is_written_by_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk, or a new file that begins: no commit is answered before, and nothing has failed."""
    engine = SlowEngine()
    syncer = Syncer(engine, flush_log_at_trx_commit=2, flush_log_at_timeout=3600.0)
    here, callers, written = threading.get_ident(), list[int](), threading.Event()
    original = engine.write_log

    def write() -> None:
        callers.append(threading.get_ident())
        if callers[-1] == here:
            raise WaitGivenUp("a new file begins")
        written.wait(20)
        original()

    monkeypatch.setattr(engine, "write_log", write)
    append(engine, 1)
    first = asyncio.ensure_future(syncer.committed())
    await until(lambda: len(callers) == 2)
    append(engine, 2)
    second = asyncio.ensure_future(syncer.committed())
    await until(lambda: len(callers) == 3)
    assert not first.done()
    written.set()
    await within(asyncio.gather(first, second))
    assert [caller == here for caller in callers] == [True, False, True, False]
    assert engine.syncs == 0
    assert syncer.failure is None
    await within(syncer.close())


async def test_one_who_cannot_be_told_keeps_no_other_waiting(engine: SlowEngine) -> None:
    syncer = Syncer(engine)

    def fails(error: StorageError | None) -> None:
        raise KeyError("a defect")

    syncer.on_durable(fails)
    await within(syncer.synced())
    await within(syncer.close())


async def test_commits_wait_for_a_thread_where_the_system_has_none(
    engine: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are durable when there is one; a server takes its thread at its start."""
    monkeypatch.setattr(syncer_module, "RETRY_S", 0.01)
    syncer, tries = Syncer(engine), 0
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError):
        syncer.start()
    await within(syncer.synced())
    assert (tries, engine.syncs) == (3, 1)
    await within(syncer.close())
