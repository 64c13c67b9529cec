"""Keys in order: as a sorted set has them; and of a large table, put in order while others change it."""

from __future__ import annotations

import random

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.tables import keys as keys_module
from binlog_storage.tables import store
from binlog_storage.tables.keys import SortedKeys
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.storage.tables.test_transactions import T, crashed, engine_with, rows


def shown(keys: SortedKeys) -> list[bytes]:
    found = keys.from_(b"", 1 << 30)
    assert keys.before(None, 1 << 30) == found[::-1]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_many_keys(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(keys_module, "AT_ONCE", rng.choice([3, 50]))
    monkeypatch.setattr(keys_module, "_CHUNK", rng.choice([2, 7, 100]))
    given = [rng.randbytes(rng.choice([0, 1, 2, 8])) for _ in range(rng.choice([0, 1, 60, 900]))]
    if seed % 2:
        given = sorted(set(given))
    found, model = SortedKeys.of_many(given), set(given)
    assert shown(found) == sorted(model)
    for _ in range(600):
        key, is_there = rng.randbytes(rng.choice([1, 2])), rng.random() < 0.4
        found.put(key, is_there=is_there)
        (model.add if is_there else model.discard)(key)
    assert shown(found) == sorted(model)


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
def test_writers_go_on_while_keys_are_sorted(
    is_packed: bool, is_down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come, go, come back and are undone meanwhile; those that a start has found, too."""
    monkeypatch.setattr(store, "AT_ONCE", 8)
    rng, disk = random.Random(is_packed), MemoryDisk()
    model = {b"%d" % n: b"old" for n in range(60)}
    engine: IbbEngine = engine_with(disk, dict(model))
    if is_packed:
        engine._snapshots.make()
        engine = crashed(engine, disk)
    open_one = engine.tables.begin()
    open_one.put(T, b"undone", b"x")
    of_many, calls = SortedKeys.of_many, 0

    def change() -> None:
        t = engine.tables.begin()
        for _ in range(20):
            key = b"%d" % rng.randrange(90)
            if rng.random() < 0.5:
                t.delete(T, key)
                model.pop(key, None)
            else:
                t.put(T, key, b"new")
                model[key] = b"new"
        t.commit()
        while engine.tables.forget(100):  # tombstones go
            pass

    def sort(given: list[bytes]) -> SortedKeys:
        nonlocal calls
        calls += 1
        change()
        open_one.rollback()
        made = of_many(given)
        change()
        return made

    monkeypatch.setattr(SortedKeys, "of_many", sort)
    if is_down:
        found = dict(engine.tables.scan_down(T))
        assert list(found) == sorted(model, reverse=True)
    else:
        found = dict(engine.tables.scan(T))
        assert list(found) == sorted(model)
    assert found == model
    assert calls == 1
    change()
    assert rows(engine) == model
    table = engine.tables.memory.tables[T]
    assert table.keys is not None
    assert shown(table.keys) == sorted(table.all_keys())
    assert (table.noted, calls) == (None, 1)
