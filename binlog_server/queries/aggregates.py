"""Functions over the rows of a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from binlog_protocol.errors import CutValue, WrongParameterCount
from binlog_protocol.events.column_type import ColumnType

from binlog_server.queries import types, values
from binlog_server.queries.order import long_texts, marked, ordered
from binlog_server.queries.terms import Asker, Term, settled
from binlog_server.queries.types import Type, ValueForm

_BLOB_CHARS: Final = 16_384  # of a GROUP_CONCAT that is a BLOB, and declared four times as long


class Aggregate:
    """One aggregate of a SELECT: a state for each group, and the group's result while its row is made."""

    def __init__(
        self, kind: Type, terms: Sequence[Term], session: Asker, *, is_distinct: bool
    ) -> None:
        self.result: Any = None
        self.term: Final = Term(kind, lambda: self.result)
        self.terms: Final = terms
        self.is_distinct: Final = is_distinct
        self._session = session
        self._keys = [values.sort_key(term.kind) for term in terms]

    def begin(self) -> Any:
        """The state of a group without rows."""
        return [self.first(), set()]

    def take(self, state: Any) -> None:
        """A row more: the terms read it. Rows with NULL do not count."""
        row = [term.value() for term in self.terms]
        if None in row:
            return
        if self.is_distinct:
            mark = marked(row, self._keys)
            if mark in state[1]:
                return
            self._session.budget.make(100 + long_texts(mark))
            state[1].add(mark)
        state[0] = self.more(state[0], row)

    def end(self, state: Any) -> Any:
        """The result of a group."""
        return self.last(state[0])

    def first(self) -> Any:
        """What is collected of no rows."""
        return None

    def more(self, collected: Any, row: list[Any]) -> Any:
        """What is collected with a row more."""
        raise NotImplementedError

    def last(self, collected: Any) -> Any:
        """The result."""
        return collected


class _Count(Aggregate):
    def first(self) -> Any:
        return 0

    def more(self, collected: Any, row: list[Any]) -> Any:
        return collected + 1


class _Extreme(Aggregate):
    is_greatest = True

    def more(self, collected: Any, row: list[Any]) -> Any:
        if collected is None:
            return row[0]
        key = values.comparable(self.term.kind, self.term.kind)[0]
        is_more = key(row[0]) > key(collected)
        return (
            row[0] if is_more is self.is_greatest and key(row[0]) != key(collected) else collected
        )


class _Least(_Extreme):
    is_greatest = False


class _Sum(Aggregate):
    def more(self, collected: Any, row: list[Any]) -> Any:
        total, count = collected or (0, 0)
        number = values.as_number(row[0], self.terms[0].kind)
        if self.term.kind.form is ValueForm.DOUBLE:
            return total + float(number), count + 1
        return values.EXACT.add(Decimal(total), Decimal(number)), count + 1

    def last(self, collected: Any) -> Any:
        if collected is None:
            return None
        found = self.told(*collected)
        return found if isinstance(found, float) else values.rounded(found, self.term.kind.decimals)

    def told(self, total: Any, count: int) -> Any:
        """The result, of the sum and the number of rows."""
        return total


class _Mean(_Sum):
    def told(self, total: Any, count: int) -> Any:
        if isinstance(total, float):
            return total / count
        return values.EXACT.divide(total, Decimal(count))


class _Joined(Aggregate):
    order: Sequence[tuple[Term, bool]] = ()
    mark = ","

    def more(self, collected: Any, row: list[Any]) -> Any:
        text = "".join(values.as_text(v, t.kind) for v, t in zip(row, self.terms, strict=True))
        self._session.budget.make(len(text) + len(self.mark) + 64)
        found = collected or []
        found.append((text, tuple([term.value() for term, _ in self.order])))
        return found

    def last(self, collected: Any) -> Any:
        if collected is None:
            return None
        most = self._session.concat_bytes
        found = bytearray()
        in_order = ordered(collected, self.order, self._session.budget)
        for number, (text, _) in enumerate(in_order, 1):
            piece = text if number == 1 else self.mark + text
            found += piece.encode("utf-8", "surrogateescape")
            if len(found) > most:
                self._session.has_too_long = True
                self._session.warn(CutValue(number, "group_concat()"))
                break
        if self.term.kind.form is ValueForm.BYTES:
            return bytes(found[:most])
        return found[:most].decode("utf-8", "ignore" if len(found) > most else "surrogateescape")


Make = Callable[[str, Sequence[Term], bool, Asker], Aggregate]


