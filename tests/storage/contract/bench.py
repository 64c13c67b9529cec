"""What the parts of the engine contract share: the bench that an engine is put on, and ways to look at it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.engine import BinlogEngine

from tests.storage.groups import Group, append_all, payloads, read_from, state_after, wanted

FILE_BYTES = 4 * 16384  # of the smallest file there may be; engines under test should use it


class Bench(Protocol):
    """A place where one store lives, and what happens to it from outside."""

    def open(self) -> BinlogEngine:
        """Open the store, or begin it. The engine before was closed or crashed."""

    def crash(self) -> None:
        """The process of the open engine dies. Only what was durable is sure to stay."""

    def break_disk(self) -> None:
        """From now on every sync of the open engine fails."""

    def purge(self) -> None:
        """Remove the oldest part of the closed store, of a store of more than `3 * FILE_BYTES`."""


def position(*gtids: Gtid) -> SlavePosition:
    return SlavePosition(gtids)


def received(engine: BinlogEngine, at: SlavePosition) -> list[bytes]:
    """What a replica at that position gets."""
    start = engine.find_start(at)
    return list(wanted(read_from(engine, start.position), at, start.state))


def expected(groups: Sequence[Group], at: SlavePosition) -> list[bytes]:
    """The same by a plain walk over what was appended."""
    return list(wanted(payloads(groups), at, state_after(())))


def pieces_of(data: bytes, count: int) -> list[bytes]:
    """`data` in that many pieces, of rising size."""
    cuts = [len(data) * n * n // (count * count) for n in range(count + 1)]
    return [data[a:b] for a, b in itertools.pairwise(cuts)]


def filled(bench: Bench, groups: Sequence[Group]) -> BinlogEngine:
    engine = bench.open()
    append_all(engine, groups)
    engine.sync()
    return engine
