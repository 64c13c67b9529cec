"""How fast rows become Arrow columns, from .ibb files, on one core: beside mariadb-binlog -v and mysql-replication.

A mariadbd logs two histories, with binlog_row_metadata=FULL: *bulk*, large statements that insert narrow and typed rows
and update the typed ones, and *oltp*, transactions of one row. The same groups are stored as .ibb. All times include
the reading of the files, which are in the page cache; those of python-mysql-replication the stream from the server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.offline_groups import classic_groups
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.log.pages import OfflinePages
from binlog_storage.log.partitions import partition_batches, plan

from benchmarks.masters import DirectoryMariaDB
from benchmarks.registry import BenchmarkError, progress
from binlog_server.testing.install import Install

ROWS: Final = 400_000
TRANSACTIONS: Final = 60_000
REPETITIONS: Final = 5
"""Repetitions of ours and of mariadb-binlog, by turns."""
GATHER_BYTES: Final = 4 << 20  # row images of one shape that become columns at once
_TICK_S: Final = 0.01  # of the clock of the processor's time
BULK, OLTP = "bulk", "oltp"
FILES: Final = {BULK: "bench-bin.000002", OLTP: "bench-bin.000003"}
_FLAGS: Final = (
    "--log-bin=bench-bin", "--max-binlog-size=1G", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0",
    "--binlog-row-metadata=FULL", "--binlog-format=ROW",
)  # fmt: skip
_TYPED: Final = (
    "id BIGINT UNSIGNED PRIMARY KEY, customer INT, amount DECIMAL(12,2), made DATETIME(3), seen TIMESTAMP(6) NULL, "
    "name VARCHAR(100), born DATE, flag TINYINT, state ENUM('new','paid','sent'), weight DOUBLE, "
    "city VARCHAR(60) CHARACTER SET latin1, note TEXT"
)
_SETUP: Final = (
    "CREATE DATABASE bench CHARACTER SET utf8mb4",
    "CREATE TABLE bench.narrow (id INT PRIMARY KEY, name VARCHAR(60), number BIGINT, tag VARCHAR(20))",
    f"CREATE TABLE bench.typed ({_TYPED})",
    "CREATE TABLE bench.single (id INT PRIMARY KEY, name VARCHAR(60), number BIGINT, tag VARCHAR(20))",
    "CREATE PROCEDURE bench.singles(n INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < n DO SET i = i + 1; "
    "INSERT INTO bench.single VALUES (i, CONCAT('name ', i), i * 7, 'tag'); END WHILE; END",
    "FLUSH BINARY LOGS",
)


class Took(NamedTuple):
    """One run: by the clock, and of the processor, programs that were started included."""

    wall_s: float
    cpu_s: float


Runs = dict[str, dict[str, list[Took]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `measure`."""
    parser.add_argument(
        "--rows", type=int, default=ROWS, help="row changes of bulk; default 400,000"
    )
    parser.add_argument(
        "--transactions", type=int, default=TRANSACTIONS, help="of one row; default 60,000"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="default 5, by turns")
    parser.add_argument(
        "--without-pmr",
        action="store_true",
        help="leave python-mysql-replication out: it takes long",
    )
    parser.add_argument("--directory", type=Path, help="for the files; default: on a disk")


