"""Versions and nodes: the types in C and in Python, and what Python's garbage collector has to walk over."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from binlog_storage.tables import rows
from binlog_storage.tables.rows import COMMITTED, Memory, PlainNode, PlainVersion, Trx
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.tables.test_take_changes import chain_of, versions_of
from tests.storage.tables.test_transactions import T, engine_with

PLAIN: Any = (PlainNode, PlainVersion)
TWINS: list[Any] = [pytest.param(PLAIN, id="python")]
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    IN_C = (_speedups.Node, _speedups.Version)
    TWINS.append(pytest.param(IN_C, id="C"))
built = pytest.mark.skipif(len(TWINS) == 1, reason="not built")
DEEP = 200_000


def history(types: Any, seed: int) -> list[object]:
    """What memory has behind each step: changes, undo, commits and cuts of what no view needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "Node", types[0])
        patch.setattr(rows, "Version", types[1])
        rng, memory = random.Random(seed), Memory()
        seen: list[object] = []
        memory.tables[T] = rows.Table()
        open_ones, ended = [Trx(number) for number in (1, 2)], []
        for step in range(400):
            trx = rng.choice(open_ones)
            what, key = rng.random(), b"%d" % rng.randrange(12)
            if what < 0.6:
                if memory.owner((T, key)) in (None, trx):
                    memory.change(trx, T, key, None if rng.random() < 0.3 else b"%d" % step)
            elif what < 0.8 and trx.top is not None:
                memory.undo_top(trx)
            elif what < 0.9:
                memory.commit(trx)
                ended.append(trx)
                open_ones[open_ones.index(trx)] = Trx(10 + step)
            elif ended:
                for node in ended.pop(0).chain():
                    memory.forget(node, rng.randrange(memory.commit_no + 1))
            found: dict[bytes, list[tuple[bytes | None, int]]] = {}
            for name, newest in versions_of(memory.tables[T]).items():
                version: Any = newest
                assert type(version) is types[1]
                found[name] = []
                while version is not None:
                    found[name].append((version.row, version.trx.id))
                    version = version.prev
            seen.append((found, [chain_of(trx) for trx in open_ones]))
        return seen


@pytest.mark.by_turns(3)
@built
@pytest.mark.parametrize("seed", range(10))
def test_random(seed: int) -> None:
    assert history(IN_C, seed) == history(PLAIN, seed)


@pytest.mark.parametrize("types", TWINS)
def test_what_can_be_set(types: Any) -> None:
    """Only what a cut sets: a reader without a lock trusts in the rest."""
    node_type, version_type = types
    node = node_type(7, None, 1 << 31, b"key", None)
    assert (node.no, node.below, node.table, node.key, node.before) == (
        7,
        None,
        1 << 31,
        b"key",
        None,
    )
    for name in ("no", "below", "table", "key", "before"):
        with pytest.raises(AttributeError):
            setattr(node, name, None)
    oldest = version_type(None, COMMITTED, None)
    version = version_type(b"row", Trx(3), oldest)
    assert (version.row, version.trx.id, version.prev) == (b"row", 3, oldest)
    version.trx, version.prev = COMMITTED, None
    assert (version.trx, version.prev) == (COMMITTED, None)
    for given in ((), (b"row",), (1, 2, 3, 4, 5, 6)):
        for kind in types:
            with pytest.raises(TypeError):
                kind(*given)


@built
def test_numbers_of_nodes_have_four_bytes() -> None:
    """As in the log."""
    for no, table in ((1 << 32, 1), (1, 1 << 32), (-1, 1)):
        with pytest.raises(OverflowError):
            _speedups.Node(no, None, table, b"", None)
    with pytest.raises(TypeError):
        _speedups.Node("1", None, 1, b"", None)  # type: ignore[arg-type]
    version = _speedups.Version(b"", COMMITTED, None)
    with pytest.raises(AttributeError):
        version.row = b"other"


@pytest.mark.long
@pytest.mark.parametrize("types", TWINS)
def test_long_chains_are_let_go(types: Any) -> None:
    """All of them, and without the stack; from the middle on only those that nobody else has."""
    makers: list[Callable[[bytes, object], object]] = [
        lambda key, below: types[0](1, below, T, key, key),
        lambda key, below: types[1](key, COMMITTED, below),
    ]
    for make in makers:
        key = bytes(bytearray(b"key"))
        before = sys.getrefcount(key)
        top: object = None
        middle: object = None
        for at in range(DEEP):
            top = make(key, top)
            if at == DEEP // 2:
                middle = top
        each = (sys.getrefcount(key) - before) // DEEP
        assert each in (1, 2)
        del top
        assert sys.getrefcount(key) == before + each * (DEEP // 2 + 1)
        del middle
        assert sys.getrefcount(key) == before


@built
def test_nothing_of_a_changed_row_is_walked_over() -> None:
    """By Python's garbage collector: it would hold the server for as long as there are rows."""
    engine = engine_with(MemoryDisk(), {b"%d" % n: b"row" for n in range(5000)})
    gc.collect()
    before = len(gc.get_objects())
    t = engine.tables.begin()
    for n in range(5000):
        t.put(T, b"%d" % n, b"changed")
    gc.collect()
    assert len(gc.get_objects()) - before < 500
    assert not gc.is_tracked(engine.tables.memory.tables[T].rows)
    t.commit()
    gc.collect()
    assert len(gc.get_objects()) - before < 500


@built
def test_a_transaction_that_nobody_needs_is_let_go_without_the_collector() -> None:
    """Its versions and nodes are in no cycle: ended in each way, it is gone with its last row."""
    engine = engine_with(MemoryDisk(), {b"a": b"1"})
    gc.collect()
    gc.disable()
    try:
        alive = sum(type(one) is Trx for one in gc.get_objects())
        for number in range(50):
            t = engine.tables.begin()
            t.put(T, b"a", b"%d" % number)
            mark = t.savepoint()
            t.put(T, b"b", b"x")
            t.rollback_to(mark)
            t.commit() if number % 2 else t.rollback()
        del t
        while engine.tables.forget(100):
            pass
        assert sum(type(one) is Trx for one in gc.get_objects()) - alive < 5
    finally:
        gc.enable()
