"""Rows as JSON objects, made by column: no value becomes a Python object, lists and bytes apart.

numbers                   as they are; DECIMAL too, with all its digits
text, ENUM, SET           strings; numbers and bytes where those are given
dates and times           strings: 2026-01-02, 2026-01-02 03:04:05.678901, TIMESTAMP with a Z behind it
TIME                      microseconds; with time=string a string
bytes                     base64
GEOMETRY                  {"srid": ..., "wkb": base64}
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SPACE: Final = 0x20
_QUOTE, _BACKSLASH = 0x22, 0x5C
_NUMBERS: Final = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean,
)  # fmt: skip


def json_objects(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """One JSON object for each row, as text, with these members."""
    if not names:
        return pa.repeat(pa.scalar("{}"), count)
    pieces: list[Any] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        pieces += [f"{before}{json.dumps(name, ensure_ascii=False)}:", json_values(column)]
        before = ","
    return pc.binary_join_element_wise(
        *pieces, "}", "", null_handling="replace", null_replacement="null"
    )


def json_values(column: pa.Array) -> pa.Array:
    """The JSON of each value, as text; null where the value is null."""
    type_ = column.type
    if any(is_number(type_) for is_number in _NUMBERS):
        return column.cast(pa.string())
    if pa.types.is_duration(type_):
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        objects = json_objects(names, column.flatten(), len(column))
        return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.string()))
    if pa.types.is_list(type_):
        lists = (
            None if v is None else json.dumps(v, ensure_ascii=False, default=_base64)
            for v in column.to_pylist()
        )
        return pa.array(lists, pa.string())
    return pc.binary_join_element_wise('"', _text(column), '"', "")


def _text(column: pa.Array) -> pa.Array:
    """The texts between the quotes: base64 for binary values."""
    if pa.types.is_binary(column.type):
        encoded = (None if v is None else _base64(v) for v in column.to_pylist())
        return pa.array(encoded, pa.string())
    if pa.types.is_string(column.type):
        return _escaped(column)
    return column.cast(pa.string())


def _base64(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode()


def _escaped(column: pa.Array) -> pa.Array:
    data = column.buffers()[2]
    if data is None or not data.size:
        return column
    letters = np.frombuffer(data, np.uint8)
    special = (letters < _SPACE) | (letters == _QUOTE) | (letters == _BACKSLASH)
    if not special.any():
        return column
    # The backslash first: the others bring new ones.
    for code in sorted(set(letters[special].tolist()), key=lambda code: code != _BACKSLASH):
        letter = chr(code)
        column = pc.replace_substring(column, letter, json.dumps(letter)[1:-1])
    return column
