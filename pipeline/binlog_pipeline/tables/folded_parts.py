"""The effects of a group that comes in parts, folded over all of them: one a key, in pieces that memory has room for.

A part is folded when it comes, put in the order of its key, and kept in a file of this machine (`TMPDIR`) without a
name, so that nothing is left of it when the process is killed. Behind the last part the pieces are read: each is a
range of keys, of all parts. So a data file whose keys lie together is written anew once, and not once a part.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from binlog_pipeline.tables.chunks import CHUNK_BYTES
from binlog_pipeline.tables.effects import Effects
from binlog_pipeline.tables.fold import last_effects

_SAMPLES: Final = 256
"""Of the keys of a part, so many are looked at to find out where pieces begin."""

_Key = tuple[tuple[bool, Any], ...]


class _Part(NamedTuple):
    """rows: as of `Effects`, with `removes` and the bits of `present` as columns behind the others.

    is_partly: whether there is a `present`.
    """

    rows: pa.Table
    is_partly: bool


class FoldedParts:
    """See the module. One owner.

    keys: the columns that tell rows apart.
    size: bytes of a piece, about.
    """

    def __init__(self, keys: Sequence[str], size: int = CHUNK_BYTES) -> None:
        self._keys: Final = [*keys]
        self._size: Final = size
        self._parts: list[_Part] = []
        self._newest: Effects | None = None

    def add(self, found: Effects) -> None:
        """The effects of the next part. Raises OSError if the disk has no room for them."""
        if found.empties:
            self._parts.clear()
        elif self._newest is not None:
            rows = found.rows.cast(self._newest.rows.schema)
            found = replace(found, rows=rows, empties=self._newest.empties)
        self._newest = found.some(np.arange(0))
        folded = last_effects(found, self._keys)
        if not len(folded):
            return
        order = pc.sort_indices(folded.rows.select(self._keys), sort_keys=self._order)
        self._parts.append(_kept(folded.some(order.to_numpy())))

    def pieces(self) -> Iterator[Effects]:
        """One effect a key; the first piece, which may be empty, says whether the table was emptied before."""
        if self._newest is None:
            return
        first = self._newest
        begins = [0] * len(self._parts)
        for cut in [*self._cuts(), None]:
            ends = [
                len(part.rows) if cut is None else self._place(part.rows, cut, begin)
                for part, begin in zip(self._parts, begins, strict=True)
            ]
            ranges = [
                _loaded(part, begin, end, first)
                for part, begin, end in zip(self._parts, begins, ends, strict=True)
                if begin < end
            ]
            begins = ends
            if ranges:
                yield last_effects(replace(_joined(ranges), empties=first.empties), self._keys)
                first = replace(first, empties=False)
        if first.empties:
            yield first

    def whole(self) -> Effects:
        """All pieces as one, in memory."""
        assert self._newest is not None
        found = [*self.pieces()] or [self._newest]
        return replace(_joined(found), empties=found[0].empties)

    @property
    def _order(self) -> list[tuple[str, str]]:
        return [(key, "ascending") for key in self._keys]

    def _place(self, rows: pa.Table, cut: _Key, begin: int) -> int:
        """The index of the first key that is not in front of `cut`."""
        return bisect_left(range(len(rows)), cut, lo=begin, key=lambda i: self._key(rows, i))

    def _key(self, rows: pa.Table, index: int) -> _Key:
        """In the order in which Arrow sorts, null behind all others."""
        values = [rows.column(key)[index].as_py() for key in self._keys]
        return tuple((value is None, 0 if value is None else value) for value in values)

    def _cuts(self) -> list[_Key]:
        """The first keys of all pieces but the first."""
        samples: list[tuple[_Key, int]] = []
        for part, _ in self._parts:
            step = max(1, len(part) // _SAMPLES)
            for begin in range(0, len(part), step):
                samples.append((self._key(part, begin), part.slice(begin, step).nbytes))
        if sum(size for _, size in samples) <= self._size:
            return []
        samples.sort(key=lambda one: one[0])
        found: list[_Key] = []
        have = 0
        for key, size in samples:
            if have and have + size > self._size and (not found or found[-1] < key):
                found.append(key)
                have = 0
            have += size
        return found


def _kept(found: Effects) -> _Part:
    """In a file."""
    rows = found.rows
    added = {"removes": pa.array(found.removes)}
    if found.present is not None:
        bits = np.packbits(found.present, axis=1)
        data = pa.py_buffer(bits.tobytes())
        type_ = pa.binary(bits.shape[1])
        added["present"] = pa.Array.from_buffers(type_, len(found), [None, data])
    columns = [*rows.columns, *added.values()]
    names = [str(number) for number in range(rows.num_columns)]
    table = pa.table(columns, names=[*names, *added])
    fd, path = tempfile.mkstemp(prefix="binlog-part-")
    os.close(fd)
    try:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as stream:
            stream.write_table(table)
        kept = pa.ipc.open_file(pa.memory_map(path)).read_all()
    finally:
        Path(path).unlink()
    named = [field.name for field in rows.schema]
    return _Part(kept.rename_columns([*named, *added]), found.present is not None)


def _loaded(part: _Part, begin: int, end: int, like: Effects) -> Effects:
    """Some of a part, in memory."""
    width = like.rows.num_columns
    some = part.rows.slice(begin, end - begin)
    rows = some.select(range(width)).cast(like.rows.schema)
    removes = np.array(some.column(width).to_numpy(), np.bool_)
    present = None
    if part.is_partly:
        data = b"".join(some.column(width + 1).to_pylist())
        bits = np.frombuffer(data, np.uint8).reshape(len(some), -1)
        present = np.unpackbits(bits, axis=1)[:, :width].astype(np.bool_)
    return replace(like, rows=rows, removes=removes, present=present)


def _joined(found: Sequence[Effects]) -> Effects:
    """One behind the other."""
    rows = pa.concat_tables([one.rows for one in found])
    present = None
    if any(one.present is not None for one in found):
        present = np.concatenate(
            [
                np.ones((len(one), one.rows.num_columns), np.bool_)
                if one.present is None
                else one.present
                for one in found
            ]
        )
    removes = np.concatenate([one.removes for one in found])
    return replace(found[-1], rows=rows.combine_chunks(), removes=removes, present=present)
