"""Rows by ranges of keys: whatever path a statement takes, it finds what it finds among all rows."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from binlog_server.queries.terms import Said, Wish
from binlog_server.tables.paths import Path, path_of
from tests.binlog_server.lab import Lab
from tests.binlog_server.tables.test_sessions import USERS, rows, session

TABLE = (
    "CREATE TABLE shop.{} (a INT, b VARCHAR(6), u INT UNIQUE, v VARCHAR(8), w BIGINT UNSIGNED NOT NULL, "
    "PRIMARY KEY (a, b), UNIQUE uv (v, u), UNIQUE wp (w, v(2)))"
)
COPY = (
    "CREATE TABLE shop.copy (n INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(6), u INT, v VARCHAR(8), "
    "w BIGINT UNSIGNED)"
)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=USERS, local_tables=True) as lab:
        client = await lab.root()
        for text in ("CREATE DATABASE shop", TABLE.format("t"), COPY):
            await client.query(text)
        yield lab


def text(rng: random.Random) -> str:
    return "'" + "".join(rng.choice("aAbBä ") for _ in range(rng.randrange(4))) + "'"


def condition(rng: random.Random) -> str:
    numbers = [str(rng.randrange(-2, 12)) for _ in range(3)]
    texts = [text(rng) for _ in range(3)]
    kind = rng.choice("aaubvww")
    some = texts if kind in "bv" else numbers
    said = rng.choice(
        (
            f"{kind} = {some[0]}",
            f"{some[0]} = {kind}",
            f"{kind} IN ({', '.join(some)})",
            f"{kind} BETWEEN {some[0]} AND {some[1]}",
            f"{kind} {rng.choice(('<', '<=', '>', '>='))} {some[0]}",
            f"{some[0]} {rng.choice(('<', '<=', '>', '>='))} {kind}",
            f"{kind} IS NULL",
            f"NOT {kind} = {some[0]}",
            f"{kind} <> {some[0]}",
            f"{kind} = '7'" if kind in "auw" else f"{kind} = 7",
            f"{kind} > 99999999999999999999" if kind in "auw" else f"{kind} < 'aaaaaaaaaaaaa'",
        )
    )
    return said if rng.random() < 0.5 else f"({said}) AND {condition(rng)}"


def folded(row: tuple[str | None, ...]) -> list[str | None]:
    """As the collation sees it."""
    return [value and value.lower().replace("ä", "a").rstrip() for value in row]


async def filled(client: Any, rng: random.Random) -> None:
    for _ in range(120):
        values = (
            f"{rng.randrange(10)}, {text(rng)}, {rng.choice(['NULL', str(rng.randrange(40))])}, "
        )
        values += f"{rng.choice(['NULL', text(rng)])}, {rng.randrange(12)}"
        await client.query(f"INSERT IGNORE INTO t VALUES ({values})")
    await client.query("INSERT INTO copy (a, b, u, v, w) SELECT * FROM t")


@pytest.mark.parametrize("tries", [80, pytest.param(250, marks=pytest.mark.slow)])
async def test_all_paths_find_the_same_rows(lab: Lab, tries: int, rng: random.Random) -> None:
    """Beside a copy of the rows that has no such keys."""
    client = await session(lab)
    await filled(client, rng)
    for _ in range(tries):
        where = condition(rng)
        found = [
            await rows(client, f"SELECT a, b, u, v, w FROM {name} WHERE {where}")
            for name in ("t", "copy")
        ]
        assert sorted(found[0], key=repr) == sorted(found[1], key=repr), where
        order = rng.choice(
            (
                "a, b",
                "a",
                "u",
                "v, u",
                "w, v",
                "b",
                "a DESC, b DESC",
                "w DESC",
                "v DESC, u DESC",
                "u DESC",
            )
        )
        columns = order.replace(" DESC", "")
        tail = f"WHERE {where} ORDER BY {order} LIMIT {rng.randrange(1, 9)}"
        one, other = [
            await rows(client, f"SELECT {columns} FROM {name} {tail}") for name in ("t", "copy")
        ]
        assert [folded(row) for row in one] == [folded(row) for row in other], tail


@pytest.mark.parametrize("tries", [40, pytest.param(120, marks=pytest.mark.slow)])
async def test_changes_take_the_same_rows_by_each_path(
    lab: Lab, tries: int, rng: random.Random
) -> None:
    client = await session(lab)
    await filled(client, rng)
    for _ in range(tries):
        change = rng.choice(
            (
                "UPDATE {} SET u = u + 100 WHERE u > 5",
                "UPDATE {} SET u = u - 100 WHERE u > 90 ORDER BY u LIMIT 100",
                f"UPDATE {{}} SET w = w + 20 WHERE w BETWEEN {rng.randrange(9)} AND 40 AND v IS NOT NULL",
                f"DELETE FROM {{}} WHERE {condition(rng)} AND a = {rng.randrange(10)} AND b = {text(rng)}",
                "DELETE FROM {} WHERE u > 0 ORDER BY u DESC LIMIT 1",
            )
        )
        for name in ("t", "copy"):
            await client.query(change.format(name))
        same = "SELECT a, b, u, v, w FROM {} ORDER BY a, b"
        one, other = [await rows(client, same.format(name)) for name in ("t", "copy")]
        assert sorted(one, key=repr) == sorted(other, key=repr), change


PATHS: dict[str, tuple[dict[str, Said], Wish | None, tuple[str, int, bool, bool]]] = {
    "all": ({}, None, ("", 1, False, False)),
    "point": ({"a": Said([1]), "b": Said(["x"])}, None, ("", 1, True, False)),
    "points": ({"u": Said([1, 2, 2])}, None, ("u", 2, True, False)),
    "beginning": ({"v": Said(["x"])}, None, ("uv", 1, False, False)),
    "two parts": ({"v": Said(["x"]), "u": Said(low=3)}, None, ("uv", 1, False, False)),
    "range": ({"w": Said(low=3, high=4)}, None, ("wp", 1, False, False)),
    "a range of the primary key": (
        {"a": Said(high=4), "w": Said(low=3)},
        None,
        ("", 1, False, False),
    ),
    "another type": ({"u": Said(["1"]), "v": Said([1])}, None, ("", 1, False, False)),
    "out of range": ({"w": Said([-1])}, None, ("", 1, False, False)),
    "order": ({}, Wish(["u"], True), ("u", 1, False, True)),
    "order behind a constant": ({"v": Said(["x"])}, Wish(["u"], False), ("uv", 1, False, True)),
    "order over a beginning": ({}, Wish(["w", "v"], False), ("", 1, False, False)),
    "a condition before an order": ({"a": Said([1])}, Wish(["u"], True), ("", 1, False, False)),
}


@pytest.mark.parametrize("what", PATHS)
async def test_the_path(lab: Lab, what: str) -> None:
    table = lab.server.tables.find("shop", "t")
    assert table is not None
    said, wish, wanted = PATHS[what]
    path: Path = path_of(table, said, wish)
    name = "" if path.index is None else path.index.key.name
    assert (name, len(path.spans), path.spans[0].is_point, path.is_ordered) == wanted


async def test_what_is_read_is_what_was_asked_for(lab: Lab) -> None:
    """Not the rows beside it: the table's own way over all rows is not taken."""
    client = await session(lab)
    await client.query(
        "INSERT INTO t VALUES (1, 'a', 1, 'x', 1), (2, 'b', 2, 'y', 2), (3, 'c', 3, 'z', 3)"
    )
    table = lab.server.tables.find("shop", "t")
    assert table is not None
    seen: list[tuple[int, bytes]] = []
    store = lab.server.tables.store
    read = store.read

    def counted(number: int, key: bytes, *rest: Any) -> bytes | None:
        seen.append((number, key))
        return read(number, key, *rest)

    store.read = counted  # type: ignore[method-assign, assignment]
    for text, most in (
        ("SELECT a FROM t WHERE u = 2", 2),
        ("SELECT a FROM t WHERE u IN (1, 3)", 4),
        ("SELECT a FROM t WHERE a >= 3", 1),
        ("SELECT u FROM t WHERE v = 'y'", 4),
        ("DELETE FROM t WHERE u = 9", 1),
    ):
        seen.clear()
        await client.query(text)
        assert len([one for one in seen if one[0] >= table.number]) <= most, text
