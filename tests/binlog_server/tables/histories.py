"""Random histories of SQL sessions on a real server in this process, each answer held against `model.Model`.

One statement is sent at a time; one that waits for a lock stays behind, and others go on. Behind each step the store
is at rest: every statement has its answer, or waits. Then answers are what the model says, and the locks that the
server has are between those that must be there and those that may.

So that each answer is known, no two statements go on at the same moment: of two that wait for the same transaction,
one is killed, but if the one waits for the other, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from binlog_protocol.connection.commands import Query
from binlog_protocol.errors import ProtocolError
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import parse_column_count, parse_error, parse_ok, parse_row
from binlog_storage.tables.locks import LockRequest
from binlog_storage.tables.rows import Resource, Trx
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.sql_commit.session_transaction import SessionTransaction
from binlog_server.tables.held import COUNTERS, FIRST_TABLE, HeldTable, HeldTables, number_key
from tests.binlog_server.lab import ROOT, WITH_ROOT, Client, Lab, until
from tests.binlog_server.tables.model import (
    ALTERS,
    COUNTED,
    DATABASE,
    DIRECT,
    EXCLUSIVE,
    PLAIN,
    SHARED,
    Change,
    Content,
    Define,
    Delete,
    Insert,
    LockingRead,
    Model,
    Outcome,
    Place,
    Row,
    Session,
    Stand,
    Update,
    Where,
    collide,
)
from tests.binlog_server.tables.replay import Replay
from tests.storage.crash.check import Violation
from tests.storage.crash.history import OPTIONS
from tests.storage.crash.recorder import RecordingDisk
from tests.storage.crash.states import Images
from tests.storage.crash.tables import AnyEngine, Options, StatesChecker, checkpoint, open_engine
from tests.storage.groups import begin_event, read_all

SESSIONS: Final = 3
PATIENT_S: Final = 1000
_COLUMNS: Final = "a VARCHAR(10), n TINYINT NOT NULL"
CREATE: Final = {
    COUNTED: f"CREATE TABLE {COUNTED} (id INT AUTO_INCREMENT PRIMARY KEY, {_COLUMNS})",
    PLAIN: f"CREATE TABLE {PLAIN} (id INT PRIMARY KEY, {_COLUMNS})",
    DIRECT: f"CREATE TABLE {DIRECT} (id INT PRIMARY KEY, {_COLUMNS}) ENGINE=MyISAM",
}
_TEXTS: Final[tuple[str | None, ...]] = (None, "x", "y", "z")
_MORE_TEXTS: Final[tuple[str | None, ...]] = (None, *"stuvwxyz")
"""Of the table that has a UNIQUE key at times."""


_TWICE: Final[tuple[tuple[str, Callable[[Row], Row]], ...]] = (
    ("n = n + 1", lambda row: row._replace(n=row.n + 1)),
    ("n = n - 2", lambda row: row._replace(n=row.n - 2)),
)
"""Updates that change the same rows."""


@dataclass(slots=True)
class Answer:
    """What came back. `errno` 0: OK, or rows."""

    errno: int = 0
    affected: int = 0
    insert_id: int = 0
    info: str = ""
    rows: list[Row] = field(default_factory=list)


@dataclass(eq=False)
class Talk:
    """A session: its connection, the server's side of it, its part of the model, and the statement under way."""

    client: Client
    session: Session
    connection_id: int
    server: SessionTransaction
    said: list[str]
    task: asyncio.Task[Answer] | None = None
    change: Change | None = None
    seconds: int = -1
    behind: set[Talk] = field(default_factory=set)  # for whom it waited when all were at rest
    is_killed: bool = False
    given: int = 0  # when its statement was sent: AUTO_INCREMENT gives it no number below
    commit: int = (
        -1
    )  # the stand of the transaction that its DDL has committed, which nobody has been told yet

    async def say(self, text: str) -> Answer:
        if not text.startswith("SET"):
            self.said.append(f"{self.session.number}: {text}")
        payload = await self.client.ask(Query(text).build())
        if payload[:1] == b"\xff":
            return Answer(parse_error(payload).errno)
        if payload[:1] == b"\0":
            ok = parse_ok(payload)
            return Answer(0, ok.affected_rows, ok.insert_id, ok.info.decode("utf-8", "replace"))
        count = parse_column_count(payload)
        for _ in range(count + 1):
            await self.client.answer()
        answer = Answer()
        while (payload := await self.client.answer())[:1] != b"\xfe":
            if payload[:1] == b"\xff":
                return Answer(parse_error(payload).errno)
            number, a, n = parse_row(payload, count)
            answer.rows.append(Row(int(number or 0), a, int(n or 0)))
        return answer

    def transactions(self) -> Iterator[Trx]:
        """Those of the rows that its statements change."""
        for opened in (self.server._open, self.server._around):
            if opened is not None and opened.rows is not None:
                yield opened.rows.trx._trx

    @property
    def hurries(self) -> bool:
        """Whether its statement waits for no lock: 1205 comes at once, though not in the same moment."""
        return self.change is not None and (self.seconds == 0 or "NOWAIT" in self.change.text)

    @property
    def errno(self) -> int:
        """Of the answer that is there."""
        assert self.task is not None
        return self.task.result().errno

    @property
    def group(self) -> int:
        """The number of its last group."""
        last = self.server._sql.last_gtid
        return 0 if last is None else last.seq_no


