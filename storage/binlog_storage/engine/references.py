"""Which files must stay: for open groups, prepared transactions, readers, and whoever else says so by name.

And for how long they are those files: RESET MASTER begins another *age* of the binlog, in which all numbers begin anew.
It looks for holds and closes the references in one step; a reader's hold that comes later is one on a file of the new
age. What was found in one age, or is remembered of it, says nothing in another.

The lowest file that an open or prepared transaction may refer to goes into the header of each new file (fields 48 and
56), so that it is known after a restart too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from binlog_protocol.dataclass import dataclass

from binlog_storage.errors import BinlogBegunAnew, BinlogInUse, BinlogInUseByTransaction

_NAME_CHARS_MAX: Final = 160  # of a holder in an error, of which a client gets 512 bytes


class Reason(Enum):
    """Why a file is held, in the words that purge tells."""

    ACTIVE_TRANSACTION = "it holds data of an active transaction"
    PREPARED_XA = "it holds data of a prepared XA transaction"
    DUMP = "it is in use by a binlog dump thread (connected slave)"
    LEFT = "it was in use by a binlog dump thread (connected slave) until now"
    NAMED = "it is held"
    SLOT = "it is kept"


class Holder(str):
    """The reason why a file stays, in words; and who holds it: of which kind, and its name, if it has one.

    The kinds: active_file, reference, replicas_missing, transaction, xa, replica, slot, lease, archive, reader.
    """

    __slots__ = ("kind", "name")
    kind: str
    name: str

    def __new__(cls, why: str, kind: str, name: str = "") -> Holder:
        self = super().__new__(cls, why)
        self.kind, self.name = kind, name
        return self


_KINDS: Final = {
    Reason.ACTIVE_TRANSACTION: "transaction",
    Reason.PREPARED_XA: "xa",
    Reason.DUMP: "replica",
    Reason.LEFT: "replica",
    Reason.NAMED: "reader",
}


@dataclass(eq=False, slots=True)
class Pin:
    """A pin: files from `file_no` on stay until `release`. `name` tells a DBA who holds them, `ended_by` what to do.

    `holder`: its kind and name as `Holder` has them, where `reason` and `name` do not say it.
    """

    _owner: References
    reason: Reason
    name: str
    file_no: int
    ended_by: str = ""
    holder: tuple[str, str] | None = None

    def move(self, file_no: int) -> None:
        """Move the hold forward: files before `file_no` are no longer held. Never backwards."""
        if file_no > self.file_no:
            self.file_no = file_no

    def left(self) -> None:
        """The reader has gone, and reads no more: RESET MASTER waits no longer, the files stay until `release`."""
        self.reason = Reason.LEFT

    def release(self) -> None:
        """End the hold; twice is no error."""
        self._owner.drop(self)

    @property
    def why(self) -> Holder:
        """The reason for the message about a file that stays."""
        why: str = self.reason.value
        match self.reason:
            case Reason.NAMED:
                why += f" by {self.name}"
            case Reason.SLOT:
                why += f" for {self.name}; {self.ended_by} ends it"
            case Reason.PREPARED_XA:
                why += f" ({self.name}; XA COMMIT or XA ROLLBACK ends it)"
        return Holder(why, *(self.holder or (_KINDS[self.reason], self.name)))


class References:
    """All holds of one store, and its age. May be used from several threads.

    Attributes:
        age: another number after each RESET MASTER; odd while one is at work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened = threading.Condition(self._lock)
        self._when_opened: list[Callable[[], None]] = []
        self._holds: set[Pin] = set()
        self.age = 0
        self.closed_at = 0.0
        """The time at which the RESET MASTER at work began, by the monotonic clock; 0 or old while the age is even."""

    def hold(
        self,
        reason: Reason,
        name: str,
        file_no: int,
        age: int | None = None,
        ended_by: str = "",
        holder: tuple[str, str] | None = None,
    ) -> Pin:
        """Hold the files from `file_no` on. Raises `BinlogBegunAnew` if that number is not of this `age` any more.

        Whoever writes gives none: it is admitted in one age alone, and holds under the append lock.
        """
        hold = Pin(self, reason, name, file_no, ended_by, holder)
        with self._lock:
            self.require_age(age)
            self._holds.add(hold)
        return hold

    def hold_for_reader(
        self,
        name: str,
        file_no: Callable[[], int],
        *,
        dump: bool = False,
        slot: bool = False,
        ended_by: str = "",
        holder: tuple[str, str] | None = None,
        wait: bool = True,
    ) -> Pin:
        """See `EngineReader.hold`. `file_no` gives the first file to hold, in the age in which it is called."""
        reason = Reason.DUMP if dump else Reason.SLOT if slot else Reason.NAMED
        while True:
            age = self.wait_until_open() if wait else self.require_open()
            try:
                # A hold counts once it is taken, also if an empty binlog begins anew meanwhile.
                return self.hold(reason, name, file_no(), age, ended_by, holder)
            except Exception:
                if age == self.age:
                    raise

    def drop(self, hold: Pin) -> None:
        """See `Pin.release`."""
        with self._lock:
            self._holds.discard(hold)

    def lowest(self, *reasons: Reason) -> int | None:
        """The lowest file held for one of these reasons, None if none is."""
        with self._lock:
            return min((h.file_no for h in self._holds if h.reason in reasons), default=None)

    def let_go(self, file_no: int, refers_to: Mapping[int, int], going: Callable[[], None]) -> bool:
        """If nobody holds the file call `going`, behind which nobody finds it; False if somebody does.

        Both at once: a hold that comes while files are deleted, which may take long, keeps those that its owner finds.

        Args:
            refers_to: by the number of a file, the lowest one that it needs.
        """
        with self._lock:
            for hold in self._holds:
                if min(hold.file_no, refers_to.get(hold.file_no, hold.file_no)) <= file_no:
                    return False
            going()
            return True

    def count(self, reason: Reason) -> int:
        """How many holds there are for a reason."""
        with self._lock:
            return sum(h.reason is reason for h in self._holds)

    def begin_at(self, age: int) -> None:
        """The first age of a store that takes the place of another one: see `EngineAdmin.begin_age`."""
        with self._lock:
            self.age = age

    # --- RESET MASTER ---

    def wait_until_open(self) -> int:
        """Wait for a RESET MASTER that is at work. Returns the age."""
        with self._opened:
            self._opened.wait_for(lambda: self.age % 2 == 0)
            return self.age

    def require_open(self) -> int:
        """The age. Raises `BinlogBegunAnew` while a RESET MASTER is at work: for those who may not wait."""
        age = self.age
        if age % 2:
            raise BinlogBegunAnew("RESET MASTER is at work")
        return age

    def require_age(self, age: int | None) -> None:
        """Raises `BinlogBegunAnew` if another age has begun, or is about to; never for None."""
        if age is not None and age != self.age:
            raise BinlogBegunAnew("RESET MASTER was executed meanwhile")

    def close(self, *, is_empty: bool) -> None:
        """End the age: readers wait until `open`. Under the append lock.

        Nobody may hold anything: raises `BinlogInUse` or `BinlogInUseByTransaction`, in MariaDB's words, with who does.
        But for slots: nobody has asked for them, and whoever resets wants the files to go.

        Args:
            is_empty: nothing was ever logged, so there is nothing that a name could hold.
        """
        with self._lock:
            self._refuse_reset(is_empty=is_empty)
            self.closed_at = time.monotonic()
            self.age += 1

    def open(self) -> None:
        """Begin the next age: the new binlog is there."""
        with self._opened:
            self.age += 1
            self._opened.notify_all()
        for call in self._when_opened:
            call()

    def when_opened(self, call: Callable[[], None]) -> None:
        """Call this each time that an age begins, for those who wait for it in no thread."""
        self._when_opened.append(call)

    def _refuse_reset(self, *, is_empty: bool) -> None:
        """Under the lock."""
        dumps, named = self._of(Reason.DUMP), [] if is_empty else self._of(Reason.NAMED)
        if dumps or named:
            text = (
                "Cannot execute RESET MASTER as the binlog is in use by a connected slave or other RESET MASTER or "
                "binlog reader."
            )
            if dumps:
                text += (
                    ' Check SHOW PROCESSLIST for "Binlog Dump" commands and use KILL to stop such readers: '
                    f"{_listed(dumps)}."
                )
            if named:
                end = named[0].ended_by or "it ends by itself"
                text += f" Files are held by {_listed(named)}: {end}."
            raise BinlogInUse(text.removesuffix("."))
        prepared = self._of(Reason.PREPARED_XA)
        if prepared or self._of(Reason.ACTIVE_TRANSACTION):
            text = "Cannot execute RESET MASTER as the binlog is in use by an active transaction"
            if prepared:
                text += f" ({prepared[0].name} is prepared: XA COMMIT or XA ROLLBACK ends it)"
            raise BinlogInUseByTransaction(text)

    def _of(self, reason: Reason) -> list[Pin]:
        """Under the lock: the lowest file first."""
        found = (hold for hold in self._holds if hold.reason is reason)
        return sorted(found, key=lambda hold: (hold.file_no, hold.name))

    def holds(self) -> list[Pin]:
        """All holds, the lowest file first."""
        with self._lock:
            return sorted(self._holds, key=lambda h: h.file_no)


def _listed(holds: list[Pin]) -> str:
    """The first one by name, and how many more."""
    name, more = holds[0].name, len(holds) - 1
    if len(name) > _NAME_CHARS_MAX:
        name = f"{name[:_NAME_CHARS_MAX]}..."
    return f"{name} and {more} more" if more else name
