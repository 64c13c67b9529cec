"""A parsed question to terms and steps: names resolved, every expression typed.

What is not named here is refused (1235), whatever sqlglot has parsed.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from decimal import Decimal
from typing import Any, Final, Protocol, runtime_checkable

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    AmbiguousColumn,
    CollationMismatch,
    DerivedWithoutAlias,
    DifferentColumns,
    DivisionByZero,
    IllegalMixOfMany,
    IllegalValue,
    IncorrectMoment,
    NoTablesUsed,
    NotSupportedYet,
    NotUniqueTable,
    OperandColumns,
    OutOfRange,
    ServerError,
    SqlSyntaxError,
    SubqueryHasRows,
    UnknownCharacterSet,
    UnknownCollation,
    UnknownColumn,
    UnknownSystemVariable,
    UnknownTable,
    WrongArguments,
    WrongColumnList,
    WrongGroupFunction,
    WrongValue,
    WrongValueCount,
)
from binlog_protocol.events.charsets import UTF8_CHARSETS, charset_of, decode_text
from binlog_protocol.events.collation_names import (
    charset_named,
    collation_numbered,
    default_collation,
)
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.tables.collation import folded, folded_like, is_by_several, is_comparable
from binlog_protocol.tables.ddl_types import unquoted
from binlog_protocol.wire.results import FLAG_BINARY
from sqlglot import exp

from binlog_server.queries import functions, moments, operands, types, values
from binlog_server.queries.aggregates import AGGREGATES, OF_NUMBERS, Aggregate, group_concat
from binlog_server.queries.catalog import TableDefinition
from binlog_server.queries.constant_rows import Constant, ConstantRows
from binlog_server.queries.like import escaped, like_matches
from binlog_server.queries.parsing import (
    BARE_NAMES,
    Question,
    constant_node,
    named_query,
    question_of,
    system_variable,
)
from binlog_server.queries.plain import Plain, called, watched_as
from binlog_server.queries.printing import kept_tree
from binlog_server.queries.running import (
    ChangePlan,
    Checks,
    Joined,
    Output,
    Plan,
    Rows,
    SelectPlan,
    UnionPlan,
)
from binlog_server.queries.terms import (
    TEXT_CHARS_MAX,
    UNKNOWN,
    Asker,
    Term,
    constant,
    dated,
    dating,
    settled,
    spelled,
    watched,
    watched_moment,
    watched_test,
)
from binlog_server.queries.types import Type, ValueForm

COLUMNS_MAX: Final = 4096
_NUMBER_CHARS: Final = 20  # of an integer as a text
_FLAT_MAX: Final = 64  # of expressions within each other
_OUTPUT_BYTES: Final = 512  # of memory for a column of a SELECT, before it has rows


class GivenTable(Protocol):
    """A table as a catalog gives it."""

    @property
    def name(self) -> str:
        """As MariaDB writes it."""

    @property
    def is_view(self) -> bool:
        """Whether a result column is named as the table has it, not as the statement."""

    @property
    def columns(self) -> Sequence[Type]:
        """The types of its columns; `Type.column` has their names."""

    def rows(self) -> Rows:
        """Its rows."""


@runtime_checkable
class HasDefaults(Protocol):
    """Such a table whose columns have defaults."""

    def default(self, number: int) -> Callable[[Sequence[Any]], Any]:
        """What gives the default of a column, in a row. Raises `ColumnWithoutDefault` (1364)."""


Catalog = Callable[[str | None, str], GivenTable]
"""The table of a schema (None: the current one) and name. Raises `ServerError` for what is not there."""


@dataclass(slots=True)
class Source:
    """A table of a FROM: its alias, and how its columns are called."""

    alias: str
    schema: str
    names: list[str]
    kinds: list[Type]
    rows: Callable[[], Rows]
    is_view: bool = False
    default: Callable[[int], Callable[[Sequence[Any]], Any]] | None = None
    merged: set[str] = field(default_factory=set)  # by USING: they are the other table's, too
    shared: set[str] = field(default_factory=set)  # by USING: they stand for both


@dataclass(slots=True)
class Names:
    """What names mean within one SELECT. `current` are the rows that terms read."""

    parent: Names | None = None
    sources: list[Source] = field(default_factory=list)
    current: list[Sequence[Any]] = field(default_factory=list)
    aliases: dict[str, Term] = field(default_factory=dict)  # of the select list, in lower case
    aggregates: list[Aggregate] = field(default_factory=list)
    is_swapped: bool = False  # the first two sources: a RIGHT JOIN is a LEFT JOIN of the other one
    used: set[int] = field(default_factory=set)  # sources of the condition that is being bound
    looks_out: bool = False  # whether it reads a row of the SELECT around it
    may_aggregate: bool = False
    proposed: list[Sequence[Any]] | None = (
        None  # of ON DUPLICATE KEY UPDATE: the row that VALUES(column) reads
    )

    def shown(self, name: str) -> str:
        """What a result column is called for a column of that name."""
        for source in self.sources:
            for own in source.names if source.is_view else ():
                if own.lower() == name.lower():
                    return own
        return name

    def find(self, name: str, table: str, schema: str, place: str) -> Term | None:
        """The column of that name. Raises `AmbiguousColumn` (1052)."""
        found = self.place_of(name, table, schema, place)
        if found is None:
            return None
        at, i = found
        current = self.current
        return Term(self.sources[at].kinds[i], lambda: current[at][i])

    def place_of(self, name: str, table: str, schema: str, place: str) -> tuple[int, int] | None:
        """The source that has the column of that name, and its number there. Raises as `find`."""
        found: list[tuple[int, int]] = []
        for at, source in enumerate(self.sources):
            if table and source.alias.lower() != table.lower():
                continue
            if schema and source.schema.lower() != schema.lower():
                continue
            if not table and name.lower() in source.merged:
                continue
            found += [(at, i) for i, own in enumerate(source.names) if own.lower() == name.lower()]
        if len(found) > 1:
            raise AmbiguousColumn(f"{table}.{name}" if table else name, place)
        if not found:
            return None
        self.used.add(found[0][0])
        return found[0]


def bind(question: Question, session: Asker, catalog: Catalog) -> Plan:
    """The plan of a question. Raises `ServerError`."""
    plan = _Binder(question, session, catalog).query(question.tree, None)
    if plan.limit is None:
        plan.limit = session.select_limit
    plan.is_counted = _counts_all(question.tree)
    return plan


def _counts_all(tree: Any) -> bool:
    """Whether the first SELECT is SQL_CALC_FOUND_ROWS."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return any(
        one.name == "SQL_CALC_FOUND_ROWS" for one in tree.args.get("operation_modifiers") or ()
    )


@dataclass(slots=True)
class _NamedQuery:
    """A query of WITH: its columns, and its rows, which are made once."""

    names: list[str]
    plan: Plan
    made: Rows | None = None

    def rows(self) -> Rows:
        if self.made is None:
            self.made = self.plan.run()
        return self.made


def bind_change(question: Question, session: Asker, catalog: Catalog) -> ChangePlan:
    """The plan of an INSERT, UPDATE or DELETE. Raises `ServerError`."""
    return _Binder(question, session, catalog).change(question.tree)


def bind_checks(
    checks: Sequence[tuple[str, str]],
    table: TableDefinition,
    session: Asker,
    place: str = "CHECK",
) -> Checks:
    """Expressions of a table, each a name and as it is printed, over rows of it. Raises `ServerError`."""
    scope = _rows_of_one(table)
    found = Checks(scope.current)
    for name, text in checks:
        tree = kept_tree(text)
        binder = _Binder(question_of(tree, text), session, _no_table)
        found.terms.append((name, binder._term(tree, scope, place)))
    return found


def kinds_in(tree: Any, text: str, table: TableDefinition, session: Asker) -> Callable[[Any], Type]:
    """What gives the types of the parts of an expression over rows of a table."""
    scope = _rows_of_one(table)
    binder = _Binder(question_of(tree, text), session, _no_table)
    known: dict[int, Type] = {}

    def kind(node: Any) -> Type:
        if id(node) not in known:
            known[id(node)] = binder._term(node, scope, "GENERATED ALWAYS AS").kind
        return known[id(node)]

    return kind


def _rows_of_one(table: TableDefinition) -> Names:
    scope = Names()
    names = [column.name for column in table.definitions]
    scope.sources.append(Source(table.name, table.schema, names, list(table.columns), lambda: ()))
    scope.current.append([None] * len(names))
    return scope


def _no_table(schema: str | None, name: str) -> Any:
    raise NotSupportedYet("a table in an expression of a table")


def changed_table(question: Question) -> tuple[str | None, str]:
    """Database, if it is said, and name of the table of an INSERT, UPDATE or DELETE. Raises `NotSupportedYet`."""
    node = question.tree.this
    if isinstance(question.tree, exp.Select):
        node = question.tree.args["from_"].this
    if isinstance(node, exp.Schema):
        node = node.this
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise _refused(f"{question.tree.key.upper()} of more than a table")
    database = node.args.get("db")
    return None if database is None else database.name, node.name


def reads_values(question: Question) -> bool:
    """Whether an UPDATE makes values of the columns' old ones or of their defaults, or a DELETE takes rows by their
    order: errors may tell these values."""
    tree = question.tree
    parts = [tree.args.get("order")] if isinstance(tree, exp.Delete) else []
    if isinstance(tree, exp.Update):
        parts = [one.expression for one in tree.expressions]
    return any(
        column is not part or column.name.upper() != "DEFAULT"
        for part in parts
        if part is not None
        for column in part.find_all(exp.Column)
    )


class _RowsBehind:
    """Constants that stand in the text, of which each row has terms when its turn comes; and other rows behind them."""

    def __init__(
        self,
        constants: ConstantRows,
        term: Callable[[Constant], Term | None],
        behind: list[Sequence[Term | None]],
    ) -> None:
        self._constants = constants
        self._term = term
        self._behind = behind

    def __len__(self) -> int:
        return len(self._constants) + len(self._behind)

    def __iter__(self) -> Iterator[Sequence[Term | None]]:
        for row in self._constants:
            yield [self._term(constant) for constant in row]
        yield from self._behind


