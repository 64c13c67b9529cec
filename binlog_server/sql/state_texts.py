"""The binlog state as statements show it: texts that grow with the number of domains and servers.

Most statements show nothing of it, and it is made for those alone that do. Where it is long, a thread makes it before
such a statement is answered, once for all who ask while nothing is committed.
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.gtid import BinlogState
from binlog_storage.engine import Position

STATE_VARIABLES: Final = frozenset(
    {"gtid_binlog_pos", "gtid_binlog_state", "gtid_current_pos", "gtid_slave_pos"}
)
_AT_ONCE_GTIDS: Final = 500  # half a millisecond


class StateTexts:
    """Of one state. `end` is where the binlog ended then, or before, and `age` its age."""

    def __init__(self, age: int, end: Position, state: BinlogState) -> None:
        self.age, self.end = age, end
        self._state = state
        self._texts: tuple[str, str] | None = None
        self.is_short = len(state) <= _AT_ONCE_GTIDS

    @property
    def is_made(self) -> bool:
        """Whether the texts cost nothing any more."""
        return self._texts is not None

    def make(self) -> tuple[str, str]:
        """Both, from any thread."""
        texts = self._texts
        if texts is None:  # a second thread would make the same
            texts = self._texts = str(self._state), str(self._state.position())
        return texts

    @property
    def state(self) -> str:
        """gtid_binlog_state."""
        return self.make()[0]

    @property
    def position(self) -> str:
        """gtid_binlog_pos."""
        return self.make()[1]

    def has_others_than(self, server_id: int) -> bool:
        """Whether another server has logged anything."""
        return self._state.has_others_than(server_id)
