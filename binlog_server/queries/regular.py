"""Regular expressions of REGEXP and its functions: those of PCRE2, as MariaDB has them, searched for by `regex`.

That library knows nearly all of PCRE2, but some of it is written in another way there, and nothing bounds how large
it makes a pattern. So a pattern is read first: what differs is written as the library wants it, what it costs is
counted, and what is not known is 1235. A search has the time that its statement has left.

    pattern --(_Reader)--> pattern of the library --(Regular.find)--> places
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NotSupportedYet, RegexFailed, ServerError, StatementTimeout

from binlog_server.queries.terms import Budget

if TYPE_CHECKING:
    import regex

PATTERN_CHARS_MAX: Final = 4096
SIZE_MAX: Final = 20_000
"""Parts of a compiled pattern: what is repeated at least n times stands in it n times, and once more.

These are 6 MiB at most; without a bound 200 characters, (...)+ within each other, took 15 GB.
"""
CELLS_MAX: Final = 1 << 18
"""Characters of a text times groups and repetitions of the pattern, each of which may keep a place for each character.

Of the patterns that were tried none took more than 20 MiB; with 1 Mi characters and ten groups it was 577.
"""
_DEPTH_MAX: Final = 50  # groups within each other
_COUNT_MAX: Final = 65_535

Span = tuple[int, int] | None

_HORIZONTAL: Final = r"\t \u00a0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL: Final = r"\n-\r\u0085\u2028\u2029"
_ESCAPES: Final = {
    **{letter: f"\\{letter}" for letter in "dDwWsSbBAGKX"},
    "h": f"[{_HORIZONTAL}]",
    "H": f"[^{_HORIZONTAL}]",
    "v": f"[{_VERTICAL}]",
    "V": f"[^{_VERTICAL}]",
    "N": r"[^\n]",
    "R": rf"(?>\r\n|[{_VERTICAL}])",
    "z": r"\Z",
    "Z": r"(?=\n?\Z)",
}
_IN_SETS: Final = {
    **{letter: f"\\{letter}" for letter in "dDwWsS"},
    "h": _HORIZONTAL,
    "v": _VERTICAL,
}
_CHARACTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "e": "\x1b", "a": "\a"}
_CLASSES: Final = frozenset(
    {
        *("alpha", "lower", "upper", "alnum", "ascii", "blank", "cntrl", "digit", "graph", "print"),
        *("punct", "space", "word", "xdigit"),
    }
)
_OTHER_CLASSES: Final = {"digit": r"\p{Nd}", "^digit": r"\P{Nd}", "alnum": r"\p{L}\p{N}"}
_CODED: Final = compiled_later(
    r"x\{(?P<hex>[0-9a-fA-F]+)\}|x(?!\{)(?P<two>[0-9a-fA-F]{0,2})|o\{(?P<oct>[0-7]+)\}"
    r"|(?P<zero>0[0-7]{0,2})|c(?P<control>[ -~])"
)
_REFERENCE: Final = compiled_later(
    r"g\{?(?P<number>-?[0-9]+)\}?|g\{(?P<n1>\w+)\}|k(?:\{(?P<n2>\w+)\}|<(?P<n3>\w+)>|'(?P<n4>\w+)')"
)
_NAMED: Final = compiled_later(r"\?(?:P?<(?P<one>\w*)>|'(?P<two>\w*)')")
_CONDITION: Final = compiled_later(r"\?\((?:([0-9]+)|<(\w+)>|'(\w+)')\)")
_OPTIONS: Final = compiled_later(r"\?(?P<on>[imsx]*)(?:-(?P<off>[imsx]*))?(?P<end>[:)])")
_COUNTED: Final = compiled_later(
    r"\{[ \t]*(?=,?[ \t]*[0-9])([0-9]*)[ \t]*(?:(,)[ \t]*([0-9]*)[ \t]*)?\}"
)
_NUMBER: Final = compiled_later("[1-9][0-9]{0,3}")
_OCTAL: Final = compiled_later("[0-7]{1,3}")
_POSIX: Final = compiled_later(r"\[([:.=])(\^?)(\w*)\1\]")
_PROPERTY: Final = compiled_later(r"[pP](?:\{\^?\w+\}|[A-Z])", re.ASCII)


@dataclass(slots=True)
class _Frame:
    """A group that is read: its parts, and what it began with."""

    begin: int = 0
    opening: str = ""
    number: int = 0
    parts: list[str] = field(default_factory=list)
    size: int = 1
    last_size: int = 0  # of the last part; 0 if it cannot be repeated
    is_free: bool = False  # (?x)
    options: list[str] = field(default_factory=list)  # (?i) and its kin, up to the group's end


class _Reader:
    """A pattern of PCRE2 to one of the library."""

    def __init__(self, pattern: str, *, is_bytes: bool) -> None:
        self._pattern = pattern
        self._is_bytes = is_bytes
        self._at = 0
        self._frames = [_Frame()]
        self._names: set[str] = set()
        self._references: list[tuple[str, int]] = []  # and where they stand
        self.groups = 0
        self.repeats = 0

    def read(self) -> str:
        """Raises `RegexFailed` (1139), `NotSupportedYet` (1235)."""
        while self._at < len(self._pattern):
            self._part()
        if len(self._frames) > 1:
            raise self._failed("missing closing parenthesis")
        known = {*self._names, *map(str, range(1, self.groups + 1))}
        for name, at in self._references:
            if name not in known:
                raise self._failed("reference to non-existent subpattern", at)
        return self._closed()

    def _failed(self, text: str, at: int | None = None) -> ServerError:
        before = self._pattern[: self._at if at is None else at]
        return RegexFailed(f"{text} at offset {len(before.encode('utf-8', 'surrogateescape'))}")

    def _accept(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _take(self, what: re.Pattern[str]) -> re.Match[str] | None:
        found = what.match(self._pattern, self._at)
        self._at = found.end() if found else self._at
        return found

    def _until(self, end: str, missing: str | None) -> str:
        """What stands before an `end`, which is passed."""
        at = self._pattern.find(end, self._at)
        if at < 0 and missing is not None:
            self._at = len(self._pattern)
            raise self._failed(missing)
        text = self._pattern[self._at : at if at >= 0 else len(self._pattern)]
        self._at += len(text) + len(end)
        return text

    def _add(self, part: str, size: int = 1, *, is_repeatable: bool = True) -> None:
        frame = self._frames[-1]
        frame.parts.append(part)
        frame.size += size
        frame.last_size = size if is_repeatable else 0
        if frame.size > SIZE_MAX:
            raise NotSupportedYet("so large a regular expression")

    def _part(self) -> None:
        frame = self._frames[-1]
        counted = _COUNTED.match(self._pattern, self._at)
        character = self._pattern[self._at]
        if character in "*+?" or counted:
            self._repeat(counted)
            return
        self._at += 1
        match character:
            case "|":
                again = ")" * len(frame.options) + "|" + "".join(frame.options)
                self._add(again, is_repeatable=False)
            case "(":
                self._open()
            case ")":
                self._close()
            case "[":
                self._add(self._set())
            case "\\":
                self._escaped()
            case ".":
                self._add(character)
            case "^" | "$":
                self._add(character, is_repeatable=False)
            case "#" if frame.is_free:
                self._until("\n", None)
            case _ if not (frame.is_free and character.isspace()):
                self._add(re.escape(character))

    def _repeat(self, counted: re.Match[str] | None) -> None:
        frame, size = self._frames[-1], self._frames[-1].last_size
        sign = self._pattern[self._at]
        self._at = counted.end() if counted else self._at + 1
        least, is_limited = 1 if sign == "+" else 0, sign == "?"
        if counted:
            least, most = int(counted[1][:6] or 0), int((counted[3] or "")[:6] or 0)
            is_limited = not counted[2] or bool(counted[3])
            if max(least, most) > _COUNT_MAX:
                raise self._failed("number too big in {} quantifier", self._at - 1)
            if counted[3] and most < least:
                raise self._failed("numbers out of order in {} quantifier", self._at - 1)
            sign = f"{{{least}{counted[2] or ''}{counted[3] or ''}}}"
        if not size:
            raise self._failed("quantifier does not follow a repeatable item", self._at - 1)
        for outer in self._frames:
            if not is_limited and outer.opening in ("(?<=", "(?<!"):
                raise self._failed("length of lookbehind assertion is not limited", outer.begin)
        for mode in "?+":
            if self._accept(mode):
                sign += mode
                break
        self.repeats += 1
        self._add(f"(?:{frame.parts.pop()}){sign}", size * least + 1, is_repeatable=False)

    # --- groups ---

    def _open(self) -> None:
        outer = self._frames[-1]
        frame = _Frame(begin=self._at - 1, is_free=outer.is_free)
        if self._accept("?#"):
            self._until(")", "missing ) after (?# comment")
            return
        if self._accept("?P="):
            at = self._at
            self._add_reference(self._until(")", "missing closing parenthesis"), at)
            return
        if self._accept("*"):
            raise NotSupportedYet("a regular expression with (*...)")
        if not self._pattern.startswith("?", self._at):
            self._capture(frame, "(")
        elif simple := next(filter(self._accept, _GROUPS), None):
            frame.opening = f"({simple}"
        elif named := self._take(_NAMED):
            name = named["one"] or named["two"] or ""
            if not name.isidentifier():
                digit = "subpattern name must start with a non-digit"
                raise self._failed(digit if name else "subpattern name expected", named.start() + 2)
            if name in self._names:
                raise self._failed(
                    "two named subpatterns have the same name (PCRE2_DUPNAMES not set)"
                )
            self._names.add(name)
            self._capture(frame, f"(?P<{name}>")
        elif condition := self._take(_CONDITION):
            name = next(filter(None, condition.groups()))
            self._references.append((name, condition.start() + 1))
            frame.opening = f"(?({name})"
        elif options := self._take(_OPTIONS):
            if not self._options(frame, options):
                return
        else:
            self._refuse_group()
        if len(self._frames) > _DEPTH_MAX:
            raise NotSupportedYet("a regular expression with so many groups within each other")
        self._frames.append(frame)

    def _capture(self, frame: _Frame, opening: str) -> None:
        self.groups += 1
        frame.number, frame.opening = self.groups, opening

    def _options(self, frame: _Frame, options: re.Match[str]) -> bool:
        """(?i:...), and (?i) which holds up to the end of the group around it: whether a group begins."""
        on, off = options["on"], options["off"] or ""
        begins = options["end"] == ":"
        holder = frame if begins else self._frames[-1]
        if "x" in on + off:
            holder.is_free = "x" not in off
        on, off = on.replace("x", ""), off.replace("x", "")
        opening = f"(?{on}{'-' if off else ''}{off}:"
        if begins:
            frame.opening = opening
        else:
            holder.options.append(opening)
            self._add(opening, is_repeatable=False)
        return begins

    def _refuse_group(self) -> None:
        rest = self._pattern[self._at + 1 :]
        end = len(self._pattern)
        if rest.startswith(("<", "P<", "'")):
            is_bare = rest in ("<", "P<", "'")
            raise self._failed(
                "subpattern name expected"
                if is_bare
                else "syntax error in subpattern name (missing terminator?)",
                end,
            )
        if not rest.strip("-imsxP"):
            raise self._failed("missing closing parenthesis", end)
        if rest[0] in "R&+-0123456789" or rest.startswith("P>"):
            raise _calls_itself()
        if rest[0] in "(CUJn^imsx":
            raise NotSupportedYet(f"a regular expression with (?{rest[0]}")
        raise self._failed("unrecognized character after (? or (?-", self._at + 1)

    def _close(self) -> None:
        if len(self._frames) == 1:
            raise self._failed("unmatched closing parenthesis", self._at - 1)
        part = self._closed()
        size = self._frames.pop().size
        self._add(part, size)

    def _closed(self) -> str:
        """The group that ends here."""
        frame = self._frames[-1]
        inner = "".join(frame.parts) + ")" * len(frame.options)
        return f"{frame.opening}{inner})" if frame.opening else inner

    # --- characters ---

    def _escaped(self) -> None:
        if self._at == len(self._pattern):
            raise self._failed("\\ at end of pattern")
        letter = self._pattern[self._at]
        if self._accept("Q"):
            for character in self._until("\\E", None):
                self._add(re.escape(character))
        elif self._accept("E"):
            return
        elif self._pattern.startswith("N{", self._at):
            raise NotSupportedYet("a regular expression with \\N{")
        elif letter in _ESCAPES:
            self._at += 1
            self._add(_ESCAPES[letter], is_repeatable=letter not in "bBAGKzZ")
        elif taken := self._property():
            self._add(taken)
        elif self._is_reference(letter):
            return
        else:
            self._add(re.escape(self._character()))

    def _property(self) -> str | None:
        found = self._take(_PROPERTY)
        if found and self._is_bytes:
            raise NotSupportedYet(f"a regular expression of bytes with \\{found[0]}")
        return found and f"\\{found[0]}"

    def _is_reference(self, letter: str) -> bool:
        """Whether a group is referred to, which is added."""
        begin = self._at
        if found := self._take(_NUMBER):
            if int(found[0]) >= 10 and int(found[0]) > self.groups:
                self._at = begin
                return False  # an octal number
            self._add_reference(found[0], self._at - 1)
        elif found := self._take(_REFERENCE):
            name = next(filter(None, found.groups()))
            if name.startswith("-"):
                name = str(self.groups + 1 + int(name))
            self._add_reference(name, self._at - 1 if found["number"] else begin + 2)
        elif letter == "g":
            raise _calls_itself()
        else:
            return False
        return True

    def _add_reference(self, name: str, at: int) -> None:
        self._references.append((name, at))
        if any(name == str(frame.number) for frame in self._frames):
            self._add("(?!)")  # a group that has not ended has not matched
        else:
            self._add(f"\\g<{name}>")

    def _character(self) -> str:
        """The character that a backslash and what follows it mean."""
        letter = self._pattern[self._at]
        if letter in _CHARACTERS:
            self._at += 1
            return _CHARACTERS[letter]
        if self._pattern.startswith(("x{", "o{"), self._at) and not _CODED.match(
            self._pattern, self._at
        ):
            digits = "[0-9a-fA-F]*" if letter == "x" else "[0-7]*"
            self._take(re.compile(rf"{letter}\{{{digits}"))
            if self._pattern.startswith("{}", self._at - 1):
                raise self._failed("digits missing after \\x or in \\x{} or \\o{} or \\N{U+}")
            kind = "non-hex" if letter == "x" else "non-octal"
            raise self._failed(f"{kind} character in \\{letter}{{}} (closing brace missing?)")
        if found := self._take(_CODED):
            if found["control"]:
                return chr(ord(found["control"].upper()) ^ 64)
            digits = found["hex"] or found["two"]
            code = int(digits, 16) if digits else int(found["oct"] or found["zero"] or "0", 8)
            if code > 0x10FFFF:
                text = "character code point value in \\x{} or \\o{} is too large"
                raise self._failed(text, self._at - 1)
            return chr(code)
        if found := self._take(_OCTAL):
            return chr(int(found[0], 8))
        if letter.isascii() and letter.isalnum():
            if letter in "CpPko":
                raise NotSupportedYet(f"a regular expression with \\{letter}")
            if letter in "FLlUu":
                text = "PCRE2 does not support \\F, \\L, \\l, \\N{name}, \\U, or \\u"
                raise self._failed(text, self._at + 1)
            raise self._failed("unrecognized character follows \\")
        self._at += 1
        return letter

    # --- sets ---

    def _set(self) -> str:
        """[a-z], behind its bracket."""
        for word in ("<", ">"):
            if self._accept(f"[:{word}:]]"):
                return r"\b(?=\w)" if word == "<" else r"\b(?<=\w)"
        if _POSIX.match(self._pattern, self._at - 1):
            text = "POSIX named classes are supported only within a class"
            raise self._failed(text, self._at - 1)
        is_not = self._accept("^")
        parts: list[str] = []
        exact: list[str] = []  # of which case is looked at in any case
        is_first = True
        while is_first or not self._accept("]"):
            is_first = False
            low = self._member(parts, exact)
            if not self._is_range():
                if low is not None:
                    parts.append(f"\\U{ord(low):08x}")
                continue
            self._at += 1
            if low is None:
                raise self._failed("invalid range in character class")
            high = self._member(parts, exact)
            if high is None:
                raise self._failed("invalid range in character class")
            if high < low:
                raise self._failed("range out of order in character class", self._at - 1)
            parts.append(f"\\U{ord(low):08x}-\\U{ord(high):08x}")
        opening, joined = "[^" if is_not else "[", "".join(parts)
        if not exact:
            # The library has no empty sets.
            return f"{opening}{joined}]" if parts else "(?s:.)" if is_not else "(?!)"
        cased = f"(?-i:{opening}{''.join(exact)}])"
        if not parts:
            return cased
        return f"(?:(?={cased}){opening}{joined}])" if is_not else f"(?:{cased}|[{joined}])"

    def _is_range(self) -> bool:
        return (
            self._pattern.startswith("-", self._at)
            and self._pattern[self._at + 1 : self._at + 2] != "]"
        )

    def _member(self, parts: list[str], exact: list[str]) -> str | None:
        """A character of a set; None behind a class, which is added."""
        if self._at == len(self._pattern):
            raise self._failed("missing terminating ] for character class")
        if found := self._take(_POSIX):
            if found[1] != ":":
                raise self._failed("POSIX collating elements are not supported")
            if found[3] not in _CLASSES:
                raise self._failed("unknown POSIX class name")
            name = found[2] + found[3]
            where = exact if found[3] in ("upper", "lower") else parts
            where.append(_OTHER_CLASSES.get(name, f"[:{name}:]"))
            return None
        if not self._accept("\\"):
            self._at += 1
            return self._pattern[self._at - 1]
        if self._at == len(self._pattern):
            raise self._failed("\\ at end of pattern")
        letter = self._pattern[self._at]
        if self._accept("Q"):
            parts += (f"\\U{ord(one):08x}" for one in self._until("\\E", None))
        elif self._accept("E"):
            pass
        elif letter in _IN_SETS:
            self._at += 1
            parts.append(_IN_SETS[letter])
        elif taken := self._property():
            parts.append(taken)
        elif letter in "RXB":
            raise self._failed("escape sequence is invalid in character class")
        elif self._accept("b"):
            return "\b"
        elif letter in "HVN":
            raise NotSupportedYet(f"a regular expression with \\{letter} in a set")
        else:
            return self._character()
        return None


def _calls_itself() -> ServerError:
    return NotSupportedYet(
        "a regular expression that calls itself: its memory could not be bounded"
    )


_GROUPS: Final = ("?:", "?=", "?!", "?<=", "?<!", "?>", "?|")


@dataclass(frozen=True, slots=True)
class Regular:
    """A pattern, ready to be searched for."""

    compiled: regex.Pattern[str]
    places: int

    def find(self, text: str, start: int, budget: Budget) -> Sequence[Span] | None:
        """The first match at or behind a place: where it is, and where its groups are; None without one.

        Other threads go on meanwhile. It takes as much processor time as the budget has left, but of all threads: the
        library has no other clock.

        Raises:
            NotSupportedYet: 1235: so long a text could take too much memory.
            StatementTimeout: 1969.
            QueryInterrupted: 1317, when the time is over or before it begins: nothing else ends a search.
        """
        if len(text) * self.places > CELLS_MAX:
            raise NotSupportedYet(
                f"a regular expression with {self.places - 1} groups and repetitions over a text of more than "
                f"{CELLS_MAX // self.places} characters: its memory could not be bounded"
            )
        try:
            found = self.compiled.search(text, start, timeout=budget.left(), concurrent=True)
        except TimeoutError:
            budget.look()
            raise StatementTimeout() from None
        if found is None:
            return None
        spans = [found.span(group) for group in range(self.compiled.groups + 1)]
        return [span if span[0] >= 0 else None for span in spans]


@lru_cache(maxsize=8)  # a pattern serves all rows of an answer
def regular(pattern: str, *, is_folded: bool, is_bytes: bool = False) -> Regular:
    """A pattern. Raises `RegexFailed` (1139), `NotSupportedYet` (1235) for what could take too much.

    Args:
        is_folded: without case, as texts compare.
        is_bytes: characters stand for bytes, of which only those of ASCII are letters.
    """
    import regex  # by the first one

    if len(pattern) > PATTERN_CHARS_MAX:
        raise NotSupportedYet("so large a regular expression")
    reader = _Reader(pattern, is_bytes=is_bytes)
    translated = reader.read()
    flags = regex.V0 | (regex.IGNORECASE if is_folded else 0) | (regex.ASCII if is_bytes else 0)
    try:
        compiled = regex.compile(translated, flags, cache_pattern=False)
    except regex.error as error:
        said = str(error).partition(" at position")[0]
        if said == "unknown property":
            text = f"unknown property after \\P or \\p at offset {len(pattern)}"
            raise RegexFailed(text) from None
        raise NotSupportedYet(f"a regular expression with this: {said}") from None
    return Regular(compiled, 1 + reader.groups + reader.repeats)
