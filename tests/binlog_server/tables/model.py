"""A serial model of sessions on tables: what each statement does at the moment at which it is done, and which locks
must and may be held for it.

It does not say who waits, and for how long: that hangs on the order in which rows are met, on queues and on threads,
and a second lock manager that mimics all of it would be wrong where it is not the same program. What it says is
enough to refuse any wrong one: what a transaction has changed **must** be locked, what none of its statements has
looked at **may** not be; a statement that was answered has met no row that another one must have (no wait was missed);
one that waits, was refused (1205) or rolled back (1213) has wished for what another one may have (each was justified).

It knows tables of one form (id, a, n), and statements that say in Python what they say in SQL. Rules are those of
docs/tables.md: changes look at rows as they are committed, and lock what they change; reads never lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

DATABASE = "shop"
COUNTED, PLAIN, DIRECT = "t", "u", "m"
"""The table with AUTO_INCREMENT, which is always there; another one, which comes and goes, with a UNIQUE key at
times; one of MyISAM."""
SHARED, EXCLUSIVE = 1, 2
NAMES = -1
"""In the place of a table's number: the names of all tables."""
_BITS: Final = {False: 7, True: 15}


class Row(NamedTuple):
    id: int
    a: str | None
    n: int


class Place(NamedTuple):
    """What is locked: a row, an entry of the UNIQUE key (NULL with the row's id), or with None the whole table."""

    table: int
    part: int  # 0: rows, 1: entries of the UNIQUE key
    key: int | str | tuple[None, int] | None


Rows = Mapping[int, Row]
Content = dict[str, Rows]
Effect = tuple[int, int, Row | None]
"""The number of a table, the id of a row, the row then."""


@dataclass(frozen=True, slots=True)
class Form:
    """A table's definition. `wide`: n is a SMALLINT, not a TINYINT. `unique`: `a` has a UNIQUE key."""

    number: int
    unique: bool = False
    wide: bool = False

    @property
    def most(self) -> int:
        return (1 << _BITS[self.wide]) - 1

    @property
    def least(self) -> int:
        return -self.most - 1


class Stand(NamedTuple):
    """What is committed behind a group: its number, the tables; those at the beginning of the binlog; and what is
    prepared, by XID, with the tables that each one's commit makes of these."""

    seq_no: int
    content: Content
    base: Content
    prepared: Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class Where:
    """A condition, in both languages."""

    text: str = ""
    holds: Callable[[Row], bool] = lambda row: True


@dataclass(frozen=True, slots=True)
class Insert:
    """`rows` without ids get them by AUTO_INCREMENT, all of them or none; so does a row of a SELECT with the id 0.

    verb: "INSERT", "INSERT IGNORE", "REPLACE".
    assigned, changed: of ON DUPLICATE KEY UPDATE; of the row that is there, and the one that was to be inserted.
    source: rows of a SELECT, with so much more in their ids.
    """

    table: str
    rows: tuple[tuple[int | None, str | None, int], ...] = ()
    verb: str = "INSERT"
    assigned: str = ""
    changed: Callable[[Row, Row], Row] = lambda old, new: old
    source: tuple[str, Where, int] | None = None

    @property
    def text(self) -> str:
        if self.source is None:
            values = ", ".join(
                "({}, {}, {})".format(
                    "NULL" if i is None else i, "NULL" if a is None else f"'{a}'", n
                )
                for i, a, n in self.rows
            )
            given = f"VALUES {values}"
        else:
            name, where, by = self.source
            given = f"SELECT id + {by}, a, n FROM {name}{where.text} ORDER BY id"
        conflict = f" ON DUPLICATE KEY UPDATE {self.assigned}" if self.assigned else ""
        return f"{self.verb} INTO {self.table} {given}{conflict}"

    @property
    def generates(self) -> bool:
        return bool(self.rows) and self.rows[0][0] is None


@dataclass(frozen=True, slots=True)
class Update:
    table: str
    assigned: str
    changed: Callable[[Row], Row]
    where: Where
    down: bool = False
    limit: int | None = None
    ignores: bool = False

    @property
    def text(self) -> str:
        verb = "UPDATE IGNORE" if self.ignores else "UPDATE"
        return f"{verb} {self.table} SET {self.assigned}{self.where.text}{_order(self.down, self.limit)}"


