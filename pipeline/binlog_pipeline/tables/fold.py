"""A table as it is behind some changes: pure, whole tables in and out, no loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_pipeline.tables.effects import Effects, key_codes


def fold(base: pa.Table, found: Effects, keys: Sequence[str]) -> pa.Table:
    """The rows of `base` (any order, the columns of the effects) with the effects.

    Rows that were not touched come first, in their order.
    """
    if found.empties:
        base = base.slice(0, 0)
    if not len(found):
        return base
    last = last_effects(found, keys)
    of_base, of_last = key_codes([base.select(keys), last.rows.select(keys)], keys)
    count = int(max(of_base.max(initial=-1), of_last.max())) + 1
    is_touched = np.zeros(count, np.bool_)
    is_touched[of_last] = True
    untouched = base.take(pa.array(np.flatnonzero(~is_touched[of_base])))
    kept = np.flatnonzero(~last.removes)
    rows = last.rows.take(pa.array(kept))
    if last.present is not None:
        place_in_base = np.full(count, -1, np.int64)
        place_in_base[of_base] = np.arange(len(base))
        places = place_in_base[of_last[kept]]
        before = base.take(pa.array(places, mask=places < 0))
        present = last.present[kept]
        columns = [
            pc.if_else(pa.array(present[:, number]), rows.column(number), before.column(number))
            for number in range(rows.num_columns)
        ]
        rows = pa.table(columns, names=rows.column_names)
    return pa.concat_tables([untouched, rows]).combine_chunks()


def last_effects(found: Effects, keys: Sequence[str]) -> Effects:
    """One effect a key, which does what all of them do, in the order of the last ones.

    Where rows were set in part, what is not `present` of the result is as it was before all of them.
    """
    codes = key_codes([found.rows.select(keys)], keys)[0]
    count = len(found)
    last = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    last[codes] = np.arange(count)  # of equal indexes the last one counts
    last = np.sort(last)
    if found.present is None:
        return found.some(last)
    order = np.argsort(codes, kind="stable")  # by key, then by time
    where = np.empty(count, np.int64)
    where[order] = np.arange(count)
    ends = where[last]
    begins = np.ones(count, np.bool_)
    begins[1:] = codes[order][1:] != codes[order][:-1]
    removes = found.removes[order]
    index = np.arange(count)
    columns = []
    present = np.empty((len(last), found.rows.num_columns), np.bool_)
    for number in range(found.rows.num_columns):
        logged = found.present[order, number] & ~removes
        # The last effect on the column: it was logged, the row was removed, or none was and it is the key's first.
        mark = np.maximum.accumulate(np.where(logged | removes | begins, index, 0))[ends]
        source = order[mark]
        present[:, number] = logged[mark] | removes[mark]
        columns.append(found.rows.column(number).take(pa.array(source, mask=~logged[mark])))
    rows = pa.table(columns, names=found.rows.column_names)
    for key in keys:  # of a removal, too
        at = found.rows.schema.get_field_index(key)
        rows = rows.set_column(at, key, found.rows.column(key).take(pa.array(last)))
        present[:, at] = True
    return replace(found, rows=rows, removes=found.removes[last], present=present)
