"""Weights of uca1400_ai_ci: the first level of the Unicode Collation Algorithm 14.0.0, without case and accents.

`uca1400.txt` beside this file has the weights of characters and of contractions; its head says where they are from.
The other characters have two, by this table, as `base + (code >> 15)` and `code & 7FFF | 8000`, or `base` and
`code - first | 8000`:

===========================================  ====  =====
characters                                   base  first
===========================================  ====  =====
17000-18AFF, 18D00-18D8F (Tangut)            FB00  17000
18B00-18CFF (Khitan)                         FB02  18B00
1B170-1B2FF (Nushu)                          FB01  1B170
Unified ideographs of the first block        FB40
Unified ideographs of the extensions         FB80
all others                                   FBC0
===========================================  ====  =====

A weight is a character here, so that a text of weights is encoded to bytes that are in the order of the weights: moved
down so that the weight of a space, 0209, is the character " ", as `collation.py` pads with it, and past the surrogates.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Final, NamedTuple

_SPACE_WEIGHT: Final = 0x209
_SURROGATES: Final = range(0xD800, 0xE000)
_NAMED: Final = (
    (range(0x17000, 0x18B00), 0xFB00, 0x17000),
    (range(0x18D00, 0x18D90), 0xFB00, 0x17000),
    (range(0x18B00, 0x18D00), 0xFB02, 0x18B00),
    (range(0x1B170, 0x1B300), 0xFB01, 0x1B170),
)
_IDEOGRAPHS: Final = (
    *((range(first, last + 1), 0xFB40) for first, last in ((0x4E00, 0x9FFF), (0xFA0E, 0xFA29))),
    *(
        (range(first, last + 1), 0xFB80)
        for first, last in (
            (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B738), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1),
            (0x2CEB0, 0x2EBE0), (0x30000, 0x3134A),
        )
    ),
)  # fmt: skip
_OTHERS: Final = 0xFBC0


class _Weights(dict[int, str]):
    """For `str.translate`: what is computed is not kept."""

    def __missing__(self, code: int) -> str:
        return "".join(map(_character, implicit(code)))


class _Table(NamedTuple):
    weights: _Weights
    """A contraction is a surrogate in it."""
    contractions: re.Pattern[str]
    stand_ins: dict[str, str]
    """Of a contraction the surrogate that stands for it."""


def weights(text: str) -> str:
    """The weights of a text, as characters; see above."""
    table = _table()
    if not text.isascii():
        text = table.contractions.sub(lambda found: table.stand_ins[found[0]], text)
    return text.translate(table.weights)


def classes(text: str) -> str:
    """Each character as one that stands for all that have its weights: what LIKE compares. No %, _ or backslash."""
    return text.translate(_classes())


def implicit(code: int) -> tuple[int, int]:
    """The weights of a character that is not in the table."""
    for codes, base, first in _NAMED:
        if code in codes:
            return base, code - first | 0x8000
    for codes, base in _IDEOGRAPHS:
        if code in codes:
            return base + (code >> 15), code & 0x7FFF | 0x8000
    return _OTHERS + (code >> 15), code & 0x7FFF | 0x8000


def _character(weight: int) -> str:
    moved = weight - _SPACE_WEIGHT + ord(" ")
    return chr(moved if moved < _SURROGATES.start else moved + len(_SURROGATES))


@functools.cache
def _table() -> _Table:
    found, stand_ins = _Weights(), dict[str, str]()
    text = resources.files(__package__).joinpath("uca1400.txt").read_text("ascii")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        head, _, said = line.partition(" ")
        numbers = [int(weight, 16) for weight in said.rstrip("+").split(".") if weight]
        if "_" in head:
            stand_in = _SURROGATES[len(stand_ins)]
            stand_ins["".join(chr(int(code, 16)) for code in head.split("_"))] = chr(stand_in)
            first = last = stand_in
        else:
            one, _, other = head.partition("-")
            first, last = int(one, 16), int(other or one, 16)
        weight = "".join(map(_character, numbers))
        for code in range(first, last + 1):
            found[code] = weight
            if said.endswith("+"):
                numbers[-1] += 1
                weight = weight[:-1] + _character(numbers[-1])
    return _Table(found, _any_of(stand_ins), stand_ins)


def _any_of(texts: dict[str, str]) -> re.Pattern[str]:
    """Matches the longest of these texts that begins at a place."""
    ends: dict[str, list[str]] = {}
    for text in sorted(texts, key=len, reverse=True):
        ends.setdefault(text[0], []).append(re.escape(text[1:]))
    return re.compile(
        "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in ends.items())
    )


@functools.cache
def _classes() -> dict[int, int]:
    first: dict[str, int] = {}
    of: dict[int, int] = {}
    for code, said in sorted(_table().weights.items()):
        if code not in _SURROGATES and chr(code) not in "%_\\":
            of[code] = first.setdefault(said, code)
    return of | {ord(sign): first.get(_table().weights[ord(sign)], ord(sign)) for sign in "%_\\"}
