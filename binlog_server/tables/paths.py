"""How the rows of a table here are found: by ranges of the primary key or of a unique one, where conditions say it.

A path gives all rows for which the conditions may hold, and perhaps others: each row is looked at all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadValue
from binlog_protocol.events.table_map import KeyPart
from binlog_protocol.tables.definition import StoredKey

from binlog_server.queries.terms import Said, Wish
from binlog_server.tables.held import HeldTable, Index

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS: Final = ("char", "varchar")
_ORDERED: Final = (*_INTEGERS, *_TEXTS, "decimal", "date", "datetime")
_SPANS_MAX: Final = (
    1 << 15
)  # a row that is found by its key takes no longer than one that is gone through


class Span(NamedTuple):
    """Keys from `low` on, in front of `high`; without that to the end. `is_point`: the key `low` alone."""

    low: bytes = b""
    high: bytes | None = None
    is_point: bool = False


class Entry(NamedTuple):
    """A key of an index, and the primary key of its row.

    is_hidden: the view has it, and the transaction has put its own in its place since. The row may still be there with
        these values: another transaction had taken them from it, which the view does not know.
    """

    key: bytes
    primary: bytes
    is_hidden: bool = False


class Keyed(Protocol):
    """What rows are read from: a transaction, or what one sees by a view."""

    def one(self, table: HeldTable, number: int, key: bytes) -> bytes | None:
        """A row of a table of the store: that of a table here, or of an index of it."""

    def some(
        self, table: HeldTable, number: int, low: bytes, high: bytes | None, *, is_down: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows in the order of their keys."""

    def entries(
        self, table: HeldTable, number: int, span: Span, *, is_down: bool
    ) -> Iterator[Entry]:
        """Entries of an index in the order of their keys, those of one key in the order of primary keys."""


@dataclass(frozen=True, slots=True)
class Path:
    """Spans of an index, or of the primary key.

    is_ordered: rows come in the order that was wished for.
    columns: those that decide which rows these are.
    """

    index: Index | None = None
    spans: Sequence[Span] = (Span(),)
    is_down: bool = False
    is_ordered: bool = False
    columns: frozenset[int] = field(default_factory=frozenset)

    @property
    def takes_all(self) -> bool:
        """Whether no condition bounds it."""
        return list(self.spans) == [Span()]

    def rows(self, table: HeldTable, source: Keyed) -> Iterator[tuple[bytes, bytes]]:
        """Primary keys and rows."""
        for span in self.spans:
            low, high, is_point = span
            if self.index is not None:
                yield from self._by(self.index, table, source, span)
            elif not is_point:
                yield from source.some(table, table.number, low, high, is_down=self.is_down)
            elif (row := source.one(table, table.number, low)) is not None:
                yield low, row

    def _by(
        self, index: Index, table: HeldTable, source: Keyed, span: Span
    ) -> Iterator[tuple[bytes, bytes]]:
        for entry in source.entries(table, index.number, span, is_down=self.is_down):
            row = source.one(table, table.number, entry.primary)
            if row is None:
                continue
            if entry.is_hidden:
                values = table.format.split(row)
                if table.entry(index, values, entry.primary) != entry.key:
                    continue  # the transaction has changed the row as well: it has another entry, or none
            yield entry.primary, row


ALL_ROWS: Final = Path()
"""All of them, by the primary key."""


def path_of(table: HeldTable, said: Mapping[str, Said], wish: Wish | None = None) -> Path:
    """The best path for conditions, and for an order where no condition helps."""
    best, best_score = _path(table, None, said, wish)
    for index in table.indexes:
        path, score = _path(table, index, said, wish)
        if score > best_score:
            best, best_score = path, score
    return best


_Score = tuple[bool, int, bool, bool]


def _path(
    table: HeldTable, index: Index | None, said: Mapping[str, Said], wish: Wish | None
) -> tuple[Path, _Score]:
    key = table.key if index is None else index.key
    if not key.parts:
        return ALL_ROWS, (False, 0, False, False)
    columns = table.definition.columns
    names = [columns[part.column].name.lower() for part in key.parts]
    equal: list[list[bytes]] = []
    fixed: list[str] = []
    for name, part in zip(names, key.parts, strict=True):
        known = said.get(name)
        values = None if known is None else known.values
        made = None if values is None else [_key(table, part, value) for value in values]
        if made is None or any(one is None for one in made):
            break
        if len(made) * _product(equal) > _SPANS_MAX:
            break
        equal.append(sorted({one for one in made if one is not None}))
        fixed += [name] if len(equal[-1]) == 1 and not part.prefix else []
    heads = [b"".join(parts) for parts in itertools.product(*equal)]
    is_whole = len(equal) == len(key.parts)
    low = high = None
    if not is_whole and (known := said.get(names[len(equal)])) is not None:
        part = key.parts[len(equal)]
        low = None if known.low is None else _key(table, part, known.low)
        high = None if known.high is None else _key(table, part, known.high)
    has_range = low is not None or high is not None
    spans = [
        Span(head, is_point=True)
        if is_whole
        else Span(head + (low or b""), _behind(head if high is None else head + high))
        for head in heads
    ]
    is_ordered = wish is not None and len(spans) == 1 and _gives(table, key, names, fixed, wish)
    used = key.parts[: len(equal) + has_range]
    is_down = is_ordered and wish is not None and wish.is_down
    of_order = {part.column for part in key.parts} if is_ordered else set()
    path = Path(
        index, spans, is_down, is_ordered, frozenset({part.column for part in used} | of_order)
    )
    return path, (is_whole, len(equal), has_range, is_ordered)


def _product(equal: Sequence[Sequence[bytes]]) -> int:
    count = 1
    for one in equal:
        count *= len(one)
    return count


def _gives(
    table: HeldTable, key: StoredKey, names: Sequence[str], fixed: Sequence[str], wish: Wish
) -> bool:
    """Whether the order of a key is the one that is wished for."""
    columns = table.definition.columns
    left = [(name, part) for name, part in zip(names, key.parts, strict=True) if name not in fixed]
    wanted = [name for name in wish.columns if name not in fixed]
    return len(wanted) <= len(left) and all(
        name == own and not part.prefix and columns[part.column].type.name in _ORDERED
        for name, (own, part) in zip(wanted, left, strict=False)
    )


def _key(table: HeldTable, part: KeyPart, value: int | str) -> bytes | None:
    """The bytes of a value in a key; None if it is not surely one that the column is compared with as it is."""
    column = table.definition.columns[part.column]
    is_usable = (isinstance(value, int) and column.type.name in _INTEGERS) or (
        isinstance(value, str) and column.type.name in _TEXTS
    )
    if not is_usable:
        return None
    parts: list[bytes | None] = [None] * len(table.definition.columns)
    try:
        parts[part.column] = table.format.value(part.column, value)
        return table.format.key(tuple(parts), StoredKey("", table.key.kind, (part,)))
    except BadValue:
        return None


def _behind(head: bytes) -> bytes | None:
    """The first key behind all that begin so; None if there is none."""
    head = head.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None
