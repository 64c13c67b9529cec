"""Runs one target for a while: chooses inputs, holds them to their time and memory, keeps what is found."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import hashlib
import random
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fuzz.target import Target

HANG_S: Final = 300.0  # by the clock, for WATCHED inputs: then the process ends, with a traceback
WATCHED: Final = 50
_DATA_PAGES: Final = 5  # the field of /proc/self/statm
MEMORY_MAX: Final = 512 << 20  # that an input may ask for, beyond what the process has at the start
GROWTH_MAX: Final = 64 << 20  # of a process in all its lives but the first
FINDINGS_MAX: Final = 20  # of one target in one run: by then there is enough to do


@dataclass(slots=True)
class Found:
    """One input that broke something. `why`: in one line; `trace`: the whole story."""

    data: bytes
    why: str
    trace: str

    @property
    def name(self) -> str:
        """Of its file."""
        return hashlib.sha256(self.data).hexdigest()[:16]


@dataclass(slots=True)
class Tally:
    """What a run did. Seconds are of processor time."""

    inputs: int = 0
    slowest_s: float = 0.0
    grown: int = 0
    found: list[Found] = field(default_factory=list)


class Run:
    """Of one target. Inputs that break something the same way are kept once.

    Args:
        current: where the input that runs is put, for whoever looks after a hang; None does without.
    """

    def __init__(self, target: Target, rng: random.Random, current: Path | None = None) -> None:
        self._target = target
        self._rng = rng
        self._current = current
        self._ways: set[str] = set()
        self._life = 0
        self.tally = Tally()

    def go_on(self, wanted: Callable[[Tally], bool]) -> Tally:
        """Until it is not wanted any more, or enough was found."""
        first_life_rss = 0
        with _memory_limit():
            while wanted(self.tally) and len(self.tally.found) < FINDINGS_MAX:
                self._one_life(wanted)
                gc.collect()
                rss = _resident_bytes()
                first_life_rss = first_life_rss or rss
                self.tally.grown = rss - first_life_rss
        if self.tally.grown > GROWTH_MAX:
            self._keep(b"", f"memory grew by {self.tally.grown >> 20} MiB over all lives", "")
        return self.tally

    def try_one(self, data: bytes) -> Found | None:
        """One input in a life of its own."""
        self._target.open()
        found = self._try(data)
        return self._end_life(data) or found

    def _one_life(self, wanted: Callable[[Tally], bool]) -> None:
        self._target.open()
        data = b""
        for _ in range(self._target.per_life):
            if self.tally.inputs % WATCHED == 0:  # setting it takes longer than many an input
                faulthandler.dump_traceback_later(HANG_S, exit=True)
            data = self._target.make(self._rng)
            found = self._try(data)
            self.tally.inputs += 1
            if found is not None:
                self._note(found)
                break  # what was broken by it would be found again and again
            if not wanted(self.tally):
                break
        found = self._end_life(data)
        faulthandler.cancel_dump_traceback_later()
        if found is not None:
            self._note(found)

    def _try(self, data: bytes) -> Found | None:
        if self._current is not None:
            self._current.write_bytes(data)
        began = time.thread_time()
        try:
            self._target.run(data)
        except Exception as error:  # noqa: BLE001 - all of them are what is looked for
            return Found(data, _in_a_line(error), traceback.format_exc())
        taken = time.thread_time() - began
        if taken > self._target.time_s:
            taken = min(taken, *(self._time_again(data) for _ in range(3)))
        self.tally.slowest_s = max(self.tally.slowest_s, taken)
        if taken > self._target.time_s:
            return Found(data, f"it takes {taken:.3f} s of processor time", "")
        return None

    def _time_again(self, data: bytes) -> float:
        """A machine that is busy with other things makes the first time too long, never all of them."""
        began = time.thread_time()
        with contextlib.suppress(Exception):
            self._target.run(data)
        return time.thread_time() - began

    def _end_life(self, data: bytes) -> Found | None:
        try:
            self._target.close()
        except Exception as error:  # noqa: BLE001 - the same
            return Found(data, f"at the end: {_in_a_line(error)}", traceback.format_exc())
        return None

    def _note(self, found: Found) -> None:
        way = _way(found)
        if way not in self._ways:
            self._ways.add(way)
            self.tally.found.append(found)

    def _keep(self, data: bytes, why: str, trace: str) -> None:
        self.tally.found.append(Found(data, why, trace))


def _in_a_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _way(found: Found) -> str:
    """How it broke: by the place in the code, not by the words, which quote the input."""
    places = [line.strip() for line in found.trace.splitlines() if line.strip().startswith("File ")]
    return "\n".join(places[-3:]) or found.why.split(":")[0][:60]


def _resident_bytes() -> int:
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def _memory_limit() -> Iterator[None]:
    """Of what may be written: who asks for more gets a MemoryError, which is a finding.

    Not of address space, of which each new thread takes 72 MiB, for its stack and for memory it may never ask for.
    """
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        has = int(file.read().split()[_DATA_PAGES]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (has + MEMORY_MAX, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
