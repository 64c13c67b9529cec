"""Work done side by side: by processes of this machine, or by tasks of Spark. The same functions do it in both.

    with open_workers(engine, size) as workers:
        for number, result in workers.map(Count("shop"), slices):
            ...

What a task is stands in `tasks.py`.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import wait
from typing import Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_storage.console.running import interrupted_again, not_interrupted

from binlog_pipeline.tasks import Item, Result, Workers, WorkFailed, attempt, outcome

SPARK_FROM_BYTES: Final = 2 << 30
"""Below that the start of Spark is most of the time."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine chosen for a job.

    name: local, spark, or auto: Spark from 2 GiB on, if it is installed, and Java; or if `master` is given.
    workers: processes; 0 is one a core.
    master: of Spark; without one, this machine.
    """

    name: str = "auto"
    workers: int = 0
    master: str = ""

    def is_spark(self, size: int) -> bool:
        """Whether Spark reads so many bytes."""
        if self.name != "auto":
            return self.name == "spark"
        if self.master:
            return True
        return size >= SPARK_FROM_BYTES and _has_spark()

    @property
    def count(self) -> int:
        return self.workers or len(os.sched_getaffinity(0))


def _has_spark() -> bool:
    if importlib.util.find_spec("pyspark") is None:
        return False
    return bool(os.environ.get("JAVA_HOME") or shutil.which("java"))


def open_workers(engine: Engine, size: int) -> AbstractContextManager[Workers]:
    """Workers for a job that reads about `size` bytes. Starts Spark, if that is wanted and not started yet."""
    if not engine.is_spark(size):
        return nullcontext(LocalWorkers(engine.count))
    from binlog_pipeline.spark.task_workers import spark_workers

    return spark_workers(engine.master or f"local[{engine.count}]", engine.count)


class LocalWorkers:
    """Processes of this machine. One worker is this very process."""

    def __init__(self, count: int) -> None:
        self.count: Final = count

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        count = min(self.count, len(items))
        if count <= 1:
            for number, item in enumerate(items):
                yield number, outcome(attempt(task, item))
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(count, context, initializer=_begin_worker) as pool:
            with not_interrupted():  # a worker that loads its modules would tell of it
                numbers = {pool.submit(attempt, task, item): i for i, item in enumerate(items)}
            try:
                for done in as_completed(numbers):
                    yield numbers.pop(done), outcome(done.result())
            except BrokenProcessPool:
                raise WorkFailed(
                    "a worker process was killed, perhaps as memory ran out: "
                    "try fewer --workers; what was done before stays as it was"
                ) from None
            except KeyboardInterrupt:
                for child in multiprocessing.active_children():
                    child.terminate()  # SIGTERM has come to this process alone
                raise
            finally:
                # With those that are under way: who called removes what they have written.
                pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """A worker ends with its parent, however that ends, and without a word at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    interrupted_again()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)
