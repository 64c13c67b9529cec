"""XA transactions of sessions: in which state each is, and what may be said to it then.

    none --START--> ACTIVE --END--> IDLE --PREPARE--> PREPARED --COMMIT, ROLLBACK--> none
                      ^--START RESUME--'  '--COMMIT ONE PHASE, ROLLBACK--> none
    ROLLBACK ONLY: all of it is undone already (1213); it waits for its end

What is prepared is in the binlog, belongs to nobody once its session has gone, and is ended by any. One that has
changed nothing is not in the binlog: it is known here alone, up to the end of this process.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    DuplicateXid,
    InvalidXaArguments,
    OutsideXa,
    UnknownXid,
    XaRolledBack,
    XaVictim,
    XaWrongState,
)
from binlog_storage.engine import EngineWriter, Xid

_NONE: Final = "NON-EXISTING"


class XaState(Enum):
    """As errors name it."""

    ACTIVE = "ACTIVE"
    IDLE = "IDLE"
    PREPARED = "PREPARED"
    ROLLBACK_ONLY = "ROLLBACK ONLY"


@dataclass(eq=False, slots=True)
class Branch:
    """One of them, of a session. `is_empty`: it was prepared, and has changed nothing that can be rolled back.
    `has_direct`: its statements have changed tables without transactions. `savepoints`: the names of those that it
    had when it was prepared, in lower case.
    """

    xid: Xid
    state: XaState = XaState.ACTIVE
    is_empty: bool = False
    has_direct: bool = False
    is_owned: bool = True
    savepoints: frozenset[bytes] = frozenset()


class XaBranches:
    """Those of all sessions. On the loop."""

    def __init__(self, engine: EngineWriter) -> None:
        self._engine = engine
        self._by_xid: dict[Xid, Branch] = {}

    def prepared(self) -> list[Xid]:
        """What XA RECOVER lists: what is prepared in the binlog, then what has changed nothing."""
        empty = [branch.xid for branch in self._by_xid.values() if branch.is_empty]
        return [*self._engine.prepared(), *empty]

    def start(self, xid: Xid) -> Branch:
        """A new one. Raises `DuplicateXid` (1440)."""
        if xid in self._by_xid or xid in self._engine.prepared():
            raise DuplicateXid()
        branch = self._by_xid[xid] = Branch(xid)
        return branch

    def leave(self, branch: Branch) -> None:
        """Its session has ended it, or goes. What is prepared stays."""
        branch.is_owned = False
        if branch.state is not XaState.PREPARED or not branch.is_empty:
            del self._by_xid[branch.xid]

    def end(self, branch: Branch) -> None:
        """It is over."""
        branch.is_empty = False
        self.leave(branch)

    def require_left(self, xid: Xid) -> None:
        """Of a prepared one that is to be ended by another session than its own. Raises `UnknownXid` (1397)."""
        branch = self._by_xid.get(xid)
        is_left = xid in self._engine.prepared() if branch is None else not branch.is_owned
        if not is_left:
            raise UnknownXid()

    def require_changes(self, xid: Xid) -> None:
        """Raises `XaRolledBack` (1402) for the end of one that is left, and has changed nothing; it is over then."""
        if self._by_xid.pop(xid, None) is not None:
            raise XaRolledBack()


class SessionXa:
    """The one of a session, if it has one. Methods check, and change the state alone; they raise MariaDB's errors.

    `branches` are those of all sessions.
    """

    def __init__(self, branches: XaBranches) -> None:
        self.branches = branches
        self.branch: Branch | None = None

    @property
    def xid(self) -> Xid:
        """Its name."""
        assert self.branch is not None
        return self.branch.xid

    def require_none(self) -> None:
        """For what ends or begins transactions. Raises `XaWrongState` (1399)."""
        if self.branch is not None:
            raise XaWrongState(self.branch.state.value)

    def require_active(self) -> None:
        """For what reads or changes tables. Raises `XaWrongState` (1399)."""
        if self.branch is not None and self.branch.state is not XaState.ACTIVE:
            raise XaWrongState(self.branch.state.value)

    def has_savepoint(self, name: bytes) -> bool:
        """Whether it is prepared, and had a savepoint of that name."""
        branch = self.branch
        is_prepared = branch is not None and branch.state is XaState.PREPARED
        return branch is not None and is_prepared and name.lower() in branch.savepoints

    def start(self, xid: Xid, option: str, *, is_outside: bool) -> None:
        """XA START. `is_outside`: the session is in a transaction that is none of XA."""
        branch = self.branch
        if option == "RESUME" and branch is not None and branch.state is XaState.IDLE:
            self._require_own(branch, xid)
            branch.state = XaState.ACTIVE
            return
        if option:
            raise InvalidXaArguments()
        self.require_none()
        if is_outside:
            raise OutsideXa()
        self.branch = self.branches.start(xid)

    def stop(self, xid: Xid, option: str) -> None:
        """XA END."""
        if option:
            raise InvalidXaArguments()
        self._in(XaState.ACTIVE, xid).state = XaState.IDLE

    def to_prepare(self, xid: Xid) -> Branch:
        """XA PREPARE may be done."""
        return self._in(XaState.IDLE, xid)

    def to_end(self, xid: Xid, *, commit: bool, one_phase: bool) -> Branch:
        """XA COMMIT or XA ROLLBACK of the session's own one may be done."""
        branch = self.branch
        assert branch is not None
        if xid != branch.xid:
            raise OutsideXa()
        state = branch.state
        if state is XaState.ROLLBACK_ONLY and commit:
            raise XaVictim()
        if one_phase and state is XaState.PREPARED:
            raise InvalidXaArguments()
        if state is XaState.ACTIVE or (commit and not one_phase and state is XaState.IDLE):
            raise XaWrongState(state.value)
        return branch

    def _in(self, state: XaState, xid: Xid) -> Branch:
        branch = self.branch
        if branch is None or branch.state is not state:
            raise XaWrongState(_NONE if branch is None else branch.state.value)
        self._require_own(branch, xid)
        return branch

    @staticmethod
    def _require_own(branch: Branch, xid: Xid) -> None:
        if xid != branch.xid:
            raise UnknownXid()

    def undone(self) -> None:
        """All of it was rolled back, but by its own end."""
        if self.branch is not None and self.branch.state is not XaState.PREPARED:
            self.branch.state = XaState.ROLLBACK_ONLY

    def over(self) -> None:
        """It has ended."""
        if self.branch is not None:
            self.branches.end(self.branch)
            self.branch = None

    def leave(self) -> None:
        """The session goes, or forgets its transaction: what is prepared stays."""
        if self.branch is not None:
            self.branches.leave(self.branch)
            self.branch = None
