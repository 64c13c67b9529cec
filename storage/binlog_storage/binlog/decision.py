"""A commit in the binlog with engines that have logs of their own, on its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from binlog_storage.engine.references import Pin
from binlog_storage.ibb.xa import Xid
from binlog_storage.tables.participants import Participant


@dataclass(eq=False, slots=True)
class Decision:
    """What is prepared in engines under this name. `hold`: the binlog has it; this holds its file until all know it."""

    xid: Xid
    taking_part: Sequence[Participant]
    hold: Pin | None = None