class _Binder:
    def __init__(self, question: Question, session: Asker, catalog: Catalog) -> None:
        self._question = question
        self._session = session
        self._catalog = catalog
        self._depth = 0
        self._named: dict[int, _NamedQuery] = {}  # by the identity of their nodes

    # --- changes ---

    def change(self, node: Any) -> ChangePlan:
        """The plan of an INSERT, UPDATE or DELETE."""
        known = _CHANGE_PARTS[type(node)]
        for name, part in node.args.items():
            if part and name not in known:
                raise _refused(f"{node.key.upper()} with {name.strip('_').upper()}")
        if isinstance(node, exp.Insert):
            return self._insert(node)
        if isinstance(node, exp.Select):
            return self._locking(node)
        scope = Names()
        _require_bare(node.this, node.key)
        self._add(node.this, scope, [], None)
        plan = ChangePlan(scope.current)
        if isinstance(node, exp.Update):
            plan.columns = self._assigned(node.expressions, scope, plan, "SET")
        self._choose(node, scope, plan, ())
        self._return(node, scope, plan)
        return plan

    def _choose(self, node: Any, scope: Names, plan: ChangePlan, outputs: Sequence[Output]) -> None:
        """WHERE, ORDER BY, LIMIT."""
        where = node.args.get("where")
        if where is not None:
            plan.where = where.this
            plan.conditions = [test.term for test in self._conditions(where.this, scope, "WHERE")]
        for output in outputs:
            scope.aliases.setdefault(output.name.lower(), output.term)
        order = node.args.get("order")
        for item in order.expressions if order else ():
            plan.order.append((self._order_term(item, scope, outputs), _is_down(item)))
        if node.args.get("limit") is not None:
            if node.args["limit"].args.get("offset") is not None:
                raise _refused("LIMIT with an offset")
            plan.limit = self._count(node.args["limit"].expression)

    def _locking(self, node: Any) -> ChangePlan:
        """A SELECT that locks rows of one table."""
        scope = Names()
        self._add(node.args["from_"].this, scope, [], None)
        plan = ChangePlan(scope.current)
        plan.returning = self._outputs(node, scope)
        self._choose(node, scope, plan, plan.returning)
        return plan

    def _assigned(self, items: Any, scope: Names, plan: ChangePlan, place: str) -> list[int]:
        """The columns of `column = value, ...`, whose terms go to the plan."""
        columns = []
        for item in items:
            if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
                raise _refused("SET of something else than a column")
            columns.append(_column_number(item.this, scope.sources[0], place))
            plan.assigned.append(self._given(item.expression, scope, place))
        return columns

    def _return(self, node: Any, scope: Names, plan: ChangePlan) -> None:
        if node.args.get("returning") is not None:
            plan.returning = self._outputs(node.args["returning"], scope, "RETURNING")

    def _insert(self, node: Any) -> ChangePlan:
        named = node.this.expressions if isinstance(node.this, exp.Schema) else None
        table = node.this.this if isinstance(node.this, exp.Schema) else node.this
        scope = Names()
        _require_bare(table, "insert")
        self._add(table, scope, [], None)
        source = scope.sources[0]
        plan = ChangePlan(scope.current, list(range(len(source.names))))
        if named is not None:
            plan.columns = [_column_number(one, source, "INSERT INTO") for one in named]
        self._return(node, scope, plan)
        conflict = node.args.get("conflict")
        if conflict is not None:
            if not conflict.args.get("duplicate") or not conflict.expressions:
                raise _refused("ON CONFLICT")
            scope.proposed = plan.proposed
            plan.changed = self._assigned(conflict.expressions, scope, plan, "UPDATE")
        given = node.expression
        if isinstance(given, exp.Query) and not isinstance(given, exp.Values):
            plan.query = self.query(given, None)
            if len(plan.query.outputs) != len(plan.columns):
                raise WrongValueCount(1)
            return plan
        if not isinstance(given, exp.Values) or given.alias:
            raise _refused("INSERT so")
        scope.used, scope.proposed = set(), None
        rows: list[Sequence[Term | None]] = []
        constants = self._question.rows
        for number, width in enumerate(() if constants is None else constants.widths, 1):
            if width != len(plan.columns):
                raise WrongValueCount(number)
        for number, one in enumerate(
            given.expressions, 1 + (constants is not None and len(constants))
        ):
            parts = one.expressions if isinstance(one, exp.Tuple) else [one]
            if len(parts) == 1 and parts[0] is None:
                parts = []
            if not parts and named is None:  # VALUES ()
                parts = [exp.var("DEFAULT")] * len(plan.columns)
            if len(parts) != len(plan.columns):
                raise WrongValueCount(number)
            rows.append([self._given(part, scope, "VALUES") for part in parts])
        plan.rows = rows if constants is None else _RowsBehind(constants, self._of_constant, rows)
        plan.reads_itself = bool(scope.used)
        return plan

    def _of_constant(self, said: Constant) -> Term | None:
        """The term of a value that was cut out; None for DEFAULT."""
        node = constant_node(said)
        return None if node is None else self._term(node, Names(), "VALUES")

    def _given(self, node: Any, scope: Names, place: str) -> Term | None:
        """The term of a value; None for DEFAULT."""
        is_bare = isinstance(node, exp.Column) and not node.table and not node.this.quoted
        if (is_bare or isinstance(node, exp.Var)) and node.name.upper() == "DEFAULT":
            return None
        return self._term(node, scope, place)

    # --- queries ---

    def query(self, node: Any, parent: Names | None) -> Plan:
        """The plan of a SELECT, a UNION, or one in parentheses."""
        if node.args.get("with_") is not None:
            for one in node.args["with_"].expressions:
                self._name(one)
        if isinstance(node, exp.Subquery):
            return self._bracketed(node, parent)
        if isinstance(node, exp.SetOperation):
            return self._union(node, parent)
        if not isinstance(node, exp.Select):
            raise _refused(node.key.upper())
        return self._select(node, parent)

    def _name(self, node: Any) -> None:
        plan = self.query(node.this, None)
        names = [output.name for output in plan.outputs]
        columns = [column.name for column in node.args["alias"].args.get("columns") or ()]
        if columns and len(columns) != len(names):
            raise WrongColumnList()
        self._named[id(node)] = _NamedQuery(columns or names, plan)

    def _bracketed(self, node: Any, parent: Names | None) -> Plan:
        inner = self.query(node.this, parent)
        if not (node.args.get("order") or node.args.get("limit") or node.args.get("offset")):
            return inner
        return self._ordered(self._together([inner], []), node)

    def _union(self, node: Any, parent: Names | None) -> Plan:
        branches: list[Any] = []
        operators: list[tuple[str, bool]] = []
        left = node
        while isinstance(left, exp.SetOperation) and (left is node or not _has_modifiers(left)):
            branches.append(left.expression)
            operators.append((left.key.upper(), bool(left.args.get("distinct"))))
            left = left.this
        plans = [self.query(branch, parent) for branch in (left, *reversed(branches))]
        if len({len(plan.outputs) for plan in plans}) > 1:
            raise DifferentColumns()
        return self._ordered(self._together(plans, operators[::-1]), node)

    def _together(self, plans: list[Plan], operators: list[tuple[str, bool]]) -> UnionPlan:
        current: list[Sequence[Any]] = [()]
        outputs = [
            _column_output(
                current,
                0,
                i,
                first.name,
                types.common([plan.outputs[i].kind for plan in plans], keeps_bits=True),
            )
            for i, first in enumerate(plans[0].outputs)
        ]
        operation = operators[0][0] if operators else "UNION"
        for parts in zip(*(plan.outputs for plan in plans), strict=True):
            operands.require_union([part.kind for part in parts], operation)
        if any(output.kind.collation == types.MIXED for output in outputs):
            raise IllegalMixOfMany(operation)
        return UnionPlan(plans, operators, outputs, self._session, current)

    def _ordered(self, union: UnionPlan, node: Any) -> Plan:
        names, kinds = [o.name for o in union.outputs], [o.kind for o in union.outputs]
        source = Source("", "", names, kinds, list)
        scope = Names(None, [source], union.current)
        order = node.args.get("order")
        for item in order.expressions if order else ():
            union.order.append((self._order_term(item, scope, union.outputs), _is_down(item)))
        union.offset, union.limit = self._limits(node)
        return union

    def _limits(self, node: Any) -> tuple[int, int | None]:
        limit, offset = node.args.get("limit"), node.args.get("offset")
        count: int | None = None
        if isinstance(limit, exp.Fetch):
            options = limit.args.get("limit_options")
            if options is not None and (
                options.args.get("percent") or options.args.get("with_ties")
            ):
                raise _refused("FETCH WITH TIES")
            given = limit.args.get("count")
            count = 1 if given is None else self._count(given)
        elif limit is not None:
            count = self._count(limit.expression)
        return (0 if offset is None else self._count(offset.expression) or 0), count

    def _count(self, node: Any) -> int:
        term = self._term(node, Names(), "LIMIT")
        if isinstance(node, exp.Placeholder):  # MariaDB takes the number of any value
            found = term.constant
            return 0 if found is None else max(0, values.as_integer(found, term.kind))
        if term.constant is UNKNOWN or term.kind.form is not ValueForm.INT or term.constant < 0:
            raise SqlSyntaxError(node.sql(dialect="mysql")[:80])
        return int(term.constant)

    def _select(self, node: Any, parent: Names | None) -> Plan:
        for key in (
            "windows",
            "qualify",
            "laterals",
            "pivots",
            "into",
            "sample",
            "connect",
            "match",
            "kind",
        ):
            if node.args.get(key):
                raise _refused(key.upper())
        scope = Names(parent)
        joins = self._from(node, scope)
        where = node.args.get("where")
        conditions = [] if where is None else self._conditions(where.this, scope, "WHERE")
        if node.args.get("group") is None and _aggregates(node):
            for source in scope.sources:  # of no rows there is one group, without any
                source.kinds = [_nullable(kind) for kind in source.kinds]
        scope.may_aggregate = True
        outputs = self._outputs(node, scope)
        for output in outputs:
            scope.aliases.setdefault(output.name.lower(), output.term)
        scope.may_aggregate = False
        groups = self._groups(node, scope, outputs)
        scope.may_aggregate = True
        having = node.args.get("having")
        kept = None if having is None else self._having(having.this, scope)
        order = node.args.get("order")
        ordered = [
            (self._order_term(item, scope, outputs), _is_down(item))
            for item in (order.expressions if order else ())
        ]
        offset, limit = self._limits(node)
        return SelectPlan(
            outputs,
            self._session,
            scope.current,
            joins,
            conditions,
            groups,
            scope.aggregates,
            kept,
            ordered,
            offset,
            limit,
            is_grouped=node.args.get("group") is not None or bool(scope.aggregates),
            is_distinct=node.args.get("distinct") is not None,
        )

    # --- FROM ---

    def _from(self, node: Any, scope: Names) -> list[Joined]:
        joins: list[Joined] = []
        first = node.args.get("from_")
        if first is None:
            return joins
        others = [*(node.args.get("joins") or ()), *(first.this.args.get("joins") or ())]
        if others and _side(others[0]) == "RIGHT":
            scope.is_swapped = True
            self._add(others[0].this, scope, joins, None)
            self._join(others.pop(0), first.this, scope, joins)
        else:
            self._add(first.this, scope, joins, None)
        for join in others:
            if _side(join) == "RIGHT":
                raise _refused("RIGHT JOIN behind another join")
            self._join(join, join.this, scope, joins)
        return joins

    def _join(self, join: Any, table: Any, scope: Names, joins: list[Joined]) -> None:
        """Join a table to those in front of it."""
        side, kind = _side(join), (join.kind or "").upper()
        method = (join.method or "").upper()
        if (
            method not in ("", "NATURAL")
            or side not in ("", "LEFT", "RIGHT")
            or kind not in ("", "INNER", "CROSS", "OUTER", "STRAIGHT")
        ):
            raise _refused(f"{side or method or kind} JOIN")
        joined = self._add(table, scope, joins, bool(side))
        nested = join.this.args.get("joins") or ()
        if nested and side == "RIGHT":
            raise _refused("joins in parentheses")
        for one in nested:
            self._join(one, one.this, scope, joins)
        if joined is None:
            return
        at = joined.at
        on = join.args.get("on")
        if on is not None:
            joined.on += self._conditions(on, scope, "ON")
        for name in join.args.get("using") or ():
            self._using(name.name, at, scope, joined)
        if method:
            for own in _in_common(scope, at):
                self._using(own, at, scope, joined)
        for condition in joined.on:
            if condition.needs and max(condition.needs) > at:
                raise _refused("a join in this order")

    def _using(self, name: str, at: int, scope: Names, joined: Joined) -> None:
        left, right = Names(sources=scope.sources[:at]), scope.sources[at]
        left.current = scope.current
        one = left.find(name, "", "", "USING")
        names = [own.lower() for own in right.names]
        if one is None or name.lower() not in names:
            raise UnknownColumn(name, "FROM")
        i, current = names.index(name.lower()), scope.current
        other = Term(right.kinds[i], lambda: current[at][i])
        right.merged.add(name.lower())
        for source in scope.sources[:at]:
            if name.lower() not in source.merged:
                source.shared |= {
                    own.lower() for own in source.names if own.lower() == name.lower()
                }
        joined.on.append(_equality(one, other, frozenset({*left.used, at}), at, left.used))

    def _add(
        self, node: Any, scope: Names, joins: list[Joined], is_left: bool | None
    ) -> Joined | None:
        alias = node.alias
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            if node.this.args.get("joins"):
                raise _refused("joins in parentheses")
            node, alias = node.this, alias or node.this.alias
        if isinstance(node, exp.Subquery):
            if not alias:
                raise DerivedWithoutAlias()
            plan = self.query(node.this, None)
            names = [output.name for output in plan.outputs]
            kinds = [_of_derived(output, alias) for output in plan.outputs]
            source = Source(alias, "", names, kinds, plan.run)
        elif isinstance(node, exp.Table) and (named := named_query(node)) is not None:
            source = self._named_source(named, alias or node.name)
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            database = node.args.get("db")
            if database is None and node.name.lower() == "dual":
                return None
            source = self._table(None if database is None else database.name, node.name, alias)
        else:
            raise _refused(node.key.upper())
        if any(
            one.alias.lower() == source.alias.lower() and one.schema == source.schema
            for one in scope.sources
        ):
            raise NotUniqueTable(source.alias)
        scope.sources.append(source)
        scope.current.append([None] * len(source.names))
        joined = Joined(len(scope.sources) - 1, source.rows, len(source.names), bool(is_left))
        if is_left:
            source.kinds = [_nullable(kind) for kind in source.kinds]
        joins.append(joined)
        return joined

    def _named_source(self, node: Any, alias: str) -> Source:
        query = self._named.get(id(node))
        if query is None:
            raise _refused("a query that names itself (WITH RECURSIVE)")
        kinds = [
            _of_derived(replace(output, name=name), alias)
            for name, output in zip(query.names, query.plan.outputs, strict=True)
        ]
        return Source(alias, "", query.names, kinds, query.rows)

    def _table(self, schema: str | None, name: str, alias: str) -> Source:
        found = self._catalog(schema, name)
        kinds = [
            replace(kind, column=replace(kind.column, table=alias or name))
            for kind in found.columns
            if kind.column is not None
        ]
        names = [kind.column.original_name for kind in kinds if kind.column is not None]
        first = kinds[0].column
        assert first is not None
        default = found.default if isinstance(found, HasDefaults) else None
        is_view = found.is_view
        return Source(alias or name, first.schema, names, kinds, found.rows, is_view, default)

    def _conditions(self, node: Any, scope: Names, place: str) -> list[JoinTest]:
        found = []
        while isinstance(node, exp.Paren):  # ON(a AND b): each is looked at where it can be first
            node = node.this
        for part in _flat(node, exp.And):
            scope.used, scope.looks_out = set(), False
            term = watched_test(self._term(part, scope, place), self._session)
            needs, looks_out = frozenset(scope.used), scope.looks_out
            found.append(self._hashable(part, scope, place) or JoinTest(term, needs, looks_out))
        return found

    def _hashable(self, node: Any, scope: Names, place: str) -> JoinTest | None:
        """An equality of a table's column with something that tables in front of it know, for a join by hash."""
        if not isinstance(node, exp.EQ):
            return None
        sides = []
        for side in (node.this, node.expression):
            if not _is_simple(side):
                return None
            scope.used, scope.looks_out = set(), False
            term = self._term(side, scope, place)
            if scope.looks_out:
                return None
            sides.append((term, set(scope.used)))
        for (one, mine), (other, theirs) in (sides, sides[::-1]):
            if len(mine) == 1 and (not theirs or max(theirs) < min(mine)):
                known, column = self._beside(other, one), self._beside(one, other)
                return _equality(known, column, frozenset(mine | theirs), min(mine), theirs)
        return None

    # --- clauses ---

    def _outputs(self, node: Any, scope: Names, place: str = "SELECT") -> list[Output]:
        outputs: list[Output] = []
        for item in node.expressions:
            before = len(outputs)
            if isinstance(item, exp.Star) or (
                isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            ):
                outputs += self._star(item, scope)
            else:
                outputs.append(self._output(item, scope, place))
            self._session.budget.make(_OUTPUT_BYTES * (len(outputs) - before))
            if len(outputs) > COLUMNS_MAX:
                raise _refused("so many columns")
        return outputs

    def _star(self, item: Any, scope: Names) -> list[Output]:
        table = item.table if isinstance(item, exp.Column) else ""
        numbered = list(enumerate(scope.sources))
        if scope.is_swapped:
            numbered[:2] = numbered[1::-1]
        shared, found = [], []
        for at, source in numbered:
            if table and source.alias.lower() != table.lower():
                continue
            for i, name in enumerate(source.names):
                column = _column_output(scope.current, at, i, name, source.kinds[i])
                if not table and name.lower() in source.shared - source.merged:
                    shared.append(column)
                elif table or name.lower() not in source.merged:
                    found.append(column)
        found = [*shared, *found]
        if not found:
            raise UnknownTable(table) if table else NoTablesUsed()
        return found

    def _output(self, item: Any, scope: Names, place: str) -> Output:
        text = item.meta.get("text", "")
        if isinstance(item, exp.Alias):
            return _named(item.alias, self._term(item.this, scope, place))
        term = self._term(item, scope, place)
        match item:
            case exp.Column():
                return _named(scope.shown(item.name), term)
            case exp.Literal() if item.is_string:
                return _named(item.name, term)
            case exp.Concat():  # strings in a row: the first is the name
                return _named(item.expressions[0].name, term)
        return _named(text.strip(), term)

    def _groups(self, node: Any, scope: Names, outputs: Sequence[Output]) -> list[Term]:
        group = node.args.get("group")
        if group is None:
            return []
        if any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets", "totals", "all")):
            raise _refused("GROUP BY ... WITH ROLLUP")
        found = []
        for item in group.expressions:
            chosen = _by_position(item, outputs)
            if chosen is None and isinstance(item, exp.Column) and not item.table:
                chosen = scope.find(item.name, "", "", "GROUP BY") or scope.aliases.get(
                    item.name.lower()
                )
            found.append(chosen or self._term(item, scope, "GROUP BY"))
        return found

    def _having(self, node: Any, scope: Names) -> Term:
        self._has_aliases = True
        try:
            return self._term(node, scope, "HAVING")
        finally:
            self._has_aliases = False

    _has_aliases = False

    def _order_term(self, item: Any, scope: Names, outputs: Sequence[Output]) -> Term:
        node = item.this
        chosen = _by_position(node, outputs)
        if chosen is not None:
            return chosen
        if isinstance(node, exp.Column) and not node.table:
            for output in outputs:
                if output.name.lower() == node.name.lower():
                    return output.term
        self._has_aliases = True
        try:
            return self._term(node, scope, "ORDER BY")
        finally:
            self._has_aliases = False

    # --- expressions ---

    def _term(self, node: Any, scope: Names, place: str) -> Term:
        self._depth += 1
        if self._depth > _FLAT_MAX:
            raise _refused("expressions nested so deep")
        try:
            term = self._bound(node, scope, place)
        finally:
            self._depth -= 1
        if term.kind.form not in (ValueForm.TEXT, ValueForm.BYTES):
            return term
        match node:
            case exp.Anonymous():
                return self._session.bounded(node.name.lower(), term)
            case exp.Trim() | exp.Substring():
                return self._session.bounded(node.key, term)
            case exp.Cast():
                return self._session.bounded("cast_as_char", term)
        return self._counted(term) if type(node) in _READ else term

    def _counted(self, term: Term) -> Term:
        """A value that is read again for each row: a long one takes time in whatever reads it."""
        kind = term.kind
        if kind.characters <= _SHORT:
            return term
        get, budget = term.value, self._session.budget

        def value() -> Any:
            found = get()
            if found is not None and len(found) > _SHORT:
                budget.go_through(len(found))
            return found

        return Term(kind, value, term.constant)

    def _terms(self, nodes: Iterable[Any], scope: Names, place: str) -> list[Term]:
        return [self._term(node, scope, place) for node in nodes]

    def _tests(self, nodes: Iterable[Any], scope: Names, place: str) -> list[Term]:
        """Terms that are true or false."""
        return [watched_test(term, self._session) for term in self._terms(nodes, scope, place)]

    def _bound(self, node: Any, scope: Names, place: str) -> Term:
        make = _MAKERS.get(type(node))
        if make is None:
            raise _refused(node.key.upper() if isinstance(node, exp.Expression) else str(node))
        return make(self, node, scope, place)

    def _paren(self, node: Any, scope: Names, place: str) -> Term:
        return self._term(node.this, scope, place)

    def _literal(self, node: Any, scope: Names, place: str) -> Term:
        return self._said(node.this) if node.is_string else _number(node.this)

    def _said(self, text: str) -> Term:
        """A text that the statement says."""
        said_in = self._session.said_in
        if not said_in:
            return constant(types.text(len(text)), text)
        text = values.as_said_in(text, said_in)
        return constant(replace(types.text(len(text)), said_in=said_in), text)

    def _hex(self, node: Any, scope: Names, place: str) -> Term:
        digits = node.this
        data = bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
        code = types.HYBRID if node.meta.get("is_number") else types.HEX
        return constant(replace(types.octets(len(data)), unsigned=True, code=code), data)

    def _bits(self, node: Any, scope: Names, place: str) -> Term:
        size = (len(node.this) + 7) // 8
        data = int(node.this or "0", 2).to_bytes(size, "big")
        return constant(replace(types.octets(size), unsigned=True, code=types.HYBRID), data)

    def _column(self, node: Any, scope: Names, place: str) -> Term:
        name, table, schema = node.name, node.table, node.db
        at: Names | None = scope
        if self._has_aliases and not table and name.lower() in scope.aliases:
            return scope.aliases[name.lower()]
        while at is not None:
            found = at.find(name, table, schema, place)
            if found is not None:
                if at is not scope:
                    inner: Names | None = scope
                    while inner is not None and inner is not at:
                        inner.looks_out = True
                        inner = inner.parent
                return found
            at = at.parent
        if not table and name.upper() in BARE_NAMES and not node.this.quoted:
            return functions.call(name.upper(), [], self._session)
        raise UnknownColumn(".".join(filter(None, (schema, table, name))), place)

    def _user_variable(self, node: Any, scope: Names, place: str) -> Term:
        name = node.this.name.lower()
        variables = self._session.user_variables
        kind, _ = variables.get(name, (_UNSET, None))
        kind = replace(kind, may_be_null=True, column=None)

        def value() -> Any:
            known, found = variables.get(name, (kind, None))
            return values.converted(found, known, kind)

        return Term(kind, value)

    def _assignment(self, node: Any, scope: Names, place: str) -> Term:
        if not isinstance(node.this, exp.Parameter):
            raise _refused(":=")
        name = node.this.this.name.lower()
        term = settled(self._term(node.expression, scope, place))
        kind = term.kind.computed()
        if kind.code == ColumnType.BIT:
            kind = replace(kind, code=0)
        session = self._session
        session.user_variables.setdefault(name, (replace(kind, may_be_null=True), None))

        def value() -> Any:
            found = term.value()
            session.user_variables[name] = session.assigned[name] = (kind, found)
            return found

        return Term(kind, value)

    def _system_variable(self, node: Any, scope: Names, place: str) -> Term:
        found = self._session.system_variables.get(system_variable(node))
        if found is None:
            raise UnknownSystemVariable(node.name)
        return constant(*found)

    def _parameter(self, node: Any, scope: Names, place: str) -> Term:
        number = self._question.parameters.index(node.meta["at"])
        given = self._session.parameters
        return constant(*(given[number] if number < len(given) else (types.NULL, None)))

    # --- operators ---

    def _conjunction(self, node: Any, scope: Names, place: str) -> Term:
        nodes = _flat(node, type(node))
        parts = self._tests(nodes, scope, place)
        for one, part in zip(nodes, parts, strict=True):
            if isinstance(one, exp.Column):  # which MariaDB compares with 0
                operands.require_alike((part.kind, _ZERO), "<>")
        return _joined(parts, is_and=isinstance(node, exp.And))

    def _exclusive(self, node: Any, scope: Names, place: str) -> Term:
        one, other = self._tests((node.this, node.expression), scope, place)

        def value() -> Any:
            left, right = one.value(), other.value()
            if left is None or right is None:
                return None
            return int(values.is_true(left, one.kind) != values.is_true(right, other.kind))

        return Term(types.BOOLEAN.nullable(one.kind.may_be_null or other.kind.may_be_null), value)

    def _not(self, node: Any, scope: Names, place: str) -> Term:
        (term,) = self._tests((node.this,), scope, place)
        if isinstance(node.this, exp.Column):
            operands.require_alike((term.kind, _ZERO), "=")

        def value() -> Any:
            found = term.value()
            return None if found is None else int(not values.is_true(found, term.kind))

        kind = types.TRUTH if term.kind is types.TRUTH else types.BOOLEAN
        return Term(kind.nullable(term.kind.may_be_null), value)

    def _comparison(self, node: Any, scope: Names, place: str) -> Term:
        test = _COMPARISONS[type(node)]
        if isinstance(node.expression, exp.Any | exp.All):
            return self._quantified(node, test, scope, place)
        if _is_row(node.this) or _is_row(node.expression):
            return self._row_comparison(node, scope, place)
        left, right = self._terms((node.this, node.expression), scope, place)
        self._require_comparable((left, right), _SIGNS[type(node)])
        return compared(self._beside(left, right), self._beside(right, left), test)

    def _require_comparable(self, terms: Sequence[Term], operation: str) -> None:
        """Raises 4078, and 1267, 1270, 1271."""
        kinds = [term.kind for term in terms]
        operands.require_alike(kinds, operation)
        if values.are_texts(kinds):
            self._require_one_collation(terms, operation)

    def _require_one_collation(self, terms: Sequence[Term], operation: str) -> None:
        kinds = [term.kind for term in terms]
        values.require_one_collation(kinds, operation, self._session.collation)

    def _of_one_collation(self, terms: Sequence[Term], operation: str) -> Sequence[Term]:
        """The terms, texts with the collation that they have together. Raises 1267, 1270, 1271."""
        self._require_one_collation(terms, operation)
        kinds = [term.kind for term in terms]
        number = types.collated_as(types.text(0), kinds).collation
        if number <= 0 or any(kind.form is not ValueForm.TEXT for kind in kinds):
            return terms
        collated = {  # a list of constants has few objects for its types
            id(kind): replace(kind, collation=number, is_collated=True)
            for kind in {id(kind): kind for kind in kinds}.values()
        }
        return [Term(collated[id(term.kind)], term.value, term.constant) for term in terms]

    def _beside(self, term: Term, other: Term) -> Term:
        """A term that is compared with another: a text beside a number is to be one, too, and beside a date or time
        one of these; so is a number that the statement says."""
        if other.kind.is_time:
            if term.kind.form is ValueForm.INT and term.constant not in (UNKNOWN, None):
                term = constant(types.text(_NUMBER_CHARS), str(term.constant))
            term = dated(term, other.kind, self._session)
            return watched_moment(term, self._session, other.kind.form)
        if not other.kind.is_number and not types.is_bits(other.kind):
            return spelled(term, other.kind)
        is_double = other.kind.form is ValueForm.DOUBLE
        return watched(term, self._session, "DOUBLE" if is_double else "DECIMAL")

    def _keys(self, left: Type, right: Type) -> tuple[values.Key, values.Key]:
        """As `values.comparable`; a TIME beside a date is one of today."""
        given: list[tuple[Type, values.Key | None]] = []
        for kind, other in ((left, right), (right, left)):
            date = dating(kind, other, self._session)
            made = kind if date is None else types.moment(ValueForm.DATETIME, kind.decimals)
            given.append((made, date))
        mine, theirs = values.comparable(given[0][0], given[1][0])
        return _behind(given[0][1], mine), _behind(given[1][1], theirs)

    def _dated(self, mine: Sequence[Term], theirs: Sequence[Term]) -> tuple[list[Term], list[Term]]:
        """The terms of two rows that are compared: a TIME beside a date is one of today."""
        pairs = list(zip(mine, theirs, strict=True))
        return (
            [dated(one, other.kind, self._session) for one, other in pairs],
            [dated(other, one.kind, self._session) for one, other in pairs],
        )

    def _quantified(
        self, node: Any, test: Callable[[Any, Any], bool], scope: Names, place: str
    ) -> Term:
        """A comparison with ANY or ALL of a subquery."""
        left = self._term(node.this, scope, place)
        rows, plan, _ = self._rows_of(node.expression.this, scope)
        if len(plan.outputs) != 1:
            raise OperandColumns(1)
        operands.require_alike((left.kind, plan.outputs[0].kind), _SIGNS[type(node)])
        mine, theirs = self._keys(left.kind, plan.outputs[0].kind)
        decides = isinstance(node.expression, exp.Any)  # whether a true one does, or a false one
        budget = self._session.budget

        def value() -> Any:
            found, unknown = left.value(), False
            for row in rows():
                budget.tick()
                if found is None or row[0] is None:
                    unknown = True
                elif test(mine(found), theirs(row[0])) is decides:
                    return int(decides)
            return None if unknown else int(not decides)

        return Term(types.BOOLEAN.nullable(), value)

    def _row_comparison(self, node: Any, scope: Names, place: str) -> Term:
        one, other = node.this, node.expression
        if not (_is_row(one) and _is_row(other)):
            raise _refused("a comparison of rows")
        if len(one.expressions) != len(other.expressions):
            raise OperandColumns(len(one.expressions))
        mine = self._terms(one.expressions, scope, place)
        mine, theirs = self._dated(mine, self._terms(other.expressions, scope, place))
        equal = _all_equal(mine, theirs)
        if isinstance(node, exp.EQ):
            return equal
        if isinstance(node, exp.NEQ):
            return called(_truth("n", lambda same: not same), [equal], self._session)
        return _in_order(mine, theirs, _COMPARISONS[type(node)])

    def _same(self, node: Any, scope: Names, place: str) -> Term:
        left, right = self._terms((node.this, node.expression), scope, place)
        self._require_comparable((left, right), "<=>")
        left, right = self._beside(left, right), self._beside(right, left)
        mine, theirs = values.comparable(left.kind, right.kind)

        def value() -> int:
            one, other = left.value(), right.value()
            if one is None or other is None:
                return int(one is None and other is None)
            return int(mine(one) == theirs(other))

        return Term(types.BOOLEAN, value)

    def _is(self, node: Any, scope: Names, place: str) -> Term:
        term = self._term(node.this, scope, place)
        match node.expression:
            case exp.Null():
                return Term(types.BOOLEAN, lambda: int(term.value() is None))
            case exp.Boolean():
                wanted = bool(node.expression.this)
            case _:
                raise _refused("IS")

        def value() -> int:
            found = term.value()
            return int(found is not None and values.is_true(found, term.kind) is wanted)

        return Term(types.BOOLEAN, value)

    def _between(self, node: Any, scope: Names, place: str) -> Term:
        term, low, high = self._terms(
            (node.this, node.args["low"], node.args["high"]), scope, place
        )
        given = [term.kind, low.kind, high.kind]
        operands.require_alike(given, "between")
        if values.are_texts(given):
            term, low, high = self._of_one_collation((term, low, high), "between")
        looked_at, low, high = (
            self._beside(term, high if low.kind.form in (term.kind.form, ValueForm.NULL) else low),
            self._beside(low, term),
            self._beside(high, term),
        )
        if any(kind.is_number for kind in given) and not all(kind.is_number for kind in given):
            looked_at, low, high = (_as_double(one) for one in (looked_at, low, high))
        current: list[Any] = [None]
        now = Term(looked_at.kind, lambda: current[0])
        is_between = _joined((compared(now, low, _GE), compared(now, high, _LE)), is_and=True)

        def value() -> Any:
            current[0] = looked_at.value()
            return is_between.value()

        return Term(is_between.kind, value)

    def _in(self, node: Any, scope: Names, place: str) -> Term:
        query = node.args.get("query")
        if query is not None:
            return self._in_query(node, query, scope, place)
        if _is_row(node.this):
            return self._row_in(node, scope, place)
        term, *others = self._terms((node.this, *node.expressions), scope, place)
        others += map(self._constant, self._question.listed(node))
        alone = "<>" if isinstance(node.parent, exp.Not) else "="
        operation = "in" if len(others) > 1 else alone
        if _is_one_of_texts(term, others):
            term, *others = self._of_one_collation((term, *others), operation)
        operands.require_one_alike(term.kind, [other.kind for other in others], operation)
        if term.kind.form is not ValueForm.TEXT or any(
            one.kind.form is ValueForm.BYTES for one in others
        ):
            others = [self._beside(one, term) for one in others]
        if others:
            term = self._beside(term, others[0])
        kind = types.BOOLEAN.nullable(types.any_null(t.kind for t in (term, *others)))
        return Term(kind, _is_one_of(term, others))

    def _constant(self, said: Constant) -> Term:
        """A constant of a list of IN."""
        if said.number is not None:
            if said.number.isdecimal():
                return constant(
                    _kind_of_digits(len(said.number)), int((said.minus or "") + said.number)
                )
            return _number((said.minus or "") + said.number)
        if said.text is not None and said.introducer is None:
            text = unquoted(said.text, escapes=True)
            if self._session.said_in:
                return self._said(text)
            return constant(_kind_of_text(len(text)), text)
        return self._term(constant_node(said), Names(), "")

    def _row_in(self, node: Any, scope: Names, place: str) -> Term:
        mine = self._terms(node.this.expressions, scope, place)
        tests = []
        for one in node.expressions:
            if not _is_row(one) or len(one.expressions) != len(mine):
                raise OperandColumns(len(mine))
            theirs = self._terms(one.expressions, scope, place)
            tests.append(_all_equal(*self._dated(mine, theirs)))

        return _joined(tests, is_and=False, may_be_null=True)

    def _in_query(self, node: Any, query: Any, scope: Names, place: str) -> Term:
        nodes = node.this.expressions if _is_row(node.this) else [node.this]
        mine = self._terms(nodes, scope, place)
        rows, plan, is_fixed = self._rows_of(query, scope)
        if len(plan.outputs) != len(mine):
            raise OperandColumns(len(mine))
        for term, output in zip(mine, plan.outputs, strict=True):
            self._require_comparable((term, output.term), "=")
        keys = [
            self._keys(term.kind, output.kind)
            for term, output in zip(mine, plan.outputs, strict=True)
        ]
        budget = self._session.budget
        known: dict[int, set[Any]] = {}  # of rows that stay the same

        def value() -> Any:
            found, unknown = [term.value() for term in mine], False
            given = rows()
            if id(given) not in known and is_fixed:
                known[id(given)] = {
                    key(row[0]) for row in given for _, key in keys[:1] if row[0] is not None
                }
            if is_fixed and len(mine) == 1 and found[0] is not None:
                if keys[0][0](found[0]) in known[id(given)]:
                    return 1
                return None if any(row[0] is None for row in given) else 0
            for row in given:
                budget.tick()
                if None in row or None in found:
                    unknown = True
                elif all(a(x) == b(y) for (a, b), x, y in zip(keys, found, row, strict=True)):
                    return 1
            return None if unknown else 0

        return Term(types.BOOLEAN.nullable(), value)

    def _rows_of(self, query: Any, scope: Names) -> tuple[Callable[[], Rows], Plan, bool]:
        """A subquery's rows: made once, if it reads nothing of the queries around it, which the last value tells."""
        used, scope.looks_out, looked = set(scope.used), False, scope.looks_out
        scope.used = set()
        plan = self.query(query, scope)
        is_fixed = not scope.used and not scope.looks_out
        scope.used |= used
        scope.looks_out = scope.looks_out or looked
        made: list[Rows] = []
        budget = self._session.budget

        def rows() -> Rows:
            if not is_fixed:
                before = budget.made
                found = plan.run()
                budget.made = before  # they go with the row of the query around it
                return found
            if not made:
                made.append(plan.run())
            return made[0]

        return rows, plan, is_fixed

    def _subquery(self, node: Any, scope: Names, place: str) -> Term:
        rows, plan, _ = self._rows_of(node, scope)
        if len(plan.outputs) != 1:
            raise OperandColumns(1)

        def value() -> Any:
            found = rows()
            if len(found) > 1:
                raise SubqueryHasRows()
            return found[0][0] if found else None

        term = settled(Term(plan.outputs[0].kind, value))
        return Term(term.kind.nullable(), term.value)

    def _exists(self, node: Any, scope: Names, place: str) -> Term:
        rows, _, _ = self._rows_of(node.this, scope)
        return Term(types.BOOLEAN, lambda: int(bool(rows())))

    def _like(self, node: Any, scope: Names, place: str) -> Term:
        escape = "\\"
        is_not = bool(node.args.get("negate"))
        if isinstance(node, exp.Escape):
            escape = node.expression.name if not isinstance(node.expression, exp.Null) else "\\"
            node = node.this
            is_not = bool(node.args.get("negate"))
        if not isinstance(node, exp.Like) or len(escape) > 1:
            raise WrongArguments("ESCAPE")
        term, pattern = self._terms((node.this, node.expression), scope, place)
        term, pattern = spelled(term, pattern.kind), spelled(pattern, term.kind)
        self._require_one_collation((term, pattern), "like")
        together = types.collated_as(types.text(0), (term.kind, pattern.kind))
        is_exact = bool({term.kind.form, pattern.kind.form} & {ValueForm.BYTES})
        is_exact = is_exact or (together if together.is_collated else term.kind).is_exact
        collation = 0 if is_exact else together.collation
        if collation:
            values.text_key((term.kind, pattern.kind))  # refuses those that are not compared here
        budget = self._session.budget

        def matches(text: str, like: str) -> bool:
            if escape != "\\":
                like = escaped(like, escape)
            if collation:
                like, text = folded_like(like, collation), folded(text, collation)
            is_folded = not is_exact and not collation
            found_one = like_matches(like, text, is_folded=is_folded, budget=budget)
            return found_one is not is_not

        return called(_truth("tt", matches), [term, pattern], self._session)

    def _regular(self, node: Any, scope: Names, place: str) -> Term:
        terms = self._terms((node.this, node.expression), scope, place)
        return functions.call("REGEXP", terms, self._session)

    def _arithmetic(self, node: Any, scope: Names, place: str) -> Term:
        for one, other, sign in (
            (node.this, node.expression, 1 if isinstance(node, exp.Add) else -1),
            (node.expression, node.this, 1),
        ):
            if isinstance(other, exp.Interval) and isinstance(node, exp.Add | exp.Sub):
                return self._shifted(one, other, sign, scope, place)
        chain = _flat_left(node, _ARITHMETIC)
        session, text = self._session, node.meta.get("text", node.key)
        first, *rights = (
            watched_as("n", self._term(operand, scope, place), session) for _, operand in chain
        )
        kind, steps = first.kind, []
        for (operator, _), right in zip(chain[1:], rights, strict=True):
            infer, run = _ARITHMETIC[operator]
            if operator is exp.Div:
                session.require_quotient_digits()
            if operator in _WORDS:
                operands.require_numbers(kind, right.kind, _WORDS[operator])
            left, kind = kind, infer(kind, right.kind)
            may_be_null = kind.may_be_null or left.may_be_null or right.kind.may_be_null
            kind = replace(kind, may_be_null=may_be_null)
            steps.append((run, left, right, kind))

        def value() -> Any:
            found = first.value()
            for run, left, right, of in steps:
                other = right.value()
                if found is None or other is None:
                    found = None
                    continue
                one, other = values.as_number(found, left), values.as_number(other, right.kind)
                found = _calculated(run, one, other, of, text)
                if found is None:
                    session.warn(DivisionByZero())
            return found

        return Term(kind, value)

    def _shifted(self, source: Any, interval: Any, sign: int, scope: Names, place: str) -> Term:
        unit = interval.args.get("unit")
        name = "" if unit is None else unit.name.upper()
        if name not in moments.UNITS:
            raise _refused(f"INTERVAL ... {name}")
        at = self._term(source, scope, place)
        operands.require_moment(at.kind)
        amount = interval.this
        count = (
            _number_or_text(amount)
            if isinstance(amount, exp.Literal)
            else self._term(amount, scope, place)
        )
        return called(
            moments.shifted_by(at, count.kind, name, sign, self._session),
            [at, count],
            self._session,
        )

    def _negative(self, node: Any, scope: Names, place: str) -> Term:
        term = self._term(node.this, scope, place)
        operands.require_number(term.kind, "-")
        kind = types.numeric(term.kind)

        def negated(number: Any) -> Any:
            if isinstance(number, int) and number > -values.I64_MIN:
                raise OutOfRange("BIGINT", f"-({number})")
            return values.negated(number)

        if term.constant is not UNKNOWN and isinstance(term.constant, int | float | Decimal):
            if isinstance(node.this, exp.Literal):
                return _number("-" + node.this.this)
            kind = replace(kind, length=kind.length + 1)
            return constant(replace(kind, column=None), negated(term.constant))
        has_place = kind.form is ValueForm.INT or kind.column is not None
        kind = replace(types.unbound(kind), length=kind.length + has_place, unsigned=False)
        return called(Plain("n", lambda kinds: kind, negated), [term], self._session)

    def _bitwise(self, node: Any, scope: Names, place: str) -> Term:
        nodes = [node.this, node.expression] if node.args.get("expression") else [node.this]
        run = _BITWISE[type(node)]

        def calculate(*numbers: Decimal) -> int:
            return run(*map(_bits_of, numbers)) & values.U64_MAX

        terms = self._terms(nodes, scope, place)
        for term in terms:
            operands.require_number(term.kind, _BIT_SIGNS[type(node)])
        plain = Plain("e*", lambda kinds: types.UNSIGNED_BIGINT, calculate)
        return called(plain, terms, self._session)

    def _called(self, plain: Plain, nodes: Iterable[Any], scope: Names, place: str) -> Term:
        return called(plain, self._terms(nodes, scope, place), self._session)

    # --- functions with a syntax of their own ---

    def _call(self, node: Any, scope: Names, place: str) -> Term:
        name = node.name.upper()
        nodes = list(node.expressions)
        if name in AGGREGATES:
            return self._aggregate(name, nodes, scope, place)
        if name in ("VALUES", "VALUE") and len(nodes) == 1 and isinstance(nodes[0], exp.Column):
            return self._proposed(nodes[0], scope)
        if name == "VALUES":
            raise _refused("VALUES")
        if name == "DEFAULT" and len(nodes) == 1 and isinstance(nodes[0], exp.Column):
            return self._default(nodes[0], scope, place)
        if name in ("DATE_ADD", "DATE_SUB", "ADDDATE", "SUBDATE") and len(nodes) == 2:
            interval = nodes[1]
            if not isinstance(interval, exp.Interval):
                interval = exp.Interval(this=interval, unit=exp.var("DAY"))
            return self._shifted(nodes[0], interval, 1 if "ADD" in name else -1, scope, place)
        if name == "DATE" and len(nodes) == 1:
            return cast(self._term(nodes[0], scope, place), _TO_DATE, self._session)
        if name in ("TIMESTAMPDIFF", "TIMESTAMPADD") and len(nodes) == 3:
            unit = nodes[0].name.upper().removeprefix("SQL_TSI_")
            if unit not in moments.UNITS:
                raise _refused(unit)
            if name == "TIMESTAMPADD":
                interval = exp.Interval(this=nodes[1], unit=exp.var(unit))
                return self._shifted(nodes[2], interval, 1, scope, place)
            run = functools.partial(moments.difference, unit)
            plain = Plain("mm", lambda kinds: types.BIGINT, run, gives_null=True)
            return self._called(plain, nodes[1:], scope, place)
        return functions.call(name, self._terms(nodes, scope, place), self._session)

    def _proposed(self, node: Any, scope: Names) -> Term:
        """VALUES(column): what INSERT ... ON DUPLICATE KEY UPDATE would have inserted."""
        proposed = scope.proposed
        if proposed is None:
            return constant(types.NULL, None)
        i = _column_number(node, scope.sources[0], "SELECT")
        return Term(scope.sources[0].kinds[i].nullable(), lambda: proposed[0][i])

    def _default(self, node: Any, scope: Names, place: str) -> Term:
        """DEFAULT(column)."""
        found = scope.place_of(node.name, node.table, node.db, place)
        if found is None:
            raise UnknownColumn(f"{node.table}.{node.name}" if node.table else node.name, place)
        at, number = found
        source, current = scope.sources[at], scope.current
        if source.default is None:
            raise _refused("DEFAULT() of what is no column of a table")
        default = source.default(number)
        return Term(source.kinds[number], lambda: default(current[at]))

    def _aggregate(self, name: str, nodes: list[Any], scope: Names, place: str) -> Term:
        if not scope.may_aggregate:
            raise WrongGroupFunction()
        is_distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
        if is_distinct:
            nodes = nodes[0].expressions
        is_star = len(nodes) == 1 and isinstance(nodes[0], exp.Star)
        scope.may_aggregate = False
        terms = [] if is_star else self._terms(nodes, scope, place)
        if name in OF_NUMBERS:
            for term in terms:
                operands.require_number(term.kind, f"{name.lower()}({'distinct ' * is_distinct}")
            terms = [watched(term, self._session, "DOUBLE") for term in terms]
        scope.may_aggregate = True
        made = AGGREGATES[name](name, terms, is_distinct, self._session)
        scope.aggregates.append(made)
        return made.term

    def _concat_of_group(self, node: Any, scope: Names, place: str) -> Term:
        if not scope.may_aggregate:
            raise WrongGroupFunction()
        inner, order, is_distinct = node.this, [], False
        scope.may_aggregate = False
        if isinstance(inner, exp.Order):
            order = [(item.this, _is_down(item)) for item in inner.expressions]
            inner = inner.this
        if isinstance(inner, exp.Distinct):
            is_distinct, parts = True, inner.expressions
        else:
            parts = [inner]
        parts = [
            p
            for part in parts
            for p in (part.expressions if isinstance(part, exp.Concat) else [part])
        ]
        terms = self._terms(parts, scope, place)
        outputs = [_named("", term) for term in terms]
        by = [
            (_by_position(one, outputs) or self._term(one, scope, place), down)
            for one, down in order
        ]
        scope.may_aggregate = True
        mark = node.args.get("separator")
        made = group_concat(
            terms, by, "," if mark is None else mark.name, is_distinct, self._session
        )
        scope.aggregates.append(made)
        return made.term

    def _case(self, node: Any, scope: Names, place: str) -> Term:
        subject = node.args.get("this")
        base = None if subject is None else self._term(subject, scope, place)
        tests, results = [], []
        whens = [self._term(branch.this, scope, place) for branch in node.args["ifs"]]
        if base is not None:
            whens = [spelled(test, base.kind) for test in whens]
            base = spelled(base, whens[0].kind)
        if base is not None and _is_one_of_texts(base, whens):
            base, *whens = self._of_one_collation((base, *whens), "case")
        for branch, test in zip(node.args["ifs"], whens, strict=True):
            if base is not None:
                operands.require_alike((base.kind, test.kind), "case..when")
            tests.append(
                watched_test(test, self._session) if base is None else compared(base, test, _EQ)
            )
            results.append(self._term(branch.args["true"], scope, place))
        default = node.args.get("default")
        otherwise = (
            constant(types.NULL, None) if default is None else self._term(default, scope, place)
        )
        results.append(otherwise)
        operands.require_union([result.kind for result in results], "case")
        kind = types.common([result.kind for result in results])
        results = [dated(result, kind, self._session) for result in results]
        kind = kind.nullable(base is not None and base.kind.may_be_null)

        def value() -> Any:
            chosen = results[-1]
            for test, result in zip(tests, results, strict=False):
                found = test.value()
                if found is not None and values.is_true(found, test.kind):
                    chosen = result
                    break
            return values.converted(chosen.value(), chosen.kind, kind)

        return Term(kind, value)

    def _if(self, node: Any, scope: Names, place: str) -> Term:
        nodes = [node.this, node.args.get("true"), node.args.get("false")]
        return functions.call(
            "IF", self._terms([n for n in nodes if n is not None], scope, place), self._session
        )

    def _strings(self, node: Any, scope: Names, place: str) -> Term:
        if not all(isinstance(part, exp.Literal) and part.is_string for part in node.expressions):
            raise _refused("CONCAT")
        return self._said("".join(part.this for part in node.expressions))

    def _position(self, node: Any, scope: Names, place: str) -> Term:
        terms = self._terms((node.args["substr"], node.this), scope, place)
        return functions.call("LOCATE", terms, self._session)

    def _substring(self, node: Any, scope: Names, place: str) -> Term:
        nodes = [node.this, node.args.get("start"), node.args.get("length")]
        terms = self._terms([n for n in nodes if n is not None], scope, place)
        return functions.call("SUBSTRING", terms, self._session)

    def _trim(self, node: Any, scope: Names, place: str) -> Term:
        source = self._term(node.this, scope, place)
        mark = node.args.get("expression")
        gone = constant(types.text(1), " ") if mark is None else self._term(mark, scope, place)
        self._require_one_collation((gone, source), "trim")
        where = (node.args.get("position") or "BOTH").upper()
        return functions.trimmed(source, gone, where, self._session)

    def _extract(self, node: Any, scope: Names, place: str) -> Term:
        unit = node.this.name.upper()
        if unit in _OF_CLOCKS:
            return functions.call(
                unit, self._terms((node.expression,), scope, place), self._session
            )
        part = moments.PARTS.get(unit)
        if part is None:
            raise _refused(f"EXTRACT({unit})")
        plain = Plain("m", lambda kinds: types.small(4), part, gives_null=True)
        return self._called(plain, (node.expression,), scope, place)

    def _cast(self, node: Any, scope: Names, place: str) -> Term:
        term = self._term(node.this, scope, place)
        if "is_literal" not in node.meta:
            return cast(term, node.args["to"], self._session)
        # DATE'2026-11-22': as many digits of a second as are written.
        decimals = len(term.constant.partition(".")[2][:6])
        found = cast(term, node.args["to"], self._session, [decimals] if decimals else [])
        value = found.value()
        if value is None:
            raise WrongValue(found.kind.form.name, term.constant)
        return constant(replace(found.kind, may_be_null=False), value)

    def _collate(self, node: Any, scope: Names, place: str) -> Term:
        term = self._term(node.this, scope, place)
        name = node.expression.name.lower()
        number = collation_numbered(name)
        if number is None:
            raise UnknownCollation(node.expression.name)
        if term.kind.form is ValueForm.TEXT and charset_of(number) not in ("utf8mb4", "utf8mb3"):
            raise CollationMismatch(node.expression.name, "utf8mb4")
        kind = replace(
            term.kind,
            is_exact=name.endswith(("_bin", "_cs", "binary")),
            column=None,
            is_collated=True,
        )
        is_compared = bool(term.kind.collation) or is_by_several(number) or is_comparable(number)
        if term.kind.form is ValueForm.TEXT and is_compared:
            kind = replace(kind, collation=number)
        return Term(kind, term.value, term.constant)

    def _introduced(self, node: Any, scope: Names, place: str) -> Term:
        """A constant behind a character set: its bytes are those of a text in it.

        Raises `NotSupportedYet` (1235) where they are no text there.
        """
        charset = charset_named(str(node.this).lstrip("_")) or ""
        is_hex = isinstance(node.expression, exp.HexString | exp.BitString)
        client = "" if self._session.client in UTF8_CHARSETS else self._session.client
        if is_hex:
            term = self._term(node.expression, scope, place)
        else:
            text = node.expression.this
            term = constant(replace(types.text(len(text)), said_in=client), text)
        if charset == "binary" or (charset in UTF8_CHARSETS and not is_hex and not client):
            return term
        raw = values.as_bytes(term.value(), term.kind)
        said_in = "" if charset in UTF8_CHARSETS else charset
        with contextlib.suppress(KeyError):
            text = decode_text(raw, default_collation(charset))
            if isinstance(text, str):
                return constant(replace(types.text(len(text)), said_in=said_in), text)
        raise NotSupportedYet(f"these bytes behind _{charset}")

    def _bare(self, node: Any, scope: Names, place: str) -> Term:
        name = _BARE[type(node)]
        return functions.call(
            name, self._terms(filter(None, [node.args.get("this")]), scope, place), self._session
        )


