"""The memory of the C library is one heap for all threads of a server: each would keep what was ever made in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
