"""Rows of temporary tables without a primary key: each has a number in front of it, and that is its key.

Nothing of these tables is logged, so the number is in no event; values, and a table's checksum, do not have it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from binlog_protocol.tables.definition import KeyKind, StoredKey, StoredTable
from binlog_protocol.tables.row_format import RowFormat, Values

_NUMBER_BYTES: Final = 8
NO_KEY: Final = StoredKey("PRIMARY", KeyKind.PRIMARY, ())
"""In the place of the primary key that a table does not have."""


class _Numbered(tuple[bytes | None, ...]):
    """The bytes of a row's values, and the number of the row."""

    number: bytes


class KeylessFormat(RowFormat):
    """Rows of one table without a primary key."""

    def __init__(self, definition: StoredTable) -> None:
        super().__init__(definition)
        self._numbers = itertools.count(1)

    def joined(self, values: Sequence[bytes | None]) -> bytes:
        """See `RowFormat`: a new row."""
        return next(self._numbers).to_bytes(_NUMBER_BYTES, "big") + super().joined(values)

    def changed(self, row: bytes, values: Sequence[bytes | None]) -> bytes:
        """See `RowFormat`: it keeps its number."""
        return row[:_NUMBER_BYTES] + super().joined(values)

    def split(self, row: bytes) -> Values:
        """See `RowFormat`."""
        found = _Numbered(super().split(row[_NUMBER_BYTES:]))
        found.number = row[:_NUMBER_BYTES]
        return found

    def key(self, values: Values, key: StoredKey) -> bytes:
        """See `RowFormat`."""
        if key.parts:
            return super().key(values, key)
        assert isinstance(values, _Numbered)
        return values.number
