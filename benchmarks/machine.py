"""The machine, and the disk under the directory in use: all results depend on them."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.registry import BenchmarkError

_PROBES: Final = 200
_PROBE_BYTES: Final = 4096
_SECTORS_WRITTEN: Final = 6  # of /sys/dev/block/*/stat
_SECTOR_BYTES: Final = 512
_MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
_WAKE_UP_LATENCY: Final = Path("/dev/cpu_dma_latency")
_S32: Final = struct.Struct("=i")


@contextlib.contextmanager
def work_directory(given: Path | None) -> Iterator[Path]:
    """A new directory for everything that is measured, removed afterwards; on a real disk unless `given` says so.

    Raises `BenchmarkError` if all places for temporary files are in memory.
    """
    if given is None:
        places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]
        given = next((p for p in places if file_system(p) not in _MEMORY_FILE_SYSTEMS), None)
    if given is None:
        raise BenchmarkError("temporary files are kept in memory here: give --directory on a disk")
    given.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="binlog-benchmark-", dir=given.resolve()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def file_system(path: Path) -> str:
    """Type of the file system that `path` is on, such as ext4."""
    at = str(path.resolve())
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, name, *_ = line.split()
        inside = at == place or at.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, name
    return kind


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """No processor sleeps meanwhile, if this process may ask for that (root may); else nothing is different.

    A virtual machine gives a processor that waits for a disk or a packet back to its host, and has it again with cold
    caches: for servers that wait after each step, as with one session, that is most of what is measured. The kernel
    keeps processors awake as long as the file is open (pm_qos), as for tuned's profile `latency-performance`.
    """
    try:
        file = _WAKE_UP_LATENCY.open("wb", buffering=0)
    except OSError:
        yield
        return
    with file:
        file.write(_S32.pack(0))
        yield


def processors_sleep() -> bool:
    """Whether processors may sleep while they wait; told as true where it cannot be asked."""
    try:
        return _S32.unpack(_WAKE_UP_LATENCY.read_bytes()) != (0,)
    except (OSError, struct.error):
        return True


def facts(directory: Path) -> dict[str, Any]:
    """Processor and whether it sleeps, kernel, Python and which, load now (of one minute), and the disk."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_name(),
        "processors_sleep": processors_sleep(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        # How it was compiled, which it does not tell, counts: see docs/install.md.
        "interpreter": os.path.realpath(sys.executable),
        "load": round(os.getloadavg()[0], 2),
        "file_system": file_system(directory),
        "fdatasync_us": round(fdatasync_us(directory)),
    }


def fdatasync_us(directory: Path) -> float:
    """Median microseconds of writing 4 KiB in the middle of a file and `fdatasync`."""
    times = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        fd = file.fileno()
        os.pwrite(fd, bytes(_PROBES * _PROBE_BYTES), 0)
        os.fsync(fd)
        for i in range(_PROBES):
            start = time.perf_counter()
            os.pwrite(fd, bytes(_PROBE_BYTES), i * _PROBE_BYTES)
            os.fdatasync(fd)
            times.append(time.perf_counter() - start)
    return median(times) * 1e6


def write_mb_s(directory: Path, size: int) -> float:
    """The speed of a disk in MB/s: `size` bytes to a new file in pieces of a MiB, and one sync."""
    path = directory / "write-mb-s"
    piece = os.urandom(1 << 20)
    begin = time.monotonic()
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(size >> 20):
                file.write(piece)
            os.fdatasync(file.fileno())
        return size / 1e6 / (time.monotonic() - begin)
    finally:
        path.unlink(missing_ok=True)


def device_bytes(path: Path) -> int | None:
    """Bytes written to the device under `path` since the machine started, by anybody; None if there is no device."""
    device = path.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    if not stat.exists():
        return None
    return int(stat.read_text().split()[_SECTORS_WRITTEN]) * _SECTOR_BYTES


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
