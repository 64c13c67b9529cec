"""A task: a function of one item, which workers do somewhere else, and what comes back of it.

A task is a function that is named in a module, or an object of a class with `__call__`; it is pickled, as are items and
results. A task may run twice for an item, at the same time too, if a machine of a cluster is lost: what it writes has a
name of its own, and counts only once it is published by whoever called `map`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_storage.console.running import told
from binlog_storage.errors import StorageError

from binlog_pipeline.errors import PipelineError

Item = TypeVar("Item")
Result = TypeVar("Result")

_FAILURES: Final = (PipelineError, StorageError, ProtocolError, OSError)


class WorkFailed(PipelineError):
    """A part of a job failed. The text names the part and what the matter is."""


class Workers(Protocol):
    """Workers that run a task on many items side by side."""

    @property
    def count(self) -> int:
        """How many items are done at a time; a guess for a cluster."""

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """Results as they come, each with the number of its item. Raises `WorkFailed`, after which no more is done."""


class InThisProcess:
    """Work that is not sent anywhere: one item behind the other. Errors are the task's own."""

    count: Final = 1

    def map(
        self, task: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        for number, item in enumerate(items):
            yield number, task(item)


HERE: Final = InThisProcess()


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """An error on its way from a worker; its text alone, as not every exception can be pickled."""

    text: str


def attempt(task: Callable[[Item], Result], item: Item) -> Result | TaskFailure:
    """The result of a task in a worker. Expected errors come back as a `TaskFailure`."""
    try:
        return task(item)
    except _FAILURES as error:
        text = told(error) if isinstance(error, OSError) else str(error)
        return TaskFailure(f"{item}: {text}")


def outcome(result: Result | TaskFailure) -> Result:
    """The result that `attempt` has returned; its failure is raised as `WorkFailed`."""
    if isinstance(result, TaskFailure):
        raise WorkFailed(result.text)
    return result
