"""How often a process really syncs, by strace: a check of the counters that it keeps itself."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.registry import BenchmarkError

CALLS: Final = ("fdatasync", "fsync", "sync_file_range", "msync", "syncfs")
_ATTACH_TIMEOUT_S: Final = 10.0
# Of its table: share, seconds, microseconds a call, calls, errors if any, name.
_ROW: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)


@dataclass(slots=True)
class Seen:
    """Calls in the block, known once it has ended."""

    calls: int = 0


@contextlib.contextmanager
def counting_syncs(pid: int) -> Iterator[Seen]:
    """Count the sync calls of a process and its threads. Raises `BenchmarkError` if strace cannot be used."""
    strace = shutil.which("strace")
    if strace is None:
        raise BenchmarkError("there is no strace on this machine")
    seen = Seen()
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "calls"
        argv = [strace, "-f", "-c", "-e", f"trace={','.join(CALLS)}", f"-o{output}", f"-p{pid}"]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        with process.stderr:
            try:
                _wait_traced(pid, process)
                yield seen
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()
        seen.calls = sum_calls(output.read_text())


def sum_calls(table: str) -> int:
    """Calls of all kinds in the table that `strace -c` prints."""
    return sum(int(calls) for calls, name in _ROW.findall(table) if name in CALLS)


def _wait_traced(pid: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until each thread has a tracer. Raises `BenchmarkError`."""
    deadline = time.monotonic() + _ATTACH_TIMEOUT_S
    while not all(map(_is_traced, Path(f"/proc/{pid}/task").iterdir())):
        if process.poll() is not None:
            assert process.stderr is not None
            raise BenchmarkError(f"strace: {process.stderr.read().decode().strip()[-500:]}")
        if time.monotonic() > deadline:
            raise BenchmarkError("strace does not attach")
        time.sleep(0.01)


def _is_traced(task: Path) -> bool:
    try:
        status = (task / "status").read_text()
    except OSError:
        return True  # that thread has ended
    return "TracerPid:\t0\n" not in status
