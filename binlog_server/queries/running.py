"""Plans of questions, and their rows: joins, groups, order. All that they take counts against a `Budget`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol

from binlog_protocol.dataclass import dataclass

from binlog_server.queries import values
from binlog_server.queries.order import long_texts, marked, ordered
from binlog_server.queries.terms import Asker, Term, constant, dating
from binlog_server.queries.types import NULL, Type

if TYPE_CHECKING:
    from binlog_server.queries.aggregates import Aggregate
    from binlog_server.queries.binding import JoinTest

Row = Sequence[Any]
Rows = Sequence[Row]
_ROW_BYTES: Final = 64
_VALUE_BYTES: Final = 16


@dataclass(slots=True)
class Output:
    """A column of a result: its name, its type, and the term that gives its values."""

    name: str
    kind: Type
    term: Term = field(default_factory=lambda: constant(NULL, None))


class Plan(Protocol):
    """A question that can be run, more than once."""

    outputs: list[Output]
    order: list[tuple[Term, bool]]
    limit: int | None
    is_counted: bool
    """Whether `total` is to be that of all rows, whatever the limit."""
    total: int

    def run(self) -> Rows:
        """All rows. Raises `ServerError`."""


class GivenRows(Sized, Iterable[Sequence["Term | None"]], Protocol):
    """Rows of VALUES."""


@dataclass(slots=True)
class ChangePlan:
    """An INSERT, UPDATE or DELETE of one table: terms over the row that stands in `current[0]`.

    A term that is None is DEFAULT.

    Attributes:
        columns: numbers of the columns that an INSERT names, or an UPDATE assigns.
        rows: of an INSERT, each with a term for each of these. They may be made anew whenever they are gone through.
        reads_itself: a value of VALUES names a column: it is that of the row itself, as far as it is made.
        query: what gives the rows of an INSERT ... SELECT.
        changed: numbers of the columns that ON DUPLICATE KEY UPDATE assigns; None without it.
        assigned: of an UPDATE, or of ON DUPLICATE KEY UPDATE: a term for each of the columns.
        proposed: the row that VALUES(column) reads.
        returning: RETURNING; None without it.
        where: sqlglot's condition, None without one.
    """

    current: list[Row]
    columns: list[int] = field(default_factory=list)
    rows: GivenRows = field(default_factory=list)
    reads_itself: bool = False
    query: Plan | None = None
    changed: list[int] | None = None
    assigned: list[Term | None] = field(default_factory=list)
    proposed: list[Row] = field(default_factory=lambda: [()])
    returning: list[Output] | None = None
    conditions: list[Term] = field(default_factory=list)
    order: list[tuple[Term, bool]] = field(default_factory=list)
    limit: int | None = None
    where: Any = None

    def holds(self, row: Row) -> bool:
        """Whether the conditions hold for a row. It stands in `current[0]` then."""
        self.current[0] = row
        return all(_holds(term) for term in self.conditions)


@dataclass(slots=True)
class Checks:
    """CHECKs of a table: terms over the row that stands in `current[0]`, by their names."""

    current: list[Row]
    terms: list[tuple[str, Term]] = field(default_factory=list)

    def failed(self, row: Row) -> str | None:
        """The name of the first one that is false for a row."""
        self.current[0] = row
        for name, term in self.terms:
            value = term.value()
            if value is not None and not values.is_true(value, term.kind):
                return name
        return None


@dataclass(slots=True)
class Joined:
    """A source of a FROM. `on` are its conditions; with `is_left` a row of NULL stands for none that fits."""

    at: int
    rows: Callable[[], Rows]
    width: int
    is_left: bool
    on: list[JoinTest] = field(default_factory=list)


@dataclass(slots=True)
class _Level:
    """A source as it is gone through: which rows of it there are, and what must hold when one is chosen."""

    joined: Joined
    tests: list[Term]  # of ON, or of all conditions without LEFT JOIN
    later: list[Term]  # of WHERE, behind a LEFT JOIN
    known: Term | None = None
    index: dict[Any, list[Row]] | None = None
    key: Callable[[Any], Any] | None = None
    rows: Rows = ()


@dataclass(slots=True)
class SelectPlan:
    """A SELECT."""

    outputs: list[Output]
    session: Asker
    current: list[Row]
    joins: list[Joined]
    conditions: list[JoinTest]
    groups: list[Term]
    aggregates: list[Aggregate]
    having: Term | None
    order: list[tuple[Term, bool]]
    offset: int
    limit: int | None
    is_grouped: bool
    is_distinct: bool
    is_counted: bool = False
    total: int = 0

    def run(self) -> Rows:
        """See `Plan`."""
        found: list[tuple[Row, Row]] = []
        budget = self.session.budget
        cost = _ROW_BYTES + _VALUE_BYTES * (len(self.outputs) + len(self.order))
        seen: set[Any] = set()
        keys = [values.sort_key(output.kind) for output in self.outputs]
        enough = None
        if not self.order and self.limit is not None and not self.is_counted:
            enough = self.offset + self.limit
        for _ in self._grouped() if self.is_grouped else self._joined():
            if enough is not None and len(found) >= enough:
                break
            if self.having is not None and not _holds(self.having):
                continue
            row = tuple([output.term.value() for output in self.outputs])
            if self.is_distinct:
                mark = marked(row, keys)
                if mark in seen:
                    continue
                seen.add(mark)
                budget.make(cost + long_texts(mark))
            budget.make(cost)
            found.append((row, tuple([term.value() for term, _ in self.order])))
        self.total = len(found)
        return _cut(ordered(found, self.order, budget), self.offset, self.limit)

    def _grouped(self) -> Iterator[None]:
        keys = [values.sort_key(term.kind) for term in self.groups]
        groups: dict[Any, tuple[list[Row], list[Any]]] = {}
        budget = self.session.budget
        for _ in self._joined():
            mark = marked([term.value() for term in self.groups], keys)
            group = groups.get(mark)
            if group is None:
                budget.make(_ROW_BYTES * (2 + len(self.aggregates)) + long_texts(mark))
                group = list(self.current), [one.begin() for one in self.aggregates]
                groups[mark] = group
            for state, one in zip(group[1], self.aggregates, strict=True):
                one.take(state)
        if not groups and not self.groups:
            nothing: list[Row] = [[None] * join.width for join in self.joins]
            groups[()] = nothing, [one.begin() for one in self.aggregates]
        for rows, states in groups.values():
            self.current[:] = rows
            for state, one in zip(states, self.aggregates, strict=True):
                one.result = one.end(state)
            yield

    def _joined(self) -> Iterator[None]:
        """Go through all combinations of rows that the conditions let through; `current` has them."""
        levels = self._levels()
        if levels is None:
            return
        budget = self.session.budget
        if not levels:
            budget.tick()
            yield
            return
        iterators: list[Iterator[None]] = [self._choices(levels[0])]
        while iterators:
            budget.tick()
            if next(iterators[-1], _END) is _END:
                iterators.pop()
            elif len(iterators) == len(levels):
                yield
            else:
                iterators.append(self._choices(levels[len(iterators)]))

    def _levels(self) -> list[_Level] | None:
        """The sources in order, with each condition where it can be looked at first; None if one never holds."""
        # What an inner join is on is a condition as any other: one of an earlier source alone is looked at there.
        waiting = list(self.conditions)
        for joined in self.joins:
            if not joined.is_left:
                waiting += joined.on
        for condition in waiting:
            if not condition.needs and not _holds(condition.term):
                return None
        levels: list[_Level] = []
        for joined in self.joins:
            at = joined.at
            ready = [c for c in waiting if c.needs and max(c.needs) == at]
            if joined.is_left:
                level = _Level(joined, [c.term for c in joined.on], [c.term for c in ready])
                self._load(level, joined.on)
            else:
                level = _Level(joined, [c.term for c in ready], [])
                self._load(level, ready)
            levels.append(level)
        return levels

    def _load(self, level: _Level, conditions: Sequence[JoinTest]) -> None:
        """The rows of a source: without those that it can do without, and by their key where one is looked up."""
        at, budget = level.joined.at, self.session.budget
        rows = level.joined.rows()
        own = [c.term for c in conditions if c.needs == {at} and not c.looks_out]
        if own and at:  # the rows of the first source are gone through once
            kept = []
            for row in rows:
                budget.tick()
                self.current[at] = row
                if all(_holds(term) for term in own):
                    budget.make(_ROW_BYTES + _VALUE_BYTES * level.joined.width)
                    kept.append(row)
            rows = kept
        level.rows = rows
        for condition in conditions:
            known, column = condition.known, condition.column
            if known is None or column is None or condition.at != at or len(condition.needs) < 2:
                continue
            theirs, mine = values.comparable(known.kind, column.kind)
            index: dict[Any, list[Row]] = {}
            for row in rows:
                budget.tick()
                self.current[at] = row
                value = column.value()
                if value is not None:
                    index.setdefault(mine(value), []).append(row)
            budget.make(len(rows) * _ROW_BYTES)
            level.known, level.index, level.key = known, index, theirs
            return

    def _choices(self, level: _Level) -> Iterator[None]:
        at, budget = level.joined.at, self.session.budget
        rows = level.rows
        if level.index is not None and level.known is not None and level.key is not None:
            value = level.known.value()
            rows = () if value is None else level.index.get(level.key(value), ())
        found = False
        for row in rows:
            budget.tick()
            self.current[at] = row
            if all(_holds(term) for term in level.tests):
                found = True
                if all(_holds(term) for term in level.later):
                    yield
                    self.current[at] = row
        if level.joined.is_left and not found:
            self.current[at] = [None] * level.joined.width
            if all(_holds(term) for term in level.later):
                yield


_END: Final = object()


@dataclass(slots=True)
class UnionPlan:
    """UNION, EXCEPT and INTERSECT of plans, from the left; `operators` has a name and whether it is DISTINCT for each
    plan but the first."""

    plans: list[Plan]
    operators: list[tuple[str, bool]]
    outputs: list[Output]
    session: Asker
    current: list[Row]
    order: list[tuple[Term, bool]] = field(default_factory=list)
    offset: int = 0
    limit: int | None = None
    is_counted: bool = False
    total: int = 0

    def run(self) -> Rows:
        """See `Plan`."""
        keys = [values.sort_key(output.kind) for output in self.outputs]
        found = self._converted(self.plans[0])
        for plan, (name, is_distinct) in zip(self.plans[1:], self.operators, strict=True):
            more = self._converted(plan)
            if name == "UNION":
                found = found + more
            else:
                marks = self._by_mark(more, keys)
                is_except = name == "EXCEPT"
                found = [row for row in found if (marked(row, keys) in marks) is not is_except]
            if is_distinct:
                found = list(self._by_mark(found, keys).values())
            self.session.budget.make(len(more) * (_ROW_BYTES + _VALUE_BYTES * len(keys)))
            self.session.budget.go_through(_VALUE_BYTES * len(found))
            self.session.budget.look()
        pairs: list[tuple[Row, Row]] = []
        for row in found:
            self.current[0] = row
            pairs.append((row, tuple([term.value() for term, _ in self.order])))
        self.total = len(pairs)
        return _cut(ordered(pairs, self.order, self.session.budget), self.offset, self.limit)

    def _by_mark(self, rows: Rows, keys: Sequence[Callable[[Any], Any]]) -> dict[Any, Row]:
        """The first row of each mark."""
        budget = self.session.budget
        found: dict[Any, Row] = {}
        for row in rows:
            budget.tick()
            mark = marked(row, keys)
            if mark not in found:
                budget.make(long_texts(mark))
                found[mark] = row
        return found

    def _converted(self, plan: Plan) -> list[Row]:
        kinds = [
            (own.kind, output.kind) for own, output in zip(plan.outputs, self.outputs, strict=True)
        ]
        if all(
            own.form is target.form and own.decimals == target.decimals for own, target in kinds
        ):
            return list(plan.run())
        dates = [dating(own, target, self.session) for own, target in kinds]
        return [
            tuple(
                [
                    values.converted(value if date is None else date(value), own, target)
                    for value, (own, target), date in zip(row, kinds, dates, strict=True)
                ]
            )
            for row in plan.run()
        ]


def _holds(term: Term) -> bool:
    value = term.value()
    return value is not None and values.is_true(value, term.kind)


def _cut(found: Sequence[tuple[Row, Row]], offset: int, limit: int | None) -> list[Row]:
    return [row for row, _ in found[offset : None if limit is None else offset + limit]]