@dataclass(slots=True)
class JoinTest:
    """A part of WHERE or ON: which sources it needs; of an equality that a join by hash can use both sides.

    `known` needs only sources in front of `at`; `column` only that one.
    """

    term: Term
    needs: frozenset[int]
    looks_out: bool = False
    at: int = -1
    known: Term | None = None
    column: Term | None = None


def _equality(
    known: Term, column: Term, needs: frozenset[int], at: int, before: set[int]
) -> JoinTest:
    return JoinTest(compared(known, column, _EQ), needs, False, at, known, column)


def _as_double(term: Term) -> Term:
    def value() -> Any:
        found = term.value()
        return None if found is None else values.as_double(found, term.kind)

    return Term(types.DOUBLE.nullable(term.kind.may_be_null), value)


def _bits_of(number: Decimal) -> int:
    """A number as 64 bits: rounded, and cut to what 64 bits can hold."""
    whole = int(values.rounded(number, 0))
    return max(values.I64_MIN, min(whole, values.U64_MAX)) & values.U64_MAX


def _is_simple(node: Any) -> bool:
    return isinstance(node, exp.Column | exp.Literal)


def _is_one_of_texts(one: Term, others: Sequence[Term]) -> bool:
    """Whether a value is compared with others as with texts, so that all have to be of one collation."""
    return not _is_no_text(one) and not all(map(_is_no_text, others))


