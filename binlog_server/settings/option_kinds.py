"""The kinds of values that options of the configuration file and variables of SQL have.

| kind       | in the file      | SET takes                     | SHOW prints        | SELECT @@x gives |
|------------|------------------|-------------------------------|--------------------|------------------|
| Number     | from low to high | numbers, cut with a warning   | digits             | an integer       |
| Decimals   | from low to high | numbers, cut with a warning   | digits and a point | a decimal        |
| Switch     | true or false    | ON, OFF, 1, 0                 | ON or OFF          | 1 or 0           |
| Words      | one of them      | one of them, or its number    | the word           | the word         |
| SetOfWords | -                | some of them, or their bits   | words and commas   | the same         |
| Flags      | -                | `word=on,...`, or their bits  | all, with on or off | the same        |
| Text       | printable text   | strings; `check` says which   | the text           | the text         |

A Number of the file may also be a text with a unit, as in MariaDB's: "1G". `config.Config` has an option's kind beside
its type; `sql.variables` has those of all other variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    DataOverflow,
    ServerError,
    TruncatedValue,
    WrongVariableType,
    WrongVariableValue,
)
from binlog_storage.console.arguments import with_unit

if TYPE_CHECKING:
    from binlog_server.sql.expressions import Value


class Setter(Protocol):
    """The session whose SET gives a value."""

    @property
    def is_strict(self) -> bool:
        """Whether numbers beyond their limits are errors: its sql_mode has STRICT_ALL_TABLES."""

    def warn(self, told: ServerError) -> None:
        """What was taken in another form than it was given."""


U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
_I64_MIN, _I64_MAX = -(2**63), 2**63 - 1
_PART_CHARS = 80
# MariaDB 11.8 prints slave_connections_needed_for_purge so.
_SHORT_CHARS, _SHORT_CHARS_KEPT = 32, 29


class OptionKind:
    """A kind of values: the allowed ones, and their form in the file, in SET and in SHOW. Here those of texts."""

    __slots__ = ()

    def check(self, value: Any) -> None:
        """Check a value of the configuration. Raises ValueError, which says what is wrong with it."""

    def written(self, value: Any) -> Any:
        """The value of the configuration that stands in the file: some have a short form there."""
        return value

    def text(self, value: Any) -> str:
        """A value of the configuration, as SHOW VARIABLES prints it."""
        return str(value)

    def option(self, text: str) -> Any:
        """The value of the configuration for a text of SHOW VARIABLES."""
        return text

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        """The value given to SET, as SHOW VARIABLES prints it; `now` is the one before.

        Raises `WrongVariableValue` (1231), `WrongVariableType` (1232), and what `Text.parse` does.
        """
        raise NotImplementedError

    def selected(self, text: str) -> Value:
        """The value for SELECT @@x, from the text that SHOW VARIABLES prints."""
        return text


@dataclass(frozen=True, slots=True)
class Number(OptionKind):
    """A whole number, a multiple of `block`. What is beyond its limits is refused in the file, and cut by SET."""

    low: int
    high: int
    block: int = 1
    is_signed: bool = False

    def check(self, value: Any) -> None:
        _between(self.low, value, self.high)

    def written(self, value: Any) -> Any:
        found = with_unit(value) if isinstance(value, str) else None
        return value if found is None else found

    def option(self, text: str) -> int:
        return int(text)

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        given = _whole(name, _number(name, value), setter)
        cut = min(max(self.low, given), self.high)
        cut = max(self.low, cut - cut % self.block)
        _tell_cut(name, given, cut, setter)
        return str(cut)

    def selected(self, text: str) -> Value:
        return int(text)


@dataclass(frozen=True, slots=True)
class Decimals(OptionKind):
    """A number with six digits behind the point."""

    low: int | float
    high: int | float
    rounding: str = ROUND_HALF_UP

    def check(self, value: Any) -> None:
        _between(self.low, value, self.high)

    def text(self, value: Any) -> str:
        return f"{value:.6f}"

    def option(self, text: str) -> float:
        return float(text)

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        given = _number(name, value)
        cut = min(max(self.low, given), self.high)
        _tell_cut(name, given, cut, setter)
        return f"{Decimal(cut).quantize(Decimal('1e-6'), self.rounding):f}"

    def selected(self, text: str) -> Value:
        return Decimal(text)


@dataclass(frozen=True, slots=True)
class Words(OptionKind):
    """One of a few words. In the file as they stand here, by SET in any case."""

    words: tuple[str, ...]

    def check(self, value: Any) -> None:
        if value not in self.words:
            raise ValueError(f"{value!r} is none of {', '.join(self.words)}")

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        return _word(name, value, self.words)


@dataclass(frozen=True, slots=True)
class SetOfWords(OptionKind):
    """Some of a few words, separated by commas."""

    words: tuple[str, ...]

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        value = _whole_or_text(name, value)
        if isinstance(value, int):
            return ",".join(_by_bits(name, value, self.words))
        upper = {word.upper() for word in self.words}
        named = set()
        for part in value.rstrip(" ").split(","):
            word = part.rstrip(" ").upper()
            if word not in upper and part:
                raise WrongVariableValue(name, part[:_PART_CHARS])
            named.add(word)
        return ",".join(word for word in self.words if word.upper() in named)


@dataclass(frozen=True, slots=True)
class Flags(OptionKind):
    """Words that are each on or off. SET changes those that it names; `default` gives those of `default_text`.

    words: the last one is `default`, which is no flag.
    """

    words: tuple[str, ...]
    default_text: str

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        value, flags = _whole_or_text(name, value), self.words[:-1]
        if isinstance(value, int):
            on = _by_bits(name, value, flags)
            return self._shown(dict.fromkeys(on, "on"))
        default, states = _states(self.default_text), _states(now)
        changed: dict[str, str] = {}
        is_default = False
        parts = value.split(",") if value else []
        for at, part in enumerate(parts):
            flag, _, state = part.rstrip(" ").lower().partition("=")
            if flag == "default" and not state and not is_default:
                is_default = True
            elif flag in flags and state in ("on", "off", "default") and flag not in changed:
                changed[flag] = default.get(flag, "off") if state == "default" else state
            else:
                raise WrongVariableValue(name, ",".join(parts[at:])[:_PART_CHARS])
        return self._shown({**(default if is_default else states), **changed})

    def _shown(self, states: Mapping[str, str]) -> str:
        return ",".join(f"{flag}={states.get(flag, 'off')}" for flag in self.words[:-1])


@dataclass(frozen=True, slots=True)
class Switch(OptionKind):
    """ON or OFF."""

    def text(self, value: Any) -> str:
        return "ON" if value else "OFF"

    def option(self, text: str) -> bool:
        return text == "ON"

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        return _word(name, value, ("OFF", "ON"))

    def selected(self, text: str) -> Value:
        return int(text == "ON")


@dataclass(frozen=True, slots=True)
class Text(OptionKind):
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

    def given(self, name: str, value: Value, setter: Setter, now: str) -> str:
        if value is None and self.null is not None:
            return self.null
        value = _whole_or_text(name, value)
        if isinstance(value, int) and not self.numbered:
            raise WrongVariableType(name)
        return self.parse(value)

    def selected(self, text: str) -> Value:
        return None if text == self.null else text


def _between(low: int | float, value: Any, high: int | float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{value} is not between {low} and {high}")


def _whole_or_text(name: str, value: Value) -> int | str:
    """The value given to SET of what is no number. Raises 1231 for NULL, 1232 for a number with a point."""
    if isinstance(value, Decimal):
        raise WrongVariableType(name)
    if value is None:
        raise WrongVariableValue(name, "NULL")
    return value


def _by_bits(name: str, bits: int, words: Sequence[str]) -> list[str]:
    if not 0 <= bits < 1 << len(words):
        raise WrongVariableValue(name, str(bits))
    return [word for bit, word in enumerate(words) if bits >> bit & 1]


def _states(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _number(name: str, value: Value) -> int | Decimal:
    if value is None or isinstance(value, str):  # also one that holds digits
        raise WrongVariableType(name)
    return value


def _whole(name: str, value: int | Decimal, setter: Setter) -> int:
    """The integer of a literal without a point: one of more than 64 bits is a DECIMAL, too."""
    if isinstance(value, Decimal) and value.as_tuple().exponent != 0:
        raise WrongVariableType(name)
    if _I64_MIN <= value <= U64_MAX:
        return int(value)
    setter.warn(DataOverflow(f"{value:f}", "INT"))
    return _I64_MIN if value < 0 else _I64_MAX


def _tell_cut(name: str, given: int | Decimal, cut: int | float | Decimal, setter: Setter) -> None:
    """Warn where the value was cut to its limits. Raises `WrongVariableValue` (1231) if the session is strict."""
    if cut != given:
        shown = f"{given:f}" if isinstance(given, Decimal) else str(given)
        if setter.is_strict:
            raise WrongVariableValue(name, shown)
        setter.warn(TruncatedValue(_shortened(name), shown))


def _shortened(name: str) -> str:
    return name if len(name) <= _SHORT_CHARS else name[:_SHORT_CHARS_KEPT] + "..."


def _word(name: str, value: Value, words: Sequence[str]) -> str:
    if isinstance(value, Decimal):
        raise WrongVariableType(name)
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    word = "NULL" if value is None else str(value)
    for known in words:
        if known.upper() == word.upper():
            return known
    raise WrongVariableValue(name, word)
