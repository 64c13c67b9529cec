"""The memory of the C library is one heap for all threads of a server: each would keep what was ever made in it."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from tests.kit.server import BinlogServer

_PROGRAM = """
import ctypes, sys, threading
from binlog_server.process.allocation import keep_freed_memory

keep_freed_memory()
held, all_hold = [], threading.Barrier(5)

def hold():
    held.append(bytearray(1 << 20))
    all_hold.wait()

for _ in range(4):
    threading.Thread(target=hold).start()
all_hold.wait()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(library.fopen(sys.argv[1].encode(), b"w"))
library.malloc_info(0, file)
library.fclose(file)
"""


def test_threads_share_a_heap(tmp_path: Path) -> None:
    found = tmp_path / "malloc_info"
    subprocess.run([sys.executable, "-c", _PROGRAM, str(found)], check=True)
    assert found.read_text().count("<heap nr=") == 1


_HEAP = 64 << 20
"""Bytes of address space that a heap beside the first one begins with, aligned so; glibc's HEAP_MAX_SIZE."""


def _heaps_beside(maps: str) -> int:
    """How many mappings are such a heap: its beginning can be written to, and the rest is held back."""
    areas: list[tuple[int, int, str]] = []
    for line in maps.splitlines():
        addresses, kind, *_ = line.split()
        begin, end = (int(at, 16) for at in addresses.split("-"))
        areas.append((begin, end, kind))
    return sum(
        not begin % _HEAP and (kind, rest_kind) == ("rw-p", "---p") and rest_end == begin + _HEAP
        for (begin, _, kind), (_, rest_end, rest_kind) in pairwise(areas)
    )


def test_a_server_has_one_heap(tmp_path: Path) -> None:
    """Its first thread comes behind what says so: the C library takes no heap back."""
    server = BinlogServer(directory=tmp_path / "store")
    try:
        server.start()
        maps = Path(f"/proc/{server.pid}/maps").read_text()
    finally:
        server.discard()
    assert "[heap]" in maps
    assert not _heaps_beside(maps)
