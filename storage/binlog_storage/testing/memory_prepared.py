"""The XA transactions of a `MemoryEngine` that are prepared, and wait for XA COMMIT or XA ROLLBACK."""

from __future__ import annotations

from collections.abc import Iterable

from binlog_storage.engine import Xid
from binlog_storage.engine.references import Reason, References
from binlog_storage.errors import XaStateError
from binlog_storage.testing.memory_history import MemoryXaStep


class MemoryPrepared:
    """`steps` are all that there were; what waits is found by a walk over them.

    The engine's lock is held around every call. What waits has a hold among the `references`, which refuse RESET.
    """

    def __init__(self, steps: Iterable[MemoryXaStep], references: References) -> None:
        self.steps = list(steps)
        self._references = references
        for xid in self._waiting():
            self._hold(xid)

    def xids(self) -> list[Xid]:
        """Names, in the order of preparation."""
        return list(self._waiting())

    def add(self, at: int, xid: Xid, data: bytes) -> None:
        """Add a prepared transaction; `at` is the entry of the step. Raises `XaStateError` if the name is taken."""
        if xid in self._waiting():
            raise XaStateError(f"the XID {xid} is prepared already")
        self.steps.append(MemoryXaStep(at, xid, data))
        self._hold(xid)

    def complete(self, at: int, xid: Xid) -> bytes:
        """End a prepared transaction; its data. Raises `XaStateError` if nothing is prepared by that name."""
        data = self._waiting().get(xid)
        if data is None:
            raise XaStateError(f"the XID {xid} is not prepared")
        self.steps.append(MemoryXaStep(at, xid, None))
        for hold in self._references.holds():
            if hold.reason is Reason.PREPARED_XA and hold.name == xid.sql():
                hold.release()
        return data

    def clear(self) -> None:
        """All steps are forgotten. Nothing may wait: no hold is let go."""
        self.steps.clear()

    def _waiting(self) -> dict[Xid, bytes]:
        """The data of prepared transactions, by name."""
        waiting: dict[Xid, bytes] = {}
        for step in self.steps:
            waiting.pop(step.xid, None)
            if step.data is not None:
                waiting[step.xid] = step.data
        return waiting

    def _hold(self, xid: Xid) -> None:
        self._references.hold(Reason.PREPARED_XA, xid.sql(), 0)