@dataclass(frozen=True, slots=True)
class Delete:
    table: str
    where: Where
    down: bool = False
    limit: int | None = None

    @property
    def text(self) -> str:
        return f"DELETE FROM {self.table}{self.where.text}{_order(self.down, self.limit)}"


@dataclass(frozen=True, slots=True)
class LockingRead:
    """`ends`: "", "NOWAIT" or "SKIP LOCKED"."""

    table: str
    where: Where
    mode: int
    down: bool = False
    limit: int | None = None
    ends: str = ""

    @property
    def text(self) -> str:
        order = _order(self.down, self.limit) or " ORDER BY id"
        words = "FOR UPDATE" if self.mode == EXCLUSIVE else "LOCK IN SHARE MODE"
        return (
            f"SELECT id, a, n FROM {self.table}{self.where.text}{order} {words} {self.ends}".strip()
        )


@dataclass(frozen=True, slots=True)
class Define:
    """DDL. `verb`: CREATE, DROP, TRUNCATE, or what an ALTER TABLE does."""

    table: str
    verb: str
    text: str


Change = Insert | Update | Delete | LockingRead | Define

ALTERS: Final = {
    "WIDE": "MODIFY n SMALLINT NOT NULL",
    "NARROW": "MODIFY n TINYINT NOT NULL",
    "UNIQUE": "ADD UNIQUE KEY a (a)",
    "PLAIN": "DROP KEY a",
    "COMMENT": "COMMENT",
}


def _order(down: bool, limit: int | None) -> str:
    order = " ORDER BY id DESC" if down else ""
    return order if limit is None else f"{order or ' ORDER BY id'} LIMIT {limit}"


@dataclass(slots=True)
class Outcome:
    """What a statement does, if nobody is in its way. `errno`: all of it is undone, but in a table of MyISAM.

    touches: the locks that it asks for, up to its end; `gone`: the places that it empties.
    kept: those of rows that it leaves as they are, up to the end of the transaction.
    form: of the table behind DDL; None: it is dropped.
    """

    done: list[Effect] = field(default_factory=list)
    touches: dict[Place, int] = field(default_factory=dict)
    kept: dict[Place, int] = field(default_factory=dict)
    gone: set[Place] = field(default_factory=set)
    affected: int = 0
    matched: int = 0
    records: int = 0
    duplicates: int = 0
    warnings: int = 0
    errno: int = 0
    rows: list[Row] = field(default_factory=list)
    form: Form | None = None

    def touch(self, place: Place, mode: int, *, gone: bool = False) -> None:
        self.touches[place] = max(mode, self.touches.get(place, 0))
        whole = Place(place.table, place.part, None)
        self.touches.setdefault(whole, SHARED)
        if gone:
            self.gone.add(place)


@dataclass(eq=False, slots=True)
class Session:
    """One session's part of the model; or a prepared transaction's, which has no session any more.

    opened: a statement was in the transaction; if the first one fails, all of it is forgotten.
    chain: what it has changed; `locked`: rows that SELECT, or an UPDATE that left them as they are, has locked.
    may: all that its statements have asked for since it began; `gone`: what they have emptied, perhaps.
    wishes: what the statement that is under way has asked for; or the last one, until all are at rest again.
    recent: what it had asked for in a transaction that has ended since all were at rest.
    xid, doomed: of its XA transaction; which was rolled back (1213).
    """

    number: int
    autocommit: bool = True
    read_committed: bool = False
    begun: bool = False
    chain: list[Effect] = field(default_factory=list)
    locked: dict[Place, int] = field(default_factory=dict)
    savepoints: dict[str, int] = field(default_factory=dict)
    view: dict[int, Rows] | None = None
    may: dict[Place, int] = field(default_factory=dict)
    gone: set[Place] = field(default_factory=set)
    wishes: dict[Place, int] = field(default_factory=dict)
    recent: dict[Place, int] = field(default_factory=dict)
    opened: bool = False
    xid: str = ""
    doomed: bool = False

    @property
    def keeps(self) -> bool:
        """Whether its changes stay open behind a statement."""
        return self.begun or not self.autocommit

    @property
    def in_transaction(self) -> bool:
        return self.begun or self.opened

    def ended(self) -> None:
        """Its transaction is over."""
        self.begun = False
        self.xid = ""
        self.forget()

    def forget(self) -> None:
        """All of its transaction is undone, which may go on."""
        self.opened = False
        self.chain, self.locked, self.savepoints, self.view = [], {}, {}, None
        _add(self.recent, self.may)
        self.may, self.gone = {}, set()

    def may_hold(self) -> dict[Place, int]:
        """What it may have had locked since all were at rest."""
        found = dict(self.may)
        _add(found, self.recent)
        return found


