"""Rows and nodes that stay where a start has found them, beside those that are objects from the start on."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable

import pytest
from binlog_storage.binlog.options import UNDO_NEVER
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.tables import rebuild, snapshot, take_changes, take_records
from binlog_storage.tables.rows import COMMITTED, Memory, Node, PackedNode, Table, Trx, Version
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.tables.test_take_changes import versions_of
from tests.storage.tables.test_take_records import node, row
from tests.storage.tables.test_transactions import T, crashed, engine_with, opened, rows

_speedups = pytest.importorskip("binlog_storage.ibb._speedups")


def packed(*blocks: bytes) -> tuple[Table, Trx]:
    """A table, and a transaction with the nodes of the last block."""
    memory, trx = Memory(), Trx(5)
    for body in blocks:
        at, _ = take_records.take_rows(body, 0, memory.tables, Table)
        at, places = take_records.find_nodes(body, at)
        assert at == len(body)
        take_records.take_nodes(body, places, trx, memory.tables, Table)
    return memory.tables[T], trx


def shown(version: Version | None) -> list[tuple[bytes | None, int]]:
    found = []
    while version is not None:
        found.append((version.row, version.trx.id))
        version = version.prev
    return found


def test_a_row_is_no_object_before_it_is_taken() -> None:
    table, _ = packed(row(T, b"a", b"1") + row(T, b"b", b"") + row(T, b"", b"3"))
    assert table.packed is not None
    assert not table.rows
    assert len(table) == len(table.packed) == 3
    assert shown(table.look(b"a")) == [(b"1", 0)]
    assert table.look(b"a") is not table.look(b"a")
    assert table.look(b"c") is table.take(b"c") is None
    assert not table.rows
    taken = table.take(b"a")
    assert shown(taken) == [(b"1", 0)]
    assert table.rows == {b"a": taken}
    assert taken is table.look(b"a") is table.take(b"a")
    assert (len(table), len(table.packed)) == (3, 2)
    assert sorted(table.all_keys()) == [b"", b"a", b"b"]
    assert table.owner(b"a") is table.owner(b"b") is COMMITTED
    assert table.owner(b"c") is None


def test_blocks_are_let_go_with_their_last_row() -> None:
    body = row(T, b"a", b"1") + row(T, b"b", b"2")
    other = row(T, b"c", b"3") + node(1, T, b"a", b"0")
    before = sys.getrefcount(body), sys.getrefcount(other)
    table, trx = packed(body, other)
    trx.top = None
    assert (sys.getrefcount(body), sys.getrefcount(other)) == (before[0] + 1, before[1] + 1)
    assert table.packed is not None
    table.packed.settle()
    table.take(b"c")
    assert sys.getrefcount(other) == before[1] + 1  # what is below `a`
    assert table.undo(b"a", trx)
    assert shown(table.look(b"a")) == [(b"0", 0)]
    assert (sys.getrefcount(body), sys.getrefcount(other)) == (before[0] + 1, before[1] + 1)
    table.take(b"a")
    table.take(b"b")
    assert (sys.getrefcount(body), sys.getrefcount(other)) == before
    assert (len(table.packed), table.packed.places) == (0, 0)
    assert table.look(b"d") is None
    assert shown(table.look(b"b")) == [(b"2", 0)]


def test_undo_of_what_is_packed() -> None:
    table, trx = packed(
        row(T, b"a", b"3") + row(T, b"new", b"n"),
        node(4, T, b"gone", b"g")
        + node(3, T, b"a", b"2")
        + node(2, T, b"new", None)
        + node(1, T, b"a", b"1"),
    )
    assert table.owner(b"a") is trx
    assert list(table.ordered().from_(b"", 9)) == [b"a", b"gone", b"new"]
    with pytest.raises(RuntimeError, match="another transaction"):
        table.undo(b"a", Trx(7))
    assert table.undo(b"gone", trx)
    assert shown(table.look(b"gone")) == [(b"g", 0)]
    assert table.undo(b"a", trx)
    assert shown(table.look(b"a")) == [(b"2", 5), (b"1", 0)]
    assert not table.undo(b"new", trx)
    assert table.undo(b"a", trx)
    assert shown(table.look(b"a")) == [(b"1", 0)]
    assert list(table.ordered().from_(b"", 9)) == [b"a", b"gone"]
    assert not table.rows
    with pytest.raises(AssertionError, match="not there"):
        table.undo(b"new", trx)


def test_what_the_log_has_committed() -> None:
    table, trx = packed(row(T, b"a", b"3"), node(2, T, b"gone", b"g") + node(1, T, b"a", b"1"))
    trx.commit_no = 0
    assert table.look(b"gone") is None
    assert shown(table.look(b"a")) == [(b"3", 0)]
    assert table.packed is not None
    table.packed.settle()
    assert table.all_keys() == [b"a"]
    assert table.packed.records(T, 0, 99) == (row(T, b"a", b"3"), 1)


def test_nodes_of_a_run() -> None:
    _, trx = packed(
        b"".join(node(no, T, b"%d" % no, b"" if no % 7 else None) for no in range(900, 0, -1))
    )
    assert trx.count == 900
    top = trx.top
    assert isinstance(top, PackedNode)
    one_by_one = []
    below = trx.top
    while below is not None:
        one_by_one.append((below.no, below.table, below.key, below.before))
        below = below.below
    assert one_by_one == [(n, T, b"%d" % n, b"" if n % 7 else None) for n in range(900, 0, -1)]
    assert [(n.no, n.table, n.key, n.before) for n in trx.chain()] == one_by_one
    assert trx.top is top
    assert isinstance(trx.unpack(), Node)
    assert [(n.no, n.table, n.key, n.before) for n in trx.chain()] == one_by_one


def test_places_of_no_node() -> None:
    body = node(1, T, b"key", b"row")
    for at, size in (
        (0, len(body) - 1),
        (1, len(body)),
        (len(body), len(body)),
        (1 << 31, len(body)),
    ):
        with pytest.raises(IndexError):
            _speedups.unpack_nodes(body[:size], struct.pack("I", at), 0, 1, None)


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("seed", range(8))
def test_random(seed: int) -> None:
    """Rows by the thousand, with equal keys, that are looked at, taken, undone and written in any order."""
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.choice([1, 2, 8, 30])) for _ in range(rng.choice([3, 300, 3000]))]
    model: dict[bytes, list[tuple[bytes | None, int]]] = {}
    body = b""
    for _ in range(rng.randrange(4000)):
        key, value = rng.choice(keys), rng.randbytes(rng.randrange(9))
        body += row(T, key, value)
        model[key] = [(value, 0)]
    nodes = []
    for no in range(1, rng.randrange(2, 2000)):
        key = rng.choice(keys)
        before = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(9))
        nodes.append(node(no, T, key, before))
        have = model.get(key, [(None, 0)])
        rest = (
            [(before, 5), *have[1:]] if have[0][1] == 5 else [] if before is None else [(before, 0)]
        )
        model[key] = [(have[0][0], 5), *rest]
    table, trx = packed(body, b"".join(reversed(nodes)))
    assert table.packed is not None
    table.packed.settle()
    for _ in range(3000):
        key, what = rng.choice(keys), rng.random()
        if what < 0.3:
            assert shown(table.look(key)) == model.get(key, [])
        elif what < 0.4:
            assert shown(table.take(key)) == model.get(key, [])
        elif what < 0.7 and key in model and model[key][0][1] == 5:
            rest = model[key][1:]
            is_left = bool(rest) and (rest[0][0] is not None or len(rest) > 1)
            assert table.undo(key, trx) is is_left
            if is_left:
                model[key] = rest
            else:
                del model[key]
        elif what < 0.72:
            first = rng.randrange(len(keys))
            written, count = table.packed.records(T, first, 50)
            again: dict[int, Table] = {}
            assert take_records.take_rows_plainly(written, 0, again) == (len(written), count)
            for found, version in (again[T].rows if count else {}).items():
                assert version.row == model[found][0][0]
    assert {key: shown(version) for key, version in versions_of(table).items()} == model
    assert len(table) == len(model)


@pytest.fixture(params=["python", "C"])
def loaded_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which twins load a store."""
    if request.param == "python":
        monkeypatch.setattr(snapshot, "take_rows", take_records.take_rows_plainly)
        monkeypatch.setattr(snapshot, "find_nodes", take_records.find_nodes_plainly)
        monkeypatch.setattr(snapshot, "take_nodes", take_records.take_nodes_plainly)
        monkeypatch.setattr(rebuild, "take_changes", take_changes.take_changes_plainly)
    return str(request.param)