class History:
    """`async with History(rng) as history: await history.play(100)`. Raises `Violation`.

    Attributes:
        model: as it is now.
        counts: how often each kind of step was taken.
        said: all statements, with the number of the session.
    """

    def __init__(
        self, rng: random.Random, *, options: Options = OPTIONS, resets: bool = True
    ) -> None:
        self._rng = rng
        self.options = options
        self._resets = resets
        self.disk = RecordingDisk(MemoryDisk())
        self.counts: dict[str, int] = {}
        self.said: list[str] = []
        self._unique = rng.choice((PLAIN, ""))
        self.model = Model(CREATE, self._unique)
        self._talks: list[Talk] = []
        self._xids = 0
        self._admin: Client
        self.lab: Lab
        self.engine: AnyEngine

    async def __aenter__(self) -> History:
        self.engine = open_engine(self.disk, self.options)
        self.lab = Lab(self.engine, users={**WITH_ROOT, **ROOT}, local_tables=True)
        await self.lab.__aenter__()
        self._admin = await self.lab.root()
        for text in (f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}"):
            await self._admin.query(text)
        for name, text in CREATE.items():
            await self._admin.query(_with_unique(text) if name == self._unique else text)
        self._tell()
        for number in range(SESSIONS):
            await self._connect_one(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for talk in self._talks:
            if talk.task is not None:
                talk.task.cancel()
        await self.lab.stop()

    async def _connect_one(self, number: int) -> None:
        client = await self.lab.root()
        session = Session(
            number,
            autocommit=self._rng.random() < 0.8,
            read_committed=self._rng.random() < 0.4,
        )
        await client.query(f"USE {DATABASE}")
        if not session.autocommit:
            await client.query("SET autocommit=0")
        if session.read_committed:
            await client.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await client.query("SET innodb_snapshot_isolation=OFF")  # the model knows no 1020
        found = int((await client.query("SELECT CONNECTION_ID()"))[0][0] or 0)
        ending: Any = self.lab.server.connections.by_id[found].ending
        talk = Talk(client, session, found, ending._conversation.transaction, self.said)
        self._talks.insert(number, talk)
        self.model.sessions.insert(number, session)

    # --- steps ---

    async def play(self, steps: int) -> None:
        """So many steps, and then all sessions end, but for what is prepared."""
        for _ in range(steps):
            await self._step()
        await self._end_all()
        self.check()

    async def _step(self) -> None:
        rng = self._rng
        free = [talk for talk in self._talks if talk.task is None]
        if not free:
            self._require(bool(self.model.prepared), f"all wait: {self._shown()}")
            await self._complete(rng.choice(list(self.model.prepared)))
            return
        talk = rng.choice(free)
        session, what = talk.session, rng.random()
        if session.xid and (session.doomed or what < 0.3):
            await self._end_xa(talk)
        elif session.xid:
            await (self._select if what < 0.4 else self._change_any)(talk)
        elif what < 0.08:
            await self._select(talk)
        elif what < 0.11:
            await self._look_twice(talk)
        elif what < 0.20 and not session.begun:
            await self._begin(talk)
        elif what < 0.26 and session.keeps:
            await self._commit(talk)
        elif what < 0.28:
            await self._rollback(talk)
        elif what < 0.33 and session.keeps:
            await self._savepoint(talk)
        elif what < 0.38 and (session.savepoints or rng.random() < 0.1):
            await self._rollback_to(talk)
        elif what < 0.43:
            await self._take_back(talk)
        elif what < 0.51:
            await self._change(talk, self._any_definition())
        elif what < 0.52:
            self._store(
                rng.choice((lambda: checkpoint(self.engine), self._snapshot, self.engine.step))
            )
        elif what < 0.53:
            await self._go(talk)
        elif what < 0.54:
            await self._kill(rng.choice(self._talks))
        elif what < 0.55 and self._resets and not self.model.prepared and self._nobody_is_open():
            await self._reset(talk)
        elif what < 0.59 and not session.in_transaction and not session.begun:
            await self._start_xa(talk)
        elif what < 0.61 and self.model.prepared:
            await self._complete(rng.choice(list(self.model.prepared)))
        elif what < 0.63 and (waiting := [one for one in self._talks if one.task is not None]):
            await self._kill_query(rng.choice(waiting))
        else:
            await self._change_any(talk)

    def _nobody_is_open(self) -> bool:
        return not any(one.session.in_transaction or one.task for one in self._talks)

    def _store(self, call: Callable[[], object]) -> None:
        self._count("store")
        call()

    def _snapshot(self) -> None:
        self.engine._snapshots.make()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)

    async def _ok(self, talk: Talk, text: str, errno: int = 0) -> Answer:
        """A statement that waits for nobody."""
        self._count(text.split()[0] + (f" {errno}" if errno else ""))
        answer = await talk.say(text)
        self._require(
            answer.errno == errno, f"{text}: error {answer.errno} in the place of {errno}"
        )
        return answer

    # --- statements that change or lock rows ---

    async def _change_any(self, talk: Talk) -> None:
        await self._change(talk, self._any_change(talk.session))

    async def _change(self, talk: Talk, change: Change) -> None:
        session = talk.session
        if isinstance(change, Define):
            if session.in_transaction and any(one.task for one in self._talks):
                await self._commit(
                    talk
                )  # else who waits for it, and the DDL, go on at the same moment
            before = len(self.model.stands)
            self.model.commit(session)
            talk.commit = before if len(self.model.stands) > before else -1
        seconds = PATIENT_S if self._rng.random() < 0.8 else 0
        if talk.seconds != seconds:
            await talk.say(f"SET innodb_lock_wait_timeout={seconds}")
            talk.seconds = seconds
        self._count(type(change).__name__)
        session.wishes = {}
        self.model.wished(session, change)
        talk.change, talk.behind, talk.is_killed = change, set(), False
        talk.given = self.model.given
        talk.task = asyncio.create_task(talk.say(change.text))
        await self._rest()

    async def _rest(self) -> None:
        """Wait until nobody works: each statement has its answer, or waits. Tell the model, and look at the locks."""
        while True:
            self._wish_again()
            try:
                await until(self._is_at_rest)
            except TimeoutError:
                raise Violation(f"there is no rest: {self._shown()}") from None
            done = [talk for talk in self._talks if talk.task is not None and talk.task.done()]
            if done:
                self._settle(done)
            elif (talk := self._second()) is not None:
                await self._kill_waiting(talk)
            else:
                break
        for talk in self._talks:
            talk.session.recent = {}
            if talk.task is None:
                talk.session.wishes = {}
        self._note_queues()
        self._check_locks()
        last = self.engine.binlog_state().last(0)
        number = 0 if last is None else last.seq_no
        self._require(
            number == self.model.seq_no, f"{number} groups are there, and not {self.model.seq_no}"
        )
        self._tell()

    def _wish_again(self) -> None:
        """Statements that wait begin anew when the wait is over: what they ask for is what is there by then."""
        for talk in self._talks:
            if talk.change is not None:
                self.model.wished(talk.session, talk.change)

    def _is_at_rest(self) -> bool:
        store = self.engine.tables
        left = [talk for talk in self._talks if talk.task is not None and not talk.task.done()]
        if len(left) != store.locks.waiting or any(talk.hurries for talk in left):
            return False
        with store.latch:
            known = self._owners()
            holders = (trx for lock in store.locks._locks.values() for trx in lock.holders)
            return all(trx in known for trx in (*store.open.values(), *holders))

    def _owners(self) -> dict[Trx, Session]:
        owners = {trx: talk.session for talk in self._talks for trx in talk.transactions()}
        for xid, trx in self.engine.tables.prepared.items():
            owners[trx] = self.model.prepared[xid.gtrid.decode()]
        return owners

    def _shown(self) -> str:
        locks = {
            resource: (
                [(trx.id, mode.name) for trx, mode in lock.holders.items()],
                [(request.trx.id, request.mode.name) for request in lock.queue],
            )
            for resource, lock in self.engine.tables.locks._locks.items()
        }
        mine = {talk.session.number: [t.id for t in talk.transactions()] for talk in self._talks}
        waiting = [f"{t.session.number}: {t.change.text}" for t in self._talks if t.change]
        return (
            f"{waiting} of transactions {mine}, open {list(self.engine.tables.open)}, locks {locks}"
        )

    def _requests(self) -> dict[Talk, LockRequest]:
        found = {}
        for talk in self._talks:
            for trx in talk.transactions():
                if isinstance(trx.waiting, LockRequest):
                    found[talk] = trx.waiting
        return found

    def _blockers(self, request: LockRequest) -> list[Trx]:
        lock = self.engine.tables.locks._locks[request.resource]
        return lock.blockers(request.trx, request.mode, request)

    def _note_queues(self) -> None:
        """Who waits for whom, also by another one that does."""
        owners = {trx: talk for talk in self._talks for trx in talk.transactions()}
        requests = self._requests()
        for talk in self._talks:
            talk.behind = set()
            todo = [talk] if talk in requests else []
            while todo:
                if (one := todo.pop()) not in requests:
                    continue
                for trx in self._blockers(requests[one]):
                    other = owners.get(trx)
                    if other is not None and other not in talk.behind:
                        talk.behind.add(other)
                        todo.append(other)
        self.counts["waiting"] = self.counts.get("waiting", 0) + len(requests)

    def _second(self) -> Talk | None:
        """One that would go on at the same moment as another one, as both wait for the same."""
        waiting = [
            (talk, request.trx, self._blockers(request))
            for talk, request in self._requests().items()
        ]
        for at, (_, trx, blockers) in enumerate(waiting):
            for talk, other, its in waiting[at + 1 :]:
                if set(blockers) & set(its) and trx not in its and other not in blockers:
                    return talk
        return None

    def _tell(self) -> None:
        last = len(self.model.stands) - 1
        is_told = all(talk.task is None or talk.commit != last for talk in self._talks)
        self.disk.mark("told", last if is_told else last - 1)

    def _settle(self, done: list[Talk]) -> None:
        """Tell the model of answers, in the order in which they came about."""
        # First what was refused: that has changed nothing, while another one that waited for the same, and went on at
        # the same moment, may have changed what it was refused for. Not one that waited for a definition of its table:
        # it was refused by the new one, whose share it keeps.
        defined = {talk for talk in done if isinstance(talk.change, Define)}
        left = sorted(
            done,
            key=lambda talk: (
                not talk.errno or bool(talk.behind & defined),
                len(talk.behind & {*done}),
                talk.group,
            ),
        )
        told: list[str] = []
        while left:
            for talk in left:
                why = self._is_in_front(talk, left) or self._refused(talk)
                if why is None:
                    break
                told.append(why)
            else:
                raise Violation("; ".join(told[-len(left) :]))
            talk.task = talk.change = None
            left.remove(talk)
            self._wish_again()

    def _is_in_front(self, talk: Talk, left: list[Talk]) -> str | None:
        """Why another answer came first: its statement has met rows that this one's transaction keeps."""
        session, change = talk.session, talk.change
        if not session.keeps or change is None or isinstance(change, Define):
            return None
        found, answer = self._found(talk)
        if change.table == DIRECT:
            return None
        if answer.errno == 1062 and session.opened:
            # The row that it has met stays locked: who changes it and has an answer, too, was there before.
            met = [place for place in found.touches if place.key is not None][-1:]
            kept = {place: found.touches[place] for place in met}
        elif answer.errno:
            return None
        else:
            kept = self.model.changed_places(found.done) | found.kept
        for other in left:
            its, what = self._found(other)
            is_undone = what.errno in (1205, 1213, 1317)
            if other is not talk and not is_undone and collide(its.touches, kept):
                return (
                    f"{session.number}: {change.text}: {other.session.number} has not waited for it"
                )
        return None

    def _found(self, talk: Talk) -> tuple[Outcome, Answer]:
        """What its statement does, and what it was answered."""
        assert talk.task is not None
        assert talk.change is not None
        answer = talk.task.result()
        first = answer.insert_id or self.model.free
        return self.model.simulated(talk.session, talk.change, first, answer.errno), answer

    def _refused(self, talk: Talk) -> str | None:
        """Tell the model of an answer; or why it is none that may come now."""
        model, session, change = self.model, talk.session, talk.change
        assert talk.task is not None
        assert change is not None
        answer, text = talk.task.result(), f"{session.number}: {change.text}"
        others = [one for one in model.everybody() if one is not session]
        match answer.errno:
            case 1213:
                working = [one.session for one in self._talks if one.session.wishes]
                if not model.may_circle(session, working):
                    return f"{text}: 1213, but nobody waits in a circle"
                self._count("deadlock")
                session.doomed, xid = bool(session.xid), session.xid
                session.ended()
                if session.doomed:
                    session.xid, session.begun = xid, True
                return None
            case 1317 if talk.is_killed:
                model.over(session, None, change)
                return None
            case 1205:
                if not talk.hurries or not any(model.is_in_way(session, one) for one in others):
                    return f"{text}: 1205, but nobody is in the way"
                self._count("1205")
                model.over(session, None, change)
                return None
        found, _ = self._found(talk)
        if isinstance(change, LockingRead) and change.ends == "SKIP LOCKED" and not found.errno:
            why = self._skipped(session, found, answer)
            if why is not None:
                return f"{text}: {why}"
        why = _differs(change, found, answer)
        if why is not None:
            return f"{text}: {why}"
        missed = model.missed(session, found)
        if missed:
            return (
                f"{text}: {answer}, but {[one.number for one in missed]} must have what it has met"
            )
        generates = isinstance(change, Insert) and change.generates and not answer.errno
        if generates and answer.insert_id < model.given:
            return f"{text}: the number {answer.insert_id}, below {model.given}"
        self._count(f"error {answer.errno}" if answer.errno else "done")
        model.over(session, found, change)
        return None

    def _skipped(self, session: Session, found: Outcome, answer: Answer) -> str | None:
        """Rows that SKIP LOCKED has not given: others may have them."""
        number = next(iter(found.touches)).table if found.touches else 0
        for row in [row for row in found.rows if row not in answer.rows]:
            found.rows.remove(row)
            place = Place(number, 0, row.id)
            mode = found.touches.pop(place)
            del found.kept[place]
            if not any(
                mode + one.may.get(place, 0) > EXCLUSIVE and place in one.may
                for one in self.model.everybody()
                if one is not session
            ):
                return f"{row} is skipped, but nobody has it"
        return None

    async def _kill_waiting(self, talk: Talk) -> None:
        """End the statement that waits."""
        self._count("KILL QUERY")
        talk.is_killed = True
        await self._admin.query(f"KILL QUERY {talk.connection_id}")
        assert talk.task is not None
        await asyncio.wait([talk.task])

    async def _kill_query(self, talk: Talk) -> None:
        await self._kill_waiting(talk)
        await self._rest()

    # --- locks ---

    def _check_locks(self) -> None:
        """What is locked is what may be, and has all that must be; who waits has somebody to wait for."""
        store, model = self.engine.tables, self.model
        owners = self._owners()
        names = self._names()
        generating = {talk.session: talk.given for talk in self._talks if talk.change is not None}
        counted = model.forms[COUNTED].number
        for resource, lock in store.locks._locks.items():
            for trx, mode in lock.holders.items():
                owner = owners[trx]
                place = self._place(names, resource)
                if place is None or owner.may.get(place, 0) >= mode:
                    continue
                self._require(
                    place[:2] == (counted, 0)
                    and owner in generating
                    and isinstance(place.key, int)
                    and place.key >= generating[owner],
                    f"{owner.number} has {place} ({mode.name}), which no statement of its transaction has asked for",
                )
        for talk, request in self._requests().items():
            assert talk.change is not None
            place = self._place(names, request.resource)
            self._require(
                place is None or talk.session.wishes.get(place, 0) >= request.mode,
                f"{talk.change.text} waits for {place}, which it need not have",
            )
            self._require(bool(self._blockers(request)), f"{talk.change.text} waits for nobody")
            circle = store.locks._circle(request)
            self._require(circle is None, f"{talk.change.text} waits in a circle")
        holding = {owner: trx for trx, owner in owners.items()}
        for owner in model.everybody():
            for place, least in model.must_hold(owner).items():
                resource, its = self._resource(names, place), holding.get(owner)
                entry = store.locks._locks.get(resource)
                has = 0 if entry is None or its is None else entry.holders.get(its, 0)
                if resource[1] is not None and store.memory.owner(resource) is its is not None:
                    has = EXCLUSIVE
                self._require(has >= least, f"{owner.number} has not locked {place}")

    def _names(self) -> dict[int, tuple[str, int, HeldTable]]:
        database = self.lab.server.tables.databases[DATABASE]
        found = {}
        for name, table in database.tables.items():
            found[table.number] = name, 0, table
            for index in table.indexes:
                found[index.number] = name, 1, table
        return found

    def _place(
        self, names: dict[int, tuple[str, int, HeldTable]], resource: Resource
    ) -> Place | None:
        """What the model calls it; None for the server's own tables, and for one that is being made."""
        number, key = resource
        if number < FIRST_TABLE or number not in names:
            return None
        name, index, table = names[number]
        form = self.model.forms[name]
        if key is None:
            return Place(form.number, index, None)
        if not index:
            return Place(form.number, 0, int.from_bytes(key) - (1 << 31))
        for a in _MORE_TEXTS[1:]:
            if self._entry(table, Row(0, a, 0)) == key:
                return Place(form.number, 1, a)
        return Place(form.number, 1, (None, int.from_bytes(key[-4:]) - (1 << 31)))

    def _resource(self, names: dict[int, tuple[str, int, HeldTable]], place: Place) -> Resource:
        name = next(name for name, form in self.model.forms.items() if form.number == place.table)
        number, table = next(
            (n, t) for n, (of, at, t) in names.items() if (of, at) == (name, place.part)
        )
        match place.key:
            case None:
                return number, None
            case int(key):
                return number, (key + (1 << 31)).to_bytes(4)
            case str(a):
                return number, self._entry(table, Row(0, a, 0))
            case (_, key):
                return number, self._entry(table, Row(key, None, 0))

    @staticmethod
    def _entry(table: HeldTable, row: Row) -> bytes:
        values = table.format.split(table.format.row(row))
        return table.entry(table.indexes[0], values, table.format.key(values, table.key))

    # --- other statements ---

    async def _select(self, talk: Talk, table: str = "", where: Where | None = None) -> None:
        session = talk.session
        table = table or self._any_table(session)
        where = where or self._where(table)
        text = f"SELECT id, a, n FROM {table}{where.text} ORDER BY id"
        if table not in self.model.forms:
            await self._ok(talk, text, 1146)
            return
        number = self.model.forms[table].number
        is_kept = session.view is not None and not session.read_committed and table != DIRECT
        if is_kept and session.view is not None and number not in session.view:
            await self._ok(talk, text, 1412)
            return
        rows = self.model.rows_for(session, table, reads=True)
        answer = await self._ok(talk, text)
        wanted = [row for _, row in sorted(rows.items()) if where.holds(row)]
        self._require(answer.rows == wanted, f"{text}: {answer.rows}, and not {wanted}")

    async def _look_twice(self, talk: Talk) -> None:
        """A transaction looks at a table; another one changes it, and commits; the first looks again."""
        free = [one for one in self._talks if one.task is None and one is not talk]
        if not free or talk.session.begun:
            return
        await self._begin(talk)
        table = self._rng.choice((COUNTED, COUNTED, PLAIN))
        await self._select(talk, table, Where())
        other = self._rng.choice(free)
        if not other.session.xid:
            await self._change(other, self._insert(table))
            if other.task is None and other.session.keeps:
                await self._commit(other)
        await self._select(talk, table, Where())

    async def _begin(self, talk: Talk) -> None:
        text = "BEGIN"
        if not talk.session.read_committed and self._rng.random() < 0.3:
            text = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        self.model.commit(talk.session)
        talk.session.begun = True
        if text != "BEGIN":
            self.model.rows_for(talk.session, COUNTED, reads=True)
        await self._ok(talk, text)
        await self._rest()

    async def _commit(self, talk: Talk) -> None:
        self.model.commit(talk.session)
        await self._ok(talk, "COMMIT")
        await self._rest()

    async def _rollback(self, talk: Talk) -> None:
        talk.session.ended()
        await self._ok(talk, "ROLLBACK")
        await self._rest()

    async def _savepoint(self, talk: Talk, name: str = "") -> None:
        name = name or self._rng.choice(("s1", "s2"))
        session = talk.session
        if session.keeps:
            session.opened = True
            session.savepoints.pop(name, None)
            session.savepoints[name] = len(session.chain)
        await self._ok(talk, f"SAVEPOINT {name}")

    async def _rollback_to(self, talk: Talk, name: str = "") -> None:
        name = name or self._rng.choice(("s1", "s2"))
        if name in talk.session.savepoints:
            self.model.rollback_to(talk.session, name)
            await self._ok(talk, f"ROLLBACK TO {name}")
            await self._rest()
        else:
            await self._ok(talk, f"ROLLBACK TO {name}", 1305)

    async def _take_back(self, talk: Talk) -> None:
        """Changes, of which some are taken back and some committed, unless one of them waits."""
        if not talk.session.keeps:
            await self._begin(talk)
        await self._change_any(talk)
        if self._rng.random() < 0.4:
            table = self._rng.choice((COUNTED, PLAIN))
            for assigned, changed in _TWICE:
                if talk.task is None:
                    await self._change(talk, Update(table, assigned, changed, Where(), limit=4))
        if talk.task is None and self._rng.random() < 0.3:
            source = self._rng.choice([name for name in self.model.forms if name != DIRECT])
            copy = Insert(
                DIRECT, verb="REPLACE", source=(source, Where(), self._rng.choice((0, 3)))
            )
            await self._change(talk, copy)
        if talk.task is None:
            await self._savepoint(talk, "s3")
        for _ in range(2):
            if talk.task is None:
                await self._change_any(talk)
        if talk.task is None:
            if "s3" in talk.session.savepoints:  # else one of them was rolled back (1213)
                await self._rollback_to(talk, "s3")
            await self._commit(talk)

    async def _go(self, talk: Talk) -> None:
        """The client goes in the middle; another one comes."""
        self._count("gone")
        await self._replace(talk)

    async def _kill(self, talk: Talk) -> None:
        self._count("KILL")
        await self._admin.query(f"KILL {talk.connection_id}")
        await self._replace(talk)

    async def _replace(self, talk: Talk) -> None:
        if talk.task is not None:
            talk.task.cancel()
            with contextlib.suppress(asyncio.CancelledError, AssertionError):
                await talk.task
        talk.client.close()
        talk.session.ended()
        self._talks.remove(talk)
        self.model.sessions.remove(talk.session)
        await self._rest()
        await self._connect_one(talk.session.number)

    async def _reset(self, talk: Talk) -> None:
        self.model.commit(talk.session)
        self.model.reset()
        await self._ok(talk, "RESET MASTER")
        await self._rest()

    # --- XA ---

    async def _start_xa(self, talk: Talk) -> None:
        self._xids += 1
        session = talk.session
        session.ended()
        session.xid, session.begun, session.doomed = f"x{self._xids}", True, False
        await self._ok(talk, f"XA START '{session.xid}'")
        for _ in range(self._rng.choice((0, 1, 2))):
            if talk.task is None and not session.doomed:
                await self._change_any(talk)

    async def _end_xa(self, talk: Talk) -> None:
        session, rng = talk.session, self._rng
        xid = session.xid
        if session.doomed:
            session.doomed = False
            session.ended()
            await self._ok(talk, f"XA ROLLBACK '{xid}'")
            return
        await self._ok(talk, f"XA END '{xid}'")
        if rng.random() < 0.3:
            end = rng.choice(("COMMIT '{}' ONE PHASE", "ROLLBACK '{}'"))
            if end.startswith("C"):
                self.model.commit(session)
            session.ended()
            await self._ok(talk, "XA " + end.format(xid))
            await self._rest()
            return
        is_empty = not session.chain
        if is_empty:
            session.ended()
        else:
            self.model.prepare(session)
        await self._ok(talk, f"XA PREPARE '{xid}'")
        await self._rest()
        if is_empty or rng.random() < 0.4:
            commit = rng.random() < 0.5
            if not is_empty:
                self.model.complete(xid, commit=commit)
            await self._ok(talk, f"XA {'COMMIT' if commit else 'ROLLBACK'} '{xid}'")
            await self._rest()
        else:
            await self._go(talk)

    async def _complete(self, xid: str) -> None:
        """Another session ends what is prepared."""
        verb = self._rng.choice(("COMMIT", "ROLLBACK"))
        self.said.append(f"admin: XA {verb} '{xid}'")
        self._count(f"XA {verb}")
        self.model.complete(xid, commit=verb == "COMMIT")
        await self._admin.query(f"XA {verb} '{xid}'")
        await self._rest()

    async def _end_all(self) -> None:
        """Each session ends its transaction; and what is prepared, where somebody waits for it."""
        while any(talk.task or talk.session.in_transaction for talk in self._talks):
            free = [t for t in self._talks if t.task is None and t.session.in_transaction]
            if not free:
                self._require(bool(self.model.prepared), f"all wait: {self._shown()}")
                await self._complete(next(iter(self.model.prepared)))
            elif free[0].session.xid:
                await self._end_xa(free[0])
            else:
                await (self._commit if self._rng.random() < 0.5 else self._rollback)(free[0])

    # --- what to say ---

    def _any_table(self, session: Session) -> str:
        if self._rng.random() < 0.08:
            return DIRECT
        if PLAIN not in self.model.forms and self._rng.random() < 0.9:
            return COUNTED
        return self._rng.choice((COUNTED, PLAIN))

    def _text(self, table: str) -> str | None:
        return self._rng.choice(_MORE_TEXTS if table == PLAIN else _TEXTS)

    def _where(self, table: str) -> Where:
        rng = self._rng
        key, n, a = rng.randrange(1, 13), rng.randrange(-20, 60), self._text(table) or "x"
        return rng.choice(
            (
                Where(),
                Where(f" WHERE id = {key}", lambda row: row.id == key),
                Where(f" WHERE id = {key}", lambda row: row.id == key),
                Where(f" WHERE id <= {key}", lambda row: row.id <= key),
                Where(f" WHERE n < {n}", lambda row: row.n < n),
                Where(f" WHERE a = '{a}'", lambda row: row.a == a),
                Where(f" WHERE a = '{a}' OR id > {key}", lambda row: row.a == a or row.id > key),
                Where(" WHERE a IS NULL", lambda row: row.a is None),
            )
        )

    def _any_change(self, session: Session) -> Change:
        rng = self._rng
        table = self._any_table(session)
        where, what = self._where(table), rng.random()
        down, limit = rng.random() < 0.4, rng.choice((None, None, 1, 2, 3))
        ignores = rng.random() < 0.15
        if what < 0.42:
            return self._insert(table)
        if what < 0.58:
            by = rng.choice((1, 5, -7, 40))
            changed: Callable[[Row], Row] = lambda row: row._replace(n=row.n + by)  # noqa: E731
            return Update(table, f"n = n + {by}", changed, where, down, limit, ignores)
        if what < 0.68:
            a = self._text(table) or "x"
            changed = lambda row: row._replace(a=a)  # noqa: E731
            return Update(table, f"a = '{a}'", changed, where, down, limit, ignores)
        if what < 0.80:
            by = rng.choice((1, 1, 2, -1))
            if rng.random() < 0.5:
                where, down = Where(), by > 0
            changed = lambda row: row._replace(id=row.id + by)  # noqa: E731
            return Update(table, f"id = id + {by}", changed, where, down, None, ignores)
        if what < 0.90 or table == DIRECT:
            return Delete(table, where, down, limit or rng.choice((None, 2)))
        ends = rng.choice(("", "", "NOWAIT", "SKIP LOCKED"))
        mode = rng.choice((SHARED, EXCLUSIVE))
        return LockingRead(table, where, mode, down, None if ends[:1] == "S" else limit, ends)

    def _insert(self, table: str) -> Insert:
        rng = self._rng
        what = rng.random()
        if what < (0.6 if table == DIRECT else 0.1):
            source = rng.choice([name for name in (COUNTED, PLAIN) if name in self.model.forms])
            shift = rng.choice((0, 3, 7, 40))
            verb = rng.choice(("INSERT", "INSERT IGNORE", "REPLACE"))
            return Insert(table, verb=verb, source=(source, self._where(source), shift))
        generated = table == COUNTED and rng.random() < 0.6
        rows: list[tuple[int | None, str | None, int]] = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            number = None if generated else rng.randrange(1, 13)
            n = rng.randrange(-20, 60) if rng.random() < 0.95 else 300
            if rows and number is not None and number == rows[0][0] and rng.random() < 0.5:
                number += 20
            rows.append((number, self._text(table), n))
        made = Insert(table, tuple(rows))
        if what < 0.2:
            return replace(made, verb="INSERT IGNORE")
        if what < 0.35:
            return replace(made, verb="REPLACE")
        if what < 0.45:
            by = rng.choice((1, 40))
            return replace(
                made, assigned=f"n = n + {by}", changed=lambda old, new: old._replace(n=old.n + by)
            )
        if what < 0.5:
            return replace(
                made, assigned="a = VALUES(a)", changed=lambda old, new: old._replace(a=new.a)
            )
        return made

    def _any_definition(self) -> Define:
        rng = self._rng
        form = self.model.forms.get(PLAIN)
        if form is None and rng.random() < 0.9:
            text = CREATE[PLAIN]
            return Define(PLAIN, "CREATE", rng.choice((text, _with_unique(text))))
        verb = rng.choice(("CREATE", "DROP", "TRUNCATE", "TRUNCATE", "TRUNCATE", *ALTERS, "UNIQUE"))
        if verb == "TRUNCATE":
            name = rng.choice((COUNTED, PLAIN))
            return Define(name, verb, f"TRUNCATE TABLE {name}")
        if verb == "CREATE":
            return Define(PLAIN, verb, CREATE[PLAIN])
        if verb == "DROP":
            return Define(PLAIN, verb, f"DROP TABLE {PLAIN}")
        if form is not None and form.unique and verb == "UNIQUE":
            verb = "PLAIN"
        said = f" = '{rng.randrange(1000)}'" if verb == "COMMENT" else ""
        return Define(PLAIN, verb, f"ALTER TABLE {PLAIN} {ALTERS[verb]}{said}")

    # --- what is true at rest ---

    def check(self) -> None:
        """Tables == model == the binlog's row events on empty tables."""
        found = Found.of(self.engine)
        stand = self.model.stands[-1]
        found.require_equal(stand)
        found.require_replay(stand)


