"""The transition table machine that both ends of a connection use.

A machine is a table `{state: {event: next state}}`. A terminal state has an empty dict. An event
that the state does not know raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

StateT = TypeVar("StateT", bound=Enum)
EventT = TypeVar("EventT", bound=Enum)


class IllegalTransition(Exception):
    """Our own code asked for something that the state does not allow."""


class Machine(Generic[StateT, EventT]):
    """Follows one transition table."""

    __slots__ = ("_steps", "_table", "state")

    def __init__(self, table: Mapping[StateT, Mapping[EventT, StateT]], start: StateT) -> None:
        self._table = table
        self.state = start
        # The row of the state: looking a state up by its hash costs more than all the rest.
        self._steps = table[start]

    def require(self, event: EventT) -> None:
        """Raises `IllegalTransition` when the state does not allow `event`."""
        if event not in self._steps:
            raise IllegalTransition(f"{event.name} in state {self.state.name}")

    def advance(self, event: EventT) -> None:
        """Raises `IllegalTransition` and stays when the state does not allow `event`."""
        if event not in self._steps:
            self.require(event)
        self.state = following = self._steps[event]
        self._steps = self._table[following]

    @property
    def is_terminal(self) -> bool:
        return not self._steps
