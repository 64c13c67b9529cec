"""Does one step after another to a store, and tells the model before each, so that the model knows at any crash.

A step is a name and a number, whose meaning is the step's: bytes, a choice, a domain. The same steps on the same disk
do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import GroupWriter, Xid
from binlog_storage.errors import BinlogInUseByTransaction, DomainInUse

from tests.storage.crash.model import Model
from tests.storage.groups import GROUP_BYTES_MIN, events, group, gtid_event, marker

Note = Callable[[str, object], None]

OPEN_MAX = 3
RESET_STATE = BinlogState([Gtid(7, 3, 30), Gtid(8, 3, 31)])


class Step(NamedTuple):
    """What to do, and how much of it."""

    name: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.number}" if self.number else self.name


@dataclass(slots=True)
class Player:
    """Plays steps on `engine` and on `model`.

    note: told of ("begun", number of the snapshot that may be met from now on), ("told", number of the snapshot that
        is durable), ("purge", number of the file before which groups may be gone).
    resetting: whether a reset is under way, when positions mean nothing.
    """

    engine: IbbEngine
    model: Model
    note: Note = lambda what, value: None
    open: list[tuple[GroupWriter, bytes, bytes]] = field(default_factory=list)
    count: int = 0
    resetting: bool = False

    def play(self, step: Step) -> None:
        """One step. What the store raises passes through; the model is right then too, for a crash."""
        extra = step.name == "reset state"
        self.note("begun", self.model.last + 1 + extra)
        begun = self.model.last
        durable = False
        try:
            durable = STEPS[step.name](self, step.number)
        finally:
            # A step that fails half way has no end; nothing is asked of it any more.
            self.model.snapshot(self.engine.written_end)
            assert self.model.last <= begun + 1 + extra
            self.note(
                "begun", self.model.last
            )  # a reset that was refused has made fewer than it might
            self.resetting = False
        if durable:
            self.note("told", self.model.last)

    # --- groups ---

    def _gtid(self, domain: int = 0) -> Gtid:
        self.count += 1
        return Gtid(domain, 1 + self.count % 2, self.count)

    def _file_no(self) -> int:
        return self.engine.written_end.file_no

    def append(self, size: int) -> bool:
        """`size` bytes, spilled if that is much."""
        gtid = self._gtid(self.count % 3 // 2)
        payload, _ = group(gtid, max(size, GROUP_BYTES_MIN))
        self.model.add(payload, gtid, self._file_no())
        self.engine.append(payload, gtid)
        return False

    def append_sync(self, size: int) -> bool:
        """The same, and made durable."""
        self.append(size)
        self.engine.sync()
        return True

    def domain(self, number: int) -> bool:
        """A small group of domain 100 + `number`."""
        gtid = self._gtid(100 + number)
        payload, _ = group(gtid, 200)
        self.model.add(payload, gtid, self._file_no())
        self.engine.append(payload, gtid)
        return False

    def marker(self, _: int) -> bool:
        """A start marker."""
        self.count += 1
        payload, _gtid = marker(self.count)
        self.model.add(payload, None, self._file_no())
        self.engine.append(payload, None)
        return False

    def sync(self, _: int) -> bool:
        self.engine.sync()
        return True

    def write_log(self, _: int) -> bool:
        """As flush_log_at_trx_commit=2: safe from a crash of the process alone."""
        self.engine.write_log()
        return False

    def step(self, count: int) -> bool:
        """Background work, `count` units or once."""
        for _ in range(max(1, count)):
            background_step(self.engine)
        return False

    def checkpoint(self, _: int) -> bool:
        checkpoint = getattr(self.engine, "checkpoint", None)
        if checkpoint is not None:
            checkpoint()
        return False

    # --- open groups ---

    def begin(self, _: int) -> bool:
        if len(self.open) < OPEN_MAX:
            self.open.append((self.engine.begin(), b"", b""))
        return False

    def begin_bulk(self, _: int) -> bool:
        """Of whole pages that are not logged."""
        if len(self.open) < OPEN_MAX:
            self.open.append((self.engine.begin(bulk=True), b"", b""))
        return False

    def spill(self, size: int) -> bool:
        """`size` bytes to one of the open groups, by turns, now and then to its statement list."""
        if self.open:
            self.count += 1
            at = self.count % len(self.open)
            writer, statement, data = self.open[at]
            piece = events(max(size, 60), f"{self.count} {len(data)}")
            to_statement = self.count % 5 == 0
            if to_statement:
                self.open[at] = writer, statement + piece, data
            else:
                self.open[at] = writer, statement, data + piece
            writer.spill(piece, statement=to_statement)
        return False

    def rewind(self, size: int) -> bool:
        """Spill to the oldest open group, and take it back."""
        if self.open:
            writer = self.open[0][0]
            mark = writer.mark()
            writer.spill(events(max(size, 60), "taken back"))
            writer.rewind(mark)
        return False

    def commit_open(self, _: int) -> bool:
        if self.open:
            writer, statement, data = self.open.pop(0)
            gtid = self._gtid()
            self.model.add(gtid_event(gtid) + statement + data, gtid, self._file_no())
            writer.commit(gtid_event(gtid), gtid)
        return False

    def rollback_open(self, _: int) -> bool:
        if self.open:
            self.open.pop()[0].rollback()
        return False

    # --- XA ---

    def prepare(self, size: int) -> bool:
        return self._prepare(size, bulk=False)

    def prepare_bulk(self, size: int) -> bool:
        return self._prepare(size, bulk=True)

    def _prepare(self, size: int, *, bulk: bool) -> bool:
        self.count += 1
        xid = Xid(1, b"%d" % self.count, b"b" * (self.count % 3))
        writer = self.engine.begin(bulk=bulk)
        data = events(max(size, 60), str(xid)) if size else b""
        self.model.prepared[xid] = data
        if data:
            writer.spill(data)
        writer.prepare(xid)
        return False

    def commit_prepared(self, which: int) -> bool:
        if self.model.prepared:
            xid = list(self.model.prepared)[which % len(self.model.prepared)]
            gtid = self._gtid()
            data = gtid_event(gtid) + self.model.prepared.pop(xid)
            self.model.add(data, gtid, self._file_no())
            self.engine.commit_prepared(xid, gtid_event(gtid), gtid)
        return False

    def rollback_prepared(self, which: int) -> bool:
        if self.model.prepared:
            xid = list(self.model.prepared)[which % len(self.model.prepared)]
            del self.model.prepared[xid]
            self.engine.rollback_prepared(xid)
        return False

    # --- files ---

    def flush(self, _: int) -> bool:
        self.engine.flush()
        return True

    def delete_domain(self, number: int) -> bool:
        """Domain 100 + `number`, or a mere refusal if there are groups of it yet."""
        domain = 100 + number
        kept = BinlogState(g for g in self.model.state.entries() if g.domain_id != domain)
        before, self.model.state = self.model.state, kept
        try:
            self.engine.flush((domain,))
        except DomainInUse:
            self.model.state = before
            return False
        return True

    def purge(self, back: int) -> bool:
        """Everything before the current file, or `back` files earlier."""
        last = self._file_no() - back
        numbers = [file.number for file in self.engine.files() if file.number <= last]
        if numbers:
            self.note("purge", numbers[-1])
            self.engine.purge_to(numbers[-1])
        return False

    def reset(self, _: int) -> bool:
        return self._reset(BinlogState())

    def reset_state(self, _: int) -> bool:
        return self._reset(RESET_STATE.copy())

    def _reset(self, state: BinlogState) -> bool:
        while self.open:
            self.open.pop()[0].rollback()
        if self.model.prepared:
            try:
                self.engine.reset(state)
            except BinlogInUseByTransaction:
                return False
            raise AssertionError("RESET MASTER with a transaction prepared")
        self.resetting = True
        self.model.reset(state)
        self.engine.reset(state.copy())
        return True


STEPS: dict[str, Callable[[Player, int], bool]] = {
    "append": Player.append,
    "append sync": Player.append_sync,
    "domain": Player.domain,
    "marker": Player.marker,
    "sync": Player.sync,
    "write log": Player.write_log,
    "step": Player.step,
    "checkpoint": Player.checkpoint,
    "begin": Player.begin,
    "begin bulk": Player.begin_bulk,
    "spill": Player.spill,
    "rewind": Player.rewind,
    "commit open": Player.commit_open,
    "rollback open": Player.rollback_open,
    "prepare": Player.prepare,
    "prepare bulk": Player.prepare_bulk,
    "commit prepared": Player.commit_prepared,
    "rollback prepared": Player.rollback_prepared,
    "flush": Player.flush,
    "delete domain": Player.delete_domain,
    "purge": Player.purge,
    "reset": Player.reset,
    "reset state": Player.reset_state,
}


def background_step(engine: IbbEngine) -> bool:
    """One unit of what threads do in production. Whether there was something to do."""
    step = getattr(engine, "step", None)
    if step is not None:
        return bool(step())
    engine.keeper.caretaker.step()
    return False
