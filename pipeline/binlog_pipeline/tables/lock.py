"""One writer at a time: of a folder by its lock; elsewhere whoever was slower does its work again."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, TypeVar

from binlog_pipeline.errors import PipelineError, TargetChanged

_Done = TypeVar("_Done")

LOCK: Final = "_lock"
PATIENCE_S: Final = 600.0
"""For those that take turns at a target, each for a short time."""
_PAUSE_S: Final = 0.05


@contextmanager
def sole_writer(folder: Path, refusal: str, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, which is made if need be. Raises `PipelineError` with `refusal` if another has it.

    What is not used is taken away: the lock, where nothing else came beside what there was, as in a folder of others
    that is refused; and the folder, if it was made here.

    patience_s: so long it is waited for.
    """
    before = set(os.listdir(folder)) if folder.is_dir() else None  # noqa: PTH208 - names, not paths
    with _locked(folder, refusal, time.monotonic() + patience_s):
        try:
            yield
        finally:
            others = {path.name for path in folder.iterdir()} - {LOCK}
            if others == (before or set()) and LOCK not in (before or ()):
                (folder / LOCK).unlink()
            if not others:
                (folder / LOCK).unlink(missing_ok=True)
                if before is None:
                    with suppress(OSError):  # another one has made its lock there
                        folder.rmdir()


def _locked(folder: Path, refusal: str, deadline: float) -> IO[bytes]:
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / LOCK).open("wb")
        except FileNotFoundError:
            continue  # the folder has just gone with the lock of another
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock.fileno()), (folder / LOCK).stat()):
                return lock
        except FileNotFoundError:
            pass  # it has gone while it was waited for: another one is made
        except BlockingIOError:
            if time.monotonic() >= deadline:
                lock.close()
                raise PipelineError(refusal) from None
            time.sleep(_PAUSE_S)
        lock.close()


def in_turns(work: Callable[[], _Done], patience_s: float = PATIENCE_S) -> _Done:
    """Do it again as long as another writer of its target is faster. Raises `TargetChanged` at the end of patience.

    Args:
        work: opens the target, so that it sees what the other one has done.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return work()
        except TargetChanged:
            if time.monotonic() >= deadline:
                raise