def _with_unique(text: str) -> str:
    return f"{text[:-1]}, UNIQUE KEY a (a))"


def _differs(change: Change, found: Outcome, answer: Answer) -> str | None:
    """How an answer is another one than the model's."""
    if answer.errno != found.errno:
        return f"error {answer.errno} in the place of {found.errno}"
    if answer.errno or isinstance(change, Define):
        return None
    if isinstance(change, LockingRead):
        if answer.rows != found.rows:
            return f"{answer.rows} in the place of {found.rows}"
        return None
    info = ""
    if isinstance(change, Update):
        info = (
            f"Rows matched: {found.matched}  Changed: {found.affected}  Warnings: {found.warnings}"
        )
    elif isinstance(change, Insert) and (len(change.rows) > 1 or change.source is not None):
        info = (
            f"Records: {found.records}  Duplicates: {found.duplicates}  Warnings: {found.warnings}"
        )
    if (answer.affected, answer.info) != (found.affected, info):
        return f"{answer}, and not {found.affected}, {info!r}"
    return None


def end_prepared(engine: AnyEngine, xids: Iterable[str]) -> None:
    """Commit these, which are prepared."""
    for xid in engine.prepared():
        if xid.gtrid.decode() in xids:
            last = engine.binlog_state().last(0)
            gtid = Gtid(0, 1, 1 if last is None else last.seq_no + 1)
            engine.commit_prepared(xid, begin_event(gtid), gtid)


