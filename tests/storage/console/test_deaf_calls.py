"""A command ends by a signal that its main thread does not hear; and is let be where it hears it."""

from __future__ import annotations

import signal
import subprocess
import sys
from textwrap import indent
from typing import Final

import pytest

PROGRAM: Final = """
import asyncio, ctypes, signal, sys, time
from binlog_storage.console import deaf_calls
from binlog_storage.console.running import end_by, not_interrupted, run_program, told_to_stop
# A shell without jobs starts what it puts into the background deaf to it.
signal.signal(signal.SIGINT, signal.default_int_handler)
deaf_calls.HEARD_WITHIN_S = 0.5
def begun():
    print('begun', flush=True)
def deaf(seconds):
    # Waits for a lock that it has: without the interpreter's, and no signal breaks it off.
    library, lock, until = ctypes.CDLL(None), bytes(64), int(time.time()) + 1 + seconds
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_timedlock(lock, (ctypes.c_long * 2)(until, 0))
def work():
{work}
    print('done', flush=True)
    return 0
sys.exit(end_by(run_program('prog', work)))
"""
FOR_EVER: Final = """
begun()
deaf(600)
"""
LETS_GO: Final = """
try:
    begun()
    time.sleep(60)
finally:
    time.sleep(1.5)
    print('let go')
"""
GOES_ON: Final = """
try:
    begun()
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1.5)
for _ in range(8):
    time.sleep(0.1)
"""
LATER: Final = """
with not_interrupted():
    begun()
    deaf(1)
    print('made')
"""
STOPS: Final = """
told = told_to_stop()
begun()
while not told():
    deaf(1)
"""
LOOP: Final = """
async def until_told():
    told = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, told.set)
    begun()
    await told.wait()
    deaf(1)
asyncio.run(until_told())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "number", "out", "is_ended"),
    [
        (FOR_EVER, signal.SIGINT, "", True),
        (FOR_EVER, signal.SIGTERM, "", True),
        (LETS_GO, signal.SIGINT, "let go\n", True),
        (LETS_GO, signal.SIGTERM, "let go\n", True),
        (GOES_ON, signal.SIGINT, "done\n", False),
        (LATER, signal.SIGTERM, "made\n", True),
        (STOPS, signal.SIGTERM, "done\n", False),
        (LOOP, signal.SIGTERM, "done\n", False),
    ],
)
def test_a_signal(work: str, number: signal.Signals, out: str, is_ended: bool) -> None:
    argv = [sys.executable, "-c", PROGRAM.format(work=indent(work, "    "))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "begun\n"
        one.send_signal(number)
        found = one.communicate(timeout=50)
    said = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert found == (out, f"prog: interrupted by {said}\n" if is_ended else "")
    assert one.returncode == (-number if is_ended else 0)
