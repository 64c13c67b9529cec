"""Effects of many parts, folded by ranges of keys, beside all of them folded at once in memory."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from binlog_pipeline.tables.effects import Effects, key_codes
from binlog_pipeline.tables.fold import fold, last_effects
from binlog_pipeline.tables.folded_parts import FoldedParts

COLUMNS = pa.schema(
    [
        ("n", pa.int32()),
        ("t", pa.string()),
        ("b", pa.binary()),
        ("d", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("v", pa.int64()),
        ("w", pa.string()),
    ]
)
KEYS = ["n", "t", "b", "d", "at"]
TEXTS = ["", "a", "Z", "\u00e9", "\uffff", "\U0001f600", None]


def any_key(rng: random.Random, keys: list[str]) -> dict[str, Any]:
    row = {
        "n": rng.choice([-1, 0, 1, 7, 1000, None]) if len(keys) > 1 else rng.randint(-99, 99),
        "t": rng.choice(TEXTS),
        "b": rng.choice([b"", b"\x00", b"\xff\x80", b"\x7f", None]),
        "d": rng.choice([Decimal("-1.50"), Decimal("0.00"), Decimal("12.00"), None]),
        "at": rng.choice([-1, 0, 1_700_000_000_000_000, None]),
    }
    return {key: row[key] for key in KEYS}


def any_effects(rng: random.Random, keys: list[str], *, is_partly: bool, **more: Any) -> Effects:
    count = rng.choice([0, 1, 5, 40])
    rows = [
        {
            **any_key(rng, keys),
            "v": rng.choice([None, rng.randint(0, 9)]),
            "w": "x" * rng.randint(0, 60),
        }
        for _ in range(count)
    ]
    removes = np.array([rng.random() < 0.3 for _ in rows], np.bool_)
    present = None
    if is_partly:
        bits = [[name in keys or rng.random() < 0.5 for name in COLUMNS.names] for _ in rows]
        present = np.array(bits, np.bool_).reshape(count, len(COLUMNS))
    return Effects(
        pa.Table.from_pylist(rows, COLUMNS), removes, present, **{"empties": False, **more}
    )


def joined(found: list[Effects]) -> Effects:
    present = None
    if any(one.present is not None for one in found):
        whole = [np.ones((len(one), len(COLUMNS)), np.bool_) for one in found]
        present = np.concatenate(
            [a if one.present is None else one.present for one, a in zip(found, whole, strict=True)]
        )
    return Effects(
        pa.concat_tables([one.rows for one in found]),
        np.concatenate([one.removes for one in found]),
        present,
        any(one.empties for one in found),
    )


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_ranges_of_keys_do_what_all_parts_do(rng: random.Random) -> None:
    for _ in range(25):
        keys = rng.sample(KEYS, rng.choice([1, 1, 2, 3, 5]))
        partly = rng.choice([0.0, 0.5, 1.0])
        base = any_effects(rng, keys, is_partly=False)
        table = fold(
            COLUMNS.empty_table(), replace(base, removes=np.zeros(len(base), np.bool_)), keys
        )
        parts = FoldedParts(keys, rng.choice([100, 1000, 5000, 1 << 20]))
        kept: list[Effects] = []
        for _ in range(rng.randint(1, 6)):
            empties = rng.random() < 0.1
            one = any_effects(rng, keys, is_partly=rng.random() < partly, empties=empties)
            kept = [one] if empties else [*kept, one]
            parts.add(one)
        pieces = [*parts.pieces()]
        assert [piece.empties for piece in pieces[1:]] == [False] * len(pieces[1:])
        found = table
        for piece in pieces:
            assert len(last_effects(piece, keys)) == len(piece)
            found = fold(found, piece, keys)
        whole = joined(kept)
        assert rows_of(found) == rows_of(fold(table, whole, keys))
        assert rows_of(fold(table, parts.whole(), keys)) == rows_of(found)
        if pieces:
            codes = key_codes([piece.rows.select(keys) for piece in pieces], keys)
            seen = np.concatenate(codes)
            assert len(np.unique(seen)) == len(seen)  # no key is in two


def test_pieces_are_ranges_of_about_that_size(rng: random.Random) -> None:
    parts = FoldedParts(["v"], 100_000)
    values = rng.sample(range(100_000), 20_000)
    for begin in range(0, 20_000, 2000):
        rows = [{"v": value, "w": "x" * (value % 50)} for value in values[begin : begin + 2000]]
        table = pa.Table.from_pylist(rows, COLUMNS)
        parts.add(Effects(table, np.zeros(len(rows), np.bool_), None, empties=False))
    pieces = [*parts.pieces()]
    ranges = [(min(keys), max(keys)) for keys in (p.rows.column("v").to_pylist() for p in pieces)]
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
    sizes = [piece.rows.nbytes for piece in pieces]
    assert max(sizes) < 130_000
    assert len(sizes) > 8
    assert sum(map(len, pieces)) == 20_000


def test_nothing_is_left_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    parts = FoldedParts(["n"])
    for _ in range(5):
        parts.add(any_effects(rng, ["n"], is_partly=True))
        assert not [*tmp_path.iterdir()]
    assert [*parts.pieces()]
