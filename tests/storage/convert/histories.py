"""Stores of both formats on disks in memory, with histories of every kind, and roads between them."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.convert.stores import store_source, take_rest
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import BinlogEngine
from binlog_storage.errors import DomainInUse
from binlog_storage.ibb.xa import Xid
from binlog_storage.intake.intake import Intake, Taken
from binlog_storage.intake.source import StoreSource
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.binlog_server.cli.command import copy_to
from tests.storage.classic import binlog_files
from tests.storage.groups import Group, marker
from tests.storage.sizes import small

FORMATS: Final = ("ibb", "classic")
OTHER: Final = {"ibb": "classic", "classic": "ibb"}
_SIZES: Final = (0, 30, 700, 20_000, 300_000, 1_500_000)


def opened(format_: str, disk: Disk) -> BinlogEngine:
    if format_ == "ibb":
        options = small(8, slave_connections_needed_for_purge=0)
        return IbbEngine(disk, options, facts=StateStore(disk))
    files = ClassicOptions(max_binlog_size=1 << 16, slave_connections_needed_for_purge=0)
    return ClassicEngine(disk, files)


class History:
    """Random steps of a store: groups of all sizes, markers, XA, FLUSH with and without domains, purges."""

    def __init__(self, engine: BinlogEngine, rng: random.Random) -> None:
        self._engine = engine
        self._rng = rng
        self._seq_nos: dict[int, int] = {}
        self._xids = 0
        if rng.random() < 0.5:
            engine.reset(BinlogState([Gtid(0, 9, 40), Gtid(0, 1, 41), Gtid(8, 1, 3)]))
            self._seq_nos[0] = 41
        self._steps: list[tuple[Callable[[], object], int]] = [
            (self._group, 10),
            (self._marker, 2),
            (self._prepare, 2),
            (self._end_prepared, 1),
            (self._flush, 1),
            (self._forget, 1),
            (self._purge, 1),
        ]

    def run(self, steps: int) -> None:
        works, weights = zip(*self._steps, strict=True)
        for work in self._rng.choices(works, weights, k=steps):
            work()
            if isinstance(self._engine, IbbEngine):
                self._engine.sync()
                while self._engine.step():
                    pass

    def _next(self) -> Gtid:
        domain = self._rng.choice([0, 0, 0, 1, 2])
        self._seq_nos[domain] = self._seq_nos.get(domain, 0) + self._rng.choice([1, 1, 1, 5])
        return Gtid(domain, self._rng.choice([1, 1, 7]), self._seq_nos[domain])

    def _made(self) -> Group:
        gtid = self._next()
        if self._rng.random() < 0.2:
            return binlog_files.standalone(gtid)
        size = self._rng.choices(_SIZES, (6, 6, 4, 2, 1, 1))[0]
        return binlog_files.group(gtid, size, self._rng.choice([300, 8192, 2 << 20]))

    def _group(self) -> None:
        payload, gtid = self._made()
        assert gtid is not None
        if len(payload) <= self._engine.cache_bytes:
            self._engine.append(payload, gtid)
            return
        writer = self._engine.begin()
        at = int.from_bytes(payload[9:13], "little")
        self._spill(writer.spill, payload[at:])
        writer.commit(payload[:at], gtid)

    def _spill(self, spill: Callable[[bytes], None], data: bytes) -> None:
        for at in range(0, len(data), 50_000):
            if isinstance(self._engine, IbbEngine):
                while not self._engine.has_room_to_spill and self._engine.step():
                    pass
            spill(data[at : at + 50_000])

    def _marker(self) -> None:
        self._engine.append(marker(self._rng.randrange(1000)).payload, None)

    def _prepare(self) -> None:
        self._xids += 1
        writer = self._engine.begin()
        events = binlog_files.group(Gtid(0, 1, 1), self._rng.choice(_SIZES), 8192).payload
        at = int.from_bytes(events[9:13], "little")
        self._spill(writer.spill, events[at:])
        writer.prepare(Xid(self._rng.choice([1, 77]), b"xa%d" % self._xids, b"b"))

    def _end_prepared(self) -> None:
        if waiting := self._engine.prepared():
            xid = self._rng.choice(waiting)
            if self._rng.random() < 0.5:
                self._engine.rollback_prepared(xid)
            else:
                gtid = self._next()
                payload = binlog_files.group(gtid).payload
                head = payload[: int.from_bytes(payload[9:13], "little")]
                self._engine.commit_prepared(xid, head, gtid)

    def _flush(self) -> None:
        self._engine.flush()

    def _forget(self) -> None:
        with contextlib.suppress(DomainInUse):
            self._engine.flush([8])

    def _purge(self) -> None:
        files = self._engine.files()
        self._engine.purge_to(self._rng.choice(files).number)


class Interrupted(Exception):
    """The process was killed."""


@contextlib.contextmanager
def source_of(disk: MemoryDisk) -> Iterator[StoreSource]:
    """The files of a closed store, as it lies."""
    with tempfile.TemporaryDirectory() as folder:
        source = store_source(copy_to(disk, Path(folder)))
        try:
            yield source
        finally:
            source.close()


def take(format_: str, source: StoreSource, disk: MemoryDisk, kill_at: int | None = None) -> Taken:
    """One run of a conversion into a disk. With `kill_at` it is killed at that step."""
    steps = 0

    def progress(taken: Taken) -> None:
        nonlocal steps
        steps += 1
        if steps == kill_at:
            disk.kill()
            raise Interrupted

    engine = opened(format_, disk)
    taken = Intake(engine, source, progress).run()
    take_rest(engine, source)
    engine.close()
    return taken
