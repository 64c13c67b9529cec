"""The store by itself, in processes of its own: commits without the wire, a full redo log, and opening.

    python -m benchmarks.store_process commit --directory D --threads N --seconds S [--no-sync]
    python -m benchmarks.store_process fill --directory D     # until the redo log is full; then SIGKILL of itself
    python -m benchmarks.store_process open --directory D

Each prints one JSON value: commits per second; what is in the redo log; seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import FILE_BYTES_MAX, StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import StorageError

from benchmarks.child import Child, run_json
from benchmarks.machine import work_directory
from binlog_server.store.store_directory import StoreDirectory
from tests.storage.groups import GROUP_BYTES_MIN, group

ROUNDS: Final = 3
LOG_FILE_SIZE: Final = 96 << 20  # the server's default, which is not the library's
GROUP_BYTES: Final = 420  # about what one small INSERT is
_SEQ_NO_AT: Final = 19  # in a group: behind the header of the GTID event
_FILL_SYNC_GROUPS: Final = 1000
_FILL_MARGIN: Final = 2 * _FILL_SYNC_GROUPS * GROUP_BYTES

_AGE: Final = "Innodb_checkpoint_age"


def server_options(
    max_binlog_size: int = FILE_BYTES_MAX, log_file_size: int = LOG_FILE_SIZE
) -> StoreOptions:
    """The options with which the server opens a store."""
    return StoreOptions(max_binlog_size, innodb_log_file_size=log_file_size)


def commits(path: Path, threads: Sequence[int], seconds: float, group_bytes: int) -> dict[str, Any]:
    """Commits per second of groups of that size, on new stores below `path`; medians of three.

    `append_sync`: by the number of threads, each appends and waits until it is durable. `append`: one thread that
    never waits. Raises `BenchmarkError`.
    """

    def measure(count: int, *more: str) -> int:
        found: list[float] = []
        for _ in range(ROUNDS):
            with work_directory(path) as directory:
                found.append(
                    run_json(
                        *(
                            "benchmarks.store_process",
                            "commit",
                            "--directory",
                            str(directory / "store"),
                        ),
                        *("--threads", str(count), "--seconds", str(seconds)),
                        *("--group-bytes", str(group_bytes), *more),
                    )
                )
        return round(median(found))

    return {
        "append_sync": {str(count): measure(count) for count in threads},
        "append": measure(1, "--no-sync"),
        "group_bytes": group_bytes,
    }


def fill(directory: Path, log_file_size: int) -> dict[str, int]:
    """Leave a store there that was killed with a redo log as full as it gets: `redo_bytes`, `redo_groups` in it."""
    arguments = ("fill", "--directory", str(directory), "--log-file-size", str(log_file_size))
    with Child("benchmarks.store_process", *arguments) as child:
        found: dict[str, int] = child.line()
        child.wait_killed()
    return found


def open_s(directory: Path, options: StoreOptions) -> float:
    """Seconds that opening takes, in a fresh process, with its modules loaded and nothing of the store in memory."""
    forget_pages(directory)
    seconds: float = run_json(
        *("benchmarks.store_process", "open", "--directory", str(directory)),
        *("--max-binlog-size", str(options.max_binlog_size)),
        *("--log-file-size", str(options.innodb_log_file_size)),
    )
    return seconds


def forget_pages(directory: Path) -> None:
    """Drop these files from the page cache."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


# -- the other process -----------------------------------------------------------------------------


class Committing:
    """Threads that commit groups of one domain, in the order of their numbers."""

    def __init__(self, engine: BinlogEngine, group_bytes: int, *, sync: bool) -> None:
        self._engine = engine
        self._sync = sync
        self._group = bytearray(group(Gtid(0, 1, 1), max(group_bytes, GROUP_BYTES_MIN)).payload)
        self._lock = threading.Lock()
        self._seq_no = 0
        self.commits = 0
        self.ended = False

    def append(self) -> None:
        """The next group."""
        with self._lock:
            self._seq_no += 1
            self._group[_SEQ_NO_AT : _SEQ_NO_AT + 8] = self._seq_no.to_bytes(8, "little")
            self._engine.append(bytes(self._group), Gtid(0, 1, self._seq_no))

    def work(self) -> None:
        """Append until `ended`."""
        done = 0
        while not self.ended:
            self.append()
            if self._sync:
                self._engine.sync()
            done += 1
        with self._lock:
            self.commits += done


def commit(directory: Path, threads: int, seconds: float, group_bytes: int, *, sync: bool) -> float:
    """Commits per second."""
    store = StoreDirectory(directory, server_options())
    committing = Committing(store.engine, group_bytes, sync=sync)
    workers = [threading.Thread(target=committing.work) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    committing.ended = True
    for worker in workers:
        worker.join()
    took = time.perf_counter() - start
    store.close()
    return committing.commits / took


def fill_and_die(directory: Path, options: StoreOptions) -> None:
    """No background work: it happens only when there is no more room. So the redo log is at its fullest before."""
    disk = OsDisk(directory)
    facts = StateStore(disk)
    engine = IbbEngine(disk, options, facts=facts)
    committing = Committing(engine, GROUP_BYTES, sync=False)
    groups, age, fullest, seen_fullest = 0, 0, 0, False
    while not seen_fullest or age < fullest - _FILL_MARGIN:
        for _ in range(_FILL_SYNC_GROUPS):
            committing.append()
        engine.sync()
        groups += _FILL_SYNC_GROUPS
        last, age = age, engine.counters()[_AGE]
        if age < last:  # there was a checkpoint
            seen_fullest, groups = True, 0
        fullest = max(fullest, age)
    print(json.dumps({"redo_bytes": age, "redo_groups": groups}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def opening(directory: Path, options: StoreOptions) -> float:
    """Seconds."""
    start = time.perf_counter()
    store = StoreDirectory(directory, options)
    took = time.perf_counter() - start
    store.close()
    return took


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_process")
    parser.add_argument("what", choices=("commit", "fill", "open"))
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--group-bytes", type=int, default=GROUP_BYTES)
    parser.add_argument("--max-binlog-size", type=int, default=FILE_BYTES_MAX)
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--log-file-size", type=int, default=LOG_FILE_SIZE)
    given = parser.parse_args()
    options = server_options(given.max_binlog_size, given.log_file_size)
    try:
        if given.what == "fill":
            fill_and_die(given.directory, options)
        elif given.what == "open":
            print(json.dumps(opening(given.directory, options)))
        else:
            speed = commit(
                given.directory,
                given.threads,
                given.seconds,
                given.group_bytes,
                sync=not given.no_sync,
            )
            print(json.dumps(speed))
    except StorageError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
