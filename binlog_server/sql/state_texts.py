"""The binlog state as statements show it: texts that grow with the number of domains and servers.

They are made only for statements that show them. A long text is made in a thread before the statement is answered, once
for all statements until the next commit.
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
    """The texts of one binlog state.

    `end` is the binlog's end when the state was taken, or an earlier one; `age` is the binlog's age then (see
    docs/glossary.md).
    """

    def __init__(self, age: int, end: Position, state: BinlogState) -> None:
        self.age, self.end = age, end
        self._state = state
        self._texts: tuple[str, str] | None = None
        self.is_short = len(state) <= _AT_ONCE_GTIDS

    @property
    def is_made(self) -> bool:
        """Whether the texts are made, so that asking for them costs nothing."""
        return self._texts is not None

    def make(self) -> tuple[str, str]:
        """Make both texts, state and position. May be called by any thread."""
        texts = self._texts
        if texts is None:  # a second thread would make the same
            texts = self._texts = str(self._state), str(self._state.position())
        return texts

    @property
    def state(self) -> str:
        """The value of gtid_binlog_state."""
        return self.make()[0]

    @property
    def position(self) -> str:
        """The value of gtid_binlog_pos."""
        return self.make()[1]

    def has_others_than(self, server_id: int) -> bool:
        """Whether the state has GTIDs of other servers than this one."""
        return self._state.has_others_than(server_id)
