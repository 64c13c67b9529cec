"""Columns of text, bytes and labels; `binlog_protocol/events/rows/strings.py` has their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlog_protocol.events.charsets import UndecodedText, charset_of, decode_text, replaced_text
from binlog_protocol.events.rows import strings
from binlog_protocol.row_columns import arrays
from binlog_protocol.row_columns.row_bytes import Field, Integers

_UTF8: Final = ("utf8mb3", "utf8mb4")
_ASCII: Final = bytes(range(128))
_SRID_SIZE: Final = 4
GEOMETRY: Final = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])


def check_lengths(field: Field, size: int) -> None:
    assert field.lengths is not None
    field.refuse(field.lengths > size)


def padded(values: pa.Array, size: int) -> pa.Array:
    """BINARY(size): the zeros that the log leaves out are put back."""
    if values.nbytes and pc.min(pc.binary_length(values)).as_py() in (size, None):
        return values
    rows = [None if value is None else value.ljust(size, b"\0") for value in values.to_pylist()]
    return pa.array(rows, pa.binary())


def text(values: pa.Array, collation: int, on_bad: Callable[[bytes], str]) -> pa.Array:
    """Bytes of a collation as text. `on_bad` gives the text of bytes that are none, or raises."""
    if charset_of(collation) in _UTF8 or (_extends_ascii(collation) and _is_ascii(values)):
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass
    words = values.dictionary_encode()
    decoded = [_decoded(raw, collation, on_bad) for raw in words.dictionary.to_pylist()]
    return pa.array(decoded, pa.string()).take(words.indices)


def replacing(collation: int) -> Callable[[bytes], str]:
    return lambda raw: replaced_text(raw, collation)


def _decoded(raw: bytes, collation: int, on_bad: Callable[[bytes], str]) -> str:
    decoded = decode_text(raw, collation)
    if isinstance(decoded, UndecodedText) or not _is_storable(decoded):
        return on_bad(raw)
    return decoded


def _is_storable(decoded: str) -> bool:
    """Not with half a surrogate pair in it, as a ucs2 column may have."""
    try:
        decoded.encode()
    except UnicodeEncodeError:
        return False
    return True


def _extends_ascii(collation: int) -> bool:
    return decode_text(_ASCII, collation) == _ASCII.decode("ascii")


def _is_ascii(values: pa.Array) -> bool:
    data = values.buffers()[2]
    return data is None or not data.size or int(np.frombuffer(data, np.uint8).max()) < len(_ASCII)


def enum(field: Field, size: int, labels: Sequence[str]) -> pa.Array:
    numbers = field.data.unsigned(field.at, size)
    field.refuse(numbers > len(labels))
    return _taken(["", *labels], numbers, field, pa.string())


def set_type(*, joined: bool) -> pa.DataType:
    return pa.string() if joined else pa.list_(pa.string())


def set_members(
    field: Field, bits: NDArray[np.uint64], labels: Sequence[str], *, joined: bool
) -> pa.Array:
    """A SET as text, or as a list of its members. Each combination that occurs is put together once."""
    if len(labels) < 64:
        field.refuse(bits >> np.uint64(len(labels)) != 0)
    if field.nulls is not None:
        bits = np.where(field.nulls, np.uint64(0), bits)
    combinations, numbers = np.unique(bits, return_inverse=True)
    members = [
        [label for i, label in enumerate(labels) if combination >> i & 1]
        for combination in combinations.tolist()
    ]
    values = [",".join(found) for found in members] if joined else members
    return _taken(values, numbers, field, set_type(joined=joined))


def _taken(values: Sequence[Any], numbers: Integers, field: Field, type_: pa.DataType) -> pa.Array:
    sound = [storable(v) if isinstance(v, str) else [*map(storable, v)] for v in values]
    return pa.array(sound, type_).take(pa.array(numbers, mask=field.nulls))


def storable(name: str) -> str:
    """What was not decoded when the table map was read is kept there as surrogates, which Arrow does not take."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def decompressed(values: pa.Array) -> pa.Array:
    """Of a COMPRESSED column. Raises `ProtocolError`."""
    rows = [None if value is None else strings.decompressed(value) for value in values.to_pylist()]
    return pa.array(rows, pa.binary())


def geometries(field: Field) -> pa.Array:
    """SRID and WKB. What is empty, as INSERT IGNORE makes of a value that is missing, has neither: 0 and no bytes."""
    assert field.lengths is not None
    is_empty = field.lengths == 0
    field.refuse((field.lengths < _SRID_SIZE) & ~is_empty)
    srid = field.data.unsigned(field.at, _SRID_SIZE).astype(np.uint32).view(np.int32)
    srid = np.where(is_empty, np.int32(0), srid)
    children = [arrays.array(pa.int32(), srid, field.nulls), arrays.binary(field, _SRID_SIZE)]
    mask = None if field.nulls is None else pa.array(field.nulls)
    return pa.StructArray.from_arrays(children, fields=list(GEOMETRY), mask=mask)
