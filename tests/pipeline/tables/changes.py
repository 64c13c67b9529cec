"""Changes of a small table, as view changes has them, and the table that they lead to."""

from __future__ import annotations

import random
from typing import Any, Final

import pyarrow as pa
from binlog_protocol.gtid import Gtid, SlavePosition

COLUMNS: Final = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("amount", pa.decimal128(9, 2)),
    ]
)
GTID: Final = pa.struct([(name, pa.int64()) for name in ("domain", "server", "seq")])
SCHEMA: Final = pa.schema(
    [
        ("_op", pa.string()),
        ("_gtid", GTID),
        ("_order_key", pa.binary()),
        ("_key", pa.struct([("id", pa.int64())])),
        ("_present", pa.binary()),
        ("before", COLUMNS),
        ("after", COLUMNS),
    ]
)
Row = dict[str, Any]


class History:
    """A table that is changed at random; groups of one to five changes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._number = 0
        self._seq = 0
        self.rows: dict[int, Row] = {}

    @property
    def position(self) -> SlavePosition:
        return SlavePosition([Gtid(0, 1, self._seq)])

    def batch(self, groups: int) -> pa.Table:
        """The changes of so many groups."""
        found = []
        for _ in range(groups):
            self._seq += 1
            found += [self._change() for _ in range(self._rng.randint(1, 5))]
        return pa.Table.from_pylist(found, SCHEMA)

    def truncate(self) -> pa.Table:
        """The one change of a group that empties the table."""
        self._seq += 1
        self._number += 1
        self.rows.clear()
        change = {
            "_op": "t",
            "_gtid": {"domain": 0, "server": 1, "seq": self._seq},
            "_order_key": self._number.to_bytes(24, "big"),
        }
        return pa.Table.from_pylist([change], SCHEMA)

    def table(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: int(row["id"]))

    def _change(self) -> Row:
        rng = self._rng
        self._number += 1
        known = list(self.rows)
        before = after = None
        op = rng.choice("ccuuud") if known else "c"
        if op == "c":
            after = self._row(self._number)
        else:
            before = self.rows.pop(rng.choice(known))
            if op == "u":
                after = self._row(before["id"] if rng.random() < 0.8 else self._number)
        if after is not None:
            self.rows[after["id"]] = after
        return {
            "_op": op,
            "_gtid": {"domain": 0, "server": 1, "seq": self._seq},
            "_order_key": self._number.to_bytes(24, "big"),
            "_key": {"id": (after or before or {})["id"]},
            "_present": None,
            "before": before,
            "after": after,
        }

    def _row(self, number: int) -> Row:
        from decimal import Decimal

        rng = self._rng
        name = rng.choice([None, "a name", "ein Name mit ü", ""])
        return {"id": number, "name": name, "amount": Decimal(rng.randint(-999, 999)) / 4}


def in_order(table: pa.Table) -> list[Row]:
    """Rows by their keys."""
    rows: list[Row] = table.sort_by("id").to_pylist()
    return rows