def _is_no_text(term: Term) -> bool:
    return term.kind.is_number or term.kind.is_time


def _is_one_of(term: Term, others: Sequence[Term]) -> Callable[[], Any]:
    """IN: constants are compared by the sets of those that have been asked for, which all rows share; as each is asked
    for once, and in its order, so are its warnings."""
    if any(other.constant is UNKNOWN for other in others):
        return _is_one_of_computed(term, others)
    keys = _keys_beside(term.kind, [other.kind for other in others])
    known: dict[values.Key, set[Any]] = {}
    at, unknown = 0, False

    def value() -> Any:
        nonlocal at, unknown
        found = term.value()
        if found is None:
            return None
        for mine, theirs in known.items():
            if mine(found) in theirs:
                return 1
        while at < len(others):
            mine, key = keys[at]
            one = others[at].value()
            at += 1
            if one is None:
                unknown = True
                continue
            made = key(one)
            known.setdefault(mine, set()).add(made)
            if mine(found) == made:
                return 1
        return None if unknown else 0

    return value


def _is_one_of_computed(term: Term, others: Sequence[Term]) -> Callable[[], Any]:
    """The same of others that are computed for each row."""
    keys = [values.comparable(term.kind, other.kind) for other in others]

    def value() -> Any:
        found, unknown = term.value(), False
        if found is None:
            return None
        for other, (mine, theirs) in zip(others, keys, strict=True):
            one = other.value()
            if one is None:
                unknown = True
            elif mine(found) == theirs(one):
                return 1
        return None if unknown else 0

    return value


