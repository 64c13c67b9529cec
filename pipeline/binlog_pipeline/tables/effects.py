"""Effects of row changes on a table, key by key: rows are set, set in part, or removed.

Changes are rows of view `changes`, layout struct, in any order. An UPDATE that changes the key removes the row of the
old key and sets that of the new one. What a TRUNCATE has emptied has no effect any more. Behind a statement that has
done nobody knows what to rows (`x`), nothing is known until the table is empty again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.dataclass import dataclass
from numpy.typing import NDArray

from binlog_pipeline.errors import BadOption, IncompleteImage, SourceError
from binlog_pipeline.groups import Integers
from binlog_pipeline.tables.facts import Facts
from binlog_pipeline.tables.watermark import gtid_text
from binlog_pipeline.telling import doubted

Booleans = NDArray[np.bool_]

_NO_FACTS: Final = Facts()
_STATEMENTS: Final = ("t", "a", "x")


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects in the order of the log. One element an effect.

    rows: the values, with columns as the table has them now; of a removal only the key counts.
    removes: the row is removed.
    present: a column for each of the table, whether its value was logged; None if all were, in all.
    empties: before all of them the table was emptied.
    unknown: the statement behind which the rows are not known, and why; empty if they are.
    facts: of the table behind all of them; whole if it was emptied, or was whole before, and nothing is in doubt.
    """

    rows: pa.Table
    removes: Booleans
    present: Booleans | None
    empties: bool
    unknown: str = ""
    facts: Facts = field(default_factory=Facts)

    def __len__(self) -> int:
        return len(self.removes)

    def some(self, which: Integers) -> Effects:
        """The effects with these indexes."""
        present = None if self.present is None else self.present[which]
        return replace(
            self, rows=self.rows.take(pa.array(which)), removes=self.removes[which], present=present
        )


def effects(
    changes: pa.Table,
    keys: Sequence[str],
    facts: Facts = _NO_FACTS,
    there: Collection[str] = (),
    *,
    is_empty: bool = False,
) -> Effects:
    """Raises `BadOption` for keys that are no columns, `SourceError` for an image without what is needed of it.

    Args:
        facts: of the table before the changes.
        there: columns that it had then, as far as they are known.
        is_empty: whether it is known that it had no rows.
    """
    names = [one.name for one in changes.schema.field("after").type]
    missing = [key for key in keys if key not in names]
    if missing or not keys:
        raise BadOption(
            f"the table has no column {', '.join(missing)}: it has {', '.join(names)}"
            if missing and "@1" not in names
            else "the log names no primary key: the table has none, or its rows were logged without names "
            "(binlog_row_metadata is not FULL); name the columns in keys that tell its rows apart"
        )
    for key in keys:
        type_ = changes.schema.field("after").type.field(key).type
        if pa.types.is_nested(type_):
            raise BadOption(f"column {key} cannot be a key here: it is {type_}")
    changes = changes.take(pc.sort_indices(changes.column("_order_key"))).combine_chunks()
    changes = _without_rolled_back(changes)
    ops: NDArray[np.str_] = np.array(changes.column("_op").to_pylist(), dtype="U1")
    was_whole = facts.is_whole
    empties, unknown, facts, first = _told(changes, ops, facts, is_empty=is_empty)
    which = np.flatnonzero(~np.isin(ops, _STATEMENTS) & (np.arange(len(ops)) >= first))
    if len(which) < len(ops):
        changes, ops = changes.take(pa.array(which)).combine_chunks(), ops[which]
    is_delete, is_update = ops == "d", ops == "u"
    before, after = _image(changes, "before"), _image(changes, "after")
    present = _present(changes.column("_present"), len(names))
    rows = _chosen(is_delete, before, after)
    if present is not None:
        _require_computed(changes, ops, before, after, present, facts)
        facts = _checked(changes, ops, present, facts, () if empties or is_empty else there)
        facts = _with_replaced(changes, before, rows, present, is_update, facts)
        _require_primary(changes, keys)
        rows = _filled(changes, rows, before, present, is_update)
        rows = _with_keys(rows, before, present, keys, names, is_update)
        for key in keys:
            present[:, names.index(key)] = True
    facts = replace(facts, is_whole=(was_whole or empties) and not facts.doubt)
    found = Effects(rows, is_delete, present, empties, unknown, facts)
    moves = np.flatnonzero(is_update & _differ(before, rows, keys))
    places: Integers = np.arange(len(ops))
    comes = ops == "c"
    if len(moves):
        found, places = _moved(found, before, moves, changes)
        comes[moves] = True
    return _with_shared_keys(found, keys, comes[places] & ~found.removes, changes, places)


