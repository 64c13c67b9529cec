"""JSON texts made of others: JSON_SET and its kin, JSON_MERGE_PATCH; and looked through: JSON_CONTAINS, JSON_SEARCH.

A value is the text that stands there, as in `documents`: what is not touched stays as it was said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from binlog_server.queries.documents import (
    PathStep,
    bounds,
    found,
    is_container,
    members,
    unquoted,
)

Tick = Callable[[], None]
Steps = tuple[PathStep, ...]
_LITERALS: Final = ("true", "false", "null")


def _whole(text: str) -> tuple[int, int]:
    within = bounds(text)
    assert within is not None
    return within


def _first(text: str, steps: Steps, tick: Tick) -> tuple[int, int] | None:
    return next(found(text, _whole(text), steps, tick), None)


def _items(text: str, at: int) -> list[str]:
    """The members of the object or array that begins there, as they are said."""
    said, begin = [], at + 1
    for _, _, end in members(text, at):
        said.append(text[begin:end].strip(" \t\r\n"))
        begin = text.find(",", end) + 1
    return said


def _with(text: str, place: tuple[int, int], value: str) -> str:
    return text[: place[0]] + value + text[place[1] :]


def _container(text: str, place: tuple[int, int], items: list[str]) -> str:
    """The text with these members of the object or array at a place."""
    first, last = text[place[0]], text[place[1] - 1]
    return _with(text, place, f"{first}{','.join(items)}{last}")


def put(
    text: str, steps: Steps, value: str, quote: Callable[[str], str], tick: Tick, *, modes: str
) -> str:
    """JSON_SET, JSON_INSERT, JSON_REPLACE of one path. `modes`: i, r for what is not there and what is."""
    place = _first(text, steps, tick)
    if place is not None:
        return _with(text, place, value) if "r" in modes else text
    around = _first(text, steps[:-1], tick)
    if around is None or "i" not in modes:
        return text
    last, begin = steps[-1], around[0]
    if last.key is not None:
        if text[begin] != "{":
            return text
        return _container(text, around, [*_items(text, begin), f"{quote(last.key)}:{value}"])
    if last.index is None or last.index < 0:
        return text
    if text[begin] != "[":
        return _with(text, around, f"[{text[begin : around[1]]},{value}]")
    return _container(text, around, [*_items(text, begin), value])


def removed(text: str, steps: Steps, tick: Tick) -> str:
    """JSON_REMOVE of one path, which has a step."""
    around, place = _first(text, steps[:-1], tick), _first(text, steps, tick)
    if around is None or place is None or not is_container(text, around[0]):
        return text
    kept = [
        said
        for said, (_, begin, _) in zip(
            _items(text, around[0]), members(text, around[0]), strict=True
        )
        if begin != place[0]
    ]
    return _container(text, around, kept)


def appended(text: str, steps: Steps, value: str, tick: Tick) -> str | None:
    """JSON_ARRAY_APPEND of one path; None if there is nothing at it."""
    place = _first(text, steps, tick)
    if place is None:
        return None
    if text[place[0]] != "[":
        return _with(text, place, f"[{text[place[0] : place[1]]},{value}]")
    return _container(text, place, [*_items(text, place[0]), value])


def patched(text: str | None, patch: str, tick: Tick) -> str | None:
    """JSON_MERGE_PATCH of two. `text`: None for NULL."""
    tick()
    begin, end = _whole(patch)
    if patch[begin] != "{":
        return patch[begin:end]
    if text is None:
        return None
    target, _ = _whole(text)
    kept = dict(_named(text, target)) if text[target] == "{" else {}
    for name, (said, value) in _named(patch, begin):
        if value == "null":
            kept.pop(name, None)
            continue
        before = kept[name][1] if name in kept else "{}"
        kept[name] = kept.get(name, (said, ""))[0], patched(before, value, tick) or ""
    return "{" + ",".join(f"{said}:{value}" for said, value in kept.values()) + "}"


def _named(text: str, at: int) -> Iterator[tuple[str, tuple[str, str]]]:
    """The members of an object: the name; as it is said, and the value."""
    for said, (name, begin, end) in zip(_items(text, at), members(text, at), strict=True):
        value = text[begin:end]
        yield str(name), (said[: -len(value)].rstrip(" \t\r\n:"), value)


def contains(text: str, wanted: str, tick: Tick) -> bool:
    """JSON_CONTAINS of two values."""
    tick()
    at, begin = _whole(text)[0], _whole(wanted)[0]
    if text[at] == "[":
        mine = [text[start:end] for _, start, end in members(text, at)]
        if wanted[begin] == "[":
            theirs = [wanted[start:end] for _, start, end in members(wanted, begin)]
            return all(contains(text, one, tick) for one in theirs)
        return any(contains(one, wanted, tick) for one in mine)
    if text[at] == "{":
        if wanted[begin] != "{":
            return False
        own = dict(_named(text, at))
        return all(
            name in own and contains(own[name][1], value, tick)
            for name, (_, value) in _named(wanted, begin)
        )
    return not is_container(wanted, begin) and _scalar(text) == _scalar(wanted)


def _scalar(text: str) -> object:
    """What a value is compared by that is no object and no array: a string as it is said, with its escapes."""
    said = text.strip(" \t\r\n")
    return said if said.startswith('"') or said in _LITERALS else Decimal(said)


def places_like(
    text: str, paths: list[Steps], matches: Callable[[str], bool], tick: Tick
) -> Iterator[str]:
    """JSON_SEARCH: the paths of scalars that match, below one of these."""
    for place, said in _scalars(text, _whole(text), "$", tick):
        value = text[place[0] : place[1]]
        if matches(unquoted(value)) and (
            not paths or any(_is_below(text, place, steps, tick) for steps in paths)
        ):
            yield said


def _is_below(text: str, place: tuple[int, int], steps: Steps, tick: Tick) -> bool:
    return any(
        begin <= place[0] and place[1] <= end
        for begin, end in found(text, _whole(text), steps, tick)
    )


def _scalars(
    text: str, place: tuple[int, int], said: str, tick: Tick
) -> Iterator[tuple[tuple[int, int], str]]:
    tick()
    if not is_container(text, place[0]):
        yield place, said
        return
    for name, begin, end in members(text, place[0]):
        step = f"[{name}]" if isinstance(name, int) else f".{name}"
        yield from _scalars(text, (begin, end), said + step, tick)
