"""Commits of the binlog with engines that have logs of their own: the steps that are the same in each kind of store.

prepare in each        a crash behind it: the binlog does not know the name, the next start rolls back in each
decide in the binlog   durable with it: the next start commits in each
commit in each         then nobody needs the decision any more
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from binlog_protocol.dataclass import dataclass

from binlog_storage.engine.references import Pin
from binlog_storage.errors import StorageError
from binlog_storage.ibb.xa import Xid
from binlog_storage.tables.participants import Participant

log = logging.getLogger(__name__)

_PREFIX = b"binlog-server"


def xa_name(uuid: bytes, trx: int) -> Xid:
    """Under which an engine that keeps rows has a transaction that waits for XA COMMIT.

    The client's own name may be used many times, that of one transaction once: its number is in the redo log with this
    uuid before anything is decided about it.
    """
    return Xid(1, _PREFIX + uuid + trx.to_bytes(8, "little"))


@dataclass(eq=False, slots=True)
class Decision:
    """What is prepared in engines under this name. `hold`: the binlog has it; this holds its file until all know it."""

    xid: Xid
    taking_part: Sequence[Participant]
    hold: Pin | None = None


class Deciding(ABC):
    """Of one store."""

    def begin(self, taking_part: Sequence[Participant], xid: Xid | None = None) -> Decision:
        """Prepare in these engines what is to commit in the binlog next: the group's `decide`, then `finish`.

        One at a time: engines commit in the order of the binlog. Raises `StorageError`: it is prepared nowhere then.
        `xid`: its name, of a transaction that the binlog prepares, too (`xa_name`).
        """
        xid = xid or Xid(1, _PREFIX + uuid.uuid4().bytes)
        with self.prepared_in(taking_part, xid):
            return Decision(xid, taking_part)

    def finish(self, decision: Decision) -> None:
        """Commit in the engines what the binlog has, durably; or roll back what it has not got."""
        if decision.hold is None:
            tell(decision.taking_part, decision.xid, committed=False)
        else:
            self.decided(decision.xid, decision.taking_part, decision.hold)

    @staticmethod
    @contextlib.contextmanager
    def prepared_in(taking_part: Sequence[Participant], xid: Xid) -> Iterator[None]:
        """In each of these, or behind an error in none."""
        begun: list[Participant] = []
        try:
            for participant in taking_part:
                begun.append(participant)
                participant.prepare(xid)
            yield
        except BaseException:
            for participant in begun:
                participant.rollback(xid)
            raise

    def decided(self, xid: Xid, having: Sequence[Participant], hold: Pin) -> None:
        """Make the decision durable, then known."""
        self.sync_log()
        if tell(having, xid, committed=True):
            hold.release()
            self.known(xid)

    @abstractmethod
    def sync_log(self) -> None:
        """Make all that was appended durable."""

    @abstractmethod
    def known(self, xid: Xid) -> None:
        """All know this decision."""


def tell(having: Sequence[Participant], xid: Xid, *, committed: bool) -> bool:
    """Commit or roll back in engines. Returns whether all have done it."""
    done = True
    for participant in having:
        try:
            (participant.commit if committed else participant.rollback)(xid)
        except StorageError as error:
            done = False
            log.error("%s: %s; the next start does it there", participant.name, error)
    return done


def settle_in(participant: Participant, xid: Xid, *, committed: bool) -> None:
    """At a start: end what a participant has prepared as the binlog says."""
    if committed:
        log.info("%s: Committed transaction with xid %s", participant.name, xid)
        participant.commit(xid)
    else:
        log.warning("%s: Rolled back transaction with xid %s", participant.name, xid)
        participant.rollback(xid)
