"""Work done side by side: by processes of this machine, or by tasks of Spark. The same functions do it in both.

    with open_workers(engine, size) as workers:
        for number, result in workers.map(Count("shop"), slices):
            ...

A task is a function of one item that is named in a module, or an object of a class with `__call__`; it is pickled, as
are items and results. A task may run twice for an item, at the same time too, if a machine of a cluster is lost: what
it writes has a name of its own, and counts only once it is published by whoever called `map`.
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
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Final, Protocol, TypeVar

from pipeline.errors import PipelineError
from protocol.errors import ProtocolError
from storage.errors import StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")

SPARK_FROM_BYTES: Final = 2 << 30
"""Below that the start of Spark is most of the time."""

_FAILURES: Final = (PipelineError, StorageError, ProtocolError, OSError)


class WorkFailed(PipelineError):
    """A part of a job failed. The text names the part and what the matter is."""


class Workers(Protocol):
    """Who does the work."""

    @property
    def count(self) -> int:
        """How many items are done at a time; a guess for a cluster."""

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Results as they come, each with the number of its item. Raises `WorkFailed`, after which no more is done."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What was chosen.

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
    """For a job that reads about so many bytes. Starts Spark, if that is wanted and not started yet."""
    if not engine.is_spark(size):
        return nullcontext(LocalWorkers(engine.count))
    from pipeline.spark.task_workers import spark_workers

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
            numbers = {pool.submit(attempt, task, item): i for i, item in enumerate(items)}
            try:
                for done in as_completed(numbers):
                    yield numbers.pop(done), outcome(done.result())
            except BrokenProcessPool:
                raise WorkFailed(
                    "a worker process was killed, perhaps as memory ran out: "
                    "try fewer --workers; what was done before stays as it was"
                ) from None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way from a worker; its text alone, as not every exception can be pickled."""

    text: str


def attempt(task: Callable[[Item], Result], item: Item) -> Result | Failure:
    """In a worker. What is nobody's mistake in this program comes back as a `Failure`."""
    try:
        return task(item)
    except _FAILURES as error:
        return Failure(f"{item}: {error}")


def outcome(result: Result | Failure) -> Result:
    """What `attempt` gave. Raises `WorkFailed`."""
    if isinstance(result, Failure):
        raise WorkFailed(result.text)
    return result


def _begin_worker() -> None:
    """A worker ends with its parent, however that ends, and without a word at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)
