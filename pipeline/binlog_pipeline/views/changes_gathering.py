"""Groups on their way to rows: gathered until there is enough to be made into columns at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.gtid import Gtid
from binlog_protocol.row_columns import (
    Changes,
    DamagedGroup,
    Events,
    RowDecoder,
    UnrepresentableValue,
    event_runs,
    walk_groups,
)
from binlog_protocol.row_columns.row_bytes import RowBytes
from binlog_storage.ibb.chunk import Position

from binlog_pipeline.errors import SourceError
from binlog_pipeline.groups import Groups, Integers
from binlog_pipeline.schemas.logged_statements import (
    STATEMENT_TYPES,
    LoggedStatement,
    has_no_effect_yet,
)

GATHER_BYTES: Final = 4 << 20
_GATHER_GROUPS: Final = 1 << 18  # in which there are few rows that are wanted
_IS_STATEMENT: Final = np.zeros(256, np.bool_)
_IS_STATEMENT[list(STATEMENT_TYPES)] = True
_OPTION: Final = re.compile(r"_([a-z])(?=[a-z_]*=)")
_COMMIT: Final = b"\0COMMIT"


class Heads:
    """The beginnings of consecutive groups. Element 0 is of the group that the decoder knows as `first`."""

    def __init__(self, first: int, groups: Iterable[tuple[Integers, ...]]) -> None:
        self.first: Final = first
        columns = [np.concatenate(parts) for parts in zip(*groups, strict=True)]
        self.domain, self.server, self.seq, self.file, self.offset, self.timestamp = columns

    def gtid(self, index: int) -> Gtid:
        """The GTID of one group."""
        return Gtid(int(self.domain[index]), int(self.server[index]), int(self.seq[index]))

    def place(self, index: int) -> Position:
        """The end of one group."""
        return Position(int(self.file[index]), int(self.offset[index]))


class PlacedStatement(NamedTuple):
    """`group` as the decoder counts; `is_split`: rows of the group may have been given out before."""

    group: int
    event: int
    statement: LoggedStatement
    is_split: bool


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Rows of consecutive groups, sorted by their shapes, the statements among them, and the heads of the groups."""

    changes: list[Changes]
    statements: list[PlacedStatement]
    heads: Heads

    def gtid(self, placed: PlacedStatement) -> Gtid:
        """The GTID of a statement's group."""
        return self.heads.gtid(placed.group - self.heads.first)

    def place(self, placed: PlacedStatement) -> Position:
        """The end of a statement's group."""
        return self.heads.place(placed.group - self.heads.first)


def gathered(
    groups: Iterable[Groups],
    decoder: RowDecoder,
    at_least: int = GATHER_BYTES,
    *,
    with_statements: bool = False,
) -> Iterator[GatheredRows]:
    """All rows, about so many bytes of row images at once; what is given first lies before what comes next.

    Of a large group a piece is held. Raises `SourceError` for damaged rows, and for values that the type of their
    column cannot hold.
    """
    held: list[tuple[Integers, ...]] = []
    statements: list[PlacedStatement] = []
    first = number = 0
    for some in groups:
        held.append(some.columns)
        for run in _runs(some):
            with _placed(held, first):
                data, events = walk_groups(run, number)
                decoder.add_events(data, events, len(run), number)
                if with_statements:
                    is_split = some.large is not None
                    statements += _statements(data, events, number, is_split=is_split)
                if decoder.gathered_bytes < at_least and number - first < _GATHER_GROUPS:
                    continue
                changes = decoder.take()
            yield GatheredRows(changes, statements, Heads(first, held))
            held, first, statements = held[-1:], number, []
        number += len(some)
    if held:
        with _placed(held, first):
            changes = decoder.take()
        yield GatheredRows(changes, statements, Heads(first, held))


def _runs(groups: Groups) -> Iterator[list[bytes]]:
    if groups.large is None:
        yield list(groups.payloads)
        return
    for run in event_runs(groups.pieces(0)):
        yield [run]


def _statements(
    data: RowBytes, events: Events, first: int, *, is_split: bool
) -> Iterator[PlacedStatement]:
    for i in np.flatnonzero(_IS_STATEMENT[events.type]).tolist():
        event = data.raw[events.begin[i] : events.end[i]]
        if not event.endswith(_COMMIT):
            group, number = first + int(events.group[i]), int(events.number[i])
            try:
                said = LoggedStatement.parse(event)
                if number == 1 and said.meaning.kind == "alter":
                    begin = data.raw[events.begin[i - 1] : events.end[i - 1]]
                    if has_no_effect_yet(begin):
                        continue
                yield PlacedStatement(group, number, said, is_split)
            except ProtocolError as error:
                raise DamagedGroup(str(error), group, number) from None


@contextmanager
def _placed(held: list[tuple[Integers, ...]], first: int) -> Iterator[None]:
    """The decoder counts groups; a user knows them by their GTIDs."""
    try:
        yield
    except DamagedGroup as error:
        gtid = Heads(first, held).gtid(error.group - first)
        raise SourceError(
            f"group {gtid}: {error}; the log is damaged there, or of a kind unknown here"
        ) from None
    except ProtocolError as error:
        raise SourceError(str(error)) from None
    except UnrepresentableValue as error:
        # Its options are written in another way here: zero_date=null is zeroDate=null.
        raise SourceError(_OPTION.sub(lambda found: found[1].upper(), str(error))) from None