def _keys_beside(kind: Type, others: Sequence[Type]) -> list[tuple[values.Key, values.Key]]:
    """`values.comparable` with constants of these types, which have one pair for all that differ by their length."""
    known: dict[Type, tuple[values.Key, values.Key]] = {}
    by_object: dict[int, tuple[values.Key, values.Key]] = {}
    found = []
    for other in others:
        pair = by_object.get(id(other))
        if pair is None:
            alike = replace(other, length=0)
            pair = known.get(alike)
            if pair is None:
                pair = known[alike] = values.comparable(kind, alike)
            by_object[id(other)] = pair
        found.append(pair)
    return found


def _is_row(node: Any) -> bool:
    """Whether it is (1, 2) or ROW(1, 2)."""
    return isinstance(node, exp.Tuple) or (
        isinstance(node, exp.Anonymous) and node.name.upper() == "ROW"
    )


def _in_order(
    mine: Sequence[Term], theirs: Sequence[Term], test: Callable[[Any, Any], bool]
) -> Term:
    """A comparison of rows: by the first columns that differ."""
    equal = [compared(a, b, _EQ) for a, b in zip(mine, theirs, strict=True)]
    tests = [compared(a, b, test) for a, b in zip(mine, theirs, strict=True)]

    def value() -> Any:
        for same, found in zip(equal[:-1], tests, strict=False):
            is_same = same.value()
            if is_same != 1:
                return None if is_same is None else found.value()
        return tests[-1].value()

    return Term(types.BOOLEAN.nullable(), value)


