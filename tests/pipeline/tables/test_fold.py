"""Tables and changes folded, beside a plain dictionary that does the same row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pytest
from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.tables.effects import effects
from binlog_pipeline.tables.facts import Facts
from binlog_pipeline.tables.fold import fold
from hypothesis import given, settings
from hypothesis import strategies as st

COLUMNS: Final = pa.struct(
    [pa.field("a", pa.int32()), pa.field("b", pa.string()), pa.field("c", pa.int64())]
)
GTID: Final = pa.struct([(name, pa.int64()) for name in ("domain", "server", "seq")])
SCHEMA: Final = pa.schema(
    [
        ("_op", pa.string()),
        ("_gtid", GTID),
        ("_order_key", pa.binary()),
        ("_present", pa.binary()),
        ("before", COLUMNS),
        ("after", COLUMNS),
    ]
)
Row = dict[str, Any]


def change(
    number: int, op: str, before: Row | None, after: Row | None, present: int | None = None
) -> Row:
    return {
        "_op": op,
        "_gtid": {"domain": 0, "server": 1, "seq": number},
        "_order_key": number.to_bytes(24, "big"),
        "_present": None if present is None else bytes([present]),
        "before": before,
        "after": after,
    }


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(list(COLUMNS)))


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


def folded(base: list[Row], changes: list[Row], keys: list[str]) -> list[Row]:
    found = fold(table(base), effects(pa.Table.from_pylist(changes, SCHEMA), keys), keys)
    assert found.schema == pa.schema(list(COLUMNS))
    rows: list[Row] = found.to_pylist()
    return in_order(rows)


class Model:
    """A table, and its log; what is logged of rows is all, or what has changed."""

    def __init__(self, keys: list[str], *, minimal: bool) -> None:
        self.keys = keys
        self.minimal = minimal
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.log: list[Row] = []

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[key] for key in self.keys)

    def put(self, row: Row) -> None:
        """INSERT, or UPDATE of what is there."""
        before = self.rows.get(self.key(row))
        if before is None:
            self._write("c", None, row)
        elif self.minimal:
            image = {n: v if n in self.keys else None for n, v in before.items()}
            names = [field.name for field in COLUMNS]
            changed = [n for n in names if row[n] != before[n]]
            after = {n: row[n] if n in changed else None for n in names}
            self._write("u", image, after, sum(1 << names.index(n) for n in changed))
        else:
            self._write("u", before, row)
        self.rows[self.key(row)] = dict(row)

    def move(self, old: Row, new: Row) -> None:
        """UPDATE of the key."""
        self._write("u", old, new)
        del self.rows[self.key(old)]
        self.rows[self.key(new)] = dict(new)

    def remove(self, row: Row) -> None:
        self._write("d", row, None)
        del self.rows[self.key(row)]

    def empty(self) -> None:
        self._write("t", None, None)
        self.rows.clear()

    def _write(
        self, op: str, before: Row | None, after: Row | None, present: int | None = None
    ) -> None:
        self.log.append(change(len(self.log) + 1, op, before, after, present))


@pytest.mark.long
@settings(max_examples=100)
@given(data=st.data(), minimal=st.booleans(), keys=st.sampled_from([["a"], ["b"], ["a", "b"]]))
def test_as_a_dictionary(data: st.DataObject, minimal: bool, keys: list[str]) -> None:
    rows = st.fixed_dictionaries(
        {
            "a": st.integers(0, 4) | st.none(),
            "b": st.sampled_from(["", "x", "y", "é"]) | st.none(),
            "c": st.integers(-(2**63), 2**63 - 1) | st.none(),
        }
    )
    model = Model(keys, minimal=minimal)
    base: list[Row] = []
    for _ in range(data.draw(st.integers(0, 25))):
        step = data.draw(st.sampled_from(["put", "put", "put", "remove", "move", "empty", "base"]))
        if step == "put" or not model.rows:
            model.put(data.draw(rows))
        elif step == "remove":
            model.remove(data.draw(st.sampled_from(list(model.rows.values()))))
        elif step == "move":
            old, new = data.draw(st.sampled_from(list(model.rows.values()))), data.draw(rows)
            if model.key(new) not in model.rows:
                model.move(old, new)
        elif step == "empty":
            model.empty()
        else:  # what was until now is the base
            base, model.log = [dict(row) for row in model.rows.values()], []
    shuffled = data.draw(st.permutations(model.log))
    assert folded(base, shuffled, keys) == in_order(model.rows.values())


def test_twice_is_once() -> None:
    log = [
        change(1, "c", None, {"a": 1, "b": "x", "c": 1}),
        change(2, "d", {"a": 1, "b": "x", "c": 1}, None),
        change(3, "c", None, {"a": 1, "b": "y", "c": 2}),
    ]
    once = folded([], log, ["a"])
    assert folded(once, log, ["a"]) == once == [{"a": 1, "b": "y", "c": 2}]


def test_no_changes() -> None:
    base = [{"a": 1, "b": "x", "c": 1}]
    assert folded(base, [], ["a"]) == base


SHARED: dict[str, tuple[list[Row], str]] = {
    "a key that is not unique": (
        [
            change(1, "c", None, {"a": 1, "b": "x", "c": 1}),
            change(2, "c", None, {"a": 1, "b": "y", "c": 2}),
        ],
        "a row of 0-1-2 has the key of another one (a), and one of them is kept; name columns that are unique",
    ),
    "dates that are null": (
        [
            change(1, "c", None, {"a": None, "b": "x", "c": 1}),
            change(2, "c", None, {"a": 5, "b": "y", "c": 2}),
            change(3, "u", {"a": 5, "b": "y", "c": 2}, {"a": None, "b": "y", "c": 2}),
        ],
        "a row of 0-1-3 has the key of another one (a), and one of them is kept; zero and partial dates are null",
    ),
    "a key that is free again": (
        [
            change(1, "c", None, {"a": None, "b": "x", "c": 1}),
            change(2, "u", {"a": None, "b": "x", "c": 1}, {"a": None, "b": "x", "c": 2}),
            change(3, "u", {"a": None, "b": "x", "c": 2}, {"a": 2, "b": "x", "c": 2}),
            change(4, "c", None, {"a": None, "b": "z", "c": 1}),
            change(5, "d", {"a": None, "b": "z", "c": 1}, None),
            change(6, "c", None, {"a": None, "b": "z", "c": 1}),
        ],
        "",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_row_with_the_key_of_another(name: str) -> None:
    log, said = SHARED[name]
    is_named = "unique" not in said
    key = pa.array([{"a": None}] * len(log), pa.struct([("a", pa.int32())]))
    changes = pa.Table.from_pylist(log, SCHEMA)
    found = effects(
        changes.append_column("_key", key) if is_named else changes,
        ["a"],
        whole := Facts(is_whole=True),
    )
    assert found.facts.doubt.startswith(said)
    assert found.facts.is_whole is not bool(said)
    assert found.facts == whole or said


@pytest.mark.parametrize(
    ("keys", "said"), [(["z"], "no column z: it has a, b, c"), ([], "name the columns in keys")]
)
def test_keys_that_there_are_not(keys: list[str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        folded([], [], keys)


def test_a_key_that_was_changed_and_only_that_was_logged() -> None:
    log = [change(7, "u", {"a": 1, "b": None, "c": None}, {"a": 2, "b": None, "c": None}, 1)]
    with pytest.raises(SourceError, match=r"0-1-7.*binlog_row_image=FULL"):
        folded([{"a": 1, "b": "x", "c": 1}], log, ["a"])