def _count(name: str, terms: Sequence[Term], is_distinct: bool, session: Asker) -> Aggregate:
    return _Count(types.BIGINT, terms, session, is_distinct=is_distinct)


def _of_one(make: Callable[..., Aggregate], kind: Callable[[Type], Type]) -> Make:
    def made(name: str, terms: Sequence[Term], is_distinct: bool, session: Asker) -> Aggregate:
        if len(terms) != 1:
            raise WrongParameterCount(name)
        if kind in (types.mean_of, types.spread_of):
            session.require_quotient_digits()
        return make(kind(terms[0].kind), terms, session, is_distinct=is_distinct)

    return made


def _extreme(make: Callable[..., Aggregate]) -> Make:
    one = _of_one(make, lambda kind: replace(kind.computed(), may_be_null=True))
    return lambda name, terms, is_distinct, session: one(
        name, [settled(term) for term in terms], is_distinct, session
    )


def group_concat(
    terms: Sequence[Term],
    order: Sequence[tuple[Term, bool]],
    mark: str,
    is_distinct: bool,
    session: Asker,
) -> Aggregate:
    """GROUP_CONCAT."""
    most = session.concat_bytes
    kind = types.text(most if most < _BLOB_CHARS else 4 * most, decimals=0).nullable()
    if types.are_octets([term.kind for term in terms]):
        kind = types.octets(most).nullable()
    if most >= _BLOB_CHARS:
        kind = replace(kind, code=ColumnType.BLOB)
    made = _Joined(kind, terms, session, is_distinct=is_distinct)
    made.order, made.mark = order, mark
    return made


class _Spread(Aggregate):
    """Variance, by Welford's way: the mean and the sum of squares of what is off it, with each row."""

    is_sample = is_root = False

    def first(self) -> Any:
        return 0, 0.0, 0.0

    def more(self, collected: Any, row: list[Any]) -> Any:
        count, mean, squares = collected
        number = float(values.as_number(row[0], self.terms[0].kind))
        off = number - mean
        mean += off / (count + 1)
        return count + 1, mean, squares + off * (number - mean)

    def last(self, collected: Any) -> Any:
        count, _, squares = collected
        if count <= self.is_sample:
            return None
        found = squares / (count - self.is_sample)
        if not math.isfinite(found):  # no DOUBLE says it
            return None
        return math.sqrt(found) if self.is_root else found


class _SampleSpread(_Spread):
    is_sample = True


class _Deviation(_Spread):
    is_root = True


class _SampleDeviation(_Spread):
    is_sample = is_root = True


class _Bits(Aggregate):
    """BIT_OR; of no rows the number that changes nothing."""

    neutral = 0

    def first(self) -> Any:
        return self.neutral

    def more(self, collected: Any, row: list[Any]) -> Any:
        number = values.as_number(row[0], self.terms[0].kind)
        if self.terms[0].kind.is_time:
            number = int(number)
        is_float = isinstance(number, float)
        whole = round(number) if is_float else int(values.rounded(Decimal(number), 0))
        bits = max(values.I64_MIN, min(whole, values.U64_MAX)) & values.U64_MAX
        return self.joined(collected, bits)

    def joined(self, one: int, other: int) -> int:
        """Two numbers as one."""
        return one | other


class _AllBits(_Bits):
    neutral = values.U64_MAX

    def joined(self, one: int, other: int) -> int:
        return one & other


class _OddBits(_Bits):
    def joined(self, one: int, other: int) -> int:
        return one ^ other


def _bits(kind: Type) -> Type:
    return types.UNSIGNED_BIGINT


AGGREGATES: Final[dict[str, Make]] = {
    "COUNT": _count,
    "MAX": _extreme(_Extreme),
    "MIN": _extreme(_Least),
    "SUM": _of_one(_Sum, types.total_of),
    "AVG": _of_one(_Mean, types.mean_of),
    **dict.fromkeys(("VARIANCE", "VAR_POP"), _of_one(_Spread, types.spread_of)),
    "VAR_SAMP": _of_one(_SampleSpread, types.spread_of),
    **dict.fromkeys(("STD", "STDDEV", "STDDEV_POP"), _of_one(_Deviation, types.spread_of)),
    "STDDEV_SAMP": _of_one(_SampleDeviation, types.spread_of),
    "BIT_AND": _of_one(_AllBits, _bits),
    "BIT_OR": _of_one(_Bits, _bits),
    "BIT_XOR": _of_one(_OddBits, _bits),
}
OF_NUMBERS: Final = AGGREGATES.keys() - {"COUNT", "MAX", "MIN"}