def _behind(first: values.Key | None, second: values.Key) -> values.Key:
    return second if first is None else lambda value: second(first(value))


def _all_equal(mine: Sequence[Term], theirs: Sequence[Term]) -> Term:
    tests = [compared(a, b, _EQ) for a, b in zip(mine, theirs, strict=True)]
    return _joined(tests, is_and=True, may_be_null=True)


def compared(left: Term, right: Term, test: Callable[[Any, Any], bool]) -> Term:
    """A comparison of two terms, with NULL where one is."""
    mine, theirs = values.comparable(left.kind, right.kind)
    kind = types.BOOLEAN.nullable(left.kind.may_be_null or right.kind.may_be_null)

    def value() -> Any:
        one = left.value()
        if one is None:
            return None
        other = right.value()
        return None if other is None else int(test(mine(one), theirs(other)))

    return Term(kind, value)


def _joined(parts: Sequence[Term], *, is_and: bool, may_be_null: bool = False) -> Term:
    """AND or OR of conditions: NULL where those that are NULL decide it."""
    kind = types.BOOLEAN.nullable(may_be_null or types.any_null(part.kind for part in parts))

    def value() -> Any:
        unknown = False
        for part in parts:
            found = part.value()
            if found is None:
                unknown = True
            elif values.is_true(found, part.kind) is not is_and:
                return int(not is_and)
        return None if unknown else int(is_and)

    return Term(kind, value)


