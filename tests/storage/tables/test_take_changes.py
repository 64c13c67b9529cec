"""The loop of recovery: in C and in Python, and beside what applies one record after the other."""

from __future__ import annotations

import random
from typing import Any

import pytest
from binlog_storage.redo.format import build_mtr, tables_record
from binlog_storage.tables.rebuild import Rebuild
from binlog_storage.tables.records import encode_change, encode_end, encode_undone
from binlog_storage.tables.rows import COMMITTED, Node, Table, Trx, Version
from binlog_storage.tables.take_changes import TakeChanges, take_changes_plainly

EPOCH = 3
LSN = 4096
TRX = 7
T = 1
TWINS: list[Any] = [pytest.param(take_changes_plainly, id="python")]
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    TWINS.append(pytest.param(_speedups.take_changes, id="C"))


def mtr(lsn: int, record: bytes, epoch: int = EPOCH) -> bytes:
    return build_mtr(epoch, lsn, tables_record(record))


def rebuild() -> Rebuild:
    """Rows a, b and c, and a transaction that has changed one of them."""
    made = Rebuild()
    made.memory.tables[T] = Table()
    made.memory.tables[2] = Table()
    for key in (b"a", b"b", b"c"):
        made.memory.tables[T].rows[key] = Version(key * 3, COMMITTED, None)
    for number in (TRX, TRX + 1):
        trx = made.open[number] = Trx(number)
        trx.tables.add(T)
    made.apply(encode_change(TRX, 1, 0, T, b"a", b"aaa", b"first"), LSN, EPOCH)
    return made


def chain_of(trx: Trx) -> list[tuple[int, int, bytes, bytes | None]]:
    return [(n.no, n.table, n.key, n.before) for n in trx.chain()]


def versions_of(table: Table) -> dict[bytes, Version]:
    """The newest version of each row, packed or not."""
    found = {key: table.look(key) for key in table.all_keys()}
    return {key: version for key, version in found.items() if version is not None}


def state(made: Rebuild) -> object:
    """All of it, to be compared."""
    rows = {}
    for number, table in made.memory.tables.items():
        for key, version in versions_of(table).items():
            versions = []
            below: Version | None = version
            while below is not None:
                versions.append((below.row, below.trx.id))
                below = below.prev
            rows[number, key] = versions
    return rows, {t.id: (t.no, t.count, chain_of(t), t.tables) for t in made.open.values()}


def take(made: Rebuild, by: TakeChanges, window: bytes, at: int = 0, lsn: int = LSN) -> int:
    found, count = by(window, at, len(window), lsn, EPOCH, made.open, made.memory.tables, COMMITTED)
    made.changes += count
    return found


@pytest.mark.parametrize("by", TWINS)
def test_changes_one_behind_the_other(by: TakeChanges) -> None:
    records = [
        encode_change(TRX, 2, 1, T, b"b", b"bbb", b"second"),
        encode_change(TRX, 3, 2, T, b"b", b"second", None),
        encode_change(TRX + 1, 1, 0, T, b"d", None, b""),
        encode_change(TRX, 9, 3, T, b"b", None, b"again"),
        encode_change(TRX, 10, 9, T, b"", None, b"x" * 3000),
    ]
    window = b"in front"
    for record in records:
        window += mtr(LSN + len(window) - 8, record)
    made, other = rebuild(), rebuild()
    assert take(made, by, window, 8) == len(window)
    assert made.changes == other.changes + len(records)
    for record in records:
        other.apply(record, LSN, EPOCH)
    assert state(made) == state(other)
    trx = made.open[TRX]
    assert isinstance(trx.top, Node)
    assert type(made.memory.tables[T].rows[b"b"]) is Version
    while trx.top is not None:
        made.memory.undo_top(trx)
    assert made.memory.tables[T].rows[b"b"].row == b"bbb"


@pytest.mark.parametrize("by", TWINS)
def test_rows_that_the_snapshot_has_already(by: TakeChanges) -> None:
    """It was read while they changed: the log says what was before, and it is so again when all is undone."""
    records = [
        encode_change(TRX, 2, 1, T, b"b", b"older", b"bbb"),  # the snapshot has what this made
        encode_change(
            TRX, 3, 2, T, b"a", b"in between", b"more"
        ),  # a change of the same transaction
        encode_change(TRX, 4, 3, T, b"c", None, b"ccc"),
        encode_change(TRX, 5, 4, T, b"x", b"", b"2"),  # it was deleted later
        encode_change(TRX, 6, 5, T, b"b", b"bbb", None),
    ]
    window = b""
    for record in records:
        window += mtr(LSN + len(window), record)
    made, other = rebuild(), rebuild()
    assert take(made, by, window) == len(window)
    for record in records:
        other.apply(record, LSN, EPOCH)
    assert state(made) == state(other)
    trx = made.open[TRX]
    while trx.top is not None:
        made.memory.undo_top(trx)
    found = {key: version.row for key, version in versions_of(made.memory.tables[T]).items()}
    assert found == {b"a": b"aaa", b"b": b"older", b"x": b""}