def _moved(
    found: Effects, before: pa.Table, moves: Integers, changes: pa.Table
) -> tuple[Effects, Integers]:
    """With the removals of old keys, each in front of its row; and the change of each effect."""
    rows, removes, present = found.rows, found.removes, found.present
    partly = moves if present is None else moves[~present[moves].all(axis=1)]
    if present is not None and len(partly):
        raise IncompleteImage(
            "an UPDATE has changed a key, and only the changed columns were logged: the other ones of the row cannot "
            f"be known under its new key ({gtid_text(changes, int(partly[0]))}); set binlog_row_image=FULL on the "
            "master, or begin with a new copy; columns that are computed may not be logged even so (MariaDB 11.8.9): "
            "leave them out with the option columns"
        )
    count = len(found)
    order = np.argsort(np.concatenate((moves, np.arange(count) + 0.5)), kind="stable")
    rows = pa.concat_tables([before.take(pa.array(moves)), rows]).take(pa.array(order))
    removes = np.concatenate((np.ones(len(moves), np.bool_), removes))[order]
    if present is not None:
        ones = np.ones((len(moves), present.shape[1]), np.bool_)
        present = np.concatenate((ones, present))[order]
    places = np.concatenate((moves, np.arange(count)))[order]
    return replace(found, rows=rows.combine_chunks(), removes=removes, present=present), places


def _with_shared_keys(
    found: Effects, keys: Sequence[str], comes: Booleans, changes: pa.Table, places: Integers
) -> Effects:
    """With a doubt, if a row came with the key of one that these changes have set.

    The server sees to it that rows have primary keys of their own; but dates that are not whole are null here, and
    other columns may have been named. Rows from before are not looked at.
    """
    has_null = any(found.rows.column(key).null_count for key in keys)
    is_primary = "_key" in changes.schema.names and {*keys} == {
        field.name for field in changes.schema.field("_key").type
    }
    if found.facts.doubt or (is_primary and not has_null):
        return found
    codes = key_codes([found.rows.select(keys)], keys)[0]
    order = np.argsort(codes, kind="stable")
    is_second = (np.diff(codes[order]) == 0) & ~found.removes[order][:-1] & comes[order][1:]
    if not is_second.any():
        return found
    first = int(order[1:][is_second].min())
    why = (
        "zero and partial dates are null here: zeroDate=string tells them apart, in a new target"
        if is_primary
        else "name columns that are unique and NOT NULL by --keys, for a new target"
    )
    doubt = (
        f"a row of {gtid_text(changes, int(places[first]))} has the key of another one "
        f"({', '.join(keys)}), and one of them is kept; {why}"
    )
    return replace(found, facts=replace(found.facts, doubt=doubt, is_whole=False))


def _told(
    changes: pa.Table, ops: NDArray[np.str_], facts: Facts, *, is_empty: bool
) -> tuple[bool, str, Facts, int]:
    """Effects of statements: whether the table was emptied, the doubt, the facts, the first change that counts."""
    statements = changes.column("_statement") if "_statement" in changes.schema.names else None
    unknown: str = ""
    first = behind = 0  # behind: the statement before, with no row since
    for i in np.flatnonzero(np.isin(ops, _STATEMENTS)).tolist():
        op, gtid = str(ops[i]), gtid_text(changes, i)
        said = None if statements is None else statements[i].as_py()
        had = said is None or not said["ends"] or facts.prepared.get(said["ends"])
        facts = facts.behind(op, said, gtid)
        is_empty = is_empty and i == behind
        behind = i + 1
        if not had:
            continue  # the end of an XA transaction without rows of the table
        if op == "t":
            unknown, first, is_empty = "", i + 1, True
        elif is_empty and said is not None and said["is_own"]:
            continue
        elif op == "x" and not unknown:
            unknown = gtid if said is None else doubted(gtid, said["sql"], said["doubt"])
    return first > 0, unknown, facts, first