def _truth(arguments: str, test: Callable[..., bool]) -> Plain:
    return Plain(arguments, lambda kinds: types.BOOLEAN, lambda *given: int(test(*given)))


_TO_DATE: Final = exp.DataType(this=exp.DataType.Type.DATE)


def cast(term: Term, target: Any, session: Asker, sizes: list[int] | None = None) -> Term:
    """CAST and CONVERT. Raises `NotSupportedYet` (1235) for a type that it does not know."""
    name = target.this.name if hasattr(target.this, "name") else str(target.this)
    if sizes is None:
        given = [size.this.name for size in target.expressions]
        sizes = [int(size[:9]) for size in given if size.isdecimal()]
    found = _CASTS.get(name)
    if name == "CHARACTER_SET":
        found = _to_charset(target.args["kind"].name)
    if found is None:
        raise _refused(f"CAST(... AS {name})")
    kind, convert = found(term.kind, sizes)
    operands.require_cast(term.kind, kind)
    term = dated(term, kind, session)
    if kind.unsigned and isinstance(term.constant, str) and term.constant.isdecimal():
        kind = types.integer(min(_BIGINT_DIGITS, len(term.constant)), unsigned=True)
    source = term.kind
    if kind.is_number:
        is_whole = kind.form is ValueForm.INT
        term = watched(term, session, "INTEGER" if is_whole else kind.form.name)
    moment = "time" if kind.form is ValueForm.TIME else "datetime"

    def converted(value: Any) -> Any:
        found = convert(value, source)
        if kind.form in (ValueForm.DATE, ValueForm.DATETIME):
            is_zero = found is not None and found.startswith("0000-00-00")
            if found is None or is_zero:
                found = values.odd_moment(value, source, kind, session.modes)
        if found is None and kind.is_time and not source.is_time:
            session.warn(IncorrectMoment(moment, values.as_text(value, source)[:128]))
        return found

    plain = Plain(
        "x", lambda kinds: kind, converted, gives_null=kind.is_time and not source.is_time
    )
    return called(plain, [term], session)


_Cast = tuple[Type, Callable[[Any, Type], Any]]


def _to_text(source: Type, sizes: list[int]) -> _Cast:
    length = sizes[0] if sizes else source.characters
    kind = replace(
        types.text(length, decimals=0 if source.form is not ValueForm.NULL else 39), is_exact=False
    )
    return kind, lambda value, given: values.as_text(value, given)[: sizes[0] if sizes else None]


def _to_charset(charset: str) -> Callable[[Type, list[int]], _Cast]:
    """CONVERT(... USING ...), CAST(... AS CHAR CHARACTER SET ...). Raises `UnknownCharacterSet` (1115)."""
    found = charset_named(charset)
    if found is None:
        raise UnknownCharacterSet(charset)
    if found == "binary":
        return _to_octets
    collation = default_collation(found)

    def made(source: Type, sizes: list[int]) -> _Cast:
        size = sizes[0] if sizes else None
        kind = types.text(source.characters if size is None else size)

        def convert(value: Any, given: Type) -> str:
            if isinstance(value, bytes):
                text = decode_text(value, collation)  # bytes are taken for those of such a text
                value = text if isinstance(text, str) else values.as_text(value, given)
            return values.as_said_in(values.as_text(value, given), found)[:size]

        return replace(kind, said_in="" if found in UTF8_CHARSETS else found), convert

    return made


def _to_octets(source: Type, sizes: list[int]) -> _Cast:
    length = sizes[0] if sizes else source.characters * (4 if source.form is ValueForm.TEXT else 1)
    size = sizes[0] if sizes else None
    most = min(size or 0, TEXT_CHARS_MAX)
    return types.octets(length), lambda value, given: values.as_bytes(value, given)[:size].ljust(
        most, b"\0"
    )


_BIGINT_DIGITS: Final = 20


def _digits_of(octets: int) -> int:
    """Digits of the largest number of so many bytes."""
    return len(str((1 << 8 * min(octets, 8)) - 1))


def _to_signed(source: Type, sizes: list[int]) -> _Cast:
    if source.code in (types.HYBRID, types.HEX):
        length = _digits_of(source.length)
    elif source.form in (ValueForm.TEXT, ValueForm.BYTES):
        length = max(2, source.characters)
    elif source.form is ValueForm.DOUBLE:
        length = _BIGINT_DIGITS
    else:
        length = source.length + (source.form is not ValueForm.INT)
    kind = types.integer(min(21, max(length, 1)), signed=True)
    if source.form is ValueForm.DOUBLE:
        return kind, lambda value, given: min(values.as_integer(value, given), values.I64_MAX)
    return kind, lambda value, given: _wrapped(values.as_integer(value, given), unsigned=False)


def _to_unsigned(source: Type, sizes: list[int]) -> _Cast:
    length = _BIGINT_DIGITS  # of what may be below 0, and so a large number
    if source.code in (types.HYBRID, types.HEX):
        length = _digits_of(source.length)
    elif source.form is ValueForm.NULL or (source.form is ValueForm.INT and not source.code):
        length = source.length
    kind = types.integer(min(_BIGINT_DIGITS, max(length, 1)), unsigned=True)
    is_whole = source.form in (ValueForm.INT, ValueForm.TEXT, ValueForm.BYTES)

    def convert(value: Any, given: Type) -> int:
        whole = values.as_integer(value, given)
        return _wrapped(whole if is_whole else max(0, whole), unsigned=True)

    return kind, convert


def _wrapped(value: int, *, unsigned: bool) -> int:
    if unsigned:
        return value & values.U64_MAX if value < 0 else min(value, values.U64_MAX)
    if value > values.I64_MAX:
        return value - 2**64 if value <= values.U64_MAX else values.I64_MAX
    return max(value, values.I64_MIN)


def _to_decimal(source: Type, sizes: list[int]) -> _Cast:
    digits, scale = ([*sizes, 0, 0][:2]) if sizes else (10, 0)
    if digits > types.DECIMAL_DIGITS_MAX or scale > min(digits, types.DECIMAL_SCALE_MAX):
        raise _refused(f"DECIMAL({digits},{scale})")
    most = Decimal(10) ** (digits - scale) - Decimal((0, (1,), -scale))

    def convert(value: Any, given: Type) -> Decimal:
        found = values.as_decimal(value, given)
        return values.rounded(max(-most, min(found, most)), scale)

    return types.decimal(digits, scale), convert


def _to_double(source: Type, sizes: list[int]) -> _Cast:
    return types.DOUBLE, values.as_double


def _to_moment(form: ValueForm) -> Callable[[Type, list[int]], _Cast]:
    def of(source: Type, sizes: list[int]) -> _Cast:
        has_size = bool(sizes) and form is not ValueForm.DATE
        kind = types.moment(form, min(6, sizes[0]) if has_size else 0)

        def convert(value: Any, given: Type) -> str | None:
            if form is ValueForm.TIME:
                text = values.as_text(value, given)
                span = values.time_in(text[11:] if given.form is ValueForm.DATETIME else text)
                return None if span is None else values.time_text(span, kind.decimals)
            if given.is_number and int(values.as_decimal(value, given)) == 0:
                return "0000-00-00 00:00:00.000000"[: kind.length]
            at = values.as_moment(value, given)
            if at is None:
                return None
            return values.datetime_text(at, kind.decimals)[: kind.length]

        return kind, convert

    return of


_CASTS: Final[dict[str, Callable[[Type, list[int]], _Cast]]] = {
    **dict.fromkeys(("CHAR", "VARCHAR", "NCHAR", "TEXT"), _to_text),
    **dict.fromkeys(("BINARY", "VARBINARY"), _to_octets),
    **dict.fromkeys(("BIGINT", "INT"), _to_signed),
    "UBIGINT": _to_unsigned,
    "DECIMAL": _to_decimal,
    **dict.fromkeys(("DOUBLE", "FLOAT"), _to_double),
    "DATE": _to_moment(ValueForm.DATE),
    **dict.fromkeys(("DATETIME", "TIMESTAMP", "TIMESTAMPTZ"), _to_moment(ValueForm.DATETIME)),
    "TIME": _to_moment(ValueForm.TIME),
}


@functools.lru_cache(maxsize=1024)
def _kind_of_text(length: int) -> Type:
    """The same object for all texts of a length: a list may have tens of thousands."""
    return types.text(length)


@functools.lru_cache(maxsize=64)
def _kind_of_digits(length: int) -> Type:
    """The same of integers that surely fit; a sign may be in front."""
    return types.integer(length, signed=True)


def _number(text: str) -> Term:
    if not _PLAIN_NUMBER.fullmatch(text):  # digits of other scripts
        raise SqlSyntaxError(text)
    digits = text.removeprefix("-")
    if "e" in digits.lower():
        shown, double = len(text), float(text)
        if not math.isfinite(double):
            raise IllegalValue("double", text)
        return constant(Type(ValueForm.DOUBLE, shown, 31, may_be_null=False), double)
    if "." in digits:
        whole, _, part = digits.partition(".")
        whole = whole.lstrip("0")
        if len(whole) + len(part) > types.DECIMAL_DIGITS_MAX or len(part) > types.DECIMAL_SCALE_MAX:
            raise _refused("a number of so many digits")
        size = max(1, len(whole)) + len(part)
        number = values.EXACT.create_decimal(text)
        return constant(types.decimal(size, len(part)), values.no_minus_zero(number))
    if len(digits) > types.DECIMAL_DIGITS_MAX:
        raise _refused("a number of so many digits")
    whole_number = int(text)
    if not values.I64_MIN <= whole_number <= values.U64_MAX:
        return constant(types.decimal(len(digits), 0), Decimal(whole_number))
    kind = types.integer(
        len(str(whole_number)), unsigned=whole_number > values.I64_MAX, signed=whole_number < 0
    )
    return constant(kind, whole_number)


_PLAIN_NUMBER: Final = compiled_later(
    r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?", re.IGNORECASE
)


def _number_or_text(node: Any) -> Term:
    """The amount of an INTERVAL, which sqlglot turns into a string."""
    text = node.this.strip()
    if _PLAIN_NUMBER.fullmatch(text) and "e" not in text.lower():
        return _number(text)
    return constant(types.text(len(text)), text)


