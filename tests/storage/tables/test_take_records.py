"""The loops that take the snapshot's records into memory: in C and in Python, on good bytes and on bad ones."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from binlog_storage.tables import take_records
from binlog_storage.tables.records import NO_ROW
from binlog_storage.tables.rows import NODE_RECORD, Memory, Node, Table, Trx, Version
from binlog_storage.tables.take_records import ROW

from tests.storage.tables.test_take_changes import chain_of, versions_of

PLAIN: Any = (
    take_records.take_rows_plainly,
    take_records.find_nodes_plainly,
    take_records.take_nodes_plainly,
)
TWINS: list[Any] = [pytest.param(PLAIN, id="python")]
try:
    from binlog_storage.ibb import _speedups
except ImportError:
    pass
else:
    IN_C = (_speedups.take_rows, _speedups.find_nodes, _speedups.take_nodes)
    TWINS.append(pytest.param(IN_C, id="C"))


def row(table: int, key: bytes, value: bytes) -> bytes:
    return ROW.pack(b"R", table, len(key), len(value)) + key + value


def node(no: int, table: int, key: bytes, before: bytes | None) -> bytes:
    size = NO_ROW if before is None else len(before)
    return NODE_RECORD.pack(b"N", no, table, len(key), size) + key + (before or b"")


def taken(twin: Any, blocks: list[bytes]) -> tuple[Memory, Trx]:
    """Blocks of rows, then of nodes, as `snapshot.load` takes them."""
    take_rows, find_nodes, take_nodes = twin
    memory, trx, found = Memory(), Trx(5), []
    for body in blocks:
        at, _ = take_rows(body, 0, memory.tables, Table)
        at, places = find_nodes(body, at)
        assert at == len(body)
        found.append((body, places))
    for body, places in reversed(found):
        take_nodes(body, places, trx, memory.tables, Table)
    return memory, trx


def state(memory: Memory, trx: Trx) -> tuple[Any, ...]:
    rows: dict[tuple[int, bytes], list[tuple[bytes | None, int]]] = {}
    for number, table in memory.tables.items():
        for key in table.all_keys():
            below = table.look(key)
            rows[number, key] = []
            while below is not None:
                assert type(below) is Version
                rows[number, key].append((below.row, below.trx.id))
                below = below.prev
    return rows, set(memory.tables), chain_of(trx), trx.count, trx.tables


@pytest.mark.parametrize("twin", TWINS)
def test_a_chain_gives_each_row_its_versions(twin: Any) -> None:
    memory, trx = taken(
        twin,
        [
            row(1, b"changed", b"3") + row(1, b"kept", b"k"),
            row(300, b"", b"") + node(9, 1, b"gone", b"g") + node(8, 1, b"changed", b"2"),
            node(6, 1, b"changed", None)
            + node(4, 1, b"changed", b"1")
            + node(2, 300, b"new", None),
        ],
    )
    rows, tables, chain, count, changed = state(memory, trx)
    assert rows[1, b"changed"] == [(b"3", 5), (b"2", 5), (None, 5), (b"1", 0)]
    assert rows[1, b"gone"] == [(None, 5), (b"g", 0)]
    assert rows[1, b"kept"] == [(b"k", 0)]
    assert rows[300, b"new"] == [(None, 5)]
    assert (tables, count, changed) == ({0, 1, 300}, 5, {1, 300})
    assert [one[0] for one in chain] == [9, 8, 6, 4, 2]
    assert isinstance(trx.unpack(), Node)
    while trx.top is not None:
        memory.undo_top(trx)
    assert {key: version.row for key, version in versions_of(memory.tables[1]).items()} == {
        b"changed": b"1",
        b"gone": b"g",
        b"kept": b"k",
    }


@pytest.mark.by_turns(3)
@pytest.mark.skipif(len(TWINS) == 1, reason="not built")
@pytest.mark.parametrize("seed", range(30))
def test_random(seed: int) -> None:
    rng = random.Random(seed)

    def some() -> bytes:
        return rng.randbytes(rng.choice([0, 1, 3, 40]))

    blocks, no = [], 1 << 32
    for _ in range(rng.randrange(1, 5)):
        body = b"".join(row(rng.choice([0, 1, 2, 1000, 70000]), some(), some()) for _ in range(40))
        for _ in range(rng.randrange(60)):
            no -= rng.choice([1, 1, 300])
            before = None if rng.random() < 0.3 else some()
            body += node(no, rng.choice([0, 1, 2, 1000, 80000]), rng.randbytes(1), before)
        blocks.append(body)
    assert state(*taken(IN_C, blocks)) == state(*taken(PLAIN, blocks))


@pytest.mark.parametrize("twin", TWINS)
def test_other_records_end_it(twin: Any) -> None:
    take_rows, find_nodes, _ = twin
    tables: dict[int, Table] = {}
    body = b"xx" + row(1, b"a", b"1") + row(1, b"b", b"") + b"T..."
    assert take_rows(body, 2, tables, Table) == (len(body) - 4, 2)
    assert take_rows(body, 2, None, Table) == (len(body) - 4, 2)
    assert take_rows(body, 0, tables, Table) == (0, 0)
    assert take_rows(body, len(body), tables, Table) == (len(body), 0)
    assert find_nodes(body, 2) == (2, b"")
    nodes = node(3, 1, b"a", None) + node(1, 1, b"b", b"2") + b"E"
    assert find_nodes(nodes, 0) == (len(nodes) - 1, struct.pack("II", 0, 18))


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("what", [row(1, b"key", b"row"), node(1, 1, b"key", b"row")])
def test_a_record_that_ends_outside(twin: Any, what: bytes) -> None:
    take_rows, find_nodes, _ = twin
    is_row = what[:1] == b"R"
    sizes = ROW.size if is_row else NODE_RECORD.size

    def take(body: bytes) -> object:
        if is_row:
            return take_rows(body, 0, {}, Table)
        return find_nodes(body, 0)

    torn = [what[:size] for size in range(1, len(what))]
    for at in range(sizes - 8, sizes):
        torn.append(what[:at] + b"\xf0" + what[at + 1 :])
    for body in torn:
        with pytest.raises(ValueError, match="ends outside"):
            take(body)


@pytest.mark.skipif(len(TWINS) == 1, reason="not built")
def test_places_outside() -> None:
    body, trx = node(1, 1, b"key", b"row"), Trx(1)
    for at in (1, len(body), 1 << 31):
        with pytest.raises(IndexError):
            _speedups.take_nodes(body, struct.pack("I", at), trx, {}, Table)
    for call in (
        lambda: _speedups.take_rows(body, -1, {}, Table),
        lambda: _speedups.find_nodes(body, -1),
        lambda: _speedups.unpack_nodes(body, struct.pack("I", 1), 0, 1, None),
        lambda: _speedups.unpack_nodes(body, struct.pack("I", 0), 0, 2, None),
    ):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(TypeError):
        _speedups.take_rows(b"R" + body, 0, [], Table)  # type: ignore[arg-type]
    assert trx.top is None
