"""The functions of expressions: the type and the value of each. A new one is a row here.

Most are a `Plain`. The others make a term of terms, some of them by a `Plain` whose type follows from the terms.
"""

from __future__ import annotations

import base64
import calendar
import hashlib
import itertools
import math
import random
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import (
    JsonCharacter,
    JsonEnds,
    JsonOneOrAll,
    JsonPathNotAllowed,
    JsonPathNoWildcard,
    JsonPathSyntax,
    JsonSyntax,
    JsonTooDeep,
    NotSupportedYet,
    ServerError,
    TruncatedValue,
    UnknownRoutine,
    WrongArguments,
    WrongFunctionValue,
    WrongParameterCount,
)
from binlog_protocol.events.collation_names import collation_name
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.tables.collation import is_by_several

from binlog_server.queries import document_changes, documents, moments, operands, types, values
from binlog_server.queries.like import escaped, like_matches
from binlog_server.queries.plain import Plain, Types, called
from binlog_server.queries.regular import Span, regular
from binlog_server.queries.terms import (
    UNKNOWN,
    Asker,
    Budget,
    MustWait,
    Term,
    constant,
    dated,
    dating,
    settled,
    spelled,
    watched_moment,
    watched_test,
)
from binlog_server.queries.types import Type, ValueForm


def call(name: str, terms: Sequence[Term], session: Asker) -> Term:
    """A function's term. Raises `UnknownRoutine` (1305), `WrongParameterCount` (1582)."""
    kinds = [term.kind for term in terms]
    operands.require_arguments(name, kinds)
    if name in _ONLY_COMPARING:
        terms = [
            spelled(term, other)
            for term, other in zip(terms, [*kinds[1:], *kinds[:1]], strict=True)
        ]
        kinds = [term.kind for term in terms]
    if name in _COMPARING and _are_compared(name, kinds):
        operation, count = _COMPARING[name]
        values.require_one_collation(kinds[:count], operation, session.collation)
    made = _made(name, terms, session)
    if name in _SEARCHES:
        together = types.collated_as(types.text(0), kinds)
        if is_by_several(together.collation):
            raise NotSupportedYet(
                f"{name}() with a collation that compares several characters at once"
            )
        if together.is_by_bytes:
            made = called(_OF_INSTR if name == "INSTR" else _OF_LOCATE, terms, session)
    if name not in _OF_TEXTS:
        return made
    is_of_octets = any(kind.form is ValueForm.BYTES and not types.is_said(kind) for kind in kinds)
    if is_of_octets and made.kind.form is ValueForm.TEXT and name not in ("IF", "NULLIF"):
        return _as_octets(made)
    return replace(made, kind=types.collated_as(made.kind, kinds))


def _as_octets(term: Term) -> Term:
    """A text that was made of bytes."""
    kind = replace(types.octets(term.kind.length), may_be_null=term.kind.may_be_null)

    def value() -> Any:
        found = term.value()
        return None if found is None else values.as_bytes(found, term.kind)

    return Term(kind, value)


_COMPARING: Final = {
    "STRCMP": ("strcmp", 2), "NULLIF": ("nullif", 2), "FIND_IN_SET": ("find_in_set", 2), "FIELD": ("field", None),
    "REPLACE": ("replace", 3), "LOCATE": ("locate", 2), "INSTR": ("locate", 2),
    "SUBSTRING_INDEX": ("substring_index", 2), "REGEXP": ("regexp", 2), "REGEXP_INSTR": ("regexp_instr", 2),
    "REGEXP_SUBSTR": ("regexp_substr", 2), "REGEXP_REPLACE": ("regexp_replace", 3),
}  # fmt: skip
"""Functions that compare texts: the name that errors give them, and how many of their arguments, all for None."""


_ONLY_COMPARING: Final = ("STRCMP", "FIND_IN_SET")


def _are_compared(name: str, kinds: Sequence[Type]) -> bool:
    """Whether the function compares its arguments as texts: most take all for one."""
    if name == "NULLIF":
        return values.are_texts(kinds)
    return name != "FIELD" or not any(kind.is_number for kind in kinds)


_SEARCHES: Final = frozenset(("LOCATE", "POSITION", "INSTR"))
_OF_TEXTS: Final = frozenset((
    "CONCAT", "CONCAT_WS", "ELT", "IF", "INSERT", "LCASE", "LEFT", "LOWER", "LPAD", "LTRIM", "MID", "NULLIF", "NVL2",
    "QUOTE", "REGEXP_REPLACE", "REGEXP_SUBSTR", "REPEAT", "REPLACE", "REVERSE", "RIGHT", "RPAD", "RTRIM", "SUBSTR",
    "SUBSTRING", "SUBSTRING_INDEX", "TRIM", "UCASE", "UPPER",
))  # fmt: skip
"""Functions whose text is made of those that they get: it has their collation."""


def _made(name: str, terms: Sequence[Term], session: Asker) -> Term:
    special = _SPECIAL.get(name)
    if special is not None:
        least, most, make = special
        _require(name, terms, least, most)
        return make(terms, session)
    plain = _PLAIN.get(name)
    if plain is None:
        if not terms and name in session.functions:
            kind, value = session.functions[name]
            if name == "UUID":  # another one for each row
                return Term(kind, lambda: str(uuid.uuid1()))
            return constant(kind, value)
        if name in _ELSEWHERE:
            raise NotSupportedYet(f"{name}(), which is no function of this server")
        raise UnknownRoutine("FUNCTION", name)
    _require(name, terms, *plain.counts)
    return called(plain, terms, session)


def names() -> frozenset[str]:
    """All functions, in upper case."""
    return frozenset((*_SPECIAL, *_PLAIN))


def _require(name: str, terms: Sequence[Term], least: int, most: int) -> None:
    if not least <= len(terms) <= most:
        raise WrongParameterCount(name)


# --- texts ---


def _like_first(kinds: Types) -> Type:
    kind = kinds[0]
    if kind.form is ValueForm.BYTES:
        return types.octets(kind.length)
    return replace(types.text(kind.characters), is_exact=kind.is_exact)


def _chars(count: int) -> Callable[[Types], Type]:
    return lambda kinds: types.text(count)


def _int(length: int) -> Callable[[Types], Type]:
    return lambda kinds: types.small(length)


def _double(kinds: Types) -> Type:
    return types.DOUBLE


def _together(kinds: Types) -> Type:
    if kinds and all(kind.form is ValueForm.BYTES for kind in kinds):
        return types.octets(sum(kind.length for kind in kinds))
    found = types.text(sum(kind.characters for kind in kinds))
    return replace(found, is_exact=any(kind.is_exact for kind in kinds))


def _locate(wanted: str, text: str, start: int = 1) -> int:
    if start < 1:
        return 0
    return values.upper(text).find(values.upper(wanted), start - 1) + 1


def _locate_bytes(wanted: str, text: str, start: int = 1) -> int:
    return text.find(wanted, start - 1) + 1 if start >= 1 else 0


_OF_LOCATE: Final = Plain("tti?", _int(11), _locate_bytes)
_OF_INSTR: Final = Plain("tt", _int(11), lambda text, wanted: _locate_bytes(wanted, text))


def _substring_index(text: str, mark: str, count: int) -> str:
    if not mark or not count:
        return ""
    at = 0 if count > 0 else len(text)
    for _ in range(abs(count)):
        at = text.find(mark, at) if count > 0 else text.rfind(mark, 0, at)
        if at < 0:
            return text
        at += len(mark) * (count > 0)
    return text[: at - len(mark)] if count > 0 else text[at + len(mark) :]


_QUOTED: Final = "\\'\0\x1a"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\0", "\\0").replace("\x1a", "\\Z") + "'"


def _unhex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        return None


def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


def _from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one
        return None


def _conv(text: str, source: int, target: int) -> str | None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if not (2 <= abs(source) <= 36 and 2 <= abs(target) <= 36):
        return None
    number = 0
    for digit in text.strip().upper()[:80]:
        if digit not in digits[: abs(source)]:
            break
        number = number * abs(source) + digits.index(digit)
    number = min(number, values.U64_MAX)
    shown = ""
    while number:
        number, rest = divmod(number, abs(target))
        shown = digits[rest] + shown
    return shown or "0"


def _format(number: Any, decimals: int) -> str:
    exact = values.as_decimal(number, _form_of(number))
    return f"{values.rounded(exact, max(0, min(decimals, 38))):,f}"


def _form_of(number: Any) -> Type:
    form = {int: ValueForm.INT, Decimal: ValueForm.DECIMAL}.get(type(number), ValueForm.DOUBLE)
    return Type(form)


def _ord(text: str) -> int:
    return int.from_bytes(text[:1].encode("utf-8", "surrogateescape"), "big")


def _strcmp(terms: Sequence[Term], session: Asker) -> Term:
    key = values.text_key([term.kind for term in terms])

    def run(left: str, right: str) -> int:
        one, other = key(left), key(right)
        return int(one > other) - int(one < other)

    return called(Plain("tt", _int(2), run), terms, session)


def _inet(text: str) -> int | None:
    parts = text.split(".", 4)
    if len(parts) != 4 or not all(
        p.isascii() and p.isdecimal() and int(p[:4]) < 256 for p in parts
    ):
        return None
    return int.from_bytes(bytes(int(part) for part in parts), "big")


