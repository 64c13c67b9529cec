"""What row changes do to a table, key by key: rows are set, set in part, or removed.

Changes are rows of view `changes`, layout struct, in any order. An UPDATE that changes the key removes the row of the
old key and sets that of the new one. What a TRUNCATE has emptied has no effect any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.errors import BadOption, SourceError

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Effects:
    """In the order of the log. One element an effect.

    rows: the values, with columns as the table has them now; of a removal only the key counts.
    removes: the row is removed.
    present: a column for each of the table, whether its value was logged; None if all were, in all.
    empties: before all of them the table was emptied.
    """

    rows: pa.Table
    removes: Booleans
    present: NDArray[np.bool_] | None
    empties: bool

    def __len__(self) -> int:
        return len(self.removes)

    def some(self, which: Integers) -> Effects:
        """Those with these indexes."""
        present = None if self.present is None else self.present[which]
        return Effects(self.rows.take(pa.array(which)), self.removes[which], present, self.empties)


def effects(changes: pa.Table, keys: Sequence[str]) -> Effects:
    """Raises `BadOption` for keys that are no columns, `SourceError` for an image without its key."""
    names = [field.name for field in changes.schema.field("after").type]
    unknown = [key for key in keys if key not in names]
    if unknown or not keys:
        raise BadOption(
            f"the table has no column {', '.join(unknown)}: it has {', '.join(names)}"
            if unknown
            else "the log names no primary key (binlog_row_metadata=FULL does): name the columns in keys"
        )
    changes = changes.take(pc.sort_indices(changes.column("_order_key"))).combine_chunks()
    ops = np.array(changes.column("_op").to_pylist(), dtype="U1")
    emptied = np.flatnonzero(ops == "t")
    if len(emptied):
        first = int(emptied[-1]) + 1
        changes, ops = changes.slice(first), ops[first:]
    is_delete, is_update = ops == "d", ops == "u"
    before, after = _image(changes, "before"), _image(changes, "after")
    present = _present(changes.column("_present"), len(names))
    rows = _chosen(is_delete, before, after)
    if present is not None:
        _require_primary(changes, keys)
        rows = _with_keys(rows, before, present, keys, names, is_update)
        for key in keys:
            present[:, names.index(key)] = True
    moves = np.flatnonzero(is_update & _differ(before, rows, keys))
    if not len(moves):
        return Effects(rows, is_delete, present, bool(len(emptied)))
    if present is not None and not present[moves].all():
        raise SourceError(
            "an UPDATE has changed a key, and only the changed columns were logged: the other ones of the row cannot "
            f"be known under its new key ({_gtid(changes, int(moves[0]))}); set binlog_row_image=FULL on the master, "
            "or begin with a new copy"
        )
    # The removals of old keys, each in front of its row.
    count = len(ops)
    order = np.argsort(np.concatenate((moves, np.arange(count) + 0.5)), kind="stable")
    rows = pa.concat_tables([before.take(pa.array(moves)), rows]).take(pa.array(order))
    removes = np.concatenate((np.ones(len(moves), np.bool_), is_delete))[order]
    if present is not None:
        ones = np.ones((len(moves), len(names)), np.bool_)
        present = np.concatenate((ones, present))[order]
    return Effects(rows.combine_chunks(), removes, present, bool(len(emptied)))


def _image(changes: pa.Table, name: str) -> pa.Table:
    """The columns of an image; null where there is none."""
    column = changes.column(name)
    arrays = [pc.struct_field(column, i) for i in range(column.type.num_fields)]
    return pa.table(arrays, names=[field.name for field in column.type])


def _present(bitmaps: pa.ChunkedArray, width: int) -> NDArray[np.bool_] | None:
    """A row an element, a column a column."""
    if bitmaps.null_count == len(bitmaps):
        return None
    size = (width + 7) // 8
    all_present = b"\xff" * size
    data = b"".join(all_present if b is None else b[:size] for b in bitmaps.to_pylist())
    bits = np.frombuffer(data, np.uint8).reshape(len(bitmaps), size)
    return np.unpackbits(bits, axis=1, bitorder="little")[:, :width].astype(np.bool_)


def _chosen(mask: Booleans, yes: pa.Table, no: pa.Table) -> pa.Table:
    if not mask.any():
        return no
    chooser = pa.array(mask)
    arrays = [pc.if_else(chooser, a, b) for a, b in zip(yes.columns, no.columns, strict=True)]
    return pa.table(arrays, names=no.column_names)


def _with_keys(
    rows: pa.Table,
    before: pa.Table,
    present: NDArray[np.bool_],
    keys: Sequence[str],
    names: Sequence[str],
    is_update: Booleans,
) -> pa.Table:
    """The key of an UPDATE that has not changed it stands in the image before alone."""
    for key in keys:
        number = names.index(key)
        missing = pa.array(is_update & ~present[:, number])
        filled = pc.if_else(missing, before.column(number), rows.column(number))
        rows = rows.set_column(number, key, filled)
    return rows


def _require_primary(changes: pa.Table, keys: Sequence[str]) -> None:
    """Of a row that was not logged whole only the primary key is sure to be there. Raises `SourceError`."""
    if "_key" not in changes.schema.names:
        return  # no primary key: the image before has all columns
    primary = {field.name for field in changes.schema.field("_key").type}
    if not primary.issuperset(keys):
        raise SourceError(
            f"rows are not logged whole ({_gtid(changes, 0)}): with binlog_row_image=MINIMAL only the primary key "
            f"({', '.join(sorted(primary))}) can be the key"
        )


def _differ(a: pa.Table, b: pa.Table, keys: Sequence[str]) -> Booleans:
    """Where the keys are not the same; null is like null."""
    found = np.zeros(len(b), np.bool_)
    for key in keys:
        left, right = a.column(key), b.column(key)
        equal = pc.fill_null(pc.equal(left, right), False)
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        found |= ~pc.or_(equal, both_null).to_numpy()
    return found


def _gtid(changes: pa.Table, i: int) -> str:
    gtid = changes.column("_gtid")[i].as_py()
    return f"{gtid['domain']}-{gtid['server']}-{gtid['seq']}"


_NULL_CODE: Final = 0


def key_codes(tables: Sequence[pa.Table], keys: Sequence[str]) -> list[Integers]:
    """Equal numbers for equal keys, over all tables; 0 and up, without holes. Null is like null."""
    sizes = [len(table) for table in tables]
    codes = np.zeros(sum(sizes), np.int64)
    for key in keys:
        columns = [table.column(key) for table in tables]
        column = pa.chunked_array([c for column in columns for c in column.chunks], columns[0].type)
        encoded = column.combine_chunks().dictionary_encode()
        numbers = pc.fill_null(pc.add(encoded.indices.cast(pa.int64()), 1), _NULL_CODE).to_numpy()
        codes = codes * (int(numbers.max(initial=0)) + 1) + numbers
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return np.split(codes, np.cumsum(sizes)[:-1])
