"""Signals, and that the process ends when it is told to, whatever hangs.

    SIGTERM, SIGINT, SIGQUIT   the server ends in order; a second one, half a second later or more, ends it at once
    SIGHUP                     what MariaDB's reload means here: FLUSH HOSTS, and the configuration is read again. A
                               closed terminal ends nothing
    SIGUSR2                    a new process takes the place of this one: see `hand_over`
    SIGUSR1                    nothing, and a line in the log

A thread of its own waits for them, so that none is missed by a loop that is blocked: a disk that has stopped answers no
sync, and its thread cannot be ended either. Nothing here waits for the log, whose reader may hang as well. `END_S`
seconds after it was told to end the process is gone. What was reported durable stays; the exit status is 0 only if the
store was closed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, Self

log = logging.getLogger(__name__)

END_S: Final = 8.0
_SAY_S: Final = 0.5  # that the last lines may take
TWICE_S: Final = 0.5
"""What comes so soon behind the first signal is the same one: `timeout`, and supervisors that end a group, send it to a
process and to its group. Nobody is impatient so soon, and an end at once is not in order."""
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})
_HEARD: Final = ENDING | {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


class Signals:
    """From `with` on, which must be in the main thread and before others are begun, signals come here.

    doing: what the process is at, for the line of an end that was not in order.
    status: the exit status of such an end.
    """

    def __init__(self) -> None:
        self._end_s = END_S
        self.doing = "the start"
        self.status = 0  # nobody was told of anything yet
        self.is_ending = False
        self._since = 0.0  # when that began
        self._told_to_end = False  # by a signal
        self._stop: Callable[[], object] | None = None
        self._reload: Callable[[], object] = lambda: None
        self._hand_over: Callable[[], object] = lambda: None
        self.takes_along: Callable[[], object] = lambda: None
        """Called before an end at once, where one was asked for: a process that would go on without this one."""
        self._over = False
        self._others = frozenset(threading.enumerate())

    def __enter__(self) -> Self:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        self._thread = threading.Thread(target=self._wait, name="binlog-signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        assert self._thread.ident is not None
        signal.pthread_kill(self._thread.ident, signal.SIGUSR2)
        self._thread.join()
        if self._told_to_end:
            # What still comes is the same signal. Where it is not held back any more it would end the process by its
            # number, though the store was closed in order. SIGQUIT still ends an interpreter that hangs.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def hear(
        self,
        stop: Callable[[], object],
        reload: Callable[[], object],
        hand_over: Callable[[], object],
    ) -> None:
        """Set the calls for an orderly end, SIGHUP and SIGUSR2, made in the thread of signals.

        Before, an end is at once.
        """
        self._stop, self._reload, self._hand_over = stop, reload, hand_over
        if self.is_ending:
            stop()

    def ending(self) -> None:
        """The process is to be gone soon, for whatever reason."""
        if self.is_ending:
            return
        self.is_ending, self._since = True, time.monotonic()
        self._clock()

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """The process ends if the block does not: it leaves its place, and is not to end behind that."""
        clock = self._clock()
        try:
            yield
        finally:
            clock.cancel()
            signal.setitimer(signal.ITIMER_REAL, 0)  # where no thread could be had

    def _clock(self) -> threading.Timer:
        clock = threading.Timer(self._end_s, self._out_of_time)
        clock.daemon = True
        try:
            clock.start()
        except RuntimeError:  # there are no more threads: the system ends it, without last words
            signal.setitimer(signal.ITIMER_REAL, self._end_s)
        return clock

    def threads_left(self) -> list[str]:
        """Names of those that the interpreter would wait for without end."""
        left = frozenset(threading.enumerate()) - self._others
        return sorted(thread.name for thread in left if not thread.daemon)

    def leave(self, status: int) -> None:
        """End the process now, whatever threads there are."""
        if self.is_ending:
            self.takes_along()
        for handler in logging.getLogger().handlers:
            _in_time(handler.flush)
        os._exit(status)

    def _wait(self) -> None:
        while True:
            number = signal.Signals(signal.sigwait(_HEARD))
            if self._over:
                return
            try:
                self._heard(number)
            except Exception as error:  # noqa: BLE001 - this thread is the last that may end
                _say(logging.ERROR, "%s was not answered", number.name, exc_info=error)

    def _heard(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            self._reload()
            _say(
                logging.INFO,
                "SIGHUP: hosts are flushed, and the configuration is read again",
            )
        elif number == signal.SIGUSR2:
            _say(logging.INFO, "SIGUSR2: a new process is to take the place of this one")
            self._hand_over()
        elif number not in ENDING:
            _say(logging.INFO, "%s means nothing here", number.name)
        elif self.is_ending and time.monotonic() - self._since < TWICE_S:
            return
        elif self.is_ending:
            _say(
                logging.WARNING,
                "%s again: the server ends at once, in %s",
                number.name,
                self.doing,
            )
            self.leave(self.status)
        elif self._stop is None:
            _say(logging.INFO, "%s: ended in %s", number.name, self.doing)
            self.leave(self.status)
        else:
            self._told_to_end = True
            self.ending()
            _say(logging.INFO, "%s: the server ends", number.name)
            self._stop()

    def _out_of_time(self) -> None:
        if not self._over:
            _say(
                logging.ERROR,
                "the server has not ended in %.0f s, and ends now, in %s: what was durable is there after a restart",
                self._end_s,
                self.doing,
            )
            self.leave(self.status)


def _say(level: int, text: str, *values: object, exc_info: BaseException | None = None) -> None:
    """A line of the log, if it can be written soon: when its reader hangs others hold the lock of its handler."""
    _in_time(lambda: log.log(level, text, *values, exc_info=exc_info))


def _in_time(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call, name="binlog-last-words", daemon=True)
    # There may be no more threads; a call made here instead, which hangs, nobody could end.
    with contextlib.suppress(RuntimeError):
        thread.start()
        thread.join(_SAY_S)


def kill_process() -> NoReturn:
    """End this process as by kill -9. Does not return."""
    os.kill(os.getpid(), signal.SIGKILL)
    # The first process of a container, as ours is in its image, is not killed by itself.
    os._exit(128 + signal.SIGKILL)