def _find_in_set(terms: Sequence[Term], session: Asker) -> Term:
    key = values.text_key([term.kind for term in terms])

    def run(one: str, all_: str) -> int:
        wanted, begin, end = key(one), 0, -1 if not all_ else 0
        for number in itertools.count(1):
            if end < 0:
                return 0
            end = all_.find(",", begin)
            if key(all_[begin : end if end >= 0 else None]) == wanted:
                return number
            begin = end + 1
        raise AssertionError

    return called(Plain("tt", _int(3), run), terms, session)


# --- numbers ---


def _rounds(way: Callable[[Decimal, int], Decimal]) -> Callable[..., Any]:
    def run(number: Any, digits: int = 0) -> Any:
        digits = max(-_PLACES_MAX, min(digits, types.DECIMAL_SCALE_MAX))
        if isinstance(number, float):
            if not math.isfinite(number):
                return number
            if way is values.rounded:  # to the even one, as C's rint
                return round(number * 10.0**digits) / 10.0**digits if abs(number) < 1e15 else number
            return float(way(values.as_decimal(number, types.DOUBLE), digits))
        found = way(Decimal(number), digits)
        if isinstance(number, int) or digits < 0:
            return int(found) if isinstance(number, int) else Decimal(int(found))
        return found

    return run


_PLACES_MAX: Final = 60


def remainder(left: Any, right: Any) -> Any:
    """`%`: with the sign of the left side; NULL behind a division by 0."""
    if right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        try:
            return math.fmod(left, right)
        except (ValueError, OverflowError):
            return None
    if isinstance(left, int) and isinstance(right, int):
        found = abs(left) % abs(right)
        return -found if left < 0 else found
    return values.EXACT.remainder(Decimal(left), Decimal(right))


def _whole(way: Callable[[Any], int]) -> Make:
    def make(terms: Sequence[Term], session: Asker) -> Term:
        kind = _whole_kind(terms[0].kind)

        def run(number: Any) -> Any:
            if isinstance(number, float):
                return float(way(number)) if math.isfinite(number) else number
            found = way(number)
            return Decimal(found) if kind.form is ValueForm.DECIMAL else found

        return called(Plain("n", lambda kinds: kind, run), terms, session)

    return make


_BIGINT_DIGITS: Final = 18  # that surely have room in one


def _whole_kind(source: Type) -> Type:
    kind = types.numeric(source)
    if kind.form is ValueForm.DOUBLE:
        return replace(types.DOUBLE, length=17, decimals=0)
    if kind.form is ValueForm.DECIMAL:
        whole = kind.digits - kind.scale
        if whole > _BIGINT_DIGITS:
            return types.decimal(whole + 1, 0)
        return types.integer(whole + 1)
    return kind.computed()


def _math(way: Callable[..., float]) -> Callable[..., float | None]:
    def run(*numbers: float) -> float | None:
        try:
            found = way(*numbers)
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        return found if math.isfinite(found) else None

    return run


def _abs_kind(kinds: Types) -> Type:
    return types.unbound(kinds[0]).computed()


def _insert(text: str, at: int, length: int, new: str) -> str:
    if not 1 <= at <= len(text):
        return text
    end = len(text) if length < 0 else min(len(text), at - 1 + length)
    return text[: at - 1] + new + text[end:]


def _address_of(text: str, make: Callable[[str], Any]) -> Any:
    try:
        return make(text)
    except ValueError:
        return None


def _inet_ntoa(number: int) -> str | None:
    return str(IPv4Address(number)) if 0 <= number < 1 << 32 else None


def _inet6(text: str) -> bytes | None:
    found = _address_of(text, ip_address)
    return None if found is None or "%" in text else found.packed


def _inet6_text(data: bytes) -> str | None:
    if len(data) == 4:
        return str(IPv4Address(data))
    return str(IPv6Address(data)) if len(data) == 16 else None


# --- functions that choose among their arguments, or make a text whose length must be known before ---

Make = Callable[[Sequence[Term], Asker], Term]


def _concat(terms: Sequence[Term], session: Asker) -> Term:
    kinds = [term.kind for term in terms]
    kind = _together(kinds).nullable(types.any_null(kinds))
    convert = values.as_bytes if kind.form is ValueForm.BYTES else values.as_text
    budget = session.budget

    def value() -> Any:
        parts: list[Any] = []
        size = 0
        for term in terms:
            one = term.value()
            if one is None:
                return None
            part = convert(one, term.kind)
            size += len(part)
            budget.make_text(size)
            parts.append(part)
        return b"".join(parts) if kind.form is ValueForm.BYTES else "".join(parts)

    return Term(kind, value)


def _concat_ws(terms: Sequence[Term], session: Asker) -> Term:
    mark, *parts = terms
    budget = session.budget
    length = sum(term.kind.characters for term in parts)
    length += mark.kind.characters * (len(parts) - 1)

    def value() -> Any:
        between = mark.value()
        if between is None:
            return None
        found, size = [], 0
        text = values.as_text(between, mark.kind)
        for term in parts:
            one = term.value()
            if one is not None:
                found.append(values.as_text(one, term.kind))
                size += len(found[-1]) + len(text)
                budget.make_text(size)
        return text.join(found)

    return Term(types.text(length).nullable(mark.kind.may_be_null), value)


def _if(terms: Sequence[Term], session: Asker) -> Term:
    condition, yes, no = terms
    condition = watched_test(condition, session)
    kind = types.common([yes.kind, no.kind])
    yes, no = dated(yes, kind, session), dated(no, kind, session)

    def value() -> Any:
        found = condition.value()
        chosen = yes if found is not None and values.is_true(found, condition.kind) else no
        return values.converted(chosen.value(), chosen.kind, kind)

    return Term(kind, value)


def _nvl2(terms: Sequence[Term], session: Asker) -> Term:
    given, yes, no = terms
    there = Term(types.BOOLEAN, lambda: int(given.value() is not None))
    return _if([there, yes, no], session)


def _of_text(what: str) -> Make:
    """CHARSET, COLLATION: of what an expression is declared as."""

    def make(terms: Sequence[Term], session: Asker) -> Term:
        kind = terms[0].kind
        found = "binary"
        if kind.form is ValueForm.TEXT:
            collation = "utf8mb3_general_ci" if kind.column is not None else session.collation
            collation = collation_name(kind.collation) if kind.collation > 0 else collation
            found = collation if what == "COLLATION" else collation.partition("_")[0]
        return constant(types.text(64).nullable(), found)

    return make


def _coalesce(terms: Sequence[Term], session: Asker) -> Term:
    kinds = [term.kind for term in terms]
    kind = types.common(kinds, may_be_null=all(k.may_be_null for k in kinds))
    terms = [dated(term, kind, session) for term in terms]

    def value() -> Any:
        for term in terms:
            found = term.value()
            if found is not None:
                return values.converted(found, term.kind, kind)
        return None

    return Term(kind, value)


def _nullif(terms: Sequence[Term], session: Asker) -> Term:
    left, right = terms
    right_term = dated(right, left.kind, session)
    date = dating(left.kind, right.kind, session)
    left_kind = left.kind if date is None else types.moment(ValueForm.DATETIME, left.kind.decimals)
    right_term = spelled(right_term, left_kind)
    said = spelled(left, right_term.kind)
    if said is not left:
        left, left_kind = said, said.kind
    left_key, right_key = values.comparable(left_kind, right_term.kind)

    def value() -> Any:
        found, other = left.value(), right_term.value()
        if found is None or other is None:
            return found
        is_equal = left_key(found if date is None else date(found)) == right_key(other)
        return None if is_equal else found

    term = settled(Term(left.kind, value))
    return Term(term.kind.nullable(), term.value)


def _isnull(terms: Sequence[Term], session: Asker) -> Term:
    return Term(types.BOOLEAN, lambda: int(terms[0].value() is None))


def _extreme(is_greatest: bool) -> Make:
    def make(terms: Sequence[Term], session: Asker) -> Term:
        kinds = [types.settled(t.kind) for t in terms if t.kind.form is not ValueForm.NULL]
        if any(k.is_time for k in kinds) and len({k.form for k in kinds}) > 1:
            return _extreme_moment(terms, session, max if is_greatest else min)
        kind = types.common([term.kind for term in terms])
        if any(k.is_number for k in kinds) and not all(k.is_number for k in kinds):
            kind = types.DOUBLE.nullable(kind.may_be_null)
        key = values.sort_key(kind)

        def value() -> Any:
            found = []
            for term in terms:
                one = term.value()
                if one is None:
                    return None
                found.append(values.converted(one, term.kind, kind))
            if None in found:  # a text that is no UUID
                return None
            return max(found, key=key) if is_greatest else min(found, key=key)

        return Term(kind, value)

    return make


def _extreme_moment(terms: Sequence[Term], session: Asker, choose: Callable[[Any], Any]) -> Term:
    """GREATEST and LEAST with dates or times among others: all are one, a TIME beside a date one of today."""
    forms = {term.kind.form for term in terms if term.kind.is_time}
    form = forms.pop() if len(forms) == 1 else ValueForm.DATETIME
    decimals = 0 if form is ValueForm.DATE else max(map(moments.decimals_as_moment, terms))
    kind = types.moment(form, decimals).nullable()
    if form is not ValueForm.DATE and any(map(moments.is_free_text, terms)):
        kind = replace(kind, length=_FREE_LENGTHS[form])
    beside = ValueForm.TIME if form is ValueForm.TIME else ValueForm.DATETIME
    told = [dated(watched_moment(term, session, beside), kind, session) for term in terms]

    def read(value: Any, source: Type) -> Any:
        if form is ValueForm.TIME:
            return values.as_span(value, source)
        return values.as_parts(value, source)

    def value() -> Any:
        found = []
        for term in told:
            one = term.value()
            one = None if one is None else read(one, term.kind)
            if one is None:
                return None
            found.append(one)
        if form is ValueForm.TIME:
            return values.time_text(choose(found), decimals)
        return values.moment_text(choose(found), form, decimals)

    return Term(kind, value)


