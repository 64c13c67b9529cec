"""Rows on the disk: the snapshot file and the records of tables in the redo log, damaged.

What must be true: a start says so in an error of ours, and has changed nothing then; or it opens with rows that a
transaction has left, all of one moment; of a store that was closed, with its newest. What is written then is there
after the next start. Where checksums are made right again only errors of ours may come.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Mapping, Sequence
from typing import Final

import google_crc32c
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.transaction import Transaction
from binlog_storage.disk.state import STATE_NAME, StateStore
from binlog_storage.errors import StorageError
from binlog_storage.ibb.xa import Xid
from binlog_storage.redo.format import REDO_NAME
from binlog_storage.tables.snapshot import TABLES_NAME
from binlog_storage.tables.store import TableTransaction
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.fuzz.target import Wrong
from tests.fuzz.targets.stores import OPTIONS, Base, Contents, Stores, reseal
from tests.protocol.statement_groups import transaction_group

TABLE: Final = 1024
_KEYS: Final = 20
_HEADER_BYTES: Final = 48  # of a snapshot, and a checksum behind it
_BLOCK: Final = struct.Struct("<II")
_XID: Final = Xid(1, b"prepared")
_LAST: Final = b"a row behind the damage"
Rows = dict[bytes, bytes]


class RowBase(Base):
    """A store with rows: `states` are those that it had behind each transaction, the newest last."""

    def __init__(
        self, contents: Mapping[str, bytes], states: Sequence[Rows], *, whole: bool
    ) -> None:
        super().__init__(contents, [], whole=whole)
        self.states: Final = list(states)


def _committed(engine: IbbEngine, t: TableTransaction, number: int) -> None:
    gtid = Gtid(0, 1, number)
    payload = transaction_group(gtid, ["x"], xid=number, timestamp=1_700_000_000)
    size = int.from_bytes(payload[9:13], "little")
    group = Transaction(engine.writer_of(t))
    group.write(payload[size:])
    if number % 7 == 0:
        group.prepare(_XID)
        engine.commit_prepared(_XID, payload[:size], gtid)
    else:
        group.commit(payload[:size], gtid)


def _written(seed: int, *, closed: bool) -> RowBase:
    rng = random.Random(seed)
    disk = MemoryDisk()
    facts = StateStore(disk)
    facts.set("store", "binlog-server")
    engine = IbbEngine(disk, OPTIONS, facts=facts)
    t = engine.tables.begin()
    t.create_table(TABLE, b"a definition")
    t.commit()
    now: Rows = {}
    states: list[Rows] = [{}]
    for number in range(1, 31):
        t, mine = engine.tables.begin(), dict(now)
        for _ in range(rng.randrange(1, 8)):
            key = b"key %d" % rng.randrange(_KEYS)
            mark, before = t.savepoint(), dict(mine)
            if rng.random() < 0.3:
                t.delete(TABLE, key)
                mine.pop(key, None)
            else:
                mine[key] = bytes([number]) * rng.choice((0, 10, 300, 3000))
                t.put(TABLE, key, mine[key])
            if rng.random() < 0.2:
                t.rollback_to(mark)
                mine = before
        if number % 5 == 0:
            t.rollback()
            continue
        _committed(engine, t, number)
        now = mine
        states.append(now)
        engine.sync()
        if number % 10 == 0:
            engine._snapshots.make()
    left = engine.tables.begin()  # a start finds it without an end
    left.put(TABLE, b"key 0", b"nobody has committed this")
    if seed % 2:
        group = Transaction(engine.writer_of(left))
        group.write(transaction_group(Gtid(0, 1, 99), ["x"], xid=99, timestamp=1)[42:])
        group.prepare(_XID)
    engine.sync()
    contents = disk.contents()
    if closed:
        engine.close()
        contents = disk.contents()
    else:
        engine.close()
    return RowBase(contents, states, whole=closed)


class RowFiles(Stores):
    """Damage to what holds rows alone."""

    name = "rows"
    files = (TABLES_NAME, REDO_NAME, STATE_NAME)

    def bases(self) -> Sequence[Base]:
        return [_written(seed, closed=closed) for seed in (1, 2) for closed in (True, False)]

    def reseal(self, contents: Contents) -> None:
        reseal(contents)
        if TABLES_NAME in contents:
            _reseal(contents[TABLES_NAME])

    def check(self, base: Base, contents: Mapping[str, bytes], *, made_right: bool) -> None:
        assert isinstance(base, RowBase)
        disk = MemoryDisk(contents)
        try:
            engine = IbbEngine(disk, OPTIONS, facts=StateStore(disk))
        except StorageError:
            if disk.contents() != dict(contents):
                raise Wrong("a start that was refused has changed the store") from None
            return
        written: Rows | None = None
        try:
            found = _rows(engine)
            if not made_right:
                early = base.may_end_early(contents.get(REDO_NAME, b""))
                if found not in base.states if early else found != base.states[-1]:
                    raise Wrong(f"rows of no moment: {sorted(found)}")
            while engine.step():
                pass
            with contextlib.suppress(StorageError):
                written = _one_more(engine)
        except StorageError:
            if not made_right:
                raise
        finally:
            engine.close()
        if written is not None and not made_right:
            self._require_there(written, disk)

    def _require_there(self, written: Rows, disk: MemoryDisk) -> None:
        engine = IbbEngine(disk, OPTIONS, facts=StateStore(disk))
        try:
            if _rows(engine) != written:
                raise Wrong("the next start has other rows")
        finally:
            engine.close()


def _rows(engine: IbbEngine) -> Rows:
    """None where the log ends in front of the table."""
    return dict(engine.tables.scan(TABLE)) if TABLE in engine.tables.tables() else {}


def _one_more(engine: IbbEngine) -> Rows:
    t = engine.tables.begin()
    if TABLE in engine.tables.tables():
        t.put(TABLE, b"last", _LAST)
    t.commit()
    engine.sync()
    return _rows(engine)


def _reseal(data: bytearray) -> None:
    """The checksums of a snapshot file."""
    at = _HEADER_BYTES
    data[at : at + 4] = google_crc32c.value(bytes(data[:at])).to_bytes(4, "little")
    at += 4
    while at + _BLOCK.size <= len(data):
        size, _ = _BLOCK.unpack_from(data, at)
        body = bytes(data[at + _BLOCK.size : at + _BLOCK.size + size])
        _BLOCK.pack_into(data, at, size, google_crc32c.value(body))
        at += _BLOCK.size + size
