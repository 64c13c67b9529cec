"""A folder that one process at a time writes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from binlog_pipeline.errors import PipelineError

LOCK: Final = "_lock"


@contextmanager
def sole_writer(folder: Path, refusal: str) -> Iterator[None]:
    """Hold the lock of a folder, which is made if need be. Raises `PipelineError` with `refusal` if another has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(refusal) from None
        yield