class Model:
    """What is committed, and who has changed what.

    stands: after each group, from that of CREATE DATABASE on; `names` are tables that are made then,
        `unique` the one with a UNIQUE key.
    given: numbers below are not given by AUTO_INCREMENT any more.
    prepared: what nobody's session has any more, by XID.
    """

    def __init__(self, names: Iterable[str], unique: str) -> None:
        self.tables: dict[int, Rows] = {}
        self.forms: dict[str, Form] = {}
        self._numbers = 0
        self.sessions: list[Session] = []
        self.prepared: dict[str, Session] = {}
        self.given = 1
        self.seq_no = 1
        self.stands = [Stand(0, {}, {}, {}), Stand(1, {}, {}, {})]
        for name in names:
            self.forms[name] = Form(self._new_number(), unique=name == unique)
            self._stand()

    def _new_number(self) -> int:
        self._numbers += 1
        self.tables[self._numbers] = {}
        return self._numbers

    @property
    def free(self) -> int:
        """A number that no row has."""
        return self.given + 1000

    def content(self, chain: Iterable[Effect] = ()) -> Content:
        """What is committed; with what a chain would make of it."""
        tables = {number: dict(rows) for number, rows in self.tables.items()} if chain else None
        for number, key, row in chain:
            if tables is not None:
                _put(tables[number], key, row)
        return {
            name: (self.tables if tables is None else tables)[form.number]
            for name, form in self.forms.items()
        }

    def _stand(self, groups: int = 1) -> None:
        self.seq_no += groups
        prepared = {xid: self.content(one.chain) for xid, one in self.prepared.items()}
        self.stands.append(Stand(self.seq_no, self.content(), self.stands[-1].base, prepared))

    # --- what a statement does ---

    def rows_for(self, session: Session, table: str, *, reads: bool = False) -> dict[int, Row]:
        """As a change sees them, or with `reads` a SELECT: with the session's own changes."""
        number = self.forms[table].number
        source: Mapping[int, Rows] = self.tables
        session.opened = session.opened or (reads and session.keeps)
        if reads and session.keeps and not session.read_committed:
            if session.view is None:
                session.view = dict(self.tables)
            source = session.view if table != DIRECT else self.tables
        rows = dict(source[number])
        for of, key, row in session.chain:
            if of == number:
                _put(rows, key, row)
        return rows

    def simulated(self, session: Session, change: Change, first: int, errno: int = 0) -> Outcome:
        """What the statement does now. `first`: of the numbers that AUTO_INCREMENT gives it; an answer with `errno`
        does not tell it, so it may also be one that meets a row of the same statement."""
        found = self._simulated(session, change, first)
        if errno and not found.errno and isinstance(change, Insert) and change.source:
            for row in sorted(self.rows_for(session, change.source[0]).values()):
                number = row.id + change.source[2]
                if number >= self.given:
                    other = self._simulated(session, change, number)
                    if other.errno == errno:
                        return other
        return found

    def _simulated(self, session: Session, change: Change, first: int) -> Outcome:
        if isinstance(change, Define):
            return self._defined(change)
        form = self.forms.get(change.table)
        source = change.source[0] if isinstance(change, Insert) and change.source else None
        if form is None or (source is not None and source not in self.forms):
            return Outcome(errno=1146)
        run = _Run(form, self.rows_for(session, change.table), change)
        if source is not None and isinstance(change, Insert) and change.source is not None:
            _, where, by = change.source
            found = sorted(self.rows_for(session, source).values())
            run.given = [(row.id + by, row.a, row.n) for row in found if where.holds(row)]
        run.run(first)
        return run.outcome

    def _defined(self, change: Define) -> Outcome:
        form, verb = self.forms.get(change.table), change.verb
        outcome = Outcome()
        outcome.touch(Place(NAMES, 0, change.table), EXCLUSIVE)
        if verb == "CREATE":
            outcome.errno = 0 if form is None else 1050
            outcome.form = Form(0, unique="UNIQUE" in change.text)
            return outcome
        if form is None:
            outcome.errno = 1051 if verb == "DROP" else 1146
            return outcome
        if (verb == "UNIQUE" and form.unique) or (verb == "PLAIN" and not form.unique):
            outcome.errno = 1061 if form.unique else 1091  # behind the lock of its name alone
            return outcome
        outcome.touch(Place(form.number, 0, None), EXCLUSIVE)
        outcome.touch(Place(form.number, 1, None), EXCLUSIVE)
        rows = self.tables[form.number].values()
        outcome.form = form
        match verb:
            case "DROP":
                outcome.form = None
            case "TRUNCATE":
                outcome.form = replace(form, number=0)
            case "WIDE" | "NARROW":
                is_wide = verb == "WIDE"
                if is_wide != form.wide:
                    outcome.form = replace(form, number=0, wide=is_wide)
                    if any(not outcome.form.least <= row.n <= outcome.form.most for row in rows):
                        outcome.errno = 1264
            case "UNIQUE":
                texts = [row.a for row in rows if row.a is not None]
                if len(texts) > len(set(texts)):
                    outcome.errno = 1062
                outcome.form = replace(form, number=0, unique=True)
            case "PLAIN":
                outcome.form = replace(form, number=0, unique=False)
        return outcome

    # --- locks ---

    def everybody(self) -> list[Session]:
        return [*self.sessions, *self.prepared.values()]

    def wished(self, session: Session, change: Change) -> None:
        """Note what the statement asks for, as things are now."""
        outcome = self.simulated(session, change, self.free)
        for place, mode in outcome.touches.items():
            is_gone = any(place in one.gone for one in self.everybody() if one is not session)
            mode = EXCLUSIVE if is_gone and place.key is not None else mode
            for held in (session.wishes, session.may):
                _add(held, {place: mode})
        session.gone |= outcome.gone

    def must_hold(self, session: Session) -> dict[Place, int]:
        """What a session surely has locked: what it has changed, and what it has locked without a change."""
        found = dict(session.locked)
        _add(found, self.changed_places(session.chain))
        return found

    def changed_places(self, chain: Sequence[Effect]) -> dict[Place, int]:
        """What changes keep locked, up to the end of their transaction: rows, entries, a share of the table."""
        found: dict[Place, int] = {Place(number, 0, None): SHARED for number, _, _ in chain}
        forms = {form.number: form for form in self.forms.values()}
        for number, key, _ in chain:
            found[Place(number, 0, key)] = EXCLUSIVE
            form = forms.get(number)
            if form is not None and form.unique:
                before = self.tables[number].get(key)
                now = [row for of, at, row in chain if (of, at) == (number, key)][-1]
                for one in (before, now):
                    if one is not None:
                        found[Place(number, 1, _entry(one))] = EXCLUSIVE
        return found

    def missed(self, session: Session, outcome: Outcome) -> list[Session]:
        """Whom it should have waited for."""
        others = [one for one in self.everybody() if one is not session]
        return [one for one in others if collide(outcome.touches, self.must_hold(one))]

    def is_in_way(self, session: Session, other: Session) -> bool:
        """Whether a session may have to wait for another one."""
        return other is not session and collide(session.wishes, other.may_hold())

    def may_circle(self, session: Session, waiting: Iterable[Session]) -> bool:
        """Whether a session may be in a circle of those who wait."""
        waiting = [session, *waiting]
        seen: list[Session] = []
        todo = [session]
        while todo:
            one = todo.pop()
            for other in waiting:
                if self.is_in_way(one, other):
                    if other is session:
                        return True
                    if other not in seen:
                        seen.append(other)
                        todo.append(other)
        return False

    # --- what it has done ---

    def over(self, session: Session, outcome: Outcome | None, change: Change) -> None:
        """The statement has ended; without an outcome it is undone."""
        if outcome is not None:
            _add(session.may, outcome.touches)
        if isinstance(change, Define):
            if outcome is not None and not outcome.errno:
                self._define(change, outcome)
            session.ended()
            return
        if change.table == DIRECT:
            self._over_direct(session, outcome)
            return
        if outcome is None or outcome.errno:
            if not session.opened:
                session.forget()
            return
        session.chain += outcome.done
        _add(session.locked, outcome.kept)
        if change.table == COUNTED:
            numbers = [key + 1 for _, key, row in outcome.done if row is not None]
            self.given = max([self.given, *numbers])
        if session.keeps:
            session.opened = True
        else:
            self.commit(session)

    def _over_direct(self, session: Session, outcome: Outcome | None) -> None:
        """What it did is there, also up to an error. One that left rows as they were opens the transaction, too."""
        if outcome is not None and outcome.done:
            self._apply(outcome.done)
        if outcome is not None and (outcome.done or outcome.affected):
            session.opened = session.opened or session.keeps
        for held in (session.may, session.locked):
            for place in [p for p in held if p.table == self.forms[DIRECT].number]:
                del held[place]

    def _apply(self, chain: Iterable[Effect]) -> None:
        for number, key, row in chain:
            rows = dict(self.tables[number])
            _put(rows, key, row)
            self.tables[number] = rows
        self._stand()

    def _define(self, change: Define, outcome: Outcome) -> None:
        form = outcome.form
        if form is None:
            del self.forms[change.table]
        elif form == self.forms.get(change.table):
            pass  # logged all the same
        else:
            old = self.forms.get(change.table)
            form = self.forms[change.table] = replace(form, number=self._new_number())
            if old is not None and change.verb != "TRUNCATE":
                self.tables[form.number] = self.tables[old.number]
            if change.table == COUNTED:
                self.given = 1
        self._stand()

    def commit(self, session: Session) -> None:
        if session.chain:
            self._apply(session.chain)
        session.ended()

    def prepare(self, session: Session) -> None:
        """XA PREPARE; what has changed nothing is not prepared."""
        one = self.prepared[session.xid] = Session(-1)
        one.chain, one.may, one.gone = session.chain, session.may, session.gone
        one.locked = session.locked
        session.ended()
        self._stand(0)

    def complete(self, xid: str, *, commit: bool) -> None:
        """XA COMMIT, XA ROLLBACK of what is prepared."""
        one = self.prepared.pop(xid)
        if commit:
            self._apply(one.chain)
        else:
            self._stand(0)

    def rollback_to(self, session: Session, name: str) -> None:
        names = list(session.savepoints)
        for later in names[names.index(name) + 1 :]:
            del session.savepoints[later]
        del session.chain[session.savepoints[name] :]

    def reset(self) -> None:
        """RESET MASTER: the rows stay."""
        self.seq_no = 0
        self.stands.append(Stand(0, self.content(), self.content(), {}))