def _without_rolled_back(changes: pa.Table) -> pa.Table:
    """Without XA transactions that were prepared and rolled back in them, and are in them as a whole."""
    if "_statement" not in changes.schema.names:
        return changes
    statements = changes.column("_statement")
    prepared: dict[str, int] = {}
    is_kept = np.ones(len(changes), np.bool_)
    for i in np.flatnonzero(statements.is_valid().to_numpy()).tolist():
        said = statements[i].as_py()
        if said["prepares"]:
            prepared[said["prepares"]] = i
        elif said["ends"]:
            end = prepared.pop(said["ends"], None)
            if end is None or not said["doubt"]:
                continue
            begin = _first_of_group(changes, end)
            if begin:  # else its beginning may have been given before
                is_kept[begin : end + 1] = False
                is_kept[i] = False
    return changes if is_kept.all() else changes.filter(pa.array(is_kept)).combine_chunks()


def _first_of_group(changes: pa.Table, i: int) -> int:
    gtids = changes.column("_gtid")
    while i and gtids[i - 1] == gtids[i]:
        i -= 1
    return i


def _checked(
    changes: pa.Table,
    ops: NDArray[np.str_],
    present: Booleans,
    facts: Facts,
    there: Collection[str],
) -> Facts:
    """The facts, in doubt if columns that were not logged may have changed. Raises `IncompleteImage`, if they have."""
    names = [one.name for one in changes.schema.field("after").type]
    is_insert, is_change = ops == "c", ops != "d"
    for name in {*facts.defaulted} & {*names}:
        missing = ~present[:, names.index(name)] & is_insert
        if missing.any():
            raise IncompleteImage(
                f"{gtid_text(changes, int(missing.argmax()))} does not say what is in column {name}, which got its "
                "default: set binlog_row_image=FULL on the master, and begin with a new copy; or leave the column out "
                "with the option columns"
            )
    known = [i for i, name in enumerate(names) if name in there or not there]
    if facts.is_defined or facts.doubt:
        return facts
    partly = is_change & ~present[:, known].all(axis=1)
    if not partly.any():
        return facts
    doubt = (
        f"{gtid_text(changes, int(partly.argmax()))} has not logged all columns (binlog_row_image), and the table's "
        "CREATE TABLE is not in the log: columns that the server computes, and defaults, may be wrong"
    )
    return replace(facts, doubt=doubt)


def _require_computed(
    changes: pa.Table,
    ops: NDArray[np.str_],
    before: pa.Table,
    after: pa.Table,
    present: Booleans,
    facts: Facts,
) -> None:
    """Raise `IncompleteImage` if a column that the server computes was not logged, and may have another value now.

    It has not where an UPDATE has left alone what it is computed of.
    """
    names = after.column_names
    sources = {name: of for name, *of in facts.sources}
    was_logged: Booleans | None = None  # made once, for all columns, where one asks
    for name in sorted({*facts.computed, *sources} & {*names}):
        missing = ~present[:, names.index(name)] & (ops != "d")
        if name in sources and missing.any():
            if was_logged is None:
                was_logged = _logged_before(changes, len(names))
            differs = _may_differ(before, after, was_logged, present, sources[name])
            missing &= (ops == "c") | differs
        if missing.any():
            raise IncompleteImage(
                f"{gtid_text(changes, int(missing.argmax()))} does not say what is in column {name}, which is computed "
                "by the server: leave the column out with the option columns, or load the table again; or set "
                "binlog_row_image=FULL on the master, and begin with a new copy (MariaDB 11.8.9 logs such columns in "
                "no UPDATE even so)"
            )


def _logged_before(changes: pa.Table, width: int) -> Booleans:
    """Which columns the images before have, row by row; none where that is not told."""
    shape = changes.num_rows, width
    if "_before_present" not in changes.schema.names:
        return np.zeros(shape, np.bool_)
    logged = _present(changes.column("_before_present"), width)
    return np.ones(shape, np.bool_) if logged is None else logged


def _may_differ(
    before: pa.Table,
    after: pa.Table,
    was_logged: Booleans,
    present: Booleans,
    columns: Sequence[str],
) -> Booleans:
    """Whether one of the columns was logged, and may have another value than before, row by row."""
    found = np.zeros(len(present), np.bool_)
    names = [one.casefold() for one in after.column_names]
    for column in columns:
        if column.casefold() not in names:  # it is not read
            return ~found
        number = names.index(column.casefold())
        is_same = was_logged[:, number] & _is_same(before.column(number), after.column(number))
        found |= present[:, number] & ~is_same
    return found


