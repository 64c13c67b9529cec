"""What the benchmarks are put together from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore

from benchmarks import __main__ as main
from benchmarks import drain, machine, sparse_store, store_process
from benchmarks.child import Child, ChildFailed, run_json
from benchmarks.commit_cost import FSYNCS
from benchmarks.masters import counter
from benchmarks.registry import Benchmark, BenchmarkError, Result
from benchmarks.strace import counting_syncs, sum_calls
from benchmarks.suite import fanout
from binlog_server.testing.sql_server import Credentials

MEBIBYTE = 1 << 20


# --- programs ---


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(ChildFailed, match=r"^benchmarks.committers: .*refused"):
        run_json("benchmarks.committers", "--port=1", "--sql=COMMIT")
    with (
        Child("benchmarks.no_such_program") as child,
        pytest.raises(ChildFailed, match="No module"),
    ):
        child.line()


class _OurServer:
    """Not there."""

    host = ""
    port = 0
    account = Credentials()


def test_a_stream_with_too_many_events_is_said_to_be_what_stops_a_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sends(more: int) -> drain.Drained:
        return drain.Drained(1, 1000, 1.0, 0.1, 0.1, events=5 * 7 + more, groups=7)

    monkeypatch.setattr(
        drain, "run", lambda source, clients, count, tls: sends(fanout.OTHER_EVENTS_MAX)
    )
    subject = fanout.Subject(_OurServer(), 0, 7, tls=False)
    subject.count()
    monkeypatch.setattr(drain, "run", lambda source, clients, count, tls: sends(109))

    def run(_: object) -> Result:
        subject.count()
        return {}

    benchmark = Benchmark("fanout", "", lambda parser: None, run, str)
    assert main.run(benchmark, []) == main.FAILED
    said = capsys.readouterr().err
    assert said.startswith("fanout could not be measured: ")
    assert "109 are of no group" in said


# --- the machine ---


def test_file_system(tmp_path: Path) -> None:
    assert machine.file_system(Path("/proc/self")) == "proc"
    assert machine.facts(tmp_path)["fdatasync_us"] >= 0


def test_processors_stay_awake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "latency"
    monkeypatch.setattr(machine, "_WAKE_UP_LATENCY", place)
    place.write_bytes((2_000_000_000).to_bytes(4, sys.byteorder))
    assert machine.processors_sleep()
    with machine.awake():
        assert not machine.processors_sleep()
    monkeypatch.setattr(machine, "_WAKE_UP_LATENCY", tmp_path / "folder" / "none")
    with machine.awake():
        assert machine.facts(tmp_path)["processors_sleep"], "it may not be asked for"


@pytest.mark.parametrize(("words", "asked"), [([], True), (["--let-sleep"], False)])
def test_a_benchmark_keeps_processors_awake(
    words: list[str], asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "latency"
    place.write_bytes(b"\x01\0\0\0")
    monkeypatch.setattr(machine, "_WAKE_UP_LATENCY", place)
    found: list[bool] = []

    def run(_: object) -> Result:
        found.append(machine.processors_sleep())
        return {}

    assert main.run(Benchmark("fanout", "", lambda parser: None, run, str), words) == 0
    assert found == [not asked]


def test_the_work_directory_is_removed(tmp_path: Path) -> None:
    with machine.work_directory(tmp_path / "new") as path:
        (path / "file").write_bytes(b"x")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_counter_that_is_not_there() -> None:
    assert counter({FSYNCS: 3}, FSYNCS) == 3
    with pytest.raises(BenchmarkError, match=FSYNCS):
        counter({}, FSYNCS)


# --- stores ---


def test_a_sparse_store_is_a_store(tmp_path: Path) -> None:
    sparse_store.make(tmp_path / "store", 3, 4 * MEBIBYTE, written_bytes=100_000)
    used = [path.stat().st_blocks * 512 for path in sorted((tmp_path / "store").glob("*.ibb"))]
    assert sum(used[:-2]) < MEBIBYTE, "the closed files are holes"
    disk = OsDisk(tmp_path / "store")
    options = store_process.server_options(4 * MEBIBYTE)
    engine = IbbEngine(disk, options, facts=StateStore(disk))
    state = engine.binlog_state().get(0, 1) or 0
    assert state > 3000
    start = engine.find_start(SlavePosition([Gtid(0, 1, state - 1)]))
    assert engine.read(start.position).groups
    engine.close()
    assert store_process.open_s(tmp_path / "store", options) > 0


@pytest.mark.parametrize("sync", [True, False])
def test_commits_of_the_store(tmp_path: Path, sync: bool) -> None:
    speed = store_process.commit(tmp_path / "store", 3, 0.05, 200, sync=sync)
    assert speed > 0
    disk = OsDisk(tmp_path / "store")
    engine = IbbEngine(disk, store_process.server_options(), facts=StateStore(disk))
    assert (engine.binlog_state().get(0, 1) or 0) > 0
    engine.close()


def test_a_full_redo_log(tmp_path: Path) -> None:
    size = 6 * MEBIBYTE
    found = store_process.fill(tmp_path / "store", size)
    assert size // 2 < found["redo_bytes"] < size
    assert found["redo_groups"] > 0
    disk = OsDisk(tmp_path / "store")
    options = store_process.server_options(log_file_size=size)
    engine = IbbEngine(disk, options, facts=StateStore(disk))
    assert (engine.binlog_state().get(0, 1) or 0) >= found["redo_groups"]
    engine.close()


# --- strace ---

TABLE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 97.50    0.390000         120      3250           fdatasync
  2.50    0.010000         100       100         2 fsync
  0.00    0.000000           0         7           openat
------ ----------- ----------- --------- --------- ----------------
100.00    0.400000         119      3357         2 total
"""


def test_the_table_of_strace() -> None:
    assert sum_calls(TABLE) == 3350
    assert sum_calls("") == 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_strace_counts_the_syncs_of_all_threads(tmp_path: Path) -> None:
    program = (
        "import os, sys, threading\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "t = threading.Thread(target=lambda: (sys.stdin.readline(), os.fdatasync(fd), os.fsync(fd)))\n"
        "t.start(); print('ready', flush=True); t.join(); os.fdatasync(fd)\n"
        "print('done', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "file")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            with counting_syncs(process.pid) as seen:
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline() == "done\n"
        except BenchmarkError as error:
            pytest.skip(f"strace may not attach here: {error}")
        finally:
            process.stdin.close()
    assert seen.calls == 3