def collide(wishes: Mapping[Place, int], held: Mapping[Place, int]) -> bool:
    """Whether one of these locks has to wait for one of those."""
    return any(
        mode + held.get(place, 0) > EXCLUSIVE and place in held for place, mode in wishes.items()
    )


def _add(held: dict[Place, int], more: Mapping[Place, int]) -> None:
    for place, mode in more.items():
        held[place] = max(mode, held.get(place, 0))


def _entry(row: Row) -> str | tuple[None, int]:
    """The key of a row in the index of the UNIQUE key."""
    return (None, row.id) if row.a is None else row.a


def _put(rows: dict[int, Row], key: int, row: Row | None) -> None:
    if row is None:
        rows.pop(key, None)
    else:
        rows[key] = row


class _Refused(Exception):
    """The statement ends with this error."""


class _Run:
    """One statement on the rows of a table as it sees them, which it changes."""

    def __init__(self, form: Form, rows: dict[int, Row], change: Change) -> None:
        self.form = form
        self.rows = rows
        self.change = change
        self.outcome = Outcome()
        self.given: list[tuple[int | None, str | None, int]] = []

    def run(self, first: int) -> None:
        change = self.change
        try:
            match change:
                case Insert():
                    self._insert(change, first)
                case Update():
                    for row in self._found(change):
                        self._update(row, change)
                case Delete():
                    for row in self._found(change):
                        self._take(row)
                        self.outcome.affected += 1
                case LockingRead():
                    self.outcome.rows = self._found(change)
                    for row in self.outcome.rows:
                        self._touch(0, row.id, change.mode)
                    self.outcome.kept |= self.outcome.touches
                    self.outcome.rows.sort(reverse=change.down)
        except _Refused as refused:
            self.outcome.errno = refused.args[0]

    def _found(self, change: Update | Delete | LockingRead) -> list[Row]:
        rows = sorted(self.rows.values(), reverse=change.down)
        return [row for row in rows if change.where.holds(row)][: change.limit]

    # --- one row ---

    def _touch(
        self, part: int, key: int | str | tuple[None, int], mode: int, *, gone: bool = False
    ) -> None:
        self.outcome.touch(Place(self.form.number, part, key), mode, gone=gone)

    def _other(self, row: Row, mode: int, old: Row | None = None) -> Row | None:
        """The row that has a key of this one, in the order in which keys are looked at; what is asked for on the way.
        `old`: the row in whose place it comes."""
        is_moved = old is None or old.id != row.id
        found = self.rows.get(row.id) if is_moved else None
        self._touch(0, row.id, EXCLUSIVE if found is None else mode)
        if found is not None or not self.form.unique:
            return found
        others = (
            one for one in self.rows.values() if one != old and row.a is not None and one.a == row.a
        )
        found = next(others, None)
        self._touch(1, _entry(row), EXCLUSIVE if found is None else mode)
        return found

    def _take(self, row: Row) -> None:
        """Delete it."""
        self._touch(0, row.id, EXCLUSIVE, gone=True)
        if self.form.unique:
            self._touch(1, _entry(row), EXCLUSIVE, gone=True)
        del self.rows[row.id]
        self.outcome.done.append((self.form.number, row.id, None))

    def _make(self, row: Row) -> None:
        self.rows[row.id] = row
        self.outcome.done.append((self.form.number, row.id, row))

    def _fitting(self, row: Row, *, ignores: bool) -> Row:
        n = min(max(row.n, self.form.least), self.form.most)
        if n == row.n:
            return row
        if not ignores:
            raise _Refused(1264)
        self.outcome.warnings += 1
        return row._replace(n=n)

    def _exchange(self, old: Row, new: Row, mode: int) -> bool:
        """Put a row in the place of another one; False if a third one has a key of it."""
        self._touch(0, old.id, EXCLUSIVE, gone=old.id != new.id)
        if self.form.unique:
            self._touch(1, _entry(old), EXCLUSIVE, gone=_entry(old) != _entry(new))
        if self._other(new, mode, old) is not None:
            return False
        if old.id != new.id:
            del self.rows[old.id]
            self.outcome.done.append((self.form.number, old.id, None))
        self._make(new)
        return True

    # --- statements ---

    def _update(self, row: Row, change: Update) -> None:
        outcome = self.outcome
        new = self._fitting(change.changed(row), ignores=change.ignores)
        if new == row:
            self._touch(0, row.id, EXCLUSIVE)
            for place in (Place(self.form.number, 0, None), Place(self.form.number, 0, row.id)):
                outcome.kept[place] = outcome.touches[place]
        elif self._exchange(row, new, SHARED):
            outcome.affected += 1
        elif not change.ignores:
            raise _Refused(1062)
        outcome.matched += 1

    def _insert(self, change: Insert, first: int) -> None:
        outcome, ignores = self.outcome, change.verb == "INSERT IGNORE"
        for given, a, n in change.rows if change.source is None else self.given:
            outcome.records += 1
            is_generated = given is None or (not given and change.table == COUNTED)
            row = Row(first if is_generated or given is None else given, a, n)
            first += is_generated
            # Once a row is there, which stays, values of later ones that do not fit are warnings.
            forgives = ignores or (change.table == DIRECT and outcome.affected > 0)
            row = self._fitting(row, ignores=forgives)
            if change.verb == "REPLACE":
                self._replace(row)
            elif change.assigned:
                self._insert_or_update(row, change, forgives=forgives)
            elif self._other(row, SHARED) is None:
                self._make(row)
                outcome.affected += 1
            elif ignores:
                outcome.duplicates += 1
                outcome.warnings += 1
            else:
                raise _Refused(1062)

    def _replace(self, row: Row) -> None:
        outcome = self.outcome
        while (other := self._other(row, EXCLUSIVE)) is not None:
            self._touch(0, other.id, EXCLUSIVE)
            outcome.affected += 1
            if self.form.unique and other.id == row.id:  # the first key, and not the last
                self._take(other)
                outcome.duplicates += 1
                continue
            if other != row:
                self._exchange(other, row, EXCLUSIVE)
                outcome.affected += 1
                outcome.duplicates += 1
            return
        self._make(row)
        outcome.affected += 1

    def _insert_or_update(self, row: Row, change: Insert, *, forgives: bool) -> None:
        outcome = self.outcome
        other = self._other(row, EXCLUSIVE)
        if other is None:
            self._make(row)
            outcome.affected += 1
            return
        self._touch(0, other.id, EXCLUSIVE)
        new = self._fitting(change.changed(other, row), ignores=forgives)
        if new == other:
            return
        if not self._exchange(other, new, EXCLUSIVE):
            raise _Refused(1062)
        outcome.affected += 2
        outcome.duplicates += 1
