"""Calls that let no signal through: a library that waits for a store which says nothing, for minutes.

Python tells a signal to the main thread, between two of its steps. A library in C or Rust that lets go of the
interpreter's lock, and asks nobody whether a signal has come, makes one step of its whole wait. So a thread beside it
asks, when a signal that ends a command has come: by another signal, which has no other meaning.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Final

HEARD_WITHIN_S: Final = 2.0
"""So long the main thread may take to answer."""

ENDING: Final = frozenset((signal.SIGINT, signal.SIGTERM))
"""Signals that tell a command to end."""

_ASKED: Final = signal.SIGURG  # which nobody minds
_TIMES: Final = 20


@contextlib.contextmanager
def ended_if_deaf(complaint: str) -> Iterator[None]:
    """End the process by Ctrl-C or SIGTERM, if the main thread is in a call that is deaf to it. In the main thread.

    Nothing is let go of then, as behind kill -9, which everything that a command makes has to bear anyway. An event
    loop that hears signals itself, within the block, puts itself in the place of this.

    Args:
        complaint: the line on standard error, with `{}` for the name of the signal.
    """
    answered = threading.Event()
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.signal(_ASKED, lambda *_: answered.set())
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        # It inherits that all are blocked: what it took would be told to the main thread though that blocks it, or
        # would not come to a thread that waits for it.
        arguments = (heard, threading.get_ident(), answered, complaint)
        watch = threading.Thread(target=_watch, args=arguments, daemon=True)
        watch.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield
    finally:
        let_wait()
        os.close(told)
        watch.join()
        os.close(heard)
        signal.signal(_ASKED, before)


def let_wait() -> None:
    """From now on the process is not ended for being deaf: whoever hears of signals takes its time."""
    signal.set_wakeup_fd(-1)


def _watch(heard: int, main: int, answered: threading.Event, complaint: str) -> None:
    while numbers := os.read(heard, 64):
        number = next((one for one in numbers if one in ENDING), None)
        if number is not None and not _is_heard(main, answered):
            _end_by(signal.Signals(number), complaint)


def _is_heard(main: int, answered: threading.Event) -> bool:
    answered.clear()
    # More than once: what is asked while the other signal is told may be answered behind the next wait.
    for _ in range(_TIMES):
        signal.pthread_kill(main, _ASKED)
        if answered.wait(HEARD_WITHIN_S / _TIMES):
            return True
    return False


def _end_by(number: signal.Signals, complaint: str) -> None:
    os.write(2, complaint.format(name_of(number)).encode())
    import ctypes  # not at the start: a command that opens no store needs it for nothing else

    # Python changes what a signal does in the main thread alone.
    ctypes.CDLL(None).signal(int(number), None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    os.kill(os.getpid(), number)


def name_of(number: signal.Signals) -> str:
    """A signal, for people."""
    return "Ctrl-C" if number == signal.SIGINT else number.name
