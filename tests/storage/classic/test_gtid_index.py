"""The tree of a GTID index: its bytes, and what a search finds in it. Beside MariaDB's: tests/integration."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.classic.gtid_index import BadIndex, IndexedPlace, IndexReader, IndexTree
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.classic.index_files import Bytes, taken_apart

Records = list[tuple[int, list[Gtid]]]


def tree(records: Records, page_bytes: int) -> bytes:
    first, *others = records
    made = IndexTree(*first, page_bytes)
    data = made.take()
    for record in others:
        made.add(*record)
        data += made.take()
    return data + made.finish()


def test_bytes() -> None:
    """Pages that MariaDB 11.8.6 has written: a leaf of two pages, another leaf, and the root that it would have."""
    places = [(299, 2), (546, 11), (1149, 14), (1752, 17), (2355, 20)]
    data = tree([(at, [Gtid(0, 1, number)]) for at, number in places], 64)
    pages = [data[at : at + 60].hex(" ", 4) for at in range(0, len(data), 64)]
    assert pages == [
        "fefe0c01 01000000 40000000 01000000 02000000 2b010000 00000000 01000000 02000000 00000000 "
        "02000000 22020000 00000000 00000000 00000000",
        "07000000 00000000 01000000 0b000000 00000000 02000000 7d040000 00000000 01000000 0e000000 "
        "00000000 00000000 00000000 00000000 00000000",
        "05000000 02000000 d8060000 00000000 01000000 11000000 00000000 02000000 33090000 00000000 "
        "01000000 14000000 00000000 00000000 00000000",
        "0c000000 01000000 02000000 d8060000 00000000 01000000 11000000 00000000 03000000 00000000 "
        "00000000 00000000 00000000 00000000 00000000",
    ]
    assert [node[0] for node in taken_apart(data)] == [[1, 7], [5], [12]]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Records, int]:
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    domains, servers = draw(st.sampled_from([(1, 1), (3, 2), (20, 3)]))
    offset = 285
    begin = BinlogState(
        Gtid(rng.randrange(domains), rng.randrange(1, servers + 1), 1)
        for _ in range(rng.randrange(40))
    )
    records: Records = [(offset, begin.entries())]
    seq_no = 1
    for _ in range(draw(st.integers(0, 120))):
        change = BinlogState()
        for _ in range(rng.choice((1, 1, 1, 2, 9))):
            seq_no += 1
            change.update(Gtid(rng.randrange(domains), rng.randrange(1, servers + 1), seq_no))
        offset += rng.randrange(1, 5000)
        records.append((offset, change.entries()))
    return records, draw(st.sampled_from([64, 65, 100, 512, 4096]))


def plain(records: Records, upto: int) -> BinlogState:
    state = BinlogState()
    for _, change in records[: upto + 1]:
        state.overlay(change)
    return state


def up_to(offset: int) -> Callable[[int, BinlogState], bool]:
    return lambda at, state: at <= offset


def before(position: SlavePosition) -> Callable[[int, BinlogState], bool]:
    return lambda at, state: state.is_before(position)


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_finds_what_was_added(history: tuple[Records, int], rng: random.Random) -> None:
    records, page_bytes = history
    reader = IndexReader(Bytes(tree(records, page_bytes)))
    assert reader.first().offset == records[0][0]
    assert BinlogState(reader.first().change) == plain(records, 0)
    for _ in range(8):
        number = rng.randrange(len(records))
        offset = records[number][0] + rng.randrange(2)
        wanted = max(n for n, (at, _) in enumerate(records) if at <= offset)
        found = reader.find(up_to(offset))
        assert found is not None
        assert (found.offset, found.state) == (records[wanted][0], plain(records, wanted))
        if found.before is not None:
            assert found.before == (records[wanted - 1][0], plain(records, wanted - 1))
        position = plain(records, number).position()
        found = reader.find(before(position))
        passed = [n for n in range(len(records)) if plain(records, n).is_before(position)]
        assert (found.offset if found else None) == (records[passed[-1]][0] if passed else None)
    assert reader.find(lambda at, state: False) is None


def sample() -> tuple[Records, bytes]:
    rng = random.Random(3)
    records: Records = [(285, [])]
    for n in range(1, 80):
        records.append((285 + n * 100, [Gtid(rng.randrange(4), 1, n)]))
    return records, tree(records, 128)


def last(data: bytes) -> IndexedPlace | None:
    return IndexReader(Bytes(data)).find(lambda at, state: True)


@pytest.mark.long
def test_any_changed_byte_on_the_way_is_noticed() -> None:
    records, data = sample()
    right = last(data)
    assert right is not None
    assert right.offset == records[-1][0]
    refused = 0
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        try:
            found = last(bytes(changed))
        except BadIndex:
            refused += 1
        else:
            assert (found and found[:2]) == right[:2]
    assert refused >= 3 * 128


def test_not_finished_or_of_another_kind() -> None:
    _, data = sample()
    for size in range(0, len(data), 64):
        with pytest.raises(BadIndex):
            last(data[:size])
    for changed in (b"\xfebin" + data[4:], data[:4] + b"\2" + data[5:], data + b"\0" * 128):
        with pytest.raises(BadIndex):
            last(changed)
    with pytest.raises(BadIndex, match="has version 2"):
        IndexReader(Bytes(data[:4] + b"\2" + data[5:]))


def test_offsets_beyond_32_bits_are_left_out() -> None:
    made = IndexTree(285, [], 64)
    made.add(0xFFFFFFFF, [Gtid(0, 1, 1)])
    made.add(1 << 32, [Gtid(0, 1, 2)])
    found = last(made.finish())
    assert found is not None
    assert (found.offset, found.state.last(0)) == (0xFFFFFFFF, Gtid(0, 1, 1))


def test_one_state_larger_than_a_page() -> None:
    many = [Gtid(domain, 1, 1) for domain in range(1000)]
    records = [(16300, many)] + [(20_000 + n, [Gtid(n % 1000, 1, 2 + n)]) for n in range(1000)]
    reader = IndexReader(Bytes(tree(records, 64)))
    position = SlavePosition(plain(records, 700).position())
    found = reader.find(before(position))
    assert found is not None
    assert found.offset == records[700][0]
    assert found.state == plain(records, 700)
