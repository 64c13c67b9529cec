"""Columns whose values may not leave as they are: left out, masked, or replaced by a hash.

Columns are named by patterns of `database.table.column`, with `*` and `?` as in file names, in any case. The first kind
that fits counts: left out, then masked, then hashed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

from binlog_protocol.dataclass import dataclass

MASK: Final = "****"

Change = Callable[[str | None], str | None]
"""What becomes of a value as text; None is NULL."""


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """Which columns are changed on their way out.

    excluded: these are left out.
    masked: `MASK` stands for every value, NULL as well.
    hashed: the SHA-256 of `salt` and the value, in hex, stands for it; NULL stays NULL, so that joins still work.
    """

    excluded: Sequence[str] = ()
    masked: Sequence[str] = ()
    hashed: Sequence[str] = ()
    salt: bytes = b""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a pattern that can fit no column."""
        for pattern in (*self.excluded, *self.masked, *self.hashed):
            if pattern.count(".") < 2 and "*" not in pattern:
                raise ValueError(f"{pattern!r} is no column: give it as database.table.column")

    def leaves_out(self, column: str) -> bool:
        return _fits(column, self.excluded)

    def change(self, column: str) -> Change | None:
        """What becomes of the values of `database.table.column`; None for nothing."""
        if _fits(column, self.masked):
            return lambda value: MASK
        return self._hash if _fits(column, self.hashed) else None

    def _hash(self, value: str | None) -> str | None:
        if value is None:
            return None
        return hashlib.sha256(self.salt + value.encode("utf-8", "surrogatepass")).hexdigest()


def _fits(column: str, patterns: Sequence[str]) -> bool:
    return any(_matcher(pattern).fullmatch(column) for pattern in patterns)


def _matcher(pattern: str) -> re.Pattern[str]:
    wild = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(wild, re.IGNORECASE | re.DOTALL)
