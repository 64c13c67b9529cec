"""JSON texts as MariaDB's functions read them: places in a text, by a path. A value is the text that stands there.

The standard library reads each value; it is only asked where it ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NotSupportedYet

CHARS_MAX: Final = 128 * 1024
"""Characters of a text, at most: the library reads it in one go, while no other thread runs."""
DEPTH_MAX: Final = 31
"""Arrays and objects within each other, as in MariaDB."""
_BLANKS: Final = compiled_later(r"[ \t\n\r]*")
_BRACKETS: Final = compiled_later(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_PIECES: Final = compiled_later(r'"(?:[^"\\]++|\\.)*+"|[,:]|[ \t\r\n]+', re.DOTALL)
_PATH_CHARS_MAX: Final = 1024
_STEP: Final = compiled_later(
    r"""\s*(?:(?P<any>\*\*)
    |\.\s*(?:(?P<every>\*)|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<key>[^\s.\[\]"*]+))
    |\[\s*(?:(?P<all>\*)|(?P<last>last)?\s*(?P<index>-?\s*[0-9]{1,9})?)\s*\])""",
    re.VERBOSE | re.DOTALL,
)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a path.

    key: a member's name; "*" with `is_every` for all of them.
    index: an element; from the end if below 0.
    is_deep: `**`: this value and all within it.
    """

    key: str | None = None
    index: int | None = None
    is_every: bool = False
    is_deep: bool = False

    @property
    def is_first(self) -> bool:
        """Whether it is [0], which of a value that is no array is the value itself."""
        return self.index == 0 and not self.is_every


@lru_cache(maxsize=32)
def path(text: str) -> tuple[PathStep, ...] | None:
    """The steps of a path; None if it is none."""
    text = text[:_PATH_CHARS_MAX].strip()
    if not text.startswith("$"):
        return None
    at, steps = 1, []
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            return None
        at = found.end()
        if found["any"]:
            steps.append(PathStep(is_deep=True))
        elif found["every"]:
            steps.append(PathStep(key="*", is_every=True))
        elif found["all"]:
            steps.append(PathStep(index=0, is_every=True))
        elif found["quoted"] is not None:
            steps.append(PathStep(key=re.sub(r"\\(.)", r"\1", found["quoted"])))
        elif found["key"] is not None:
            steps.append(PathStep(key=found["key"]))
        elif found["index"] is None and found["last"] is None:
            return None
        else:
            offset = int((found["index"] or "0").replace(" ", ""))
            steps.append(PathStep(index=offset - 1 if found["last"] else offset))
    return None if steps and steps[-1].is_deep else tuple(steps)


def bounds(text: str) -> tuple[int, int] | None:
    """Where the value of a text begins and ends; None if it is no JSON.

    Raises `NotSupportedYet` (1235) for a long one.
    """
    if len(text) > CHARS_MAX:
        raise NotSupportedYet(f"JSON of more than {CHARS_MAX} characters")
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += (bracket[0] in "[{") - (bracket[0] in "]}")
        if depth > DEPTH_MAX:
            return None
    begin = _blanks(text, 0)
    try:
        end = _end(text, begin)
    except (ValueError, RecursionError):
        return None
    return (begin, end) if _blanks(text, end) == len(text) else None


class Fault(NamedTuple):
    """Why a text is no JSON: `at` is the place that MariaDB tells, in bytes of UTF-8."""

    kind: FaultKind
    at: int


class FaultKind(Enum):
    """The errors of a reader of JSON."""

    ENDS = auto()
    SYNTAX = auto()
    CHARACTER = auto()
    DEPTH = auto()


def fault(text: str) -> Fault:
    """What 11.8 says of a text that is no JSON. Where a character is not the one that must come, it counts as read;
    but within true, false, null and behind \\u, and in the place of a colon."""
    try:
        _FaultReader(text).document()
    except _FaultFound as found:
        before = text[: found.at].encode("utf-8", "surrogateescape")
        return Fault(found.kind, len(before))
    return Fault(FaultKind.SYNTAX, 1)  # of what only the library refuses


class _FaultFound(Exception):
    def __init__(self, kind: FaultKind, at: int) -> None:
        super().__init__()
        self.kind: Final = kind
        self.at: Final = at


class _FaultReader:
    """Reads a text only to find its fault."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._at = 0

    def document(self) -> None:
        """Raises `_FaultFound`."""
        closing: list[str] = []
        while True:
            closed = self._begin(closing)
            while closed and closing:
                sign = self._next(" \t\r\n")
                if sign == closing[-1]:
                    closing.pop()
                elif sign == ",":
                    self._name(closing[-1])
                    closed = False
                else:
                    raise self._syntax()
            if closed:
                break
        self._at = _blanks(self._text, self._at)
        if self._at < len(self._text):
            self._at += 1
            raise self._syntax()

    def _begin(self, closing: list[str]) -> bool:
        """A value, or the beginning of one: False if others stand in it."""
        sign = self._next(" \t\r\n")
        if sign in "[{":
            end = "}" if sign == "{" else "]"
            if len(closing) >= DEPTH_MAX:
                raise _FaultFound(FaultKind.DEPTH, self._at)
            closing.append(end)
            at = _blanks(self._text, self._at)
            if self._text[at : at + 1] == end:
                self._at = at + 1
                closing.pop()
                return True
            self._name(end)
            return False
        if sign == '"':
            self._string()
        elif sign in _LITERALS:
            self._literal(_LITERALS[sign])
        elif sign == "-" or sign in _DIGITS:
            self._number(sign)
        else:
            raise self._syntax()
        return True

    def _name(self, closing: str) -> None:
        if closing != "}":
            return
        if self._next(" \t\r\n") != '"':
            raise self._syntax()
        self._string()
        if self._next(" \t\r\n") != ":":
            self._at -= 1
            raise self._syntax()

    def _string(self) -> None:
        while (sign := self._next()) != '"':
            if sign == "\\":
                if self._next() == "u":
                    for _ in range(4):
                        if self._next() not in _HEX:
                            self._at -= 1
                            raise self._syntax()
            elif sign < " ":
                raise _FaultFound(FaultKind.CHARACTER, self._at)

    def _literal(self, rest: str) -> None:
        for wanted in rest:
            if self._next() != wanted:
                self._at -= 1
                raise self._syntax()

    def _number(self, sign: str) -> None:
        state = {"-": "-", "0": "0"}.get(sign, "1")
        while True:
            sign = self._text[self._at : self._at + 1]
            kind = "1" if sign and sign in _DIGITS else sign.lower()
            if state == "-" and sign == "0":
                kind = "0"
            if kind in _NUMBERS[state]:
                state = _NUMBERS[state][kind]
                self._at += 1
                continue
            if state in _WHOLE and (not sign or sign in ",]} \t\r\n"):
                return
            self._at += bool(sign)
            raise self._syntax()

    def _next(self, skipped: str = "") -> str:
        text = self._text
        while self._at < len(text) and text[self._at] in skipped:
            self._at += 1
        if self._at >= len(text):
            raise _FaultFound(FaultKind.ENDS, self._at)
        self._at += 1
        return text[self._at - 1]

    def _syntax(self) -> _FaultFound:
        return _FaultFound(FaultKind.SYNTAX, self._at)


_LITERALS: Final = {"t": "rue", "f": "alse", "n": "ull"}
_DIGITS: Final = "0123456789"
_HEX: Final = _DIGITS + "abcdefABCDEF"
_WHOLE: Final = frozenset("01.x")
"""States of `_NUMBERS` in which a number may end."""
_NUMBERS: Final = {
    "-": {"0": "0", "1": "1"},
    "0": {".": ".", "e": "e"},
    "1": {"1": "1", ".": ".", "e": "e"},
    ".": {"1": ".", "e": "e"},
    "e": {"1": "x", "+": "+", "-": "+"},
    "+": {"1": "x"},
    "x": {"1": "x"},
}


def _blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def members(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """The members of the object, or the elements of the array, that begins there: name or index, begin and end."""
    is_object, closing, count = text[at] == "{", "}" if text[at] == "{" else "]", 0
    at = _blanks(text, at + 1)
    while text[at] != closing:
        name: str | int = count
        if is_object:
            name, at = _DECODER.raw_decode(text, at)
            at = _blanks(text, _blanks(text, at) + 1)
        end = _end(text, at)
        yield name, at, end
        count += 1
        at = _blanks(text, end)
        if text[at] == ",":
            at = _blanks(text, at + 1)


def _nobody_looks() -> None:
    """A `tick` of those who count nothing."""


def is_container(text: str, at: int) -> bool:
    """Whether an object or an array begins there."""
    return text[at] in "{["


def found(
    text: str,
    within: tuple[int, int],
    steps: tuple[PathStep, ...],
    tick: Callable[[], None] = _nobody_looks,
) -> Iterator[tuple[int, int]]:
    """Where the values of a path begin and end, in their order.

    Args:
        tick: called for each value that is looked at: of several ** in a path there are ever more. It may raise.
    """
    tick()
    if not steps:
        yield within
        return
    step, rest = steps[0], steps[1:]
    begin = within[0]
    if step.is_deep:
        yield from _deep(text, within, rest, tick, DEPTH_MAX)
    elif text[begin] == "{":
        if step.key is None:
            if step.is_first:
                yield from found(text, within, rest, tick)
            return
        for name, start, end in members(text, begin):
            if step.is_every or name == step.key:
                yield from found(text, (start, end), rest, tick)
    elif text[begin] == "[":
        if step.index is None:
            return
        elements = list(members(text, begin))
        at = step.index if step.index >= 0 else len(elements) + step.index
        for i, start, end in elements:
            if step.is_every or i == at:
                yield from found(text, (start, end), rest, tick)
    elif step.is_first:
        yield from found(text, within, rest, tick)


def _deep(
    text: str,
    within: tuple[int, int],
    rest: tuple[PathStep, ...],
    tick: Callable[[], None],
    depth: int,
) -> Iterator[tuple[int, int]]:
    yield from found(text, within, rest, tick)
    if is_container(text, within[0]) and depth:
        for _, start, end in members(text, within[0]):
            yield from _deep(text, (start, end), rest, tick, depth - 1)


def is_plural(steps: tuple[PathStep, ...]) -> bool:
    """Whether a path may have more than one value."""
    return any(step.is_every or step.is_deep for step in steps)


def loose(text: str, blank: str = " ") -> str:
    """A text of JSON with a blank behind each comma and colon, and no other, as MariaDB's functions give it."""

    def respaced(piece: re.Match[str]) -> str:
        found = piece[0]
        return f"{found}{blank}" if found in ",:" else "" if found.isspace() else found

    return _PIECES.sub(respaced, text)


def unquoted(text: str) -> str:
    """The text that a JSON string says; what is none stays as it is."""
    if not text.startswith('"'):
        return text
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        return text
    return _whole(str(value)) if end == len(text) else text


def _whole(text: str) -> str:
    """Without halves of characters, which JSON can say by \\u."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def kind_of(text: str, at: int) -> str:
    """The type of the value that begins there, as JSON_TYPE says it."""
    first = text[at]
    match first:
        case "{":
            return "OBJECT"
        case "[":
            return "ARRAY"
        case '"':
            return "STRING"
        case "t" | "f":
            return "BOOLEAN"
        case "n":
            return "NULL"
    return "INTEGER" if re.fullmatch(r"-?[0-9]+", text[at : _end(text, at)]) else "DOUBLE"


def depth_of(text: str, at: int) -> int:
    """How deep the value that begins there is: 1 for a number."""
    if not is_container(text, at):
        return 1
    return 1 + max((depth_of(text, start) for _, start, _ in members(text, at)), default=0)