_FREE_LENGTHS: Final = {ValueForm.TIME: 17, ValueForm.DATETIME: 26}  # made of a text


def _part(cut: Callable[[Any, int], Any]) -> Make:
    def make(terms: Sequence[Term], session: Asker) -> Term:
        kind = _shortened(terms[0].kind, terms[1])
        return called(Plain("si", lambda kinds: kind, cut), terms, session)

    return make


def _shortened(kind: Type, count: Term | None) -> Type:
    found = _like_first([kind])
    wanted = None if count is None else _said(count)
    return found if wanted is None else replace(found, length=min(found.length, max(0, wanted)))


def _said(count: Term) -> int | None:
    """The number that the statement says; None where it is computed, or NULL."""
    if count.constant is UNKNOWN or count.constant is None:
        return None
    return values.as_integer(count.constant, count.kind)


def _substring(terms: Sequence[Term], session: Asker) -> Term:
    kind = _shortened(terms[0].kind, terms[2] if len(terms) > 2 else None)
    return called(Plain("sii?", lambda kinds: kind, _cut_out), terms, session)


def _cut_out(text: Any, begin: int, count: int | None = None) -> Any:
    at = begin - 1 if begin > 0 else len(text) + begin
    if not 0 <= at < len(text):
        return text[:0]
    return text[at:] if count is None else text[at : at + max(0, count)]


def _repeat(terms: Sequence[Term], session: Asker) -> Term:
    said = _said(terms[1])
    length = _LONG if said is None else min(_LONG, terms[0].kind.characters * max(0, said))
    run = Plain(
        "ti",
        lambda kinds: types.text(length),
        lambda text, times: text * max(0, times) if text else text,  # more than Python counts
        gives_null=True,
        size=lambda text, times: len(text) * max(0, times),
    )
    return called(run, terms, session)


_LONG: Final = 1 << 24


def _space(terms: Sequence[Term], session: Asker) -> Term:
    return _repeat([constant(types.text(1), " "), *terms], session)


def _replace(terms: Sequence[Term], session: Asker) -> Term:
    source, old, new = (term.kind.characters for term in terms)
    kind = types.text(min(_LONG, source * (1 + max(0, new - max(1, old)))))

    def size(text: str, gone: str, come: str) -> int:
        return len(text) + text.count(gone) * max(0, len(come) - len(gone)) if gone else 0

    def run(text: str, gone: str, come: str) -> str:
        return text.replace(gone, come) if gone else text

    return called(Plain("ttt", lambda kinds: kind, run, size=size), terms, session)


