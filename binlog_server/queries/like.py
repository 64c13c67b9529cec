"""SQL LIKE, in time that grows with the text alone."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass

from binlog_server.queries import values
from binlog_server.queries.terms import Budget

_LIKE_PART: Final = compiled_later(r"\\(.)|(%)|(_)|[^\\%_]+|\\", re.DOTALL)
# Of patterns that are split once for many rows: of the short ones several, of the others the last.
_SHORT_CHARS_MAX: Final = 4096
_KEPT_CHARS_MAX: Final = 64 * 1024
_PIECE_BYTES: Final = 200  # of memory, for each %
_PLACE_BYTES: Final = 200  # for each _
_STEPS: Final = 1024  # of a search, between two looks at the budget
_NOWHERE: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Piece:
    """The piece of a LIKE pattern between two %: a text, in which any character matches at the places `any_at`.

    begin: what it has in front of the first of them.
    """

    text: str
    any_at: frozenset[int]
    begin: str

    @classmethod
    def of(cls, texts: list[str], any_at: set[int]) -> _Piece:
        """The piece of these parts. They are gone then."""
        text = "".join(texts)
        piece = (
            cls(text, frozenset(any_at), text[: min(any_at)])
            if any_at
            else cls(text, _NOWHERE, text)
        )
        texts.clear()
        any_at.clear()
        return piece

    def matches(self, text: str, at: int) -> bool:
        """Whether the piece matches the text at this index."""
        if not text.startswith(self.begin, at):
            return False
        if not self.any_at:
            return True
        found = text[at : at + len(self.text)]
        return len(found) == len(self.text) and all(
            wanted == character or place in self.any_at
            for place, (wanted, character) in enumerate(zip(self.text, found, strict=True))
        )

    def find(self, text: str, at: int, letters: frozenset[str], budget: Budget | None) -> int:
        """The end of the first match at or behind this index; -1 if there is none. `letters`: those of the text."""
        if not self.any_at:
            found = text.find(self.text, at)
            return found if found < 0 else found + len(self.text)
        # A bit for each beginning of the piece that the text ends with so far: a step is three operations on a number,
        # however long the piece is.
        size = len(self.text) // 8 + 1
        masks = {letter: bytearray(size) for letter in letters.intersection(self.text)}
        if budget is not None:
            budget.make_while(size * len(masks))
        any_mask = bytearray(size)
        for place, wanted in enumerate(self.text):
            mask = any_mask if place in self.any_at else masks.get(wanted)
            if mask is not None:
                mask[place >> 3] |= 1 << (place & 7)
        anything = int.from_bytes(any_mask, "little")
        fitting = {
            letter: anything | int.from_bytes(mask, "little") for letter, mask in masks.items()
        }
        whole, begun = 1 << len(self.text) - 1, 0
        for start in range(at, len(text), _STEPS):
            if budget is not None:
                budget.go_through(_STEPS * size)
            for place in range(start, min(start + _STEPS, len(text))):
                begun = (begun << 1 | 1) & fitting.get(text[place], anything)
                if begun & whole:
                    return place + 1
        return -1


def _like_pieces(pattern: str, is_folded: bool) -> tuple[tuple[_Piece, ...], int]:
    """The pieces of a LIKE pattern, those in front of and behind its % and what stands between them; and their length
    together, which is the least of a text that matches.
    """
    pieces: list[_Piece] = []
    texts: list[str] = []
    any_at: set[int] = set()
    length = 0
    for match in _LIKE_PART.finditer(pattern):
        if match[2]:
            pieces.append(_Piece.of(texts, any_at))
            length = 0
            continue
        text = match[1] or match[0]
        text = text.lower() if is_folded else text
        if match[3]:
            any_at.add(length)
        texts.append(text)
        length += len(text)
    first, *others = *pieces, _Piece.of(texts, any_at)
    kept = (first, *[piece for piece in others[:-1] if piece.text], *others[-1:])
    return kept, sum(len(piece.text) for piece in kept)


_short_before: Final = lru_cache(maxsize=8)(_like_pieces)
_long_before: Final = lru_cache(maxsize=1)(_like_pieces)


def _pieces(pattern: str, is_folded: bool) -> tuple[tuple[_Piece, ...], int]:
    if len(pattern) > _KEPT_CHARS_MAX:
        return _like_pieces(pattern, is_folded)
    return (_long_before if len(pattern) > _SHORT_CHARS_MAX else _short_before)(pattern, is_folded)


def _pattern_bytes(pattern: str) -> int:
    return len(pattern) + _PIECE_BYTES * pattern.count("%") + _PLACE_BYTES * pattern.count("_")


def like_matches(
    pattern: str, name: str, *, is_folded: bool = True, budget: Budget | None = None
) -> bool:
    """SQL LIKE, without case if `is_folded`: % matches any text, _ any character; a backslash makes the next character
    a plain one.

    Each piece between two % is searched once, from the end of the piece before: the time grows with the length of the
    name, not with the number of %.

    Args:
        budget: what time and memory count against; None: nothing. Raises as `Budget.make`.
    """
    if pattern == "%":  # as of a SHOW without LIKE, for a thousand names
        return True
    if budget is not None:
        budget.make_while(_pattern_bytes(pattern))
        budget.go_through(len(pattern) + len(name))
    (first, *others), length = _pieces(pattern, is_folded)
    text = values.lower(name) if is_folded else name
    if length > len(text):
        return False
    if not first.matches(text, 0):
        return False
    at = len(first.text)
    if not others:
        return at == len(text)
    letters = frozenset(text if any(piece.any_at for piece in others) else "")
    for piece in others[:-1]:
        at = piece.find(text, at, letters, budget)
        if at < 0:
            return False
    last = len(text) - len(others[-1].text)
    return at <= last and others[-1].matches(text, last)


def escaped(pattern: str, escape: str) -> str:
    """A LIKE pattern with a backslash for another escape character."""
    found, at = [], 0
    while at < len(pattern):
        if escape and pattern[at] == escape and at + 1 < len(pattern):
            found.append("\\" + pattern[at + 1])
            at += 2
        else:
            found.append("\\\\" if pattern[at] == "\\" else pattern[at])
            at += 1
    return "".join(found)
