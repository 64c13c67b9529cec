"""Regular expressions that are compiled when they are used first: a start has 120 of them, and uses a few.

To compile one takes 0.1 to 0.5 ms. A test compiles all of them. And how to repeat a group in one, see `repeated`.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, Final, cast

_METHODS: Final = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")


class _Later:
    """In the place of a `re.Pattern`, with its attributes: from the first use on its methods are this object's own."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # those by which it is copied or pickled
            raise AttributeError(name)
        compiled = re.compile(self._source, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def compiled_later(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile`, at the first use."""
    return cast("re.Pattern[AnyStr]", _Later(source, flags))


def repeated(source: str) -> str:
    """The source of a pattern: this any number of times, and what it has taken is not given back.

    `(?:...)*+` is right only if a repetition that fails does so at its first character, or takes no more than plain
    characters: before 3.11.5, so with the Python of Debian 12, `re` goes on where a look-ahead or a repetition in it
    had come to. An alternative that fails at once brings it back.
    """
    return rf"(?:{source}|(?!))*+"