def measure(
    stack: contextlib.ExitStack, install: Install, path: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """The numbers of the benchmark `rows`. Leaves stores below `path`, by the names of `FILES`.

    Raises `BenchmarkError`.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise BenchmarkError("this needs pyarrow and numpy: pip install '.[jobs]'") from None
    pa.set_cpu_count(1)
    server = _history(stack, install, path, options.rows, options.transactions)
    files = {name: server.datadir / file for name, file in FILES.items()}
    for name, file in files.items():
        _store(path / name, file)
    progress("stored as .ibb")
    runs, counts = _measure(install, path, files, options.repetitions)
    for name in files if not options.without_pmr else ():
        took, found = _timed(partial(_pmr, server, FILES[name]))
        if found != counts[name]:
            raise BenchmarkError(
                f"python-mysql-replication has {found} rows, we have {counts[name]}"
            )
        runs[name]["pmr"] = [took]
        progress(f"python-mysql-replication: {name} in {took.wall_s:.1f} s")
    sizes = {name: file.stat().st_size for name, file in files.items()}
    return {**_numbers(runs, counts), "binlog_bytes": sizes}


def _measure(
    install: Install, path: Path, files: dict[str, Path], repetitions: int
) -> tuple[Runs, dict[str, int]]:
    """Times of both, taken by turns, so that a disturbance of the machine hits both; and the rows of each file."""
    runs: Runs = {name: {"ours": [], "mariadb_binlog": []} for name in files}
    counts = {}
    for _ in range(repetitions):
        for name, file in files.items():
            took, counts[name] = _timed(partial(decode, path / name))
            runs[name]["ours"].append(took)
            took, _rows = _timed(partial(_mariadb_binlog, install, file))
            runs[name]["mariadb_binlog"].append(took)
    return runs, counts


def _numbers(runs: Runs, counts: dict[str, int]) -> dict[str, Any]:
    def rates(of: Callable[[Took], float]) -> dict[str, dict[str, int]]:
        return {
            name: {who: round(counts[name] / median(map(of, tooks))) for who, tooks in by.items()}
            for name, by in runs.items()
        }

    by_clock, by_cpu = rates(lambda took: took.wall_s), rates(lambda took: took.cpu_s)
    ratios = {
        f"{name}_vs_{who}": round(by["ours"] / rate, 2)
        for name, by in by_clock.items()
        for who, rate in by.items()
        if who != "ours"
    }
    return {
        "bulk_rows_s": by_clock[BULK]["ours"],
        "oltp_transactions_s": by_clock[OLTP]["ours"],
        **ratios,
        "rows": counts,
        "rows_s": by_clock,
        "rows_cpu_s": by_cpu,
        "seconds": {
            name: {who: [round(took.wall_s, 4) for took in tooks] for who, tooks in by.items()}
            for name, by in runs.items()
        },
    }


def decode(directory: Path) -> int:
    """All rows of a store into columns; how many there were."""
    from binlog_protocol.row_columns import RowDecoder, event_runs

    pages = OfflinePages(ReadOnlyDisk(directory))
    decoder = RowDecoder()
    rows = number = 0
    with contextlib.closing(pages):
        for partition in plan(pages, [n for n in pages.numbers if pages.has_data(n)]):
            for batch in partition_batches(pages, partition):
                if batch.large is None:
                    decoder.add(batch.groups, number)
                else:
                    for run in event_runs(batch.large.pieces()):
                        decoder.add([run], number)
                        rows += sum(map(len, decoder.take(GATHER_BYTES)))
                number += len(batch.heads)
                rows += sum(map(len, decoder.take(GATHER_BYTES)))
        return rows + sum(map(len, decoder.take()))


def _history(
    stack: contextlib.ExitStack, install: Install, path: Path, rows: int, transactions: int
) -> DirectoryMariaDB:
    server = DirectoryMariaDB(install, path / "mariadbd", 1, [*_FLAGS, f"--tmpdir={path}"])
    stack.callback(server.discard)
    server.start()
    half, quarter = rows // 2, rows // 4
    server.script(
        *_SETUP,
        f"INSERT INTO bench.narrow SELECT seq, CONCAT('some name ', seq), seq * 7, 'tag' FROM bench.seq_1_to_{half}",
        "INSERT INTO bench.typed SELECT seq, seq % 1000, seq / 100, '2026-01-02 03:04:05.678', "
        "'2026-01-02 03:04:05.678901', CONCAT('customer ', seq), '1999-12-31', seq % 2, 1 + seq % 3, seq / 7, "
        f"CONCAT('city ', seq % 50), IF(seq % 5, 'a note of some length', NULL) FROM bench.seq_1_to_{quarter}",
        f"UPDATE bench.typed SET amount = amount + 1, state = 'sent' WHERE id <= {rows - half - quarter}",
        "FLUSH BINARY LOGS",
    )
    progress(f"{rows:,} row changes logged")
    server.script(f"CALL bench.singles({transactions})", "FLUSH BINARY LOGS")
    progress(f"{transactions:,} transactions logged")
    return server


def _store(directory: Path, file: Path) -> None:
    """The groups of a binlog file as .ibb."""
    directory.mkdir()
    engine = IbbEngine(OsDisk(directory), StoreOptions())
    for group in classic_groups([file]):
        engine.append(b"".join(group.pieces()), group.gtid)
        engine.step()
    engine.sync()
    while engine.step():
        pass
    engine.close()


def _timed(work: Callable[[], int]) -> tuple[Took, int]:
    start, cpu = time.perf_counter(), sum(os.times()[:4])
    count = work()
    wall = time.perf_counter() - start
    return Took(wall, max(sum(os.times()[:4]) - cpu, _TICK_S)), count


def _mariadb_binlog(install: Install, file: Path) -> int:
    argv = [*install.program("mariadb-binlog"), "--no-defaults", "-v", str(file)]
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise BenchmarkError(f"mariadb-binlog: {done.stderr.decode()}")
    return 0


def _pmr(server: DirectoryMariaDB, file: str) -> int:
    """The rows of a file as python-mysql-replication reads them from the server."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    stream = BinLogStreamReader(
        connection_settings={
            "host": server.host,
            "port": server.port,
            "user": "root",
            "passwd": "",
        },
        server_id=99,
        log_file=file,
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    with contextlib.closing(stream):
        rows = 0
        for event in stream:
            if stream.log_file != file:
                break
            rows += len(event.rows)
        return rows
