"""A table as it is behind some changes: pure, whole tables in and out, no loop over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.state.effects import Effects, Integers, key_codes


def fold(base: pa.Table, found: Effects, keys: Sequence[str]) -> pa.Table:
    """The rows of `base` (any order, the columns of the effects) with the effects.

    Rows that were not touched come first, in their order.
    """
    if found.empties:
        base = base.slice(0, 0)
    if not len(found):
        return base
    of_base, of_effects = key_codes([base.select(keys), found.rows.select(keys)], keys)
    count = int(max(of_base.max(initial=-1), of_effects.max(initial=-1))) + 1
    last = np.full(count, -1, np.int64)
    last[of_effects] = np.arange(len(found))  # of equal indexes the last one counts
    untouched = base.take(pa.array(np.flatnonzero(last[of_base] < 0)))
    touched = last[last >= 0]
    set_ = np.sort(touched[~found.removes[touched]])
    if found.present is None:
        new = found.rows.take(pa.array(set_))
    else:
        place_in_base = np.full(count, -1, np.int64)
        place_in_base[of_base] = np.arange(len(base))
        new = _merged(base, found, of_effects, place_in_base, set_)
    return pa.concat_tables([untouched, new]).combine_chunks()


def _merged(
    base: pa.Table, found: Effects, codes: Integers, place_in_base: Integers, wanted: Integers
) -> pa.Table:
    """The rows that the effects `wanted`, the last of their keys, lead to: a column from where it was last logged."""
    assert found.present is not None
    count = len(found)
    order = np.argsort(codes, kind="stable")  # by key, then by time
    where = np.empty(count, np.int64)
    where[order] = np.arange(count)
    sorted_codes = codes[order]
    begins = np.ones(count, np.bool_)
    begins[1:] = sorted_codes[1:] != sorted_codes[:-1]
    removes = found.removes[order]
    present = found.present[order]
    index = np.arange(count)
    ends = where[wanted]
    of_base = place_in_base[codes[wanted]]
    columns = []
    for number in range(found.rows.num_columns):
        logged = present[:, number] & ~removes
        mark = np.maximum.accumulate(np.where(logged | removes | begins, index, 0))[ends]
        is_logged = logged[mark]
        from_base = ~is_logged & ~removes[mark]
        # One column behind the other: effects, then the base; -1 is null.
        source = np.where(
            is_logged, order[mark], np.where(from_base & (of_base >= 0), count + of_base, -1)
        )
        column = found.rows.column(number)
        both = pa.chunked_array([*column.chunks, *base.column(number).chunks], column.type)
        columns.append(both.take(pa.array(source, mask=source < 0)))
    return pa.table(columns, names=found.rows.column_names)
