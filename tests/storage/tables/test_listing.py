"""Keys of a table in steps, between which others come and go: what stays is found, and nobody waits for all of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from binlog_storage.tables import rows
from binlog_storage.tables.rows import COMMITTED, Listing, PlainVersion, Table

TWINS: list[Any] = [pytest.param(None, id="python")]
if rows.next_keys is not None:
    TWINS.append(pytest.param(rows.next_keys, id="C"))
built = pytest.mark.skipif(rows.next_keys is None, reason="not built")


def table_of(count: int) -> tuple[Table, list[bytes]]:
    table = Table()
    keys = [b"%d" % number for number in range(count)]
    for key in keys:
        put(table, key)
    return table, keys


def put(table: Table, key: bytes) -> None:
    table.set(key, PlainVersion(b"", COMMITTED, None))


def listed(table: Table, step: int, between: Callable[[list[bytes]], None]) -> list[bytes]:
    """All keys. `between` is called with those of each step."""
    listing, found = Listing(table), []
    while keys := listing.step(step):
        found += keys
        between(keys)
    listing.close()
    assert table.listing is None
    return found


@pytest.mark.parametrize("next_keys", TWINS)
@pytest.mark.parametrize("seed", range(60))
def test_what_stays_is_found(seed: int, next_keys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "next_keys", next_keys)
    rng = random.Random(seed)
    table, keys = table_of(rng.choice([0, 1, 7, 300, 2000]))
    for key in rng.sample(keys, len(keys) // 3):  # holes
        table.remove(key)
    stays = set(table.rows)
    came = 10**6

    def between(read: list[bytes]) -> None:
        nonlocal came
        way = rng.randrange(6)
        going: list[bytes] = []
        if way == 0:
            going = read[-rng.randint(1, len(read)) :]
        elif way == 1:
            going = rng.sample(list(table.rows), min(len(table.rows), 40))
        for key in going:
            if key in table.rows:
                table.remove(key)
                stays.discard(key)
        if way == 2:  # the dict grows, and closes its gaps; some come again, as the same objects
            for _ in range(rng.choice([1, 50, 500]) if came < 10**6 + 4000 else 0):
                came += 1
                put(table, b"%d" % came)
        for key in going[: rng.choice([0, 0, 1, 40])]:
            put(table, key)

    found = listed(table, rng.choice([1, 3, 64]) + rng.choice([0, 13]), between)
    assert stays <= set(found)


@built
def test_a_dict_that_grows_as_fast_is_read_once() -> None:
    table, keys = table_of(1000)
    for key in keys[:500]:
        table.remove(key)
    came = 10**6

    def between(read: list[bytes]) -> None:
        nonlocal came
        for _ in range(60):
            came += 1
            put(table, b"%d" % came)

    assert listed(table, 50, between) == keys[500:]


@built
@pytest.mark.parametrize("gone", [1, 49])
def test_keys_behind_the_place_may_go(gone: int) -> None:
    table, keys = table_of(1000)

    def between(read: list[bytes]) -> None:
        for key in read[-gone:]:
            table.remove(key)

    assert listed(table, 50, between) == keys


@built
def test_no_step_takes_all() -> None:
    table, _ = table_of(10_000)
    listing = Listing(table)
    assert len(listing.step(256)) == 256
    assert listing._rest is None
    listing.close()
