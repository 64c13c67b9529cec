"""Arrow arrays from numpy's, by their buffers: nothing is copied value by value."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from binlog_protocol.row_columns import loops
from binlog_protocol.row_columns.row_bytes import Bools, Field, Integers, RowBytes

OFFSET_MAX: Final = (
    1 << 31
) - 64  # of Arrow's binary and string, with room for what stands behind the bytes


def array(type_: pa.DataType, values: NDArray[Any], nulls: Bools | None) -> pa.Array:
    """Values of fixed size, in the byte order of the machine; booleans too."""
    data = np.packbits(values, bitorder="little") if pa.types.is_boolean(type_) else values
    return pa.Array.from_buffers(type_, len(values), [_validity(nulls), pa.py_buffer(data)])


def binary(field: Field, skip: int = 0) -> pa.Array:
    """The bytes of each value, without the first `skip`; none is shorter than that, but for empty ones."""
    if field.found is not None:
        assert not skip
        buffers = [_validity(field.nulls), *map(pa.py_buffer, field.found[1:3])]
        return pa.Array.from_buffers(pa.binary(), len(field), buffers)
    assert field.lengths is not None
    lengths: Integers = field.lengths
    begins = field.at
    if skip:
        is_empty = lengths == 0  # NULL, too
        begins = np.where(is_empty, begins, begins + skip)
        lengths = np.where(is_empty, 0, lengths - skip)
    return with_nulls(ranges(field.data, begins, begins + lengths), field.nulls)


def ranges(data: RowBytes, begins: Integers, ends: Integers) -> pa.Array:
    """The bytes at some places, which ascend; all in one buffer without gaps.

    What is behind the end of the bytes is left out.
    """
    if not loops.HAS_C:
        return _taken_ranges(data, begins, ends)
    copied, offsets = _copied(data, begins, ends)
    return pa.Array.from_buffers(
        pa.binary(), len(begins), [None, pa.py_buffer(offsets), pa.py_buffer(copied)]
    )


def joined_ranges(data: RowBytes, begins: Integers, ends: Integers) -> bytes:
    """The same bytes alone, of places in any order."""
    if loops.HAS_C:
        return _copied(data, begins, ends)[0]
    if len(begins) and data.size <= OFFSET_MAX and bool((begins[1:] >= ends[:-1]).all()):
        found: bytes = _taken_ranges(data, begins, ends).buffers()[2].to_pybytes()
        return found
    places = zip(begins.tolist(), ends.tolist(), strict=True)
    return b"".join([data.raw[begin:end] for begin, end in places])


def _copied(data: RowBytes, begins: Integers, ends: Integers) -> tuple[bytes, NDArray[np.int32]]:
    offsets = np.empty(len(begins) + 1, np.int32)
    places = (np.ascontiguousarray(begins), np.ascontiguousarray(ends))
    return loops.copy_ranges(data.raw, *places, offsets), offsets


def _taken_ranges(data: RowBytes, begins: Integers, ends: Integers) -> pa.Array:
    """In Arrow.

    Offsets that alternate between beginnings and ends make an array in which each second element is wanted; taking
    those is one copy. NULLs ascend too: they lie at the most a length and `skip` further than they should, and what
    comes next has the same before it.
    """
    count = len(begins)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = np.minimum(begins, data.size)
    offsets[1::2] = np.minimum(ends, data.size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data.raw)]
    around = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), buffers)
    return around.take(pa.array(np.arange(0, 2 * count, 2)))


def with_nulls(values: pa.Array, nulls: Bools | None) -> pa.Array:
    """The same values, some of them null; `values` has no nulls and no offset."""
    if nulls is None:
        return values
    buffers = [_validity(nulls), *values.buffers()[1:]]
    return pa.Array.from_buffers(values.type, len(values), buffers)


def _validity(nulls: Bools | None) -> pa.Buffer | None:
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
