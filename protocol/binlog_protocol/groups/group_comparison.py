"""Whether the group that two servers have under one GTID is the same, and how to tell people where it is not.

Groups are compared by what they say (`binlog_protocol.groups.group_content`). A difference that one server's options
explain is none: statements there and rows here, other columns, other types. What is left to compare then is when it was
written: a server that logs a group anew keeps the time of each statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import zip_longest
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.groups.group_content import PARTS_MAX, TIMES_MAX, ContentPart, GroupContent
from binlog_protocol.gtid import Gtid

_PARTS_SHOWN: Final = 2
_DIGITS_SHOWN: Final = 16
_REWORDED: Final = compiled_later(
    r"(CREATE (OR REPLACE )?(TEMPORARY )?|DROP TEMPORARY )TABLE\b", re.I
)


class Likeness(Enum):
    """The result of comparing two groups with one GTID.

    SAME: they say the same.
    UNLIKE_FORM: written at the same time, but not in the same form, so that there is nothing more to compare.
    OTHER: not the same group.
    """

    SAME = auto()
    UNLIKE_FORM = auto()
    OTHER = auto()


class Comparison(NamedTuple):
    """`difference`: what the first one is, in words; empty for the same. `outline`: without what the groups say."""

    likeness: Likeness
    difference: str = ""
    outline: str = ""


_Show = Callable[[ContentPart], str]


def compare(ours: GroupContent, theirs: GroupContent) -> Comparison:
    """Compare two contents, both finished."""
    if ours.digest == theirs.digest:
        return Comparison(Likeness.SAME)
    if _says_more(ours, theirs) or _says_more(theirs, ours):
        return _by_time(ours, theirs, "rows here and statements there, or the other way round")
    if ours.is_cut:
        return _by_time(ours, theirs, "more of it is compressed than is looked at")
    for number, (our, their) in enumerate(zip_longest(ours.parts, theirs.parts), 1):
        if our is None or their is None:
            missing = f"{_parts(ours)} here, {_parts(theirs)} there: part {number} is missing"
            return Comparison(Likeness.OTHER, missing, missing)
        if _is_same(our, their):
            continue
        if our.has_rows and their.has_rows and _is_unlike(our, their):
            why = "other columns or types of columns"
            return _by_time(ours, theirs, f"{why}: {our.subject}", why)
        if all(_REWORDED.match(part.subject) for part in (our, their)):
            return _by_time(ours, theirs, "a statement that each server puts in its own words")
        told, outlined = (
            f"part {number} is {_differ(our, their, show)}" for show in (str, _outline_of)
        )
        return Comparison(Likeness.OTHER, told, outlined)
    behind = f"the first difference is behind part {PARTS_MAX}"
    return Comparison(Likeness.OTHER, behind, behind)


def describe(gtid: Gtid, content: GroupContent | None) -> str:
    """A group, for people. None: only its GTID is known."""
    if content is None:
        return str(gtid)
    parts = [str(part) for part in content.parts[:_PARTS_SHOWN]]
    if content.annotation:
        parts = [content.annotation, *parts[:1]]
    return _described(gtid, content, parts)


def outline(gtid: Gtid, content: GroupContent | None) -> str:
    """The same for those who may not see what it says: kinds, sizes, and a digest to tell it from others by."""
    if content is None:
        return str(gtid)
    parts = [part.outline for part in content.parts[:_PARTS_SHOWN]]
    digest = f", digest {content.digest.hex()[:_DIGITS_SHOWN]}"
    return _described(gtid, content, parts) + digest


def _described(gtid: Gtid, content: GroupContent, parts: list[str]) -> str:
    first = content.parts[0] if content.parts else None
    when = f" of {_time(first.timestamp)}" if first is not None else ""
    if content.part_count > _PARTS_SHOWN:
        parts = [*parts, f"{content.part_count} parts in all"]
    said = "; ".join(parts) or "nothing"
    return f"{gtid}{when}, {content.events} events, {content.size} bytes: {said}"


def _says_more(statements: GroupContent, rows: GroupContent) -> bool:
    """Whether the one has statements for what are rows in the other. CREATE TABLE ... AS SELECT stays a statement."""
    if not rows.rows or not statements.statements:
        return False
    more = statements.statements - rows.statements
    return more > 0 or (more == 0 and not statements.rows)


def _by_time(ours: GroupContent, theirs: GroupContent, why: str, outlined: str = "") -> Comparison:
    """A statement that changes no rows is missing among rows, and so is its time."""
    few, many = sorted((ours.times, theirs.times), key=len)
    if few <= many or len(many) >= TIMES_MAX:
        return Comparison(Likeness.UNLIKE_FORM, why, outlined or why)
    here, there = min(ours.times, default=0), min(theirs.times, default=0)
    at_other_times = f"written at other times: {_time(here)} here, {_time(there)} there"
    return Comparison(Likeness.OTHER, at_other_times, at_other_times)


def _is_same(our: ContentPart, their: ContentPart) -> bool:
    if our.is_statement and their.is_statement:
        our, their = our._replace(subject=""), their._replace(subject="")
    return our == their


def _is_unlike(our: ContentPart, their: ContentPart) -> bool:
    return our.subject == their.subject and our.shape != their.shape


def _differ(our: ContentPart, their: ContentPart, show: _Show) -> str:
    here, there = show(our), show(their)
    if _is_same(our._replace(timestamp=0), their._replace(timestamp=0)):
        return f"of {_time(our.timestamp)} here, of {_time(their.timestamp)} there: {here}"
    if here == there:
        return f"{here}, but not with the same contents"
    return f"{here} here, {there} there"


def _outline_of(part: ContentPart) -> str:
    return part.outline


def _parts(content: GroupContent) -> str:
    return "1 part" if content.part_count == 1 else f"{content.part_count} parts"


def _time(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
