"""Groups on their way to rows: gathered until there is enough to be made into columns at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipeline.errors import SourceError
from pipeline.groups import Groups, Integers
from protocol.errors import ProtocolError
from protocol.gtid import Gtid
from protocol.row_columns import Changes, RowDecoder, UnrepresentableValue, event_runs
from storage.ibb.chunk import Position

GATHER_BYTES: Final = 4 << 20
_GATHER_GROUPS: Final = 1 << 18  # in which there are few rows that are wanted
_NUMBER: Final = re.compile(r"group (\d+)")
_COLUMNS: Final = ("domain", "server", "seq", "file", "offset", "timestamp")


class Heads:
    """What the beginnings of consecutive groups say. Element 0 is of the group that the decoder knows as `first`."""

    def __init__(self, first: int, groups: Iterable[tuple[Integers, ...]]) -> None:
        self.first: Final = first
        columns = [np.concatenate(parts) for parts in zip(*groups, strict=True)]
        self.domain, self.server, self.seq, self.file, self.offset, self.timestamp = columns

    def gtid(self, index: int) -> Gtid:
        """Of one."""
        return Gtid(int(self.domain[index]), int(self.server[index]), int(self.seq[index]))

    def place(self, index: int) -> Position:
        """Where one ends."""
        return Position(int(self.file[index]), int(self.offset[index]))


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of consecutive groups, sorted by their shapes, and what is known of the groups."""

    changes: list[Changes]
    heads: Heads


def gathered(
    groups: Iterable[Groups], decoder: RowDecoder, at_least: int = GATHER_BYTES
) -> Iterator[Gathered]:
    """All rows, about so many bytes of row images at once; what is given first lies before what comes next.

    Of a large group a piece is held. Raises `SourceError` for damaged rows, and for values that the type of their
    column cannot hold.
    """
    held: list[tuple[Integers, ...]] = []
    first = number = 0
    for some in groups:
        held.append(tuple(getattr(some, name) for name in _COLUMNS))
        for run in _runs(some):
            with _placed(held, first):
                decoder.add(run, number)
                if decoder.gathered_bytes < at_least and number - first < _GATHER_GROUPS:
                    continue
                changes = decoder.take()
            yield Gathered(changes, Heads(first, held))
            held, first = held[-1:], number
        number += len(some)
    if held:
        with _placed(held, first):
            changes = decoder.take()
        yield Gathered(changes, Heads(first, held))


def _runs(groups: Groups) -> Iterator[list[bytes]]:
    if groups.large is None:
        yield list(groups.payloads)
        return
    for run in event_runs(groups.pieces(0)):
        yield [run]


@contextmanager
def _placed(held: list[tuple[Integers, ...]], first: int) -> Iterator[None]:
    """The decoder counts groups; a user knows them by their GTIDs."""
    try:
        yield
    except ProtocolError as error:
        heads = Heads(first, held)
        text = _NUMBER.sub(lambda found: f"group {heads.gtid(int(found[1]) - first)}", str(error))
        raise SourceError(f"{text}: the log is damaged there, or of a kind unknown here") from None
    except UnrepresentableValue as error:
        raise SourceError(str(error)) from None