NOT_PLAIN = {
    "an unknown transaction": encode_change(99, 1, 0, T, b"b", b"bbb", b"2"),
    "an unknown table": encode_change(TRX, 2, 1, 50, b"b", None, b"2"),
    "its first change in that table": encode_change(TRX, 2, 1, 2, b"b", None, b"2"),
    "another node below": encode_change(TRX, 2, 0, T, b"b", b"bbb", b"2"),
    "a number that was used": encode_change(TRX, 1, 1, T, b"b", b"bbb", b"2"),
    "a key that ends outside": encode_change(TRX, 2, 1, T, b"b", b"bbb", b"2")[:-1],
    "more behind it": encode_change(TRX, 2, 1, T, b"b", b"bbb", b"2")
    + encode_end(9, committed=True),
    "UNDONE": encode_undone(TRX, 0) + bytes(40),
    "END": encode_end(TRX, committed=True) + bytes(40),
    "nothing": b"",
}


@pytest.mark.parametrize("by", TWINS)
@pytest.mark.parametrize("what", NOT_PLAIN)
def test_what_is_not_plain_is_left(what: str, by: TakeChanges) -> None:
    good = mtr(LSN, encode_change(TRX, 2, 1, T, b"c", b"ccc", b"2"))
    wrong = NOT_PLAIN[what]
    if what in ("another node below", "a number that was used"):
        good = b""
    elif what not in ("an unknown transaction",):
        wrong = wrong[:9] + (3).to_bytes(4, "little") + (2).to_bytes(4, "little") + wrong[17:]
        if what in ("UNDONE", "END", "nothing"):
            wrong = NOT_PLAIN[what]
    made, other = rebuild(), rebuild()
    assert take(made, by, good + mtr(LSN + len(good), wrong)) == len(good)
    if good:
        other.apply(encode_change(TRX, 2, 1, T, b"c", b"ccc", b"2"), LSN, EPOCH)
    assert state(made) == state(other)


@pytest.mark.parametrize("by", TWINS)
def test_any_wrong_byte_ends_it(by: TakeChanges) -> None:
    good = mtr(LSN, encode_change(TRX, 2, 1, T, b"c", b"ccc", b"2"))
    before = state(rebuild())
    for at in range(len(good)):
        made = rebuild()
        torn = bytearray(good)
        torn[at] ^= 1 << at % 8
        assert take(made, by, bytes(torn)) == 0
        assert state(made) == before
    for size in range(len(good)):
        assert take(rebuild(), by, good[:size]) == 0
    made = rebuild()
    assert take(made, by, good, lsn=LSN + 1) == 0
    assert take(made, by, mtr(LSN, encode_change(TRX, 2, 1, T, b"c", b"ccc", b"2"), EPOCH + 1)) == 0
    assert by(good, 0, len(good) - 1, LSN, EPOCH, made.open, made.memory.tables, COMMITTED) == (
        0,
        0,
    )
    assert state(made) == before


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("by", TWINS)
@pytest.mark.parametrize("seed", range(20))
def test_random(seed: int, by: TakeChanges) -> None:
    """Good and bad ones, of several transactions: one loop, then one record by itself, and so on, is as each alone."""
    rng = random.Random(seed)
    made, other = rebuild(), rebuild()
    log = b""
    records = []
    for _ in range(300):
        trx = other.open.get(rng.choice([TRX, TRX, TRX, TRX + 1]))
        table = rng.choice([T, T, T, T, 2])
        key = rng.choice([b"a", b"b", b"c", b"d", b"key %d" % rng.randrange(30)])
        version = other.memory.tables[table].look(key)
        if trx is None or (version is not None and version.trx.id not in (0, trx.id)):
            continue
        row = None if version is None else version.row
        after = None if rng.random() < 0.2 else b"%d" % rng.randrange(99) * rng.randrange(40)
        top = 0 if trx.top is None else trx.top.no
        record = encode_change(trx.id, trx.no + rng.choice([1, 1, 5]), top, table, key, row, after)
        if rng.random() < 0.1 and trx.top is not None:
            record = encode_undone(trx.id, 0 if trx.top.below is None else trx.top.below.no)
        other.apply(record, LSN, EPOCH)
        records.append((len(log), record))
        log += mtr(LSN + len(log), record)
    places = dict(records)
    at = by_loop = 0
    while at < len(log):
        behind = take(made, by, log, at, LSN + at)
        assert behind == at or behind in places or behind == len(log)
        by_loop += behind > at
        at = behind
        if at < len(log):
            made.apply(places[at], LSN, EPOCH)
            at += len(mtr(LSN, places[at]))
    assert by_loop > 10
    assert state(made) == state(other)


@pytest.mark.skipif(len(TWINS) == 1, reason="not built")
def test_places_outside() -> None:
    for at, stop in ((-1, 0), (0, 1)):
        with pytest.raises(IndexError):
            _speedups.take_changes(b"", at, stop, LSN, EPOCH, {}, {}, COMMITTED)