@dataclass(frozen=True, slots=True)
class Found:
    """What a store holds. `next_number`: of AUTO_INCREMENT; `prepared`: XIDs."""

    seq_no: int
    content: Content
    groups: tuple[bytes, ...]
    next_number: int
    prepared: frozenset[str]

    @classmethod
    def of(cls, engine: AnyEngine) -> Found:
        tables = HeldTables(engine)
        content: Content = {}
        database = tables.databases.get(DATABASE)
        number = 1
        for name, table in database.tables.items() if database is not None else ():
            rows = [Row(*table.format.values(raw)) for _, raw in engine.tables.scan(table.number)]  # type: ignore[arg-type]
            content[name] = {row.id: row for row in rows}
            for (key, _), row in zip(engine.tables.scan(table.number), rows, strict=True):
                values = table.format.split(table.format.row(row))
                assert key == table.format.key(values, table.key), f"{row} has another's key"
            for index in table.indexes:
                entries = dict(engine.tables.scan(index.number))
                wanted = {}
                for row in rows:
                    values = table.format.split(table.format.row(row))
                    primary = table.format.key(values, table.key)
                    wanted[table.entry(index, values, primary)] = primary
                assert entries == wanted, f"the UNIQUE key has {entries} in the place of {wanted}"
            if name == COUNTED:
                counter = engine.tables.get(COUNTERS, number_key(table.number))
                number = 1 if counter is None else int.from_bytes(counter)
        last = engine.binlog_state().last(0)
        prepared = frozenset(xid.gtrid.decode() for xid in engine.prepared())
        seq_no = 0 if last is None else last.seq_no
        return cls(seq_no, content, tuple(read_all(engine)), number, prepared)

    def is_of(self, stand: Stand) -> bool:
        """Whether it has what is committed and prepared there."""
        mine = self.seq_no, self.content, self.prepared
        return mine == (stand.seq_no, stand.content, frozenset(stand.prepared))

    def require_equal(self, stand: Stand) -> None:
        if not self.is_of(stand):
            raise Violation(
                f"group {self.seq_no} has {self.content}, {self.prepared}, the model {stand}"
            )

    def require_replay(self, stand: Stand) -> None:
        """Raises `Violation` if the binlog says something else."""
        base: dict[str, dict[Any, Any]] = {
            f"{DATABASE}.{name}": {(key,): tuple(row) for key, row in rows.items()}
            for name, rows in stand.base.items()
        }
        replay = Replay(base)
        try:
            replay.apply_all(self.groups)
        except (AssertionError, ProtocolError) as error:
            raise Violation(f"the binlog up to group {self.seq_no}: {error}") from error
        made = {
            name.partition(".")[2]: {key[0]: Row(*row) for key, row in rows.items()}
            for name, rows in replay.tables.items()
        }
        if (replay.seq_no, made) != (self.seq_no, self.content):
            raise Violation(
                f"the binlog has group {replay.seq_no} and {made}, the tables {self.seq_no} and {self.content}"
            )
        used = replay.highest.get(f"{DATABASE}.{COUNTED}", 0)
        if COUNTED in self.content and self.next_number <= used:
            raise Violation(f"AUTO_INCREMENT goes on with {self.next_number}, {used} is in the log")


