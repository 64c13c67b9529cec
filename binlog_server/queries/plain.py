"""Functions that get their arguments converted, and give NULL for NULL: most of them, and most operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from binlog_protocol.dataclass import dataclass

from binlog_server.queries import types, values
from binlog_server.queries.terms import Asker, Term, dated, watched
from binlog_server.queries.types import Type, ValueForm

_CONVERT: Final[Mapping[str, Callable[[Any, Type], Any]]] = {
    "t": values.as_text,
    "i": values.as_integer,
    "n": values.as_number,
    "d": values.as_double,
    "b": values.as_bytes,
    "s": lambda value, kind: value if isinstance(value, bytes) else values.as_text(value, kind),
    "e": values.as_decimal,
    "m": values.as_moment,
    "c": values.as_span,
    "x": lambda value, kind: value,
}
_NUMBERS: Final = {"i": "INTEGER", "n": "DOUBLE", "d": "DOUBLE", "e": "DECIMAL"}
_MOMENT: Final = types.moment(ValueForm.DATETIME)
Types = Sequence[Type]


@dataclass(frozen=True, slots=True)
class Plain:
    """A function of converted arguments.

    Attributes:
        arguments: a letter for each: t text, b bytes, s bytes if it has any, else text; i integer, n number, d double,
            e DECIMAL; m date and time, c TIME; x as it is. `*` behind the last one repeats it, `?` makes it one that
            may be left out.
        kind: the type, from those of the arguments.
        call: the value; it may give None.
        gives_null: whether it may be NULL for what is not.
        size: characters of the value, where these must be known before it is made.
    """

    arguments: str
    kind: Callable[[Types], Type]
    call: Callable[..., Any]
    gives_null: bool = False
    size: Callable[..., int] | None = None

    @property
    def counts(self) -> tuple[int, int]:
        """How many arguments it takes, at least and at most."""
        letters = [c for c in self.arguments if c not in "*?"]
        most = 1000 if "*" in self.arguments else len(letters)
        return len(letters) - self.arguments.count("?"), most

    def letters(self, count: int) -> list[str]:
        """The letters of so many arguments."""
        found = [c for c in self.arguments if c not in "*?"]
        return (found + [found[-1]] * count)[:count] if found else []


def watched_as(letter: str, term: Term, session: Asker) -> Term:
    """An argument of that letter, with a warning where it is cut by its conversion; a TIME of today, where a date is
    wanted."""
    if letter == "m":
        return dated(term, _MOMENT, session)
    return watched(term, session, _NUMBERS[letter]) if letter in _NUMBERS else term


def called(plain: Plain, terms: Sequence[Term], session: Asker) -> Term:
    """The term of a function of these arguments, as many as it takes."""
    kinds = [term.kind for term in terms]
    kind = plain.kind(kinds)
    kind = replace(
        kind, may_be_null=kind.may_be_null or plain.gives_null or types.any_null(kinds), column=None
    )
    letters = plain.letters(len(terms))
    terms = [watched_as(letter, term, session) for term, letter in zip(terms, letters, strict=True)]
    getters = [
        (term.value, _CONVERT[letter], term.kind)
        for term, letter in zip(terms, letters, strict=True)
    ]
    run, size, budget = plain.call, plain.size, session.budget
    is_octets = kind.form is ValueForm.BYTES

    def value() -> Any:
        found = []
        for get, convert, of in getters:
            one = get()
            if one is None:
                return None
            found.append(convert(one, of))
        if None in found:  # no time
            return None
        if size is not None:
            budget.make_text(size(*found))
        result = run(*found)
        if isinstance(result, str) and is_octets:
            result = result.encode("utf-8", "surrogateescape")
        if size is None and isinstance(result, str | bytes):
            budget.make_text(len(result))
        return result

    return Term(kind, value)