def _is_same(was: pa.ChunkedArray, now: pa.ChunkedArray) -> Booleans:
    """Whether a column has the same value in both images, row by row; False where that is not certain."""
    if pa.types.is_nested(now.type):
        return np.zeros(len(now), np.bool_)
    is_same = pc.fill_null(pc.equal(was, now), False)
    if pa.types.is_string(now.type) or pa.types.is_large_string(now.type):
        is_same = pc.and_not(is_same, pc.fill_null(pc.match_substring(now, "\ufffd"), False))
    if not pa.types.is_temporal(now.type):  # where null may be a date without a day, too
        is_same = pc.or_(is_same, pc.and_(pc.is_null(was), pc.is_null(now)))
    certain: Booleans = is_same.to_numpy()
    return certain


def _with_replaced(
    changes: pa.Table,
    before: pa.Table,
    rows: pa.Table,
    present: Booleans,
    is_update: Booleans,
    facts: Facts,
) -> Facts:
    """The facts; with a doubt, if an UPDATE may be the log of a REPLACE.

    Servers log that without the columns that it has set to their defaults (10.11, 11.8: not with FULL, FULL_NODUP). It
    is known by a key that is logged though it stays, which an UPDATE seldom does, unless all but BLOBs are logged.
    Computed columns have no defaults: `_require_computed` has looked at them.
    """
    computed = {name for name, *_ in facts.sources}
    others = [i for i, name in enumerate(rows.column_names) if name not in computed]
    partly = is_update & ~present[:, others].all(axis=1)
    if facts.doubt or not partly.any():
        return facts
    has_kept = np.zeros(len(partly), np.bool_)
    for number, (was, column) in enumerate(zip(before.columns, rows.columns, strict=True)):
        if not pa.types.is_nested(column.type):
            is_same = pc.fill_null(pc.equal(was, column), False).to_numpy()
            has_kept |= present[:, number] & is_same
    maybe = partly & has_kept
    if not maybe.any():
        return facts
    doubt = (
        f"{gtid_text(changes, int(maybe.argmax()))} has not logged all columns (binlog_row_image): if it was a "
        "REPLACE, the others have their defaults now, if it was an UPDATE they stay, and the log does not say which"
    )
    return replace(facts, doubt=doubt)


def _filled(
    changes: pa.Table,
    rows: pa.Table,
    before: pa.Table,
    present: Booleans,
    is_update: Booleans,
) -> pa.Table:
    """Rows filled up with columns that an UPDATE did not log, from a whole image before it (FULL_NODUP)."""
    if "_before_present" not in changes.schema.names:
        return rows
    is_whole = is_update & changes.column("_before_present").is_null().to_numpy()
    if not is_whole.any():
        return rows
    columns = [
        pc.if_else(pa.array(is_whole & ~present[:, i]), before.column(i), column)
        for i, column in enumerate(rows.columns)
    ]
    present[is_whole] = True
    return pa.table(columns, names=rows.column_names)


def _image(changes: pa.Table, name: str) -> pa.Table:
    """The columns of an image; null where there is none."""
    column = changes.column(name)
    arrays = [pc.struct_field(column, i) for i in range(column.type.num_fields)]
    return pa.table(arrays, names=[one.name for one in column.type])


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
    present: Booleans,
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
    """Check that rows not logged whole have all of `keys`: only the primary key is sure. Raises `SourceError`."""
    if "_key" not in changes.schema.names:
        return  # no primary key: the image before has all columns
    primary = {one.name for one in changes.schema.field("_key").type}
    if not primary.issuperset(keys):
        raise SourceError(
            f"rows are not logged whole ({gtid_text(changes, 0)}): with binlog_row_image=MINIMAL only the primary key "
            f"({', '.join(sorted(primary))}) can be the key"
        )


def _differ(a: pa.Table, b: pa.Table, keys: Sequence[str]) -> Booleans:
    """Whether the keys differ, row by row; null is equal to null."""
    found = np.zeros(len(b), np.bool_)
    for key in keys:
        left, right = a.column(key), b.column(key)
        equal = pc.fill_null(pc.equal(left, right), False)
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        found |= ~pc.or_(equal, both_null).to_numpy()
    return found


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