class SqlChecker(StatesChecker[tuple[Found, dict[str, Content]]]):
    """Of a history of sessions: each disk that a power cut may leave has the tables of one group, and its binlog; and
    what is prepared there brings its rows when it is committed."""

    def __init__(self, history: History, rng: random.Random) -> None:
        super().__init__(history.disk, history.options, rng)
        self._stands = history.model.stands

    def _open(self, files: Images) -> tuple[Found, dict[str, Content]]:
        disk = MemoryDisk(files)
        engine = open_engine(disk, self._options)
        found = Found.of(engine)
        while engine.rows_to_undo:
            engine._rows.undoer.step()
            assert Found.of(engine) == found, "undoing has changed what is committed"
        while (
            engine.step()
        ):  # a transaction of which nothing is left to undo ends in a step of its own
            engine.sync()
        left = {trx.xid for trx in engine.tables.open.values()}
        assert left == set(engine.prepared()), "somebody is left"
        assert found.prepared or not len(engine.tables.locks), "something is locked for ever"
        engine.sync()
        disk.crash()
        again = open_engine(disk, self._options)
        assert Found.of(again) == found, "another start finds less"
        completed: dict[str, Content] = {}
        if found.prepared:
            xid = self._rng.choice(sorted(found.prepared))
            end_prepared(again, {xid})
            completed[xid] = Found.of(again).content
            for other in again.prepared():
                again.rollback_prepared(other)
            assert not again.tables.open, "somebody is left behind the end of all that was prepared"
            again.sync()
            disk.crash()
            last = Found.of(open_engine(disk, self._options))
            assert (last.content, last.prepared) == (completed[xid], frozenset())
        return found, completed

    def _require(
        self, found: tuple[Found, dict[str, Content]], least: int, most: int, place: str
    ) -> None:
        state, completed = found
        stands = self._stands[least:]
        fitting = [s for s in stands if state.is_of(s)]
        if not fitting:
            raise Violation(
                f"{place}: no group from {stands[0].seq_no} on: {state.seq_no}, {state.content}, {state.prepared}"
            )
        errors = []
        for stand in fitting:
            try:
                state.require_replay(stand)
            except Violation as error:
                errors.append(error)
                continue
            if all(stand.prepared[xid] == content for xid, content in completed.items()):
                return
            errors.append(Violation(f"a commit makes {completed}, and not {stand.prepared}"))
        raise Violation(f"{place}: {errors[0]}")
