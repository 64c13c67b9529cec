"""The kinds of values that options of the configuration file and variables of SQL have.

| kind     | in the file      | SET takes                     | SHOW prints     | SELECT @@x gives |
|----------|------------------|-------------------------------|-----------------|------------------|
| Number   | from low to high | numbers, cut with a warning   | digits          | an integer       |
| Decimals | from low to high | numbers, cut with a warning   | digits and a point | a decimal     |
| Switch   | true or false    | ON, OFF, 1, 0                 | ON or OFF       | 1 or 0           |
| Words    | one of them      | one of them, or its number    | the word        | the word         |
| Text     | printable text   | strings; `check` says which   | the text        | the text         |

`config.Config` has an option's kind beside its type; `sql.variables` has those of all other variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

from binlog_protocol.errors import WrongVariableValue
from binlog_protocol.errors.sql_errors import WrongVariableType

if TYPE_CHECKING:
    from binlog_server.sql.expressions import Value

Warn = Callable[[int, str], None]
"""Is told of what was taken in another form than it was given: number and text of a warning."""

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
_I64_MIN, _I64_MAX = -(2**63), 2**63 - 1
_TRUNCATED = 1292  # ER_TRUNCATED_WRONG_VALUE
_OVERFLOW = 1916  # ER_DATA_OVERFLOW
# MariaDB 11.8 prints slave_connections_needed_for_purge so.
_SHORT_CHARS, _SHORT_CHARS_KEPT = 32, 29


class Kind(Protocol):
    """A kind of values: the allowed ones, and their form in the file, in SET and in SHOW."""

    def check(self, value: Any) -> None:
        """Check a value of the configuration. Raises ValueError, which says what is wrong with it."""

    def text(self, value: Any) -> str:
        """A value of the configuration, as SHOW VARIABLES prints it."""

    def option(self, text: str) -> Any:
        """The value of the configuration for a text of SHOW VARIABLES."""

    def given(self, name: str, value: Value, warn: Warn) -> str:
        """The value given to SET, as SHOW VARIABLES prints it.

        Raises `WrongVariableValue` (1231), `WrongVariableType` (1232), and what `Text.check` does.
        """

    def selected(self, text: str) -> Value:
        """The value for SELECT @@x, from the text that SHOW VARIABLES prints."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number. What is beyond its limits is refused in the file, and cut by SET."""

    low: int
    high: int

    def check(self, value: Any) -> None:
        _between(self.low, value, self.high)

    def text(self, value: Any) -> str:
        return str(value)

    def option(self, text: str) -> int:
        return int(text)

    def given(self, name: str, value: Value, warn: Warn) -> str:
        return str(_cut(name, self.low, _whole(name, _number(name, value), warn), self.high, warn))

    def selected(self, text: str) -> Value:
        return int(text)


@dataclass(frozen=True, slots=True)
class Decimals:
    """A number with six digits behind the point."""

    low: int
    high: int
    rounding: str = ROUND_HALF_UP

    def check(self, value: Any) -> None:
        _between(self.low, value, self.high)

    def text(self, value: Any) -> str:
        return f"{value:.6f}"

    def option(self, text: str) -> float:
        return float(text)

    def given(self, name: str, value: Value, warn: Warn) -> str:
        cut = _cut(name, self.low, _number(name, value), self.high, warn)
        return f"{Decimal(cut).quantize(Decimal('1e-6'), self.rounding):f}"

    def selected(self, text: str) -> Value:
        return Decimal(text)


@dataclass(frozen=True, slots=True)
class Words:
    """One of a few words. In the file as they stand here, by SET in any case."""

    words: tuple[str, ...]

    def check(self, value: Any) -> None:
        if value not in self.words:
            raise ValueError(f"{value!r} is none of {', '.join(self.words)}")

    def text(self, value: Any) -> str:
        return str(value)

    def option(self, text: str) -> str:
        return text

    def given(self, name: str, value: Value, warn: Warn) -> str:
        return _word(name, value, self.words)

    def selected(self, text: str) -> Value:
        return text


@dataclass(frozen=True, slots=True)
class Switch:
    """ON or OFF."""

    def check(self, value: Any) -> None:
        pass

    def text(self, value: Any) -> str:
        return "ON" if value else "OFF"

    def option(self, text: str) -> bool:
        return text == "ON"

    def given(self, name: str, value: Value, warn: Warn) -> str:
        return _word(name, value, ("OFF", "ON"))

    def selected(self, text: str) -> Value:
        return int(text == "ON")


@dataclass(frozen=True, slots=True)
class Text:
    """Any text. `bytes_max`: of printable text in the file, 0 for what is checked elsewhere or nowhere.

    `parse` brings what SET was given into the form that is shown; whole numbers come to it where `numbered` says so.
    `null` is the form of NULL, None where that is refused.
    """

    bytes_max: int = 0
    parse: Callable[[str | int], str] = str
    numbered: bool = False
    null: str | None = None

    def check(self, value: Any) -> None:
        limit = self.bytes_max
        if limit and (len(value.encode(errors="replace")) > limit or not value.isprintable()):
            raise ValueError(f"{value!r} is not printable text of up to {limit} bytes")

    def text(self, value: Any) -> str:
        return str(value)

    def option(self, text: str) -> str:
        return text

    def given(self, name: str, value: Value, warn: Warn) -> str:
        if value is None:
            if self.null is None:
                raise WrongVariableValue(name, "NULL")
            return self.null
        if isinstance(value, Decimal) or (isinstance(value, int) and not self.numbered):
            raise WrongVariableType(name)
        return self.parse(value)

    def selected(self, text: str) -> Value:
        return None if text == self.null else text


def _between(low: int, value: Any, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{value} is not between {low} and {high}")


def _number(name: str, value: Value) -> int | Decimal:
    if value is None or isinstance(value, str):  # also one that holds digits
        raise WrongVariableType(name)
    return value


def _whole(name: str, value: int | Decimal, warn: Warn) -> int:
    """The integer of a literal without a point: one of more than 64 bits is a DECIMAL, too."""
    if isinstance(value, Decimal) and value.as_tuple().exponent != 0:
        raise WrongVariableType(name)
    if _I64_MIN <= value <= U64_MAX:
        return int(value)
    warn(_OVERFLOW, f"Got overflow when converting '{value:f}' to INT. Value truncated")
    return _I64_MIN if value < 0 else _I64_MAX


def _cut(name: str, low: int, given: int | Decimal, high: int, warn: Warn) -> int | Decimal:
    cut = min(max(low, given), high)
    if cut != given:
        shown = f"{given:f}" if isinstance(given, Decimal) else given
        warn(_TRUNCATED, f"Truncated incorrect {_shortened(name)} value: '{shown}'")
    return cut


def _shortened(name: str) -> str:
    return name if len(name) <= _SHORT_CHARS else name[:_SHORT_CHARS_KEPT] + "..."


def _word(name: str, value: Value, words: Sequence[str]) -> str:
    if isinstance(value, Decimal):
        raise WrongVariableType(name)
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    word = "NULL" if value is None else str(value)
    if word.upper() not in words:
        raise WrongVariableValue(name, word)
    return word.upper()
