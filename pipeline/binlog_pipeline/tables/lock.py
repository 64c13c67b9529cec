"""A folder that one process at a time writes."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from binlog_pipeline.errors import PipelineError

LOCK: Final = "_lock"
PATIENCE_S: Final = 600.0
"""For those that take turns at a target, each for a short time."""
_PAUSE_S: Final = 0.05


@contextmanager
def sole_writer(folder: Path, refusal: str, patience_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder, which is made if need be. Raises `PipelineError` with `refusal` if another has it.

    patience_s: so long it is waited for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience_s
    with (folder / LOCK).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise PipelineError(refusal) from None
                time.sleep(_PAUSE_S)
        yield
