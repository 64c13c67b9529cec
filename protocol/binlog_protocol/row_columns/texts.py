"""Columns of text, bytes and labels; `binlog_protocol/events/rows/strings.py` has their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from binlog_protocol.events.charsets import (
    UTF8_CHARSETS,
    UndecodedText,
    charset_of,
    decode_text,
    is_storable,
    replaced_text,
)
from binlog_protocol.events.rows import strings
from binlog_protocol.events.table_map import Label
from binlog_protocol.row_columns import arrays
from binlog_protocol.row_columns.loops import ColumnReading, Reader
from binlog_protocol.row_columns.numbers import label_numbers
from binlog_protocol.row_columns.row_bytes import Field, Integers

_ASCII: Final = bytes(range(128))
_SRID_SIZE: Final = 4
_SIZE_MAX: Final = (1 << 31) - 1
GEOMETRY: Final = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])


def reading_of_bytes(size: int = _SIZE_MAX) -> ColumnReading:
    """Of values of up to so many bytes."""
    return ColumnReading(Reader.BYTES, None, size)


def check_lengths(field: Field, size: int) -> None:
    """Raises `Damaged` if a value is longer; where the values are there, they are not."""
    if field.found is not None:
        return
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
    if _extends_ascii(collation) and _is_ascii(values):
        return pa.Array.from_buffers(
            pa.string(), len(values), values.buffers(), offset=values.offset
        )
    if charset_of(collation) in UTF8_CHARSETS:
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
    if isinstance(decoded, UndecodedText) or not is_storable(decoded):
        return on_bad(raw)
    return decoded


@lru_cache
def _extends_ascii(collation: int) -> bool:
    return decode_text(_ASCII, collation) == _ASCII.decode("ascii")


def _is_ascii(values: pa.Array) -> bool:
    data = values.buffers()[2]
    return data is None or not data.size or int(np.frombuffer(data, np.uint8).max()) < len(_ASCII)


def labels_type(labels: Sequence[Label]) -> pa.DataType:
    """The Arrow type of one label: bytes if the character set is binary."""
    return pa.binary() if isinstance(strings.no_label(labels), bytes) else pa.string()


def label_values(
    labels: Sequence[Label], on_bad: Callable[[UndecodedText], str]
) -> list[str | bytes]:
    """The values of labels; `on_bad` gives the text of a label that does not decode, or raises."""
    return [on_bad(label) if isinstance(label, UndecodedText) else label for label in labels]


def are_told_apart(labels: Sequence[Label]) -> bool:
    """Whether those that differ still do when what is no text is replaced."""
    return len({*label_values(labels, replaced_label)}) == len({*labels})


def replaced_label(label: UndecodedText) -> str:
    return replaced_text(label.raw, label.collation)


def enum(
    field: Field, size: int, labels: Sequence[Label], on_bad: Callable[[UndecodedText], str]
) -> pa.Array:
    """An ENUM as its labels; `on_bad` is asked of those that occur."""
    numbers = label_numbers(field, size)
    field.refuse(numbers > len(labels))
    empty = strings.no_label(labels)
    occurring = [
        empty if isinstance(label, UndecodedText) and not field.any(numbers == number) else label
        for number, label in enumerate(labels, 1)
    ]
    values = label_values([empty, *occurring], on_bad)
    return _taken(values, numbers, field, labels_type(labels))


def set_type(labels: Sequence[Label], *, is_joined: bool) -> pa.DataType:
    """The Arrow type of a SET: its members joined by commas, or a list of them."""
    type_ = labels_type(labels)
    return type_ if is_joined else pa.list_(type_)


def set_members(
    field: Field,
    bits: NDArray[np.uint64],
    labels: Sequence[Label],
    on_bad: Callable[[UndecodedText], str],
    *,
    is_joined: bool,
) -> pa.Array:
    """A SET, see `set_type`. Each combination that occurs is put together once."""
    if len(labels) < 64:
        field.refuse(bits >> np.uint64(len(labels)) != 0)
    if field.nulls is not None:
        bits = np.where(field.nulls, np.uint64(0), bits)
    combinations, numbers = np.unique(bits, return_inverse=True)
    members = [
        label_values([label for i, label in enumerate(labels) if combination >> i & 1], on_bad)
        for combination in combinations.tolist()
    ]
    empty = strings.no_label(labels)
    values = [strings.joined(found, empty) for found in members] if is_joined else members
    return _taken(values, numbers, field, set_type(labels, is_joined=is_joined))


def _taken(values: Sequence[Any], numbers: Integers, field: Field, type_: pa.DataType) -> pa.Array:
    return pa.array(values, type_).take(pa.array(numbers, mask=field.nulls))


def storable(name: str) -> str:
    """A name that Arrow takes: bytes that did not decode in the table map, kept as surrogates, are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def decompressed(values: pa.Array) -> pa.Array:
    """The values of a COMPRESSED column. Raises `ProtocolError`."""
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
