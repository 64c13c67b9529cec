"""Options for values that Arrow, or Spark behind it, has no plain place for."""

from __future__ import annotations

from typing import Literal

from binlog_protocol.dataclass import dataclass


class UnrepresentableValue(ValueError):
    """A sound value that the chosen column type cannot hold. The text names the column and the option to change."""


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """One choice for all columns; the first of each is the default.

    zero_date: zero and partial dates become null, or an error; `string` makes every DATE, DATETIME and TIMESTAMP text.
    time: TIME as a duration, as microseconds, or as text (it goes to 838 hours, either way).
    unsigned_bigint: BIGINT UNSIGNED and BIT(64) as decimal(20,0), as a long with an error beyond 2^63-1, or as text.
    bad_text: bytes that are no text in their character set become U+FFFD, or an error; `binary` makes every text
        column binary, as it is in the log. An ENUM or SET is given by its numbers if a label is no text with `binary`,
        and otherwise if two of its labels would become the same.
    bit1: BIT(1) as a long or as a boolean.
    set_labels: a SET as its members joined by commas, or as a list.
    """

    zero_date: Literal["null", "string", "error"] = "null"
    time: Literal["interval", "micros", "string"] = "interval"
    unsigned_bigint: Literal["decimal", "long", "string"] = "decimal"
    bad_text: Literal["replace", "binary", "error"] = "replace"
    bit1: Literal["long", "boolean"] = "long"
    set_labels: Literal["string", "array"] = "string"