@pytest.mark.parametrize("how", ["commit", "undo", "never"])
def test_a_large_transaction(loaded_by: str, how: str) -> None:
    """Some of it in the snapshot, some in the log, and rows of it that smaller ones have changed before."""
    disk = MemoryDisk()
    engine = engine_with(disk, {b"%d" % n: b"old" for n in range(300)})
    model = {b"%d" % n: b"old" for n in range(300)}
    engine._snapshots.make()
    for n in range(0, 60, 3):
        t = engine.tables.begin()
        t.put(T, b"%d" % n, b"newer")
        t.commit()
        model[b"%d" % n] = b"newer"
    large = engine.tables.begin()
    expected = dict(model)

    def change(first: int, last: int, value: bytes) -> None:
        for n in range(first, last):
            if n % 5 == 4:
                large.delete(T, b"%d" % n)
                expected.pop(b"%d" % n, None)
            else:
                large.put(T, b"%d" % n, value)
                expected[b"%d" % n] = value

    change(0, 200, b"first")
    engine._snapshots.make()
    change(150, 420, b"second")
    mark = large.savepoint()
    kept = dict(expected)
    change(0, 300, b"third")
    large.rollback_to(mark)
    expected = kept
    change(10, 40, b"fourth")
    if how == "commit":
        large.commit()
        model = expected
    engine.sync()
    engine = (
        crashed(engine, disk, undo_at_start=UNDO_NEVER) if how == "never" else crashed(engine, disk)
    )
    assert rows(engine) == model
    newest = {
        k: v.row
        for k, v in versions_of(engine.tables.memory.tables[T]).items()
        if v.row is not None
    }
    assert newest == expected
    if how != "commit":
        trx = engine.tables.open[large.id]
        assert sum(1 for _ in trx.chain()) == trx.count == engine.rows_to_undo
        assert [n.no for n in trx.chain()] == sorted((n.no for n in trx.chain()), reverse=True)
        engine._snapshots.make()  # of rows that are packed, with the chain
        engine = crashed(engine, disk)
        assert rows(engine) == model
    while engine.step():
        pass
    assert rows(engine) == model
    t = engine.tables.begin()
    for key in list(model)[::2]:
        t.delete(T, key)
        del model[key]
    t.put(T, b"last", b"1")
    model[b"last"] = b"1"
    t.commit()
    assert rows(engine) == model
    engine.close()
    assert rows(opened(disk)) == model


def test_a_snapshot_while_packed_rows_are_taken(
    loaded_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that becomes an object behind its step is written twice, one before it once: as it is in the end."""
    monkeypatch.setattr(snapshot, "STEP_ROWS", 5)
    rng = random.Random(7)
    disk = MemoryDisk()
    model = {b"%d" % n: b"old" for n in range(100)}
    engine = engine_with(disk, model)
    engine._snapshots.make()
    engine = crashed(engine, disk)

    def change() -> None:
        t = engine.tables.begin()
        for n in rng.sample(range(120), 4):
            key = b"%d" % n
            if rng.random() < 0.3:
                t.delete(T, key)
                model.pop(key, None)
            else:
                model[key] = b"%d" % rng.randrange(999)
                t.put(T, key, model[key])
        t.commit()

    write: Callable[..., int] = snapshot.write
    monkeypatch.setattr(
        snapshot, "write", lambda *given, **named: write(*given, **named, pause=change)
    )
    for _ in range(3):
        engine._snapshots.make()
        engine.sync()
        engine: IbbEngine = crashed(engine, disk)  # type: ignore[no-redef]
        assert rows(engine) == model
