"""A scripted run of a store that ends at its n-th call of the operating system, by kill -9 or by a power cut.

The runs are forked from one process that has everything imported, and is a process of its own because the test's has
threads. `Runs` talks to it in lines of JSON; each run acknowledges on a pipe what was made durable.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine.backup import BackupEngine

from binlog_server.settings.config import Config
from binlog_server.settings.engine_limits import TRADITIONAL
from binlog_server.store.store_directory import StoreDirectory, WantedStore, prepare_backup
from tests.kit import os_calls
from tests.kit.cut_disk import power_off
from tests.storage.backup.copying import copy
from tests.storage.groups import Group, append_all, gtid_event, history

LOG_BYTES = 512 << 10  # goes round several times
OPTIONS = StoreOptions(
    max_binlog_size=8 * 16384,
    innodb_binlog_state_interval=2 * 16384,
    slave_connections_needed_for_purge=0,
    innodb_log_file_size=LOG_BYTES,
)
STORES = {
    "ibb": WantedStore(),
    "traditional": WantedStore(
        TRADITIONAL, "binlog", lambda base: ClassicOptions(base, OPTIONS.max_binlog_size)
    ),
}
COPY = "copy"
GROUPS = 120
BACKED_UP = 20  # groups before a backup
SIZE_MAX = 200_000  # more than a file
WAYS = ("before", "torn", "after")


@dataclass(frozen=True)
class Order:
    """A run, and where it ends.

    at: number of the call, from 0 on; -1 for none.
    how: before the call, in the middle of it, after it; "cut": with the power of the disk, before it.
    only_open: nothing is written but what opening the store writes.
    backup_of: a store of this format is filled; it ends in a backup of it, into the folder `COPY` beside it, while
        groups come, or in the preparing of that. Calls are counted from the backup on.
    """

    directory: str
    seed: int
    at: int = -1
    how: str = "before"
    only_open: bool = False
    backup_of: str = ""


@dataclass(frozen=True)
class Outcome:
    """acknowledged: groups made durable. begins: the first group that no purge has asked to delete."""

    calls: int
    acknowledged: int
    begins: int
    status: int


def groups_of(seed: int) -> list[Group]:
    return history(random.Random(seed), GROUPS, size_max=SIZE_MAX)


class Runs:
    """Starts runs, and waits for their end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.killed_run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, directory: Path, seed: int, **more: Any) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(Order(str(directory), seed, **more))) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)


# -- in the process that forks ---------------------------------------------------------------------


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(asdict(_fork(Order(**json.loads(line))))), flush=True)


def _fork(order: Order) -> Outcome:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        status = 1
        try:
            _run(order, lambda kind, number: os.write(writing, f"{kind} {number}\n".encode()))
            status = 0
        except Exception:  # noqa: BLE001 - the forked process must not go on as its parent
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    last = {"call": 0, "group": 0, "begin": 0}
    with os.fdopen(reading) as told:
        for line in told:
            kind, number = line.split()
            last[kind] = int(number)
    _, status = os.waitpid(pid, 0)
    return Outcome(last["call"], last["group"], last["begin"], os.waitstatus_to_exitcode(status))


# -- in the fork -----------------------------------------------------------------------------------

Tell = Callable[[str, int], object]


class _End:
    """Ends the process at one of its calls."""

    def __init__(self, order: Order, tell: Tell) -> None:
        self._order = order
        self._tell = tell
        self._numbers = itertools.count()  # one step of it cannot be interrupted by another thread

    def __call__(self, call: os_calls.Call) -> Any:
        number = next(self._numbers)
        self._tell("call", number + 1)
        if number != self._order.at:
            return call.make()
        if self._order.how == "torn":
            call.tear()
        elif self._order.how == "after":
            call.make()
        elif self._order.how == "cut":
            power_off(Path(self._order.directory))
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
        return None


def config_of(directory: Path) -> Config:
    """That of a server of the store that a backup becomes."""
    return Config(binlog_directory=directory, max_binlog_size=OPTIONS.max_binlog_size)


def _run(order: Order, tell: Tell) -> None:
    if order.backup_of:
        _back_up(order, tell)
        return
    os_calls.watch(_End(order, tell))
    store = StoreDirectory(Path(order.directory), OPTIONS)
    if not order.only_open:
        _work(store, random.Random(f"work {order.seed}"), groups_of(order.seed), tell)
    store.close()


def _back_up(order: Order, tell: Tell) -> None:
    directory = Path(order.directory)
    target = directory.with_name(COPY)
    target.mkdir()
    store = StoreDirectory(directory, OPTIONS, STORES[order.backup_of], background=False)
    groups = [group for group in groups_of(order.seed) if group.gtid is not None]
    append_all(store.engine, groups[:BACKED_UP])
    store.engine.sync()
    tell("group", BACKED_UP)
    os_calls.watch(_End(order, tell))
    more = iter(groups[BACKED_UP : 2 * BACKED_UP])

    def between() -> None:
        if (group := next(more, None)) is not None:
            store.engine.append(*group)

    assert isinstance(store.engine, BackupEngine)
    copy(store.engine, OsDisk(target), between=between)
    prepare_backup(
        config_of(target), skip_binlog=False, incremental=None, progress=lambda what: None
    )
    store.close()


def _work(store: StoreDirectory, rng: random.Random, groups: list[Group], tell: Tell) -> None:
    engine = store.engine
    file_begins: dict[int, int] = {}
    for number, group in enumerate(groups):
        # The group begins in this file or in a later one.
        file_begins.setdefault(engine.written_end.file_no, number)
        if group.gtid is not None and rng.random() < 0.2:
            head = gtid_event(group.gtid)
            transaction = Transaction(engine)
            transaction.write(group.payload[len(head) :])
            transaction.commit(head, group.gtid)
        else:
            engine.append(*group)
        what = rng.random()
        if what < 0.4:
            engine.sync()
            tell("group", number + 1)
        elif what < 0.45:
            engine.write_log()
        elif what < 0.50:
            engine.flush()
            tell("group", number + 1)
        if number % 10 == 9 and len(file_begins) > 8:
            # A group that begins in a file may have data in files before it, which are purged all the same.
            numbers = list(file_begins)
            tell("begin", file_begins[numbers[-4]])
            engine.purge_to(numbers[-8])
    engine.sync()
    tell("group", len(groups))


if __name__ == "__main__":
    main()