def _pad(is_left: bool) -> Make:
    def run(text: str, length: int, piece: str = " ") -> str | None:
        missing = length - len(text)
        if length < 0 or (missing > 0 and not piece):
            return None
        if missing <= 0:
            return text[:length]
        added = (piece * (missing // len(piece) + 1))[:missing]
        return added + text if is_left else text + added

    def size(text: str, length: int, piece: str = " ") -> int:
        return length if piece else 0

    def make(terms: Sequence[Term], session: Asker) -> Term:
        said = _said(terms[1])
        kind = types.text(_LONG if said is None else max(0, min(_LONG, said)))
        return called(Plain("tit?", lambda kinds: kind, run, True, size), terms, session)

    return make


def trimmed(source: Term, mark: Term, where: str, session: Asker) -> Term:
    """TRIM: `where` is LEADING, TRAILING or BOTH."""

    def run(text: str, gone: str) -> str:
        if len(gone) == 1:  # as it mostly is: at the speed of memory
            text = text.lstrip(gone) if where != "TRAILING" else text
            return text.rstrip(gone) if where != "LEADING" else text
        begin, end = 0, len(text)
        while gone and where != "TRAILING" and text.startswith(gone, begin, end):
            begin += len(gone)
        while gone and where != "LEADING" and text.endswith(gone, begin, end):
            end -= len(gone)
        return text[begin:end]

    return called(Plain("tt", _like_first, run), (source, mark), session)


def _hex(terms: Sequence[Term], session: Asker) -> Term:
    source = terms[0].kind
    octets = source.length * (4 if source.form is ValueForm.TEXT else 1)
    kind = types.text(min(_LONG, 2 * octets), decimals=0)
    run = Plain(
        "b", lambda kinds: kind, lambda data: data.hex().upper(), size=lambda data: 2 * len(data)
    )
    if source.code in types.NATIVE:
        run = Plain("s", lambda kinds: kind, values.native_hex)
    if source.form in (ValueForm.DECIMAL, ValueForm.DOUBLE):
        run = Plain("d", lambda kinds: kind, lambda number: f"{_as_bits(number):X}")
    elif source.is_number or (source.code == types.HYBRID and source.column is not None):
        run = Plain("i", lambda kinds: kind, lambda number: f"{number & values.U64_MAX:X}")
    return called(run, terms, session)


def _as_bits(number: float) -> int:
    """A DOUBLE as 64 bits, rounded away from 0; all of them for what is beyond."""
    if not values.I64_MIN < number < values.U64_MAX:
        return values.U64_MAX
    return int(number + (0.5 if number > 0 else -0.5)) & values.U64_MAX


def _double_key(kind: Type) -> Callable[[Any], float]:
    return lambda value: values.as_double(value, kind)


def _quoted(terms: Sequence[Term], session: Asker) -> Term:
    source, budget = terms[0], session.budget

    def value() -> str:
        found = source.value()
        if found is None:
            return "NULL"
        text = values.as_text(found, source.kind)
        budget.make_text(2 + len(text) + sum(map(text.count, _QUOTED)))
        return _quote(text)

    kind = replace(types.text(0), length=2 * source.kind.characters + 2)
    return Term(kind.nullable(source.kind.may_be_null), value)


def _text_of_moment(term: Term) -> Term:
    """A date or time as text, any other term as it is."""
    kind = term.kind
    return replace(term, kind=types.text(kind.characters)) if kind.is_time else term


def _field(terms: Sequence[Term], session: Asker) -> Term:
    wanted, *others = terms
    kinds = [term.kind for term in terms]
    if not any(kind.is_number for kind in kinds):
        wanted, *others = map(_text_of_moment, terms)
    keys = [values.comparable(wanted.kind, other.kind) for other in others]
    if len({kind.is_number for kind in kinds}) > 1:
        keys = [(_double_key(wanted.kind), _double_key(other.kind)) for other in others]

    def value() -> Any:
        found = wanted.value()
        if found is None:
            return 0
        for at, (other, (mine, theirs)) in enumerate(zip(others, keys, strict=True), 1):
            one = other.value()
            if one is not None and mine(found) == theirs(one):
                return at
        return 0

    return Term(types.small(3), value)


def _elt(terms: Sequence[Term], session: Asker) -> Term:
    number, *texts = terms
    kind = types.common([term.kind for term in texts], keeps_bits=True).nullable()

    def value() -> Any:
        at = number.value()
        if at is None or not 1 <= values.as_integer(at, number.kind) <= len(texts):
            return None
        chosen = texts[values.as_integer(at, number.kind) - 1]
        return values.converted(chosen.value(), chosen.kind, kind)

    return Term(kind, value)


def _rounding(way: Callable[[Decimal, int], Decimal]) -> Make:
    def make(terms: Sequence[Term], session: Asker) -> Term:
        number, *rest = terms
        kind = types.numeric(number.kind)
        said = _said(rest[0]) if rest else 0
        places = kind.scale if said is None else max(0, min(said, 38))
        if kind.form is ValueForm.DECIMAL:
            scale = min(places, kind.scale) if rest else 0
            more = 1 if scale < kind.scale else 0
            digits = kind.digits - kind.scale + scale + more
            kind = types.decimal(digits, scale, unsigned=kind.unsigned)
        elif kind.form is ValueForm.DOUBLE and said is not None:
            kind = types.fixed_double(places)
        run = Plain("ni?", lambda kinds: kind, _rounds(way))
        return called(run, terms, session)

    return make


def _sleep(terms: Sequence[Term], session: Asker) -> Term:
    """SLEEP: the answer waits for it, not the thread that computes."""

    def value() -> Any:
        found = terms[0].value()
        seconds = None if found is None else values.as_double(found, terms[0].kind)
        waits = max(0.0, seconds or 0.0)
        session.sleeps_s = min(session.sleeps_s + waits, _SLEEP_MAX_S)
        return 0

    return Term(types.small(1), value)


_SLEEP_MAX_S: Final = 365 * 86400.0


def _rand(terms: Sequence[Term], session: Asker) -> Term:
    """RAND: with a number the same row of values as MariaDB's."""
    if not terms and session.rand_state is None:
        return Term(types.DOUBLE, random.random)
    state = [] if terms else session.rand_state or []

    def value() -> float:
        if not state:
            found = terms[0].value()
            seed = 0 if found is None else values.as_integer(found, terms[0].kind)
            state[:] = [
                (seed * 0x10001 + 55_555_555 & 0xFFFFFFFF) % _RAND_MAX,
                (seed * 0x10000001 & 0xFFFFFFFF) % _RAND_MAX,
            ]
        state[0] = (state[0] * 3 + state[1]) % _RAND_MAX
        state[1] = (state[0] + state[1] + 33) % _RAND_MAX
        return state[0] / _RAND_MAX

    return Term(types.DOUBLE, value)


_RAND_MAX: Final = 0x3FFFFFFF


def rand_seeds() -> tuple[int, int]:
    """Seeds of RAND() without a number, as a RAND event has them."""
    return random.randrange(_RAND_MAX), random.randrange(_RAND_MAX)


def _no_benchmark(terms: Sequence[Term], session: Asker) -> Term:
    raise NotSupportedYet("BENCHMARK(): this server computes no load")


# --- the session ---


def _last_insert_id(terms: Sequence[Term], session: Asker) -> Term:
    if not terms:
        return constant(types.UNSIGNED_BIGINT, session.last_insert_id)
    given = terms[0]
    kind = replace(types.UNSIGNED_BIGINT, length=given.kind.wire("").length)

    def value() -> Any:
        found = given.value()
        number = 0 if found is None else values.as_integer(found, given.kind) & values.U64_MAX
        session.new_insert_id = session.last_insert_id = number
        return None if found is None else number

    return Term(kind.nullable(given.kind.may_be_null), value)


_LOCK_CHARS: Final = 192  # of a name; those behind do not count


def _lock_name(term: Term) -> str | None:
    """The name of a lock, the same in any case."""
    found = term.value()
    name = "" if found is None else values.as_text(found, term.kind)
    return values.collated(name[:_LOCK_CHARS]) if name else None


def _get_lock(terms: Sequence[Term], session: Asker) -> Term:
    """GET_LOCK: the statement ends by `MustWait` where it has to wait, and is run again afterwards."""
    calls = session.lock_calls

    def value() -> Any:
        name, timeout = _lock_name(terms[0]), terms[1].value()
        seconds = -1.0 if timeout is None else values.as_double(timeout, terms[1].kind)
        if seconds < 0:
            shown = "NULL" if timeout is None else values.as_text(timeout, terms[1].kind)
            session.warn(WrongFunctionValue("timeout", shown, "get_lock"))
            return None
        if name is None:
            return None

        def take(locks: Any) -> int:
            if not locks.take(name) and seconds:
                raise MustWait(name, seconds)
            return int(locks.owner(name) == locks.number)

        return calls.call(take)

    return Term(types.BOOLEAN.nullable(), value)


def _of_lock(ask: Callable[[Any, str], Any], kind: Type) -> tuple[int, int, Make]:
    def make(terms: Sequence[Term], session: Asker) -> Term:
        calls = session.lock_calls

        def value() -> Any:
            name = _lock_name(terms[0])
            return None if name is None else calls.call(lambda locks: ask(locks, name))

        return Term(kind.nullable(), value)

    return 1, 1, make


def _release_all_locks(terms: Sequence[Term], session: Asker) -> Term:
    calls = session.lock_calls
    kind = replace(types.small(11), unsigned=True)
    return Term(kind, lambda: calls.call(lambda locks: locks.release_all()))


# --- regular expressions ---


Find = Callable[[int], Sequence[Span] | None]


def _of_regular(
    kind: Callable[[Types], Type], give: Callable[[str, Find, list[str], Asker], Any], count: int
) -> tuple[int, int, Make]:
    """A function of a text and a regular expression, which gets the text, what finds the next match, and the rest.

    That of text is without case; bytes are bytes, whose characters are those of Latin-1 here.
    """

    def make(terms: Sequence[Term], session: Asker) -> Term:
        budget = session.budget
        is_bytes = any(term.kind.form is ValueForm.BYTES for term in terms[:2])
        is_folded = not is_bytes and not any(term.kind.is_exact for term in terms[:2])

        def declared(kinds: Types) -> Type:
            found = kind(kinds)
            is_text = found.form is ValueForm.TEXT
            return types.octets(found.characters) if is_bytes and is_text else found

        def run(*given: str) -> Any:
            if is_bytes:
                given = tuple(
                    one.encode("utf-8", "surrogateescape").decode("latin-1") for one in given
                )
            text, pattern, *rest = given
            budget.make(len(text))
            expression = regular(pattern, is_folded=is_folded, is_bytes=is_bytes)
            found = give(text, lambda at: expression.find(text, at, budget), rest, session)
            return found.encode("latin-1") if is_bytes and isinstance(found, str) else found

        return called(Plain("t*", declared, run, gives_null=True), terms, session)

    return count, count, make


def _regexp_like(text: str, find: Find, rest: list[str], session: Asker) -> int:
    return int(find(0) is not None)


def _regexp_instr(text: str, find: Find, rest: list[str], session: Asker) -> int:
    found = find(0)
    return 0 if found is None or found[0] is None else found[0][0] + 1


def _regexp_substr(text: str, find: Find, rest: list[str], session: Asker) -> str:
    found = find(0)
    return "" if found is None or found[0] is None else text[slice(*found[0])]


def _regexp_replace(text: str, find: Find, rest: list[str], session: Asker) -> str:
    parts: list[str] = []
    at = size = 0
    while True:
        found = find(at)
        if found is None or found[0] is None or found[0][0] == found[0][1]:
            break  # MariaDB ends at what matches nothing
        begin, end = found[0]
        parts += (text[at:begin], _filled(rest[0], text, found))
        at = end
        size += sum(map(len, parts[-2:]))
        session.budget.make_text(size)
    parts.append(text[at:])
    return "".join(parts)


def _filled(new: str, text: str, found: Sequence[Span]) -> str:
    """What is put in the place of a match: \\1 is its first group."""

    def group(match: re.Match[str]) -> str:
        letter = match[1]
        if not letter.isdigit():
            return letter
        span = found[int(letter)] if int(letter) < len(found) else None
        return "" if span is None else text[slice(*span)]

    return re.sub(r"\\(.?)", group, new, flags=re.DOTALL)


# --- JSON ---


def _json_text(term: Term, found: Any) -> str:
    """A value as it stands in a JSON text."""
    if found is None:
        return "null"
    if term.kind.is_json:
        return values.as_text(found, term.kind)
    if term.kind in (types.BOOLEAN, types.TRUTH):
        return "true" if found else "false"
    if term.kind.is_number:
        return values.as_text(found, term.kind)
    return documents.quoted(values.as_text(found, term.kind))


def _in_a_row(parts: Iterable[str], budget: Budget) -> str:
    found: list[str] = []
    size = 2
    for part in parts:
        size += len(part) + 2
        budget.make_text(size)
        found.append(part)
    return ", ".join(found)


def _json_array(terms: Sequence[Term], session: Asker) -> Term:
    length = 2 + sum(_json_chars(term) + 4 for term in terms)

    def value() -> str:
        parts = (_json_text(term, term.value()) for term in terms)
        return f"[{_in_a_row(parts, session.budget)}]"

    return Term(replace(types.text(length), is_json=True), value)


def _json_object(terms: Sequence[Term], session: Asker) -> Term:
    if len(terms) % 2:
        raise WrongParameterCount("JSON_OBJECT")
    names, given = terms[::2], terms[1::2]
    length = 2 + sum(_json_chars(term) + 4 for term in terms)

    def value() -> str:
        parts = (member(name, term) for name, term in zip(names, given, strict=True))
        return f"{{{_in_a_row(parts, session.budget)}}}"

    def member(name: Term, term: Term) -> str:
        found = name.value()
        said = "" if found is None else values.as_text(found, name.kind)
        return f"{documents.quoted(said)}: {_json_text(term, term.value())}"

    return Term(replace(types.text(length), is_json=True), value)


def _json_chars(term: Term) -> int:
    return term.kind.characters * (1 if term.kind.is_number else 2)


Paths = list[tuple[documents.PathStep, ...]]
_SPAN_BYTES: Final = 64  # of memory for a value that a path has found


_SILENT: Final = frozenset({"json_value", "json_query", "json_exists"})
"""Functions that say nothing of a text that is no JSON."""


def _not_json(text: str, function: str, number: int = 1) -> ServerError:
    fault = documents.fault(text)
    match fault.kind:
        case documents.FaultKind.ENDS:
            return JsonEnds(number, function)
        case documents.FaultKind.CHARACTER:
            return JsonCharacter(number, function, fault.at)
        case documents.FaultKind.DEPTH:
            return JsonTooDeep(number, function, fault.at)
    return JsonSyntax(number, function, fault.at)


def _of_document(
    name: str,
    kind: Callable[[Types], Type],
    give: Callable[[str, Paths, Budget], Any],
    least: int,
    most: int,
    *,
    is_json: bool = False,
    one_place: bool = False,
) -> tuple[int, int, Make]:
    """A function of a JSON text and of paths. NULL for what is no JSON, and for what is no path.

    one_place: a path must not mean several places.
    """

    def make(terms: Sequence[Term], session: Asker) -> Term:
        def run(text: str, *paths: str) -> Any:
            session.budget.make(len(text))
            if documents.bounds(text) is None:
                if name not in _SILENT:
                    session.warn(_not_json(text, name))
                return None
            steps = []
            for number, path in enumerate(paths, 2):
                found = documents.path(path)
                if found is None:
                    session.warn(JsonPathSyntax(number, name, 1))
                    return None
                if one_place and documents.is_plural(found):
                    session.warn(JsonPathNoWildcard(number, name))
                    return None
                steps.append(found)
            return give(text, steps, session.budget)

        plain = Plain(
            "t*", lambda kinds: replace(kind(kinds), is_json=is_json), run, gives_null=True
        )
        return called(plain, terms, session)

    return least, most, make


def _like_document(kinds: Types) -> Type:
    return types.text(kinds[0].characters)


def _json_extract(text: str, paths: Paths, budget: Budget) -> str | None:
    within = documents.bounds(text)
    assert within is not None
    found = []
    for path in paths:
        for begin, end in documents.found(text, within, path, budget.tick):
            budget.make(_SPAN_BYTES + end - begin)
            found.append(text[begin:end])
    if len(paths) == 1 and not documents.is_plural(paths[0]):
        return documents.loose(found[0]) if found else None
    return documents.loose("[" + ",".join(found) + "]") if found else None


def _first_of(text: str, paths: Paths, budget: Budget, *, is_container: bool) -> str | None:
    within = documents.bounds(text)
    assert within is not None
    for begin, end in documents.found(text, within, paths[0], budget.tick):
        if documents.is_container(text, begin) is is_container:
            return text[begin:end]
    return None


def _json_value(text: str, paths: Paths, budget: Budget) -> str | None:
    found = _first_of(text, paths, budget, is_container=False)
    if found in ("true", "false"):
        return "1" if found == "true" else "0"
    return None if found in (None, "null") else documents.unquoted(found)


def _json_query(text: str, paths: Paths, budget: Budget) -> str | None:
    return _first_of(text, paths, budget, is_container=True)


def _json_exists(text: str, paths: Paths, budget: Budget) -> int:
    return int(_place(text, paths, budget) is not None)


def _place(text: str, paths: Paths, budget: Budget) -> tuple[int, int] | None:
    within = documents.bounds(text)
    assert within is not None
    if not paths:
        return within
    return next(documents.found(text, within, paths[0], budget.tick), None)


def _json_length(text: str, paths: Paths, budget: Budget) -> int | None:
    place = _place(text, paths, budget)
    if place is None:
        return None
    if not documents.is_container(text, place[0]):
        return 1
    return sum(1 for _ in documents.members(text, place[0]))


def _json_keys(text: str, paths: Paths, budget: Budget) -> str | None:
    place = _place(text, paths, budget)
    if place is None or text[place[0]] != "{":
        return None
    keys = dict.fromkeys(str(name) for name, _, _ in documents.members(text, place[0]))
    return "[" + ", ".join(map(documents.quoted, keys)) + "]"


def _json_type(text: str, paths: Paths, budget: Budget) -> str:
    place = _place(text, paths, budget)
    assert place is not None
    return documents.kind_of(text, place[0])


def _json_depth(text: str, paths: Paths, budget: Budget) -> int:
    place = _place(text, paths, budget)
    assert place is not None
    return documents.depth_of(text, place[0])


def _json_loose(text: str, paths: Paths, budget: Budget) -> str:
    return documents.loose(text)


def _json_compact(text: str, paths: Paths, budget: Budget) -> str:
    return documents.loose(text, blank="")


def _json_valid(terms: Sequence[Term], session: Asker) -> Term:
    def run(text: str) -> int:
        session.budget.make(len(text))
        if documents.bounds(text) is not None:
            return 1
        session.note(_not_json(text, "json_valid"))
        return 0

    return called(Plain("t", lambda kinds: types.BOOLEAN, run), terms, session)


Steps = tuple[documents.PathStep, ...]
_Edit = Callable[[str, Steps, str, Asker], str | None]


def _of_changes(name: str, edit: _Edit, *, has_values: bool) -> tuple[int, int, Make]:
    """A function that makes another JSON text: of one, and of paths, each with a value if it `has_values`."""
    width = 1 + has_values

    def make(terms: Sequence[Term], session: Asker) -> Term:
        if (len(terms) - 1) % width:
            raise WrongParameterCount(name.upper())
        kind = _document_of(terms, terms[0].kind)

        def value() -> str | None:
            text = _document(terms[0], 1, name, session)
            for at in range(1, len(terms), width):
                steps = None if text is None else _one_place(terms[at], at + 1, name, session)
                if text is None or steps is None or documents.bounds(text) is None:
                    return None
                if not steps and name == "json_remove":
                    session.warn(JsonPathNotAllowed("$", at + 1, name))
                    return None
                given = terms[at + 1] if has_values else None
                said = "" if given is None else _json_text(given, given.value())
                session.budget.make_text(len(text) + len(said))
                text = edit(text, steps, said, session)
            return None if text is None else documents.loose(text)

        return Term(kind, value)

    return 1 + width, 1000, make


def _document_of(terms: Sequence[Term], first: Type) -> Type:
    """The type of a JSON text that is made of these; its collation is that of the first."""
    found = types.text(sum(_json_chars(term) + 4 for term in terms))
    collation = first.collation if first.form is ValueForm.TEXT else 0
    return replace(found, is_json=True, collation=collation).nullable()


def _document(term: Term, number: int, function: str, session: Asker) -> str | None:
    """The JSON text of an argument; None for NULL, and with a warning for what is none."""
    found = term.value()
    if found is None:
        return None
    text = values.as_text(found, term.kind)
    session.budget.make(len(text))
    if documents.bounds(text) is None:
        session.warn(_not_json(text, function, number))
        return None
    return text


def _one_place(term: Term, number: int, function: str, session: Asker) -> Steps | None:
    """The path of an argument; None for NULL, and with a warning for what means no one place."""
    found = term.value()
    if found is None:
        return None
    steps = documents.path(values.as_text(found, term.kind))
    if steps is None:
        session.warn(JsonPathSyntax(number, function, 1))
    elif documents.is_plural(steps):
        session.warn(JsonPathNoWildcard(number, function))
        return None
    return steps


def _putting(modes: str) -> _Edit:
    def edit(text: str, steps: Steps, value: str, session: Asker) -> str:
        tick = session.budget.tick
        return document_changes.put(text, steps, value, documents.quoted, tick, modes=modes)

    return edit


def _merge_patch(terms: Sequence[Term], session: Asker) -> Term:
    def value() -> str | None:
        found: str | None = None
        for number, term in enumerate(terms, 1):
            if term.value() is None:
                found = None
                continue
            patch = _document(term, number, "json_merge_patch", session)
            if patch is None:
                return None
            tick = session.budget.tick
            found = patch if number == 1 else document_changes.patched(found, patch, tick)
        return None if found is None else documents.loose(found)

    return Term(_document_of(terms, terms[0].kind), value)


def _json_contains(terms: Sequence[Term], session: Asker) -> Term:
    name = "json_contains"

    def value() -> int | None:
        text = _document(terms[0], 1, name, session)
        wanted = None if text is None else _document(terms[1], 2, name, session)
        if text is None or wanted is None:
            return None
        if len(terms) > 2:
            steps = _one_place(terms[2], 3, name, session)
            if steps is None:
                return None
            place = _place(text, [steps], session.budget)
            if place is None:
                return 0
            text = text[place[0] : place[1]]
        return int(document_changes.contains(text, wanted, session.budget.tick))

    return Term(types.BOOLEAN.nullable(), value)


def _json_search(terms: Sequence[Term], session: Asker) -> Term:
    name = "json_search"

    def value() -> str | None:
        text = _document(terms[0], 1, name, session)
        given = [
            None if one.value() is None else values.as_text(one.value(), one.kind)
            for one in terms[1:4]
        ]
        how, like, escape = (*given, None)[:3]
        if text is None or how is None or like is None:
            return None
        if how.lower() not in ("one", "all"):
            session.warn(JsonOneOrAll(2, name))
            return None
        paths = []
        for term in terms[4:]:
            said = term.value()
            steps = None if said is None else documents.path(values.as_text(said, term.kind))
            if steps is None:
                return None
            paths.append(steps)
        pattern = like if escape in (None, "\\") else escaped(like, escape)

        def matches(one: str) -> bool:
            return like_matches(pattern, one, budget=session.budget)

        found = document_changes.places_like(text, paths, matches, session.budget.tick)
        if how.lower() == "one":
            first = next(found, None)
            return None if first is None else documents.quoted(first)
        every = [documents.quoted(one) for one in found]
        if len(every) < 2:
            return every[0] if every else None
        return f"[{_in_a_row(every, session.budget)}]"

    return Term(_document_of(terms[:1], terms[0].kind), value)


def _json_contains_path(terms: Sequence[Term], session: Asker) -> Term:
    name = "json_contains_path"

    def value() -> int | None:
        text = _document(terms[0], 1, name, session)
        given = [term.value() for term in terms[1:]]
        if text is None or None in given:
            return None
        said = [values.as_text(one, t.kind) for one, t in zip(given, terms[1:], strict=True)]
        how = said[0].lower()
        if how not in ("one", "all"):
            session.warn(JsonOneOrAll(2, name))
            return None
        there = []
        for number, one in enumerate(said[1:], 3):
            steps = documents.path(one)
            if steps is None:
                session.warn(JsonPathSyntax(number, name, 1))
                return None
            there.append(_place(text, [steps], session.budget) is not None)
        return int(any(there) if how == "one" else all(there))

    return Term(types.BOOLEAN.nullable(), value)


# --- times ---


def _now(
    form: ValueForm, text: Callable[[datetime, int], str], *, utc: bool = False, code: int = 0
) -> Make:
    def make(terms: Sequence[Term], session: Asker) -> Term:
        decimals = 0
        if terms:
            decimals = values.as_integer(terms[0].value() or 0, terms[0].kind)
            if not 0 <= decimals <= 6:
                raise WrongArguments("now")
        shown = text(session.utc_now() if utc else session.local_now(), decimals)
        return constant(replace(types.moment(form, decimals), code=code), shown)

    return make


def _sysdate(terms: Sequence[Term], session: Asker) -> Term:
    """SYSDATE: the time of each call, whatever `timestamp` says."""
    kind = _NOW[2](terms, session).kind
    decimals = kind.decimals

    def value() -> str:
        return values.datetime_text(session.local(time.time()), decimals)

    return Term(kind, value)


def _clock(value: datetime, decimals: int) -> str:
    return values.datetime_text(value, decimals)[11:]


_NOW = (0, 1, _now(ValueForm.DATETIME, values.datetime_text, code=ColumnType.TIMESTAMP))
_TODAY = (0, 0, _now(ValueForm.DATE, lambda value, _: values.date_text(value)))
_CURTIME = (0, 1, _now(ValueForm.TIME, _clock))


def _unix_timestamp(terms: Sequence[Term], session: Asker) -> Term:
    whole = replace(types.integer(17), code=ColumnType.LONGLONG, may_be_null=True)
    if not terms:
        return constant(whole, int(session.now))
    source = terms[0]
    decimals = source.kind.decimals if source.kind.is_time else 0
    if source.kind.form is ValueForm.TEXT:
        said = source.constant
        decimals = _decimals_said(said) if isinstance(said, str) else 6
    kind = types.decimal(17 + decimals, decimals) if decimals else whole
    if decimals:
        kind = replace(kind, length=18 + decimals)

    def run(at: datetime) -> int | Decimal | None:
        try:
            seconds = session.seconds(at.replace(microsecond=0))
        except (ValueError, OverflowError):
            return None
        if not 0 <= seconds < _UNIX_END:
            return None
        exact = Decimal(int(max(0, seconds))) + Decimal(at.microsecond).scaleb(-6)
        return values.cut(exact, decimals) if decimals else int(exact)

    return called(Plain("m", lambda kinds: kind, run, gives_null=True), terms, session)


def _decimals_said(moment: str) -> int:
    """The digits of the seconds behind the point, in the text of a date and time."""
    found = _FRACTION.search(moment)
    return 0 if found is None else min(6, len(found[1]))


_FRACTION: Final = compiled_later(r"(?::[0-9]{1,2}|^\s*[0-9]+)\.([0-9]+)")
_UNIX_END: Final = 1 << 32
"""Seconds since 1970 that a TIMESTAMP does not have any longer."""
_SHOWN_CHARS: Final = 128


def _from_unixtime(terms: Sequence[Term], session: Asker) -> Term:
    source = terms[0].kind
    decimals = min(6, source.decimals) if source.form is ValueForm.DECIMAL else 0
    if source.form is ValueForm.TEXT:
        decimals = 6

    def moment_of(exact: Decimal) -> datetime | None:
        if not 0 <= exact < _UNIX_END:
            if exact >= _UNIX_END:
                is_exact = source.form is not ValueForm.DOUBLE
                shown = f"{exact:f}" if is_exact else values.as_text(float(exact), source)
                session.warn(TruncatedValue("unixtime", shown[:_SHOWN_CHARS]))
            return None
        return session.local(int(exact)) + timedelta(microseconds=int(exact % 1 * 1_000_000))

    def run(exact: Decimal, pattern: str | None = None) -> str | None:
        at = moment_of(exact)
        if at is None:
            return None
        if pattern is not None:
            return moments.formatted(at, pattern)
        return values.datetime_text(at, decimals)

    def kind(kinds: Types) -> Type:
        if kinds[1:]:
            return _formatted(kinds)
        return replace(types.moment(ValueForm.DATETIME, decimals), code=ColumnType.TIMESTAMP)

    return called(Plain("et?", kind, run, gives_null=True), terms, session)


def _sec_to_time(terms: Sequence[Term], session: Asker) -> Term:
    source = terms[0].kind

    def run(seconds: float) -> str:
        if abs(seconds) >= values.TIME_END.total_seconds():
            kind = types.DOUBLE if seconds % 1 else source
            shown = values.as_text(seconds if seconds % 1 else int(seconds), kind)
            session.warn(TruncatedValue("seconds", shown[:_SHOWN_CHARS]))
        return values.time_text(timedelta(seconds=int(max(min(seconds, 4e6), -4e6))))

    kind = types.moment(ValueForm.TIME)
    return called(Plain("d", lambda kinds: kind, run, gives_null=True), terms, session)


def _convert_tz(terms: Sequence[Term], session: Asker) -> Term:
    source = terms[0]
    decimals = min(6, source.kind.decimals)
    if source.kind.form is ValueForm.TEXT:
        said = source.constant
        decimals = min(6, len(said.rpartition(".")[2])) if isinstance(said, str) else 6
        decimals = 0 if isinstance(said, str) and "." not in said else decimals

    def run(at: datetime, of: str, to: str) -> str | None:
        begin, end = session.in_zone(of), session.in_zone(to)
        if begin is None or end is None:
            return None
        try:
            seconds = begin.seconds(at.replace(microsecond=0))
            if 0 < seconds < 1 << 32:  # no TIMESTAMP stays as it is
                at = end.local(seconds).replace(microsecond=at.microsecond)
        except (ValueError, OverflowError):
            pass
        return values.datetime_text(at, decimals)

    kind = types.moment(ValueForm.DATETIME, decimals)
    return called(Plain("mtt", lambda kinds: kind, run, gives_null=True), terms, session)


def _formatted(kinds: Types) -> Type:
    most = moments.PATTERN_CHARS_MAX
    return types.text(min(most, 10 * max(1, kinds[1].characters)))


def _of_moment(kind: Type, part: Callable[[datetime], Any]) -> Plain:
    return Plain("m", lambda kinds: kind, part, gives_null=True)


def _of_clock(kind: Type, part: Callable[[timedelta], Any]) -> Plain:
    return Plain("c", lambda kinds: kind, lambda span: part(abs(span)), gives_null=True)


def _week(terms: Sequence[Term], session: Asker) -> Term:
    run = Plain(
        "mi?",
        lambda kinds: types.small(2),
        lambda at, mode=session.week_mode: moments.week(at, mode & 7)[1],
        gives_null=True,
    )
    return called(run, terms, session)


def _named(part: str) -> Make:
    """The name of a day or month, by its mark in a format. Raises `NotSupportedYet` for those of another language."""

    def make(terms: Sequence[Term], session: Asker) -> Term:
        _require_english(session)
        kind = types.text(9)
        return called(_of_moment(kind, lambda at: at.strftime(part)), terms, session)

    return make


def _date_format(terms: Sequence[Term], session: Asker) -> Term:
    pattern = terms[1].constant
    if not isinstance(pattern, str) or _NAMES.search(pattern):
        _require_english(session)
    run = Plain("mt", _formatted, moments.formatted, gives_null=True)
    return called(run, terms, session)


def _require_english(session: Asker) -> None:
    if not session.names_in.startswith("en_"):
        raise NotSupportedYet(f"names of days and months with lc_time_names={session.names_in}")


_NAMES: Final = compiled_later("%[abMW]")


def _timediff(terms: Sequence[Term], session: Asker) -> Term:
    decimals = max(term.kind.decimals if term.kind.is_time else 0 for term in terms)
    kind = types.moment(ValueForm.TIME, decimals)
    sources = [term.kind for term in terms]

    def form_of(value: Any, source: Type) -> ValueForm:
        if source.is_time:
            return source.form
        text = values.as_text(value, source)
        has_date = text[4:5] == "-" and len(text) > _DATE_CHARS
        return ValueForm.DATETIME if has_date else ValueForm.TIME

    def difference(*given: Any) -> str | None:
        forms = {*map(form_of, given, sources)}
        read: Any = values.as_span if forms == {ValueForm.TIME} else values.as_moment
        end, begin = map(read, given, sources)
        if end is None or begin is None or len(forms) > 1:
            return None
        found: timedelta = end - begin
        if abs(found) >= values.TIME_END:
            hours, rest = divmod(int(abs(found).total_seconds()), 3600)
            sign = "-" if found < timedelta() else ""
            shown = f"{sign}{hours}:{rest // 60:02d}:{rest % 60:02d}"
            session.warn(TruncatedValue("time", shown))
        return values.time_text(found, decimals)

    return called(Plain("xx", lambda kinds: kind, difference, gives_null=True), terms, session)


def _days(value: datetime) -> int:
    return value.toordinal() + 365


def _year_and_week(at: datetime, mode: int) -> int:
    year, week = moments.week(at, mode)
    return 100 * year + week


def _last_day(value: datetime) -> str:
    _, last = calendar.monthrange(value.year, value.month)
    return values.date_text(value.replace(day=last))


def _of_days(number: int) -> str | None:
    """FROM_DAYS."""
    if not 366 <= number <= date.max.toordinal() + 365:
        return "0000-00-00"
    return values.date_text(datetime.fromordinal(number - 365))


def _makedate(year: int, day: int) -> str | None:
    if day <= 0 or not 0 <= year <= 9999:
        return None
    year += 0 if year > 99 else 2000 if year < 70 else 1900
    try:
        return values.date_text(datetime(year, 1, 1) + timedelta(days=day - 1))
    except OverflowError:
        return None


def _decimals(terms: Sequence[Term]) -> int:
    """Digits of a second of a time that is made of others."""
    return max(term.kind.decimals if term.kind.is_time else 0 for term in terms)


_DATE_CHARS: Final = 10


def _shown_decimals(microseconds: int) -> int:
    """Digits of a second that a text has, which says no more of them."""
    return len(f"{microseconds:06d}".rstrip("0")) if microseconds else 0


def _time(terms: Sequence[Term], session: Asker) -> Term:
    decimals = _decimals(terms)
    return called(
        Plain(
            "c",
            lambda kinds: types.moment(ValueForm.TIME, decimals),
            lambda span: values.time_text(span, decimals or _shown_decimals(span.microseconds)),
            gives_null=True,
        ),
        terms,
        session,
    )


def _timestamp(terms: Sequence[Term], session: Asker) -> Term:
    """TIMESTAMP of a date, and of a time that is added to it."""
    decimals = _decimals(terms)

    def added(at: datetime, span: timedelta = timedelta()) -> str | None:
        try:
            at += span
        except OverflowError:
            return None
        return values.datetime_text(at, decimals or _shown_decimals(at.microsecond))

    kind = types.moment(ValueForm.DATETIME, decimals)
    return called(Plain("mc?", lambda kinds: kind, added, gives_null=True), terms, session)


def _shifted_by_time(sign: int) -> Make:
    """ADDTIME, SUBTIME."""

    def make(terms: Sequence[Term], session: Asker) -> Term:
        source = terms[0].kind
        decimals = _decimals(terms)

        def shifted(text: str, span: timedelta) -> str | None:
            has_both = text[4:5] == "-" and len(text) > _DATE_CHARS
            at = values.datetime_in(text) if has_both else None
            try:
                if at is not None:
                    at += sign * span
                    return values.datetime_text(at, decimals or 6 * bool(at.microsecond))
                begin = values.time_in(text)
                if begin is None:
                    return None
                end = begin + sign * span
            except OverflowError:
                return None
            return values.time_text(end, decimals or _shown_decimals(end.microseconds))

        form = ValueForm.DATETIME if source.form is ValueForm.DATETIME else ValueForm.TIME
        kind = types.moment(form, decimals) if source.is_time else types.text(26)
        return called(Plain("tc", lambda kinds: kind, shifted, gives_null=True), terms, session)

    return make


_PLAIN: Final[Mapping[str, Plain]] = {
    **dict.fromkeys(("UPPER", "UCASE"), Plain("t", _like_first, values.upper)),
    **dict.fromkeys(("LOWER", "LCASE"), Plain("t", _like_first, values.lower)),
    **dict.fromkeys(("LENGTH", "OCTET_LENGTH"), Plain("b", _int(10), len)),
    **dict.fromkeys(("CHAR_LENGTH", "CHARACTER_LENGTH"), Plain("t", _int(10), len)),
    "BIT_LENGTH": Plain("b", _int(11), lambda data: 8 * len(data)),
    **dict.fromkeys(("LOCATE", "POSITION"), Plain("tti?", _int(11), _locate)),
    "INSTR": Plain("tt", _int(11), lambda text, wanted: _locate(wanted, text)),
    "SUBSTRING_INDEX": Plain("tti", _like_first, _substring_index),
    "JSON_QUOTE": Plain(
        "t", lambda kinds: types.text(6 * kinds[0].characters + 2), documents.quoted
    ),
    "JSON_UNQUOTE": Plain("t", _like_first, documents.unquoted),
    "INSERT": Plain("tiit", lambda kinds: types.text(_LONG), _insert),
    "INET_NTOA": Plain("i", _chars(31), _inet_ntoa, gives_null=True),
    "INET6_ATON": Plain("t", lambda kinds: types.octets(16), _inet6, gives_null=True),
    "INET6_NTOA": Plain("b", _chars(39), _inet6_text, gives_null=True),
    "IS_IPV4": Plain("t", _int(1), lambda text: int(_address_of(text, IPv4Address) is not None)),
    "IS_IPV6": Plain("t", _int(1), lambda text: int(_address_of(text, IPv6Address) is not None)),
    "BIT_COUNT": Plain(
        "e", _int(2), lambda number: (int(values.rounded(number, 0)) & values.U64_MAX).bit_count()
    ),
    "FROM_DAYS": Plain("i", lambda kinds: types.moment(ValueForm.DATE), _of_days, True),
    "MAKEDATE": Plain(
        "ii",
        lambda kinds: types.moment(ValueForm.DATE),
        _makedate,
        True,
    ),
    "TAN": Plain("d", _double, _math(math.tan), gives_null=True),
    "ASIN": Plain("d", _double, _math(math.asin), gives_null=True),
    "ACOS": Plain("d", _double, _math(math.acos), gives_null=True),
    "ATAN": Plain(
        "dd?", _double, _math(lambda *given: math.atan2(*given, *([1.0] * (2 - len(given)))))
    ),
    "ATAN2": Plain("dd", _double, _math(math.atan2)),
    "REVERSE": Plain("t", _like_first, lambda text: text[::-1]),
    "LTRIM": Plain("t", _like_first, lambda text: text.lstrip(" ")),
    "RTRIM": Plain("t", _like_first, lambda text: text.rstrip(" ")),
    "ASCII": Plain("b", _int(3), lambda data: data[0] if data else 0),
    "ORD": Plain("t", _int(10), _ord),
    "MD5": Plain(
        "b", _chars(32), lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()
    ),
    **dict.fromkeys(
        ("SHA", "SHA1"),
        Plain("b", _chars(40), lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest()),
    ),
    "SHA2": Plain("bi", _chars(128), _sha2, gives_null=True),
    "CRC32": Plain("b", lambda kinds: types.integer(10, unsigned=True), zlib.crc32),
    "UNHEX": Plain("t", lambda kinds: types.octets(kinds[0].characters), _unhex, gives_null=True),
    "TO_BASE64": Plain(
        "b",
        lambda kinds: types.text(kinds[0].length * 6 + 4),
        lambda data: base64.b64encode(data).decode(),
    ),
    "FROM_BASE64": Plain(
        "t", lambda kinds: types.octets(kinds[0].characters), _from_base64, gives_null=True
    ),
    "CONV": Plain("tii", _chars(64), _conv, gives_null=True),
    "BIN": Plain("i", _chars(64), lambda number: f"{number & values.U64_MAX:b}"),
    "OCT": Plain("i", _chars(64), lambda number: f"{number & values.U64_MAX:o}"),
    "FORMAT": Plain("nit?", _chars(64), lambda number, places, _="": _format(number, places)),
    "INET_ATON": Plain("t", lambda kinds: types.integer(21, unsigned=True), _inet, gives_null=True),
    "ABS": Plain("n", _abs_kind, lambda number: values.negated(number) if number < 0 else number),
    "SIGN": Plain("n", _int(2), lambda number: (number > 0) - (number < 0)),
    **dict.fromkeys(("POW", "POWER"), Plain("dd", _double, _math(math.pow), gives_null=True)),
    "SQRT": Plain("d", _double, _math(math.sqrt), gives_null=True),
    "EXP": Plain("d", _double, _math(math.exp), gives_null=True),
    "LN": Plain("d", _double, _math(math.log), gives_null=True),
    "LOG": Plain(
        "dd?",
        _double,
        _math(lambda *given: math.log(given[-1], *given[:-1])),
        gives_null=True,
    ),
    "LOG2": Plain("d", _double, _math(math.log2), gives_null=True),
    "LOG10": Plain("d", _double, _math(math.log10), gives_null=True),
    "RADIANS": Plain("d", _double, math.radians),
    "DEGREES": Plain("d", _double, math.degrees),
    "SIN": Plain("d", _double, _math(math.sin), gives_null=True),
    "COS": Plain("d", _double, _math(math.cos), gives_null=True),
    "PI": Plain("", lambda kinds: Type(ValueForm.DOUBLE, 8, 6, may_be_null=False), lambda: math.pi),
    "MOD": Plain("nn", lambda kinds: types.remainder_of(*kinds), remainder),
    "DATE": _of_moment(types.moment(ValueForm.DATE), values.date_text),
    "LAST_DAY": _of_moment(types.moment(ValueForm.DATE), _last_day),
    **{
        name: _of_moment(types.small(length), moments.PARTS[name])
        for name, length in (("YEAR", 5), ("QUARTER", 2), ("MONTH", 3), ("DAY", 3))
    },
    "DAYOFMONTH": _of_moment(types.small(3), moments.PARTS["DAY"]),
    "DAYOFYEAR": _of_moment(types.small(4), lambda at: at.timetuple().tm_yday),
    "DAYOFWEEK": _of_moment(types.small(2), lambda at: at.isoweekday() % 7 + 1),
    "WEEKDAY": _of_moment(types.small(2), date.weekday),
    "TO_DAYS": _of_moment(types.integer(7), _days),
    "HOUR": _of_clock(types.small(3), lambda span: int(span.total_seconds()) // 3600),
    "MINUTE": _of_clock(types.small(3), lambda span: int(span.total_seconds()) // 60 % 60),
    "SECOND": _of_clock(types.small(3), lambda span: int(span.total_seconds()) % 60),
    "MICROSECOND": _of_clock(types.small(7), lambda span: span.microseconds),
    "TIME_TO_SEC": _of_clock(types.small(10), lambda span: int(span.total_seconds())),
    "DATEDIFF": Plain(
        "mm",
        lambda kinds: types.integer(7),
        lambda end, begin: end.toordinal() - begin.toordinal(),
        gives_null=True,
    ),
    "YEARWEEK": Plain(
        "mi?",
        lambda kinds: types.small(6),
        lambda at, mode=0: _year_and_week(at, mode & 7 | 2),
        gives_null=True,
    ),
    "WEEKOFYEAR": _of_moment(types.small(2), lambda at: moments.week(at, 3)[1]),
    "TO_SECONDS": _of_moment(
        types.BIGINT, lambda at: _days(at) * 86400 + at.hour * 3600 + at.minute * 60 + at.second
    ),
}
_SPECIAL: Final[Mapping[str, tuple[int, int, Make]]] = {
    "CONCAT": (1, 1000, _concat),
    "CONCAT_WS": (2, 1000, _concat_ws),
    "IF": (3, 3, _if),
    "IFNULL": (2, 2, _coalesce),
    "NVL": (2, 2, _coalesce),
    "COALESCE": (1, 1000, _coalesce),
    "NULLIF": (2, 2, _nullif),
    "ISNULL": (1, 1, _isnull),
    "LEAST": (2, 1000, _extreme(False)),
    "GREATEST": (2, 1000, _extreme(True)),
    **dict.fromkeys(("CEIL", "CEILING"), (1, 1, _whole(math.ceil))),
    "FLOOR": (1, 1, _whole(math.floor)),
    "LEFT": (2, 2, _part(lambda text, count: text[: max(0, count)])),
    "RIGHT": (2, 2, _part(lambda text, count: text[-count:] if count > 0 else text[:0])),
    "SUBSTRING": (2, 3, _substring),
    "SUBSTR": (2, 3, _substring),
    "MID": (2, 3, _substring),
    "REPEAT": (2, 2, _repeat),
    "SPACE": (1, 1, _space),
    "REPLACE": (3, 3, _replace),
    "LPAD": (2, 3, _pad(True)),
    "RPAD": (2, 3, _pad(False)),
    "HEX": (1, 1, _hex),
    "QUOTE": (1, 1, _quoted),
    "FIELD": (2, 1000, _field),
    "FIND_IN_SET": (2, 2, _find_in_set),
    "STRCMP": (2, 2, _strcmp),
    "ELT": (2, 1000, _elt),
    "ROUND": (1, 2, _rounding(values.rounded)),
    "TRUNCATE": (2, 2, _rounding(values.cut)),
    "SLEEP": (1, 1, _sleep),
    "RAND": (0, 1, _rand),
    "BENCHMARK": (2, 2, _no_benchmark),
    "LAST_INSERT_ID": (0, 1, _last_insert_id),
    "GET_LOCK": (2, 2, _get_lock),
    "RELEASE_LOCK": _of_lock(lambda locks, name: locks.release(name), types.BOOLEAN),
    "RELEASE_ALL_LOCKS": (0, 0, _release_all_locks),
    "IS_FREE_LOCK": _of_lock(lambda locks, name: int(locks.owner(name) is None), types.BOOLEAN),
    "IS_USED_LOCK": _of_lock(lambda locks, name: locks.owner(name), types.small(10)),
    "REGEXP": _of_regular(lambda kinds: types.BOOLEAN, _regexp_like, 2),  # the operator
    "REGEXP_INSTR": _of_regular(_int(11), _regexp_instr, 2),
    "REGEXP_SUBSTR": _of_regular(_like_first, _regexp_substr, 2),
    "REGEXP_REPLACE": _of_regular(lambda kinds: types.text(_LONG), _regexp_replace, 3),
    "JSON_ARRAY": (0, 1000, _json_array),
    "JSON_OBJECT": (0, 1000, _json_object),
    "JSON_VALID": (1, 1, _json_valid),
    "JSON_EXTRACT": _of_document(
        "json_extract", _like_document, _json_extract, 2, 1000, is_json=True
    ),
    "JSON_VALUE": _of_document("json_value", _like_document, _json_value, 2, 2, one_place=True),
    "JSON_QUERY": _of_document("json_query", _like_document, _json_query, 2, 2, is_json=True),
    "JSON_EXISTS": _of_document("json_exists", lambda kinds: types.BOOLEAN, _json_exists, 2, 2),
    "JSON_LENGTH": _of_document("json_length", _int(10), _json_length, 1, 2, one_place=True),
    "JSON_KEYS": _of_document("json_keys", _like_document, _json_keys, 1, 2, one_place=True),
    "JSON_SET": _of_changes("json_set", _putting("ir"), has_values=True),
    "JSON_INSERT": _of_changes("json_insert", _putting("i"), has_values=True),
    "JSON_REPLACE": _of_changes("json_replace", _putting("r"), has_values=True),
    "JSON_REMOVE": _of_changes(
        "json_remove",
        lambda text, steps, _, session: document_changes.removed(text, steps, session.budget.tick),
        has_values=False,
    ),
    "JSON_ARRAY_APPEND": _of_changes(
        "json_array_append",
        lambda text, steps, value, session: document_changes.appended(
            text, steps, value, session.budget.tick
        ),
        has_values=True,
    ),
    "JSON_MERGE_PATCH": (2, 1000, _merge_patch),
    "JSON_CONTAINS": (2, 3, _json_contains),
    "JSON_CONTAINS_PATH": (3, 1000, _json_contains_path),
    "JSON_SEARCH": (3, 1000, _json_search),
    "JSON_COMPACT": _of_document("json_compact", _like_document, _json_compact, 1, 1, is_json=True),
    "JSON_LOOSE": _of_document("json_loose", _like_document, _json_loose, 1, 1, is_json=True),
    "JSON_TYPE": _of_document("json_type", _chars(12), _json_type, 1, 1),
    "JSON_DEPTH": _of_document("json_depth", _int(10), _json_depth, 1, 1),
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP"), _NOW),
    "SYSDATE": (0, 1, _sysdate),
    "LOCALTIMESTAMP": (0, 1, _now(ValueForm.DATETIME, values.datetime_text)),
    **dict.fromkeys(("CURDATE", "CURRENT_DATE"), _TODAY),
    **dict.fromkeys(("CURTIME", "CURRENT_TIME", "LOCALTIME"), _CURTIME),  # as an 11.8.9
    "UTC_TIMESTAMP": (0, 1, _now(ValueForm.DATETIME, values.datetime_text, utc=True)),
    "UTC_DATE": (0, 0, _now(ValueForm.DATE, lambda value, _: values.date_text(value), utc=True)),
    "UTC_TIME": (0, 1, _now(ValueForm.TIME, _clock, utc=True)),
    "UNIX_TIMESTAMP": (0, 1, _unix_timestamp),
    "WEEK": (1, 2, _week),
    "DAYNAME": (1, 1, _named("%A")),
    "MONTHNAME": (1, 1, _named("%B")),
    "DATE_FORMAT": (2, 2, _date_format),
    "FROM_UNIXTIME": (1, 2, _from_unixtime),
    "SEC_TO_TIME": (1, 1, _sec_to_time),
    "TIME": (1, 1, _time),
    "TIMESTAMP": (1, 2, _timestamp),
    "ADDTIME": (2, 2, _shifted_by_time(1)),
    "SUBTIME": (2, 2, _shifted_by_time(-1)),
    "NVL2": (3, 3, _nvl2),
    "CHARSET": (1, 1, _of_text("CHARSET")),
    "COLLATION": (1, 1, _of_text("COLLATION")),
    "CONVERT_TZ": (3, 3, _convert_tz),
    "TIMEDIFF": (2, 2, _timediff),
}
# Functions that MariaDB has, and this server has not.
_ELSEWHERE: Final = frozenset(
    {
        *(
            "ADD_MONTHS",
            "AES_DECRYPT",
            "AES_ENCRYPT",
            "CHAR",
            "CHR",
        ),
        *("COERCIBILITY", "COLUMN_ADD", "COLUMN_CHECK", "COLUMN_CREATE", "COLUMN_DELETE"),
        *("COLUMN_EXISTS", "COLUMN_GET", "COLUMN_JSON", "COLUMN_LIST", "COMPRESS"),
        *("COT", "CRC32C", "DECODE", "DECODE_ORACLE", "DEFAULT", "DES_DECRYPT", "DES_ENCRYPT"),
        *("ENCODE", "ENCRYPT", "EXPORT_SET", "EXTRACTVALUE", "FORMAT_BYTES", "FORMAT_PICO_TIME"),
        *("GET_FORMAT", "IS_IPV4_COMPAT", "IS_IPV4_MAPPED", "JSON_ARRAYAGG"),
        *("JSON_ARRAY_INSERT", "JSON_ARRAY_INTERSECT"),
        *("JSON_DETAILED", "JSON_EQUALS", "JSON_KEY_VALUE"),
        *("JSON_MERGE", "JSON_MERGE_PRESERVE", "JSON_NORMALIZE"),
        *("JSON_OBJECTAGG", "JSON_OBJECT_FILTER_KEYS", "JSON_OBJECT_TO_ARRAY", "JSON_OVERLAPS"),
        *("JSON_PRETTY", "JSON_SCHEMA_VALID"),
        *("JSON_TABLE", "KDF", "LAST_VALUE", "LENGTHB", "LOAD_FILE", "MAKETIME"),
        *("MAKE_SET", "MEDIAN", "MONTHS_BETWEEN", "NAME_CONST", "NATURAL_SORT_KEY"),
        *("OLD_PASSWORD", "PASSWORD", "PERIOD_ADD", "PERIOD_DIFF", "RANDOM_BYTES", "ROWNUM"),
        *("SFORMAT", "SOUNDEX", "STR_TO_DATE"),
        *("SYS_GUID", "TIME_FORMAT", "TO_CHAR", "UNCOMPRESS", "UNCOMPRESSED_LENGTH", "UPDATEXML"),
        *("UUID_SHORT", "UUID_V4", "UUID_V7", "VEC_DISTANCE"),
        *("VEC_FROMTEXT", "VEC_TOTEXT", "WEIGHT_STRING"),
    }
)