def _calculated(run: Callable[[Any, Any], Any], one: Any, other: Any, kind: Type, text: str) -> Any:
    if kind.form is ValueForm.DOUBLE:
        try:
            found = run(float(one), float(other))
        except OverflowError:
            raise OutOfRange("DOUBLE", text) from None
        if found is not None and not math.isfinite(found):
            raise OutOfRange("DOUBLE", text)
        return found
    if kind.form is ValueForm.DECIMAL:
        exact: Decimal | None = run(Decimal(one), Decimal(other))  # rounded where it is shown
        if exact is not None and abs(exact) > values.DECIMAL_MAX:
            raise OutOfRange("DECIMAL", text)
        # What is smaller than any DECIMAL would have ever more digits.
        return Decimal(0) if exact and abs(exact) < _LEAST else exact
    found = run(one, other)
    if found is None:
        return None
    low, high = (0, values.U64_MAX) if kind.unsigned else (values.I64_MIN, values.I64_MAX)
    if not low <= found <= high:
        raise OutOfRange("BIGINT UNSIGNED" if kind.unsigned else "BIGINT", text)
    return found


def _add(one: Any, other: Any) -> Any:
    return values.EXACT.add(one, other) if isinstance(one, Decimal) else one + other


def _subtract(one: Any, other: Any) -> Any:
    return values.EXACT.subtract(one, other) if isinstance(one, Decimal) else one - other


def _multiply(one: Any, other: Any) -> Any:
    if not isinstance(one, Decimal):
        return one * other
    return values.no_minus_zero(values.EXACT.multiply(one, other))


def _divide(one: Any, other: Any) -> Any:
    if other == 0:
        return None
    if isinstance(one, float):
        return one / other
    # MariaDB keeps digits in groups of nine.
    digits = (
        -min(0, one.as_tuple().exponent) - min(0, other.as_tuple().exponent) + types.QUOTIENT_DIGITS
    )
    scale = -(-digits // _GROUP) * _GROUP
    found = values.cut(values.EXACT.divide(one, other), min(scale, _SCALE_MAX))
    return found or abs(found)  # there is no -0


_GROUP: Final = 9
_SCALE_MAX: Final = 81
_LEAST: Final = Decimal(1).scaleb(-_SCALE_MAX)


def _divide_whole(one: Any, other: Any) -> Any:
    if other == 0:
        return None
    if isinstance(one, int) and isinstance(other, int):
        found = abs(one) // abs(other)
        return found if (one < 0) == (other < 0) else -found
    exact = [values.as_decimal(n, types.DOUBLE) for n in (one, other)]
    return int(values.EXACT.divide(*exact)) if exact[1] else None


def _whole_quotient(left: Type, right: Type) -> Type:
    return replace(types.BIGINT, unsigned=left.unsigned or right.unsigned).nullable()


_ARITHMETIC: Final[dict[Any, tuple[Callable[[Type, Type], Type], Callable[[Any, Any], Any]]]] = {
    exp.Add: (types.sum_of, _add),
    exp.Sub: (types.sum_of, _subtract),
    exp.Mul: (types.product_of, _multiply),
    exp.Div: (types.quotient_of, _divide),
    exp.IntDiv: (_whole_quotient, _divide_whole),
    exp.Mod: (types.remainder_of, functions.remainder),
}
_BITWISE: Final[dict[Any, Callable[..., int]]] = {
    exp.BitwiseAnd: lambda a, b: a & b,
    exp.BitwiseOr: lambda a, b: a | b,
    exp.BitwiseXor: lambda a, b: a ^ b,
    exp.BitwiseNot: lambda a: ~a,
    exp.BitwiseLeftShift: lambda a, b: a << b if b < 64 else 0,
    exp.BitwiseRightShift: lambda a, b: a >> min(b, 64),
}


def _EQ(a: Any, b: Any) -> bool:
    return bool(a == b)


def _GE(a: Any, b: Any) -> bool:
    return bool(a >= b)


def _LE(a: Any, b: Any) -> bool:
    return bool(a <= b)


_COMPARISONS: Final[dict[Any, Callable[[Any, Any], bool]]] = {
    exp.EQ: _EQ,
    exp.NEQ: lambda a, b: bool(a != b),
    exp.LT: lambda a, b: bool(a < b),
    exp.GT: lambda a, b: bool(a > b),
    exp.LTE: _LE,
    exp.GTE: _GE,
}
_SIGNS: Final[dict[Any, str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">", exp.LTE: "<=", exp.GTE: ">=",
}  # fmt: skip
_WORDS: Final[dict[Any, str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "MOD",
}  # fmt: skip
"""Of arithmetic, but DIV, which takes all."""
_BIT_SIGNS: Final[dict[Any, str]] = {
    exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^", exp.BitwiseNot: "~", exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}  # fmt: skip
_ZERO: Final = types.integer(1)
_BARE: Final[dict[Any, str]] = {
    exp.CurrentTimestamp: "NOW",
    exp.Localtimestamp: "LOCALTIMESTAMP",
    exp.Localtime: "CURTIME",
    exp.CurrentDate: "CURDATE",
    exp.CurrentTime: "CURTIME",
    exp.CurrentUser: "CURRENT_USER",
    exp.CurrentRole: "CURRENT_ROLE",
}
# What gives a value that was made before; functions count what they make.
_READ: Final = frozenset(
    {exp.Literal, exp.HexString, exp.Column, exp.Parameter, exp.SessionParameter}
    | {exp.Placeholder, exp.Subquery, exp.Select}
)
_SHORT: Final = 1024  # characters of a value that is not counted
_OF_CLOCKS: Final = frozenset({"HOUR", "MINUTE", "SECOND", "MICROSECOND"})
_Maker = Callable[[_Binder, Any, Names, str], Term]
_MAKERS: Final[dict[Any, _Maker]] = {
    exp.Paren: _Binder._paren,
    exp.Literal: _Binder._literal,
    exp.Boolean: lambda binder, node, scope, place: constant(types.TRUTH, int(bool(node.this))),
    exp.Null: lambda binder, node, scope, place: constant(types.NULL, None),
    exp.HexString: _Binder._hex,
    exp.BitString: _Binder._bits,
    exp.Column: _Binder._column,
    exp.Parameter: _Binder._user_variable,
    exp.PropertyEQ: _Binder._assignment,
    exp.SessionParameter: _Binder._system_variable,
    exp.Placeholder: _Binder._parameter,
    exp.And: _Binder._conjunction,
    exp.Or: _Binder._conjunction,
    exp.Xor: _Binder._exclusive,
    exp.Not: _Binder._not,
    **dict.fromkeys(_COMPARISONS, _Binder._comparison),
    exp.NullSafeEQ: _Binder._same,
    exp.Is: _Binder._is,
    exp.Between: _Binder._between,
    exp.In: _Binder._in,
    exp.Subquery: _Binder._subquery,
    exp.Select: _Binder._subquery,
    exp.Exists: _Binder._exists,
    exp.Like: _Binder._like,
    exp.Escape: _Binder._like,
    exp.RegexpLike: _Binder._regular,
    **dict.fromkeys(_ARITHMETIC, _Binder._arithmetic),
    exp.Neg: _Binder._negative,
    **dict.fromkeys(_BITWISE, _Binder._bitwise),
    exp.Anonymous: _Binder._call,
    exp.GroupConcat: _Binder._concat_of_group,
    exp.Case: _Binder._case,
    exp.If: _Binder._if,
    exp.Concat: _Binder._strings,
    exp.StrPosition: _Binder._position,
    exp.Substring: _Binder._substring,
    exp.Trim: _Binder._trim,
    exp.Extract: _Binder._extract,
    exp.Cast: _Binder._cast,
    exp.Collate: _Binder._collate,
    exp.Introducer: _Binder._introduced,
    **dict.fromkeys(_BARE, _Binder._bare),
}
_CHANGE_PARTS: Final = {
    exp.Insert: frozenset(("this", "expression", "conflict", "returning")),
    exp.Update: frozenset(("this", "expressions", "where", "order", "limit")),
    exp.Delete: frozenset(("this", "where", "order", "limit", "returning")),
    exp.Select: frozenset(("expressions", "from_", "where", "order", "limit", "locks")),
}
_UNSET: Final = Type(ValueForm.BYTES, 1 << 24, 39, code=ColumnType.LONG_BLOB)


def _refused(what: str) -> ServerError:
    return NotSupportedYet(f"{what}, in a statement that is computed here")


def _side(join: Any) -> str:
    return (join.side or "").upper()


def _in_common(scope: Names, at: int) -> list[str]:
    """The columns by which a NATURAL JOIN joins a source to those in front of it."""
    theirs = {name.lower() for name in scope.sources[at].names}
    return list(
        dict.fromkeys(
            name.lower()
            for source in scope.sources[:at]
            for name in source.names
            if name.lower() in theirs - source.merged
        )
    )


def _flat(node: Any, kind: Any) -> list[Any]:
    """The operands of a chain of AND or OR, without recursion."""
    found: list[Any] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if type(one) is kind:
            waiting += [one.expression, one.this]
        else:
            found.append(one)
    return found


def _flat_left(node: Any, operators: Any) -> list[tuple[Any, Any]]:
    """A chain of operators from the left, as (operator, operand); of the first there is no operator."""
    found: list[tuple[Any, Any]] = []
    while (
        type(node) in operators
        and not isinstance(node.expression, exp.Interval)
        and not isinstance(node.this, exp.Interval)
    ):
        found.append((type(node), node.expression))
        node = node.this
    found.append((None, node))
    return found[::-1]


def _is_down(item: Any) -> bool:
    return isinstance(item, exp.Ordered) and bool(item.args.get("desc"))


def _require_bare(table: Any, verb: str) -> None:
    """Raises `NotSupportedYet` (1235) for a table that is more than its name and an alias."""
    known = ("this", "db", "alias") if verb != "insert" else ("this", "db")
    if any(part and name not in known for name, part in table.args.items()):
        raise _refused(f"{verb.upper()} of more than a table")


def _column_number(node: Any, source: Source, place: str) -> int:
    """The number of the column of a table that is to be changed."""
    name = node.name
    is_other = isinstance(node, exp.Column) and node.table.lower() not in ("", source.alias.lower())
    found = [i for i, own in enumerate(source.names) if own.lower() == name.lower()]
    if is_other or not found:
        raise UnknownColumn(f"{node.table}.{name}" if is_other else name, place)
    return found[0]


def _by_position(node: Any, outputs: Sequence[Output]) -> Term | None:
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdecimal():
        return None
    at = int(node.this[:9])
    if not 1 <= at <= len(outputs):
        raise UnknownColumn(node.this, "ORDER BY")
    return outputs[at - 1].term


def _named(name: str, term: Term) -> Output:
    return Output(name, term.kind, term)


def _column_output(current: list[Sequence[Any]], at: int, i: int, name: str, kind: Type) -> Output:
    return Output(name, kind, Term(kind, lambda: current[at][i]))


def _nullable(kind: Type) -> Type:
    column = kind.column
    if column is not None:
        column = replace(column, flags=column.flags & ~1)
    return replace(kind, may_be_null=True, column=column)


def _of_derived(output: Output, alias: str) -> Type:
    column = output.kind.wire(output.name)
    flags = column.flags & ~FLAG_BINARY if output.kind.is_number else column.flags
    column = replace(
        column,
        table=alias,
        original_table="",
        schema="",
        name=output.name,
        original_name="",
        flags=flags,
    )
    return replace(output.kind, column=column)


def _aggregates(select: Any) -> bool:
    """Whether functions over groups stand in a SELECT itself."""
    parts = [*select.expressions, select.args.get("having"), select.args.get("order")]
    waiting = [part for part in parts if part is not None]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.GroupConcat):
            return True
        if isinstance(node, exp.Anonymous) and node.name.upper() in AGGREGATES:
            return True
        if not isinstance(node, exp.Query):
            waiting += node.iter_expressions()
    return False


def _has_modifiers(node: Any) -> bool:
    return any(node.args.get(key) for key in ("order", "limit", "offset"))
